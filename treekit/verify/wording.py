"""A report of a verification in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from treekit.verify.report import ArtifactResult, Report

__all__ = ["lines"]

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
