"""Results of a verification: the report, its text, and the certificate."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from treekit.errors import VerificationError
from treekit.model.model_file import replace_atomically
from treekit.verify.coverage import Coverage

# ---------------------------------------------------------------- report


@dataclass(frozen=True)
class Difference:
    """First row for which an artifact and its model differ.

    Attributes
    ----------
    how : str
        Way of calling the artifact.
    row : dict of str to (float, str or None)
        Cells by column name; None = missing.
    expected, given : str
        Descriptions of the two predictions.
    number : int
        Number of the row among those compared, or in its file, from 0.
    file : str
        File of the row; empty for a constructed row.
    """

    how: str
    row: dict[str, float | str | None]
    expected: str
    given: str
    number: int = 0
    file: str = ""


@dataclass(frozen=True)
class ArtifactResult:
    """Result of running an artifact on one runtime.

    Attributes
    ----------
    path, kind : str
    sha256 : dict of str to str
        Digest of each of its files by name.
    rows, differing : int
        Number of rows compared, and of rows in which any bit differs in any way of calling.
    first : Difference, optional
    error : str
        Why it could not be run; empty if it could.
    note : str
        What was left out to keep within the limits of rows and time; empty if nothing.
    runtime : str
        Name of the runtime; empty if none could run it.
    fresh : bool, optional
        Whether the file has the bytes that this version of treekit writes for the model; None
        if files of its kind are not compared, or there was no time.
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
    fresh: bool | None = None

    @property
    def equal(self) -> bool:
        """Whether the artifact ran and all its predictions equal the model's, bit for bit."""
        return not self.error and self.differing == 0


NOT_REQUESTED = "not requested"


@dataclass(frozen=True)
class Untried:
    """A runtime that can run artifacts of this kind but was not used, and the reason."""

    path: str
    runtime: str
    why: str


