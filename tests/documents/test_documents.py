"""Rules as Markdown, JSON, CSV, dataframes and tables of notebooks."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import re
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.examples import examples
from tests.export.test_all_targets import HOSTILE, hostile_model
from tests.reference.browser import Browser
from tests.reference.models import chain, mixed_schema, random_model
from tests.rules.test_rule_list import divided_model, fruit, oblique_model, surrogate_model
from tests.runtimes import need
from tests.strategies import ALL_KINDS, models
from treekit import documents as forms
from treekit.data.schema import Column, Output, Schema
from treekit.data.table import read_table
from treekit.documents import Listing, render_listing
from treekit.documents.files import revise, write_rules
from treekit.documents.html import MAX_INITIAL_ROWS
from treekit.documents.json_rules import read_json
from treekit.documents.layout import format_conditions
from treekit.errors import DataError, MissingExtraError, ModelFileError, SettingError
from treekit.model.builder import Surrogate, build_tree, is_missing, leaf, subset, threshold
from treekit.model.model import make_model
from treekit.rules import parse_rules, rules
from treekit.rules.language import load_language
from treekit.rules.measure import training_measures
from treekit.rules.wording import format_percent, quote_unsafe, unquote_text

# ---------------------------------------------------------------- rules forms

MARKUP = (
    "`code` ``more``",
    "a | b \\| c",
    "<script>alert(1)</script>",
    "[x](javascript:alert(1)) ![y](z)",
    "*strong* _em_ ~~gone~~",
    "https://example.org www.example.org a@b.cd",
    "&lt;b&gt; &#0;",
    "# heading\n\n- list\n```\n",
    "ends with \\",
    "\u202egnirts 🐧 汽车",
    "$x$ @someone #1",
)


def listing(model, **other):
    listed = rules(model)
    return Listing(listed, training_measures(listed), **other)


def text_of(form, model, **other):
    return "".join(render_listing(form, listing(model, **other)))


def fruit_model(**policies):
    root = threshold(
        "density", 2.5, subset("colour", ["red"], leaf([3, 1]), leaf([0, 4])), leaf([2, 0])
    )
    return make_model(fruit(), [build_tree(root, fruit())], **policies)


def numbers_model(n_trees=1, **policies):
    schema = fruit(classes=(), task="regression")
    roots = [
        threshold("sugar", k + 0.25, leaf(1.5 + k), leaf(-2.0), missing=1) for k in range(n_trees)
    ]
    return make_model(schema, [build_tree(root, schema) for root in roots], **policies)


def marked_model():
    columns = (*map(Column, MARKUP), Column("levels", "nominal", MARKUP))
    schema = Schema(columns, target=MARKUP[1], classes=MARKUP)
    trees = []
    for k in range(len(MARKUP)):
        own = leaf([float(c == k) + 0.5 for c in range(len(MARKUP))])
        split = subset("levels", MARKUP[k : k + 3], own, leaf([1.0] * len(MARKUP)))
        trees.append(build_tree(threshold(k, 0.5, split, own), schema))
    return make_model(schema, trees)


def first_fits(listed):
    """The rules of a tree as an ordered list, the last one for all other rows."""
    end = listed.end.copy()
    end[-1] = end[-2]
    table = listed.conditions
    kept = {name: part[: end[-1]] for name, part in table._asdict().items() if name != "levels"}
    kept["levels"] = table.levels[: int(kept["level_end"][-1])]
    return dataclasses.replace(listed, order="first", end=end, conditions=type(table)(**kept))


# ------------------------------------------------------------------ all forms


@cache
def kinds():
    """A listing of every kind of rules, in English and in Chinese."""
    sources = {
        "tree": fruit_model(),
        "numbers": numbers_model(3),
        "forest": marked_model(),
        "oblique": oblique_model(),
        "surrogates": surrogate_model(),
        "divided": divided_model(),
        "weighted": weighted_list(),
        "ordered": first_fits(rules(fruit_model())),
    }
    return {
        (name, code): forms.make_listing(source, words=code)
        for name, source in sources.items()
        for code in ("en", "zh")
    }


BUILTIN = [record.name for record in forms.treekit_documents() if record.measured]


@pytest.mark.parametrize("form", BUILTIN)
def test_every_form_writes_rules_of_every_kind_deterministically(form):
    for one in kinds().values():
        text = "".join(render_listing(form, one))
        assert text.endswith("\n")
        assert text == "".join(render_listing(form, one))
        text.encode()


def test_listing_contains_its_model_except_for_decisions():
    model = numbers_model(2)
    listed = rules(model)
    assert forms.make_listing(listed, model_digest="ab").model_digest == "ab"
    assert forms.make_listing(model).model is model
    assert forms.make_listing(listed, model=model).model is model
    one = forms.make_listing(listed, tree=1, model=model)
    assert (one.model, one.tree) == (model, 1)
    decisions = fruit_model().rules(decisions=True)
    for one in (
        forms.make_listing(listed),
        forms.make_listing(decisions, model=fruit_model()),
    ):
        assert one.model is None


def test_listing_without_rules_keeps_schema_and_number_of_trees():
    model = numbers_model(2)
    one, complete = (
        forms.make_listing(model, tree=1, with_rules=with_rules) for with_rules in (False, True)
    )
    assert (len(one.rules), len(one.measures.weight)) == (0, 0)
    assert (one.model, one.tree, one.rules.n_trees) == (model, 1, 2)
    assert one.rules.schema == complete.rules.schema


def chinese_model(**more):
    """Names without a Latin letter: whatever has one is a form's own word."""
    columns = (Column("密度"), Column("色泽", "nominal", ("青绿", "乌黑", "浅白")), Column("糖"))
    schema = Schema(columns, target="好瓜", **{"classes": ("是", "否")} | more)
    sets = subset("色泽", ["青绿", "乌黑"], leaf([3, 1]), leaf([1, 4]), missing=0)
    inner = is_missing("密度", leaf([0, 0.5]), sets)
    bounds = threshold("密度", 0.25, leaf([3, 1]), threshold("密度", 4.5, inner, leaf([0, 2])))
    stands_in = [Surrogate("糖", 0.5), Surrogate("色泽", levels={"青绿": 0, "浅白": 1})]
    tested = threshold("密度", 1.5, leaf([3, 1]), sets, surrogates=stands_in)
    trees = [build_tree(node, schema) for node in (bounds, tested)]
    return make_model(schema, trees, missing="surrogate")


