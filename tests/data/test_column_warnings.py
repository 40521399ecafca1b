"""How columns are read: warnings with remedies, identifiers, report and declaration."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import treekit
from tests.examples import examples
from treekit.cli import main
from treekit.data.column_report import read_declaration
from treekit.data.dataset import make_dataset, make_dataset_from_xy
from treekit.errors import DataError, SettingError, TreekitWarning


def csv_of(folder: Path, columns: dict[str, list[str]], name: str = "t.csv") -> Path:
    path = folder / name
    rows = [columns, *zip(*columns.values(), strict=True)]
    quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    path.write_text("\n".join(quoted) + "\n", encoding="utf-8")
    return path


def read(source, target="y", **how):
    """Make a dataset; return it with the warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        data = make_dataset(source, target, **how)
    assert all(issubclass(one.category, TreekitWarning) for one in said)
    return data, [str(one.message) for one in said]


NUMBERS = [str(20_000 + 317 * at) for at in range(60)]
CLASSES = ["no", "yes"] * 30

# ---------------------------------------------------------------- numbers that become names


@pytest.mark.parametrize("mark", ["NULL", "N/A", "n/a", "#N/A", "<NA>", "-nan", " NULL ", "?", ""])
def test_usual_missing_value_marks_in_a_numeric_column_are_missing(tmp_path, mark):
    path = csv_of(tmp_path, {"x": [*NUMBERS[:-1], mark], "y": CLASSES})
    for source in (path, pd.read_csv(path, dtype=object, keep_default_na=False).to_numpy()):
        target = "y" if source is path else "x1"
        data, said = read(source, target)
        assert data.schema.columns[0].kind == "numeric"
        assert np.isnan(data.columns[0]).tolist() == [False] * 59 + [True]
        assert said == []


@pytest.mark.parametrize("mark", ["NULL", "N/A", "n/a"])
def test_numeric_missing_value_marks_are_categories_in_a_nominal_column(tmp_path, mark):
    path = csv_of(tmp_path, {"x": ["a", "b", mark] * 20, "y": CLASSES})
    assert mark in read(path)[0].schema.columns[0].levels


def test_declared_missing_value_marks_replace_the_usual_ones(tmp_path):
    path = csv_of(tmp_path, {"x": [*NUMBERS[:-2], "NULL", "-999"], "y": CLASSES})
    data, said = read(path, missing_marks=["-999"])
    assert data.schema.columns[0].kind == "nominal"
    assert "59 cells" in said[0]
    assert "'NULL'" in said[0]
    data, said = read(path, missing_marks=["-999", "NULL"])
    assert np.isnan(data.columns[0]).sum() == 2
    assert said == []


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (["unknown"], ["'unknown'", "missing_marks", "nominal=['x']"]),
        (["1,234.5", "2,000"], ["thousands=','"]),
        (["12,5", "3,75"], ["decimal=','"]),
        (["1.234,5", "1.234.567,8"], ["decimal=','", "thousands='.'"]),
        (["1 234,5", "12,5"], ["decimal=','", "thousands=' '"]),
        (["$12", "$13.50"], ["like 1234.5"]),
        (["45 %", "7%"], ["like 1234.5"]),
    ],
)
def test_mostly_numeric_column_warns_with_a_remedy(tmp_path, odd, words):
    path = csv_of(tmp_path, {"x": [*NUMBERS[: -len(odd)], *odd], "y": CLASSES})
    data, said = read(path)
    assert data.schema.columns[0].kind == "nominal"
    assert len(said) == 1
    for word in [*words, "'x'", odd[0]]:
        assert word in said[0]
    assert read(path, nominal=["x"])[1] == []


@pytest.mark.parametrize(
    "cells",
    [
        ["2024-01-31", "2024-02-01", "2024-03-01"],
        ["0-4", "5-9", "10-14"],
        ["12:30", "13:45", "7:05"],
        ["10.0.0.1", "10.0.0.2", "192.168.1.1"],
        ["v1", "v2", "v3"],
        ["1", "2", "a"],
    ],
)
def test_names_with_digits_do_not_warn(tmp_path, cells):
    assert read(csv_of(tmp_path, {"x": cells * 20, "y": CLASSES}))[1] == []


