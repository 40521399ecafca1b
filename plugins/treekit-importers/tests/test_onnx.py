"""Models read from ONNX graphs predict as onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from treekit_importers.onnx import read_onnx

import treekit
from tests.extremes import EXTREMES, extreme_rows, refused
from treekit.errors import ExportError, ModelError, ModelFileError
from treekit.model.scoring import predict_from_sums, sum_leaf_values
from treekit.testing import check_importer

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
Rows = npt.NDArray[Any]


def run(proto: onnx.ModelProto, rows: Rows) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, {session.get_inputs()[0].name: rows}))


def graph(nodes: list[Any], outputs: list[Any], kind: int = TensorProto.FLOAT, ml: int = 3) -> Any:
    tensor = helper.make_tensor_value_info("X", kind, ["N", 3])
    made = helper.make_graph(nodes, "trees", [tensor], outputs)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", ml)]
    return helper.make_model(made, opset_imports=opsets, ir_version=10)


def scores(name: str = "Y", kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, None)


def random_trees(
    n_trees: int, modes: tuple[str, ...], seed: int, depth: int = 4, of_codes: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Attributes of complete trees; columns 0 and 1 by order, column 2 by equality."""
    random = np.random.default_rng(seed)
    kept: dict[str, list[Any]] = {key: [] for key in ("tree", "node", "mode", "feature", "value")}
    kept |= {"true": [], "false": [], "missing": []}
    n_inner, n = 2**depth - 1, 2 ** (depth + 1) - 1
    for tree in range(n_trees):
        for node in range(n):
            inner = node < n_inner
            column = int(random.integers(3 if of_codes else 2))
            codes = of_codes and column == 2
            mode = str(random.choice(of_codes if codes else modes))
            value = float(random.integers(6)) if codes else float(random.integers(-8, 9)) / 4
            kept["tree"].append(tree + 7)  # numbers need not begin at 0
            kept["node"].append(node * 3)
            kept["mode"].append(f"BRANCH_{mode}" if inner else "LEAF")
            kept["feature"].append(column if inner else 0)
            kept["value"].append(value if inner else 0.0)
            kept["true"].append((2 * node + 1) * 3 if inner else 0)
            kept["false"].append((2 * node + 2) * 3 if inner else 0)
            kept["missing"].append(int(random.integers(2)) if inner and not codes else 0)
    return {
        "nodes_treeids": kept["tree"],
        "nodes_nodeids": kept["node"],
        "nodes_modes": kept["mode"],
        "nodes_featureids": kept["feature"],
        "nodes_values": kept["value"],
        "nodes_truenodeids": kept["true"],
        "nodes_falsenodeids": kept["false"],
        "nodes_missing_value_tracks_true": kept["missing"],
    }


