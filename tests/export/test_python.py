"""Exported Python needs no package and predicts equal bits."""

from __future__ import annotations

import csv
import itertools
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import treekit
from tests.examples import examples
from tests.extremes import EXTREMES, extreme_rows, refused, wanted
from tests.reference import evaluate
from tests.reference.artifacts import export_python, import_python
from tests.reference.models import chain, mixed_schema, probe_rows, random_model, text_row
from tests.runtimes import need
from tests.strategies import ALL_KINDS, matrices, models
from tests.tiers import by_size
from treekit.cli import main
from treekit.data.schema import Column, Schema
from treekit.model.builder import build_tree, leaf, multiway, subset, threshold
from treekit.model.model import Model, make_model
from treekit.model.scoring import leaf_indices
from treekit.verify.answers import REFUSED, Answers, differing

# ---------------------------------------------------------------- export python

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
def test_every_kind_of_split_predicts_equally(dtype, classes, seed, n_splits):
    schema = mixed_schema(classes, dtype=dtype)
    assert_all_forms(random_model(seed, schema, n_splits=n_splits))


@SLOW
@given(st.data())
def test_random_models_of_any_kind_predict_equally(data):
    model = data.draw(models(kinds=ALL_KINDS))
    assert_all_forms(model, data.draw(matrices(model)).tolist())


@pytest.mark.parametrize("missing", ["direction", "error"])
@pytest.mark.parametrize("unknown", ["missing", "error"])
def test_policies_refuse_rows_and_name_the_column(missing, unknown):
    model = random_model(5, mixed_schema(), n_splits=12, missing=missing, unknown=unknown)
    assert_all_forms(model)


@pytest.mark.parametrize("classes", [("only",), ("a", "b"), ()])
def test_single_leaves_predict_equally(classes):
    schema = mixed_schema(classes)
    tree = build_tree(leaf([2.0, 5.0] if len(classes) == 2 else [3.0]), schema)
    assert_all_forms(make_model(schema, [tree] * 3))


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("depth", [900, pytest.param(5000, marks=pytest.mark.matrix)])
def test_deep_chains_predict_equally(side, depth):
    model = chain(depth, mixed_schema(), side)
    xs = [NAN, *np.linspace(-1, depth + 1, 20).tolist(), float(depth), 0.0]
    assert_all_forms(model, [[x, 0.0, 0.0, 0.0, 0.0] for x in xs])


@pytest.mark.matrix
def test_thousand_classes_predict_equally():
    schema = mixed_schema(tuple(range(1000)))
    assert_all_forms(chain(1500, schema), [[float(x), 0, 0, 0, 0] for x in range(0, 1500, 50)])


def test_other_leaf_values_stay_exact_beside_an_outlier():
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
def test_invalid_rows_raise_value_error_with_the_reason(row, message):
    with pytest.raises(ValueError, match=message):
        import_python(random_model(1, mixed_schema()))["predict"](row)


def test_numbers_of_any_type_and_missing_value_marks_are_read():
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
def test_exported_file_predicts_a_table_as_a_script(tmp_path, form):
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


def test_script_reports_the_error_of_an_invalid_table(tmp_path):
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


def test_exported_file_uses_the_missing_value_marks_of_the_model():
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


# ---------------------------------------------------------------- python script
# The Python file as a program and as a typed module, for every extreme model.

PYTHON_SCRIPT_FORMS = [
    (name, form)
    for name, form in itertools.product(EXTREMES, ("if_else", "table"))
    if form == "table" or not name.startswith(("fractional", "five_thousand"))
]


def written(model, folder, **settings):
    (source,) = export_python(model, "m", **settings).values()
    (folder / "m.py").write_bytes(source)
    return folder / "m.py"


