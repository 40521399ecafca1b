"""Rules of a model: merged conditions, their text, and executing the text."""

from __future__ import annotations

import math
import re
import string
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import evaluate
from tests.reference import rules as oracle
from tests.reference.models import chain, mixed_schema, probe_rows, random_model
from tests.strategies import ALL_KINDS, finite, matrices, models
from treekit.data.schema import Column, Output, Schema
from treekit.errors import DataError, ModelError, ModelFileError
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
from treekit.model.scoring import predict, sum_leaf_values
from treekit.model.tree import Split
from treekit.rules import export_rules, joined_rules, kernels, parse_rules, rules, training_measures
from treekit.rules.read_text import read_edited
from treekit.rules.wording import (
    format_numbers,
    format_share,
    parse_label,
    parse_name,
    parse_number,
    parse_share,
    quote_label,
    quote_name,
    quote_text,
    unquote_text,
)

# ---------------------------------------------------------------- rules

HOSTILE = [
    *('"', "\\", "\n", "a\nrule 1 of 1, node 0", 'x" then yes', "\\n", "\\u0041", "tail\\", "\r\n"),
    *("\u2028", "\u202e", "\u200b", "\x00", "\x85", "\ud800", "\ud83d\ude00", "\U000e0001", " x"),
    *("", "if", "then", "IS", "known", "true", "nan", "3", "-1", "a b", "a, b", "{", "}", ": a"),
    *("色泽", "青绿", "😀", "naïve", "{{ x }}", "'", "a number", "always", "_", "ǅ", "é", "?"),
    *("How to read this", "any but", "x; missing counts as y", "Predicts x: numeric. Rules: 1."),
]


def adult_like() -> Schema:
    return Schema(
        (
            Column("age"),
            Column("workclass", "nominal", ("Federal-gov", "Private", "State-gov")),
            Column("capital gain"),
        ),
        target="income",
        classes=("<=50K", ">50K"),
    )


def worked_example():
    schema = adult_like()
    right = is_missing("capital gain", leaf([4, 4]), leaf([373, 831]))
    private = ["Private", "State-gov"]
    upper = subset("workclass", private, threshold("age", 61, right, leaf([3, 1]), 0), leaf([0, 5]))
    root = threshold("age", 27.5, leaf([90, 10]), upper, missing=1)
    return make_model(schema, [build_tree(root, schema)])


def test_text_of_a_small_tree_has_the_expected_lines():
    text = str(rules(worked_example()))
    body = text[text.index("\n\nrule 3") + 2 : text.index("\n\nrule 4")]
    assert body.splitlines() == [
        "rule 3 of 5, node 8",
        "  if  age > 27.5 and age <= 61, or is missing",
        '  and workclass is Private or "State-gov"',
        '  and "capital gain" is known',
        '  then ">50K"   support 1204   "<=50K": 0.3098007, ">50K": 0.6901993',
    ]


def test_notes_of_the_text_state_policies_votes_and_columns():
    text = str(rules(worked_example()))
    head, notes = text[: text.index("\n\nrule 1")], text[text.index("\n\nHow to read this") :]
    assert head == ('treekit rules, format 4\nPredicts income: one of "<=50K", ">50K". Rules: 5.')
    for said in (
        'workclass: one of "Federal-gov", Private, "State-gov"',
        "nearest float32",
        "missing  direction",
        "unknown  missing",
        "votes    16777216",
    ):
        assert said in notes


def test_a_forest_states_how_its_trees_vote():
    schema = adult_like()
    trees = [build_tree(leaf([1, 2]), schema), build_tree(leaf([5, 2]), schema)]
    text = str(rules(make_model(schema, trees)))
    assert "rule 2 of 2, tree 2 of 2, node 0\n  always\n" in text
    assert "most votes over all trees" in text
    assert "its votes divided by 16777216." in text


@given(st.data())
@settings(max_examples=examples(60))
def test_rules_parsed_from_text_give_the_sums_of_the_model(data):
    model = data.draw(models())
    rows = data.draw(matrices(model))
    text = str(rules(model))
    read = parse_rules(text)
    assert str(read) == text
    assert np.array_equal(read.sums(rows), sum_leaf_values(model, rows))