def test_the_column_name_is_separated_from_the_words_of_a_condition():
    names = ("e", "or", "x", "a.*b")
    schema = Schema(
        (*map(Column, names[:3]), Column(names[3], "nominal", ("e", "is"))),
        classes=(),
        task="regression",
        dtype="float64",
    )
    roots = [
        threshold(k, 1e-7, leaf(0.0), threshold(k, 1e22, leaf(1.0), leaf(2.0))) for k in range(3)
    ]
    roots.append(subset("a.*b", ["is"], leaf(0.0), leaf(1.0), missing=0))
    model = make_model(schema, [build_tree(root, schema) for root in roots])
    for code in ("en", "zh"):
        one = forms.make_listing(model, words=code)
        said = format_conditions(one, 0, len(one.rules.conditions.column))
        asked = {(part.before, part.name) for part in said}
        before = {"", "1e-07 < "} if code == "zh" else {""}
        quoted = ["e", '"or"' if code == "en" else "or", "x"]
        assert asked == {*itertools.product(before, quoted), ("", '"a.*b"')}


def latin(text, *allowed):
    """The words of Latin letters in a text, but for names of engines, types and digests."""
    return set(re.findall("[A-Za-z]{2,}", text)) - set(allowed)


def test_every_word_of_a_chinese_document_is_chinese():
    one = forms.make_listing(chinese_model(), words="zh")
    text = "".join(render_listing("markdown", one))
    assert latin(re.sub("[0-9a-f]{64}", "", text), "SHA", "float") == set()
    assert "密度 ≤ 0.25" in text
    assert "测试 1 成立 (已知时 密度 ≤ 1.5)" in text
    assert "色泽 为 青绿 或 乌黑，或缺失" in text
    page = "".join(render_listing("html", one))
    body = re.sub("<(style|script).*?</\\1>|<[^>]*>", " ", page, flags=re.DOTALL)
    assert latin(re.sub("[0-9a-f]{64}|&[gl]t;", "", body), "SHA", "float") == set()
    hints = re.findall('(?:aria-label|placeholder|data-hint|data-text)="([^"]*)"', page)
    assert len(hints) == 4
    assert latin(re.sub(r"\{\w+\}", "", " ".join(hints))) == set()
    for row in read_csv("".join(render_listing("csv", one))):
        assert latin(row["条件"]) == latin(" ".join(row)) == set()


def test_documents_state_that_rules_were_merged_by_label():
    listed = dataclasses.replace(rules(fruit_model()), decisions=True)
    for form in ("markdown", "html"):
        text = "".join(render_listing(form, forms.make_listing(listed)))
        assert "Rules that predict the same class were joined" in text


def test_unknown_form_is_refused():
    with pytest.raises(SettingError, match=r"unknown document 'pdf'; installed: .*html"):
        render_listing("pdf", listing(fruit_model()))


def test_percentages_of_0_and_100_are_exact():
    said = [format_percent(part) for part in (0.0, 1e-4, 1e-7, 0.5, 0.12345, 0.9999, 0.999999, 1.0)]
    assert said == ["0%", "<0.1%", "<0.1%", "50.0%", "12.3%", ">99.9%", ">99.9%", "100%"]


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_documents_end_with_digests_and_omit_lift(form):
    text = "".join(render_listing(form, forms.make_listing(fruit_model(), model_digest="ab12")))
    model, rule_text = text.index("ab12"), text.index("text in English")
    assert text.rindex("75.0%") < model < rule_text
    assert "lift" not in text


def test_merged_rules_of_one_class_state_no_shares():
    listed = fruit_model().rules(decisions=True)
    text = "".join(render_listing("markdown", forms.make_listing(listed)))
    head, first, *_ = rows_of(text)
    assert head == ["rule", "if", "then", "support", "coverage", "confidence"]
    assert first[-1] == "75.0%"
    assert "<small>" not in "".join(render_listing("html", forms.make_listing(listed)))


# ------------------------------------------------------------------ Markdown


def rendered(text):
    """Tokens of GitHub's Markdown, as far as markdown-it has it."""
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    found = []
    for token in reader.parse(text):
        found += [token, *(token.children or [])]
    return found


def rows_of(text):
    """The texts of the cells of all tables, a list for each row."""
    rows, tokens = [], rendered(text)
    for at, token in enumerate(tokens):
        if token.type == "tr_open":
            rows.append([])
        if token.type in ("td_open", "th_open"):
            inside = tokens[at + 1].children or []
            rows[-1].append("".join(child.content for child in inside))
    return rows


def test_markdown_is_a_table_with_a_row_for_each_rule():
    text = text_of("markdown", fruit_model())
    assert text.startswith("# Rules for `ripe`\n\n- target: `ripe`\n- classes: `unripe`, `ripe`\n")
    assert "A missing value meets a condition only where the rule says so" in text
    head, *rows = rows_of(text)
    assert head == ["rule", "if", "then", "shares", "support", "coverage"]
    assert rows[0] == [
        *("1", "density <= 2.5 and colour is red", "unripe"),
        *("unripe: 75.0%, ripe: 25.0%", "4", "40.0%"),
    ]
    assert [row[2] for row in rows] == ["unripe", "ripe", "unripe"]


def test_markdown_omits_unknown_measures_and_states_policies():
    text = text_of("markdown", numbers_model(missing="error", unknown="error"))
    assert rows_of(text)[0] == ["rule", "if", "then", "support", "coverage"]
    assert "A row with a missing value is refused." in text
    assert "A row with a category that the model does not know is refused." in text


