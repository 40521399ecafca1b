"""Names of tables and columns: what an engine would cut, fold or misread is refused by name."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.sql_dialect import Dialect

__all__ = ["answer_names", "check_names", "key_names"]


def key_names(keys: str) -> list[str]:
    """Columns that the setting ``keys`` lists: names with commas between them, or a JSON list.

    Raises
    ------
    ExportError
        If the list is no list of text.
    """
    if not keys.lstrip().startswith("["):
        return [name.strip() for name in keys.split(",")] if keys.strip() else []
    try:
        names = json.loads(keys)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ExportError(f'keys={keys!r} is no JSON list of names, such as ["id", "a, b"]')
    return names


def check_names(names: Sequence[str], role: str, dialect: Dialect) -> None:
    """Refuse names that a table of the engine cannot have, alone or together.

    Raises
    ------
    ExportError
    """
    seen: dict[str, str] = {}
    for name in names:
        problem = problem_of(name, dialect)
        if problem:
            raise ExportError(f"{role} {name[:80]!r} {problem}: rename it")
        alike = _folded(name, dialect)
        if alike in seen:
            raise ExportError(
                f"{role}s {seen[alike][:80]!r} and {name[:80]!r} are one name in {dialect.title}: "
                "rename one of them"
            )
        seen[alike] = name


def problem_of(name: str, dialect: Dialect) -> str:
    """Why the engine cannot have the name, as the end of a sentence, or nothing."""
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        return "is not valid Unicode text"
    if "\0" in name:
        return f"holds a NUL, which {dialect.title} cannot have in a name"
    if not name and not dialect.empty_name:
        return f"is empty, which {dialect.title} does not allow"
    if dialect.longest_name and size > dialect.longest_name:
        return f"has {size} bytes, and {dialect.title} cuts names at {dialect.longest_name}"
    if name in dialect.reserved_columns:
        return f"is a column that every table of {dialect.title} has for itself"
    return ""


def _folded(name: str, dialect: Dialect) -> str:
    if not dialect.folds_case:
        return name
    return "".join(c.lower() if c.isascii() else c for c in name)


def answer_names(
    schema: Schema, label: str, probability: str, keys: Sequence[str], dialect: Dialect
) -> tuple[list[str], list[str]]:
    """Names of the labels' columns, and of those of probabilities; numbers are named as labels.

    ``label``, or ``label_TARGET`` of several; ``probability_CLASS``, or
    ``probability_TARGET_CLASS``.  Where a target or class makes no name of the
    engine, or two make the same, all of them are told by their positions.
    """
    told = [output.name for output in schema.outputs]
    places = [str(k) for k in range(len(told))]
    for targets, number in itertools.product((told, places), (False, True)):
        labels = [f"{label}_{target}" for target in targets] if schema.more else [label]
        shares = [
            "_".join([probability, *([target] if schema.more else []), str(k if number else said)])
            for target, output in zip(targets, schema.outputs, strict=True)
            for k, said in enumerate(output.classes)
        ]
        names = [*keys, *labels, *shares]
        folded = {_folded(name, dialect) for name in names}
        if len(folded) == len(names) and not any(problem_of(name, dialect) for name in names):
            return labels, shares
    check_names([*keys, *labels, *shares], "the answer column", dialect)
    return labels, shares
