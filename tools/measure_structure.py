"""Print the size of the code: lines of code by room, and the longest functions.

CI prints the table; a change that makes a figure grow is explained in the changelog.

lines of code
    Lines with code: no blank lines, comment lines or docstrings. A bare string below an
    attribute counts as a docstring.
room
    A folder of treekit/ with its subfolders; the top-level modules are one room.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LONG = 50
"""Lines of code above which a function is long."""
SKIPPED_FOLDERS = {"__pycache__", "build", "dist", "node_modules"}
SHOWN = 5
"""Number of the longest functions that are named."""


class Source(NamedTuple):
    """A Python file: its path, number of lines, lines with code, and lines of docstrings."""

    path: Path
    lines: int
    code: frozenset[int]
    docstrings: int


def list_files(folder: Path, pattern: str = "*") -> list[Path]:
    """List the files below a folder, sorted, without build products and hidden files."""
    return sorted(
        path
        for path in folder.rglob(pattern)
        if path.is_file()
        and not any(
            part in SKIPPED_FOLDERS or part.startswith(".") or part.endswith(".egg-info")
            for part in path.relative_to(folder).parts
        )
    )


def read_source(path: Path) -> Source:
    """Read a Python file and classify its lines as code and docstrings."""
    text = path.read_text(encoding="utf-8")
    code: set[int] = set()
    docstrings: set[int] = set()
    statement: set[int] = set()
    is_string = True
    layout = {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            (docstrings if is_string else code).update(statement)
            statement, is_string = set(), True
        elif token.type not in layout:
            statement.update(range(token.start[0], token.end[0] + 1))
            is_string &= token.type == tokenize.STRING
    return Source(path, len(text.splitlines()), frozenset(code), len(docstrings))


def measure_functions(source: Source) -> list[tuple[int, str]]:
    """Return the length in lines of code, and the name and place, of each function of a file."""
    place = source.path.relative_to(ROOT)
    return [
        (
            sum(line in source.code for line in range(node.lineno, (node.end_lineno or 0) + 1)),
            f"{node.name} ({place}:{node.lineno})",
        )
        for node in ast.walk(ast.parse(source.path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def name_room(source: Source) -> str:
    """Return the room of a file of treekit/."""
    parts = source.path.relative_to(ROOT / "treekit").parts
    return parts[0] if len(parts) > 1 else "(top level)"


def format_report(sources: list[Source]) -> str:
    """Format the figures of treekit/ as a table."""
    lines, code = sum(source.lines for source in sources), sum(len(one.code) for one in sources)
    docstrings = sum(source.docstrings for source in sources)
    functions = [function for source in sources for function in measure_functions(source)]
    functions.sort(reverse=True)
    long = sum(length > LONG for length, _ in functions)
    rooms = Counter(map(name_room, sources))
    sizes: Counter[str] = Counter()
    for source in sources:
        sizes[name_room(source)] += len(source.code)
    rows = [
        f"treekit/    {code:,} lines of code of {lines:,}, {docstrings / lines:.1%} docstrings, "
        f"{len(sources)} modules, {len(functions):,} functions, {long} of over {LONG} lines",
        *(f"{length:>5}  {name}" for length, name in functions[:SHOWN]),
        "",
        f"{'room':<16}{'modules':>8}{'code':>8}",
        *(f"{room:<16}{rooms[room]:>8}{size:>8,}" for room, size in sizes.most_common()),
        "",
    ]
    for folder in ("plugins", "tests", "benchmarks"):
        found = [read_source(path) for path in list_files(ROOT / folder, "*.py")]
        size = sum(len(source.code) for source in found)
        rows.append(f"{folder + '/':<16}{len(found):>8}{size:>8,}")
    templates = list_files(ROOT / "templates")
    size = sum(len(path.read_bytes().splitlines()) for path in templates)
    return "\n".join([*rows, f"{'templates/':<16}{len(templates):>8}{size:>8,} lines"])


if __name__ == "__main__":
    print(format_report([read_source(path) for path in list_files(ROOT / "treekit", "*.py")]))
