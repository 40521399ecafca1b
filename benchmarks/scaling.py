"""Scaling of the cost in rows, columns, classes, depth, trees and threads, one at a time.

Each case is a size; `exponents` fits the slope of cost over size on logarithmic axes: 1
is linear. Data are generated in blocks; ten million rows of 30 columns take 1.2 GB, in
this process and in each side's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from benchmarks.data import points
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, Result, register
from benchmarks.sides import Work
from benchmarks.training import FIGURES, compared

__all__ = ["curves", "exponents", "sizes"]

_PEERS = ("sklearn", "ydf", "lightgbm")


def sizes(case: str) -> tuple[str, float]:
    """Parse the axis and the size from a case's name: ``rows = 10,000``."""
    axis, _, size = case.partition(" = ")
    return axis, float(size.replace(",", ""))


def curves(result: Result, key: str) -> dict[str, list[tuple[float, float]]]:
    """Return sizes and medians of a figure by side."""
    found: dict[str, list[tuple[float, float]]] = {}
    figure = Figure(key, key)
    for case, sides in result.cases.items():
        for side, measured in sides.items():
            value = figure.of(measured)
            if value is not None and value > 0:
                found.setdefault(side, []).append((sizes(case)[1], value))
    return {side: sorted(points) for side, points in found.items()}


def exponents(result: Result, key: str = "cpu") -> dict[str, float]:
    """Return by side the least-squares slope of log figure over log size."""
    found = {}
    for side, line in curves(result, key).items():
        if len(line) < 2:
            continue
        logs = [(math.log(x), math.log(y)) for x, y in line]
        x0, y0 = (sum(part) / len(logs) for part in zip(*logs, strict=True))
        across = sum((x - x0) ** 2 for x, _ in logs)
        found[side] = sum((x - x0) * (y - y0) for x, y in logs) / across
    return found


def _run(axis: str, options: Options) -> Iterator[Entry]:
    """Run each size in turn, peers only up to size `peers_to`."""
    given = dict(options.values)
    peers_to, along = given.pop("peers_to"), given.pop(axis)
    for size in along:
        sides = tuple(s for s in options.sides if s.startswith("treekit") or size <= peers_to)
        one = given | {axis: size}
        work = Work(
            trees=one["trees"], depth=one["depth"] or None, threads=one["threads"],
            tried="sqrt" if one["trees"] > 1 else "all",
        )  # fmt: skip
        here = Options(one, sides, options.rounds, options.apart, options.limit, options.folder)
        table = partial(points, one["rows"] * 5 // 4, one["features"], one["classes"])
        yield from compared(here, f"{axis} = {size:,}", work, table)


def _add(axis: str, along: tuple[int, ...], toys: tuple[int, ...], peers_to: int, **more: int):
    usual = {"rows": 50_000, "features": 28, "classes": 2, "depth": 0, "trees": 10, "threads": 2}
    toy = {"rows": 200, "features": 5, "classes": 2, "depth": 0, "trees": 2, "threads": 1}
    parameters = {
        name: Parameter(value, toy[name], f"{name} of every size")
        for name, value in (usual | more).items()
    }
    parameters[axis] = Parameter(along, toys, "the sizes")
    parameters["peers_to"] = Parameter(peers_to, peers_to, "largest size for peers")
    own = ("treekit",) if axis == "rows" else ("treekit", "treekit exact")
    register(
        Benchmark(
            f"scaling-{axis}", f"cost over {axis}", partial(_run, axis), FIGURES, parameters,
            own=own, peers=_PEERS, rounds=1,
        )
    )  # fmt: skip


_add(
    "rows", (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000), (100, 200),
    300_000, features=30, trees=1,
)  # fmt: skip
_add("features", (8, 16, 32, 64, 128, 256), (3, 6), 128)
_add("classes", (2, 5, 10, 20, 50, 100), (2, 4), 100, rows=20_000, trees=1)
_add("depth", (2, 4, 8, 16, 32), (1, 3), 32, trees=1)
_add("trees", (1, 3, 10, 30, 100, 300), (1, 3), 100)
_add("threads", (1, 2), (1, 2), 2, trees=30)
