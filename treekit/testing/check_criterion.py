"""Laws of a criterion's functions, tested by calling them as plain Python and compiled."""

from __future__ import annotations

import linecache
import time
import timeit
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.compiling.criterion import uses_vectors
from treekit.compiling.functions import CompileFailure, try_compile
from treekit.contracts import MAX_COUNT, Criterion, Layout, Ranks, Task
from treekit.data.dataset import Dataset
from treekit.errors import DataError, PluginError, SettingError, TreekitWarning
from treekit.kernels.intrinsics import FROZEN_CELLS, FROZEN_MATRIX, PENALTY_SIGNATURE
from treekit.registry.kinds import find_custom_task
from treekit.testing.example_tables import (
    Counting,
    Example,
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
    BRANCHES,
    DOUBLING,
    EMPTY,
    FINITE,
    NUMBERS,
    REPEATS,
    WRITES,
    LawBroken,
    LawInapplicable,
    Laws,
    LawTest,
    StatisticsSubject,
    add_empty_branch,
    blame_error,
    break_law,
    call_checked,
    check_bounds,
    check_invariance,
    double_weights,
    keep_statistics,
    reverse_branches,
    skip_law,
)
from treekit.testing.report import Law
from treekit.testing.training import (
    ROW_COPIES,
    ROW_ORDER,
    TRAINS,
    check_doubled_weights,
    check_row_copies,
    check_row_order,
    check_same_tree,
    iter_trainings,
    make_trainer,
    train_tree,
)
from treekit.training import fit
from treekit.training.tasks import fit_layout, place_rows

# ---------------------------------------------------------------- criterion under test

Numbers = npt.NDArray[np.float64]

MEASURES = ("impurity", "score")
SCALED = (*MEASURES, "leaf_value")
FUNCTIONS = (*SCALED, "order", "priority", "loss")
"""Functions of statistics."""


@dataclass(frozen=True)
class CriterionSubject(StatisticsSubject):
    """A criterion, with the examples that it is tested on."""

    def iter_calls(self, *names: str) -> Iterator[tuple[Counting, Example, str, tuple[Any, ...]]]:
        """Yield functions of some names with their arguments for every example, small ones first.

        Without names, for all functions of statistics.
        """
        given = [name for name in names or FUNCTIONS if self.parts[name] is not None]
        for of in self.countings:
            for split in make_examples(of):
                for name in given:
                    if name == "loss":
                        for judged in (split.parent, *split.children):
                            yield of, split, name, (split.parent, judged)
                    elif name == "score":
                        yield of, split, name, (split.parent, split.children)
                    else:
                        yield of, split, name, (split.parent,)

    def call(self, name: str, arguments: tuple[Any, ...]) -> float:
        """Return the checked result of a function."""
        function = self.parts[name]
        value: float = call_checked(name, function, *arguments, allow_infinite=name == "loss")
        return value

    @cached_property
    def parts(self) -> dict[str, Any]:
        """Functions and numbers of the criterion, by name."""
        return {**vars(self.functions), **vars(self.functions.extras)}

    def use_functions(self) -> None:
        """Call every function on every example."""
        self.check_calls()
        if self.parts["penalty"] is not None:
            for arguments in ((1, 1.0), (2, 0.5), (1000, 1e6)):
                self.call("penalty", arguments)

    @cached_property
    def compiled(self) -> dict[str, Compilation]:
        """Compilations of the functions that kernels call, by name."""
        functions = {name: self.parts[name] for name in ARGUMENT_TYPES}
        return {name: _compile_function(name, f) for name, f in functions.items() if f is not None}

    def find_remedy(self, test: LawTest) -> str:
        """Return how to declare a criterion for two classes only, if `test` passes with two."""
        if self.record.task != "classification" or self.record.classes is not None:
            return ""
        trainers = tuple(replace(by, classes=(2,)) for by in self.trainers)
        try:
            test(replace(self, countings=self.countings[:1], trainers=trainers))
        except (LawBroken, LawInapplicable):
            return ""
        return (
            "the law holds with two classes; if the criterion is for two only, declare classes=2 "
            "in its Criterion"
        )

    def require(self, name: str, otherwise: str) -> None:
        """End a test of a function that the criterion does not have, with the reason."""
        if self.parts[name] is None:
            skip_law(otherwise)

    def measure(self) -> tuple[tuple[str, str], ...]:
        """Return for each function that kernels call: compiled or why not, and its cost."""
        return tuple(_measure_functions(self))


