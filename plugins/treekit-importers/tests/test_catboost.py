"""Models read from CatBoost's files: their paths and predictions equal CatBoost's.

The files of the folder ``catboost`` were made by CatBoost itself, see `make_catboost.py`.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from treekit_importers.catboost import read_catboost, recognises_catboost
from treekit_importers.cityhash import city_hash_64

import treekit
from tests.fuzz.damage import broken_bytes, broken_json, broken_text, mixed, pick
from tests.fuzz.harness import Subject, cases, fuzz
from tests.interop.test_interop import is_sound
from tests.runtimes import need
from treekit.errors import ModelError, ModelFileError, SettingError, TreekitError
from treekit.model.tree import Split
from treekit.testing import check_importer

FOLDER = Path(__file__).with_name("catboost")
CASES = sorted(path.stem for path in FOLDER.glob("*.answers"))
LINKED = [case for case in CASES if case != "uncertain"]


def path_of(case: str) -> Path:
    return FOLDER / f"{case}.json"


@cache
def answers(case: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((FOLDER / f"{case}.answers").read_text())
    return told


def read(case: str, **settings: Any) -> treekit.Model:
    categories = answers(case)["categories"]
    return treekit.read_model(
        path_of(case), categories=json.dumps(categories) if categories else "", **settings
    )


def bound_margins(model: treekit.Model) -> float:
    """The bound of the module: of CatBoost's sum of leaves, and of treekit's."""
    largest = sum(np.abs(tree.value[tree.leaves]).max() for tree in model.trees)
    return float((model.n_trees + 1) * 2.0**-52 * largest)


def assert_margins_close(model: treekit.Model, rows: Any, theirs: Any) -> None:
    ours = np.asarray(model.predict(rows))
    margins = np.asarray(theirs, dtype=np.float64).reshape(ours.shape)
    assert np.abs(ours - margins).max() <= bound_margins(model)


@pytest.mark.parametrize("case", CASES)
def test_margins_equal_catboost_within_the_bound(case: str) -> None:
    told = answers(case)
    assert_margins_close(read(case, answer="margins"), told["rows"], told["margins"])


@pytest.mark.parametrize("case", LINKED)
def test_labels_probabilities_and_predictions_equal_catboost(case: str) -> None:
    told, model = answers(case), read(case)
    if model.schema.task == "classification":
        shares = model.predict_proba(told["rows"])
        np.testing.assert_allclose(shares, told["shares"], rtol=0, atol=1e-15)
        assert model.predict(told["rows"]).tolist() == told["labels"]
    else:
        numbers = told.get("numbers", told["margins"])
        np.testing.assert_allclose(model.predict(told["rows"]), numbers, rtol=1e-15, atol=1e-15)


def test_columns_and_classes_keep_their_names() -> None:
    model = read("named")
    assert [column.name for column in model.schema.columns] == [
        *("height", "width", "rooms", "soil", "zone")
    ]
    assert model.schema.columns[3].levels == ("*/", "clay", "loam", "né日ant", "sand", "silt")
    assert model.schema.classes == ("no", "yes")
    assert model.provenance["catboost"] == "1.2.10"
    kinds = np.concatenate([tree.kind for tree in read("three").trees])
    assert np.any(kinds == Split.SUBSET)


def test_rmse_with_uncertainty_is_refused_except_as_margins() -> None:
    with pytest.raises(ModelError, match=r"'RMSEWithUncertainty'.*answer='margins'"):
        read("uncertain")


def test_ctrs_are_refused() -> None:
    with pytest.raises(ModelError, match=r"CTRs.*one_hot_max_size"):
        treekit.read_model(path_of("ctr"), categories='{"zone": [3, 5, 9, 11]}')


def test_selected_iterations_give_as_many_trees() -> None:
    assert read("several", iterations=2).n_trees == 2 + 1  # one leaf for the bias
    with pytest.raises(ModelError, match="has 4 trees, not 5; request fewer"):
        read("several", iterations=5)


# ---------------------------------------------------------------- categories


@pytest.mark.parametrize(
    ("categories", "message"),
    [
        ("", "hashes of the categories of column 'zone', not their texts, and 2 of its 2"),
        ('{"zone": [3, 5]}', "1 of its 2 hashes match none of the 2 categories given"),
        ('{"zones": [3]}', "'zones', which is no column of categories .* 'soil', 'zone'"),
        ('{"height": [3]}', "'height', which is no column of categories"),
        ("{zone: 3}", "categories must be JSON"),
        ('{"zone": 3}', "categories must be JSON"),
        ('{"zone": [3, "3"]}', "have equal text"),
    ],
)
def test_mismatched_categories_are_refused(categories: str, message: str) -> None:
    with pytest.raises(TreekitError, match=message) as error:
        treekit.read_model(path_of("named"), categories=categories)
    assert isinstance(error.value, SettingError) == ("equal text" not in message)


HASHES = {  # stored by CatBoost 1.2.10 for one-hot splits of these texts
    "0": -1438285038,
    "red": -1242798403,
    "green": 1390465085,
}


def test_category_hashes_equal_catboost() -> None:
    for text, value in HASHES.items():
        assert city_hash_64(text.encode()) & 0xFFFFFFFF == value % 2**32


def test_category_hashes_of_all_text_lengths_equal_catboost(tmp_path: Path) -> None:
    need("catboost")
    import catboost

    texts = ["".join("abcz 0-"[(k * k + i) % 7] for i in range(k)) for k in range(1, 140)]
    table = np.array([[text, str(len(text))] for text in texts], dtype=object)
    model = catboost.CatBoostRegressor(iterations=1, one_hot_max_size=255, verbose=False)
    model.set_params(allow_writing_files=False, cat_features=[0, 1])
    model.fit(table, np.arange(len(texts)) % 2)
    pool = catboost.Pool(table, cat_features=[0, 1])
    model.save_model(str(tmp_path / "model.py"), format="python", pool=pool)
    source = (tmp_path / "model.py").read_text()
    start = source.index("{", source.index("cat_features_hashes"))
    stored = json.loads(source[start : source.index("}", start)].rstrip(" ,\n") + "}")
    assert set(texts) <= stored.keys()
    for text, value in stored.items():
        assert city_hash_64(text.encode()) & 0xFFFFFFFF == value % 2**32


# ---------------------------------------------------------------- changed files


def read_changed(case: str, change: Callable[[Any], None], folder: Path) -> treekit.Model:
    content = json.loads(path_of(case).read_text())
    change(content)
    path = folder / "model.json"
    path.write_text(json.dumps(content))
    categories = answers(case)["categories"]
    return treekit.read_model(path, categories=json.dumps(categories) if categories else "")


def put(*path: Any, value: Any) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = value

    return change


def enlarge(content: Any) -> None:
    content["scale_and_bias"][0] = 1e300
    content["oblivious_trees"][0]["leaf_values"][0] = 1e300


TREE = ("oblivious_trees", 0)
INFO = "features_info"


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        ("three", put("extra", value=1), "unknown field `extra`"),
        ("three", put(INFO, "extra", value=1), "unknown field `extra`"),
        ("three", put(*TREE, "extra", value=1), "unknown field `extra`"),
        ("three", put(*TREE, "splits", 0, "extra", value=1), "unknown field `extra`"),
        ("three", put(*TREE, "splits", 0, "split_type", value="Text"), "'Text'"),
        ("three", put(*TREE, "splits", 0, "split_type", value="OnlineCtr"), "CTRs"),
        ("three", put(*TREE, "splits", value=[]), "leaf values for 0 splits and 3 margins"),
        ("three", put(*TREE, "leaf_values", value=[]), "0 leaf values for 3 splits"),
        ("three", put(*TREE, "leaf_values", 0, value="x"), "damaged.*float"),
        ("three", put(*TREE, "leaf_values", 0, value=1e999), "damaged"),
        ("three", enlarge, "a leaf's value is not finite"),
        ("three", put("scale_and_bias", value=[1, []]), "0 values in a leaf"),
        ("three", put("oblivious_trees", value=[]), "no trees"),
        ("three", put("trees", value=[{"value": 1.0}]), "trees of two kinds"),
        ("three", put(INFO, "text_features", value=[{}]), "columns of texts"),
        ("three", put(INFO, "embedding_features", value=[{}]), "columns of embeddings"),
        ("three", put(INFO, "float_features", value=[]), "unknown feature|no column of"),
        (
            "three",
            put(INFO, "float_features", 0, "flat_feature_index", value=2**40),
            "damaged.*flat_feature_index",
        ),
        (
            "three",
            put(INFO, "float_features", 0, "flat_feature_index", value=1),
            "two features have one column",
        ),
        (
            "three",
            put(INFO, "float_features", 0, "feature_index", value=1),
            "two features have one number",
        ),
        (
            "three",
            put(INFO, "float_features", 0, "nan_value_treatment", value="AsZero"),
            "unknown nan_value_treatment 'AsZero'",
        ),
        (
            "three",
            put(INFO, "float_features", 0, "feature_id", value="width"),
            "not 5 distinct names",
        ),
        ("three", put("model_info", "class_params", "class_names", value=[1]), "class_params"),
        ("three", put("model_info", "class_params", "class_to_label", value=[2, 1, 0]), "class_"),
        ("three", put("model_info", "class_params", "class_names", value=["a", 1, 2]), "names"),
        ("three", put("model_info", "params", value=7), "loss function ''.*margins"),
        ("binary", put("model_info", "binclass_probability_threshold", value="0.7"), "is 0.7"),
        ("leafwise", put("trees", 0, "left", value=None), "lacks a split or a child"),
        ("leafwise", put("trees", 0, "split", value=None), "lacks a split or a child"),
        ("leafwise", put("trees", 0, value={"value": [1.0]}), "1 values for 3 margins"),
        ("leafwise", put("trees", 0, value={"weight": 1.0}), "1 values for 3 margins"),
    ],
)
def test_a_changed_file_is_refused(case: str, change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TreekitError, match=message):
        read_changed(case, change, tmp_path)


def test_tree_beyond_the_depth_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    split = '{"border":0.5,"float_feature_index":0,"split_type":"FloatFeature"}'
    deep = f'{{"split":{split},"right":{{"value":1.0}},"left":' * 100_000
    start = '{"features_info":{"float_features":[{"feature_index":0,"flat_feature_index":0}]},'
    path.write_text(start + '"model_info":{},"trees":[' + deep)
    with pytest.raises(ModelFileError, match="damaged"):
        treekit.read_model(path)


def test_categories_with_equal_hashes_take_the_same_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "treekit_importers.catboost.city_hash_64",
        lambda text: city_hash_64(b"9" if text == b"11" else text),
    )
    model = treekit.read_model(path_of("named"), categories='{"zone": [3, 5, 9, 11]}')
    row = {"height": [0.0], "width": [0.0], "rooms": [2.0], "soil": ["clay"]}
    both = [model.predict_proba(row | {"zone": [zone]}).tolist() for zone in (9, 11)]
    assert both[0] == both[1]


def test_catboost_files_are_recognised(tmp_path: Path) -> None:
    assert recognises_catboost(path_of("binary"))
    assert recognises_catboost(path_of("ctr"))
    assert not recognises_catboost(Path(__file__).with_name("xgboost") / "binary.json")
    cbm = tmp_path / "model.cbm"
    cbm.write_bytes(b"CBM1" + b"\0" * 40)
    assert recognises_catboost(cbm)
    assert not recognises_catboost(tmp_path / "absent.cbm")


def test_importer_passes_the_contract_checks() -> None:
    check_importer("catboost", sources=[path_of(case) for case in ("several", "scaled")])


@cases(60, 2000)
def test_broken_json_is_refused_or_read_as_a_valid_model(tmp_path, count):
    def damage(seeds: Sequence[bytes], rng: np.random.Generator) -> bytes:
        return broken_json(pick(rng, seeds), rng)

    files = [path_of(case).read_bytes() for case in ("several", "scaled", "binary", "leafwise")]
    ways = mixed(damage, damage, broken_text, broken_bytes)
    soils = answers("binary")["categories"]

    def read_given(path: Path) -> treekit.Model:
        return read_catboost(path, categories=json.dumps(soils) if b"soil" in content(path) else "")

    broken = Subject("broken_catboost.json", files, read_given, is_sound, ways)
    refused, sound = fuzz(broken, tmp_path, count)
    assert refused
    assert sound


def content(path: Path) -> bytes:
    return path.read_bytes()


# ---------------------------------------------------------------- the library itself


@pytest.mark.parametrize("ending", ["cbm", "json", "object"])
def test_model_of_the_installed_catboost_predicts_equally(ending: str, tmp_path: Path) -> None:
    need("catboost")
    fit = runpy.run_path(str(Path(__file__).with_name("make_catboost.py")))["fit"]
    made, table, rows = fit("three")
    path = tmp_path / f"model.{ending}"
    if ending != "object":
        made.save_model(str(path), format=ending)
    categories = {name: sorted(map(str, table[name].unique())) for name in ("soil", "zone")}
    model = treekit.read_model(
        made if ending == "object" else path, answer="margins", categories=json.dumps(categories)
    )
    assert_margins_close(model, rows, made.predict(rows, prediction_type="RawFormulaVal"))


def test_a_damaged_cbm_is_refused(tmp_path: Path) -> None:
    need("catboost")
    path = tmp_path / "model.cbm"
    path.write_bytes(b"CBM1" + b"\xff" * 60)
    with pytest.raises(ModelFileError, match=r"CatBoost cannot read 'model.cbm'"):
        treekit.read_model(path)


def test_an_unfitted_model_is_refused() -> None:
    need("catboost")
    import catboost

    with pytest.raises(ModelError, match="not fitted"):
        treekit.read_model(catboost.CatBoostClassifier())
