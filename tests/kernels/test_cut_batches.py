"""Cuts scored in batches: the best equals that of a plain loop for any batch size."""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.growing import make_scorer
from treekit.compiling.criterion import CompiledCriterion, compile_criterion
from treekit.compiling.functions import Origin, thread_state
from treekit.contracts import CriterionFunctions
from treekit.kernels.cut_batches import CutScorer, count_batch_cuts, scan_cuts
from treekit.kernels.function_pointers import compile_pointers
from treekit.kernels.monotonic import HIGHEST, LOWEST, N_CUTS, SIGN

TOLERANCE = 1e-9


@nb.njit(error_model="numpy")
def run_compiled(*given):  # type: ignore[no-untyped-def]
    """Call a helper that only kernels may call."""
    return scan_cuts(*given)


def run_scan(*given: Any) -> Any:
    """Call the helper with pointers as numba takes them."""
    return run_compiled(*compile_pointers(given))


def compiled(score: Any, cells: int = 2, dense: bool = False) -> CompiledCriterion:
    return compile_criterion(
        CriterionFunctions(score=score), cells, dense, Origin("criterion", "own"), nominal=False
    )


def gini_score(parent: Any, children: Any) -> float:
    total, squares = 0.0, 0.0
    for k in range(parent.shape[0]):
        total += parent[k]
        squares += parent[k] * parent[k]
    kept = 0.0
    for b in range(children.shape[0]):
        weight, own = 0.0, 0.0
        for k in range(parent.shape[0]):
            weight += children[b, k]
            own += children[b, k] * children[b, k]
        kept += own / weight
    return (kept - squares / total) / total


def first_cell(parent: Any, children: Any) -> float:
    """A score that is what the rows say: the second cell on the left."""
    return children[0, 1]


GINI = compiled(gini_score)
FIRST = compiled(first_cell, dense=True)


def scan(  # type: ignore[no-untyped-def]
    criterion: CompiledCriterion, rows, limit=1.0, start=None, totals=None, *, dense=False,
    impurity=0.5, tolerance=0.0, constraint=(0.0, 0.0, -math.inf, math.inf),
) -> tuple[int, np.ndarray]:  # fmt: skip
    s = rows.shape[1]
    start = np.zeros(s) if start is None else start
    totals = rows.sum(axis=0) + start if totals is None else totals
    best = np.zeros(s + 6)
    best[s + 2 + SIGN], best[s + 2 + N_CUTS] = constraint[:2]
    best[s + 2 + LOWEST], best[s + 2 + HIGHEST] = constraint[2:]
    at = run_scan(
        make_scorer(criterion, s), rows, len(rows) - 1, start, totals, limit, dense, impurity,
        tolerance, best,
    )  # fmt: skip
    return at, best[: s + 2]


def scan_plainly(  # type: ignore[no-untyped-def]
    score, rows, limit=1.0, start=None, totals=None, *, dense=False, impurity=0.5, tolerance=0.0,
) -> tuple[int, float]:  # fmt: skip
    """The oracle: all scores, then the first that ties with the highest."""
    left = np.zeros(rows.shape[1]) if start is None else start.copy()
    totals = rows.sum(axis=0) + left if totals is None else totals

    def weigh(stats: np.ndarray) -> float:
        return float(stats[0] if dense else stats.sum())

    scores: dict[int, float] = {}
    for i in range(len(rows) - 1):
        left = left + rows[i]
        if weigh(left) >= limit and weigh(totals - left) >= limit:
            scores[i] = score(totals, np.array([left, totals - left]))
    if not scores:
        return -1, -math.inf
    most = max(scores.values())
    floor = most - max(TOLERANCE * max(abs(most), impurity), tolerance)
    at = next(i for i, own in scores.items() if own >= floor)
    return at, scores[at]


