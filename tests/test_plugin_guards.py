"""Whatever a plugin's function answers in the middle of growing, it is told by name.

One criterion and one splitter hold all the faults: which one they show is said by the
weight of the node, so that each is compiled once.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import treekit
from treekit import (
    Criterion,
    CriterionFunctions,
    PluginError,
    Pruner,
    PrunerFunctions,
    Ranks,
    Splitter,
    SplitterFunctions,
    TreekitWarning,
)
from treekit.kernels.records import Node
from treekit.splitting import (
    Split,
    branch_stats,
    heavy_enough,
    level_split,
    scored,
    threshold_split,
)

NAN, INFINITE, RAISES, READS = range(1, 5)
FAULTS = {
    NAN: "returned NaN|NaN or infinite",
    INFINITE: "returned an infinite number|NaN or infinite",
    RAISES: "raised ValueError: lost",
    READS: "raised IndexError: ind",
}
IMPURITY, SCORE, ORDER, PRIORITY, PENALTY = range(0, 25, 5)
SMALL = 45
"""Weight of the nodes that show a fault: growth is in its middle when it comes to them."""


def asks_for(weight, function):
    """The fault that the part of a weight behind the point asks of a function."""
    code = round((weight - math.floor(weight)) * 64)
    return code - function if weight < SMALL and function < code < function + 5 else 0


def shows(fault, numbers):
    if fault == NAN:
        return math.nan
    if fault == INFINITE:
        return math.inf
    if fault == RAISES:
        raise ValueError("lost")
    if fault == READS:
        return numbers[numbers.shape[0]]
    return 0.0


def gini(stats):
    total = stats.sum()
    return 1.0 - (stats * stats).sum() / (total * total)


def impurity(stats):
    return gini(stats) + shows(asks_for(stats.sum(), IMPURITY), stats)


def score(parent, children):
    total, left = parent.sum(), 0.0
    for b in range(children.shape[0]):
        if children[b].sum() > 0.0:
            left += children[b].sum() * gini(children[b])
    return gini(parent) - left / total + shows(asks_for(total, SCORE), parent)


def order(stats):
    return stats[1] / stats.sum() + shows(asks_for(stats.sum(), ORDER), stats)


def priority(stats):
    return stats.sum() + shows(asks_for(stats.sum(), PRIORITY), stats)


def penalty(candidates, weight):
    fault = asks_for(weight, PENALTY)
    if fault == RAISES:
        raise ValueError("lost")
    return math.nan if fault == NAN else math.inf if fault == INFINITE else 0.0


def choose(gains, scores, levels):
    if gains.shape[0] == 4:
        return 99
    if gains.shape[0] == 5:
        raise ValueError("lost")
    if gains.shape[0] == 6:
        return round(scores[gains.shape[0]])
    best = -1
    for f in range(gains.shape[0]):
        if gains.shape[0] == 7 and gains[f] != gains[f]:
            return f
        if gains[f] == gains[f] and (best < 0 or scores[f] > scores[best]):
            best = f
    return best


class Called:
    """A function that numba cannot compile."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        return self.function(*arguments)


PARTS = {
    function.__name__: function for function in (impurity, score, order, priority, penalty, choose)
}
AS_PYTHON = {name: Called(function) for name, function in PARTS.items()}
RECORDS = {
    "compiled": Criterion("faulty", "classification", lambda: CriterionFunctions(**PARTS)),
    "as Python": Criterion("faulty", "classification", lambda: CriterionFunctions(**AS_PYTHON)),
}
WAYS = {
    "a tree": {"max_leaves": 30},
    "a forest of two threads": {
        "max_leaves": 30, "ensemble": "forest", "trees": 6, "n_jobs": 2, "bootstrap": False,
        "max_features": "all",
    },
}  # fmt: skip


def table(fault=0, columns=2, level=None):
    """60 rows, of which the first asks for a fault; levels, one of which has so many rows."""
    rows = 60
    rng = np.random.default_rng(1)
    data = {f"x{i}": rng.random(rows) for i in range(columns - (level is not None))}
    if level is not None:
        data["c"] = ["a"] * level + ["b"] * 20 + ["c"] * (rows - level - 20)
    data["y"] = rng.choice(["p", "q"], rows)
    data["w"] = np.ones(rows)
    data["w"][0] += fault / 64
    return data


def train(record, data, way, **settings):
    return treekit.train(
        data, "y", weights="w", criterion=record, seed=0, **{**WAYS[way], **settings}
    )


@pytest.fixture(params=RECORDS)
def record(request):
    return RECORDS[request.param]


pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not compile and runs as Python.* not a function:treekit.TreekitWarning"
)


