"""Splits of a number into several intervals, which the tree stores as thresholds."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

import treekit
from treekit import Pruner, PrunerFunctions, Splitter, SplitterFunctions
from treekit.compiling.splitter import are_valid_intervals
from treekit.errors import PluginError
from treekit.kernels.records import Table
from treekit.model.scoring import leaf_indices
from treekit.splitting import (
    branch_stats,
    code_range,
    heavy_enough,
    interval_split,
    missing_to,
    scored,
    threshold_split,
)


@cache
def quarters(apart, lost, intervals=True):
    """Four intervals of as many distinct values each, down to nodes of less than 16 values."""

    def find(node, criterion, rng):
        low, high, missing = code_range(node, 0)
        if high - low < 15:
            return None
        cuts = np.empty(3, np.int32)
        for j in range(3):
            cuts[j] = low + (j + 1) * ((high - low + 1) // 4) - 1
        split = interval_split(0, cuts, apart and missing > 0)
        if missing > 0 and not apart:
            split = missing_to(split, lost)
        return scored(split, criterion.score(node.stats, branch_stats(node, split)))

    return Splitter("quarters", lambda: SplitterFunctions(find=find, intervals=intervals))


def table(rows=200, every=0):
    """Distinct whole numbers, of class a a third of the lower and two of the upper half."""
    x = np.random.default_rng(1).permutation(rows).astype(float)
    y = np.where((x % 3 == 0) == (x < rows / 2), "a", "b")
    if every:
        x[::every] = np.nan
    return {"x": x, "c": np.resize(["u", "v"], rows), "y": y}


def partition(known, values, missing, apart, lost):
    """Groups of rows that the same tests in plain Python make of a node's rows."""
    seen = [v for v in values if v in known]
    if seen and max(seen) - min(seen) >= 15:
        low, high = min(seen), max(seen)
        step = (high - low + 1) // 4
        bounds = [low - 1, *(low + (j + 1) * step - 1 for j in range(3)), high]
        parts = [[v for v in seen if a < v <= b] for a, b in pairwise(bounds)]
        rows = [0, 0, 0, 0]
        groups = [[([], missing)]] if missing and apart else []
        if not apart:
            rows[lost] = missing
        for part, n in zip(parts, rows, strict=True):
            groups.append(partition(set(part), part, n, apart, lost))
        return [group for found in groups for group in found]
    return [(sorted(known), missing)]


def leaves(model, data):
    """The same groups, as the model makes them."""
    x = data["x"]
    at = leaf_indices(model, np.column_stack([x, np.zeros(len(x))]))[:, 0]
    groups = [x[at == leaf] for leaf in np.unique(at)]
    codes = {v: c for c, v in enumerate(np.unique(x[~np.isnan(x)]))}
    told = [
        (sorted(codes[v] for v in group[~np.isnan(group)]), int(np.isnan(group).sum()))
        for group in groups
    ]
    return sorted(told)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("apart", "lost"), [(True, 2), (False, 2), pytest.param(False, 0, marks=pytest.mark.matrix)]
)
def test_intervals_of_rows_equal_plain_python(apart, lost):
    data = table(every=11)
    model = treekit.train(data, "y", splitter=quarters(apart, lost), min_gain=-1)
    codes = list(range(len(np.unique(data["x"][~np.isnan(data["x"])]))))
    wanted = partition(set(codes), codes, int(np.isnan(data["x"]).sum()), apart, lost)
    assert leaves(model, data) == sorted(wanted)


@pytest.mark.matrix
def test_interval_split_counts_as_one_level_with_its_gain_at_the_top():
    model = treekit.train(table(), "y", splitter=quarters(False, 2), max_depth=1)
    tree = model.trees[0]
    assert (model.n_leaves, model.depth) == (4, 2)
    assert tree.gain[0] > 0
    assert (tree.gain[1:] == 0).all()
    assert sorted(tree.threshold[tree.kind == 1]) == [49.5, 99.5, 149.5]


@pytest.mark.matrix
def test_interval_splits_with_missing_values_are_exported_equally(tmp_path):
    for apart in (False, True):
        model = treekit.train(table(every=11), "y", splitter=quarters(apart, 2), max_depth=2)
        kinds = ("onnx", "c", "python", "rules")
        files = [treekit.export(model, kind, tmp_path / "m")[0] for kind in kinds]
        assert treekit.verify(model, files, random_rows=200).equal
        assert ("\n  if  x is missing\n" in str(model.rules())) == apart
        assert (", or is missing\n" in str(model.rules())) != apart


