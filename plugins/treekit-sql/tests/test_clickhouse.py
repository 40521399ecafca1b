"""Trees as SQL for ClickHouse predict equal bits in chdb."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from treekit_sql.exporter import export_sql

from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.reference.models import mixed_schema, probe_rows, random_model, text_row
from tests.runtimes import need
from treekit.data.schema import Column, Schema
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model

pytestmark = pytest.mark.system
READABLE = [
    *("one_leaf", "one_number", "float32_neighbours", "float64_neighbours", "missing_only"),
    *("vanishing", "bool_labels", "int_labels"),
]
WORDS = (
    "a",
    "A",
    "a ",
    "á",
    "it's",
    'x"y',
    "x\\y",
    "\\",
    "\\'",
    "%s",
    "国",
    "😀",
    "a\nb",
    "{x}",
    "",
)


class ClickHouse:
    """A session of chdb, whose answers are read as JSON."""

    def __init__(self) -> None:
        from chdb.session import Session

        self.session = Session()
        self.session.query("SET output_format_json_quote_denormals = 1")

    def run(self, query: str) -> list[list[Any]]:
        text = query.strip().removesuffix(";")  # its parser adds the format at the end
        answer = self.session.query(text, "JSONCompactEachRow").data()
        return list(map(json.loads, answer.splitlines()))

    def fill(self, columns: dict[str, str], rows: Sequence[Sequence[Any]]) -> None:
        """Make the table "rows": a type for each name, and cells of each row."""
        self.session.query("DROP TABLE IF EXISTS rows")
        names = [name.replace("\\", "\\\\").replace('"', '\\"') for name in columns]
        own = ", ".join(
            f'"{name}" {kind}' for name, kind in zip(names, columns.values(), strict=True)
        )
        self.session.query(f"CREATE TABLE rows ({own}) ENGINE = Memory")
        texts = [f"({', '.join(map(write_cell, row))})" for row in rows]
        for k in range(0, len(texts), 200):
            self.session.query(f"INSERT INTO rows VALUES {', '.join(texts[k : k + 200])}")


def write_cell(cell: Any) -> str:
    if cell is None:
        return "NULL"
    if isinstance(cell, str):
        return "'" + "".join(f"\\x{byte:02x}" for byte in cell.encode()) + "'"
    return repr(cell) if isinstance(cell, int) else repr(float(cell))


@pytest.fixture(scope="module")
def engine() -> Iterator[ClickHouse]:
    need("chdb")
    made = ClickHouse()
    yield made
    made.session.close()


def write(model: Model, **settings: Any) -> str:
    return export_sql(model, "m", dialect="clickhouse", **settings)["m.sql"].decode()


def check(engine: ClickHouse, model: Model, rows: Any) -> None:
    rows = np.asarray(rows, dtype=np.float64)
    schema, expected = model.schema, wanted(model, rows)
    kinds = {"numeric": "Nullable(Float64)", "nominal": "Nullable(String)"}
    columns = {"n": "Int64"} | {column.name: kinds[column.kind] for column in schema.columns}
    engine.fill(columns, [[k, *text_row(schema, row)] for k, row in enumerate(rows)])
    for number, *answers in engine.run(write(model, keys="n")):
        if schema.classes:
            assert answers.pop(0) == schema.classes[expected.label[number, 0]]
        assert answers == expected.number[number].tolist()


@pytest.mark.parametrize("name", READABLE)
def test_extreme_models_predict_the_same_bits(name: str, engine: ClickHouse) -> None:
    model = EXTREMES[name]()
    check(engine, model, extreme_rows(model, most=150))


@pytest.mark.parametrize("seed", range(4))
def test_random_trees_predict_the_same_bits(seed: int, engine: ClickHouse) -> None:
    schema = mixed_schema(
        ("no", "yes") if seed % 2 else (), dtype=("float32", "float64")[seed // 2]
    )
    model = random_model(seed, schema, n_trees=1, n_splits=12)
    check(engine, model, probe_rows(model, 60, seed))


@pytest.mark.parametrize("kind", ["String", "Nullable(String)", "LowCardinality(String)"])
def test_categories_are_compared_by_bytes(kind: str, engine: ClickHouse) -> None:
    schema = Schema((Column("c", "nominal", WORDS),), classes=(*WORDS, "other"))
    leaves = [leaf(row) for row in np.eye(len(WORDS) + 1).tolist()]
    root = leaves.pop()
    for word, own in zip(WORDS, leaves, strict=True):
        root = subset("c", [word], own, root, missing=1)
    engine.fill({"c": kind}, [[word] for word in (*WORDS, "B", "á ")])
    answers = engine.run(write(make_model(schema, [build_tree(root, schema)])))
    assert [row[0] for row in answers] == [*WORDS, "other", "other"]


def numbers_model(at: float, dtype: str, name: str = "x") -> Model:
    schema = Schema((Column(name),), classes=("no", "'; DROP TABLE rows; --"), dtype=dtype)
    root = threshold(0, at, leaf([1, 0]), leaf([0, 1]), 1)
    return make_model(schema, [build_tree(root, schema)])


LARGE = [base + k for base in (2**53, 2**54 + 2**30, 10**17) for k in (-1, 0, 1, 2, 3)]
DECIMALS = ["2.45", "2.45000000000000000001", "0.1", "0.10000000000000000001"]
NUMBERS = [("Int64", LARGE), ("Float32", [2.45, 0.1]), ("Decimal(38, 20)", DECIMALS)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("kind", "cells"), NUMBERS, ids=[kind for kind, _ in NUMBERS])
def test_every_type_of_number_is_read_as_a_double(
    kind: str, cells: list[Any], dtype: str, engine: ClickHouse
) -> None:
    engine.fill({"x": kind}, [[cell] for cell in cells])
    doubles = [float(np.float32(cell)) if kind == "Float32" else float(cell) for cell in cells]
    for at in (2.45, 0.1, float(2**53), float(2**54), 1e17):
        model = numbers_model(float(np.float32(at)) if dtype == "float32" else at, dtype)
        expected = model.predict({"x": np.array(doubles)}).tolist()
        assert [row[0] for row in engine.run(write(model))] == expected


@pytest.mark.parametrize("cell", ["abc", "", "1.234", "inf"])
def test_text_in_a_numeric_column_raises_an_error(cell: str, engine: ClickHouse) -> None:
    engine.fill({"x": "String"}, [[cell]])
    with pytest.raises(RuntimeError, match="Illegal types String and Float64"):
        engine.run(write(numbers_model(2.45, "float64")))


def test_nan_is_missing_and_hostile_names_are_quoted(engine: ClickHouse) -> None:
    name = "x`\"; DROP TABLE rows; -- ' \\ %s {y}"
    engine.fill({name: "Nullable(Float64)"}, [[0.0], [9.0], [math.nan], [None]])
    model = numbers_model(2.5, "float32", name)
    no, other = model.schema.classes
    assert [row[0] for row in engine.run(write(model))] == [no, other, other, other]
    assert engine.run("SELECT toInt32(count()) FROM rows") == [[4]]
