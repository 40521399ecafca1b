"""Qini and uplift curves compared with counts by hand, and scores of rankings."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import treekit_uplift
from treekit_uplift import auuc_score, qini_curve, qini_score, simulate, uplift_curve

from treekit.errors import DataError

EFFECT = [0.9, 0.8, 0.8, 0.5, 0.1, 0.1]
TREATED = [1, 1, 0, 0, 1, 0]
OUTCOME = [1, 0, 0, 1, 0, 1]


def counted(effect, treated, outcome):
    """Compute the Qini and the uplift curve by their definitions, threshold by threshold."""
    effect, treated, outcome = map(np.asarray, (effect, treated, outcome))
    points = [(0.0, 0.0, 0.0)]
    for least in sorted(set(effect.tolist()), reverse=True):
        among = effect >= least
        n, n_t = among.sum(), (among & (treated == 1)).sum()
        r_t = (among & (treated == 1) & (outcome == 1)).sum()
        r_c = (among & (treated == 0) & (outcome == 1)).sum()
        n_c = n - n_t
        qini = (r_t - (r_c * n_t / n_c if n_c else 0)) / (treated == 1).sum()
        lift = (r_t / n_t if n_t else 0) - (r_c / n_c if n_c else 0)
        points.append((n / len(effect), qini, lift * n / len(effect)))
    return np.array(points).T


def test_curves_count_the_rows_above_each_prediction():
    rng = np.random.default_rng(2)
    random = rng.integers(0, 9, 50) / 8, rng.integers(0, 2, 50), rng.integers(0, 2, 50)
    for rows in ((EFFECT, TREATED, OUTCOME), random):
        share, qini, lift = counted(*rows)
        for curve, expected in ((qini_curve, qini), (uplift_curve, lift)):
            at, gain = curve(*rows)
            assert at == pytest.approx(share)
            assert gain == pytest.approx(expected)


def test_scores_are_areas_above_the_straight_line():
    for curve, score in ((qini_curve, qini_score), (uplift_curve, auuc_score)):
        share, gain = curve(EFFECT, TREATED, OUTCOME)
        area = sum(
            (share[i + 1] - share[i]) * (gain[i] + gain[i + 1]) / 2 for i in range(len(share) - 1)
        )
        assert score(EFFECT, TREATED, OUTCOME) == pytest.approx(area - gain[-1] / 2)


def test_the_order_of_rows_with_equal_predictions_has_no_effect():
    turned = [values[::-1] for values in (EFFECT, TREATED, OUTCOME)]
    assert qini_score(*turned) == qini_score(EFFECT, TREATED, OUTCOME)
    assert qini_score(np.zeros(6), TREATED, OUTCOME) == 0.0


def test_true_effects_score_highest_and_their_negatives_lowest():
    table, effect = simulate(20_000, seed=3)
    arms = table["treat"] == "treated", table["y"]
    noise = np.random.default_rng(0).random(20_000)
    for score in (qini_score, auuc_score):
        best, chance, worst = (score(rank, *arms) for rank in (effect, noise, -effect))
        assert best > 0.1
        assert abs(chance) < 0.01
        assert worst == pytest.approx(-best, rel=0.1)


def test_simulated_effects_equal_the_difference_of_outcome_rates():
    table, effect = simulate(200_000, seed=1)
    treated = table["treat"] == "treated"
    assert treated.mean() == 0.5
    for low, high in ((-1, -0.5), (-0.2, 0.2), (0.5, 1)):
        rows = (effect > low) & (effect < high)
        seen = table["y"][rows & treated].mean() - table["y"][rows & ~treated].mean()
        assert seen == pytest.approx(effect[rows].mean(), abs=0.02)


def test_columns_may_be_correlated():
    table, _ = simulate(20_000, correlation=0.5)
    x = np.column_stack([table[f"X{j}"] for j in range(1, 21)])
    between = np.corrcoef(x.T)[np.triu_indices(20, 1)]
    assert between == pytest.approx(np.full(190, 0.5), abs=0.03)
    assert x.std(axis=0) == pytest.approx(np.ones(20), abs=0.03)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (([], [], []), "one number for each row"),
        (([0.1, np.nan], [0, 1], [0, 1]), "none missing"),
        (([0.1, 0.2], [0, 2], [0, 1]), "treated must be True or False"),
        (([0.1, 0.2], [0, 1], [0]), "outcome must be True or False .* for each of 2 rows"),
        (([0.1, 0.2], [1, 1], [0, 1]), "all rows have one arm"),
    ],
)
def test_invalid_rankings_are_refused(rows, message):
    with pytest.raises(DataError, match=message):
        qini_score(*rows)


def test_unknown_attribute_of_the_package_raises_attribute_error():
    assert all(hasattr(treekit_uplift, name) for name in treekit_uplift.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        treekit_uplift.nonsense  # noqa: B018 - the access is the test


def test_the_benchmark_runs(capsys):
    script = runpy.run_path(str(Path(__file__).parents[1] / "benchmark.py"))
    script["main"](["--rows", "300", "--seeds", "1", "--trees", "2"])
    assert "treekit forest" in capsys.readouterr().out
