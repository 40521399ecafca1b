"""Files: from a large CSV file to a tree, and the size and loading time of a model file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import sides
from benchmarks.apart import Failed, ask
from benchmarks.clock import measured
from benchmarks.data import load, points, save
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register

__all__ = ["model_file", "read"]

_DEPTH = 8
_READERS = ("pandas", "polars", "pyarrow")
"""Sides that read the file and train nothing."""


def read(side: str, path: str, small: str) -> dict[str, float]:
    """Measure reading a CSV file and, by a learner, training a tree of depth 8."""
    call = {
        "treekit": _train_treekit, "lightgbm": _train_lightgbm, "pandas": _read_pandas,
        "polars": _read_polars, "pyarrow": _read_pyarrow,
    }[side]  # fmt: skip
    call(small)  # imports, and compiles kernels
    return measured(lambda: call(path))[1].figures()


def _train_treekit(path: str) -> object:
    import treekit

    return treekit.train(path, "y", max_depth=_DEPTH, task="classification", seed=0)


def _train_lightgbm(path: str) -> object:
    import lightgbm

    settings = {"objective": "binary", "max_depth": _DEPTH, "num_leaves": 2**_DEPTH, "verbose": -1}
    rows = lightgbm.Dataset(path, params={"header": True, "label_column": "name:y"} | settings)
    return lightgbm.train(settings, rows, num_boost_round=1)


def _read_pandas(path: str) -> object:
    import pandas as pd

    return pd.read_csv(path)


def _read_polars(path: str) -> object:
    import polars as pl

    return pl.read_csv(path)


def _read_pyarrow(path: str) -> object:
    from pyarrow import csv

    return csv.read_csv(path)


def _write_csv(place: Path, rows: int, features: int, classes: int = 2) -> None:
    train, _ = points(rows * 5 // 4, features, classes, 0)
    names = [*(f"x{number}" for number in range(features)), "y"]
    table = np.column_stack([train.x, train.y])
    formats = [*["%.7g"] * features, "%d"]
    np.savetxt(place, table, formats, ",", header=",".join(names), comments="")


def model_file(side: str, trees: int, place: str) -> dict[str, float]:
    """Measure the size of a forest's file and the time of loading it, after a first one."""
    train, path = load(Path(place), "train"), Path(place, "model")
    if side == "sklearn":
        import joblib
        from sklearn.ensemble import RandomForestClassifier

        joblib.dump(RandomForestClassifier(trees, random_state=0).fit(train.x, train.y), path, 3)
        read = joblib.load
    else:
        import treekit

        forest = treekit.RandomForestClassifier(trees, random_state=0).fit(train.x, train.y)
        forest.model_.save(path)
        read = treekit.load
    read(path)
    return {"size": path.stat().st_size / 1e6, **measured(lambda: read(path))[1].figures()}


def _run(options: Options) -> Iterator[Entry]:
    o = options
    large, small = o.folder / "large.csv", o.folder / "small.csv"
    _write_csv(small, min(o.rows, 20_000), o.features)
    _write_csv(large, o.rows, o.features)
    save(points(o.model_rows, o.features, 2, 0)[0], o.folder, "train")
    tables = f"CSV, {o.rows:,} x {o.features}"
    cases = {
        f"{tables}, tree of depth {_DEPTH}": ("lightgbm", "treekit"),
        f"{tables}, reading alone": _READERS,
        f"model file, forest of {o.trees}": ("sklearn", "treekit"),
    }
    for _ in range(o.rounds):
        for case, meant in cases.items():
            for side in (side for side in o.sides if side in meant):
                yield _measure(options, case, side, (str(large), str(small)))


def _measure(options: Options, case: str, side: str, paths: tuple[str, str]) -> Entry:
    try:
        if sides.absent(side):
            raise Failed(sides.absent(side))
        how = {"apart": options.apart, "limit": options.limit}
        if case.startswith("CSV"):
            return Entry(case, side, ask(read, side, *paths, **how))
        return Entry(case, side, ask(model_file, side, options.trees, str(options.folder), **how))
    except Failed as why:
        return Entry(case, side, failed=str(why))


register(
    Benchmark(
        "files", "a large CSV file to a tree; the model file", _run,
        (
            Figure("cpu", "CPU s", ".2f", ratio=True), Figure("wall", "wall s", ".2f"),
            Figure("memory", "MB above the start", ".0f"), Figure("size", "file MB", ".1f"),
        ),
        {
            "rows": Parameter(1_000_000, 400, "rows of the CSV file"),
            "features": Parameter(28, 4, "columns"),
            "model_rows": Parameter(100_000, 400, "rows of the forest's table, a fifth unused"),
            "trees": Parameter(20, 2, "trees of the model file"),
        },
        peers=("lightgbm", *_READERS, "sklearn"), rounds=1,
    )
)  # fmt: skip
