"""Small tables: the fixed costs of a fit, of a grid search and of predicting a dataframe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks import sides
from benchmarks.apart import Failed, ask
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register

__all__ = ["fixed_costs"]

_TABLES = {"iris": "iris", "breast cancer": "breast_cancer", "diabetes": "diabetes"}
_LEAVES = (1, 2, 5, 10, 20)
"""Values of `min_samples_leaf` in the grid; with `_DEPTHS` 20 settings of 5 folds each."""
_DEPTHS = (2, 4, 8, None)


def fixed_costs(side: str, repeats: int) -> dict[str, float]:
    """Measure the median milliseconds (CPU, all threads) of each case, after a first call."""
    from sklearn import datasets
    from sklearn.model_selection import GridSearchCV

    if side == "sklearn":
        from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
    else:
        from treekit.estimators import DecisionTreeClassifier, DecisionTreeRegressor

    found = {}
    for name, loader in _TABLES.items():
        x, y = getattr(datasets, f"load_{loader}")(return_X_y=True)
        kind = DecisionTreeRegressor if name == "diabetes" else DecisionTreeClassifier
        found[f"fit of a tree: {name}"] = _median(partial(_fit, kind, x, y), repeats)
    x, y = datasets.load_breast_cancer(return_X_y=True)
    grid = {"min_samples_leaf": _LEAVES, "max_depth": _DEPTHS}
    search = GridSearchCV(DecisionTreeClassifier(random_state=0), grid, cv=5)
    case = "GridSearchCV of 20 x 5 trees: breast cancer"
    found[case] = _median(partial(search.fit, x, y), max(repeats // 10, 1))
    frame, labels = datasets.load_breast_cancer(return_X_y=True, as_frame=True)
    tree = DecisionTreeClassifier(random_state=0).fit(frame, labels)
    for rows in (1, len(frame)):
        part = frame.iloc[:rows]
        case = f"predict of a dataframe of {rows} x {frame.shape[1]}"
        found[case] = _median(partial(tree.predict, part), repeats)
    return found


def _fit(kind: Any, x: Any, y: Any) -> None:
    kind(random_state=0).fit(x, y)


def _median(call: Callable[[], Any], repeats: int) -> float:
    """Return the median milliseconds of CPU over calls, after one that is not counted."""
    call()
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return 1e3 * sorted(taken)[len(taken) // 2]


def _run(options: Options) -> Iterator[Entry]:
    for _ in range(options.rounds):
        for side in options.sides:
            try:
                if sides.absent(side):
                    raise Failed(sides.absent(side))
                found = ask(
                    fixed_costs, side, options.repeats, apart=options.apart, limit=options.limit
                )
            except Failed as why:
                yield Entry("fit of a tree: iris", side, failed=str(why))
            else:
                yield from (Entry(case, side, {"ms": value}) for case, value in found.items())


register(
    Benchmark(
        "small", "small tables: fits, a grid search, dataframes", _run,
        (Figure("ms", "CPU ms", ".2f", ratio=True),),
        {"repeats": Parameter(50, 2, "calls of each case in a round")},
        peers=("sklearn",),
    )
)  # fmt: skip
