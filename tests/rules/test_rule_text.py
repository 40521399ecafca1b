"""Rules in English, Chinese and a user's catalogue: written, parsed, executed and edited."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import treekit
from tests.examples import examples
from tests.reference import evaluate
from tests.reference.check_language import check_language, list_fields, make_samples
from tests.rules.test_rule_list import HOSTILE
from tests.strategies import ALL_KINDS, matrices, models
from treekit.data.schema import Column, Output, Schema
from treekit.documents import make_listing, render_listing
from treekit.documents.json_rules import read_json
from treekit.errors import DataError, ModelError, ModelFileError, SettingError
from treekit.model.builder import build_tree, leaf, oblique, subset, threshold
from treekit.model.model import Model, hash_model, make_model
from treekit.model.scoring import predict_from_sums, sum_leaf_values
from treekit.model.tree import Split
from treekit.rules import measured, parse_rules, rules, training_measures
from treekit.rules.compare import compare_rules
from treekit.rules.language import (
    GRAMMAR_PREFIXES,
    Language,
    load_language,
)
from treekit.rules.read_text import read_edited
from treekit.rules.revise import revise_and_match, revise_model
from treekit.rules.rule_list import RuleList, take_rules
from treekit.rules.wording import render_conditions

# ---------------------------------------------------------------- rules language

LANGUAGES = {"en": load_language("en"), "zh": load_language("zh")}
TEXT_KEYS = [key for key in LANGUAGES["en"].phrases if key.startswith((*GRAMMAR_PREFIXES, "note_"))]


def said(listed, words):
    return "".join(listed.text(language=words))


def melons(columns=("色泽", "密度"), levels=("青绿", "乌黑", "浅白"), classes=("是", "否")):
    schema = Schema(
        (Column(columns[0], "nominal", levels), Column(columns[1])),
        "好瓜",
        classes=classes,
        dtype="float64",
    )
    dense = threshold(1, 0.3815, leaf([0, 3]), leaf([6, 2]), missing=1)
    root = subset(0, list(levels[:2]), dense, leaf([1, 3]))
    return rules(make_model(schema, [build_tree(root, schema)]))


def body(listed, words):
    return "\n\n".join(said(listed, words).split("\n\n")[1:-3]).splitlines()


# ------------------------------------------------------------------ exact in every language


@pytest.mark.parametrize("code", LANGUAGES)
def test_every_kind_of_rule_is_parsed_and_written_unchanged(code):
    words = LANGUAGES[code]
    for listed in make_samples():
        text = said(listed, words)
        again = parse_rules(text, language=words)
        assert said(again, words) == text
        assert str(again) == str(listed)


@pytest.mark.parametrize("code", LANGUAGES)
def test_rules_parsed_from_text_in_any_language_give_the_reference_sums(code):
    words = LANGUAGES[code]

    @given(st.data())
    @settings(max_examples=examples(15))
    def check(data):
        model = data.draw(models(kinds=ALL_KINDS))
        rows = data.draw(matrices(model, max_rows=5))
        again = parse_rules(said(rules(model), words), language=words)
        assert str(again) == str(rules(model))
        assert again.sums(rows).tolist() == [evaluate.sums(model, row) for row in rows.tolist()]

    check()


@pytest.mark.matrix
@pytest.mark.parametrize("code", ["en", "zh"])
def test_names_equal_to_keywords_of_a_language_are_quoted(code):
    words = LANGUAGES[code]
    keywords = {word for each in LANGUAGES.values() for word in each.words}
    phrases = {text for each in LANGUAGES.values() for text in each.phrases.values()}
    names = sorted(set(HOSTILE) | keywords | phrases)
    columns = tuple(
        Column(name, "nominal", tuple(names)) if i % 40 == 1 else Column(name)
        for i, name in enumerate(names)
    )
    schema = Schema(columns, target=names[-1], classes=tuple(names))
    n = len(names)
    weights = np.eye(n)
    trees = []
    for f in range(0, n, 9):
        yes, no = leaf(weights[f].tolist()), leaf(weights[-f - 1].tolist())
        some = names[: f + 1]
        split = subset(f, some, yes, no) if f % 40 == 1 else threshold(f, 0.5, yes, no)
        trees.append(build_tree(split, schema))
    listed = rules(make_model(schema, trees))
    text = said(listed, words)
    assert text.count("\n\n") == len(listed) + 3
    again = parse_rules(text, language=words)
    assert again.schema == schema
    assert said(again, words) == text
    assert np.array_equal(again.units, listed.units)


def test_the_languages_have_the_same_phrases_and_fields():
    english = LANGUAGES["en"].phrases
    for words in LANGUAGES.values():
        for key in TEXT_KEYS:
            assert list_fields(words.phrases[key]) == list_fields(english[key]), key
    assert set(LANGUAGES["zh"].phrases) == set(english)


def test_sample_rules_use_every_phrase_of_the_catalogue():
    asked = set()

    class Heard(dict):
        def __getitem__(self, key):
            asked.add(key)
            return super().__getitem__(key)

    words = Language("en", Heard(LANGUAGES["en"].phrases))
    facts = {key for key in TEXT_KEYS if key.startswith("fact_")}
    unreached = {
        "head_missing",
        "head_highest",
        "head_lowest",
        "if_other",
        "test_holds",
        "test_fails",
    }
    unreached |= {
        "head_reserved",
        "if_missing_levels",
        "if_decided",
        "if_unknown",
        "if_undecidable",
    }
    for listed in make_samples():
        said(listed, words)
    assert set(TEXT_KEYS) - asked - facts == unreached


# ------------------------------------------------------------------ how it reads


def test_chinese_rules_have_the_expected_lines():
    assert body(melons(), "zh") == [
        "规则 1/3，结点 3",
        "  若 色泽 为 青绿 或 乌黑",
        "  且 密度 ≤ 0.3815",
        "  则 否   支持度 3   否: 1",
        "",
        "规则 2/3，结点 4",
        "  若 色泽 为 青绿 或 乌黑",
        "  且 密度 > 0.3815，或缺失",
        "  则 是   支持度 8   是: 0.75, 否: 0.25",
        "",
        "规则 3/3，结点 2",
        "  若 色泽 为 浅白，或缺失",
        "  则 否   支持度 4   是: 0.25, 否: 0.75",
    ]


def test_conditions_are_written_in_english_by_default():
    listed = melons(("colour", "density"), ("green", "black", "dark red"))
    stop = len(listed.conditions.column)
    assert render_conditions(listed, 0, stop)[-1] == 'colour is "dark red", or is missing'
    assert render_conditions(listed, 1, 2, LANGUAGES["zh"]) == ["density ≤ 0.3815"]


def test_names_are_quoted_only_in_the_language_of_the_keyword():
    listed = melons(("规则", "rule"))
    assert "  if  规则 is 青绿 or 乌黑" in body(listed, "en")
    assert '  and "rule" <= 0.3815' in body(listed, "en")
    assert '  若 "规则" 为 青绿 或 乌黑' in body(listed, "zh")
    assert "  且 rule ≤ 0.3815" in body(listed, "zh")


# ------------------------------------------------------------------ which language


def test_the_first_line_names_the_language():
    first = [said(melons(), words).partition("\n")[0] for words in LANGUAGES.values()]
    assert first == [
        "treekit rules, format 4",
        "treekit rules, format 4, language zh",
    ]


def test_a_text_names_only_a_language_that_is_included():
    text = said(melons(), "zh")
    for name in ("fr", "/etc/passwd", "../zh"):
        with pytest.raises(ModelFileError, match=r"line \d of the rules"):
            parse_rules(text.replace("language zh", f"language {name}"))
    with pytest.raises(ModelFileError, match="line 1 of the rules"):
        parse_rules(text, language="en")


def test_an_older_text_is_refused_with_the_remedy():
    for language in ("", ", language zh"):
        text = str(melons()).replace("format 4", f"format 2{language}")
        for read in (parse_rules, read_edited):
            with pytest.raises(ModelFileError, match=r"format 2'.*; export the rules again"):
                read(text)


STORED = sorted((Path(__file__).parent / "format_3").iterdir())


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_texts_of_format_3_are_read_as_their_rules(path):
    name, code = path.stem.split(".")
    model = f"tests/snapshots/models/{name}.treekit"
    is_sample = name.startswith("sample_")
    listed = make_samples()[int(name[7:])] if is_sample else treekit.load(model).rules()
    text = path.read_text(encoding="utf-8")
    assert text.startswith("treekit rules, format 3")
    assert str(parse_rules(text)) == str(listed)
    assert str(read_edited(text)) == str(read_edited("".join(listed.text(language=code))))


def test_a_changed_text_of_format_3_is_refused():
    text = (Path(__file__).parent / "format_3" / "sample_0.en.txt").read_text(encoding="utf-8")
    for old, new in (
        ("size <= 1.5\n", "size <= 1.50\n"),
        ("is any but", "is all but"),
        ("Rules: 13", "Rules: 12"),
        ("  A category that is not", "  A number that is not"),
        ("also where a rule says 'any but'.", "but where a rule says 'any but'."),
        ("missing  direction", "missing  error"),
    ):
        assert old in text, old
        with pytest.raises(ModelFileError, match=r"line \d+ of the rules"):
            parse_rules(text.replace(old, new, 1))


def test_edited_text_of_format_3_keeps_its_missing_values_by_column():
    model = rules_edited_melons()
    text = text_of(model).replace("format 4", "format 3").replace(", or is missing", "")
    text = text.replace("colour is red or green", "colour  is any but blue")
    for column, value in (("sugar: numeric", "infinity"), ("green, blue", "blue")):
        text = text.replace(f"{column}\n", f"{column}; missing counts as {value}\n")
    text = text.replace("size: numeric\n", "size: numeric; missing counts as 7\n")
    assert_same(revise_model(model, read_edited(text)), model)
    moved = revise_model(model, read_edited(text.replace("counts as blue", "counts as red")))
    new = ("red or green\n", "red or green, or is missing\n"), ("blue, or is missing", "blue")
    assert_same(moved, edited(model, *new))
    stated = text.replace("colour is blue", "colour is blue, or is missing")
    assert_same(revise_model(model, read_edited(stated)), model)
    known = text.replace("and size > 5", "and size is known")
    assert not read_edited(known)[-1].conditions[1].missing
    with pytest.raises(ModelFileError, match=r"line \d+ .* names 'bleu', which is not a category"):
        read_edited(text.replace("counts as blue", "counts as bleu"))


def test_unknown_language_is_refused():
    with pytest.raises(SettingError, match=r"unknown language 'xx'; known: en, zh"):
        load_language("xx")


# ------------------------------------------------------------------ phrases are checked

FAULTS = {
    "another field": ({"if_is": "{name} is {niveaux}"}, r"if_is .* be \{levels\}, \{name\}"),
    "a field in a word": ({"if_is": "{name}is {levels}"}, "put a space or a sign between"),
    "a quote": ({"if_is": '{name} "is" {levels}'}, "double quotes"),
    "the same twice": ({"if_fails": "{test} holds"}, "is parsed as if_holds"),
    "one fact twice": ({"fact_type": "tests"}, "are both 'tests'"),
    "no separator": ({"if_or": " "}, "if_or is ' '; it must not be empty or a single space"),
}


@pytest.mark.parametrize("code", LANGUAGES)
def test_phrases_of_each_language_are_unambiguous(code):
    check_language(LANGUAGES[code])


@pytest.mark.parametrize("name", FAULTS)
def test_ambiguous_phrases_of_a_language_are_refused(name):
    changes, expected = FAULTS[name]
    with pytest.raises(ValueError, match=expected):
        check_language(Language("en", LANGUAGES["en"].phrases | changes))


def test_field_values_are_never_parsed_as_phrases():
    assert LANGUAGES["en"].say("if_is", name="{levels}", levels="{name}") == "{levels} is {name}"
    assert LANGUAGES["en"].say("if_is", name="{0}", levels="{x.y}") == "{0} is {x.y}"


# ---------------------------------------------------------------- rules edited
# Rules that a person edited: what is read back, what the model then says, what is refused.

COLUMNS = (Column("sugar"), Column("colour", "nominal", ("red", "green", "blue")), Column("size"))
SCHEMA = Schema(COLUMNS, "ripe", classes=("no", "yes"))
NUMBERS = Schema(COLUMNS, "weight", "regression")


def rules_edited_melons(**policies: object) -> Model:
    """Four leaves."""
    pale = subset("colour", ["red", "green"], leaf([3, 1]), leaf([0, 4]), missing=1)
    sweet = threshold("size", 5, leaf([1, 2]), leaf([9, 1]), missing=1)
    root = threshold("sugar", 0.25, pale, sweet, missing=1)
    return make_model(SCHEMA, [build_tree(root, SCHEMA)], **policies)


def weights(n_trees: int = 1, schema: Schema = NUMBERS) -> Model:
    """Numbers, the largest 7."""
    root = threshold("sugar", 0.25, leaf(0.1), threshold("size", 5, leaf(7.0), leaf(-2.5)))
    return make_model(schema, [build_tree(root, schema)] * n_trees)


def text_of(model: Model, **options: object) -> str:
    return "".join(model.rules().text(**options))


def cut(text: str, start: str) -> tuple[str, str]:
    """The text before a rule, and the notes behind the last one."""
    return text[: text.index(start)], text[text.index("How to read this") :]


def edited(model: Model, *changes: tuple[str, str]) -> Model:
    """The model of a text in which each pair's first part, there once, became the second."""
    text = text_of(model)
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return revise_model(model, read_edited(text))


