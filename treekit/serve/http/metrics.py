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
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from treekit._version import __version__
from treekit.errors import MissingExtraError
from treekit.serve.http import Reply, Request, Route
from treekit.serve.models.repository import Change
from treekit.serve.protocol.model_extensions import InferenceCounts
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

_Version = tuple[str, str]
"""Name and version of a model."""


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
        version = ("model", "version")
        self._inferences = count("treekit_inferences", "Answered requests with rows.", *version)
        self._seconds = count("treekit_inference_seconds", "Duration of these requests.", *version)
        self._last = Gauge(
            "treekit_last_inference_timestamp_seconds",
            "Time of the last of these requests, since 1970.",
            version,
            registry=registry,
            multiprocess_mode="max",
        )
        failed = "Requests for rows of a model that failed."
        self._failures = count("treekit_inference_failures", failed, *version)
        self._failure_seconds = count(
            "treekit_inference_failure_seconds", "Duration of the failed requests.", *version
        )
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
        self._counters: dict[_Version, tuple[Any, ...]] = {}
        self._pending: list[tuple[str, str, str, int, int, float, _Version | None]] = []
        # Another process may report the metrics of this one at any time.
        self._batch = _BATCH if self._folder is None else 1
        self._models = _ModelCollector(service)
        service.read_statistics = self.read_statistics
        if self._folder is not None:
            service.working.gauge = in_progress
        else:
            in_progress.set_function(lambda: len(service.working.records))
            registry.register(self._models)
            ProcessCollector(registry=registry)

    def count_request(self, kind: str, record: RequestRecord, seconds: float) -> None:
        """Count an answered request of a kind."""
        failed, served = None, record.served
        if served is not None and not 200 <= record.status < 400:
            failed = served.name, served.version
        self._pending.append(
            (kind, record.model, record.version, record.rows, record.status, seconds, failed)
        )
        if len(self._pending) >= self._batch:
            self._count_pending()

    def _count_pending(self) -> None:
        """Count the pending requests; in batches, which saves 1 us of a request (measured)."""
        pending, self._pending = self._pending, []
        done: dict[_Version, tuple[int, int, float]] = {}
        for kind, model, version, n_rows, status, seconds, failed in pending:
            self._get_latency(kind, model).observe(seconds)
            if status >= 400:
                self._errors.labels(kind, str(status)).inc()
            if failed is not None:
                counters = self._get_counters(*failed)
                counters[4].inc()
                counters[5].inc(seconds)
            elif n_rows and status < 400:
                n, rows, took = done.get((model, version), (0, 0, 0.0))
                done[model, version] = n + 1, rows + n_rows, took + seconds
        for key, (n, rows, took) in done.items():
            counters = self._get_counters(*key)
            counters[0].inc(n)
            counters[1].inc(rows)
            counters[2].inc(took)
            counters[3].set(time.time())

    def _get_counters(self, model: str, version: str) -> tuple[Any, ...]:
        """Return the metrics of a version, in the order of the fields of `InferenceCounts`."""
        if (known := self._counters.get((model, version))) is not None:
            return known
        families = (
            self._inferences, self._rows, self._seconds, self._last,
            self._failures, self._failure_seconds,
        )  # fmt: skip
        same = [known for known in self._counters if known[0] == model]
        if len(same) >= _MAX_VERSIONS:
            if self._folder is not None:  # series in files cannot be removed: share one
                version = ""
            else:
                del self._counters[same[0]]
                for family in families:
                    family.remove(*same[0])
        found = tuple(family.labels(model, version) for family in families)
        if version:
            self._counters[model, version] = found
        return found

    def read_statistics(self) -> dict[_Version, InferenceCounts]:
        """Return the counts of each version of a model, of all processes."""
        self._count_pending()
        fields = {
            "treekit_inferences_total": "requests",
            "treekit_rows_total": "rows",
            "treekit_inference_seconds_total": "seconds",
            "treekit_last_inference_timestamp_seconds": "last",
            "treekit_inference_failures_total": "failures",
            "treekit_inference_failure_seconds_total": "failure_seconds",
        }
        values: dict[_Version, dict[str, float]] = {}
        for metric in self._make_registry().collect():
            for sample in metric.samples:
                if (field := fields.get(sample.name)) is not None:
                    key = sample.labels["model"], sample.labels["version"]
                    values.setdefault(key, {})[field] = sample.value
        return {
            key: InferenceCounts(
                *(int(v["requests"]), int(v["rows"]), v["seconds"], v["last"]),
                *(int(v["failures"]), v["failure_seconds"]),
            )
            for key, v in values.items()
            if len(v) == len(fields)
        }

    def count_changes(self, changes: Iterable[Change]) -> None:
        """Count changes of models."""
        for change in changes:
            self._changes.labels(change.name, change.what).inc()

    def _make_registry(self) -> CollectorRegistry:
        """Return the registry of this process, or a new one of all that share metrics."""
        if self._folder is None:
            return self._registry
        registry = CollectorRegistry()
        MultiProcessCollector(registry, self._folder)  # type: ignore[no-untyped-call]
        return registry

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics in the format of the Accept header, and the media type."""
        self._count_pending()
        registry = self._make_registry()
        if self._folder is not None:
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
