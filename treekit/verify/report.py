"""The outcome of a verification; `treekit.verify.report` says it to people."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from treekit.errors import VerificationError
from treekit.model.model import Model
from treekit.model.tree import DTYPES
from treekit.verify.coverage import Coverage

__all__ = [
    "CERTIFICATE_VERSION",
    "ArtifactResult",
    "Difference",
    "Report",
    "Untried",
    "certificate",
    "file_sha256",
    "lines",
    "model_sha256",
    "write_certificate",
]


# ---------------------------------------------------------------- report


@dataclass(frozen=True)
class Difference:
    """The first row for which an artifact and its model differ.

    Attributes
    ----------
    how : str
        The way the artifact was called.
    row : dict of str to (float, str or None)
        Cells by column name; None = missing.
    expected, given : str
        The two answers, in words.
    """

    how: str
    row: dict[str, float | str | None]
    expected: str
    given: str


@dataclass(frozen=True)
class ArtifactResult:
    """What an artifact's run on one runtime showed.

    Attributes
    ----------
    path, kind : str
    sha256 : dict of str to str
        Digest of each of its files by name.
    rows, differing : int
        Rows compared; rows in which any bit differs, in any way of calling.
    first : Difference, optional
    error : str
        Why it could not be run; empty if it could.
    note : str
        What was left out to keep within the bounds of rows and time; empty if nothing.
    runtime : str
        What ran it; empty if nothing could.
    structure : str
        What comparing its trees with the model's showed, on every path and without
        running it: it begins with "proved" if all agree; empty if verify does not
        read trees from such files.
    """

    path: str
    kind: str
    sha256: dict[str, str]
    rows: int = 0
    differing: int = 0
    first: Difference | None = None
    error: str = ""
    note: str = ""
    runtime: str = ""
    structure: str = ""

    @property
    def proved(self) -> bool:
        """Whether every path of its trees is the model's, so that rows only confirm."""
        return self.structure.startswith("proved")

    @property
    def equal(self) -> bool:
        """Whether it ran and no bit differed."""
        return not self.error and self.differing == 0


@dataclass(frozen=True)
class Untried:
    """A runtime of an artifact's kind that was not tried, and why."""

    path: str
    runtime: str
    why: str


@dataclass(frozen=True)
class Report:
    """Artifacts, coverage, and what it was measured with; ``print`` it.

    Attributes
    ----------
    artifacts : tuple of ArtifactResult
        One for each artifact and runtime.
    coverage : Coverage
    model_sha256 : str
        Digest of all that decides the model's answers.
    probes : dict
        Counts and settings of the rows.
    versions : dict of str to str
    untried : tuple of Untried
    lowering : str
        What comparing the trees as exporters lower them with the model's showed.
    """

    artifacts: tuple[ArtifactResult, ...]
    coverage: Coverage
    model_sha256: str
    probes: dict[str, int]
    versions: dict[str, str]
    untried: tuple[Untried, ...] = ()
    lowering: str = ""

    @property
    def equal(self) -> bool:
        """Whether every artifact gave the model's answer, bit for bit, to every row."""
        return all(artifact.equal for artifact in self.artifacts)

    @property
    def exit_code(self) -> int:
        """0 if all are equal, else 1."""
        return 0 if self.equal else 1

    def __str__(self) -> str:

        return "\n".join(lines(self))


# ---------------------------------------------------------------- wording
# A report of a verification in words.

_MOST_LISTED = 20


def lines(report: Report) -> Iterator[str]:
    """The verdict first, then what was compared, what it reached, and what was left out."""
    yield _headline(report)
    yield from _table(
        ["artifact", "kind", "runtime", "rows", "differing", "sha256"],
        [
            [
                *(a.path, a.kind, a.runtime or "none", f"{a.rows:,}", _outcome(a)),
                next(iter(a.sha256.values()), "")[:16],
            ]
            for a in report.artifacts
        ],
    )
    yield from _untried(report)
    if not report.artifacts or any(not artifact.error for artifact in report.artifacts):
        yield from _structure(report)
        yield from _coverage(report)
    for artifact in report.artifacts:
        yield from _difference(artifact)


