"""Rules: merged conditions, text that an auditor reads, and the text run again."""

from __future__ import annotations

import math
import re
import string
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import rules as oracle
from tests.reference.models import chain, mixed_schema, probe_rows, random_model
from tests.strategies import finite, matrices, models
from treekit.data.schema import Column, Schema
from treekit.errors import DataError, ModelFileError
from treekit.model.builder import build_tree, is_missing, leaf, multiway, subset, threshold
from treekit.model.model import make_model
from treekit.model.scoring import sums
from treekit.model.tree import Split
from treekit.rules import export_rules, parse_rules, rules
from treekit.rules.read_edited import read_edited
from treekit.rules.wording import (
    label_text,
    name_text,
    numerals,
    quote,
    read_label,
    read_name,
    read_numeral,
    read_share,
    share_text,
    unquote,
)

HOSTILE = [
    *('"', "\\", "\n", "a\nrule 1 of 1, node 0", 'x" then yes', "\\n", "\\u0041", "tail\\", "\r\n"),
    *("\u2028", "\u202e", "\u200b", "\x00", "\x85", "\ud800", "\ud83d\ude00", "\U000e0001", " x"),
    *("", "if", "then", "IS", "known", "true", "nan", "3", "-1", "a b", "a, b", "{", "}", ": a"),
    *("色泽", "青绿", "😀", "naïve", "{{ x }}", "'", "a number", "always", "_", "ǅ", "é", "?"),
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


def test_the_text_of_a_small_tree_reads_as_an_auditor_expects():
    text = str(rules(worked_example()))
    body = text[text.index("\n\nrule 3") + 2 : text.index("\n\nrule 4")]
    assert body.splitlines() == [
        "rule 3 of 5, node 8",
        "  if  age > 27.5 and age <= 61, or is missing",
        '  and workclass is Private or "State-gov"',
        '  and "capital gain" is known',
        '  then ">50K"   support 1204   "<=50K": 0.3098007, ">50K": 0.6901993',
    ]


def test_the_header_states_all_that_every_rule_relies_on():
    text = str(rules(worked_example()))
    header = text[: text.index("\n\nrule 1")]
    for said in (
        "target   income",
        'classes  "<=50K", ">50K"',
        'workclass: one of "Federal-gov", Private, "State-gov"',
        "nearest float32",
        "missing  direction",
        "unknown  missing",
        "trees    1",
        "votes    16777216",
        "rules    5",
    ):
        assert said in header


def test_a_forest_says_how_its_trees_vote():
    schema = adult_like()
    trees = [build_tree(leaf([1, 2]), schema), build_tree(leaf([5, 2]), schema)]
    text = str(rules(make_model(schema, trees)))
    assert "rule 2 of 2, tree 2 of 2, node 0\n  always\n" in text
    assert "most votes over all trees" in text
    assert "its votes divided by 16777216." in text


@given(st.data())
@settings(max_examples=examples(60))
def test_the_text_alone_sums_to_what_the_model_sums_to(data):
    model = data.draw(models())
    rows = data.draw(matrices(model))
    text = str(rules(model))
    read = parse_rules(text)
    assert str(read) == text
    assert np.array_equal(read.sums(rows), sums(model, rows))


@given(st.data())
@settings(max_examples=examples(40))
def test_in_each_tree_exactly_one_rule_fits_a_row_and_the_fast_sums_are_the_slow_ones(data):
    model = data.draw(models())
    listed = rules(model)
    rows = data.draw(matrices(model, max_rows=6))
    for row, fast in zip(rows, listed.sums(rows), strict=True):
        assert [rule.tree for rule in oracle.fitting(listed, row)] == list(range(model.n_trees))
        assert oracle.sums(listed, row) == fast.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("classes", [("a", "b", "c"), ()])
def test_models_of_every_split_kind_run_from_their_text(dtype, classes):
    model = random_model(5, mixed_schema(classes, dtype=dtype), n_trees=4, n_splits=60)
    rows = np.array(probe_rows(model, n_random=400))
    read = parse_rules(export_rules(model, "m")["m.rules.txt"].decode())
    assert np.array_equal(read.sums(rows), sums(model, rows))


def test_overlapping_rules_are_summed_as_the_text_says_not_as_a_tree_would():
    schema = Schema((Column("x"),), classes=("a", "b"))
    tree = build_tree(threshold("x", 1.0, leaf([1, 0]), leaf([0, 1])), schema)
    text = str(rules(make_model(schema, [tree])))
    listed = parse_rules(text.replace("x <= 1\n", "x <= 2\n"))
    assert listed.sums([[0.0], [1.5], [3.0]]).tolist() == [[2**24, 0], [2**24, 2**24], [0, 2**24]]


@pytest.mark.matrix
def test_more_rules_than_a_block_holds_are_all_executed():
    schema = Schema((Column("x"),), task="regression")
    model = chain(4900, schema)
    rows = np.linspace(-2, 4902, 501)[:, None]
    assert np.array_equal(rules(model).sums(rows), sums(model, rows))


def test_a_chain_of_depth_900_is_written_and_run():
    schema = Schema((Column("x"), Column("y")), classes=("a", "b"))
    model = chain(900, schema)
    rows = np.stack([np.linspace(-2, 902, 2000), np.full(2000, np.nan)], axis=1)
    read = parse_rules(str(rules(model)))
    assert len(read) == 901
    assert all(len(rule.conditions) == 1 for rule in read)
    assert np.array_equal(read.sums(rows), sums(model, rows))


def test_records_hold_labels_shares_levels_and_bounds():
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
    with pytest.raises(IndexError, match="rule 5 of 5"):
        listed[5]


def test_a_rule_that_no_row_can_fit_says_so():
    schema = adult_like()
    root = threshold("age", 5, threshold("age", 9, leaf([1, 0]), leaf([0, 1])), leaf([1, 1]))
    listed = rules(make_model(schema, [build_tree(root, schema)]))
    assert "  if  age cannot fit\n" in str(listed)
    assert parse_rules(str(listed)).sums([[4, 0, 0], [7, 0, 0], [9.5, 0, 0]]).shape == (3, 2)
    assert [c.known or c.missing for c in listed[1].conditions] == [False]


def test_a_refused_row_is_refused_by_the_text_too():
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


def test_rows_of_the_wrong_width_are_named():
    with pytest.raises(DataError, match="2 columns; the rules need 3"):
        rules(worked_example()).sums([[1, 2]])


def test_hostile_names_neither_break_nor_forge_a_line():
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
    assert np.array_equal(read.sums(rows), sums(model, rows))


@pytest.mark.parametrize(
    "labels", [(True, False), (0, 1, -7, 10**30), (0.5, 1.0, -2e300), ("1", "x")]
)
def test_labels_keep_their_type(labels):
    schema = Schema((Column("x"),), classes=labels)
    model = make_model(schema, [build_tree(leaf([1.0] * len(labels)), schema)])
    read = parse_rules(str(rules(model)))
    assert [(type(x), x) for x in read.schema.classes] == [(type(x), x) for x in labels]


@given(st.text())
def test_any_text_reads_back_from_its_quotes(text):
    assert unquote(quote(text)) == text
    assert read_name(name_text(text)) == text
    assert read_label(label_text(text)) == text
    assert quote(text).isprintable()


@pytest.mark.parametrize("token", ['"\\x41"', '"a"b"', '"\\u0041"', '"\n"', '"\\"'])
def test_a_text_quoted_otherwise_is_not_read(token):
    with pytest.raises(ValueError, match="properly quoted"):
        unquote(token)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numerals_are_short_and_read_back(dtype):
    @given(finite(dtype))
    def check(x):
        (text,) = numerals(np.array([x]), dtype)
        assert read_numeral(text, dtype) == x
        assert len(text) <= len(repr(x))

    check()
    assert numerals(np.array([0.1, 61.0, -0.0, 1e22], dtype=dtype).astype(float), dtype) == [
        *("0.1", "61", "0", "1e22")
    ]


@given(st.integers(1, 2**53), st.data())
def test_shares_are_the_shortest_decimals_that_read_back_to_the_votes(total, data):
    units = data.draw(st.integers(0, total))
    text = share_text(units, total)
    assert read_share(text, total) == units
    digits = len(text.partition(".")[2])
    if digits:
        near = units * 10 ** (digits - 1) // total
        for shorter in (near, near + 1):
            whole, rest = divmod(shorter, 10 ** (digits - 1))
            fraction = f".{rest:0{digits - 1}d}" if digits > 1 else ""
            assert read_share(f"{whole}{fraction}", total) != units


def test_a_share_of_31_percent_is_written_as_such():
    assert share_text(5200937, 2**24) == "0.31"


def broken_texts():
    text = str(rules(worked_example()))
    yield "", "begins with"
    yield text[: len(text) // 2], "cannot be read"
    yield text[:-1], "cannot be read"
    yield text + "more", "goes on after"
    yield text.replace("rules    5", "rules    4"), "out of place"
    yield text.replace("rules    5", "rules    999999"), "number of rules"
    yield text.replace("rule 3 of 5", "rule 2 of 5"), "out of place"
    yield text.replace("age <= 27.5", "age >= 27.5"), "is not a condition"
    yield text.replace("age <= 27.5", "agee <= 27.5"), "agee"
    yield text.replace("age <= 27.5", "age <= 1e999"), "not a finite"
    yield text.replace("age <= 27.5", "workclass <= 27.5"), "kind of its column"
    yield text.replace('Private or "State-gov"\n  and', '"State-gov" or Private\n  and'), "order"
    yield text.replace('then "<=50K"', 'then ">50K"'), "largest share"
    yield text.replace("nearest float32", "nearest integer"), "explanations"
    yield text.replace("trees    1", "trees    0"), "1 to 100000 trees"
    yield text.replace("type     float32", "type     float16"), "float16"
    yield text.replace("unknown  missing", "unknown  ignored"), "ignored"
    yield text.replace('"<=50K": 0.5, ">50K": 0.5', '"<=50K": 5, ">50K": 0.5'), "do not add to 1"
    yield text.replace('"<=50K": 0.9, ">50K": 0.1', '"<=50K": 0.9'), "do not add to 1"
    yield text.replace("support 1204", "support ten"), "expected a line 'then"
    yield text.replace("columns  3", "columns  2"), "expected 'type'"


@pytest.mark.parametrize(("text", "said"), list(broken_texts()))
def test_a_text_that_is_not_exactly_a_rule_list_is_refused_with_its_line(text, said):
    with pytest.raises(ModelFileError, match=r"line \d+ of the rules") as caught:
        parse_rules(text)
    assert said in str(caught.value)


@pytest.mark.parametrize("reader", [parse_rules, read_edited])
@pytest.mark.parametrize("evil", ['"' + '\\"' * 50_000, '"  \\' * 25_000])
@pytest.mark.parametrize("start", ["classes  ", "  then "])
def test_quotes_that_nothing_closes_are_refused_at_once(start, evil, reader):
    text = str(rules(worked_example()))
    at = text.index(start) + len(start)
    began = time.perf_counter()
    with pytest.raises(ModelFileError):
        reader(f"{text[:at]}{evil}{text[text.index(chr(10), at) :]}")
    assert time.perf_counter() - began < 5  # a minute, if each quote were looked for anew


def test_an_edited_tie_of_an_odd_number_of_votes_keeps_its_label():
    listed = random_model(1, mixed_schema(), n_trees=3).rules()
    text = re.sub(r"(then no   support \S+   ).*\n\Z", r"\1no: 0.5, yes: 0.5\n", str(listed))
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
    assert len(read) == int(re.search(r"^rules +(\d+)$", edited, re.MULTILINE)[1])


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
    assert np.array_equal(parse_rules(text).sums(rows), sums(model, np.array(rows)))


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
