"""The task `survival`: times with an event flag as target, survival curves as predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit import DataError, Layout, Setting, Task, TaskColumn
from treekit_survival.timeline import Timeline, make_timeline

__all__ = ["MOST_BINS", "PROPORTIONAL", "SURVIVAL", "lay_out", "lay_out_rates"]

Numbers = npt.NDArray[np.float64]

MOST_BINS = 2000
"""Largest number of bins whose statistics fit into treekit's limit for a node."""

_PAIRS = (
    ("0", "1"),
    ("1", "2"),
    ("false", "true"),
    ("no", "yes"),
    ("n", "y"),
    ("f", "t"),
    ("censored", "event"),
    ("censored", "dead"),
    ("alive", "dead"),
)
"""Recognised labels of censored rows and of events, in upper or lower case."""


def lay_out(
    target: TaskColumn, columns: Mapping[str, TaskColumn], *, occurred: str, bins: int
) -> Layout:
    """Lay out statistics that count rows by time bin and event.

    Leaf values are the product-limit estimate of Kaplan and Meier (1958) of the leaf's rows.

    Parameters
    ----------
    target : TaskColumn
        Time of the event or of censoring.
    columns : mapping
        ``event``: whether the time ended in an event.
    occurred : str
        Label of an event in that column; empty: a recognised one.
    bins : int
        Largest number of time bins; 0: one for each distinct event time.

    Raises
    ------
    DataError
        For a negative time, unrecognised labels, or a table without events.
    """
    outcome = _Outcome(columns["event"], occurred)
    line, root = _all_rows(target, columns, outcome, bins, MOST_BINS)

    def place(target: TaskColumn, columns: Mapping[str, TaskColumn]) -> npt.NDArray[np.int64]:
        return line.place(*outcome.read(target, columns))

    def answer(stats: Numbers) -> Numbers:
        hazard = line.hazards(stats)[:, ::-1]
        risk = hazard.cumsum(axis=1) @ line.moments[::-1]
        return np.column_stack([risk, (1.0 - hazard).cumprod(axis=1)])

    return Layout(line.cells, place, answer, _names(line), (line.unit, line.lived(root)))


def lay_out_rates(
    target: TaskColumn, columns: Mapping[str, TaskColumn], *, occurred: str, bins: int
) -> Layout:
    """Lay out sums of events and cumulative hazards; see `treekit_survival.deviance`.

    Leaf values are the curve of all rows to the power of the leaf's rate. Settings and
    errors are those of `lay_out`; the bins only set the times of the curves.
    """
    outcome = _Outcome(columns["event"], occurred)
    line, _ = _all_rows(target, columns, outcome, bins, MOST_BINS)
    fine, every = _all_rows(target, columns, outcome, 0)
    lived = fine.lived(every)
    hazard = np.append(0.0, lived[1::2][::-1])[
        np.searchsorted(fine.edges[::-1], line.edges[::-1], "right")
    ]
    mortality = lived[1::2].sum()

    def place(target: TaskColumn, columns: Mapping[str, TaskColumn]) -> Numbers:
        time, event = outcome.read(target, columns)
        through = lived[fine.place(time, event)]
        logarithm = np.log(np.where(event & (through > 0.0), through, 1.0))
        return np.column_stack([np.ones(len(time)), event, through, logarithm])

    def answer(stats: Numbers) -> Numbers:
        rate = np.divide(stats[:, 1], stats[:, 2], out=np.zeros(len(stats)), where=stats[:, 2] > 0)
        return np.column_stack([rate * mortality, np.exp(-rate[:, None] * hazard)])

    return Layout(4, place, answer, _names(line))


