"""Input steps of a query: numbers, category codes and refused rows; column names."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence

import numpy as np
from sqlglot import exp

from treekit.data.features import LevelIndex
from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.literals import identifiers
from treekit.export.lowering import LoweredTree
from treekit.model.model import Model
from treekit.model.tree import DerivedColumns
from treekit.rules.rule_list import RuleList
from treekit_sql.dialects import Dialect
from treekit_sql.syntax import (
    Query,
    Sql,
    as_sql,
    combine,
    make_case,
    make_cast,
    make_null_test,
    make_switch,
    quote_column,
)

# ---------------------------------------------------------------- sql cells

REFUSED_COLUMN = "refused"
"""Column that is 0 in accepted rows."""

_UNSEEN_CODE = -1


class InputColumns:
    """Columns of the steps of a query, and the model and the dialect for which they are built.

    Attributes
    ----------
    names : list of str
        Name of each column of the schema.
    rounded : dict of int to str
        Name of the column with the cells rounded to the model's input dtype, for sums.
    used : list of int
        Columns that the trees use, ascending.
    text : bool
        Whether columns of numbers may hold text, and those of categories other notations.
    """

    def __init__(
        self,
        model: Model,
        derived: DerivedColumns,
        dialect: Dialect,
        trees: tuple[LoweredTree, ...],
        *,
        text: bool = True,
    ) -> None:
        self.model, self.derived, self.dialect, self.text = model, derived, dialect, text
        # Unquoted names are not case-sensitive.
        lowered = [name.lower() for name in model.schema.names]
        self.names = [str(name) for name in identifiers(lowered, "in_")]
        self.rounded: dict[int, str] = {}
        asked = [tree.feature for tree in trees or model.trees]
        every = np.concatenate([*asked, derived.term_feature, derived.level_feature])
        n_features = model.schema.n_features
        self.used = np.unique(every[(every >= 0) & (every < n_features)]).tolist()

    def get_column(self, feature: int) -> Sql:
        """Return a column as it is compared in tests."""
        return as_sql(self.names[feature])


def add_input_steps(
    query: Query, cells: InputColumns, source: str, first: dict[str, Sql], refuse: str
) -> None:
    """Add the steps that read the table; `query` carries `REFUSED` if rows may be refused.

    Parameters
    ----------
    source : str
        Name of the table in the query.
    first : dict
        Further columns of the first step, which are carried to all steps.
    refuse : {"null", "error"}
    """
    asked = [f for f in range(len(cells.names)) if f in cells.used or is_checked(cells.model, f)]
    made = {cells.names[f]: _convert_cell(cells, f, source) for f in asked}
    query.add_step("cells", first | made)
    query.carried_columns += list(first)
    tests = [test for f in asked for test in _list_refusals(cells, f, refuse)]
    if tests:
        made = {REFUSED_COLUMN: make_case(tests, 0)}
        query.add_step("checked", made, [cells.names[f] for f in asked])
        query.carried_columns.append(REFUSED_COLUMN)


def add_rounding_steps(query: Query, cells: InputColumns) -> None:
    """Add the steps that round the columns in sums to float32, if there are any."""
    linear, dialect = find_linear_features(cells.model, cells.derived), cells.dialect
    if not linear:
        return
    kept = [cells.names[f] for f in cells.used]
    halves: dict[str, Sql] = {}
    singles: dict[str, Sql] = {}
    for f in linear:
        name = cells.names[f]
        halves |= dialect.make_float32_parts(name)
        cells.rounded[f] = f"{name}_single"
        singles[f"{name}_single"] = dialect.round_to_float32(name)
    if halves:
        query.add_step("halves", halves, kept)
    query.add_step("singles", singles, kept)


def find_linear_features(model: Model, derived: DerivedColumns) -> list[int]:
    """Return the columns in sums, whose terms are rounded to the model's input dtype.

    A single column of weight 1 needs no rounding: it is compared with a threshold for doubles.
    """
    if model.schema.dtype != "float32":
        return []
    counts = np.diff(derived.term_start)
    summed = np.repeat(counts > 1, counts) | (derived.term_weight != 1.0)
    return list(map(int, np.unique(derived.term_feature[summed])))


def is_checked(model: Model | RuleList, feature: int) -> bool:
    """Return whether a policy of the model refuses rows by their cell of a column."""
    nominal = model.schema.columns[feature].kind == "nominal"
    return model.missing == "error" or (nominal and model.unknown == "error")


def read_cell(raw: Sql, feature: int, schema: Schema, dialect: Dialect, *, text: bool) -> Sql:
    """Read a cell as a double, or a text compared by bytes; NULL if it is missing.

    Without `text`, `Dialect.find_text` must find text in columns of numbers before.
    """
    column, marks = schema.columns[feature], schema.missing_marks
    if column.kind == "nominal" and text:
        return dialect.convert_to_text(raw, LevelIndex(column.levels, marks))
    if column.kind == "nominal":
        return dialect.clean_text(raw)
    if not text:
        return dialect.convert_typed_cell(raw)
    return dialect.convert_to_number(raw, schema.number_marks, plain=schema.text_format.is_plain)


def _convert_cell(cells: InputColumns, feature: int, source: str) -> Sql:
    dialect, schema = cells.dialect, cells.model.schema
    column, marks = schema.columns[feature], schema.missing_marks
    # Qualified: SQLite reads an unknown bare name as text.
    raw = quote_column(column.name, source)
    if column.kind == "numeric":
        cell = read_cell(raw, feature, schema, dialect, text=cells.text)
        is_text = None if cells.text else dialect.find_text(raw)
        return cell if is_text is None else make_case([(is_text, raw.copy())], cell)
    tests = [(dialect.make_text(level), code) for code, level in enumerate(column.levels)]
    unseen: Sql | None = None
    if cells.model.unknown == "error":
        gone = [make_null_test(raw)]
        gone += [dialect.is_missing_marker(raw.copy(), marks)] if cells.text else []
        unseen = make_case([(test, exp.Null()) for test in gone if test is not None], _UNSEEN_CODE)
    if not tests:
        return unseen or make_cast(exp.Null(), "BIGINT")
    text = read_cell(raw, feature, schema, dialect, text=cells.text)
    return make_switch(text, tests, unseen)


def _list_refusals(cells: InputColumns, feature: int, refuse: str) -> list[tuple[Sql, Sql]]:
    """Return the conditions under which a row is refused, and the value of `REFUSED` for each."""
    model, dialect = cells.model, cells.dialect
    cell = cells.get_column(feature)
    is_text = dialect.is_not_number(cell) if cells.text else dialect.find_text(cell)
    unseen = combine(exp.EQ, cell, _UNSEEN_CODE) if model.unknown == "error" else None
    made: list[tuple[Sql, Sql]] = []
    for condition, reason in list_refusals(model, feature, cell, unseen, is_text):
        message = f"column {model.schema.names[feature]!r} {reason}"
        refusal = dialect.make_refusal(f"treekit: {ascii(message)[1:-1]}", cell)
        made.append((condition, as_sql(1) if refuse == "null" else refusal))
    return made


def list_refusals(
    model: Model | RuleList, feature: int, cell: Sql, unseen: Sql | None, is_text: Sql | None
) -> list[tuple[Sql, str]]:
    """Return the conditions of a cell under which its row is refused, each with its reason.

    Parameters
    ----------
    unseen : Sql, optional
        Test for a category that training did not see, if it is not missing.
    is_text : Sql, optional
        Test for text in a column of numbers, if it may hold any.
    """
    nominal, found = model.schema.columns[feature].kind == "nominal", []
    if nominal and unseen is not None:
        found.append((unseen, "holds a category that training did not see"))
    if model.missing == "error":
        found.append((make_null_test(cell), "is missing, which the model refuses"))
    if not nominal and is_text is not None:
        found.append((is_text, "holds text, not a number"))
    return found


# ---------------------------------------------------------------- sql names
# Names that an engine would cut, fold or misread are refused.


def parse_keys(keys: str) -> list[str]:
    """Parse the setting ``keys``: comma-separated names, or a JSON list.

    Raises
    ------
    ExportError
        If the JSON list is not a list of text.
    """
    if not keys.lstrip().startswith("["):
        return [name.strip() for name in keys.split(",")] if keys.strip() else []
    try:
        names = json.loads(keys)
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ExportError(f'keys={keys!r} is not a JSON list of names, such as ["id", "a, b"]')
    return names


_TABLE_PART = re.compile(r'"((?:[^"]|"")+)"|([^\W\d][\w$]*)')
_FILE_SUFFIXES = frozenset("parquet csv tsv json jsonl ndjson gz zst arrow feather xlsx".split())  # noqa: SIM905
"""Last part of a name that is a file for DuckDB."""


def parse_table(table: str, dialect: Dialect) -> list[str]:
    """Parse the setting ``table``: a name, with its schema and catalog before it.

    Parts are plain words or quoted (``main."my.table"``).  Any other text is one name, such as
    ``my table``, or a file for DuckDB: ``rows.csv``, ``rows/*.parquet``.

    Raises
    ------
    ExportError
        If there are more parts than the engine knows.
    """
    parts, at = [], 0
    while (found := _TABLE_PART.match(table, at)) is not None:
        parts.append(found[1].replace('""', '"') if found[1] else found[2])
        at = found.end()
        if at == len(table):
            break
        if table[at] != ".":
            return [table]
        at += 1
    if not parts or at != len(table) or table.endswith("."):
        return [table]
    if dialect.name == "duckdb" and len(parts) == 2 and not table.endswith('"'):
        parts = [table] if parts[1].lower() in _FILE_SUFFIXES else parts
    if len(parts) > dialect.max_table_parts:
        raise ExportError(
            f"table={table!r} has {len(parts)} parts; {dialect.title} knows "
            f"{dialect.max_table_parts}: quote a name that contains dots, such as '\"a.b\"'"
        )
    return parts


def check_names(names: Sequence[str], role: str, dialect: Dialect) -> None:
    """Check that the engine supports the names, and that they are distinct for it.

    Raises
    ------
    ExportError
    """
    seen: dict[str, str] = {}
    for name in names:
        problem = find_name_problem(name, dialect)
        if problem:
            raise ExportError(f"{role} {name[:80]!r} {problem}: rename it")
        alike = _fold_name(name, dialect)
        if alike in seen:
            raise ExportError(
                f"{role}s {seen[alike][:80]!r} and {name[:80]!r} are equal in {dialect.title}: "
                "rename one of them"
            )
        seen[alike] = name


def find_name_problem(name: str, dialect: Dialect) -> str:
    """Return why the engine does not support a name, as the end of a sentence, or ""."""
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        return "is not valid Unicode text"
    if "\0" in name:
        return f"contains a NUL, which {dialect.title} does not allow in a name"
    if problem := dialect.explain_bad_name(name):
        return f"{problem}, which {dialect.title} does not allow in a name"
    if not name and not dialect.allows_empty_name:
        return f"is empty, which {dialect.title} does not allow"
    if dialect.max_name_bytes and size > dialect.max_name_bytes:
        return f"has {size} bytes, and {dialect.title} truncates names at {dialect.max_name_bytes}"
    if dialect.max_name_characters and len(name) > dialect.max_name_characters:
        most = dialect.max_name_characters
        return f"has {len(name)} characters, and {dialect.title} takes up to {most}"
    if name in dialect.reserved_columns:
        return f"is a system column of every table of {dialect.title}"
    return ""


def _fold_name(name: str, dialect: Dialect) -> str:
    if not dialect.folds_case:
        return name
    if "table" not in dialect.forms:  # MySQL folds all letters
        return name.lower()
    return "".join(c.lower() if c.isascii() else c for c in name)


def make_prediction_names(
    schema: Schema, label: str, probability: str, keys: Sequence[str], dialect: Dialect
) -> tuple[list[str], list[str]]:
    """Name the columns of labels (or numbers) and of probabilities.

    The names are ``label``, or ``label_TARGET`` with several targets, and ``probability_CLASS``,
    or ``probability_TARGET_CLASS``.  If a name is not supported by the
    engine, or two are equal, positions replace the names of all targets or classes.
    """
    target_names = [output.name for output in schema.outputs]
    places = [str(k) for k in range(len(target_names))]
    for targets, number in itertools.product((target_names, places), (False, True)):
        labels = [f"{label}_{target}" for target in targets] if schema.more else [label]
        shares = [
            "_".join([probability, *([target] if schema.more else []), str(k if number else cls)])
            for target, output in zip(targets, schema.outputs, strict=True)
            for k, cls in enumerate(output.classes)
        ]
        names = [*keys, *labels, *shares]
        problems = [find_name_problem(name, dialect) for name in names]
        if not any(problems) and len({_fold_name(name, dialect) for name in names}) == len(names):
            return labels, shares
    check_names([*keys, *labels, *shares], "the answer column", dialect)
    return labels, shares