def _headline(report: Report) -> str:
    """Artifacts are counted, not their runs."""
    n = len({artifact.path for artifact in report.artifacts})
    failed = {artifact.path for artifact in report.artifacts if artifact.error}
    wrong = {artifact.path for artifact in report.artifacts if not artifact.equal} - failed
    said = [f"{_of(len(wrong), n)} NOT equal to the model"] if wrong else []
    if failed:
        said.append(f"{_of(len(failed), n, 'could')} not be run")
    if said:
        return "; ".join(said)
    equal = f"{_of(n, n)} equal to the model, bit for bit"
    coverage = report.coverage
    whole = coverage.complete and all(part.share == 1.0 for part in coverage.parts)
    if whole and not any(artifact.note for artifact in report.artifacts):
        return equal
    if all(artifact.proved for artifact in report.artifacts):
        return f"{equal}: every path of all trees is proved, and the rows tried confirm it"
    return f"{equal}, on the rows tried; coverage is incomplete: see below"


def _structure(report: Report) -> Iterator[str]:
    """What was proved of trees without any row."""
    told = {"as exporters lower them": report.lowering} if report.lowering else {}
    told |= {artifact.path: artifact.structure for artifact in report.artifacts}
    if not any(told.values()):
        return
    yield ""
    yield "trees, on every path and without rows"
    unread = "not read from such files: rows tell"
    width = max(map(len, told))
    for name, words in told.items():
        yield f"  {name.ljust(width)}  {words or unread}"


def _untried(report: Report) -> Iterator[str]:
    """Runtimes that were not tried, each once with its reason."""
    told = dict.fromkeys(f"{one.runtime} ({one.why})" for one in report.untried)
    if told:
        yield f"not tried: {', '.join(told)}"


def _coverage(report: Report) -> Iterator[str]:
    yield ""
    cut = f" ({report.coverage.cut})" if report.coverage.cut else ""
    yield f"coverage of {report.probes['rows']:,} rows{cut}"
    yield from _table(
        ["", "reached", "reachable", "share"],
        [
            [p.name, f"{p.reached:,}", f"{p.reachable:,}", _percent(p.share)]
            for p in report.coverage.parts
        ],
    )
    yield from _remarks(report)


def _remarks(report: Report) -> Iterator[str]:
    shown, never, given_up = report.coverage.wrong_turns
    yield (
        f"  single wrong turns: {shown:,} would show in an answer, {never:,} can never show, "
        f"{given_up:,} undecided"
    )
    bits, tried = report.coverage.last_bits
    if tried:
        yield (
            f"  numbers of sums, one bit up or down: {bits:,} of {tried:,} would show; "
            "for the others no row was found"
        )
    if report.probes["refused"]:
        yield f"  rows that must be refused: {report.probes['refused']:,}"
    nodes = report.coverage.unreachable
    if nodes:
        named = [f"tree {tree} node {node}" for tree, node in nodes[:_MOST_LISTED]]
        more = f", and {len(nodes) - _MOST_LISTED:,} more" if len(nodes) > _MOST_LISTED else ""
        yield f"  {len(nodes):,} nodes that no input can reach: {', '.join(named)}{more}"


def _of(some: int, n: int, verb: str = "") -> str:
    """How many of the artifacts, and the verb that agrees."""
    if n == 1:
        return f"the artifact {verb or 'is'}"
    many = f"all {n}" if some == n else f"{some} of {n}"
    return f"{many} artifacts {verb or ('is' if some == 1 else 'are')}"


def _outcome(artifact: ArtifactResult) -> str:
    if artifact.error:
        return "could not run"
    return f"{artifact.differing:,}" if artifact.differing else "0 (equal)"


