"""What the columns of a table are read as, to see before training and to declare afterwards."""

from __future__ import annotations

import html
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from treekit.data.cells import Cells, is_text
from treekit.data.column_warnings import find_input_warnings, find_target_warnings
from treekit.data.dataset import infer_task
from treekit.data.features import DeclaredKinds, find_levels
from treekit.data.schema import Column, Kind, level_text
from treekit.data.table import Table, read_table
from treekit.errors import DataError

__all__ = ["ColumnReading", "TableReading", "columns", "read_declaration"]

_SHOWN_VALUES = 5

Role = Literal["input", "target", "ignored"]


class ColumnReading(msgspec.Struct, frozen=True):
    """How a column is read.

    Attributes
    ----------
    name : str
        Name in the table.
    role : {"input", "target", "ignored"}
        Use in a training; a column that looks like an identifier is ignored.
    kind : {"numeric", "nominal"}
    type : str
        Type of the cells: integer, decimal, bool, text or categories.
    distinct : int
        Number of different values.
    missing : int
        Number of missing cells.
    marks : dict of str to int
        Counts of the texts that are read as missing.
    values : tuple of str
        Most frequent categories, or minimum, median and maximum.
    warnings : tuple of str
        What may be read wrongly, each with its remedy.
    levels : tuple of str or None
        The categories in order, of a nominal column.
    """

    name: str
    role: Role
    kind: Kind
    type: str = ""
    distinct: int = 0
    missing: int = 0
    marks: dict[str, int] = {}
    values: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    levels: tuple[str, ...] | None = None


