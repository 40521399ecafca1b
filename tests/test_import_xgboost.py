"""Models read from XGBoost's files take its paths and give its answers.

The files of tests/foreign were made by XGBoost itself, which is not installed here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import treekit
from tests.foreign import FOLDER
from treekit.data.encoding import encode_rows
from treekit.errors import DataError, ModelError, ModelFileError
from treekit.interop.ubjson import MAX_NESTING, decode
from treekit.interop.xgboost import read_xgboost, recognises_xgboost
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Split
from treekit.testing import check_importer

CASES = sorted(path.stem.removeprefix("xgboost_") for path in FOLDER.glob("xgboost_*.json"))
FILES = sorted(path.name for path in FOLDER.glob("xgboost_*.[ju]*"))


def path_of(case: str, ending: str = ".json") -> Path:
    return FOLDER / f"xgboost_{case}{ending}"


@cache
def answers(case: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(path_of(case, ".answers").read_text())
    return told


def margins_in_float32(model: treekit.Model, rows: Any) -> npt.NDArray[np.float32]:
    """The base score, and then each tree's leaf, added in float32 as XGBoost does."""
    leaves = leaf_indices(model, encode_rows(rows, model.schema))
    total = np.zeros((len(leaves), model.schema.n_values), dtype=np.float32)
    for number, tree in enumerate(model.trees):
        total += tree.value[leaves[:, number]].astype(np.float32)
    return total


@pytest.mark.parametrize("file", FILES)
def test_every_row_reaches_the_same_leaves(file: str) -> None:
    told = answers(Path(file).stem.removeprefix("xgboost_"))
    model = read_xgboost(FOLDER / file, answer="margins")
    theirs = np.array(told["margins"], dtype=np.float32).reshape(-1, model.schema.n_values)
    np.testing.assert_array_equal(margins_in_float32(model, told["rows"]), theirs)
    # Without its rounding the sums differ by no more than that rounding.
    ours = model.predict(told["rows"]).reshape(theirs.shape)
    leaves = [np.abs(tree.value[tree.leaves]).max() for tree in model.trees]
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=len(leaves) * 2.0**-24 * sum(leaves))


@pytest.mark.parametrize("case", [case for case in CASES if case != "hinge"])
def test_labels_and_links_are_xgboost_s(case: str) -> None:
    told = answers(case)
    model = read_xgboost(path_of(case))
    theirs = np.array(told["predictions"])
    if model.schema.task == "regression":
        ours = model.predict(told["rows"])
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-6)
        return
    labels, shares = model.predict(told["rows"]), model.predict_proba(told["rows"])
    if case == "softmax":  # it predicts labels
        np.testing.assert_array_equal(labels, theirs)
    elif theirs.ndim == 1:
        np.testing.assert_allclose(shares[:, 1], theirs, rtol=0, atol=2e-7)
        np.testing.assert_array_equal(labels, theirs > 0.5)
    else:
        np.testing.assert_allclose(shares, theirs, rtol=0, atol=2e-7)
        np.testing.assert_array_equal(labels, theirs.argmax(axis=1))


def test_a_hinge_has_margins_and_no_probabilities() -> None:
    with pytest.raises(ModelError, match=r"'binary:hinge' has no prob.*answer='margins'"):
        read_xgboost(path_of("hinge"))
    told = answers("hinge")
    margins = read_xgboost(path_of("hinge"), answer="margins").predict(told["rows"])
    np.testing.assert_array_equal(margins > 0, told["predictions"])


def test_categories_have_the_names_of_the_training_frame_and_unseen_ones_are_refused() -> None:
    model = read_xgboost(path_of("binary"))
    soil, zone = model.schema.columns[3:]
    assert soil.levels == ("*/", "clay", "loam", "sand", "silt")
    assert zone.levels == ("3", "5", "9", "11")
    assert any(np.any(tree.kind == Split.SUBSET) for tree in model.trees)
    assert model.unknown == "error"
    row = {name: cells[:1] for name, cells in answers("binary")["rows"].items()} | {
        "soil": ["peat"]
    }
    with pytest.raises(DataError, match="'peat'"):
        model.predict(row)


def changed(case: str, change: Any) -> bytes:
    """A file after some function did something to its JSON."""
    content = json.loads(path_of(case).read_text())
    change(content["learner"])
    return json.dumps(content).encode()


def first_tree(learner: dict[str, Any]) -> dict[str, Any]:
    booster = learner["gradient_booster"]
    tree: dict[str, Any] = booster.get("gbtree", booster)["model"]["trees"][0]
    return tree


def read_changed(case: str, change: Any, folder: Path, **settings: Any) -> treekit.Model:
    path = folder / "model.json"
    path.write_bytes(changed(case, change))
    return treekit.read_model(path, **settings)


def test_unseen_categories_are_missing_where_both_go_left(tmp_path: Path) -> None:
    def all_left(learner: dict[str, Any]) -> None:
        for tree in learner["gradient_booster"]["model"]["trees"]:
            tree["default_left"] = [1] * len(tree["default_left"])
        learner["gradient_booster"]["model"]["cats"] = {}

    model = read_changed("binary", all_left, tmp_path)
    assert model.unknown == "missing"
    assert model.schema.columns[3].levels[0] == "0"  # without names: codes


