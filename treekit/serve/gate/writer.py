"""Lines to stderr that never hold up who writes them: by a thread, and within bounds."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable

__all__ = ["PIECE", "Writer"]

_DELAY = 0.05
_MOST = 10_000
PIECE = 4096
"""Bytes at a time, whole lines: POSIX' PIPE_BUF of Linux, below which a pipe takes a write
whole, so that lines of several processes do not mix."""


Lines = bytes | Callable[[], Iterable[bytes]]
"""A line, or what makes some when they are written: in the writer's thread."""


def to_stderr(data: bytes) -> int:
    """Write to the file descriptor of stderr; drop it where the process was begun without.

    Descriptor 2 may be anything then, a client's socket among others.
    """
    if sys.__stderr__ is None:
        return len(data)
    return os.write(2, data)


class Writer:
    """Takes lines and writes them soon.

    A pipe that nobody reads, or that is closed, costs lines and nothing else: how many is
    said when it takes lines again.

    Parameters
    ----------
    write : callable
        Takes bytes, returns how many it wrote; may block, or raise OSError.
    delay : float
        Seconds that lines are gathered.
    most : int
        Lines, or pieces of some of them, that wait at most.
    lost : callable
        Makes the line that tells of so many lost ones.
    """

    def __init__(
        self,
        write: Callable[[bytes], int] = to_stderr,
        delay: float = _DELAY,
        most: int = _MOST,
        lost: Callable[[int], bytes] = lambda count: b"warning: %d log lines were lost\n" % count,
    ) -> None:
        self._write_bytes, self._delay, self._most = write, delay, most
        self.lost = lost
        self._begin_anew()
        _writers.add(self)

    def _begin_anew(self) -> None:
        """As nothing was ever written: at first, and in a fork, where the thread is not."""
        self._lines: deque[Lines] = deque()
        self._some, self._hurry, self._idle = (threading.Event() for _ in range(3))
        self._thread: threading.Thread | None = None
        self._busy = False
        self._dropped = 0

    def put(self, lines: Lines, at_once: bool = False, count: int = 1) -> None:
        """Take a line with its end, or `count` of them, or what makes some.

        They are written soon, or without delay.
        """
        if len(self._lines) >= self._most:
            self.lose(count)
            return
        self._lines.append(lines)
        if not self._busy:  # read after the line is there: see _run
            self._wake()
        if at_once:
            self._hurry.set()

    def flush(self, seconds: float = 1.0) -> bool:
        """Whether all lines were written; it ends where none was within so many seconds.

        A reader that goes on and on has ten times that.
        """
        until, left = time.monotonic() + seconds, len(self._lines)
        end = until + 9 * seconds
        while self._lines or self._busy:
            self._hurry.set()
            self._idle.wait(min(seconds, 0.05))
            if len(self._lines) < left:
                until, left = time.monotonic() + seconds, len(self._lines)
            if time.monotonic() >= min(until, end):
                return False
        return True

    def _wake(self) -> None:
        self._busy = True
        self._idle.clear()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="treekit-log", daemon=True)
            self._thread.start()
        self._some.set()

    def _run(self) -> None:
        while True:
            self._some.wait()
            self._some.clear()
            while self._lines:
                self._hurry.wait(self._delay)
                self._hurry.clear()
                self._write_all()
            self._busy = False
            # A line that came before this and saw us busy is still here.
            if self._lines:
                self._busy = True
                self._some.set()
            else:
                self._idle.set()

    def _write_all(self) -> None:
        piece = b""
        while self._lines:
            for line in self._next():
                if piece and len(piece) + len(line) > PIECE:
                    self._write(piece)
                    piece = b""
                piece += line
        self._write(piece)
        if self._dropped:
            count, self._dropped = self._dropped, 0
            self._write(self.lost(count))

    def _next(self) -> Iterable[bytes]:
        first = self._lines.popleft()
        if isinstance(first, bytes):
            return (first,)
        try:
            return first()
        # A thread that ended would write nothing for ever, and nobody would know.
        except Exception:  # noqa: BLE001
            self.lose()
            return ()

    def lose(self, count: int = 1) -> None:
        """Say with the next lines that so many could not be written."""
        self._dropped += count

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[self._write_bytes(data) :]
            except BlockingIOError:  # somebody made the descriptor non-blocking
                time.sleep(0.02)
            except (OSError, ValueError):
                return  # closed: there is nobody to tell


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


def _at_exit() -> None:
    for writer in _writers:
        writer.flush()


def _in_child() -> None:
    for writer in _writers:
        writer._begin_anew()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