def refusal(model: Model, *changes: tuple[str, str]) -> str:
    with pytest.raises((DataError, ModelError, ModelFileError)) as caught:
        edited(model, *changes)
    return str(caught.value)


def assert_same(one: Model, other: Model) -> None:
    """Equal bit for bit, but for provenance."""
    assert (one.schema, one.exponent) == (other.schema, other.exponent)
    assert np.array_equal(one.units, other.units)
    for policy in ("missing", "unknown", "voting", "combine", "link"):
        assert getattr(one, policy) == getattr(other, policy)
    assert np.array_equal(one.costs, other.costs) or one.costs is other.costs
    for ours, theirs in zip(one.trees, other.trees, strict=True):
        for name in ours.__dataclass_fields__:
            a, b = np.asarray(getattr(ours, name)), np.asarray(getattr(theirs, name))
            assert a.tobytes() == b.tobytes(), name


# ------------------------------------------------------------------ not edited


@settings(max_examples=examples(25), deadline=None)
@given(model=models(kinds=ALL_KINDS), joined=st.booleans())
def test_unedited_text_gives_the_model_bit_for_bit(model, joined):
    assert_same(revise_model(model, read_edited(str(model.rules(join=joined)))), model)


def test_revising_a_denormal_leaf_keeps_the_grid_of_the_model():
    schema = Schema((Column("x"),), task="regression")
    model = make_model(schema, [build_tree(leaf(5e-324), schema)])
    assert_same(revise_model(model, read_edited(text_of(model))), model)


