"""Models read from XGBoost's files: their paths and predictions equal XGBoost's.

The files of the folder ``xgboost`` were made by XGBoost itself, which is not installed here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from treekit_importers.xgboost import MAX_NESTING, decode_ubjson, read_xgboost, recognises_xgboost

import treekit
from tests.export.test_all_targets import model_differences
from tests.fuzz.damage import broken_bytes, broken_json, broken_text, mixed, pick
from tests.fuzz.harness import Subject, cases, fuzz
from tests.interop.test_interop import assert_artifact_equal, is_sound, run
from tests.snapshots.make_models import MODELS, TRAINED, model_path
from treekit.data.encoding import encode_rows
from treekit.errors import DataError, ModelError, ModelFileError
from treekit.model.scoring import leaf_indices
from treekit.model.tree import Split
from treekit.testing import check_importer

FOLDER = Path(__file__).with_name("xgboost")
CASES = sorted(path.stem for path in FOLDER.glob("*.json"))
FILES = sorted(path.name for path in FOLDER.glob("*.[ju]*"))


def path_of(case: str, ending: str = ".json") -> Path:
    return FOLDER / f"{case}{ending}"


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


@pytest.mark.parametrize("name", ["read_boosting", "read_xgboost", "read_xgboost_counts"])
def test_reading_again_gives_the_stored_model(name: str) -> None:
    assert not list(model_differences(treekit.load(model_path(name)), TRAINED[name]()))


@pytest.mark.parametrize("file", FILES)
def test_every_row_reaches_the_leaves_of_xgboost(file: str) -> None:
    told = answers(Path(file).stem)
    model = read_xgboost(FOLDER / file, answer="margins")
    theirs = np.array(told["margins"], dtype=np.float32).reshape(-1, model.schema.n_values)
    np.testing.assert_array_equal(margins_in_float32(model, told["rows"]), theirs)
    # Without its rounding the sums differ by no more than that rounding.
    ours = model.predict(told["rows"]).reshape(theirs.shape)
    leaves = [np.abs(tree.value[tree.leaves]).max() for tree in model.trees]
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=len(leaves) * 2.0**-24 * sum(leaves))


@pytest.mark.parametrize("case", [case for case in CASES if case != "hinge"])
def test_labels_probabilities_and_predictions_equal_xgboost(case: str) -> None:
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


def test_hinge_objective_is_refused_except_as_margins() -> None:
    with pytest.raises(ModelError, match=r"'binary:hinge' has no prob.*answer='margins'"):
        read_xgboost(path_of("hinge"))
    told = answers("hinge")
    margins = read_xgboost(path_of("hinge"), answer="margins").predict(told["rows"])
    np.testing.assert_array_equal(margins > 0, told["predictions"])


def test_categories_keep_the_names_of_the_training_frame_unseen_are_refused() -> None:
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


def test_unseen_categories_count_as_missing_if_both_go_left(tmp_path: Path) -> None:
    def all_left(learner: dict[str, Any]) -> None:
        for tree in learner["gradient_booster"]["model"]["trees"]:
            tree["default_left"] = [1] * len(tree["default_left"])
        learner["gradient_booster"]["model"]["cats"] = {}

    model = read_changed("binary", all_left, tmp_path)
    assert model.unknown == "missing"
    assert model.schema.columns[3].levels[0] == "0"  # without names: codes


def test_early_stopped_models_are_read_up_to_the_best_iteration(tmp_path: Path) -> None:
    def stop(learner: dict[str, Any]) -> None:
        learner["attributes"]["best_iteration"] = "1"

    base = 1  # the base score is a tree of one leaf
    assert read_changed("three", stop, tmp_path).n_trees == base + 3 * 2
    assert read_changed("three", stop, tmp_path, iterations=4).n_trees == base + 3 * 4
    with pytest.raises(ModelError, match="has 5 iterations, not 6; request fewer"):
        read_changed("three", stop, tmp_path, iterations=6)

    def older(learner: dict[str, Any]) -> None:
        stop(learner)
        learner["gradient_booster"]["model"]["iteration_indptr"] = []

    assert read_changed("forest", older, tmp_path).n_trees == base + 2 * 2


def test_thresholds_at_the_limits_of_float32_become_missing_value_splits(tmp_path: Path) -> None:
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
        (put("left_children", 10**30, 0), r"damaged, or not an XGBoost model.*left_children\[0\]"),
        (put("right_children", -7, 0), "child does not exist"),
        (put("left_children", [], None), "entries for 0 nodes"),
        (put("split_indices", 99, 0), r"a split uses none of the \d+ columns"),
        (put("split_indices", [0]), "split_indices has 1 entries"),
        (put("split_conditions", 1e300, -1), "not finite"),
        (put("split_type", 1, 0), "categorical splits without a category set"),
        (put("categories_nodes", [0]), "inconsistent sets of categories"),
        (put("default_left", "x"), "not an XGBoost model: Expected `array`"),
        (into("gradient_booster", "name", value="gblinear"), "is linear.*booster='gbtree'"),
        (into("gradient_booster", "name", value="gbforest"), "unknown booster 'gbforest'"),
        (into("gradient_booster", "model", "tree_info", value=[]), "0 entries"),
        (into("gradient_booster", "model", "tree_info", value=[10**30]), "not an XGBoost model"),
        (into("gradient_booster", "model", "tree_info", value=[9] * 5), "outside the 1 margins"),
        (into("objective", "name", value="own:loss"), "unknown objective 'own:loss'"),
        (into("learner_model_param", "base_score", value="[1.5]"), "base_score is '\\[1.5\\]'"),
        (into("learner_model_param", "base_score", value="x"), "base_score is 'x'"),
        (into("learner_model_param", "num_feature", value="-1"), ">= 0.*num_feature"),
        (into("learner_model_param", "num_feature", value="2"), "distinct names"),
        (into("learner_model_param", "num_feature", value="999999999"), "999999999 columns"),
        (into("learner_model_param", "num_class", value="999999999"), "999999999 margins"),
        (into("gradient_booster", value=3), "damaged, or not an XGBoost model"),
    ],
)
def test_a_damaged_file_is_refused(change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises((ModelError, ModelFileError), match=message):
        read_changed("pruned", change, tmp_path)


def test_categories_out_of_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="category"):
        read_changed("binary", put("categories", 2**40, 0), tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"{L\x7f\xff\xff\xff\xff\xff\xff\xff", "an invalid length 9223372036854775807"),
        (b"[$d#L\x00\x00\x00\x00\x00\x00\x00\x09", "truncated"),
        (b"[" * 10_000, "nested too deep"),
        (b"[$S#i\x01", "type b'S'"),
        (b"[$d]", "a type without a count"),
        (b"{U\x01\xffT}", "not UTF-8"),
        (b"[Q]", "unknown marker b'Q'"),
        (b"{Z", "lacks a length"),
    ],
)
def test_damaged_ubjson_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        decode_ubjson(content)


def test_ubjson_of_every_type_is_read() -> None:
    content = (
        b"{i\x01a[$I#U\x02\x00\x01\xff\xffU\x01b[Ti\x7fFZSi\x02hi]"
        b"i\x01cD\x3f\xf8\x00\x00\x00\x00\x00\x00i\x01dCxi\x01e{}i\x01f[#i\x01l\x00\x00\x00\x05}"
    )
    assert decode_ubjson(content) == {
        "a": [1, -1],
        "b": [True, 127, False, None, "hi"],
        "c": 1.5,
        "d": "x",
        "e": {},
        "f": [5],
    }
    assert decode_ubjson(b"[" * MAX_NESTING + b"]" * MAX_NESTING)


def test_rules_of_imported_models_are_verified_equal(
    tmp_path: Path,
) -> None:
    model = read_xgboost(path_of("three"))
    paths = treekit.export(model, "rules", tmp_path / "m")
    assert treekit.verify(model, paths).exit_code == 0
    assert model.provenance["xgboost"] == "3.2.0"


def test_importer_passes_the_contract_checks(tmp_path: Path) -> None:
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


# ---------------------------------------------------------------- commands and artifacts


@pytest.mark.parametrize("name", ["three.json", "dart.ubj"])
def test_a_file_becomes_a_model_file(name: str, tmp_path: Path) -> None:
    output = tmp_path / "out" / "model.treekit"
    code, said = run("import", FOLDER / name, "-o", output)
    assert code == 0, said
    assert "read by xgboost" in said
    told = answers(Path(name).stem)
    ours = treekit.load(output).predict_proba(told["rows"])
    theirs = np.array(told["predictions"])
    ours = ours[:, 1] if theirs.ndim == 1 else ours
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-7)


def test_importer_settings_are_given_with_set(tmp_path: Path) -> None:
    output = tmp_path / "m.treekit"
    more = ("--set", "answer=margins", "--set", "iterations=2")
    code, said = run("import", path_of("three"), "-o", output, *more)
    assert code == 0, said
    model = treekit.load(output)
    assert (model.schema.task, model.n_trees) == ("regression", 1 + 3 * 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([path_of("hinge")], "answer='margins'"),
        ([path_of("raw"), "--set", "dtype=float64"], "has no setting 'dtype'"),
    ],
)
def test_unreadable_model_exits_with_one_message(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    code, said = run("import", *arguments, "-o", tmp_path / "m.treekit")
    assert code == 2
    assert message in said
    assert not (tmp_path / "m.treekit").exists()


@pytest.mark.parametrize(
    ("file", "target"),
    [
        ("binary.json", "c"),  # categories by name, refused if unseen; two classes
        ("binary.json", "onnx"),
        ("three.json", "python"),
        ("poisson.json", "javascript"),
        ("poisson.json", "onnx"),  # an exponential
        ("logistic.json", "c"),  # a sigmoid
        ("vector.ubj", "python"),  # several outputs
    ],
)
def test_every_artifact_is_verified_equal(file: str, target: str, tmp_path: Path) -> None:
    assert_artifact_equal(FOLDER / file, target, tmp_path)


@pytest.mark.parametrize("name", ["read_xgboost", "read_xgboost_counts"])
def test_a_file_is_read_as_the_stored_model(name: str) -> None:
    stored, model = treekit.load(model_path(name)), MODELS[name]()
    assert model.schema == stored.schema
    np.testing.assert_array_equal(model.units, stored.units)
    np.testing.assert_array_equal(model.exponent, stored.exponent)


# ---------------------------------------------------------------- damaged files


def files(ending: str) -> list[bytes]:
    """Of the real files those that are small, and have predictions that a model can give."""
    paths = [path for path in FOLDER.glob(f"*.{ending}") if path.stat().st_size < 9000]
    return [path.read_bytes() for path in sorted(paths) if "hinge" not in path.name]


@cases(60, 2000)
def test_broken_json_is_refused_or_read_as_a_valid_model(tmp_path, count):
    def damage(seeds: Sequence[bytes], rng: np.random.Generator) -> bytes:
        return broken_json(pick(rng, seeds), rng)

    ways = mixed(damage, damage, broken_text, broken_bytes)
    broken = Subject("broken_xgboost.json", files("json"), treekit.read_model, is_sound, ways)
    refused, read = fuzz(broken, tmp_path, count)
    assert refused
    assert read


@cases(60, 2000)
def test_broken_ubjson_is_refused_or_read_as_a_valid_model(tmp_path, count):
    broken = Subject("broken_xgboost.ubj", files("ubj"), treekit.read_model, is_sound, broken_bytes)
    refused, read = fuzz(broken, tmp_path, count)
    assert refused
    assert read
