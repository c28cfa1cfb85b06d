"""The state of a run in words, figures and times as a page has them. No state is shown by its colour alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tacit.report.measures import MEASURES
from tacit.report.pacing import seconds
from tacit.report.words import count, decimals, spelled

Card = Mapping[str, Any]

_BUSY = ("training", "catching up", "waiting", "preparing", "aligning", "evaluating")


@dataclass(frozen=True)
class Chip:
    """A word with its shape and its tone."""

    word: str
    shape: str  # by its name in `live.html.j2`
    tone: str  # "good", "bad", "open" or "plain"


def state(card: Card) -> Chip:
    """The state of a run."""
    name, alive = card.get("state"), card.get("alive")
    if name == "finished":
        return Chip("Finished", "check", "plain" if card.get("verdict") == "broken" else "good")
    if name in _BUSY and alive is False:
        return Chip("Its process is gone", "square", "open")
    known = {
        "unknown": Chip("Can't be read", "query", "open"),
        "paused": Chip("Paused", "bars", "open"),
        "stopped": Chip("Stopped", "square", "bad"),
        "failed": Chip("Stopped", "square", "bad"),
        "waiting": Chip("Waiting", "glass", "open"),
    }
    word = str(name or "unknown")
    return known.get(word) or Chip(word[:1].upper() + word[1:], "play", "plain")


def verdict(card: Card) -> Chip | None:
    """Whether the limit was held; None where there is nothing to say."""
    known = {
        "held": Chip("Limit held", "check", "good"),
        "broken": Chip("Limit broken", "cross", "bad"),
        "not judged": Chip("Limit not judged", "query", "open"),
    }
    found = known.get(str(card.get("verdict")))
    return found or (Chip("Over the limit", "cross", "bad") if over(card) else None)


def over(card: Card) -> bool:
    """Whether the worst attack lies over the limit."""
    bound, worst = card.get("limit"), card.get("worst")
    return card.get("verdict") == "broken" or (bound is not None and worst is not None and worst["value"] > bound)


def moves(card: Card) -> bool:
    """Whether a run goes on by itself."""
    return card.get("state") in _BUSY and card.get("alive") is not False


def role(card: Card) -> str:
    """The party's role."""
    name = card.get("role")
    return {"label": "label party", "features": "feature party"}.get(str(name), str(name or ""))


def share_done(card: Card) -> float:
    """The share of a run that is done."""
    if card.get("state") == "finished":
        return 1.0
    if card.get("mode") == "one_shot":
        done, total = card["doing"]["done"], card["doing"]["total"]
    else:
        done, total = card.get("turn"), card.get("turns")
    return min(max(done / total, 0.0), 1.0) if done and total else 0.0


def progress(card: Card, *, left: bool = True) -> str:
    """The part of its work that a run has reached."""
    parts = []
    if card.get("mode") == "one_shot":
        if card.get("state") == "finished":
            return "all parts are done"
        doing = card["doing"]
        parts += [doing["part"]] if doing["part"] else []
        parts += [f"{math.floor(100 * doing['done'] / doing['total'])}%"] if doing["total"] else []
    if card.get("epochs"):
        parts.append(f"epoch {card['epoch']:,} of {card['epochs']:,}")
    if not parts and card.get("turns"):
        parts.append(f"turn {card.get('turn') or 0:,} of {card['turns']:,}")
    if left and card.get("seconds_left") is not None and moves(card):
        parts.append(f"{duration(card['seconds_left'])} left")
    return " · ".join(parts)


def figured(card: Card) -> str:
    """The name of a run's figure: measured by attacks, or a bound."""
    measure = MEASURES[card["measure"]]
    return f"Bound on {measure.name}" if _bounded(card) else measure.title


def sentence(card: Card) -> str:
    """Two or three sentences about a run."""
    worst = card["worst"]
    bound = "no limit is on record" if card["limit"] is None else f"the limit is {limit(card['limit'])}"
    if card.get("mode") != "one_shot":
        what = "reads a share of" if card["measure"] == "variance_read" else "reaches"
        reached = f"The worst attack {what} {decimals(worst['value'])}" if worst else "No attack has looked yet"
        return f"{reached}; {bound}. {_doing(card)}"
    if worst is None:
        reached = "Nothing has left yet"
        if card["left_bytes"]:
            reached = "What was sent has no label bound yet: it comes with the last embedding"
    elif alone(card):
        reached = f"No bound is stated for these labels; of exchanges alone it would be {decimals(worst['value'])}"
    elif _bounded(card):
        reached = f"Nobody tells two labels apart with an AUC above {decimals(worst['value'])}, whatever they compute"
    else:
        reached = f"Decoders read {decimals(worst['value'])} of what they read best"
    return f"{reached}{'' if card['limit'] is None else f'; {bound}'}. {_doing(card)}"


