"""Requests on an event loop: small ones at once, large ones in threads, all within bounds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from treekit.serve.answering.batching import Batcher
from treekit.serve.answering.deadlines import Deadlines
from treekit.serve.errors import TooLargeError, UnavailableError
from treekit.serve.models.served import Batch, Served
from treekit.serve.models.tensors import Tensor
from treekit.serve.settings import Limits, ServeSettings

__all__ = ["SMALL", "Runner"]

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