@given(st.data())
@settings(max_examples=examples(40))
def test_one_rule_per_tree_matches_a_row_and_sums_equal_the_oracle(data):
    model = data.draw(models())
    listed = rules(model)
    rows = data.draw(matrices(model, max_rows=6))
    for row, fast in zip(rows, listed.sums(rows), strict=True):
        assert [rule.tree for rule in oracle.fitting(listed, row)] == list(range(model.n_trees))
        assert oracle.sums(listed, row) == fast.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("classes", [("a", "b", "c"), ()])
def test_models_of_every_split_kind_predict_from_their_text(dtype, classes):
    model = random_model(5, mixed_schema(classes, dtype=dtype), n_trees=4, n_splits=60)
    rows = np.array(probe_rows(model, n_random=400))
    read = parse_rules(export_rules(model, "m")["m.rules.txt"].decode())
    assert np.array_equal(read.sums(rows), sum_leaf_values(model, rows))


def test_overlapping_rules_are_summed_as_stated_in_the_text():
    schema = Schema((Column("x"),), classes=("a", "b"))
    tree = build_tree(threshold("x", 1.0, leaf([1, 0]), leaf([0, 1])), schema)
    text = str(rules(make_model(schema, [tree])))
    listed = parse_rules(text.replace("x <= 1\n", "x <= 2\n"))
    assert listed.sums([[0.0], [1.5], [3.0]]).tolist() == [[2**24, 0], [2**24, 2**24], [0, 2**24]]


@pytest.mark.matrix
def test_rules_beyond_one_block_are_all_executed():
    schema = Schema((Column("x"),), task="regression")
    model = chain(4900, schema)
    rows = np.linspace(-2, 4902, 501)[:, None]
    assert np.array_equal(rules(model).sums(rows), sum_leaf_values(model, rows))


def test_a_chain_of_depth_900_is_written_and_run():
    schema = Schema((Column("x"), Column("y")), classes=("a", "b"))
    model = chain(900, schema)
    rows = np.stack([np.linspace(-2, 902, 2000), np.full(2000, np.nan)], axis=1)
    read = parse_rules(str(rules(model)))
    assert len(read) == 901
    assert all(len(rule.conditions) == 1 for rule in read)
    assert np.array_equal(read.sums(rows), sum_leaf_values(model, rows))


def test_rule_records_contain_labels_shares_categories_and_bounds():
    rule = rules(worked_example())[2]
    assert (rule.tree, rule.leaf, rule.support, rule.label) == (0, 8, 1204.0, ">50K")
    assert rule.units == (5197593, 11579623)
    assert sum(rule.shares) == 1.0
    age, work, gain = rule.conditions
    assert (age.low, age.high, age.missing, age.levels) == (27.5, 61.0, True, None)
    assert (work.levels, work.missing) == (("Private", "State-gov"), False)
    assert (gain.low, gain.high, gain.known, gain.missing) == (-math.inf, math.inf, True, False)


def test_a_rule_list_is_a_sequence_of_rules():
    listed = rules(worked_example())
    assert len(listed) == 5
    assert listed[-1] == listed[4] == listed.of_tree(0)[4]
    assert [rule.leaf for rule in listed[1:3]] == [listed[1].leaf, listed[2].leaf]
    with pytest.raises(IndexError, match="no rule 5: the list has 5 rules"):
        listed[5]


def test_unsatisfiable_rule_is_marked():
    schema = adult_like()
    root = threshold("age", 5, threshold("age", 9, leaf([1, 0]), leaf([0, 1])), leaf([1, 1]))
    listed = rules(make_model(schema, [build_tree(root, schema)]))
    assert "  if  age cannot fit\n" in str(listed)
    assert parse_rules(str(listed)).sums([[4, 0, 0], [7, 0, 0], [9.5, 0, 0]]).shape == (3, 2)
    assert [c.known or c.missing for c in listed[1].conditions] == [False]


def test_row_refused_by_the_model_is_refused_by_the_text():
    schema = adult_like()
    tree = build_tree(
        multiway("workclass", {"Private": leaf([1, 0]), "State-gov": leaf([0, 1])}), schema
    )
    rows = [[1, 0, 1], [math.nan, 0, 1], [1, math.nan, 1], [1, 3, 1], [1, -1, 1], [1, 0.5, 1]]
    for missing, unknown, refused in (
        ("direction", "missing", [0, 0, 0, 0, 0, 0]),
        ("error", "missing", [0, 1, 1, 1, 1, 1]),
        ("direction", "error", [0, 0, 0, 1, 1, 1]),
        ("error", "error", [0, 1, 1, 1, 1, 1]),
    ):
        model = make_model(schema, [tree], missing=missing, unknown=unknown)
        read = parse_rules(str(rules(model)))
        assert read.refused(rows).tolist() == [bool(x) for x in refused]
        if any(refused):
            with pytest.raises(DataError, match="which this model refuses"):
                read.sums(rows)


