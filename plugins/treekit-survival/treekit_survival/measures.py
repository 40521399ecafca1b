"""Measures of survival predictions: concordance and the Brier score.

Times and events are arrays with one entry per row; an event is true or 1 if the time
ended in an event, and false or 0 if it was censored.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["brier_score", "concordance", "integrated_brier_score", "kaplan_meier"]

Numbers = npt.NDArray[np.float64]
Truths = npt.NDArray[np.bool_]
Pair = tuple[npt.ArrayLike, npt.ArrayLike]


def kaplan_meier(time: npt.ArrayLike, event: npt.ArrayLike) -> tuple[Numbers, Numbers]:
    """Return the distinct event times and the survival from each on (Kaplan and Meier 1958).

    Returns
    -------
    times, survival : (T,) float64
    """
    time, event = _followed(time, event)
    moments, where = np.unique(time[event], return_inverse=True)
    events = np.bincount(where, minlength=len(moments))
    at_risk = len(time) - np.searchsorted(np.sort(time), moments, "left")
    return moments, np.cumprod(1.0 - events / at_risk)


def concordance(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    risk: npt.ArrayLike,
    *,
    censoring: Pair | None = None,
    until: float = np.inf,
) -> float:
    """Return the share of pairs of rows whose risks have the order of their times; chance is 0.5.

    A pair counts if the earlier time ended in an event; of two equal times, an event
    precedes a censored one. Equal risks count one half (Harrell, Califf, Pryor, Lee and
    Rosati 1982; Harrell, Lee and Mark 1996).

    Parameters
    ----------
    time : (rows,) numbers
    event : (rows,) truth values, or 0 and 1
    risk : (rows,) numbers
        The larger, the earlier the event.
    censoring : (time, event), optional
        Those of the training rows. Each pair then has the weight ``1 / G(t)**2``, with G
        the share not censored before t, so that the result does not depend on the
        censoring (Uno, Cai, Pencina, D'Agostino and Wei 2011).
    until : float
        Later events do not count: when few rows are left, weights are large.

    Raises
    ------
    ValueError
        If no pair counts, or all training rows were censored before an event that counts.
    """
    time, event = _followed(time, event)
    risk = np.asarray(risk, np.float64)
    if risk.shape != time.shape or np.isnan(risk).any():
        raise ValueError(
            f"risk must be {len(time)} numbers, one per row and none NaN, got shape {risk.shape}"
        )
    # Sort so that the partners of an event precede it: later times first, and among
    # equal times censored rows first.
    order = np.lexsort((event, -time))
    time, event, risk = time[order], event[order], risk[order]
    first = np.flatnonzero(event & (time < until))
    later = np.searchsorted(-time, -time[first], "left")
    later += np.searchsorted(np.sort(time[~event]), time[first], "right")
    later -= np.searchsorted(np.sort(time[~event]), time[first], "left")
    ranks = np.unique(risk, return_inverse=True)[1]
    below = _smaller_before(ranks, later, ranks[first])
    equal = _smaller_before(ranks, later, ranks[first] + 1) - below
    weight = np.ones(len(first))
    if censoring is not None:
        weight = _uncensored(censoring, time[first], before=True) ** -2
    pairs = float(weight @ later)
    if pairs == 0.0:
        raise ValueError("no comparable pair of rows: no event precedes another row's time")
    return float(weight @ (below + 0.5 * equal)) / pairs


def _smaller_before(
    values: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Count for each query the ``values[:end]`` below its bound; values are at least 0.

    By a wavelet matrix (Claude, Navarro and Ordonez 2015): n log n for n queries.
    """
    count, start, end = np.zeros(len(ends), np.int64), np.zeros(len(ends), np.int64), ends
    for bit in reversed(range(int(max(values.max(), bounds.max(initial=0))).bit_length())):
        zero = (values >> bit) & 1 == 0
        zeros = np.append(0, zero.cumsum())
        one = (bounds >> bit) & 1 == 1
        low, high = zeros[start], zeros[end]
        count += np.where(one, high - low, 0)
        start = np.where(one, zeros[-1] + start - low, low)
        end = np.where(one, zeros[-1] + end - high, high)
        values = np.concatenate([values[zero], values[~zero]])
    return count


def brier_score(
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    *,
    censoring: Pair | None = None,
) -> Numbers:
    """Compute the mean squared error of survival curves at given times, weighted for censoring.

    ``mean(S(t)**2 * [T <= t, event] / G(T-) + (1 - S(t))**2 * [T > t] / G(t))`` (Graf,
    Schmoor, Sauerbrei and Schumacher 1999; G(T-) for times with ties: Gerds and
    Schumacher 2006).

    Parameters
    ----------
    survival : (rows, T) float64
        Predictions for each row and time: ``curves(...).at(times)``.
    times : (T,) float64
    time : (rows,) numbers
    event : (rows,) truth values, or 0 and 1
    censoring : (time, event), optional
        Training rows, from which G, the share not yet censored, is estimated; default:
        the evaluated rows.

    Returns
    -------
    (T,) float64
        Predicting 0.5 for every row scores 0.25.
    """
    time, event = _followed(time, event)
    times = np.asarray(times, np.float64)
    survival = np.asarray(survival, np.float64)
    if survival.shape != (len(time), len(times)):
        raise ValueError(
            f"survival must have shape {(len(time), len(times))} (rows, times), "
            f"got {survival.shape}"
        )
    known = (time, event) if censoring is None else censoring
    had = (time[:, None] <= times) & event[:, None]
    here = time[:, None] > times
    own = np.ones(len(time))
    counts = had.any(axis=1)
    own[counts] = _uncensored(known, time[counts], before=True)
    at = np.ones(len(times))
    needed = here.any(axis=0)
    at[needed] = _uncensored(known, times[needed])
    lost = np.where(had, survival**2 / own[:, None], np.where(here, (1.0 - survival) ** 2 / at, 0))
    return np.asarray(lost.mean(axis=0))


def integrated_brier_score(
    survival: npt.ArrayLike,
    times: npt.ArrayLike,
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    *,
    censoring: Pair | None = None,
) -> float:
    """Compute the mean of `brier_score` over the span of `times` by the trapezoidal rule.

    Raises
    ------
    ValueError
        Unless there are at least two times, in ascending order.
    """
    at = np.asarray(times, np.float64)
    if len(at) < 2 or (np.diff(at) <= 0.0).any():
        raise ValueError("times must be at least two numbers in ascending order")
    score = brier_score(survival, at, time, event, censoring=censoring)
    return float(np.trapezoid(score, at) / (at[-1] - at[0]))


def _uncensored(censoring: Pair, at: Numbers, *, before: bool = False) -> Numbers:
    """Compute the share not censored until given times, or `before` them; events come first."""
    time, event = _followed(*censoring)
    moments, where = np.unique(time[~event], return_inverse=True)
    gone = np.bincount(where, minlength=len(moments))
    at_risk = len(time) - np.searchsorted(np.sort(time), moments, "left")
    at_risk = at_risk - (
        np.searchsorted(np.sort(time[event]), moments, "right")
        - np.searchsorted(np.sort(time[event]), moments, "left")
    )
    share = np.append(1.0, np.cumprod(1.0 - gone / at_risk))
    known = share[np.searchsorted(moments, at, "left" if before else "right")]
    if (known <= 0.0).any():
        raise ValueError(
            f"all rows in censoring were censored by {at[known <= 0.0].min():g}, so later times "
            "have no weight; use earlier times"
        )
    return np.asarray(known)


def _followed(time: npt.ArrayLike, event: npt.ArrayLike) -> tuple[Numbers, Truths]:
    time, event = np.asarray(time, np.float64), np.asarray(event)
    if time.ndim != 1 or time.shape != event.shape or len(time) == 0:
        raise ValueError(
            f"expected one time and one event per row, got shapes {time.shape} and {event.shape}"
        )
    if not np.isfinite(time).all() or not np.isin(event, (0, 1)).all():
        raise ValueError("times must be finite numbers, and events true or false, or 1 or 0")
    return time, event.astype(bool)
