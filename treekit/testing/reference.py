"""Reference page of the contract, made from its docstrings.

    python -m treekit.testing.reference > plugins/CONTRACT.md

Docstrings are in NumPy style.  `list_undocumented` lists what has none: hooks,
public names, fields of records.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

# ---------------------------------------------------------------- reference


class PagePart(NamedTuple):
    """A part of the page: its title, a module, and its names (empty: all public ones)."""

    title: str
    module: str
    names: tuple[str, ...] = ()


PARTS = (
    PagePart("Hooks", "treekit.hookspecs"),
    PagePart("Records", "treekit.contracts"),
    PagePart("Functions for splitters", "treekit.splitting"),
    PagePart("Rows and columns of a node", "treekit.kernels.records", ("Table", "Rows")),
    PagePart(
        "Functions for pruners",
        "treekit.components.pruning",
        ("Context", "collapse", "graft", "kept_nodes"),
    ),
    PagePart("Functions for exporters", "treekit.exporting"),
    PagePart("Conformance checks", "treekit.testing"),
)
SHARED = "Fields of every record"
"""Section of the contract's docstring on the fields of all records."""

HEAD = """# The contract

<!-- Made by `python -m treekit.testing.reference > plugins/CONTRACT.md`; edit the docstrings. -->

The records that a plugin provides, the arguments of its functions, and the functions that it may
call. See [TUTORIAL.md](TUTORIAL.md) for examples.
"""


def write_reference() -> str:
    """Return the complete page as Markdown."""
    return (
        "\n".join([HEAD, *(text for part in PARTS for text in _write_part(part))]).rstrip() + "\n"
    )


def list_undocumented() -> list[str]:
    """List hooks, public names and fields of records without documentation, as dotted names."""
    return [name for part in PARTS for name in _list_silent(part)]


def _list_public(part: PagePart) -> list[tuple[str, Any]]:
    """Return names and values of a part, with every hook, whether it is in ``__all__`` or not."""
    module = importlib.import_module(part.module)
    hooks = [name for name in vars(module) if name.startswith("treekit_")]
    names = part.names or (*hooks, *module.__all__)
    return [(name, getattr(module, name)) for name in dict.fromkeys(names)]


def _write_part(part: PagePart) -> Iterator[str]:
    module = importlib.import_module(part.module)
    yield f"## {part.title}\n\n`{part.module}`\n"
    if not part.names:
        yield convert_docstring(_get_docstring(module), "###")
    constants = _find_constants(module)
    for name, value in _list_public(part):
        if name in constants:
            yield f"### `{name}`\n\n{convert_docstring(constants[name], '####')}"
        else:
            text = convert_docstring(_get_docstring(value), "####")
            yield f"### `{name}{_format_signature(value)}`\n\n{text}"


def _list_silent(part: PagePart) -> Iterator[str]:
    module = importlib.import_module(part.module)
    constants, shared = _find_constants(module), list_entries(_get_docstring(module), SHARED)
    for name, value in _list_public(part):
        where = f"{part.module}.{name}"
        if not constants.get(name, "") and (
            name in _list_assigned(module) or not _get_docstring(value)
        ):
            yield where
        elif fields := _list_fields(value):
            known = list_entries(_get_docstring(value), "Attributes") | shared
            yield from (f"{where}.{field}" for field in fields if field not in known)


def _get_docstring(thing: Any) -> str:
    """Return a docstring of the object's own: not inherited, nor written by dataclasses."""
    text = inspect.cleandoc(thing.__doc__ or "")
    made = f"{getattr(thing, '__name__', '')}("
    return "" if text.startswith(made) and "\n" not in text else text


def _list_fields(thing: Any) -> list[str]:
    """Return the names of the fields of a record."""
    if dataclasses.is_dataclass(thing):
        return [field.name for field in dataclasses.fields(thing)]
    return list(getattr(thing, "_fields", ()))


def _list_assigned(module: ModuleType) -> set[str]:
    """Return the names that a module assigns, which have no docstring of their value."""
    body = ast.parse(inspect.getsource(module)).body
    return {
        target.id
        for statement in body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }


