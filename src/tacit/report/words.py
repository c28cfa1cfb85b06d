"""The sentences of a report: what was found, said to somebody who has to answer for it and is no specialist."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tacit.report.document import Leak, Report
from tacit.report.measures import MEASURES, Judged, judged, main_measure, upper_end

STAMPS = {
    "held": ("Limit held", "good"),
    "broken": ("Limit broken", "bad"),
    "no limit": ("No limit set", "open"),
    "not judged": ("Not judged", "open"),
}
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


def headline(report: Report) -> Headline:
    """The verdict, and what the worst attack's figure means."""
    stamp, tone = STAMPS[report.verdict]
    figure = None if report.worst is None else judged(report.worst)
    return Headline(stamp, tone, _verdict(report, figure), _meaning(report, figure), figure)


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
