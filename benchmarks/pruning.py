"""Cost of a tree's cost-complexity path relative to growing the tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import sides
from benchmarks.apart import Failed, ask
from benchmarks.clock import measured
from benchmarks.data import load, points, save
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register

__all__ = ["path_of"]

FIGURES = (
    Figure("fit", "fit, CPU s", ".2f", ratio=True),
    Figure("path", "path, CPU s", ".3f", ratio=True),
    Figure("share", "of a fit", ".3f"),
    Figure("alphas", "alphas", ",.0f"),
)
_SPLITTERS = {"treekit": "histogram", "treekit exact": "exact"}


def path_of(side: str, seed: int, place: str) -> dict[str, float]:
    """Measure CPU seconds of `fit` and of `cost_complexity_pruning_path`.

    treekit's method uses the fitted tree; scikit-learn's grows the tree again.
    """
    train = load(Path(place), "train")
    if side == "sklearn":
        from sklearn.tree import DecisionTreeClassifier

        tree = DecisionTreeClassifier(random_state=seed)
    else:
        import treekit

        tree = treekit.DecisionTreeClassifier(splitter=_SPLITTERS[side], random_state=seed)
        small = treekit.DecisionTreeClassifier(splitter=_SPLITTERS[side], max_depth=2)
        small.fit(train.x, train.y).cost_complexity_pruning_path()  # compiles before timing
    _, fit = measured(lambda: tree.fit(train.x, train.y))
    given = (train.x, train.y) if side == "sklearn" else ()
    path, own = measured(lambda: tree.cost_complexity_pruning_path(*given))
    alphas = float(len(path.ccp_alphas))
    return {"fit": fit.cpu, "path": own.cpu, "share": own.cpu / fit.cpu, "alphas": alphas}


def _run(options: Options) -> Iterator[Entry]:
    case = f"one tree, {options.rows:,} x {options.features}, fully grown"
    for seed in range(options.rounds):
        save(points(options.rows, options.features, 2, seed)[0], options.folder, "train")
        for side in options.sides:
            place, limit = str(options.folder), options.limit
            try:
                if sides.absent(side):
                    raise Failed(sides.absent(side))
                found = ask(path_of, side, seed, place, apart=options.apart, limit=limit)
            except Failed as why:
                yield Entry(case, side, failed=str(why))
            else:
                yield Entry(case, side, found)


register(
    Benchmark(
        "cost-complexity", "cost-complexity path of a full tree, relative to growing it", _run,
        FIGURES,
        {"rows": Parameter(125_000, 300, "rows"), "features": Parameter(28, 5, "columns")},
        own=tuple(_SPLITTERS), peers=("sklearn",),
    )
)  # fmt: skip
