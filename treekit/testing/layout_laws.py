"""Laws of a task's layout: what `lay_out`, `place` and `answer` depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.contracts import Layout
from treekit.data.dataset import Dataset
from treekit.errors import DataError, PluginError, SettingError
from treekit.record_checks import task_of
from treekit.testing.calls import ANSWERS, FINITE, REPEATS, WRITES, look_at, said_by
from treekit.testing.examples import examples, shown_call, shown_numbers
from treekit.testing.laws import Test, broken
from treekit.testing.report import Law
from treekit.training.tasks import fit_layout, place_rows

__all__ = ["LAYOUT_GATES"]

Numbers = npt.NDArray[np.float64]

SHOWN = 3
"""Nodes up to which a stack of statistics is written out."""

ANSWER = Law(
    "layout-answers-every-node",
    "`Layout.answer` of statistics (nodes, S) is (nodes, V): finite numbers, or weights of classes "
    "that are not negative.",
    "`answer`, and `names`: one for each number",
)


def _stack(subject: Any) -> Numbers:
    """Statistics (nodes, S) of small nodes first."""
    return np.array([split.parent for of in subject.countings for split in examples(of)])


def _told(subject: Any, layout: Layout, stats: Numbers) -> Numbers:
    """What a layout answers of some nodes, with a breach for all that it may not."""
    task = task_of(subject.record)
    width = len(layout.names)
    if task is not None and task.answers == "classification":
        width = max(subject.trainer.classes)
    nodes = stats.copy()
    call = _call(stats)
    try:
        told = np.asarray(layout.answer(nodes))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        broken(call, said_by(error), f"({len(stats)}, {width}) numbers", law=ANSWERS.name,
               look=look_at(error, ANSWERS))  # fmt: skip
    if not np.array_equal(nodes, stats):
        broken(call, "its argument was changed", "its argument as it was", law=WRITES.name)
    if told.shape != (len(stats), width):
        broken(call, f"an array of shape {told.shape}", f"({len(stats)}, {width})", law=ANSWER.name)
    if not np.isfinite(told).all():
        bad = told[~np.isfinite(told).all(axis=1)][0]
        broken(call, bad.tolist(), "finite numbers", law=FINITE.name)
    if not layout.names:
        weights = (told >= 0.0).all(axis=1) & (told.sum(axis=1) > 0.0)
        if not weights.all():
            broken(call, told[~weights][0].tolist(),
                   "weights of classes, not negative and not all 0", law=ANSWER.name)  # fmt: skip
    return told.astype(np.float64)


def _call(stats: Numbers) -> str:
    if len(stats) <= SHOWN:
        return shown_call("answer", stats)
    return f"answer(the statistics of {len(stats)} nodes)"


def _same(one: Numbers, other: Numbers) -> bool:
    """Whether two answers are one, but for the rounding of sums of another length."""
    largest = max(1e-300, float(np.abs(one).max(initial=0.0)))
    return bool(np.allclose(one, other, rtol=1e-9, atol=1e-9 * largest))


def _answers(subject: Any) -> None:
    """Ask about one node at a time."""
    for stats in _stack(subject):
        _told(subject, subject.layout, stats[None, :])


ALONE = Law(
    "layout-answers-each-node-alone",
    "What `Layout.answer` says of a node depends neither on its place among the nodes that are "
    "asked about, nor on the others.",
    "means, ranks and numbers of rows of `stats` as a whole: reduce along axis 1 only",
)


def _alone(subject: Any) -> None:
    """Ask about nodes alone, twice, in pairs and all of them in some order."""
    layout, stack = subject.layout, _stack(subject)
    alone = []
    for stats in stack:
        one, again = (_told(subject, layout, stats[None, :])[0] for _ in range(2))
        if not _same(one, again):
            broken(_call(stats[None, :]), f"{shown_numbers(one)}, then {shown_numbers(again)}",
                   "one answer", law=REPEATS.name)  # fmt: skip
        alone.append(one)
    every = np.random.default_rng(0).permutation(len(stack))
    pairs = [np.array([i, i + 1]) for i in range(len(stack) - 1)]
    for order in (*pairs, every):
        for said, node in zip(_told(subject, layout, stack[order]), order, strict=True):
            if not _same(alone[node], said):
                broken(f"{_call(stack[order])}, and {_call(stack[node][None, :])}",
                       f"{shown_numbers(said)} of that node among others, and "
                       f"{shown_numbers(alone[node])} alone", "the same")  # fmt: skip


PLACE = Law(
    "layout-places-each-row-alone",
    "Where `Layout.place` puts a row depends neither on the other rows, nor on their order.",
    "what `place` takes from its rows as a whole (their labels, their first one, their most "
    "frequent one): settle that in `lay_out`, from the training rows",
)


def _places(subject: Any) -> None:
    """Place all rows, and then one at a time, halves of them, and all in another order."""
    dataset = _dataset(subject)
    placed = _placed(subject, subject.layout, dataset)
    n = dataset.n_rows
    every = np.random.default_rng(n).permutation(n)
    for rows in (*np.arange(n)[:, None], every[: n // 2], every[n // 2 :], every):
        some = _placed(subject, subject.layout, dataset.take(rows))
        away = ~np.isclose(some, placed[rows], rtol=1e-12, atol=0.0).reshape(len(rows), -1)
        if away.any():
            at = int(np.argmax(away.any(axis=1)))
            which = f"rows {rows[:9].tolist()}" + (" and more" if len(rows) > 9 else "")
            broken(f"place({which} of {subject.trainer.table})",
                   f"row {rows[at]} at {shown_numbers(some[at])}",
                   f"{shown_numbers(placed[rows[at]])}, as among all {n} rows")  # fmt: skip


def _dataset(subject: Any) -> Dataset:
    made: Dataset = subject.trainer.dataset(subject.trainer.table)
    return made


def _placed(subject: Any, layout: Layout, dataset: Dataset) -> npt.NDArray[Any]:
    try:
        return place_rows(subject.record, layout, dataset)
    except (DataError, PluginError, SettingError) as error:
        broken(f"place({dataset.n_rows} rows of {subject.trainer.table})", error,
               "the cell or the statistics of each", law=ANSWERS.name)  # fmt: skip


def _again(subject: Any) -> None:
    """Lay out the same rows again."""
    dataset, stack = _dataset(subject), _stack(subject)
    call = f"lay_out({subject.trainer.table})"
    one = subject.layout
    other = fit_layout(subject.record, subject.settings, dataset)
    assert other is not None  # noqa: S101 - the criterion has a task
    for name in ("size", "names"):
        if getattr(one, name) != getattr(other, name):
            got = f"{name} {getattr(one, name)!r}, then {getattr(other, name)!r}"
            broken(call, got, "one layout")
    placed, moved = (_placed(subject, layout, dataset) for layout in (one, other))
    if not np.array_equal(placed, moved):
        broken(call, "rows in other places the second time", "one layout")
    said, changed = (_told(subject, layout, stack[:1])[0] for layout in (one, other))
    if not _same(said, changed):
        got = f"{shown_numbers(said)}, then {shown_numbers(changed)} for {_call(stack[:1])}"
        broken(call, got, "one layout")


LAYOUT_GATES: tuple[tuple[Law, Test], ...] = (
    (ANSWER, _answers),
    (ALONE, _alone),
    (PLACE, _places),
    (REPEATS, _again),
)
