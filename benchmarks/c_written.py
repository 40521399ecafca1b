"""Write C and C++ source of a model by treekit and its peers, within a time limit."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.apart import Failed

__all__ = ["OWN", "PEERS", "own_kind", "written"]

OWN: dict[str, dict[str, str]] = {
    "treekit": {"form": "full"},
    "treekit, float rows": {"input": "float"},
    "treekit, integers": {"arithmetic": "integer"},
    "treekit, tables": {"form": "table"},
    "treekit, nested tests": {"form": "if_else"},
}
"""Settings of treekit's exporter, which chooses the form by default."""


def own_kind(side: str) -> str:
    """Return the cell type of the rows of a side of treekit."""
    settings = OWN[side]
    return "uint32_t" if "arithmetic" in settings else settings.get("input", "double")


def _m2cgen(estimator: Any, folder: Path) -> None:
    import m2cgen

    sys.setrecursionlimit(20_000)
    (folder / "m.c").write_text(m2cgen.export_to_c(estimator), encoding="utf-8")


def _tl2cgen(estimator: Any, folder: Path) -> None:
    import tl2cgen
    import treelite

    # treelite only reads forests: a forest of one tree on all rows and columns is that tree.
    tl2cgen.generate_c_code(treelite.sklearn.import_model(estimator), folder / "made", {})
    for name in ("main.c", "header.h"):
        (folder / "made" / name).rename(folder / name.replace("main", "m"))


def _ydf(model: Any, folder: Path) -> None:
    # Not CLASS: if leaves hold shares, YDF 0.16 compares their sum (at most 1) with 1.
    source = model.to_standalone_cc(name="made", classification_output="PROBABILITY")
    (folder / "made.h").write_text(source, encoding="utf-8")


PEERS: dict[str, Callable[[Any, Path], None]] = {
    "ydf C++": _ydf,
    "m2cgen": _m2cgen,
    "tl2cgen": _tl2cgen,
}


def written(side: str, model: Any, folder: Path, seconds: float) -> None:
    """Write a side's source, a peer's in a separate process; raise `Failed` after `seconds`."""
    folder.mkdir(parents=True)
    if side in OWN:
        import treekit

        treekit.export(model, "c", folder / "m.c", **OWN[side])
        return
    process = multiprocessing.get_context("fork").Process(target=PEERS[side], args=(model, folder))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        raise Failed(f"more than {seconds:.0f} s to write")
    if process.exitcode != 0:
        raise Failed("cannot write it")
