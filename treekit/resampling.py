"""The bootstrap: variation of a statistic from sample to sample.

B. Efron, "Bootstrap methods: another look at the jackknife", Annals of
Statistics 7, 1979, pp. 1-26; Zhou, *Machine Learning*, 2016, section 2.2.3.
"""

from __future__ import annotations

import inspect
import numbers
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError, SettingError
from treekit.settings import check_integer

__all__ = ["Bootstrapped", "bootstrap"]

_MAX_CELLS = 1 << 21
"""Maximum number of cells in one block of vectorized samples."""


@dataclass(frozen=True, eq=False, repr=False)
class Bootstrapped:
    """A statistic and its bootstrap distribution; arrays have the statistic's shape.

    Attributes
    ----------
    estimate : float or array
        The statistic of the data.
    mean, variance, standard_error : float or array
        Of the replicates; the variance divides by ``B - 1``.
    interval : (low, high)
        Percentile interval of the given confidence (Efron 1981).
    replicates : (B, ...) float64
        The statistic of each sample.
    """

    estimate: Any
    mean: Any
    variance: Any
    standard_error: Any
    interval: tuple[Any, Any]
    replicates: npt.NDArray[np.float64]

    def __repr__(self) -> str:
        """Return all fields but the replicates."""
        names = ("estimate", "mean", "standard_error")
        shown = [f"{name}={_format_value(getattr(self, name))}" for name in names]
        low, high = map(_format_value, self.interval)
        return (
            f"Bootstrapped({', '.join(shown)}, interval=({low}, {high}), B={len(self.replicates)})"
        )

    @property
    def bias(self) -> Any:
        """Mean of the replicates minus the estimate."""
        return self.mean - self.estimate


def bootstrap(
    statistic: Callable[..., Any],
    data: Any,
    B: int = 1000,  # noqa: N803 - the literature's name
    *,
    seed: int | None = None,
    confidence: float = 0.95,
    vectorized: bool | None = None,
) -> Bootstrapped:
    """Estimate mean, variance and interval of a statistic over samples drawn with replacement.

    Parameters
    ----------
    statistic : callable
        ``statistic(sample)``: a number, or an array of numbers.
    data : (rows, ...) array, dataframe, or tuple of these
        The data, sampled row by row.  The parts of a tuple are sampled
        together and passed as arguments, ``statistic(x, y)``.
    B : int
        Number of samples, each as large as the data.
    seed : int, optional
        Random seed.
    confidence : float
        Confidence of the percentile interval.
    vectorized : bool, optional
        Whether ``statistic(samples, axis=1)`` takes many samples at a time,
        (samples, rows, ...).  Default: if it has a parameter ``axis``, as
        NumPy's functions do, and the data are arrays.

    Raises
    ------
    DataError
        For data without rows or of another type, parts of different
        lengths, and a statistic that is not finite, not a number, or of another
        shape for another sample.
    SettingError
        For a `B` below 2, a `confidence` outside (0, 1), a negative `seed`, or
        a `statistic` that is not callable.

    Examples
    --------
    >>> bootstrap(np.mean, [1.0, 2.0, 4.0, 7.0], 500, seed=0).standard_error  # doctest: +SKIP
    """
    if not callable(statistic):
        raise SettingError(
            f"statistic is {statistic!r}; give a function of a sample, such as np.mean"
        )
    check_integer("B", B, 2)
    check_integer("seed", 0 if seed is None else seed, 0)
    level: object = confidence
    if not isinstance(level, numbers.Real) or not 0.0 < float(level) < 1.0:
        raise SettingError(f"confidence is {confidence!r}; give a number between 0 and 1")
    parts = [_check_part(part) for part in (data if isinstance(data, tuple) else (data,))]
    lengths = {len(part) for part in parts}
    if len(lengths) != 1 or lengths == {0}:
        raise DataError(
            f"the data have {' and '.join(map(str, sorted(lengths))) or 'no'} rows; all parts must "
            "have the same number of rows, at least 1"
        )
    arrays = all(isinstance(part, np.ndarray) for part in parts)
    if vectorized is None:
        vectorized = arrays and _has_axis(statistic)
    elif vectorized and not arrays:
        raise SettingError("vectorized=True needs arrays; give arrays, or set vectorized=False")
    estimate = _compute_estimate(statistic, parts, vectorized)
    replicates = _compute_replicates(statistic, parts, B, vectorized, seed)
    bad = ~np.isfinite(replicates.reshape(len(replicates), -1)).all(axis=1)
    if bad.any():
        raise DataError(
            f"the statistic of sample {int(bad.argmax())} is {replicates[bad.argmax()]}; it must "
            "be finite for every sample, including one that repeats a single row"
        )
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(replicates, [tail, 1.0 - tail], axis=0)
    variance = replicates.var(axis=0, ddof=1)
    return Bootstrapped(
        estimate[()], replicates.mean(axis=0), variance, np.sqrt(variance), (low, high), replicates
    )


