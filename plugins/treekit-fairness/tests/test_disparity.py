"""Test the disparity measures and their errors for groups without a rate."""

import runpy
from pathlib import Path

import pytest
import treekit_fairness
from treekit_fairness import (
    adult,
    demographic_parity_difference,
    equalised_odds_difference,
)

from treekit.errors import DataError

GROUPS = ["a", "a", "a", "a", "b", "b", "b", "b", "c", "c"]
TRUE = [1, 1, 0, 0, 1, 0, 0, 0, 1, 0]
SAID = [1, 0, 1, 0, 1, 0, 0, 0, 0, 0]


def test_demographic_parity_compares_the_selection_rates_of_groups():
    assert demographic_parity_difference(SAID, GROUPS, 1) == 0.5  # a: 2 of 4, c: none
    assert demographic_parity_difference(SAID[:8], GROUPS[:8], 1) == 0.25
    assert demographic_parity_difference(SAID, ["a"] * 10, 1) == 0.0


def test_equalised_odds_compare_rates_for_each_true_class():
    # Chosen among the truly positive: a 1/2, b 1/1, c 0/1; among the others: a 1/2, b and c 0.
    assert equalised_odds_difference(TRUE, SAID, GROUPS, 1) == 1.0
    assert equalised_odds_difference(TRUE[:8], SAID[:8], GROUPS[:8], 1) == 0.5
    assert equalised_odds_difference(TRUE, TRUE, GROUPS, 1) == 0.0


def test_disparities_are_the_same_for_either_class():
    for positive in (0, 1):
        assert equalised_odds_difference(TRUE, SAID, GROUPS, positive) == 1.0
        assert demographic_parity_difference(SAID, GROUPS, positive) == 0.5


def test_groups_without_a_rate_are_refused():
    with pytest.raises(DataError, match="group 'b' has no rows that are 1"):
        equalised_odds_difference([1, 0, 0], [1, 0, 0], ["a", "a", "b"], 1)
    with pytest.raises(DataError, match=r"one length, not \(3,\), \(2,\)"):
        demographic_parity_difference([1, 0, 0], ["a", "b"], 1)
    with pytest.raises(DataError, match=r"one length, not \(0,\), \(0,\)"):
        demographic_parity_difference([], [], 1)


def test_census_table_has_its_documented_rows():
    table = adult()
    assert {len(cells) for cells in table.values()} == {4000}
    assert set(table["income"].tolist()) == {"<=50K", ">50K"}
    assert (table["income"] == ">50K").mean() == pytest.approx(0.24, abs=0.02)
    # Women earn more than 50,000 a third as often as men; models learn this from other columns.
    assert demographic_parity_difference(table["income"], table["sex"], ">50K") > 0.15


def test_unknown_attribute_of_the_package_raises_attribute_error():
    assert all(hasattr(treekit_fairness, name) for name in treekit_fairness.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        treekit_fairness.nonsense  # noqa: B018 - the access is the test


def test_the_benchmark_runs(capsys):
    script = runpy.run_path(str(Path(__file__).parents[1] / "benchmark.py"))
    sides = list(script["_treekits"]().items())
    # One of each kind: the others differ only in a setting, and each setting is compiled.
    few = dict(sides[:2] + sides[-1:])
    script["main"].__globals__.update(_treekits=lambda: few, _fairlearns=dict)
    script["main"](["--seeds", "1"])
    said = capsys.readouterr().out
    assert all(name in said for name in few)
