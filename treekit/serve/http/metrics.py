"""Prometheus metrics at ``/metrics``: requests, rows, errors, models, reloads, processes.

Label values are limited to known ones: kinds of endpoints, names and versions of models that made
predictions.  Requests for unknown models have the label "".

Several processes share metrics through files: their parent must enter `shared_metrics` before it
starts them, as prometheus_client reads the folder when it is imported.
"""

from __future__ import annotations

import contextlib
import operator
import os
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from treekit._version import __version__
from treekit.errors import MissingExtraError
from treekit.serve.http import Reply, Request, Route
from treekit.serve.models.repository import Change
from treekit.serve.scheduling import RequestRecord, Service

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
    from prometheus_client.process_collector import ProcessCollector
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise MissingExtraError("prometheus_client", "serve") from missing

METRICS_PATH = "/metrics"

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable of prometheus_client with the folder of shared metrics."""

_BUCKET_BOUNDS = (
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0,
)  # fmt: skip
"""Upper bounds of the histogram in seconds, inclusive."""

_BATCH = 16
"""Requests that a single process counts together, at the latest when the metrics are read: more
would delay the requests in progress."""

_OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0"
_MAX_VERSIONS = 64
"""Maximum versions per model with separate row counts: the latest, since a model retrained every
minute would have half a million in a year."""


class Metrics:
    """Metrics of one process, including those of its sibling processes.

    Parameters
    ----------
    service : Service
        Service whose models are reported.
    """

    def __init__(self, service: Service) -> None:
        self._folder = os.environ.get(FOLDER_VARIABLE)
        self._registry = registry = CollectorRegistry()
        self._latency = Histogram(
            "treekit_request_duration_seconds",
            "Time from the head of a request to the end of its response.",
            ["endpoint", "model"],
            registry=registry,
            buckets=_BUCKET_BOUNDS,
        )

        def count(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(name, meaning, labels, registry=registry)

        errors = "Requests answered with a status of 400 or more."
        self._rows = count("treekit_rows", "Predicted rows.", "model", "version")
        self._errors = count("treekit_request_errors", errors, "endpoint", "status")
        self._changes = count(
            "treekit_model_changes", "Changes of models, by process.", "model", "outcome"
        )
        in_progress = Gauge(
            "treekit_requests_in_progress",
            "Requests in progress.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        # A third of the time of `labels` (measured): there are few kinds and models.
        self._get_latency = lru_cache(1024)(self._latency.labels)
        self._row_counters: dict[tuple[str, str], Any] = {}
        self._pending: list[tuple[str, str, str, int, int, float]] = []
        # Another process may report the metrics of this one at any time.
        self._batch = _BATCH if self._folder is None else 1
        self._models = _ModelCollector(service)
        if self._folder is not None:
            service.working.gauge = in_progress
        else:
            in_progress.set_function(lambda: len(service.working.records))
            registry.register(self._models)
            ProcessCollector(registry=registry)

    def count_request(self, kind: str, record: RequestRecord, seconds: float) -> None:
        """Count an answered request of a kind."""
        self._pending.append(
            (kind, record.model, record.version, record.rows, record.status, seconds)
        )
        if len(self._pending) >= self._batch:
            self._count_pending()

    def _count_pending(self) -> None:
        """Count the pending requests; in batches, which saves 1 us of a request (measured)."""
        pending, self._pending = self._pending, []
        rows: dict[tuple[str, str], int] = {}
        for kind, model, version, n_rows, status, seconds in pending:
            self._get_latency(kind, model).observe(seconds)
            if status >= 400:
                self._errors.labels(kind, str(status)).inc()
            elif n_rows:
                rows[model, version] = rows.get((model, version), 0) + n_rows
        for key, number in rows.items():
            counter = self._row_counters.get(key) or self._make_row_counter(*key)
            counter.inc(number)

    def _make_row_counter(self, model: str, version: str) -> Any:
        same = [known for known in self._row_counters if known[0] == model]
        if len(same) >= _MAX_VERSIONS:
            if self._folder is not None:  # series in files cannot be removed: share one
                return self._rows.labels(model, "")
            del self._row_counters[same[0]]
            self._rows.remove(*same[0])
        counter = self._row_counters[model, version] = self._rows.labels(model, version)
        return counter

    def count_changes(self, changes: Iterable[Change]) -> None:
        """Count changes of models."""
        for change in changes:
            self._changes.labels(change.name, change.what).inc()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics in the format of the Accept header, and the media type."""
        self._count_pending()
        registry = self._registry
        if self._folder is not None:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, self._folder)  # type: ignore[no-untyped-call]
            registry.register(self._models)
            registry.register(_ProcessTotals(Path(self._folder)))
        # prometheus_client fails to parse unusual versions in that header.
        form = _OPENMETRICS_TYPE if _OPENMETRICS_TYPE.partition(";")[0] in accept else ""
        encode, media = choose_encoder(form)
        return encode(registry), media


