"""Requests on an event loop: small ones at once, large ones in threads, all within bounds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from treekit.serve.errors import (
    BusyError,
    InvalidRequestError,
    ServeError,
    TooLargeError,
    UnavailableError,
)
from treekit.serve.models.fast_path import QuickAnswer
from treekit.serve.models.repository import Repository
from treekit.serve.models.served_model import Batch, Served
from treekit.serve.models.tensors import Tensor
from treekit.serve.settings import Limits, ServeSettings

__all__ = [
    "SMALL",
    "Batcher",
    "Deadline",
    "Deadlines",
    "Runner",
    "Service",
    "Working",
]


# ---------------------------------------------------------------- running

T = TypeVar("T")

_AT_ONCE = 100_000.0
"""Visits of nodes that the event loop waits for: some 0.5 ms."""

SMALL = 1 << 16
"""Bytes that the event loop reads or writes itself: below 1 ms of most, some of texts."""

_CLOSING = "the server is closing; ask another, or come again"


class Runner:
    """Answers batches, one process' share of the work.

    Parameters
    ----------
    limits : Limits
    threads : int
        For what would keep the event loop.
    queued : int
        Answers that may wait for a thread; one more is refused.  An answer that takes too
        long is given up, not ended: until it is done its thread is not there for others.
    batch_rows, batch_delay : int, float
        See `ServeSettings`.
    """

    def __init__(
        self,
        limits: Limits,
        threads: int = 2,
        queued: int = 32,
        *,
        batch_rows: int = 0,
        batch_delay: float = 0.002,
    ) -> None:
        self.limits = limits
        self._answering = Deadlines(
            limits.seconds,
            UnavailableError(
                f"the answer took longer than {limits.seconds:g} s; send fewer rows at once"
            ),
        )
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="treekit-answer")
        self._beside = ThreadPoolExecutor(threads, thread_name_prefix="treekit-beside")
        self._places = threading.Semaphore(threads + queued)
        self._places_beside = threading.Semaphore(threads + queued)
        self._queued = queued
        self._closed = threading.Event()
        most = min(batch_rows, limits.rows)
        self._batcher = Batcher(self._alone, most, batch_delay) if most else None

    @classmethod
    def of(cls, settings: ServeSettings) -> Runner:
        """One as the settings have it."""
        return cls(
            settings.limits, batch_rows=settings.batch_rows, batch_delay=settings.batch_delay
        )

    @property
    def batches(self) -> bool:
        """Whether small requests wait for each other."""
        return self._batcher is not None

    def check(self, served: Served, batch: Batch, wanted: Sequence[str]) -> None:
        """Raise `TooLargeError` for more rows, or rows to explain, than the limits allow."""
        limits = self.limits
        if batch.rows > limits.rows:
            raise TooLargeError(
                f"the request has {batch.rows:,} rows; this server takes {limits.rows:,} at once: "
                "send them in parts"
            )
        if batch.rows > limits.explained_rows and not served.explaining.isdisjoint(wanted):
            raise TooLargeError(
                f"the request asks for {', '.join(sorted(served.explaining & set(wanted)))} of "
                f"{batch.rows:,} rows; this server explains {limits.explained_rows:,} at once: "
                "send them in parts"
            )

    def rows_at_once(self, served: Served) -> int:
        """Rows whose usual answer is there before anybody would notice."""
        return min(self.limits.rows, int(_AT_ONCE // served.effort))

    def at_once(self, served: Served, batch: Batch, wanted: Sequence[str]) -> bool:
        """Whether the answer is there before anybody would notice."""
        return batch.rows <= self.rows_at_once(served) and served.explaining.isdisjoint(wanted)

    async def run(self, served: Served, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        """The outputs that are wanted.

        Raises
        ------
        ServeError
            As `Served.answer` and `check`; `UnavailableError` if it takes too long, or
            would have to wait behind too many others.
        """
        self.check(served, batch, wanted)
        batcher = self._batcher
        if batcher is not None and batcher.takes(served, batch, wanted):
            return await batcher.run(served, batch, tuple(wanted))
        return await self._alone(served, batch, wanted)

    async def _alone(self, served: Served, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        if self.at_once(served, batch, wanted):
            return served.answer(batch, wanted)
        if self._closed.is_set():
            raise UnavailableError(_CLOSING)
        if not self._places.acquire(blocking=False):
            raise UnavailableError(
                f"{self._queued} large requests wait for a thread already; come again, or send "
                "fewer rows at once"
            )
        work = self._pool.submit(served.answer, batch, wanted)
        work.add_done_callback(lambda _: self._places.release())
        try:
            with self._answering.watch():
                return await asyncio.wrap_future(work)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed.is_set() and task is not None and not task.cancelling():
                raise UnavailableError(_CLOSING) from None  # `close` gave the work up
            raise

    async def work(self, function: Callable[..., T], *given: Any) -> T:
        """What a function gives that would keep the event loop, in a thread of the answers.

        Raises
        ------
        UnavailableError
            If it takes too long; and whatever the function raises.
        """
        try:
            work = asyncio.get_running_loop().run_in_executor(self._pool, function, *given)
        except RuntimeError:  # of a pool that takes no more
            raise UnavailableError(_CLOSING) from None
        return await self._in_time(work)

    async def sized(self, size: int, function: Callable[..., T], *given: Any) -> T:
        """What a function makes of so many bytes: of few at once, of many as `work` does."""
        return function(*given) if size <= SMALL else await self.work(function, *given)

    async def beside(self, function: Callable[..., T], *given: Any) -> T:
        """The same of explanations and lists of rules, which have threads of their own.

        However many are asked for, predictions do not wait for them.

        Raises
        ------
        UnavailableError
            If it takes too long, or would have to wait behind too many others.
        """
        if not self._places_beside.acquire(blocking=False):
            raise UnavailableError(
                f"{self._queued} explanations or lists of rules wait for a thread already; "
                "come again"
            )
        try:
            work = self._beside.submit(function, *given)
        except RuntimeError:  # of a pool that takes no more
            self._places_beside.release()
            raise UnavailableError(_CLOSING) from None
        work.add_done_callback(lambda _: self._places_beside.release())
        return await self._in_time(asyncio.wrap_future(work))

    async def _in_time(self, work: asyncio.Future[T]) -> T:
        try:
            return await asyncio.wait_for(work, self.limits.seconds)
        except TimeoutError:
            raise UnavailableError(
                f"the answer took longer than {self.limits.seconds:g} s; ask for less at once"
            ) from None

    def close(self) -> None:
        """Take no more for threads, give up what waits for one; threads end when they are done."""
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._beside.shutdown(wait=False, cancel_futures=True)


# ---------------------------------------------------------------- service
# What the faces of one process share: models, bounds, and one way through them.


class Working:
    """How many requests are in the works, by whatever transport."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def inc(self) -> None:
        """One more."""
        self.count += 1

    def dec(self) -> None:
        """One less."""
        self.count -= 1

    def check(self, most: int) -> None:
        """Raise `BusyError` if there are more, this one among them."""
        if self.count > most:
            raise BusyError(
                f"{most:,} requests are in the works, as many as this server takes; "
                "come again in a second"
            )


