"""Prometheus metrics at ``/metrics``: requests, rows, errors, models, reloads, processes.

Label values are limited to known ones: kinds of endpoints, names and versions of models that made
predictions.  Requests for unknown models have the label "".

Several processes share metrics through files: their parent must enter `shared_metrics` before
prometheus_client is imported for the first time.
"""

from __future__ import annotations

import contextlib
import operator
import os
import tempfile
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from treekit._version import __version__
from treekit.errors import MissingExtraError
from treekit.serve.http import Endpoint, Reply, get_header
from treekit.serve.models.repository import Change
from treekit.serve.scheduling import Service, Working

if TYPE_CHECKING:
    from treekit.serve.models.served_model import Served


LATENCY_METRIC = (
    "treekit_request_duration_seconds",
    "Time from the head of a request to the end of its response.",
    ("endpoint", "model"),
)
ROWS_METRIC = "treekit_rows", "Predicted rows.", ("model", "version")

# ---------------------------------------------------------------- request record
# Created by the middleware and completed by the endpoints.

Header = tuple[bytes, bytes]

_RETRY_AFTER = (b"retry-after", b"1")
_CLOSE = (b"connection", b"close")
_NOSNIFF = (b"x-content-type-options", b"nosniff")
_DEFAULT_HEADERS = (
    _NOSNIFF,
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)
"""Default headers, unless set by the endpoint; responses to POST are not cached anyway."""

_STATUS_HEADERS: dict[int, tuple[Header, ...]] = {
    401: ((b"www-authenticate", b"Bearer"),),
    408: (_CLOSE,),
    429: (_RETRY_AFTER,),
    503: (_RETRY_AFTER,),
}
"""Headers added to all responses with a status."""


class RequestRecord(Protocol):
    """Data of a request for metrics and logs, for all transports; see `HttpRequestRecord`."""

    id: str
    status: int
    model: str
    version: str
    rows: int
    error: str


class HttpRequestRecord:
    """Record of one HTTP request, in ``scope["treekit"]``.

    Attributes
    ----------
    id : str
        Request id, returned in ``X-Request-Id``.
    method : str
    headers : dict of bytes to bytes
        Request headers by name in lower case; the last of each name.
    status : int
        Status of the response; 0 until it has begun.
    model, version, rows : str, str, int
        Model, version and number of rows of a prediction, set by endpoints; else empty and 0.
    error : str
        Message with which the request was rejected.
    extra_headers : list of headers
        Headers added to those of the endpoint.
    """

    # Class attributes as defaults instead of slots, as few of them are set for a request.
    status = rows = 0
    model = version = error = ""

    def __init__(
        self, send: Send | None, request_id: str, method: str, headers: dict[bytes, bytes]
    ) -> None:
        self._send = send
        self.id, self.method, self.headers = request_id, method, headers
        self.extra_headers: list[Header] = []

    def send(self, message: Message) -> Awaitable[None]:
        """Send an ASGI message, adding response headers and recording the status.

        Not ``async``, to avoid a coroutine for each message.
        """
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = self.complete_headers(list(message.get("headers", ())))
        assert self._send is not None  # noqa: S101 - no message is sent after `release_connection`
        return self._send(message)

    def complete_headers(self, headers: list[Header]) -> list[Header]:
        """Add all other headers to those of the endpoint, in place."""
        if self.method == "POST":
            headers.append(_NOSNIFF)
        else:
            own = {name for name, _ in headers}
            headers += [header for header in _DEFAULT_HEADERS if header[0] not in own]
        headers += self.extra_headers
        if self.status >= 400:
            headers += _STATUS_HEADERS.get(self.status, ())
            if b"expect" in self.headers:
                # The client may or may not send the body, which cannot be distinguished from
                # the next request on this connection (RFC 9110, 10.1.1).
                headers.append(_CLOSE)
        return headers

    def release_connection(self) -> None:
        """Break the reference cycle with the connection, whose scope contains this record."""
        self._send = None


def record_prediction(scope: Scope, served: Served, rows: int) -> None:
    """Record the model and the number of rows of a prediction, if there is a middleware."""
    record: Any = scope.get("treekit")
    if record is not None:
        record.model, record.version, record.rows = served.name, served.version, rows


# ---------------------------------------------------------------- metrics

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
    from prometheus_client.process_collector import ProcessCollector
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise MissingExtraError("prometheus_client", "serve") from missing

