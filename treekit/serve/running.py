"""Requests on an event loop: small ones at once, large ones in threads, all within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from treekit.serve.errors import TooLargeError, UnavailableError
from treekit.serve.served import Batch, Served
from treekit.serve.settings import Limits
from treekit.serve.tensors import Tensor

__all__ = ["Runner"]

T = TypeVar("T")

_AT_ONCE = 100_000.0
"""Visits of nodes that the event loop waits for: some 0.5 ms."""


class Runner:
    """Answers batches, one process' share of the work.

    Parameters
    ----------
    limits : Limits
    threads : int
        For what would keep the event loop.
    """

    def __init__(self, limits: Limits, threads: int = 2) -> None:
        self.limits = limits
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="treekit-answer")
        self._beside = ThreadPoolExecutor(threads, thread_name_prefix="treekit-beside")

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

    def at_once(self, served: Served, batch: Batch, wanted: Sequence[str]) -> bool:
        """Whether the answer is there before anybody would notice."""
        return batch.rows * served.effort <= _AT_ONCE and served.explaining.isdisjoint(wanted)

    async def run(self, served: Served, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        """The outputs that are wanted.

        Raises
        ------
        ServeError
            As `Served.answer` and `check`; `UnavailableError` if it takes too long.
        """
        self.check(served, batch, wanted)
        if self.at_once(served, batch, wanted):
            return served.answer(batch, wanted)
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._pool, served.answer, batch, wanted)
        try:
            return await asyncio.wait_for(work, self.limits.seconds)
        except TimeoutError:
            raise UnavailableError(
                f"the answer took longer than {self.limits.seconds:g} s; send fewer rows at once"
            ) from None

    async def work(self, function: Callable[..., T], *given: Any) -> T:
        """What a function gives that would keep the event loop, in a thread of the answers.

        Raises
        ------
        UnavailableError
            If it takes too long; and whatever the function raises.
        """
        return await self._awaited(self._pool, function, *given)

    async def beside(self, function: Callable[..., T], *given: Any) -> T:
        """The same of explanations and lists of rules, which have threads of their own.

        However many are asked for, predictions do not wait for them.
        """
        return await self._awaited(self._beside, function, *given)

    async def _awaited(
        self, pool: ThreadPoolExecutor, function: Callable[..., T], *given: Any
    ) -> T:
        try:
            work = asyncio.get_running_loop().run_in_executor(pool, function, *given)
        except RuntimeError:  # of a pool that takes no more
            raise UnavailableError("the server is closing; ask another, or come again") from None
        try:
            return await asyncio.wait_for(work, self.limits.seconds)
        except TimeoutError:
            raise UnavailableError(
                f"the answer took longer than {self.limits.seconds:g} s; ask for less at once"
            ) from None

    def close(self) -> None:
        """Let threads end when they are done."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._beside.shutdown(wait=False, cancel_futures=True)
