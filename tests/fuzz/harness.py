"""Check readers on damaged files: they raise a clear error or read something valid.

Each case is made from fixed seeds, ``[SEED, subject, case]``, and bounded in time
and in memory.  A reader may not import a module that reading a valid file does not
import, nor unpickle, execute or start anything, nor open another file.  A case that
fails prints its seed, and its file as a line of Python.
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treekit.errors import TreekitError

__all__ = ["SEED", "Subject", "again", "bounded", "cases", "fuzz", "try_case"]

SEED = 20_260
"""Of all cases; another makes another 10,000."""

_SECONDS = 10
_MEMORY = 1 << 30
"""Bytes of address space that reading one small file may add."""

_NEVER = {
    "exec",
    "marshal.loads",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.system",
    "pickle.find_class",
    "socket.connect",
    "subprocess.Popen",
}
"""Audit events (PEP 578) that no reader of data may raise."""

Read = Callable[[Path], Any]
Check = Callable[[Any], None]


@dataclass(frozen=True)
class Subject:
    """A reader, sound files for it, and how they are broken.

    Attributes
    ----------
    name : str
        Also the name of the case's file, with its ending.
    seeds : sequence of bytes
        Sound files.
    read : callable
        What reads a path.
    check : callable
        Asserts that what a broken file gave is sound.
    damage : callable
        ``damage(seeds, rng)`` makes a broken file.
    watched : bool
        Whether the reader may do nothing but read.
    """

    name: str
    seeds: Sequence[bytes]
    read: Read
    check: Check
    damage: Callable[[Sequence[bytes], np.random.Generator], bytes]
    watched: bool = True


def cases(few: int, many: int) -> pytest.MarkDecorator:
    """Give a test `few` cases as its ``count``, and `many` in the system tier."""
    system = pytest.param(many, id="many", marks=pytest.mark.system)
    return pytest.mark.parametrize("count", [pytest.param(few, id="few"), system])


def fuzz(subject: Subject, folder: Path, count: int) -> tuple[int, int]:
    """Try `count` cases; returns how many were refused, and how many were read.

    Fails with the number and the bytes of the first that does neither.
    """
    path = folder / subject.name
    for seed in subject.seeds:  # what a sound file needs is imported now
        path.write_bytes(seed)
        subject.check(subject.read(path))
    number = zlib.crc32(subject.name.encode())
    print(f"{subject.name}: {count} cases of seed [{SEED}, {number}, 0...]")
    refused = 0
    for case in range(count):
        rng = np.random.default_rng([SEED, number, case])
        content = subject.damage(subject.seeds, rng)
        refused += try_case(subject, path, content, f"case {case}")
    return refused, count - refused


def try_case(subject: Subject, path: Path, content: bytes, which: str) -> bool:
    """Whether a broken file is refused; what is read instead must be sound."""
    path.write_bytes(content)
    try:
        with bounded(path if subject.watched else None):
            found = subject.read(path)
    except TreekitError as error:
        if str(error):
            return True
        pytest.fail(_report(subject, which, content, error), pytrace=False)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
        pytest.fail(_report(subject, which, content, error), pytrace=False)
    try:
        with bounded(None):
            subject.check(found)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
        pytest.fail(_report(subject, which, content, error), pytrace=False)
    return False


def again(content: bytes) -> str:
    """A line of Python that makes the file again."""
    packed = base64.b85encode(zlib.compress(content, 9)).decode("ascii")
    return f"zlib.decompress(base64.b85decode({packed!r}))"


def _report(subject: Subject, which: str, content: bytes, error: BaseException) -> str:
    where = "".join(traceback.format_exception(error, limit=-6))
    return f"{subject.name}, {which} of seed {SEED}: {where}\nThe file:\n{again(content)}"


class _TookTooLongError(BaseException):
    """Not an Exception: no reader may swallow it."""


class _ForbiddenError(BaseException):
    """A reader did what none may."""


_watched: Path | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is None:
        return
    if event in _NEVER:
        raise _ForbiddenError(f"{event} {arguments!r}"[:300])
    if event == "import" and arguments[1] is not None:
        raise _ForbiddenError(f"import of {arguments[0]} from {arguments[1]}")
    if event == "open" and not _is_ours(arguments[0]):
        raise _ForbiddenError(f"open of {arguments[0]!r}")


def _is_ours(file: Any) -> bool:
    """The case's file, an open descriptor, or Python's own sources (of tracebacks)."""
    if isinstance(file, int) or file is None:
        return True
    path = os.fsdecode(file)
    return path == str(_watched) or path.endswith((".py", ".pyc"))


_hooked = False


@contextlib.contextmanager
def bounded(path: Path | None) -> Iterator[None]:
    """Bounds of time and memory for what runs inside, and the watch, if it reads `path`."""
    global _watched, _hooked  # noqa: PLW0603 - an audit hook stays for good
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked = True

    def stop(*_: object) -> None:
        raise _TookTooLongError(f"more than {_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    with _less_memory():
        signal.setitimer(signal.ITIMER_REAL, _SECONDS)
        _watched = path
        try:
            yield
        finally:
            _watched = None
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _less_memory() -> Iterator[None]:
    """At most `_MEMORY` more address space, where the system can say so (Linux)."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
