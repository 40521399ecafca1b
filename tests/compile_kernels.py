"""Compile the commonly used kernels once, in two processes, before the tests.

    python -m tests.compile_kernels         # all parts, one after the other
    python -m tests.compile_kernels grow    # one part

Otherwise every worker would compile the same kernels.  The machine code is stored in
`treekit.kernels.compile.find_cache_folder`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pandas as pd

__all__ = ["FIRST", "MATRIX", "compile_kernels", "kernels_state"]


def compile_kernels(parts: Iterable[str]) -> None:
    """Run parts in parallel, each in its own process."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.compile_kernels", part],
            cwd=Path(__file__).parents[1],
            stderr=subprocess.PIPE,
            text=True,
        )
        for part in parts
    ]
    for process in processes:
        _, errors = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"kernels do not compile:\n{errors}")


def kernels_state() -> str:
    """Compute a digest of everything that the kernels' machine code depends on, except the CPU."""
    folder = Path(__file__).parents[1] / "treekit" / "kernels"
    files = [(path.name, path.stat().st_mtime_ns) for path in sorted(folder.glob("*.py"))]
    places = (str(folder), os.environ.get("NUMBA_CACHE_DIR"), sys.version, numba.__version__)
    return hashlib.sha256(repr((files, places)).encode()).hexdigest()


def _table(rows: int = 120) -> dict[str, Any]:
    """Make a table with missing numbers, categories, and a target of each task."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, rows))
    price = x + rng.normal(size=rows) / 2
    y[rng.random(rows) < 0.2] = np.nan
    colour = rng.choice(["red", "green", "blue"], rows)
    kind = np.digitize(price, [-1.0, -0.5, 0.5, 1.0])
    return {"x": x, "y": y, "colour": colour, "price": price, "dear": price > 0, "kind": kind}


_TARGETS = {"price", "dear", "kind"}


def _train(target: str, *, levels: bool = True, **settings: Any) -> Any:
    import treekit

    left = _TARGETS - {target} if levels else _TARGETS - {target} | {"colour"}
    table = {name: column for name, column in _table().items() if name not in left}
    return treekit.train(table, target, seed=0, **settings)


def _grow() -> None:
    """Grow and prune classification and regression trees."""
    _train("dear", splitter="histogram")
    _train("price", ensemble="forest", trees=3)
    _train("dear", algorithm="c45")
    _train("dear", levels=False)  # the search without an ordering of categories


def _use() -> None:
    """Predict, write rules, export and verify hand-built models; then grow with surrogates.

    Training comes last: by then the other process has compiled the shared kernels.
    """
    import treekit
    from tests.extremes import EXTREMES
    from treekit.warm_up import compile_for_serving

    with tempfile.TemporaryDirectory() as folder:
        for name in ("mixed", "mixed_numbers", "surrogates", "oblique", "fractional"):
            model = EXTREMES[name]()
            targets = ("python", "rules") if name != "oblique" else ("python",)
            paths = [treekit.export(model, to, Path(folder, name))[0] for to in targets]
            treekit.verify(model, paths, random_rows=200)
            model.rules()
        compile_for_serving()
    _train("dear", missing="surrogate", splitter="exact", pruner="cost_complexity")
    _train("kind", levels=False)  # cuts scanned row by row, as with many classes


def _oblique() -> None:
    """Grow trees with oblique splits, and with medians in the leaves."""
    _train("price", splitter="oblique")
    _train("price", criterion="absolute_error")


def _random() -> None:
    """Grow trees with random splits, and numeric trees with surrogates."""
    _train("dear", algorithm="extra_trees", trees=3)
    _train("price", algorithm="extra_trees", trees=3)
    _train("dear", levels=False, missing="surrogate")


def _levels() -> None:
    """Grow trees by levels, with and without categories."""
    from treekit.grow.level_builder import LocalEngine
    from treekit.training.levels import Resources, train_by_levels

    frame = pd.DataFrame(_table()).drop(columns="kind")
    for names in (["dear"], ["price"], ["price", "colour"]):
        rows = frame.drop(columns=names)
        target = "price" if names == ["dear"] else "dear"
        settings = {"ensemble": "tree", "seed": 0, "splitter": "histogram"}
        places = [("the table", len(rows))]
        train_by_levels(LocalEngine(), [rows], places, target, {}, settings, Resources(4))


PARTS: Mapping[str, Callable[[], None]] = {
    "grow": _grow,
    "use": _use,
    "oblique": _oblique,
    "random": _random,
    "levels": _levels,
}
FIRST, MATRIX = ("grow", "use"), ("oblique", "random", "levels")
"""Parts for every tier, and further parts for the matrix tier."""

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
