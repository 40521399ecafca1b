"""What the faces of one process share: models, bounds, and one way through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from treekit.serve.answering.running import SMALL, Runner
from treekit.serve.errors import BusyError
from treekit.serve.models.quick import QuickAnswer
from treekit.serve.models.repository import Repository
from treekit.serve.models.served import Batch, Served
from treekit.serve.models.tensors import Tensor
from treekit.serve.settings import Limits

__all__ = ["Service", "Working"]


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
