"""A third party's Gini index compared with the built-in one: the same formula, written elsewhere.

All sides train in one process on the same data, in turn, and grow the same trees.
"Compile" is the additional time of a side's first training; kernels come from the disk
cache. `python -c` times complete processes.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register
from treekit import Criterion, CriterionFunctions
from treekit.data.dataset import Dataset, make_dataset
from treekit.training import fit

SOURCE = """
def score(parent, children):
    total = 0.0
    squares = 0.0
    for k in range(parent.shape[0]):
        total += parent[k]
        squares += parent[k] * parent[k]
    kept = 0.0
    for b in range(children.shape[0]):
        weight = 0.0
        own = 0.0
        for k in range(parent.shape[0]):
            weight += children[b, k]
            own += children[b, k] * children[b, k]
        if weight > 0.0:
            kept += own / weight
    return (kept - squares / total) / total


def impurity(stats):
    weight = 0.0
    squares = 0.0
    for k in range(stats.shape[0]):
        weight += stats[k]
        squares += stats[k] * stats[k]
    return 1.0 - squares / (weight * weight)
"""
"""treekit's Gini index as third-party source."""

WAYS = {
    "exact tree": {"splitter": "exact"},
    "histogram tree": {"splitter": "histogram"},
    "exact forest": {"splitter": "exact", "ensemble": "forest"},
    "histogram forest": {"splitter": "histogram", "ensemble": "forest"},
}
PROCESS = """
import numpy as np
{source}
import treekit
from treekit import Criterion, CriterionFunctions
own = Criterion("own", "classification", lambda: CriterionFunctions(impurity, score))
rng = np.random.default_rng(0)
table = {{f"x{{i}}": rng.normal(size={rows}) for i in range(8)}}
table["y"] = (table["x0"] + table["x1"] * table["x2"] + rng.normal(size={rows}) > 0.8).astype(int)
treekit.train(table, "y", criterion={criterion}, seed=0, max_depth=10)
"""


def notebook_cell() -> dict[str, Any]:
    """Return functions without a source file, as in a notebook."""
    cell: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SOURCE, "<cell 1>", "exec"), cell)  # noqa: S102 - the text above
    return cell


def module() -> dict[str, Any]:
    """Return functions of an imported module, as in a script or an installed package."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "somebodys_gini.py"
        path.write_text(SOURCE)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
    return vars(made)


def criterion(name: str, functions: dict[str, Any]) -> Criterion:
    both = CriterionFunctions(functions["impurity"], functions["score"])
    return Criterion(name, "classification", lambda: both)


def data(rows: int) -> Dataset:
    rng = np.random.default_rng(0)
    table: dict[str, Any] = {f"x{i}": rng.normal(size=rows).astype(np.float32) for i in range(10)}
    lean = table["x0"] + table["x1"] * table["x2"] + rng.normal(size=rows)
    return make_dataset({**table, "y": (lean > 0.8).astype(int)}, "y", task="classification")


def cpu(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _in_one_process(options: Options) -> Iterator[Entry]:
    """Measure CPU seconds of each round by setting and side, after a first round that compiles."""
    sides = {
        "treekit": "gini",
        "treekit, module": criterion("module", module()),
        "treekit, notebook": criterion("notebook", notebook_cell()),
    }
    sides = {name: own for name, own in sides.items() if name in options.sides}
    dataset = data(options.rows)
    first: dict[tuple[str, str], float] = {}
    for way, settings in WAYS.items():
        many = {"trees": options.trees, "n_jobs": 1, "oob": False} if "forest" in way else {}
        for number in range(options.rounds + 1):
            for side, own in sides.items():
                given = {**settings, **many, "criterion": own, "seed": 0, "max_depth": 12}
                took = cpu(lambda given=given: fit(dataset, given))
                if number == 0:
                    first[way, side] = took
                    continue
                extra = max(first[way, side] - took, 0.0)
                yield Entry(way, side, {"cpu": took, "compile": extra})


def _processes(options: Options) -> Iterator[Entry]:
    """Measure CPU seconds of `python -c` with the built-in and with the third-party criterion."""
    for _ in range(options.rounds):
        for side, how in (("treekit", "'gini'"), ("treekit, module", "own")):
            code = PROCESS.format(source=SOURCE, rows=options.rows, criterion=how)
            before = os.times()
            subprocess.run([sys.executable, "-c", code], check=True)
            after = os.times()
            used = after.children_user - before.children_user
            used += after.children_system - before.children_system
            yield Entry("python -c", side, {"cpu": used})


def _run(options: Options) -> Iterator[Entry]:
    yield from _in_one_process(options)
    if options.processes:
        yield from _processes(options)


register(
    Benchmark(
        "third-party", "a third party's Gini index compared with the built-in one", _run,
        (Figure("cpu", "CPU s", ".3f", ratio=True), Figure("compile", "compile s", ".2f")),
        {
            "rows": Parameter(60_000, 300, "rows"),
            "trees": Parameter(10, 2, "trees of the forests"),
            "processes": Parameter(True, False, "also time complete processes of python -c"),
        },
        own=("treekit", "treekit, module", "treekit, notebook"), rounds=7,
    )
)  # fmt: skip
