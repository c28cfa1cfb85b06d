"""What the report says about its table and figures, and whether our runs say so too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tacit.lab.embedding.records import Reading
from tacit.lab.embedding.settings import BASELINE, STDS, WEIGHTS

__all__ = ["THEIRS", "Statement", "nearest_noise", "statements"]

THEIRS: Mapping[str, tuple[float, float]] = {
    "none": (7.949, 0.01671),
    "adversarial-1": (114.7, 0.1759),
    "noise-1": (132.1, 0.3953),
    "adversarial-1+noise-1": (256.8, 0.6133),
}
"""The report's table 2: for each setting its reconstruction loss and its cross entropy."""

Readings = Mapping[str, Reading]

_DCOR, _WORTH, _LOSS = 0.01, 0.003, 0.02  # differences below these are no differences
_ALIKE = 0.1  # what differs by less than this share is alike


@dataclass(frozen=True)
class Statement:
    """One sentence of the report beside what was found here.

    Attributes:
        text: what the report says.
        agrees: whether our runs agree; None where the report says nothing to agree with.
        found: our figures.
        because: why they may differ, where something is known about that.
    """

    text: str
    agrees: bool | None
    found: str
    because: str = ""

    @property
    def why(self) -> str:
        """Why our runs differ, as far as it is known; empty where they agree."""
        return "" if self.agrees is not False else self.because or "not known; the report's data and models differ"

    @property
    def verdict(self) -> str:
        """In a word."""
        return {True: "agrees", False: "differs", None: "found here"}[self.agrees]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"text": self.text, "agrees": self.agrees, "found": self.found, "why": self.why}


def statements(figure: str, found: Readings, noise: Mapping[str, Any] | None, chance: float) -> list[Statement]:
    """The report's sentences about one table or figure, each checked, and what independent attackers find.

    Args:
        figure: its name.
        found: the settings that it draws.
        noise: figure 2's record.
        chance: what a coin flip is worth: 0.5 of an AUC, a tenth of ten classes.
    """
    if figure == "figure-2":
        return [] if noise is None else _figure_2(noise)
    check: Callable[[Readings], list[Statement]] = {
        "table-2": _table_2,
        "figure-3": _figure_3,
        "figure-4": _figure_4,
        "figure-5": _figure_5,
        "figure-6": _figure_6,
        "figure-7": lambda readings: _figure_7(readings, chance),
        "figure-8": _figure_8,
    }[figure]
    independent = "; ".join(f"{reading.label}: {reading.worst['value']:.2f}" for reading in found.values())
    own = Statement(
        "What the strongest attacker reads who took no part in training (error over that of answering the mean; "
        "0 reads everything, 1 nothing).", None, independent,
    )  # fmt: skip
    return [*check(found), own]


def nearest_noise(found: Readings) -> str | None:
    """Of figure 7's strengths the one whose model is worth about as much as that of both regularizers together."""
    goal = found["logdcor-0.01+noise-0.01"].utility["value"]
    names = [name for name in found if name.startswith("gaussian-")]
    return min(names, key=lambda name: abs(found[name].utility["value"] - goal)) if names else None


def _table_2(found: Readings) -> list[Statement]:
    shown = [found[name] for name in THEIRS]
    losses = [one.loss for one in shown]
    entropies = [one.utility["test_loss"] for one in shown]
    told = "; ".join(f"{one.label}: {loss:.1f}" for one, loss in zip(shown, losses, strict=True))
    worth = "; ".join(f"{one.label}: {loss:.3f}" for one, loss in zip(shown, entropies, strict=True))
    return [
        Statement(
            "Adversarial training and noise regularization each raise the reconstruction loss, both together most.",
            losses[0] < min(losses[1:]) and losses[3] >= max(losses[1:3]), told,
            "ours is the loss of an attacker of the same shape that learns beside, on held-out rows; where it is near "
            "that of the mean, it says no more",
        ),
        Statement(
            "They cost cross entropy, both together most.",
            entropies[0] < min(entropies[1:]) and entropies[3] >= max(entropies[1:3]), worth,
            "the report does not say on which rows its cross entropy was taken; ours is on held-out rows",
        ),
    ]  # fmt: skip


