"""A fully grown forest of 100 trees against scikit-learn's, and Hellinger against gini.

    python -m benchmarks.forest                      # the figures of README.md
    python -m benchmarks.forest --rows 2000 --trees 5 --seeds 1   # a quick look

Both sides run on the same data in one process, in turn, over several seeds.
CPU seconds are over all threads.  Beside each time stand leaves and accuracy,
so that nobody is faster by being worse.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

import treekit


@dataclass(frozen=True)
class Run:
    """One fit: CPU seconds, leaves of all trees, accuracy on held-out rows."""

    seconds: float
    leaves: float
    accuracy: float


def timed(fit: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    model = fit()
    return model, time.process_time() - start


def scikit_learn(data: tuple[Any, ...], trees: int, seed: int) -> Run:
    x, y, new, truth = data
    model, seconds = timed(
        lambda: RandomForestClassifier(trees, random_state=seed, n_jobs=2).fit(x, y)
    )
    leaves = sum(tree.get_n_leaves() for tree in model.estimators_)
    return Run(seconds, leaves, float(model.score(new, truth)))


def with_treekit(criterion: str, splitter: str) -> Callable[..., Run]:
    def run(data: tuple[Any, ...], trees: int, seed: int) -> Run:
        x, y, new, truth = data
        forest = treekit.RandomForestClassifier(
            trees, criterion=criterion, splitter=splitter, random_state=seed, n_jobs=2
        )
        model, seconds = timed(lambda: forest.fit(x, y))
        return Run(seconds, model.model_.n_leaves, float(model.score(new, truth)))

    return run


def sides(plugins: bool) -> dict[str, Callable[..., Run]]:
    both = {
        "scikit-learn": scikit_learn,
        "treekit histogram": with_treekit("gini", "histogram"),
        "treekit exact": with_treekit("gini", "exact"),
    }
    if plugins:
        both["treekit hellinger"] = with_treekit("hellinger", "histogram")
    return both


def main(arguments: list[str] | None = None) -> dict[str, list[Run]]:
    """Run and print the comparison; returns every run by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=28)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-plugins", action="store_true", help="without treekit-hellinger")
    options = parser.parse_args(arguments)
    runs: dict[str, list[Run]] = {}
    for seed in range(options.seeds):
        x, y = make_classification(
            options.rows, options.features, n_informative=options.features // 2, random_state=seed
        )
        x = x.astype(np.float32)
        cut = options.rows * 4 // 5
        data = (x[:cut], y[:cut], x[cut:], y[cut:])
        for name, run in sides(not options.no_plugins).items():
            if seed == 0 and name != "scikit-learn":
                run((x[:500], y[:500], x[:500], y[:500]), 1, 0)  # compile outside the clock
            runs.setdefault(name, []).append(run(data, options.trees, seed))
    print(
        f"{'':18} {'CPU s':>8} {'ratio':>7} {'leaves':>10} {'ratio':>7} {'accuracy':>9} {'diff':>8}"
    )
    base = runs["scikit-learn"]
    for name, own in runs.items():
        pairs = list(zip(own, base, strict=True))
        print(
            f"{name:18} {statistics.median(r.seconds for r in own):8.2f} "
            f"{statistics.median(r.seconds / b.seconds for r, b in pairs):7.3f} "
            f"{statistics.mean(r.leaves for r in own):10.0f} "
            f"{statistics.mean(r.leaves / b.leaves for r, b in pairs):7.3f} "
            f"{statistics.mean(r.accuracy for r in own):9.4f} "
            f"{statistics.mean(r.accuracy - b.accuracy for r, b in pairs):+8.4f}"
        )
    return runs


if __name__ == "__main__":
    main()