def _as_numbers(found: Any, of: str) -> npt.NDArray[np.float64]:
    """Return the result of a statistic as numbers."""
    try:
        values = np.asarray(found)
        fractions = values.dtype.kind == "O" and all(
            isinstance(v, numbers.Real) for v in values.flat
        )
        if fractions or _is_real(values):
            return values.astype(np.float64)
    except (TypeError, ValueError):  # parts of different lengths
        pass
    raise DataError(
        f"the statistic of {of} is {reprlib.repr(found)}; it must be a number or a rectangular "
        "array of numbers (nested lists must have equal lengths)"
    )


def _is_real(values: npt.NDArray[Any]) -> bool:
    return values.dtype.kind in "biuf"


def _format_value(value: Any) -> str:
    if np.ndim(value) == 0:
        return f"{float(value):.6g}"
    return np.array2string(np.asarray(value), precision=6, threshold=6, edgeitems=2, separator=", ")


def _check_part(part: Any) -> Any:
    """Return data as an array, or a dataframe unchanged; raise `DataError` for other data."""
    from narwhals.stable.v2.dependencies import is_into_dataframe

    if not isinstance(part, np.ndarray) and is_into_dataframe(part):
        return part
    try:
        array = np.asarray(part)
    except ValueError as error:
        raise DataError(
            f"data is not an array: its rows have different lengths ({error})"
        ) from None
    if array.ndim == 0:
        raise DataError(
            f"data contains {reprlib.repr(part)}, of type {type(part).__name__}; give an array or "
            "a dataframe with at least 1 row, or a tuple of these"
        )
    return array


def _compute_estimate(
    statistic: Callable[..., Any], parts: list[Any], vectorized: bool
) -> npt.NDArray[np.float64]:
    """Return the statistic of the data, computed as for the samples, so that shapes agree."""
    try:
        if vectorized:
            return np.asarray(_compute_vectorized(statistic, [part[None] for part in parts])[0])
        found = statistic(*parts)
    except TypeError as error:
        if all(not isinstance(part, np.ndarray) or _is_real(part) for part in parts):
            raise
        raise DataError(
            f"data contains values that are not numbers, and the statistic fails on them "
            f"({error}); give numeric data, or a statistic that accepts other values"
        ) from error
    return _as_numbers(found, "the data")


def _has_axis(statistic: Callable[..., Any]) -> bool:
    try:
        return "axis" in inspect.signature(statistic).parameters
    except (TypeError, ValueError):
        return False


def _compute_replicates(
    statistic: Callable[..., Any], parts: list[Any], n_samples: int, vectorized: bool, seed: Any
) -> npt.NDArray[np.float64]:
    """Return (samples, ...) float64: the statistic of samples, drawn in blocks of limited size."""
    rng, n, block = np.random.default_rng(seed), len(parts[0]), 1
    if vectorized:
        block = max(_MAX_CELLS // max(*(part.size for part in parts), n), 1)
    found = []
    for first in range(0, n_samples, block):
        drawn = rng.integers(0, n, (min(block, n_samples - first), n))
        if vectorized:
            found.append(_compute_vectorized(statistic, [part[drawn] for part in parts]))
        else:
            sample = [_take_rows(part, drawn[0]) for part in parts]
            found.append(_as_numbers(statistic(*sample), "a sample")[None])
    shapes = list(dict.fromkeys(one.shape[1:] for one in found))
    if len(shapes) > 1:
        raise DataError(
            f"the statistic of one sample has shape {shapes[0]}, of another {shapes[1]}; it must "
            "have the same shape for every sample"
        )
    return np.concatenate(found)


def _compute_vectorized(
    statistic: Callable[..., Any], samples: list[Any]
) -> npt.NDArray[np.float64]:
    """Return (samples, ...) float64: the statistic of stacked samples."""
    n = len(samples[0])
    given = _as_numbers(statistic(*samples, axis=1), f"{n} samples at a time")
    if given.ndim == 0 or len(given) != n:
        raise DataError(
            f"the statistic of {n} samples at a time has shape {given.shape}; it must return one "
            "row per sample: use axis=1, or set vectorized=False"
        )
    return given


def _take_rows(part: Any, drawn: npt.NDArray[np.int64]) -> Any:
    if isinstance(part, np.ndarray):
        return part[drawn]
    import narwhals.stable.v2 as nw

    return nw.from_native(part, eager_only=True)[drawn].to_native()
