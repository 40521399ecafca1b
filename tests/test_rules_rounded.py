"""Thresholds with few digits: the rows of a table stay where they were, and the text says so."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import rules as oracle
from tests.strategies import matrices, models
from treekit.data.schema import Column, Schema
from treekit.errors import DataError, ModelFileError, SettingError, VerificationError
from treekit.model.builder import build_tree, leaf, oblique, threshold
from treekit.model.model import make_model
from treekit.rules import parse_rules, rounded, rules
from treekit.rules.rule_list import Rounding
from treekit.rules.wording import numerals
from treekit.verify.run_rules import run_rules
from treekit.verify.runtime import Job

NAN = float("nan")


def listed(*thresholds, dtype="float64"):
    """One column, cut at ascending thresholds."""
    schema = Schema((Column("x"),), classes=("a", "b"), dtype=dtype)
    node = leaf([1, 0])
    for at in reversed(thresholds):
        node = threshold("x", float(np.dtype(dtype).type(at)), leaf([0, 1]), node)
    return rules(make_model(schema, [build_tree(node, schema)]))


def cuts(found):
    """The distinct thresholds as they are written."""
    table = found.conditions
    bounds = np.unique(np.concatenate([table.low, table.high]))
    return numerals(bounds[np.isfinite(bounds)], found.schema.dtype)


def column(*values):
    return np.array(values, dtype=np.float64)[:, None]


# ------------------------------------------------------------------ how far


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_threshold_has_the_digits_that_were_asked_for(dtype):
    found = rounded(listed(27.4938271, 61.123, dtype=dtype), 3, column(20, 30, 60, 65))
    assert cuts(found) == ["27.5", "61.1"]
    assert found.rounding == Rounding(3, 2, 2, 0, 4)


def test_digits_are_significant_ones_however_small_or_large_the_number():
    found = rounded(listed(-98765.4, 0.000123456, 1.23456e30), 2, column(0, 1))
    assert cuts(found) == ["-99000", "0.00012", "1.2e30"]


def test_a_threshold_that_would_pass_a_value_keeps_the_fewest_digits_that_do_not():
    found = rounded(listed(0.38151), 1, column(0.38151, 0.38152))
    assert cuts(found) == ["0.38151"]
    found = rounded(listed(0.38151), 1, column(0.381, 0.382))
    assert cuts(found) == ["0.3815"]
    assert found.rounding == Rounding(1, 1, 1, 1, 2)


def test_a_value_at_the_threshold_stays_below_it():
    assert cuts(rounded(listed(1.26), 2, column(1.26))) == ["1.3"]
    assert cuts(rounded(listed(1.24), 2, column(1.24))) == ["1.24"]
    assert cuts(rounded(listed(1.24), 2, column(1.2))) == ["1.2"]


def test_two_thresholds_never_become_one_nor_change_places():
    assert cuts(rounded(listed(1.11, 1.12, 1.13), 2, column(0, 5))) == ["1.1", "1.12", "1.13"]
    assert cuts(rounded(listed(1.06, 1.1, 1.14), 2, column(0, 5))) == ["1.06", "1.1", "1.14"]
    assert cuts(rounded(listed(1.04, 1.051), 2, column(0, 5))) == ["1", "1.1"]


def test_a_threshold_with_fewer_digits_stays_as_it_is():
    found = rounded(listed(27.5, 61), 4, column(1))
    assert cuts(found) == ["27.5", "61"]
    assert found.rounding == Rounding(4, 2, 0, 0, 1)


def test_the_largest_numbers_do_not_overflow():
    largest = float(np.finfo(np.float64).max)
    assert cuts(rounded(listed(largest), 1, column(0))) == ["1.79769e308"]


def test_sums_of_columns_keep_their_numbers():
    schema = Schema((Column("x"), Column("y")), classes=("a", "b"))
    split = oblique({"x": 0.125, "y": -1.0625}, 1 / 3, leaf([1, 0]), leaf([0, 1]))
    model = make_model(schema, [build_tree(split, schema)])
    found = rounded(rules(model), 1, [[0.0, 0.0]])
    assert found.tests == rules(model).tests
    assert found.rounding == Rounding(1, 0, 0, 0, 1)


# ------------------------------------------------------------------ the same rows


@given(st.data())
@settings(max_examples=examples(30))
def test_every_row_of_the_table_stays_in_its_rules(data):
    model = data.draw(models())
    rows = data.draw(matrices(model, max_rows=12))
    assume(len(rows))
    digits = data.draw(st.integers(1, 5))
    before = rules(model)
    after = rounded(before, digits, rows)
    assert np.array_equal(after.sums(rows), before.sums(rows))
    numbers = {rule: at for at, rule in enumerate(before)}
    moved = {rule: at for at, rule in enumerate(after)}
    for row in rows:
        fits = [numbers[rule] for rule in oracle.fitting(before, row)]
        assert [moved[rule] for rule in oracle.fitting(after, row)] == fits


@given(st.data())
@settings(max_examples=examples(20))
def test_any_row_at_all_fits_one_rule_of_each_tree(data):
    model = data.draw(models())
    rows = data.draw(matrices(model, max_rows=3))
    assume(len(rows))
    after = rounded(rules(model), 1, rows)
    for row in data.draw(matrices(model, max_rows=6)):
        assert [rule.tree for rule in oracle.fitting(after, row)] == list(range(model.n_trees))


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6, unique=True),
       st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8), st.integers(1, 4))  # fmt: skip
@settings(max_examples=examples(60))
def test_no_shorter_threshold_would_do(thresholds, values, digits):
    before, rows = listed(*sorted(thresholds)), np.array(values)
    after = rounded(before, digits, rows[:, None])
    old = [float(text) for text in cuts(before)]
    new = [float(text) for text in cuts(after)]
    assert len(old) == len(new)
    assert new == sorted(set(new))
    for at, (was, now) in enumerate(zip(old, new, strict=True)):
        assert ((rows <= was) == (rows <= now)).all()
        for count in range(digits, 18):
            shorter = float(f"{was:.{count - 1}e}")
            if shorter == now:
                break
            between = (at == 0 or new[at - 1] < shorter) and [*old, np.inf][at + 1] > shorter
            assert not between or ((rows <= was) != (rows <= shorter)).any()


# ------------------------------------------------------------------ said, and not hidden


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_text_says_what_was_done_and_reads_back(language):
    found = rounded(listed(27.4938271, 61.123), 3, column(20, 30, 60, 65))
    text = "".join(found.text(language=language))
    again = parse_rules(text)
    assert again.rounding == found.rounding
    assert "".join(again.text(language=language)) == text
    said = "only for such rows" if language == "en" else "仅对所核对的样本"
    assert said in text.casefold()


def test_what_the_header_says_of_the_digits_is_read_strictly():
    text = str(rounded(listed(27.4938271), 3, column(20, 30)))
    for old, new in (
        ("shortened: 1", "shortened: one"),
        ("Only for such rows is", "For all rows is"),
        ("digits   3", "digits   three"),
    ):
        with pytest.raises(ModelFileError, match=r"line \d+ of the rules"):
            parse_rules(text.replace(old, new))


def test_shortened_rules_are_no_artifact_of_the_model(tmp_path):
    schema = Schema((Column("x"),), classes=("a", "b"), dtype="float64")
    split = threshold("x", 27.4938271, leaf([0, 1]), leaf([1, 0]))
    model = make_model(schema, [build_tree(split, schema)])
    path = tmp_path / "m.rules.txt"
    path.write_text(str(rounded(rules(model), 3, column(20, 30))))
    job = Job(path, schema, tmp_path)
    with pytest.raises(VerificationError, match="shortened to 3 digits"):
        list(run_rules(job, np.zeros((1, 1))))


@pytest.mark.parametrize("digits", [0, 18, -1])
def test_digits_are_from_1_to_17(digits):
    with pytest.raises(SettingError, match=rf"digits is {digits}; it is from 1 to 17"):
        rounded(listed(1.5), digits, column(1))


@pytest.mark.parametrize("rows", [np.zeros((0, 1)), np.zeros((3, 2))])
def test_without_rows_to_look_at_nothing_is_shortened(rows):
    with pytest.raises(DataError, match=re.escape("at least one, of 1 columns")):
        rounded(listed(1.5), 1, rows)
