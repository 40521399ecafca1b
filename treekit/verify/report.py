"""The outcome of a verification, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from treekit.verify.coverage import Coverage

__all__ = ["ArtifactResult", "Difference", "Report"]

_MOST_LISTED = 20


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
    """What one artifact's run showed.

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
        What was left out to keep within the bound of rows; empty if nothing.
    """

    path: str
    kind: str
    sha256: dict[str, str]
    rows: int = 0
    differing: int = 0
    first: Difference | None = None
    error: str = ""
    note: str = ""

    @property
    def equal(self) -> bool:
        """Whether it ran and no bit differed."""
        return not self.error and self.differing == 0


@dataclass(frozen=True)
class Report:
    """Artifacts, coverage, and what it was measured with; ``print`` it.

    Attributes
    ----------
    artifacts : tuple of ArtifactResult
    coverage : Coverage
    model_sha256 : str
        Digest of all that decides the model's answers.
    probes : dict
        Counts and settings of the rows.
    versions : dict of str to str
    """

    artifacts: tuple[ArtifactResult, ...]
    coverage: Coverage
    model_sha256: str
    probes: dict[str, int]
    versions: dict[str, str]

    @property
    def equal(self) -> bool:
        """Whether every artifact gave the model's answer, bit for bit, to every row."""
        return all(artifact.equal for artifact in self.artifacts)

    @property
    def exit_code(self) -> int:
        """0 if all are equal, else 1."""
        return 0 if self.equal else 1

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield self._headline()
        yield from _table(
            ["artifact", "kind", "rows", "differing", "sha256"],
            [
                [a.path, a.kind, f"{a.rows:,}", _outcome(a), next(iter(a.sha256.values()), "")[:16]]
                for a in self.artifacts
            ],
        )
        if not self.artifacts or any(not artifact.error for artifact in self.artifacts):
            yield from self._coverage()
        for artifact in self.artifacts:
            yield from _difference(artifact)

    def _headline(self) -> str:
        n = len(self.artifacts)
        failed = sum(bool(artifact.error) for artifact in self.artifacts)
        wrong = sum(not artifact.equal for artifact in self.artifacts) - failed
        said = [f"{_of(wrong, n)} NOT equal to the model"] if wrong else []
        if failed:
            said.append(f"{_of(failed, n, 'could')} not be run")
        if said:
            return "; ".join(said)
        equal = f"{_of(n, n)} equal to the model, bit for bit"
        coverage = self.coverage
        whole = coverage.complete and all(part.share == 1.0 for part in coverage.parts)
        if whole and not any(artifact.note for artifact in self.artifacts):
            return equal
        return f"{equal}, on the rows tried; coverage is incomplete: see below"

    def _coverage(self) -> Iterator[str]:
        yield ""
        yield f"coverage of {self.probes['rows']:,} rows" + (
            "" if self.coverage.complete else " (some splits got no rows: raise max_rows)"
        )
        yield from _table(
            ["", "reached", "reachable", "share"],
            [
                [p.name, f"{p.reached:,}", f"{p.reachable:,}", _percent(p.share)]
                for p in self.coverage.parts
            ],
        )
        yield from self._remarks()

    def _remarks(self) -> Iterator[str]:
        shown, never, given_up = self.coverage.wrong_turns
        yield (
            f"  single wrong turns: {shown:,} would show in an answer, {never:,} can never show, "
            f"{given_up:,} undecided"
        )
        bits, tried = self.coverage.last_bits
        if tried:
            yield (
                f"  numbers of sums, one bit up or down: {bits:,} of {tried:,} would show; "
                "for the others no row was found"
            )
        if self.probes["refused"]:
            yield f"  rows that must be refused: {self.probes['refused']:,}"
        nodes = self.coverage.unreachable
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
    yield f"\nfirst differing row of {artifact.path} ({first.how})"
    for name, value in first.row.items():
        yield f"  {_shown(name)} = {'missing' if value is None else _shown(value)}"
    yield f"  the model says     {first.expected}"
    yield f"  the artifact says  {first.given}"


def _shown(value: Any) -> str:
    """Text in quotes with escapes, as names and levels are hostile; numbers in full."""
    return ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
