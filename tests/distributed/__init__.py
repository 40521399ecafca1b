"""Tests of training and scoring on Dask clusters, and the table that they share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import treekit


def make_frame(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    """Return a table with missing cells, categories, equal rows and a class in few rows."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=rows).round(1).astype("float32"),
            "b": rng.integers(0, 5, rows),
            "c": pd.Categorical(rng.choice(["p", "q", "r"], rows)),
            "w": rng.integers(0, 4, rows),
        }
    )
    noisy = frame["a"] + (frame["c"] == "p") + rng.normal(size=rows)
    frame["y"] = np.where(noisy > 0.5, "yes", "no")
    frame.loc[: rows // 10, "y"] = "rare"  # in the first partition only
    frame.loc[rows - 30 :, "a"] = np.nan  # in the last partition only
    frame["number"] = noisy.fillna(0.0)
    return frame


def save(model: treekit.Model, folder: Path) -> bytes:
    """Return the content of the model's file."""
    model.save(folder / "m.treekit")
    return (folder / "m.treekit").read_bytes()


FOREST: dict[str, Any] = {"ensemble": "forest", "trees": 7, "seed": 5}
ANY = {"target": "y", "ignore": ["number", "w"]}
