"""Start-up: imports, the help of the command line, the first use of a machine, later ones.

Every measurement is a separate process; the time of the bare interpreter is a case, not
subtracted. numba's cache is empty before each training.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks import sides
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register

__all__ = ["FIRST"]

FIRST = """
import time
import numpy as np, treekit
rng = np.random.default_rng(0)
table = {{f"x{{i}}": rng.normal(size={rows}).astype(np.float32) for i in range(8)}}
table["y"] = (table["x0"] + table["x1"] * table["x2"] > 0.3).astype(int)
start = time.process_time()
{train}
print(time.process_time() - start)
"""
TRAININGS = {
    "a tree": 'treekit.train(table, "y", seed=0)',
    "a forest": 'treekit.train(table, "y", seed=0, ensemble="forest", trees=10)',
    "c45": 'treekit.train(table, "y", seed=0, algorithm="c45")',
    "an oblique tree": 'treekit.train(table, "y", seed=0, splitter="oblique", max_depth=6)',
    "a tree with surrogates": 'treekit.train(table, "y", seed=0, missing="surrogate")',
    "a tree by absolute error":
        'treekit.train(table, "x7", ignore=["y"], seed=0, criterion="absolute_error", max_depth=6)',
    "a tree by an own criterion": """
def score(parent, children):
    apart = 0.0
    for b in range(children.shape[0]):
        apart += abs(children[b, 0] * parent[1] - children[b, 1] * parent[0])
    return apart / (parent[0] + parent[1]) ** 2

own = treekit.Criterion("own", "classification", lambda: treekit.CriterionFunctions(score=score))
start = time.process_time()
treekit.train(table, "y", seed=0, criterion=own)
""",
}  # fmt: skip
FIT = """
import time
from sklearn.datasets import load_iris
from treekit import DecisionTreeClassifier
x, y = load_iris(return_X_y=True)
start = time.process_time()
DecisionTreeClassifier().fit(x, y)
print(time.process_time() - start)
"""
IMPORTS = {
    "sklearn": "import sklearn.ensemble", "ydf": "import ydf", "lightgbm": "import lightgbm",
    "xgboost": "import xgboost", "treekit": "import treekit",
}  # fmt: skip
_ESTIMATORS = "import of the estimators"
_IMPORT_ESTIMATORS = "from treekit import RandomForestClassifier"


def _process(arguments: list[str], environment: Mapping[str, str]) -> tuple[dict[str, float], str]:
    """Run a process; return its CPU and wall seconds, and its output."""
    before, wall = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], check=True, env={**os.environ, **environment},
        capture_output=True, text=True,
    )  # fmt: skip
    after, wall = os.times(), time.perf_counter() - wall
    used = after.children_user - before.children_user
    used += after.children_system - before.children_system
    return {"cpu": used, "wall": wall}, done.stdout


def _trained(code: str, environment: Mapping[str, str]) -> dict[str, float]:
    """Run a training process; add the CPU seconds of training, with imports made by it."""
    figures, printed = _process(["-c", code], environment)
    return figures | {"train": float(printed.split()[-1])}


def _run(options: Options) -> Iterator[Entry]:
    root = {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    missing = {side: sides.absent(side) for side in options.sides if sides.absent(side)}
    for side, why in missing.items():
        yield Entry("import", side, failed=why)
    for _ in range(options.rounds):
        yield Entry("the interpreter alone", "Python", _process(["-c", "pass"], root)[0])
        for side in options.sides:
            if side not in missing:
                yield Entry("import", side, _process(["-c", IMPORTS[side]], root)[0])
        yield Entry("treekit --help", "treekit", _process(["-m", "treekit", "--help"], root)[0])
        yield Entry(_ESTIMATORS, "treekit", _process(["-c", _IMPORT_ESTIMATORS], root)[0])
    for what, where, place in _list_installations(options, root):
        command = ["-m", "treekit", "demo", "--out", str(options.folder / "out")]
        yield Entry("treekit demo", what, _process(command, place)[0])
        yield Entry("the first fit of iris in a process", what, _trained(FIT, place))
        for name, train in TRAININGS.items():
            code = FIRST.format(rows=options.rows, train=train)
            own = place | {"NUMBA_CACHE_DIR": str(options.folder / where / name)}
            yield Entry(f"the first training of {name}", what, _trained(code, own))


def _list_installations(
    options: Options, root: Mapping[str, str]
) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the sides: with the library of kernels, and, if asked for, without."""
    for what, where, kernels in (
        ("treekit", "library", "all"), ("treekit, compiled by numba", "numba", "none"),
    ):  # fmt: skip
        if kernels == "all" or options.first:
            cache = str(options.folder / where)
            yield what, where, {**root, "NUMBA_CACHE_DIR": cache, "TREEKIT_KERNELS": kernels}


register(
    Benchmark(
        "startup", "imports, --help, the demo, and the first training of each kind", _run,
        (
            Figure("cpu", "CPU s", ".2f", ratio=True), Figure("wall", "wall s", ".2f"),
            Figure("train", "training alone, CPU s", ".2f"),
        ),
        {
            "rows": Parameter(20_000, 100, "training rows"),
            "first": Parameter(True, False, "measure training without the library of kernels, too"),
        },
        peers=tuple(IMPORTS)[:-1],
        toy_peers=(),
    )
)  # fmt: skip
