"""Growing trees and forests: the same work for every side, in turn, each in a fresh process.

A round is one seed: a table, and a model of every side. Timing covers everything from
arrays in memory to a fitted model, including binning and encoding. Before it, a small
model is fitted to import and compile; after it, the leaves are counted and held-out rows
predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import sides
from benchmarks.apart import Failed, ask
from benchmarks.clock import measured
from benchmarks.data import Rows, diamonds, divided, flights, load, numbers, points, save
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register
from benchmarks.sides import Work

__all__ = ["FIGURES", "compared", "grown"]

FIGURES = (
    Figure("cpu", "CPU s", ".2f", ratio=True),
    Figure("wall", "wall s", ".2f"),
    Figure("memory", "MB above the data", ".0f"),
    Figure("leaves", "leaves", ",.0f", mean=True),
    Figure("quality", "accuracy or R²", ".4f", mean=True),
)
PEERS = ("sklearn", "ydf", "ydf discretized", "lightgbm", "xgboost")
BOTH = ("treekit", "treekit exact")
THREE = (*BOTH, "treekit entropy")
_WARM_UP = 1000
_DEPTHS = "maximum depths; 0: fully grown"


def grown(side: str, work: dict[str, Any], place: str) -> dict[str, float]:
    """Fit one model of a side to the tables in a folder; return its figures."""
    train, test = (load(Path(place), name) for name in ("train", "test"))
    learner, full = sides.learner(side), Work(**work)
    given = learner.given(train)
    warm = train if learner.whole_warm_up else train.take(slice(_WARM_UP))
    small = replace(full, trees=min(full.trees, 2), depth=1)
    learner.fit(small, given if warm is train else learner.given(warm), warm)
    model, cost = measured(lambda: learner.fit(full, given, train))
    figures = cost.figures() | {"leaves": float(learner.leaves(model))}
    size = learner.megabytes(model)
    if size is not None:
        # A code takes a byte per cell.
        figures |= {"model": size, "model and codes": size + train.x.size / 2**20}
    answers = learner.answers(model, learner.given(test))
    return figures | {"quality": quality(test, answers)}


def quality(test: Rows, answers: Any) -> float:
    """Compute accuracy or R squared."""
    if not test.regression:
        return float((answers == test.y).mean())
    return float(1 - ((answers - test.y) ** 2).sum() / ((test.y - test.y.mean()) ** 2).sum())


def compared(
    options: Options, case: str, work: Work, table: Callable[[int], tuple[Rows, Rows]]
) -> Iterator[Entry]:
    """Measure the work of every side on the table of every round; sides take turns."""
    failed: dict[str, str] = {}
    for side in options.sides:
        why = sides.absent(side) or sides.learner(side).refuses(work)
        if why:
            failed[side] = why
            yield Entry(case, side, failed=why)
    for seed in range(options.rounds):
        for name, part in zip(("train", "test"), table(seed), strict=True):
            save(part, options.folder, name)
        plain = replace(work, seed=seed).plain()
        for side in options.sides:
            if side in failed:
                continue
            try:
                figures = ask(
                    grown, side, plain, str(options.folder), apart=options.apart,
                    limit=options.limit, environment={"OMP_NUM_THREADS": str(work.threads)},
                )  # fmt: skip
            except Failed as why:
                failed[side] = str(why)
                yield Entry(case, side, failed=str(why))
            else:
                yield Entry(case, side, figures)


def _made(options: Options) -> Iterator[Entry]:
    """Measure the parameters of `options` on generated points."""
    o = options
    work = Work(trees=o.trees, tried="sqrt", random=o.random, threads=o.threads)
    if o.trees == 1:
        work = replace(work, tried="all")
    table = partial(points, o.rows, o.features, o.classes)
    what = "extra trees" if o.random else f"forest of {o.trees}" if o.trees > 1 else "one tree"
    size = f"{o.rows:,} x {o.features}, {o.classes} classes"
    for depth in o.depths:
        deep = "fully grown" if depth == 0 else f"depth {depth}"
        case = f"{what}, {size}, {deep}"
        yield from compared(options, case, replace(work, depth=depth or None), table)


def _of_diamonds(options: Options) -> Iterator[Entry]:
    def table(seed: int) -> tuple[Rows, Rows]:
        return divided(diamonds(options.rows, 0), seed)

    for absolute in (False, True):
        error = "absolute" if absolute else "squared"
        for trees in (1, options.trees):
            what = f"forest of {trees}" if trees > 1 else "one tree"
            work = Work(trees=trees, absolute=absolute, threads=options.threads)
            if absolute and trees > 1:  # peers take minutes per forest: fewer trees suffice
                work = replace(work, trees=options.absolute_trees)
                what = f"forest of {work.trees}"
            yield from compared(options, f"{what}, {error} error", work, table)


def _of_numbers(options: Options) -> Iterator[Entry]:
    table = partial(numbers, options.rows, options.features)
    for trees in (1, options.trees):
        work = Work(trees=trees, absolute=True, threads=options.threads)
        what = f"forest of {trees}" if trees > 1 else "one tree"
        yield from compared(options, f"{what}, absolute error", work, table)


def _of_flights(options: Options) -> Iterator[Entry]:
    rows = flights(options.rows, 0)
    work = Work(trees=options.trees, tried="sqrt", threads=options.threads)
    case = f"forest of {options.trees}, {len(rows.y):,} rows, mixed, cells missing"
    yield from compared(options, case, work, partial(divided, rows))


def _sizes(rows: int, features: int, classes: int, trees: int, **more: Any) -> dict[str, Parameter]:
    found = {
        "rows": Parameter(rows, 300, "total rows; four fifths are training rows"),
        "features": Parameter(features, 5, "columns"),
        "classes": Parameter(classes, classes, "classes"),
        "trees": Parameter(trees, min(trees, 3), "trees"),
        "random": Parameter(False, False, "random thresholds (extra trees)"),
        "depths": Parameter((0,), (0,), _DEPTHS),
        "threads": Parameter(2, 2, "threads of every side"),
    }
    return found | more


def _add(name: str, line: str, run: Any, parameters: dict[str, Parameter], **more: Any) -> None:
    given: dict[str, Any] = {"figures": FIGURES, "own": THREE, "peers": PEERS, "fair": True}
    register(Benchmark(name, line, run, parameters=parameters, **given | more))


_add(
    "forest",
    "a fully grown forest of 100 trees, 2 classes",
    _made,
    _sizes(100_000, 28, 2, 100),
    own=(*THREE, "treekit hellinger"),
)
_add(
    "extra-trees", "100 extremely randomised trees", _made,
    _sizes(100_000, 28, 2, 100, random=Parameter(True, True, "random thresholds")),
    own=("treekit",), peers=("sklearn",),
)  # fmt: skip
_add(
    "many-classes", "a fully grown forest of 50 trees, 7 classes", _made,
    _sizes(100_000, 54, 7, 50), peers=("sklearn", "ydf", "ydf discretized"),
)  # fmt: skip
_add(
    "fifty-classes", "one fully grown tree, 50 classes", _made,
    _sizes(25_000, 28, 50, 1), peers=("sklearn",),
)  # fmt: skip
_add(
    "tree", "one tree, fully grown and of depth 8", _made,
    _sizes(100_000, 28, 2, 1, depths=Parameter((0, 8), (0, 3), _DEPTHS)),
)  # fmt: skip
_add(
    "tree-million", "one fully grown tree on a million rows", _made,
    _sizes(1_250_000, 28, 2, 1), peers=("sklearn", "ydf", "ydf discretized"), rounds=1,
)  # fmt: skip
_add(
    "diamonds", "numbers: tree and forest by squared and absolute error", _of_diamonds,
    {
        "rows": Parameter(53_940, 200, "rows at most"),
        "trees": Parameter(50, 2, "trees of the forest by squared error"),
        "absolute_trees": Parameter(5, 2, "trees of the forest by absolute error"),
        "threads": Parameter(2, 2, "threads of every side"),
    },
    own=BOTH,
)  # fmt: skip
_add(
    "numbers", "numbers by absolute error: tree and forest, columns without ties", _of_numbers,
    {
        "rows": Parameter(12_500, 200, "total rows; four fifths are training rows"),
        "features": Parameter(28, 5, "columns"),
        "trees": Parameter(5, 2, "trees of the forest"),
        "threads": Parameter(1, 1, "threads of every side"),
    },
    own=BOTH, peers=("sklearn",),
)  # fmt: skip
_add(
    "flights", "a mixed table with missing cells, 50 trees", _of_flights,
    {
        "rows": Parameter(336_776, 300, "rows at most"),
        "trees": Parameter(50, 2, "trees"),
        "threads": Parameter(2, 2, "threads of every side"),
    },
    own=("treekit", "treekit entropy"), rounds=3,
)  # fmt: skip
_add(
    "memory", "memory of a forest above the data, compared with its model and codes", _made,
    _sizes(100_000, 28, 2, 100), rounds=1,
    peers=("sklearn", "ydf"), own=("treekit", "treekit entropy"),
    figures=(
        Figure("memory", "MB above the data", ".0f", ratio=True),
        Figure("model", "model MB", ".0f"),
        Figure("model and codes", "model and a byte a cell, MB", ".0f"),
        *FIGURES[:2], *FIGURES[3:],
    ),
)  # fmt: skip
