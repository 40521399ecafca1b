"""Time bins in which the rows of a survival table are counted.

A life table whose intervals end at event times and have equal numbers of events, as
far as ties allow. With an edge at each event time it is the product-limit estimate of
Kaplan and Meier (1958), without rounding. Otherwise an event counts at the end of its
bin, and a censored row counts as at risk for all of the bin's events or for none,
whichever is nearer: row by row, the half row of a life table (Cutler and Ederer 1958).

Cells run backwards in time, so that the rows at risk are a running sum:

==========  ==================================================================
cell        rows in it
==========  ==================================================================
0           passed all edges without an event
2k + 1      an event in bin k, after ``edges[k + 1]`` and not after ``edges[k]``
2k + 2      censored before bin k, and after the bins that are earlier
==========  ==================================================================

Empty cells may precede cell 0: a criterion is compiled for a number of cells, and
padding lets tables with a few more event times use the same compiled code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Timeline", "make_timeline"]

Numbers = npt.NDArray[np.float64]

_STEP = 64
"""The number of cells is a multiple of it, less 1; treekit keeps 63 (31 bins) on the stack."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """Time bins, the latest first.

    Attributes
    ----------
    edges : (bins,) float64
        End of each bin, an event time of the training rows; descending.
    middles : (bins,) float64
        Event time by which half of each bin's events have happened; rows censored from
        then on count as at risk for them.
    moments : (bins,) float64
        Distinct event times in each bin.
    unit : float
        Weight of one row: 1 if weights count rows, else their mean.
    """

    edges: Numbers
    middles: Numbers
    moments: Numbers
    unit: float

    @property
    def cells(self) -> int:
        """Number of cells S of a node's statistics, a multiple of 64 less 1."""
        return _STEP * (2 * len(self.edges) // _STEP + 1) - 1

    @property
    def empty(self) -> int:
        """Number of empty cells before cell 0."""
        return self.cells - 2 * len(self.edges) - 1

    def place(self, time: Numbers, event: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Return the cell of each row.

        A row with an event after the last edge, possible for held-out rows, counts as
        having passed all edges without one.
        """
        passed = np.where(
            event,
            np.searchsorted(self.edges[::-1], time, "left"),
            np.searchsorted(self.middles[::-1], time, "right"),
        )
        return np.asarray(self.empty + np.maximum(2 * (len(self.edges) - passed) - event, 0))

    def hazards(self, stats: Numbers) -> Numbers:
        """Compute the share of the rows at risk that have the event in each bin, (nodes, bins).

        It is 0 in bins where a node has no rows at risk: its curve stays constant.
        """
        own = stats[:, self.empty :]
        events, at_risk = own[:, 1::2], own.cumsum(axis=1)[:, 1::2]
        share = np.divide(events, at_risk, out=np.zeros_like(events), where=events > 0.0)
        return np.minimum(share, 1.0)

    def lived(self, stats: Numbers) -> Numbers:
        """Compute the cumulative hazard that a row of each cell lived through, (S,).

        The estimate of Nelson (1972) and Aalen (1978) at the rates of a node with
        statistics `stats` (S,). Its sum over the node's rows is their number of events.
        """
        hazard = self.hazards(stats[None])[0]
        through = np.append(hazard[::-1].cumsum()[::-1], 0.0)
        lived = np.repeat(through, 2)[:-1]
        return np.concatenate([np.zeros(self.empty), lived])


def make_timeline(
    time: Numbers, event: npt.NDArray[np.bool_], weights: Numbers | None, bins: int
) -> Timeline:
    """Make bins that hold equal shares of the events, as far as ties allow.

    Parameters
    ----------
    time : (rows,) float64
    event : (rows,) bool
        At least one true.
    weights : (rows,) float64, or None = 1
        A row of integer weight w counts as w rows.
    bins : int
        Largest number of bins; 0, or at least the number of event times: one for each.
    """
    w = np.ones(len(time)) if weights is None else weights
    # Sort by weight, too: sums must not depend on the order of the rows.
    order = np.lexsort((w, time))
    order = order[event[order] & (w[order] > 0.0)]
    moments, where = np.unique(time[order], return_inverse=True)
    until = np.bincount(where, w[order]).cumsum()
    ends = np.arange(len(moments))
    if 0 < bins < len(moments):
        ends = np.unique(np.searchsorted(until * bins, until[-1] * np.arange(1, bins + 1)))
    before = np.append(0.0, until[ends[:-1]])
    middles = moments[np.searchsorted(2.0 * until, before + until[ends])]
    return Timeline(
        edges=moments[ends][::-1],
        middles=middles[::-1],
        moments=np.diff(ends, prepend=-1)[::-1].astype(np.float64),
        unit=_unit(w),
    )


def _unit(w: Numbers) -> float:
    counts = w[w > 0.0]
    return 1.0 if np.all(counts == np.floor(counts)) else float(np.sort(counts).mean())
