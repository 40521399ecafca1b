"""The Gini index of a third party against the built-in one: the same formula, written elsewhere.

    python -m benchmarks.third_party                              # the figures of README.md
    python -m benchmarks.third_party --rows 500 --trees 2 --rounds 1 --no-processes

Both sides train in one process on the same data, in turn, and grow the same
trees.  "Compile" is what the first training of a side takes more than the later
ones; kernels come from the disk cache.  `python -c` times whole processes.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

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
"""treekit's own Gini index, as somebody else would have typed it."""

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
    """Functions that no file holds, as those of a notebook."""
    cell: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SOURCE, "<cell 1>", "exec"), cell)  # noqa: S102 - the text above
    return cell


def module() -> dict[str, Any]:
    """Functions of an imported module, as those of a script or an installed package."""
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


def in_one_process(rows: int, trees: int, rounds: int) -> dict[tuple[str, str], list[float]]:
    """CPU seconds of each round by way and side; the first round compiles."""
    sides = {
        "gini": "gini",
        "module": criterion("module", module()),
        "notebook": criterion("notebook", notebook_cell()),
    }
    dataset = data(rows)
    seconds: dict[tuple[str, str], list[float]] = {}
    for way, settings in WAYS.items():
        many = {"trees": trees, "n_jobs": 1, "oob": False} if "forest" in way else {}
        for _ in range(rounds + 1):
            for side, own in sides.items():
                given = {**settings, **many, "criterion": own, "seed": 0, "max_depth": 12}
                took = cpu(lambda given=given: fit(dataset, given))
                seconds.setdefault((way, side), []).append(took)
    return seconds


def processes(rows: int, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of `python -c` with the built-in and with the own criterion."""
    seconds: dict[str, list[float]] = {"gini": [], "own": []}
    for _ in range(rounds):
        for side, how in (("gini", "'gini'"), ("own", "own")):
            code = PROCESS.format(source=SOURCE, rows=rows, criterion=how)
            before = os.times()
            subprocess.run([sys.executable, "-c", code], check=True)
            after = os.times()
            used = after.children_user - before.children_user
            seconds[side].append(used + after.children_system - before.children_system)
    return seconds


def ratio(own: list[float], base: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(own, base, strict=True))


def main(arguments: list[str] | None = None) -> dict[tuple[str, str], float]:
    """Run and print the comparison; returns the ratio of each way and side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--trees", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-processes", action="store_true", help="without python -c")
    options = parser.parse_args(arguments)
    seconds = in_one_process(options.rows, options.trees, options.rounds)
    ratios: dict[tuple[str, str], float] = {}
    print(f"{'':18} {'side':>9} {'CPU s':>8} {'ratio':>7} {'compile':>8}")
    for (way, side), (first, *later) in seconds.items():
        ratios[way, side] = ratio(later, seconds[way, "gini"][1:])
        usual = statistics.median(later)
        extra = max(first - usual, 0.0)
        print(f"{way:18} {side:>9} {usual:8.3f} {ratios[way, side]:7.3f} {extra:8.2f}")
    if not options.no_processes:
        whole = processes(options.rows, options.rounds)
        ratios["python -c", "own"] = ratio(whole["own"], whole["gini"])
        usual = statistics.median(whole["own"])
        print(f"{'python -c':18} {'own':>9} {usual:8.3f} {ratios['python -c', 'own']:7.3f}")
    return ratios


if __name__ == "__main__":
    main()