def make_criterion_subject(
    record: Criterion, given: Mapping[str, Any], rows: Mapping[str, Sequence[Any]] | None = None
) -> CriterionSubject:
    """Make the functions of a criterion, and examples for its task."""
    if find_custom_task(record) is not None:
        ground = make_task_setup(record, given, rows)
        functions, settings = registry.make(record, ground.settings, ground.layout)
        return replace(ground, settings=settings, functions=functions)
    functions, settings = registry.make(record, given)
    options: dict[str, Any] = {"task": "classification"}
    if record.task == "regression":
        statistics = functions.statistics
        smallest = None if isinstance(statistics, Ranks) else statistics.smallest
        options = {"task": "regression", "classes": (0,)}
        options["least"] = -2.0 if smallest is None else smallest
    sizes: tuple[int, ...] = (2, 3, 1, 5) if record.task == "classification" else (2,)
    if record.classes is not None:
        options["classes"] = sizes = (record.classes,)
    countings = tuple(make_counting(str(record.task), functions, k) for k in sizes)
    by = make_trainer("criterion", record, settings, **options)
    return CriterionSubject(record, settings, functions, None, (by,), countings)


# ---------------------------------------------------------------- laws of the functions

PURITY = Law(
    "purity-is-zero",
    "A node whose rows all have one target has impurity 0, and its splits score 0.",
    "the value for statistics of only one class (or one number)",
)


def _check_purity(subject: CriterionSubject) -> None:
    if subject.layout is not None:
        skip_law("the targets of its rows depend on its task")
    _check_zero(subject, MEASURES, lambda split: split.is_pure)


USELESS = Law(
    "useless-split-scores-zero",
    "A split whose branches have the same proportions as their node scores 0.",
    "the subtraction in the score: branches are compared with the node, or with each other",
)


def _check_useless_splits(subject: CriterionSubject) -> None:
    subject.require("score", DECREASE)
    _check_zero(subject, ("score",), lambda split: split.is_useless)


def _check_zero(
    subject: CriterionSubject, names: tuple[str, ...], applies: Callable[[Example], bool]
) -> None:
    for _, split, name, arguments in subject.iter_calls(*names):
        if applies(split) and abs(value := subject.call(name, arguments)) > split.noise:
            break_law(format_call(name, *arguments), repr(value), "0")


DECREASE = "its score is the decrease of its impurity"

NOT_NEGATIVE = Law(
    "impurity-is-not-negative",
    "No node has an impurity below 0.",
    "signs, and differences that cancel: 1 - sum(p * p) and not sum(p * p) - 1",
)


def _check_not_negative(subject: CriterionSubject) -> None:
    subject.require("impurity", "it has no impurity")
    for _, split, name, arguments in subject.iter_calls("impurity"):
        value = subject.call(name, arguments)
        if value < -split.noise:
            break_law(format_call(name, *arguments), repr(value), "0 or more", law=NOT_NEGATIVE)


CONCAVE = Law(
    "splitting-never-mixes",
    "No split has a weighted average impurity of its branches above that of its node.",
    "classes that `impurity` reweights: branches are averaged by the weight of their rows, "
    "so write a `score`, which may weight them differently",
)


