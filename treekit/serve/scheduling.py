"""Execution of requests, within limits: small ones on the event loop, large ones in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

from treekit.serve.errors import (
    BusyError,
    ServeError,
    TooLargeError,
    UnavailableError,
)
from treekit.serve.models.fast_path import QuickAnswer
from treekit.serve.models.repository import Repository
from treekit.serve.models.served_model import Batch, Served
from treekit.serve.models.tensors import Tensor
from treekit.serve.settings import Limits

# ---------------------------------------------------------------- running

T = TypeVar("T")

_MAX_LOOP_VISITS = 100_000.0
"""Maximum node visits of a request executed on the event loop: about 0.5 ms."""

MAX_LOOP_BYTES = 1 << 16
"""Maximum bytes parsed or serialized on the event loop: mostly below 1 ms, more for strings."""

_CLOSING_MESSAGE = "the server is closing; retry later or use another server"


class Runner:
    """Executor of the prediction batches of one process.

    Parameters
    ----------
    limits : Limits
    threads : int
        Number of threads for work that would block the event loop.
    queued : int
        Maximum requests waiting for a thread; further requests are rejected.  A request that
        times out is abandoned, not interrupted: it occupies its thread until it is done.
    """

    def __init__(self, limits: Limits, threads: int = 2, queued: int = 32) -> None:
        self.limits = limits
        self._deadlines = Deadlines(
            limits.seconds,
            UnavailableError(
                f"the prediction took longer than {limits.seconds:g} s; send fewer rows at once"
            ),
        )
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="treekit-answer")
        self._explanation_pool = ThreadPoolExecutor(threads, thread_name_prefix="treekit-beside")
        self._free_slots = threading.Semaphore(threads + queued)
        self._free_explanation_slots = threading.Semaphore(threads + queued)
        self._max_queued = queued
        self._closed = threading.Event()

    def check_limits(self, served: Served, batch: Batch, wanted: Sequence[str]) -> None:
        """Raise `TooLargeError` if the rows, or the rows to explain, exceed the limits."""
        limits = self.limits
        if batch.rows > limits.rows:
            raise TooLargeError(
                f"the request has {batch.rows:,} rows; this server takes {limits.rows:,} at once: "
                "send them in parts"
            )
        if batch.rows > limits.explained_rows and not served.explanation_outputs.isdisjoint(wanted):
            raise TooLargeError(
                "the request selects "
                f"{', '.join(sorted(served.explanation_outputs & set(wanted)))} for "
                f"{batch.rows:,} rows; this server explains {limits.explained_rows:,} at once: "
                "send them in parts"
            )

    def max_loop_rows(self, served: Served) -> int:
        """Return the maximum rows whose default outputs are computed on the event loop."""
        return min(self.limits.rows, int(_MAX_LOOP_VISITS // served.visits_per_row))

    def fits_event_loop(self, served: Served, batch: Batch, wanted: Sequence[str]) -> bool:
        """Return whether the request is small enough for the event loop."""
        return batch.rows <= self.max_loop_rows(served) and served.explanation_outputs.isdisjoint(
            wanted
        )

    async def run_batch(self, served: Served, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        """Compute the selected outputs.

        Raises
        ------
        ServeError
            As `Served.compute_outputs` and `check`; `UnavailableError` if it takes too long or too
            many requests are queued.
        """
        self.check_limits(served, batch, wanted)
        if self.fits_event_loop(served, batch, wanted):
            return served.compute_outputs(batch, wanted)
        if self._closed.is_set():
            raise UnavailableError(_CLOSING_MESSAGE)
        if not self._free_slots.acquire(blocking=False):
            raise UnavailableError(
                f"server busy: {self._max_queued} large requests are already queued; retry later "
                "or "
                "send fewer rows at once"
            )
        work = self._pool.submit(served.compute_outputs, batch, wanted)
        work.add_done_callback(lambda _: self._free_slots.release())
        try:
            with self._deadlines.limit_time():
                return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed.is_set() and task is not None and not task.cancelling():
                raise UnavailableError(_CLOSING_MESSAGE) from None  # cancelled by `close`
            raise

    async def run_in_thread(self, function: Callable[..., T], *given: Any) -> T:
        """Run a function that would block the event loop in a prediction thread.

        Raises
        ------
        UnavailableError
            If it takes too long; other errors are those of the function.
        """
        try:
            work = asyncio.get_running_loop().run_in_executor(self._pool, function, *given)
        except RuntimeError:  # the pool has been shut down
            raise UnavailableError(_CLOSING_MESSAGE) from None
        return await self._await_with_timeout(work)

    async def run_by_size(self, size: int, function: Callable[..., T], *given: Any) -> T:
        """Run a function on `size` bytes: directly if they are few, else with `work`."""
        return (
            function(*given)
            if size <= MAX_LOOP_BYTES
            else await self.run_in_thread(function, *given)
        )

    async def run_explanation(self, function: Callable[..., T], *given: Any) -> T:
        """Run a function for explanations or rule lists in separate threads.

        Predictions never wait for these threads.

        Raises
        ------
        UnavailableError
            If it takes too long or too many such requests are queued.
        """
        if not self._free_explanation_slots.acquire(blocking=False):
            raise UnavailableError(
                f"server busy: {self._max_queued} explanations or rule lists are already queued; "
                "retry later"
            )
        try:
            work = self._explanation_pool.submit(function, *given)
        except RuntimeError:  # the pool has been shut down
            self._free_explanation_slots.release()
            raise UnavailableError(_CLOSING_MESSAGE) from None
        work.add_done_callback(lambda _: self._free_explanation_slots.release())
        return await self._await_with_timeout(asyncio.wrap_future(work))

    async def _await_with_timeout(self, work: asyncio.Future[T]) -> T:
        try:
            return await asyncio.wait_for(work, self.limits.seconds)
        except TimeoutError:
            raise UnavailableError(
                f"the response took longer than {self.limits.seconds:g} s; request less at once"
            ) from None

    def close(self) -> None:
        """Accept no more work for threads and cancel queued work; running threads finish."""
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._explanation_pool.shutdown(wait=False, cancel_futures=True)


# ---------------------------------------------------------------- service
# State shared by the transports of one process.


class Working:
    """Number of concurrent requests over all transports."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def increment(self) -> None:
        """Count a request that begins."""
        self.count += 1

    def decrement(self) -> None:
        """Count a request that ends."""
        self.count -= 1

    def check_limit(self, most: int) -> None:
        """Raise `BusyError` if there are more than `most`, including the current request."""
        if self.count > most:
            raise BusyError(
                f"server busy: more than {most:,} requests are in progress; retry in 1 s"
            )


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
    """

    repository: Repository
    runner: Runner = field(default_factory=lambda: Runner(Limits()))
    control: bool = False
    closing: bool = False
    working: Working = field(default_factory=Working)

    @property
    def limits(self) -> Limits:
        """Limits of the process."""
        return self.runner.limits

    @property
    def ready(self) -> bool:
        """Whether all models are loaded and the server is not closing."""
        return not self.closing and self.repository.ready

    def infer_quick(self, served: Served, body: bytes) -> QuickAnswer | None:
        """Return the response to a small common request; None if `infer` must be used."""
        runner = self.runner
        if served.fast_path is None or len(body) > MAX_LOOP_BYTES:
            return None
        return served.fast_path.try_answer(body, runner.max_loop_rows(served))

    async def infer(
        self,
        served: Served,
        names: Sequence[str] | None,
        size: int,
        tensors_of: Callable[..., Sequence[Tensor]],
        *given: Any,
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

        Raises
        ------
        ServeError
            If the request is invalid or cannot be answered.
        """
        wanted = served.select_outputs(names)

        def parse_inputs() -> Batch:
            return served.parse_inputs(tensors_of(*given))

        return await self.runner.run_batch(
            served, await self.runner.run_by_size(size, parse_inputs), wanted
        )


