"""Sparse linear models of rule indicators, with an L1 penalty on the weights.

Lasso (Tibshirani 1996) for numbers, and logistic or multinomial regression with the same
penalty for classes, solved as in glmnet (Friedman, Hastie and Tibshirani 2010): each Newton
step is a least squares problem for scikit-learn's Lasso.  The solver works on the few rules
with nonzero weights and adds those that violate the optimality conditions (Tibshirani et
al. 2012, "Strong rules for discarding predictors", section 7).
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "RuleWeights",
    "draw_folds",
    "fit_nonnegative_ridge",
    "fit_penalised",
    "refit_weights",
    "select_smallest_size",
]


# ---------------------------------------------------------------- penalised

Doubles = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

_PENALTY_RATIO, _MAX_PENALTIES = 0.85, 60
"""Ratio of successive penalties, and maximum number of steps: down to 6e-5 of the first."""
_MAX_BISECTIONS = 4
_MAX_ENTERING = 12
"""Maximum number of rules that enter at once."""
_MAX_NEWTON_STEPS = 6
_MIN_ROW_WEIGHT = 1e-5
"""Minimum relative weight of a row in a Newton step; shares near 0 or 1 have almost none."""


class RuleWeights(NamedTuple):
    """Amounts that rules add to the number, or to the margin of each class.

    Attributes
    ----------
    intercept : (values,) float64
    slope : (rules, values) float64
    """

    intercept: Doubles
    slope: Doubles

    @property
    def used_rules(self) -> Index:
        """Rules with a nonzero weight."""
        return np.flatnonzero(self.slope.any(axis=1))


def fit_penalised(
    met: npt.NDArray[np.bool_], target_values: Doubles, weight: Doubles, most: int, *, classes: bool
) -> RuleWeights:
    """Fit weights with the smallest penalty that leaves at most `most` rules.

    Parameters
    ----------
    met : (rules, rows) bool
        Each holds for some rows, but not for all.
    target_values : (rows, values) float64
        Class shares, which add up to 1, or one column of numbers.
    weight : (rows,) float64
    most : int
    classes : bool
        Two classes have one margin, that of the second; the weights of the first are 0.

    Returns
    -------
    Weights
        Weights of the indicators; the penalty applies to standardised indicators, so that it
        does not depend on the number of matching rows.
    """
    problem = _PenalisedProblem(met, target_values, weight, classes=classes)
    level = problem.compute_max_penalty()
    before, found = level, problem.make_start()
    for _ in range(_MAX_PENALTIES if level > 0 else 0):
        below = before * _PENALTY_RATIO
        tried = problem.solve_penalty(below, found)
        if len(tried.used_rules) > most:
            found = _bisect_penalty(problem, below, before, found, most)
            break
        before, found = below, tried
    return problem.unstandardise_weights(found)


def _bisect_penalty(
    problem: _PenalisedProblem, low: float, high: float, found: RuleWeights, most: int
) -> RuleWeights:
    """Bisect between a penalty that leaves too many rules and one that does not."""
    for _ in range(_MAX_BISECTIONS):
        middle = float(np.sqrt(low * high))
        tried = problem.solve_penalty(middle, found)
        if len(tried.used_rules) > most:
            low = middle
        else:
            high, found = middle, tried
    return found


class _PenalisedProblem:
    """Penalised regression on standardised indicators, for a sequence of penalties."""

    def __init__(
        self, met: npt.NDArray[np.bool_], target_values: Doubles, weight: Doubles, *, classes: bool
    ) -> None:
        self.classes = classes
        self.is_binary = classes and target_values.shape[1] == 2
        self.target_values = target_values[:, 1:] if self.is_binary else target_values
        self.weight = weight / weight.sum()
        # Single precision: a million cells are 4 MB; final sums are in double.
        self.met = met.astype(np.float32)
        self.mean = self.met @ self.weight.astype(np.float32)
        self.scale = np.sqrt(np.maximum(self.mean * (1 - self.mean), 1e-12))

    def make_start(self) -> RuleWeights:
        """Return the solution without rules."""
        mean = self.weight @ self.target_values
        if self.classes:
            mean = np.clip(mean, 1e-9, 1 - 1e-9)
            mean = np.log(mean / (1 - mean)) if self.is_binary else np.log(mean)
        return RuleWeights(mean, np.zeros((len(self.met), len(mean))))

    def compute_max_penalty(self) -> float:
        """Return the penalty above which all rule weights are 0."""
        predicted = self._predict_values(
            self._compute_margins(self.make_start(), np.empty(0, dtype=np.int64))
        )
        return float(np.abs(self._compute_gradient(predicted)).max(initial=0.0))

    def solve_penalty(self, penalty: float, found: RuleWeights) -> RuleWeights:
        """Return optimal weights, starting from those for a larger penalty."""
        some = found.used_rules
        predicted = self._predict_values(self._compute_margins(found, some))
        while True:
            if len(some):
                found, predicted = self._take_newton_steps(penalty, found, some)
            gradient = np.abs(self._compute_gradient(predicted)).max(axis=1, initial=0.0)
            gradient[some] = 0.0
            violating = np.flatnonzero(gradient > penalty * 1.001)
            if not len(violating):
                return found
            # Of similar rules one enters, and the others then satisfy the conditions.
            first = np.argsort(-gradient[violating], kind="stable")[:_MAX_ENTERING]
            some = np.union1d(some, violating[first])

    def _take_newton_steps(
        self, penalty: float, found: RuleWeights, some: Index
    ) -> tuple[RuleWeights, Doubles]:
        """Fit the weights of the rules `some` by quadratic approximations of the loss."""
        x = (self.met[some] - self.mean[some, None]) / self.scale[some, None]
        slope, intercept = found.slope.copy(), found.intercept.copy()
        margins = intercept + x.T.astype(np.float64) @ slope[some]
        for _ in range(_MAX_NEWTON_STEPS if self.classes else 1):
            moved = 0.0
            for k in range(len(intercept)):
                predicted = self._predict_values(margins)[:, k]
                light = (
                    np.maximum(predicted * (1 - predicted), _MIN_ROW_WEIGHT)
                    if self.classes
                    else 1.0
                )
                curve = self.weight * light
                step = self.weight * (self.target_values[:, k] - predicted)
                new, start = _solve_least_squares(x, curve, step, slope[some, k], penalty)
                moved = max(moved, float(np.abs(new - slope[some, k]).max(initial=0.0)))
                margins[:, k] += start + x.T @ (new - slope[some, k])
                intercept[k] += start
                slope[some, k] = new
            if moved < 1e-3 * max(1.0, float(np.abs(slope).max(initial=0.0))):
                break
        return RuleWeights(intercept, slope), self._predict_values(margins)

    def _compute_margins(self, found: RuleWeights, used: Index) -> Doubles:
        x = (self.met[used] - self.mean[used, None]) / self.scale[used, None]
        margins: Doubles = found.intercept + x.T.astype(np.float64) @ found.slope[used]
        return margins if len(margins) else np.zeros((len(self.weight), len(found.intercept)))

    def _predict_values(self, margins: Doubles) -> Doubles:
        if not self.classes:
            return margins
        if self.is_binary:
            return 1 / (1 + np.exp(-np.clip(margins, -500, 500)))
        shares = np.exp(margins - margins.max(axis=1, keepdims=True))
        total: Doubles = shares / shares.sum(axis=1, keepdims=True)
        return total

    def _compute_gradient(self, predicted: Doubles) -> Doubles:
        """Return (rules, values): the decrease of the loss per unit of each weight."""
        rest = self.weight[:, None] * (self.target_values - predicted)
        sums = self.met @ rest.astype(np.float32) - self.mean[:, None] * rest.sum(axis=0)
        gradient: Doubles = sums.astype(np.float64) / self.scale[:, None]
        return gradient

    def unstandardise_weights(self, found: RuleWeights) -> RuleWeights:
        """Return weights of the original indicators, one column per class."""
        slope = found.slope / self.scale[:, None]
        intercept = found.intercept - self.mean @ slope
        if self.is_binary:
            slope = np.column_stack([np.zeros(len(slope)), slope])
            intercept = np.append(0.0, intercept)
        return RuleWeights(intercept, slope)


def _solve_least_squares(
    x: npt.NDArray[np.float32], curve: Doubles, step: Doubles, now: Doubles, penalty: float
) -> tuple[Doubles, float]:
    """Solve penalised least squares; return the weights and the change of the intercept.

    ``curve`` and ``step`` are the second and the negative first derivative of each row's loss
    by its margin, at the weights `now`.
    """
    total = float(curve.sum())
    mean = (x @ curve.astype(np.float32)).astype(np.float64) / total
    root = np.sqrt(curve).astype(np.float32)
    scaled = x * root
    squares = (scaled @ scaled.T).astype(np.float64) - total * np.outer(mean, mean)
    shift = float(step.sum())
    slope = (x @ step.astype(np.float32)).astype(np.float64) - mean * shift
    new = _minimise_quadratic(squares, slope + squares @ now, penalty)
    return new, shift / total - float(mean @ (new - now))


def _minimise_quadratic(squares: Doubles, linear: Doubles, penalty: float) -> Doubles:
    """Minimise ``w'Sw / 2 - l'w + penalty * |w|`` as a Lasso with one row per eigenvector."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso

    if not len(linear):
        return linear
    length, axes = np.linalg.eigh(squares)
    some = length > 1e-7 * max(float(length[-1]), 1e-300)
    root = np.sqrt(length[some])
    rows = root[:, None] * axes[:, some].T
    reduced = (axes[:, some].T @ linear) / root
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the next Newton step continues
        fitted = Lasso(alpha=penalty / len(rows), fit_intercept=False, tol=1e-6).fit(rows, reduced)
    found: Doubles = np.asarray(fitted.coef_, dtype=np.float64)
    return found