@pytest.mark.matrix
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", ["impurity", "score", "priority"])
def test_a_number_that_is_none_is_told_with_function_and_statistics(record, function, way):
    base = {"impurity": IMPURITY, "score": SCORE, "priority": PRIORITY}[function]
    for fault, said in FAULTS.items():
        with pytest.raises(PluginError, match=f"criterion 'faulty' .*({said})") as told:
            train(record, table(base + fault), way)
        assert fault > INFINITE or f"from {function}; the statistics" in str(told.value)
        assert "no model was made" in str(told.value)


@pytest.mark.matrix
@pytest.mark.parametrize("way", WAYS)
def test_an_order_of_levels_that_is_none_is_told(record, way):
    for fault, said in FAULTS.items():
        data = table(ORDER + fault, level=14)
        with pytest.raises(PluginError, match=f"criterion 'faulty' .*({said})"):
            train(record, data, way)


@pytest.mark.matrix
@pytest.mark.parametrize("way", WAYS)
def test_a_penalty_that_is_none_is_told(record, way):
    for fault in (NAN, INFINITE, RAISES):
        with pytest.raises(PluginError, match=f"criterion 'faulty' .*({FAULTS[fault]})"):
            train(record, table(PENALTY + fault), way)


CHOICES = {
    4: "chose a column that does not exist, or has no split",
    5: "raised ValueError: lost",
    6: "raised IndexError",
    7: "chose a column that does not exist, or has no split",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_choice_that_is_none_is_told(record, way):
    for columns, said in CHOICES.items():
        data = table(0, columns)
        data["x1"] = np.ones(60)  # constant: it has no split
        with pytest.raises(PluginError, match=f"criterion 'faulty' .*{said}"):
            train(record, data, way)


@pytest.mark.matrix
def test_a_failure_leaves_the_next_training_as_it_would_have_been(record):
    before = train(record, table(), "a forest of two threads")
    assert before.n_leaves > 60
    for fault in (IMPURITY + NAN, SCORE + READS, PRIORITY + RAISES):
        with pytest.raises(PluginError):
            train(record, table(fault), "a forest of two threads")
    after = train(record, table(), "a forest of two threads")
    for one, other in zip(before.trees, after.trees, strict=True):
        np.testing.assert_array_equal(one.threshold, other.threshold)
        np.testing.assert_array_equal(one.value, other.value)


@pytest.mark.matrix
def test_the_same_faults_are_told_of_several_targets():
    only = Criterion("faulty", "classification", lambda: CriterionFunctions(impurity=impurity))
    data = table(IMPURITY + NAN)
    data["z"] = data["y"][::-1]
    with pytest.raises(PluginError, match="returned NaN from impurity; the stat") as told:
        treekit.train(data, ["y", "z"], weights="w", criterion=only)
    given = str(told.value).partition("given were [")[2].partition("]")[0]
    assert len(given.split(",")) == 2  # those of one target, as the function saw them


TYPES = {
    "None": lambda stats: None,
    "a complex number": lambda stats: stats[0] + 1j,
    "a text": lambda stats: "0.5",
    "an array": lambda stats: stats * 2.0,
}
SAID = {"None": "None", "a complex number": "a complex128", "a text": "a text|a str"}


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("way", "kind"),
    [
        *(("compiled", kind) for kind in TYPES),
        ("as Python", "a text"),
        *(
            pytest.param("as Python", kind, marks=pytest.mark.matrix)
            for kind in TYPES
            if kind != "a text"
        ),
    ],
)
def test_an_answer_of_another_type_is_told(kind, way):
    function = TYPES[kind] if way == "compiled" else Called(TYPES[kind])
    bad = Criterion("faulty", "classification", lambda: CriterionFunctions(impurity=function))
    said = {**SAID, "an array": "an array|a ndarray"}[kind]
    if way == "as Python":
        said = said.replace("complex128", "complex")
    with pytest.raises(PluginError, match=rf"'faulty' returne?d?s? ({said}).* impurity"):
        treekit.train(table(), "y", ignore=["w"], criterion=bad)


def test_a_choice_that_is_no_whole_number_is_told():
    for wrong in (lambda g, s, levels: 0.5, Called(lambda g, s, levels: 0.0)):
        parts = {**PARTS, "choose": wrong}
        bad = Criterion("faulty", "classification", lambda p=parts: CriterionFunctions(**p))
        with pytest.raises(PluginError, match=r"'faulty' return.* choose.*whole|whole.* choose"):
            treekit.train(table(), "y", ignore=["w"], criterion=bad)


@pytest.mark.filterwarnings("ignore:.*returns None now and then:treekit.TreekitWarning")
def test_an_answer_that_is_none_now_and_then_runs_as_python_and_is_told():
    def forgetful(stats):
        return gini(stats) if stats.sum() > 50 else None

    bad = Criterion("faulty", "classification", lambda: CriterionFunctions(impurity=forgetful))
    with pytest.raises(PluginError, match="'faulty' returned None, not a number, from impurity"):
        treekit.train(table(), "y", ignore=["w"], criterion=bad)