@pytest.mark.parametrize(
    "make",
    [
        lambda cells: pd.DataFrame({"x": pd.Series(cells, dtype=object), "y": CLASSES}),
        lambda cells: pd.DataFrame({"x": pd.Series(cells, dtype="string"), "y": CLASSES}),
        lambda cells: pl.DataFrame({"x": cells, "y": CLASSES}),
        lambda cells: pa.table({"x": cells, "y": CLASSES}),
        lambda cells: {"x": cells, "y": CLASSES},
    ],
)
def test_numeric_text_of_a_text_column_is_nominal_with_a_warning(make):
    table = make(["1", "2", "10"] * 20)
    data, said = read(table)
    assert data.schema.columns[0].levels == ("1", "2", "10")
    assert len(said) == 1
    assert "numeric=['x']" in said[0]
    assert read(table, nominal=["x"])[1] == []
    data, said = read(table, numeric=["x"])
    assert data.columns[0].tolist() == [1, 2, 10] * 20
    assert said == []


def test_number_notation_is_stored_in_the_model(tmp_path):
    cells = [
        f"{at // 1000}.{at % 1000:03},5" if at >= 1000 else f"{at},5" for at in range(950, 1050)
    ]
    path = csv_of(tmp_path, {"x": cells, "y": ["no"] * 50 + ["yes"] * 50})
    data, said = read(path, decimal=",", thousands=".")
    assert said == []
    assert data.columns[0].tolist() == [at + 0.5 for at in range(950, 1050)]
    model = treekit.train(path, "y", decimal=",", thousands=".", seed=0)
    model.save(tmp_path / "m.treekit")
    loaded = treekit.load(tmp_path / "m.treekit")
    for own in (model, loaded):
        assert own.predict(path).tolist() == ["no"] * 50 + ["yes"] * 50
        assert own.predict({"x": ["999,5", "1.000,5"]}).tolist() == ["no", "yes"]
        assert own.predict({"x": [999.5, 1000.5]}).tolist() == ["no", "yes"]
    assert treekit.train(path, "y", nominal=["x"], seed=0).schema.notation != loaded.schema.notation


@pytest.mark.parametrize(
    "how",
    [{"decimal": ""}, {"decimal": "ab"}, {"decimal": "1"}, {"thousands": "."}, {"thousands": "-"}],
)
def test_an_invalid_notation_is_refused(how):
    with pytest.raises(SettingError, match=r"decimal|thousands"):
        make_dataset({"x": [1, 2], "y": [0, 1]}, "y", **how)


# ---------------------------------------------------------------- texts that are one number


def test_different_texts_of_one_number_warn_unless_the_kind_is_declared(tmp_path):
    path = csv_of(tmp_path, {"x": ["250.1", "250.10", "401.9"] * 20, "y": CLASSES})
    _, said = read(path)
    assert len(said) == 1
    for word in ("'x'", "'250.1'", "'250.10'", "nominal=['x']"):
        assert word in said[0]
    assert read(path, numeric=["x"])[1] == []
    data, said = read(path, nominal=["x"])
    assert data.schema.columns[0].levels == ("250.1", "250.10", "401.9")
    assert said == []


DIGITS = st.text("0123456789", min_size=1, max_size=20)
CODES = st.one_of(DIGITS, st.builds("{}.{}".format, DIGITS, DIGITS), st.just("+1"), st.just("1E3"))


@given(st.lists(CODES, min_size=2, max_size=6, unique=True))
@settings(max_examples=examples(60), deadline=None)
def test_categories_keep_their_texts_from_every_source(tmp_path_factory, codes):
    folder = tmp_path_factory.mktemp("codes")
    columns = {"x": codes * 2, "y": (["a", "b"] * len(codes))}
    path = csv_of(folder, columns)
    pa.parquet.write_table(pa.table(columns), folder / "t.parquet")
    sources = [
        path,
        folder / "t.parquet",
        columns,
        pd.DataFrame(columns),
        pd.DataFrame(columns).convert_dtypes(dtype_backend="pyarrow"),
        pl.DataFrame(columns),
        pa.table(columns),
    ]
    model = treekit.train(path, "y", nominal=["x"], criterion="entropy", seed=0)
    codes_of = {code: at for at, code in enumerate(model.schema.columns[0].levels)}
    assert set(codes_of) == set(codes)
    for source in sources:
        data, said = read(source, nominal=["x"])
        assert data.schema.columns == model.schema.columns
        assert data.columns[0].tolist() == [codes_of[code] for code in codes * 2]
        assert said == []
    # As class labels, too.
    for source in sources:
        data, _ = read(source, "x", task="classification")
        labels = data.schema.classes
        assert [str(labels[code]) for code in data.y] == codes * 2
    array = np.array(list(zip(*columns.values(), strict=True)), dtype=object)
    for cells in (array, array.astype(str), array.tolist()):
        data, _ = read(cells, "x1", nominal=["x0"])
        assert set(data.schema.columns[0].levels) == set(codes)


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        (["01", "1", "02"], ("01", "1", "02")),
        (["1.10", "1.1", "2.0"], ("1.1", "1.10", "2.0")),
        (["+1", "-1"], ("-1", "+1")),
        (["1", "2", "10"], (1, 2, 10)),
        ([" 1", "2"], (1, 2)),
        (["1.0", "2.0"], (1.0, 2.0)),
        (["0.5", "2.5"], (0.5, 2.5)),
        (["89460000000000000001", "89460000000000000002"], None),
        (["9007199254740993", "9007199254740992"], (9007199254740992, 9007199254740993)),
        (["TRUE", "FALSE"], (False, True)),
    ],
)
def test_class_labels_of_a_file_are_numbers_only_if_all_round_trip(tmp_path, cells, classes):
    path = csv_of(tmp_path, {"x": ["a", "b"] * len(cells), "y": cells * 2})
    data = make_dataset(path, "y", task="classification")
    assert data.schema.classes == (classes or tuple(cells))
    assert list(map(type, data.schema.classes)) == list(map(type, classes or cells))