@settings(max_examples=examples(20), deadline=None)
@given(model=models(kinds=ALL_KINDS))
def test_unedited_json_gives_the_model_bit_for_bit(model):
    assert_same(
        revise_model(model, read_json("".join(render_listing("json", make_listing(model))))), model
    )


@pytest.mark.parametrize("words", ["zh"])
def test_text_in_another_language_is_read_with_its_catalogue(words):
    text = text_of(rules_edited_melons(), language=words)
    assert_same(
        revise_model(rules_edited_melons(), read_edited(text, load_language(words))),
        rules_edited_melons(),
    )


def test_comments_and_white_space_of_editors_are_ignored():
    text = "# signed by A. Person\n\n" + text_of(rules_edited_melons()).replace(
        "  then", "\t then  "
    )
    text = text.replace("\nrule 2", "\n\n   # the blue ones\n\nrule 2").replace("\n", " \r\n")
    assert_same(
        revise_model(rules_edited_melons(), read_edited("\ufeff" + text)), rules_edited_melons()
    )


def test_reordered_disjoint_rules_give_the_same_tree():
    model = rules_edited_melons()
    moved = take_rules(model.rules(), np.array([3, 1, 0, 2]))
    assert_same(revise_model(model, read_edited(str(moved))), model)


# ------------------------------------------------------------------ answers


