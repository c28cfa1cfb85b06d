"""Every figure and table of the papers, from our own runs, beside the authors' published points.

`make` trains what figures need, each recipe once, and draws them; `make_from` draws from a sweep that was done before.
See `tacit figures --help`.
"""

from tacit.lab.figures.making import Made, counted, draw, make, make_from
from tacit.lab.figures.recipes import RECIPES, Asked, Recipe
from tacit.lab.figures.registry import FIGURES, PAPERS, Drawn, Embedded, chosen

__all__ = [
    "FIGURES",
    "PAPERS",
    "RECIPES",
    "Asked",
    "Drawn",
    "Embedded",
    "Made",
    "Recipe",
    "chosen",
    "counted",
    "draw",
    "make",
    "make_from",
]