def _figure_2(noise: Mapping[str, Any]) -> list[Statement]:
    plain = {int(size): value["value"] for size, value in noise["plain"].items()}
    fair = {int(size): value["value"] for size, value in noise["unbiased"].items()}
    sizes = sorted(plain)
    falls = all(plain[small] > plain[large] for small, large in pairwise(sizes))
    return [
        Statement(
            "The distance correlation between X and independent noise falls as the batch grows.", falls,
            f"{plain[sizes[0]]:.3f} with {sizes[0]} rows, {plain[sizes[-1]]:.3f} with {sizes[-1]}",
        ),
        Statement(
            "The unbiased variant does not depend on the batch size.", None,
            f"{fair[sizes[0]]:.3f} with {sizes[0]} rows, {fair[sizes[-1]]:.3f} with {sizes[-1]}",
        ),
    ]  # fmt: skip


def _figure_3(found: Readings) -> list[Statement]:
    none = found[BASELINE]
    first, start = none.dcor(kind="untrained")["value"], none.dcor()["value"]
    plain, log = ([found[f"{kind}-{w:g}"] for w in WEIGHTS] for kind in ("dcor", "logdcor"))
    lines = {"dCor": [_dcor(one) for one in plain], "log dCor": [_dcor(one) for one in log]}
    told = "; ".join(f"{kind} {_arrow([start, *values])}" for kind, values in lines.items())
    lost = {one.label: _worth(none) - _worth(one) for one in (plain[1], log[1])}
    halved = [one for one in (plain[1], log[1]) if _dcor(one) <= 0.6 * start and lost[one.label] < 0.01]
    gaps = {kind: values[0] - values[1] for kind, values in lines.items()}
    weak = (
        "the weights are those for the report's private data and loss; on other data the same weight acts differently"
    )
    return [
        Statement(
            "The network itself lowers the distance correlation.", start < first - _DCOR,
            f"{first:.3f} before training, {start:.3f} after it, without protection",
            "a first layer as wide as the input has no need to forget, and random weights keep distances",
        ),
        Statement(
            "A larger weight gives a smaller distance correlation.",
            all(_falls([start, *values], _DCOR) for values in lines.values()),
            f"weights 0, 0.01, 0.1, 0.15: {told}",
        ),
        Statement(
            "Weight 0.1 lowers it from 0.45 to 0.2, and the AUC drops by less than 0.01.", bool(halved),
            f"from {start:.3f} to {_dcor(plain[1]):.3f} (dCor) and {_dcor(log[1]):.3f} (log dCor); "
            f"{none.utility['name']} drops by {lost[plain[1].label]:.3f} and {lost[log[1].label]:.3f}", weak,
        ),
        Statement(
            "The logarithm is more robust: less lies between the weights 0.01 and 0.1.",
            gaps["log dCor"] < gaps["dCor"], f"{gaps['dCor']:.3f} (dCor), {gaps['log dCor']:.3f} (log dCor)", weak,
        ),
    ]  # fmt: skip


def _figure_4(found: Readings) -> list[Statement]:
    none = found[BASELINE]
    small, large = min(none.sizes), max(none.sizes)
    pairs = [(found[f"{BASELINE}{at}"], found[f"logdcor-0.1{at}"]) for at in ("", "@0.5", "@2")]
    lower = [a.dcor(size)["value"] - b.dcor(size)["value"] > _DCOR for a, b in pairs for size in none.sizes]
    return [
        Statement(
            "The distance correlation is sensitive to the batch size.",
            none.dcor(small)["value"] - none.dcor(large)["value"] > _DCOR,
            f"without protection {none.dcor(small)['value']:.3f} at {small} rows, {none.dcor(large)['value']:.3f} at "
            f"{large}",
            "where X and what is sent depend on each other strongly, there is little room for the bias",
        ),
        Statement(
            "Different batch sizes lead to the same conclusion.", all(lower),
            f"with log dCor 0.1 it is lower in {sum(lower)} of {len(lower)} comparisons",
        ),
    ]  # fmt: skip


def _figure_5(found: Readings) -> list[Statement]:
    none = found[BASELINE]
    pairs = [(found[f"noise-gaussian-{w:g}"], found[f"noise-uniform-{w:g}"]) for w in (0.001, 0.025)]
    alike = all(
        abs(a.relative_loss / b.relative_loss - 1) < _ALIKE and abs(_worth(a) - _worth(b)) < 0.01 for a, b in pairs
    )
    rising = [none.relative_loss, *(a.relative_loss for a, _ in pairs)]
    falling = [_worth(none), *(_worth(a) for a, _ in pairs)]
    return [
        Statement(
            "Gaussian and uniform noise give a similar loss and a similar model.", alike,
            "; ".join(f"{a.label}: {a.relative_loss:.2f}, {b.label}: {b.relative_loss:.2f}" for a, b in pairs),
        ),
        Statement(
            "A larger weight gives a larger reconstruction loss and a worse model.",
            _falls([-value for value in rising], _LOSS) and _falls(falling, _WORTH),
            f"loss over that of the mean {_arrow(rising)}; {none.utility['name']} {_arrow(falling)}",
        ),
    ]  # fmt: skip


