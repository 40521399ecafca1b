"""What a faulty component does in training is said under its own name, and stays its own."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import treekit
from treekit import (
    Criterion,
    CriterionFunctions,
    PluginError,
    Setting,
    Splitter,
    SplitterFunctions,
)
from treekit.splitting import level_split, scored, threshold_split

RNG = np.random.default_rng(0)
DATA = {"x": RNG.random(60), "c": list("abcd") * 15, "y": RNG.integers(0, 2, 60)}
NUMBERS = {"x": np.arange(60.0), "y": RNG.random(60)}


def gini(stats):
    total = stats.sum()
    return 1.0 - (stats * stats).sum() / (total * total)


def between(parent, children):
    mean = parent[1] / parent[0]
    spread = 0.0
    for b in range(children.shape[0]):
        spread += children[b, 0] * (children[b, 1] / children[b, 0] - mean) ** 2
    return spread


def classes(**functions):
    return Criterion("faulty", "classification", lambda: CriterionFunctions(**functions))


def numbers(**functions):
    return Criterion("faulty", "regression", lambda: CriterionFunctions(score=between, **functions))


def nan(stats):
    return np.nan


def nan_score(parent, children):
    return np.nan


def test_a_leaf_value_that_raises_is_named():
    def leaf_value(stats):
        raise KeyError("boom")

    with pytest.raises(PluginError, match="'faulty' raised KeyError: 'boom' in leaf_value"):
        treekit.train(NUMBERS, "y", task="regression", criterion=numbers(leaf_value=leaf_value))


def test_a_leaf_value_that_is_nan_is_named_with_its_statistics():
    with pytest.raises(PluginError, match="'faulty' returned NaN from leaf_value; the stat"):
        treekit.train(NUMBERS, "y", task="regression", criterion=numbers(leaf_value=nan))


def test_a_leaf_value_cannot_write_to_the_statistics():
    def leaf_value(stats):
        stats[0] = 7.0
        return 0.0

    with pytest.raises(PluginError, match="read-only"):
        treekit.train(NUMBERS, "y", task="regression", criterion=numbers(leaf_value=leaf_value))


def test_an_impurity_that_is_nan_stops_the_training_with_the_node_it_was_given():
    criterion = classes(impurity=nan, score=lambda parent, children: 1.0)
    counts = [float((DATA["y"] == k).sum()) for k in (0, 1)]
    with pytest.raises(PluginError, match=r"statistics it was given were") as failure:
        treekit.train(DATA, "y", criterion=criterion)
    assert str(counts) in str(failure.value)


def test_a_multiway_score_that_is_nan_shows_statistics_of_a_branch():
    with pytest.raises(PluginError, match="statistics it was given were") as failure:
        treekit.train(
            {"c": DATA["c"], "y": DATA["y"]},
            "y",
            criterion=classes(score=nan_score),
            nominal_splits="multiway",
        )
    first = [float(((DATA["y"] == k) & (np.array(DATA["c"]) == "a")).sum()) for k in (0, 1)]
    assert str(first) in str(failure.value)


@pytest.mark.matrix
def test_a_choice_of_no_column_is_refused():
    criterion = classes(
        impurity=gini, score=lambda parent, children: 1.0, choose=lambda gains, scores, levels: 99
    )
    with pytest.raises(PluginError, match="'faulty' chose a column that does not exist"):
        treekit.train(DATA, "y", criterion=criterion)


def splitter(find):
    return Splitter("faulty", lambda: SplitterFunctions(find, "exact"))


@pytest.mark.matrix
def test_a_splitter_whose_score_is_nan_is_named_and_not_the_criterion():
    def find(node, criterion, rng):
        return scored(threshold_split(0, 3), np.nan)

    with pytest.raises(PluginError, match="splitter 'faulty' returned a split whose score is NaN"):
        treekit.train(DATA, "y", splitter=splitter(find))


@pytest.mark.matrix
def test_a_plugins_split_with_an_empty_branch_is_refused():
    def find(node, criterion, rng):
        return scored(level_split(1, np.array([0, 1, 1, 0], np.int32), 3), 1.0)

    with pytest.raises(PluginError, match="'faulty' returned a split with an empty branch"):
        treekit.train(DATA, "y", splitter=splitter(find))


@pytest.mark.matrix
@pytest.mark.filterwarnings("ignore::treekit.TreekitWarning")
def test_one_trainings_failure_does_not_stop_another_beside_it():
    def find(node, criterion, rng):
        _ = {"a": [1, "b"]}  # numba cannot: called as Python
        time.sleep(0.002)
        if node.rows.ids[0] >= 0 and len(node.stats) == 2 and node.weight == 40.0:
            raise RuntimeError("bad data")

    record = splitter(find)
    good = {"x": DATA["x"], "y": DATA["y"]}
    bad = {"x": DATA["x"][:40], "y": DATA["y"][:40]}
    seen = {"good": [], "bad": []}

    def work(name, data):
        for _ in range(5):
            try:
                treekit.train(data, "y", splitter=record, seed=0)
                seen[name].append("trained")
            except PluginError:
                seen[name].append("stopped")

    threads = [threading.Thread(target=work, args=x) for x in (("good", good), ("bad", bad))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"good": ["trained"] * 5, "bad": ["stopped"] * 5}


def leaves_at(value):
    def make(k):
        def impurity(stats):
            return gini(stats) * value if k is not True else 0.0

        return CriterionFunctions(impurity=impurity)

    record = Criterion(
        "scaled", "classification", make, settings=(Setting("k", 1, "k", type=(bool, int)),)
    )
    return lambda k: treekit.train(DATA, "y", criterion=record, **{"criterion.k": k}).n_leaves


@pytest.mark.matrix
def test_settings_that_are_equal_but_of_other_types_are_compiled_apart():
    leaves = leaves_at(1.0)
    assert leaves(1) > 1
    assert leaves(True) == 1


@pytest.mark.matrix
def test_a_maker_that_makes_other_functions_is_compiled_again():
    cost = [1.0]

    def make():
        scale = cost[0]

        def impurity(stats):
            return scale * gini(stats)

        return CriterionFunctions(impurity=impurity)

    record = Criterion("scaled", "classification", make)
    assert treekit.train(DATA, "y", criterion=record).n_leaves > 1
    cost[0] = 0.0
    assert treekit.train(DATA, "y", criterion=record).n_leaves == 1


@pytest.mark.system
def test_interrupting_a_training_raises_and_never_crashes_the_process():
    code = """
import os, signal, threading, time
import numpy as np, treekit
rng = np.random.default_rng(0)
data = {f"x{i}": rng.random(300) for i in range(5)} | {"y": rng.integers(0, 2, 300)}
treekit.train(data, "y", ensemble="forest", trees=2)
def interrupt():
    time.sleep(0.4)
    os.kill(os.getpid(), signal.SIGINT)
for _ in range(4):
    try:  # on a busy machine the signal comes before the training does
        threading.Thread(target=interrupt).start()
        treekit.train(data, "y", ensemble="forest", trees=100_000)
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["stopped"] * 4
