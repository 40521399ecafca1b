"""Laws of a criterion's functions, tested by calling them as plain Python and compiled."""

from __future__ import annotations

import linecache
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from treekit.components.criteria import make_gini, make_squared_error
from treekit.contracts import Criterion, CriterionFunctions, Layout, Task
from treekit.data.dataset import Dataset
from treekit.discovery import find_custom_task
from treekit.errors import DataError, PluginError, SettingError
from treekit.grow.compile_criterion import FROZEN_CELLS, FROZEN_MATRIX, PENALTY_SIGNATURE
from treekit.grow.compile_plugin import CompileFailure, try_compile
from treekit.registry import settings_of
from treekit.testing.example_tables import (
    Counting,
    Example,
    Row,
    SmallTable,
    format_call,
    format_numbers,
    make_counting,
    make_examples,
    make_small_table,
)
from treekit.testing.laws import (
    ANSWERS,
    BOUNDS,
    FINITE,
    NUMBERS,
    REPEATS,
    WRITES,
    LawTest,
    break_law,
    call_checked,
    check_bounds,
    format_exception,
    format_hint,
    judge_laws,
    open_component,
    skip_law,
)
from treekit.testing.report import Law, Report
from treekit.testing.training import (
    TRAINS,
    Trainer,
    check_same_tree,
    make_criterion_trainer,
    make_trainer,
    train_tree,
)
from treekit.training.tasks import fit_layout, place_rows

# ---------------------------------------------------------------- compilation

ARGUMENT_TYPES: dict[str, tuple[Any, ...]] = {
    "impurity": (FROZEN_CELLS,),
    "score": (FROZEN_CELLS, FROZEN_MATRIX),
    "choose": (FROZEN_CELLS,) * 3,
    "order": (FROZEN_CELLS,),
    "priority": (FROZEN_CELLS,),
    "penalty": PENALTY_SIGNATURE.args,
    "before": (FROZEN_CELLS, FROZEN_MATRIX, FROZEN_CELLS, FROZEN_MATRIX),
}
"""Functions called by kernels, with the numba types of their arguments."""

RETURN_TYPES: dict[str, type] = {"choose": int, "before": bool}
"""Their types of results other than float."""

COMPILED = Law(
    "compiled-equals-plain",
    "A function compiled by numba returns the same value as in Python.",
    "integers beyond 64 bits, globals that change, `//` and `%` of negative or zero numbers",
)


@dataclass(frozen=True)
class Compilation:
    """Compilation of a function: the dispatcher, or None and the reason; and its seconds."""

    dispatcher: Any
    complaint: CompileFailure | None
    seconds: float


@dataclass(frozen=True)
class CompiledFunctions:
    """Compiled functions by name; each is compiled on first use."""

    compilations: dict[str, Compilation] = field(default_factory=dict)

    def compile_function(self, name: str, function: Callable[..., Any]) -> Compilation:
        """Return the compilation of a function of that name."""
        if name not in self.compilations:
            start = time.perf_counter()
            checked = not (getattr(function, "__module__", None) or "").startswith("treekit.")
            returns = RETURN_TYPES.get(name, float)
            jitted, complaint = try_compile(
                function, ARGUMENT_TYPES[name], returns, checked=checked
            )
            self.compilations[name] = Compilation(jitted, complaint, time.perf_counter() - start)
        return self.compilations[name]

    def iter_compilations(self, functions: Any) -> Iterator[tuple[str, Compilation]]:
        """Yield every function of a component that kernels call."""
        for name in ARGUMENT_TYPES:
            function = getattr(functions, name, None)
            if function is not None:
                yield name, self.compile_function(name, function)


def check_compiled_equal(subject: Any) -> None:
    """Compare impurity and score, compiled and plain, on every example."""
    functions, machine = subject.functions, subject.machine
    dispatchers = {
        name: made.dispatcher
        for name, made in machine.iter_compilations(functions)
        if made.dispatcher is not None and name in ("impurity", "score")
    }
    if not dispatchers:
        skip_law("numba compiles none of its functions, which run as Python")
    for _, split in subject.iter_splits():
        for name, arguments, value in subject.iter_measures(split):
            if name in dispatchers:
                check_same_number(name, dispatchers[name], arguments, value, split.noise)


def check_same_number(
    name: str, jitted: Any, arguments: tuple[Any, ...], value: float, noise: float = 1e-9
) -> None:
    """Raise `LawBroken` unless a compiled function returns `value`."""
    try:
        answer = jitted(*map(copy_frozen, arguments))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        break_law(format_call(name, *arguments), f"{value!r}, and compiled {error!r}", "the same")
    if not abs(answer - value) <= noise + 1e-9 * abs(value):
        call = format_call(name, *arguments)
        break_law(call, f"{value!r}, and compiled {answer!r}", "the same")


def copy_frozen(array: Any) -> Any:
    """Return a contiguous read-only copy, as kernels pass it."""
    copy = np.array(array, dtype=np.float64, order="C")
    copy.flags.writeable = False
    return copy


