"""Every figure and table of the papers by name: what it shows, what it is drawn from, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from papers.bounds import bounds
from papers.daily import INDUSTRY, REPORT, daily
from papers.embedding.drawing import TITLES
from papers.kinds import Kind
from papers.labelling import labelling
from papers.observations import observations
from papers.progress import by_layer, over_training
from papers.recipes import RECIPES
from papers.runtimes import run_times
from papers.strengths import strengths
from papers.tradeoff import trade_off
from tacit.errors import UsageError

__all__ = ["FIGURES", "PAPERS", "Attacked", "Drawn", "Embedded", "Figure", "chosen"]

PAPERS: Mapping[str, str] = {
    "000": "Label leakage and protection in two-party split learning, workshop version (2020)",
    "001": "Embedding protection in federated learning, technical report",
    "002": "Label leakage and protection in federated learning, technical report",
    "003": "the same work, longer version",
    "004": "the same work, ICLR 2022",
    "attacks": "every attack against every protection, which no paper has",
}
"""The papers, by the number that a figure's name begins with."""


@dataclass(frozen=True)
class Drawn:
    """A figure that is drawn from a recipe's results.

    Attributes:
        name: paper and number.
        shows: what it shows, in a line.
        data: the data set of the paper's own figure.
        recipe: what is trained for it.
        kind: how it is drawn.
        twin: the name that figures share which differ by their data set alone: on other data that one is enough.
    """

    name: str
    shows: str
    data: str
    recipe: str
    kind: Kind
    twin: str = ""

    @property
    def needs(self) -> str:
        """What is trained for it, in words."""
        return RECIPES[self.recipe].words


@dataclass(frozen=True)
class Embedded:
    """A figure of the report on embedding protection."""

    name: str
    shows: str
    data: str = "fashion"

    @property
    def inner(self) -> str:
        """Its name in the report."""
        return self.name.removeprefix("001-")

    @property
    def needs(self) -> str:
        """What is trained for it, in words."""
        return "models under the report's protections, on fashion, flights or adult"


@dataclass(frozen=True)
class Attacked:
    """The table of all attacks."""

    name: str
    shows: str
    data: str = "any table"
    needs: str = "none, max_norm, iso, marvell, and matched for one visit and for all of them"


Figure = Drawn | Embedded | Attacked

_PROGRESS, _LAYERS = over_training(), by_layer()
_FULL = trade_off(("least_loss", "test_loss", "test_auc"))
_HINTS = (("norm", "cut"), ("hint", "cut"))
_OVER_TRAINING = "norm and cosine leak over training, at the cut and at the first layer"
_COMPLETE = "trade-offs of norm and cosine leak with train loss, test loss and test AUC"
_ALL_FIVE = ("gap", "slope", "norm", "pairs", "cosine")
_FIRST = observations(("gap", "slope", "norm"))

_DRAWN = (
    Drawn("000-figure-1", "|p − y|, ‖∇h‖ and ‖g‖ by class after 100 to 400 updates", "criteo",
          "first-observations", _FIRST),
    Drawn("000-figure-2", "leak over training for L = 0.1 to 0.4; by layer against iso t = 25", "criteo",
          "first-version", bounds("layers")),
    Drawn("002-labelling", "top-p% labelling by norm: precision and recall by sumKL", "production", "labels",
          labelling()),
    Drawn("002-effectiveness", "test AUC and leak by day, sumKL from 0.01 to infinity and max_norm", "production",
          "days", daily(REPORT, ("test_auc", "norm@cut"))),
    Drawn("002-efficiency", "what solving for the noise takes", "production", "times", run_times("solver")),
    Drawn("003-figure-1", "|p − y|, ‖∇h‖ and ‖g‖ by class after 100 to 400 updates", "criteo",
          "first-observations", _FIRST,
          "000-figure-1"),
    Drawn("003-figure-2", "leak over training for L = 0.1 to 0.4; calibration error (ACE)", "criteo", "longer-version",
          bounds("calibration")),
    Drawn("003-figure-3", "trade-offs of norm and hint leak (5 hints) with test loss and test AUC", "criteo", "hints",
          trade_off(("test_loss", "test_auc"), _HINTS)),
    Drawn("003-figure-4", "norm leak, hint leak and test AUC by day, with bands", "production", "days",
          daily(INDUSTRY, ("norm@cut", "hint@cut", "test_auc"))),
    Drawn("004-figure-2", "observations 1 to 4 by class after 100 to 500 updates", "criteo", "observations",
          observations(_ALL_FIVE)),
    Drawn("004-figure-3", _OVER_TRAINING, "isic", "trade-offs", _PROGRESS),
    Drawn("004-figure-4", "trade-offs of norm and cosine leak with test loss and test AUC", "isic", "trade-offs",
          trade_off(("test_loss", "test_auc"))),
    Drawn("004-figure-5", _OVER_TRAINING, "avazu", "trade-offs", _PROGRESS, "004-figure-3"),
    Drawn("004-figure-6", _OVER_TRAINING, "criteo", "trade-offs", _PROGRESS, "004-figure-3"),
    Drawn("004-figure-7", _COMPLETE, "avazu", "trade-offs", _FULL),
    Drawn("004-figure-8", _COMPLETE, "criteo", "trade-offs", _FULL, "004-figure-7"),
    Drawn("004-figure-9", _COMPLETE, "isic", "trade-offs", _FULL, "004-figure-7"),
    Drawn("004-figure-10", "leak over training by layer: of pictures 4 convolutional ones, of tables 8", "isic",
          "layers", _LAYERS, "004-figure-11"),
    Drawn("004-figure-11", "leak over training by layer: 8 MLP layers", "criteo", "layers", _LAYERS),
    Drawn("004-strengths", "leak and cost by strength beside the authors' published runs", "criteo", "trade-offs",
          strengths()),
    Drawn("004-table-1", "run time of Marvell and of an update", "criteo", "times", run_times("update")),
)  # fmt: skip

_EMBEDDED = [Embedded(f"001-{name}", title.partition(": ")[2]) for name, title in TITLES.items()]
_ATTACKED = Attacked("attacks", "leak AUC of every attack on single batches, over all visits and on repeated answers")
_ALL: list[Figure] = [*_DRAWN, *_EMBEDDED, _ATTACKED]

FIGURES: Mapping[str, Figure] = {figure.name: figure for figure in sorted(_ALL, key=lambda figure: figure.name)}
"""All of them, by name."""


def chosen(names: Sequence[str], data: str) -> list[Figure]:
    """The figures of these names; "all" is every one, of twins the one whose data set this is."""
    unknown = [name for name in names if name != "all" and name not in FIGURES]
    if unknown:
        raise UsageError(f"there is no figure {', '.join(unknown)}: `python -m papers --list` names all of them")
    if "all" not in names:
        return [FIGURES[name] for name in dict.fromkeys(names)]
    kept: dict[str, Figure] = {}
    plain = data.removeprefix("generated:")
    plain = "isic" if plain in ("ham10000", "fashion") else plain  # pictures
    for figure in FIGURES.values():
        twin = (figure.twin if isinstance(figure, Drawn) else "") or figure.name
        if twin not in kept or figure.data == plain or (figure.name == twin and kept[twin].data != plain):
            kept[twin] = figure
    return sorted(kept.values(), key=lambda figure: figure.name)