def run(folder, *arguments, given=None):
    command = [sys.executable, "-I", "-W", "error", "m.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, input=given, check=False)


@pytest.mark.parametrize(("name", "form"), by_size(PYTHON_SCRIPT_FORMS))
def test_every_extreme_model_predicts_bit_for_bit_and_returns_its_leaves(name, form):
    model = EXTREMES[name]()
    rows = extreme_rows(model, most=25)
    names, schema = import_python(model, form=form), model.schema
    label = np.full((len(rows), len(schema.outputs)), REFUSED)
    number = np.zeros((len(rows), schema.n_values))
    for i, row in enumerate(rows.tolist()):
        cells = text_row(schema, row)
        try:
            said = names["predict"](cells)
        except ValueError:
            continue
        said = said if schema.more else [said]
        label[i], number[i] = 0, 0.0 if schema.task == "classification" else said
        if schema.task == "classification":
            shares = names["predict_proba"](cells)
            number[i] = list(itertools.chain(*shares)) if schema.more else shares
            pairs = zip(schema.outputs, said, strict=True)
            label[i] = [output.classes.index(one) for output, one in pairs]
    assert len(differing(wanted(model, rows), Answers(label, number))) == 0
    some = rows[~refused(model, rows)][:20]
    told = [names["leaves"](text_row(schema, row)) for row in some.tolist()]
    assert np.array_equal(np.array(told).reshape(len(some), -1), leaf_indices(model, some))


def test_exported_file_offers_batch_prediction_and_the_schema():
    model = EXTREMES["mixed"]()
    names = import_python(model)
    cells = [text_row(model.schema, row) for row in extreme_rows(model, most=10).tolist()]
    assert names["predict_batch"](cells) == [names["predict"](row) for row in cells]
    assert names["predict_proba_batch"](iter(cells)) == [names["predict_proba"](c) for c in cells]
    schema = names["SCHEMA"]
    assert schema["treekit"] == treekit.__version__
    assert [column["name"] for column in schema["columns"]] == list(model.schema.names)
    assert schema["columns"][1] == {
        "name": "colour",
        "kind": "nominal",
        "levels": ["red", "green", "blue"],
    }
    assert schema["outputs"] == [{"name": "target", "classes": ["no", "yes"]}]
    assert (schema["missing"], schema["unknown"], schema["input"]) == (
        "direction", "missing", "float32",
    )  # fmt: skip


KINDS = [("mixed", "if_else"), ("surrogates", "table"), ("fractional", "table"),
         ("several_labels", "table"), ("boosted_each", "if_else"), ("several_numbers", "if_else"),
         ("oblique", "table"), ("boosted_counts", "table"), ("costs", "table"),
         ("hostile_names", "table")]  # fmt: skip


@pytest.mark.matrix
def test_the_source_is_typed_and_formatted(tmp_path):
    need("ruff", "mypy")
    for name, form in KINDS:
        (source,) = export_python(EXTREMES[name](), name, form=form).values()
        (tmp_path / f"{name}.py").write_bytes(source)
    for command in (
        ["ruff", "format", "--isolated", "--check", "."],
        ["mypy", "--strict", "--config-file=", "."],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[:3000]


# ------------------------------------------------------------------ scripts


def table_model(**policies):
    schema = Schema(
        (Column("größe"), Column("c", "nominal", ("1", "True", "a,b", " x", "?"))),
        target="ja?",
        classes=("ja", 'nein, "nie"'),
    )
    levels = {level: leaf([i + 1.0, 2.0]) for i, level in enumerate(schema.columns[1].levels)}
    root = threshold(0, 2.5, multiway(1, levels, 3), leaf([1, 9]))
    return make_model(schema, [build_tree(root, schema)], **policies)


TABLE = '\ufeffc,größe,other\n"a,b",1,x\n1,1e0,"x\ny"\n\n True,2.5,x\nnew,,x\n?,3,x\n x, NA ,\n'


@pytest.mark.parametrize("form", ["if_else", "table"])
def test_script_writes_the_output_of_treekit_predict(tmp_path, form):
    model = table_model()
    model.save(tmp_path / "m.treekit")
    written(model, tmp_path, form=form)
    (tmp_path / "rows.csv").write_text(TABLE, encoding="utf-8")
    (tmp_path / "rows.tsv").write_text(TABLE.replace(",", "\t"), encoding="utf-8")
    for extra in ([], ["--proba"]):
        command = ["predict", str(tmp_path / "m.treekit"), str(tmp_path / "rows.csv"), *extra]
        right = CliRunner().invoke(main, command).stdout.encode()
        done = run(tmp_path, "rows.csv", *extra)
        assert (done.returncode, done.stdout, done.stderr) == (0, right, b"")
        assert run(tmp_path, *extra, given=TABLE.encode()).stdout == right
        assert run(tmp_path, "-o", "out.csv", *extra, given=TABLE.encode()).stdout == b""
        assert (tmp_path / "out.csv").read_bytes() == right


def test_refused_rows_have_empty_predictions_and_are_reported_by_line(tmp_path):
    written(table_model(missing="error", unknown="error"), tmp_path)
    done = run(tmp_path, "--proba", given=TABLE.encode())
    assert done.returncode == 1
    answers = done.stdout.decode().splitlines()[1:]
    assert [answer.strip(",") == "" for answer in answers] == [
        False,
        False,
        True,
        True,
        False,
        True,
    ]
    told = done.stderr.decode().splitlines()
    assert told[0] == "line 6: column 'c' holds ' True', which training did not see"
    assert told[1] == "line 7: column 'größe' is missing, which the model refuses"
    assert told[2].startswith("line 9: column 'größe' is missing")
    assert told[3] == "rows refused, with empty predictions: 3"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (b"c\n1\n", "error: the table has no column 'gr\\xf6\\xdfe'"),
        ("c,größe,c\n1,1,1\n".encode(), "error: the table has more than one column 'c'"),
        ("c,größe\n1\n".encode(), "error: line 2 has 1 cells, not 2"),
        ("c,größe\n\"1,1\n".encode(), "error: line 2: unexpected end of data"),
        ("c,größe\n".encode(), "error: the table has no rows"),
        ("c,größe\n\xff,1\n".encode("latin-1"), "error: the table is not UTF-8 text"),
        (b"", "error: the table has no column 'gr\\xf6\\xdfe'"),
    ],
)  # fmt: skip
def test_an_unreadable_table_raises_an_error_with_the_reason(tmp_path, table, message):
    written(table_model(), tmp_path)
    done = run(tmp_path, "-", "-o", "out.csv", given=table)
    assert done.returncode == 2
    assert done.stderr.decode().strip() == message.encode().decode("unicode_escape")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.py"]


