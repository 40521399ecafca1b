"""The page of rules in a real browser: it sorts, searches, prints, and asks for nothing."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from tests.reference.browser import Browser
from tests.reference.models import chain, mixed_schema, random_model
from tests.runtimes import need
from tests.test_hostile_names import HOSTILE
from tests.test_rules_forms import MARKUP, fruit_model, listing, marked_model, numbers_model
from treekit.data.schema import Column, Schema
from treekit.documents import Listing, written
from treekit.documents.html import SHOWN
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import make_model
from treekit.rules import rules
from treekit.rules.language import language
from treekit.rules.measure import training_measures

pytestmark = pytest.mark.system

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
        path.write_text("".join(written("html", one)), encoding="utf-8")
        browser.show(width, **options)
        browser.open(path)
        return browser

    yield show
    assert browser.requests == [path.as_uri()]
    assert browser.complaints == []


def forest_model():
    return random_model(3, mixed_schema(), n_trees=4, n_splits=12)


def hostile_model():
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
    return chain(SHOWN + 40, mixed_schema())


def column(heading):
    """An expression for the number of a column."""
    return (
        "[...document.querySelectorAll('#rules thead th')]"
        f".findIndex((head) => head.textContent === '{heading}')"
    )


def head(heading):
    return f"document.querySelectorAll('#rules thead th')[{column(heading)}]"


# ------------------------------------------------------------------ sort, search, filter


def test_a_click_on_a_heading_sorts_by_what_the_column_holds_exactly(shown):
    listed = rules(forest_model())
    count = len(listed)
    measures = training_measures(listed)
    measures.lift[[2, 5]] = np.nan  # stands last in either order
    page = shown(Listing(listed, measures))
    assert page.ask(NUMBERS) == list(range(1, count + 1))
    for heading, values in (
        ("support", measures.weight),
        ("lift", measures.lift[:, 0]),
        ("confidence", measures.confidence[:, 0]),
    ):
        last = np.isnan(values)
        for way, keys in (("ascending", values), ("descending", -values)):
            page.ask(f"{head(heading)}.querySelector('button').click()")
            assert page.ask(f"{head(heading)}.getAttribute('aria-sort')") == way
            wanted = np.lexsort((np.arange(count), np.where(last, 0, keys), last)) + 1
            assert page.ask(NUMBERS) == wanted.tolist()
        assert page.ask("document.querySelectorAll('[aria-sort=none]').length") == 7


def test_keys_alone_sort_and_search(shown):
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


def test_search_finds_rules_in_which_all_words_stand(shown):
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


def test_classes_and_trees_filter_together(shown):
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


def test_a_long_list_is_shown_in_parts_and_searched_as_a_whole(shown):
    model = long_model()
    count = len(rules(model))
    page = shown(model)
    assert len(page.ask(NUMBERS)) == SHOWN < count
    page.ask("document.getElementById('more').click()")
    assert len(page.ask(NUMBERS)) == count
    page.ask(f"{head('rule')}.querySelector('button').click()")
    assert page.ask(NUMBERS) == list(range(count, count - SHOWN, -1))
    said = page.ask("document.getElementById('count').textContent")
    assert said == f"{SHOWN} of {count} rules"


# ------------------------------------------------------------------ looks


def test_bars_are_as_long_as_the_parts_that_they_stand_for(shown):
    model = fruit_model()
    measures = training_measures(rules(model))
    page = shown(model)
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


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("make", [fruit_model, marked_model, hostile_model, numbers_model])
def test_nothing_is_wider_than_the_screen(shown, make, width):
    page = shown(make(), width)
    assert page.ask("document.documentElement.scrollWidth") == width
    beyond = "[...document.querySelectorAll('main *')].filter((one) => one.checkVisibility() && "
    beyond += f"one.getBoundingClientRect().right > {width} && !one.closest('.wide'))"
    assert page.ask(f"{beyond}.map((one) => one.outerHTML.slice(0, 200))") == []


def test_on_a_phone_each_cell_carries_the_heading_of_its_column(shown):
    page = shown(fruit_model(), 390)
    labels = page.ask(
        f"[...{SEEN}[0].cells].map((cell) => getComputedStyle(cell, '::before').content)"
    )
    heads = page.ask("[...document.querySelectorAll('#rules thead th')].map((h) => h.textContent)")
    assert labels == [f'"{heading}"' for heading in heads]
    tops = page.ask(f"[...{SEEN}[0].cells].map((cell) => cell.getBoundingClientRect().top)")
    assert tops == sorted(set(tops))


def test_numbers_stand_below_their_headings(shown):
    page = shown(numbers_model())
    ends = page.ask(
        f"[{head('then')}, {SEEN}[0].cells[{column('then')}]].map((cell) => {{"
        " const text = document.createRange(); text.selectNodeContents(cell);"
        " return text.getBoundingClientRect().right; })"
    )
    assert abs(ends[0] - ends[1]) < 2


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground(shown, dark):
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


def test_print_shows_all_rules_a_place_to_sign_and_no_controls(shown):
    model = long_model()
    page = shown(model)
    page.type("nothing at all")
    page.ask("document.querySelector('#classes input').click()")
    page.show(800, media="print")
    assert len(page.ask(NUMBERS)) == len(rules(model)) > SHOWN
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


def test_without_scripts_the_whole_list_can_be_read(browser, shown):
    browser.scripts(run=False)
    try:
        page = shown(fruit_model())
        assert page.ask(NUMBERS) == [1, 2, 3]
        assert not page.ask("document.getElementById('controls').checkVisibility()")
        assert page.ask("document.querySelectorAll('#rules button').length") == 0
    finally:
        browser.scripts(run=True)


def test_the_page_speaks_the_language_that_is_asked_for(shown):
    page = shown(listing(fruit_model(), language=language("zh")))
    assert page.ask("document.documentElement.lang") == "zh"
    assert page.ask("document.title") == "ripe的规则"
    assert page.ask("document.getElementById('count').textContent") == "显示 3 条，共 3 条规则"
    english = shown(fruit_model()).ask("document.body.innerText")
    assert not re.search(r"page_|\{\w+\}", english)


def test_an_ordered_list_says_otherwise_at_its_end(shown):
    listed = rules(fruit_model())
    end = listed.end.copy()
    end[-1] = end[-2]
    ordered = dataclasses.replace(listed, order="first", end=end)
    page = shown(Listing(ordered, training_measures(ordered)))
    assert page.ask(f"{SEEN}[2].cells[1].textContent") == "otherwise"
    assert "The first rule that fits a row answers." in page.ask("document.body.innerText")


def test_the_page_names_title_model_and_text(shown):
    page = shown(listing(fruit_model(), title="Ripe <or> not", model_digest="ab" * 32))
    assert page.ask("document.querySelector('h1').textContent") == "Ripe <or> not"
    said = page.ask("document.querySelector('.facts').innerText")
    assert "ab" * 32 in said
    assert re.search(r"SHA-256 of the rules' text in English\s+[0-9a-f]{64}", said)


# ------------------------------------------------------------------ inert


@pytest.mark.parametrize("make", [marked_model, hostile_model])
def test_no_name_becomes_an_element_or_a_script(shown, make):
    model = make()
    page = shown(listing(model, title="<img src=x onerror=alert(1)>"))
    assert page.ask("document.querySelectorAll('script').length") == 2
    assert page.ask("document.querySelectorAll('img, iframe, a, object, link, form').length") == 0
    tags = set(page.ask("[...document.querySelectorAll('*')].map((one) => one.localName)"))
    plain = shown(random_model(3, mixed_schema(), n_trees=3, n_splits=4))
    same = set(plain.ask("[...document.querySelectorAll('*')].map((one) => one.localName)"))
    assert tags - {"em"} <= same
    assert page.ask("document.styleSheets.length") == 1


def test_names_are_seen_as_the_text_form_quotes_them(shown):
    page = shown(marked_model())
    said = page.ask("document.querySelector('#classes').textContent")
    for label in (MARKUP[2], '"`code` ``more``"', '"ends with \\\\"', '"\\u202egnirts 🐧 汽车"'):
        assert label in said


def test_the_policy_of_the_page_stops_what_it_does_not_name(browser, shown, tmp_path):
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