@dataclass
class Service:
    """One process' server behind whatever transport.

    Attributes
    ----------
    repository : Repository
    runner : Runner
    control : bool
        Whether clients may load and unload models.
    closing : bool
        Set when the process has been told to end: it is no longer ready, and ends when the
        requests in the works are answered.
    working : Working
    """

    repository: Repository
    runner: Runner = field(default_factory=lambda: Runner(Limits()))
    control: bool = False
    closing: bool = False
    working: Working = field(default_factory=Working)

    @property
    def limits(self) -> Limits:
        """The bounds."""
        return self.runner.limits

    @property
    def ready(self) -> bool:
        """Whether every model that is wanted answers, and goes on to."""
        return not self.closing and self.repository.ready

    def infer_quick(self, served: Served, body: bytes) -> QuickAnswer | None:
        """The answer to a small body that is plainly the commonest; None: ask the general way."""
        runner = self.runner
        if served.quick is None or runner.batches or len(body) > SMALL:
            return None
        return served.quick.answer(body, runner.rows_at_once(served))

    async def infer(
        self,
        served: Served,
        names: Sequence[str] | None,
        size: int,
        tensors_of: Callable[..., Sequence[Tensor]],
        *given: Any,
    ) -> list[Tensor]:
        """The outputs of these names (None: the usual ones) for a request's inputs.

        Parameters
        ----------
        served : Served
        names : sequence of str, optional
        size : int
            Bytes of the request: a large one is read in a thread.
        tensors_of : callable
            Of `given` it makes the inputs.

        Raises
        ------
        ServeError
            Says what is wrong with the request, or why there is no answer.
        """
        wanted = served.wanted(names)

        def read() -> Batch:
            return served.read(tensors_of(*given))

        return await self.runner.run(served, await self.runner.sized(size, read), wanted)