def test_regression_script_has_no_probabilities_and_ignores_a_closed_pipe(tmp_path):
    written(random_model(1, mixed_schema(())), tmp_path)
    done = run(tmp_path, "--proba", given=b"")
    assert done.returncode == 2
    assert b"leave --proba out" in done.stderr
    (tmp_path / "rows.csv").write_text("size,colour,age,town,void\n" + "1,red,2,,\n" * 20_000)
    script = f"{sys.executable} -I -W error m.py rows.csv | head -2"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, check=False)
    assert done.stdout.startswith(b"target\n")
    assert done.stderr == b""


def test_arrays_are_read_on_machines_of_either_byte_order(monkeypatch):
    names = import_python(EXTREMES["mixed"](), form="table")
    one = "AQAAAA=="  # 1, the lowest byte first
    assert names["_ints"](one).tolist() == [1]
    monkeypatch.setattr(sys, "byteorder", "big")
    assert names["_ints"](one).tolist() == [2**24]
    assert names["_doubles"]("AAAAAAAAAEA=").tolist() == [3.16e-322]  # 64 in the lowest byte


def test_a_model_of_many_nodes_is_read_as_bytes(tmp_path):
    schema = Schema(
        (Column("c", "nominal", tuple(map(str, range(40)))), Column("x")), classes=(0, 1)
    )
    rng = np.random.default_rng(0)
    trees = []
    for k in range(300):
        sides = [leaf([k + 1.0, 2.0]), leaf([1.0, k + 2.0])]
        codes = list(map(str, rng.choice(40, 20, replace=False)))
        trees.append(build_tree(threshold(1, k / 4, subset(0, codes, *sides), sides[0]), schema))
    path = written(make_model(schema, trees), tmp_path, form="table")
    assert max(map(len, path.read_text().splitlines())) < 100