@dataclass(frozen=True)
class Report:
    """Results for artifacts, coverage, and the settings and versions used; ``print`` it.

    Attributes
    ----------
    artifacts : tuple of ArtifactResult
        One for each artifact and runtime.
    coverage : Coverage
    model_sha256 : str
        Digest of everything that determines the model's predictions.
    probes : dict
        Counts and settings of the rows.
    versions : dict of str to str
    untried : tuple of Untried
    on : str
        Table whose rows were compared as well; empty if none.
    on_artifacts : tuple of ArtifactResult
        Results on the rows of this table.
    """

    artifacts: tuple[ArtifactResult, ...]
    coverage: Coverage
    model_sha256: str
    probes: dict[str, int]
    versions: dict[str, str]
    untried: tuple[Untried, ...] = ()
    on: str = ""
    on_artifacts: tuple[ArtifactResult, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether every artifact gave the model's prediction, bit for bit, for every row."""
        return all(artifact.equal for artifact in self.artifacts + self.on_artifacts)

    @property
    def exit_code(self) -> int:
        """0 if all are equal, else 1."""
        return 0 if self.equal else 1

    def to_json(self) -> str:
        """Return the certificate as JSON."""
        plain = _replace_infinities(make_certificate(self))
        return json.dumps(plain, indent=2, allow_nan=False) + "\n"

    def __str__(self) -> str:
        return "\n".join(format_lines(self))


# ---------------------------------------------------------------- text of a report

_MAX_LISTED = 20


def format_lines(report: Report) -> Iterator[str]:
    """Yield the lines of a report: verdict, artifacts compared, coverage, and what was left out."""
    yield _format_headline(report)
    yield from _format_artifacts(report.artifacts, compared=True)
    if report.on:
        yield f"rows of {report.on}"
        yield from _format_artifacts(report.on_artifacts, compared=False)
    asked = (one for one in report.untried if one.why != NOT_REQUESTED)
    if reasons := dict.fromkeys(f"{one.runtime} ({one.why})" for one in asked):
        yield f"not tried: {', '.join(reasons)}"
    if not report.artifacts or any(not artifact.error for artifact in report.artifacts):
        yield from _format_coverage(report)
    for artifact in report.artifacts + report.on_artifacts:
        yield from _format_difference(artifact, report.versions.get(artifact.runtime, ""))


def _format_artifacts(artifacts: Sequence[ArtifactResult], *, compared: bool) -> Iterator[str]:
    """Yield a table of results; `compared`: whether files were compared with a new export."""
    columns = ["artifact", "kind", "runtime", "rows", "differing", "new export", "sha256"]
    words = {None: "not compared", True: "same bytes", False: "other bytes"}
    rows = [
        [
            *(a.path, a.kind, a.runtime or "none", f"{a.rows:,}", _format_outcome(a)),
            *(words[a.fresh], next(iter(a.sha256.values()), "")[:16]),
        ]
        for a in artifacts
    ]
    if not compared:
        del columns[5]
        for row in rows:
            del row[5]
    yield from _format_table(columns, rows)


def _format_headline(report: Report) -> str:
    """Summarize the results; artifacts are counted, not their runs."""
    results = report.artifacts + report.on_artifacts
    n = len({artifact.path for artifact in results})
    failed = {artifact.path for artifact in results if artifact.error}
    wrong = {artifact.path for artifact in results if not artifact.equal} - failed
    problems = [f"{_format_count(len(wrong), n)} NOT equal to the model"] if wrong else []
    if failed:
        problems.append(f"{_format_count(len(failed), n, 'could')} not be run")
    if problems:
        return "; ".join(problems)
    equal = f"{_format_count(n, n)} equal to the model, bit for bit"
    if changed := {a.path for a in report.artifacts if a.fresh is False}:
        return (
            f"{equal}, on the rows run; {_format_count(len(changed), n)} not what this version "
            "of treekit writes for the model"
        )
    if report.coverage.complete and not any(artifact.note for artifact in report.artifacts):
        return equal
    if all(artifact.fresh for artifact in report.artifacts):
        return f"{equal}: the same bytes as a new export, and all rows run agree"
    return f"{equal}, on the rows run; coverage is incomplete: see below"


def _format_coverage(report: Report) -> Iterator[str]:
    yield ""
    cut = f" ({report.coverage.cut})" if report.coverage.cut else ""
    yield f"what {report.probes['rows']:,} rows reach of the model{cut}"
    yield from _format_table(
        ["", "reached", "reachable", "share"],
        [
            [p.name, f"{p.reached:,}", f"{p.reachable:,}", _format_percent(p.share)]
            for p in report.coverage.parts
            if p.reachable
        ],
    )
    yield from _format_remarks(report)


def _format_remarks(report: Report) -> Iterator[str]:
    if not report.coverage.cut and any(part.share < 1.0 for part in report.coverage.parts):
        yield "  no row was found for the others; with sums, surrogates and rules, none may exist"
    if report.probes["refused"]:
        yield f"  rows that must be refused: {report.probes['refused']:,}"
    nodes = report.coverage.unreachable
    if nodes:
        named = [f"tree {tree} node {node}" for tree, node in nodes[:_MAX_LISTED]]
        more = f", and {len(nodes) - _MAX_LISTED:,} more" if len(nodes) > _MAX_LISTED else ""
        yield f"  {len(nodes):,} nodes that no input can reach: {', '.join(named)}{more}"


def _format_count(some: int, n: int, verb: str = "") -> str:
    """Count the artifacts, with a verb that agrees."""
    if n == 1:
        return f"the artifact {verb or 'is'}"
    many = f"all {n}" if some == n else f"{some} of {n}"
    return f"{many} artifacts {verb or ('is' if some == 1 else 'are')}"


def _format_outcome(artifact: ArtifactResult) -> str:
    if artifact.error:
        return "could not run"
    return f"{artifact.differing:,}" if artifact.differing else "0 (equal)"


def _format_percent(share: float) -> str:
    """Format a share; 100% only if it is complete."""
    text = f"{share:.1%}"
    return "<100%" if share < 1 and text == "100.0%" else text.replace(".0%", "%")


def _format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table of texts; columns of numbers are right-aligned."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        cells = [
            text.rjust(width) if rows and rows[0][i][:1].isdigit() and i else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()


def _format_difference(artifact: ArtifactResult, version: str) -> Iterator[str]:
    if artifact.error:
        yield f"\n{artifact.path} could not be run: {artifact.error}"
    if artifact.note:
        yield f"\n{artifact.path}: {artifact.note}"
    if artifact.first is None:
        return
    first = artifact.first
    where = f", row {first.number:,} (counting from 0) of {first.file!r}" if first.file else ""
    yield f"\nfirst differing row of {artifact.path} ({artifact.runtime}, {first.how}){where}"
    for name, value in first.row.items():
        yield f"  {_format_value(name)} = {'missing' if value is None else _format_value(value)}"
    yield f"  model:     {first.expected}"
    yield f"  artifact:  {first.given}"
    yield f"  runtime:   {artifact.runtime}, version {version}"


def _format_value(value: Any) -> str:
    """Format a value: text quoted, with escapes against control characters; numbers in full."""
    return ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)


# ---------------------------------------------------------------- certificate


CERTIFICATE_VERSION = 2


def hash_file(path: Path) -> str:
    """Return the digest of a file, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def make_certificate(report: Report) -> dict[str, Any]:
    """Convert a report to plain values."""
    coverage = report.coverage
    return {
        "format": "treekit certificate",
        "version": CERTIFICATE_VERSION,
        "equal": report.equal,
        "model_sha256": report.model_sha256,
        "artifacts": _list_results(report.artifacts),
        "probes": report.probes,
        "coverage": {
            "complete": coverage.complete,
            "cut": coverage.cut,
            "parts": [msgspec.to_builtins(part) for part in coverage.parts],
            "unreachable_nodes": [list(place) for place in coverage.unreachable],
        },
        "versions": report.versions,
        "on": report.on,
        "on_artifacts": _list_results(report.on_artifacts),
        "untried": [msgspec.to_builtins(untried) for untried in report.untried],
    }


def _list_results(artifacts: Sequence[ArtifactResult]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(artifact) | {"equal": artifact.equal} for artifact in artifacts]


def _replace_infinities(value: Any) -> Any:
    """Convert infinities to text, as JSON has none."""
    if isinstance(value, float) and math.isinf(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _replace_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_infinities(item) for item in value]
    return value


def write_certificate(report: Report, path: Path) -> None:
    """Write the certificate as JSON, atomically.

    Raises
    ------
    VerificationError
        If the file cannot be written.
    """
    content = report.to_json().encode()
    try:
        with replace_atomically(path) as stream:
            stream.write(content)
    except OSError as error:
        raise VerificationError(f"cannot write {str(path)!r}: {error.strerror}") from error
