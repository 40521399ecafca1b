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
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from treekit._version import __version__
from treekit.errors import MissingExtraError
from treekit.serve.http import Endpoint, Reply, header
from treekit.serve.models.repository import Change
from treekit.serve.scheduling import Service, Working

if TYPE_CHECKING:
    from treekit.serve.models.served_model import Served

__all__ = [
    "BOUNDS",
    "LATENCY",
    "METRICS_PATH",
    "ROWS",
    "Counts",
    "Header",
    "Metrics",
    "Record",
    "Seconds",
    "Told",
    "Total",
    "forget_process",
    "kind_of",
    "metrics_route",
    "note_answer",
    "shared_metrics",
]


LATENCY = (
    "treekit_request_duration_seconds",
    "Time from a request's head to the end of its answer.",
    ("endpoint", "model"),
)
ROWS = "treekit_rows", "Rows answered.", ("model", "version")

# ---------------------------------------------------------------- record
# What is known of one request: the gate begins it, endpoints fill it in.

Header = tuple[bytes, bytes]

_AGAIN = (b"retry-after", b"1")
_CLOSE = (b"connection", b"close")
_NOSNIFF = (b"x-content-type-options", b"nosniff")
_ON_GET = (
    _NOSNIFF,
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)
"""Unless the endpoint has its own; an answer to POST is not stored, and refers to nothing."""

_ON_STATUS: dict[int, tuple[Header, ...]] = {
    401: ((b"www-authenticate", b"Bearer"),),
    408: (_CLOSE,),
    429: (_AGAIN,),
    503: (_AGAIN,),
}
"""What clients need with an error, whoever answers with it."""


class Told(Protocol):
    """What metrics and logs are told of a request, by whatever transport; see `Record`."""

    id: str
    status: int
    model: str
    version: str
    rows: int
    error: str


class Record:
    """One request; ``scope["treekit"]``.

    Attributes
    ----------
    id : str
        Of the request, as its answer has it in ``X-Request-Id``.
    method : str
    headers : dict of bytes to bytes
        Of the request, by names in lower case; the last of each.
    status : int
        Of the answer; 0 until it has begun.
    model, version, rows : str, str, int
        What answered, and of how much; empty and 0 where no model did.  Endpoints set them.
    error : str
        Why it was refused.
    add : list of headers
        What the answer has besides its own headers.
    """

    # Defaults in the class, not slots: fewer of them are set for a request.
    status = rows = 0
    model = version = error = ""

    def __init__(
        self, send: Send | None, request_id: str, method: str, headers: dict[bytes, bytes]
    ) -> None:
        self._send = send
        self.id, self.method, self.headers = request_id, method, headers
        self.add: list[Header] = []

    def send(self, message: Message) -> Awaitable[None]:
        """ASGI's, which adds to the answer's headers and sees its status.

        Not ``async``, which would cost a coroutine for each message.
        """
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = self.headers_of(list(message.get("headers", ())))
        assert self._send is not None  # noqa: S101 - nobody sends after the end
        return self._send(message)

    def headers_of(self, headers: list[Header]) -> list[Header]:
        """The endpoint's own headers, to which all others are added, of an answer that begins."""
        if self.method == "POST":
            headers.append(_NOSNIFF)
        else:
            own = {name for name, _ in headers}
            headers += [header for header in _ON_GET if header[0] not in own]
        headers += self.add
        if self.status >= 400:
            headers += _ON_STATUS.get(self.status, ())
            if b"expect" in self.headers:
                # The body that was not called for may come or not: what follows on this
                # connection cannot be told from it (RFC 9110, 10.1.1).
                headers.append(_CLOSE)
        return headers

    def end(self) -> None:
        """Let go of the connection: it knows this record through its scope."""
        self._send = None


def note_answer(scope: Scope, served: Served, rows: int) -> None:
    """Tell the gate, if there is one, which model answered how many rows."""
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


# ---------------------------------------------------------------- counts
# Counts of one process that cost a request next to nothing.
#
# prometheus_client's own take a lock for each step, 1.4 us a request (measured); what counts
# here runs in the event loop alone, and so does what reads it.  Several processes have
# prometheus_client's, whose numbers are in files that all of them read.

BOUNDS = (
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0,
)  # fmt: skip
"""Seconds; a request of just so many counts as within."""


class Seconds:
    """A histogram of times: how many up to each of `BOUNDS`, and beyond; and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, amount: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, amount)] += 1
        self.total += amount


class Total:
    """A number that grows."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def inc(self, amount: int) -> None:
        """Add to it."""
        self.total += amount


class Counts(Collector):
    """Tables of both, by the values of their labels, as Prometheus has them."""

    def __init__(
        self,
        latencies: Mapping[tuple[str, str], Seconds],
        rows: Mapping[tuple[str, str], Total],
    ) -> None:
        self._latencies, self._rows = latencies, rows

    def collect(self) -> Iterable[Metric]:
        """The two of them."""
        name, meaning, labels = LATENCY
        latency = HistogramMetricFamily(name, meaning, labels=labels)
        for values, seconds in self._latencies.items():
            reached, buckets = 0, []
            for bound, count in zip((*BOUNDS, "+Inf"), seconds.counts, strict=True):
                reached += count
                buckets.append((str(bound), reached))
            latency.add_metric(values, buckets, seconds.total)
        name, meaning, labels = ROWS
        rows = CounterMetricFamily(name, meaning, labels=labels)
        for values, answered in self._rows.items():
            rows.add_metric(values, answered.total)
        return [latency, rows]