def _all_rows(
    target: TaskColumn,
    columns: Mapping[str, TaskColumn],
    outcome: _Outcome,
    bins: int,
    limit: int = 0,
) -> tuple[Timeline, Numbers]:
    """Return the timeline of the training rows and their statistics (S,)."""
    (time, event), w = outcome.read(target, columns), target.weights
    if not (event if w is None else event & (w > 0.0)).any():
        raise DataError(
            f"no row has an event: column {columns['event'].name!r} holds "
            f"{', '.join(map(repr, columns['event'].labels[:5]))}; set criterion.occurred to "
            "the label of an event"
        )
    line = make_timeline(time, event, w, bins)
    if limit and len(line.edges) > limit:
        raise DataError(
            f"too many event times for one bin each: {len(line.edges)}; set criterion.bins to a "
            f"number from 1 to {limit}"
        )
    placed = line.place(time, event)
    if w is None:
        return line, np.bincount(placed, minlength=line.cells).astype(np.float64)
    order = np.lexsort((w, placed))  # sums must not depend on the order of the rows
    return line, np.bincount(placed[order], w[order], line.cells)


def _names(line: Timeline) -> tuple[str, ...]:
    return ("risk", *(f"S({_written(edge)})" for edge in line.edges[::-1].tolist()))


def _written(time: float) -> str:
    """Return the shortest decimal that parses to the same time."""
    return repr(int(time)) if time == math.floor(time) and time < 2.0**53 else repr(time)


class _Outcome:
    """Reader of time and event columns, with the labels of the training rows."""

    def __init__(self, column: TaskColumn, occurred: str) -> None:
        self.labels, self.happened = _labels(column, occurred)

    def read(
        self, target: TaskColumn, columns: Mapping[str, TaskColumn]
    ) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Return the times and whether each ended in an event, (rows,) each."""
        time = target.values.astype(np.float64)
        if (time < 0.0).any():
            row = int((time < 0.0).argmax())
            raise DataError(
                f"time {target.name!r} is {time[row]:g} in row {row} (counting from 0); "
                "times must not be negative: correct or drop such rows"
            )
        codes = columns["event"].codes(self.labels)
        at = self.labels.index(self.happened) if self.happened in self.labels else -1
        return time, np.asarray(codes == at)


def _labels(column: TaskColumn, occurred: str) -> tuple[tuple[Any, ...], Any]:
    """Return the labels that the event column may hold, and the label of an event.

    Numbers may be both of a recognised pair, even if the training rows hold only one.
    """
    labels = column.labels
    by_text = {_plain(label): label for label in labels}
    if occurred:
        if _plain(occurred) not in by_text:
            raise DataError(
                f"criterion.occurred is {occurred!r}, but event column {column.name!r} holds "
                + ", ".join(map(repr, labels))
            )
        return labels, by_text[_plain(occurred)]
    for pair in _PAIRS:
        if by_text.keys() <= set(pair):
            if column.levels:
                return labels, by_text.get(pair[1])
            return tuple(map(float, pair)), float(pair[1])
    raise DataError(
        f"event column {column.name!r} holds {', '.join(map(repr, labels[:5]))}"
        f"{', ...' if len(labels) > 5 else ''}: no recognised label of an event; "
        "set criterion.occurred to it"
    )


def _plain(label: Any) -> str:
    """Return a label in normal form: ``1`` for 1.0, ``true`` for True and "TRUE"."""
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label).strip().lower()


_SETTINGS = (
    Setting("event", "event", "column that holds whether the time ended in an event"),
    Setting("occurred", "", "label of an event in that column; empty: 1, yes, true or dead"),
    Setting(
        "bins",
        30,
        "number of time bins with equal numbers of events; 0: one for each event time",
        minimum=0,
        maximum=MOST_BINS,
    ),
)

SURVIVAL = Task("survival", "regression", "regression", lay_out, ("event",), _SETTINGS)
"""Predictions: ``risk``, the number of events expected at all event times together under
the leaf's hazard (mortality: Ishwaran et al. 2008), and ``S(t)``, the share without an
event up to t, at the end of each bin."""

PROPORTIONAL = Task(
    "proportional-hazards", "regression", "regression", lay_out_rates, ("event",), _SETTINGS
)
"""The same predictions, with hazards proportional to that of all rows."""