def test_changed_prediction_of_a_rule_changes_only_its_leaf():
    model = rules_edited_melons()
    after = edited(model, ("yes   support 4   yes: 1", "no   support 4"))
    (old,), (new,) = model.trees, after.trees
    assert np.array_equal(old.kind, new.kind)
    assert np.array_equal(old.threshold, new.threshold, equal_nan=True)
    assert np.count_nonzero((model.units != after.units).any(axis=1)) == 1
    assert np.array_equal(new.value, old.value)  # what training rows said
    rows = np.array([[0.1, 2, 1], [0.1, 0, 1], [1, 0, 9]])
    assert predict_from_sums(after, sum_leaf_values(after, rows)).tolist() == ["no", "no", "no"]
    from_model = {"revised": True, "revised_from": hash_model(model)}
    assert after.provenance == {**model.provenance, **from_model}


def test_edited_label_of_a_merged_rule_applies_to_all_its_leaves():
    same = threshold("size", 5, leaf([3, 1]), leaf([3, 1]))
    model = make_model(SCHEMA, [build_tree(threshold("sugar", 1, same, leaf([0, 1])), SCHEMA)])
    after = edited(model, ("then no   support 8   no: 0.75, yes: 0.25", "then yes"))
    assert after.trees[0].n_leaves == 3
    assert (after.units[:, 1] == after.rules().units_each).all()


def test_edited_rules_may_omit_support_and_numbers():
    text = text_of(rules_edited_melons())
    for rule, node in enumerate((3, 4, 5, 6), 1):
        text = text.replace(f"rule {rule} of 4, node {node}", "rule")
    for support in (4, 3, 10):
        text = text.replace(f"   support {support}", "")
    text = text.replace("Rules: 4.", "Rules: 5.")
    assert_same(revise_model(rules_edited_melons(), read_edited(text)), rules_edited_melons())


def test_categories_may_be_listed_or_excluded():
    model = rules_edited_melons()
    assert_same(edited(model, ("colour is red or green\n", "colour is any but blue\n")), model)
    assert_same(edited(model, ("colour is blue, or", "colour is any but red or green, or")), model)
    said = refusal(model, ("colour is blue, or", "colour is any but red, green or blue, or"))
    assert "no rule matches the row" in said
    assert "colour=blue" in said


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ("no   no: 0.75, yes: 0.2", "line 27 .* the shares add to 0.95; they must add to 1"),
        ("no   no: 0.2, yes: 0.8", "line 27 .* not the class with the largest share; change"),
        ("maybe", "line 27 .* unknown class 'maybe'; known: no, yes"),
        ("no   support 4   no: three", "line 27 .* is not a class with a share or margin"),
    ],
)
def test_shares_that_contradict_are_refused_with_their_line(shares, said):
    text = text_of(rules_edited_melons())
    at = next(n for n, row in enumerate(text.split("\n"), 1) if "no: 0.75" in row)
    found = refusal(rules_edited_melons(), ("no   support 4   no: 0.75, yes: 0.25", shares))
    with pytest.raises(AssertionError, match=said.replace("27", str(at))):
        raise AssertionError(found)


