"""Survival predictions as step functions of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Curves", "curves", "curves_of"]

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curves:
    """Survival curves, one per row.

    Attributes
    ----------
    times : (T,) float64
        Ascending; a curve is 1 before the first.
    survival : (rows, T) float64
        Share without an event up to each time.
    risk : (rows,) float64
        The larger, the earlier the event.
    """

    times: Numbers
    survival: Numbers
    risk: Numbers

    def at(self, times: npt.ArrayLike) -> Numbers:
        """Evaluate the curves at any times: (rows, len(times)), constant after the last time."""
        passed = np.searchsorted(self.times, np.asarray(times, np.float64), "right")
        return np.hstack([np.ones((len(self.survival), 1)), self.survival])[:, passed]

    def quantile(self, share: float = 0.5) -> Numbers:
        """Return for each row the time by which a `share` of such rows has had the event.

        It is the first time at which the curve is at most ``1 - share``; infinity if it
        never is.

        Raises
        ------
        ValueError
            Unless 0 < share < 1.
        """
        if not 0.0 < share < 1.0:
            raise ValueError(f"share must be between 0 and 1, got {share!r}")
        below = self.survival <= 1.0 - share
        return np.where(below.any(axis=1), self.times[below.argmax(axis=1)], np.inf)

    def median(self) -> Numbers:
        """Return the median time to the event of each row; infinity if it is not reached."""
        return self.quantile(0.5)

    def mean(self, until: float) -> Numbers:
        """Return the restricted mean of each row: the area below its curve up to `until`."""
        inner = self.times[self.times < until]
        ends = np.concatenate([[0.0], inner, [until]])
        return np.asarray(self.at(ends[:-1]) @ np.diff(ends))


def curves(model: Any, rows: Any) -> Curves:
    """Predict the survival curves of a table.

    Parameters
    ----------
    model : treekit.Model
        Trained with a criterion of this package.
    rows : table
        Any table that ``model.predict`` accepts.
    """
    return curves_of(model.predict(rows), [output.name for output in model.schema.outputs])


def curves_of(predictions: npt.ArrayLike, names: Sequence[str]) -> Curves:
    """Convert predictions made elsewhere (ONNX, C, a file) to survival curves.

    Parameters
    ----------
    predictions : (rows, V) float64
    names : (V,) str
        ``risk`` and ``S(t)``, the output names of the artifact.

    Raises
    ------
    ValueError
        If the names are not those of a survival model.
    """
    if "risk" not in names or not all(n == "risk" or _is_share(n) for n in names):
        raise ValueError(
            f"the outputs {', '.join(map(repr, names[:3]))} are not 'risk' and 'S(t)': "
            "expected predictions of a model trained with a survival criterion"
        )
    values = np.asarray(predictions, np.float64).reshape(-1, len(names))
    at = [k for k, name in enumerate(names) if name != "risk"]
    times = np.array([float(names[k][2:-1]) for k in at])
    order = np.argsort(times)
    return Curves(times[order], values[:, at][:, order], values[:, list(names).index("risk")])


def _is_share(name: str) -> bool:
    return name.startswith("S(") and name.endswith(")")