def test_target_that_may_be_classes_or_numbers_warns(tmp_path):
    path = csv_of(tmp_path, {"x": ["a", "b", "c"] * 20, "y": ["1.10", "1.1", "2.5"] * 20})
    _, said = read(path)
    assert "'1.1' and '1.10'" in said[0]
    assert "task='classification'" in said[0]
    path = csv_of(tmp_path, {"x": ["a", "b", "c"] * 20, "y": ["1,5", "2,5", "3,0"] * 20})
    data, said = read(path)
    assert data.schema.task == "classification"
    assert "decimal=','" in said[0]
    data, said = read(path, decimal=",")
    assert data.schema.task == "regression"
    assert said == []


# ---------------------------------------------------------------- identifiers


def churn(n: int = 200) -> dict[str, list]:
    rng = np.random.default_rng(0)
    return {
        "customer": [f"{at:04}-{'ABCDE'[at % 5]}" for at in rng.permutation(n).tolist()],
        "plan": rng.choice(["basic", "plus"], n).tolist(),
        "months": rng.integers(1, 70, n).tolist(),
        "churn": rng.choice(["no", "yes"], n).tolist(),
    }


def test_identifier_columns_are_ignored_with_one_warning():
    table = churn()
    data, said = read(table, "churn")
    assert data.schema.names == ("plan", "months")
    assert len(said) == 1
    assert "'customer' is left out: 200 categories in 200 rows look like an identifier" in said[0]
    assert "nominal=['customer']" in said[0]
    for how in ({"nominal": ["customer"]}, {"levels": {"customer": table["customer"]}}):
        data, said = read(table, "churn", **how)
        assert data.schema.names == ("customer", "plan", "months")
        assert said == []
    with pytest.warns(TreekitWarning, match="look like an identifier"):
        model = treekit.train(table, "churn", seed=0)
    assert model.predict(pd.DataFrame(table).drop(columns="customer")).shape == (200,)


def test_columns_of_repeated_names_are_not_identifiers():
    table = churn()
    table["customer"] = [f"N{at % 100}" for at in range(200)]  # such as the tail numbers of planes
    assert read(table, "churn")[1] == []
    table["customer"] = [None] * 190 + [f"N{at}" for at in range(10)]
    assert read(table, "churn")[1] == []


def test_identifier_column_is_kept_if_it_is_the_only_input():
    table = churn()
    data, said = read({name: table[name] for name in ("customer", "churn")}, "churn")
    assert data.schema.names == ("customer",)
    assert "look like an identifier" in said[0]


def test_estimators_and_evaluation_warn_of_identifiers():
    table = churn()
    frame = pd.DataFrame(table)
    tree = treekit.DecisionTreeClassifier(random_state=0)
    with pytest.warns(
        TreekitWarning, match="'customer': 200 categories in 200 rows look like an identifier"
    ):
        tree.fit(frame.drop(columns="churn"), frame["churn"])
    assert tree.n_features_in_ == 3
    with pytest.warns(TreekitWarning, match="'customer' is left out: 200 categories"):
        treekit.evaluate(table, target="churn", cv=2, seed=0)