# ---------------------------------------------------------------- deadlines
# Time limits for very many short works: a table that is swept, not a timer for each.
#
# `asyncio.timeout` arms and disarms a timer of the event loop for each request: 4 us on
# uvloop, of some 80 for a whole request (measured); this takes under 1.

_EVERY = 1.0
"""Seconds between sweeps at most; a work is ended so much after its time, at most."""


class Deadline:
    """One work under way: ``with deadlines.watch():`` around its awaits, in a task."""

    __slots__ = ("_cancelling", "_deadlines", "_task", "end", "late")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self.end = 0.0
        self.late = False

    def __enter__(self) -> Deadline:
        """Begin; RuntimeError outside of a task."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline is for what runs in a task of asyncio")
        self._task, self._cancelling = task, task.cancelling()
        self._deadlines.begin(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """End; what was cancelled for its time raises the error of `Deadlines`."""
        self._deadlines.working.pop(self, None)
        if not self.late:
            return
        # Somebody else may have cancelled the task, too: that goes on to him.
        alone = self._task.uncancel() <= self._cancelling
        if alone and (kind is None or issubclass(kind, asyncio.CancelledError)):
            raise self._deadlines.refusal() from None

    def cancel(self) -> None:
        """Wake the task with a cancellation."""
        self.late = True
        self._task.cancel()


class Deadlines:
    """Works of one kind on one event loop, which may take so many seconds each.

    Parameters
    ----------
    seconds : float
    error : ServeError
        An example of what is raised in a work that takes longer; each gets a new one.
    """

    def __init__(self, seconds: float, error: ServeError) -> None:
        self.working: dict[Deadline, None] = {}
        """The oldest first: all may take as long, so the first ends first."""
        self._seconds, self._error = seconds, error
        self._every = min(_EVERY, seconds / 4)
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self) -> Deadline:
        """A context for one work."""
        return Deadline(self)

    def refusal(self) -> ServeError:
        """What a work that takes too long raises."""
        return type(self._error)(str(self._error))

    def begin(self, deadline: Deadline) -> None:
        """Put a work into the table, and see to it that the table is swept."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # no sweep is due, or that of a loop that has ended
            self.working.clear()
            self._loop = loop
            loop.call_later(self._every, self._sweep, loop)
        deadline.end = monotonic() + self._seconds
        self.working[deadline] = None

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel what is too old, and come again while there is anything under way."""
        if self._loop is not loop:
            return
        now = monotonic()
        late = []
        for deadline in self.working:
            if deadline.end > now:
                break
            late.append(deadline)
        for deadline in late:
            del self.working[deadline]
            deadline.cancel()
        if self.working:
            loop.call_later(self._every, self._sweep, loop)
        else:
            self._loop = None


# ---------------------------------------------------------------- batching
# Micro-batching: small requests that come within a short delay are answered together.
#
# A pass for many rows costs less a row than one for each; against it stand a timer, a future, a
# copy and the wait, and that joined requests do not go by `quick`.  Off by default:
# one row of 28 numbers as JSON is not faster for it, at 64 clients and 300 fully grown trees either
# (6,800 requests a second for 7,300 without; ``python -m benchmarks serving``).  It is for models
# whose pass costs far more than that.

Answer = Callable[[Served, Batch, Sequence[str]], Awaitable[list[Tensor]]]
Key = tuple[Served, tuple[str, ...], tuple[Any, ...]]


@dataclass
class _Group:
    """Requests that wait for each other."""

    rows: int = 0
    batches: list[Batch] = field(default_factory=list)
    answers: list[asyncio.Future[list[Tensor]]] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


class Batcher:
    """Joins small requests to one model for the same outputs.

    Those to a model of before a reload and of after it are never joined: a `Served` is
    never altered, and the key of a group is the object itself.

    Parameters
    ----------
    answer : callable
        ``await answer(served, batch, wanted)``, as `Runner` does alone.
    rows : int
        Of a joined batch, at most.
    delay : float
        Seconds that a request waits for others, at most.
    """

    def __init__(self, answer: Answer, rows: int, delay: float) -> None:
        self._answer, self._rows, self._delay = answer, rows, delay
        self._groups: dict[Key, _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def takes(self, served: Served, batch: Batch, wanted: Sequence[str]) -> bool:
        """Whether a request may be joined, is small enough, and of outputs of one pass."""
        small = not batch.alone and batch.rows * 2 <= self._rows
        return small and served.explaining.isdisjoint(wanted)

    async def run(self, served: Served, batch: Batch, wanted: tuple[str, ...]) -> list[Tensor]:
        """The outputs that are wanted, of these rows.

        Raises
        ------
        ServeError
            As of a request that is answered alone; one request's never another's.
        """
        key = served, wanted, tuple((array.dtype, array.shape[1:]) for array in batch.arrays)
        group = self._groups.get(key)
        if group is not None and group.rows + batch.rows > self._rows:
            self._begin(key)
            group = None
        loop = asyncio.get_running_loop()
        if group is None:
            group = self._groups[key] = _Group()
            group.timer = loop.call_later(self._delay, self._begin, key)
        answer: asyncio.Future[list[Tensor]] = loop.create_future()
        group.rows += batch.rows
        group.batches.append(batch)
        group.answers.append(answer)
        if group.rows == self._rows:
            self._begin(key)
        return await answer

    def _begin(self, key: Key) -> None:
        """Let a group wait no longer."""
        group = self._groups.pop(key)
        assert group.timer is not None  # noqa: S101 - every group in the table has one
        group.timer.cancel()
        task = asyncio.get_running_loop().create_task(self._finish(key, group))
        self._tasks.add(task)  # the loop alone would let go of it
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, key: Key, group: _Group) -> None:
        served, wanted, _ = key
        if len(group.batches) > 1:
            try:
                outputs = await self._answer(served, _joined(group), wanted)
            except InvalidRequestError:
                pass  # a policy refuses a row: each is asked alone, to be told of its own
            except Exception as error:  # noqa: BLE001 - goes to those who wait
                for answer in group.answers:
                    _settle(answer, error)
                return
            else:
                _share(group, outputs)
                return
        for batch, answer in zip(group.batches, group.answers, strict=True):
            if answer.done():
                continue
            try:
                _settle(answer, await self._answer(served, batch, wanted))
            except Exception as error:  # noqa: BLE001 - goes to the one who waits
                _settle(answer, error)


def _joined(group: _Group) -> Batch:
    arrays = zip(*(batch.arrays for batch in group.batches), strict=True)
    return Batch(group.rows, tuple(np.concatenate(parts) for parts in arrays))


def _share(group: _Group, outputs: list[Tensor]) -> None:
    """Give each request the rows of the joined outputs that are its own."""
    start = 0
    for batch, answer in zip(group.batches, group.answers, strict=True):
        own = slice(start, start + batch.rows)
        start += batch.rows
        _settle(answer, [output._replace(cells=output.cells[own]) for output in outputs])


def _settle(answer: asyncio.Future[list[Tensor]], said: list[Tensor] | Exception) -> None:
    """Answer, or fail, one who may be gone."""
    if answer.done():
        return
    if isinstance(said, ServeError):
        # Each its own: a traceback grows with everybody who raises it.
        answer.set_exception(type(said)(str(said)))
    elif isinstance(said, Exception):
        answer.set_exception(said)
    else:
        answer.set_result(said)