def weights_of(trees: dict[str, Any], prefix: str, n_targets: int, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    leaves = [i for i, mode in enumerate(trees["nodes_modes"]) if mode == "LEAF"]
    several = [(leaf, target) for leaf in leaves for target in range(n_targets)]
    return {
        f"{prefix}_treeids": [trees["nodes_treeids"][leaf] for leaf, _ in several],
        f"{prefix}_nodeids": [trees["nodes_nodeids"][leaf] for leaf, _ in several],
        f"{prefix}_ids": [target for _, target in several],
        f"{prefix}_weights": (random.integers(-99, 100, len(several)) / 16).tolist(),
    }


def regressor(trees: dict[str, Any], n_targets: int = 1, **more: Any) -> Any:
    given = trees | weights_of(trees, "target", n_targets) | {"n_targets": n_targets} | more
    node = helper.make_node("TreeEnsembleRegressor", ["X"], ["Y"], domain="ai.onnx.ml", **given)
    return graph([node], [scores()])


def classifier(trees: dict[str, Any], n_classes: int, n_scores: int, **more: Any) -> Any:
    names = {"classlabels_strings": ["no", "perhaps", "yes"][:n_classes]}
    given = trees | weights_of(trees, "class", n_scores) | names | more
    outputs = ["label", "scores"]
    node = helper.make_node("TreeEnsembleClassifier", ["X"], outputs, domain="ai.onnx.ml", **given)
    return graph([node], [scores("label", TensorProto.STRING), scores("scores")])


def probes(kind: type = np.float32, missing: bool = True) -> Rows:
    """Every threshold and its neighbours, zeros, NaN and infinities; codes seen and unseen."""
    at = np.arange(-8, 9, dtype=kind) / 4
    ends = [kind(np.inf), kind(-np.inf)]
    cells = np.concatenate([at, *(np.nextafter(at, end) for end in ends), [kind(-0.0), *ends]])
    cells = np.append(cells, np.nan) if missing else cells
    random = np.random.default_rng(3)
    rows = random.choice(cells, (1500, 3)).astype(kind)
    codes = random.choice([0, 1, 2, 3, 4, 5, 5000, np.nan if missing else 0], 1500)
    rows[:, 2] = codes.astype(kind)
    return rows


@pytest.mark.parametrize("mode", MODES[:4])
def test_every_comparison_mode_takes_the_branch_of_onnxruntime(mode: str) -> None:
    proto = regressor(random_trees(6, (mode,), seed=MODES.index(mode)))
    rows = probes()
    # Weights are small fractions: sums are exact in float32, too.
    np.testing.assert_array_equal(read_onnx(proto).predict(rows), run(proto, rows)[0][:, 0])


@pytest.mark.parametrize("codes", [("EQ",), ("NEQ",), ("EQ", "NEQ")])
def test_equality_nodes_become_categorical_splits(codes: tuple[str, ...]) -> None:
    proto = regressor(random_trees(5, ("LEQ",), seed=1, of_codes=codes))
    model = read_onnx(proto)
    assert model.schema.columns[2].levels == ("0", "1", "2", "3", "4", "5")
    rows = probes(missing="NEQ" not in codes)
    if model.unknown == "error":
        rows = rows[rows[:, 2] != 5000]
    np.testing.assert_array_equal(model.predict(rows), run(proto, rows)[0][:, 0])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_operator_of_version_5_is_read_in_both_types(kind: type) -> None:
    random = np.random.default_rng(5)
    wide = kind is np.float64
    tensor = TensorProto.DOUBLE if wide else TensorProto.FLOAT
    n = 2**5 - 1
    inner = np.arange(n // 2)
    column = random.integers(0, 3, len(inner))
    modes = np.where(column == 2, 6, random.integers(0, 4, len(inner)))
    members = [random.choice(6, 2, replace=False) for _ in np.flatnonzero(modes == 6)]
    splits = random.integers(-8, 9, len(inner)) / 4 + (0.1 if wide else 0.0)
    is_leaf = [2 * inner + side >= len(inner) for side in (1, 2)]
    child = [np.where(leaf, 2 * inner + side - len(inner), 2 * inner + side)
             for side, leaf in zip((1, 2), is_leaf, strict=True)]  # fmt: skip
    node = helper.make_node(
        "TreeEnsemble",
        ["X"],
        ["Y"],
        domain="ai.onnx.ml",
        n_targets=2,
        tree_roots=[0],
        nodes_featureids=column.tolist(),
        nodes_modes=helper.make_tensor("m", TensorProto.UINT8, [len(inner)], modes.tolist()),
        nodes_splits=helper.make_tensor("s", tensor, [len(inner)], splits.tolist()),
        nodes_truenodeids=child[0].tolist(),
        nodes_falsenodeids=child[1].tolist(),
        nodes_trueleafs=is_leaf[0].astype(int).tolist(),
        nodes_falseleafs=is_leaf[1].astype(int).tolist(),
        nodes_missing_value_tracks_true=np.where(modes == 6, 0, random.integers(0, 2, 15)).tolist(),
        membership_values=helper.make_tensor(
            *("v", tensor, [3 * len(members)]),
            [x for own in members for x in (*own.astype(float).tolist(), np.nan)],
        ),
        leaf_targetids=random.integers(0, 2, 16).tolist(),
        leaf_weights=helper.make_tensor("w", tensor, [16], (random.integers(-9, 9, 16) / 4)),
    )
    proto = graph([node], [scores("Y", tensor)], tensor, ml=5)
    model = read_onnx(proto)
    assert model.schema.dtype == np.dtype(kind).name
    assert [output.name for output in model.schema.outputs] == ["y0", "y1"]
    rows = probes(kind)
    rows[:, :2] += kind(0.1) if wide else kind(0)
    np.testing.assert_array_equal(model.predict(rows), run(proto, rows)[0])


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE"])
@pytest.mark.parametrize("n_targets", [1, 3])
def test_targets_base_values_and_means_are_read(n_targets: int, aggregate: str) -> None:
    base = [0.5, -3.0, 0.25][:n_targets]
    proto = regressor(
        random_trees(4, ("LEQ",), 2), n_targets, base_values=base, aggregate_function=aggregate
    )
    rows = probes()
    ours = read_onnx(proto).predict(rows).reshape(-1, n_targets)
    np.testing.assert_allclose(ours, run(proto, rows)[0], rtol=0, atol=1e-14)


@pytest.mark.parametrize("transform", ["SOFTMAX", "LOGISTIC"])
def test_scores_of_three_classes_become_labels_and_probabilities(transform: str) -> None:
    base = {"base_values": [0.5, 0.25, -1.0]}
    proto = classifier(random_trees(3, ("LEQ",), 4), 3, 3, post_transform=transform, **base)
    rows = probes()
    labels, shares = run(proto, rows)
    model = read_onnx(proto)
    np.testing.assert_array_equal(model.predict(rows), labels)
    np.testing.assert_allclose(model.predict_proba(rows), shares, rtol=0, atol=3e-7)
    raw = read_onnx(proto, answer="margins")
    assert [output.name for output in raw.schema.outputs] == ["no", "perhaps", "yes"]


def test_single_score_of_two_classes_is_read_as_the_margin() -> None:
    more = {"post_transform": "LOGISTIC", "base_values": [0.03]}
    proto = classifier(random_trees(3, ("LT",), 4), 2, 1, **more)
    rows = probes()
    labels, shares = run(proto, rows)
    model = read_onnx(proto)
    np.testing.assert_array_equal(model.predict(rows), labels)
    np.testing.assert_allclose(model.predict_proba(rows), shares, rtol=0, atol=3e-7)


def fitted(kind: Any, classes: int, **settings: Any) -> tuple[Any, Rows]:
    random = np.random.default_rng(0)
    rows = np.round(random.normal(size=(300, 3)), 1).astype(np.float32)
    y = np.array(["a", "b", "c"])[random.integers(0, classes, 300)] if classes else rows[:, 0]
    estimator = kind(random_state=0, **settings).fit(rows, y)
    near = [np.nextafter(rows, np.float32(end)) for end in (9, -9)]
    return estimator, np.concatenate([rows, *near])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (DecisionTreeClassifier, {"max_depth": 5}),
        (RandomForestClassifier, {"n_estimators": 8, "max_depth": 5}),
        (GradientBoostingClassifier, {"n_estimators": 5}),
    ],
)
def test_graphs_of_skl2onnx_predict_as_the_estimator(
    kind: Any, settings: Any, classes: int, tmp_path: Path
) -> None:
    estimator, rows = fitted(kind, classes, **settings)
    path = tmp_path / "model.onnx"
    path.write_bytes(to_onnx(estimator, rows[:1]).SerializeToString())
    model = treekit.read_model(path)
    shares = estimator.predict_proba(rows)
    clear = np.diff(np.sort(shares, axis=1)[:, -2:])[:, 0] > 1e-5
    assert clear.mean() > 0.8
    np.testing.assert_array_equal(model.predict(rows)[clear], estimator.predict(rows)[clear])
    np.testing.assert_allclose(model.predict_proba(rows), shares, rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", [RandomForestRegressor, GradientBoostingRegressor])
def test_regressors_written_by_skl2onnx_predict_as_the_estimator(kind: Any) -> None:
    estimator, rows = fitted(kind, 0, n_estimators=6)
    model = read_onnx(to_onnx(estimator, rows[:1]))
    np.testing.assert_allclose(model.predict(rows), estimator.predict(rows), rtol=0, atol=2e-6)


def test_rules_of_imported_models_are_verified_equal(tmp_path: Path) -> None:
    estimator, rows = fitted(GradientBoostingClassifier, 3, n_estimators=2)
    model = read_onnx(to_onnx(estimator, rows[:1]))
    paths = treekit.export(model, "rules", tmp_path / "m")
    assert treekit.verify(model, paths).exit_code == 0


def with_changes(**changes: Any) -> Any:
    return regressor(random_trees(2, ("LEQ",), 1, depth=2) | changes)


def test_other_operators_are_refused() -> None:
    estimator, rows = fitted(DecisionTreeClassifier, 2)
    scaled = make_pipeline(StandardScaler(), estimator).fit(rows, estimator.predict(rows))
    with pytest.raises(ModelError, match="operator 'Scaler' before its trees"):
        read_onnx(to_onnx(scaled, rows[:1]))
    plain = helper.make_node("Abs", ["X"], ["Y"])
    with pytest.raises(ModelError, match=r"0 tree operators.*its operators: Abs"):
        read_onnx(graph([plain], [scores()]))
    behind = regressor(random_trees(1, ("LEQ",), 1))
    behind.graph.node.append(helper.make_node("Exp", ["Y"], ["Z"]))
    with pytest.raises(ModelError, match="operator 'Exp' after its trees"):
        read_onnx(behind)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: regressor(random_trees(1, ("LEQ",), 1), aggregate_function="MAX"), "'MAX'"),
        (
            lambda: regressor(random_trees(1, ("LEQ",), 1), post_transform="PROBIT"),
            "'PROBIT'; read it with answer='margins'",
        ),
        (
            lambda: classifier(random_trees(1, ("LEQ",), 1), 3, 3, post_transform="SOFTMAX_ZERO"),
            "'SOFTMAX_ZERO'; read it with answer='margins'",
        ),
        (lambda: classifier(random_trees(1, ("LEQ",), 1), 3, 3), "not shares of votes; read it"),
        (
            lambda: regressor(random_trees(3, ("LEQ",), 1) | {"nodes_featureids": [2] * 93}
                              | {"nodes_modes": random_trees(3, ("EQ", "LT"), 1)["nodes_modes"]}
                              | {"nodes_values": [1.0] * 93}),
            "column 2 both by order and by equality",
        ),
        (
            lambda: regressor(random_trees(1, ("EQ",), 1) | {"nodes_values": [-0.5] * 31}),
            "equals -0.5; treekit reads such tests",
        ),
        (lambda: with_changes(nodes_values=[-np.inf] * 14), "threshold -inf, below all finite"),
    ],
)  # fmt: skip
def test_models_that_cannot_be_expressed_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_onnx(make())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_modes": ["LEAF"]}, "nodes_modes has 1 entries for 14 nodes"),
        ({"nodes_modes": ["BRANCH_WILD"] * 14}, "unknown mode 'BRANCH_WILD'"),
        ({"nodes_truenodeids": [999] * 14}, "child is not in its tree"),
        ({"nodes_nodeids": [0] * 14}, "duplicate nodes"),
        ({"nodes_falsenodeids": [0] * 14}, "no root|cycles"),
        ({"nodes_values": [np.nan] * 14}, "threshold is NaN"),
        ({"nodes_featureids": [77] * 14}, "uses none of the 3 columns"),
        ({"n_targets": 0}, "0 targets"),
        ({"base_values": [1.0, 2.0]}, "2 base values for 1 margins"),
    ],
)
def test_a_damaged_graph_is_refused(changes: dict[str, Any], message: str) -> None:
    trees = random_trees(2, ("LEQ",), 1, depth=2)
    own = {name: value for name, value in changes.items() if name in trees}
    given = trees | weights_of(trees, "target", 1) | {"n_targets": 1} | own | changes
    node = helper.make_node("TreeEnsembleRegressor", ["X"], ["Y"], domain="ai.onnx.ml", **given)
    with pytest.raises((ModelError, ModelFileError), match=message):
        read_onnx(graph([node], [scores()]))