def _check_concave(subject: CriterionSubject) -> None:
    _check_not_negative(subject)  # an inverted impurity is smallest for mixed nodes
    for of, split, name, arguments in subject.iter_calls("impurity"):
        weights = split.children[:, 0] if of.dense else split.children.sum(axis=1)
        used = weights > 0.0
        parts = [subject.call(name, (child,)) for child in split.children[used]]
        before, after = (
            subject.call(name, arguments),
            float(np.average(parts, weights=weights[used])),
        )
        if after > before + split.noise + 1e-9 * abs(before):
            call = f"{format_call(name, *arguments)} split into {format_numbers(split.children)}"
            break_law(call, f"{before!r}, and {after!r} after the split", "no increase")


LARGER = Law(
    "larger-is-better",
    "A split that separates all rows scores above 0, and above every split that mixes them.",
    "the sign of the score, and the direction of each of its terms",
)


def _check_larger_is_better(subject: CriterionSubject) -> None:
    if subject.layout is not None:
        skip_law("which rows to separate depends on its task")
    subject.require("score", DECREASE)
    for of in subject.countings:
        two = [e for e in make_examples(of) if len(e.branches) == 2 and all(e.branches)]
        perfect = {split.rows: split for split in two if split.is_separating}
        for split in two:
            best = perfect.get(split.rows)
            if best is None:
                continue
            call = format_call("score", best.parent, best.children)
            most = subject.call("score", (best.parent, best.children))
            value = subject.call("score", (split.parent, split.children))
            if most <= split.noise:
                break_law(call, repr(most), "a number above 0")
            if value > most + split.noise:
                other = format_numbers(split.children)
                break_law(call, f"{most!r}, and {value!r} for {other}", "the larger of the two")


def _check_score_invariance(subject: CriterionSubject, change: Any) -> None:
    subject.require("score", DECREASE)
    check_invariance(subject, change, ("score",))


CLASSES = Law(
    "permuting-classes-changes-nothing",
    "Classes are interchangeable: any order gives the same impurity and score.",
    "cells that are treated by their position (a criterion with costs declares this law)",
)


def _check_classes(subject: CriterionSubject) -> None:
    if not subject.countings[0].classes:
        skip_law("its statistics are not those of classes")
    for turn in range(1, max(of.size for of in subject.countings)):
        check_invariance(subject, partial(_rotate_classes, turn), MEASURES)


def _rotate_classes(turn: int, _: Counting, array: Numbers) -> Numbers:
    return np.ascontiguousarray(np.roll(array, turn, axis=-1))


LOSS = Law(
    "loss-adds-up",
    "The loss of several rows is the sum of their losses.",
    "`judged`: statistics whose weight is the number of rows",
)


def _check_loss(subject: CriterionSubject) -> None:
    subject.require("loss", "it has no loss function")
    if not subject.countings[0].additive:
        skip_law("quantiles of rows do not add up")
    for of in subject.countings:
        for split in make_examples(of):
            together = subject.call("loss", (split.parent, split.parent))
            apart = sum(subject.call("loss", (split.parent, child)) for child in split.children)
            if not np.isclose(together, apart, rtol=1e-9, atol=split.noise):
                call = format_call("loss", split.parent, split.parent)
                break_law(call, f"{together!r}, and {apart!r} for its branches", "the same")


CHOICE = Law(
    "chooses-among-columns",
    "`choose` returns the position of a column that has a split, or -1.",
    "columns whose gain is NaN: they have no split, and may be the only ones",
)


def _check_choice(subject: CriterionSubject) -> None:
    subject.require("choose", "it does not choose between columns")
    nan = np.nan
    for gains in ([nan], [0.0], [0.5], [nan, 0.5], [0.5, nan], [0.2, 0.5], [0.0, 0.0],
                  [0.5, 0.5], [nan, nan, nan], [1e-15, nan, 0.3, 0.3]):  # fmt: skip
        given = [np.array(gains), 2.0 * np.array(gains), np.zeros(len(gains))]
        pick = call_checked("choose", subject.parts["choose"], *given, kind=int)
        if not -1 <= pick < len(gains) or (pick >= 0 and np.isnan(gains[pick])):
            break_law(format_call("choose", *given), pick, "a column whose gain is a number, or -1")


