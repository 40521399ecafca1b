"""Runners and runtimes of artifacts: compilers, interpreters and engines.

A `Runner` handles one kind of artifact, identified by the start or the suffix of its file.  Each
of its runtimes (`Runtime`) can run the artifact, and reports whether it is installed on this
machine and whether the artifact is written for it.  A runtime takes the file and the schema, not
the model; only the comparison of a file's structure takes the model.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import VerificationError
from treekit.verify.answers import Answers

if TYPE_CHECKING:
    from treekit.model.model import Model


Rows = npt.NDArray[np.float64]

_MAX_LINES = 4
_VERSION_SECONDS = 60
"""Time limit of a version command."""


class OutOfTimeError(VerificationError):
    """A program was stopped at the deadline of its job."""


@dataclass(frozen=True)
class Job:
    """An artifact to run.

    Attributes
    ----------
    path : Path
        Main file of the artifact.
    schema : Schema
    folder : Path
        Folder of this job only, empty at first and kept between calls: compiled
        programs are reused for further rows.
    deadline : float
        When to stop, on the clock of `time.monotonic`; infinite = never.
    fresh : bool
        Whether the file is known to be, byte for byte, what this version of treekit writes.
    """

    path: Path
    schema: Schema
    folder: Path
    deadline: float = math.inf
    fresh: bool = False

    @property
    def seconds_left(self) -> float | None:
        """Remaining time, as a timeout for `subprocess`; None = no limit."""
        left = self.deadline - time.monotonic()
        return None if math.isinf(left) else max(left, 0.01)

    def run_program(
        self, command: Sequence[str | Path], content: bytes = b"", what: str = ""
    ) -> bytes:
        """Run a program on `content`; return its standard output.

        Raises
        ------
        OutOfTimeError
            If it did not end in time.
        VerificationError
            If it cannot run, or its exit code is not 0; the message begins with `what`, by default
            the artifact.
        """
        what = what or self.path.name
        try:
            done = subprocess.run(  # noqa: S603 - verify runs artifacts
                list(map(str, command)),
                input=content,
                capture_output=True,
                check=False,
                cwd=self.folder,
                timeout=self.seconds_left,
            )
        except subprocess.TimeoutExpired:
            raise OutOfTimeError(f"{what!r} did not end within the remaining time") from None
        except OSError as error:
            raise VerificationError(f"{what!r} cannot run: {error.strerror}") from error
        if done.returncode != 0:
            summary = _summarize_output(done.stderr.decode(errors="replace"))
            raise VerificationError(f"{what!r} failed with exit code {done.returncode}: {summary}")
        return done.stdout


def _summarize_output(text: str) -> str:
    """Return the first lines of an error output; of a Python traceback the last."""
    lines = text.strip().splitlines() or ["no message"]
    if lines[0].startswith("Traceback"):
        return lines[-1]
    return " | ".join(lines[:_MAX_LINES])


Run = Callable[[Job, Rows], Iterator[tuple[str, Answers]]]
"""``run(job, rows)`` yields a name and the `Answers` for each way of calling the artifact.

Fewer predictions than rows are those of the first rows.  Raises `VerificationError`
if the artifact cannot be run.  It may be called again with more rows.
"""


def read_version(command: Sequence[str]) -> str:
    """Return the first line that a program prints; "unknown" if it does not run or end."""
    try:
        done = subprocess.run(  # noqa: S603 - a compiler, or the command of a profile
            command, capture_output=True, check=False, timeout=_VERSION_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return (done.stdout.decode(errors="replace").strip().splitlines() or [""])[0]


@dataclass(frozen=True)
class Runtime:
    """One way to run artifacts of a kind.

    Attributes
    ----------
    name : str
        Name in reports and in ``--with``: ``gcc``, ``node``, ``qemu-arm``.
    run : callable
        ``run(job, rows)``; see `Run`.
    get_version : callable
        Returns its version; called only where it can run.
    why_unavailable : callable
        Returns why it cannot run a file on this machine, ``"node is not installed"``
        or ``"the file is written for another engine"``; empty if it can.
    only_if_named : bool
        Whether neither the default nor ``"all"`` includes it: no artifact promises to run on it.
    """

    name: str
    run: Run
    get_version: Callable[[], str]
    why_unavailable: Callable[[Path], str] = lambda path: ""  # noqa: ARG005
    only_if_named: bool = False


@dataclass(frozen=True)
class Runner:
    """A kind of artifact.

    Attributes
    ----------
    kind, suffix : str
    runtimes : tuple of Runtime
        By default the first available one is used.
    companions : tuple of str
        Suffixes of the other files of an artifact.
    start : str
        Regular expression that the first bytes of a file match, and of no other kind, for files
        without the suffix; "." matches line ends, too.  "" = none.
    has_rule_bounds : bool
        Whether every leaf has its own bounds, so that each must be probed.
    is_fresh : callable, optional
        Returns whether a file has the bytes that this version of treekit writes for a model.
    """

    kind: str
    suffix: str
    runtimes: tuple[Runtime, ...]
    companions: tuple[str, ...] = ()
    start: str = ""
    has_rule_bounds: bool = False
    is_fresh: Callable[[Path, Model], bool] | None = None

    def run_rows(self, path: Path, schema: Schema, rows: Rows) -> Iterator[tuple[str, Answers]]:
        """Run rows on the first available runtime.

        Raises
        ------
        VerificationError
            If there is none, or the artifact cannot be run.
        """
        if why := self.why_unavailable(path):
            raise VerificationError(f"{path.name!r} cannot be run here: {why}")
        runtime = next(runtime for runtime in self.runtimes if not runtime.why_unavailable(path))
        with tempfile.TemporaryDirectory(prefix="treekit-") as folder:
            yield from runtime.run(Job(path, schema, Path(folder)), rows)

    def why_unavailable(self, path: Path) -> str:
        """Return why no runtime can run a file here; empty if one can."""
        reasons = [runtime.why_unavailable(path) for runtime in self.runtimes]
        return ", ".join(dict.fromkeys(reasons)) if all(reasons) else ""
