"""All runs as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""What the answer says it is."""

_STATES = ("preparing", "catching up", "waiting", "training", "paused", "finished", "unknown")
_OWN = ("run", "party", "id")
_FIGURES: dict[str, tuple[str, str, tuple[str, ...]]] = {  # the field of a card, what it is, labels besides the run's
    "turns_done": ("turn", "Turns of the training that are done.", ()),
    "turns_planned": ("turns", "Turns of the whole training.", ()),
    "turns_per_second": ("rate", "Turns in a second lately, waiting included.", ()),
    "seconds_left": ("seconds_left", "Seconds until it is over, at its rate.", ()),
    "alive": ("alive", "1 while the process that trains is there.", ()),
    "state": ("state", "1 for the state that a run is in, 0 for others.", ("state",)),
    "waiting_seconds": ("", "Seconds for which it has been waiting for its peer.", ()),
    "leak": ("", "What each attack reached at the last look while training ran.", ("attack", "measure")),
    "worst_leak": ("worst", "The worst leak that is known, and where it was found.", ("attack", "on", "measure")),
    "limit": ("limit", "The limit that the owner set.", ()),
    "utility": ("utility", "What the model is worth, after the last epoch.", ("name",)),
    "journal_bytes": ("journal_bytes", "Bytes of the journal on the disk.", ()),
    "alarms_total": ("alarms", "Times that a peer was refused.", ()),
    "reconnects_total": ("reconnects", "Times that the connection was made again.", ()),
    "problems": ("problems", "Files of the run that can't be read.", ()),
}


def exposition(cards: Sequence[Mapping[str, Any]], now: float) -> bytes:
    """All figures of all runs."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Runs(cards, now))
    return generate_latest(registry)


class _Runs(Collector):
    def __init__(self, cards: Sequence[Mapping[str, Any]], now: float) -> None:
        self._runs = [card for card in cards if "turn" in card]
        self._now = now

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        for name, (field, about, labels) in _FIGURES.items():
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            made = family(f"tacit_run_{name}", about, labels=(*_OWN, *labels))
            for card in self._runs:
                own = [card.get(label) or "" for label in _OWN]
                for values, figure in self._samples(name, field, card):
                    if figure is not None:
                        made.add_metric([_text(word) for word in (*own, *values)], float(figure))
            yield made
        yield GaugeMetricFamily("tacit_runs", "Runs that were found.", value=len(self._runs))

    def _samples(
        self, name: str, field: str, card: Mapping[str, Any]
    ) -> Iterator[tuple[tuple[object, ...], float | None]]:
        """What there is of a figure in a run: the values of its labels, and the figure."""
        value, measure = card.get(field), card["measure"]
        if name == "state":
            yield from (((other,), other == value) for other in dict.fromkeys((*_STATES, str(value))))
        elif name == "waiting_seconds":
            yield (), 0.0 if card["waits_since"] is None else max(0.0, self._now - card["waits_since"])
        elif name == "leak":
            yield from (((attack, measure), figure) for attack, figure in card["leaks"])
        elif name == "worst_leak":
            if value is not None:
                yield (value["attack"], value["on"], measure), value["value"]
        elif name == "utility":
            if value is not None:
                yield (value["name"],), value["value"]
        else:
            yield (), len(card["problems"]) if name == "problems" else value


def _text(word: object) -> str:
    """A label's value; what UTF-8 can't write is a "?"."""
    return str(word).encode(errors="replace").decode()
