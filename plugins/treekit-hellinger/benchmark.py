"""Compare the ranking of a rare class with other tools: mammography, 5 x 2 splits.

Needs the extra `benchmark`; prints the table of the README. Leaves of single trees
have Laplace's correction, (minority + 1) / (weight + 2), as in Cieslak and Chawla:
the shares of pure leaves give no ranking.
"""

import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.tree import DecisionTreeClassifier

import treekit
from treekit.model.scoring import leaf_indices

TABLE = Path(__file__).with_name("data") / "mammography.csv.gz"
FOREST = {"ensemble": "forest", "trees": 60, "seed": 0}
SHAPES = {
    "a tree, full": {},
    "a tree, depth 4": {"max_depth": 4},
    "a tree, depth 6": {"max_depth": 6},
    "60 bagged trees": {**FOREST, "max_features": "all"},
    "random forest, leaves of 5": {**FOREST, "max_features": "sqrt", "min_weight_leaf": 5},
}


def read():
    """Return the features (rows, 6) and a mask of the minority rows."""
    table = pd.read_csv(TABLE)
    return table.drop(columns="class"), (table["class"] == 1).to_numpy()


def halves(x, y, repeats=5):
    """Return the training and test rows of 2 folds, repeated 5 times."""
    return list(RepeatedStratifiedKFold(n_splits=2, n_repeats=repeats, random_state=0).split(x, y))


def laplace(at, y, new):
    """Return the Laplace-corrected minority share in the leaf of each new row."""
    rare = np.bincount(at, y, minlength=new.max() + 1)
    return ((rare + 1) / (np.bincount(at, minlength=new.max() + 1) + 2))[new]


def ours(criterion, shape):
    """Return a function that fits treekit on the rows `fit` and scores the rows `test`."""

    def score(x, y, fit, test):
        table = x.iloc[fit].assign(y=y[fit])
        model = treekit.train(table, "y", criterion=criterion, dtype="float64", **shape)
        if "ensemble" in shape:
            return model.predict_proba(x.iloc[test])[:, 1]
        cells = x.to_numpy(np.float64)
        at, new = (leaf_indices(model, cells[rows])[:, 0] for rows in (fit, test))
        return laplace(at, y[fit], new)

    return score


def of_tree(tree):
    def score(x, y, fit, test):
        tree.fit(x.iloc[fit], y[fit])
        return laplace(tree.apply(x.iloc[fit]), y[fit], tree.apply(x.iloc[test]))

    return score


def of_forest(forest):
    def score(x, y, fit, test):
        return forest.fit(x.iloc[fit], y[fit]).predict_proba(x.iloc[test])[:, 1]

    return score


def measured(score, x, y, folds):
    """Return ROC AUC and average precision (folds, 2), and seconds per fold."""
    start = time.perf_counter()
    scored = [(y[test], score(x, y, fit, test)) for fit, test in folds]
    seconds = (time.perf_counter() - start) / len(folds)
    ranks = [(roc_auc_score(t, s), average_precision_score(t, s)) for t, s in scored]
    return np.array(ranks), seconds


def line(shape, what, ranks, seconds, base=None):
    cells = [f"{m:.3f} ± {s:.3f}" for m, s in zip(ranks.mean(0), ranks.std(0, ddof=1), strict=True)]
    wins = "" if base is None else ", ".join(map(str, (ranks > base).sum(0)))
    print(f"| {shape} | {what} | {' | '.join(cells)} | {wins} | {seconds:.2f} |", flush=True)


def main():
    x, y = read()
    folds = halves(x, y)
    print("| model | tool | ROC AUC | average precision | better than gini in | seconds |")
    print("|---|---|---:|---:|---:|---:|")
    for name, shape in SHAPES.items():
        base = None
        for criterion in ("gini", "entropy", "hellinger"):
            ours(criterion, shape)(x, y, *folds[0])  # compiles
            ranks, seconds = measured(ours(criterion, shape), x, y, folds)
            line(name, f"treekit {criterion}", ranks, seconds, base)
            base = ranks if base is None else base
    others = {
        ("a tree, full", "scikit-learn gini, balanced"): of_tree(
            DecisionTreeClassifier(class_weight="balanced", random_state=0)
        ),
        ("a tree, depth 4", "scikit-learn gini, balanced"): of_tree(
            DecisionTreeClassifier(class_weight="balanced", max_depth=4, random_state=0)
        ),
        ("random forest, leaves of 5", "scikit-learn gini, balanced"): of_forest(
            RandomForestClassifier(
                60, min_samples_leaf=5, class_weight="balanced_subsample", random_state=0
            )
        ),
        ("random forest", "imbalanced-learn BalancedRandomForest"): balanced_forest(),
    }
    for (name, what), score in others.items():
        line(name, what, *measured(score, x, y, folds))


def balanced_forest():
    from imblearn.ensemble import BalancedRandomForestClassifier

    warnings.simplefilter("ignore", FutureWarning)
    return of_forest(BalancedRandomForestClassifier(60, random_state=0))


if __name__ == "__main__":
    main()
