"""What Prometheus reads at ``/metrics``: requests, rows, errors, models, reloads, processes.

A label has only values that the server knows: kinds of endpoints, names and versions of
models that answered.  What a stranger asks for and is not there has the label "".

Several processes share their counts through files: `shared_metrics` must have been entered
before prometheus_client is imported for the first time, by their parent.
"""

from __future__ import annotations

import contextlib
import operator
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.routing import Route
from starlette.types import Receive, Scope

from treekit._version import __version__
from treekit.errors import MissingExtraError
from treekit.serve.answering.service import Service, Working
from treekit.serve.gate.record import Told
from treekit.serve.http import Endpoint, Reply, header
from treekit.serve.models.repository import Change

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
    from prometheus_client.process_collector import ProcessCollector
    from prometheus_client.registry import Collector

    from treekit.serve.gate.counts import BOUNDS, LATENCY, ROWS, Counts, Seconds, Total
except ImportError as missing:
    raise MissingExtraError("prometheus_client", "serve") from missing

__all__ = [
    "METRICS_PATH",
    "Metrics",
    "forget_process",
    "kind_of",
    "metrics_route",
    "shared_metrics",
]

METRICS_PATH = "/metrics"

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""prometheus_client's name in the environment: several processes share counts in that folder."""

_OPENMETRICS = "application/openmetrics-text; version=1.0.0"
_VERSIONS = 64
"""Versions of a model whose rows are told apart: the last ones, since a model that is trained
anew each minute would have half a million in a year."""


class _SharedWorking(Working):
    """Which other processes see."""

    __slots__ = ("_gauge",)

    def __init__(self, gauge: Gauge) -> None:
        super().__init__()
        self._gauge = gauge

    def inc(self) -> None:
        self.count += 1
        self._gauge.set(self.count)

    def dec(self) -> None:
        self.count -= 1
        self._gauge.set(self.count)


class Metrics:
    """The counts of one process, and of its siblings where there are some.

    Parameters
    ----------
    service : Service
        Whose models are told of.
    """

    def __init__(self, service: Service) -> None:
        self._folder = os.environ.get(FOLDER)
        self._registry = registry = CollectorRegistry()
        self._errors = Counter(
            "treekit_request_errors",
            "Requests answered with a status of 400 or more.",
            ["endpoint", "status"],
            registry=registry,
        )
        self._changes = Counter(
            "treekit_model_changes",
            "What became of model files that were looked at, by process.",
            ["model", "outcome"],
            registry=registry,
        )
        in_progress = Gauge(
            "treekit_requests_in_progress",
            "Requests in the works.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._latencies: dict[tuple[str, str], Any] = {}
        self._rows: dict[tuple[str, str], Any] = {}
        self._models = _Models(service)
        self._latency_of: Callable[[str, str], Any] = lambda *_: Seconds()
        self._rows_of: Callable[[str, str], Any] = lambda *_: Total()
        if self._folder is None:
            in_progress.set_function(lambda: float(service.working.count))
            registry.register(Counts(self._latencies, self._rows))
            registry.register(self._models)
            ProcessCollector(registry=registry)
        else:
            service.working = _SharedWorking(in_progress)
            self._latency_of = Histogram(*LATENCY, registry=registry, buckets=BOUNDS).labels
            self._rows_of = Counter(*ROWS, registry=registry).labels

    def observe(self, kind: str, record: Told, seconds: float) -> None:
        """Count a request of this kind that was answered."""
        key = kind, record.model
        latency = self._latencies.get(key)
        if latency is None:
            latency = self._latencies[key] = self._latency_of(*key)
        latency.observe(seconds)
        if record.status >= 400:
            self._errors.labels(kind, str(record.status)).inc()
        elif record.rows:
            answered = record.model, record.version
            rows = self._rows.get(answered)
            if rows is None:
                rows = self._new_rows(*answered)
            rows.inc(record.rows)

    def _new_rows(self, model: str, version: str) -> Any:
        same = [known for known in self._rows if known[0] == model]
        if len(same) >= _VERSIONS:
            if self._folder is not None:  # what is in files stays: count no further ones apart
                return self._rows_of(model, "")
            del self._rows[same[0]]
        rows = self._rows[model, version] = self._rows_of(model, version)
        return rows

    def changed(self, changes: Iterable[Change]) -> None:
        """Count what became of models."""
        for change in changes:
            self._changes.labels(change.name, change.what).inc()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """All of it, in the form that the Accept header asks for, and its media type."""
        registry = self._registry
        if self._folder is not None:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, self._folder)  # type: ignore[no-untyped-call]
            registry.register(self._models)
            registry.register(_Processes(Path(self._folder)))
        # prometheus_client's reading of that header fails at versions and the like that are odd.
        form = _OPENMETRICS if _OPENMETRICS.partition(";")[0] in accept else ""
        encode, media = choose_encoder(form)
        return encode(registry), media


