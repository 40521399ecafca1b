"""ONNX files answer, in onnxruntime, bit for bit what the slow oracle answers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from tests.reference import evaluate
from treekit._version import __version__
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError
from treekit.export.onnx import ONNX_SETTINGS, export_onnx
from treekit.model.builder import Node, build_tree, is_missing, leaf, multiway, subset, threshold
from treekit.model.model import Model, make_model
from treekit.model.tree import MAX_DEPTH

NAN = float("nan")
ODD_CODES = [NAN, -1.0, -0.0, 0.5, 2.5, 1e9, -1e9, np.inf, -np.inf, 31.0, 32.0, 33.0, 499.0, 500.0]
ODD_NUMBERS = [NAN, 0.0, -0.0, np.inf, -np.inf, 1e-45, 3.4028235e38, -3.4028235e38]


def levels(n: int) -> tuple[str, ...]:
    return tuple(f"level {i}" for i in range(n))


def mixed_schema(classes: tuple[Any, ...] = ("no", "yes"), **other: Any) -> Schema:
    columns = (
        Column("age"),
        Column("colour", "nominal", levels(5)),
        Column("income"),
        Column("town", "nominal", levels(70)),
        Column("never known", "nominal", ()),
    )
    return Schema(columns=columns, classes=classes, **other)


def regression_schema() -> Schema:
    return mixed_schema((), task="regression")


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


def random_model(rng: np.random.Generator, schema: Schema, trees: int, depth: int) -> Model:
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
def test_random_forests_of_all_split_kinds_agree_in_every_batch_size(trees: int) -> None:
    rng = np.random.default_rng(trees)
    for schema in (mixed_schema(), mixed_schema((3, 1, 2)), regression_schema()):
        model = random_model(rng, schema, trees, depth=5 if trees < 90 else 3)
        assert_equal_to_oracle(model, random_rows(rng, schema, 120 if trees < 90 else 40))


def test_small_random_trees_agree_on_many_seeds() -> None:
    for seed in range(12):
        rng = np.random.default_rng(1000 + seed)
        schema = mixed_schema()
        assert_equal_to_oracle(random_model(rng, schema, 2, 4), random_rows(rng, schema, 60), (60,))


def test_the_reference_evaluator_of_onnx_agrees_with_onnxruntime() -> None:
    for seed, schema in enumerate([mixed_schema(), mixed_schema((3, 1, 2)), regression_schema()]):
        rng = np.random.default_rng(seed)
        model, rows = random_model(rng, schema, 3, 4), random_rows(rng, schema, 100)
        content = export_onnx(model, "m")["m.onnx"]
        evaluator = ReferenceEvaluator(onnx.load_model_from_string(content))
        for ours, theirs in zip(
            session_of(model).run(None, {"X": rows}), evaluator.run(None, {"X": rows}), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_every_offered_opset_runs_and_agrees(opset: int) -> None:
    rng = np.random.default_rng(5)
    (offered,) = (setting for setting in ONNX_SETTINGS if setting.name == "opset")
    assert (offered.minimum, offered.maximum) == (13, 21)
    model = random_model(rng, mixed_schema(), 3, 4)
    assert_equal_to_oracle(model, random_rows(rng, model.schema, 50), (50,), opset=opset)


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("kind", ["threshold", "subset", "multiway", "missing"])
def test_missing_values_follow_the_stored_side(kind: str, missing: int) -> None:
    schema = mixed_schema()
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
def test_sets_of_any_shape_hold_exactly_their_codes(size: int) -> None:
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


def test_a_multiway_split_over_five_hundred_levels_agrees() -> None:
    schema = Schema(columns=(Column("c", "nominal", levels(500)),), classes=("a", "b"))
    branches = {name: leaf([float(i % 3), 1.0]) for i, name in enumerate(levels(500)[::-1])}
    model = make_model(schema, [build_tree(multiway("c", branches, missing=7), schema)])
    rows = np.array([[*range(500), *ODD_CODES]], dtype=np.float32).T
    assert_equal_to_oracle(model, rows, (5000,))


def test_tied_votes_of_ten_trees_go_to_the_first_class() -> None:
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
def test_few_operators_follow_the_trees(classes: tuple[Any, ...], operators: list[str]) -> None:
    columns = tuple(Column(f"x{i}") for i in range(5))
    task = "classification" if classes else "regression"
    schema = Schema(columns=columns, classes=classes, task=task)  # type: ignore[arg-type]
    model = random_model(np.random.default_rng(4), schema, 7, 4)
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
def test_a_regression_of_single_leaves_agrees(trees: int, value: float) -> None:
    schema = regression_schema()
    model = make_model(schema, [build_tree(leaf(value), schema)] * trees)
    assert_equal_to_oracle(model, random_rows(np.random.default_rng(0), schema, 20))


@pytest.mark.parametrize("trees", [1, 3, pytest.param(90, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("classes", [("only",), ("a", "b"), ("a", "b", "c")])
def test_single_leaves_and_one_class_agree(trees: int, classes: tuple[str, ...]) -> None:
    schema = mixed_schema(classes)
    weights = [0.0] * (len(classes) - 1) + [2.0]
    model = make_model(schema, [build_tree(leaf(weights), schema)] * trees)
    assert_equal_to_oracle(model, random_rows(np.random.default_rng(1), schema, 20))


def test_one_class_with_splits_agrees() -> None:
    schema = mixed_schema((7,))
    model = random_model(np.random.default_rng(2), schema, 9, 3)
    assert_equal_to_oracle(model, random_rows(np.random.default_rng(3), schema, 20))


@pytest.mark.matrix
def test_a_thousand_classes_agree() -> None:
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
def test_a_chain_of_depth_900_agrees(deep_side: int) -> None:
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


def test_sets_too_many_for_chains_of_tests_need_an_operator_that_has_sets() -> None:
    schema = Schema(columns=(Column("c", "nominal", levels(500)),), classes=("a", "b"))
    node = leaf([1.0, 0.0])
    for k in range(11):
        node = subset("c", levels(500)[1 + k :: 2], leaf([float(k), 1.0]), node)
    model = make_model(schema, [build_tree(node, schema)])
    rows = np.array([[*range(500), *ODD_CODES]], dtype=np.float32).T
    assert_equal_to_oracle(model, rows, (5000,))
    message = r"this model needs category sets .* onnxruntime 1\.20 cannot .* is 1\.24"
    with pytest.raises(ExportError, match=message):
        export_onnx(model, "m", target_runtime="1.20")


def test_no_rows_give_no_answers() -> None:
    session = session_of(random_model(np.random.default_rng(0), mixed_schema(), 3, 3))
    label, shares = session.run(None, {"X": np.empty((0, 5), dtype=np.float32)})
    assert label.shape == (0,)
    assert shares.shape == (0, 2)


@pytest.mark.parametrize(
    "classes",
    [("yes", "no"), (2**62, -5), (True, False), (0.5, -1e300), ("中文", "😀 \0 */ \\")],
)
def test_labels_of_every_type_come_back_equal(classes: tuple[Any, ...]) -> None:
    model = random_model(np.random.default_rng(6), mixed_schema(classes), 3, 3)
    assert_equal_to_oracle(model, random_rows(np.random.default_rng(7), model.schema, 30), (30,))


def test_metadata_hold_hostile_names_unharmed() -> None:
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
    model = random_model(np.random.default_rng(0), mixed_schema(), 3, 3)
    assert export_onnx(model, "m") == export_onnx(model, "m")


def test_only_operators_of_the_two_standard_domains_are_used() -> None:
    model = random_model(np.random.default_rng(0), mixed_schema(), 3, 3)
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
        ({"classes": (0, 2**63)}, r"9223372036854775808 does not fit 64 bits"),
        ({"classes": ("a", "\ud800")}, r"surrogate.*rename the class"),
    ],
)
def test_what_onnx_cannot_say_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    schema = mixed_schema(**changes)
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
def test_a_refused_cell_makes_the_run_an_error_that_says_so(
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


def test_refusing_unseen_categories_is_no_matter_without_nominal_columns() -> None:
    schema = Schema(columns=(Column("x"),), classes=("a", "b"))
    tree = build_tree(threshold(0, 1.5, leaf([1.0, 0.0]), leaf([0.0, 1.0])), schema)
    model = make_model(schema, [tree], unknown="error")
    assert_equal_to_oracle(model, np.array([[1.5], [1.5000001], [NAN]], dtype=np.float32))