@pytest.mark.matrix
def test_a_plugin_that_exits_stops_the_training_and_not_the_process():
    def leaves(stats):
        raise SystemExit(3)

    bad = Criterion("faulty", "classification", lambda: CriterionFunctions(impurity=Called(leaves)))
    with pytest.raises(PluginError, match="'faulty' raised SystemExit: 3 in impurity"):
        treekit.train(table(), "y", ignore=["w"], criterion=bad)
    exits = Criterion("faulty", "classification", lambda: leaves(None))
    with pytest.raises(PluginError, match=r"'faulty' failed in make with \{\}: SystemExit: 3"):
        treekit.train(table(), "y", ignore=["w"], criterion=exits)


NUMBERS = {"x": np.arange(48.0), "c": list("abcd") * 12, "y": np.random.default_rng(1).random(48)}


def between(parent, children):
    gain = -parent[1] * parent[1] / parent[0]
    for b in range(children.shape[0]):
        gain += children[b, 1] * children[b, 1] / children[b, 0]
    return gain / parent[0]


def numbers(**functions):
    return Criterion("faulty", "regression", lambda: CriterionFunctions(score=between, **functions))


ANSWERS = {
    "NaN": (lambda *stats: math.nan, "returned NaN from {}"),
    "a text": (lambda *stats: "1.5", "returned a str, not a number, from {}"),
    "nothing": (lambda *stats: None, "returned None, not a number, from {}"),
    "a refusal": (lambda *stats: 1 // 0, "raised ZeroDivisionError: .* in {}"),
    "a cell too far": (lambda *stats: stats[0][2], "raised IndexError: .* in {}"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_leaf_value_or_a_loss_that_is_none_is_told(case):
    function, said = ANSWERS[case]
    with pytest.raises(PluginError, match=f"'faulty' {said.format('leaf_value')}; the statistics"):
        treekit.train(NUMBERS, "y", criterion=numbers(leaf_value=function))
    with pytest.raises(PluginError, match=f"'faulty' {said.format('loss')}; the statistics"):
        treekit.train(
            NUMBERS,
            "y",
            criterion=numbers(loss=function),
            pruner="reduced_error",
        )


def test_a_loss_may_be_infinite():
    model = treekit.train(
        NUMBERS,
        "y",
        criterion=numbers(loss=lambda stats, judged: math.inf),
        pruner="reduced_error",
    )
    assert model.n_nodes >= 1


def find(node, criterion, rng):
    """Which fault is shown is told by the weight of the root."""
    which = round(node.weight) - 200 if node.depth == 0 else 0
    if which == 1:
        return scored(threshold_split(0, 3), math.nan)
    if which == 2:
        return scored(threshold_split(0, 3), math.inf)
    if which == 3:
        raise ValueError("lost")
    if which == 4:
        return scored(threshold_split(0, np.int64(node.table.codes[9, 0])), 1.0)
    if which == 5:  # a branch of one row
        return scored(threshold_split(0, 0), 1.0)
    if which == 6:  # more branches than levels
        return Split(3, 1, 0, math.nan, -1, 2**40, np.array([0, 1, 2], np.int32), 1.0)
    if which == 7:  # levels that a threshold does not have
        return Split(1, 0, 99, math.nan, -1, 2, np.zeros(100_000, np.int32), 1.0)
    if which == 8:  # missing rows to no branch
        return Split(1, 0, 99, math.nan, 2, 2, np.empty(0, np.int32), 1.0)
    if which == 9:
        return scored(level_split(1, np.array([0, 0, 0], np.int32), 2), 1.0)
    split = threshold_split(0, 9)
    children = branch_stats(node, split)
    if node.weight > 190 and heavy_enough(node, children):
        return scored(split, criterion.score(node.stats, children))
    return None


SPLITS = {
    1: "returned a split whose score is NaN or infinite",
    2: "returned a split whose score is NaN or infinite",
    3: "raised ValueError: lost",
    4: "raised IndexError",
    5: r"into branches of the weights \[1.0, 204.0\], and min_weight_leaf is 5",
    6: "returned a split with an empty branch or an impossible column",
    8: "returned a split with an empty branch or an impossible column",
    9: "returned a split with an empty branch or an impossible column",
}


def columns(rows):
    rng = np.random.default_rng(0)
    data = {"x": np.arange(rows) / 2, "c": rng.choice(list("abc"), rows)}
    return data | {"y": rng.choice(["p", "q"], rows)}


class AsPython:
    def __call__(self, node, criterion, rng):
        return find(node, criterion, rng)


AS_WRITTEN = AsPython()  # one object: another would be compiled around again
SPLITTERS = {
    "compiled": Splitter("faulty", lambda: SplitterFunctions(find)),
    "as Python": Splitter("faulty", lambda: SplitterFunctions(AS_WRITTEN)),
}


@pytest.mark.matrix
@pytest.mark.parametrize("ensemble", ["tree", "forest"])
@pytest.mark.parametrize("path", SPLITTERS)
def test_a_split_that_is_none_is_told(path, ensemble):
    several = {"ensemble": "forest", "trees": 4, "n_jobs": 2, "bootstrap": False}
    for which, said in SPLITS.items():
        with pytest.raises(PluginError, match=f"splitter 'faulty' .*{said}"):
            treekit.train(
                columns(200 + which),
                "y",
                splitter=SPLITTERS[path],
                min_weight_leaf=5,
                **(several if ensemble == "forest" else {}),
            )


@pytest.mark.matrix
@pytest.mark.parametrize("path", SPLITTERS)
def test_levels_that_a_threshold_does_not_have_are_not_written_anywhere(path):
    model = treekit.train(columns(207), "y", splitter=SPLITTERS[path], max_depth=1)
    assert model.trees[0].threshold[0] == 49.75
    assert len(model.trees[0].level_branch) == 0


@pytest.mark.matrix
def test_a_find_called_as_python_may_keep_what_it_is_given_and_not_write_to_it():
    kept = []

    def keeps(node, criterion, rng):
        kept.append(node)
        assert not any(array.flags.writeable for array in (*node.table, *node.rows, node.stats))
        return find(node, criterion, rng)

    kind = Splitter("mine", lambda: SplitterFunctions(Called(keeps)))
    compiled = treekit.train(columns(200), "y", splitter=SPLITTERS["compiled"], max_depth=3)
    model = treekit.train(columns(200), "y", splitter=kind, max_depth=3)
    assert model.n_nodes == compiled.n_nodes == 3
    np.testing.assert_array_equal(model.trees[0].gain, compiled.trees[0].gain)
    assert isinstance(kept[0], Node)
    assert kept[0].rows.ids.tolist() == list(range(200))  # not permuted since


WRITES = {
    "statistics": lambda node: node.stats,
    "rows": lambda node: node.rows.ids,
    "codes": lambda node: node.table.codes[0],
}


@pytest.mark.matrix
@pytest.mark.parametrize(
    "what",
    ["statistics", *(pytest.param(what, marks=pytest.mark.matrix) for what in ("rows", "codes"))],
)
def test_a_find_that_writes_to_its_node_is_stopped(what):
    array = WRITES[what]

    def writes(node, criterion, rng):
        array(node)[0] = 0

    kind = Splitter("faulty", lambda: SplitterFunctions(writes))
    with (
        pytest.warns(TreekitWarning, match="splitter 'faulty' does not compile"),
        pytest.raises(
            PluginError, match=r"splitter 'faulty' raised ValueError: .*read-only in find"
        ),
    ):
        treekit.train(columns(60), "y", splitter=kind)


@pytest.mark.matrix
def test_a_find_that_returns_no_split_is_told():
    kind = Splitter("faulty", lambda: SplitterFunctions(Called(lambda n, c, r: (0, 1.5))))
    with pytest.raises(PluginError, match="TypeError: find returned a tuple, not a Split or None"):
        treekit.train(columns(60), "y", splitter=kind)


BEFORE = {
    "nothing": (
        lambda one, two, three, four: None,
        "return.* None.* before|returned None, not true or false",
    ),
    "a number": (
        lambda one, two, three, four: 0.5,
        "return.* (a float|a float64).* before|before.* float",
    ),
    "a refusal": (Called(lambda *four: 1 // 0), "raised ZeroDivisionError.* in before"),
}


@pytest.mark.parametrize("case", BEFORE)
def test_a_say_before_a_split_that_is_none_is_told(case):
    function, said = BEFORE[case]
    bad = Pruner("faulty", lambda: PrunerFunctions(before=function))
    with pytest.raises(PluginError, match=f"pruner 'faulty' .*({said})"):
        treekit.train(columns(60), "y", pruner=bad)


@pytest.mark.matrix
def test_faults_of_a_criterion_of_ranks_are_told():
    def apart(stats):
        return math.nan if round(stats[0]) == 12 else stats[2] + stats[3]

    ranks = Criterion(
        "faulty", "regression", lambda: CriterionFunctions(impurity=apart, statistics=Ranks(0.5))
    )
    with pytest.raises(PluginError, match="'faulty' returned NaN from impurity; the statistics"):
        treekit.train({"x": NUMBERS["x"], "y": NUMBERS["y"]}, "y", criterion=ranks)