def test_rows_of_the_wrong_width_are_refused():
    with pytest.raises(DataError, match="2 columns; the rules need 3"):
        rules(worked_example()).sums([[1, 2]])


def test_hostile_names_are_quoted_within_a_line():
    n = len(HOSTILE)
    columns = tuple(
        Column(name, "nominal", tuple(HOSTILE)) if i % 2 else Column(name)
        for i, name in enumerate(HOSTILE)
    )
    schema = Schema(columns, target="a\nclasses  forged", classes=tuple(HOSTILE))
    trees = []
    for f in range(n):
        weights = np.eye(n)[[f, (f + 1) % n]].tolist()
        yes, no = leaf(weights[0]), leaf(weights[1])
        split = subset(f, HOSTILE[: f + 1], yes, no) if f % 2 else threshold(f, 0.5, yes, no)
        trees.append(build_tree(split, schema))
    model = make_model(schema, trees)
    text = export_rules(model, "m")["m.rules.txt"].decode()
    lines = text.split("\n")
    assert lines == [*text.splitlines(), ""]
    assert sum(line.startswith("rule ") for line in lines) == 2 * n
    assert all(char.isprintable() for char in text.replace("\n", ""))
    read = parse_rules(text)
    assert read.schema == schema
    rows = np.random.default_rng(0).integers(-1, n + 1, size=(50, n)).astype(float)
    assert np.array_equal(read.sums(rows), sum_leaf_values(model, rows))


@pytest.mark.parametrize(
    "labels", [(True, False), (0, 1, -7, 10**30), (0.5, 1.0, -2e300), ("1", "x")]
)
def test_labels_keep_their_type(labels):
    schema = Schema((Column("x"),), classes=labels)
    model = make_model(schema, [build_tree(leaf([1.0] * len(labels)), schema)])
    read = parse_rules(str(rules(model)))
    assert [(type(x), x) for x in read.schema.classes] == [(type(x), x) for x in labels]


@given(st.text())
def test_any_text_is_unquoted_unchanged(text):
    assert unquote_text(quote_text(text)) == text
    assert parse_name(quote_name(text)) == text
    assert parse_label(quote_label(text)) == text
    assert quote_text(text).isprintable()


@pytest.mark.parametrize("token", ['"\\x41"', '"a"b"', '"\\u0041"', '"\n"', '"\\"'])
def test_improperly_quoted_text_is_refused(token):
    with pytest.raises(ValueError, match="properly quoted"):
        unquote_text(token)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_written_compactly_and_parsed_equal(dtype):
    @given(finite(dtype))
    def check(x):
        (text,) = format_numbers(np.array([x]), dtype)
        assert parse_number(text, dtype) == x
        assert len(text) <= len(repr(x))

    check()
    assert format_numbers(np.array([0.1, 61.0, -0.0, 1e22], dtype=dtype).astype(float), dtype) == [
        *("0.1", "61", "0", "1e22")
    ]


@given(st.integers(1, 2**53), st.data())
def test_shares_are_the_shortest_decimals_that_restore_the_votes(total, data):
    units = data.draw(st.integers(0, total))
    text = format_share(units, total)
    assert parse_share(text, total) == units
    digits = len(text.partition(".")[2])
    if digits:
        near = units * 10 ** (digits - 1) // total
        for shorter in (near, near + 1):
            whole, rest = divmod(shorter, 10 ** (digits - 1))
            fraction = f".{rest:0{digits - 1}d}" if digits > 1 else ""
            assert parse_share(f"{whole}{fraction}", total) != units


def test_a_share_of_31_percent_is_written_as_such():
    assert format_share(5200937, 2**24) == "0.31"