def test_markdown_of_a_forest_has_a_section_for_each_tree():
    text = text_of("markdown", numbers_model(3))
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings == ["## How to read this", *(f"## Tree {k} of 3" for k in (1, 2, 3))]
    assert [row[0] for row in rows_of(text)] == [
        "rule",
        "1",
        "2",
        "rule",
        "3",
        "4",
        "rule",
        "5",
        "6",
    ]
    assert "## 第 2 棵树，共 3 棵" in text_of(
        "markdown", numbers_model(3), language=load_language("zh")
    )


def test_an_ordered_list_states_that_the_first_match_predicts_and_the_default():
    listed = first_fits(rules(fruit_model()))
    text = "".join(render_listing("markdown", Listing(listed, training_measures(listed))))
    assert "The first rule that matches a row gives the prediction." in text
    assert [row[1] for row in rows_of(text)[1:]][-1] == "otherwise"


def weighted_list():
    """Three trees of two rules each: the rule, and what holds where it does not fit."""
    listed = rules(numbers_model(3, combine="sum"))
    table = listed.conditions
    kept = {
        name: part[::2]
        for name, part in table._asdict().items()
        if name not in ("levels", "level_end")
    }
    kept |= {"levels": table.levels, "level_end": np.zeros(3, np.int64)}
    ends = np.array([1, 1, 2, 2, 3, 3])
    return dataclasses.replace(listed, order="first", end=ends, conditions=type(table)(**kept))


def test_a_weighted_list_has_a_row_for_each_rule_and_its_weight():
    listed = weighted_list()
    text = "".join(render_listing("markdown", Listing(listed, training_measures(listed))))
    assert "Every rule adds its weight for rows that it matches" in text
    assert "- columns: 3\n- rules: 3\n" in text
    head, *rows = rows_of(text)
    assert head[:4] == ["rule", "if", "then", "otherwise"]
    assert [row[1].split(",")[0] for row in rows] == [f"sugar <= {k}.25" for k in range(3)]
    assert [row[2:4] for row in rows] == [["1.5", "-2"], ["2.5", "-2"], ["3.5", "-2"]]


def test_measures_of_a_table_are_shown_with_rows_mean_and_spread():
    listed = rules(numbers_model())
    measures = training_measures(listed)._replace(
        source="table",
        rows=np.array([3, 0]),
        mean=np.array([[1.25], [np.nan]]),
        spread=np.array([[0.123456], [np.nan]]),
    )
    one = Listing(listed, measures)
    text = "".join(render_listing("markdown", one))
    head, first, second = rows_of(text)
    assert "- measured on: the rows of a table\n" in text
    assert head[3:] == ["rows", "support", "coverage", "mean", "spread"]
    assert (first[3], *first[-2:]) == ("3", "1.25", "0.123456")
    assert (second[3], *second[-2:]) == ("0", "", "")
    row = read_csv("".join(render_listing("csv", one)))[1]
    assert (row["rows"], row["mean"]) == ("0", "")
    page = "".join(render_listing("html", one))
    assert '<td class="n" data-v="0.123456">0.123456</td>' in page


def test_documents_name_the_table_and_repeat_no_measure(tmp_path):
    path = tmp_path / "fruit |1|.csv"
    path.write_text(
        "density,sugar,colour,ripe\n1,0,red,ripe\n2,0,red,unripe\n2,0,blue,ripe\n9,0,blue,ripe\n"
    )
    model = fruit_model()
    for one in (
        forms.make_listing(model, table=str(path)),
        forms.make_listing(model, table=path),
        forms.make_listing(model, table=read_table(path), table_name=path.name),
    ):
        text = "".join(render_listing("markdown", one))
        assert "- measured on: `fruit |1|.csv`\n" in text
        head, first, second, third = rows_of(text)
        assert head[4:] == ["support", "coverage", "confidence"]  # no "rows": equal
        assert [row[-1] for row in (first, second, third)] == ["50.0%", "100%", "0%"]
        page = "".join(render_listing("html", one))
        assert "<dt>measured on</dt><dd><code>fruit |1|.csv</code></dd>" in page
        assert '<td class="n" data-v="0.5">50.0%' in page
    assert "- measured on: the rows of a table\n" in "".join(
        render_listing("markdown", forms.make_listing(model, table=read_table(path)))
    )
    out = write_rules(model, tmp_path / "rules.md", table=path)
    assert "- measured on: `fruit |1|.csv`\n" in out.read_text()


def test_names_are_escaped_and_readable_in_markdown():
    text = text_of("markdown", marked_model(), title=MARKUP[2])
    kinds = {token.type for token in rendered(text)}
    assert not kinds & {"html_block", "link_open", "em_open", "strong_open", "image", "s_open"}
    assert {t.content for t in rendered(text) if t.type == "html_inline"} <= {"<br>"}
    rows = rows_of(text)
    assert len({len(row) for row in rows}) == 1
    assert len(rows) == len(MARKUP) + len(rules(marked_model()))
    labels = {row[2] for row in rows}
    assert {MARKUP[2], '"`code` ``more``"', '"a | b \\\\| c"', '"ends with \\\\"'} <= labels


# ------------------------------------------------------------------ JSON


@given(st.data())
@settings(max_examples=examples(25))
def test_json_and_text_state_the_same_rules(data):
    listed = rules(data.draw(models(kinds=ALL_KINDS)))
    labels = listed.schema.task == "classification" and not listed.margins
    listed = dataclasses.replace(listed, decisions=labels and len(listed) < 4)
    text = str(listed)
    for said in (listed, parse_rules(text)):
        form = "".join(render_listing("json", Listing(said, training_measures(said))))
        read = read_json(form)
        assert str(read) == text
        assert read.order == said.order
        assert read.decisions == said.decisions
        assert (read.value is None) == (said.value is None)
        assert read.value is None or (read.value == said.value + 0.0).all()
        assert "".join(render_listing("json", Listing(read, training_measures(read)))) == form


