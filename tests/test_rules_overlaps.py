"""Overlaps, conflicts, shadows, rules that never answer and gaps, against every cell of a grid."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import rules as oracle
from tests.strategies import models
from treekit.data.schema import Column, Schema
from treekit.errors import DataError
from treekit.model.builder import build_tree, leaf, oblique, threshold
from treekit.model.model import make_model
from treekit.rules import overlapping_rules, parse_rules, rules
from treekit.rules.merge import Asked, regrouped

NAN = math.nan
COLUMNS = (Column("x"), Column("colour", "nominal", ("red", "green", "blue")), Column("y"))


def rule_list(*boxes, order="first", missing="direction", dtype="float32", labels=None):
    """A list with one rule for each mapping of columns to what it takes; '?' = missing too."""
    schema = Schema(COLUMNS, classes=("a", "b"), dtype=dtype)
    model = make_model(schema, [build_tree(leaf([1, 2]), schema)], missing=missing)
    one = rules(model)
    labels = labels or [0] * len(boxes)
    many = replace(
        one,
        order=order,
        **{name: np.repeat(getattr(one, name), len(boxes), axis=0)
           for name in ("tree", "leaf", "support", "as_parent", "value")},
        units=np.eye(2, dtype=np.int64)[labels] * 2**24,
        end=np.zeros(len(boxes), dtype=np.int64),
    )  # fmt: skip
    found = {k: [asked(c, *what) for c, what in box.items()] for k, box in enumerate(boxes)}
    return regrouped(many, np.arange(len(boxes)), found)[0]


def asked(column, takes, missing=False):
    number = [c.name for c in COLUMNS].index(column)
    part = (0, 2**24) if missing else (0, 0)
    if takes is None:
        return Asked(number, -math.inf, math.inf, False, missing, part, (), ())
    if column == "colour":
        codes = tuple(sorted(COLUMNS[1].levels.index(level) for level in takes))
        return Asked(number, -math.inf, math.inf, bool(codes), missing, part, codes, ())
    return Asked(number, *map(float, takes), True, missing, part, (), ())


@st.composite
def boxes(draw):
    ends = st.sampled_from([-math.inf, 0.0, 1.0, 2.0, 3.0, math.inf])
    box = {}
    for column in draw(st.sets(st.sampled_from(["x", "colour", "y"]))):
        missing = draw(st.booleans())
        if column == "colour":
            takes = draw(st.sets(st.sampled_from(COLUMNS[1].levels), min_size=0))
            box[column] = (takes or None, missing)
        else:
            low, high = draw(ends), draw(ends)
            known = low < high
            box[column] = ((low, high) if known else None, missing)
    return box


NUMBERS = (0.0, 1.0, 2.0, 3.0, 4.0, NAN)
GRID = [*itertools.product(NUMBERS, (0.0, 1.0, 2.0, NAN), NUMBERS)]


@given(st.lists(boxes(), min_size=1, max_size=6), st.booleans(), st.booleans(), st.data())
@settings(max_examples=examples(40))
def test_what_is_reported_is_what_every_row_of_a_grid_shows(found, ordered, refusing, data):
    labels = [data.draw(st.integers(0, 1)) for _ in found]
    listed = rule_list(
        *found,
        order="first" if ordered else "disjoint",
        missing="error" if refusing else "direction",
        labels=labels,
    )
    report = overlapping_rules(listed)
    rows = np.array(GRID)
    rows = rows[~listed.refused(rows)]
    alone = replace(listed, order="disjoint")  # what rules fit, whichever answers
    fit = np.array([[mass > 0 for _, mass in oracle.masses(alone, row)] for row in rows])
    n = len(found)
    told = n - 1 if ordered and not found[-1] else n  # a last rule for the rest is no news
    met = [(i, j) for i in range(n) for j in range(i + 1, told) if (fit[:, i] & fit[:, j]).any()]
    assert report.exact
    assert [tuple(pair) for pair in report.pairs.tolist()] == met
    assert report.conflicts.tolist() == [labels[i] != labels[j] for i, j in met]
    for k in range(n):
        own = fit[:, k]
        inside = [
            j for j in range(n)
            if j != k and own.any() and not (own & ~fit[:, j]).any()
            and (j < k or (not ordered and not (fit[:, j] == own).all()))
        ]  # fmt: skip
        assert report.shadowed[k] == (inside[0] if inside else -1)
        if not own.any():
            assert report.reach[k] == "empty"
        elif ordered and not (own & ~fit[:, :k].any(axis=1)).any():
            assert report.reach[k] == "never"
        else:
            assert report.reach[k] == "reached"
    assert report.gap == (not fit.any(axis=1).all())
    if report.gap:
        codes = {level: code for code, level in enumerate(COLUMNS[1].levels)}
        row = [report.witness.get(c.name, 0.0) for c in COLUMNS]
        cells = [NAN if v is None else codes.get(v, v) for v in row]
        assert not any(mass for _, mass in oracle.masses(listed, cells))


@given(st.data())
@settings(max_examples=examples(15))
def test_rules_of_trees_neither_overlap_nor_leave_a_gap(data):
    model = data.draw(models())
    listed = rules(model)
    for tree in range(model.n_trees):
        report = overlapping_rules(listed, tree)
        assert len(report.pairs) == 0
        assert report.gap is False
        assert not report.conflicts.any()


def test_a_bound_that_no_number_of_the_type_passes_takes_no_row():
    tiny = {"x": ((1.0, 1.0 + 1e-12), False)}
    assert overlapping_rules(rule_list(tiny, {})).reach == ("empty", "reached")
    assert overlapping_rules(rule_list(tiny, {}, dtype="float64")).reach == ("reached", "reached")


def test_the_report_reads_as_a_person_wants_it():
    listed = rule_list(
        {"x": ((-math.inf, 2.0), False)},
        {"x": ((1.0, 3.0), False), "colour": (["red"], False)},
        {"x": ((0.0, 1.0), False)},
        {"x": (None, False)},
        labels=[0, 1, 0, 0],
    )
    table = {"x": [1.5, 9.0, 0.5, None], "colour": ["red"] * 4, "y": [0, 0, 0, 0]}
    report = overlapping_rules(listed, table=table)
    assert report.text().splitlines() == [
        "4 rules, compared by what their conditions take",
        "Rules 1 and 2 overlap and contradict each other.",
        "Rules 1 and 3 overlap and say the same.",
        "Rule 3 is shadowed: whatever fits it fits rule 1.",
        "Rule 3 never answers: rules before it take all that fits it.",
        "Rule 4 fits no row: its conditions exclude each other.",
        f"No rule fits this row: {said(report)}.",
        "Of 4 rows in the table 0 are refused, 2 fit no rule, 2 fit several, 1 of them with "
        "different answers.",
    ]
    assert report.counts.answered.tolist() == [2, 0, 0, 0]
    assert "规则 1 与规则 2 重叠，结论相互矛盾。" in report.text("zh")
    assert "... and 1 more" in report.text(most=1)
    plain = report.plain()
    assert plain["conflicts"] == [[1, 2]]
    assert plain["reach"] == {"3": "never", "4": "empty"}


def said(report):
    kinds = {float: lambda v: f"{v:g}", str: lambda v: f'"{v}"', type(None): lambda v: "missing"}
    return ", ".join(f"{name} = {kinds[type(v)](v)}" for name, v in report.witness.items())


def test_a_budget_that_ends_is_said():
    listed = rule_list(
        {"x": ((-math.inf, 2.0), True)}, {"x": ((1.0, math.inf), False)}, {"y": ((0, 1), False)}
    )
    assert overlapping_rules(listed).reach[2] == "never"
    report = overlapping_rules(listed, steps=0)
    assert report.gap is None
    assert report.reach == ("reached", "undecided", "undecided")
    assert "not decided" in report.text()


def test_a_last_rule_for_the_rest_overlaps_none_and_contradicts_none():
    found = {"x": ((-math.inf, 1.0), False)}, {"x": ((1.0, 2.0), False)}, {}
    table = {"x": [0.5, 1.5, 9.0], "colour": ["red"] * 3, "y": [0] * 3}
    report = overlapping_rules(rule_list(*found, labels=[0, 0, 1]), table=table)
    assert report.text().splitlines() == [
        "3 rules, compared by what their conditions take",
        "No two rules with conditions fit one row.",
        "Every row fits some rule.",
        "Of 3 rows in the table 0 are refused, 0 fit no rule, 0 fit several, 0 of them with "
        "different answers.",
    ]
    assert report.counts.answered.tolist() == [1, 1, 1]
    # It is news where nothing is left for it, where it is not the last, and without an order.
    late = overlapping_rules(rule_list({"x": ((-math.inf, math.inf), True)}, {}, labels=[0, 1]))
    assert late.reach == ("reached", "never")
    assert late.shadowed.tolist() == [-1, 0]
    early = overlapping_rules(rule_list({}, found[0], labels=[1, 0]))
    assert early.conflicts.tolist() == [True]
    free = overlapping_rules(rule_list(*found, order="disjoint", labels=[0, 0, 1]), table=table)
    assert free.pairs.tolist() == [[0, 2], [1, 2]]
    assert free.conflicts.tolist() == [True, True]
    assert free.counts.conflicting == 2


def test_tests_of_several_columns_only_may_overlap():
    schema = Schema((Column("x"), Column("y")), classes=("a", "b"))
    inner = oblique({"x": 1.0, "y": 1.0}, 0.0, leaf([1, 0]), leaf([0, 1]))
    root = oblique({"x": 1.0, "y": -1.0}, 0.0, inner, leaf([2, 1]))
    listed = rules(make_model(schema, [build_tree(root, schema)]))
    report = overlapping_rules(listed)
    assert not report.exact
    assert report.gap is False
    assert "may do so" in report.text()


def test_what_has_no_single_list_is_refused_by_name():
    schema = Schema((Column("x"),), classes=("a", "b"))
    tree = build_tree(threshold("x", 1.0, leaf([1, 0]), leaf([0, 1])), schema)
    with pytest.raises(DataError, match="name one tree"):
        overlapping_rules(rules(make_model(schema, [tree] * 2)))
    with pytest.raises(DataError, match="no tree 2"):
        overlapping_rules(rules(make_model(schema, [tree] * 2)), 2)
    with pytest.raises(DataError, match="share rows by design"):
        overlapping_rules(rules(make_model(schema, [tree], missing="fractional")))


def test_an_edited_text_shows_its_gap_and_its_overlap():
    schema = Schema((Column("x"),), classes=("a", "b"))
    tree = build_tree(threshold("x", 1.0, leaf([1, 0]), leaf([0, 1])), schema)
    text = str(rules(make_model(schema, [tree])))
    wider = overlapping_rules(parse_rules(text.replace("x <= 1\n", "x <= 2\n")))
    assert wider.pairs.tolist() == [[0, 1]]
    assert wider.gap is False
    narrow = overlapping_rules(parse_rules(text.replace("x <= 1\n", "x <= 0.5\n")))
    assert narrow.gap
    assert narrow.witness == {"x": 1.0}


def test_the_witness_behind_the_largest_number_is_infinity():
    largest = float(np.finfo(np.float32).max)
    report = overlapping_rules(rule_list({"x": ((-math.inf, largest), True)}))
    assert report.gap
    assert report.witness == {"x": math.inf}


@pytest.mark.matrix
def test_a_list_of_two_thousand_random_rules_is_compared_in_seconds():
    rng = np.random.default_rng(0)
    low = rng.normal(size=(2000, 2))
    found = [{"x": ((a, a + 0.2), False), "y": ((b, b + 0.2), False)} for a, b in low.tolist()]
    begun = time.process_time()
    report = overlapping_rules(rule_list(*found, dtype="float64"), steps=500)
    assert time.process_time() - begun < 20
    assert report.gap
    x, y = low.T
    near = (abs(x[:, None] - x) < 0.2) & (abs(y[:, None] - y) < 0.2)
    assert len(report.pairs) == np.triu(near, 1).sum()