@pytest.mark.matrix
def test_a_pruner_is_called_once_for_all_intervals():
    asked = []

    def make(most):
        def before(parent, children, held_parent, held_children):
            asked.append((parent.copy(), children.copy(), held_children.copy()))
            return children.shape[0] <= most

        return PrunerFunctions(before=before, holdout=0.25)

    data = table()
    for most in (4, 3):
        pruner = Pruner("most", lambda m=most: make(m))
        with pytest.warns(treekit.errors.TreekitWarning, match="runs as Python"):
            model = treekit.train(
                data, "y", splitter=quarters(False, 2), pruner=pruner, max_depth=2, seed=0
            )
        assert (model.n_leaves > 4) == (most == 4)
        assert most == 4 or model.n_leaves == 1
    for parent, children, held in asked:
        assert children.shape == held.shape == (4, 2)
        assert np.array_equal(children.sum(axis=0), parent)
    assert asked[0][2].sum() == 50


@pytest.mark.matrix
def test_intervals_count_towards_max_leaves_in_best_first_growth():
    data = table()
    splitter = quarters(False, 2)
    for most, wanted in ((3, 1), (4, 4), (6, 4), (7, 7), (12, 10)):
        model = treekit.train(data, "y", splitter=splitter, max_leaves=most, min_gain=-1)
        assert model.n_leaves == wanted


@pytest.mark.matrix
def test_fractional_rows_go_to_every_interval_in_proportion():
    data = {"x": [1.0] * 4 + [2.0] * 2 + [3.0] * 1 + [4.0] * 1 + [np.nan], "y": list("aaaabbaba")}

    def find(node, criterion, rng):
        cuts = np.array([0, 1, 2], np.int32)
        split = interval_split(0, cuts)
        return scored(split, criterion.score(node.stats, branch_stats(node, split)))

    four = Splitter("four", lambda: SplitterFunctions(find=find, intervals=True))
    model = treekit.train(data, "y", splitter=four, max_depth=1, missing="fractional")
    leaf = model.trees[0].leaves
    assert sorted(model.trees[0].weight[leaf]) == pytest.approx([1.125, 1.125, 2.25, 4.5])
    (told,) = model.predict_proba({"x": [np.nan]})
    assert told[0] == pytest.approx((4 + 2 * 0.25 / 2.25 + 1 + 0.125 / 1.125) / 8, abs=1e-6)


@pytest.mark.parametrize(
    ("cuts", "possible"),
    [([], 0), ([3, 3], 0), ([5, 2], 0), ([-1], 0), ([299], 0), ([0, 298], 1), ([0], 1)],
)
def test_cuts_must_ascend_below_the_largest_code(cuts, possible):
    nominal, codes = np.zeros(1, np.uint8), np.array([300], np.uint32)
    none = np.zeros(0)
    of_table = Table(none, codes, nominal, none, none, none)
    for apart in (False, True):
        split = interval_split(0, np.array(cuts, np.int32), apart)
        assert are_valid_intervals(split, of_table, 300) == bool(possible)
    assert not are_valid_intervals(split, of_table, len(cuts) - 1)
    assert not are_valid_intervals(split, of_table._replace(nominal=nominal + 1), 300)
    assert not are_valid_intervals(missing_to(split, 1), of_table, 300)


@pytest.mark.matrix
def test_a_splitter_declares_that_it_makes_intervals():
    with pytest.raises(PluginError, match="do not declare"):
        treekit.train(table(), "y", splitter=quarters(False, 2, intervals=False))


def test_intervals_declaration_must_be_a_bool():
    with pytest.raises(PluginError, match="has intervals 'yes'; it must be True or False"):
        treekit.train(table(), "y", splitter=quarters(False, 2, intervals="yes"))


@pytest.mark.matrix
def test_an_interval_without_rows_stops_the_training():
    def find(node, criterion, rng):
        if node.depth == 0:
            return scored(threshold_split(0, 99), 1.0)
        return scored(interval_split(0, np.array([60, 160], np.int32)), 1.0)

    wrong = Splitter("wrong", lambda: SplitterFunctions(find=find, intervals=True))
    with pytest.raises(PluginError, match="empty branch"):
        treekit.train(table(), "y", splitter=wrong)