def test_json_contains_hostile_names_printable_and_unchanged():
    text = text_of("json", hostile_model())
    assert text.replace("\n", "").isprintable()
    assert "汽车 价格" in text
    schema = read_json(text).schema
    assert schema == hostile_model().schema
    half = Schema((Column("half \ud800 a pair"),), classes=(True, False), target="\0")
    model = make_model(half, [build_tree(leaf([2, 1]), half)])
    assert read_json(text_of("json", model)).schema == half


def test_json_keeps_rule_order_and_integer_labels():
    listed = first_fits(rules(fruit_model()))
    again = read_json("".join(render_listing("json", Listing(listed, training_measures(listed)))))
    assert again.order == "first"
    for classes in ((1, 2), (1.0, 2.5), (True, False), ("1", "2")):
        schema = fruit(classes=classes)
        read = read_json(text_of("json", make_model(schema, [build_tree(leaf([1, 2]), schema)])))
        assert [type(label) for label in read.schema.classes] == [type(label) for label in classes]
        assert read.schema.classes == classes


def edited(change, model=None):
    """The rules of a model after a change to their JSON."""
    value = json.loads(text_of("json", model or fruit_model()))
    change(value)
    return read_json(json.dumps(value))


def test_edited_json_may_omit_derived_fields_and_reorder_categories():
    def change(value):
        for key in ("missing_marks", "voting", "order", "costs", "trees", "combine", "tests"):
            del value[key]
        value["rules"][0] = {
            "if": [
                {"column": "colour", "in": ["blue", "red"]},
                {"column": "sugar", "at_most": 0.1},
            ],
            "then": {"ripe": {"label": "ripe"}},
        }
        value["rules"][1]["then"]["ripe"] = {"shares": {"unripe": 0.3, "ripe": 0.7}}

    first, second, _ = edited(change)
    assert first.conditions[0].levels == ("red", "blue")
    assert (first.label, first.shares, first.support) == ("ripe", (0.0, 1.0), 0.0)
    assert first.conditions[1].high == float(np.float32(0.1))
    assert second.label == "ripe"
    assert sum(second.units) == 2**24


@pytest.mark.parametrize("n_trees", [1, 3, 7])
def test_edited_shares_sum_to_the_total_units(n_trees):
    schema = fruit(classes=("a", "b", "c"))
    model = make_model(schema, [build_tree(leaf([3, 2, 1]), schema)] * n_trees)

    def change(value):
        for rule in value["rules"]:
            rule["then"]["ripe"] = {"shares": {"a": 0.3333, "b": 0.3333, "c": 0.3334}}

    read = edited(change, model)
    assert (read.units.sum(axis=1) == read.units_each).all()
    assert abs(read.units[0] / read.units_each - [0.3333, 0.3333, 0.3334]).max() < 1e-6


def test_edited_number_is_rounded_to_the_nearest_fixed_point_step():
    def change(value):
        value["rules"][0]["then"]["ripe"] = {"value": 0.1}

    read = edited(change, numbers_model())
    assert read[0].value == pytest.approx(0.1, abs=2.0 ** (read.exponent - 1))


def put(*path):
    """A change that sets the value behind a path."""
    *way, last, new = path

    def change(value):
        for key in way:
            value = value[key]
        value[last] = new

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("format", "other"), r"\$\.format .*one of: treekit rules; the value is 'other'"),
        (put("version", 2), r"\$\.version .*one of: 1; the value is 2"),
        (put("unheard", 1), r"\$ .*unknown field `unheard`"),
        (put("type", "float16"), r"\$\.type .*float32, float64"),
        (put("trees", 0), r"\$\.trees .*`int` >= 1; the value is 0"),
        (put("trees", 2), r"\$\.rules .*tree 2 of 2 has no rules left"),
        (put("trees", True), r"\$\.trees .*Expected `int`, got `bool`; the value is True"),
        (put("exponent", 5000), r"\$\.exponent"),
        (put("order", "last"), r"\$\.order"),
        (put("decisions", 1), r"\$\.decisions .*Expected `bool`, got `int`; the value is 1"),
        (put("rounding", []), r"\$\.rounding .*Expected `null`, got `array`"),
        (put("order", "first"), r"\$\.rules\[2\]\.if .*the last rule .* no conditions"),
        (put("columns", []), r"\$\.columns .*length >= 1; the value is \[\]"),
        (put("columns", 1, "name", "density"), "appears twice"),
        (
            put("columns", 2, "levels", 0, 7),
            r"\$\.columns\[2\]\.levels\[0\] .*Expected `str`, got `int`; the value is 7",
        ),
        (put("targets", 0, "classes", ["a", 1]), "one type"),
        (put("costs", [[0, 1]]), r"\$\.costs"),
        (put("costs", [[0, 1], [2, 3]]), r"\$\.costs .*correct prediction must be 0"),
        (put("tests", [[]]), r"\$\.tests\[0\]"),
        (put("tests", [[{"sum": [["colour", 1]], "at_most": 1}]]), r"sum\[0\] .*not numeric"),
        (put("tests", [[{"column": "size", "above": 1}]]), r"'size' is not a column"),
        (put("rules", {}), r"\$\.rules .*Expected `array`, got `object`; the value is \{\}"),
        (put("rules", 1, "tree", 2), r"\$\.rules\[1\]\.tree"),
        (put("rules", 1, "support", -1), r"\$\.rules\[1\]\.support"),
        (put("rules", 1, "as_parent", True), r"\$\.rules\[1\] .*'support' must be 0"),
        (put("rules", 1, "if", 0, "column", "size"), r"rules\[1\]\.if\[0\]\.column .*'size'"),
        (
            put("rules", 1, "if", 0, "above", "3"),
            r"above .*Expected `float \| null`, got `str`; the value is '3'",
        ),
        (put("rules", 1, "if", 0, "above", 1e300), r"above .*not a finite float32"),
        (
            put("rules", 1, "if", 0, "part", [0, 5]),
            r"if\[0\] .*'part' and 'dividing' require the missing policy 'fractional'",
        ),
        (put("rules", 1, "if", 0, "in", ["red"]), r"if\[0\] .*needs above, at_most"),
        (put("rules", 1, "if", 1, "in", ["red", "red"]), r"if\[1\]\.in .*twice"),
        (put("rules", 1, "if", 1, "in", ["rot"]), r"if\[1\]\.in\[0\] .*'rot' is not a category"),
        (put("rules", 1, "if", 1, {"column": "density", "at_most": 1}), "two conditions on one"),
        (put("rules", 1, "if", 1, {"test": 1, "holds": True}), r"if\[1\]\.test"),
        (put("rules", 1, "then", {}), r"then .*an outcome for each of \['ripe'\], not for \[\]"),
        (put("rules", 1, "then", "ripe", "label", "rotten"), r"then\.ripe\.label .*'rotten'"),
        (
            put("rules", 1, "then", "ripe", "label", "unripe"),
            r"ripe\.shares .*not the class with the largest share",
        ),
        (
            put("rules", 1, "then", "ripe", "shares", {"ripe": 0.5}),
            r"ripe\.shares .*the shares add to 0\.5",
        ),
        (
            put("rules", 1, "then", "ripe", "shares", {"ripe": 1.5}),
            r"shares\.ripe .*`float` <= 1.0",
        ),
        (put("rules", 1, "then", "ripe", "value", 1), r"then\.ripe .*unknown field `value`"),
    ],
)
def test_invalid_json_is_refused_with_its_location(change, said):
    with pytest.raises(ModelFileError, match=said):
        edited(change)