def _find_constants(module: ModuleType) -> dict[str, str]:
    """Return the strings below assignments, here or in the modules that they are imported from."""
    body = ast.parse(inspect.getsource(module)).body
    imported = {
        alias.name: _find_constants(importlib.import_module(one.module))
        for one in body
        if isinstance(one, ast.ImportFrom) and str(one.module).startswith("treekit.")
        for alias in one.names
        if alias.name.isupper() and one.module
    }
    constants = {name: known[name] for name, known in imported.items() if name in known}
    return constants | {
        one.targets[0].id: inspect.cleandoc(str(after.value.value))
        for one, after in itertools.pairwise(body)
        if isinstance(one, ast.Assign)
        and isinstance(one.targets[0], ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }


def _format_signature(thing: Any) -> str:
    """Format ``(name, default=1)``, without annotations: the docstring has types."""
    if not callable(thing):
        return ""
    parameters, keywords = [], False
    for name, parameter in inspect.signature(thing).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            parameters.append("*")
            keywords = True
        default = parameter.default
        if default is parameter.empty:
            parameters.append(name)
        else:
            shown = "{}" if repr(default) == "<factory>" else repr(default)
            parameters.append(f"{name}={shown}")
    return f"({', '.join(parameters)})"


# ---------------------------------------------------------------- docstrings as Markdown

_SECTION = re.compile(r"^(\w[^\n]*)\n-{3,}\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\w[^:\n]*?)(?: :|$)", re.MULTILINE)
_LIST_SECTIONS = ("Attributes", "Parameters", "Returns", "Raises", "Examples")
"""Sections of a function or record; others are parts of the text."""


def list_entries(text: str, section: str) -> set[str]:
    """Return the names in a section of a docstring."""
    for title, body in _split_sections(text):
        if title == section:
            return {name.strip() for head in _ENTRY.findall(body) for name in head.split(",")}
    return set()


def convert_docstring(text: str, heading: str) -> str:
    """Convert a docstring to Markdown: sections below headings, and their entries as lists."""
    parts = [_format_prose(_SECTION.split(text)[0])]
    for title, body in _split_sections(text):
        parts += [
            f"*{title}*" if title in _LIST_SECTIONS else f"{heading} {title}",
            _format_list(body),
        ]
    return "\n\n".join(filter(None, parts)) + "\n"


def convert_inline(text: str) -> str:
    """Convert double backquotes to the single ones of Markdown."""
    return text.replace("``", "`")


def _split_sections(text: str) -> Iterator[tuple[str, str]]:
    pieces = _SECTION.split(text)
    yield from zip(pieces[1::2], pieces[2::2], strict=True)


def _format_list(body: str) -> str:
    """Convert entries to a list; text between them stays text."""
    output: list[str] = []
    lines, at = body.splitlines(), 0
    while at < len(lines):
        end = at + 1
        if _is_entry(lines, at):
            while end < len(lines) and (not lines[end].strip() or lines[end].startswith("    ")):
                end += 1
            text = _format_prose(textwrap.dedent("\n".join(lines[at + 1 : end])))
            output.append(f"- {_format_head(lines[at])}" + (": " if text else ""))
            output[-1] += textwrap.indent(text, "  ").strip()
        else:
            while end < len(lines) and not _is_entry(lines, end):
                end += 1
            text = _format_prose("\n".join(lines[at:end]))
            output += ["", text, ""] if text else []
        at = end
    return "\n".join(output).strip()


def _is_entry(lines: list[str], at: int) -> bool:
    """Whether a line starts an entry: ``name : type``, or a single line with text below it."""
    line = lines[at]
    if not line or line.startswith((" ", "-")):
        return False
    if re.match(r"^[\w*, ]+ : ", line):
        return True
    below = at + 1 < len(lines) and lines[at + 1].startswith("    ") and not line.endswith("::")
    return below and (at == 0 or not lines[at - 1].strip() or lines[at - 1].startswith("    "))


def _format_head(line: str) -> str:
    """Format ``name : type`` as `name` (type), and a lone type unchanged."""
    name, colon, kind = line.partition(" : ")
    if not colon:
        return convert_inline(line) if " " in line else f"`{line}`"
    return f"{', '.join(f'`{one.strip()}`' for one in name.split(','))} ({convert_inline(kind)})"


def _format_prose(text: str) -> str:
    """Convert paragraphs, and blocks of code after ``::`` or ``>>>``."""
    output: list[str] = []
    code = False
    for line in text.strip("\n").splitlines():
        inside = line.startswith(("    ", ">>> ", "... ")) or (code and not line.strip())
        if code and not inside:
            output = [*_strip_blank_lines(output), "```", ""]
            code = False
        elif not code and inside:
            output = [*_strip_blank_lines(output), "", "```"]
            code = True
        output.append(
            line.removeprefix("    ") if code else convert_inline(re.sub("::$", ":", line))
        )
    if code:
        output = [*_strip_blank_lines(output), "```"]
    return "\n".join(output).strip("\n")


def _strip_blank_lines(lines: list[str]) -> list[str]:
    """Drop empty lines at the end."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]


if __name__ == "__main__":
    sys.stdout.write(write_reference())
