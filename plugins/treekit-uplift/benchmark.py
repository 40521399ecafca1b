"""Compare trees and forests of effects with causalml on one experiment, in one process.

    pip install treekit-uplift causalml
    python benchmark.py                        # simulated: new rows for each seed
    python benchmark.py --train sim_pte_train.csv --test sim_pte_test.csv

Both sides get the same rows and limits, in turn; causalml is skipped if it is not
installed. CPU seconds are over all threads; kernels are compiled before timing.
"""

import argparse
import csv
import statistics
import time

import numpy as np
from treekit_uplift import auuc_score, qini_score, simulate

import treekit

TREE = {"max_depth": 5, "min_weight_leaf": 50.0}
FOREST = {"ensemble": "forest", "min_weight_leaf": 20.0, "max_depth": 10}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--train", help="CSV with columns y, treat and X1, X2, ...")
    parser.add_argument("--test")
    parser.add_argument("--rows", type=int, default=2000, help="rows of a simulated table")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--divergence", default="euclidean", choices=tuple(CAUSALML))
    options = parser.parse_args(arguments)
    rows = {}
    for seed in range(-1, options.seeds):  # the first round compiles
        train, test = _tables(options, max(seed, 0))
        for name, fit in _sides(options).items():
            began = time.process_time()
            effect = fit(train, test, max(seed, 0))
            if seed >= 0:
                spent = time.process_time() - began
                arms = test["treat"] == "treated", test["y"]
                scores = qini_score(effect, *arms), auuc_score(effect, *arms)
                rows.setdefault(name, []).append((*scores, spent))
    print(f"{'':22}{'Qini':>8}{'sd':>8}{'AUUC':>8}{'CPU s':>8}")
    for name, all_seeds in rows.items():
        qini, auuc, spent = zip(*all_seeds, strict=True)
        sd = statistics.stdev(qini) if len(qini) > 1 else 0.0
        mean = f"{statistics.mean(qini):8.4f}{sd:8.4f}{statistics.mean(auuc):8.4f}"
        print(f"{name:22}{mean}{statistics.median(spent):8.2f}")


def _sides(options):
    """Return a dictionary from name to ``fit(train, test, seed) -> (rows,) effects``."""
    forest = {**FOREST, "trees": options.trees, "n_jobs": 1}
    sides = {
        "treekit tree": _treekit(options.divergence, TREE),
        "treekit forest": _treekit(options.divergence, forest),
    }
    try:
        from causalml.inference.tree import UpliftRandomForestClassifier, UpliftTreeClassifier
    except ImportError:
        return sides
    kind = CAUSALML[options.divergence]
    sides["causalml tree"] = _causalml(
        lambda seed: UpliftTreeClassifier(
            control_name="control", evaluationFunction=kind, random_state=seed,
            max_depth=TREE["max_depth"], min_samples_leaf=int(TREE["min_weight_leaf"]),
        )
    )  # fmt: skip
    sides["causalml forest"] = _causalml(
        lambda seed: UpliftRandomForestClassifier(
            control_name="control", evaluationFunction=kind, random_state=seed,
            n_estimators=options.trees, max_depth=FOREST["max_depth"], n_jobs=1,
            min_samples_leaf=int(FOREST["min_weight_leaf"]),
        )
    )  # fmt: skip
    return sides


CAUSALML = {"kl": "KL", "euclidean": "ED", "chi_squared": "Chi"}


def _treekit(divergence, limits):
    chosen = {"criterion.treatment": "treat", "criterion.divergence": divergence, **limits}

    def fit(train, test, seed):
        model = treekit.train(train, "y", criterion="uplift", seed=seed, **chosen)
        return model.predict(test)[:, 0]

    return fit


def _causalml(make):
    def fit(train, test, seed):
        names = [name for name in train if name not in ("treat", "y")]
        x, other = (np.column_stack([table[name] for name in names]) for table in (train, test))
        model = make(seed)
        model.fit(X=x, treatment=np.asarray(train["treat"]), y=np.asarray(train["y"]))
        values = np.asarray(model.predict(other))
        # A tree predicts the rate of each arm, control first; a forest the effect.
        return values[:, 1] - values[:, 0] if values.shape[1] == 2 else values[:, 0]

    return fit


def _tables(options, seed):
    if options.train:
        return _read(options.train), _read(options.test)
    return simulate(options.rows, seed=seed)[0], simulate(options.rows, seed=1000 + seed)[0]


def _read(path):
    """Read a table of sim_pte, whose ``y`` and ``treat`` are 1 or 2; 2 is yes or treated."""
    with open(path, encoding="utf-8", newline="") as stream:  # noqa: PTH123 - a path as given
        rows = list(csv.DictReader(stream))
    table = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    table["treat"] = np.where(table["treat"] == 2, "treated", "control")
    table["y"] = (table["y"] == 2).astype(int)
    return table


if __name__ == "__main__":
    main()
