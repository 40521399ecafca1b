"""Names in backticks in docstrings and comments of treekit exist.

In its own module a name may be any identifier, or text that is one, such as a setting; elsewhere
it is a definition: a function, a class, a member of a class or module.  A name of another library
is resolved by importing it; other code stands in double backticks.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import pydoc
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import treekit

FOLDER = Path(treekit.__file__).parent
NAME = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.\w+)*)(?:\(\))?`(?!`)")


def list_unknown_names(texts: dict[str, str]) -> list[str]:
    """Return the names that exist nowhere, as ``module:line: name``."""
    identifiers: dict[str, set[str]] = {}
    members: dict[str, set[str]] = defaultdict(set)
    for module, text in texts.items():
        tree = ast.parse(text)
        identifiers[module] = set(list_identifiers(tree))
        for owner in ast.walk(tree):
            if isinstance(owner, ast.Module | ast.ClassDef):
                name = owner.name if isinstance(owner, ast.ClassDef) else module
                members[name].update(list_members(owner))
    members["treekit"].update(treekit.__all__)
    defined = set().union(*members.values(), vars(builtins), keyword.kwlist)
    for module in texts:
        members[module.rpartition(".")[0]].add(module.rpartition(".")[2])

    def exists(name: str, module: str) -> bool:
        near = identifiers[module] | members[module] | defined
        owner, _, last = name.rpartition(".")
        if not owner:
            return name in near or name in members[module.rpartition(".")[0]]
        owners = [m for m in members if m == owner or m.endswith(f".{owner}")]
        if owners:
            return any(last in members[m] for m in owners)
        return near.issuperset(name.split(".")) or pydoc.locate(name) is not None

    return [
        f"{module}:{text.count(chr(10), 0, found.start()) + 1}: {found[1]}"
        for module, text in texts.items()
        for found in NAME.finditer(text)
        if not exists(found[1], module)
    ]


def list_identifiers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname", "module", "value"):
            text = getattr(node, field, None)
            if isinstance(text, str):
                yield from text.split(".")


def list_members(owner: ast.Module | ast.ClassDef) -> Iterator[str]:
    body = list(owner.body)
    while body:
        node = body.pop()
        if isinstance(node, ast.If | ast.Try):
            body += node.body
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
    if isinstance(owner, ast.ClassDef):
        for node in ast.walk(owner):
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self":
                yield node.attr


def test_names_in_docstrings_exist() -> None:
    texts = {}
    for path in sorted(FOLDER.rglob("*.py")):
        parts = path.relative_to(FOLDER.parent).with_suffix("").parts
        texts[".".join(parts).removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    assert list_unknown_names(texts) == []


@pytest.mark.parametrize(
    "name",
    ["gone", "gone()", "Kept.gone", "kept.Gone", "treekit.kept.gone", "rows.gone", "numpy.gone"],
)
def test_a_removed_name_is_reported(name: str) -> None:
    code = "class Kept:\n    size = 1\ndef grow(rows):\n    return rows\n"
    known = "# `rows`, `Kept.size`, `kept.grow`, `treekit.kept.Kept`, `numpy.random.Generator`\n"
    found = list_unknown_names({"treekit.kept": f"{code}{known}# See `{name}`, not ``gone``.\n"})
    assert found == [f"treekit.kept:6: {name.removesuffix('()')}"]