# ---------------------------------------------------------------- ridge
# Ridge regression with nonnegative weights, by which SIRUS combines rules for numbers, and
# a penalty chosen by cross-validation (Bénard, Biau, da Veiga and Scornet 2021,
# "Interpretable random forests via rule extraction", AISTATS, section 2).

_RIDGE_PENALTIES = np.geomspace(1e-5, 1e2, 15)
"""Relative to the mean squared length of a column."""


def fit_nonnegative_ridge(
    x: Doubles, y: Doubles, weight: Doubles, folds: npt.NDArray[np.int64]
) -> tuple[float, Doubles]:
    """Fit an intercept and nonnegative weights by ridge regression.

    Parameters
    ----------
    x : (rows, rules) float64
    y, weight : (rows,) float64
    folds : (rows,) int64
        Fold of each row; the penalty has the smallest error on held-out rows.

    Returns
    -------
    intercept : float
        Not penalised.
    weights : (rules,) float64, none negative
    """
    errors = np.zeros(len(_RIDGE_PENALTIES))
    for fold in np.unique(folds).tolist():
        held_out = folds == fold
        known = _ReducedLeastSquares(x[~held_out], y[~held_out], weight[~held_out])
        for at, penalty in enumerate(_RIDGE_PENALTIES.tolist()):
            start, slopes = known.solve_penalty(penalty)
            errors[at] += weight[held_out] @ (y[held_out] - start - x[held_out] @ slopes) ** 2
    # Ties: the largest penalty.
    best = len(errors) - 1 - int(np.argmin(errors[::-1]))
    return _ReducedLeastSquares(x, y, weight).solve_penalty(float(_RIDGE_PENALTIES[best]))