def format_complaint(complaint: CompileFailure) -> str:
    """Format where numba stopped: ``file.py:12: `the line`: the reason``."""
    if not complaint.file:
        return complaint.reason
    line = linecache.getline(complaint.file, complaint.line).strip()
    source = f" `{line}`" if line else ""
    return f"{Path(complaint.file).name}:{complaint.line}:{source} {complaint.reason}"


# ---------------------------------------------------------------- speed
# Seconds of a million evaluations of a criterion, compared with a built-in one.

N_SPLITS = 64
"""Number of two-way splits that are evaluated in turn."""

N_CALLS = 50_000
N_PYTHON_CALLS = 400


def measure_speed(subject: Any) -> tuple[tuple[str, str], ...]:
    """Return for each function that kernels call: compiled or why not, and its cost.

    The statistics have the size of the subject's second counting, or of its
    only one: two-way splits, as a scan of cuts evaluates them.
    """
    of = subject.countings[:2][-1]
    built_in = "squared_error" if of.dense else "gini"
    base = _measure_reference(built_in, of)
    facts = []
    for name, made in subject.machine.iter_compilations(subject.functions):
        how = f"compiled in {made.seconds:.2f} s"
        if made.complaint is not None:
            how = f"runs as Python, slower: {format_complaint(made.complaint)}"
        if name in ("impurity", "score"):
            cost = _measure_cost(getattr(subject.functions, name), made, _make_arguments(name, of))
            how += (
                f"; a million evaluations of {of.size} cells take {cost:.3g} s, "
                f"{cost / base:.3g} times {built_in}'s"
            )
        facts.append((name, how))
    return tuple(facts)


@cache
def _measure_reference(name: str, of: Counting) -> float:
    """Measure seconds of a million scores of a built-in criterion of the same size."""
    score = make_gini().score if name == "gini" else make_squared_error().score
    assert score is not None  # noqa: S101 - both have one
    jitted = nb.njit(error_model="numpy")(score)
    return _measure_compiled_cost(jitted, _make_arguments("score", of))


def _make_arguments(name: str, of: Counting) -> list[tuple[Any, ...]]:
    """Return splits of two mixed branches, or their nodes."""
    two = [
        e for e in make_examples(of) if len(e.branches) == 2 and all(e.branches) and not e.is_pure
    ]
    chosen: list[Example] = (two * N_SPLITS)[:N_SPLITS]
    if name == "impurity":
        return [(copy_frozen(e.parent),) for e in chosen]
    return [(copy_frozen(e.parent), copy_frozen(e.children)) for e in chosen]


def _measure_cost(
    function: Callable[..., Any], made: Compilation, arguments: list[tuple[Any, ...]]
) -> float:
    """Measure seconds of a million evaluations."""
    if made.dispatcher is not None:
        return _measure_compiled_cost(made.dispatcher, arguments)
    core = getattr(function, "py_func", function)
    start = time.perf_counter()
    for i in range(N_PYTHON_CALLS):
        core(*arguments[i % N_SPLITS])
    return (time.perf_counter() - start) / N_PYTHON_CALLS * 1e6