def alone(card: Card) -> bool:
    """Whether something besides exchanges told, or may have told, a party's labels, so that no bound is stated."""
    return bool((card.get("label_bound") or {}).get("beside"))


def _bounded(card: Card) -> bool:
    return card.get("mode") == "one_shot" and card.get("role") == "label"


def _doing(card: Card) -> str:
    word, reason = state(card).word, card.get("reason")
    why = f" ({reason})" if reason else ""
    if card.get("state") == "finished":
        return f"The training is over{' and the limit held' if card.get('verdict') == 'held' else ''}."
    if word == "Stopped" and reason:
        return f"It has stopped: {reason}."
    if word == "Waiting":
        cause = f": {card['why']}" if card.get("why") else ""
        return f"It waits for {card.get('peer') or 'the other side'}{cause}."
    if word == "Training":
        left = card.get("seconds_left")
        return f"Training goes on{'' if left is None else f', about {duration(left)} left'}."
    known = {
        "Can't be read": "Its status can't be read.",
        "Paused": f"It is paused{why}.",
        "Its process is gone": "Its process is gone; started again with tacit train, it resumes where it stopped.",
    }
    return known.get(word, f"{word}.")


# --- figures ---------------------------------------------------------------------------------------------------------


def limit(value: float | None) -> str:
    """A limit as its owner wrote it, with two digits at least.

    >>> limit(0.6), limit(0.625)
    ('0.60', '0.625')
    """
    return "–" if value is None else max(f"{value:.2f}", f"{round(value, 6):g}", key=len)


def short(value: float | None) -> str:
    """A number whose size is not known beforehand.

    >>> short(1234567.0), short(0.00012), short(0.123456)
    ('1,234,567', '1.2e-04', '0.1235')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}" if 1e-3 <= abs(value) < 1e5 else f"{value:.1e}"


def size(value: float | None) -> str:
    """A number of bytes.

    >>> size(1), size(900_000), size(None)
    ('1 byte', '878.9 KiB', '–')
    """
    if value is None:
        return "–"
    power = min(int(math.log2(max(value, 1)) / 10), 5)
    return f"{value / 2 ** (10 * power):,.1f} {'KMGTP'[power - 1]}iB" if power else count(round(value), "byte")


def duration(value: float | None) -> str:
    """Seconds in the two largest units that matter.

    >>> duration(59), duration(3599), duration(90061)
    ('59 s', '59 min 59 s', '1 d 1 h')
    """
    if value is None or not math.isfinite(value):
        return "–"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next((place for place, (many, _) in enumerate(units) if many), 3)
    return " ".join(f"{many} {unit}" for many, unit in units[first : first + 2])


def rate(value: float | None) -> str:
    """Turns in a second, or seconds for a turn where they are slow."""
    if value is None:
        return "–"
    return f"1 turn in {duration(1 / value)}" if 0 < value < 0.5 else f"{value:.{1 if value < 10 else 0}f} turns/s"


def clock(time: str | float | None) -> str:
    """A point in time by the clock of this machine; a dash for what is none."""
    since = seconds(time) if isinstance(time, str) else time
    try:
        return "–" if since is None else f"{datetime.fromtimestamp(since):%-d %b %Y, %H:%M:%S}"
    except (OverflowError, OSError, ValueError):
        return "–"


def ago(time: str | None) -> str:
    """A point in time, from now."""
    since = seconds(time or "")
    if since is None:
        return "time unknown"
    passed = datetime.now(UTC).timestamp() - since
    if passed < 60:
        return "less than a minute ago"
    for unit, name, until in ((60, "min", 3600), (3600, "h", 172_800)):
        if passed < until:
            return f"{round(passed / unit)} {name} ago"
    return f"{round(passed / 86_400):,} days ago"


def named(name: str) -> str:
    """A figure's name, to begin a line with."""
    words = spelled(name)
    return words[:1].upper() + words[1:]