def _percent(share: float) -> str:
    """Never 100% unless it is."""
    text = f"{share:.1%}"
    return "<100%" if share < 1 and text == "100.0%" else text.replace(".0%", "%")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns of text; those of numbers to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        cells = [
            text.rjust(width) if rows and rows[0][i][:1].isdigit() and i else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()


def _difference(artifact: ArtifactResult) -> Iterator[str]:
    if artifact.error:
        yield f"\n{artifact.path} could not be run: {artifact.error}"
    if artifact.note:
        yield f"\n{artifact.path}: {artifact.note}"
    if artifact.first is None:
        return
    first = artifact.first
    yield f"\nfirst differing row of {artifact.path} ({artifact.runtime}, {first.how})"
    for name, value in first.row.items():
        yield f"  {_shown(name)} = {'missing' if value is None else _shown(value)}"
    yield f"  the model says     {first.expected}"
    yield f"  the artifact says  {first.given}"


def _shown(value: Any) -> str:
    """Text in quotes with escapes, as names and levels are hostile; numbers in full."""
    return ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)


# ---------------------------------------------------------------- certificate
# The outcome of a verification, for machines: digests, counts and versions as JSON.

CERTIFICATE_VERSION = 1

_TOLD_ONLY = ("value", "gain")
"""What the nodes of a tree say besides; the answers follow from the leaves' integers."""


_OF_RULES = ("surrogate_above", "surrogate_lost")


def model_sha256(model: Model) -> str:
    """Digest of all that decides the answers: schema, policies, splits and leaf integers."""
    # ASCII with escapes: names may hold what UTF-8 cannot.
    digest = hashlib.sha256(ascii(msgspec.to_builtins(model.schema)).encode())
    digest.update(f"{model.missing} {model.unknown} {model.n_trees} {model.exponent}".encode())
    digest.update(
        f"{model.voting} {None if model.costs is None else model.costs.tolist()}".encode()
    )
    if (model.combine, model.link) != ("mean", "identity"):  # the digests of others stay
        digest.update(f"{model.combine} {model.link}".encode())
    for tree in model.trees:
        for name in DTYPES:
            if name in _TOLD_ONLY or (name == "weight" and model.missing != "fractional"):
                continue
            if name in _OF_RULES and not tree.one_sided:  # the digests of others stay
                continue
            array = getattr(tree, name)
            digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    digest.update(np.ascontiguousarray(model.units, "<i8").tobytes())
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Digest of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def certificate(report: Report) -> dict[str, Any]:
    """Gather all of a report as plain values."""
    coverage = report.coverage
    shown, never, given_up = coverage.wrong_turns
    bits, tried = coverage.last_bits
    return {
        "format": "treekit certificate",
        "version": CERTIFICATE_VERSION,
        "equal": report.equal,
        "model_sha256": report.model_sha256,
        "artifacts": [
            msgspec.to_builtins(artifact) | {"equal": artifact.equal}
            for artifact in report.artifacts
        ],
        "probes": report.probes,
        "coverage": {
            "complete": coverage.complete,
            "cut": coverage.cut,
            "parts": [msgspec.to_builtins(part) for part in coverage.parts],
            "wrong_turns": {"shown": shown, "never_shown": never, "undecided": given_up},
            "last_bits_of_sums": {"shown": bits, "tried": tried},
            "unreachable_nodes": [list(place) for place in coverage.unreachable],
        },
        "versions": report.versions,
        "lowering": report.lowering,
        "untried": [msgspec.to_builtins(untried) for untried in report.untried],
    }


def _finite(value: Any) -> Any:
    """Infinities, which JSON lacks, as text."""
    if isinstance(value, float) and math.isinf(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def write_certificate(report: Report, path: Path) -> None:
    """Write the certificate as JSON: all of it, or nothing.

    Raises
    ------
    VerificationError
        If the disk refuses.
    """
    content = json.dumps(_finite(certificate(report)), indent=2, allow_nan=False).encode()
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with draft.open("xb") as stream:
            stream.write(content + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as error:
        raise VerificationError(f"cannot write {str(path)!r}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