def test_edited_shares_are_rounded_to_the_total_units():
    after = edited(
        rules_edited_melons(), ("no: 0.3333333, yes: 0.6666667", "no: 0.3333333, yes: 0.6666663")
    )
    assert (after.units.sum(axis=1) == after.rules().units_each).all()


# ------------------------------------------------------------------ numbers


@pytest.mark.parametrize("number", ["3", "0.3", "-1e-7", "7.1", "1e6", "0"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_edited_number_is_predicted_within_half_a_step(number, form):
    model = weights()
    if form == "text":
        after = edited(model, ("then -2.5 ", f"then {number} "))
    else:
        stated = json.loads("".join(render_listing("json", make_listing(model))))
        (rule,) = [r for r in stated["rules"] if r["then"]["weight"]["value"] == -2.5]
        rule["then"]["weight"]["value"] = float(number)
        after = revise_model(model, read_json(json.dumps(stated)))
    said = predict_from_sums(
        after, sum_leaf_values(after, np.array([[1.0, 0, 9], [1, 0, 1], [0, 0, 0]]))
    )
    half = 2.0 ** (after.exponent - 1)
    assert abs(said[0] - float(number)) <= half
    before = predict_from_sums(model, sum_leaf_values(model, np.array([[1.0, 0, 1], [0, 0, 0]])))
    if abs(float(number)) < 8:
        assert said[1:].tolist() == before.tolist()
    else:
        assert (abs(said[1:] - before) <= half).all()
    assert after.trees[0].n_nodes == model.trees[0].n_nodes


def test_edited_margins_are_applied():
    three = Schema(COLUMNS, "ripe", classes=("no", "half", "yes"))
    root = threshold("sugar", 0.25, leaf([1, 0, -1]), leaf([0, 2, 0.5]))
    model = make_model(
        three, [build_tree(root, three, margins=True)] * 2, combine="sum", link="softmax"
    )
    text = text_of(model).replace("half: 2, yes: 0.5", "no: 3.25, half: 2", 1)
    after = revise_model(model, read_edited(text))
    assert after.rules()[1].answers[0].margins == (3.25, 2.0, 0.0)
    assert after.rules()[3].answers[0].margins == (0.0, 2.0, 0.5)


def test_each_of_several_targets_is_edited_separately():
    schema = Schema(COLUMNS, "ripe", classes=("no", "yes"), more=(Output("size", (1, 2)),))
    root = threshold("sugar", 0.25, leaf([3, 1, 0, 1]), leaf([0, 1, 1, 0]))
    model = make_model(schema, [build_tree(root, schema)])
    after = edited(model, ("       size: 1   1: 1", "  size: 2"))
    assert [rule.answers[1].label for rule in after.rules()] == [2, 2]
    assert [rule.answers[0].label for rule in after.rules()] == ["no", "yes"]
    assert "the rule predicts 1 of 2 targets" in refusal(model, ("       size: 1   1: 1", ""))


# ------------------------------------------------------------------ conditions


def test_edited_threshold_is_accepted_if_rules_cover_every_row():
    model = rules_edited_melons()
    text = text_of(model).replace("sugar <= 0.25", "sugar <= 0.1").replace("> 0.25", "> 0.1")
    after = revise_model(model, read_edited(text))
    assert (after.trees[0].kind == Split.RULE).any()
    rows = np.array([[0.2, 2, 9], [0.1, 2, 9], [np.nan, 2, 1]])
    assert predict_from_sums(after, sum_leaf_values(after, rows)).tolist() == ["no", "yes", "yes"]


def test_error_of_uncovered_rows_shows_a_row_that_matches_no_rule():
    model = rules_edited_melons()
    blocks = text_of(model).split("\n\n")
    listed = read_edited("\n\n".join(blocks[:2] + blocks[3:]))
    with pytest.raises(ModelError, match=r"no rule matches the row (.+); add a last") as caught:
        revise_model(model, listed)
    assert "; original rules deleted or with other conditions: 2; add" in str(caught.value)
    said = str(caught.value).partition(" the row ")[2].partition(";")[0]
    row = dict(pair.split("=") for pair in said.split(", "))
    cells = {column.name: _cell(column, row.get(column.name)) for column in COLUMNS}
    assert not [rule for rule in listed if _fits(rule, cells)]


def _cell(column: Column, said: str | None) -> float:
    if said in (None, "missing"):
        return np.nan
    return float(column.levels.index(said) if column.levels else np.float32(said))


def _fits(rule, cells) -> bool:
    """Plainly: whether a row of floats and codes meets a rule."""
    for c in rule.conditions:
        x = cells[c.column]
        if x != x:
            met = c.missing
        elif c.levels is not None:
            met = c.known and COLUMNS[1].levels[int(x)] in c.levels
        else:
            met = c.known and c.low < x <= c.high
        if not met:
            return False
    return True


def test_rule_added_at_the_top_matches_first():
    top = "rule 1\n  if size > 100\n  and colour is blue\n  and colour is known\n  then no\n"
    top += "\nrule 1 of 4, node 3"
    after = edited(rules_edited_melons(), ("rule 1 of 4, node 3", top))
    rows = np.array([[0.1, 2, 101], [0.1, 2, 100], [0.1, np.nan, 101]])
    assert predict_from_sums(after, sum_leaf_values(after, rows)).tolist() == ["no", "yes", "yes"]
    assert len(after.rules()) == 5


def test_rules_may_end_with_a_default_rule():
    model = rules_edited_melons()
    above, notes = cut(text_of(model), "rule 3")
    after = revise_model(model, read_edited(f"{above}rule\n  otherwise\n  then yes\n\n{notes}"))
    assert [rule.label for rule in after.rules()] == ["no", "yes", "yes"]
    assert after.rules().support.tolist() == [0, 0, 0]  # other rows may come to them


def test_rule_after_a_default_rule_is_refused():
    before = "rule\n  otherwise\n  then no\n\nrule 2 of 4, node 4"
    assert "rule 2, not the last one, has no conditions" in refusal(
        rules_edited_melons(), ("rule 2 of 4, node 4", before)
    )


def test_conditions_on_one_column_are_intersected():
    after = edited(
        rules_edited_melons(),
        ("  and colour is red or green\n", "  and sugar > 0.1\n  and colour is red or green\n"),
        ("rule 4 of 4, node 6\n  if  sugar > 0.25, or is missing\n  and size > 5, or is missing",
         "rule\n  otherwise"),
    )  # fmt: skip
    (first, *_) = after.rules()
    low = float(np.float32(0.1))
    assert [(c.low, c.high) for c in first.conditions if c.column == "sugar"] == [(low, 0.25)]
    said = refusal(rules_edited_melons(), ("  and colour is red or green", "  and sugar > 0.5"))
    assert "no value satisfies all conditions on one column; delete the rule" in said


def test_category_may_be_added_to_a_condition():
    after = edited(
        rules_edited_melons(), ("colour is red or green\n", "colour is red, green or blue\n"),
    )  # fmt: skip
    rows = np.array([[0.1, 2, 1], [0.1, np.nan, 1]])
    assert predict_from_sums(after, sum_leaf_values(after, rows)).tolist() == ["no", "yes"]


def test_missing_values_may_be_moved_to_another_rule():
    model = rules_edited_melons()
    after = edited(
        model, ("red or green\n", "red or green, or is missing\n"), ("blue, or is missing", "blue")
    )
    rows = np.array([[0.1, np.nan, 1], [np.nan, 2, 1]])
    assert predict_from_sums(model, sum_leaf_values(model, rows)).tolist() == ["yes", "yes"]
    assert predict_from_sums(after, sum_leaf_values(after, rows)).tolist() == ["no", "yes"]
    said = refusal(model, ("blue, or is missing", "blue"))
    assert "no rule matches the row sugar=" in said
    assert "colour=missing" in said


def test_editing_one_tree_does_not_change_the_other_trees():
    root = build_tree(threshold("sugar", 0.5, leaf([2, 1]), leaf([0, 1])), SCHEMA)
    model = make_model(SCHEMA, [rules_edited_melons().trees[0], root])
    text = text_of(model).replace("sugar <= 0.5", "sugar <= 0.6").replace("> 0.5", "> 0.6")
    after = revise_model(model, read_edited(text))
    rows = np.array([[0.2, 2, 9], [0.55, 2, 9], [0.7, 1, 1], [np.nan, 1, 1]])
    moved = rows.copy()
    moved[1, 0] = 0.45
    second = make_model(SCHEMA, [root])
    first = make_model(SCHEMA, [rules_edited_melons().trees[0]])
    shares = [
        sum_leaf_values(one, some) / one.rules().unit_total
        for one, some in ((first, rows), (second, moved))
    ]
    assert sum_leaf_values(after, rows) / after.rules().unit_total == pytest.approx(
        sum(shares) / 2, abs=1e-6
    )
    gone = "".join(cut(text_of(model), "rule 5 of"))
    with pytest.raises(ModelFileError, match="tree 2 of 2 has no rules left; add a rule"):
        read_edited(gone)


def test_edited_rule_list_can_be_edited_again():
    listed = edited(
        rules_edited_melons(), ("rule 1 of 4, node 3", "rule\n  if size > 9\n  then no\n\nrule 1")
    )
    again = edited(listed, ("size > 9", "size > 8"))
    rows = np.array([[0.1, 2, 8.5], [0.1, 2, 8]])
    assert predict_from_sums(again, sum_leaf_values(again, rows)).tolist() == ["no", "yes"]
    assert_same(revise_model(listed, read_edited(text_of(listed))), listed)


def test_edited_decisions_keep_the_shares_of_unchanged_labels():
    model = rules_edited_melons()
    text = str(model.rules(decisions=True))
    assert_same(revise_model(model, read_edited(text)), model)
    blocks = text.split("\n\n")
    assert "then no" in blocks[1]
    blocks[1] = blocks[1].replace("then no", "then yes").replace("no: 1", "yes: 1")
    after = revise_model(model, read_edited("\n\n".join(blocks)))
    same = (after.units == model.units).all(axis=1)
    assert 0 < same.sum() < 4
    assert (after.units[~same, 1] == model.rules().units_each).all()


# ------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("colour is blue,", "color is blue,", "names 'color'.*did you mean 'colour'"),
        ("is blue,", "is bleu,", "names 'bleu'.*did you mean 'blue'"),
        ("  and size <= 5", "  und size <= 5", "must begin with one of 'if', 'and', 'then'"),
        ("  and size <= 5", "  and size <= five", "such as 'x <= 3', 'x > 3'"),
        ("  and size <= 5", "  and size <= 5,5", "decimal comma: write 5.5 with a point"),
        ("  and size <= 5", '  and "size <= 5', "has a quote that is not closed"),
        ("  and size <= 5", "  and size is red", "does not fit the type"),
        ("rule 3 of 4, node 5", "rule three", "unexpected line 'rule three'"),
        ("one of no, yes", "one of yes, no", "the targets of the edited rules differ"),
        ("missing  direction", "missing  error", "the policies of the edited rules"),
        ("votes    16777216", "votes    7", "'votes    7' should be 'votes    16777216'"),
        ("Rules: 4.", "Rules: 4, of 2 trees.", "2 trees"),
        ("How to read this", "", "has no line 'How to read this'"),
        ("treekit rules, format 4", "rules", "must begin with"),
    ],
)  # fmt: skip
def test_unreadable_text_is_refused_with_its_line(old, new, said):
    text = "# checked\n\n# twice\n" + text_of(rules_edited_melons())
    assert text.count(old) == 1
    bad = text.replace(old, new)
    with pytest.raises((DataError, ModelError, ModelFileError), match=said) as caught:
        revise_model(rules_edited_melons(), read_edited(bad))
    if "line" in str(caught.value):
        at = int(str(caught.value).split("line ")[1].split(" ")[0])
        if new.startswith(("color", "is bleu", "  und", "  and", "rule three", "votes")):
            assert new.strip() in bad.split("\n")[at - 1]


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "hello", "rule"])
def test_a_text_without_rules_is_refused(text):
    with pytest.raises(ModelFileError):
        read_edited(text)


