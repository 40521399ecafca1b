"""Small trees as code that people read: few lines, plain names, the model's answers."""

from __future__ import annotations

import ast
import runpy
import subprocess

import pytest
from hypothesis import given
from sklearn.datasets import load_iris

import treekit
from tests.runtimes import need
from tests.strategies import models
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.schema import Column, Schema
from treekit.export import export
from treekit.export.c import explain_unreadable_c
from treekit.export.literals import Language
from treekit.export.readable import comment_text, explain_unreadable, readable_names
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import make_model
from treekit.verify import verify

HOSTILE = [
    '"""',
    "a\nb",
    "\\",
    "row",
    "class",
    "nan",
    "a b",
    "a-b",
    "色泽",
    "",
    "1",
    "x_1",
    "\u202e",
]


@pytest.fixture(scope="module")
def iris():
    frame = load_iris(as_frame=True).frame
    frame["target"] = load_iris().target_names[frame["target"]]
    return treekit.train(frame, "target", max_depth=3, seed=0, dtype="float64")


def written(model, folder, **settings):
    (path,) = export(model, "python", folder / "tree.py", **({"api": "auto"} | settings))
    return path


def test_iris_is_written_in_25_lines_that_ruff_accepts(iris, tmp_path):
    path = written(iris, tmp_path)
    assert len(path.read_text().splitlines()) <= 25
    for command in (["check", "--select=E4,E7,E9,F,B,I,RET,SIM"], ["format", "--check"]):
        subprocess.run(["ruff", *command, "--isolated", path], check=True)
    assert verify(iris, [path]).exit_code == 0


def test_the_tree_of_the_demo_is_written_in_40_lines(tmp_path):
    model = treekit.train(demo_table(), DEMO_TARGET, pruner="cost_complexity", seed=0)
    path = written(model, tmp_path)
    assert len(path.read_text().splitlines()) <= 40
    assert verify(model, [path]).exit_code == 0


def test_only_columns_that_are_tested_are_read(iris, tmp_path):
    predict = runpy.run_path(str(written(iris, tmp_path)))["predict"]
    assert predict({"petal length (cm)": 3.0, "petal width (cm)": None}) == "versicolor"
    with pytest.raises(KeyError, match="petal width"):
        predict({"petal length (cm)": 3.0})


def test_the_complete_interface_is_written_by_request(iris, tmp_path):
    names = runpy.run_path(str(written(iris, tmp_path, api="full")))
    assert "predict_proba" in names
    assert names["FEATURES"] == iris.schema.names


def test_known_categories_are_named_once_and_the_rest_is_missing(tmp_path):
    schema = Schema((Column("c", "nominal", tuple("abcd")), Column("x")), classes=("n", "y"))
    tree = build_tree(
        subset(
            "c", ["a"], leaf([1, 0]),
            treekit.model.builder.is_missing("c", leaf([0, 1]), leaf([2, 1])),
            missing=1,
        ),
        schema,
    )  # fmt: skip
    model = make_model(schema, [tree])
    path = written(model, tmp_path)
    assert '    if c == "a":\n' in path.read_text()
    assert '    if c in {"b", "c", "d"}:\n' in path.read_text()
    assert verify(model, [path]).exit_code == 0


STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror")


def written_c(model, folder):
    """Write the C files of a model; they compile without a warning."""
    source, header = export(model, "c", folder / "tree.c", api="auto")
    subprocess.run(["gcc", *STRICT, "-c", source, "-o", folder / "tree.o"], check=True)
    return source, header


def test_c_is_a_struct_and_nested_tests(tmp_path):
    frame = load_iris(as_frame=True).frame
    frame["target"] = load_iris().target_names[frame["target"]]
    iris = treekit.train(frame, "target", max_depth=3, seed=0)
    horses = treekit.train(demo_table(), DEMO_TARGET, pruner="cost_complexity", seed=0)
    for model, most in ((iris, 45), (horses, 90)):
        files = written_c(model, tmp_path)
        assert sum(len(file.read_text().splitlines()) for file in files) <= most
        assert verify(model, [files[0]]).exit_code == 0
    assert "float petal_length_cm;" in written_c(iris, tmp_path)[1].read_text()
    assert "row->petal_length_cm <= 2.45f" in (tmp_path / "tree.c").read_text()


def test_a_wrong_test_of_readable_c_is_seen(iris, tmp_path):
    source, header = written_c(iris, tmp_path)
    right = source.read_text()
    for wrong in (right.replace("<=", ">=", 1), right.replace("return TREE_SETOSA", "return 7")):
        source.write_text(wrong)
        assert verify(iris, [source]).artifacts[0].differing > 0
    source.write_text(right.replace("{", "{ *(volatile int *)0 = 1;", 1))
    assert "exit code" in verify(iris, [source]).artifacts[0].error
    source.write_text(right)
    header.write_text(header.read_text().replace("column 3:", "column 9:"))
    assert "differs from the model in columns" in verify(iris, [source]).artifacts[0].error


def test_c_of_a_float_model_needs_no_double_on_a_small_processor(tmp_path):
    model = treekit.train(
        {"x": [1.5, 2.5, None, 4.0], "y": [1, 2, 3, 5], "z": list("abab")}, "z", seed=0
    )
    source, _ = written_c(model, tmp_path)
    need("arm-none-eabi-gcc")
    flags = ("-mcpu=cortex-m0", "-mthumb", "-Os", "-std=c99")
    subprocess.run(["arm-none-eabi-gcc", *flags, "-c", source, "-o", tmp_path / "m0.o"], check=True)
    symbols = subprocess.run(
        ["arm-none-eabi-nm", "-u", tmp_path / "m0.o"], check=True, capture_output=True, text=True
    ).stdout
    assert "__aeabi_f" in symbols
    assert "__aeabi_d" not in symbols


@given(models())
def test_readable_c_is_equal_to_its_model(tmp_path_factory, model):
    if explain_unreadable_c(model):
        return
    folder = tmp_path_factory.mktemp("readable")
    source, _ = written_c(model, folder)
    assert verify(model, [source], random_rows=50).exit_code == 0


@given(models())
def test_readable_models_are_equal_to_their_code(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("readable")
    path = written(model, folder)
    assert ("predict_proba" in path.read_text()) == (
        bool(explain_unreadable(model)) and model.schema.task == "classification"
    )
    assert verify(model, [path], random_rows=50).exit_code == 0


@pytest.mark.parametrize("text", HOSTILE)
def test_names_cannot_leave_their_comment(text):
    kept = comment_text(text)
    assert not set(kept) & set("\"'\\/*\n\r#`{}")
    assert kept.isprintable()


@pytest.mark.parametrize("unicode", [True, False])
def test_names_become_distinct_identifiers(unicode):
    reserved = frozenset({"row", "class", "nan"})
    language = Language("python", unicode=unicode, reserved=reserved)
    names = [str(name) for name in readable_names(HOSTILE, language)]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name not in reserved for name in names)
    assert ("色泽" in names) == unicode


def test_hostile_names_stay_data(tmp_path):
    schema = Schema(
        tuple(Column(name or "empty") for name in HOSTILE), target='"""\n', classes=('"""', "\\")
    )
    root = leaf([0, 1])
    for number in range(len(HOSTILE)):
        root = threshold(number, float(number), leaf([1, number]), root, missing=number % 2)
    model = make_model(schema, [build_tree(root, schema)])
    path = written(model, tmp_path)
    (function,) = [
        part for part in ast.parse(path.read_text()).body if isinstance(part, ast.FunctionDef)
    ]
    assert function.name == "predict"
    assert verify(model, [path]).exit_code == 0