TERMS = Law(
    "terms-give-the-score",
    "`term_score` returns what `score` returns, bit for bit, and a `term` is an integer for an "
    "integer, 0 for 0, and convex.",
    "the order of operations in both scores, and terms that are rounded, such as logarithms",
)

LARGEST_TERM = 2.0**53
"""Terms below it are exact integers."""


def _check_terms(subject: CriterionSubject) -> None:
    subject.require("term", "it has no terms")
    extras = subject.functions.extras
    if subject.functions.score is None or extras.term_score is None:
        break_law("make()", "term without score or term_score", "all three of them")
    terms = [call_checked("term", extras.term, float(w)) for w in range(100)]
    steps = np.diff(terms)
    if terms[0] != 0.0 or (steps % 1.0).any() or (np.diff(steps) < 0.0).any():
        break_law("term(0.0), term(1.0), ...", format_numbers(np.array(terms[:5])), "as stated")

    def sum_terms(stats: Numbers) -> Numbers:
        return np.array([stats.sum(), sum(call_checked("term", extras.term, w) for w in stats)])

    for of, _, _, (parent, children) in subject.iter_calls("score"):
        whole = not (parent % 1.0).any() and not (children % 1.0).any()
        if of.dense or len(children) != 2 or not whole:
            continue
        given = sum_terms(parent), np.array([sum_terms(child) for child in children])
        if given[0][1] < LARGEST_TERM:
            value = call_checked("term_score", extras.term_score, *given)
            score = subject.call("score", (parent, children))
            if value != score:
                call = f"{format_call('term_score', *given)} of {format_numbers(children)}"
                break_law(call, repr(value), f"{score!r}, as score", law=TERMS)


COUNTS = Law(
    "counts-give-the-score",
    "`count_score` returns what `score` returns, bit for bit, for weights that are integers.",
    "the order of operations in both scores, and the ends of a table",
)


def _check_counts(subject: CriterionSubject) -> None:
    subject.require("count_score", "it has no score of counts")
    function = subject.functions.extras.count_score
    for of, _, _, given in subject.iter_calls("score"):
        parent, children = given
        whole = not (parent % 1.0).any() and not (children % 1.0).any()
        if of.dense or len(children) != 2 or not whole or parent.sum() > MAX_COUNT:
            continue
        value, score = call_checked("count_score", function, *given), subject.call("score", given)
        if value != score:
            break_law(format_call("count_score", *given), repr(value), f"{score!r}, as score")


# ---------------------------------------------------------------- compilation and speed

ARGUMENT_TYPES: dict[str, tuple[Any, ...]] = {
    "impurity": (FROZEN_CELLS,),
    "score": (FROZEN_CELLS, FROZEN_MATRIX),
    "choose": (FROZEN_CELLS,) * 3,
    "order": (FROZEN_CELLS,),
    "priority": (FROZEN_CELLS,),
    "penalty": PENALTY_SIGNATURE.args,
    "term": (nb.float64,),
    "term_score": (FROZEN_CELLS, FROZEN_MATRIX),
    "count_score": (FROZEN_CELLS, FROZEN_MATRIX),
}
"""Functions called by kernels, with the numba types of their arguments."""

COMPILED = Law(
    "compiled-equals-plain",
    "A function compiled by numba returns the same value as in Python.",
    "integers beyond 64 bits, globals that change, `//` and `%` of negative or zero numbers",
)


Compilation = tuple[Any, CompileFailure | None, float]
"""Compilation of a function: the dispatcher, or None and the reason; and its seconds."""