class _ReducedLeastSquares:
    """Weighted least squares reduced by QR to as many rows as columns."""

    def __init__(self, x: Doubles, y: Doubles, weight: Doubles) -> None:
        total = weight.sum()
        self.means = weight @ x / total
        self.mean = float(weight @ y / total)
        root = np.sqrt(weight / total)[:, None]
        both = np.column_stack([x - self.means, y - self.mean]) * root
        # The triangular factor preserves lengths and scalar products.
        triangle: Doubles = np.asarray(np.linalg.qr(both, mode="r"))
        self.x, self.y = triangle[:, :-1], triangle[:, -1]

    def solve_penalty(self, penalty: float) -> tuple[float, Doubles]:
        """Return intercept and weights for a relative penalty."""
        from sklearn.linear_model import LinearRegression

        k = self.x.shape[1]
        scale = float((self.x**2).sum()) / max(k, 1)
        if scale == 0.0:
            return self.mean, np.zeros(k)
        # The penalty is k extra rows that pull each weight to 0; the rest is solved exactly
        # by nonnegative least squares (Lawson and Hanson 1974).
        rows = np.concatenate([self.x, np.sqrt(penalty * scale) * np.eye(k)])
        target = np.concatenate([self.y, np.zeros(k)])
        fitted = LinearRegression(positive=True, fit_intercept=False).fit(rows, target)
        slopes: Doubles = np.asarray(fitted.coef_, dtype=np.float64)
        return self.mean - float(self.means @ slopes), slopes


