"""Concordance and Brier scores compared with brute force and R; curves as step functions."""

import csv

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from treekit_survival import (
    ROSSI,
    Curves,
    brier_score,
    concordance,
    curves_of,
    integrated_brier_score,
)


@pytest.fixture(scope="module")
def rossi():
    with ROSSI.open(encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    return dict(zip(header, np.array(rows, dtype=np.float64).T, strict=True))


def by_pairs(rows):
    """Compute Harrell's concordance pair by pair; None without comparable pairs."""
    told = pairs = 0.0
    for t, e, r in rows:
        for u, f, s in rows:
            if e and (u > t or (u == t and not f)):
                pairs += 1
                told += 1.0 if r > s else 0.5 if r == s else 0.0
    return told / pairs if pairs else None


ROWS = st.lists(
    st.tuples(st.integers(0, 9), st.booleans(), st.integers(-3, 3)), min_size=1, max_size=40
)


@settings(deadline=None)
@given(ROWS)
def test_concordance_equals_the_count_of_all_pairs(rows):
    expected = by_pairs(rows)
    if expected is None:
        with pytest.raises(ValueError, match="no comparable pair of rows"):
            concordance(*zip(*rows, strict=True))
    else:
        assert concordance(*zip(*rows, strict=True)) == pytest.approx(expected, abs=1e-12)


def test_concordance_equals_r(rossi):
    # concordance(Surv(week, arrest) ~ age), and ~ prio with reverse = TRUE, in R's survival
    # 3.5-3; timewt = "n/G2" is Uno's, here of the first 300 rows
    week, arrest = rossi["week"], rossi["arrest"]
    assert concordance(week, arrest, -rossi["age"]) == pytest.approx(0.61363956601380865)
    assert concordance(week, arrest, rossi["prio"]) == pytest.approx(0.58793621718096856)
    first = week[:300], arrest[:300]
    weighed = concordance(*first, rossi["prio"][:300], censoring=first)
    assert weighed == pytest.approx(0.59947930939983562)


def test_censoring_weights_remove_the_bias_of_concordance():
    rng = np.random.default_rng(5)
    x = rng.normal(size=20_000)
    time = rng.weibull(1.0, size=20_000) * np.exp(-np.where(x > 0, 2 * x, 0))
    gone = rng.uniform(0.0, 1.5, size=20_000)
    seen, event = np.minimum(time, gone), time <= gone
    true = concordance(time, np.ones(20_000), x, until=1.0)
    plain = concordance(seen, event, x, until=1.0)
    weighed = concordance(seen, event, x, until=1.0, censoring=(seen, event))
    assert abs(weighed - true) < 0.01 < abs(plain - true)


def test_brier_score_without_censoring_is_the_mean_squared_error():
    time, times = np.array([1.0, 2.0, 4.0]), np.array([0.5, 2.0, 3.0])
    survival = np.array([[0.9, 0.4, 0.2], [0.8, 0.5, 0.1], [1.0, 0.7, 0.6]])
    errors = (survival - (time[:, None] > times)) ** 2
    scores = brier_score(survival, times, time, np.ones(3))
    assert scores == pytest.approx(errors.mean(axis=0))
    whole = integrated_brier_score(survival, times, time, np.ones(3))
    assert whole == pytest.approx(np.trapezoid(scores, times) / 2.5)


def test_brier_score_weights_rows_by_inverse_censoring_probability():
    # Graf et al. 1999 by hand: one of four rows is censored at 1, so that G is 3/4 from then on.
    time, event = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 1, 1, 0])
    survival = np.full((4, 1), 0.7)
    by_hand = (0.7**2 / 0.75 + 2 * 0.3**2 / 0.75) / 4
    assert brier_score(survival, [2.5], time, event) == pytest.approx([by_hand])
    known = ([1.0, 9.0], [1, 1])  # no censored rows
    assert brier_score(survival, [2.5], time, event, censoring=known) == pytest.approx(
        [(0.7**2 + 2 * 0.3**2) / 4]
    )


def test_event_weight_uses_the_censoring_distribution_before_its_time():
    # Two rows leave at 2, one by its event: it was seen for sure; of the others half are left.
    time, event = np.array([2.0, 2.0, 3.0]), np.array([1, 0, 0])
    score = brier_score(np.full((3, 1), 0.7), [2.5], time, event)
    assert score == pytest.approx([(0.7**2 + 0.3**2 / 0.5) / 3])


def test_kaplan_meier_curve_has_a_lower_brier_score_than_one_half(rossi):
    from treekit_survival import kaplan_meier

    week, arrest = rossi["week"], rossi["arrest"]
    times, survival = kaplan_meier(week, arrest)
    times, survival = times[:-1], survival[:-1]  # all are gone by week 52
    everyone = np.tile(survival, (432, 1))
    score = integrated_brier_score(everyone, times, week, arrest)
    assert score < integrated_brier_score(np.full_like(everyone, 0.5), times, week, arrest)
    squared = brier_score(everyone, times, week, arrest)
    assert squared == pytest.approx(survival * (1 - survival))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: concordance([1, 2], [1, 1], [0.5]), "risk must be 2 numbers"),
        (lambda: concordance([1, 2], [1, 1], [0.5, np.nan]), "risk must be 2 numbers"),
        (lambda: concordance([1, 2], [1, 2], [0, 1]), "events true or false"),
        (lambda: concordance([1, np.inf], [1, 1], [0, 1]), "times must be finite"),
        (lambda: concordance([1, 2], [1], [0, 1]), "one time and one event per row"),
        (lambda: concordance([1, 3], [1, 1], [0, 1], censoring=([0.5], [0])), "all rows in cens"),
        (lambda: brier_score(np.ones((2, 2)), [1], [1, 2], [1, 1]), "survival must have shape"),
        (lambda: integrated_brier_score(np.ones((2, 1)), [1], [1, 2], [1, 1]), "at least two"),
        (lambda: curves_of(np.ones((2, 1)), ["income"]), "'income' are not 'risk' and"),
        (lambda: curves_of(np.ones((1, 2)), ["risk", "S(1)"]).quantile(1.0), "between 0 and 1"),
    ],
)
def test_invalid_arguments_of_measures_raise_value_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.fixture
def two():
    names = ["risk", "S(2)", "S(0.5)", "S(10)"]
    return curves_of([[3.0, 0.6, 0.9, 0.5], [1.0, 0.8, 1.0, 0.7]], names)


def test_curves_are_read_by_the_names_of_predictions(two):
    assert isinstance(two, Curves)
    assert two.times.tolist() == [0.5, 2.0, 10.0]
    assert two.survival.tolist() == [[0.9, 0.6, 0.5], [1.0, 0.8, 0.7]]
    assert two.risk.tolist() == [3.0, 1.0]


def test_curve_is_a_step_function_constant_after_its_last_time(two):
    at = two.at([0.0, 0.5, 1.9, 2.0, 99.0])
    assert at.tolist() == [[1.0, 0.9, 0.9, 0.6, 0.5], [1.0, 1.0, 1.0, 0.8, 0.7]]


def test_median_is_the_first_time_with_survival_at_most_one_half(two):
    assert two.median().tolist() == [10.0, np.inf]
    assert two.quantile(0.2).tolist() == [2.0, 2.0]


def test_restricted_mean_equals_the_area_below_the_curve(two):
    expected = [0.5 + 1.5 * 0.9 + 4 * 0.6, 0.5 + 1.5 + 4 * 0.8]
    assert two.mean(6.0) == pytest.approx(expected)
    assert two.mean(0.25) == pytest.approx([0.25, 0.25])
