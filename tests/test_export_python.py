"""The Python file needs nothing, and answers bit for bit as the definition does."""

from __future__ import annotations

import csv
import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import evaluate
from tests.reference.artifacts import import_python
from tests.reference.models import chain, mixed_schema, probe_rows, random_model, text_row
from tests.strategies import ALL_KINDS, matrices, models
from treekit.data.schema import Column, Schema
from treekit.export.python import export_python
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model

FORMS = ("if_else", "table")
SLOW = settings(
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
NAN = float("nan")


def assert_all_forms(model: Model, rows: list[list[float]] | None = None) -> None:
    schema = model.schema
    forms = ["table"] if model.missing == "fractional" else FORMS
    modules = [import_python(model, form=form) for form in forms]
    for row in probe_rows(model) if rows is None else rows:
        cells = text_row(schema, row)
        try:
            answer = evaluate.predict(model, row)
        except evaluate.Refused as refused:
            for names in modules:
                with pytest.raises(ValueError, match=f"column '{refused}'"):
                    names["predict"](cells)
            continue
        if schema.task == "regression":
            for names in modules:
                assert names["predict"](cells) == answer, row
            continue
        codes = answer if schema.more else [answer]
        labels = [output.classes[k] for output, k in zip(schema.outputs, codes, strict=True)]
        wanted = evaluate.probabilities(model, row)
        for names in modules:
            assert names["predict"](cells) == (labels if schema.more else labels[0]), row
            shares = names["predict_proba"](cells)
            shares = list(itertools.chain(*shares)) if schema.more else shares
            assert shares == wanted, row


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("classes", [("no", "yes"), (3, 1, 2), ()])
@pytest.mark.parametrize(
    ("seed", "n_splits"),
    [(0, 20), *(pytest.param(k, 60, marks=pytest.mark.matrix) for k in (1, 2))],
)
def test_all_kinds_of_splits_agree(dtype, classes, seed, n_splits):
    schema = mixed_schema(classes, dtype=dtype)
    assert_all_forms(random_model(seed, schema, n_splits=n_splits))


@SLOW
@given(st.data())
def test_models_of_any_kind_agree(data):
    model = data.draw(models(kinds=ALL_KINDS))
    assert_all_forms(model, data.draw(matrices(model)).tolist())


@pytest.mark.parametrize("missing", ["direction", "error"])
@pytest.mark.parametrize("unknown", ["missing", "error"])
def test_policies_refuse_rows_and_name_the_column(missing, unknown):
    model = random_model(5, mixed_schema(), n_splits=12, missing=missing, unknown=unknown)
    assert_all_forms(model)


@pytest.mark.parametrize("classes", [("only",), ("a", "b"), ()])
def test_single_leaves_agree(classes):
    schema = mixed_schema(classes)
    tree = build_tree(leaf([2.0, 5.0] if len(classes) == 2 else [3.0]), schema)
    assert_all_forms(make_model(schema, [tree] * 3))


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("depth", [900, pytest.param(5000, marks=pytest.mark.matrix)])
def test_deep_chains_agree(side, depth):
    model = chain(depth, mixed_schema(), side)
    xs = [NAN, *np.linspace(-1, depth + 1, 20).tolist(), float(depth), 0.0]
    assert_all_forms(model, [[x, 0.0, 0.0, 0.0, 0.0] for x in xs])


@pytest.mark.matrix
def test_a_thousand_classes_agree():
    schema = mixed_schema(tuple(range(1000)))
    assert_all_forms(chain(1500, schema), [[float(x), 0, 0, 0, 0] for x in range(0, 1500, 50)])


def test_an_outlier_leaves_the_other_numbers_of_a_regression_exact():
    schema = mixed_schema(())
    trees = [
        build_tree(threshold(0, 5.0, leaf(1e9), leaf(0.1 * n + 1e-7)), schema) for n in range(20)
    ]
    assert_all_forms(make_model(schema, trees))


@pytest.mark.parametrize("classes", [(True, False), (0.5, -1e300), ("1", "2"), (7, 2**70)])
def test_labels_keep_their_type(classes):
    model = random_model(1, mixed_schema(classes))
    names = import_python(model)
    assert names["CLASSES"] == classes
    assert [type(label) for label in names["CLASSES"]] == [type(label) for label in classes]
    assert type(names["predict"]([1.0] * 2 + [2.0, None, None])) is type(classes[0])


def test_a_row_may_be_a_dict_in_any_order():
    model = random_model(1, mixed_schema())
    names = import_python(model)
    for row in probe_rows(model):
        cells = text_row(model.schema, row)
        named = dict(reversed(list(zip(model.schema.names, cells, strict=True))))
        assert names["predict_proba"](named | {"other": 1}) == names["predict_proba"](cells)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1.0], "the row has 1 cells, the model takes 5"),
        ({"size": 1}, "the row has no column 'colour'"),
        ([1, "red", "much", None, None], "column 'age' holds 'much', which is no number"),
        ([1, "red", "1_000", None, None], "column 'age' holds '1_000', which is no number"),
        ([1, "red", [], None, None], "which is no number"),
    ],
)
def test_rows_that_do_not_fit_are_refused_in_words(row, message):
    with pytest.raises(ValueError, match=message):
        import_python(random_model(1, mixed_schema()))["predict"](row)


