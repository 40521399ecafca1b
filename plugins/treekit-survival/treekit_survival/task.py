"""The task `survival`: a time, whether it ended in an event, and curves as answers."""

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
"""Bins of time up to which the statistics of a node are kept within treekit's bounds."""

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
"""Labels of censored rows and of events that are known as such, in any case."""


def lay_out(
    target: TaskColumn, columns: Mapping[str, TaskColumn], *, occurred: str, bins: int
) -> Layout:
    """Count rows by the bin of their time, and whether it ended in an event.

    Leaves answer by the product-limit estimate of Kaplan and Meier (1958) of their rows.

    Parameters
    ----------
    target : TaskColumn
        Time of the event or, where there was none, of the last look.
    columns : mapping
        ``event``: whether there was one.
    occurred : str
        Its label of an event; empty: one of the pairs that are known.
    bins : int
        Of time, at most; 0: one for each distinct event time.

    Raises
    ------
    DataError
        For a negative time, labels that are not understood, or no event at all.
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
    """Sum up events and the hazard lived through; see `treekit_survival.deviance`.

    Leaves answer by the curve of all rows to the power of their rate.  Settings and
    errors are those of `lay_out`; the bins only say where curves are given.
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
    """The timeline of the training rows, and their statistics (S,)."""
    (time, event), w = outcome.read(target, columns), target.weights
    if not (event if w is None else event & (w > 0.0)).any():
        raise DataError(
            f"no row had its event, says the column {columns['event'].name!r}, which holds "
            f"{', '.join(map(repr, columns['event'].labels[:5]))}; survival is learned from "
            "events: name their label by criterion.occurred"
        )
    line = make_timeline(time, event, w, bins)
    if limit and len(line.edges) > limit:
        raise DataError(
            f"{len(line.edges)} event times are too many for a bin each; set criterion.bins to a "
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
    """The shortest numeral that reads back to the same time."""
    return repr(int(time)) if time == math.floor(time) and time < 2.0**53 else repr(time)


class _Outcome:
    """How the time and the event column of a table are read, settled by the training rows."""

    def __init__(self, column: TaskColumn, occurred: str) -> None:
        self.labels, self.happened = _labels(column, occurred)

    def read(
        self, target: TaskColumn, columns: Mapping[str, TaskColumn]
    ) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """(rows,) times, and whether each ended in an event."""
        time = target.values.astype(np.float64)
        if (time < 0.0).any():
            row = int((time < 0.0).argmax())
            raise DataError(
                f"the time {target.name!r} is {time[row]:g} in row {row} (counting from 0); "
                "times count from the start and are not negative: correct or drop such rows"
            )
        codes = columns["event"].codes(self.labels)
        at = self.labels.index(self.happened) if self.happened in self.labels else -1
        return time, np.asarray(codes == at)


def _labels(column: TaskColumn, occurred: str) -> tuple[tuple[Any, ...], Any]:
    """Labels that the event column may hold, and the one of an event.

    Numbers may be both of a known pair, though the training rows hold but one.
    """
    labels = column.labels
    told = {_plain(label): label for label in labels}
    if occurred:
        if _plain(occurred) not in told:
            raise DataError(
                f"criterion.occurred is {occurred!r}, but the event column {column.name!r} holds "
                + ", ".join(map(repr, labels))
            )
        return labels, told[_plain(occurred)]
    for pair in _PAIRS:
        if told.keys() <= set(pair):
            if column.levels:
                return labels, told.get(pair[1])
            return tuple(map(float, pair)), float(pair[1])
    raise DataError(
        f"the event column {column.name!r} holds {', '.join(map(repr, labels[:5]))}"
        f"{', ...' if len(labels) > 5 else ''}, of which none is known to stand for an event; "
        "name it by criterion.occurred"
    )


def _plain(label: Any) -> str:
    """A label as people write it: ``1`` for 1.0, ``true`` for True and "TRUE"."""
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label).strip().lower()


_SETTINGS = (
    Setting("event", "event", "column that says whether the time ended in an event"),
    Setting("occurred", "", "label of an event in that column; empty: 1, yes, true or dead"),
    Setting(
        "bins",
        30,
        "bins of time, each with as many events; 0: one for each event time",
        minimum=0,
        maximum=MOST_BINS,
    ),
)

SURVIVAL = Task("survival", "regression", "regression", lay_out, ("event",), _SETTINGS)
"""Answers: ``risk``, the events that rows of such a hazard would have at all event times
together (mortality: Ishwaran et al. 2008), and ``S(t)``, the share without an
event up to t, at the end of each bin."""

PROPORTIONAL = Task(
    "proportional-hazards", "regression", "regression", lay_out_rates, ("event",), _SETTINGS
)
"""The same answers, of hazards in proportion to that of all rows."""