def _compile_function(name: str, function: Callable[..., Any]) -> Compilation:
    start = time.perf_counter()
    checked = not (getattr(function, "__module__", None) or "").startswith("treekit.")
    returns = int if name == "choose" else float
    compiled = try_compile(function, ARGUMENT_TYPES[name], returns, checked=checked)
    return *compiled, time.perf_counter() - start


def _check_compiled_equal(subject: CriterionSubject) -> None:
    """Compare impurity and score, compiled and plain, on every example."""
    made = {name: dispatcher for name, (dispatcher, *_) in subject.compiled.items()}
    compiled = [name for name in MEASURES if made.get(name) is not None]
    if not compiled:
        skip_law("numba compiles none of its functions, which run as Python")
    for _, split, name, arguments in subject.iter_calls(*compiled):
        value = subject.call(name, arguments)
        try:
            answer = made[name](*map(_copy_frozen, arguments))
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            answer = error
        if isinstance(answer, Exception) or not (
            abs(answer - value) <= split.noise + 1e-9 * abs(value)
        ):
            got = f"{value!r}, and compiled {answer!r}"
            break_law(format_call(name, *arguments), got, "the same")


def _copy_frozen(array: Any) -> Any:
    """Return a contiguous read-only copy, as kernels pass it."""
    copy = np.array(array, dtype=np.float64, order="C")
    copy.flags.writeable = False
    return copy


_TRAINED_ROWS, _PYTHON_ROWS = 20_000, 500
"""Rows of the table whose training is timed, and those if a function runs as Python."""

_TRAININGS = 3

_ONE_BY_ONE = (
    "cuts are scored one at a time; loops and arithmetic alone, such as x / max(weight, 1e-300) in "
    "place of a condition, may be two to eight times faster"
)


def _measure_functions(subject: CriterionSubject) -> Iterator[tuple[str, str]]:
    """Yield how each function that kernels call was compiled, and how long a training takes."""
    of = subject.countings[:2][-1]
    for name, (dispatcher, complaint, seconds) in subject.compiled.items():
        how = f"compiled in {seconds:.2f} s"
        if complaint is not None:
            how = f"runs as Python, much slower: {_format_complaint(complaint)}"
        if name == "score" and dispatcher is not None:
            function = subject.functions.score
            if not uses_vectors(function, dispatcher, of.size):
                how += f"; {_ONE_BY_ONE}"
        yield name, how
    runs_as_python = any(complaint is not None for _, complaint, _ in subject.compiled.values())
    yield "training", _time_training(subject, _PYTHON_ROWS if runs_as_python else _TRAINED_ROWS)


def _time_training(subject: CriterionSubject, rows: int) -> str:
    """Say how long a tree takes; for classes and numbers beside one of the built-in criterion."""
    by = subject.trainers[0]
    if by.table is not None:  # the criterion has a task, which no built-in one has
        dataset = by.make_dataset(by.table)
        return f"a tree on {by.table.rows:,} rows takes {_time_tree(dataset, by.parts):.2g} s"
    dataset = by.make_dataset(make_small_table(rows, max(by.classes), by.least))
    own = _time_tree(dataset, by.parts)
    built_in = "gini" if by.task == "classification" else "squared_error"
    parts = {key: value for key, value in by.parts.items() if not key.startswith("criterion")}
    base = _time_tree(dataset, {**parts, "criterion": built_in})
    return (
        f"a tree on {rows:,} rows of {len(dataset.columns)} columns takes {own:.2g} s, "
        f"{own / base:.2g} times as long as with {built_in}"
    )


