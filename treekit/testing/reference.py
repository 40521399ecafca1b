"""Reference page of the contract, made from its docstrings.

    python -m treekit.testing.reference > plugins/CONTRACT.md

Docstrings are in NumPy style.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

# ---------------------------------------------------------------- page


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
    PagePart(
        "Functions for importers", "treekit.interop", ("beginning", "find_class_name", "read_whole")
    ),
    PagePart("Models from tables of nodes", "treekit.interop.tree_assembly"),
    PagePart("Conformance checks", "treekit.testing"),
)
HEAD = """# The contract

<!-- Made by `python -m treekit.testing.reference > plugins/CONTRACT.md`; edit the docstrings. -->

A criterion scores a split by the statistics of the node and of its branches. Start a package:

```sh
treekit plugin new mine --kind criterion
cd treekit-mine
pip install -e '.[test]'
```

Write the criterion in `treekit_mine.py`. This is the chi-squared statistic, per weight:

<!-- file: treekit_mine.py -->
```python
from treekit import Criterion, CriterionFunctions, hookimpl

def score(parent, children):
    total, found = parent.sum(), 0.0
    for b in range(children.shape[0]):
        weight = children[b].sum()
        for k in range(parent.shape[0]):
            expected = weight * parent[k] / total
            if expected > 0.0:
                found += (children[b, k] - expected) ** 2 / expected
    return found / total

@hookimpl
def treekit_criteria():
    return [Criterion("mine", "classification", lambda: CriterionFunctions(score=score))]
```

`score` is plain Python, compiled by numba; larger is better, 0 for a useless split. What a split
holds:

| target | `parent`, of the node | `children`, of each branch |
|---|---|---|
| classes | (classes,): weight of each class | (branches, classes): the same |
| number | (2,): weight, sum of weight * y, with y centred and scaled | (branches, 2) |
| number, `statistics=Ranks()` | (4,): weight, quantile, deviations below, above | (branches, 4) |
| of a `Task` | (size,): sums over its layout | (branches, size) |

Weights are never negative; a class may be absent, a weight of 0 in its cell. Most splits have two
branches; `nominal_splits="multiway"` makes one for each category, and a splitter plugin any number.
Branches may be empty, so sum over the branches and skip those of weight 0.

Check it against the laws of the contract; then `treekit train ... --criterion mine` uses it:

```sh
treekit plugin check mine
```

The package came with Tsallis entropy: replace its tests, and its description in `pyproject.toml`
and `README.md`.

<!-- file: tests/test_mine.py -->
```python
from treekit.testing import check_criterion

def test_it_obeys_the_laws_of_a_criterion():
    check_criterion("mine")
```

The rest of this page is the reference of all kinds of plugin; [TUTORIAL.md](TUTORIAL.md) has
examples.
"""


def write_reference() -> str:
    """Return the complete page as Markdown."""
    parts = [text for part in PARTS for text in _write_part(part)]
    return "\n".join([HEAD, *parts]).rstrip() + "\n"


def list_names(part: PagePart) -> dict[str, Any]:
    """Return the values of a part by name, with every hook, whether it is public or not."""
    module = importlib.import_module(part.module)
    hooks = [name for name in vars(module) if name.startswith("treekit_")]
    return {name: getattr(module, name) for name in part.names or (*hooks, *module.__all__)}


def _write_part(part: PagePart) -> Iterator[str]:
    module = importlib.import_module(part.module)
    yield f"## {part.title}\n\n`{part.module}`\n"
    if not part.names:
        yield convert_docstring(inspect.getdoc(module) or "", "###")
    for name, value in list_names(part).items():
        signature = _format_signature(value) if _has_docstring(value) else ""
        text = convert_docstring(find_docstring(module, name), "####")
        yield f"### `{name}{signature}`\n\n{text}"


def _has_docstring(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isroutine(value)


def find_docstring(module: ModuleType, name: str) -> str:
    """Return the docstring of a public name, or the text below its assignment."""
    value = getattr(module, name)
    if _has_docstring(value):
        made = f"{name}{inspect.signature(value)}".removesuffix(" -> None")  # by dataclasses
        return "" if (text := inspect.getdoc(value) or "") == made else text
    for one, after in itertools.pairwise(ast.parse(inspect.getsource(module)).body):
        match one, after:
            case ast.ImportFrom(module=str(origin), names=names), _ if name in [
                n.name for n in names
            ]:
                return find_docstring(importlib.import_module(origin), name)
            case ast.Assign([ast.Name(id=own)]), ast.Expr(ast.Constant(str(text))) if own == name:
                return inspect.cleandoc(text)
    return ""


def _format_signature(thing: Any) -> str:
    """Format ``(name, default=1)``, without annotations: the docstring has types."""
    empty = inspect.Parameter.empty
    full = inspect.signature(thing)
    parameters = [one.replace(annotation=empty) for one in full.parameters.values()]
    bare = full.replace(parameters=parameters, return_annotation=empty)
    return str(bare).replace("<factory>", "{}")


# ---------------------------------------------------------------- docstrings as Markdown

_SECTION = re.compile(r"^(\w[^\n]*)\n-{3,}\n", re.MULTILINE)
_LIST_SECTIONS = ("Attributes", "Parameters", "Returns", "Raises", "Examples")
"""Sections of a function or record; others are parts of the text."""

_ENTRY = re.compile(
    r"^([\w*, ]+ : .*|[^\s-].*(?<!::)(?=\n    ))((?:\n(?:    .*)?)*)(?:\n|\Z)", re.MULTILINE
)
"""``name : type``, or a line with an indented text below it."""

_CODE = re.compile(r"((?:^(?:    |>>> |\.\.\. ).*(?:\n+|\Z))+)", re.MULTILINE)


def convert_docstring(text: str, heading: str) -> str:
    """Convert a docstring to Markdown: sections below headings, and their entries as lists."""
    head, *sections = _SECTION.split(text)
    parts = [_convert_prose(head)]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        parts += [f"*{title}*" if title in _LIST_SECTIONS else f"{heading} {title}"]
        parts += [_convert_entries(body)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _convert_entries(body: str) -> str:
    """Convert entries to a list; text between them stays text."""
    before, *entries = _ENTRY.split(body)
    output = [_convert_prose(before), ""]
    for head, text, after in zip(entries[::3], entries[1::3], entries[2::3], strict=True):
        name, colon, kind = head.partition(" : ")
        names = ", ".join(f"`{one.strip()}`" for one in name.split(","))
        lone = _convert_prose(head) if " " in head else f"`{head}`"
        below = _convert_prose(textwrap.dedent(text))
        output.append(f"- {f'{names} ({_convert_prose(kind)})' if colon else lone}")
        output[-1] += ": " + textwrap.indent(below, "  ").strip() if below else ""
        output += ["", prose, ""] if (prose := _convert_prose(after)) else []
    return "\n".join(output).strip()


def _convert_prose(text: str) -> str:
    """Convert paragraphs, and blocks of code after ``::`` or ``>>>``."""
    output = []
    for number, part in enumerate(_CODE.split(text)):
        if number % 2:
            code = re.sub("^    ", "", part.rstrip("\n"), flags=re.MULTILINE)
            output.append(f"```\n{code}\n```")
        else:
            output.append(
                re.sub("::$", ":", part.strip("\n"), flags=re.MULTILINE).replace("``", "`")
            )
    return "\n\n".join(filter(None, output))


if __name__ == "__main__":
    sys.stdout.write(write_reference())
