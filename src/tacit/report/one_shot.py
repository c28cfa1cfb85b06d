"""What the page about a training in one exchange shows: a label bound, or what was read column by column."""

from __future__ import annotations

from markupsafe import Markup

from tacit.report.document import Report
from tacit.report.exchanged import Bounded, ColumnRead, Figure, Released
from tacit.report.measures import MEASURES, Judged
from tacit.report.plots import Mark, interval, scale
from tacit.report.words import STAMPS, Headline, alarm, decimals, sent_of

_LONGEST = 400  # letters of exact parameters that are shown; report.json has all
_QUESTIONS = {
    "variance": "its variance", "lowest": "its lowest values", "highest": "its highest values", "codes": "its codes",
    "rare categories": "its rare categories", "codes told apart": "a set of its codes",
    "values told apart": "a set of its values",
}  # fmt: skip


def content(report: Report) -> dict[str, object]:
    """Everything that the template places on the page."""
    exchange = report.exchange
    assert exchange is not None
    limit = [] if report.limit is None else [Mark("limit", report.limit, "limit")]
    if exchange.label_bound is not None:
        head, measure = _label_bound(report, exchange.label_bound), MEASURES["leak_auc"]
        limit += [] if exchange.label_bound.budget is None else [Mark("budget", exchange.label_bound.budget)]
    else:
        assert exchange.release is not None
        head, measure = _release(report, exchange.release), MEASURES["variance_read"]
    return {
        "head": head,
        "scale": scale(measure, head.figure, limit, title="On a scale from nothing to everything"),
        "columns": [] if exchange.release is None else _columns(exchange.release, report.limit),
        "figures": [(figure, _bar(figure)) for figure in exchange.figures],
        "parameters": "" if exchange.label_bound is None else exchange.label_bound.parameters[:_LONGEST],
        "asked": asked,
        "sent": sent_of(report),
    }


def _label_bound(report: Report, label_bound: Bounded) -> Headline:
    stamp, tone = ("Bounded", "good") if report.verdict == "held" else STAMPS[report.verdict]
    if label_bound.beside:
        stamp, tone = "No bound", "bad"
    budget = "" if label_bound.budget is None else f", of a budget of {decimals(label_bound.budget)}"
    exchanges = "the one exchange" if label_bound.releases == 1 else f"all {label_bound.releases:,} exchanges"
    meaning = [
        f"Show somebody who has all that was sent in exchanges two {label_bound.unit}s whose labels differ. They point "
        f"at the right one at most {100 * label_bound.total_auc:.1f} times in 100; by tossing a coin it would be 50.",
        *([label_bound.posterior] if label_bound.posterior else []),
        f"The limit of {decimals(report.limit)} is on one exchange; over {exchanges} so far it comes to "
        f"the figure above{budget}.",
    ]
    figure = Judged(label_bound.total_auc, label_bound.total_auc, label_bound.total_auc)
    return Headline(stamp, tone, label_bound.sentence, tuple(meaning), figure, "leak AUC over all exchanges, at most")


def _release(report: Report, release: Released) -> Headline:
    stamp, tone = STAMPS[report.verdict]
    worst = release.columns[0] if release.columns else None
    most = "nothing, for nothing was asked" if worst is None else _named(worst)
    limit = {
        "held": f"The limit of {decimals(report.limit)} was held before anything left",
        "broken": f"The limit of {decimals(report.limit)} does not hold for what was sent",
    }.get(report.verdict, "No limit was set")
    value, low = (release.worst, release.worst) if worst is None else (worst.value, worst.low)
    meaning = [
        "This is a measurement, not a bound: decoders that know some of the rows with all their columns recovered "
        "the others from what was sent. Somebody who knows more rows, or has a better decoder, may recover more.",
        f"The largest of {release.questions:,} figures counts, never a mean: one category that is given away is one "
        "too many. The limit is held against its upper end.",
    ]
    verdict = f"{limit}. At most {decimals(release.worst)} was recovered of any column: of {most}."
    return Headline(
        stamp, tone, f"{release.sentence} {verdict}", tuple(meaning), Judged(value, low, release.worst),
        f"recovered of {most}; 95% interval {decimals(low)} to {decimals(release.worst)}", alarm(release.worst, most),
    )  # fmt: skip


def _named(read: ColumnRead) -> str:
    """What was read of a column, in words: a category by its name."""
    kind, _, name = read.question.partition(" ")
    return f"{read.column} = {name}" if kind == "category" else f"{read.column!r}, {asked(read.question)}"


def asked(question: str) -> str:
    """What was asked about a column, in words.

    >>> asked("highest"), asked("category 7")
    ('its highest values', 'category 7')
    """
    return _QUESTIONS.get(question, question)


def _columns(release: Released, limit: float | None) -> list[tuple[ColumnRead, Markup, bool]]:
    return [
        (
            column,
            interval(column.column, MEASURES["variance_read"], Judged(column.value, column.low, column.high), limit),
            limit is not None and column.high > limit,
        )
        for column in release.columns
    ]


def _bar(figure: Figure) -> Markup | None:
    if figure.low is None or figure.high is None:
        return None
    shown = Judged(figure.value, figure.low, figure.high)
    return interval(figure.name, MEASURES["leak_auc"], shown, figure.most, over=figure.held is False)