def _time_tree(dataset: Dataset, parts: Mapping[str, Any]) -> float:
    """Return the seconds of a training; the least of a few, as others can only slow it down."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TreekitWarning)
        fit(dataset, dict(parts))  # may compile
        return min(timeit.repeat(lambda: fit(dataset, dict(parts)), number=1, repeat=_TRAININGS))


def _format_complaint(complaint: CompileFailure) -> str:
    """Format where numba stopped: ``file.py:12: `the line`: the reason``."""
    if not complaint.file:
        return complaint.reason
    line = linecache.getline(complaint.file, complaint.line).strip()
    source = f" `{line}`" if line else ""
    return f"{Path(complaint.file).name}:{complaint.line}:{source} {complaint.reason}"


# ---------------------------------------------------------------- trained trees


def _check_training(subject: CriterionSubject) -> None:
    """Train on every small table, with all settings that affect a criterion."""
    for by, table in iter_trainings(subject):
        train_tree(by, table)
        train_tree(by, table.with_columns("k"))
    for by, table in list(iter_trainings(subject))[::3]:
        train_tree(by, table, weighted=True, min_weight_leaf=0.0)
        train_tree(by, table, nominal_splits="multiway", empty_branches=True)
        train_tree(by, table, nominal_splits="one_vs_rest", max_leaves=4)
        train_tree(by, table, missing="fractional")


def _check_class_order(subject: CriterionSubject) -> None:
    """Declare the classes in another order; numeric columns only, as subsets depend on it."""
    if subject.trainers[0].task != "classification":
        skip_law("the target is a number")
    for by, table in iter_trainings(subject):
        numbers = table.with_columns("x", "z")
        names = by.vocabulary or []
        one, other = train_tree(by, numbers), train_tree(by, numbers, classes=names[::-1])
        changed = "with the classes declared in reverse"
        check_same_tree(by, numbers, changed, one, other, turned=True)


# ---------------------------------------------------------------- laws of a task's layout

MAX_SHOWN = 3
"""Maximum number of nodes whose statistics are written out."""

ANSWER = Law(
    "layout-answers-every-node",
    "`Layout.answer` of statistics (nodes, S) is (nodes, V): finite numbers, or weights of classes "
    "that are not negative.",
    "`answer`, and `names`: one for each number",
)


def _require_task(subject: CriterionSubject) -> None:
    if subject.layout is None:
        skip_law("it has no task")


def _stack_statistics(subject: CriterionSubject) -> Numbers:
    """Stack the statistics (nodes, S) of all examples, small nodes first."""
    return np.array([split.parent for of in subject.countings for split in make_examples(of)])


def _call_answer(subject: CriterionSubject, layout: Layout, stats: Numbers) -> Numbers:
    """Call a layout's `answer` for some nodes; raise `LawBroken` for any breach."""
    width = len(layout.names) or max(subject.trainers[0].classes)
    nodes, call, shape = stats.copy(), _format_call(stats), (len(stats), width)
    try:
        got = np.asarray(layout.answer(nodes))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        blame_error(call, error, f"{shape} numbers", ANSWERS)
    if not np.array_equal(nodes, stats):
        break_law(call, "its argument was changed", "its argument unchanged", law=WRITES)
    if got.shape != shape:
        break_law(call, f"an array of shape {got.shape}", f"{shape}", law=ANSWER)
    if not np.isfinite(got).all():
        bad = got[~np.isfinite(got).all(axis=1)][0]
        break_law(call, bad.tolist(), "finite numbers", law=FINITE)
    weights = (got >= 0.0).all(axis=1) & (got.sum(axis=1) > 0.0)
    if not layout.names and not weights.all():
        wanted = "weights of classes, not negative and not all 0"
        break_law(call, got[~weights][0].tolist(), wanted, law=ANSWER)
    return got.astype(np.float64)


def _format_call(stats: Numbers) -> str:
    if len(stats) <= MAX_SHOWN:
        return format_call("answer", stats)
    return f"answer(the statistics of {len(stats)} nodes)"


def _is_same_answer(one: Numbers, other: Numbers) -> bool:
    """Whether two results are equal, up to rounding."""
    largest = max(1e-300, float(np.abs(one).max(initial=0.0)))
    return bool(np.allclose(one, other, rtol=1e-9, atol=1e-9 * largest))