def test_edited_conditions_of_models_without_list_form_are_refused():
    divided = rules_edited_melons(missing="fractional")
    assert "missing='fractional'" in refusal(divided, ("rule 1 of 4, node 3\n  if  sugar <= 0.25",
                                                        "rule\n  if  sugar <= 0.125"))  # fmt: skip
    root = oblique({"sugar": 0.5, "size": -1.25}, 0.5, leaf([1, 0]), leaf([0, 1]))
    slanted = make_model(SCHEMA, [build_tree(root, SCHEMA)])
    top = "rule\n  if  size > 3\n  then no\n\nrule 1 of 2"
    assert "tests of several columns" in refusal(slanted, ("rule 1 of 2", top))
    after = revise_model(
        divided, read_edited(text_of(divided).replace("yes   support 4   yes: 1", "no"))
    )
    assert np.array_equal(after.trees[0].kind, divided.trees[0].kind)


def test_names_that_look_like_keywords_can_be_edited():
    name, level = "# otherwise\n", 'red or "then"'
    schema = Schema(
        (Column(name), Column("if", "nominal", (level, "is missing"))), classes=("then", "rule 1")
    )
    root = threshold(0, 1, subset(1, [level], leaf([1, 0]), leaf([0, 1])), leaf([1, 1]))
    model = make_model(schema, [build_tree(root, schema)])
    assert_same(revise_model(model, read_edited(text_of(model))), model)
    after = edited(model, ('then "then"   support 1   "then": 1', 'then "rule 1"'))
    assert after.rules()[0].label == "rule 1"