def test_numbers_of_any_kind_and_marks_of_missing_values_are_read():
    schema = Schema(
        (Column("n"), Column("c", "nominal", ("1", "True", "2.5", "?"))), classes=(0, 1)
    )
    low = subset(1, ["1", "?"], leaf([9, 1]), leaf([8, 2]))
    model = make_model(schema, [build_tree(threshold(0, 2.5, low, leaf([1, 9])), schema)])
    first = import_python(model)["predict_proba"]
    tiny = first([1.0, "1"])
    for cell in (1, 1.0, np.float32(1), np.int64(1), "1", " 1 ", True):
        for code in (1, 1.0, "1", np.int16(1), "?"):
            assert first([cell, code]) == tiny
    assert first([1, True]) == first([1, np.True_]) == first([1, "True"]) == first([0, 2.5])
    assert first([10**400, "1"]) == first([np.inf, 1])
    assert first([-(10**400), "1"]) == tiny
    assert first(["NA", "1"]) == first([None, "1"]) == first([NAN, "1"]) == first(["?", "1"])


@pytest.mark.parametrize("form", FORMS)
def test_the_file_scores_a_table_as_a_script(tmp_path, form):
    schema = Schema(
        (Column("größe"), Column("c", "nominal", ("1", "True", "a,b"))), classes=("ja", "nein")
    )
    root = threshold(0, 2.5, subset(1, ["1", "True"], leaf([9, 1]), leaf([5, 3])), leaf([1, 9]))
    model = make_model(schema, [build_tree(root, schema)])
    (source,) = export_python(model, "m", form=form).values()
    (tmp_path / "m.py").write_bytes(source)
    table = '\ufeffc,größe,other\n"a,b",1,x\n1.0,1e0,x\n\nTRUE,2.5,x\nnew,,x\n?,3,x\n'
    (tmp_path / "rows.csv").write_text(table, encoding="utf-8")
    command = [sys.executable, "-I", "-W", "error", "m.py", "rows.csv", "--proba"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    answers = list(csv.reader(done.stdout.decode().splitlines()))
    assert answers[0] == ["target", "target=ja", "target=nein"]
    rows = [[1.0, 2.0], [1.0, 0.0], [2.5, 1.0], [NAN, NAN], [3.0, NAN]]
    expected = [evaluate.probabilities(model, row) for row in rows]
    assert [list(map(float, answer[1:])) for answer in answers[1:]] == expected
    assert [answer[0] for answer in answers[1:]] == ["ja", "ja", "ja", "nein", "nein"]


def test_a_script_says_what_is_wrong_with_a_table(tmp_path):
    (source,) = export_python(random_model(1, mixed_schema()), "m").values()
    (tmp_path / "m.py").write_bytes(source)
    (tmp_path / "rows.csv").write_text("size,colour,age,town,void\n1,red\n")
    command = [sys.executable, "-I", "m.py", "rows.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "error: line 2 has 2 cells, not 5"


def test_source_is_ascii_and_of_bounded_nesting():
    schema = mixed_schema(("ja", "日本"))
    (source,) = export_python(chain(900, schema), "m", form="if_else").values()
    lines = source.decode("ascii").splitlines()
    assert max(len(line) - len(line.lstrip()) for line in lines) <= 4 * 18


def test_the_marks_of_the_model_are_those_of_the_file():
    schema = Schema(
        (Column("n"), Column("c", "nominal", ("a", "b"))), classes=(0, 1), missing_marks=("-999",)
    )
    root = threshold(0, 2.5, subset(1, ["a"], leaf([9, 1]), leaf([5, 3])), leaf([1, 9]))
    model = make_model(schema, [build_tree(root, schema)], unknown="error")
    names = import_python(model)
    assert names["MISSING_MARKS"] == {"-999"}
    assert names["predict_proba"](["-999", "-999"]) == names["predict_proba"]([None, None])
    assert names["predict_proba"]([names["_typed"]("n", "-999"), names["_typed"]("c", "-999")]) == (
        names["predict_proba"]([None, None])
    )
    with pytest.raises(ValueError, match="no number"):
        names["predict"](["NA", "a"])
