"""Every figure and table of the papers by name: what it shows, what it is drawn from, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from papers.bounds import bounds
from papers.daily import INDUSTRY, REPORT, daily
from papers.embedding.drawing import TITLES
from papers.kinds import Kind, of_pictures
from papers.labelling import labelling
from papers.observations import observations
from papers.progress import by_layer, over_training
from papers.recipes import RECIPES
from papers.runtimes import run_times
from papers.strengths import strengths
from papers.tradeoff import by_hints, trade_off
from tacit.errors import UsageError

__all__ = ["FIGURES", "Attacked", "Balanced", "Drawn", "Embedded", "Figure", "chosen"]


@dataclass(frozen=True)
class Drawn:
    """A figure that is drawn from a recipe's results.

    Attributes:
        name: number of the paper, and of the figure.
        shows: what it shows, in a line.
        data: the data set of the paper's own figure.
        recipe: what is trained for it.
        kind: how it is drawn.
        twin: the name that figures share which differ by their data set alone: on other data that one is enough.
        deviates: in what it differs from the paper's beside data and size, and why.
    """

    name: str
    shows: str
    data: str
    recipe: str
    kind: Kind
    twin: str = ""
    deviates: str = ""

    @property
    def needs(self) -> str:
        """What is trained for it, in words."""
        return RECIPES[self.recipe].words


@dataclass(frozen=True)
class Balanced:
    """A figure of balanced classes, which the papers have in words alone."""

    name: str
    shows: str
    data: str
    needs: str
    deviates: str = ""


@dataclass(frozen=True)
class Embedded:
    """A figure of the report on embedding protection."""

    name: str
    shows: str
    data: str
    deviates: str

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
    data: str = ""
    needs: str = "none, max_norm, iso, marvell, and matched for one visit and for all of them"
    deviates: str = "no paper has it"


Figure = Drawn | Balanced | Embedded | Attacked

_PROGRESS, _LAYERS = over_training(), by_layer()
_FULL = trade_off(("least_loss", "test_loss", "test_auc"))
_OVER_TRAINING = "norm and cosine leak over training, at the cut and at the first layer"
_COMPLETE = "trade-offs of norm and cosine leak with train loss, test loss and test AUC"
_ALL_FIVE = ("gap", "slope", "norm", "pairs", "cosine")
_FIRST = observations(("gap", "slope", "norm"))

_RIDGES = "ridges, each as high as its own peak, because five histograms do not fit one panel"
_BESIDE = "attacks and a protection that the paper does not have are drawn beside"
_LEAST = (
    "train loss is the lowest mean of a fiftieth of the training, single batches being too noisy; test loss and test "
    f"AUC are those at the end; {_BESIDE}"
)
_PERIODS = "days with few rows are taken together, so that each has some batches"
_FILTER = "the filter is narrower where there are few updates, or it would blur the whole training"
_ENDS = "curves and ends are of held-out rows, because training rows flatter; beside them attackers who learn later"

_DRAWN = (
    Drawn("000-figure-1", "|p − y|, ‖∇h‖ and ‖g‖ by class after 100 to 400 updates", "criteo",
          "first-observations", _FIRST, deviates=_RIDGES),
    Drawn("000-figure-2", "leak over training for L = 0.1 to 0.4; by layer against iso t = 25", "criteo",
          "first-version", bounds("layers"),
          deviates="Adam's rate is ours, for the paper has none; its table is drawn as bars"),
    Drawn("002-labelling", "top-p% labelling by norm: precision and recall by sumKL", "production", "labels",
          labelling(), deviates="means over batches in the place of one batch, which would be an anecdote"),
    Drawn("002-effectiveness", "test AUC and leak by day, sumKL from 0.01 to infinity and max_norm", "production",
          "days", daily(REPORT, ("test_auc", "norm", "leakage")), deviates=_PERIODS),
    Drawn("002-efficiency", "what solving for the noise takes", "production", "times", run_times("solver"),
          deviates="one equation in one unknown, solved exactly, in the place of alternating minimization"),
    Drawn("003-figure-1", "|p − y|, ‖∇h‖ and ‖g‖ by class after 100 to 400 updates", "criteo",
          "first-observations", _FIRST, "000-figure-1", _RIDGES),
    Drawn("003-figure-2", "leak over training for L = 0.1 to 0.4; calibration error (ACE)", "criteo", "longer-version",
          bounds("calibration"), deviates="its table is drawn as bars"),
    Drawn("003-figure-3", "trade-offs of norm and hint leak (5 hints) with test loss and test AUC", "criteo", "hints",
          by_hints(),
          deviates=f"leaks are means over batches, for the paper does not say; {_BESIDE}"),
    Drawn("003-figure-4", "norm leak, hint leak and test AUC by day, with bands", "production", "days",
          daily(INDUSTRY, ("norm", "hint", "test_auc")), deviates=_PERIODS),
    Drawn("004-figure-2", "observations 1 to 4 by class after 100 to 500 updates", "criteo", "observations",
          observations(_ALL_FIVE), deviates=f"{_RIDGES}; 4,096 drawn pairs in the place of all"),
    Drawn("004-figure-3", _OVER_TRAINING, "isic", "trade-offs", _PROGRESS),
    Drawn("004-figure-4", "trade-offs of norm and cosine leak with test loss and test AUC", "isic", "trade-offs",
          trade_off(("test_loss", "test_auc")), deviates=f"test loss and test AUC are those at the end; {_BESIDE}"),
    Drawn("004-figure-5", _OVER_TRAINING, "avazu", "trade-offs", _PROGRESS, "004-figure-3"),
    Drawn("004-figure-6", _OVER_TRAINING, "criteo", "trade-offs", _PROGRESS, "004-figure-3"),
    Drawn("004-figure-7", _COMPLETE, "avazu", "trade-offs", _FULL, deviates=_LEAST),
    Drawn("004-figure-8", _COMPLETE, "criteo", "trade-offs", _FULL, "004-figure-7", _LEAST),
    Drawn("004-figure-9", _COMPLETE, "isic", "trade-offs", _FULL, "004-figure-7", _LEAST),
    Drawn("004-figure-10", "leak over training by layer: of pictures 4 convolutional ones, of tables 8", "isic",
          "layers", _LAYERS, "004-figure-11", _FILTER),
    Drawn("004-figure-11", "leak over training by layer: 8 MLP layers", "criteo", "layers", _LAYERS, deviates=_FILTER),
    Drawn("004-strengths", "leak and cost by strength beside the authors' published runs", "criteo", "trade-offs",
          strengths(), deviates="no figure of the paper: it draws the table that the authors published"),
    Drawn("004-table-1", "run time of Marvell and of an update", "isic, criteo, avazu", "times", run_times("update"),
          deviates="one line of ours above the paper's three, which were measured on other machines"),
)  # fmt: skip

_BALANCED = (
    Balanced("003-balanced", "norm, cosine and hint leak where both classes have as many rows", "criteo",
             "no noise, on all positive rows and as many negative ones", "the paper says it in a sentence"),
    Balanced("004-balanced", "the toy example of appendix A.2: confidence and gradients of a balanced problem", "toy",
             "a small network on made-up numbers", "a fitted network beside the best classifier, which the paper has"),
)  # fmt: skip

_DEVIATES: Mapping[str, str] = {
    "table-2": "cross entropy is that of held-out rows: the report does not say of which; bounded reversal beside",
    "figure-2": "X is what enters the network here, one-hot codes and numbers, and not 384 embeddings",
    "figure-6": f"decorrelation is that of the logarithm; {_ENDS}",
}

_EMBEDDED = [
    Embedded(
        f"001-{name}", title.partition(": ")[2], "fashion" if name == "table-2" else "production",
        _DEVIATES.get(name, _ENDS),
    )
    for name, title in TITLES.items()
]  # fmt: skip
_ATTACKED = Attacked("attacks", "leak AUC of every attack on single batches, over all visits and on repeated answers")
_ALL: list[Figure] = [*_DRAWN, *_BALANCED, *_EMBEDDED, _ATTACKED]

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
    plain = "isic" if of_pictures(data) else plain
    for figure in FIGURES.values():
        twin = (figure.twin if isinstance(figure, Drawn) else "") or figure.name
        if twin not in kept or figure.data == plain or (figure.name == twin and kept[twin].data != plain):
            kept[twin] = figure
    return sorted(kept.values(), key=lambda figure: figure.name)