def _measure_compiled_cost(jitted: Any, arguments: list[tuple[Any, ...]]) -> float:
    """Measure the fastest of five rounds, as other processes can only slow it down."""
    parents = copy_frozen([a[0] for a in arguments])
    if len(arguments[0]) == 1:
        given: tuple[Any, ...] = (parents,)
        loop = _compile_impurity_loop(jitted)
    else:
        given = (parents, copy_frozen([a[1] for a in arguments]))
        loop = _compile_score_loop(jitted)
    loop(*given, 1)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        loop(*given, N_CALLS // N_SPLITS)
        times.append(time.perf_counter() - start)
    return min(times) / (N_CALLS // N_SPLITS * N_SPLITS) * 1e6


def _compile_score_loop(score: Any) -> Any:
    @nb.njit(error_model="numpy")
    def loop_scores(parents, children, rounds):  # type: ignore[no-untyped-def]
        total = 0.0
        for _ in range(rounds):
            for i in range(parents.shape[0]):
                total += score(parents[i], children[i])
        return total

    return loop_scores


def _compile_impurity_loop(impurity: Any) -> Any:
    @nb.njit(error_model="numpy")
    def loop_impurities(parents, rounds):  # type: ignore[no-untyped-def]
        total = 0.0
        for _ in range(rounds):
            for i in range(parents.shape[0]):
                total += impurity(parents[i])
        return total

    return loop_impurities


# ---------------------------------------------------------------- check


def check_criterion(
    criterion: str | Criterion,
    settings: Mapping[str, Any] | None = None,
    *,
    rows: Mapping[str, Sequence[Any]] | None = None,
    strict: bool = False,
    fail: bool = True,
) -> Report:
    """Check that a criterion satisfies the laws of its contract.

    Parameters
    ----------
    criterion : str or Criterion
        An installed name, or a record.
    settings : mapping, optional
        The criterion's own settings; the others take their defaults.
    rows : mapping of str to sequence, optional
        For a `Task` that cannot be judged by generated tables: about 30 rows of
        its target, ``y``, and of its columns, by role.
    strict : bool
        Treat a law that is declared broken, but holds, as a breach.
    fail : bool
        Raise for a breach; False: return the report in any case.

    Returns
    -------
    Report

    Raises
    ------
    ConformanceError
        An AssertionError, whose message shows every breach.
    SettingError
        For a name that is not installed, or an unknown setting.

    Examples
    --------
    >>> from treekit.testing import check_criterion
    >>> check_criterion("gini").ok
    True
    """
    grounds: list[TaskSetup] = []

    def prepare_task_settings(
        record: Criterion, given: dict[str, Any]
    ) -> tuple[dict[str, Any], Layout | None]:
        if find_custom_task(record) is None:
            return given, None
        grounds.append(make_task_setup(record, given, rows))
        return grounds[0].settings, grounds[0].layout

    found = open_component("criterion", criterion, settings, strict, prepare_task_settings)
    if not found.is_usable:
        return found.report.settled(fail=fail)
    record, functions = found.record, found.functions
    gates, layout = GATES, None
    if grounds:
        gates, layout = (*LAYOUT_GATES, *GATES), grounds[0].layout
        countings: tuple[Counting, ...] = (grounds[0].counting,)
        by = grounds[0].trainer
    else:
        sizes = (2, 3, 1, 5) if record.task == "classification" else (2,)
        countings = tuple(make_counting(record.task, functions, k) for k in sizes)
        by = make_criterion_trainer(record, functions, found.settings)
    subject = CriterionSubject(record, functions, found.settings, countings, by, layout)
    report = judge_laws(
        found.report, subject, LAWS, record.exempt, first_laws=gates, last_laws=TREE_LAWS
    )
    if report.ok:
        report = report.with_facts(measure_speed(subject))
    return report.settled(fail=fail)


# ---------------------------------------------------------------- trained trees
# Laws of a criterion, tested on trees that are trained with it.


def check_training(by: Trainer) -> None:
    """Train on every small table, with all settings that affect a criterion."""
    for table in by.iter_tables():
        train_tree(by, table)
        train_tree(by, table.with_columns("k"))
    for table in list(by.iter_tables())[::3]:
        train_tree(by, table, weighted=True, min_weight_leaf=0.0)
        train_tree(by, table, nominal_splits="multiway", empty_branches=True)
        train_tree(by, table, nominal_splits="one_vs_rest", max_leaves=4)
        train_tree(by, table, missing="fractional")


ROW_ORDER = Law(
    "permuting-rows-changes-nothing",
    "The same rows in another order give the same tree.",
    "state that persists between calls: compiled code reads a closure's values only once",
)


def check_row_order(by: Trainer) -> None:
    """Permute the rows of each table."""
    for table in by.iter_tables():
        order = np.random.default_rng(table.rows).permutation(table.rows)
        one, other = train_tree(by, table), train_tree(by, table.take(order))
        check_same_tree(by, table, f"with its rows in the order {order[:9].tolist()}", one, other)


ROW_COPIES = Law(
    "integer-weights-equal-repeated-rows",
    "A row of weight 3 counts as three copies of the row.",
    "counts of rows or of non-zero statistics, where weights should be added",
)


def check_row_copies(by: Trainer) -> None:
    """Repeat each row as many times as its weight."""
    for table in by.iter_tables():
        one, other = train_tree(by, table, weighted=True), train_tree(by, table.repeat_rows())
        check_same_tree(
            by, table, "with each row repeated `w` times instead of weights", one, other
        )


def check_doubled_weights(by: Trainer) -> None:
    """Double all weights, and the limits of weights."""
    for table in by.iter_tables():
        twice = replace(table, weights=[2] * table.rows)
        one = train_tree(by, table)
        two = train_tree(by, twice, weighted=True, min_weight_leaf=2.0, min_weight_split=4.0)
        check_same_tree(by, table, "with every weight doubled", one, two, 2.0)


def check_class_order(by: Trainer) -> None:
    """Declare the classes in another order; numeric columns only, as subsets depend on it."""
    if by.task != "classification":
        skip_law("the target is a number")
    for table in by.iter_tables():
        numbers = table.with_columns("x", "z")
        names = by.vocabulary or []
        one, other = train_tree(by, numbers), train_tree(by, numbers, classes=names[::-1])
        check_same_tree(
            by, numbers, "with the classes declared in reverse", one, other, turned=True
        )


TRAINING_LAWS: tuple[tuple[Law, LawTest], ...] = (
    (TRAINS, check_training),
    (ROW_ORDER, check_row_order),
    (ROW_COPIES, check_row_copies),
)


# ---------------------------------------------------------------- laws of `compute_score`

USELESS = Law(
    "useless-split-scores-zero",
    "A split whose branches have the same proportions as their node scores 0.",
    "the subtraction in the score: branches are compared with the node, or with each other",
)


def _check_useless_splits(subject: CriterionSubject) -> None:
    if subject.functions.score is None:
        skip_law("its score is the decrease of its impurity")
    for _, split in subject.iter_splits():
        if split.is_useless:
            value = subject.compute_score(split.parent, split.children)
            if abs(value) > split.noise:
                break_law(format_call("score", split.parent, split.children), repr(value), "0")


LARGER = Law(
    "larger-is-better",
    "A split that separates all rows scores above 0, and above every split that mixes them.",
    "the sign of the score, and the direction of each of its terms",
)


def _check_larger_is_better(subject: CriterionSubject) -> None:
    if subject.layout is not None:
        skip_law("which rows to separate depends on its task")
    if subject.functions.score is None:
        skip_law("its score is the decrease of its impurity")
    for of in subject.countings:
        two = [e for e in make_examples(of) if len(e.branches) == 2 and all(e.branches)]
        perfect = {split.rows: split for split in two if _is_separating(split)}
        for split in two:
            best = perfect.get(split.rows)
            if best is None:
                continue
            call = format_call("score", best.parent, best.children)
            most = subject.compute_score(best.parent, best.children)
            value = subject.compute_score(split.parent, split.children)
            if most <= split.noise:
                break_law(call, repr(most), "a number above 0")
            if value > most + split.noise:
                other = format_numbers(split.children)
                break_law(call, f"{most!r}, and {value!r} for {other}", "the larger of the two")


def _is_separating(split: Example) -> bool:
    """Whether each of two branches has one target, different from the other's."""
    left, right = ({target for target, _ in branch} for branch in split.branches)
    return len(left) == len(right) == 1 and left != right


BRANCHES = Law(
    "permuting-branches-changes-nothing",
    "A split scores the same whatever the order of its branches.",
    "children that are treated by their position",
)


def _check_branch_order(subject: CriterionSubject) -> None:
    if subject.functions.score is None:
        skip_law("its score is the decrease of its impurity")
    for _, split in subject.iter_splits():
        moved = np.ascontiguousarray(split.children[::-1])
        subject.check_same_measures(
            split, Example(split.branches, split.parent, moved, split.noise)
        )


EMPTY = Law(
    "empty-branches-change-nothing",
    "A branch without rows adds nothing to a score: categories may be absent from a node.",
    "counts of branches: skip those of weight 0",
)


def _check_empty_branches(subject: CriterionSubject) -> None:
    if subject.functions.score is None:
        skip_law("its score is the decrease of its impurity")
    for of, split in subject.iter_splits():
        more = np.vstack([split.children, np.zeros((1, of.size))])
        subject.check_same_measures(split, Example(split.branches, split.parent, more, split.noise))


SCORE_LAWS: tuple[tuple[Law, LawTest], ...] = (
    (USELESS, _check_useless_splits),
    (LARGER, _check_larger_is_better),
)
"""Scores of the best splits and of the worst."""

BRANCH_LAWS: tuple[tuple[Law, LawTest], ...] = (
    (BRANCHES, _check_branch_order),
    (EMPTY, _check_empty_branches),
)
"""Dependence of a score on the order and the number of branches."""


# ---------------------------------------------------------------- laws of all functions


def _check_calls(subject: CriterionSubject) -> None:
    """Call every function on every example; `asked` tests the results."""
    functions = subject.functions
    for _, split in subject.iter_splits():
        for _ in subject.iter_measures(split):
            pass
        for name in ("order", "leaf_value", "priority"):
            function = getattr(functions, name)
            if function is not None:
                call_checked(name, function, split.parent)
        if functions.loss is not None:
            for judged in split.children:
                call_checked("loss", functions.loss, split.parent, judged, allow_infinite=True)
    if functions.penalty is not None:
        for candidates, weight in ((1, 1.0), (2, 0.5), (1000, 1e6)):
            call_checked("penalty", functions.penalty, candidates, weight)


def _check_repeated_calls(subject: CriterionSubject) -> None:
    for _, split in subject.iter_splits():
        for name, arguments, value in subject.iter_measures(split):
            again = call_checked(name, getattr(subject.functions, name), *arguments)
            if again != value:
                break_law(
                    format_call(name, *arguments), f"{value!r}, then {again!r}", "the same value"
                )


PURITY = Law(
    "purity-is-zero",
    "A node whose rows all have one target has impurity 0, and its splits score 0.",
    "the value for statistics of only one class (or one number)",
)


def _check_purity(subject: CriterionSubject) -> None:
    if subject.layout is not None:
        skip_law("the targets of its rows depend on its task")
    for _, split in subject.iter_splits():
        if split.is_pure:
            for name, arguments, value in subject.iter_measures(split):
                if abs(value) > split.noise:
                    break_law(format_call(name, *arguments), repr(value), "0")


NOT_NEGATIVE = Law(
    "impurity-is-not-negative",
    "No node has an impurity below 0.",
    "signs, and differences that cancel: 1 - sum(p * p) and not sum(p * p) - 1",
)


def _check_not_negative(subject: CriterionSubject) -> None:
    if subject.functions.impurity is None:
        skip_law("it has no impurity")
    for _, split in subject.iter_splits():
        value = subject.compute_impurity(split.parent)
        if value < -split.noise:
            break_law(format_call("impurity", split.parent), repr(value), "0 or more")


CONCAVE = Law(
    "splitting-never-mixes",
    "No split has a weighted average impurity of its branches above that of its node.",
    "classes that `impurity` reweights: branches are averaged by the weight of their rows, "
    "so write a `score`, which may weight them differently",
)


def _check_concave(subject: CriterionSubject) -> None:
    if subject.functions.impurity is None:
        skip_law("it has no impurity")
    for of, split in subject.iter_splits():
        weights = split.children[:, 0] if of.dense else split.children.sum(axis=1)
        left = sum(
            weight * subject.compute_impurity(child)
            for weight, child in zip(weights, split.children, strict=True)
            if weight > 0.0
        )
        before = subject.compute_impurity(split.parent)
        if before < -split.noise:  # inverted: it is smallest for mixed nodes
            break_law(format_call("impurity", split.parent), repr(before), "0 or more",
                   law=NOT_NEGATIVE.name)  # fmt: skip
        after = float(left / weights.sum())
        if after > before + split.noise + 1e-9 * abs(before):
            call = f"{format_call('impurity', split.parent)} split into "
            got = f"{before!r}, and {after!r} after the split"
            break_law(call + format_numbers(split.children), got, "no increase")


DOUBLING = Law(
    "doubling-weights-changes-nothing",
    "With every weight doubled, impurity, score and leaf value stay the same.",
    "absolute weights: divide by the node's weight (a test of significance declares this law)",
)


def _check_doubling(subject: CriterionSubject) -> None:
    for of, split in subject.iter_splits():
        doubled = _double_weights(of, split)
        for (name, arguments, value), (_, twice, other) in zip(
            subject.iter_measures(split), subject.iter_measures(doubled), strict=True
        ):
            if abs(other - value) > split.noise + 1e-9 * abs(value):
                call = format_call(name, *arguments)
                break_law(
                    call, f"{value!r}, and {other!r} for {format_call(name, *twice)}", "the same"
                )
        leaf_value = subject.functions.leaf_value
        if leaf_value is not None:
            value = call_checked("leaf_value", leaf_value, split.parent)
            other = call_checked("leaf_value", leaf_value, doubled.parent)
            if abs(other - value) > 1e-9 * max(1.0, abs(value)):
                call = format_call("leaf_value", split.parent)
                break_law(call, f"{value!r}, and {other!r} at twice the weight", "the same")


def _double_weights(of: Counting, split: Example) -> Example:
    times = np.full(of.size, 2.0)
    if not of.additive:
        times[1] = 1.0  # a quantile is no sum
    return Example(split.branches, split.parent * times, split.children * times, split.noise)


CLASSES = Law(
    "permuting-classes-changes-nothing",
    "Classes are interchangeable: any order gives the same impurity and score.",
    "cells that are treated by their position (a criterion with costs declares this law)",
)


def _check_classes(subject: CriterionSubject) -> None:
    if not subject.countings[0].classes:
        skip_law("its statistics are not those of classes")
    for of, split in subject.iter_splits():
        for turn in range(1, of.size):
            moved = Example(
                split.branches,
                np.roll(split.parent, turn),
                np.ascontiguousarray(np.roll(split.children, turn, axis=1)),
                split.noise,
            )
            subject.check_same_measures(split, moved)


LOSS = Law(
    "loss-adds-up",
    "The loss of several rows is the sum of their losses.",
    "`judged`: statistics whose weight is the number of rows",
)


def _check_loss(subject: CriterionSubject) -> None:
    loss = subject.functions.loss
    if loss is None:
        skip_law("it has no loss function")
    if not subject.countings[0].additive:
        skip_law("quantiles of rows do not add up")
    for _, split in subject.iter_splits():
        together = call_checked("loss", loss, split.parent, split.parent, allow_infinite=True)
        apart = sum(
            call_checked("loss", loss, split.parent, child, allow_infinite=True)
            for child in split.children
        )
        if together != apart and not abs(together - apart) <= split.noise + 1e-9 * abs(together):
            call = format_call("loss", split.parent, split.parent)
            break_law(call, f"{together!r}, and {apart!r} for its branches", "the same")


CHOICE = Law(
    "chooses-among-columns",
    "`choose` returns the position of a column that has a split, or -1.",
    "columns whose gain is NaN: they have no split, and may be the only ones",
)


def _check_choice(subject: CriterionSubject) -> None:
    choose = subject.functions.choose
    if choose is None:
        skip_law("it does not choose between columns")
    nan = np.nan
    for gains in ([nan], [0.0], [0.5], [nan, 0.5], [0.5, nan], [0.2, 0.5], [0.0, 0.0],
                  [0.5, 0.5], [nan, nan, nan], [1e-15, nan, 0.3, 0.3]):  # fmt: skip
        given = [np.array(gains), 2.0 * np.array(gains), np.zeros(len(gains))]
        pick = call_checked("choose", choose, *given, kind=int)
        is_valid = -1 <= pick < len(gains) and (pick < 0 or not np.isnan(gains[pick]))
        if not is_valid:
            break_law(format_call("choose", *given), pick, "a column whose gain is a number, or -1")


def _check_bounds(subject: CriterionSubject) -> None:
    """Call the functions with every setting at its bounds."""
    check_bounds(
        subject.record,
        subject.settings,
        lambda functions: _check_calls(replace(subject, functions=functions)),
        subject.layout,
    )


def _test_trainer(test: LawTest) -> LawTest:
    return lambda subject: test(subject.trainer)


GATES: tuple[tuple[Law, LawTest], ...] = (
    (ANSWERS, _check_calls),
    (NUMBERS, _check_calls),
    (FINITE, _check_calls),
    (WRITES, _check_calls),
    (REPEATS, _check_repeated_calls),
)
"""Laws that must hold before any other can be judged."""

LAWS: tuple[tuple[Law, LawTest], ...] = (
    (PURITY, _check_purity),
    (NOT_NEGATIVE, _check_not_negative),
    (CONCAVE, _check_concave),
    *SCORE_LAWS,
    (DOUBLING, _check_doubling),
    (CLASSES, _check_classes),
    *BRANCH_LAWS,
    (LOSS, _check_loss),
    (CHOICE, _check_choice),
    (BOUNDS, _check_bounds),
    (COMPILED, check_compiled_equal),
)
TREE_LAWS: tuple[tuple[Law, LawTest], ...] = tuple(
    (law, _test_trainer(test))
    for law, test in (
        *TRAINING_LAWS,
        (DOUBLING, check_doubled_weights),
        (CLASSES, check_class_order),
    )
)
"""Laws that need trainings, judged only if the others hold."""


# ---------------------------------------------------------------- criterion under test


@dataclass(frozen=True)
class CriterionSubject:
    """A criterion, with the examples that it is tested on.

    Attributes
    ----------
    record : Criterion
    functions : CriterionFunctions
    settings : dict
    countings : tuple of Counting
        Ways to count rows, with few cells first.
    trainer : Trainer
    layout : Layout or None
        Of the criterion's task.
    machine : CompiledFunctions
        The functions as compiled by numba.
    """

    record: Criterion
    functions: CriterionFunctions
    settings: dict[str, Any]
    countings: tuple[Counting, ...]
    trainer: Trainer
    layout: Layout | None = None
    machine: CompiledFunctions = field(default_factory=CompiledFunctions)

    def iter_splits(self) -> Iterator[tuple[Counting, Example]]:
        """Yield every example of every size of statistics, small ones first."""
        for of in self.countings:
            for example in make_examples(of):
                yield of, example

    def compute_impurity(self, stats: Any) -> float:
        """Return the checked impurity of a node."""
        value: float = call_checked("impurity", _require_function(self.functions.impurity), stats)
        return value

    def compute_score(self, parent: Any, children: Any) -> float:
        """Return the checked score of a split."""
        value: float = call_checked(
            "score", _require_function(self.functions.score), parent, children
        )
        return value

    def iter_measures(self, split: Example) -> Iterator[tuple[str, tuple[Any, ...], float]]:
        """Yield the name, arguments and value of each measure of a split: impurity and score."""
        if self.functions.impurity is not None:
            yield "impurity", (split.parent,), self.compute_impurity(split.parent)
        if self.functions.score is not None:
            arguments = (split.parent, split.children)
            yield "score", arguments, self.compute_score(*arguments)

    def check_same_measures(self, one: Example, other: Example) -> None:
        """Raise `LawBroken` unless impurity and score of two examples are equal."""
        for (name, arguments, value), (_, moved, again) in zip(
            self.iter_measures(one), self.iter_measures(other), strict=True
        ):
            if abs(again - value) > one.noise + 1e-9 * abs(value):
                got = f"{value!r}, and {again!r} for {format_call(name, *moved)}"
                break_law(format_call(name, *arguments), got, "the same")


def _require_function(function: Callable[..., Any] | None) -> Callable[..., Any]:
    assert function is not None  # noqa: S101 - for the type checker
    return function


# ---------------------------------------------------------------- laws of a task's layout

Numbers = npt.NDArray[np.float64]

MAX_SHOWN = 3
"""Maximum number of nodes whose statistics are written out."""

ANSWER = Law(
    "layout-answers-every-node",
    "`Layout.answer` of statistics (nodes, S) is (nodes, V): finite numbers, or weights of classes "
    "that are not negative.",
    "`answer`, and `names`: one for each number",
)


def _stack_statistics(subject: Any) -> Numbers:
    """Stack the statistics (nodes, S) of all examples, small nodes first."""
    return np.array([split.parent for of in subject.countings for split in make_examples(of)])


def _call_answer(subject: Any, layout: Layout, stats: Numbers) -> Numbers:
    """Call a layout's `answer` for some nodes; raise `LawBroken` for any breach."""
    task = find_custom_task(subject.record)
    width = len(layout.names)
    if task is not None and task.answers == "classification":
        width = max(subject.trainer.classes)
    nodes = stats.copy()
    call = _format_call(stats)
    try:
        got = np.asarray(layout.answer(nodes))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        break_law(
            call,
            format_exception(error),
            f"({len(stats)}, {width}) numbers",
            law=ANSWERS.name,
            look=format_hint(error, ANSWERS),
        )
    if not np.array_equal(nodes, stats):
        break_law(call, "its argument was changed", "its argument unchanged", law=WRITES.name)
    if got.shape != (len(stats), width):
        break_law(
            call, f"an array of shape {got.shape}", f"({len(stats)}, {width})", law=ANSWER.name
        )
    if not np.isfinite(got).all():
        bad = got[~np.isfinite(got).all(axis=1)][0]
        break_law(call, bad.tolist(), "finite numbers", law=FINITE.name)
    if not layout.names:
        weights = (got >= 0.0).all(axis=1) & (got.sum(axis=1) > 0.0)
        if not weights.all():
            break_law(call, got[~weights][0].tolist(),
                   "weights of classes, not negative and not all 0", law=ANSWER.name)  # fmt: skip
    return got.astype(np.float64)


def _format_call(stats: Numbers) -> str:
    if len(stats) <= MAX_SHOWN:
        return format_call("answer", stats)
    return f"answer(the statistics of {len(stats)} nodes)"


def _is_same_answer(one: Numbers, other: Numbers) -> bool:
    """Whether two results are equal, up to rounding."""
    largest = max(1e-300, float(np.abs(one).max(initial=0.0)))
    return bool(np.allclose(one, other, rtol=1e-9, atol=1e-9 * largest))


def _check_layout_answers(subject: Any) -> None:
    """Test one node at a time."""
    for stats in _stack_statistics(subject):
        _call_answer(subject, subject.layout, stats[None, :])


ALONE = Law(
    "layout-answers-each-node-alone",
    "The result of `Layout.answer` for a node depends neither on its position among the given "
    "nodes, nor on the other nodes.",
    "means, ranks and counts over all rows of `stats`: reduce along axis 1 only",
)


def _check_alone(subject: Any) -> None:
    """Test nodes alone, twice, in pairs, and all together in random order."""
    layout, stack = subject.layout, _stack_statistics(subject)
    alone = []
    for stats in stack:
        one, again = (_call_answer(subject, layout, stats[None, :])[0] for _ in range(2))
        if not _is_same_answer(one, again):
            break_law(
                _format_call(stats[None, :]),
                f"{format_numbers(one)}, then {format_numbers(again)}",
                "one result",
                law=REPEATS.name,
            )
        alone.append(one)
    every = np.random.default_rng(0).permutation(len(stack))
    pairs = [np.array([i, i + 1]) for i in range(len(stack) - 1)]
    for order in (*pairs, every):
        for values, node in zip(_call_answer(subject, layout, stack[order]), order, strict=True):
            if not _is_same_answer(alone[node], values):
                break_law(f"{_format_call(stack[order])}, and {_format_call(stack[node][None, :])}",
                       f"{format_numbers(values)} for that node among others, and "
                       f"{format_numbers(alone[node])} alone", "the same")  # fmt: skip


PLACE = Law(
    "layout-places-each-row-alone",
    "The place of a row by `Layout.place` depends neither on the other rows, nor on their order.",
    "values that `place` computes from all of its rows (their labels, their first one, their most "
    "frequent one): compute them in `lay_out`, from the training rows",
)


def _check_places(subject: Any) -> None:
    """Place all rows, then single rows, halves of them, and all in another order."""
    dataset = _make_dataset(subject)
    placed = _place_rows(subject, subject.layout, dataset)
    n = dataset.n_rows
    every = np.random.default_rng(n).permutation(n)
    for rows in (*np.arange(n)[:, None], every[: n // 2], every[n // 2 :], every):
        some = _place_rows(subject, subject.layout, dataset.take(rows))
        away = ~np.isclose(some, placed[rows], rtol=1e-12, atol=0.0).reshape(len(rows), -1)
        if away.any():
            at = int(np.argmax(away.any(axis=1)))
            which = f"rows {rows[:9].tolist()}" + (" and more" if len(rows) > 9 else "")
            break_law(f"place({which} of {subject.trainer.table})",
                   f"row {rows[at]} at {format_numbers(some[at])}",
                   f"{format_numbers(placed[rows[at]])}, as with all {n} rows")  # fmt: skip


def _make_dataset(subject: Any) -> Dataset:
    made: Dataset = subject.trainer.make_dataset(subject.trainer.table)
    return made


def _place_rows(subject: Any, layout: Layout, dataset: Dataset) -> npt.NDArray[Any]:
    try:
        return place_rows(subject.record, layout, dataset)
    except (DataError, PluginError, SettingError) as error:
        break_law(f"place({dataset.n_rows} rows of {subject.trainer.table})", error,
               "the cell or the statistics of each row", law=ANSWERS.name)  # fmt: skip


def _check_repeated_layout(subject: Any) -> None:
    """Fit the layout to the same rows again."""
    dataset, stack = _make_dataset(subject), _stack_statistics(subject)
    call = f"lay_out({subject.trainer.table})"
    one = subject.layout
    other = fit_layout(subject.record, subject.settings, dataset)
    assert other is not None  # noqa: S101 - the criterion has a task
    for name in ("size", "names"):
        if getattr(one, name) != getattr(other, name):
            got = f"{name} {getattr(one, name)!r}, then {getattr(other, name)!r}"
            break_law(call, got, "one layout")
    placed, moved = (_place_rows(subject, layout, dataset) for layout in (one, other))
    if not np.array_equal(placed, moved):
        break_law(call, "different places of rows the second time", "one layout")
    first, second = (_call_answer(subject, layout, stack[:1])[0] for layout in (one, other))
    if not _is_same_answer(first, second):
        got = (
            f"{format_numbers(first)}, then {format_numbers(second)} for {_format_call(stack[:1])}"
        )
        break_law(call, got, "one layout")


LAYOUT_GATES: tuple[tuple[Law, LawTest], ...] = (
    (ANSWER, _check_layout_answers),
    (ALONE, _check_alone),
    (PLACE, _check_places),
    (REPEATS, _check_repeated_layout),
)


# ---------------------------------------------------------------- criteria with a task

TABLE_ROWS = 30
"""Number of rows of the table that a layout is fitted to."""

_MAKERS: dict[str, Any] = {
    "numbers 0 and 1": lambda k: float(k % 2),
    "labels 'control' and 'treated'": lambda k: ("control", "treated")[k % 2],
    "labels 'a', 'b' and 'c'": lambda k: "abc"[k % 3],
    "numbers 0.5, 1.5, ...": lambda k: 0.5 + k % 7,
}


@dataclass(frozen=True)
class TaskSetup:
    """Data to test a criterion with a task on.

    Attributes
    ----------
    layout : Layout
        Fitted to a table of `TABLE_ROWS` rows.
    settings : dict
        The given ones, and columns for the task's settings of column names.
    counting : Counting
        How some rows of that table are counted.
    trainer : Trainer
    """

    layout: Layout
    settings: dict[str, Any]
    counting: Counting
    trainer: Trainer


def make_task_setup(
    record: Criterion, given: Mapping[str, Any], rows: Mapping[str, Sequence[Any]] | None
) -> TaskSetup:
    """Find a table that the task accepts, and fit its layout.

    Parameters
    ----------
    record : Criterion
        Of a `Task`.
    given : mapping
        Settings.
    rows : mapping of str to sequence, optional
        Target ``y`` and the task's columns by role; None: targets and columns
        of several kinds are tried.

    Raises
    ------
    SettingError
        If the task accepts none of them.
    PluginError
        If the layout is invalid.
    """
    task = find_custom_task(record)
    assert task is not None  # noqa: S101 - called for criteria with a task only
    settings = {**given, **{role: given.get(role) or f"the {role}" for role in task.columns}}
    refused = ""
    for table, classes in _iter_tables(task, settings, rows):
        by = make_trainer(
            "criterion", record, settings_of(record, settings), task=task.target,
            classes=(classes,), least=1.0, beside={r: settings[r] for r in task.columns},
            table=table, answers=task.answers,
        )  # fmt: skip
        try:
            dataset = by.make_dataset(table)
            layout = fit_layout(record, settings, dataset)
            assert layout is not None  # noqa: S101 - for the type checker
            placed = place_rows(record, layout, dataset)
        except (DataError, SettingError) as error:
            refused = refused or str(error)
            continue
        return TaskSetup(layout, settings, _make_counting(layout, placed), by)
    raise SettingError(
        f"criterion {record.name!r} is for {task.name}, and accepts none of the generated tables "
        f"({refused}); call check_criterion with rows={{'y': [...], "
        + ", ".join(f"{role!r}: [...]" for role in task.columns)
        + "}"
    )


def _iter_tables(
    task: Task, settings: Mapping[str, Any], rows: Mapping[str, Sequence[Any]] | None
) -> Iterator[tuple[SmallTable, int]]:
    """Yield tables to try, with their numbers of classes."""
    if rows is not None:
        own = {settings[role]: list(rows[role]) for role in task.columns}
        target = list(rows["y"])
        table = make_small_table(len(target), 0).with_target(target, own)
        classes = len(set(target)) if task.target == "classification" else 0
        yield table, classes
        return
    for classes in (2, 3) if task.target == "classification" else (0,):
        base = make_small_table(TABLE_ROWS, classes, 1.0)
        picks = np.random.default_rng(classes).permutation(base.rows)
        for make in _MAKERS.values():
            cells = [make(int(k)) for k in picks]
            own = {settings[role]: cells for role in task.columns}
            yield base.with_target(base.target, own), classes


def _make_counting(layout: Layout, placed: npt.NDArray[Any]) -> Counting:
    """Count up to four rows with different places."""
    if placed.ndim == 1:
        placed = np.eye(layout.size)[placed]
        dense = False
    else:
        dense = True
    _, first = np.unique(placed, axis=0, return_index=True)
    places = placed[np.sort(first)[:4]]

    def count_rows(rows: Sequence[Row]) -> npt.NDArray[np.float64]:
        stats = np.zeros(layout.size)
        for target, weight in rows:
            stats += weight * places[int(target)]
        return stats

    return Counting(
        layout.size, tuple(map(float, range(len(places)))), dense, False, True, count_rows
    )
