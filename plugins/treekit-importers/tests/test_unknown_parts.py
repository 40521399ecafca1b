"""Files with a part that an importer does not know are refused; the error names part and value."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from skl2onnx import to_onnx
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from treekit_importers.onnx import read_onnx

import treekit
from tests.foreign import FOLDER
from treekit.errors import ModelError, ModelFileError

REMEDY = "which may change predictions; .*update treekit and its plugins"
XGBOOST = Path(__file__).with_name("xgboost")
LIGHTGBM = Path(__file__).with_name("lightgbm") / "three.txt"


def refusal(path: str, value: str = "7") -> str:
    return re.escape(f"unknown entry '{path}' = {value}") + f", {REMEDY}"


# ---------------------------------------------------------------- XGBoost

USERS_OWN = "learner.attributes"


def levels(content: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of a JSON, with its path; of a list the first and the last."""
    if isinstance(content, dict):
        yield path, content
        for key, value in content.items():
            yield from levels(value, f"{path}.{key}".lstrip("."))
    elif isinstance(content, list) and content and isinstance(content[0], dict):
        for at in sorted({0, len(content) - 1}):
            yield from levels(content[at], f"{path}[{at}]")


def level_cases() -> list[tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for case in ("binary", "dart", "dropped", "dropped_vector", "quantiles", "poisson"):
        content = json.loads((XGBOOST / f"{case}.json").read_text())
        for path, _ in levels(content):
            found.setdefault(path, (case, path))
    del found[USERS_OWN]
    assert len(found) > 25
    return list(found.values())


@pytest.mark.parametrize(("case", "path"), level_cases())
def test_an_unknown_key_at_any_level_of_xgboost_is_refused(
    case: str, path: str, tmp_path: Path
) -> None:
    content = json.loads((XGBOOST / f"{case}.json").read_text())
    dict(levels(content))[path]["scale_of_leaves"] = 7
    file = tmp_path / "model.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ModelError, match=refusal(f"{path}.scale_of_leaves".lstrip("."))):
        treekit.read_model(file)


@pytest.mark.parametrize("key", [b"boost_from_average", b"weight_drop", b"iteration_indptr"])
def test_an_unknown_key_of_ubjson_is_refused(key: bytes, tmp_path: Path) -> None:
    content = (XGBOOST / "dropped.ubj").read_bytes()
    assert content.count(key) == 1
    file = tmp_path / "model.ubj"
    file.write_bytes(content.replace(key, key[:-1] + b"X"))
    with pytest.raises(ModelError, match=f"unknown entry '.*{key[:-1].decode()}X' = "):
        treekit.read_model(file)


def test_user_attributes_of_xgboost_are_ignored(tmp_path: Path) -> None:
    content = json.loads((XGBOOST / "binary.json").read_text())
    content["learner"]["attributes"] |= {"note": "of mine", "best_score": "0.5"}
    file = tmp_path / "model.json"
    file.write_text(json.dumps(content))
    assert treekit.read_model(file).n_trees > 1


@pytest.mark.parametrize(
    ("case", "path", "change", "message"),
    [
        ("dropped", "learner", {"feature_types": ["float", "interval"]}, "type 'interval'"),
        ("dropped", "learner.objective", {"name": "reg:new"}, "unknown objective 'reg:new'"),
        ("quantiles", "learner.objective", {"name": "reg:expectileerror"}, "with 2 expectiles"),
        ("dropped", "learner.learner_model_param", {"num_target": "2"}, "3 classes and 2 targets"),
        ("dropped", "learner.gradient_booster", {"name": "forest"}, "unknown booster 'forest'"),
        ("dart", "learner.gradient_booster", {"name": "gbtree"}, "unknown booster 'gbtree'"),
        ("dart", "learner.gradient_booster.gbtree", {"name": "gblinear"}, "unknown booster 'dart'"),
        ("dart", "learner.gradient_booster", {"weight_drop": []}, "0 weights for 5 trees"),
        ("dropped", "learner.gradient_booster", {"weight_drop": [0.5] * 15}, "two lists"),
        (
            "dropped",
            "learner.gradient_booster.model",
            {"weight_drop": [0.5] * 3},
            "3 weights for 15 trees",
        ),
    ],
)
def test_an_unknown_form_of_xgboost_is_refused(
    case: str, path: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    content = json.loads((XGBOOST / f"{case}.json").read_text())
    dict(levels(content))[path].update(change)
    file = tmp_path / "model.json"
    file.write_text(json.dumps(content))
    with pytest.raises((ModelError, ModelFileError), match=message):
        treekit.read_model(file)


def test_an_unknown_type_of_split_is_refused(tmp_path: Path) -> None:
    content = json.loads((XGBOOST / "dropped.json").read_text())
    tree = dict(levels(content))["learner.gradient_booster.model.trees[0]"]
    tree["split_type"][tree["left_children"].index(max(tree["left_children"]))] = 2
    file = tmp_path / "model.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ModelError, match="splits of the unknown type 2; treekit reads 0"):
        treekit.read_model(file)


# ---------------------------------------------------------------- LightGBM


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version=v4", "version=v4\nleaf_scale=7", refusal("leaf_scale", "'7'")),
        ("num_cat=", "leaf_scale=7\nnum_cat=", refusal("Tree=0 leaf_scale", "'7'")),
        ("version=v4", "version=v5", "version 'v5'; treekit reads v2, v3 and v4"),
        ("num_class=3", "num_class=1", "3 trees per round for num_class=1, a form"),
        (
            "objective=multiclass num_class:3",
            "objective=multiclass num_class:3 shift:7",
            refusal("objective multiclass shift", "'7'"),
        ),
        (
            "objective=.*",
            "objective=of_tomorrow",
            "'of_tomorrow' is unknown, and may transform the sums; read it with answer='margins'",
        ),
        (r"decision_type=\d+", "decision_type=16", "unknown decision_type 16; treekit reads 0"),
        (r"decision_type=\d+", "decision_type=12", "unknown decision_type 12"),
        (r"decision_type=\d+", "decision_type=-1", "unknown decision_type -1"),
        (r"feature_infos=\S+", "feature_infos={1..3}", r"unknown form '\{1..3\}' in feature_infos"),
        ("end of trees", "end of trees\nleaf_scale:7", "unknown line 'leaf_scale:7' after its"),
        ("num_cat=0\n", "num_cat=0\nnum_cat =0\n", "'num_cat' twice in one block"),
    ],
)
def test_an_unknown_part_of_lightgbm_is_refused(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    text, count = re.subn(old, new, LIGHTGBM.read_text(), count=1)
    assert count
    file = tmp_path / "model.txt"
    file.write_text(text)
    with pytest.raises((ModelError, ModelFileError), match=message):
        treekit.read_model(file)


def test_lightgbm_parameters_and_importances_of_any_name_are_ignored(tmp_path: Path) -> None:
    text = LIGHTGBM.read_text()
    sections = (
        "feature_importances:\nheight=3\n\nparameters:\n[of_tomorrow: 7]\nend of parameters\n"
    )
    file = tmp_path / "model.txt"
    file.write_text(text[: text.index("end of trees")] + "end of trees\n\n" + sections)
    assert treekit.read_model(file).n_trees == treekit.read_model(LIGHTGBM).n_trees


# ---------------------------------------------------------------- ONNX


def proto_of(estimator: Any) -> onnx.ModelProto:
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    return to_onnx(estimator.fit(rows, [0, 1, 0, 0, 1, 1]), rows, options={"zipmap": False}
                   if isinstance(estimator, DecisionTreeClassifier) else None)  # fmt: skip


@pytest.fixture
def regressor() -> onnx.ModelProto:
    return proto_of(DecisionTreeRegressor(max_depth=2))


def tree_of(proto: onnx.ModelProto) -> onnx.NodeProto:
    return next(node for node in proto.graph.node if node.op_type.startswith("TreeEnsemble"))


@pytest.mark.parametrize("value", [7, 0.5, "wide", [1, 2]])
@pytest.mark.parametrize("kind", [DecisionTreeRegressor, DecisionTreeClassifier])
def test_an_unknown_attribute_of_a_tree_operator_is_refused(kind: Any, value: Any) -> None:
    proto = proto_of(kind(max_depth=2))
    tree = tree_of(proto)
    tree.attribute.append(helper.make_attribute("leaf_scale", value))
    with pytest.raises(ModelError, match=f"unknown entry '{tree.op_type}.leaf_scale' = .*{REMEDY}"):
        read_onnx(proto)


def test_an_attribute_of_another_type_or_given_twice_is_refused(
    regressor: onnx.ModelProto,
) -> None:
    tree_of(regressor).attribute.append(helper.make_attribute("base_values", [1, 2]))
    with pytest.raises(
        ModelFileError, match=r"the ints base_values.*expected one floats or tensor"
    ):
        read_onnx(regressor)
    del tree_of(regressor).attribute[-1]
    tree_of(regressor).attribute.append(helper.make_attribute("n_targets", 1))
    with pytest.raises(ModelFileError, match="the int n_targets"):
        read_onnx(regressor)


def test_other_versions_domains_functions_and_fields_are_refused(
    regressor: onnx.ModelProto,
) -> None:
    def changed(change: Any) -> onnx.ModelProto:
        proto = onnx.ModelProto()
        proto.CopyFrom(regressor)
        change(proto)
        return proto

    def later(proto: onnx.ModelProto) -> None:
        del proto.opset_import[:]
        proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 6))

    with pytest.raises(ModelError, match=r"version 6 of ai\.onnx\.ml; treekit reads 1 to 5"):
        read_onnx(changed(later))
    other = changed(lambda proto: setattr(tree_of(proto), "domain", "com.example"))
    with pytest.raises(ModelError, match="TreeEnsembleRegressor of the unknown domain 'com"):
        read_onnx(other)
    identity = helper.make_node("Identity", ["variable"], ["Z"], domain="com.example")
    with pytest.raises(ModelError, match=r"operator 'Identity' of 'com\.example' after its trees"):
        read_onnx(changed(lambda proto: proto.graph.node.append(identity)))
    own = helper.make_function("ai.onnx.ml", "TreeEnsembleRegressor", ["X"], ["Y"], [], [])
    with pytest.raises(ModelError, match="function 'TreeEnsembleRegressor' of its own"):
        read_onnx(changed(lambda proto: proto.functions.append(own)))
    cast = helper.make_node("Cast", ["variable"], ["Z"], to=TensorProto.FLOAT, towards="zero")
    with pytest.raises(ModelError, match=r"unknown entry 'Cast\.towards'"):
        read_onnx(changed(lambda proto: proto.graph.node.append(cast)))
    field = bytes([0xC2, 0x3E, 1, 55])  # field 1000 of a later format
    for part in ("model", "node"):
        proto = onnx.ModelProto()
        proto.CopyFrom(regressor)
        tree = tree_of(proto)
        (proto if part == "model" else tree).MergeFromString(field)
        with pytest.raises(ModelError, match=r"unknown field 1000 in a (Model|Node)Proto"):
            read_onnx(proto)


