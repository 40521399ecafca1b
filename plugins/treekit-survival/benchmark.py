"""Compare survival trees and forests with scikit-survival, on its table GBSG2.

    pip install treekit-survival[benchmark]
    python benchmark.py                         # 10 times 5-fold cross-validation, 100 trees
    python benchmark.py --repeats 1 --trees 20  # a quick look
    python benchmark.py --rows 10000            # one fold of a simulated table of that size

686 women with breast cancer (Schumacher et al. 1994), recurrence-free survival in
days, 299 events. Both sides get the same folds and the same numbers, categories as
ordered codes. Kernels and criteria are compiled before timing; times are CPU seconds
over all threads, one thread each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sksurv.datasets import load_gbsg2
from sksurv.ensemble import RandomSurvivalForest
from sksurv.tree import SurvivalTree
from treekit_survival import concordance, curves, integrated_brier_score

import treekit

Arrays = dict[str, Any]
LEVELS = {"menostat": ("Pre", "Post"), "horTh": ("no", "yes"), "tgrade": ("I", "II", "III")}


@dataclass(frozen=True)
class Told:
    """Predictions for test rows: risk (rows,) and curves (rows, times)."""

    risk: Any
    survival: Any


def gbsg() -> Arrays:
    """Load GBSG2: inputs as numbers, ``time`` and ``event``."""
    frame, outcome = load_gbsg2()
    columns = {
        name: np.array([LEVELS[name].index(cell) for cell in cells], dtype=np.float64)
        if name in LEVELS
        else cells.to_numpy(np.float64)
        for name, cells in frame.items()
    }
    return {**columns, "time": outcome["time"], "event": outcome["cens"].astype(np.int64)}


def simulated(rows: int) -> Arrays:
    """Simulate exponential times, a third censored; three of ten inputs change the hazard."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 10)).astype(np.float32)
    rate = np.exp(0.7 * x[:, 0] - 0.5 * x[:, 1] * (x[:, 2] > 0))
    time, gone = rng.exponential(size=rows) / rate, rng.exponential(2.0, size=rows)
    columns: Arrays = {f"x{k}": column.astype(np.float64) for k, column in enumerate(x.T)}
    return {**columns, "time": np.minimum(time, gone), "event": (time <= gone).astype(np.int64)}


def inputs(table: Arrays) -> Any:
    """Return the inputs as a matrix (rows, inputs) for scikit-survival."""
    return np.column_stack([v for k, v in table.items() if k not in ("time", "event")])


def by_treekit(**settings: Any) -> Callable[..., Told]:
    """Return a function that trains treekit and predicts."""

    def run(train: Arrays, test: Arrays, times: Any, seed: int) -> Told:
        own = {key.replace("__", "."): value for key, value in settings.items()}
        model = treekit.train(train, "time", seed=seed, n_jobs=1, **own)
        predicted = curves(model, test)
        return Told(predicted.risk, predicted.at(times))

    return run


def by_scikit(make: Callable[..., Any], **settings: Any) -> Callable[..., Told]:
    """Return a function that trains scikit-survival and predicts."""

    def run(train: Arrays, test: Arrays, times: Any, seed: int) -> Told:
        y = np.array(
            list(zip(train["event"] == 1, train["time"], strict=True)),
            dtype=[("event", bool), ("time", float)],
        )
        model = make(random_state=seed, **settings).fit(inputs(train), y)
        x = inputs(test)
        steps = model.predict_survival_function(x, return_array=True)
        at = np.searchsorted(model.unique_times_, times, "right")
        return Told(model.predict(x), np.hstack([np.ones((len(x), 1)), steps])[:, at])

    return run


def sides(trees: int) -> dict[str, Callable[..., Told]]:
    """Return all models by name."""
    tree = {"max_depth": 4, "min_weight_leaf": 20}
    # Six distinct rows of a bootstrap sample weigh 9.5: treekit counts a row drawn twice as two.
    forest = {"ensemble": "forest", "trees": trees, "min_weight_leaf": 9.5, "max_features": "sqrt"}
    exact, scikit = {"criterion": "log_rank", "criterion__bins": 0}, "scikit-survival"
    return {
        f"tree, {scikit}": by_scikit(SurvivalTree, max_depth=4, min_samples_leaf=20),
        "tree, log_rank, each event time": by_treekit(**exact, **tree),
        "tree, log_rank, 30 bins": by_treekit(criterion="log_rank", **tree),
        "tree, log_rank, pruned": by_treekit(
            criterion="log_rank", pruner="cost_complexity", min_weight_leaf=20
        ),
        "tree, relative_risk": by_treekit(criterion="relative_risk", **tree),
        f"forest, {scikit}": by_scikit(
            RandomSurvivalForest, n_estimators=trees, min_samples_leaf=6, max_features="sqrt"
        ),
        "forest, log_rank, each event time": by_treekit(**exact, **forest),
        "forest, log_rank, 30 bins": by_treekit(criterion="log_rank", **forest),
        "forest, relative_risk": by_treekit(criterion="relative_risk", **forest),
    }


def measure(table: Arrays, repeats: int, trees: int, folds_run: int = 5) -> None:
    """Print concordance, integrated Brier score and time of each model."""
    times = np.quantile(table["time"][table["event"] == 1], np.linspace(0.05, 0.9, 30))
    models = sides(trees)
    if len(np.unique(table["time"])) > 1000:
        models = {name: run for name, run in models.items() if "each event time" not in name}
    scores: dict[str, list[tuple[float, float, float]]] = {name: [] for name in models}
    for repeat in range(repeats):
        folds = StratifiedKFold(5, shuffle=True, random_state=repeat)
        for rest, part in islice(folds.split(table["time"], table["event"]), folds_run):
            train, test = ({k: v[rows] for k, v in table.items()} for rows in (rest, part))
            outcome = test["time"], test["event"]
            known = train["time"], train["event"]
            for name, run in models.items():
                if not scores[name]:
                    run(train, test, times, repeat)  # compiles
                begin = time.process_time()
                predicted = run(train, test, times, repeat)
                spent = time.process_time() - begin
                score = integrated_brier_score(predicted.survival, times, *outcome, censoring=known)
                scores[name].append((concordance(*outcome, predicted.risk), score, spent))
    _show(scores)


def _show(scores: dict[str, list[tuple[float, float, float]]]) -> None:
    print("| model | concordance | difference | Brier | difference | CPU ms | ratio |")
    print("|---|---|---|---|---|---|---|")
    for name, found in scores.items():
        own = np.array(found)
        kind = name.partition(",")[0]
        other = np.array(scores[f"{kind}, scikit-survival"])
        # Folds of one repetition share training rows, so the spread is over the means of
        # repetitions.
        apart = (own - other).reshape(-1, min(5, len(own)), 3).mean(axis=1)
        spread = apart.std(axis=0, ddof=1) if len(apart) > 1 else np.full(3, np.nan)
        ratio = np.median(own[:, 2] / other[:, 2])
        print(
            f"| {name} | {own[:, 0].mean():.4f} | {apart[:, 0].mean():+.4f} ±{spread[0]:.4f} "
            f"| {own[:, 1].mean():.4f} | {apart[:, 1].mean():+.4f} ±{spread[1]:.4f} "
            f"| {1000 * np.median(own[:, 2]):.1f} | {ratio:.2f} |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--rows", type=int, default=0)
    given = parser.parse_args()
    if given.rows:
        measure(simulated(given.rows), 1, given.trees, folds_run=1)
    else:
        measure(gbsg(), given.repeats, given.trees)
