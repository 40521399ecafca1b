"""Training by levels without a cluster writes the model file of one process, byte for byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import treekit
from tests.distributed import make_frame, save
from treekit.distributed import levels
from treekit.distributed.failures import ClusterError
from treekit.distributed.level_builder import LocalEngine
from treekit.distributed.levels import Resources, train_by_levels
from treekit.errors import DataError, SettingError
from treekit.training.tasks import get_reading_options

COLUMNS = ("y", "number", "w", "label", "twice", "part")


def make_rows(rows: int = 500) -> pd.DataFrame:
    """Return a table with equal rows, an inexact column, text, bools and several targets."""
    frame, rng = make_frame(rows), np.random.default_rng(1)
    frame["exact"] = rng.normal(size=rows)  # rounded to float32
    frame["text"] = rng.choice(["u", "v", None], rows)
    frame["flag"] = rng.random(rows) < 0.3
    frame["label"] = rng.integers(3, 5, rows)
    frame["part"] = rng.choice([0.0, 0.3, 1 / 7, 2.5], rows)
    frame["twice"] = 2 * frame["number"] + rng.normal(size=rows)
    return pd.concat([frame, frame.iloc[:60]], ignore_index=True)


def train_parts(
    frame: pd.DataFrame, ends: list[int], target: Any, resources: Resources, **given: Any
) -> treekit.Model:
    """Train by levels on a table in parts that end before `ends`."""
    names = ("ignore", "weights", "dtype", "nominal", "levels", "classes")
    reading = {name: given.pop(name) for name in names if name in given}
    reading |= get_reading_options(given, given.pop("task", None))
    parts = [frame.iloc[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    places = [(f"partition {k}", len(part)) for k, part in enumerate(parts)]
    return train_by_levels(LocalEngine(), parts, places, target, reading, given, resources).model


FOREST: dict[str, Any] = {
    "ensemble": "forest", "trees": 6, "seed": 5, "splitter": "histogram"
}  # fmt: skip
TRAININGS: dict[str, dict[str, Any]] = {
    "classes": {"target": "y"},
    "weights": {"target": "y", "weights": "w"},
    "class weights": {"target": "y", "class_weight": {"rare": 0, "yes": 3, "no": 1}},
    "balanced": {"target": "label", "class_weight": "balanced", "weights": "w"},
    "numbers": {"target": "number", "weights": "w", "criterion": "friedman"},
    "several numbers": {"target": ["number", "twice"]},
    "several classes": {"target": ["y", "label"], "task": "classification"},
    "a number of classes": {"target": "label", "task": "regression"},
    "small samples": {"target": "y", "max_samples": 0.01, "trees": 20, "voting": "hard"},
    "all rows": {"target": "y", "bootstrap": False, "max_features": "all"},
    "a tree": {"target": "y", "ensemble": "tree", "trees": 100, "costs": "yes>no=3"},
    "float64": {"target": "number", "dtype": "float64", "max_bins": 30},
    "declared": {"target": "y", "nominal": ["b"], "levels": {"c": ["q", "r", "p", "s"]}},
    "fractional weights": {"target": "y", "weights": "part", "class_weight": {"yes": 0}},
    "fractional numbers": {"target": "number", "weights": "part", "max_samples": 300},
    "monotonic": {"target": "number", "task": "regression", "monotonic": "a=1"},
    "decrease": {"target": "y", "min_impurity_decrease": 0.01, "weights": "w"},
    "branches": {"target": "y", "nominal_splits": "multiway", "pruner": "chi_squared"},
}  # fmt: skip


@pytest.mark.matrix
@pytest.mark.parametrize("training", TRAININGS)
def test_model_of_partitions_equals_that_of_the_table(
    training: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, given = make_rows(), {**FOREST, **TRAININGS[training]}
    target = given.pop("target")
    inputs = {*([target] if isinstance(target, str) else target), given.get("weights")}
    given["ignore"] = [name for name in COLUMNS if name not in inputs]
    expected = save(treekit.train(frame, target, **given), tmp_path)
    n = len(frame)
    for ends, resources in (([n], Resources(1)), ([0, 1, 2, 300, 300, n], Resources(3, 60_000))):
        model = train_parts(frame, ends, target, resources, **given)
        assert save(model, tmp_path) == expected
    choose_sizes = levels.choose_sizes

    def choose_small_nodes(*arguments: Any) -> Any:
        wave, sizes = choose_sizes(*arguments)
        return wave, replace(sizes, small_weight=15.0)

    monkeypatch.setattr(levels, "choose_sizes", choose_small_nodes)
    model = train_parts(frame, [200, n], target, Resources(2), **given)
    assert save(model, tmp_path) == expected


@pytest.mark.matrix
def test_column_whose_values_merge_across_partitions_is_float64(tmp_path: Path) -> None:
    # Each part has one value of each pair that is one value as float32.
    whole = (2**24 + 4 * np.arange(200)[:, None] + [0, 1]).ravel()
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": np.append(whole[::2], whole[1::2]), "y": rng.random(400) < 0.5})
    given = {**FOREST, "trees": 2, "oob": False}
    expected = treekit.train(frame, "y", **given)
    model = train_parts(frame, [200, 400], "y", Resources(2), **given)
    assert expected.schema.dtype == "float64"
    assert save(model, tmp_path) == save(expected, tmp_path)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "exact": ({"splitter": "exact"}, "splitter 'exact'; set splitter='histogram'"),
    "random": ({"splitter": "random"}, "splitter 'random'"),
    "oblique": ({"splitter": "oblique"}, "splitter 'oblique'"),
    "fractional": ({"missing": "fractional"}, "missing='fractional'; set missing='direction'"),
    "surrogate": ({"missing": "surrogate"}, "missing='surrogate'"),
    "leaves": ({"max_leaves": 9}, "max_leaves; set max_depth"),
    "balanced bags": ({"class_weight": "balanced_subsample"}, "set class_weight='balanced'"),
    "pruner": ({"pruner": "reduced_error"}, "pruner 'reduced_error'; set pruner='none'"),
    "held out": ({"pruner": "holdout"}, "pruner 'holdout'"),
    "ranks": ({"target": "number", "criterion": "absolute_error"}, "criterion 'absolute_error'"),
    "squared distances": (
        {"target": "number", "min_impurity": 0.1}, "min_impurity with criterion"
    ),
    "a list of weights": ({"weights": [1.0] * 560}, "weights in a column"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_need_all_rows_of_a_node_are_refused_with_a_remedy(case: str) -> None:
    frame = make_rows()
    given, message = REFUSED[case]
    given = {**FOREST, "target": "y", **given}
    target = given.pop("target")
    given["ignore"] = [name for name in COLUMNS if name != target]
    with pytest.raises(SettingError) as raised:
        train_parts(frame, [300, len(frame)], target, Resources(2), **given)
    assert message in str(raised.value)
    assert "cluster_mode='trees'" in str(raised.value)


def test_errors_name_the_row_of_a_partition() -> None:
    frame = make_rows()
    frame.loc[320, "exact"] = np.inf
    given = {**FOREST, "ignore": ["number", "w", "label", "twice", "part"]}
    message = r"column 'exact' is infinite in row 20 of partition 1 \(counting from 0\)"
    with pytest.raises(DataError, match=message):
        train_parts(frame, [300, 560], "y", Resources(2), **given)
    frame = make_rows()
    frame["w"] = -1.0 * (frame.index == 310)
    with pytest.raises(DataError, match=r"the weight of row 10 of partition 1 .* is -1\.0"):
        train_parts(frame, [300, 560], "y", Resources(2), **given, weights="w")
    with pytest.raises(DataError, match="no rows"):
        train_parts(frame, [0], "y", Resources(2), **given)


@pytest.mark.matrix
@pytest.mark.parametrize(("memory", "chunks"), [(10**9, 2), (32_000, 10), (1, 10)])
def test_a_table_is_read_in_chunks_that_fit_into_memory(memory: int, chunks: int) -> None:
    read = []

    class RecordingEngine(LocalEngine):
        def submit(self, function: Any, *arguments: Any) -> Any:
            if function is levels.read_chunk:
                read.append(len(arguments[0]))
            return super().submit(function, *arguments)

    frame = pd.DataFrame({"a": np.arange(1000.0), "b": np.ones(1000), "y": np.arange(1000) % 2})
    parts = [frame[k : k + 100] for k in range(0, 1000, 100)]
    places = [(f"partition {k}", 100) for k in range(10)]
    settings = {"seed": 0, "splitter": "histogram"}
    resources = Resources(2, memory)
    train_by_levels(RecordingEngine(), parts, places, "y", {}, settings, resources)
    assert (len(read), sum(read)) == (chunks, 10)


def test_a_table_that_does_not_fit_is_refused_with_figures() -> None:
    message = r"takes 10 GB and each of 4 threads needs about 3\.04 GB"
    with pytest.raises(ClusterError, match=message):
        levels.check_chunk_memory(10**10, 10**9, 10**7, Resources(4, 10**9))
    levels.check_chunk_memory(10**10, 10**9, 10**7, Resources(100, 10**9))
    with pytest.raises(ClusterError, match=r"this process needs about 0\.64 GB .* but 0\.4 GB"):
        levels.check_chunk_memory(10**10, 10**9, 10**7, Resources(100, 10**9), 4 * 10**8)