def test_training_that_stopped_early_is_read_up_to_its_best_round(tmp_path: Path) -> None:
    def stop(learner: dict[str, Any]) -> None:
        learner["attributes"]["best_iteration"] = "1"

    base = 1  # the base score is a tree of one leaf
    assert read_changed("three", stop, tmp_path).n_trees == base + 3 * 2
    assert read_changed("three", stop, tmp_path, iterations=4).n_trees == base + 3 * 4
    with pytest.raises(ModelError, match="has 5 iterations, not 6; ask for fewer"):
        read_changed("three", stop, tmp_path, iterations=6)

    def older(learner: dict[str, Any]) -> None:
        stop(learner)
        learner["gradient_booster"]["model"]["iteration_indptr"] = []

    assert read_changed("forest", older, tmp_path).n_trees == base + 2 * 2


def test_thresholds_at_the_ends_of_float32_ask_for_missing_values(tmp_path: Path) -> None:
    def lowest(learner: dict[str, Any]) -> None:
        tree = first_tree(learner)
        assert tree["split_type"][0] == 0
        tree["split_conditions"][0] = -3.4028234663852886e38
        tree["default_left"][0] = 1

    model = read_changed("pruned", lowest, tmp_path)
    assert model.trees[1].kind[0] == Split.MISSING


def put(name: str, value: Any, at: int | None = None) -> Any:
    def change(learner: dict[str, Any]) -> None:
        tree = first_tree(learner)
        if at is None:
            tree[name] = value
        else:
            tree[name][at] = value

    return change


def into(*path: str, value: Any) -> Any:
    def change(learner: dict[str, Any]) -> None:
        inside = learner
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("left_children", 0, 0), "a root has a parent|several parents"),
        (put("left_children", 10**6, 0), "child does not exist"),
        (put("left_children", 10**30, 0), r"damaged, or none.*left_children\[0\]"),
        (put("right_children", -7, 0), "child does not exist"),
        (put("left_children", [], None), "a tree has no node"),
        (put("split_indices", 99, 0), "column that it does not have"),
        (put("split_indices", [0]), "split_indices has 1 entries"),
        (put("split_conditions", 1e300, -1), "not finite"),
        (put("split_type", 1, 0), "column that it does not have"),
        (put("categories_nodes", [0]), "sets of categories do not fit"),
        (put("default_left", "x"), "damaged, or none: Expected `array`"),
        (into("gradient_booster", "name", value="gblinear"), "linear one.*booster='gbtree'"),
        (into("gradient_booster", "name", value="gbforest"), "unknown booster 'gbforest'"),
        (into("gradient_booster", "model", "tree_info", value=[]), "0 entries"),
        (into("gradient_booster", "model", "tree_info", value=[10**30]), "damaged, or none"),
        (into("gradient_booster", "model", "tree_info", value=[9] * 5), "none of the 1 margins"),
        (into("objective", "name", value="own:loss"), "'own:loss', which treekit does not know"),
        (into("learner_model_param", "base_score", value="[1.5]"), "base_score is '\\[1.5\\]'"),
        (into("learner_model_param", "base_score", value="x"), "base_score is 'x'"),
        (into("learner_model_param", "num_feature", value="-1"), "num_feature is '-1'"),
        (into("learner_model_param", "num_feature", value="2"), "not as many names"),
        (into("learner_model_param", "num_feature", value="999999999"), "999999999 columns"),
        (into("learner_model_param", "num_class", value="999999999"), "999999999 margins"),
        (into("gradient_booster", value=3), "damaged, or none"),
    ],
)
def test_a_damaged_file_is_refused_by_name(change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises((ModelError, ModelFileError), match=message):
        read_changed("pruned", change, tmp_path)


def test_a_set_of_another_file_s_categories_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="category"):
        read_changed("binary", put("categories", 2**40, 0), tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut off"),
        (b"{", "cut off"),
        (b"{L\x7f\xff\xff\xff\xff\xff\xff\xff", "a length of 9223372036854775807"),
        (b"[$d#L\x00\x00\x00\x00\x00\x00\x00\x09", "cut off"),
        (b"[" * 10_000, "nests too deep"),
        (b"[$S#i\x01", "type b'S'"),
        (b"[$d]", "a type without a count"),
        (b"{U\x01\xffT}", "no UTF-8"),
        (b"[Q]", "unknown marker b'Q'"),
        (b"{Z", "no length where one must be"),
    ],
)
def test_damaged_ubjson_is_refused_by_name(content: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        decode(content)


def test_ubjson_of_every_type_is_read() -> None:
    content = (
        b"{i\x01a[$I#U\x02\x00\x01\xff\xffU\x01b[Ti\x7fFZSi\x02hi]"
        b"i\x01cD\x3f\xf8\x00\x00\x00\x00\x00\x00i\x01dCxi\x01e{}i\x01f[#i\x01l\x00\x00\x00\x05}"
    )
    assert decode(content) == {
        "a": [1, -1],
        "b": [True, 127, False, None, "hi"],
        "c": 1.5,
        "d": "x",
        "e": {},
        "f": [5],
    }
    assert decode(b"[" * MAX_NESTING + b"]" * MAX_NESTING)


def test_what_is_read_is_listed_as_rules_that_are_proved_equal(tmp_path: Path) -> None:
    model = read_xgboost(path_of("three"))
    paths = treekit.export(model, "rules", tmp_path / "m")
    assert treekit.verify(model, paths).exit_code == 0
    assert model.provenance["xgboost"] == "3.2.0"


def test_the_importer_keeps_the_laws_of_its_contract(tmp_path: Path) -> None:
    check_importer("xgboost", sources=[path_of("binary"), path_of("vector", ".ubj")])
    assert not recognises_xgboost(tmp_path / "absent.json")


@pytest.mark.system
def test_reading_a_file_imports_no_xgboost() -> None:
    code = (
        "import sys; from pathlib import Path; import treekit;"
        f"treekit.read_model(Path({str(path_of('dart'))!r}));"
        "assert 'xgboost' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
