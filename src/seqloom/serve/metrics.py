"""What a server counts, for Prometheus (`/metrics`). Labels come from fixed lists, never from what a client sends."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
_TEXTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"seqloom_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"seqloom_{name}", text, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"seqloom_{name}", text, labels, buckets=buckets, registry=self.registry)

        self.requests = counter("requests", "Requests answered.", "dialect", "route", "status")
        self.request_seconds = histogram("request_seconds", "Time from request to answer.", _SECONDS, "dialect")
        self.texts = counter("texts", "Texts answered.", "model")
        self.characters = counter("characters", "Characters of the texts answered.", "model")
        self.waiting = gauge("waiting_requests", "Requests in the queue.")
        self.running = gauge("running_texts", "Texts that workers have.")
        self.batch_texts = histogram("batch_texts", "Texts that a worker took at once.", _TEXTS)
        self.batch_seconds = histogram("batch_seconds", "Time that a worker took for a batch.", _SECONDS)
        self.cancelled = counter("cancelled_requests", "Requests whose client left before the answer.")
        self.dropped_rows = counter("dropped_rows", "Hypotheses that left a search because their client left.")
        self.workers = gauge("ready_workers", "Workers that are ready.")
        self.restarts = counter("worker_restarts", "Workers that were replaced after they had ended.")
        self.reloads = counter("reloads", "Times that the models were loaded again.", "result")

    def text(self) -> bytes:
        """All of them in the text format of Prometheus."""
        return generate_latest(self.registry)