def test_nodes_shared_by_too_many_paths_are_refused() -> None:
    n = 60
    chain = {
        "nodes_treeids": [0] * (n + 1),
        "nodes_nodeids": list(range(n + 1)),
        "nodes_modes": ["BRANCH_LEQ"] * n + ["LEAF"],
        "nodes_featureids": [0] * (n + 1),
        "nodes_values": [0.0] * (n + 1),
        "nodes_truenodeids": [*range(1, n + 1), 0],
        "nodes_falsenodeids": [*range(1, n + 1), 0],
    }
    with pytest.raises(ModelError, match="share nodes so often"):
        read_onnx(regressor(chain))


def test_tensors_in_other_files_are_not_opened(tmp_path: Path) -> None:
    proto = regressor(random_trees(1, ("LEQ",), 1))
    node = proto.graph.node[0]
    secret = onnx.TensorProto(data_type=TensorProto.DOUBLE, dims=[31])
    secret.data_location = TensorProto.EXTERNAL
    secret.external_data.add(key="location", value="/etc/passwd")
    node.attribute.append(helper.make_attribute("nodes_values_as_tensor", secret))
    with pytest.raises(ModelError, match="in another file"):
        read_onnx(proto)


def test_importer_passes_the_contract_checks(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(regressor(random_trees(2, ("LEQ", "GT"), 1, depth=2)).SerializeToString())
    check_importer("onnx", sources=[path])


# ------------------------------------------------------------------ treekit's own

DERIVED = (
    *("oblique", "surrogates"),
    *("fractional", "fractional_numbers", "fractional_unequal", "fractional_wide"),
)
"""Extreme models of which a graph no longer has all that they ask."""
LARGE = 20_000
"""Nodes: larger ones say nothing more, and take their time."""
FIRST = (
    *("one_leaf", "one_class", "float32_extremes", "float64_extremes", "missing_only"),
    *("many_levels_in_two", "vanishing", "several_labels", "several_numbers", "hard_voting"),
    *("costs", "refuses_both", "boosted_four", "boosted_counts", "mixed", "mixed64_numbers"),
)
"""Extreme models that the first tier reads back."""


def test_parts_of_leaf_values_of_unequal_sizes_are_refused(tmp_path: Path) -> None:
    (path,) = treekit.export(EXTREMES["wide_numbers"](), "onnx", tmp_path / "m", leaf=True)
    proto = onnx.load(path)
    (low,) = (one for one in proto.graph.initializer if one.name == "low_units")
    low.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(low)[1:], "low_units"))
    onnx.save(proto, path)
    with pytest.raises(ModelFileError, match="inconsistent sizes of its leaf values"):
        treekit.read_model(path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FIRST else pytest.mark.matrix)
        for name in EXTREMES
        if name not in DERIVED
    ],
)
def test_graphs_exported_by_treekit_are_read_back_with_equal_bits(
    name: str, tmp_path: Path
) -> None:
    model = EXTREMES[name]()
    rows = extreme_rows(model)
    rows = rows[~refused(model, rows)]
    for number, settings in enumerate(({}, {"leaf": True}, {"target_runtime": "1.31"})):
        try:
            (path,) = treekit.export(model, "onnx", tmp_path / f"m{number}", **settings)
        except ExportError:
            continue  # said elsewhere
        read = treekit.read_model(Path(path))
        assert (read.schema, read.unknown, read.missing) == (
            model.schema,
            model.unknown,
            model.missing,
        )
        ours, theirs = sum_leaf_values(read, rows), sum_leaf_values(model, rows)
        np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(
            predict_from_sums(read, ours), predict_from_sums(model, theirs)
        )
        if model.n_nodes > LARGE or model.n_trees > LARGE // 100:
            return