class _Models(Collector):
    """The models in service now, of the process that is asked."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterable[Metric]:
        """A sample for each version."""
        info = GaugeMetricFamily(
            "treekit_model_info",
            "Models in service.",
            labels=["model", "version", "digest", "platform"],
        )
        for served in self._service.repository.served:
            info.add_metric([served.name, served.version, served.digest, served.platform], 1)
        refused = GaugeMetricFamily(
            "treekit_model_refused",
            "Models whose file cannot be used as it is; one that was before it may answer.",
            labels=["model", "version"],
        )
        for entry in self._service.repository.index():
            if entry.reason not in ("", "unloaded"):
                refused.add_metric([entry.name, entry.version], 1)
        build = GaugeMetricFamily("treekit_build_info", "The server.", labels=["version"])
        build.add_metric([__version__], 1)
        ready = GaugeMetricFamily(
            "treekit_ready", "Whether every wanted model answers.", float(self._service.ready)
        )
        return [info, refused, build, ready]


class _Processes(Collector):
    """Time, memory and files of all processes that share a folder of counts, added up."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        """The sums; the earliest start."""
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
    """Let the processes that are started inside share their counts.

    To be entered by the parent before prometheus_client is imported by anybody; for one
    worker it does nothing.  A folder that the environment names already is taken, and kept.
    """
    if workers == 1 or FOLDER in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="treekit-metrics-") as folder:
        os.environ[FOLDER] = folder
        try:
            yield
        finally:
            os.environ.pop(FOLDER, None)


def forget_process(pid: int) -> None:
    """Count a process that ended no more among those with requests in the works."""
    if FOLDER in os.environ:
        mark_process_dead(pid, os.environ[FOLDER])  # type: ignore[no-untyped-call]


def metrics_route(metrics: Metrics) -> Route:
    """``GET /metrics``."""

    async def answer(scope: Scope, receive: Receive) -> Reply:
        del receive
        accept = (header(scope, b"accept") or b"").decode("latin-1")
        body, media = metrics.render(accept)
        return Reply(body, media=media.encode())

    return Route(METRICS_PATH, Endpoint(answer), methods=["GET"])


@lru_cache(256)
def kind_of(path: str) -> str:
    """The kind of endpoint that a path is of, whether there is such a one or not."""
    if path.startswith("/v2/models/"):
        last = path.rpartition("/")[2]
        return last if last in ("infer", "ready") else "model"
    if path.startswith("/v2/health/"):
        return "health"
    if path.startswith("/v2/repository/"):
        return "repository"
    if path.startswith("/models"):
        return _OF_MODELS.get(path.rpartition("/")[2], "models")
    if path.startswith("/page/"):
        return "page"
    return _KINDS.get(path, "other")


_OF_MODELS = {"rules": "rules", "tree.svg": "picture"}
_KINDS = {
    "/": "page",
    "/page.css": "page",
    "/page.js": "page",
    "/explain": "explain",
    METRICS_PATH: "metrics",
    "/openapi.json": "description",
    "/predict": "predict",
    "/v2": "server",
}