def test_malicious_json_is_refused():
    text = text_of("json", fruit_model())
    for broken, said in (
        ("[" * 100_000, "nested too deeply"),
        (text.replace("2.5", "NaN", 1), "NaN is not a JSON number"),
        (text.replace("2.5", "-Infinity", 1), "-Infinity is not a JSON number"),
        (text.replace("2.5", "1" * 5000, 1), "at_most .*the value is inf"),
        (text.replace("2.5", "1e999", 1), "at_most .*the value is inf"),
        (text.replace('"missing": true', '"missing": true, "missing": false', 1), "appears twice"),
        (text.replace('"unripe": 0.75', '"unripe": 0.75, "unripe": 0.75'), "appears twice"),
        (text[:-4], "not valid JSON"),
        (text + "{}", "not valid JSON"),
        ("null", "Expected `object`, got `null`"),
        ("", "not valid JSON"),
    ):
        assert broken != text
        with pytest.raises(ModelFileError, match=said):
            read_json(broken)


# ------------------------------------------------------------------ CSV and dataframes


def read_csv(text):
    head, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_csv_has_a_line_for_each_rule_with_exact_numbers():
    model = fruit_model()
    listed = rules(model)
    rows = read_csv(text_of("csv", model))
    assert [row["rule"] for row in rows] == ["1", "2", "3"]
    assert rows[0]["if"] == "density <= 2.5; and colour is red"
    assert [row["then"] for row in rows] == [rule.label for rule in listed]
    for key, wanted in (("share unripe", listed.units[:, 0] / 2**24), ("support", listed.support)):
        assert [float(row[key]) for row in rows] == wanted.tolist()
    measures = training_measures(listed)
    assert [float(row["lift"]) for row in rows] == measures.lift[:, 0].tolist()
    assert "mean" not in rows[0]
    several = fruit(more=(Output("size", ("s", "l")),))
    rows = read_csv(text_of("csv", make_model(several, [build_tree(leaf([1, 2, 4, 1]), several)])))
    assert (rows[0]["then of ripe"], rows[0]["then of size"]) == ("ripe", "s")
    assert rows[0]["if"] == "always"


def test_csv_cells_are_not_formulas_and_labels_are_recoverable():
    formulas = ("=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(1)", "\t=1", " =1", "＝1", '"=1"')
    labels = (*HOSTILE, *formulas)
    schema = Schema((Column("=x"), Column("@y")), classes=labels, target="-t")
    trees = [
        build_tree(
            threshold(0, 0.5, *(leaf(np.eye(len(labels))[j].tolist()) for j in (k, k - 1))), schema
        )
        for k in range(len(labels))
    ]
    text = text_of("csv", make_model(schema, trees))
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    assert len(rows) == 2 * len(trees) + 1
    number = {f"{sign}{digit}" for sign in "-" for digit in range(10)}
    for row in rows:
        for cell in row:
            assert cell.strip()[:1] not in set("=+-@\t＝＋－＠") or cell[:2] in number
    for label in labels:
        shown = quote_unsafe(label)
        assert label == (unquote_text(shown) if shown.startswith('"') else shown)


def test_csv_of_other_characters_than_ascii_begins_with_a_byte_order_mark(tmp_path):
    pandas = pytest.importorskip("pandas")
    assert text_of("csv", fruit_model()).isascii()
    for names in (
        {"name": "é"},
        {"levels": ("rouge", "é")},
        {"target": "é"},
        {"classes": ("é", "b")},
    ):
        column = Column(names.get("name", "c"), "nominal", names.get("levels", ("x", "y")))
        outputs = {key: names[key] for key in ("target", "classes") if key in names}
        schema = Schema((column,), **({"classes": ("a", "b")} | outputs))
        root = subset(column.name, column.levels[1:], leaf([1, 0]), leaf([0, 1]))
        model = make_model(schema, [build_tree(root, schema)])
        path = write_rules(model, tmp_path / f"{next(iter(names))}.csv")
        assert path.read_bytes().startswith(b"\xef\xbb\xbf") == ("target" not in names)
        assert path.read_text("utf-8-sig").startswith("rule,tree,node,if,then,")
        assert pandas.read_csv(path).columns[0] == "rule"