# ---------------------------------------------------------------- refitted
# Weights of the selected rules without the L1 penalty.

_REFIT_PENALTY = 1e-4
"""Ridge penalty relative to the weight of all rows: without it rules that match one class
only would have infinite weights, and equivalent rules undefined ones."""


def refit_weights(
    met: npt.NDArray[np.bool_], target_values: Doubles, weight: Doubles, *, classes: bool
) -> RuleWeights:
    """Fit least squares, or maximum likelihood margins, to indicators.

    See `treekit_rule_learning.linear_models.fit_penalised` for parameters and result.
    """
    from sklearn.linear_model import LogisticRegression, Ridge

    x, total = met.T.astype(np.float64), float(weight.sum())
    if not classes:
        fitted = Ridge(alpha=_REFIT_PENALTY * total).fit(
            x, target_values[:, 0], sample_weight=weight
        )
        slope = np.asarray(fitted.coef_, dtype=np.float64).reshape(-1, 1)
        return RuleWeights(np.array([float(fitted.intercept_)]), slope)
    # A row with shares of several classes becomes a row for each, weighted by the share.
    parts = weight[:, None] * target_values
    row, label = np.nonzero(parts > 0)
    present = np.unique(label)
    slope, start = (
        np.zeros((x.shape[1], target_values.shape[1])),
        np.full(target_values.shape[1], -30.0),
    )
    if len(present) == 1:
        start[present] = 0.0
        return RuleWeights(start, slope)
    solver = LogisticRegression(C=1 / (_REFIT_PENALTY * total), max_iter=1000)
    solver.fit(x[row], label, sample_weight=parts[row, label])
    coef = np.asarray(solver.coef_, dtype=np.float64)
    intercept = np.asarray(solver.intercept_, dtype=np.float64)
    if len(present) == 2:  # one margin, that of the second class
        coef = np.concatenate([np.zeros_like(coef), coef])
        intercept = np.append(0.0, intercept)
    slope[:, present], start[present] = coef.T, intercept
    return RuleWeights(start, slope)


# ---------------------------------------------------------------- folds
# Cross-validation folds, and the one-standard-error rule.

_N_FOLDS = 5


def draw_folds(n_rows: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Return (rows,) int64: random folds; with few rows each row is its own fold."""
    number = np.arange(n_rows) % min(_N_FOLDS, n_rows)
    return np.random.default_rng(seed).permutation(number)


def select_smallest_size(errors: npt.NDArray[np.float64]) -> int:
    """Return the smallest size whose mean error is within one standard error of the minimum.

    Breiman, Friedman, Olshen and Stone 1984, section 3.4.3.

    Parameters
    ----------
    errors : (folds, sizes) float64
        Errors for sizes 1, 2, ...; NaN where a fold has none.
    """
    mean = np.nanmean(errors, axis=0)
    folds = np.count_nonzero(~np.isnan(errors), axis=0)
    best = int(np.nanargmin(mean))
    spread = float(np.nanstd(errors[:, best]) / np.sqrt(max(folds[best] - 1, 1)))
    return int(np.flatnonzero(mean <= mean[best] + spread)[0]) + 1