ALONE = Law(
    "layout-answers-each-node-alone",
    "The result of `Layout.answer` for a node depends neither on its position among the given "
    "nodes, nor on the other nodes.",
    "means, ranks and counts over all rows of `stats`: reduce along axis 1 only",
)


def _check_layout_answers(subject: CriterionSubject) -> None:
    """Test nodes alone, twice, in pairs, and all together in random order."""
    _require_task(subject)
    layout, stack = subject.layout, _stack_statistics(subject)
    alone = []
    for stats in stack:
        one, again = (_call_answer(subject, layout, stats[None, :])[0] for _ in range(2))
        if not _is_same_answer(one, again):
            got = f"{format_numbers(one)}, then {format_numbers(again)}"
            break_law(_format_call(stats[None, :]), got, "one result", law=REPEATS)
        alone.append(one)
    every = np.random.default_rng(0).permutation(len(stack))
    pairs = [np.array([i, i + 1]) for i in range(len(stack) - 1)]
    for order in (*pairs, every):
        for values, node in zip(_call_answer(subject, layout, stack[order]), order, strict=True):
            if not _is_same_answer(alone[node], values):
                calls = f"{_format_call(stack[order])}, and {_format_call(stack[node][None, :])}"
                got = (
                    f"{format_numbers(values)} for that node among others, and "
                    f"{format_numbers(alone[node])} alone"
                )
                break_law(calls, got, "the same", law=ALONE)


PLACE = Law(
    "layout-places-each-row-alone",
    "The place of a row by `Layout.place` depends neither on the other rows, nor on their order.",
    "values that `place` computes from all of its rows (their labels, their first one, their most "
    "frequent one): compute them in `lay_out`, from the training rows",
)


