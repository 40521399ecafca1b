"""The readable form of C: a struct of the tested columns, enums, and nested tests."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from treekit.export.literals import Code, Language, identifier, identifiers
from treekit.export.readable import ReadableLine, explain_unreadable, readable_values
from treekit.model.model import Model

MAX_LEVELS = 100
"""Maximum number of categories of a column that is written as an enum."""

_C = Language(
    "c",
    reserved=frozenset(
        """auto break case char const continue default do double else enum extern float for goto
        if inline int long register restrict return short signed sizeof static struct switch
        typedef union unsigned void volatile while row asm class new delete this template typename
        public private protected namespace using try catch throw bool true false virtual operator
        friend explicit export mutable and or not xor bitand bitor compl alignas alignof
        nullptr""".split()  # noqa: SIM905
    ),
)
"""Identifiers avoid the words of C++, which may include the header."""


def explain_unreadable_c(model: Model) -> str:
    """Return the reason why a model has no readable form in C; empty if it has one."""
    most = max((len(column.levels) for column in model.schema.columns), default=0)
    return explain_unreadable(model) or (
        f"a column has more than {MAX_LEVELS} categories" if most > MAX_LEVELS else ""
    )


def readable_c_values(model: Model, name: str) -> dict[str, Any]:
    """Compute the values of the templates ``c/readable_*.jinja``."""
    schema, prefix = model.schema, identifier(name, "model")
    single = schema.dtype == "float32"
    values = readable_values(model, _C)
    labels = [str(label) for label in schema.classes]
    class_names = _name_constants(labels, f"{prefix}")
    constants = dict(zip([_C.value(label) for label in schema.classes], class_names, strict=True))
    enumerators: dict[Code, dict[Code, Code]] = {}
    for column in values["columns"]:
        own = schema.columns[column["position"]]
        made = _name_constants(own.levels, f"{prefix}_{column['identifier']}")
        enumerators[column["identifier"]] = dict(zip(column["levels"], made, strict=True))
        column |= {"number": column["position"] + 1, "enumerators": _wrap_constants(made)}

    def convert_line(line: ReadableLine) -> ReadableLine:
        if line.kind == "leaf":
            return line._replace(prediction=constants.get(line.prediction, line.prediction))
        own = enumerators[line.column]
        threshold = _write_float(float(line.number)) if single else line.threshold
        return line._replace(levels=tuple(own[level] for level in line.levels), threshold=threshold)

    return values | {
        "lines": [convert_line(line) for line in values["lines"]],
        "class_names": _wrap_constants(class_names),
        "p": prefix,
        "P": Code(prefix.upper()),
        "file_name": Code(name),
        "cell": Code("float" if single else "double"),
        "result": Code(f"enum {prefix}_class" if labels else "double"),
    }


def _name_constants(texts: Sequence[str], prefix: str) -> list[Code]:
    """Make distinct names of enumerators."""
    return identifiers([text.upper() for text in texts], f"{prefix.upper()}_", "VALUE")


def _wrap_constants(names: list[Code]) -> Code:
    """Write the enumerators of an enum, in lines of at most 96 characters."""
    one = f" {', '.join(names)} "
    if len(one) <= 70:
        return Code(one)
    lines = textwrap.wrap(", ".join(names), 92, break_long_words=False)
    return Code("\n" + "\n".join(f"    {line}" for line in lines) + "\n")


def _write_float(threshold: float) -> Code:
    """Write a float32 as the shortest decimal that a C compiler reads as the same float."""
    text = str(np.float32(threshold)).replace("e+", "e")
    return Code((text if "." in text or "e" in text else f"{text}.0") + "f")
