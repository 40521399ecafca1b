"""Rules joined where one can say what several do, with every sum as before."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import evaluate
from tests.strategies import ALL_KINDS, matrices, models
from treekit.data.schema import Column, Output, Schema
from treekit.errors import ModelError
from treekit.model.builder import build_tree, is_missing, leaf, multiway, oblique, subset, threshold
from treekit.model.model import make_model
from treekit.model.scoring import predict, sums
from treekit.rules import joined_rules, parse_rules, rules, training_measures

NAN = math.nan
YES, NO = [0, 4], [3, 0]


def melons(**other):
    columns = (
        Column("density"),
        Column("colour", "nominal", ("green", "black", "white", "red")),
        Column("sugar"),
    )
    return Schema(columns, **{"target": "melon", "classes": ("raw", "good")} | other)


def model_of(root, schema=None, **policies):
    schema = schema or melons()
    return make_model(schema, [build_tree(root, schema)], **policies)


def body(listed):
    """The lines of the rules, without those that begin them."""
    return [part.splitlines()[1:] for part in str(listed).split("\n\n")[2:]]


@given(st.data())
@settings(max_examples=examples(40))
def test_a_joined_list_sums_as_the_model_does_is_never_longer_and_reads_back(data):
    model = few_answers(data.draw, data.draw(models(kinds=ALL_KINDS)))
    rows = data.draw(matrices(model, max_rows=8))
    leaves, short = rules(model), joined_rules(model)
    assert len(short) <= len(leaves)
    wanted = [evaluate.sums(model, row) for row in rows.tolist()]
    assert short.sums(rows).tolist() == wanted
    text = str(short)
    assert str(parse_rules(text)) == text
    assert parse_rules(text).sums(rows).tolist() == wanted
    assert math.isclose(short.support.sum(), leaves.support.sum())
    tree = np.bincount(short.tree, minlength=model.n_trees)
    assert (tree >= 1).all()


def few_answers(draw, model):
    """The model with the answers of few leaves, so that there is much to join."""
    if not draw(st.booleans()):
        return model
    n = len(model.units)
    same = draw(st.lists(st.integers(0, min(n, 3) - 1), min_size=n, max_size=n))
    return replace(model, units=model.units[same])


def test_a_split_whose_leaves_say_the_same_is_gone():
    split = threshold("density", 0.5, leaf(YES), subset("colour", ["red"], leaf(YES), leaf(YES)))
    model = model_of(threshold("sugar", 1.0, split, leaf(NO)))
    assert len(rules(model)) == 4
    assert body(joined_rules(model)) == [
        ["  if  sugar <= 1", "  then good   support 12   good: 1"],
        ["  if  sugar > 1, or is missing", "  then raw   support 3   raw: 1"],
    ]
    assert [rule.leaf for rule in joined_rules(model)] == [1, 2]
    assert training_measures(joined_rules(model)).coverage.tolist() == [0.8, 0.2]


def test_branches_that_say_the_same_are_one_set_of_values_and_no_negation():
    branches = {"green": leaf(YES), "white": leaf(NO), "black": leaf(YES), "red": leaf([1, 1])}
    model = model_of(multiway("colour", branches, missing=2))
    assert [lines[0] for lines in body(joined_rules(model))] == [
        "  if  colour is green or black, or is missing",
        "  if  colour is white",
        "  if  colour is red",
    ]
    assert joined_rules(model)[0].leaf == 0  # both leaves lie under the root
    assert joined_rules(model)[0].support == 8.0


def test_a_leaf_for_missing_values_joins_its_niece():
    known = threshold("density", 2.0, leaf(YES), leaf(NO))
    model = model_of(is_missing("density", leaf(YES), known))
    assert [lines[0] for lines in body(joined_rules(model))] == [
        "  if  density <= 2, or is missing",
        "  if  density > 2",
    ]


def test_intervals_that_touch_join_and_those_apart_do_not():
    upper = threshold("density", 3.0, leaf(YES), leaf(NO))
    model = model_of(
        threshold("density", 1.0, leaf(NO), threshold("density", 2.0, leaf(YES), upper))
    )
    assert [lines[0] for lines in body(joined_rules(model))] == [
        "  if  density <= 1",
        "  if  density > 1 and density <= 3",
        "  if  density > 3, or is missing",
    ]


def test_rows_that_divide_keep_one_range_of_their_mass():
    branches = {"green": leaf(YES), "black": leaf(YES), "white": leaf([4, 0]), "red": leaf(YES)}
    model = model_of(multiway("colour", branches), missing="fractional")
    short = joined_rules(model)
    assert [(c.levels, c.part) for rule in short for c in rule.conditions] == [
        (("green", "black"), (0, 8388608)),
        (("white",), (8388608, 12582912)),
        (("red",), (12582912, 2**24)),
    ]
    rows = [[0.0, NAN, 0.0], [0.0, 1.0, 0.0], [0.0, 2.0, 0.0]]
    assert short.sums(rows).tolist() == [evaluate.sums(model, row) for row in rows]


def test_a_test_that_may_be_unknown_stays_asked_where_missing_values_are_refused():
    split = oblique({"density": 1.0, "sugar": -1.0}, 0.0, leaf(YES), leaf(NO), missing=1)
    outer = oblique({"density": 1.0, "sugar": 1.0}, 0.0, split, leaf(NO), missing=0)
    model = model_of(outer, missing="error")
    inf = math.inf
    rows = [[inf, 0.0, inf], [inf, 0.0, -inf], [1.0, 0.0, 2.0], [-3.0, 1.0, 1.0], [3.0, 1.0, inf]]
    assert joined_rules(model).sums(rows).tolist() == [evaluate.sums(model, row) for row in rows]


@given(st.data())
@settings(max_examples=examples(25))
def test_decisions_give_the_labels_of_the_model_in_no_more_rules(data):
    model = data.draw(models())
    if model.schema.task == "regression" or model.n_trees > 1:
        return
    rows = data.draw(matrices(model, max_rows=8))
    short = joined_rules(model, decisions=True)
    assert len(short) <= len(joined_rules(model))
    read = parse_rules(str(short))
    assert str(read) == str(short)
    assert read.decisions
    blocks = zip(model.schema.blocks[:-1], model.schema.blocks[1:], strict=True)
    said = np.stack([read.sums(rows)[:, a:b].argmax(axis=1) for a, b in blocks], axis=1)
    labels = [
        [output.classes[code] for output, code in zip(model.schema.outputs, row, strict=True)]
        for row in said
    ]
    wanted = predict(model, rows.copy()) if len(rows) and not model.schema.nominal.any() else None
    if wanted is not None:
        assert labels == np.reshape(wanted, (len(rows), -1)).tolist()


def test_decisions_join_other_shares_and_say_so():
    root = threshold("density", 0.5, leaf([1, 3]), threshold("sugar", 1.0, leaf([0, 5]), leaf(NO)))
    model = model_of(root)
    short = model.rules(decisions=True)
    assert len(model.rules()) == 3
    text = str(short)
    assert "says     labels\n" in text
    assert "votes    1\n" in text
    rows = np.array([[0.1, 0, 9.0], [0.9, 0, 0.5], [0.9, 0, 2.0]])
    assert short.sums(rows).tolist() == [[0, 1], [0, 1], [1, 0]]
    assert sums(model, rows).argmax(axis=1).tolist() == [1, 1, 0]
    # density decides alone where sugar is asked: three boxes do not make two.
    assert len(short) == 3
    chain = threshold(
        "density", 0.5, leaf([1, 3]), threshold("density", 1.0, leaf([0, 5]), leaf(NO))
    )
    two = model_of(chain).rules(decisions=True)
    assert [lines[0] for lines in body(two)] == [
        "  if  density <= 1",
        "  if  density > 1, or is missing",
    ]
    assert training_measures(two).confidence[:, 0].tolist() == [8 / 9, 1.0]


def test_costs_decide_a_label_once():
    root = threshold("density", 0.5, leaf([4, 1]), leaf([9, 1]))
    model = model_of(root, costs=[[0, 1], [5, 0]])
    short = model.rules(decisions=True)
    assert [rule.label for rule in short] == ["good", "raw"]
    assert short.costs is None


def test_several_targets_are_decided_together():
    schema = melons(more=(Output("size", (1, 2)),))
    root = threshold("density", 0.5, leaf([1, 3, 2, 0]), leaf([0, 3, 3, 1]))
    (rule,) = model_of(root, schema).rules(decisions=True)
    assert [answer.label for answer in rule.answers] == ["good", 1]


@pytest.mark.parametrize(
    ("policies", "trees", "said"),
    [({}, 2, "2 trees"), ({"missing": "fractional"}, 1, "divides rows")],
)
def test_what_labels_cannot_say_has_no_decisions(policies, trees, said):
    schema = melons()
    model = make_model(schema, [build_tree(leaf(YES), schema)] * trees, **policies)
    with pytest.raises(ModelError, match=said):
        model.rules(decisions=True)
    number = model_of(leaf(1.5), melons(task="regression", classes=()))
    with pytest.raises(ModelError, match="numbers"):
        number.rules(decisions=True)


def test_leaves_remain_for_those_who_ask():
    model = model_of(threshold("density", 0.5, leaf(YES), leaf(YES)))
    assert len(model.rules(join=False)) == 2
    assert str(model.rules()).endswith("\n  always\n  then good   support 8   good: 1\n")