def _figure_6(found: Readings) -> list[Statement]:
    none, distance, noise, little, more = found.values()
    gain = {one.label: one.relative_loss - none.relative_loss for one in (distance, noise, little, more)}
    both = _dcor(more) < _dcor(none) - _DCOR and gain[more.label] > max(_LOSS, gain[distance.label])
    return [
        Statement(
            "Noise regularization lowers the distance correlation too, but less than its own module.",
            _dcor(distance) < _dcor(noise) < _dcor(none) - _DCOR,
            f"none {_dcor(none):.3f}, noise reg. {_dcor(noise):.3f}, log dCor {_dcor(distance):.3f}",
        ),
        Statement(
            "The distance correlation module raises the reconstruction loss less than noise regularization.",
            gain[distance.label] < gain[noise.label] - _LOSS,
            f"by {gain[distance.label]:+.3f} against {gain[noise.label]:+.3f}, over the loss of the mean",
        ),
        Statement(
            "Together they have both advantages.", both,
            f"{more.label}: distance correlation {_dcor(more):.3f}, loss {gain[more.label]:+.3f}",
        ),
        Statement(
            "Together they hurt the model more than one of them.",
            _worth(more) < min(_worth(distance), _worth(noise)),
            f"{none.utility['name']}: " + "; ".join(f"{one.label}: {_worth(one):.3f}" for one in found.values()),
        ),
    ]  # fmt: skip


def _figure_7(found: Readings, chance: float) -> list[Statement]:
    none = found[BASELINE]
    line = [none, *(found[f"gaussian-{std:g}"] for std in STDS)]
    dcors, losses, worth = (
        [_dcor(one) for one in line],
        [one.relative_loss for one in line],
        [_worth(one) for one in line],
    )
    strong = [found[f"gaussian-{std:g}"] for std in STDS if std >= 17.5]
    grown = strong[0].record["report"]["embedding"] / none.record["report"]["embedding"]
    return [
        Statement(
            "More noise gives a smaller distance correlation, a larger loss and a worse model.",
            _falls(dcors, _DCOR) and _falls([-loss for loss in losses], _LOSS) and _falls(worth, _WORTH),
            f"dCor {_arrow(dcors)}; loss over that of the mean {_arrow(losses)}; "
            f"{none.utility['name']} {_arrow(worth)}",
        ),
        Statement(
            "From a standard deviation of 17.5 on the model is a coin flip.",
            all(_worth(one) < chance + 0.02 for one in strong),
            f"{none.utility['name']} {_arrow([_worth(one) for one in strong])} at 17.5 and 25",
            f"the bottom outgrew the noise: its embeddings are {grown:.1f} times as large as without; what noise does "
            "depends on the size of the embedding, and on the label party's own columns where it has any",
        ),
    ]  # fmt: skip


def _figure_8(found: Readings) -> list[Statement]:
    name = nearest_noise(found)
    none, both = found[BASELINE], found["logdcor-0.01+noise-0.01"]
    if name is None:
        return []
    noisy = found[name]
    near = abs(noisy.relative_loss / both.relative_loss - 1) < _ALIKE and abs(_worth(noisy) - _worth(both)) < 0.01
    return [
        Statement(
            "With the right amount of noise, model and reconstruction loss are like those of both modules together.",
            near,
            f"{noisy.label}: {none.utility['name']} {_worth(noisy):.3f}, loss {noisy.relative_loss:.2f}; {both.label}: "
            f"{_worth(both):.3f}, {both.relative_loss:.2f}",
        ),
        Statement(
            "Noise lowers the distance correlation, but less than optimizing it.",
            _dcor(both) < _dcor(noisy) < _dcor(none) - _DCOR,
            f"none {_dcor(none):.3f}, {noisy.label} {_dcor(noisy):.3f}, {both.label} {_dcor(both):.3f}",
            "the amount of noise is the one whose model is worth most nearly as much, out of all that were tried",
        ),
    ]  # fmt: skip


def _dcor(one: Reading) -> float:
    return one.dcor()["value"]


def _worth(one: Reading) -> float:
    return float(one.utility["value"])


def _falls(values: Sequence[float], least: float) -> bool:
    """Whether they fall by more than counts in all, and nowhere rise by as much."""
    return values[0] - values[-1] > least and all(after - before <= least for before, after in pairwise(values))


def _arrow(values: Sequence[float]) -> str:
    return " → ".join(f"{value:.3f}" for value in values)