def test_header_of_csv_is_translated(tmp_path):
    path = write_rules(fruit_model(), tmp_path / "rules.csv", language="zh")
    (head, *_) = csv.reader(io.StringIO(path.read_text("utf-8-sig"), newline=""))
    assert ",".join(head) == (
        "规则,树,节点,条件,结论,占比 unripe,占比 ripe,同父节点,支持度,覆盖率,置信度,提升度"
    )
    several = fruit(more=(Output("size", ("s", "l")),))
    model = make_model(several, [build_tree(leaf([1, 2, 4, 1]), several)])
    text = "".join(render_listing("csv", listing(model, language=load_language("zh"))))
    assert ",ripe的结论," in text
    assert next(iter(rules(fruit_model()).frame())) == "rule"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_csv_of_rules_is_overwritten_and_cannot_be_read_as_rules(tmp_path, language):
    path = tmp_path / "rules.csv"
    for other in (language, "en", language):
        write_rules(fruit_model(), path, language=other)
    with pytest.raises(DataError, match="is a table of rules"):
        revise(fruit_model(), path)
    path.write_text(path.read_text("utf-8-sig").replace(",", ";"), "utf-8-sig")  # by a spreadsheet
    with pytest.raises(DataError, match="is a table of rules"):
        revise(fruit_model(), path)
    path.write_text("规则,树\n1,2\n", "utf-8-sig")
    with pytest.raises(DataError, match=r"does not begin with 'rule,tree,node,if,' or '规则,树,"):
        write_rules(fruit_model(), path)


def test_a_dataframe_has_the_columns_of_csv_typed():
    pandas = pytest.importorskip("pandas")
    listed = rules(fruit_model())
    frame = listed.frame()
    assert list(frame.columns) == list(read_csv(text_of("csv", fruit_model()))[0])
    assert frame["then"].tolist() == ["unripe", "ripe", "unripe"]
    assert frame["support"].to_numpy().tolist() == listed.support.tolist()
    assert frame["as_parent"].dtype == bool
    assert isinstance(hostile_frame := rules(hostile_model()).frame(), pandas.DataFrame)
    assert len(hostile_frame) == len(rules(hostile_model()))


def test_a_dataframe_without_pandas_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"treekit-ml\[pandas\]"):
        rules(fruit_model()).frame()


# ------------------------------------------------------------------ notebooks


# ---------------------------------------------------------------- rules page
# The page of rules in a real browser: it sorts, searches, prints, and asks for nothing.

SEEN = "[...document.querySelectorAll('#rules tbody tr')].filter((row) => row.checkVisibility())"
NUMBERS = f"{SEEN}.map((row) => Number(row.cells[0].textContent))"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    need("chromium")
    made = Browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.close()


@pytest.fixture
def shown(browser, tmp_path):
    """Opens the page of a listing; afterwards nothing may have gone wrong on it."""
    path = tmp_path / "rules.html"

    def show(model_or_listing, width=1280, **options):
        one = model_or_listing
        if not isinstance(one, Listing):
            one = listing(one)
        path.write_text("".join(render_listing("html", one)), encoding="utf-8")
        browser.show(width, **options)
        browser.open(path)
        return browser

    yield show
    assert browser.requests == [path.as_uri()]
    assert browser.complaints == []


def forest_model():
    return random_model(3, mixed_schema(), n_trees=4, n_splits=12)


def rules_page_hostile_model():
    """Hostile names everywhere, cut short; one without a blank to break it at."""
    names = tuple(dict.fromkeys([*(name[:60] for name in HOSTILE), "x" * 200]))
    columns = (*map(Column, names), Column("levels", "nominal", names))
    schema = Schema(columns, target=names[5], classes=names)
    ones = [leaf(weights) for weights in np.eye(len(names)).tolist()]
    roots = [
        threshold(k, 0.5, subset("levels", names[k : k + 2], one, ones[0]), one)
        for k, one in enumerate(ones)
    ]
    return make_model(schema, [build_tree(root, schema) for root in roots])


def long_model():
    return chain(MAX_INITIAL_ROWS + 40, mixed_schema())


def column(heading):
    """An expression for the number of a column."""
    return (
        "[...document.querySelectorAll('#rules thead th')]"
        f".findIndex((head) => head.textContent === '{heading}')"
    )


def head(heading):
    return f"document.querySelectorAll('#rules thead th')[{column(heading)}]"


# ------------------------------------------------------------------ sort, search, filter


@pytest.mark.system
def test_click_on_a_heading_sorts_by_exact_values(shown):
    listed = rules(forest_model())
    count = len(listed)
    measures = training_measures(listed)
    measures.confidence[:] *= 0.9  # other than the shares
    measures.confidence[[2, 5]] = np.nan  # stands last in either order
    page = shown(Listing(listed, measures))
    assert page.ask(NUMBERS) == list(range(1, count + 1))
    for heading, values in (
        ("support", measures.weight),
        ("confidence", measures.confidence[:, 0]),
    ):
        last = np.isnan(values)
        for way, keys in (("ascending", values), ("descending", -values)):
            page.ask(f"{head(heading)}.querySelector('button').click()")
            assert page.ask(f"{head(heading)}.getAttribute('aria-sort')") == way
            wanted = np.lexsort((np.arange(count), np.where(last, 0, keys), last)) + 1
            assert page.ask(NUMBERS) == wanted.tolist()
        assert page.ask("document.querySelectorAll('[aria-sort=none]').length") == 6


@pytest.mark.system
def test_keyboard_alone_sorts_and_searches(shown):
    page = shown(fruit_model())
    page.ask("document.getElementById('search').focus()")
    page.type("density")
    for _ in range(3):
        page.press("Tab")
    assert page.ask("document.activeElement.id") == "reset"
    page.press("Tab")
    assert page.ask("document.activeElement.textContent") == "rule"
    page.press("Enter", "\r")
    assert page.ask(NUMBERS) == [3, 2, 1]


