"""What the page about a training in one exchange shows: a certificate, or what was read column by column."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from tacit.report.bars import Mark, interval, scale
from tacit.report.document import Leak, Measured, Report
from tacit.report.exchanged import Certified, Figure, Released
from tacit.report.measures import MEASURES, Judged
from tacit.report.page import moment
from tacit.report.words import STAMPS, count, decimals

__all__ = ["content"]

_LONGEST = 400  # letters of exact parameters that are shown; report.json has all


@dataclass(frozen=True)
class _Head:
    stamp: str
    tone: str
    verdict: str
    meaning: tuple[str, ...]
    figure: Judged
    under: str


def content(report: Report, digest: str) -> dict[str, object]:
    """Everything that the template places on the page.

    Args:
        report: of a training in one exchange.
        digest: of its JSON file.
    """
    told = report.exchange
    assert told is not None
    limit = [] if report.limit is None else [Mark("limit", report.limit, "limit")]
    if told.certificate is not None:
        head, measure = _certificate(report, told.certificate), MEASURES["leak_auc"]
        limit += [] if told.certificate.budget is None else [Mark("budget", told.certificate.budget)]
    else:
        assert told.release is not None
        head, measure = _release(report, told.release), MEASURES["variance_read"]
    return {
        "report": report,
        "digest": digest,
        "made": moment(report.made),
        "head": head,
        "scale": scale(measure, head.figure, limit, title="On a scale from nothing to everything"),
        "columns": [] if told.release is None else _columns(report, told.release),
        "figures": [(one, _bar(one)) for one in told.figures],
        "parameters": "" if told.certificate is None else told.certificate.parameters[:_LONGEST],
        "asked": asked,
        "count": count,
        "moment": moment,
    }


def _certificate(report: Report, told: Certified) -> _Head:
    stamp, tone = ("Certified", "good") if report.verdict == "held" else STAMPS[report.verdict]
    meaning = [
        f"Show somebody who has all that was sent two {told.unit}s whose labels differ. They point at the right one at "
        f"most {100 * told.total_auc:.1f} times in 100; by tossing a coin it would be 50.",
        *([told.posterior] if told.posterior else []),
        f"The limit of {decimals(report.limit)} is on one exchange; over all {count(told.releases, 'exchange')} so far "
        f"it comes to the figure above"
        + ("." if told.budget is None else f", of a budget of {decimals(told.budget)}."),
    ]
    figure = Judged(told.total_auc, told.total_auc, told.total_auc)
    return _Head(stamp, tone, told.sentence, tuple(meaning), figure, "leak AUC over all exchanges, at most")


def _release(report: Report, told: Released) -> _Head:
    stamp, tone = STAMPS[report.verdict]
    worst = told.columns[0] if told.columns else None
    most = "nothing was asked" if worst is None else f"{worst.column!r}: {asked(worst.question)}"
    said = {
        "held": f"The limit of {decimals(report.limit)} was held before anything left",
        "broken": f"The limit of {decimals(report.limit)} does not hold for what was sent",
    }.get(report.verdict, "No limit was set")
    value, low = (told.worst, told.worst) if worst is None else (worst.value, worst.low)
    meaning = [
        "This is a measurement, not a bound: decoders that know some of the rows with all their columns read the "
        "others from what was sent. Somebody who knows more rows, or has a better decoder, may read more.",
        f"The largest of {told.questions:,} figures counts, never a mean: one category that is given away is one too "
        "many. The limit is held against its upper end.",
    ]
    verdict = f"{said}: at most {decimals(told.worst)} was read of anything, by the upper end of {most}."
    return _Head(
        stamp,
        tone,
        verdict,
        tuple(meaning),
        Judged(value, low, told.worst),
        f"read of {most}; 95% interval {decimals(low)} to {decimals(told.worst)}",
    )


def asked(question: str) -> str:
    """What was asked about a column, in words.

    >>> asked("highest"), asked("category 7")
    ('its highest values', 'category 7')
    """
    words = {"variance": "its variance", "lowest": "its lowest values", "highest": "its highest values"}
    return {**words, "codes": "its codes", "rare categories": "its rare categories"}.get(question, question)


def _columns(report: Report, told: Released) -> list[tuple[object, Markup, bool]]:
    return [
        (
            one,
            interval(_leak(one.column, one.value, one.low, one.high, "variance_read"), report.limit),
            report.limit is not None and one.high > report.limit,
        )
        for one in told.columns
    ]


def _bar(one: Figure) -> Markup | None:
    if one.low is None or one.high is None:
        return None
    leak = _leak(one.name, one.value, one.low, one.high, "leak_auc")
    return interval(leak, one.most, judged_over=one.held is False)


def _leak(name: str, value: float, low: float, high: float, measure: Measured) -> Leak:
    return Leak(attack=name, on="live", value=value, low=low, high=high, measure=measure)
