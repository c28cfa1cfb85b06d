"""A training in one exchange for a page: its parts in time, what was sent, and what its report says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tacit.report.one_shot import asked
from tacit.report.pacing import seconds

_SHOWN = 100  # columns that a page lists, the most readable first

Stall = tuple[float, float, str]
"""From when to when nothing moved, and why."""


def exchange_of(status: Mapping[str, Any], stalls: Sequence[Stall], report: Mapping[str, Any]) -> dict[str, Any]:
    """What a page shows of an exchange."""
    exchange = report.get("exchange") or {}
    release = exchange.get("release") or {}
    return {
        "timeline": _timeline(status, stalls),
        "left": status.get("left", []),
        "figures": exchange.get("figures", []),
        "label_bound": exchange.get("label_bound"),
        "columns": [one | {"question": asked(one["question"])} for one in release.get("columns", [])[:_SHOWN]],
    }


def worst_of(status: Mapping[str, Any]) -> dict[str, Any] | None:
    """The figure of a run that has no report yet: the label bound, or the most that decoders read."""
    label_bound, release = status.get("label_bound"), status.get("release")
    if label_bound is not None:
        value = label_bound["auc"]
        return {"attack": "label bound", "value": value, "low": value, "high": value, "on": "label_bound"}
    if release is not None:
        return {"attack": "decoders", "value": release["worst"], "low": None, "high": None, "on": "release"}
    return None


def figures_of(report: Mapping[str, Any]) -> Iterator[tuple[str, float | None, tuple[float, float] | None]]:
    """What a report says of an exchange, for those who compare runs: name, figure and its interval."""
    exchange = report.get("exchange") or {}
    label_bound, release = exchange.get("label_bound") or {}, exchange.get("release") or {}
    for name in ("auc", "odds", "total_auc", "total_odds"):
        if name in label_bound:
            yield f"bound on {name}", label_bound[name], None
    if release:
        yield "most read", release["worst"], None
    for column in release.get("columns", []):
        yield f"read of {column['column']}", column["value"], (column["low"], column["high"])
    for figure in exchange.get("figures", []):
        ends = (figure["low"], figure["high"])
        yield figure["name"], figure["value"], None if None in ends else ends


def part_left(status: Mapping[str, Any]) -> float | None:
    """Seconds until the part that is being done is over, at its rate so far."""
    parts = status.get("parts", [])
    now, done, total = seconds(status.get("time", "")), status.get("done", 0), status.get("total", 0)
    if not status.get("alive") or status.get("state") != "training" or not parts or not 0 < done <= total:
        return None
    since = seconds(parts[-1]["time"])
    return None if since is None or now is None or now <= since else (now - since) * (total - done) / done


def _timeline(status: Mapping[str, Any], stalls: Sequence[Stall]) -> list[dict[str, Any]]:
    """Each part once, in the order in which they began, with the times in which it was done; standing still as well."""
    begun = [(seconds(part["time"]), part["part"]) for part in status.get("parts", [])]
    known = [(time, part) for time, part in begun if time is not None]
    end = seconds(status.get("time", ""))
    rows: dict[str, list[tuple[float, float]]] = {}
    for place, (start, part) in enumerate(known):
        later = [known[place + 1][0]] if place + 1 < len(known) else [] if end is None else [end]
        later += [first for first, _, _ in stalls if first > start]
        rows.setdefault(part, []).append((start, max(start, min(later, default=start))))
    for first, last, why in stalls:
        rows.setdefault(why, []).append((first, last))
    ordered = sorted(rows.items(), key=lambda row: row[1][0])
    still = {why for _, _, why in stalls}
    return [{"part": part, "spans": spans, "still": part in still} for part, spans in ordered]
