"""ONNX files of every runtime, with columns for inputs and more outputs than the answer."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import treekit
from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.reference.models import mixed_schema, random_model
from treekit.data.schema import Column, Output, Schema
from treekit.errors import ExportError
from treekit.export.onnx import export_onnx
from treekit.export.onnx.graph import DOUBLES, MARKS, MEMBERS, choose_profile
from treekit.export.onnx.inputs import input_names
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.fixed_point import UNITS
from treekit.model.model import Model, make_model
from treekit.model.scoring import leaf_indices, sums

RUNTIMES = ("", "1.31")
"""Of which the first gives operators of ai.onnx.ml 3, and the second those of 5."""


def session_of(model: Model, **settings: Any) -> onnxruntime.InferenceSession:
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
    told = session_of(model, target_runtime=runtime).run(None, {"X": rows})[0]
    assert told.tolist() == wanted(model, rows).number[:, 0].tolist()
    assert len(set(told.tolist())) == len(at) + 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_sums_up_to_two_to_the_53_stay_whole(runtime: str, dtype: str) -> None:
    schema = Schema((Column("x"),), task="regression", dtype=dtype)
    rng = np.random.default_rng(3)
    values = rng.normal(size=(37, 2)) * 10.0 ** rng.integers(-9, 3, (37, 1))
    trees = [
        build_tree(threshold("x", k / 4, leaf(a), leaf(b)), schema)
        for k, (a, b) in enumerate(values)
    ]
    model = make_model(schema, [*trees, *trees[:5]], combine="sum")
    rows = np.arange(-1.0, 10.0, 0.125)[:, None]
    assert np.abs(sums(model, rows)).max() > 2**48
    told = session_of(model, target_runtime=runtime).run(None, {"X": rows.astype(dtype)})[0]
    assert told.tolist() == wanted(model, rows).number[:, 0].tolist()


def test_the_newer_operator_is_used_where_the_runtime_has_it_and_is_smaller() -> None:
    model = random_model(2, mixed_schema(("a", "b", "c", "d")), n_trees=20)
    assert "TreeEnsembleRegressor" in operators(model)
    newer = export_onnx(model, "m", target_runtime="1.24")["m.onnx"]
    assert "TreeEnsemble" in operators(model, target_runtime="1.24")
    assert 2 * len(newer) < len(export_onnx(model, "m")["m.onnx"])
    proto = onnx.load_model_from_string(newer)
    assert {one.domain: one.version for one in proto.opset_import} == {"": 21, "ai.onnx.ml": 5}
    assert proto.ir_version == 10


def test_classes_few_of_which_a_leaf_names_keep_the_operator_that_leaves_out_zeros() -> None:
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
        ([DOUBLES], "", None, ((1, 15), 17, 3)),
        ([MARKS], "", None, ((1, 17), 20, 3)),
        ([DOUBLES, MEMBERS], "", None, ((1, 24), 17, 5)),
    ],
)
def test_a_runtime_and_a_model_choose_the_operators(
    needs: Any, target: str, opset: int | None, versions: Any
) -> None:
    profile = choose_profile(needs, target, opset)
    assert (profile.runtime, profile.opset, profile.ml_opset) == versions


@pytest.mark.parametrize(
    ("needs", "target", "opset", "said"),
    [
        ([], "newest", None, "'newest', which is no version of onnxruntime"),
        ([], "1", None, "no version of onnxruntime: write it like '1.20'"),
        ([], "1.11", None, "1.11 lacks operators of these graphs; .* is 1.12"),
        ([], "1.12", 18, "knows the standard operators up to version 17, and opset is 18"),
        ([DOUBLES], "1.14", None, "needs inputs and thresholds in float64, .* is 1.15"),
        ([MARKS], "1.16", None, "onnxruntime 1.16 cannot run: the oldest that can is 1.17"),
        ([MARKS], "", 19, "the operators of opset=19 do not have: give opset=20 or more"),
        ([MEMBERS], "1.23", None, "sets so large .* the oldest that can is 1.24"),
    ],
)
def test_what_a_runtime_lacks_is_refused_by_name(
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
    assert "the oldest target_runtime is 1.12" in " ".join(done.output.split())


# ------------------------------------------------------------------ columns


def test_raw_rows_go_in_column_by_column() -> None:
    cells = [(0.0, "red"), (0.0, "blue"), (0.0, "NA"), (1.0, "red"), (math.nan, "green")]
    cells += [(0.0, " NA "), (0.0, ""), (0.0, "None"), (0.0, "Red")]
    model = text_model()
    session = session_of(model, inputs="columns")
    assert [(one.name, one.type, one.shape) for one in session.get_inputs()] == [
        ("size", "tensor(float)", ["N", 1]),
        ("colour", "tensor(string)", ["N", 1]),
    ]
    label, shares = session.run(None, columns_of(cells))
    table = {"size": [size for size, _ in cells], "colour": [colour for _, colour in cells]}
    assert label.tolist() == model.predict(table).tolist()
    assert shares.tolist() == model.predict_proba(table).tolist()


def test_nulls_of_a_dataframe_are_texts_that_mean_missing() -> None:
    session = session_of(text_model(), inputs="columns")
    nulls = columns_of([(0.0, ""), (0.0, "x"), (0.0, "x")])
    nulls["colour"][1:, 0] = [None, math.nan]
    label, _ = session.run(None, nulls)
    assert set(label.tolist()) == {"yes"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_texts_that_mean_missing_are_told_from_texts_never_seen(dtype: str) -> None:
    schema = text_schema(missing_marks=("", "?", ".*", "a\nb", "\\", " blank"), dtype=dtype)
    tree = subset("colour", ["red"], leaf([3, 1]), leaf([1, 4]), missing=1)
    model = make_model(schema, [build_tree(tree, schema)], unknown="error")
    session = session_of(model, inputs="columns")

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


def test_columns_refuse_what_the_model_refuses() -> None:
    session = session_of(text_model(missing="error"), inputs="columns")
    assert session.run(["label"], columns_of([(0.0, "red")]))[0].tolist() == ["no"]
    for row in [(math.nan, "red"), (0.0, ""), (0.0, "green")]:
        with pytest.raises(Exception, match="this model refuses missing values"):
            session.run(None, columns_of([row]))


def test_inputs_are_called_as_their_columns_or_as_near_as_can_be() -> None:
    names = ("label", "", "a\0b", "\ud800", "column 1", "sums", "X", "label_2", "a\\x00b", "é 😀")
    schema = Schema(tuple(map(Column, names)), classes=("no", "yes"))
    given = input_names(schema, ["label", "probabilities"])
    assert len(set(given)) == len(names)
    assert given[4:] == list(names[4:])
    assert given[0] == "label_3"
    assert given[1] == "column 1_2"
    assert given[3] == "\\ud800"
    model = make_model(schema, [build_tree(threshold(0, 0.5, leaf([1, 0]), leaf([0, 1])), schema)])
    session = session_of(model, inputs="columns")
    assert [one.name for one in session.get_inputs()] == given
    said = json.loads(session.get_modelmeta().custom_metadata_map["treekit.inputs"])
    assert list(said.items()) == list(zip(given, names, strict=True))
    rows = {name: np.ones((3, 1), dtype=np.float32) for name in given}
    rows["label_3"][1] = 0.25
    assert session.run(["label"], rows)[0].tolist() == ["yes", "no", "yes"]


def test_a_level_that_is_no_unicode_text_needs_a_tensor() -> None:
    schema = Schema((Column("c", "nominal", ("a", "\ud800")),), classes=("no", "yes"))
    model = make_model(schema, [build_tree(leaf([1, 2]), schema)])
    with pytest.raises(ExportError, match=r"level '\\ud800' of column 'c' .*inputs='tensor'"):
        export_onnx(model, "m", inputs="columns")


# ------------------------------------------------------------------ outputs


def test_maps_hold_the_probabilities_in_float32() -> None:
    model = text_model()
    rows = np.array([[0, 0], [0, 1], [1, 0]], dtype=np.float32)
    session = session_of(model, zipmap=True)
    _, maps = session.run(None, {"X": rows})
    shares = wanted(model, rows.astype(float)).number
    assert maps == [dict(zip(("no", "yes"), map(np.float32, row), strict=True)) for row in shares]


def test_maps_of_several_targets_have_each_its_labels() -> None:
    schema = Schema((Column("x"),), classes=("no", "yes"), more=(Output("second", (7, -3, 5)),))
    tree = build_tree(threshold("x", 0, leaf([1, 3, 1, 1, 2]), leaf([1, 1, 5, 1, 2])), schema)
    session = session_of(make_model(schema, [tree]), zipmap=True)
    assert [one.name for one in session.get_outputs()] == [
        *("label_0", "probabilities_0", "label_1", "probabilities_1")
    ]
    told = session.run(None, {"X": np.array([[1.0]], dtype=np.float32)})
    assert [set(told[1][0]), set(told[3][0])] == [{"no", "yes"}, {7, -3, 5}]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bool_labels", "zipmap=True needs labels that are text or whole numbers"),
        ("float_labels", "are of type float: choose zipmap=False"),
        ("one_number", "this is a regression"),
    ],
)
def test_maps_that_onnx_lacks_are_refused_by_name(name: str, said: str) -> None:
    with pytest.raises(ExportError, match=said):
        export_onnx(EXTREMES[name](), "m", zipmap=True)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_path_marks_the_nodes_from_the_root_to_the_leaf(runtime: str) -> None:
    model = random_model(8, mixed_schema(), n_trees=4)
    rows = extreme_rows(model, most=20)
    session = session_of(model, leaf=True, decision_path=True, target_runtime=runtime)
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


def test_paths_beyond_all_bounds_are_refused_by_name() -> None:
    with pytest.raises(ExportError, match=r"decision_path=True tells one way .*ask for leaf=True"):
        export_onnx(EXTREMES["fractional"](), "m", decision_path=True)
    schema = Schema((Column("x"),), classes=("no", "yes"))
    node = leaf([1, 0])
    for k in range(4900):
        node = threshold("x", float(-k), leaf([1, k + 1]), node)
    model = make_model(schema, [build_tree(node, schema)] * 2)
    with pytest.raises(ExportError, match=r"a character for each leaf and node .*ask for leaf"):
        export_onnx(model, "m", decision_path=True)


def test_metadata_tell_names_classes_and_the_oldest_runtime() -> None:
    told = session_of(text_model()).get_modelmeta()
    assert told.producer_name == "treekit"
    said = told.custom_metadata_map
    assert json.loads(said["treekit.features"]) == ["size", "colour"]
    assert json.loads(said["treekit.classes"]) == ["no", "yes"]
    assert said["treekit.runtime"] == "onnxruntime 1.12"
    units = json.loads(said["treekit.units"])
    assert units == {"trees": 1, "unit_total": UNITS["float32"]}
    margins = json.loads(
        session_of(EXTREMES["boosted_share"]()).get_modelmeta().custom_metadata_map["treekit.units"]
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
def test_the_same_model_gives_the_same_bytes(runtime: str, settings: dict[str, Any]) -> None:
    model = random_model(5, mixed_schema(), n_trees=3)
    first = export_onnx(model, "m", target_runtime=runtime, **settings)
    assert first == export_onnx(model, "m", target_runtime=runtime, **settings)
