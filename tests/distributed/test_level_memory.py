"""Memory per row of the calling process in training by levels."""

from __future__ import annotations

import itertools
import pickle
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treekit.distributed.levels import CALLER_BYTES, Resources, train_by_levels

pytestmark = pytest.mark.system


class FileEngine:
    """Run functions in one other process, which keeps all results in files."""

    def __init__(self, pool: ProcessPoolExecutor, folder: Path) -> None:
        self.pool, self.folder, self.n_results = pool, folder, 0

    def send(self, value: Any) -> Path:
        """Return the file of a value."""
        return self.submit(return_value, value)

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Path:
        """Run a function, and return the file of its result."""
        self.n_results += 1
        path = self.folder / str(self.n_results)
        self.pool.submit(store_result, path, function, arguments).result()
        return path

    def take(self, results: Sequence[Path]) -> list[Any]:
        """Return the results."""
        return [load_result(path) for path in results]


def store_result(path: Path, function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """Store the result of a function, whose arguments may be files of results."""
    path.write_bytes(pickle.dumps(function(*map(load_result, arguments)), protocol=5))


def load_result(value: Any) -> Any:
    """Return the result that a file contains, or that each file of a list contains."""
    if isinstance(value, Path):
        with value.open("rb") as file:
            return pickle.load(file)
    return [load_result(each) for each in value] if isinstance(value, list) else value


def return_value(value: Any) -> Any:
    """Return the argument."""
    return value


def make_part(begin: int, end: int) -> Any:
    """Return rows of a table, whose numbers are exact as float32."""
    import pandas as pd

    rng = np.random.default_rng(begin)
    x = rng.integers(0, 1000, (2, end - begin)).astype(np.float64)
    return pd.DataFrame(
        {
            "a": x[0], "b": x[1], "number": x[0] + rng.normal(size=end - begin),
            "kind": x[0] > x[1], "w": rng.choice([0.5, 1.0, 0.3], end - begin),
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Return another process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize(
    ("target", "weights", "most"),
    [("kind", None, 18), ("number", None, 40), ("number", "w", 64)],
)
def test_memory_per_row_of_the_calling_process_is_as_documented(
    target: str, weights: str | None, most: int, pool: ProcessPoolExecutor, tmp_path: Path
) -> None:
    def measure_peak(n_rows: int) -> int:
        engine = FileEngine(pool, tmp_path)
        ends = np.linspace(0, n_rows, 9).astype(int).tolist()
        parts = [engine.submit(make_part, a, b) for a, b in itertools.pairwise(ends)]
        places = [("part", b - a) for a, b in itertools.pairwise(ends)]
        ignored = {"kind", "number", "w"} - {target, weights}
        reading = {"ignore": sorted(ignored), "weights": weights}
        settings = {
            "ensemble": "forest", "trees": 3, "seed": 0, "splitter": "histogram", "max_depth": 3
        }  # fmt: skip
        tracemalloc.start()
        train_by_levels(engine, parts, places, target, reading, settings, Resources(2, 1 << 30))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    measure_peak(5_000)  # what is loaded or compiled once
    few, many = 100_000, 500_000
    found = (measure_peak(many) - measure_peak(few)) / (many - few)
    assert round(found, 2) <= most <= CALLER_BYTES  # some objects differ in size, whatever the rows