def test_row_number_column_warns():
    table = churn() | {"number": list(range(1, 201))}
    data, said = read({**table, "customer": table["plan"]}, "churn")
    assert "number" in data.schema.names
    assert len(said) == 1
    assert "'number' contains each integer from 1 to 200 once" in said[0]
    assert "ignore=['number']" in said[0]
    for other in (
        [2 * at for at in range(200)],
        [at + 0.5 for at in range(200)],
        [at % 100 for at in range(200)],
    ):
        assert read({**table, "customer": table["plan"], "number": other}, "churn")[1] == []
    x = pd.DataFrame({"number": range(200), "months": table["months"]})
    with pytest.warns(TreekitWarning, match="like a row index"):
        make_dataset_from_xy(x, table["churn"])


# ---------------------------------------------------------------- report and declaration


def make_report_table(tmp_path: Path) -> Path:
    table = {name: list(map(str, cells)) for name, cells in churn().items()}
    table["months"][:3] = ["NULL", "", "NULL"]
    table["code"] = ["01", "1"] * 100
    return csv_of(tmp_path, table)


def test_columns_report_shows_how_a_table_is_read(tmp_path):
    path = make_report_table(tmp_path)
    found = treekit.columns(path, "churn")
    by_name = {column.name: column for column in found.columns}
    assert found.rows == 200
    assert [c.role for c in found.columns] == ["ignored", "input", "input", "target", "input"]
    assert by_name["months"].kind == "numeric"
    assert by_name["months"].marks == {"NULL": 2, "": 1}
    assert by_name["months"].missing == 3
    assert by_name["plan"].levels == ("basic", "plus")
    assert by_name["code"].distinct == 1
    assert len(found.list_warnings()) == 2
    assert "2 'NULL', 1 empty" in str(found)
    page = found._repr_html_()
    assert "<td>months</td>" in page
    run = CliRunner().invoke(main, ["columns", str(path), "--target", "churn"])
    assert run.exit_code == 0
    assert "3 (2 'NULL', 1 empty)" in run.stdout
    assert run.stderr.count("Warning:") == 2


def test_names_of_columns_are_escaped_in_a_notebook():
    page = treekit.columns({"<b>": ["<i>", "x"] * 3, "y": [0, 1] * 3}, "y")._repr_html_()
    assert "<b>" not in page
    assert "&lt;i&gt;" in page


def test_edited_columns_report_is_accepted_as_schema_of_a_training(tmp_path):
    path, out = make_report_table(tmp_path), tmp_path / "m.treekit"
    run = CliRunner().invoke(main, ["columns", str(path), "--target", "churn", "--json"])
    said = json.loads(run.stdout)
    for column in said["columns"]:
        if column["name"] == "code":
            column["kind"], column["levels"] = "nominal", ["1", "01"]
        if column["name"] == "plan":
            column["levels"] = ["plus", "basic"]
        if column["name"] == "churn":
            column["levels"] = ["yes", "no"]
    declared = tmp_path / "schema.json"
    declared.write_text(json.dumps(said))
    command = ["train", str(path), "--target", "churn", "--seed", "0", "-o", str(out)]
    run = CliRunner().invoke(main, [*command, "--schema", str(declared)])
    assert run.exit_code == 0, run.output
    assert "Warning" not in run.output
    schema = treekit.load(out).schema
    assert {c.name: c.levels for c in schema.columns} == {
        "plan": ("plus", "basic"), "months": (), "code": ("1", "01"),
    }  # fmt: skip
    assert schema.classes == ("yes", "no")
    same = treekit.train(path, "churn", schema=said, seed=0)
    assert same.schema == schema
    other = treekit.train(path, "churn", schema=declared, numeric=["code"], seed=0)
    assert other.schema.columns[2].kind == "numeric"


def test_columns_report_declares_the_number_notation(tmp_path):
    path = csv_of(tmp_path, {"x": [f"{at},5" for at in range(60)], "y": CLASSES})
    found = treekit.columns(path, "y", decimal=",", missing_marks=["-"])
    assert (found.decimal, found.missing_marks) == (",", ("-",))
    assert read_declaration(json.loads(found.to_json())) == found
    data = treekit.train(path, "y", schema=found, seed=0).schema
    assert data.columns[0].kind == "numeric"
    assert data.missing_marks == ("-",)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": 1, "columns": [{"name": 1}]}'])
def test_an_invalid_schema_is_refused(tmp_path, text):
    path = tmp_path / "schema.json"
    path.write_text(text)
    with pytest.raises(DataError, match="invalid schema"):
        treekit.train(churn(), "churn", schema=path)
    with pytest.raises(DataError, match="cannot be read"):
        treekit.train(churn(), "churn", schema=tmp_path / "none.json")
