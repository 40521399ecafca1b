"""Time limits for very many short works: a table that is swept, not a timer for each.

`asyncio.timeout` arms and disarms a timer of the event loop for each request: 4 us on
uvloop, of some 80 for a whole request (measured); this takes under 1.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from types import TracebackType

from treekit.serve.errors import ServeError

__all__ = ["Deadline", "Deadlines"]

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