def _check_places(subject: CriterionSubject) -> None:
    """Place all rows, then single rows, halves of them, and all in another order."""
    _require_task(subject)
    dataset, table = _make_dataset(subject)
    placed = _place_rows(subject, subject.layout, dataset)
    n = dataset.n_rows
    every = np.random.default_rng(n).permutation(n)
    for rows in (*np.arange(n)[:, None], every[: n // 2], every[n // 2 :], every):
        some = _place_rows(subject, subject.layout, dataset.take(rows))
        away = ~np.isclose(some, placed[rows], rtol=1e-12, atol=0.0).reshape(len(rows), -1)
        if away.any():
            at = int(np.argmax(away.any(axis=1)))
            which = f"rows {rows[:9].tolist()}" + (" and more" if len(rows) > 9 else "")
            break_law(f"place({which} of {table})", f"row {rows[at]} at {format_numbers(some[at])}",
                   f"{format_numbers(placed[rows[at]])}, as with all {n} rows")  # fmt: skip


def _make_dataset(subject: CriterionSubject) -> tuple[Dataset, SmallTable]:
    by = subject.trainers[0]
    assert by.table is not None  # noqa: S101 - the criterion has a task
    return by.make_dataset(by.table), by.table


def _place_rows(subject: CriterionSubject, layout: Layout, dataset: Dataset) -> npt.NDArray[Any]:
    try:
        return place_rows(subject.record, layout, dataset)
    except (DataError, PluginError, SettingError) as error:
        call = f"place({dataset.n_rows} rows of {subject.trainers[0].table})"
        break_law(call, error, "the cell or the statistics of each row", law=ANSWERS)


def _check_repeated_layout(subject: CriterionSubject) -> None:
    """Fit the layout to the same rows again."""
    _require_task(subject)
    dataset, table = _make_dataset(subject)
    nodes = _stack_statistics(subject)[:1]
    layouts: list[Any] = [subject.layout]
    layouts.append(fit_layout(subject.record, subject.settings, dataset))
    first, second = (
        (layout.size, layout.names, _place_rows(subject, layout, dataset).tolist(),
         format_numbers(_call_answer(subject, layout, nodes)))
        for layout in layouts
    )  # fmt: skip
    names = ("size", "names", "places of rows", f"result of {_format_call(nodes)}")
    for name, a, b in zip(names, first, second, strict=True):
        if a != b:
            break_law(f"lay_out({table})", f"{name} {a!r:.80}, then {b!r:.80}", "one layout")


# ---------------------------------------------------------------- criteria with a task

TABLE_ROWS = 30
"""Number of rows of the table that a layout is fitted to."""

_MAKERS: tuple[Callable[[int], Any], ...] = (
    lambda k: float(k % 2),
    lambda k: ("control", "treated")[k % 2],
    lambda k: "abc"[k % 3],
    lambda k: 0.5 + k % 7,
)
"""Cells of a task's columns to try: two numbers, two labels, three labels, several numbers."""


def make_task_setup(
    record: Criterion, given: Mapping[str, Any], rows: Mapping[str, Sequence[Any]] | None
) -> CriterionSubject:
    """Find a table that the task accepts, and fit its layout; the functions are not made yet.

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
            "criterion", record, registry.settings_of(record, settings), task=task.target,
            classes=(classes,), least=1.0, beside={r: settings[r] for r in task.columns},
            table=table, answers=task.answers,
        )  # fmt: skip
        try:
            dataset = by.make_dataset(table)
            layout: Any = fit_layout(record, settings, dataset)
            placed = place_rows(record, layout, dataset)
        except (DataError, SettingError) as error:
            refused = refused or str(error)
            continue
        countings = (_make_counting(layout, placed),)
        return CriterionSubject(record, settings, None, layout, (by,), countings)
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
        for make in _MAKERS:
            cells = [make(int(k)) for k in picks]
            own = {settings[role]: cells for role in task.columns}
            yield base.with_target(base.target, own), classes


def _make_counting(layout: Layout, placed: npt.NDArray[Any]) -> Counting:
    """Count up to four rows with different places."""
    is_dense = placed.ndim == 2
    statistics = placed if is_dense else np.eye(layout.size)[placed]
    _, first = np.unique(statistics, axis=0, return_index=True)
    places = statistics[np.sort(first)[:4]]
    values = tuple(map(float, range(len(places))))
    return Counting(values, tuple(map(tuple, places.tolist())), dense=is_dense)


# ---------------------------------------------------------------- laws in order

GATES: Laws = (
    (_check_layout_answers, ANSWER, ALONE),
    (_check_places, PLACE),
    (_check_repeated_layout, REPEATS),
    (CriterionSubject.use_functions, ANSWERS, NUMBERS, FINITE, WRITES),
    (partial(check_invariance, change=keep_statistics), REPEATS),
)
LAWS: Laws = (
    (_check_purity, PURITY),
    (_check_not_negative, NOT_NEGATIVE),
    (_check_concave, CONCAVE),
    (_check_useless_splits, USELESS),
    (_check_larger_is_better, LARGER),
    (partial(check_invariance, change=double_weights, names=SCALED), DOUBLING),
    (_check_classes, CLASSES),
    (partial(_check_score_invariance, change=reverse_branches), BRANCHES),
    (partial(_check_score_invariance, change=add_empty_branch), EMPTY),
    (_check_loss, LOSS),
    (_check_choice, CHOICE),
    (_check_terms, TERMS),
    (_check_counts, COUNTS),
    (check_bounds, BOUNDS),
    (_check_compiled_equal, COMPILED),
)
TREE_LAWS: Laws = (
    (_check_training, TRAINS),
    (check_row_order, ROW_ORDER),
    (check_row_copies, ROW_COPIES),
    (check_doubled_weights, DOUBLING),
    (_check_class_order, CLASSES),
)
CRITERION_LAWS = (GATES, LAWS, TREE_LAWS)