@cache
def make_interval_splitter(cuts, apart):
    """The root is split at these codes, if `heavy_enough` agrees."""
    cuts = np.array(cuts, np.int32)

    def find(node, criterion, rng):
        if node.depth > 0:
            return None
        split = interval_split(0, cuts, apart)
        if not apart:
            split = missing_to(split, 0)
        children = branch_stats(node, split)
        if not heavy_enough(node, children):
            return None
        return scored(split, criterion.score(node.stats, children))

    return Splitter("intervals", lambda: SplitterFunctions(find=find, intervals=True))


def light_within(lost=0):
    """30 rows below 3, one of 3, one of 4, 30 above, and some without a value."""
    x = np.array([0, 1, 2] * 10 + [3, 4] + [5, 6, 7] * 10 + [np.nan] * lost)
    return {"x": x, "y": np.where(x > 3, "a", "b")}


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("cuts", "apart", "more"),
    [
        ((2, 3, 4), False, {}),
        ((2, 3, 4), False, {"max_leaves": 9}),
        ((2, 3, 4), True, {}),
        ((3,), True, {}),
    ],
)
def test_intervals_below_the_minimum_weight_are_allowed_beside_two_above(cuts, apart, more):
    data = light_within(int(apart))
    model = treekit.train(
        data, "y", splitter=make_interval_splitter(cuts, apart), min_weight_leaf=5, **more
    )
    assert model.n_leaves == len(cuts) + 1 + apart


@pytest.mark.matrix
def test_split_with_one_interval_above_the_minimum_weight_is_refused():
    def find(node, criterion, rng):
        cuts = np.array([0, 1, 2], np.int32)
        return scored(interval_split(0, cuts), 1.0) if node.depth == 0 else None

    one_heavy_interval = Splitter(
        "one_heavy_interval", lambda: SplitterFunctions(find=find, intervals=True)
    )
    data = light_within()
    with pytest.raises(
        PluginError,
        match=r"branches with weights \[.*check candidate splits with treekit.splitting.heav",
    ):
        treekit.train(data, "y", splitter=one_heavy_interval, min_weight_leaf=11)
    splitter = make_interval_splitter((2, 3, 4), False)
    assert treekit.train(data, "y", splitter=splitter, min_weight_leaf=31).n_leaves == 1


@pytest.mark.matrix
def test_intervals_without_known_rows_are_reported():
    def find(node, criterion, rng):
        if node.depth == 0:
            return scored(threshold_split(0, 2), 1.0)
        split = missing_to(interval_split(0, np.array([2, 3], np.int32)), 0)
        children = branch_stats(node, split)
        if node.depth > 1 or children[1].sum() == 0.0 or children[0].sum() == 0.0:
            return None
        return scored(split, 1.0)

    wrong = Splitter("wrong", lambda: SplitterFunctions(find=find, intervals=True))
    assert treekit.train(light_within(9), "y", splitter=wrong).n_leaves == 4
    told = "every branch has rows whose value is known: missing='fractional'"
    with pytest.raises(PluginError, match=told):
        treekit.train(light_within(9), "y", splitter=wrong, missing="fractional")
    assert "every\n        interval must contain known rows" in interval_split.__doc__


@pytest.mark.matrix
def test_cuts_of_any_integer_type_are_accepted():
    """A cut from an int32 array, beside an interval split, compiles (no warning)."""

    def find(node, criterion, rng):
        low, high, _ = code_range(node, 0)
        if high - low < 3:
            return None
        cuts = np.arange(low, high).astype(np.int32)
        best = threshold_split(0, cuts[len(cuts) // 2])
        if node.depth > 0:
            best = interval_split(0, cuts[:2])
        return scored(best, criterion.score(node.stats, branch_stats(node, best)))

    mixed = Splitter("mixed", lambda: SplitterFunctions(find=find, intervals=True))
    x = np.arange(40.0)
    model = treekit.train({"x": x, "y": (x < 1) | (x > 21)}, "y", splitter=mixed, max_depth=2)
    assert model.trees[0].threshold[:2].tolist() == [19.5, 1.5]
    assert model.n_leaves == 6
