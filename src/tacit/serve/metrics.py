"""What a service counts, as Prometheus reads it; no id is in it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

disable_created_metrics()  # type: ignore[no-untyped-call]  # when each counter began: a service says it once


class Metrics:
    """Of either side. Any thread may count."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gauge("start_time_seconds", "When the service began.").set_to_current_time()
        self.http = self._counter("http", "Answers to requests, by their code.", "code")

    def text(self) -> str:
        """All figures."""
        return generate_latest(self.registry).decode()

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"tacit_serve_{name}", about, labels, registry=self.registry)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"tacit_serve_{name}", about, labels, registry=self.registry)

    def _seconds(self, name: str, about: str) -> Histogram:
        return Histogram(f"tacit_serve_{name}_seconds", about, buckets=_SECONDS, registry=self.registry)


class LabelMetrics(Metrics):
    """Of a label party."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = self._seconds("request", "Time that an answer with scores took.")
        self.rows = self._counter("rows", "Rows that were scored, by their basis.", "basis")
        self.messages = self._counter("messages", "Messages to a partner.", "partner")
        self.refusals = self._counter("refusals", "Messages that a partner refused, by why.", "partner", "field")
        self.cache = self._counter(
            "cache", "Embeddings that were looked for among those that came before.", "partner", "found"
        )
        self.connected = self._gauge("connected", "Whether a partner is connected.", "run", "partner")


class FeatureMetrics(Metrics):
    """Of a feature party."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = self._seconds("answer", "Time that an answer took here.")
        self.requests = self._counter("requests", "Requests that came, by what became of them.", "outcome")
        self.rows = self._counter(
            "rows", "Rows that were asked for and answered, by whether they are known here.", "known"
        )
        self.connected = self._gauge("connected", "Whether the label party is connected.")
        self.known = self._gauge("rows_known", "Rows that can be asked for.")
        self.left = self._gauge("budget_different_rows_left", "Different rows that may still be asked for.")
