"""Docstrings in NumPy's style, read and written as Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

__all__ = ["entries", "inline", "markdown"]

_SECTION = re.compile(r"^(\w[^\n]*)\n-{3,}\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\w[^:\n]*?)(?: :|$)", re.MULTILINE)
_LISTS = ("Attributes", "Parameters", "Returns", "Raises", "Examples")
"""Sections of a function or record; others are parts of the text."""


def entries(text: str, section: str) -> set[str]:
    """Names that a section of a docstring tells of."""
    for title, body in _sections(text):
        if title == section:
            return {name.strip() for head in _ENTRY.findall(body) for name in head.split(",")}
    return set()


def markdown(text: str, heading: str) -> str:
    """The docstring with its sections below headings, and their entries as lists."""
    told = [_prose(_SECTION.split(text)[0])]
    for title, body in _sections(text):
        told += [f"*{title}*" if title in _LISTS else f"{heading} {title}", _listed(body)]
    return "\n\n".join(filter(None, told)) + "\n"


def inline(text: str) -> str:
    """Double backquotes as the single ones that Markdown has for code."""
    return text.replace("``", "`")


def _sections(text: str) -> Iterator[tuple[str, str]]:
    pieces = _SECTION.split(text)
    yield from zip(pieces[1::2], pieces[2::2], strict=True)


def _listed(body: str) -> str:
    """Entries become a list; what stands between them stays text."""
    told: list[str] = []
    lines, at = body.splitlines(), 0
    while at < len(lines):
        end = at + 1
        if _is_entry(lines, at):
            while end < len(lines) and (not lines[end].strip() or lines[end].startswith("    ")):
                end += 1
            text = _prose(textwrap.dedent("\n".join(lines[at + 1 : end])))
            told.append(f"- {_head(lines[at])}" + (": " if text else ""))
            told[-1] += textwrap.indent(text, "  ").strip()
        else:
            while end < len(lines) and not _is_entry(lines, end):
                end += 1
            text = _prose("\n".join(lines[at:end]))
            told += ["", text, ""] if text else []
        at = end
    return "\n".join(told).strip()


def _is_entry(lines: list[str], at: int) -> bool:
    """Whether a line heads an entry: ``name : type``, or a lone line with text below it."""
    line = lines[at]
    if not line or line.startswith((" ", "-")):
        return False
    if re.match(r"^[\w*, ]+ : ", line):
        return True
    below = at + 1 < len(lines) and lines[at + 1].startswith("    ") and not line.endswith("::")
    return below and (at == 0 or not lines[at - 1].strip() or lines[at - 1].startswith("    "))


def _head(line: str) -> str:
    """``name : type`` as `name` (type), and a lone type as it is."""
    name, colon, kind = line.partition(" : ")
    if not colon:
        return inline(line) if " " in line else f"`{line}`"
    return f"{', '.join(f'`{one.strip()}`' for one in name.split(','))} ({inline(kind)})"


def _prose(text: str) -> str:
    """Paragraphs, and blocks of code after ``::`` or behind ``>>>``."""
    told: list[str] = []
    code = False
    for line in text.strip("\n").splitlines():
        inside = line.startswith(("    ", ">>> ", "... ")) or (code and not line.strip())
        if code and not inside:
            told = [*_without_blanks(told), "```", ""]
            code = False
        elif not code and inside:
            told = [*_without_blanks(told), "", "```"]
            code = True
        told.append(line.removeprefix("    ") if code else inline(re.sub("::$", ":", line)))
    if code:
        told = [*_without_blanks(told), "```"]
    return "\n".join(told).strip("\n")


def _without_blanks(lines: list[str]) -> list[str]:
    """The lines without empty ones at the end."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]
