"""Rules of models with oblique splits, surrogates, divided rows, costs and several targets."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import evaluate
from tests.reference import rules as oracle
from tests.strategies import ALL_KINDS, matrices, models
from treekit.data.schema import Column, Output, Schema
from treekit.errors import ModelFileError
from treekit.model.builder import (
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.model import make_model
from treekit.rules import parse_rules, rules

NAN, INF = float("nan"), float("inf")
MASS = 2**24


def fruit(**other):
    columns = (
        Column("density"),
        Column("sugar"),
        Column("colour", "nominal", ("red", "green", "blue")),
    )
    return Schema(columns, **{"target": "ripe", "classes": ("unripe", "ripe")} | other)


def oblique_model(**policies):
    split = oblique({"density": 0.5, "sugar": -1.25}, 0.875, leaf([3, 1]), leaf([0, 4]), missing=1)
    root = threshold("density", 2.5, split, leaf([1, 1]), missing=0)
    return make_model(fruit(), [build_tree(root, fruit())], **policies)


def surrogate_model():
    instead = (
        Surrogate("sugar", 0.25, below=1),
        Surrogate("colour", levels={"red": 0, "blue": 1}),
    )
    split = threshold("density", 2.5, leaf([3, 1]), leaf([1, 4]), missing=1, surrogates=instead)
    return make_model(fruit(), [build_tree(split, fruit())], missing="surrogate")


def divided_model(**policies):
    colours = multiway("colour", {"red": leaf([1, 4]), "blue": leaf([2, 2])})
    root = threshold("density", 2.5, leaf([3, 1]), colours)
    return make_model(fruit(), [build_tree(root, fruit())], missing="fractional", **policies)


def body(model, number):
    """Lines of one rule."""
    return str(rules(model)).split(f"\nrule {number} of ")[1].split("\n\n")[0].splitlines()[1:]


# ------------------------------------------------------------------ exact


@pytest.mark.matrix
@given(st.data())
@settings(max_examples=examples(60))
def test_the_text_of_any_model_alone_sums_to_what_the_model_means(data):
    model = data.draw(models(kinds=ALL_KINDS))
    rows = data.draw(matrices(model, max_rows=8))
    text = str(rules(model))
    read = parse_rules(text)
    assert str(read) == text
    wanted = [evaluate.sums(model, row) for row in rows.tolist()]
    assert read.sums(rows).tolist() == rules(model).sums(rows).tolist() == wanted


@given(st.data())
@settings(max_examples=examples(40))
def test_in_each_tree_the_parts_of_a_row_add_up_to_its_mass(data):
    model = data.draw(models(kinds=ALL_KINDS))
    listed = rules(model)
    for row in data.draw(matrices(model, max_rows=4)):
        found = oracle.masses(listed, row)
        for tree in range(model.n_trees):
            assert sum(mass for rule, mass in found if rule.tree == tree) == MASS
        assert oracle.sums(listed, row) == listed.sums(row[None])[0].tolist()


def test_infinities_that_cancel_are_unknown_even_where_missing_values_are_refused():
    split = oblique({"density": 1.0, "sugar": -1.0}, 0.0, leaf([3, 1]), leaf([0, 4]), missing=1)
    model = make_model(fruit(), [build_tree(split, fruit())], missing="error")
    rows = [[INF, INF, 0.0], [1.0, 2.0, 0.0], [-INF, 3.0, 0.0]]
    read = parse_rules(str(rules(model)))
    assert body(model, 2)[0].endswith(", or is unknown")
    assert read.sums(rows).tolist() == [evaluate.sums(model, row) for row in rows]


# ------------------------------------------------------------------ words


def test_an_oblique_rule_shows_its_inequality():
    text = str(rules(oblique_model()))
    assert "  test 1: 0.5 * density + -1.25 * sugar <= 0.875\n" in text
    assert body(oblique_model(), 1) == [
        "  if  density <= 2.5, or is missing",
        "  and test 1 holds (0.5 * density + -1.25 * sugar <= 0.875)",
        "  then unripe   support 4   unripe: 0.75, ripe: 0.25",
    ]
    assert body(oblique_model(), 2)[1] == (
        "  and test 1 fails (0.5 * density + -1.25 * sugar > 0.875), or is unknown"
    )


def test_a_long_sum_stands_in_the_header_alone():
    schema = Schema(tuple(Column(f"measurement {i}") for i in range(6)), classes=("a", "b"))
    weights = {f"measurement {i}": 0.1 * (i + 1) for i in range(6)}
    split = oblique(weights, 1 / 3, leaf([1, 0]), leaf([0, 1]))
    model = make_model(schema, [build_tree(split, schema)])
    assert body(model, 1)[0] == "  if  test 1 holds"
    assert '0.6 * "measurement 5" <= 0.3333333333333333\n' in str(rules(model))
    assert str(parse_rules(str(rules(model)))) == str(rules(model))


def test_surrogates_are_named_in_the_order_in_which_they_are_asked():
    text = str(rules(surrogate_model()))
    assert (
        "  test 1: density <= 2.5; if that is unknown: sugar > 0.25; if that is unknown: "
        "colour is red rather than blue\n"
    ) in text
    assert body(surrogate_model(), 1)[0] == "  if  test 1 holds (density <= 2.5 if known)"


def test_divided_rules_state_exact_bounds_and_a_percentage():
    assert body(divided_model(), 2) == [
        "  if  density > 2.5, or is missing: 5162220 to 16777216 (69.2%)",
        "  and colour is red, or is missing or green: 0 to 9320676 (55.6%)",
        "  then ripe   support 5   unripe: 0.2, ripe: 0.8",
    ]
    (rule,) = [rule for rule in rules(divided_model()) if rule.leaf == 3]
    assert rule.conditions[1].part == (0, 9320676)
    assert rule.conditions[1].dividing == ("green",)
    assert rule.conditions[1].levels == ("red",)


def test_conditions_of_divided_rules_are_not_merged():
    inner = threshold("density", 1.0, leaf([1, 0]), leaf([1, 2]))
    root = threshold("density", 2.0, inner, leaf([2, 2]))
    model = make_model(fruit(), [build_tree(root, fruit())], missing="fractional")
    assert [line.split(",")[0] for line in body(model, 2)[:2]] == [
        "  if  density <= 2",
        "  and density > 1",
    ]
    listed, row = rules(model), [[NAN, 0, 0]]
    assert listed.sums(row).tolist() == [evaluate.sums(model, row[0])]


def test_the_question_whether_a_value_is_missing_divides_no_row():
    tree = build_tree(is_missing("colour", leaf([1, 0]), leaf([0, 3])), fruit())
    model = make_model(fruit(), [tree], missing="fractional")
    assert [body(model, number)[0] for number in (1, 2)] == [
        "  if  colour is missing",
        "  if  colour is known",
    ]
    assert rules(model).sums([[1, 1, NAN], [1, 1, 2]]).tolist() == [[MASS**2, 0], [0, MASS**2]]


def test_costs_are_a_table_and_decide_each_rule():
    text = str(rules(oblique_model(costs=[[0, 1], [9, 0]])))
    assert "  when it is ripe, what each answer costs   unripe: 9, ripe: 0\n" in text
    assert "class of least cost" in text
    assert "  then ripe   support 4   unripe: 0.75, ripe: 0.25\n" in text
    read = parse_rules(text)
    assert read.costs.tolist() == [[0, 1], [9, 0]]
    assert read[0].label == "ripe"


def test_a_rule_of_a_hard_vote_has_one_vote():
    text = str(rules(oblique_model(voting="hard")))
    assert "votes    1\n" in text
    assert "  then unripe   support 4   unripe: 1\n" in text
    assert parse_rules(text).voting == "hard"


def test_each_of_several_targets_has_its_line():
    schema = fruit(more=(Output("size", (1, 2, 3)), Output("sort", ("a b", "c"))))
    split = threshold("density", 0.5, leaf([0, 1, 0, 1, 3, 1, 1]), leaf([1, 3, 3, 1, 0, 0, 2]))
    model = make_model(schema, [build_tree(split, schema)])
    assert body(model, 1) == [
        "  if  density <= 0.5",
        "  then ripe: ripe   support 7   ripe: 1",
        "       size: 3   2: 0.25, 3: 0.75",
        '       sort: "a b"   "a b": 0.5, c: 0.5',
    ]
    read = parse_rules(str(rules(model)))
    assert read.schema == schema
    assert [answer.label for answer in read[0].answers] == ["ripe", 3, "a b"]


def test_several_numbers_are_stated_exactly():
    schema = Schema((Column("x"),), target="a", task="regression", more=(Output("b"),))
    split = threshold("x", 0.5, leaf([0.1, 1e6]), leaf([1.5, -2.0]))
    model = make_model(schema, [build_tree(split, schema)])
    assert body(model, 2)[-2:] == ["  then a: 1.5   support 1", "       b: -2"]
    read = parse_rules(str(rules(model)))
    assert read.schema == schema
    assert np.array_equal(read.units, rules(model).units)
    assert [answer.value for answer in read[1].answers] == [1.5, -2.0]


def test_a_leaf_that_no_training_row_reached_says_that_it_answers_as_above():
    below = multiway("colour", {"red": leaf([3, 1]), "green": leaf([3, 1], 0)})
    other = subset("colour", ["red"], leaf([1, 0], 0), leaf([1, 1]))
    trees = [threshold("density", 0.5, below, other)]
    model = make_model(fruit(), [build_tree(tree, fruit()) for tree in trees])
    said = [line for line in str(rules(model)).splitlines() if line.startswith("  then")]
    assert [line.split("   ")[1] for line in said] == [
        "support 4",
        "support 0 (as above)",
        "support 0",
        "support 2",
    ]
    read = parse_rules(str(rules(model)))
    assert [rule.as_parent for rule in read] == [False, True, False, False]
    assert "as above" not in str(rules(oblique_model()))


# ------------------------------------------------------------------ strict


def broken_texts():
    text = str(rules(oblique_model(costs=[[0, 1], [9, 0]])))
    yield text.replace("test 1 holds", "test 2 holds"), "no test 2"
    yield text.replace("sugar <= 0.875)", "sugar <= 0.876)"), "does not follow from the test"
    yield text.replace("sugar <= 0.875\n", "sugar <= 0.876\n"), "does not follow from the test"
    yield text.replace("tests    1", "tests    2"), "expected test 2"
    yield text.replace("* sugar <= 0.875\n", "* colour <= 0.875\n"), "is not a number"
    yield text.replace("-1.25 * sugar <", "0 * sugar <"), "a weight is 0"
    yield text.replace("), or is unknown", "), or is missing"), "kind of its column"
    yield text.replace("ripe: 9", "ripe: 99999"), "from 0 to 16384"
    yield text.replace("unripe: 0, ripe: 1", "unripe: 2, ripe: 1"), "0 for a right answer"
    yield (
        text.replace("then ripe   support 4   unripe: 0", "then unripe   support 4   unripe: 0"),
        ("least cost"),
    )
    text = str(rules(divided_model()))
    yield text.replace("(69.2%)", "(69.3%)"), "percentage"
    yield text.replace("5162220 to 16777216", "5162220 to 16777217"), "part of a row"
    yield text.replace("missing  fractional", "missing  direction"), "part of a row"
    yield text.replace("or green: ", "or red: "), "named twice"
    text = str(rules(surrogate_model()))
    yield text.replace("; if that is unknown: sugar", "; else sugar"), "is not a test"
    yield text.replace("rather than blue", "rather than blau"), "not in"


@pytest.mark.parametrize(("text", "said"), list(broken_texts()))
def test_a_text_of_the_new_kinds_is_read_as_strictly(text, said):
    with pytest.raises(ModelFileError, match=r"line \d+ of the rules") as caught:
        parse_rules(text)
    assert said in str(caught.value)


def test_hostile_names_stay_inside_their_quotes_in_tests_and_targets():
    names = ["a * b", "test 1 holds", "x; if that is unknown: y", "1 + 1", "rather than"]
    columns = (*(Column(name) for name in names), Column("c", "nominal", ("}", '"', "; if")))
    more = (Output("then\n", ("a: 1", ", b")),)
    schema = Schema(columns, target='size: "', classes=("   support 1", "yes"), more=more)
    sum_of_all = oblique(dict.fromkeys(names, 2.0), 1.0, leaf([1, 0, 0, 1]), leaf([0, 1, 1, 0]))
    instead = [Surrogate("c", levels={"}": 0, '"': 1}), Surrogate(names[2], 3.0)]
    split = threshold("a * b", 2.0, sum_of_all, leaf([1, 1, 1, 1]), surrogates=instead)
    model = make_model(schema, [build_tree(split, schema)], missing="surrogate")
    text = str(rules(model))
    assert len(re.findall(r"^rule ", text, re.MULTILINE)) == 3
    read = parse_rules(text)
    assert read.schema == schema
    assert str(read) == text
    rows = np.random.default_rng(0).choice([0.0, 1.0, 2.0, 5.0, NAN], size=(200, 6))
    wanted = [evaluate.sums(model, row) for row in rows.tolist()]
    assert read.sums(rows).tolist() == wanted
