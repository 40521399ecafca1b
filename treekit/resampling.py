"""The bootstrap: how much a statistic varies from sample to sample.

B. Efron, "Bootstrap methods: another look at the jackknife", Annals of
Statistics 7, 1979, pp. 1-26; Zhou, *Machine Learning*, 2016, section 2.2.3.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError, SettingError

__all__ = ["Bootstrapped", "bootstrap"]

_CELLS = 1 << 21
"""Numbers that one block of vectorised samples holds at most."""


@dataclass(frozen=True, eq=False)
class Bootstrapped:
    """A statistic and its bootstrap distribution; arrays have the statistic's shape.

    Attributes
    ----------
    estimate : float or array
        The statistic of the data.
    mean, variance, standard_error : float or array
        Of the replicates; the variance divides by ``B - 1``.
    interval : (low, high)
        Percentile interval of the confidence asked for (Efron 1981).
    replicates : (B, ...) float64
        The statistic of each sample.
    """

    estimate: Any
    mean: Any
    variance: Any
    standard_error: Any
    interval: tuple[Any, Any]
    replicates: npt.NDArray[np.float64]

    @property
    def bias(self) -> Any:
        """Mean of the replicates less the estimate."""
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
    """Mean, variance and interval of a statistic over samples drawn with replacement.

    Parameters
    ----------
    statistic : callable
        ``statistic(sample)``: a number, or an array of numbers.
    data : (rows, ...) array, dataframe, or tuple of these
        What is drawn from, row by row.  The parts of a tuple are drawn
        together and passed one by one, ``statistic(x, y)``.
    B : int
        Number of samples, each as large as the data.
    seed : int, optional
        The same seed draws the same samples.
    confidence : float
        Of the percentile interval.
    vectorized : bool, optional
        Whether ``statistic(samples, axis=1)`` takes many samples at a time,
        (samples, rows, ...).  Default: where it has a parameter ``axis``, as
        NumPy's functions do, and the data are arrays.

    Raises
    ------
    DataError
        For data without rows or of different lengths, and where the statistic
        of a sample is not finite.
    SettingError
        For a `B` below 2 or a `confidence` outside (0, 1).

    Examples
    --------
    >>> bootstrap(np.mean, [1.0, 2.0, 4.0, 7.0], 500, seed=0).standard_error  # doctest: +SKIP
    """
    if isinstance(B, float) or B < 2:
        raise SettingError(f"B is {B!r}; give a whole number of samples, at least 2")
    if not 0.0 < confidence < 1.0:
        raise SettingError(f"confidence is {confidence!r}; give a share between 0 and 1")
    parts = [_part(part) for part in (data if isinstance(data, tuple) else (data,))]
    n = _length(parts)
    arrays = all(isinstance(part, np.ndarray) for part in parts)
    if vectorized is None:
        vectorized = arrays and _has_axis(statistic)
    elif vectorized and not arrays:
        raise SettingError("vectorized statistics take arrays; give arrays, or vectorized=False")
    rng = np.random.default_rng(seed)
    estimate = np.asarray(statistic(*parts), dtype=np.float64)
    found = _vectorized if vectorized else _one_by_one
    replicates = found(statistic, parts, n, int(B), rng)
    bad = ~np.isfinite(replicates.reshape(len(replicates), -1)).all(axis=1)
    if bad.any():
        raise DataError(
            f"the statistic of sample {int(bad.argmax())} is {replicates[bad.argmax()]}; it must "
            "be finite for every sample, one that repeats a single row included"
        )
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(replicates, [tail, 1.0 - tail], axis=0)
    variance = replicates.var(axis=0, ddof=1)
    return Bootstrapped(
        estimate[()], replicates.mean(axis=0), variance, np.sqrt(variance), (low, high), replicates
    )


def _part(part: Any) -> Any:
    """An array, or a dataframe as narwhals takes it apart."""
    from narwhals.stable.v2.dependencies import is_into_dataframe

    if not isinstance(part, np.ndarray) and is_into_dataframe(part):
        return part
    return np.asarray(part)


def _length(parts: list[Any]) -> int:
    lengths = {len(part) if getattr(part, "ndim", 1) else 0 for part in parts}
    if len(lengths) != 1 or lengths == {0}:
        raise DataError(
            f"the data have {' and '.join(map(str, sorted(lengths))) or 'no'} rows; all parts need "
            "the same number of rows, at least 1"
        )
    return lengths.pop()


def _has_axis(statistic: Callable[..., Any]) -> bool:
    try:
        return "axis" in inspect.signature(statistic).parameters
    except (TypeError, ValueError):
        return False


def _vectorized(
    statistic: Callable[..., Any], parts: list[Any], n: int, n_samples: int, rng: Any
) -> npt.NDArray[np.float64]:
    width = max(part.size // n for part in parts)
    block = max(_CELLS // (n * max(width, 1)), 1)
    found = []
    for first in range(0, n_samples, block):
        drawn = rng.integers(0, n, (min(block, n_samples - first), n))
        found.append(np.asarray(statistic(*(p[drawn] for p in parts), axis=1), dtype=np.float64))
    return np.concatenate(found)


def _one_by_one(
    statistic: Callable[..., Any], parts: list[Any], n: int, n_samples: int, rng: Any
) -> npt.NDArray[np.float64]:
    found = []
    for _ in range(n_samples):
        drawn = rng.integers(0, n, n)
        found.append(np.asarray(statistic(*(_rows(p, drawn) for p in parts)), dtype=np.float64))
    return np.stack(found)


def _rows(part: Any, drawn: npt.NDArray[np.int64]) -> Any:
    if isinstance(part, np.ndarray):
        return part[drawn]
    import narwhals.stable.v2 as nw

    return nw.from_native(part, eager_only=True)[drawn].to_native()