class TableReading(msgspec.Struct, frozen=True):
    """How a table is read: `columns` makes it, and `treekit.train` accepts it as ``schema``.

    Attributes
    ----------
    rows : int
        Number of rows.
    columns : tuple of ColumnReading
        Columns, in the order of the table.
    missing_marks : tuple of str or None
        Declared marks of missing values; None: the default ones.
    decimal, thousands : str
        Notation of numbers in text.
    """

    rows: int
    columns: tuple[ColumnReading, ...]
    missing_marks: tuple[str, ...] | None = None
    decimal: str = "."
    thousands: str = ""

    def to_json(self) -> str:
        """Return the JSON that `read_declaration` reads, with one line for each value."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n"

    def list_rows(self) -> list[tuple[str, ...]]:
        """Return the cells of a table: name, role, kind, type, distinct, missing, values."""
        return [
            (
                column.name,
                column.role,
                column.kind,
                column.type,
                f"{column.distinct:,}",
                f"{column.missing:,}" + _format_marks(column.marks),
                ", ".join(column.values),
            )
            for column in self.columns
        ]

    def __str__(self) -> str:
        rows = [HEAD, *self.list_rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, *(f"warning: {text}" for text in self.list_warnings())])

    def list_warnings(self) -> list[str]:
        """Return the warnings of all columns."""
        return [text for column in self.columns for text in column.warnings]

    def _repr_html_(self) -> str:
        """Return the table that notebooks show."""

        def make_row(tag: str, cells: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        rows = "".join(make_row("td", row) for row in self.list_rows())
        notes = "".join(f"<li>{html.escape(text)}</li>" for text in self.list_warnings())
        return f"<table>{make_row('th', HEAD)}{rows}</table>" + (
            f"<ul>{notes}</ul>" if notes else ""
        )


HEAD = ("column", "role", "kind", "type", "distinct", "missing", "values")
"""Names of the cells of `TableReading.list_rows`."""


def _format_marks(marks: Mapping[str, int]) -> str:
    shown = [f"{count:,} {mark!r}" if mark else f"{count:,} empty" for mark, count in marks.items()]
    return f" ({', '.join(shown)})" if shown else ""


def columns(
    table: Any,
    target: str | Sequence[str] = (),
    *,
    nominal: Sequence[str] | None = None,
    numeric: Sequence[str] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
    ignore: Collection[str] = (),
    task: Any = None,
    missing_marks: Collection[str] | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    schema: Any = None,
) -> TableReading:
    """Return how each column of a table is read, with a warning where that may be wrong.

    Parameters
    ----------
    table : table
        Any table that `treekit.train` accepts.
    target : str or sequence of str
        Columns to predict.
    nominal, numeric, levels, ignore, task, missing_marks, decimal, thousands, schema
        As in `treekit.train`.

    Raises
    ------
    DataError
        If the table cannot be read; names the column.
    """
    given: dict[str, Any] = {
        "task": task,
        "nominal": nominal,
        "numeric": numeric,
        "levels": levels,
        "ignore": ignore,
        "missing_marks": missing_marks,
        "decimal": decimal,
        "thousands": thousands,
    }
    targets = [target] if isinstance(target, str) else list(target)
    given = merge_declaration(schema, targets, given)
    read = read_table(
        table,
        missing=given["missing_marks"],
        decimal=given["decimal"],
        thousands=given["thousands"],
    )
    for name in targets:
        read.find_column(name, "target column")
    kinds = DeclaredKinds(given["nominal"] or (), given["numeric"] or (), given["levels"] or {})
    ignored = set(given["ignore"] or ())
    for name in ignored:
        read.find_column(name, "column to ignore")
    roles: dict[str, Role] = {
        name: "target" if name in targets else "ignored" if name in ignored else "input"
        for name in read.names
    }
    kept = list(roles.values()).count("input") == 1  # the only input stays one
    found = [
        _describe_column(read, name, role, kinds, given["task"], kept=kept)
        for name, role in roles.items()
    ]
    how = read.format
    return TableReading(
        read.n_rows,
        tuple(found),
        None if given["missing_marks"] is None else tuple(sorted(how.marks)),
        how.decimal,
        how.thousands,
    )


def _describe_column(
    table: Table, name: str, role: Role, kinds: DeclaredKinds, task: Any, *, kept: bool
) -> ColumnReading:
    cells = table.get_typed_cells(name)
    if role == "target":
        inferred = task or infer_task(table, name, cells, None)
        nominal = inferred == "classification"
    else:
        nominal = kinds.is_nominal(table, name, cells)
    gone = table.format.is_missing if nominal else table.format.is_missing_number
    marks: Counter[str] = Counter()
    present: dict[Any, int] = {}
    for text, count in table.count_texts(name).items():
        if isinstance(text, str) and gone(text):
            marks[text.strip()] += count
        elif text is not None and text == text:
            present[text] = count
    own: tuple[str, ...] | None = None
    if nominal and present:
        own = find_levels(table, name, kinds.levels.get(name))
    notes: list[str] = []
    if role == "target" and task is None:
        notes = find_target_warnings(table, name, cells, numeric=not nominal)
    elif role == "input" and not kinds.declares(name):
        column = Column(name, "nominal", own or ()) if nominal else Column(name)
        found = find_input_warnings(table, column, cells, sum(present.values()), kept=kept)
        notes = found.texts
        role = "ignored" if found.is_identifier and not kept else "input"
    return ColumnReading(
        name,
        role,
        "nominal" if nominal else "numeric",
        _name_type(table, name, cells),
        len(present) if nominal else len(np.unique(cells[cells == cells])),
        table.n_rows - sum(present.values()),
        dict(marks.most_common()),
        _choose_values(present, cells, nominal=nominal),
        tuple(notes),
        own if role != "ignored" else None,
    )


def _name_type(table: Table, name: str, cells: Cells) -> str:
    if table.levels.get(name):
        return "categories"
    if is_text(cells):
        return "text"
    return {"i": "integer", "u": "integer", "f": "decimal"}.get(cells.dtype.kind, "bool")


def _choose_values(present: Mapping[Any, int], cells: Cells, *, nominal: bool) -> tuple[str, ...]:
    if nominal or cells.dtype.kind not in "iuf":
        ordered = sorted(present, key=lambda value: (-present[value], str(value)))
        return tuple(str(level_text(value)) for value in ordered[:_SHOWN_VALUES])
    known = cells[cells == cells]
    if not len(known):
        return ()
    middle = np.partition(known, len(known) // 2)[len(known) // 2]
    return tuple(str(level_text(value)) for value in (known.min(), middle, known.max()))


# ---------------------------------------------------------------- declaration


def read_declaration(source: Any) -> TableReading:
    """Read the JSON of a `TableReading`, from a path, a dict or the reading itself.

    Raises
    ------
    DataError
        If it cannot be read; names the entry.
    """
    if isinstance(source, TableReading):
        return source
    try:
        if isinstance(source, Mapping):
            return msgspec.convert(dict(source), TableReading)
        return msgspec.json.decode(Path(source).read_bytes(), type=TableReading)
    except OSError as error:
        raise DataError(
            f"the schema {os.fspath(source)!r} cannot be read: {error.strerror or error}"
        ) from error
    except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
        raise DataError(
            f"invalid schema: {error}; correct the entry, or write it again by 'treekit columns "
            "--json'"
        ) from error


def merge_declaration(
    schema: Any, targets: Collection[str], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the reading options `given`, with those of a declaration where none is given.

    A column that is given a kind, or ignored, is not declared otherwise.
    """
    if schema is None:
        return dict(given)
    read = read_declaration(schema)
    own: dict[str, Any] = {
        name: given.get(name) if given.get(name) is not None else value
        for name, value in (
            ("missing_marks", read.missing_marks),
            ("decimal", read.decimal),
            ("thousands", read.thousands),
        )
    }
    named = {*targets, *(given.get("levels") or ())}
    for option in ("nominal", "numeric", "ignore"):
        named.update(given.get(option) or ())
    if isinstance(given.get("weights"), str):
        named.add(given["weights"])
    declared = [c for c in read.columns if c.name in targets and c.role == "target"]
    if len(declared) == len(targets) == 1 and given.get("task") is None:
        own["task"] = "classification" if declared[0].kind == "nominal" else "regression"
        if given.get("classes") is None and declared[0].kind == "nominal":
            own["classes"] = declared[0].levels
    rest = [column for column in read.columns if column.name not in named]
    kept = [column for column in rest if column.role != "ignored"]
    own["ignore"] = [*(given.get("ignore") or ()), *(c.name for c in rest if c.role == "ignored")]
    own["numeric"] = [
        *(given.get("numeric") or ()), *(c.name for c in kept if c.kind == "numeric")
    ]  # fmt: skip
    own["nominal"] = [
        *(given.get("nominal") or ()), *(c.name for c in kept if c.kind == "nominal")
    ]  # fmt: skip
    own["levels"] = {
        **{c.name: c.levels for c in kept if c.kind == "nominal" and c.levels is not None},
        **(given.get("levels") or {}),
    }
    return {**given, **own}
