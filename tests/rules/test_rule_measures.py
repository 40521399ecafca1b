"""Measures of rules: support, confidence, lift, mean and spread, against a plain oracle."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import rules as oracle
from tests.reference.models import mixed_schema, random_model
from tests.strategies import ALL_KINDS, matrices, models
from treekit.data.schema import Column, Output, Schema
from treekit.errors import DataError
from treekit.model.builder import build_tree, is_missing, leaf, subset, threshold
from treekit.model.model import make_model
from treekit.rules import (
    measured,
    rules,
    table_measures,
    training_measures,
)
from treekit.rules.evaluate import matching_rules

NAN = math.nan

# ---------------------------------------------------------------- rules measure
# What stands behind each rule: measures from training rows, and from a table.


def melons(**other):
    columns = (Column("density"), Column("colour", "nominal", ("green", "black", "white")))
    return Schema(columns, **{"target": "ripe", "classes": ("no", "yes")} | other)


def melon_model(**policies):
    pale = subset("colour", ["white"], leaf([4, 1]), leaf([1, 4]))
    root = threshold("density", 0.5, leaf([8, 2]), pale, missing=0)
    return make_model(melons(), [build_tree(root, melons())], **policies)


def slow_pairs(listed, rows):
    """(row, rule, mass) by the oracle; of an ordered list the first of each tree."""
    found = []
    for number, row in enumerate(rows):
        if listed.refused(row[None])[0]:
            continue
        answered = set()
        for rule, (record, mass) in enumerate(oracle.masses(listed, row)):
            if mass and not (listed.order == "first" and record.tree in answered):
                answered.add(record.tree)
                found.append((number, rule, mass if listed.mass > 1 else 1))
    return sorted(found)


@given(st.data())
@settings(max_examples=examples(40))
def test_matching_rules_of_a_row_equal_the_oracle_for_any_list_order(data):
    model = data.draw(models(kinds=ALL_KINDS))
    rows = data.draw(matrices(model, max_rows=6))
    listed = rules(model)
    if listed.mass == 1 and data.draw(st.booleans()):
        # A list that overlaps: each rule loses its last condition.
        listed = replace(without_last_conditions(listed), order="first")
    found = [
        triple
        for piece in matching_rules(listed, rows)
        for triple in zip(*(part.tolist() for part in piece), strict=True)
    ]
    assert sorted(found) == slow_pairs(listed, rows)


def without_last_conditions(listed):
    counts = np.diff(listed.end, prepend=0)
    table, keep = listed.conditions, np.ones(int(listed.end[-1]) if len(listed) else 0, bool)
    keep[listed.end[counts > 0] - 1] = False
    starts = np.concatenate([[0], table.level_end[:-1]])[: len(keep)]
    sizes = table.level_end - starts
    codes = np.repeat(keep, sizes)
    fields = {name: part[keep] for name, part in table._asdict().items() if name != "levels"}
    fields |= {"level_end": np.cumsum(sizes[keep]), "levels": table.levels[codes]}
    return replace(
        listed, end=np.cumsum(np.maximum(counts - 1, 0)), conditions=type(table)(**fields)
    )


@given(st.data())
@settings(max_examples=examples(25))
def test_measures_of_a_table_equal_the_pairwise_oracle(data):
    model = data.draw(models(kinds=ALL_KINDS))
    rows = data.draw(matrices(model, max_rows=8))
    listed = rules(model)
    schema = listed.schema
    n = len(schema.outputs)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    if schema.task == "regression":
        targets = rng.normal(1e6, 1.0, size=(len(rows), n))
        targets[rng.random(targets.shape) < 0.2] = NAN
    else:
        most = [len(output.classes) for output in schema.outputs]
        targets = rng.integers(-2, most, size=(len(rows), n)).astype(float)
    weight = rng.integers(0, 4, size=len(rows)).astype(float)
    got = table_measures(listed, rows, targets, weight)
    pairs = slow_pairs(listed, rows)
    total = weight[~listed.refused(rows)].sum()
    for rule, record in enumerate(listed):
        mine = [(row, weight[row] * mass / listed.mass) for row, at, mass in pairs if at == rule]
        assert got.rows[rule] == len(mine)
        assert math.isclose(got.weight[rule], sum(w for _, w in mine), abs_tol=1e-12)
        if total:
            assert math.isclose(got.coverage[rule], got.weight[rule] / total)
        for k, answer in enumerate(record.answers):
            y = [(targets[row, k], w) for row, w in mine if w]
            if schema.task == "regression":
                y = [(v, w) for v, w in y if v == v]
                check_numbers(y, got.mean[rule, k], got.spread[rule, k])
            elif not listed.margins:
                y = [(v, w) for v, w in y if v != -1]
                label = schema.outputs[k].classes.index(answer.label)
                right = sum(w for v, w in y if v == label)
                wanted = right / sum(w for _, w in y) if y else NAN
                assert np.isclose(got.confidence[rule, k], wanted, equal_nan=True)
    if listed.margins:
        assert np.isnan(got.confidence).all()


def check_numbers(y, mean, spread):
    if not y:
        assert math.isnan(mean)
        assert math.isnan(spread)
        return
    values, weights = np.array(y).T
    wanted = np.average(values, weights=weights)
    assert math.isclose(mean, wanted)
    assert math.isclose(
        spread, math.sqrt(np.average((values - wanted) ** 2, weights=weights)), abs_tol=1e-6
    )


def test_measures_of_the_training_table_equal_those_of_the_leaves():
    listed = rules(melon_model())
    density = [0.1] * 10 + [0.9] * 10
    colour = [0] * 10 + [2] * 5 + [1] * 5
    ripe = [0] * 8 + [1] * 2 + [0] * 4 + [1] + [0] + [1] * 4
    live = table_measures(listed, np.stack([density, colour], axis=1), ripe)
    kept = training_measures(listed)
    for name in ("weight", "coverage", "confidence", "lift"):
        assert np.allclose(getattr(live, name), getattr(kept, name))
    assert live.rows.tolist() == [10, 5, 5]
    assert kept.confidence[:, 0].tolist() == [0.8, 0.8, 0.8]


def test_measures_match_columns_by_name_and_labels_as_text():
    listed = rules(melon_model(unknown="error"))
    table = {
        "ripe": ["no", "yes", "rotten", None, "yes"],
        "colour": ["white", "green", "white", "black", "blue"],
        "density": [0.9, None, 0.9, 0.1, 0.9],
    }
    found = measured(listed, table)
    assert found.rows.tolist() == [2, 2, 0]  # the row that is blue is refused
    assert found.coverage.tolist() == [0.5, 0.5, 0.0]
    assert found.confidence[:2, 0].tolist() == [0.0, 0.5]
    again = measured(listed, {**table, "was": table["ripe"], "w": [1, 1, 3, 1, 1]}, ["was"], "w")
    assert again.weight.tolist() == [2.0, 4.0, 0.0]
    assert again.confidence[1, 0] == 0.25


def test_spread_of_numbers_far_from_zero_is_exact():
    schema = melons(task="regression", classes=())
    model = make_model(schema, [build_tree(leaf(1e9), schema)])
    y = 1e9 + np.tile([-0.5, 0.5], 3000)  # more than a block of rows
    found = table_measures(rules(model), np.zeros((6000, 2)), y)
    assert found.mean[0, 0] == 1e9
    assert math.isclose(found.spread[0, 0], 0.5)


def test_mismatched_shapes_and_weights_are_refused():
    ordered = replace(without_last_conditions(rules(melon_model())), order="first")
    with pytest.raises(DataError, match="one weight for each row"):
        table_measures(ordered, [[0.1, 0.0]], [[0, 1]])
    with pytest.raises(DataError, match="negative or not finite"):
        table_measures(ordered, [[0.1, 0.0]], [0], [-1.0])


def test_measures_of_several_targets_use_their_own_columns():
    schema = melons(more=(Output("size", (1, 2)),))
    root = is_missing("density", leaf([1, 0, 0, 1]), leaf([0, 3, 3, 0]))
    listed = rules(make_model(schema, [build_tree(root, schema)]))
    table = {
        "density": [None, 1.0, 2.0],
        "colour": ["green"] * 3,
        "ripe": ["no", "yes", "no"],
        "size": [2, 1, 1],
    }
    assert measured(listed, table).confidence.tolist() == [[1.0, 1.0], [0.5, 1.0]]


def test_forest_measures_count_each_row_once_per_tree_over_many_blocks():
    model = random_model(3, mixed_schema(("a", "b")), n_trees=3, n_splits=30)
    rows = np.random.default_rng(0).normal(size=(5000, 5))
    listed = rules(model)
    found = table_measures(listed, rows, np.zeros(5000))
    assert np.bincount(listed.tree, found.rows).tolist() == [5000.0] * 3
    assert np.allclose(np.bincount(listed.tree, found.coverage), 1.0)