# ------------------------------------------------------------------ the same as first match


@pytest.mark.matrix
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_any_edit_predicts_by_the_first_matching_rule(data):
    model = data.draw(models(max_trees=1, kinds=("rules",)))
    listed = model.rules(join=data.draw(st.booleans()))
    chosen = data.draw(st.lists(st.integers(0, len(listed) - 1), max_size=6))
    chosen = [at for at in chosen if listed[at].conditions]
    mine = take_rules(listed, np.array([*chosen, 0], dtype=np.int64))
    blocks = str(mine).split("\n\n")
    last = blocks[-4].split("\n")
    then = next(i for i, row in enumerate(last) if row.startswith("  then"))
    blocks[-4] = "\n".join([last[0], "  otherwise", *last[then:]])
    after = revise_model(model, read_edited("\n\n".join(blocks)))
    rows = data.draw(matrices(model))
    first = [next((i for i in chosen if _first(listed, i, row)), 0) for row in rows]
    expected = np.ldexp(listed.units[first].astype(float), listed.exponent)
    assert np.array_equal(
        np.ldexp(sum_leaf_values(after, rows).astype(float), after.exponent), expected
    )


def _first(listed: RuleList, rule: int, row: np.ndarray) -> bool:
    """Whether one rule alone fits a row, said plainly from its conditions."""
    schema = listed.schema
    for c in listed[rule].conditions:
        at = schema.names.index(c.column)
        column, x = schema.columns[at], row[at]
        if column.kind == "nominal":
            known = x == x and float(x).is_integer() and 0 <= x < len(column.levels)
            met = c.known and column.levels[int(x)] in c.levels if known else c.missing
        else:
            with np.errstate(over="ignore"):
                x = float(np.float32(x)) if schema.dtype == "float32" else float(x)
            above = c.low == -np.inf or c.low < x
            met = (c.known and above and x <= c.high) if x == x else c.missing
        if not met:
            return False
    return True


