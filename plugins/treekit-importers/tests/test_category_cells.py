"""Cells of categorical columns are converted to integers as by the library of the model."""

from __future__ import annotations

import json
import runpy
import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treekit
from tests.runtimes import need
from treekit.errors import DataError
from treekit.model.model import Model
from treekit.verify import verify

pytestmark = pytest.mark.matrix

CELLS = [
    *(0, 1, 2, 3, 1.0000001, 1.999, 2.5, 3.9999999, 0.9999999, 0.99999999999, -0.0, -0.5, -0.999),
    *(-1, -1.5, -2, 7, 8.5, 100, 1e9, 2.0**31, 2.0**32 + 1, 2.0**53, float("nan")),
]
VALUES = np.repeat([0.0, 1.0, 2.0, 3.0], 60)
INFINITE = [1e300, float("inf"), float("-inf")]


def make_rows(*, gone: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of a category and a number, with missing categories or not, and labels."""
    numbers = np.random.default_rng(0).normal(size=len(VALUES))
    labels = (np.isin(VALUES, [1, 3]) & (numbers > -0.5)).astype(int)
    cells = np.where((np.arange(len(VALUES)) % 7 == 0) & gone, np.nan, VALUES)
    return np.column_stack([cells, numbers]), labels


def answer(model: Model, cell: float) -> Any:
    try:
        return model.predict_proba(np.array([[cell, 0.25]]))[0, 1]
    except DataError:
        return "refused"


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("extra", [{}, {"use_missing": False}, {"max_cat_to_onehot": 1}])
def test_category_cells_are_cast_as_in_lightgbm(
    extra: dict[str, Any], gone: bool, tmp_path: Path
) -> None:
    need("lightgbm")
    import lightgbm as lgb

    x, y = make_rows(gone=gone)
    settings = {"objective": "binary", "verbose": -1, "min_data_in_leaf": 1}
    settings |= {"min_data_per_group": 1, "cat_smooth": 0} | extra
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        booster = lgb.train(settings, lgb.Dataset(x, label=y, categorical_feature=[0]), 8)
    booster.save_model(tmp_path / "m.txt")
    wanted = booster.predict(np.array([[cell, 0.25] for cell in CELLS + INFINITE]))
    assert len({*np.round(wanted, 9)}) > 1
    for source in (booster, tmp_path / "m.txt"):
        model = treekit.read_model(source)
        assert model.schema.columns[0].rounds == "to_zero"
        found = [answer(model, cell) for cell in CELLS + INFINITE]
        assert np.allclose(found, wanted, atol=1e-9), [
            (cell, one, other) for cell, one, other in zip(CELLS, found, wanted, strict=False)
        ]
    check_files(model, tmp_path)


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("one_hot", [1, 100])
def test_category_cells_are_cast_as_in_xgboost(one_hot: int, gone: bool, tmp_path: Path) -> None:
    """Unseen categories, which negative numbers are, follow the missing ones or are refused."""
    need("xgboost")
    import xgboost as xgb

    x, y = make_rows(gone=gone)
    kinds = {"feature_types": ["c", "float"], "enable_categorical": True}
    settings = {"objective": "binary:logistic", "max_cat_to_onehot": one_hot, "max_depth": 4}
    booster = xgb.train(settings, xgb.DMatrix(x, label=y, **kinds), 8)
    booster.save_model(tmp_path / "m.json")
    model = treekit.read_model(tmp_path / "m.json")
    assert model.schema.columns[0].rounds == "float32_down"
    wanted = booster.predict(xgb.DMatrix(np.array([[cell, 0.25] for cell in CELLS]), **kinds))
    found = [answer(model, cell) for cell in CELLS]
    for cell, one, other in zip(CELLS, found, wanted, strict=True):
        whole = np.floor(np.float32(cell))
        if one == "refused":
            assert model.unknown == "error"
            assert not 0 <= whole <= 2
        else:
            assert abs(one - other) < 1e-6, cell
    assert found[4] != "refused"  # a fraction of category 1
    check_files(model, tmp_path)


def test_category_names_of_a_dataframe_are_not_converted(tmp_path: Path) -> None:
    need("lightgbm", "pandas")
    import lightgbm as lgb
    import pandas as pd

    x, y = make_rows(gone=False)
    frame = pd.DataFrame({"c": pd.Categorical(x[:, 0].astype(int).astype(str)), "x": x[:, 1]})
    settings = {"objective": "binary", "verbose": -1, "min_data_in_leaf": 1, "cat_smooth": 0}
    model = treekit.read_model(lgb.train(settings, lgb.Dataset(frame, label=y), 4))
    assert not model.schema.columns[0].rounds
    unseen = model.predict_proba({"c": ["x"], "x": [0.25]})
    assert model.predict_proba({"c": ["1.5"], "x": [0.25]}).tolist() == unseen.tolist()


def check_files(model: Model, folder: Path) -> None:
    """Compare exported files that read cells, a table in text and a saved model with the model."""
    first, second = model.schema.names
    rows = [{first: cell, second: 0.25} for cell in CELLS]
    wanted: list[Any] = []
    for row in rows:
        try:
            wanted.append(model.predict_proba([row])[0].tolist())
        except DataError:
            wanted.append(None)
    model.save(folder / "m.treekit")
    loaded = treekit.load(folder / "m.treekit")
    assert loaded.schema == model.schema
    (python,) = treekit.export(model, "python", folder / "m.py", form="full")
    predict = runpy.run_path(str(python))["predict_proba"]
    for row, expected in zip(rows, wanted, strict=True):
        for cell in (row[first], str(row[first])):
            try:
                found = predict(row | {first: cell})
            except ValueError:
                found = None
            assert found == expected, row
        if expected is not None:
            text = {first: [str(row[first])], second: [0.25]}
            assert loaded.predict_proba(text)[0].tolist() == expected
    need("node")
    (script,) = treekit.export(model, "javascript", folder / "m.mjs", form="full")
    program = """
        import * as m from "./m.mjs";
        const rows = JSON.parse(process.argv[1]);
        console.log(JSON.stringify(rows.map((row) => {
          try { return Array.from(m.probabilities(row)); } catch { return null; }
        })));
    """
    sent = json.dumps([{k: None if v != v else v for k, v in row.items()} for row in rows])
    command = ["node", "--input-type=module", "-e", program, sent]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == wanted
    assert verify(model, [python, script]).exit_code == 0