METRICS_PATH = "/metrics"

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable of prometheus_client with the folder of shared metrics."""

_OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0"
_MAX_VERSIONS = 64
"""Maximum versions per model with separate row counts: the latest, since a model retrained every
minute would have half a million in a year."""


class _SharedWorking(Working):
    """Request counter visible to other processes."""

    __slots__ = ("_gauge",)

    def __init__(self, gauge: Gauge) -> None:
        super().__init__()
        self._gauge = gauge

    def increment(self) -> None:
        self.count += 1
        self._gauge.set(self.count)

    def decrement(self) -> None:
        self.count -= 1
        self._gauge.set(self.count)


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
        self._errors = Counter(
            "treekit_request_errors",
            "Requests answered with a status of 400 or more.",
            ["endpoint", "status"],
            registry=registry,
        )
        self._changes = Counter(
            "treekit_model_changes",
            "Changes of models, by process.",
            ["model", "outcome"],
            registry=registry,
        )
        in_progress = Gauge(
            "treekit_requests_in_progress",
            "Requests in progress.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._latencies: dict[tuple[str, str], Any] = {}
        self._rows: dict[tuple[str, str], Any] = {}
        self._models = _ModelCollector(service)
        self._latency_of: Callable[[str, str], Any] = lambda *_: LatencyHistogram()
        self._rows_of: Callable[[str, str], Any] = lambda *_: RowCounter()
        if self._folder is None:
            in_progress.set_function(lambda: float(service.working.count))
            registry.register(FastCollector(self._latencies, self._rows))
            registry.register(self._models)
            ProcessCollector(registry=registry)
        else:
            service.working = _SharedWorking(in_progress)
            self._latency_of = Histogram(
                *LATENCY_METRIC, registry=registry, buckets=BUCKET_BOUNDS
            ).labels
            self._rows_of = Counter(*ROWS_METRIC, registry=registry).labels

    def count_request(self, kind: str, record: RequestRecord, seconds: float) -> None:
        """Count an answered request of a kind."""
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
                rows = self._make_row_counter(*answered)
            rows.inc(record.rows)

    def _make_row_counter(self, model: str, version: str) -> Any:
        same = [known for known in self._rows if known[0] == model]
        if len(same) >= _MAX_VERSIONS:
            if self._folder is not None:  # series in files cannot be removed: share one
                return self._rows_of(model, "")
            del self._rows[same[0]]
        rows = self._rows[model, version] = self._rows_of(model, version)
        return rows

    def count_changes(self, changes: Iterable[Change]) -> None:
        """Count changes of models."""
        for change in changes:
            self._changes.labels(change.name, change.what).inc()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics in the format of the Accept header, and the media type."""
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

    The parent must enter it before prometheus_client is imported; it does nothing for one
    worker.  A folder already set in the environment is used and kept.
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

    async def send_metrics(scope: Scope, receive: Receive) -> Reply:
        del receive
        accept = (get_header(scope, b"accept") or b"").decode("latin-1")
        body, media = metrics.render(accept)
        return Reply(body, media=media.encode())

    return Route(METRICS_PATH, Endpoint(send_metrics), methods=["GET"])


@lru_cache(256)
def get_endpoint_kind(path: str) -> str:
    """Return the kind of endpoint of a path, existing or not."""
    if path.startswith("/v2/models/"):
        last = path.rpartition("/")[2]
        return last if last in ("infer", "ready") else "model"
    if path.startswith("/v2/health/"):
        return "health"
    if path.startswith("/v2/repository/"):
        return "repository"
    if path.startswith("/models"):
        return _MODEL_KINDS.get(path.rpartition("/")[2], "models")
    if path.startswith("/page/"):
        return "page"
    return _KINDS.get(path, "other")


_MODEL_KINDS = {"rules": "rules", "tree.svg": "picture"}
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


# ---------------------------------------------------------------- fast counters
# Counters of a single process with negligible cost.
#
# Those of prometheus_client take a lock for each step, 1.4 us per request (measured); these are
# updated and read by the event loop only.  Several processes use those of prometheus_client, which
# are shared through files.

BUCKET_BOUNDS = (
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0,
)  # fmt: skip
"""Upper bounds of the histogram in seconds, inclusive."""


class LatencyHistogram:
    """Histogram of times with the upper bounds `BOUNDS`, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKET_BOUNDS) + 1)
        self.total = 0.0

    def observe(self, amount: float) -> None:
        """Count one time."""
        self.counts[bisect_left(BUCKET_BOUNDS, amount)] += 1
        self.total += amount


class RowCounter:
    """Counter."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def inc(self, amount: int) -> None:
        """Increase the counter."""
        self.total += amount


class FastCollector(Collector):
    """Collector of the latency histograms and row counters, by label values."""

    def __init__(
        self,
        latencies: Mapping[tuple[str, str], LatencyHistogram],
        rows: Mapping[tuple[str, str], RowCounter],
    ) -> None:
        self._latencies, self._rows = latencies, rows

    def collect(self) -> Iterable[Metric]:
        """Return the latency and row metrics."""
        name, meaning, labels = LATENCY_METRIC
        latency = HistogramMetricFamily(name, meaning, labels=labels)
        for values, seconds in self._latencies.items():
            reached, buckets = 0, []
            for bound, count in zip((*BUCKET_BOUNDS, "+Inf"), seconds.counts, strict=True):
                reached += count
                buckets.append((str(bound), reached))
            latency.add_metric(values, buckets, seconds.total)
        name, meaning, labels = ROWS_METRIC
        rows = CounterMetricFamily(name, meaning, labels=labels)
        for values, answered in self._rows.items():
            rows.add_metric(values, answered.total)
        return [latency, rows]