@given(
    st.integers(0, 2**32 - 1), st.sampled_from([2, 3, 8, 9, 40, 255, 264, 265, 3000]),
    st.sampled_from([1.0, 5.0, 30.0]), st.booleans(),
)  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_best_cut_equals_the_plain_loop(
    seed: int, count: int, limit: float, is_signed: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 4, (count, 2)).astype(float)
    rows[:, 0] += rows.sum(axis=1) == 0.0
    start = totals = None
    if is_signed:  # rows that leave the left side, as in the search for weights of sums
        rows *= rng.choice([-1.0, 1.0], count)[:, None]
        start = -np.minimum(rows.cumsum(axis=0).min(axis=0), 0.0)
        totals = start + rows.cumsum(axis=0).max(axis=0) + 1.0
    at, best = scan(GINI, rows, limit, start, totals)
    wanted = scan_plainly(gini_score, rows, limit, start, totals)
    assert (at, best[0]) == wanted
    if at >= 0:
        left = rows[: at + 1].sum(axis=0) + (0.0 if start is None else start)
        assert best[2:].tolist() == left.tolist()
        assert best[1] == left.sum()


@given(st.integers(0, 2**32 - 1), st.sampled_from([5, 300, 2500]), st.sampled_from([0.0, 2.0]))
@settings(max_examples=examples(60), deadline=None)
def test_first_cut_tied_with_the_highest_score_is_chosen(
    seed: int, count: int, tolerance: float
) -> None:
    """Scores that rise by less than the tolerance, also from batch to batch."""
    rng = np.random.default_rng(seed)
    step = tolerance * 0.6 if tolerance else 0.6 * TOLERANCE
    scores = 1.0 + step * np.cumsum(rng.choice([-1, 0, 1, 1], count - 1))
    moved = np.diff(scores, prepend=0.0)
    rows = np.column_stack([np.ones(count), np.append(moved, 0.0)])
    totals = np.array([float(count), 0.0])
    given = {"dense": True, "impurity": 0.0, "tolerance": tolerance}
    at, best = scan(FIRST, rows, 1.0, None, totals, **given)
    wanted = scan_plainly(first_cell, rows, 1.0, None, totals, **given)
    assert (at, best[0]) == wanted


def test_cut_of_an_earlier_batch_may_win_a_tie() -> None:
    """The first cut does not tie with the last, but one between does."""
    n = 2 * count_batch_cuts(2)
    scores = np.zeros(n)
    scores[[3, 9, n - 2]] = 1.0, 1.0 + 0.8 * TOLERANCE, 1.0 + 1.6 * TOLERANCE
    rows = np.column_stack([np.ones(n), np.diff(scores, prepend=0.0)])
    at, best = scan(FIRST, rows, 1.0, None, np.array([float(n), 0.0]), dense=True, impurity=0.0)
    assert (at, best[0]) == (9, rows[:10, 1].sum())


@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 7, 8, 1500])
def test_first_non_finite_score_ends_the_scan(bad: float, place: int) -> None:
    def score(parent: Any, children: Any) -> float:
        return bad if children[0, 0] > place else -1.0

    rows = np.column_stack([np.ones(2000), np.arange(2000.0)])
    at, best = scan(compiled(score, dense=True), rows, dense=True)
    assert at == -2
    assert best[2:].tolist() == [place + 1.0, rows[: place + 1, 1].sum()]


@pytest.mark.parametrize("scores", [(-3.0, -2.0, -5.0), (-0.0, 0.0, -1e-300), (0.0, 5e-324, 0.0)])
def test_the_highest_of_scores_of_any_sign_is_found(scores: tuple[float, ...]) -> None:
    rows = np.column_stack([np.ones(4), np.append(np.diff(scores, prepend=0.0), 0.0)])
    totals = np.array([4.0, 0.0])
    given = {"dense": True, "impurity": 0.0}
    assert (
        scan(FIRST, rows, 1.0, None, totals, **given)[0]
        == scan_plainly(first_cell, rows, 1.0, None, totals, **given)[0]
    )


def test_criterion_is_called_only_for_cuts_within_the_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thread_state, "failures", [], raising=False)
    seen: list[list[float]] = []

    def score(parent: Any, children: Any) -> float:  # closures of lists run as Python
        seen.append(children[:, 0].tolist())
        return 0.0

    with pytest.warns(UserWarning, match="runs as Python"):
        own = compiled(score, dense=True)
    rows = np.column_stack([np.ones(11), np.zeros(11)])
    assert scan(own, rows, 3.0, dense=True)[0] == 2
    assert {tuple(sides) for sides in seen} == {(k, 11.0 - k) for k in range(3, 9)}


