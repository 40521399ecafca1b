"""Start-up: imports, the help of the command line, the first use of a machine, later ones.

Every measurement is a separate process; the time of the bare interpreter is a case, not
subtracted. An empty kernel cache stands for a fresh machine.
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
TRAIN = 'treekit.train(table, "y", seed=0{more})'
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
    if options.first:
        place = {**root, "NUMBA_CACHE_DIR": str(options.folder / "demo")}
        command = ["-m", "treekit", "demo", "--out", str(options.folder / "out")]
        for what in ("with an empty kernel cache", "later"):
            yield Entry(f"treekit demo, {what}", "treekit", _process(command, place)[0])
    trainings = {"a tree": "", "a forest": ', ensemble="forest", trees=10'}
    for number, (what, more) in enumerate(trainings.items() if options.first else ()):
        code = FIRST.format(rows=options.rows, train=TRAIN.format(more=more))
        place = {**root, "NUMBA_CACHE_DIR": str(options.folder / str(number))}
        first = _trained(code, place)
        yield Entry(f"the first training of {what} on a machine", "treekit", first)
        for _ in range(options.rounds):
            later = _trained(code, place)
            yield Entry(f"training of {what}, later processes", "treekit", later)


register(
    Benchmark(
        "startup", "imports, --help, the first training on a machine and later ones", _run,
        (
            Figure("cpu", "CPU s", ".2f", ratio=True), Figure("wall", "wall s", ".2f"),
            Figure("train", "training alone, CPU s", ".2f"),
        ),
        {
            "rows": Parameter(20_000, 100, "training rows"),
            "first": Parameter(True, False, "measure training with an empty kernel cache"),
        },
        peers=tuple(IMPORTS)[:-1],
        toy_peers=(),
    )
)  # fmt: skip
