"""Compile the kernels that most tests use, in two processes, before any test runs.

>>> python -m tests.compile_kernels         # both processes
>>> python -m tests.compile_kernels grow    # one of them

Kernels that a run compiles first would otherwise be compiled once in every worker.  The
machine code goes to numba's usual cache: beside the sources, or to ``NUMBA_CACHE_DIR``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["compile_kernels"]


def compile_kernels() -> None:
    """Run all parts at the same time, each in its own process."""
    commands = [[sys.executable, "-m", "tests.compile_kernels", part] for part in PARTS]
    folder = Path(__file__).parents[1]
    processes = [subprocess.Popen(command, cwd=folder) for command in commands]
    for process in processes:
        if process.wait() != 0:
            raise RuntimeError(f"kernels do not compile: {process.args}")


def _table(rows: int = 120) -> dict[str, Any]:
    """Numbers with gaps, categories, and a target of each task."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, rows))
    price = x + rng.normal(size=rows) / 2
    y[rng.random(rows) < 0.2] = np.nan
    colour = rng.choice(["red", "green", "blue"], rows)
    return {"x": x, "y": y, "colour": colour, "price": price, "dear": price > 0}


def _train(target: str, **settings: Any) -> Any:
    import treekit

    other = "price" if target == "dear" else "dear"
    table = {name: column for name, column in _table().items() if name != other}
    return treekit.train(table, target, seed=0, **settings)


def _grow() -> None:
    """Grow and prune trees with each splitter and each way to treat missing values."""
    _train("dear", splitter="histogram")
    _train("dear", algorithm="c45")
    _train("dear", missing="surrogate", splitter="exact", pruner="cost_complexity")
    _train("dear", ensemble="forest", trees=3)
    _train("price", ensemble="forest", trees=3)
    _train("price", splitter="oblique")
    _train("dear", algorithm="extra_trees", trees=3)
    _train("price", criterion="absolute_error")


def _use() -> None:
    """Predict, write rules, export and verify models built by hand."""
    import treekit
    from tests.extremes import EXTREMES
    from treekit.serve.models.warm import warm

    with tempfile.TemporaryDirectory() as folder:
        for name in ("mixed", "mixed_numbers", "surrogates", "oblique", "fractional"):
            model = EXTREMES[name]()
            targets = ("python", "rules") if name != "oblique" else ("python",)
            paths = [treekit.export(model, to, Path(folder, name))[0] for to in targets]
            treekit.verify(model, paths, random_rows=200)
            model.rules()
        warm()


PARTS: Mapping[str, Callable[[], None]] = {"grow": _grow, "use": _use}

if __name__ == "__main__":
    if len(sys.argv) == 1:
        compile_kernels()
    for part in sys.argv[1:]:
        PARTS[part]()
