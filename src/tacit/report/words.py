"""The sentences of a report: what was found, said to somebody who has to answer for it and is no specialist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from tacit.report.document import Leak, Report
from tacit.report.exchanged import Departure
from tacit.report.measures import MEASURES, Judged, judged, main_measure, upper_end

STAMPS = {
    "held": ("Limit held", "good"),
    "broken": ("Limit broken", "bad"),
    "no limit": ("No limit set", "bad"),
    "not judged": ("Not judged", "open"),
}
_NEARLY_ALL = 0.9  # of a figure from nothing, 0, to everything, 1
_NAMED = 6  # columns that are named on the first page
_GRANTED = {
    "known.labels": "the labels that it is told",
    "known.positive_gradient": "the bare gradient of a positive example",
    "known.share": "the share of positives",
    "known.prediction": "the model's predictions",
    "known.inputs": "the columns that it is told",
    "known.attribute": "the attribute where it is told",
    "`": "",
}  # what attackers are granted, by the names that attacks have for it


@dataclass(frozen=True)
class Headline:
    """What the first page says."""

    stamp: str  # the verdict in two words
    tone: str  # "good", "bad" or "open"
    verdict: str  # in one sentence
    meaning: tuple[str, ...]  # what the figure means, a sentence each
    figure: Judged | None  # the worst attack as the limit judges it; None where none ran
    under: str = ""  # what the figure is, where the template does not say it
    alarm: str = ""  # what is so bad that it is told in red, whatever the limit is


def headline(report: Report) -> Headline:
    """The verdict, and what the worst attack's figure means."""
    stamp, tone = STAMPS[report.verdict]
    figure = None if report.worst is None else judged(report.worst)
    return Headline(
        stamp, tone, _verdict(report, figure), _meaning(report, figure), figure, alarm=_alarm(report, figure)
    )


def alarm(share: float, what: str) -> str:
    """The sentence about nearly everything being read, where it is: a share from 0, nothing, to 1.

    >>> alarm(0.95, "'town'"), alarm(0.5, "'town'")
    ("Nearly everything of 'town' can be recovered.", '')
    """
    return f"Nearly everything of {what} can be recovered." if share >= _NEARLY_ALL else ""


def _alarm(report: Report, figure: Judged | None) -> str:
    if figure is None:
        return ""
    measure = main_measure(report)
    return alarm(MEASURES[measure].share(figure.value), "the labels" if measure == "leak_auc" else "the columns")


def signed(report: Report) -> str:
    """What a report on a party's own run is about: the label and its classes, the table, its ids, the common rows."""
    about = report.subject
    if about.common is None:
        return ""
    if about.role == "label":
        what = "labels" if about.label is None else f"the label {about.label!r}"
        if about.positive is not None:
            what += f", of which {about.positive!r} counts as 1,"
        elif about.classes:
            what += f", which is one of {_listed(about.classes)},"
    else:
        what = f"{count(len(about.columns), 'column')} ({_listed(about.columns)})" if about.columns else "columns"
    table = "" if about.table is None else f" in {about.table}"
    by = f" by {_listed(about.ids)}" if about.ids else ""
    have = "has" if len(about.peers) == 1 else "have"
    return f"About {what}{table}: of the {about.common:,} rows that {_listed(about.peers, str)} {have} as well{by}."


def _listed(names: Sequence[str], spelled: Callable[[str], str] = repr) -> str:
    """Some of the names, the last one after "and"."""
    shown = [spelled(name) for name in names[:_NAMED]]
    if len(names) > _NAMED:
        shown = [*shown[:-1], f"{len(names) - _NAMED + 1} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def sent_of(report: Report) -> list[Departure]:
    """Everything that left for a run, oldest first: the alignment, the training, predictions."""
    left = [*report.disclosed, *(() if report.exchange is None else report.exchange.departures)]
    return sorted(left, key=lambda one: one.time or "")


def told(one: Departure) -> str:
    """When something left, what and to whom, in words."""
    rows = f", {count(one.rows, 'row')}" if one.rows else ""
    return f"{when(one.time) if one.time else 'At a time that nobody noted'}, to {one.to}: {one.what}{rows}"


def over_limit(report: Report) -> list[Leak]:
    """The attacks whose upper end is not under the limit."""
    if report.limit is None:
        return []
    measure = main_measure(report)
    return [leak for leak in report.leaks if leak.measure == measure and upper_end(leak) > report.limit]


def count(number: int, noun: str) -> str:
    """A number with its noun, thousands apart."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


_SPELLED = {"auc": "AUC", "r2": "R²", "rmse": "RMSE"}


def spelled(name: str) -> str:
    """The name of a figure as people say it."""
    return " ".join(_SPELLED.get(part, part) for part in name.split("_"))


def plain_words(text: str) -> str:
    """What an attack's file says, for readers who don't know the code.

    >>> plain_words("the gradients; known.labels.")
    'the gradients; the labels that it is told.'
    """
    for name, words in _GRANTED.items():
        text = text.replace(name, words)
    return text


def decimals(value: float | None) -> str:
    """Three decimals, or a dash for what is not known."""
    return "–" if value is None else f"{value:.3f}"


def when(time: str) -> str:
    """A point in time as people write it, to the minute; what is no time stays as it is."""
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return time
    zone = " UTC" if moment.tzinfo is not None and not moment.utcoffset() else moment.strftime(" %z").rstrip()
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"


def _verdict(report: Report, figure: Judged | None) -> str:
    if figure is None or report.worst is None:
        return "No attack could run, so nothing can be said about what these messages give away."
    measure = MEASURES[report.worst.measure]
    best = f"the best of {count(len(report.leaks), 'attack')}" if len(report.leaks) > 1 else "the one attack that ran"
    best_attack = f"{best} {measure.reaches(report.worst.value, figure.baseline)}"
    if report.verdict == "no limit":
        return f"No limit was set; {best_attack}."
    limit = decimals(report.limit)
    if report.verdict == "held":
        return f"The limit of {limit} was held: {best_attack}."
    if report.verdict == "broken":
        return f"The limit of {limit} was broken: {best_attack}{_beyond(report, figure)}."
    whether = "Whether a limit was held" if report.limit is None else f"Whether the limit of {limit} was held"
    return f"{whether} can't be said, because not everything was tested; {best_attack}."


def _beyond(report: Report, figure: Judged) -> str:
    """How a limit was broken, where the estimate alone does not show it."""
    if report.limit is None or figure.value > report.limit:
        return ""
    over = over_limit(report)
    if not over:
        return ", but the limit was passed while training ran"
    return f", and {decimals(max(upper_end(leak) for leak in over))} can't be ruled out"


def _meaning(report: Report, figure: Judged | None) -> tuple[str, ...]:
    if figure is None or report.worst is None:
        return ("What was not tested, and why, is listed below.",)
    measure, worst = MEASURES[report.worst.measure], report.worst
    sentences = [measure.explained(worst.value)]
    if figure.baseline is not None:
        reached, anyway = decimals(worst.value), decimals(figure.baseline)
        sentences.append(
            f"Its own data and the trained model tell this attacker much already: it reaches {anyway} without any "
            f"message, and {reached} with them. The large figure is what the messages add, counted from where nothing "
            f"is learnt: {decimals(measure.chance)} + {reached} − {anyway}."
        )
    sentences.append(
        f"With 95% confidence the figure lies between {decimals(figure.low)} and {decimals(figure.high)}. It is what "
        "the attacks listed below reached; a cleverer attack may reach more."
    )
    return tuple(sentences)