# ------------------------------------------------------------------ said and kept


def test_edits_are_reported_rule_by_rule():
    model = rules_edited_melons()
    text = text_of(model).replace("yes   support 4   yes: 1", "no")
    found = revise_and_match(model, read_edited(text))[1]
    assert list(compare_rules(found.before, found.after).lines()) == [
        "rules: 3 unchanged, 1 changed, 0 added, 0 removed",
        "changed: rule 2 before, rule 2 after",
        "    if sugar <= 0.25",
        "    and colour is blue, or is missing",
        "  - then yes (yes: 1)",
        "  + then no (no: 1)",
    ]


@pytest.mark.parametrize(("form", "name"), [("json", "rules.txt"), ("text", "rules.json")])
def test_format_of_edited_rules_is_detected_by_content(form, name, tmp_path):
    model = rules_edited_melons()
    path = treekit.write_rules(model, tmp_path / name, form)
    assert_same(treekit.revise(model, str(path)), model)


@pytest.mark.parametrize("form", ["rules.txt", "rules.json"])
def test_python_api_writes_and_reads_edited_rules(form, tmp_path):
    model = rules_edited_melons()
    path = treekit.write_rules(model, tmp_path / form)
    assert_same(treekit.revise(model, path), model)
    after = edited(model, ("rule 1 of 4, node 3", "rule\n  if size > 9\n  then no\n\nrule 1"))
    after.save(tmp_path / "after.treekit")
    again = treekit.load(tmp_path / "after.treekit")
    assert_same(again, after)
    assert again.provenance["revised"] is True
    assert str(again.rules()) == str(after.rules())
    assert str(rules(again)) == str(again.rules())


# ------------------------------------------------------------------ what stands behind them

ROWS = {
    "sugar": [0.1, 0.1, 0.2, 0.5, 0.5, None],
    "colour": ["red", "red", "blue", "red", "red", "red"],
    "size": [1.0, 1.0, 1.0, 9.0, 9.0, 9.0],
    "ripe": ["no", "yes", "yes", "no", "no", None],
    "weight": [1.0, 3.0, 5.0, 7.0, 8.0, None],
}


def test_edited_share_does_not_change_the_confidence():
    model = rules_edited_melons()
    after = edited(model, ("no: 0.75, yes: 0.25", "no: 0.99, yes: 0.01"))
    measures = training_measures(after.rules())
    assert measures.confidence[0] == training_measures(model.rules()).confidence[0] == 0.75
    assert after.predict_proba(ROWS)[0].tolist() != model.predict_proba(ROWS)[0].tolist()


@pytest.mark.parametrize("model", [rules_edited_melons(), weights()])
def test_edited_conditions_have_support_only_if_rows_are_given(model):
    old = "sugar <= 0.25"
    text = text_of(model).replace(old, "sugar <= 0.125")
    answer = "no" if model.schema.task == "classification" else "1"
    text += f"\nrule\n  otherwise\n  then {answer}\n"
    alone = training_measures(revise_model(model, read_edited(text)).rules())
    assert not alone.weight.any()
    for part in (alone.coverage, alone.confidence, alone.lift, alone.mean):
        assert np.isnan(part).all()
    listed = revise_model(model, read_edited(text), ROWS).rules()
    told, wanted = training_measures(listed), measured(listed, ROWS)
    reached = told.weight > 0
    assert reached.any()
    assert not reached.all()
    for one, other in ((told.confidence, wanted.confidence), (told.mean, wanted.mean)):
        assert np.array_equal(one[reached], other[reached], equal_nan=True)
    assert np.array_equal(told.weight[reached], wanted.weight[reached])
    targetless = {name: cells for name, cells in ROWS.items() if name in model.schema.names}
    assert not revise_model(model, read_edited(text), targetless).rules().support.any()