@pytest.mark.parametrize("key", ["treekit.policies", "treekit.units", "treekit.schema"])
def test_unknown_metadata_of_treekit_are_refused(key: str, tmp_path: Path) -> None:
    model = treekit.read_model(XGBOOST / "dropped_dart.json")
    proto = onnx.load(treekit.export(model, "onnx", tmp_path / "m")[0])
    assert read_onnx(proto).n_trees
    (told,) = (one for one in proto.metadata_props if one.key == key)
    told.value = json.dumps(json.loads(told.value) | {"leaf_scale": 7})
    with pytest.raises(ModelFileError, match="unknown field `leaf_scale`"):
        read_onnx(proto)
    told.value = json.dumps({"exponent": 0})
    proto.metadata_props.add(key="treekit.leaf_scale", value="7")
    with pytest.raises(ModelError, match=r"unknown entry 'metadata treekit\.leaf_scale'"):
        read_onnx(proto)


# ---------------------------------------------------------------- skops


def rewritten(case: str, old: str, new: str, folder: Path) -> Path:
    with zipfile.ZipFile(FOLDER / f"sklearn_{case}.skops") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    text = entries["schema.json"].decode()
    assert old in text
    entries["schema.json"] = text.replace(old, new).encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    path = folder / "model.skops"
    path.write_bytes(content.getvalue())
    return path


@pytest.mark.parametrize(
    ("case", "old", "entry"),
    [
        ("forest", '"bootstrap"', "leaf_scale"),
        ("bag", '"bootstrap_features"', "leaf_scale"),
        ("boosted", '"subsample"', "leaf_scale"),
        ("histogram", '"l2_regularization"', "leaf_scale"),
        ("forest", '"node_count"', "tree_.leaf_scale"),
        ("histogram", '"binned_left_cat_bitsets"', "_predictors.leaf_scale"),
    ],
)
def test_an_unknown_attribute_in_a_skops_file_is_refused(
    case: str, old: str, entry: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=f"unknown entry '{entry}' = .*{REMEDY}"):
        treekit.read_model(rewritten(case, old, '"leaf_scale"', tmp_path))


def test_an_unknown_loss_in_a_skops_file_is_refused(tmp_path: Path) -> None:
    path = rewritten("boosted", "log_loss", "tomorrow_loss", tmp_path)
    with pytest.raises(ModelError, match="unknown loss 'tomorrow_loss'; treekit reads log_loss"):
        treekit.read_model(path)
