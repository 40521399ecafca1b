"""C source compiles without warnings and predicts equal bits."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.extremes import EXTREMES, extreme_rows, refused, wanted
from tests.reference import evaluate
from tests.reference.artifacts import Compiled, compile_c, compile_together
from tests.reference.models import chain, mixed_schema, probe_rows, random_model
from tests.runtimes import need
from tests.strategies import ALL_KINDS, matrices, models
from tests.tiers import by_size
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError
from treekit.export.c import export_c
from treekit.export.c.hybrid import extract_frequent_subtrees
from treekit.export.literals import identifier
from treekit.export.lowering import Step
from treekit.model.builder import build_tree, leaf, multiway, subset, threshold
from treekit.model.model import Model, make_model
from treekit.model.scoring import leaf_indices, sum_leaf_values
from treekit.model.tree import Split, concatenate_trees, make_derived_columns, split_trees
from treekit.verify.answers import Answers

# ---------------------------------------------------------------- how to call it


@pytest.mark.parametrize("name", ["mixed", "mixed_numbers", "several_labels", "one_leaf"])
@pytest.mark.parametrize("settings", [{}, {"arithmetic": "integer"}, {"form": "full"}])
def test_header_begins_with_an_example_call(name, settings, tmp_path):
    need("gcc")
    files = export_c(EXTREMES[name](), "m", **settings)
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    head = files["m.h"].decode().splitlines()
    assert head[0].startswith("/* Predict the column")
    assert head[1] == " *"
    shown = [line.removeprefix(" *     ").partition(";  ")[0] for line in head if " *     " in line]
    assert head[2].startswith(" *     ")
    assert 2 <= len(shown) <= 5
    body = ";\n".join(line.removesuffix(";") for line in shown)
    free = "const int target = 0;\nconst unsigned bits = 0;\n(void)target;\n(void)bits;\n"
    (tmp_path / "main.c").write_text(f'#include "m.h"\nint main(void)\n{{\n{free}{body};\n}}\n')
    command = ["gcc", "-std=c99", "-Wno-unused", "-c", "main.c"]
    subprocess.run(command, cwd=tmp_path, check=True)


# ---------------------------------------------------------------- export c

FORMS = ("if_else", "hybrid", "table", "compact")
SLOW = settings(
    deadline=None,
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
NAN = float("nan")


Rows = list[list[float]]


def expected(model: Model, rows: Rows) -> tuple[list[Any], list[list[float]]]:
    """Labels and numbers by the definition, -1 and nothing where it refuses a row."""
    schema, labels, out = model.schema, [], []
    for row in rows:
        try:
            answer = evaluate.predict(model, row)
        except evaluate.Refused:
            labels.append([-1] * len(schema.outputs) if schema.more else -1)
            out.append([])
            continue
        if schema.task == "regression":
            labels.append(0)
            out.append(answer if schema.more else [answer])
        else:
            labels.append(answer)
            out.append(evaluate.probabilities(model, row))
    return labels, out


def assert_each_agrees(
    cases: Mapping[str, tuple[Model, Rows]],
    folder: Path,
    optimise: str = "-O0",
    forms: Sequence[str] = FORMS,
) -> None:
    """Compile all forms of the models in one go, and compare each with the definition."""
    forms_of = {
        name: [form for form in forms if refusal(model, form) is None]
        for name, (model, _) in cases.items()
    }
    programs = compile_together(
        {
            f"{name}_{form}": (model, {"form": form})
            for name, (model, _) in cases.items()
            for form in forms_of[name]
        },
        folder,
        optimise,
    )
    for name, (model, rows) in cases.items():
        if not rows:
            continue
        wanted_labels, wanted_out = expected(model, rows)
        for form in forms_of[name]:
            labels, out = programs[f"{name}_{form}"].run(rows)
            out = [[] if np.isnan(row).all() else row for row in out]
            told = zip(rows, labels, out, wanted_labels, wanted_out, strict=True)
            for row, *found, label, numbers in told:
                assert found == [label, numbers], (name, form, row)


def assert_all_forms(model: Model, folder: Path, rows: Rows) -> None:
    assert_each_agrees({"m": (model, rows)}, folder)


SCHEMAS = [
    mixed_schema(classes, dtype=dtype)
    for dtype in ("float32", "float64")
    for classes in (("no", "yes"), ("a", "b", "c"), ())
]


@pytest.mark.parametrize(
    ("seed", "n_splits"), [(0, 15), pytest.param(1, 50, marks=pytest.mark.matrix)]
)
def test_every_kind_of_split_predicts_equally(tmp_path, seed, n_splits):
    drawn = [random_model(seed, schema, n_splits=n_splits) for schema in SCHEMAS]
    few = 20 if n_splits < 50 else 60
    cases = {f"m{n}": (model, probe_rows(model, few)) for n, model in enumerate(drawn)}
    assert_each_agrees(cases, tmp_path)


@pytest.mark.matrix
@SLOW
@given(st.data())
def test_random_models_of_any_kind_predict_equally(tmp_path_factory, data):
    """Several models a compilation: starting a compiler is what takes time."""
    drawn = data.draw(st.lists(models(kinds=ALL_KINDS), min_size=1, max_size=6))
    cases = {f"m{n}": (model, data.draw(matrices(model)).tolist()) for n, model in enumerate(drawn)}
    assert_each_agrees(cases, tmp_path_factory.mktemp("any"))


@pytest.mark.matrix
def test_optimised_code_predicts_equally(tmp_path):
    model = random_model(7, mixed_schema(), n_trees=5, n_splits=40)
    assert_each_agrees({"m": (model, probe_rows(model))}, tmp_path, "-O2")


def test_refused_rows_equal_the_reference(tmp_path):
    cases = {}
    for missing, unknown in itertools.product(("direction", "error"), ("missing", "error")):
        model = random_model(
            5, mixed_schema(), n_trees=1, n_splits=12, missing=missing, unknown=unknown
        )
        rows = [[1.0, 0.0, 2.0, 3.0, NAN], [1.0, 0.0, 2.0, 3.0, 0.0], *probe_rows(model)]
        cases[f"{missing}_{unknown}"] = (model, rows)
    assert_each_agrees(cases, tmp_path)


def test_complete_row_is_predicted_with_missing_error(tmp_path):
    schema = Schema((Column("a"), Column("c", "nominal", ("x", "y"))), classes=(0, 1))
    tree = build_tree(threshold(0, 1.0, leaf([1, 0]), leaf([0, 1])), schema)
    model = make_model(schema, [tree], missing="error")
    rows = [[0.0, 1.0], [NAN, 1.0], [0.0, NAN], [0.0, 2.0]]
    assert compile_c(model, tmp_path).run(rows)[0] == [0, -1, -1, -1]


def test_single_leaves_one_class_ties_and_outliers_predict_equally(tmp_path):
    cases = {"one_class": random_model(0, mixed_schema(("only",)), n_splits=8)}
    for n_trees, classes in itertools.product((1, 3), (("only",), ("a", "b"), ())):
        schema = mixed_schema(classes)
        tree = build_tree(leaf([2.0, 5.0] if len(classes) == 2 else [3.0]), schema)
        cases[f"{n_trees}_of_{len(classes)}"] = make_model(schema, [tree] * n_trees)
    schema = mixed_schema(("z", "a", "m"))
    leaves = [leaf([0, 1, 0]), leaf([0, 0, 1])]
    cases["ties"] = make_model(schema, [build_tree(leaves[n % 2], schema) for n in range(10)])
    assert expected(cases["ties"], [[0.0] * 5])[0] == [1]
    schema = mixed_schema(())
    trees = [
        build_tree(threshold(0, 5.0, leaf(1e9), leaf(0.1 * n + 1e-7)), schema) for n in range(20)
    ]
    cases["outlier"] = make_model(schema, trees)
    of = {f"m{name}": (model, probe_rows(model, 10)[::3]) for name, model in cases.items()}
    assert_each_agrees(of, tmp_path)


def test_functions_of_a_deep_chain_have_bounded_nesting():
    source = export_c(chain(900, mixed_schema()), "m", form="if_else")["m.c"].decode()
    assert max(len(line) - len(line.lstrip()) for line in source.splitlines()) <= 4 * 26


@pytest.mark.matrix
def test_deep_chains_predict_equally(tmp_path):
    xs = [NAN, *np.arange(-1.0, 902.0, 7.5).tolist()]
    chains = {f"side_{side}": chain(900, mixed_schema(), side) for side in (0, 1)}
    rows = [[x, 0.0, 0.0, 0.0, 0.0] for x in xs]
    assert_each_agrees({name: (model, rows) for name, model in chains.items()}, tmp_path)
    rows = [[x, 0.0, 0.0, 0.0, 0.0] for x in [NAN, *np.arange(-1.0, 3002.0, 75.0).tolist()]]
    deep = chain(3000, mixed_schema(()))
    assert_each_agrees({"deep": (deep, rows)}, tmp_path, forms=["if_else", "hybrid"])


@pytest.mark.matrix
def test_thousand_classes_predict_equally(tmp_path):
    """As nested tests: tests/export/test_c.py has a thousand classes as tables."""
    model = chain(1000, mixed_schema(tuple(range(1000))))
    rows = [[float(x), 0.0, 0.0, 0.0, 0.0] for x in range(0, 1000, 71)]
    assert_each_agrees({"m": (model, rows)}, tmp_path, forms=["if_else", "hybrid"])


@pytest.mark.matrix
@pytest.mark.parametrize("optimise", ["-O1", "-O2", "-O3"])
def test_optimised_code_without_categories_compiles_without_warnings(tmp_path, optimise):
    cases = {}
    for classes in (("a", "b"), ()):
        task = "classification" if classes else "regression"
        schema = Schema((Column("x"),), task=task, classes=classes)
        for n_splits in (0, 25):
            model = random_model(1, schema, n_splits=n_splits)
            cases[f"{task}_{n_splits}"] = (model, [[0.5]])
    assert_each_agrees(cases, tmp_path, optimise)


def test_category_sets_across_machine_words_predict_equally(tmp_path):
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


def test_codes_of_8_bits_do_not_reach_the_code_of_missing_values(tmp_path):
    cases: dict[str, tuple[Model, Rows]] = {}
    for n in (253, 254, 255, 256, 257):
        alone = Schema((Column("x"),), classes=(0, 1))
        node = leaf([1, 3])
        for k in reversed(range(n)):  # a missing value goes to the last threshold, and there left
            node = threshold(0, float(k), leaf([2 + k % 2, 1]), node, missing=int(k < n - 1))
        numbers = make_model(alone, [build_tree(node, alone)] * 4)
        cases[f"numbers_{n}"] = (
            numbers,
            [[NAN], [-1.0], *([float(x)] for x in range(n - 8, n + 2))],
        )
        levels = tuple(f"l{i}" for i in range(n))
        schema = Schema((Column("c", "nominal", levels),), classes=(0, 1))
        own = [subset(0, [level], leaf([1, 3]), leaf([3, 1])) for level in levels[-4:]]
        model = make_model(schema, [build_tree(node, schema) for node in own])
        codes = [[NAN], [-1.0], *([float(x)] for x in range(n - 6, n + 3))]
        cases[f"levels_{n}"] = (model, codes)
    assert_each_agrees(cases, tmp_path, forms=["compact"])


def test_auto_form_is_if_else_hybrid_or_table_by_size_and_number_of_trees():
    small, large, few, many = (
        random_model(0, mixed_schema(), n_trees, n_splits)
        for n_trees, n_splits in ((1, 100), (1, 3000), (7, 300), (8, 300))
    )
    assert b"Form: readable; the tree has" in export_c(small, "m")["m.h"]
    first = export_c(small, "m", form="full")
    assert b'M_FORM "if_else"' in first["m.h"]
    assert b"Form: if_else; the model has" in first["m.c"].splitlines()[1]
    assert b'M_FORM "hybrid"' in export_c(large, "m")["m.h"]
    assert b'M_FORM "hybrid"' in export_c(few, "m")["m.h"]
    assert b'M_FORM "table"' in export_c(many, "m")["m.h"]
    assert b'M_FORM "table"' in export_c(large, "m", arithmetic="integer")["m.h"]


def test_hybrid_form_nests_the_nodes_with_most_training_rows():
    model = random_model(4, mixed_schema(("a", "b")), n_trees=3, n_splits=200)
    nodes, roots = concatenate_trees(model.trees)
    weight = np.random.default_rng(0).integers(1, 9, nodes.n_nodes).astype(float)
    for node in range(nodes.n_nodes - 1, -1, -1):  # as much as below
        first, count = nodes.first_child[node], nodes.n_children[node]
        weight[node] += weight[first : first + count].sum() if count else 0
    model = replace(model, trees=split_trees(replace(nodes, weight=weight), roots))
    derived = make_derived_columns(model)
    may = (nodes.kind == Split.THRESHOLD) & (derived.column < 0)
    for most in (0, 1, 40, 10_000):
        trees = extract_frequent_subtrees(model.trees, derived, most)
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


@pytest.mark.matrix
def test_a_large_forest_compiles_as_a_table(tmp_path):
    model = random_model(1, mixed_schema(("a", "b", "c")), n_trees=20, n_splits=700)
    program, rows = compile_c(model, tmp_path), probe_rows(model)[-40:]
    assert program.run(rows) == expected(model, rows)


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


def test_predict_accepts_null_outputs(tmp_path):
    model = random_model(2, mixed_schema())
    program, rows = compile_c(model, tmp_path), probe_rows(model)
    x = np.array(rows)
    predict = program.function("predict", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    assert [predict(row.ctypes.data, None) for row in x] == program.run(rows)[0]


@pytest.mark.parametrize("flag", ["-ffast-math", "-ffinite-math-only"])
def test_compiling_with_ffast_math_is_refused(tmp_path, flag):
    need("gcc")
    model = random_model(2, mixed_schema())
    for file, content in export_c(model, "m").items():
        (tmp_path / file).write_bytes(content)
    command = ["gcc", "-c", flag, "m.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "ffast-math" in done.stderr


def test_function_prefixes_are_derived_from_file_names(tmp_path):
    prefixes = {
        "adult": "adult",
        "my-model.v2": "my_model_v2",
        "模型": "model",
        "3d": "model_3d",
        "__x": "x",
        "int": "int",
    }
    assert {name: identifier(name, "model") for name in prefixes} == prefixes
    model = make_model(mixed_schema(), [build_tree(leaf([2, 5]), mixed_schema())])
    programs = compile_together({name: (model, {}) for name in prefixes}, tmp_path)
    assert [program.run([[0.0] * 5])[0] for program in programs.values()] == [[1]] * 6


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\", "a??/", "a/b", "\u202e"])
def test_file_names_invalid_in_include_lines_are_refused(name):
    with pytest.raises(ExportError, match="#include"):
        export_c(random_model(2, mixed_schema()), name)


def test_integer_arithmetic_with_input_float_is_refused():
    with pytest.raises(ExportError, match="rows are integer keys: leave out input"):
        export_c(random_model(0, mixed_schema()), "m", arithmetic="integer", input="float")


# ---------------------------------------------------------------- export c extremes
# C source of every extreme model, in every form and arithmetic, in few programs.

WAYS = {
    "table": {"form": "table"},
    "if_else": {"form": "if_else"},
    "float": {"form": "table", "input": "float"},
    "float_if_else": {"form": "if_else", "input": "float"},
    "integer": {"form": "table", "arithmetic": "integer"},
    "integer_if_else": {"form": "if_else", "arithmetic": "integer"},
    "hybrid": {"form": "hybrid"},
    "integer_hybrid": {"form": "hybrid", "arithmetic": "integer"},
    "compact": {"form": "compact"},
    "float_compact": {"form": "compact", "input": "float"},
    "integer_compact": {"form": "compact", "arithmetic": "integer"},
}
MOST_NODES = 400
"""Larger models are written as nested tests in one way only: compilers take their time."""


def refusal(model: Model, way: str) -> str | None:
    """A word of the reason for which a model has no such source."""
    if model.missing == "fractional" and way.endswith(("if_else", "hybrid", "compact")):
        return "fractional instances"
    if model.schema.dtype == "float64" and "float" in way:
        return "would round"
    sums_of_columns = any(
        (np.diff(tree.term_offsets) > 1).any() or (tree.term_weight != 1.0).any()
        for tree in model.trees
    )
    if sums_of_columns and "integer" in way:
        return "oblique"
    if way.endswith("compact") and make_derived_columns(model).n_columns:
        return "surrogate splits, or splits on sums"
    return None


def sources(names: Sequence[str], each: int) -> Iterator[tuple[str, str, str]]:
    """File, model and way of every source: each model as a table and in `each` ways by turns."""
    others = [way for way in WAYS if way != "table"]
    for number, name in enumerate(names):
        model = EXTREMES[name]()
        by_turns = (others * 2)[number % len(others) :][:each]
        for way in ("table", *by_turns):
            large = model.n_nodes > MOST_NODES and way.endswith(("_if_else", "hybrid"))
            if refusal(model, way) is None and not large:
                yield f"m{number}_{way}", name, way


FEW = (
    *("one_leaf", "one_class", "vanishing", "several_labels", "several_numbers", "oblique"),
    *("surrogates", "fractional", "costs", "refuses_both", "boosted_four", "boosted_each"),
    *("linked_means", "float32_extremes"),
)
"""One of each kind."""


# Groups, as starting compilers takes time, and those of one group would start many.
@pytest.mark.parametrize(
    ("names", "each"),
    [
        pytest.param(FEW, 3, id="few"),
        *(
            pytest.param(tuple(EXTREMES)[k::4], 10, id=f"all {k}", marks=pytest.mark.matrix)
            for k in range(4)
        ),
    ],
)
def test_extreme_models_return_equal_bits_and_leaves_in_every_form(names, each, tmp_path):
    named = list(sources(names, each))
    programs = compile_together(
        {file: (EXTREMES[name](), WAYS[way]) for file, name, way in named}, tmp_path
    )
    assert {name for _, name, way in named if way == "table"} == set(names)
    rows_of = {name: extreme_rows(EXTREMES[name]()) for name in names}
    wanted_of = {name: wanted(EXTREMES[name](), rows) for name, rows in rows_of.items()}
    for file, name, way in named:
        check_bits(programs[file], rows_of[name], wanted_of[name], f"{name}, {way}")
        check_leaves(programs[file], rows_of[name][::9], f"{name}, {way}")


def check_bits(program: Compiled, rows: np.ndarray, answers: Answers, what: str) -> None:
    gone = refused(program.model, rows)
    labels, out = program.answers(rows)
    assert np.array_equal(labels, answers.label[:, : labels.shape[1]]), what
    if program.number == np.float64:
        bits = out[~gone].view(np.int64) == answers.number[~gone].view(np.int64)
        assert bits.all(), what
    else:
        assert np.array_equal(out[~gone], sum_leaf_values(program.model, rows[~gone])), what
    assert (out[gone] == -77).all(), what


def check_leaves(program: Compiled, rows: np.ndarray, what: str) -> None:
    model = program.model
    if model.missing == "fractional":
        with pytest.raises(AttributeError):
            program.leaves(rows)
        return
    gone = refused(model, rows)
    told = program.leaves(rows)
    assert np.array_equal(told[~gone], leaf_indices(model, rows[~gone])), what
    assert (told[gone] == -1).all(), what


@pytest.mark.parametrize("name", by_size(EXTREMES))
def test_models_beyond_the_limits_of_c_are_refused_with_the_reason(name):
    for way, chosen in WAYS.items():
        reason = refusal(EXTREMES[name](), way)
        if reason:
            with pytest.raises(ExportError, match=reason):
                export_c(EXTREMES[name](), "m", **chosen)