# ---------------------------------------------------------------- deadlines
# Time limits for many short tasks: a table scanned periodically instead of a timer for each.
#
# `asyncio.timeout` sets and cancels a timer of the event loop for each request: 4 us on
# uvloop, of about 80 for a complete request (measured); this takes under 1.

_MAX_SCAN_SECONDS = 1.0
"""Maximum seconds between scans, and so the maximum delay after a time limit."""


class Deadline:
    """Time limit of a block in a task: ``with deadlines.watch():``."""

    __slots__ = ("_cancelling", "_deadlines", "_task", "expires_at", "is_expired")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self.expires_at = 0.0
        self.is_expired = False

    def __enter__(self) -> Deadline:
        """Start the time limit; RuntimeError outside of a task."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a Deadline must be used inside an asyncio task")
        self._task, self._cancelling = task, task.cancelling()
        self._deadlines.add_deadline(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """End the time limit; a block that exceeded it raises the error of `Deadlines`."""
        self._deadlines.pending.pop(self, None)
        if not self.is_expired:
            return
        # The task may have been cancelled elsewhere, too: that cancellation propagates.
        alone = self._task.uncancel() <= self._cancelling
        if alone and (kind is None or issubclass(kind, asyncio.CancelledError)):
            raise self._deadlines.make_error() from None

    def cancel(self) -> None:
        """Cancel the task."""
        self.is_expired = True
        self._task.cancel()


class Deadlines:
    """Time limits of one kind of task on one event loop.

    Parameters
    ----------
    seconds : float
        Time limit of each task.
    error : ServeError
        Error raised in a task that exceeds it; each task raises a copy.
    """

    def __init__(self, seconds: float, error: ServeError) -> None:
        self.pending: dict[Deadline, None] = {}
        """Deadlines in order of expiry: all have the same time limit, so oldest first."""
        self._seconds, self._error = seconds, error
        self._scan_seconds = min(_MAX_SCAN_SECONDS, seconds / 4)
        self._loop: asyncio.AbstractEventLoop | None = None

    def limit_time(self) -> Deadline:
        """Return a context manager that limits the time of its block."""
        return Deadline(self)

    def make_error(self) -> ServeError:
        """Return a new copy of the error."""
        return type(self._error)(str(self._error))

    def add_deadline(self, deadline: Deadline) -> None:
        """Add a deadline to the table and schedule a scan if none is scheduled."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # no scan is scheduled, or only one of an ended loop
            self.pending.clear()
            self._loop = loop
            loop.call_later(self._scan_seconds, self._cancel_expired, loop)
        deadline.expires_at = monotonic() + self._seconds
        self.pending[deadline] = None

    def _cancel_expired(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel expired tasks, and schedule the next scan while there are deadlines."""
        if self._loop is not loop:
            return
        now = monotonic()
        late = []
        for deadline in self.pending:
            if deadline.expires_at > now:
                break
            late.append(deadline)
        for deadline in late:
            del self.pending[deadline]
            deadline.cancel()
        if self.pending:
            loop.call_later(self._scan_seconds, self._cancel_expired, loop)
        else:
            self._loop = None