@pytest.mark.system
def test_search_finds_rules_that_contain_all_words(shown):
    model = fruit_model()
    page = shown(model)
    for words, found in (
        ("colour", [1, 2]),
        ("COLOUR red", [1]),
        ("density > 2.5", [3]),
        (" ripe blue ", [2]),
        ("purple", []),
    ):
        page.ask("document.getElementById('search').value = ''")
        page.ask("document.getElementById('search').focus()")
        page.type(words)
        assert page.ask(NUMBERS) == found
        assert page.ask("document.getElementById('count').textContent") == (
            f"{len(found)} of 3 rules"
        )
        assert page.ask("document.getElementById('none').checkVisibility()") == (not found)
    page.ask("document.getElementById('reset').click()")
    assert page.ask(NUMBERS) == [1, 2, 3]


@pytest.mark.system
def test_filters_by_class_and_tree_are_combined(shown):
    model = forest_model()
    listed = rules(model)
    page = shown(model)
    page.ask("document.querySelector('#classes input[value=\"0\"]').click()")
    yes = [k for k, rule in enumerate(listed, 1) if rule.label == "yes"]
    assert 0 < len(yes) < len(listed)
    assert page.ask(NUMBERS) == yes
    page.ask("document.getElementById('tree').value = '2'")
    page.ask("document.getElementById('tree').dispatchEvent(new Event('change'))")
    assert page.ask(NUMBERS) == [k for k in yes if listed[k - 1].tree == 1]
    page.ask("document.getElementById('reset').click()")
    assert page.ask(NUMBERS) == list(range(1, len(listed) + 1))


@pytest.mark.system
def test_a_long_list_is_shown_in_parts_and_searched_as_a_whole(shown):
    model = long_model()
    count = len(rules(model))
    page = shown(model)
    assert len(page.ask(NUMBERS)) == MAX_INITIAL_ROWS < count
    page.ask("document.getElementById('more').click()")
    assert len(page.ask(NUMBERS)) == count
    page.ask(f"{head('rule')}.querySelector('button').click()")
    assert page.ask(NUMBERS) == list(range(count, count - MAX_INITIAL_ROWS, -1))
    said = page.ask("document.getElementById('count').textContent")
    assert said == f"{MAX_INITIAL_ROWS} of {count} rules"


# ------------------------------------------------------------------ looks


@pytest.mark.system
def test_bar_lengths_equal_the_shares(shown):
    listed = rules(fruit_model())
    measures = training_measures(listed)
    measures.confidence[:] *= 0.9  # other than the shares
    page = shown(Listing(listed, measures))
    for heading, values in (
        ("coverage", measures.coverage),
        ("confidence", measures.confidence[:, 0]),
    ):
        bars = page.ask(
            f"{SEEN}.map((row) => row.cells[{column(heading)}].querySelector('svg'))"
            ".map((svg) => [svg, svg.firstChild].map((part) => part.getBoundingClientRect().width))"
        )
        for (whole, bar), value in zip(bars, values.tolist(), strict=True):
            assert whole > 60
            assert abs(bar / whole - value) < 0.01


@pytest.mark.system
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    "make", [fruit_model, marked_model, rules_page_hostile_model, numbers_model]
)
def test_page_is_not_wider_than_the_screen(shown, make, width):
    page = shown(make(), width)
    assert page.ask("document.documentElement.scrollWidth") == width
    beyond = "[...document.querySelectorAll('main *')].filter((one) => one.checkVisibility() && "
    beyond += f"one.getBoundingClientRect().right > {width} && !one.closest('.wide'))"
    assert page.ask(f"{beyond}.map((one) => one.outerHTML.slice(0, 200))") == []


@pytest.mark.system
def test_on_a_phone_each_cell_shows_the_heading_of_its_column(shown):
    page = shown(fruit_model(), 390)
    labels = page.ask(
        f"[...{SEEN}[0].cells].map((cell) => getComputedStyle(cell, '::before').content)"
    )
    heads = page.ask("[...document.querySelectorAll('#rules thead th')].map((h) => h.textContent)")
    assert labels == [f'"{heading}"' for heading in heads]
    tops = page.ask(f"[...{SEEN}[0].cells].map((cell) => cell.getBoundingClientRect().top)")
    assert tops == sorted(set(tops))


@pytest.mark.system
def test_numbers_are_aligned_with_their_headings(shown):
    page = shown(numbers_model())
    ends = page.ask(
        f"[{head('then')}, {SEEN}[0].cells[{column('then')}]].map((cell) => {{"
        " const text = document.createRange(); text.selectNodeContents(cell);"
        " return text.getBoundingClientRect().right; })"
    )
    assert abs(ends[0] - ends[1]) < 2


@pytest.mark.system
@pytest.mark.parametrize("dark", [False, True])
def test_text_has_sufficient_contrast(shown, dark):
    page = shown(fruit_model(), dark=dark)
    pairs = page.ask(
        """[...document.querySelectorAll('main *')].filter((one) => one.checkVisibility() &&
        [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).map((one) => {
          let ground = one;
          const colour = () => getComputedStyle(ground).backgroundColor;
          while (ground.parentElement && colour() === 'rgba(0, 0, 0, 0)')
            ground = ground.parentElement;
          return [getComputedStyle(one).color, colour(), one.tagName];
        })"""
    )
    assert len(pairs) > 30
    for text, ground, tag in pairs:
        one, other = sorted((luminance(text), luminance(ground)))
        assert (other + 0.05) / (one + 0.05) >= 4.5, (text, ground, tag)
    assert (luminance(pairs[0][1]) < 0.1) == dark


