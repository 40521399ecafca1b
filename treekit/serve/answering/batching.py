"""Micro-batching: small requests that come within a short delay are answered together.

A pass for many rows costs less a row than one for each; against it stand a timer, a future, a
copy and the wait, and that joined requests do not go by `quick`.  Off by default:
one row of 28 numbers as JSON is not faster for it, at 64 clients and 300 fully grown trees either
(6,800 requests a second for 7,300 without; ``python -m benchmarks serving``).  It is for models
whose pass costs far more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treekit.serve.errors import InvalidRequestError, ServeError
from treekit.serve.models.served import Batch, Served
from treekit.serve.models.tensors import Tensor

__all__ = ["Batcher"]

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
