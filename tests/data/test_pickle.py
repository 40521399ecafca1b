"""Datasets and kernels are pickled for other processes, as clusters require."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from treekit.components.splitters import AXIS_SPLITTER
from treekit.data import table
from treekit.data.dataset import make_dataset
from treekit.kernels.grow_tree import grow_nodes

ANOTHER_PROCESS = """
import pickle, sys
from pathlib import Path
from unittest.mock import patch
dataset, kernels = pickle.loads(Path(sys.argv[1]).read_bytes())
from treekit.components.splitters import AXIS_SPLITTER
from treekit.kernels.grow_tree import grow_nodes
assert kernels == [grow_nodes, AXIS_SPLITTER]
assert kernels[0] is grow_nodes
print(dataset.compute_digest())
"""


def make_table() -> dict[str, object]:
    return {
        "x": [1.5, 2.0, np.nan, 4.0], "c": ["a", None, "b", "a"], "y": ["u", "v", "u", "v"]
    }  # fmt: skip


@pytest.mark.parametrize("ending", ["", "csv", "parquet"])
def test_dataset_and_kernels_are_unpickled_by_another_process(tmp_path: Path, ending: str) -> None:
    source: object = make_table()
    if ending:
        source = tmp_path / f"t.{ending}"
        frame = pd.DataFrame(make_table())
        frame.to_csv(source, index=False) if ending == "csv" else frame.to_parquet(source)
    with patch.object(table, "LARGE", -1):
        dataset = make_dataset(source, "y")
        cells = pickle.loads(pickle.dumps(table.read_table(source)))
    assert cells.get_typed_cells("c").tolist() == ["a", None, "b", "a"]
    assert dataset.compute_digest() == make_dataset(make_table(), "y").compute_digest()
    file = tmp_path / "pickled"
    file.write_bytes(pickle.dumps((dataset, [grow_nodes, AXIS_SPLITTER])))
    other = subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS, file], capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == dataset.compute_digest()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_kernel_is_pickled_by_its_name(protocol: int) -> None:
    text = pickle.dumps(grow_nodes, protocol)
    assert len(text) < 150
    assert pickle.loads(text) is grow_nodes
