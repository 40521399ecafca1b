"""``treekit import`` makes a model file of another library's model."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.tree._tree import Tree as SklearnTree
from threadpoolctl import threadpool_limits

import treekit
from tests.extremes import EXTREMES
from tests.foreign import FOLDER
from tests.fuzz.damage import (
    HOSTILE_FLOATS,
    HOSTILE_WHOLES,
    broken_bytes,
    broken_proto,
    mixed,
    pick,
)
from tests.fuzz.harness import Subject, cases, fuzz
from tests.project.test_fuzz import assert_sound
from tests.runtimes import need
from treekit import registry
from treekit.cli import main
from treekit.errors import ModelError, SettingError
from treekit.export import export
from treekit.interop import read_model
from treekit.model.validation import check_model

# ---------------------------------------------------------------- import cli


def run(*arguments: str | Path) -> tuple[int, str]:
    outcome = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return outcome.exit_code, outcome.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent.json"], "there is no file 'absent.json'"),
        ([FOLDER / "make.py"], "no importer recognises the file 'make.py'"),
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
    ("name", "content", "library"),
    [
        ("model.txt", b"tree\nversion=v4\n", "lightgbm"),
        ("model.lgb", b"tree\r\nversion=v4\r\n", "lightgbm"),
        ("model.json", b'{\n "version": [3, 2, 0], "learner": {}}', "xgboost"),
        ("model.ubj", b"{L" + (7).to_bytes(8, "big") + b"learner{", "xgboost"),
        ("model.json", b'{"features_info":{},"oblivious_trees":[]}', "catboost"),
        ("model.cbm", b"CBM1\0\0\0\0", "catboost"),
        ("model.onnx", b"\x08\x07", "onnx"),
        ("model.skops", b"PK\x03\x04", "skops"),
    ],
)
@pytest.mark.usefixtures("without_plugins")
def test_missing_plugin_of_a_model_file_is_named(
    name: str, content: bytes, library: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    told = rf"model of {library}.* pip install treekit-importers.* \./plugins/treekit-importers"
    for source in (path, str(path)):
        with pytest.raises(ModelError, match=told):
            read_model(source)
    code, said = run("import", path, "-o", tmp_path / "m.treekit")
    assert code == 2
    assert "treekit-importers" in said
    path.write_bytes(b"{}")
    with pytest.raises(ModelError, match="no importer recognises"):
        read_model(path)


@pytest.mark.usefixtures("without_plugins")
def test_missing_plugin_of_a_model_object_is_named() -> None:
    for name, module in (("Booster", "xgboost.core"), ("RandomForestModel", "ydf.model.forest")):
        made = type(name, (), {"__module__": module})
        with pytest.raises(ModelError, match="pip install treekit-importers"):
            read_model(made())
    with pytest.raises(SettingError, match="pip install treekit-importers"):
        registry.get("importer", "lightgbm")


def assert_artifact_equal(file: Path, target: str, folder: Path) -> None:
    need(*{"c": ("gcc",), "javascript": ("node",)}.get(target, ()))
    model = treekit.read_model(file)
    paths = treekit.export(model, target, folder / "m")
    report = treekit.verify(model, paths, random_rows=100, max_rows=2000)
    assert report.exit_code == 0, str(report)


# ---------------------------------------------------------------- fuzz importers
# Broken models of other libraries give a clear error or a sound model: never anything else.
#
# As in `tests.project.test_fuzz`: some cases an importer, and up to 2,000 with ``-m system``.

ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
ROWS[::7, 1] = np.nan
CLASSES = (ROWS[:, 0] > 0) + (ROWS[:, 2] > 0.5) * 1


def is_sound(model) -> None:
    check_model(model)
    assert_sound(model)


# ------------------------------------------------------------------ objects of scikit-learn


def changed_records(seeds: Sequence[bytes], rng: np.random.Generator) -> bytes:
    """Node records with hostile numbers in some fields."""
    nodes = np.load(io.BytesIO(pick(rng, seeds)))
    for _ in range(int(rng.integers(1, 4))):
        name = pick(rng, nodes.dtype.names)
        field = nodes[name]
        if field.ndim != 1:
            continue
        at = int(rng.integers(len(field)))
        kind = field.dtype
        with np.errstate(over="ignore"):
            if kind.kind == "f":
                field[at] = kind.type(pick(rng, HOSTILE_FLOATS))
            else:
                own = pick(rng, field.tolist()) if rng.random() < 0.5 else pick(rng, HOSTILE_WHOLES)
                limits = np.iinfo(kind)
                field[at] = min(max(int(own), int(limits.min)), int(limits.max))
    stream = io.BytesIO()
    np.save(stream, nodes)
    return stream.getvalue()


def recorded(nodes: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, nodes)
    return stream.getvalue()


@cases(40, 1500)
def test_broken_scikit_learn_tree_is_refused_or_read_as_a_valid_model(tmp_path, count):
    fitted = DecisionTreeClassifier(max_depth=3, random_state=0).fit(ROWS, CLASSES)
    state = fitted.tree_.__getstate__()

    def read(path: Path):
        tree = SklearnTree(3, np.array([3], dtype=np.intp), 1)
        tree.__setstate__({**state, "nodes": np.load(path)})
        fitted.tree_ = tree
        return read_model(fitted)

    broken = Subject("tree.npy", [recorded(state["nodes"])], read, is_sound, changed_records)
    refused, read_ = fuzz(broken, tmp_path, count)
    assert refused
    assert read_


@cases(40, 1500)
def test_broken_hist_gradient_boosting_is_refused_or_read_as_a_valid_model(tmp_path, count):
    fitted = HistGradientBoostingClassifier(max_iter=2, max_leaf_nodes=5, early_stopping=False)
    with threadpool_limits(1):
        fitted.fit(ROWS, CLASSES)
    first = fitted._predictors[0][0]

    def read(path: Path):
        first.nodes = np.load(path)
        return read_model(fitted)

    broken = Subject("predictor.npy", [recorded(first.nodes)], read, is_sound, changed_records)
    refused, read_ = fuzz(broken, tmp_path, count)
    assert refused
    assert read_


# ------------------------------------------------------------------ what verify runs


@cases(20, 200)
@pytest.mark.parametrize("name", ["missing_only", "float64_extremes"])
def test_verify_reports_or_refuses_a_broken_onnx_file(name, tmp_path, count):
    from treekit.verify import verify

    model = EXTREMES[name]()
    (path,) = export(model, "onnx", tmp_path / "sound")
    seeds = [Path(path).read_bytes()]
    broken = Subject(
        f"{name}.onnx",
        seeds,
        lambda file: verify(model, [file], random_rows=20, budget=5.0),
        str,
        mixed(broken_proto, broken_bytes),
        watched=False,  # verify runs what it is given, and says so
    )
    refused, judged = fuzz(broken, tmp_path, count)
    assert refused + judged
