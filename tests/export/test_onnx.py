"""ONNX files predict in onnxruntime the bits of the slow oracle."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

import treekit
from tests.examples import examples
from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.reference import evaluate
from tests.reference.models import mixed_schema, random_model
from tests.strategies import ALL_KINDS, matrices, models
from treekit._version import __version__
from treekit.data.schema import Column, Output, Schema
from treekit.errors import ExportError
from treekit.export.onnx import ONNX_SETTINGS, export_onnx
from treekit.export.onnx.graph import (
    FLOAT64_INPUTS,
    MISSING_MARKERS,
    SET_MEMBERSHIP,
    choose_profile,
)
from treekit.export.onnx.inputs import make_input_names
from treekit.model.builder import (
    Node,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.fixed_point import UNIT_BUDGET
from treekit.model.model import Model, make_model
from treekit.model.scoring import leaf_indices, sum_leaf_values
from treekit.model.tree import MAX_DEPTH
from treekit.verify.answers import Answers, differing
from treekit.verify.run_onnx import run_onnx
from treekit.verify.runtime import Job

# ---------------------------------------------------------------- export onnx

NAN = float("nan")
ODD_CODES = [NAN, -1.0, -0.0, 0.5, 2.5, 1e9, -1e9, np.inf, -np.inf, 31.0, 32.0, 33.0, 499.0, 500.0]
ODD_NUMBERS = [NAN, 0.0, -0.0, np.inf, -np.inf, 1e-45, 3.4028235e38, -3.4028235e38]


def levels(n: int) -> tuple[str, ...]:
    return tuple(f"level {i}" for i in range(n))


def export_onnx_mixed_schema(classes: tuple[Any, ...] = ("no", "yes"), **other: Any) -> Schema:
    columns = (
        Column("age"),
        Column("colour", "nominal", levels(5)),
        Column("income"),
        Column("town", "nominal", levels(70)),
        Column("never known", "nominal", ()),
    )
    return Schema(columns=columns, classes=classes, **other)


def regression_schema() -> Schema:
    return export_onnx_mixed_schema((), task="regression")


def random_node(rng: np.random.Generator, schema: Schema, depth: int) -> Node:
    """A random node with every kind of split, both missing sides, absent levels."""
    if depth == 0 or rng.random() < 0.1:
        if schema.task == "regression":
            return leaf(float(rng.normal()) * 10.0 ** rng.integers(-3, 10))
        return leaf(
            [float(w) for w in rng.integers(0, 4, schema.n_values) + [1, 0, 0][: schema.n_values]]
        )
    feature = int(rng.integers(schema.n_features))
    column = schema.columns[feature]
    children = [random_node(rng, schema, depth - 1) for _ in range(4)]
    side = int(rng.integers(2))
    if rng.random() < 0.2:
        return is_missing(feature, *children[:2])
    if column.kind == "numeric":
        at = float(np.float32(rng.choice([-1.5, 0.0, 0.1, rng.normal()])))
        return threshold(feature, at, *children[:2], missing=side)
    order = rng.permutation(len(column.levels))
    names = [column.levels[i] for i in order]
    if rng.random() < 0.3 and len(names) >= 3:
        return multiway(feature, dict(zip(names, children[:3], strict=False)), int(rng.integers(3)))
    cut, absent = sorted(rng.integers(0, len(names) + 1, 2))
    return subset(feature, names[:cut], *children[:2], missing=side, absent=names[absent:])


def export_onnx_random_model(
    rng: np.random.Generator, schema: Schema, trees: int, depth: int
) -> Model:
    nodes = [random_node(rng, schema, depth) for _ in range(trees)]
    return make_model(schema, [build_tree(node, schema) for node in nodes])


def random_rows(rng: np.random.Generator, schema: Schema, n: int) -> npt.NDArray[np.float32]:
    rows = np.empty((n, schema.n_features), dtype=np.float32)
    for feature, column in enumerate(schema.columns):
        if column.kind == "numeric":
            usual = rng.choice([-1.5, 0.1, *rng.normal(size=8)], n)
            odd = rng.choice(ODD_NUMBERS, n)
        else:
            usual = rng.integers(0, len(column.levels) + 1, n).astype(float)
            odd = rng.choice(ODD_CODES, n)
        rows[:, feature] = np.where(rng.random(n) < 0.3, odd, usual)
    return rows


def session_of(model: Model, **settings: Any) -> onnxruntime.InferenceSession:
    files = export_onnx(model, "m", **settings)
    assert list(files) == ["m.onnx"]
    return onnxruntime.InferenceSession(files["m.onnx"], providers=["CPUExecutionProvider"])


def assert_equal_to_oracle(
    model: Model,
    rows: npt.NDArray[np.float32],
    batches: tuple[int, ...] = (1, 7, 5000),
    **settings: Any,
) -> None:
    """Rows of every batch size; the oracle sees each row once, as floats."""
    session = session_of(model, **settings)
    answers = [evaluate.predict(model, [float(x) for x in row]) for row in rows]
    for batch in batches:
        for start in range(0, len(rows) if batch < len(rows) else 1, batch):
            at = np.arange(start, start + batch) % len(rows)
            got = dict(
                zip(
                    [output.name for output in session.get_outputs()],
                    session.run(None, {"X": rows[at]}),
                    strict=True,
                )
            )
            if model.schema.task == "regression":
                expected = np.array([answers[i] for i in at], dtype=np.float64)
                assert got["value"].dtype == np.float64
                np.testing.assert_array_equal(got["value"].view(np.int64), expected.view(np.int64))
                continue
            assert got["label"].tolist() == [model.schema.classes[int(answers[i])] for i in at]
            assert got["probabilities"].dtype == np.float64
            shares = [evaluate.probabilities(model, rows[i].tolist()) for i in at[:64]]
            np.testing.assert_array_equal(got["probabilities"][:64], np.array(shares))


@pytest.mark.parametrize("trees", [1, 3, pytest.param(90, marks=pytest.mark.matrix)])
def test_random_forests_of_all_splits_predict_equally_in_every_batch_size(trees: int) -> None:
    rng = np.random.default_rng(trees)
    for schema in (
        export_onnx_mixed_schema(),
        export_onnx_mixed_schema((3, 1, 2)),
        regression_schema(),
    ):
        model = export_onnx_random_model(rng, schema, trees, depth=5 if trees < 90 else 3)
        assert_equal_to_oracle(model, random_rows(rng, schema, 120 if trees < 90 else 40))


def test_small_random_trees_predict_equally_for_many_seeds() -> None:
    for seed in range(12):
        rng = np.random.default_rng(1000 + seed)
        schema = export_onnx_mixed_schema()
        assert_equal_to_oracle(
            export_onnx_random_model(rng, schema, 2, 4), random_rows(rng, schema, 60), (60,)
        )


def test_the_reference_evaluator_of_onnx_agrees_with_onnxruntime() -> None:
    for seed, schema in enumerate(
        [export_onnx_mixed_schema(), export_onnx_mixed_schema((3, 1, 2)), regression_schema()]
    ):
        rng = np.random.default_rng(seed)
        model, rows = export_onnx_random_model(rng, schema, 3, 4), random_rows(rng, schema, 100)
        content = export_onnx(model, "m")["m.onnx"]
        evaluator = ReferenceEvaluator(onnx.load_model_from_string(content))
        for ours, theirs in zip(
            session_of(model).run(None, {"X": rows}), evaluator.run(None, {"X": rows}), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_every_supported_opset_predicts_equally(opset: int) -> None:
    rng = np.random.default_rng(5)
    (offered,) = (setting for setting in ONNX_SETTINGS if setting.name == "opset")
    assert (offered.minimum, offered.maximum) == (13, 21)
    model = export_onnx_random_model(rng, export_onnx_mixed_schema(), 3, 4)
    assert_equal_to_oracle(model, random_rows(rng, model.schema, 50), (50,), opset=opset)


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("kind", ["threshold", "subset", "multiway", "missing"])
def test_missing_values_take_the_stored_branch(kind: str, missing: int) -> None:
    schema = export_onnx_mixed_schema()
    a, b = leaf([1.0, 0.0]), leaf([0.0, 1.0])
    root = {
        "threshold": lambda: threshold("age", 0.5, a, b, missing=missing),
        "subset": lambda: subset("colour", levels(5)[:2], a, b, missing=missing),
        "multiway": lambda: multiway("colour", {"level 3": a, "level 0": b}, missing=missing),
        "missing": lambda: is_missing(["age", "colour"][missing], a, b),
    }[kind]()
    model = make_model(schema, [build_tree(root, schema)])
    odd = [
        [x, y, 0.0, 0.0, 0.0]
        for x in (*ODD_NUMBERS, 0.5, 0.50000006)
        for y in (*ODD_CODES, 0, 1, 2, 3, 4)
    ]
    assert_equal_to_oracle(model, np.array(odd, dtype=np.float32), (1, 5000))


@pytest.mark.parametrize(
    "size", [1, 2, 33, *(pytest.param(n, marks=pytest.mark.matrix) for n in (32, 64, 500))]
)
def test_category_sets_of_any_shape_match_exactly_their_codes(size: int) -> None:
    schema = Schema(columns=(Column("c", "nominal", levels(size)),), classes=("a", "b"))
    rng = np.random.default_rng(size)
    rows = np.array([[*range(size), *(c + 0.5 for c in range(size)), *ODD_CODES]], np.float32).T
    for members in (
        [0],
        [size - 1],
        range(0, size, 2),
        range(size),
        rng.permutation(size)[: size // 2],
    ):
        for missing in (0, 1):
            names = [levels(size)[i] for i in members]
            root = subset("c", names, leaf([1.0, 0.0]), leaf([0.0, 1.0]), missing=missing)
            assert_equal_to_oracle(make_model(schema, [build_tree(root, schema)]), rows, (5000,))


def test_multiway_split_of_500_categories_predicts_equally() -> None:
    schema = Schema(columns=(Column("c", "nominal", levels(500)),), classes=("a", "b"))
    branches = {name: leaf([float(i % 3), 1.0]) for i, name in enumerate(levels(500)[::-1])}
    model = make_model(schema, [build_tree(multiway("c", branches, missing=7), schema)])
    rows = np.array([[*range(500), *ODD_CODES]], dtype=np.float32).T
    assert_equal_to_oracle(model, rows, (5000,))


def test_tied_votes_of_ten_trees_predict_the_first_class() -> None:
    rng = np.random.default_rng(8)
    schema = Schema(columns=tuple(Column(f"x{i}") for i in range(10)), classes=("b", "a"))
    pure = [leaf([1.0, 0.0]), leaf([0.0, 1.0])]
    trees = []
    for i in range(10):
        left, right = rng.permutation(2)
        trees.append(build_tree(threshold(i, 0.0, pure[left], pure[right]), schema))
    model = make_model(schema, trees)
    rows = rng.normal(size=(100, 10)).astype(np.float32)
    ties = sum(len(set(evaluate.sums(model, row.tolist()))) == 1 for row in rows)
    assert ties >= 10
    assert_equal_to_oracle(model, rows)


@pytest.mark.parametrize(
    ("classes", "operators"),
    [
        ((0, 1), ["TreeEnsembleRegressor", "Cast", "Gemm", "ArgMax", "Div"]),
        (("no", "yes"), ["TreeEnsembleRegressor", "Cast", "Gemm", "ArgMax", "Gather", "Div"]),
        ((0, 1, 2), ["TreeEnsembleRegressor", "Cast", "ArgMax", "Div"]),
        ((), ["TreeEnsembleRegressor", "Cast", "Gemm", "Gather", "Div"]),
    ],
)
def test_graph_has_few_operators_after_the_tree_ensemble(
    classes: tuple[Any, ...], operators: list[str]
) -> None:
    columns = tuple(Column(f"x{i}") for i in range(5))
    task = "classification" if classes else "regression"
    schema = Schema(columns=columns, classes=classes, task=task)  # type: ignore[arg-type]
    model = export_onnx_random_model(np.random.default_rng(4), schema, 7, 4)
    if not classes:  # numbers of similar size
        trees = [tree.with_value(np.clip(tree.value, -1.0, 1.0)) for tree in model.trees]
        model = make_model(schema, trees)
    graph = onnx.load_from_string(export_onnx(model, "m")["m.onnx"]).graph
    assert [node.op_type for node in graph.node] == operators
    (width,) = [a.i for a in graph.node[0].attribute if a.name == "n_targets"]
    assert width == {2: 1, 3: 3, 0: 2}[len(classes)]
    assert_equal_to_oracle(model, random_rows(np.random.default_rng(5), schema, 200))


def test_regression_keeps_small_values_beside_an_outlier() -> None:
    rng = np.random.default_rng(9)
    schema = Schema(columns=(Column("x"), Column("y")), task="regression")
    trees = []
    for i in range(100):
        value = 1e9 if i == 50 else float(rng.normal())
        low = threshold(
            "y", float(np.float32(rng.normal())), leaf(value), leaf(float(rng.normal()))
        )
        trees.append(build_tree(threshold("x", 0.0, low, leaf(-float(rng.random()))), schema))
    model = make_model(schema, trees)
    rows = rng.normal(size=(60, 2)).astype(np.float32)
    assert len({evaluate.predict(model, row.tolist()) for row in rows}) > 15
    assert_equal_to_oracle(model, rows)


@pytest.mark.parametrize("trees", [1, pytest.param(90, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("value", [0.0, -1.5, 1e300, 5e-324])
def test_regression_of_single_leaves_predicts_equally(trees: int, value: float) -> None:
    schema = regression_schema()
    model = make_model(schema, [build_tree(leaf(value), schema)] * trees)
    assert_equal_to_oracle(model, random_rows(np.random.default_rng(0), schema, 20))


@pytest.mark.parametrize("trees", [1, 3, pytest.param(90, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("classes", [("only",), ("a", "b"), ("a", "b", "c")])
def test_single_leaves_and_one_class_predict_equally(trees: int, classes: tuple[str, ...]) -> None:
    schema = export_onnx_mixed_schema(classes)
    weights = [0.0] * (len(classes) - 1) + [2.0]
    model = make_model(schema, [build_tree(leaf(weights), schema)] * trees)
    assert_equal_to_oracle(model, random_rows(np.random.default_rng(1), schema, 20))


def test_one_class_with_splits_predicts_equally() -> None:
    schema = export_onnx_mixed_schema((7,))
    model = export_onnx_random_model(np.random.default_rng(2), schema, 9, 3)
    assert_equal_to_oracle(model, random_rows(np.random.default_rng(3), schema, 20))


@pytest.mark.matrix
def test_thousand_classes_predict_equally() -> None:
    rng = np.random.default_rng(4)
    schema = Schema(columns=(Column("x"),), classes=tuple(range(1000)))
    trees = []
    for _ in range(5):
        weights = [
            rng.multinomial(20, np.full(1000, 1e-3)).astype(float).tolist() for _ in range(3)
        ]
        trees.append(
            build_tree(
                threshold(
                    0, 0.0, leaf(weights[0]), threshold(0, 1.0, leaf(weights[1]), leaf(weights[2]))
                ),
                schema,
            )
        )
    rows = np.array([[-1.0], [0.5], [2.0], [NAN]], dtype=np.float32)
    assert_equal_to_oracle(make_model(schema, trees), rows)


@pytest.mark.matrix
@pytest.mark.parametrize("deep_side", [0, 1])
def test_chain_of_depth_900_predicts_equally(deep_side: int) -> None:
    schema = Schema(columns=(Column("x"),), classes=("even", "odd"))
    node = leaf([1.0, 0.0])
    for i in range(900):
        other = leaf([float(i % 2), 1.0])
        at = float(i if deep_side == 0 else -i)
        children = (node, other) if deep_side == 0 else (other, node)
        node = threshold("x", at, *children, missing=i % 2)
    model = make_model(schema, [build_tree(node, schema)])
    assert model.depth == 900
    rows = np.array([[i + 0.5] for i in range(-905, 905, 61)] + [[NAN]], dtype=np.float32)
    assert_equal_to_oracle(model, rows, (1, 5000))


@pytest.mark.matrix
def test_a_tree_at_the_depth_bound_runs() -> None:
    schema = Schema(columns=(Column("x"),), classes=("a", "b"))
    node = leaf([1.0, 0.0])
    for i in range(MAX_DEPTH):
        node = threshold("x", float(-i), leaf([float(i % 2), 1.0]), node)
    model = make_model(schema, [build_tree(node, schema)])
    rows = np.array([[1.0], [-4998.5], [-2500.0]], dtype=np.float32)
    assert_equal_to_oracle(model, rows, (3,))


def test_large_category_sets_require_an_operator_with_sets() -> None:
    schema = Schema(columns=(Column("c", "nominal", levels(500)),), classes=("a", "b"))
    node = leaf([1.0, 0.0])
    for k in range(11):
        node = subset("c", levels(500)[1 + k :: 2], leaf([float(k), 1.0]), node)
    model = make_model(schema, [build_tree(node, schema)])
    rows = np.array([[*range(500), *ODD_CODES]], dtype=np.float32).T
    assert_equal_to_oracle(model, rows, (5000,))
    message = r"this model needs large category sets.* onnxruntime 1\.20 does not .* to 1\.24"
    with pytest.raises(ExportError, match=message):
        export_onnx(model, "m", target_runtime="1.20")


def test_no_rows_give_no_predictions() -> None:
    session = session_of(
        export_onnx_random_model(np.random.default_rng(0), export_onnx_mixed_schema(), 3, 3)
    )
    label, shares = session.run(None, {"X": np.empty((0, 5), dtype=np.float32)})
    assert label.shape == (0,)
    assert shares.shape == (0, 2)


@pytest.mark.parametrize(
    "classes",
    [("yes", "no"), (2**62, -5), (True, False), (0.5, -1e300), ("中文", "😀 \0 */ \\")],
)
def test_labels_of_every_type_are_returned_equal(classes: tuple[Any, ...]) -> None:
    model = export_onnx_random_model(
        np.random.default_rng(6), export_onnx_mixed_schema(classes), 3, 3
    )
    assert_equal_to_oracle(model, random_rows(np.random.default_rng(7), model.schema, 30), (30,))


def test_metadata_contain_hostile_names_unchanged() -> None:
    names = ['"', "a\nb", "*/", "\\", "??/", "{{ x }}", "class", "特征", "😀", "\ud800", "\0", " "]
    columns = tuple(Column(name, "nominal", tuple(names)) for name in names)
    schema = Schema(columns=columns, target="'; drop", classes=("\\", "'", '"'))
    tree = build_tree(subset("*/", ["{{ x }}", '"'], leaf([1.0, 0, 0]), leaf([0.0, 0, 1])), schema)
    content = export_onnx(make_model(schema, [tree]), "m")["m.onnx"]
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    stored = json.loads(metadata["treekit.schema"])
    assert [column["name"] for column in stored["columns"]] == names
    assert stored["columns"][0]["levels"] == names
    assert stored["target"] == "'; drop"
    assert stored["dtype"] == "float32"
    assert json.loads(metadata["treekit.classes"]) == ["\\", "'", '"']
    assert json.loads(metadata["treekit.units"]) == {"trees": 1, "unit_total": 2**24}
    assert metadata["treekit.version"] == __version__


def test_the_same_model_gives_the_same_bytes() -> None:
    model = export_onnx_random_model(np.random.default_rng(0), export_onnx_mixed_schema(), 3, 3)
    assert export_onnx(model, "m") == export_onnx(model, "m")


def test_only_operators_of_the_two_standard_domains_are_used() -> None:
    model = export_onnx_random_model(np.random.default_rng(0), export_onnx_mixed_schema(), 3, 3)
    proto = onnx.load_model_from_string(export_onnx(model, "m")["m.onnx"])
    assert {opset.domain: opset.version for opset in proto.opset_import} == {
        "": 17,
        "ai.onnx.ml": 3,
    }
    assert proto.ir_version == 8
    modes = next(a for node in proto.graph.node for a in node.attribute if a.name == "nodes_modes")
    assert set(modes.strings) == {b"BRANCH_LEQ", b"LEAF"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": (0, 2**63)}, r"9223372036854775808 exceeds 64 bits"),
        ({"classes": ("a", "\ud800")}, r"'\\ud800' is not valid Unicode text: rename it"),
    ],
)
def test_models_without_onnx_form_are_refused(changes: dict[str, Any], message: str) -> None:
    schema = export_onnx_mixed_schema(**changes)
    tree = build_tree(leaf([1.0, 2.0]), schema)
    with pytest.raises(ExportError, match=message):
        export_onnx(make_model(schema, [tree]), "m")


@pytest.mark.parametrize(
    ("policies", "said", "refused", "accepted"),
    [
        (
            {"missing": "error"},
            "this model refuses missing values",
            [[0, NAN], [NAN, 1], [0, 2], [0, 0.5], [0, -1]],
            [[-np.inf, 1], [3.0, 0]],
        ),
        (
            {"unknown": "error"},
            "this model refuses unseen categories",
            [[0, 2], [0, 0.5], [0, np.inf]],
            [[0, NAN], [NAN, NAN], [1, 1]],
        ),
    ],
)
@pytest.mark.parametrize("opset", [13, 18])
def test_refused_cell_raises_an_error_in_onnxruntime(
    policies: dict[str, Any],
    said: str,
    refused: list[list[float]],
    accepted: list[list[float]],
    opset: int,
) -> None:
    columns = (Column("x"), Column("colour", "nominal", ("red", "green")))
    schema = Schema(columns, classes=("a", "b"))
    tree = build_tree(threshold(0, 1.5, leaf([1.0, 0.0]), leaf([0.0, 1.0])), schema)
    model = make_model(schema, [tree], **policies)
    assert_equal_to_oracle(model, np.array(accepted, dtype=np.float32))
    session = session_of(model, opset=opset)
    for row in refused:
        with pytest.raises(Exception, match=said):  # onnxruntime's errors have no common base
            session.run(None, {"X": np.array([*accepted, row], dtype=np.float32)})


def test_refusing_unseen_categories_has_no_effect_without_nominal_columns() -> None:
    schema = Schema(columns=(Column("x"),), classes=("a", "b"))
    tree = build_tree(threshold(0, 1.5, leaf([1.0, 0.0]), leaf([0.0, 1.0])), schema)
    model = make_model(schema, [tree], unknown="error")
    assert_equal_to_oracle(model, np.array([[1.5], [1.5000001], [NAN]], dtype=np.float32))


# ---------------------------------------------------------------- export onnx forms
# ONNX files of every runtime, with columns for inputs and more outputs than the answer.

RUNTIMES = ("", "1.31")
"""Of which the first gives operators of ai.onnx.ml 3, and the second those of 5."""


def export_onnx_forms_session_of(model: Model, **settings: Any) -> onnxruntime.InferenceSession:
    content = export_onnx(model, "m", **settings)["m.onnx"]
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def single(rows: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore"):
        return rows.astype(np.float32)


def operators(model: Model, **settings: Any) -> list[str]:
    proto = onnx.load_model_from_string(export_onnx(model, "m", **settings)["m.onnx"])
    return [node.op_type for node in proto.graph.node]


def text_schema(**other: Any) -> Schema:
    columns = (Column("size"), Column("colour", "nominal", ("red", "blue", "NA")))
    return Schema(columns, classes=("no", "yes"), **other)


def text_model(**policies: Any) -> Model:
    schema = text_schema()
    low = subset("colour", ["red", "NA"], leaf([3, 1]), leaf([1, 4]), missing=1)
    tree = threshold("size", 0.5, low, leaf([2, 7]), missing=0)
    return make_model(schema, [build_tree(tree, schema)], **policies)


def columns_of(cells: list[tuple[float, str]]) -> dict[str, np.ndarray]:
    sizes, colours = zip(*cells, strict=True)
    return {
        "size": np.array(sizes, dtype=np.float32)[:, None],
        "colour": np.array(colours, dtype=object)[:, None],
    }


# ------------------------------------------------------------------ what runs


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_float64_rows_one_ulp_from_a_threshold_take_their_own_branch(runtime: str) -> None:
    schema = Schema((Column("x"),), task="regression", dtype="float64")
    at = [0.1, math.nextafter(0.1, 1), 2.0**53 - 1, -5e-324, 1e308]
    trees = [
        build_tree(threshold("x", t, leaf(k), leaf(-k - 0.5)), schema) for k, t in enumerate(at)
    ]
    model = make_model(schema, trees)
    near = [x for t in at for x in (t, math.nextafter(t, math.inf), math.nextafter(t, -math.inf))]
    rows = np.array([*near, math.nan, math.inf, -math.inf])[:, None]
    told = export_onnx_forms_session_of(model, target_runtime=runtime).run(None, {"X": rows})[0]
    assert told.tolist() == wanted(model, rows).number[:, 0].tolist()
    assert len(set(told.tolist())) == len(at) + 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_sums_up_to_2_to_the_53_are_exact_integers(runtime: str, dtype: str) -> None:
    schema = Schema((Column("x"),), task="regression", dtype=dtype)
    rng = np.random.default_rng(3)
    values = rng.normal(size=(37, 2)) * 10.0 ** rng.integers(-9, 3, (37, 1))
    trees = [
        build_tree(threshold("x", k / 4, leaf(a), leaf(b)), schema)
        for k, (a, b) in enumerate(values)
    ]
    model = make_model(schema, [*trees, *trees[:5]], combine="sum")
    rows = np.arange(-1.0, 10.0, 0.125)[:, None]
    assert np.abs(sum_leaf_values(model, rows)).max() > 2**48
    told = export_onnx_forms_session_of(model, target_runtime=runtime).run(
        None, {"X": rows.astype(dtype)}
    )[0]
    assert told.tolist() == wanted(model, rows).number[:, 0].tolist()


def test_tree_ensemble_5_is_used_if_supported_and_smaller() -> None:
    model = random_model(2, mixed_schema(("a", "b", "c", "d")), n_trees=20)
    assert "TreeEnsembleRegressor" in operators(model)
    newer = export_onnx(model, "m", target_runtime="1.24")["m.onnx"]
    assert "TreeEnsemble" in operators(model, target_runtime="1.24")
    assert 2 * len(newer) < len(export_onnx(model, "m")["m.onnx"])
    proto = onnx.load_model_from_string(newer)
    assert {one.domain: one.version for one in proto.opset_import} == {"": 21, "ai.onnx.ml": 5}
    assert proto.ir_version == 10


def test_sparse_leaves_of_many_classes_keep_tree_ensemble_regressor() -> None:
    model = EXTREMES["thousand_classes"]()
    assert "TreeEnsembleRegressor" in operators(model, target_runtime="1.31")


# ------------------------------------------------------------------ profiles


@pytest.mark.parametrize(
    ("needs", "target", "opset", "versions"),
    [
        ([], "", None, ((1, 12), 17, 3)),
        ([], "", 13, ((1, 12), 13, 3)),
        ([], "", 21, ((1, 18), 21, 3)),
        ([], "1.12", None, ((1, 12), 17, 3)),
        ([], "1.15.1", None, ((1, 15), 18, 3)),
        ([], "1.20", None, ((1, 20), 21, 3)),
        ([], "1.20", 17, ((1, 20), 17, 3)),
        ([], "1.23", None, ((1, 23), 21, 3)),
        ([], "1.24", None, ((1, 24), 21, 5)),
        ([], "2.0", None, ((2, 0), 21, 5)),
        ([FLOAT64_INPUTS], "", None, ((1, 15), 17, 3)),
        ([MISSING_MARKERS], "", None, ((1, 17), 20, 3)),
        ([FLOAT64_INPUTS, SET_MEMBERSHIP], "", None, ((1, 24), 17, 5)),
    ],
)
def test_operators_are_chosen_by_runtime_and_model(
    needs: Any, target: str, opset: int | None, versions: Any
) -> None:
    profile = choose_profile(needs, target, opset)
    assert (profile.runtime, profile.opset, profile.ml_opset) == versions


@pytest.mark.parametrize(
    ("needs", "target", "opset", "said"),
    [
        ([], "newest", None, "'newest', which is not a version of onnxruntime"),
        ([], "1", None, "not a version of onnxruntime such as '1.20'"),
        ([], "1.11", None, "1.11 lacks required operators; .* is 1.12"),
        ([], "1.12", 18, "supports the standard operators up to version 17, but opset is 18"),
        ([FLOAT64_INPUTS], "1.14", None, "needs inputs and thresholds in float64, .* to 1.15"),
        (
            [MISSING_MARKERS],
            "1.16",
            None,
            "onnxruntime 1.16 does not support: set target_runtime to 1.17",
        ),
        ([MISSING_MARKERS], "", 19, "opset=19 does not support: set opset to 20 or more"),
        ([SET_MEMBERSHIP], "1.23", None, "large category sets.* set target_runtime to 1.24"),
    ],
)
def test_operators_missing_in_a_runtime_are_refused(
    needs: Any, target: str, opset: int | None, said: str
) -> None:
    with pytest.raises(ExportError, match=said):
        choose_profile(needs, target, opset)


def test_the_command_line_names_the_runtime(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from treekit.cli import main

    text_model().save(tmp_path / "m.treekit")
    given = ["export", str(tmp_path / "m.treekit"), "--to", "onnx", "-o", str(tmp_path / "m.onnx")]
    done = CliRunner().invoke(main, [*given, "--set", "target_runtime=1.20"])
    assert done.exit_code == 0, done.output
    proto = onnx.load(tmp_path / "m.onnx")
    assert {one.key: one.value for one in proto.metadata_props}["treekit.runtime"] == (
        "onnxruntime 1.20"
    )
    done = CliRunner().invoke(main, [*given, "--set", "target_runtime=0.9"])
    assert done.exit_code != 0
    assert "the oldest supported target_runtime is 1.12" in " ".join(done.output.split())


# ------------------------------------------------------------------ columns


def test_inputs_columns_accepts_one_raw_tensor_per_column() -> None:
    cells = [(0.0, "red"), (0.0, "blue"), (0.0, "NA"), (1.0, "red"), (math.nan, "green")]
    cells += [(0.0, " NA "), (0.0, ""), (0.0, "None"), (0.0, "Red")]
    model = text_model()
    session = export_onnx_forms_session_of(model, inputs="columns")
    assert [(one.name, one.type, one.shape) for one in session.get_inputs()] == [
        ("size", "tensor(float)", ["N", 1]),
        ("colour", "tensor(string)", ["N", 1]),
    ]
    label, shares = session.run(None, columns_of(cells))
    table = {"size": [size for size, _ in cells], "colour": [colour for _, colour in cells]}
    assert label.tolist() == model.predict(table).tolist()
    assert shares.tolist() == model.predict_proba(table).tolist()


def test_null_cells_of_a_text_column_are_missing() -> None:
    session = export_onnx_forms_session_of(text_model(), inputs="columns")
    nulls = columns_of([(0.0, ""), (0.0, "x"), (0.0, "x")])
    nulls["colour"][1:, 0] = [None, math.nan]
    label, _ = session.run(None, nulls)
    assert set(label.tolist()) == {"yes"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_missing_marks_are_distinguished_from_unseen_texts(dtype: str) -> None:
    schema = text_schema(missing_marks=("", "?", ".*", "a\nb", "\\", " blank"), dtype=dtype)
    tree = subset("colour", ["red"], leaf([3, 1]), leaf([1, 4]), missing=1)
    model = make_model(schema, [build_tree(tree, schema)], unknown="error")
    session = export_onnx_forms_session_of(model, inputs="columns")

    def run(text: str) -> str:
        feeds = columns_of([(0.0, text)])
        feeds["size"] = feeds["size"].astype(dtype)
        return str(session.run(["label"], feeds)[0][0])

    assert [run("red"), run("NA")] == ["no", "yes"]
    for text in ("", " ", "?", "\u3000?\t\n", " .* ", "a\nb", "\\", "\x1f\x85\xa0\u2028"):
        assert run(text) == "yes"
    for text in ("xx", "??", "NAN", " red", "blank", " blank", "\ufeff?", "a b"):
        with pytest.raises(Exception, match="this model refuses unseen categories"):
            run(text)


def test_graph_with_column_inputs_refuses_what_the_model_refuses() -> None:
    session = export_onnx_forms_session_of(text_model(missing="error"), inputs="columns")
    assert session.run(["label"], columns_of([(0.0, "red")]))[0].tolist() == ["no"]
    for row in [(math.nan, "red"), (0.0, ""), (0.0, "green")]:
        with pytest.raises(Exception, match="this model refuses missing values"):
            session.run(None, columns_of([row]))


def test_input_names_are_column_names_or_the_nearest_valid_name() -> None:
    names = ("label", "", "a\0b", "\ud800", "column 1", "sums", "X", "label_2", "a\\x00b", "é 😀")
    schema = Schema(tuple(map(Column, names)), classes=("no", "yes"))
    given = make_input_names(schema, ["label", "probabilities"])
    assert len(set(given)) == len(names)
    assert given[4:] == list(names[4:])
    assert given[0] == "label_3"
    assert given[1] == "column 1_2"
    assert given[3] == "\\ud800"
    model = make_model(schema, [build_tree(threshold(0, 0.5, leaf([1, 0]), leaf([0, 1])), schema)])
    session = export_onnx_forms_session_of(model, inputs="columns")
    assert [one.name for one in session.get_inputs()] == given
    said = json.loads(session.get_modelmeta().custom_metadata_map["treekit.inputs"])
    assert list(said.items()) == list(zip(given, names, strict=True))
    rows = {name: np.ones((3, 1), dtype=np.float32) for name in given}
    rows["label_3"][1] = 0.25
    assert session.run(["label"], rows)[0].tolist() == ["yes", "no", "yes"]


def test_invalid_unicode_category_is_refused_with_column_inputs() -> None:
    schema = Schema((Column("c", "nominal", ("a", "\ud800")),), classes=("no", "yes"))
    model = make_model(schema, [build_tree(leaf([1, 2]), schema)])
    with pytest.raises(ExportError, match=r"'\\ud800' of column 'c' is not valid.*inputs='tensor'"):
        export_onnx(model, "m", inputs="columns")


# ------------------------------------------------------------------ outputs


def test_zipmap_contains_probabilities_in_float32() -> None:
    model = text_model()
    rows = np.array([[0, 0], [0, 1], [1, 0]], dtype=np.float32)
    session = export_onnx_forms_session_of(model, zipmap=True)
    _, maps = session.run(None, {"X": rows})
    shares = wanted(model, rows.astype(float)).number
    assert maps == [dict(zip(("no", "yes"), map(np.float32, row), strict=True)) for row in shares]


def test_zipmap_of_several_targets_has_the_labels_of_each() -> None:
    schema = Schema((Column("x"),), classes=("no", "yes"), more=(Output("second", (7, -3, 5)),))
    tree = build_tree(threshold("x", 0, leaf([1, 3, 1, 1, 2]), leaf([1, 1, 5, 1, 2])), schema)
    session = export_onnx_forms_session_of(make_model(schema, [tree]), zipmap=True)
    assert [one.name for one in session.get_outputs()] == [
        *("label_0", "probabilities_0", "label_1", "probabilities_1")
    ]
    told = session.run(None, {"X": np.array([[1.0]], dtype=np.float32)})
    assert [set(told[1][0]), set(told[3][0])] == [{"no", "yes"}, {7, -3, 5}]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bool_labels", "zipmap=True needs labels that are text or integers"),
        ("float_labels", "are of type float: choose zipmap=False"),
        ("one_number", "the model is a regression: choose zipmap=False"),
    ],
)
def test_zipmap_with_unsupported_labels_is_refused(name: str, said: str) -> None:
    with pytest.raises(ExportError, match=said):
        export_onnx(EXTREMES[name](), "m", zipmap=True)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_decision_path_output_marks_nodes_from_root_to_leaf(runtime: str) -> None:
    model = random_model(8, mixed_schema(), n_trees=4)
    rows = extreme_rows(model, most=20)
    session = export_onnx_forms_session_of(
        model, leaf=True, decision_path=True, target_runtime=runtime
    )
    assert [one.name for one in session.get_outputs()][2:] == ["leaf", "path"]
    leaves, paths = session.run(["leaf", "path"], {"X": single(rows)})
    assert np.array_equal(leaves, leaf_indices(model, rows))
    for t, tree in enumerate(model.trees):
        parent = {
            int(first) + b: node
            for node, first in enumerate(tree.first_child)
            for b in range(tree.n_children[node])
        }
        for node, path in zip(leaves[:, t].tolist(), paths[:, t], strict=True):
            way = {node}
            while node:
                way.add(node := parent[node])
            assert path == "".join("01"[k in way] for k in range(tree.n_nodes))


def test_decision_path_output_that_is_too_large_is_refused() -> None:
    with pytest.raises(ExportError, match=r"decision_path=True needs a single path .*leaf=True"):
        export_onnx(EXTREMES["fractional"](), "m", decision_path=True)
    schema = Schema((Column("x"),), classes=("no", "yes"))
    node = leaf([1, 0])
    for k in range(4900):
        node = threshold("x", float(-k), leaf([1, k + 1]), node)
    model = make_model(schema, [build_tree(node, schema)] * 2)
    with pytest.raises(ExportError, match=r"characters, one for each pair of a leaf .*choose leaf"):
        export_onnx(model, "m", decision_path=True)


def test_metadata_state_names_classes_and_the_oldest_runtime() -> None:
    told = export_onnx_forms_session_of(text_model()).get_modelmeta()
    assert told.producer_name == "treekit"
    said = told.custom_metadata_map
    assert json.loads(said["treekit.features"]) == ["size", "colour"]
    assert json.loads(said["treekit.classes"]) == ["no", "yes"]
    assert said["treekit.runtime"] == "onnxruntime 1.12"
    units = json.loads(said["treekit.units"])
    assert units == {"trees": 1, "unit_total": UNIT_BUDGET["float32"]}
    margins = json.loads(
        export_onnx_forms_session_of(EXTREMES["boosted_share"]())
        .get_modelmeta()
        .custom_metadata_map["treekit.units"]
    )
    assert margins["link"] == "sigmoid"


@pytest.mark.parametrize(
    "settings", [{"inputs": "columns"}, {"zipmap": True}, {"leaf": True, "decision_path": True}]
)
def test_verify_runs_every_form(settings: dict[str, Any], tmp_path: Path) -> None:
    model = random_model(5, mixed_schema(dtype="float64"), n_trees=3, n_splits=8)
    treekit.export(model, "onnx", tmp_path / "m.onnx", **settings)
    report = treekit.verify(model, [tmp_path / "m.onnx"], random_rows=50)
    assert report.equal, report
    other = random_model(6, mixed_schema(dtype="float64"), n_trees=3, n_splits=8)
    assert not treekit.verify(other, [tmp_path / "m.onnx"], random_rows=50).equal


@pytest.mark.parametrize("settings", [{"inputs": "columns", "leaf": True}, {"decision_path": True}])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_form_of_the_same_model_gives_the_same_bytes(
    runtime: str, settings: dict[str, Any]
) -> None:
    model = random_model(5, mixed_schema(), n_trees=3)
    first = export_onnx(model, "m", target_runtime=runtime, **settings)
    assert first == export_onnx(model, "m", target_runtime=runtime, **settings)


# ---------------------------------------------------------------- export onnx kinds
# ONNX of oblique, divided, cost-weighing and many-targeted models, against the slow oracle.


def outputs_of(model: Model, rows: np.ndarray, **settings: Any) -> dict[str, np.ndarray]:
    content = export_onnx(model, "m", **settings)["m.onnx"]
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    with np.errstate(over="ignore"):
        x = rows.astype(model.schema.dtype)
    return dict(zip(names, session.run(None, {"X": x}), strict=True))


def assert_like_the_oracle(model: Model, rows: np.ndarray, **settings: Any) -> None:
    got = outputs_of(model, rows, **settings)
    several = len(model.schema.outputs) > 1
    for at, row in enumerate(rows.tolist()):
        answer = evaluate.predict(model, row)
        answers = list(answer) if several else [answer]
        if model.schema.task == "regression":
            assert np.atleast_1d(got["value"][at]).tolist() == answers
            continue
        shares = evaluate.probabilities(model, row)
        for number, (output, label) in enumerate(zip(model.schema.outputs, answers, strict=True)):
            end = f"_{number}" if several else ""
            own = shares[slice(*model.schema.blocks[number : number + 2])]
            assert got[f"label{end}"][at] == output.classes[int(label)]
            assert got[f"probabilities{end}"][at].tolist() == own


@given(st.data())
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_every_kind_of_model_predicts_as_the_oracle(data: st.DataObject) -> None:
    model = data.draw(models(kinds=ALL_KINDS))
    rows = data.draw(matrices(model))
    versions = [{"opset": 13}, {}, {"opset": 18}, {"target_runtime": "1.20"}]
    chosen = data.draw(st.sampled_from([*versions, {"target_runtime": "1.31"}]))
    assert_like_the_oracle(model, rows, **chosen)


@pytest.mark.parametrize("settings", [{"target_runtime": "1.31"}, {"leaf": True}])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_sums_of_leaf_values_beyond_a_double_are_exact(n_outputs, settings) -> None:
    # onnxruntime's ReduceSum adds 64-bit integers in double.
    rng = np.random.default_rng(n_outputs)
    more = tuple(Output(f"y{k}") for k in range(1, n_outputs))
    schema = Schema(columns=(Column("a"),), task="regression", dtype="float64", more=more)
    trees = []
    for _ in range(7):
        values = rng.normal(size=(20, n_outputs)) * 1e12
        values[:3] = 1e-3  # needs small units
        node = leaf(values[0].tolist())
        for cut, value in zip(np.sort(rng.uniform(-1, 1, 19)), values[1:], strict=True):
            node = threshold("a", float(cut), node, leaf(value.tolist()))
        trees.append(build_tree(node, schema))
    model = make_model(schema, trees)
    assert int(np.abs(model.units).max()) * len(trees) > 2**53
    assert_like_the_oracle(model, rng.uniform(-1.2, 1.2, (200, 1)), **settings)


def test_fractional_rows_in_a_deep_chain_predict_equally() -> None:
    schema = Schema(columns=(Column("a"), Column("b")), classes=("no", "yes"))
    node = leaf([1, 2])
    for at in range(40):
        node = threshold(at % 2, float(at), leaf([at + 1, 1]), node)
    model = make_model(schema, [build_tree(node, schema)], missing="fractional")
    rows = np.array([[np.nan, np.nan], [np.nan, 7.5], [3.0, np.nan], [100.0, 100.0]])
    assert_like_the_oracle(model, rows)


def test_costs_beyond_double_precision_are_compared_exactly() -> None:
    schema = Schema(columns=(Column("a"),), classes=("x", "y", "z"))
    tree = build_tree(threshold("a", 0.0, leaf([5, 3, 1]), leaf([1, 4, 9])), schema)
    costs = np.array([[0, 16384, 16383], [16384, 0, 16384], [16383, 16384, 0]])
    model = make_model(schema, [tree], missing="fractional", costs=costs)
    assert_like_the_oracle(model, np.array([[np.nan], [-1.0], [1.0]]))


@pytest.mark.parametrize("seed", range(20))
def test_least_of_large_nearly_equal_costs_is_chosen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = Schema(columns=(Column("a"), Column("b")), classes=("w", "x", "y", "z"))
    votes = rng.choice([0, 1, 3], (3, 4)) + np.eye(4)[:3]
    leaves = [leaf(row) for row in votes.tolist()]
    tree = build_tree(threshold("a", 0.0, threshold("b", 0.0, *leaves[:2]), leaves[2]), schema)
    costs = rng.choice([16384, 16383, 33, 1], (4, 4))
    costs[:, 3] = costs[:, 2]  # equal where a row has no votes of either class
    np.fill_diagonal(costs, 0)
    model = make_model(schema, [tree] * 2, missing="fractional", costs=costs)
    cells = [np.nan, -1.0, 1.0]
    assert_like_the_oracle(model, np.array([[a, b] for a in cells for b in cells]))


@pytest.mark.parametrize("name", EXTREMES)
def test_graphs_do_not_multiply_integers(name: str) -> None:
    """Some runtimes compute int64 in 32 bits: their products overflow without an error."""
    for form in FORMS.values():
        proto = onnx.load_model_from_string(export_onnx(EXTREMES[name](), "m", **form)["m.onnx"])
        graph = onnx.shape_inference.infer_shapes(proto).graph
        types = {one.name: one.type.tensor_type.elem_type for one in graph.value_info}
        types |= {one.name: one.type.tensor_type.elem_type for one in graph.output}
        types |= {one.name: one.data_type for one in graph.initializer}
        products = [node for node in graph.node if node.op_type in ("Mul", "Div", "MatMul", "Gemm")]
        reals = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE}
        assert {types[name] for node in products for name in node.output} <= reals


@pytest.mark.parametrize("rows", [0, 1, 5000])
def test_fractional_instances_predict_equally_in_batches_of_any_size(rows: int) -> None:
    schema = Schema(columns=(Column("a"), Column("b")), classes=("no", "yes"))
    below = threshold("b", 0.5, leaf([3, 1]), leaf([1, 5]))
    tree = build_tree(threshold("a", 0.5, below, leaf([2, 2])), schema)
    model = make_model(schema, [tree] * 3, missing="fractional")
    cells = np.array([np.nan, 0.0, 1.0])
    x = cells[np.random.default_rng(rows).integers(0, 3, (rows, 2))]
    got = outputs_of(model, x)["probabilities"]
    assert got.shape == (rows, 2)
    for row, shares in zip(x[:50].tolist(), got[:50].tolist(), strict=True):
        assert shares == list(evaluate.probabilities(model, row))


@pytest.mark.parametrize("policies", [{"missing": "error"}, {"unknown": "error"}])
def test_graph_with_derived_columns_refuses_missing_and_unseen_cells(
    policies: dict[str, Any],
) -> None:
    columns = (Column("a"), Column("b"), Column("c", "nominal", ("x", "y")))
    schema = Schema(columns=columns, classes=("no", "yes"))
    slanted = oblique({"a": 1.0, "b": -2.0}, 0.5, leaf([3, 1]), leaf([1, 2]))
    tree = build_tree(subset("c", ["x"], slanted, leaf([0, 1])), schema)
    model = make_model(schema, [tree], **policies)
    assert_like_the_oracle(model, np.array([[0.0, 0.0, 0], [1.0, 0.0, 0], [1.0, 0.0, 1]]))
    with pytest.raises(Exception, match="this model refuses"):
        outputs_of(model, np.array([[0.0, 0.0, 2.0]]))


# ---------------------------------------------------------------- export onnx extremes
# Every extreme model as ONNX, in every form, or refused by name.

FORMS: dict[str, dict[str, Any]] = {
    "widest": {},
    "newest": {"target_runtime": "1.31"},
    "columns": {"inputs": "columns", "leaf": True},
}


def assert_answers(model: Model, path: Path, rows: np.ndarray, **settings: Any) -> bytes:
    """Export, run in every way, and compare every bit; returns the file."""
    content = export_onnx(model, "m", **settings)["m.onnx"]
    path.write_bytes(content)
    answers = wanted(model, rows)
    ways = 0
    for how, answered in run_onnx(Job(path, model.schema, path.parent), rows):
        n = len(answered.label)
        assert n, how
        part = Answers(answers.label[:n], answers.number[:n])
        assert differing(part, answered).tolist() == [], how
        ways += 1
    assert ways == 2
    return content


SOME = (
    *("one_leaf", "one_class", "float32_extremes", "vanishing", "several_labels"),
    *("several_numbers", "mark_levels", "oblique", "surrogates", "fractional", "costs"),
    *("hard_voting", "refuses_both", "boosted_four", "boosted_each", "linked_means"),
    *("bool_labels", "mixed64_numbers"),
)
"""One of each kind: those that every run of the tests takes."""


def others(name: str) -> Any:
    return name if name in SOME else pytest.param(name, marks=pytest.mark.matrix)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [others(name) for name in EXTREMES])
def test_every_extreme_model_predicts_with_the_same_bits(
    name: str, form: str, tmp_path: Path
) -> None:
    model = EXTREMES[name]()
    rows = extreme_rows(model, most=60)
    assert_answers(model, tmp_path / "m.onnx", rows, **FORMS[form])


@pytest.mark.parametrize("runtime", ["1.12", "1.31"])
@pytest.mark.parametrize(
    "name", [others(name) for name in EXTREMES if not name.startswith("refuses")]
)
def test_leaves_are_identified_by_node_numbers(name: str, runtime: str) -> None:
    model = EXTREMES[name]()
    if model.schema.dtype == "float64" and runtime == "1.12":
        runtime = "1.15"
    rows = extreme_rows(model, most=20)
    content = export_onnx(model, "m", leaf=True, target_runtime=runtime)["m.onnx"]
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    with np.errstate(over="ignore", under="ignore"):
        (told,) = session.run(["leaf"], {"X": rows.astype(model.schema.dtype)})
    assert told.dtype == np.int64
    assert np.array_equal(told, leaf_indices(model, rows))