def broken_texts():
    text = str(rules(worked_example()))
    yield "", "must begin with"
    yield text[: len(text) // 2], "cannot be read"
    yield text[:-1], "cannot be read"
    yield text + "more", "'more' does not begin with a fact"
    yield text.replace("Rules: 5", "Rules: 4"), 'one of "<=50K", ">50K". Rules: 5.\''
    yield text.replace("Rules: 5.", "Rules: 5"), "expected one line before the rules"
    yield text.replace("rule 3 of 5", "rule 2 of 5"), "should be 'rule 3 of 5, node 8'"
    yield text.replace("age <= 27.5", "age >= 27.5"), "is not a condition"
    yield text.replace("age <= 27.5", "agee <= 27.5"), "agee"
    yield text.replace("age <= 27.5", "age <= 1e999"), "not a finite"
    yield text.replace("age <= 27.5", "workclass <= 27.5"), "type of its column"
    other = 'Private or "State-gov"\n  and'
    yield text.replace(other, '"State-gov" or Private\n  and'), "order"
    yield text.replace(other, 'any but "Federal-gov"\n  and'), "should be"
    yield text.replace(other, "any but Federal\n  and"), "names 'Federal', which is not a category"
    yield text.replace('then "<=50K"', 'then ">50K"'), "largest share"
    yield text.replace("nearest float32", "nearest integer"), "rounded to the nearest float32"
    yield text.replace("Rules: 5.", "Rules: 5, of 0 trees."), "1 to 100000 trees"
    yield text.replace("type     float32", "type     float16"), "float16"
    yield text.replace("unknown  missing", "unknown  ignored"), "ignored"
    yield text.replace('"<=50K": 0.5, ">50K": 0.5', '"<=50K": 5, ">50K": 0.5'), "they must add to 1"
    yield text.replace('"<=50K": 0.9, ">50K": 0.1', '"<=50K": 0.9'), "they must add to 1"
    yield text.replace("support 1204", "support ten"), "is not a prediction, a support and shares"
    yield text.replace("columns  3", "columns  2"), "2 columns are stated, but 3 lines follow"


@pytest.mark.parametrize(("text", "said"), list(broken_texts()))
def test_invalid_rule_text_is_refused_with_its_line(text, said):
    with pytest.raises(ModelFileError, match=r"line \d+ of the rules") as caught:
        parse_rules(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("reader", [parse_rules, read_edited])
@pytest.mark.parametrize("evil", ['"' + '\\"' * 50_000, '"  \\' * 25_000])
@pytest.mark.parametrize("start", ["Predicts ", "  then "])
def test_unclosed_quotes_are_refused_quickly(start, evil, reader):
    text = str(rules(worked_example()))
    at = text.index(start) + len(start)
    began = time.perf_counter()
    with pytest.raises(ModelFileError):
        reader(f"{text[:at]}{evil}{text[text.index(chr(10), at) :]}")
    assert time.perf_counter() - began < 5  # a minute, if each quote were looked for anew


def test_edited_tie_of_an_odd_number_of_votes_keeps_its_label():
    listed = random_model(1, mixed_schema(), n_trees=3).rules()
    pattern = r"(then no   support \S+   ).*(\n\nHow)"
    text = re.sub(pattern, r"\1no: 0.5, yes: 0.5\2", str(listed))
    no, yes = read_edited(text).units[-1].tolist()
    assert listed.units_each % 2 == 1
    assert (no - yes, no + yes) == (1, listed.units_each)


@given(st.data())
@settings(max_examples=examples(200))
def test_no_edited_text_raises_anything_but_a_clear_error(data):
    text = str(rules(worked_example()))
    at = data.draw(st.integers(0, len(text) - 1))
    new = data.draw(st.text(st.sampled_from(string.printable + "\u2028é"), max_size=3))
    edited = text[:at] + new + text[at + data.draw(st.integers(0, 3)) :]
    try:
        read = parse_rules(edited)
    except ModelFileError:
        return
    assert len(read) == int(re.search(r"Rules: (\d+)\.$", edited, re.MULTILINE)[1])


def test_regression_rules_name_exact_numbers():
    schema = Schema((Column("x"),), target="price", task="regression")
    trees = [
        build_tree(threshold("x", 0.5, leaf(0.1), leaf(1e9), missing=0), schema) for _ in range(3)
    ]
    model = make_model(schema, trees)
    text = str(rules(model))
    assert re.search(r"^step +2\*\*-?\d+$", text, re.MULTILINE)
    assert "  then 1000000000   support 1\n" in text
    assert parse_rules(text)[1].value == 1e9
    rows = [[0.5], [0.6], [math.nan]]
    assert np.array_equal(parse_rules(text).sums(rows), sum_leaf_values(model, np.array(rows)))


def test_conditions_state_whether_missing_values_match():
    schema = adult_like()
    apart = is_missing("capital gain", leaf([4, 4]), leaf([373, 831]))
    inner = threshold("age", 61, apart, leaf([3, 1]), missing=0)
    job = subset("workclass", ["Private"], inner, leaf([0, 5]), missing=0)
    root = threshold("age", 27.5, leaf([9, 1]), job, missing=1)
    text = str(rules(make_model(schema, [build_tree(root, schema)])))
    assert text.count("  if  age <= 27.5\n") == 1
    assert text.count("  if  age > 27.5 and age <= 61, or is missing\n") == 2
    assert text.count("  and workclass is Private, or is missing\n") == 3
    assert '  and workclass is "Federal-gov" or "State-gov"\n' in text
    assert "counts as" not in text[: text.index("\nHow to read this")]
    assert '\n  age: numeric\n  workclass: one of "Federal-gov", Private, "State-gov"\n' in text


def test_every_leaf_of_the_model_has_its_rule():
    model = random_model(3, mixed_schema(("a", "b", "c")), n_trees=3)
    listed = rules(model)
    for t, tree in enumerate(model.trees):
        of_tree = listed.of_tree(t)
        assert sorted(rule.leaf for rule in of_tree) == tree.leaves.tolist()
        assert all(tree.kind[rule.leaf] == Split.LEAF for rule in of_tree)
        assert {rule.leaf: rule.support for rule in of_tree} == {
            int(i): float(tree.weight[i]) for i in tree.leaves
        }


# ---------------------------------------------------------------- rules joined
# Rules joined where one can say what several do, with every sum as before.

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
    return [part.splitlines()[1:] for part in str(listed).split("\n\n")[1:-3]]


@given(st.data())
@settings(max_examples=examples(40))
def test_merged_rules_sum_as_the_model_and_are_never_more(data):
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


def test_a_split_with_equal_leaves_is_removed():
    split = threshold("density", 0.5, leaf(YES), subset("colour", ["red"], leaf(YES), leaf(YES)))
    model = model_of(threshold("sugar", 1.0, split, leaf(NO)))
    assert len(rules(model)) == 4
    assert body(joined_rules(model)) == [
        ["  if  sugar <= 1", "  then good   support 12   good: 1"],
        ["  if  sugar > 1, or is missing", "  then raw   support 3   raw: 1"],
    ]
    assert [rule.leaf for rule in joined_rules(model)] == [1, 2]
    assert training_measures(joined_rules(model)).coverage.tolist() == [0.8, 0.2]


def test_branches_with_equal_predictions_are_merged():
    branches = {"green": leaf(YES), "white": leaf(NO), "black": leaf(YES), "red": leaf([1, 1])}
    model = model_of(multiway("colour", branches, missing=2))
    assert [lines[0] for lines in body(joined_rules(model))] == [
        "  if  colour is green or black, or is missing",
        "  if  colour is white",
        "  if  colour is red",
    ]
    assert joined_rules(model)[0].leaf == 0  # both leaves lie under the root
    assert joined_rules(model)[0].support == 8.0


def test_leaf_of_missing_values_is_merged_with_an_equal_leaf():
    known = threshold("density", 2.0, leaf(YES), leaf(NO))
    model = model_of(is_missing("density", leaf(YES), known))
    assert [lines[0] for lines in body(joined_rules(model))] == [
        "  if  density <= 2, or is missing",
        "  if  density > 2",
    ]


def test_adjacent_intervals_are_merged_and_separate_ones_are_not():
    upper = threshold("density", 3.0, leaf(YES), leaf(NO))
    model = model_of(
        threshold("density", 1.0, leaf(NO), threshold("density", 2.0, leaf(YES), upper))
    )
    assert [lines[0] for lines in body(joined_rules(model))] == [
        "  if  density <= 1",
        "  if  density > 1 and density <= 3",
        "  if  density > 3, or is missing",
    ]


def test_merged_rules_of_fractional_instances_keep_their_sums():
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


def test_oblique_condition_that_may_be_undefined_is_kept_with_missing_error():
    split = oblique({"density": 1.0, "sugar": -1.0}, 0.0, leaf(YES), leaf(NO), missing=1)
    outer = oblique({"density": 1.0, "sugar": 1.0}, 0.0, split, leaf(NO), missing=0)
    model = model_of(outer, missing="error")
    inf = math.inf
    rows = [[inf, 0.0, inf], [inf, 0.0, -inf], [1.0, 0.0, 2.0], [-3.0, 1.0, 1.0], [3.0, 1.0, inf]]
    assert joined_rules(model).sums(rows).tolist() == [evaluate.sums(model, row) for row in rows]


@given(st.data())
@settings(max_examples=examples(25))
def test_decisions_predict_the_labels_of_the_model_with_no_more_rules(data):
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


def test_decisions_merge_rules_of_different_shares_with_a_note():
    root = threshold("density", 0.5, leaf([1, 3]), threshold("sugar", 1.0, leaf([0, 5]), leaf(NO)))
    model = model_of(root)
    short = model.rules(decisions=True)
    assert len(model.rules()) == 3
    text = str(short)
    assert "says     labels\n" in text
    assert "votes    1\n" in text
    rows = np.array([[0.1, 0, 9.0], [0.9, 0, 0.5], [0.9, 0, 2.0]])
    assert short.sums(rows).tolist() == [[0, 1], [0, 1], [1, 0]]
    assert sum_leaf_values(model, rows).argmax(axis=1).tolist() == [1, 1, 0]
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


def test_decisions_apply_costs_once():
    root = threshold("density", 0.5, leaf([4, 1]), leaf([9, 1]))
    model = model_of(root, costs=[[0, 1], [5, 0]])
    short = model.rules(decisions=True)
    assert [rule.label for rule in short] == ["good", "raw"]
    assert short.costs is None


def test_decisions_of_several_targets_are_merged_together():
    schema = melons(more=(Output("size", (1, 2)),))
    root = threshold("density", 0.5, leaf([1, 3, 2, 0]), leaf([0, 3, 3, 1]))
    (rule,) = model_of(root, schema).rules(decisions=True)
    assert [answer.label for answer in rule.answers] == ["good", 1]


@pytest.mark.parametrize(
    ("policies", "trees", "said"),
    [({}, 2, "2 trees"), ({"missing": "fractional"}, 1, "missing='fractional'")],
)
def test_models_without_labels_have_no_decisions(policies, trees, said):
    schema = melons()
    model = make_model(schema, [build_tree(leaf(YES), schema)] * trees, **policies)
    with pytest.raises(ModelError, match=said):
        model.rules(decisions=True)
    number = model_of(leaf(1.5), melons(task="regression", classes=()))
    with pytest.raises(ModelError, match="numbers"):
        number.rules(decisions=True)


def test_leaves_are_listed_on_request():
    model = model_of(threshold("density", 0.5, leaf(YES), leaf(YES)))
    assert len(model.rules(join=False)) == 2
    assert body(model.rules()) == [["  always", "  then good   support 8   good: 1"]]


# ---------------------------------------------------------------- rules wide
# Rules of models with oblique splits, surrogates, divided rows, costs and several targets.

RULES_WIDE_NAN, INF = float("nan"), float("inf")
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


def rules_wide_body(model, number):
    """Lines of one rule."""
    return str(rules(model)).split(f"\nrule {number} of ")[1].split("\n\n")[0].splitlines()[1:]


# ------------------------------------------------------------------ exact


@pytest.mark.matrix
@given(st.data())
@settings(max_examples=examples(60))
def test_rules_parsed_from_any_model_text_give_the_reference_sums(data):
    model = data.draw(models(kinds=ALL_KINDS))
    rows = data.draw(matrices(model, max_rows=8))
    text = str(rules(model))
    read = parse_rules(text)
    assert str(read) == text
    wanted = [evaluate.sums(model, row) for row in rows.tolist()]
    assert read.sums(rows).tolist() == rules(model).sums(rows).tolist() == wanted


@given(st.data())
@settings(max_examples=examples(40))
def test_fractions_of_a_row_sum_to_its_mass_in_each_tree(data):
    model = data.draw(models(kinds=ALL_KINDS))
    listed = rules(model)
    for row in data.draw(matrices(model, max_rows=4)):
        found = oracle.masses(listed, row)
        for tree in range(model.n_trees):
            assert sum(mass for rule, mass in found if rule.tree == tree) == MASS
        assert oracle.sums(listed, row) == listed.sums(row[None])[0].tolist()


def test_undefined_sum_of_infinities_is_unknown_with_missing_error():
    split = oblique({"density": 1.0, "sugar": -1.0}, 0.0, leaf([3, 1]), leaf([0, 4]), missing=1)
    model = make_model(fruit(), [build_tree(split, fruit())], missing="error")
    rows = [[INF, INF, 0.0], [1.0, 2.0, 0.0], [-INF, 3.0, 0.0]]
    read = parse_rules(str(rules(model)))
    assert "  if  test 1 fails (1 * density + -1 * sugar > 0), or is unknown\n" in str(rules(model))
    assert read.sums(rows).tolist() == [evaluate.sums(model, row) for row in rows]


# ------------------------------------------------------------------ words


def test_an_oblique_rule_shows_its_inequality():
    text = str(rules(oblique_model()))
    assert "  test 1: 0.5 * density + -1.25 * sugar <= 0.875\n" in text
    assert rules_wide_body(oblique_model(), 1) == [
        "  if  density <= 2.5, or is missing",
        "  and test 1 holds (0.5 * density + -1.25 * sugar <= 0.875)",
        "  then unripe   support 4   unripe: 0.75, ripe: 0.25",
    ]
    assert rules_wide_body(oblique_model(), 2)[1] == (
        "  and test 1 fails (0.5 * density + -1.25 * sugar > 0.875), or is unknown"
    )


def test_long_oblique_sum_is_written_only_in_the_header():
    schema = Schema(tuple(Column(f"measurement {i}") for i in range(6)), classes=("a", "b"))
    weights = {f"measurement {i}": 0.1 * (i + 1) for i in range(6)}
    split = oblique(weights, 1 / 3, leaf([1, 0]), leaf([0, 1]))
    model = make_model(schema, [build_tree(split, schema)])
    assert rules_wide_body(model, 1)[0] == "  if  test 1 holds"
    assert '0.6 * "measurement 5" <= 0.3333333333333333\n' in str(rules(model))
    assert str(parse_rules(str(rules(model)))) == str(rules(model))


def test_surrogates_are_named_in_the_order_of_their_tests():
    text = str(rules(surrogate_model()))
    assert (
        "  test 1: density <= 2.5; if that is unknown: sugar > 0.25; if that is unknown: "
        "colour is red rather than blue\n"
    ) in text
    assert (
        rules_wide_body(surrogate_model(), 1)[0] == "  if  test 1 holds (density <= 2.5 if known)"
    )


def test_divided_rules_state_exact_bounds_and_a_percentage():
    assert rules_wide_body(divided_model(), 2) == [
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
    assert [line.split(",")[0] for line in rules_wide_body(model, 2)[:2]] == [
        "  if  density <= 2",
        "  and density > 1",
    ]
    listed, row = rules(model), [[RULES_WIDE_NAN, 0, 0]]
    assert listed.sums(row).tolist() == [evaluate.sums(model, row[0])]


def test_rules_of_equal_numbers_are_not_merged_if_fractions_are_rounded():
    schema = fruit(task="regression", classes=())
    same = threshold("sugar", 0.5, leaf(-0.1, weight=3.0), leaf(-0.1, weight=7.0))
    root = threshold("density", 2.5, same, leaf(0.3, weight=6.0))
    model = make_model(schema, [build_tree(root, schema)], missing="fractional")
    row = [RULES_WIDE_NAN, RULES_WIDE_NAN, 0]
    assert model.rules().sums([row]).tolist() == [evaluate.sums(model, row)]


def test_missing_value_splits_do_not_divide_fractional_instances():
    tree = build_tree(is_missing("colour", leaf([1, 0]), leaf([0, 3])), fruit())
    model = make_model(fruit(), [tree], missing="fractional")
    assert [rules_wide_body(model, number)[0] for number in (1, 2)] == [
        "  if  colour is missing",
        "  if  colour is known",
    ]
    assert rules(model).sums([[1, 1, RULES_WIDE_NAN], [1, 1, 2]]).tolist() == [
        [MASS**2, 0],
        [0, MASS**2],
    ]


def test_costs_are_written_as_a_table_and_applied_to_each_rule():
    text = str(rules(oblique_model(costs=[[0, 1], [9, 0]])))
    assert "  when it is ripe, what each answer costs   unripe: 9, ripe: 0\n" in text
    assert "class of least cost" in text
    assert "  then ripe   support 4   unripe: 0.75, ripe: 0.25\n" in text
    read = parse_rules(text)
    assert read.costs.tolist() == [[0, 1], [9, 0]]
    assert read[0].label == "ripe"


def test_rule_of_hard_voting_has_one_vote():
    text = str(rules(oblique_model(voting="hard")))
    assert "votes    1\n" in text
    assert "  then unripe   support 4   unripe: 1\n" in text
    assert parse_rules(text).voting == "hard"


def test_each_of_several_targets_has_its_own_line():
    schema = fruit(more=(Output("size", (1, 2, 3)), Output("sort", ("a b", "c"))))
    split = threshold("density", 0.5, leaf([0, 1, 0, 1, 3, 1, 1]), leaf([1, 3, 3, 1, 0, 0, 2]))
    model = make_model(schema, [build_tree(split, schema)])
    assert rules_wide_body(model, 1) == [
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
    assert rules_wide_body(model, 2)[-2:] == ["  then a: 1.5   support 1", "       b: -2"]
    read = parse_rules(str(rules(model)))
    assert read.schema == schema
    assert np.array_equal(read.units, rules(model).units)
    assert [answer.value for answer in read[1].answers] == [1.5, -2.0]


def test_leaf_without_training_rows_states_that_it_predicts_as_its_parent():
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


def rules_wide_broken_texts():
    text = str(rules(oblique_model(costs=[[0, 1], [9, 0]])))
    yield text.replace("test 1 holds", "test 2 holds"), "unknown test 'test 2'"
    yield text.replace("sugar <= 0.875)", "sugar <= 0.876)"), "this line states the test as"
    yield text.replace("sugar <= 0.875\n", "sugar <= 0.876\n"), "this line states the test as"
    yield text.replace("tests    1", "tests    2"), "2 tests are stated, but 1 lines follow"
    yield text.replace("* sugar <= 0.875\n", "* colour <= 0.875\n"), "is not numeric"
    yield text.replace("-1.25 * sugar <", "0 * sugar <"), "a weight is 0"
    yield text.replace("0.875)\n", "0.875), or is missing\n"), "type of its column"
    yield text.replace("ripe: 9", "ripe: 99999"), "must be between 0 and 16384"
    yield (
        text.replace("unripe: 0, ripe: 1", "unripe: 2, ripe: 1"),
        "the cost of a correct prediction must be 0",
    )
    yield (
        text.replace("then ripe   support 4   unripe: 0", "then unripe   support 4   unripe: 0"),
        ("least expected cost"),
    )
    text = str(rules(divided_model()))
    yield text.replace("(69.2%)", "(69.3%)"), "percentage"
    yield (
        text.replace("5162220 to 16777216", "5162220 to 16777217"),
        "expected 0 <= low < high <= 16777216",
    )
    yield text.replace("missing  fractional", "missing  direction"), "a fraction of a row"
    yield text.replace("or green: ", "or red: "), "none that the condition lists"
    text = str(rules(surrogate_model()))
    yield text.replace("; if that is unknown: sugar", "; else sugar"), "is not a test"
    yield (
        text.replace("rather than blue", "rather than blau"),
        "names 'blau', which is not a category",
    )


@pytest.mark.parametrize(("text", "said"), list(rules_wide_broken_texts()))
def test_invalid_text_of_every_rule_kind_is_refused_with_its_line(text, said):
    with pytest.raises(ModelFileError, match=r"line \d+ of the rules") as caught:
        parse_rules(text)
    assert said in str(caught.value)


def test_hostile_names_are_quoted_in_conditions_and_targets():
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
    rows = np.random.default_rng(0).choice([0.0, 1.0, 2.0, 5.0, RULES_WIDE_NAN], size=(200, 6))
    wanted = [evaluate.sums(model, row) for row in rows.tolist()]
    assert read.sums(rows).tolist() == wanted


# ---------------------------------------------------------------- bounds of the walk


@given(models(kinds=ALL_KINDS))
def test_rules_read_and_write_only_categories_of_the_tested_column(model):
    """A split with a test of several columns has entries for its own column's categories only."""
    walks, make_walk = [], kernels.make_walk

    def make(tree, n_levels, *rest):
        walks.append(make_walk(tree, n_levels, *rest))
        return walks[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "make_walk", make)
        rules(model)
    for walk in walks:
        inner = walk.nodes[walk.nodes["n_levels"] > 0]
        columns = walk.columns[inner["feature"]]
        assert (inner["n_levels"] == columns["n_levels"]).all()
        assert (columns["first_level"] + columns["n_levels"] <= len(walk.barred)).all()
