"""Compare treekit-chaid with the package CHAID of PyPI: trees, speed and accuracy.

Needs the extra `benchmark`; prints the tables of the README. The package has neither
Bonferroni multipliers nor a test of the complete split, so both are off where trees
are compared.
"""

import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import RepeatedStratifiedKFold

import treekit
from treekit.model.scoring import leaf_indices

DATA = Path(__file__).with_name("data")
TABLES = {
    "titanic": ("survived", 3),
    "credit-g": ("class", 3),
    "mushroom": ("class", 3),
    "nursery": ("class", 3),
}
SAME = {"splitter.bonferroni": False, "splitter.alpha_split": 1.0, "splitter.alpha_merge": 0.05}
MISSING = "<missing>"


def read(name):
    """Read a table as nominal columns, numbers in quartiles; return it and its target's name."""
    table = pd.read_csv(DATA / f"{name}.csv.gz", keep_default_na=False, na_values=[""])
    target, _ = TABLES[name]
    for column in table.columns.drop(target):
        values = table[column]
        if pd.api.types.is_numeric_dtype(values) and values.nunique() > 8:
            values = pd.qcut(values, 4, duplicates="drop").astype(object)
        texts = values.map(str, na_action="ignore").astype(object)
        table[column] = texts.where(values.notna(), MISSING)
    return table.assign(**{target: table[target].map(str)}), target


def ours(table, target, depth, **settings):
    return treekit.train(
        table, target, splitter="chaid", max_depth=depth, min_gain=-1.0, **settings
    )


def theirs(table, target, depth):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from CHAID import Tree

        kinds = dict.fromkeys(table.columns.drop(target), "nominal")
        return Tree.from_pandas_df(
            table, kinds, target, alpha_merge=0.05, max_depth=depth,
            min_parent_node_size=2, min_child_node_size=0,
        )  # fmt: skip


def timed(function, *arguments, **settings):
    start = time.perf_counter()
    result = function(*arguments, **settings)
    return result, time.perf_counter() - start


def leaves_alike(model, tree, table):
    """Return both trees' numbers of leaves, and the share of rows whose two leaves are equal."""
    codes = [
        [column.levels.index(cell) for cell in table[column.name]]
        for column in model.schema.columns
    ]
    own = leaf_indices(model, np.array(codes, dtype=np.float64).T)[:, 0]
    other = np.asarray(tree.node_predictions())
    pairs = pd.DataFrame({"own": own, "other": other})
    together = pairs.value_counts()
    same = [
        count
        for (a, b), count in together.items()
        if count == (own == a).sum() == (other == b).sum()
    ]
    return len(set(own)), len(set(other)), sum(same) / len(table)


def main():
    print("| table | leaves | CHAID | rows in equal leaves | seconds | CHAID | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, (_, depth) in TABLES.items():
        table, target = read(name)
        ours(table, target, depth, **SAME)  # compiles
        model, seconds = timed(ours, table, target, depth, **SAME)
        tree, peer = timed(theirs, table, target, depth)
        leaves, others, share = leaves_alike(model, tree, table)
        print(f"| {name} | {leaves} | {others} | {share:.1%} | {seconds:.3f} | {peer:.3f} "
              f"| {peer / seconds:.1f} |", flush=True)  # fmt: skip
    table = pd.concat([table] * 20, ignore_index=True)
    seconds, peer = (timed(f, table, target, 3, **s)[1] for f, s in ((ours, SAME), (theirs, {})))
    print(f"| {name}, 20 times | | | | {seconds:.3f} | {peer:.3f} | {peer / seconds:.1f} |")
    print("\n| table | chaid | leaves | cart | leaves | c45 | leaves |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in TABLES:
        target = TABLES[name][0]
        table = pd.read_csv(DATA / f"{name}.csv.gz", keep_default_na=False, na_values=[""])
        cells = [accuracy(table, target, **way) for way in WAYS]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


WAYS = (
    {"splitter": "chaid", "min_weight_leaf": 5},
    {"algorithm": "cart"},
    {"algorithm": "c45"},
)


def accuracy(table, target, **settings):
    """Return accuracy, its spread over ten splits, and mean leaves as cells of a table."""
    folds = RepeatedStratifiedKFold(n_splits=2, n_repeats=5, random_state=0)
    right, leaves = [], []
    for fit, test in folds.split(table, table[target]):
        model = treekit.train(table.iloc[fit], target, seed=0, **settings)
        predicted = model.predict(table.iloc[test].drop(columns=target))
        right.append(np.mean(predicted == table[target].to_numpy()[test]))
        leaves.append(model.n_leaves)
    return f"{np.mean(right):.3f} ± {np.std(right, ddof=1):.3f} | {np.mean(leaves):.0f}"


if __name__ == "__main__":
    main()
