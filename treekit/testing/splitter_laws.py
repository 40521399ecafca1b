"""Laws of a splitter's `find`, judged by calling it as plain Python on nodes made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treekit.contracts import Splitter, SplitterFunctions
from treekit.splitting import Split, branch_stats, code_range
from treekit.testing.calls import ANSWERS, WRITES, look_at, said_by
from treekit.testing.laws import Test, broken, inapplicable
from treekit.testing.nodes import Prepared, prepared, prepared_nodes
from treekit.testing.report import Law
from treekit.testing.tables import small_table
from treekit.testing.training import LEAF_WEIGHT

__all__ = ["CLAIMED", "FEATURES", "FIND_LAWS", "REPEATS", "Subject"]


SEEDS = 3
"""States of the generator with which `find` is asked about each node."""


@dataclass(frozen=True)
class Subject:
    """A splitter and its functions."""

    record: Splitter
    functions: SplitterFunctions
    settings: dict[str, Any]
    proposed: list[tuple[Prepared, Any, str]] = field(default_factory=list)

    @property
    def is_python(self) -> bool:
        """Whether `find` is a plugin's, not one of treekit's kernels."""
        from treekit.kernels.compile import Finder

        return not isinstance(self.functions.find, Finder)

    def proposals(self) -> list[tuple[Prepared, Any, str]]:
        """Nodes, what `find` proposes for each, and the call; every one is asked once."""
        if not self.is_python:
            inapplicable("its search is a kernel of treekit's own, judged by the trees it grows")
        if not self.proposed:
            self.proposed.extend(
                (made, self.find(made, seed), f"find({made.text}, rng of seed {seed})")
                for made in prepared_nodes(self.functions)
                for seed in range(SEEDS)
            )
        return self.proposed

    def find(self, made: Prepared, seed: int) -> Any:
        """What `find` answers, with breaches for raising and for writing."""
        core = getattr(self.functions.find, "py_func", self.functions.find)
        before = _copied(made.node)
        call = f"find({made.text}, rng of seed {seed})"
        try:
            split = core(made.node, made.judge, np.random.default_rng(seed))
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            broken(call, said_by(error), "a split, or None", law=ANSWERS.name,
                   look=look_at(error, ANSWERS))  # fmt: skip
        for name, array in _arrays(made.node):
            if not np.array_equal(array, before[name], equal_nan=True):
                broken(call, f"node.{name} was changed", "the node as it was", law=WRITES.name)
        return split


def _arrays(node: Any) -> list[tuple[str, Any]]:
    found = [(f"table.{name}", array) for name, array in node.table._asdict().items()]
    found += [(f"rows.{name}", array) for name, array in node.rows._asdict().items()]
    return [*found, ("stats", node.stats)]


def _copied(node: Any) -> dict[str, Any]:
    return {name: array.copy() for name, array in _arrays(node)}


def _all(subject: Subject) -> None:
    for _ in subject.proposals():
        pass


PROPOSES = Law(
    "returns-a-split-or-none",
    "`find` returns a Split made by the functions of treekit.splitting, or None for a leaf.",
    "each `return` of `find`",
)


def _proposes(subject: Subject) -> None:
    for _, split, call in subject.proposals():
        if split is not None and not isinstance(split, Split):
            broken(call, repr(split)[:80], "a treekit.splitting.Split, or None")


SCORED = Law(
    "finite-values",
    "The score of a split is neither NaN nor infinite.",
    "0 / 0 and log(0) on the way to `scored(split, score)`",
)


def _splits(subject: Subject) -> Iterator[tuple[Prepared, Split, str]]:
    """The proposals that are splits at all; what is not one belongs to another law."""
    for made, split, call in subject.proposals():
        if isinstance(split, Split):
            yield made, split, call


def _scored(subject: Subject) -> None:
    for _, split, call in _splits(subject):
        if not np.isfinite(split.score):
            broken(call, f"score {split.score}", "a finite number")


REPEATS = Law(
    "reproducible-by-its-rng",
    "The same node and the same state of `rng` give the same split.",
    "np.random, random, sets, time: draw from `rng` only",
)


def _repeats(subject: Subject) -> None:
    for seed, (made, split, call) in enumerate(subject.proposals()):
        again = subject.find(made, seed % SEEDS)
        if str(again) != str(split):
            broken(call, f"{split}, then {again}", "one split")


LEGAL = Law(
    "split-fits-its-column",
    "A split asks a column of the table in a way that suits it, and says where missing rows go.",
    "the kind of split (numbers: threshold; levels: level_split), `levels`, `missing`, `branches`",
)


def _legal(subject: Subject) -> None:
    for made, split, call in _splits(subject):
        problem = _problem(made, split, subject.functions)
        if problem:
            broken(call, problem, "a split of one of the node's columns")


def _problem(made: Prepared, split: Split, functions: SplitterFunctions) -> str:
    table = made.node.table
    if not 0 <= split.feature < len(table.n_codes):
        return f"column {split.feature} of {len(table.n_codes)}"
    if split.kind == 5:
        declared = functions.sums
        return "" if declared else "a sum of columns, which SplitterFunctions(sums=True) declares"
    if split.kind == 6 and not functions.intervals:
        return "a split on intervals, which SplitterFunctions(intervals=True) declares"
    if split.kind not in (1, 2, 3, 4, 6):
        return f"kind {split.kind}"
    nominal = table.nominal[split.feature] > 0
    if split.kind in (2, 3):
        if not nominal:
            return f"levels of the numeric column {made.names[split.feature]!r}"
        if len(split.levels) != table.n_codes[split.feature]:
            return f"{len(split.levels)} levels of {table.n_codes[split.feature]}"
        if ((split.levels < -1) | (split.levels >= split.branches)).any():
            return f"levels {split.levels.tolist()} of {split.branches} branches"
    if split.kind in (1, 6) and nominal:
        return f"a threshold of the nominal column {made.names[split.feature]!r}"
    if not -1 <= split.missing < split.branches:
        return f"missing rows sent to branch {split.missing} of {split.branches}"
    return ""


def _legal_splits(subject: Subject) -> Iterator[tuple[Prepared, Split, str]]:
    for made, split, call in _splits(subject):
        if not _problem(made, split, subject.functions):
            yield made, split, call


THRESHOLD = Law(
    "threshold-lies-in-the-node",
    "A threshold separates two values that the node holds, and lies between them.",
    "`code_range(node, feature)`: the cut is one of low .. high - 1; `threshold` below the next",
)


def _threshold(subject: Subject) -> None:
    for made, split, call in _legal_splits(subject):
        if split.kind == 1 and (problem := _misplaced(made, split)):
            broken(call, problem, "a cut within the node's values")


def _misplaced(made: Prepared, split: Split) -> str:
    low, high, _ = code_range(made.node, split.feature)
    if not low <= split.cut < high:
        return f"cut {split.cut}; the node holds codes {low} to {high}"
    table = made.node.table
    at = table.value_start[split.feature] + split.cut
    if np.isnan(split.threshold) or table.high[at] <= split.threshold < table.low[at + 1]:
        return ""
    return f"threshold {split.threshold}, not in {table.high[at]:g} <= t < {table.low[at + 1]:g}"


def _placed(subject: Subject) -> Iterator[tuple[Prepared, Split, str]]:
    """Splits that have a place in the node."""
    for made, split, call in _legal_splits(subject):
        if split.kind != 1 or not _misplaced(made, split):
            yield made, split, call


EMPTY = Law(
    "no-branch-is-empty",
    "Each branch of a split receives rows of the node.",
    "levels that are absent at the node are -1; missing-or-not needs rows of both kinds",
)


def _empty(subject: Subject) -> None:
    for made, split, call in _placed(subject):
        weights = made.weights(made.children(split))
        if not (weights > 0.0).all():
            broken(call, f"branches of weight {weights.tolist()}", "rows in each")


def _leaf_weight(subject: Subject) -> None:
    for made, split, call in _placed(subject):
        children = made.children(split)
        weights = made.weights(children)
        heavy = int((weights >= made.node.min_weight_leaf).sum())
        if heavy < 2 and (weights > 0.0).all():
            broken(call, f"branches of weight {weights.tolist()}",
                   f"two of at least {made.node.min_weight_leaf:g}")  # fmt: skip


CLAIMED = Law(
    "claimed-score-is-the-criterion-s",
    "The score that a split claims is criterion.score of the branches that it makes.",
    "`scored(split, criterion.score(node.stats, branch_stats(node, split)))`, after missing_to",
)


def _claimed(subject: Subject) -> None:
    for made, split, call in _placed(subject):
        if not np.isfinite(split.score):
            continue
        wanted = [
            made.score(made.node.stats, children)
            for children in (made.children(split), branch_stats(made.node, split))
        ]
        if not any(abs(split.score - w) <= 1e-9 * max(1.0, abs(w)) for w in wanted):
            broken(call, f"score {split.score!r}", repr(float(wanted[0])))


FEATURES = Law(
    "max-features-is-obeyed",
    "Of `node.n_try` columns that are not constant the best is taken, drawn anew at each node.",
    "`draw_features(node, rng)`: stop after n_try columns that were not constant",
)


def _features(subject: Subject) -> None:
    if not subject.is_python:
        inapplicable("its search is a kernel of treekit's own, judged by the trees it grows")
    made = prepared(
        small_table(80, 2).with_columns("x", "z", "c"), "classification", subject.functions, n_try=1
    )
    assert made is not None  # noqa: S101 - a table of 80 rows is no bad one
    splits = [subject.find(made, seed) for seed in range(40)]
    asked = {split.feature for split in splits if isinstance(split, Split)}
    if len(asked) == 1 and all(split is not None for split in splits):
        name = made.names[asked.pop()]
        broken(f"find({made.text}, rng of seed 0 to 39)", f"column {name!r} every time",
               "now one column, now another")  # fmt: skip


FINDS = Law(
    "finds-what-separates",
    "Where one column tells the classes apart, a split is found.",
    "the conditions under which `find` returns None",
)


def _finds(subject: Subject) -> None:
    if not subject.is_python:
        inapplicable("its search is a kernel of treekit's own, judged by the trees it grows")
    table = small_table(80, 2)
    apart = [0.0 if label == "class 0" else 1.0 for label in table.target]
    clear = type(table)({"x": apart}, table.target, table.weights, "80 rows, x = the class")
    made = prepared(clear, "classification", subject.functions)
    assert made is not None  # noqa: S101 - as above
    if all(subject.find(made, seed) is None for seed in range(10)):
        broken(f"find({made.text})", "None", "a split of x")


FIND_LAWS: tuple[tuple[Law, Test], ...] = (
    (ANSWERS, _all),
    (WRITES, _all),
    (PROPOSES, _proposes),
    (SCORED, _scored),
    (REPEATS, _repeats),
    (LEGAL, _legal),
    (THRESHOLD, _threshold),
    (EMPTY, _empty),
    (LEAF_WEIGHT, _leaf_weight),
    (CLAIMED, _claimed),
    (FEATURES, _features),
    (FINDS, _finds),
)
