"""C source compiles without a warning and answers bit for bit as the definition does."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import evaluate
from tests.reference.artifacts import STRICT, Compiled, compile_c
from tests.reference.models import chain, mixed_schema, probe_rows, random_model
from tests.strategies import ALL_KINDS, matrices, models
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError
from treekit.export.c import c_prefix, export_c
from treekit.export.hot import hot_trees
from treekit.export.lower import Step
from treekit.model.build import build_tree, leaf, multiway, subset, threshold
from treekit.model.derived import derive
from treekit.model.ensemble import Model, make_model
from treekit.model.joined import join, separate
from treekit.model.tree import Split

FORMS = ("if_else", "hybrid", "table")
SLOW = settings(
    deadline=None,
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
NAN = float("nan")


def assert_same_bits(program: Compiled, rows: list[list[float]]) -> None:
    labels, out = program.run(rows)
    for row, label, outputs in zip(rows, labels, out, strict=True):
        schema = program.model.schema
        try:
            expected = evaluate.predict(program.model, row)
        except evaluate.Refused:
            assert label == ([-1] * len(schema.outputs) if schema.more else -1), row
            assert np.isnan(outputs).all(), row
            continue
        if schema.task == "regression":
            assert (label, outputs) == (0, expected if schema.more else [expected]), row
        else:
            assert (label, outputs) == (expected, evaluate.probabilities(program.model, row)), row


def assert_all_forms(model: Model, folder: Path, rows: list[list[float]] | None = None) -> None:
    for form in FORMS:
        program = compile_c(model, folder, form=form)
        assert_same_bits(program, rows or probe_rows(model))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("classes", [("no", "yes"), ("a", "b", "c"), ()])
def test_all_kinds_of_splits_agree(tmp_path, dtype, classes):
    for seed in range(2):
        schema = mixed_schema(classes, dtype=dtype)
        assert_all_forms(random_model(seed, schema, n_splits=50), tmp_path)


@SLOW
@given(st.data())
def test_models_of_any_kind_agree(tmp_path_factory, data):
    """Several models a compilation: starting a compiler is what takes time."""
    drawn = data.draw(st.lists(models(kinds=ALL_KINDS), min_size=1, max_size=6))
    matrices_of = [data.draw(matrices(model)) for model in drawn]
    assert_each_agrees(drawn, [m.tolist() for m in matrices_of], tmp_path_factory.mktemp("any"))


def assert_each_agrees(
    drawn: list[Model], rows: list[list[list[float]]], folder: Path, optimise: str = "-O0"
) -> None:
    """Compile all forms of the models in one go, and compare each with the definition."""
    named = [
        (f"m{n}_{form}", form, model, own)
        for n, (model, own) in enumerate(zip(drawn, rows, strict=True))
        for form in (["table"] if model.missing == "fractional" else FORMS)
    ]
    for name, form, model, _ in named:
        for file, content in export_c(model, name, form=form).items():
            (folder / file).write_bytes(content)
    (folder / "all.c").write_text("".join(f'#include "{name}.c"\n' for name, *_ in named))
    command = ["gcc", *STRICT, optimise, "-shared", "-fPIC", "all.c", "-o", "all.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    for name, _, model, own in named:
        if own:
            assert_same_bits(Compiled(folder / "all.so", c_prefix(name), model), own)


@pytest.mark.parametrize("form", FORMS)
def test_optimised_code_agrees(tmp_path, form):
    model = random_model(7, mixed_schema(), n_trees=10, n_splits=60)
    assert_same_bits(compile_c(model, tmp_path, optimise="-O2", form=form), probe_rows(model))


@pytest.mark.parametrize("missing", ["direction", "error"])
@pytest.mark.parametrize("unknown", ["missing", "error"])
def test_policies_refuse_rows_as_the_definition_does(tmp_path, missing, unknown):
    model = random_model(5, mixed_schema(), missing=missing, unknown=unknown)
    rows = [[1.0, 0.0, 2.0, 3.0, NAN], [1.0, 0.0, 2.0, 3.0, 0.0], *probe_rows(model)]
    assert_all_forms(model, tmp_path, rows)


def test_a_complete_row_passes_a_model_that_refuses_missing_values(tmp_path):
    schema = Schema((Column("a"), Column("c", "nominal", ("x", "y"))), classes=(0, 1))
    tree = build_tree(threshold(0, 1.0, leaf([1, 0]), leaf([0, 1])), schema)
    model = make_model(schema, [tree], missing="error")
    rows = [[0.0, 1.0], [NAN, 1.0], [0.0, NAN], [0.0, 2.0]]
    assert compile_c(model, tmp_path).run(rows)[0] == [0, -1, -1, -1]


@pytest.mark.parametrize("classes", [("only",), ("a", "b"), ()])
@pytest.mark.parametrize("n_trees", [1, 3])
def test_single_leaves_agree(tmp_path, classes, n_trees):
    schema = mixed_schema(classes)
    tree = build_tree(leaf([2.0, 5.0] if len(classes) == 2 else [3.0]), schema)
    assert_all_forms(make_model(schema, [tree] * n_trees), tmp_path)


def test_one_class_with_splits_agrees(tmp_path):
    assert_all_forms(random_model(0, mixed_schema(("only",))), tmp_path)


@pytest.mark.parametrize("side", [0, 1])
def test_a_chain_900_deep_agrees_in_functions_of_bounded_nesting(tmp_path, side):
    model = chain(900, mixed_schema(), side)
    rows = [[x, 0.0, 0.0, 0.0, 0.0] for x in [NAN, *np.arange(-1.0, 902.0, 3.5).tolist()]]
    assert_all_forms(model, tmp_path, rows)
    source = export_c(model, "m", form="if_else")["m.c"].decode()
    assert max(len(line) - len(line.lstrip()) for line in source.splitlines()) <= 4 * 26


def test_a_chain_3000_deep_agrees(tmp_path):
    model = chain(3000, mixed_schema(()))
    rows = [[x, 0.0, 0.0, 0.0, 0.0] for x in [NAN, *np.arange(-1.0, 3002.0, 37.5).tolist()]]
    assert_all_forms(model, tmp_path, rows)


def test_a_thousand_classes_agree(tmp_path):
    schema = mixed_schema(tuple(range(1000)))
    assert_all_forms(chain(1500, schema), tmp_path, [[x, 0, 0, 0, 0] for x in range(0, 1500, 71)])


def test_an_outlier_leaves_the_other_numbers_of_a_regression_exact(tmp_path):
    schema = mixed_schema(())
    trees = [
        build_tree(threshold(0, 5.0, leaf(1e9), leaf(0.1 * n + 1e-7)), schema) for n in range(20)
    ]
    assert_all_forms(make_model(schema, trees), tmp_path)


@pytest.mark.parametrize("optimise", ["-O1", "-O2", "-O3"])
@pytest.mark.parametrize("classes", [("a", "b"), ()])
def test_optimisers_find_nothing_to_warn_of_in_models_without_categories(
    tmp_path, optimise, classes
):
    schema = Schema(
        (Column("x"),),
        task="classification" if classes else "regression",
        classes=classes,
    )
    for model in (random_model(1, schema), random_model(1, schema, n_splits=0)):
        for form in FORMS:
            assert_same_bits(compile_c(model, tmp_path, optimise=optimise, form=form), [[0.5]])


def test_tied_votes_go_to_the_first_class(tmp_path):
    schema = mixed_schema(("z", "a", "m"))
    leaves = [leaf([0, 1, 0]), leaf([0, 0, 1])]
    trees = [build_tree(leaves[n % 2], schema) for n in range(10)]
    assert compile_c(make_model(schema, trees), tmp_path).run([[0.0] * 5])[0] == [1]


def test_sets_of_categories_across_words_agree(tmp_path):
    levels = tuple(f"l{i}" for i in range(200))
    schema = Schema((Column("c", "nominal", levels),), classes=(0, 1))
    some = [leaf([1, 3]), leaf([3, 1])]
    members = [levels[31:33], levels[:1], levels[199:], levels[64:128], levels[::7], levels]
    trees = [build_tree(subset(0, set_, *some), schema) for set_ in members]
    trees.append(
        build_tree(multiway(0, {level: some[i % 2] for i, level in enumerate(levels)}), schema)
    )
    rows = [[x] for x in [*map(float, range(-2, 203)), NAN, -0.0, 31.5, 1e18, -1e18, 2.0**32]]
    assert_all_forms(make_model(schema, trees), tmp_path, rows)


def test_auto_writes_small_models_as_tests_few_large_trees_as_both_and_forests_as_tables():
    small, large, few, many = (
        random_model(0, mixed_schema(), n_trees, n_splits)
        for n_trees, n_splits in ((1, 100), (1, 3000), (7, 300), (8, 300))
    )
    first = export_c(small, "m")
    assert b'M_FORM "if_else"' in first["m.h"]
    assert b"Form: if_else; the model has" in first["m.c"].splitlines()[1]
    assert b'M_FORM "hybrid"' in export_c(large, "m")["m.h"]
    assert b'M_FORM "hybrid"' in export_c(few, "m")["m.h"]
    assert b'M_FORM "table"' in export_c(many, "m")["m.h"]
    assert b'M_FORM "table"' in export_c(large, "m", arithmetic="integer")["m.h"]


def test_the_tests_that_most_training_rows_met_are_nested_first():
    model = random_model(4, mixed_schema(("a", "b")), n_trees=3, n_splits=200)
    nodes, roots = join(model.trees)
    weight = np.random.default_rng(0).integers(1, 9, nodes.n_nodes).astype(float)
    for node in range(nodes.n_nodes - 1, -1, -1):  # as much as below
        first, count = nodes.first_child[node], nodes.n_children[node]
        weight[node] += weight[first : first + count].sum() if count else 0
    model = replace(model, trees=separate(replace(nodes, weight=weight), roots))
    derived = derive(model)
    may = (nodes.kind == Split.THRESHOLD) & (derived.column < 0)
    for most in (0, 1, 40, 10_000):
        trees = hot_trees(model.trees, derived, most)
        ends = np.concatenate([tree.leaf[tree.kind == Step.LEAF] for tree in trees])
        nested = [tree.n_nodes // 2 for tree in trees]
        waiting = weight[ends[may[ends]]]
        assert sum(nested) == most or not len(waiting)
        chosen = [
            heaviest(nodes, weight, may, root, max(waiting, default=0)) for root in roots[:-1]
        ]
        assert nested == [len(own) for own in chosen]
        assert len(ends) == sum(nested) + 3


def heaviest(nodes, weight, may, root, than):
    """Nodes that may be asked, and weigh more, as all above them."""
    if not may[root] or weight[root] <= than:
        return []
    first = nodes.first_child[root]
    below = (heaviest(nodes, weight, may, first + branch, than) for branch in (0, 1))
    return [root, *itertools.chain(*below)]


def test_a_large_forest_compiles_as_a_table(tmp_path):
    model = random_model(1, mixed_schema(("a", "b", "c")), n_trees=20, n_splits=700)
    assert_same_bits(compile_c(model, tmp_path), probe_rows(model)[-40:])


def test_names_and_categories_are_found_by_number_and_text(tmp_path):
    levels = ("red", "gr\u00fcn", "\U0001f427", "", "a", "A", "ab", "\x01", "red ")
    schema = Schema((Column("x"), Column("c", "nominal", levels)), classes=(10, 20))
    program = compile_c(make_model(schema, [build_tree(leaf([1, 1]), schema)]), tmp_path)
    code = program.function("level_code", ctypes.c_int, ctypes.c_int, ctypes.c_char_p)
    assert [code(1, level.encode()) for level in levels] == list(range(9))
    assert [code(1, b"re"), code(1, b"zzz"), code(0, b"red"), code(2, b"red"), code(-1, b"a")] == (
        [-1] * 5
    )
    assert code(1, None) == -1
    label = program.function("class_name", ctypes.c_char_p, ctypes.c_int)
    assert [label(i) for i in range(-1, 3)] == [None, b"10", b"20", None]
    feature = program.function("feature_name", ctypes.c_char_p, ctypes.c_int)
    assert [feature(i) for i in range(-1, 3)] == [None, b"x", b"c", None]


def test_outputs_may_be_left_out(tmp_path):
    model = random_model(2, mixed_schema())
    program, rows = compile_c(model, tmp_path), probe_rows(model)
    x = np.array(rows)
    predict = program.function("predict", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    assert [predict(row.ctypes.data, None) for row in x] == program.run(rows)[0]


def test_sources_of_two_models_live_in_one_compilation(tmp_path):
    for seed, name in enumerate(["one", "two"]):
        for form in FORMS:
            model = random_model(seed, mixed_schema())
            for file, content in export_c(model, f"{name}_{form}", form=form).items():
                (tmp_path / file).write_bytes(content)
    names = [f"{name}_{form}" for name in ("one", "two") for form in FORMS]
    (tmp_path / "all.c").write_text("".join(f'#include "{name}.c"\n' for name in names))
    command = ["gcc", *STRICT, "-c", "all.c"]
    subprocess.run(command, cwd=tmp_path, check=True)


@pytest.mark.parametrize("flag", ["-ffast-math", "-ffinite-math-only"])
def test_compilers_that_break_nan_are_refused(tmp_path, flag):
    model = random_model(2, mixed_schema())
    for file, content in export_c(model, "m").items():
        (tmp_path / file).write_bytes(content)
    command = ["gcc", "-c", flag, "m.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "ffast-math" in done.stderr


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("adult", "adult"),
        ("my-model.v2", "my_model_v2"),
        ("模型", "model"),
        ("3d", "model_3d"),
        ("__x", "x"),
        ("int", "int"),
    ],
)
def test_file_names_become_prefixes(tmp_path, name, prefix):
    assert c_prefix(name) == prefix
    compile_c(random_model(2, mixed_schema()), tmp_path, name)


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\", "a??/", "a/b", "\u202e"])
def test_file_names_that_no_include_line_can_hold_are_refused(name):
    with pytest.raises(ExportError, match="#include"):
        export_c(random_model(2, mixed_schema()), name)


def test_integer_keys_leave_no_choice_of_cells():
    with pytest.raises(ExportError, match="rows are integer keys: leave input out"):
        export_c(random_model(0, mixed_schema()), "m", arithmetic="integer", input="float")
