"""Compare accuracy and disparity with fairlearn on random halves of a table, in one process.

    pip install treekit-fairness fairlearn
    python benchmark.py                                  # the sample of adult in the package
    python benchmark.py adult_train.csv adult_test.csv   # all of adult, from files

Depth and leaf sizes are the same on both sides; fairlearn is skipped if it is not
installed. CPU seconds are over all threads; kernels are compiled before timing.
"""

import argparse
import csv
import statistics
import time
import warnings
from pathlib import Path

import numpy as np
from treekit_fairness import adult, demographic_parity_difference, equalised_odds_difference
from treekit_fairness.tables import NUMBERS

import treekit

TARGET, GROUP, GOOD = "income", "sex", ">50K"
LIMITS = {"max_depth": 8, "min_weight_leaf": 50.0, "seed": 0}
BOUNDS = (0.1, 0.05, 0.02)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tables", nargs="*", help="CSV files with the columns of adult")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args(arguments)
    table = _read(options.tables) if options.tables else adult()
    found = {}
    for seed in range(-1, options.seeds):  # the first round compiles
        train, test = _halves(table, max(seed, 0))
        for name, fit in {**_treekits(), **_fairlearns()}.items():
            began = time.process_time()
            said = fit(train, test)
            spent = time.process_time() - began
            if seed >= 0:
                found.setdefault(name, []).append((*_measures(said, test), spent))
    print(f"{'':34}{'accuracy':>16}{'parity':>8}{'odds':>8}{'CPU s':>8}")
    for name, rows in found.items():
        accuracy, parity, odds, spent = zip(*rows, strict=True)
        sd = statistics.stdev(accuracy) if len(rows) > 1 else 0.0
        print(
            f"{name:34}{statistics.mean(accuracy):8.4f} ±{sd:6.4f}{statistics.mean(parity):8.3f}"
            f"{statistics.mean(odds):8.3f}{statistics.median(spent):8.2f}"
        )


def _measures(said, test):
    return (
        float(np.mean(said == test[TARGET])),
        demographic_parity_difference(said, test[GROUP], GOOD),
        equalised_odds_difference(test[TARGET], said, test[GROUP], GOOD),
    )


def _treekits():
    """Return a dictionary from name to ``fit(train, test) -> (rows,) labels``."""
    sides = {"treekit gini, without sex": _train(criterion="gini", ignore=[GROUP])}
    for combine, strengths in (("difference", (0.5, 1.0, 2.0, 3.0, 4.0)), ("ratio", (0.5, 1.0))):
        for strength in strengths:
            sides[f"treekit {combine} {strength:g}"] = _fair(combine, strength)
    for bound in BOUNDS:
        relabelled = {"pruner": "relabel", "pruner.bound": bound}
        sides[f"treekit sum, relabel {bound:g}"] = _fair("sum", 1.0, **relabelled)
    return sides


def _fair(combine, strength, **more):
    chosen = {"protected": GROUP, "combine": combine, "strength": strength}
    own = {f"criterion.{name}": value for name, value in chosen.items()}
    return _train(criterion="fairness", **own, **more)


def _train(**settings):
    return lambda train, test: treekit.train(train, TARGET, **LIMITS, **settings).predict(test)


def _fairlearns():
    try:
        from fairlearn.postprocessing import ThresholdOptimizer
        from fairlearn.reductions import DemographicParity, ExponentiatedGradient
    except ImportError:
        return {}
    from sklearn.tree import DecisionTreeClassifier

    def tree():
        return DecisionTreeClassifier(
            max_depth=LIMITS["max_depth"], min_samples_leaf=int(LIMITS["min_weight_leaf"]),
            random_state=0,
        )  # fmt: skip

    def reduced(bound):
        def fit(train, test):
            x, other = _matrices(train, test)
            model = ExponentiatedGradient(tree(), DemographicParity(difference_bound=bound / 2))
            model.fit(x, train[TARGET] == GOOD, sensitive_features=train[GROUP])
            return _labels(model.predict(other, random_state=0))

        return fit

    def thresholds(train, test):
        x, other = _matrices(train, test)
        model = ThresholdOptimizer(estimator=tree(), predict_method="predict_proba")
        model.fit(x, train[TARGET] == GOOD, sensitive_features=train[GROUP])
        return _labels(model.predict(other, sensitive_features=test[GROUP], random_state=0))

    sides = {f"fairlearn reduction {bound:g}": reduced(bound) for bound in BOUNDS}
    return {**sides, "fairlearn thresholds (needs sex)": thresholds}


def _labels(said):
    return np.where(np.asarray(said, dtype=bool), GOOD, "<=50K")


def _matrices(train, test):
    """Return numeric columns and one-hot categories as matrices, without the group."""
    parts = ([], [])
    for name in train:
        if name in (TARGET, GROUP):
            continue
        if name in NUMBERS:
            for part, table in zip(parts, (train, test), strict=True):
                part.append(table[name][:, None])
        else:
            levels = sorted({level for level in train[name] if level is not None})
            for part, table in zip(parts, (train, test), strict=True):
                part.append((table[name][:, None] == np.array(levels)).astype(float))
    return tuple(np.hstack(part) for part in parts)


def _halves(table, seed):
    rows = len(table[TARGET])
    order = np.random.default_rng(seed).permutation(rows)
    first, second = order[: rows // 2], order[rows // 2 :]
    return tuple({n: cells[part] for n, cells in table.items()} for part in (first, second))


def _read(paths):
    rows = []
    for path in paths:
        with Path(path).open(encoding="utf-8", newline="") as stream:
            rows += csv.DictReader(stream)
    names = [name for name in rows[0] if name != "fnlwgt"]
    return {
        name: np.array(
            [float(row[name]) if name in NUMBERS else row[name] or None for row in rows],
            dtype=float if name in NUMBERS else object,
        )
        for name in names
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
