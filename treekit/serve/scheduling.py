"""Execution of requests, within limits: small ones on the event loop, large ones in threads."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar

import msgspec

from treekit.data.encoding import Absent
from treekit.errors import TreekitError
from treekit.serve.cancellation import run_cancellable
from treekit.serve.errors import (
    BusyError,
    ForbiddenError,
    InvalidRequestError,
    ServeError,
    TooLargeError,
    UnavailableError,
    shown,
)
from treekit.serve.models.repository import Do, Repository
from treekit.serve.models.served_model import Matrix, Served
from treekit.serve.models.tensors import Tensor
from treekit.serve.protocol.model_extensions import (
    ModelConfig,
    ModelStatistics,
    StatisticsByVersion,
    make_config,
    make_statistics,
)
from treekit.serve.settings import Limits

# ---------------------------------------------------------------- running

T = TypeVar("T")

_MAX_LOOP_VISITS = 100_000.0
"""Maximum node visits of a request executed on the event loop: about 0.5 ms."""

MAX_LOOP_BYTES = 1 << 16
"""Maximum bytes parsed or serialized on the event loop: mostly below 1 ms, more for strings."""

_CLOSING_MESSAGE = "the server is closing; retry later or use another server"


class _ThreadQueue:
    """Threads with a bounded queue.

    Parameters
    ----------
    name : str
        Prefix of the threads' names.
    what : str
        Plural of the work, for error messages.
    threads, queued : int
        Number of threads, and maximum work waiting for one.
    seconds : float
        Time limit of the work.
    """

    def __init__(self, name: str, what: str, threads: int, queued: int, seconds: float) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free_places = threading.Semaphore(threads + queued)
        self._busy_message = f"server busy: {queued} {what} are already queued; retry later"
        self._seconds = seconds
        self._is_closed = False
        self._events: set[threading.Event] = set()  # one for each work in progress

    async def run_bounded(self, function: Callable[..., T], *given: Any) -> T:
        """Run a function in a thread, or reject it if too many are queued."""
        if not self._free_places.acquire(blocking=False):
            raise UnavailableError(self._busy_message)
        return await self.run(function, *given, done=self._free_places.release)

    async def run(
        self, function: Callable[..., T], *given: Any, done: Callable[[], None] = lambda: None
    ) -> T:
        """Run a function in a thread, then call `done`; cancel it if nobody waits any more."""
        is_cancelled = threading.Event()
        try:
            work = self._pool.submit(run_cancellable, is_cancelled, function, *given)
        except RuntimeError:  # the pool has been shut down
            done()
            raise UnavailableError(_CLOSING_MESSAGE) from None
        work.add_done_callback(lambda _: done())
        self._events.add(is_cancelled)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(work), self._seconds)
        except TimeoutError:
            raise UnavailableError(
                f"the response took longer than {self._seconds:g} s; request less at once"
            ) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_closed and task is not None and not task.cancelling():
                raise UnavailableError(_CLOSING_MESSAGE) from None  # cancelled by `close`
            raise
        finally:
            is_cancelled.set()
            self._events.discard(is_cancelled)

    def close(self, *, wait: bool = False) -> None:
        """Cancel all work; `wait` until it has ended."""
        self._is_closed = True
        for is_cancelled in tuple(self._events):
            is_cancelled.set()
        self._pool.shutdown(wait=wait, cancel_futures=True)


class Runner:
    """Executor of the prediction batches of one process.

    Parameters
    ----------
    limits : Limits
    threads : int
        Number of threads for work that would block the event loop.
    queued : int
        Maximum requests waiting for a thread; further requests are rejected.  The work of a
        request that times out, or whose client is gone, ends at its next check
        (`treekit.serve.cancellation`).
    """

    def __init__(self, limits: Limits, threads: int = 2, queued: int = 32) -> None:
        self.limits = limits
        self._predictions = _ThreadQueue(
            "treekit-answer", "large requests", threads, queued, limits.seconds
        )
        self._explanations = _ThreadQueue(
            "treekit-beside", "explanations or rule lists", threads, queued, limits.seconds
        )

    def check_limits(self, served: Served, batch: Matrix, wanted: Sequence[str]) -> None:
        """Raise `TooLargeError` if the rows, or the rows to explain, exceed the limits."""
        limits = self.limits
        if len(batch) > limits.rows:
            raise TooLargeError(
                f"the request has {len(batch):,} rows; this server takes {limits.rows:,} at once: "
                "send them in parts"
            )
        if len(batch) > limits.explained_rows and not served.explanation_outputs.isdisjoint(wanted):
            raise TooLargeError(
                "the request selects "
                f"{', '.join(sorted(served.explanation_outputs & set(wanted)))} for "
                f"{len(batch):,} rows; this server explains {limits.explained_rows:,} at once: "
                "send them in parts"
            )

    async def run_batch(self, served: Served, batch: Matrix, wanted: Sequence[str]) -> list[Tensor]:
        """Compute the selected outputs: few rows directly, else in a thread.

        Raises
        ------
        ServeError
            As `Served.compute_outputs` and `check_limits`; `UnavailableError` if it takes too long
            or too many requests are queued.
        """
        self.check_limits(served, batch, wanted)
        is_small = len(batch) * served.visits_per_row <= _MAX_LOOP_VISITS
        if is_small and served.explanation_outputs.isdisjoint(wanted):
            return served.compute_outputs(batch, wanted)
        return await self._predictions.run_bounded(served.compute_outputs, batch, wanted)

    async def run_by_size(self, size: int, function: Callable[..., T], *given: Any) -> T:
        """Run a function on `size` bytes: directly if they are few, else in a prediction thread.

        Raises
        ------
        UnavailableError
            If it takes too long; other errors are those of the function.
        """
        if size <= MAX_LOOP_BYTES:
            return function(*given)
        return await self._predictions.run(function, *given)

    async def run_explanation(self, function: Callable[..., T], *given: Any) -> T:
        """Run a function for explanations or rule lists in separate threads.

        Predictions never wait for these threads.

        Raises
        ------
        UnavailableError
            If it takes too long or too many such requests are queued.
        """
        return await self._explanations.run_bounded(function, *given)

    def close(self, *, wait: bool = False) -> None:
        """Accept no more work for threads and cancel all work; `wait` until it has ended."""
        self._predictions.close(wait=wait)
        self._explanations.close(wait=wait)


# ---------------------------------------------------------------- service
# State shared by the transports of one process.


class Working:
    """Requests in progress over all transports.

    Attributes
    ----------
    records : set of RequestRecord
    pending_bytes : int
        Bytes of their bodies that did not arrive in one piece.
    gauge : prometheus_client.Gauge, optional
        Metric of their number.
    """

    def __init__(self) -> None:
        self.records: set[RequestRecord] = set()
        self.pending_bytes = 0
        self.gauge: Any = None

    def begin(self, record: RequestRecord) -> None:
        """Add a request that begins."""
        self.records.add(record)
        if self.gauge is not None:
            self.gauge.set(len(self.records))

    def end(self, record: RequestRecord) -> None:
        """Remove a request that ends, with its bytes."""
        self.records.remove(record)
        self.pending_bytes -= record.pending_bytes
        if self.gauge is not None:
            self.gauge.set(len(self.records))

    def check_limit(self, most: int) -> None:
        """Raise `BusyError` if there are more than `most`, including the current request."""
        if len(self.records) > most:
            raise BusyError(
                f"server busy: more than {most:,} requests are in progress; retry in 1 s"
            )


class RequestRecord(msgspec.Struct, eq=False, kw_only=True):
    """Record of a request for metrics and the log, over any transport.

    Attributes
    ----------
    id : str
        Request id.
    started : float
        Time of `perf_counter` at which the request began.
    status : int
        HTTP status of the response, or its equivalent; 0 until it has begun.
    served : Served, optional
        Model that the request selects for a prediction.
    model, version, rows : str, str, int
        Model, version and number of rows of a prediction; else empty and 0.
    error : str
        Message with which the request was rejected.
    pending_bytes : int
        Bytes of the body that are counted as pending.
    task : Task, optional
        Task that answers the request.
    deadline : float
        Time of `perf_counter` at which the task is cancelled.
    is_late : bool
        Whether the task was cancelled as it passed the deadline.
    """

    id: str
    started: float = msgspec.field(default_factory=perf_counter)
    status: int = 0
    served: Served | None = None
    model: str = ""
    version: str = ""
    rows: int = 0
    error: str = ""
    pending_bytes: int = 0
    task: asyncio.Task[Any] | None = None
    deadline: float = math.inf
    is_late: bool = False

    def record_prediction(self, served: Served, rows: int) -> None:
        """Record the model and the number of rows of a prediction."""
        self.model, self.version, self.rows = served.name, served.version, rows


@dataclass
class Service:
    """Server of one process, independent of the transport.

    Attributes
    ----------
    repository : Repository
    runner : Runner
    control : bool
        Whether clients may load and unload models.
    closing : bool
        Set when the process is to stop: it is no longer ready, and stops when all requests
        in progress are answered.
    working : Working
    read_statistics : callable
        Returns the counts of inferences by name and version of a model.
    """

    repository: Repository
    runner: Runner = field(default_factory=lambda: Runner(Limits()))
    control: bool = False
    closing: bool = False
    working: Working = field(default_factory=Working)
    read_statistics: Callable[[], StatisticsByVersion] = dict

    @property
    def limits(self) -> Limits:
        """Limits of the process."""
        return self.runner.limits

    @property
    def ready(self) -> bool:
        """Whether all models are loaded and the server is not closing."""
        return not self.closing and self.repository.ready

    def infer_quick(self, served: Served, body: bytes) -> tuple[bytes, int] | None:
        """Return the response to a small common request and its rows; None: use `infer`."""
        if served.fast_path is None or len(body) > MAX_LOOP_BYTES:
            return None
        most = min(self.runner.limits.rows, int(_MAX_LOOP_VISITS // served.visits_per_row))
        return served.fast_path.try_answer(body, most)

    async def infer(
        self,
        served: Served,
        names: Sequence[str] | None,
        size: int,
        tensors_of: Callable[..., Sequence[Tensor]],
        *given: Any,
        absent: Absent = "error",
    ) -> list[Tensor]:
        """Compute the outputs of these names (None: the default ones) for a request.

        Parameters
        ----------
        served : Served
        names : sequence of str, optional
        size : int
            Bytes of the request; a large one is parsed in a thread.
        tensors_of : callable
            ``tensors_of(*given)`` returns the input tensors.
        absent : {"error", "missing"}
            Treatment of columns without an input; see `Served.parse_inputs`.

        Raises
        ------
        ServeError
            If the request is invalid or cannot be answered.
        """
        wanted = served.select_outputs(names)

        def parse_inputs() -> Matrix:
            return served.parse_inputs(tensors_of(*given), absent)

        return await self.runner.run_batch(
            served, await self.runner.run_by_size(size, parse_inputs), wanted
        )

    def get_statistics(
        self, name: str | None = None, version: str | None = None
    ) -> ModelStatistics:
        """Return the statistics of the loaded versions of a model, or of all models.

        Raises
        ------
        ServeError
            If the model or version is unknown or not loaded.
        """
        chosen = list(self.repository.served)
        if name is not None:
            newest = self.repository.get(name, version)
            chosen = [own for own in chosen if own.name == name]
            if version is not None:
                chosen = [newest]
        return make_statistics(chosen, self.read_statistics())

    def get_config(self, name: str | None, version: str | None = None) -> ModelConfig:
        """Return the configuration of a model.

        Raises
        ------
        ServeError
            If the model or version is unknown or not loaded.
        """
        return make_config(self.repository.get(name, version), self.limits.rows)

    def check_control(self) -> None:
        """Raise `ForbiddenError` if clients may not load and unload models."""
        if not self.control:
            raise ForbiddenError(
                "loading and unloading models by requests is disabled; start the server with "
                "--control"
            )

    async def change_model(self, what: Do, name: str, parameters: Mapping[str, Any]) -> None:
        """Load or unload a model.

        Raises
        ------
        ServeError
            If a parameter would change the model, or the model cannot be loaded or unloaded.
        """
        for key, value in parameters.items():
            if key == "config" or key.startswith("file:"):
                raise InvalidRequestError(
                    f"unsupported parameter {shown(key)}: models are loaded from the server's "
                    "files without changes; leave it out"
                )
            # Accepted, as no model has dependents.
            if key == "unload_dependents" and not isinstance(value, bool):
                raise InvalidRequestError(
                    f"the parameter {key!r} must be true or false, got {shown(value)}"
                )
        try:
            if what == "load":
                await asyncio.to_thread(self.repository.load, name, self.limits.seconds)
            else:
                await asyncio.to_thread(self.repository.unload, name)
        except ServeError:
            raise
        except (TreekitError, OSError) as error:  # its text may name folders of the server
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise UnavailableError(
                f"model {shown(name)} was not changed: {reason}; see its files on the server"
            ) from error
