"""Rules in English, Chinese and the words of a user's own catalogue: written, read, executed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference import evaluate
from tests.strategies import ALL_KINDS, matrices, models
from tests.test_rules import HOSTILE
from treekit.data.schema import Column, Schema
from treekit.errors import ModelFileError, SettingError
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import make_model
from treekit.rules import parse_rules, rules
from treekit.rules.check_catalogue import checked, samples
from treekit.rules.language import GRAMMAR, Language, fields_of, language
from treekit.rules.wording import condition_texts

FRENCH = Path(__file__).parent / "catalogues" / "fr.toml"
LANGUAGES = {"en": language("en"), "zh": language("zh"), "fr": language(FRENCH)}
TEXT_KEYS = [key for key in LANGUAGES["en"].phrases if key.startswith((*GRAMMAR, "note_"))]


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
    return said(listed, words).split("\n\n", 2)[2].splitlines()


# ------------------------------------------------------------------ exact in every language


@pytest.mark.parametrize("code", LANGUAGES)
def test_every_sort_of_rule_is_read_back_as_it_was_written(code):
    words = LANGUAGES[code]
    for listed in samples():
        text = said(listed, words)
        again = parse_rules(text, language=words)
        assert said(again, words) == text
        assert str(again) == str(listed)


@pytest.mark.parametrize("code", LANGUAGES)
def test_the_text_alone_executes_to_what_the_model_means(code):
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
@pytest.mark.parametrize("code", ["en", "zh", pytest.param("fr", marks=pytest.mark.matrix)])
def test_names_that_are_words_of_any_language_are_quoted_where_they_could_be_taken(code):
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
    assert text.count("\n\n") == len(listed) + 1
    again = parse_rules(text, language=words)
    assert again.schema == schema
    assert said(again, words) == text
    assert np.array_equal(again.units, listed.units)


def test_the_languages_have_the_same_phrases_and_fields():
    english = LANGUAGES["en"].phrases
    for words in LANGUAGES.values():
        for key in TEXT_KEYS:
            assert fields_of(words.phrases[key]) == fields_of(english[key]), key
    assert set(LANGUAGES["zh"].phrases) == set(english)


def test_the_samples_need_every_phrase_that_a_trained_model_can_need():
    asked = set()

    class Heard(dict):
        def __getitem__(self, key):
            asked.add(key)
            return super().__getitem__(key)

    words = Language("en", Heard(LANGUAGES["en"].phrases))
    facts = {key for key in TEXT_KEYS if key.startswith("fact_")}
    unreached = {"if_missing_levels", "if_decided", "if_unknown", "if_undecidable"}
    for listed in samples():
        said(listed, words)
    assert set(TEXT_KEYS) - asked - facts == unreached


# ------------------------------------------------------------------ how it reads


def test_chinese_rules_read_as_a_chinese_auditor_writes_them():
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


def test_a_catalogue_may_put_words_on_either_side_and_fields_in_another_order():
    assert body(melons(), FRENCH)[5:9] == [
        "règle 2 sur 3, nœud 4",
        "  si 色泽 est 青绿 ou 乌黑,",
        "  et (sauf manque) 密度 > 0.3815,",
        "  alors   0.75 pour 是 + 0.25 pour 否   d'où 是   poids 8",
    ]


def test_conditions_are_said_in_english_unless_another_language_is_asked():
    listed = melons(("colour", "density"), ("green", "black", "dark red"))
    stop = len(listed.conditions.column)
    assert condition_texts(listed, 0, stop)[-1] == 'colour is "dark red", or is missing'
    assert condition_texts(listed, 1, 2, LANGUAGES["zh"]) == ["density ≤ 0.3815"]


def test_a_name_is_quoted_only_in_the_language_whose_word_it_is():
    listed = melons(("规则", "rule"))
    assert "  if  规则 is 青绿 or 乌黑" in body(listed, "en")
    assert '  and "rule" <= 0.3815' in body(listed, "en")
    assert '  若 "规则" 为 青绿 或 乌黑' in body(listed, "zh")
    assert "  且 rule ≤ 0.3815" in body(listed, "zh")


# ------------------------------------------------------------------ which language


def test_the_first_line_says_the_language():
    first = [said(melons(), words).partition("\n")[0] for words in LANGUAGES.values()]
    assert first == [
        "treekit rules, format 2",
        "treekit rules, format 2, language zh",
        "treekit rules, format 2, language fr",
    ]


def test_a_text_in_a_language_of_a_users_own_is_read_with_its_catalogue_alone():
    text = said(melons(), FRENCH)
    assert said(parse_rules(text, language=FRENCH), FRENCH) == text
    with pytest.raises(ModelFileError, match=r"language 'fr', .* give its catalogue"):
        parse_rules(text)
    with pytest.raises(ModelFileError, match="line 2 of the rules"):
        parse_rules(text, language="zh")


def test_a_text_cannot_name_a_file_that_is_then_read(tmp_path):
    text = said(melons(), FRENCH).replace("language fr", f"language {FRENCH}")
    with pytest.raises(ModelFileError, match="line 2 of the rules"):
        parse_rules(text)


def test_an_older_text_is_refused_with_the_remedy():
    text = str(melons()).replace("format 2", "format 1")
    with pytest.raises(ModelFileError, match="export the rules again"):
        parse_rules(text)


def test_a_language_that_there_is_not_is_named():
    with pytest.raises(SettingError, match=r"'xx'; known: en, zh; or name a file"):
        language("xx")


# ------------------------------------------------------------------ a user's file is checked

FAULTS = {
    "a key left out": ({"if_is": None}, "it lacks if_is"),
    "another field": ({"if_is": "{name} est {niveaux}"}, r"if_is .* needs \{levels\}, \{name\}"),
    "a field in a word": ({"if_is": "{name}est {levels}"}, "a space or a sign stands between"),
    "fields that touch": ({"rule_share": "{share}{label}"}, "a space or a sign stands between"),
    "a line break": ({"rule_if": "si\n{condition}"}, "rule_if .* line break"),
    "a hidden character": ({"if_is": "{name} \u200best {levels}"}, "does not print"),
    "a quote": ({"if_is": '{name} "est" {levels}'}, "double quotes"),
    "a long phrase": ({"note_step": "x" * 401}, "note_step is longer than 400"),
    "many lines": ({"note_step": ["x"] * 13}, "note_step has 13 lines"),
    "a number": ({"note_step": 3}, "note_step is 3; it is a text"),
    "the same twice": ({"if_fails": "l'{test} réussit"}, "if_fails says, is read as if_holds"),
    "one fact twice": ({"fact_type": "pas"}, "fact_type and fact_step are both 'pas'"),
    "a wide fact": ({"fact_type": " type"}, "fact_type is ' type'"),
    "no separator": ({"if_or": " "}, "if_or is ' '; it is more than a space"),
    "a touching separator": ({"if_or": " ou"}, "if_or .* stands beside names"),
    "a share said twice": ({"rule_share": "{share} de {share} pour {label}"}, "says {share} once"),
    "a code that is taken": ({"code": "zh"}, "code is 'zh'"),
    "a code that is none": ({"code": "../fr"}, "code is '../fr'"),
    "a code that browsers cannot sort by": ({"code": "fr-a"}, "code is 'fr-a'"),
    "no code": ({"code": None}, "code is None"),
    "HTML": ({"page_and": "<img src=x onerror=alert(1)>"}, "page_and is .*; documents take none"),
    "a link": ({"page_rules": "[règles](http://x)"}, "page_rules is .*; documents take none"),
    "a formula": ({"page_always": "=1+1"}, "page_always is '=1.1'; .* no sign of a formula"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_catalogue_that_could_mislead_is_refused_by_file_key_and_rule(name, tmp_path):
    changes, expected = FAULTS[name]
    table = tomllib.loads(FRENCH.read_text(encoding="utf-8")) | changes
    path = tmp_path / "mine.toml"
    lines = [f"{key} = {toml(value)}\n" for key, value in table.items() if value is not None]
    path.write_text("".join(lines), encoding="utf-8")
    with pytest.raises(SettingError, match=expected) as caught:
        language(path)
    assert "'mine.toml'" in str(caught.value)


def toml(value):
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if not isinstance(value, str):
        return str(value)
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{quoted}"'


@pytest.mark.parametrize("key", ["code", "note_step", "unheard_of"])
def test_a_catalogue_of_tables_in_tables_is_refused(key):
    nested = {}
    for _ in range(10_000):
        nested = {"a": nested}
    table = tomllib.loads(FRENCH.read_text(encoding="utf-8")) | {key: nested}
    with pytest.raises(SettingError, match=f"'mine.toml' cannot be used: {key} is a dict"):
        checked(table, "mine.toml")


@pytest.mark.parametrize(
    "content", [b"\xff", b"code = ", b"x = 1\n" * 100_000, b"a." * 100_000 + b"a = 1"]
)
def test_a_file_that_is_no_catalogue_is_refused(content, tmp_path):
    (tmp_path / "mine.toml").write_bytes(content)
    with pytest.raises(SettingError, match=r"'mine.toml' cannot be read"):
        language(tmp_path / "mine.toml")


def test_a_catalogue_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingError, match=r"'none.toml' cannot be read"):
        language(str(tmp_path / "none.toml"))


def test_phrases_of_documents_that_a_catalogue_lacks_are_in_english():
    assert LANGUAGES["fr"].say("support") == "support"


def test_what_a_field_holds_is_never_read_as_a_phrase():
    assert LANGUAGES["en"].say("if_is", name="{levels}", levels="{name}") == "{levels} is {name}"
    assert LANGUAGES["en"].sayer("if_is")(name="{0}", levels="{x.y}") == "{0} is {x.y}"
