"""What the page shows, in the order in which it shows it: the report's fields sorted, grouped and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from tacit.report.document import Decision, Leak, LiveCurve, Moment, Report
from tacit.report.measures import MEASURES, Judged, Measure, judged, main_measure, upper_end
from tacit.report.plots import SERIES, Mark, curves, interval, scale
from tacit.report.words import decimals, headline, plain_words, sent_of, spelled, when

_MOST_ROWS = 30  # of a table by epoch, before ordinary epochs are left out
_GROUPS = {
    "batches": ("On single messages", "Each message is attacked by itself, as it was received."),
    "visits": (
        "On all messages about one example together",
        "Noise is fresh in every message, so an attacker who collects all messages about one example sees through more "
        "of it.",
    ),
    "live": ("While training ran", "What the party saw of its own messages during training."),
}


@dataclass(frozen=True)
class _Row:
    leak: Leak
    bar: Markup
    over: bool
    worst: bool
    judged: Judged
    upper: float


@dataclass(frozen=True)
class _Group:
    title: str
    told: str
    measure: Measure
    rows: Sequence[_Row]

    @property
    def explained(self) -> bool:
        return any(told is not None for row in self.rows for told in (row.leak.knows, row.leak.costs, row.leak.seconds))


def content(report: Report) -> dict[str, object]:
    """Everything that the template places on the page."""
    head, measure = headline(report), MEASURES[main_measure(report)]
    limit = [] if report.limit is None else [Mark("limit", report.limit, "limit")]
    return {
        "head": head, "measure": measure, "worst": report.worst,
        "scale": scale(measure, head.figure, limit, title="The worst attack on a scale from nothing to everything"),
        "groups": _groups(report), "baselines": any(leak.baseline is not None for leak in report.leaks),
        "layers": sorted({leak.layer for leak in report.leaks}), **_over_time(report), "charts": _charts(report),
        "plain_words": plain_words, "spelled": spelled, "sent": sent_of(report),
    }  # fmt: skip


def _groups(report: Report) -> list[_Group]:
    main = main_measure(report)
    groups = []
    for on, (title, told) in _GROUPS.items():
        for name, measure in sorted(MEASURES.items(), key=lambda item: item[0] != main):
            leaks = [leak for leak in report.leaks if (leak.on, leak.measure) == (on, name)]
            if not leaks:
                continue
            limit = report.limit if name == main else None
            rows = []
            for leak in leaks:
                figure, upper = judged(leak), upper_end(leak)
                over = limit is not None and upper > limit
                bar = interval(leak.attack, measure, figure, limit, over=over)
                rows.append(_Row(leak, bar, over, leak == report.worst, figure, upper))
            rows.sort(key=lambda row: row.judged.value, reverse=True)
            after = "" if name == main else f", after {measure.secret}"
            groups.append(_Group(title + after, told, measure, rows))
    return groups


def _over_time(report: Report) -> dict[str, object]:
    moments = sorted(report.moments, key=lambda moment: moment.epoch)
    shown = _telling(moments) if len(moments) > _MOST_ROWS else moments
    return {
        "moments": shown,
        "left_out": len(moments) - len(shown),
        "figures": sorted({name for moment in moments for name in moment.figures}),
        "bars": {
            moment.epoch: interval(
                worst.attack,
                MEASURES[worst.measure],
                Judged(worst.value, worst.low, worst.high),
                report.limit if worst.measure == main_measure(report) else None,
                over=_over(report, moment),
            )
            for moment in shown
            if (worst := moment.worst) is not None
        },
        "decisions": _decisions(report.decisions),
        "over": [moment for moment in moments if _over(report, moment)],
    }


def _over(report: Report, moment: Moment) -> bool:
    worst, limit = moment.worst, report.limit
    return worst is not None and limit is not None and worst.measure == main_measure(report) and worst.high > limit


def _telling(moments: Sequence[Moment]) -> list[Moment]:
    """The first and last epochs, the worst one, and some between."""
    keep = {0, 1, 2, len(moments) - 2, len(moments) - 1}
    worst = {i: moment.worst.value for i, moment in enumerate(moments) if moment.worst is not None}
    if worst:
        keep.add(max(worst, key=worst.__getitem__))
    keep.update(range(0, len(moments), max(1, -(-len(moments) // 12))))
    return [moments[i] for i in sorted(keep)]


def _decisions(decisions: Sequence[Decision]) -> list[tuple[str, str, str, str]]:
    """Time, epochs, what was decided and why; where there are many, the ordinary ones in a row are one line."""
    lines: list[tuple[str, str, str, str]] = []
    for kind, alike in groupby(decisions, key=lambda decision: decision.decision):
        row = list(alike)
        first, last = row[0], row[-1]
        if kind == "keep" and len(row) > 1 and len(decisions) > _MOST_ROWS:
            why = f"{first.reason} (and {len(row) - 1:,} more: see report.json)"
            lines.append((when(first.time), f"{first.epoch:,} to {last.epoch:,}", kind, why))
        else:
            lines += [(when(one.time), f"{one.epoch:,}", one.decision, one.reason) for one in row]
    return lines


def _charts(report: Report) -> list[tuple[Measure, Markup, list[tuple[str, str, str, str]]]]:
    """For each measure the picture of its curves, and for each curve its style, name, highest and last figure."""
    charts = []
    for name, measure in MEASURES.items():
        shown = [curve for curve in report.curves if curve.measure == name and any(v is not None for v in curve.values)]
        if not shown:
            continue
        shown.sort(key=_highest, reverse=True)
        limit = report.limit if name == main_measure(report) else None
        key = [
            (
                f"s{place + 1}" if place < SERIES else "rest",
                curve.attack,
                decimals(_highest(curve)),
                decimals(next(value for value in reversed(curve.values) if value is not None)),
            )
            for place, curve in enumerate(shown)
        ]
        charts.append((measure, curves(measure, shown, limit), key))
    return charts


def _highest(curve: LiveCurve) -> float:
    return max(value for value in curve.values if value is not None)