class _ModelCollector(Collector):
    """Collector of the models served by this process."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterable[Metric]:
        """Return a sample for each model version."""
        info = GaugeMetricFamily(
            "treekit_model_info",
            "Served models.",
            labels=["model", "version", "digest", "platform"],
        )
        for served in self._service.repository.served:
            info.add_metric([served.name, served.version, served.digest, served.platform], 1)
        refused = GaugeMetricFamily(
            "treekit_model_refused",
            "Models whose current file was rejected; the previous version may be served.",
            labels=["model", "version"],
        )
        for entry in self._service.repository.index():
            if entry.reason not in ("", "unloaded"):
                refused.add_metric([entry.name, entry.version], 1)
        build = GaugeMetricFamily("treekit_build_info", "The server.", labels=["version"])
        build.add_metric([__version__], 1)
        ready = GaugeMetricFamily(
            "treekit_ready", "Whether all models are served.", float(self._service.ready)
        )
        return [info, refused, build, ready]


class _ProcessTotals(Collector):
    """Collector of total time, memory and files of all processes that share metrics."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """Return the sums over processes, and the earliest start time."""
        whole: dict[str, Metric] = {}
        for pid in sorted({path.stem.rpartition("_")[2] for path in self._folder.glob("*.db")}):
            for metric in ProcessCollector(registry=None, pid=lambda pid=pid: pid).collect():  # type: ignore[misc]
                known = whole.setdefault(metric.name, metric)
                if known is metric:
                    continue
                [sample], [other] = known.samples, metric.samples
                join = min if metric.name.endswith("start_time_seconds") else operator.add
                known.samples = [sample._replace(value=join(sample.value, other.value))]
        return whole.values()


@contextlib.contextmanager
def shared_metrics(workers: int) -> Iterator[None]:
    """Share the metrics of processes started within the context.

    It does nothing for one worker.  A folder already set in the environment is used and kept.
    """
    if workers == 1 or FOLDER_VARIABLE in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="treekit-metrics-") as folder:
        os.environ[FOLDER_VARIABLE] = folder
        try:
            yield
        finally:
            os.environ.pop(FOLDER_VARIABLE, None)


def forget_process(pid: int) -> None:
    """Remove a terminated process from the number of requests in progress."""
    if FOLDER_VARIABLE in os.environ:
        mark_process_dead(pid, os.environ[FOLDER_VARIABLE])  # type: ignore[no-untyped-call]


def make_metrics_route(metrics: Metrics) -> Route:
    """Return the route ``GET /metrics``."""

    async def send_metrics(request: Request) -> Reply:
        accept = request.headers.get(b"accept", b"").decode("latin-1")
        body, media = metrics.render(accept)
        return Reply(body, media=media.encode())

    return Route("GET", METRICS_PATH, send_metrics, "metrics")