@pytest.mark.parametrize("name", DERIVED)
def test_graphs_exported_by_treekit_are_refused_without_their_inputs(
    name: str, tmp_path: Path
) -> None:
    (path,) = treekit.export(EXTREMES[name](), "onnx", tmp_path / "m")
    with pytest.raises(ModelError, match="cannot be imported"):
        treekit.read_model(Path(path))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("treekit.schema", "{}", "its metadata"),
        ("treekit.schema", "[" * 10**5, "its metadata"),
        ("treekit.policies", '{"missing": "guess"}', "its metadata"),
        ("treekit.units", '{"exponent": 99999}', "its exponent is 99999"),
        (
            "treekit.policies",
            '{"missing": "direction", "unknown": "missing", "voting": "soft", '
            '"combine": "mean", "costs": [[0], [1, 0]]}',
            "costs are not a matrix",
        ),
    ],
)
def test_graphs_exported_by_treekit_are_refused_with_changed_metadata(
    key: str, value: str, message: str, tmp_path: Path
) -> None:
    (path,) = treekit.export(EXTREMES["boosted_four"](), "onnx", tmp_path / "m")
    proto = onnx.load(path)
    (told,) = (one for one in proto.metadata_props if one.key == key)
    told.value = value
    with pytest.raises(ModelFileError, match=message):
        read_onnx(proto)


def test_graphs_exported_by_treekit_are_refused_with_changed_integers(tmp_path: Path) -> None:
    (path,) = treekit.export(EXTREMES["mixed"](), "onnx", tmp_path / "m", leaf=True)
    proto = onnx.load(path)
    (units,) = (one for one in proto.graph.initializer if one.name == "units")
    units.raw_data = bytes(len(units.raw_data))
    with pytest.raises(ModelError, match="the votes of a leaf do not sum"):
        read_onnx(proto)