def test_a_function_that_raises_ends_the_scan() -> None:
    def score(parent: Any, children: Any) -> float:
        if children[0, 0] > 5.0:
            raise ValueError("too heavy")
        return 1.0

    rows = np.column_stack([np.ones(20), np.zeros(20)])
    with pytest.raises(ValueError, match="too heavy"):
        scan(compiled(score, dense=True), rows, dense=True)


def test_cuts_that_break_a_constraint_are_left_out() -> None:
    rows = np.column_stack([np.ones(6), [5.0, -4.0, 3.0, 1.0, 0.0, 2.0]])
    rising = scan(FIRST, rows, dense=True, constraint=(1.0, 5, -math.inf, math.inf))
    means = [(rows[: i + 1, 1].mean(), rows[i + 1 :, 1].mean()) for i in range(5)]
    allowed = [i for i, (left, right) in enumerate(means) if right >= left]
    sums = rows[:, 1].cumsum()
    assert rising[0] == max(allowed, key=lambda i: sums[i])
    assert scan(FIRST, rows, dense=True, constraint=(1.0, 5, 100.0, 200.0))[0] == -1
    # A cut beyond the number of those of known values is not constrained.
    assert scan(FIRST, rows, dense=True, constraint=(1.0, 0, 100.0, 200.0))[0] == int(
        sums[:5].argmax()
    )


def test_batch_is_large_enough_for_a_binned_column() -> None:
    for s in (1, 2, 7, 100, 5000):
        assert count_batch_cuts(s) >= 264
        assert count_batch_cuts(s) % 8 == 0
    assert CutScorer._fields[0] == "score_cuts"


@nb.njit
def compute_square(number):  # type: ignore[no-untyped-def]
    return number * number


def iterate_squares(stats):  # type: ignore[no-untyped-def]
    for k in range(stats.shape[0]):
        yield stats[k] * stats[k]


def score_by_helper(parent: Any, children: Any) -> float:
    return compute_square(children[0, 0]) + compute_square(children[1, 0])


def make_score_by_closure() -> Any:
    generate, factor = nb.njit(iterate_squares), 2.0

    def score(parent: Any, children: Any) -> float:
        total = 0.0
        for square in generate(children[1]):
            total += factor * square
        return total

    return score


def score_by_early_return(parent: Any, children: Any) -> float:
    for b in range(children.shape[0]):
        if children[b, 1] > 2.0 * children[b, 0]:
            return -1.0
    return math.sqrt(children[0, 0]) * max(children[1, 1], 0.0)


def score_by_arrays(parent: Any, children: Any) -> float:
    return float(np.sqrt(children[0] / parent).sum() - np.abs(children[1]).max())


@pytest.mark.filterwarnings("ignore:.*runs as Python")
@pytest.mark.parametrize(
    "score",
    [score_by_helper, make_score_by_closure(), score_by_early_return, score_by_arrays],
)
@pytest.mark.parametrize("distribution", ["treekit 1", "own 1"])
def test_functions_of_every_form_score_as_plain_python(score: Any, distribution: str) -> None:
    functions = CriterionFunctions(score=score)
    origin = Origin("criterion", "own", distribution)
    made = compile_criterion(functions, 2, False, origin, nominal=False).pointers
    sums = np.cumsum(np.random.default_rng(0).integers(0, 5, (2, 24)).astype(float), axis=1)
    totals, scores = sums[:, -1] + 1.0, np.zeros(24)
    made.score_cuts(sums, 24, totals, scores)
    plain = getattr(score, "py_func", score)
    expected = [plain(totals, np.array([own, totals - own])) for own in sums.T]
    np.testing.assert_allclose(scores, expected, rtol=1e-15)


@pytest.mark.parametrize("place", [(0, 2), (2, 0)])
def test_a_plugin_that_reads_beyond_its_arrays_is_an_error(place: tuple[int, int]) -> None:
    def score(parent: Any, children: Any) -> float:
        return children[place]

    rows = np.column_stack([np.ones(20), np.zeros(20)])
    with pytest.raises(IndexError):
        scan(compiled(score, dense=True), rows, dense=True)