def luminance(colour):
    """Relative luminance (WCAG 2.2)."""
    parts = np.array([int(part) for part in re.findall(r"\d+", colour)[:3]]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


# ------------------------------------------------------------------ print, no script, languages


@pytest.mark.system
def test_print_shows_all_rules_a_signature_field_and_no_controls(shown):
    model = long_model()
    page = shown(model)
    page.type("nothing at all")
    page.ask("document.querySelector('#classes input').click()")
    page.show(800, media="print")
    assert len(page.ask(NUMBERS)) == len(rules(model)) > MAX_INITIAL_ROWS
    for hidden in ("#controls", "#more", "#none"):
        assert not page.ask(f"document.querySelector('{hidden}').checkVisibility()")
    assert page.ask("document.querySelector('.sign').checkVisibility()")
    style = page.ask("getComputedStyle(document.querySelector('#rules thead')).display")
    assert style == "table-header-group"
    page.show(800)
    assert not page.ask("document.querySelector('.sign').checkVisibility()")
    pdf = page.printed()
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) > 10
    need("pdftotext")
    command = ["pdftotext", "-layout", "-", "-"]
    text = subprocess.run(command, input=pdf, capture_output=True, check=True).stdout.decode()
    pages = text.removesuffix("\f").split("\f")
    assert all("support" in one and "coverage" in one for one in pages[:-1])


@pytest.mark.system
@pytest.mark.parametrize("width", [720, 800, 1280])
def test_chinese_headings_are_not_broken_between_characters(shown, width):
    page = shown(listing(forest_model(), language=load_language("zh")), width)
    lines = page.count_lines("th button, dt, h2")
    assert {"规则", "支持度"} <= {text.split()[0] for text in lines}
    assert set(lines.values()) == {1}, lines


@pytest.mark.system
def test_chinese_labels_on_a_phone_are_not_broken_between_characters(shown):
    page = shown(listing(forest_model(), language=load_language("zh")), 390)
    label = "getComputedStyle(document.querySelector('#rules tbody td'), '::before')"
    assert page.ask(f"{label}.content") == '"规则"'
    assert page.ask(f"{label}.wordBreak") == "keep-all"


@pytest.mark.system
def test_complete_list_is_readable_without_scripts(browser, shown):
    browser.scripts(run=False)
    try:
        page = shown(fruit_model())
        assert page.ask(NUMBERS) == [1, 2, 3]
        assert not page.ask("document.getElementById('controls').checkVisibility()")
        assert page.ask("document.querySelectorAll('#rules button').length") == 0
    finally:
        browser.scripts(run=True)


@pytest.mark.system
def test_the_page_is_in_the_requested_language(shown):
    page = shown(listing(fruit_model(), language=load_language("zh")))
    assert page.ask("document.documentElement.lang") == "zh"
    assert page.ask("document.title") == "ripe的规则"
    assert page.ask("document.getElementById('count').textContent") == "显示 3 条，共 3 条规则"
    english = shown(fruit_model()).ask("document.body.innerText")
    assert not re.search(r"page_|\{\w+\}", english)


@pytest.mark.system
def test_an_ordered_list_ends_with_otherwise(shown):
    listed = rules(fruit_model())
    end = listed.end.copy()
    end[-1] = end[-2]
    ordered = dataclasses.replace(listed, order="first", end=end)
    page = shown(Listing(ordered, training_measures(ordered)))
    assert page.ask(f"{SEEN}[2].cells[1].textContent") == "otherwise"
    text = page.ask("document.body.innerText")
    assert "The first rule that matches a row gives the prediction." in text


@pytest.mark.system
def test_the_page_names_title_model_and_text(shown):
    page = shown(listing(fruit_model(), title="Ripe <or> not", model_digest="ab" * 32))
    assert page.ask("document.querySelector('h1').textContent") == "Ripe <or> not"
    said = page.ask("document.querySelector('footer .facts').innerText")
    assert "ab" * 32 in said
    assert re.search(r"SHA-256 of the rules' text in English\s+[0-9a-f]{64}", said)


# ------------------------------------------------------------------ inert


@pytest.mark.system
@pytest.mark.parametrize("make", [marked_model, rules_page_hostile_model])
def test_hostile_names_do_not_become_elements_or_scripts(shown, make):
    model = make()
    page = shown(listing(model, title="<img src=x onerror=alert(1)>"))
    assert page.ask("document.querySelectorAll('script').length") == 2
    assert page.ask("document.querySelectorAll('img, iframe, a, object, link, form').length") == 0
    tags = set(page.ask("[...document.querySelectorAll('*')].map((one) => one.localName)"))
    plain = shown(random_model(3, mixed_schema(), n_trees=3, n_splits=4))
    same = set(plain.ask("[...document.querySelectorAll('*')].map((one) => one.localName)"))
    assert tags - {"em"} <= same
    assert page.ask("document.styleSheets.length") == 1


@pytest.mark.system
def test_names_are_quoted_as_in_the_text_form(shown):
    page = shown(marked_model())
    said = page.ask("document.querySelector('#classes').textContent")
    for label in (MARKUP[2], '"`code` ``more``"', '"ends with \\\\"', '"\\u202egnirts 🐧 汽车"'):
        assert label in said


@pytest.mark.system
def test_content_security_policy_blocks_everything_it_does_not_allow(browser, shown, tmp_path):
    page = shown(fruit_model())
    for attempt in (
        "fetch('https://example.org/').then(() => 'sent', () => 'refused')",
        "new Promise((done) => { const image = new Image(); image.onload = () => done('sent');"
        " image.onerror = () => done('refused'); image.src = 'https://example.org/x.png'; })",
        "(() => { const one = document.createElement('script'); one.textContent = 'window.ran = 1';"
        " document.body.append(one); return window.ran ? 'sent' : 'refused' })()",
    ):
        assert page.ask(attempt) == "refused"
    assert len(page.complaints) >= 3
    assert all("Content Security Policy" in said for said in page.complaints)
    page.complaints.clear()
    page.requests[1:] = []  # what was refused
