"""The page at `/` in a browser: predictions, explanations, comparison, escaping of names."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote, urlencode

import httpx
import numpy as np
import pytest
import uvicorn

from tests.export.test_all_targets import HOSTILE
from tests.reference.browser import Browser
from tests.runtimes import need
from treekit import registry
from treekit.data.schema import Column, Output, Schema
from treekit.export.literals import list_shipped_folders
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import make_model
from treekit.rules.language import load_language
from treekit.serve.http.app import make_app
from treekit.serve.http.page import PAGE_POLICY, _encode_phrases, list_page_paths
from treekit.serve.models.repository import Repository
from treekit.serve.scheduling import Service

FOLDER = list_shipped_folders()[0] / "serve"
NAMES = [
    name[:300]
    for name in dict.fromkeys((*HOSTILE, "<img src=/x onerror=alert(1)>"))
    if name.strip()
]
EVIL = "<img src=x onerror=alert(1)>\u202e\"'&amp;{lang}"
TOWNS = tuple(f"town {k:02d}" for k in range(40))

MELON = Schema(
    (
        Column("density"),
        Column("colour", "nominal", ("green", "black", "white")),
        Column("town", "nominal", TOWNS),
        Column("sugar"),
    ),
    target="good",
    classes=("no", "yes"),
)


def melon(at=0.375, **policies):
    low = subset("colour", ["green", "black"], leaf([8, 1]), leaf([1, 3]))
    high = threshold(
        "sugar", -1.5, leaf([2, 2]), subset("town", TOWNS[:9], leaf([0, 9]), leaf([1, 4]))
    )
    return make_model(MELON, [build_tree(threshold("density", at, low, high), MELON)], **policies)


def forest():
    trees = [
        threshold(
            "density", at, leaf([6, 2]), threshold("sugar", at + 1, leaf([1, 2]), leaf([0, 5]))
        )
        for at in (0.25, 0.375, 0.5, 0.75, 0.875)
    ]
    return make_model(MELON, [build_tree(tree, MELON) for tree in trees])


def wide():
    """A complete tree of 16 leaves, whose picture is wider than the page."""
    nodes = [leaf([16 - k, k]) for k in range(16)]
    while len(nodes) > 1:
        step = 1 / len(nodes)
        nodes = [
            threshold("density", (k + 1) * step, *nodes[k : k + 2]) for k in range(0, len(nodes), 2)
        ]
    return make_model(MELON, [build_tree(nodes[0], MELON)])


def price():
    schema = Schema((Column("rooms"), Column("floor")), target="price", task="regression")
    first = float(np.float32(2.7))
    roots = [threshold("rooms", first, leaf([1 / 3 + k]), leaf([1e6 / 7])) for k in range(3)]
    return make_model(schema, [build_tree(root, schema) for root in roots])


def hostile():
    names = (*NAMES, "n" * 10_000)
    columns = (*map(Column, names), Column("levels", "nominal", names))
    outputs = (Output("second " + NAMES[0], names),)
    schema = Schema(columns, target=NAMES[1], classes=names, more=outputs)
    ones = [leaf(np.tile(weights, 2).tolist()) for weights in np.eye(len(names))]
    root = ones[-1]
    for k in range(len(names) - 1, -1, -1):
        root = threshold(k, 0.5, subset("levels", names[k : k + 2], ones[k], root), ones[k])
    return make_model(schema, [build_tree(root, schema)])


class ScriptedResponses:
    """An application that answers some paths otherwise, and remembers who asked for what."""

    def __init__(self, app):
        self.app, self.answers, self.asked, self.token = app, {}, [], None

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            brought = dict(scope["headers"]).get(b"authorization")
            self.asked.append((scope["path"], brought))
            if self.token and scope["path"] not in list_page_paths() and brought != self.token:
                return await self.say(send, 401, {"error": "this server asks for a token"}, [])
            if scope["path"] in self.answers:
                return await self.say(send, *self.answers[scope["path"]])
        return await self.app(scope, receive, send)

    @staticmethod
    async def say(send, status, body, headers):
        headers = [(b"content-type", b"application/json"), *headers]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})


@contextlib.contextmanager
def listening(app):
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    end = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(20)
    listener.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    models = {"melon": melon(), "forest": forest(), "price": price(), EVIL: hostile()}
    models["wide"] = wide()
    models["strict"] = melon(missing="error", unknown="error")
    models["double"] = melon()
    for name, model in models.items():
        model.save(folder / f"{name}.treekit")
    repository = Repository([folder])
    repository.refresh()
    service = Service(repository)
    scripted = ScriptedResponses(make_app(service))
    with listening(scripted) as address:
        yield SimpleNamespace(
            address=address, scripted=scripted, repository=repository, folder=folder, models=models
        )
    service.runner.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    need("chromium")
    made = Browser(tmp_path_factory.mktemp("browser"), online=True)
    yield made
    made.close()


class Page:
    """What a person does on the page."""

    def __init__(self, browser, served):
        self.browser, self.served = browser, served
        self.ask, self.wait, self.press = browser.ask, browser.wait, browser.press

    def open(self, model, width=1280, dark=False, wait=True, **parts):
        self.browser.show(width, 900, dark=dark)
        self.browser.open(
            f"{self.served.address}/#{urlencode({'model': model, 'lang': 'en'} | parts)}"
        )
        if wait:
            self.settle()
        return self

    def settle(self, *, to_the_end=False):
        """Wait for the answer and its reasons; the search for changes comes after them."""
        but = "" if to_the_end else ":not(#change-part)"
        self.wait(
            f"document.querySelector('#answer .is') && !document.querySelector('[aria-busy]{but}')"
        )
        return self

    def text(self, selector):
        return self.ask(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''").strip()

    def texts(self, selector):
        return self.ask(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((n) => n.innerText)"
        )

    def seen(self, selector):
        return self.ask(f"document.querySelector({json.dumps(selector)}).checkVisibility()")

    def click(self, selector):
        self.ask(f"document.querySelector({json.dumps(selector)}).click()")

    def fill(self, at, text):
        """Write into a field, and wait for the answer that follows of itself."""
        self.ask(f"document.getElementById('field-{at}').select()")
        self.browser.type(text) if text else self.press("Backspace")
        self.answered()

    def choose(self, at, value):
        field = f"document.getElementById('field-{at}')"
        self.ask(f"{field}.value = '{value}', {field}.dispatchEvent(new Event('change'))")
        self.answered()

    def answered(self):
        time.sleep(0.3)  # longer than the page waits for who types
        self.settle()

    def shares(self):
        cells = "document.querySelectorAll('#answer .shares td.n:not(.delta)')"
        return self.ask(f"[...{cells}].map((cell) => Number(cell.title))")


@pytest.fixture
def page(browser, served):
    made = Page(browser, served)
    yield made
    served.scripted.answers.clear()
    served.scripted.token = None
    browser.online(True)
    others = [one for one in browser.requests if not one.startswith((served.address, "data:"))]
    assert others == [], "the page asked somebody else"
    assert browser.complaints == []


@pytest.fixture
def faulty(page, browser):
    """A page that is to see errors: the console names each of them."""
    yield page
    assert all("Failed to load resource" in complaint for complaint in browser.complaints)
    browser.complaints.clear()


def shares_of(model, **row):
    return model.predict_proba([row])[0].tolist()


ROW = {"density": 0.4, "colour": "green", "town": "town 00", "sugar": -1.5}


# ---------------------------------------------------------------- files, headers, words


def test_content_security_policy_allows_only_files_of_the_page(served):
    rules = dict(rule.strip().split(" ", 1) for rule in PAGE_POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert {rules[f"{kind}-src"] for kind in ("script", "style", "img", "connect")} == {"'self'"}
    assert {rules[k] for k in ("base-uri", "form-action", "frame-ancestors")} == {"'none'"}
    assert "unsafe" not in PAGE_POLICY
    assert {"/", "/page.css", "/page.js", "/page/words.json"} <= list_page_paths()
    for path in list_page_paths():
        reply = httpx.get(served.address + path)
        assert reply.status_code == 200
        assert reply.headers["content-security-policy"] == PAGE_POLICY
        assert reply.headers["x-content-type-options"] == "nosniff"
        again = httpx.get(served.address + path, headers={"If-None-Match": reply.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_page_files_contain_no_inline_code_and_no_external_urls():
    html = (FOLDER / "page.html").read_text()
    assert not re.search(r"\sstyle=|\son\w+=|<style|<script(?![^>]*\bsrc=)", html)
    for file in FOLDER.rglob("*.*"):
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", text), file
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text), (
            file
        )


def test_every_phrase_of_the_page_exists_in_both_languages_and_is_used():
    source = "".join(file.read_text() for file in FOLDER.rglob("*.*"))
    used = set(re.findall(r"\"((?:serve|explain|if)_[a-z_]+)\"", source))
    used |= {f"serve_{kind}_{policy}" for kind in ("missing", "unknown") for policy in ("error",)}
    used |= {"serve_missing_direction", "serve_missing_fractional", "serve_missing_surrogate"}
    used |= {"serve_unknown_missing"}
    english, chinese = load_language("en").phrases, load_language("zh").phrases
    assert used <= set(english)
    own = {key for key in english if key.startswith("serve_")}
    assert own == used - {key for key in used if not key.startswith("serve_")}
    assert all(chinese[key] != english[key] for key in own - {"serve_move", "serve_votes_of"})


# ---------------------------------------------------------------- pictures


def picture(served, name="melon", **query):
    return httpx.get(f"{served.address}/models/{quote(name)}/tree.svg", params=query)


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ({"tree": "0"}, 400, "Expected `int` >= 1 - at `$.tree`, got '0'"),
        ({"tree": "2"}, 400, "'tree' must be 1 to 1, got 2"),
        ({"tree": "²"}, 400, "Expected `int`, got `str` - at `$.tree`, got '²'"),
        ({"tree": ["1", "1"]}, 400, "duplicate name 'tree'"),
        ({"trees": "1"}, 400, "did you mean 'tree'?"),
        ({f"p{k}": "" for k in range(30)}, 400, "cannot be read"),
        ({"path": "-1"}, 400, "Expected `int` >= 0 - at `$[0]`, got '-1'"),
        ({"path": ",".join(["1"] * 501)}, 400, "at most 500"),
        ({"view": "<b>"}, 400, "Invalid enum value '<b>' - at `$.view`"),
        ({"lang": "../en"}, 400, "Invalid enum value '../en' - at `$.lang`"),
        ({"version": "1"}, 404, "has no version '1'"),
    ],
)
def test_invalid_picture_request_is_refused_with_the_reason(served, query, status, said):
    reply = picture(served, **query)
    assert (reply.status_code, said in reply.json()["error"]) == (status, True), reply.text


@pytest.mark.usefixtures("without_plugins")
def test_without_the_plot_plugin_the_page_names_it_and_requests_no_picture(served):
    reply = picture(served)
    assert reply.status_code == 404
    assert "run pip install treekit-plot" in reply.json()["error"]
    assert json.loads(_encode_phrases())["pictures"] is False


# ---------------------------------------------------------------- a row and its answer


@pytest.mark.system
def test_the_form_is_made_from_the_schema_and_filled_in(page):
    page.open("melon")
    assert page.texts(".field-head label:first-child") == ["density", "colour", "town", "sugar"]
    kinds = page.ask(
        "[...document.querySelectorAll('.field > [id^=field]')].map((n) => n.localName)"
    )
    assert kinds[:2] == ["input", "p"]  # a hint has an identifier, too
    assert page.ask("document.getElementById('field-0').inputMode") == "decimal"
    assert page.ask("document.getElementById('field-3').inputMode") == "text", "of minus signs"
    assert page.texts("#field-1 option") == [
        "green",
        "black",
        "white",
        "missing",
        "another value …",
    ]
    assert page.ask("document.getElementById('field-2').list.options.length") == len(TOWNS)
    row = {"density": 0.375, "colour": "green", "town": "town 00", "sugar": -1.5}
    assert page.shares() == shares_of(page.served.models["melon"], **row)
    assert "4" in page.text("#facts")
    assert page.text("#facts").count("no, yes") == 1
    assert "a made-up example, not a real row" in page.text(".ask")
    assert not page.seen("#loading")


@pytest.mark.system
def test_predictions_update_while_typing_and_equal_the_model(page):
    page.open("melon")
    for text, number in ((" 3.8e-1 ", 0.38), ("-.5", -0.5), ("-1e999", -np.inf), ("+7", 7.0)):
        page.fill(0, text)
        assert page.shares() == shares_of(page.served.models["melon"], **ROW | {"density": number})
    page.choose(1, "missing")
    assert page.shares() == shares_of(
        page.served.models["melon"], **ROW | {"density": 7.0, "colour": None}
    )


@pytest.mark.system
def test_missing_value_can_be_chosen_or_left_empty(page):
    page.open("melon", row=json.dumps({"density": "9"}))
    expected = shares_of(page.served.models["melon"], **ROW | {"density": None})
    page.click("#field-0-gone")
    page.answered()
    assert page.shares() == expected
    page.click("#field-0-gone")
    page.answered()
    assert page.ask("document.getElementById('field-0').value") == "9"
    page.fill(0, "")
    assert page.ask("document.getElementById('field-0-gone').checked")
    assert page.shares() == expected


@pytest.mark.system
def test_unseen_categories_are_accepted_if_the_model_accepts_them(page):
    page.open("melon", row=json.dumps({"density": "0.1"}))
    page.choose(1, "other")
    page.ask("document.querySelector('.other').focus()")
    page.browser.type("violet")
    page.answered()
    melons = page.served.models["melon"]
    assert page.shares() == shares_of(melons, **ROW | {"density": 0.1, "colour": "violet"})
    assert page.text("#rule").startswith('colour is "violet", a category not seen in training')
    page.open("strict")
    assert page.texts("#field-1 option") == ["green", "black", "white"]
    assert page.ask("document.querySelector('.gone') === null")
    page.ask("document.getElementById('field-2').select()")
    page.browser.type("nowhere")
    page.wait("document.getElementById('field-2').ariaInvalid === 'true'")
    assert "rejects categories" in page.text("#field-2-fault")


@pytest.mark.system
def test_an_invalid_number_is_reported_at_its_field_and_not_sent(page):
    page.open("melon").settle(to_the_end=True)
    before = len(page.served.scripted.asked)
    page.ask("document.getElementById('field-0').select()")
    page.browser.type("1,5")
    page.press("Enter", "\r")
    page.wait("document.activeElement.ariaInvalid === 'true'")
    assert page.text("#field-0-fault") == "This is not a number; write, for example, 12.5 or 1e-3."
    assert "an earlier row: correct the marked field" in page.text("#stale")
    dimmed = "getComputedStyle(document.getElementById('answer')).opacity"
    assert page.ask(dimmed) == "0.4"
    assert len(page.served.scripted.asked) == before
    page.ask("document.getElementById('field-0').select()")
    page.browser.type("1.5")
    page.wait("document.getElementById('stale').hidden")
    assert page.ask(dimmed) == "1"


# ---------------------------------------------------------------- reasons


@pytest.mark.system
def test_page_shows_rule_and_decision_path_of_the_row(page):
    page.open("melon", row=json.dumps({"density": "0.5", "sugar": "2"}))
    assert page.texts("#rule .clauses li") == [
        "density > 0.375, or is missing",
        "sugar > -1.5, or is missing",
        "town is " + ", ".join(f'"{town}"' for town in TOWNS[:8]) + f' or "{TOWNS[8]}"',
    ]
    explained = page.served.models["melon"].explain(ROW | {"density": 0.5, "sugar": 2.0}, changes=0)
    steps = page.texts("#steps .step bdi:first-child")
    assert [step.split(" ")[0] for step in steps] == ["density", "sugar", "town"]
    assert len(steps) == len(explained.path)
    assert "then good is yes" in page.text("#rule .then")
    assert page.texts("#adds td.n")[-1] == f"{explained.says[0].shares[1][1]:.4f}"


@pytest.mark.system
def test_shown_contributions_sum_to_the_shown_total(page):
    page.open("forest", row=json.dumps({"density": "0.6", "sugar": "3"}))
    figures = [float(text.replace("−", "-")) for text in page.texts("#adds td.n")]
    assert sum(figures[:-1]) == pytest.approx(figures[-1], abs=1e-9)
    ask = "document.getElementById('adds-class')"
    label = page.ask(f"{ask}.selectedOptions[0].textContent")
    assert label == page.text("#answer .is")
    page.ask(
        f"{ask}.value = String(1 - Number({ask}.value)), {ask}.dispatchEvent(new Event('change'))"
    )
    other = float(page.texts("#adds td.n")[-1])
    assert other == pytest.approx(1 - figures[-1], abs=1e-4)


@pytest.mark.system
def test_page_shows_votes_and_decision_path_of_any_tree_of_a_forest(page):
    page.open("forest", row=json.dumps({"density": "0.6", "sugar": "9"}))
    assert page.texts("#votes td.n") == ["3 of 5", "2 of 5"]
    page.ask(
        "(() => { const tree = document.getElementById('tree'); tree.value = 5;"
        " tree.dispatchEvent(new Event('input')); })()"
    )
    page.answered()
    assert page.texts("#rule .clauses li") == ["density <= 0.875"]
    assert page.text("#rule-title") == "Matching rule of tree 5"
    page.wait("location.hash.includes('tree=5')")


@pytest.mark.system
def test_page_shows_the_exact_predicted_number(page):
    page.open("price", row=json.dumps({"rooms": "3"}))
    value = float(page.served.models["price"].predict([{"rooms": 3.0, "floor": 0.0}])[0])
    assert float(page.text("#answer .is")) == value
    assert page.text("#field-0-hint") == "threshold at 2.7", "shortest text of the float32"
    assert not page.seen("#change-part")
    page.fill(0, "1")
    assert float(page.text("#answer .is")) == pytest.approx(4 / 3)


@pytest.mark.system
def test_pinned_prediction_is_compared_with_later_ones(page):
    page.open("melon", row=json.dumps({"density": "0.1"}))
    page.click("#pin")
    kept = page.shares()
    assert "is kept" in page.text("#compared")
    page.fill(0, "2.5")
    after = page.shares()
    assert page.texts("#compared li") == ["density: 0.1 → 2.5"]
    assert page.ask("document.querySelector('.field').classList.contains('changed')")
    told = [float(text.replace("−", "-")) for text in page.texts("#answer .delta")]
    assert told == pytest.approx([b - a for a, b in zip(kept, after, strict=True)], abs=1e-4)
    page.click("#back")
    page.answered()
    assert page.shares() == kept
    assert page.ask("document.getElementById('field-0').value") == "0.1"
    page.click("#unpin")
    assert not page.seen("#compared")
    assert page.texts("#answer .delta") == []


# ---------------------------------------------------------------- rules


@pytest.mark.system
def test_rules_are_searched_and_paged(page):
    page.open("forest")
    page.wait("document.querySelectorAll('#rules > li').length === 10")
    assert page.text("#rules-count") == "1 to 10 of 15 rules"
    page.click("#rules-after")
    page.wait("document.querySelectorAll('#rules > li').length === 5")
    assert page.ask("document.getElementById('rules-after').disabled")
    page.ask("document.getElementById('rules-search').focus()")
    page.browser.type("0.875")
    page.wait("document.getElementById('rules-count').textContent.includes('found')")
    assert all("0.875" in text for text in page.texts("#rules .clauses"))
    page.ask("document.getElementById('rules-search').select()")
    page.browser.type("nothing of the kind")
    page.wait("document.getElementById('rules-count').textContent === 'No rule matches.'")
    assert page.texts("#rules > li") == []


# ---------------------------------------------------------------- languages, links, keys


@pytest.mark.system
def test_language_is_changed_without_reload_and_remembered(page):
    page.open("melon", row=json.dumps({"density": "0.25"}))
    before = page.shares()
    page.click("#languages button:nth-child(2)")
    page.answered()
    assert page.ask("document.documentElement.lang") == "zh-Hans"
    assert page.text("#predict") == "预测"
    assert page.texts("#field-1 option")[-2:] == ["缺失", "其他值 …"]
    assert page.ask("document.getElementById('field-0').value") == "0.25"
    assert page.shares() == before
    assert "概率" in page.text("#said")
    page.wait("location.hash.includes('lang=zh')")
    page.browser.open(f"{page.served.address}/#model=melon")
    page.settle()
    assert page.text("#predict") == "预测", "it was chosen before"
    page.click("#languages button:nth-child(1)")
    page.answered()


@pytest.mark.system
def test_url_restores_the_model_and_the_row(page):
    row = {"density": None, "colour": "violet", "sugar": "1e1", "__proto__": "x", "nobody": "1"}
    page.open("melon", row=json.dumps(row))
    assert page.ask("document.getElementById('field-0-gone').checked")
    assert page.ask("document.querySelector('.other').value") == "violet"
    assert page.ask("document.getElementById('field-3').value") == "1e1"
    page.fill(3, "12.5")
    page.wait("location.hash.includes('12.5')")
    shares, address = page.shares(), page.ask("location.href")
    page.browser.open(address)
    page.settle()
    assert page.shares() == shares
    page.ask("location.hash = '#model=price'")
    page.wait("document.title.startsWith('price')")
    page.settle()
    page.wait("location.hash.includes('row=')")  # the page has finished with this entry
    page.ask("history.back()")
    page.wait("document.title.startsWith('melon')")
    page.settle()


@pytest.mark.system
def test_an_unknown_address_lists_the_existing_ones(page):
    page.open("no<b>body", wait=False, row="{")
    page.wait("!document.getElementById('empty').hidden")
    assert "Model no<b>body not found" in page.text("#empty")
    page.click("#model-list a")
    page.settle()


@pytest.mark.system
def test_every_control_is_reached_and_left_by_keyboard(page):
    page.open("melon").settle(to_the_end=True)
    focused, rings = [], []
    for _ in range(60):
        page.press("Tab")
        if page.ask("document.activeElement === document.body"):
            break
        focused.append(page.ask("document.activeElement.id || document.activeElement.textContent"))
        rings.append(page.ask("getComputedStyle(document.activeElement).outlineStyle"))
    else:
        pytest.fail("the keyboard does not get out of the page")
    assert focused[0] == "skip"
    assert set(rings) == {"solid"}
    controls = page.ask(
        "[...document.querySelectorAll('main :is(input, select, button, summary)')]"
        ".filter((node) => node.checkVisibility() && !node.disabled)"
        ".map((node) => node.id || node.textContent)"
    )
    assert len(controls) >= 13  # one more with treekit-plot: what to draw
    assert [name for name in controls if name not in focused] == []
    assert ("picture" in focused) == ("svg" in registry.list("document")), "it scrolls"


@pytest.mark.system
def test_predictions_work_by_keyboard_alone(page):
    page.open("melon")
    page.press("Tab")
    page.press("Enter", "\r")
    assert page.ask("document.activeElement.id") == "main"
    while page.ask("document.activeElement.id") != "field-0":
        page.press("Tab")
    page.ask("document.activeElement.select()")
    page.browser.type("0.1")
    page.press("Enter", "\r")
    page.settle()
    assert page.ask("document.activeElement.id") == "field-0"
    assert page.shares() == shares_of(page.served.models["melon"], **ROW | {"density": 0.1})


@pytest.mark.system
def test_every_input_has_a_label_and_predictions_are_announced(page):
    page.open("forest")
    unnamed = page.ask(
        "[...document.querySelectorAll('input, select')].filter((node) => !node.ariaLabel &&"
        " ![...node.labels].some((label) => label.textContent.trim())).map((node) => node.id)"
    )
    assert unnamed == []
    assert page.ask("document.getElementById('said').ariaLive") == "polite"
    assert page.text("#said").startswith("good is ")
    twice = page.ask("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(twice) == len(set(twice))


# ---------------------------------------------------------------- hostile names, small screens


@pytest.mark.system
def test_hostile_names_are_shown_as_text(page):
    page.open(EVIL)
    assert (
        page.ask("document.querySelectorAll('img, iframe, object, main b, main script').length")
        == 0
    )
    assert "\\u202e" in page.text("#name")
    shown = "\n".join(page.texts("main, nav"))
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x7f]", shown)
    assert (
        page.ask(
            "Math.max(...[...document.querySelectorAll('.name')].map((n) => n.textContent.length))"
        )
        < 200
    )
    page.click("#schema summary")
    page.fill(0, "7")
    assert page.ask("document.querySelectorAll('img').length") == 0
    page.click("#languages button:nth-child(2)")
    page.answered()
    page.click("#languages button:nth-child(1)")
    page.answered()


@pytest.mark.system
def test_trusted_types_block_assigning_text_as_html(page):
    page.open("melon")
    refused = page.ask(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; return ''; }"
        " catch (e) { return e.name; } })()"
    )
    assert refused == "TypeError"
    assert page.browser.complaints.pop().startswith("This document requires 'TrustedHTML'")


@pytest.mark.system
@pytest.mark.parametrize("name", ["melon", "forest", "price", EVIL])
def test_page_fits_a_phone_without_horizontal_scrolling(page, name):
    for dark, lang in ((False, "en"), (True, "zh")):
        page.open(name, width=375, dark=dark, lang=lang)
        page.click("#schema summary")
        page.click("#pin")
        assert page.ask("document.documentElement.scrollWidth") == 375
        outside = page.ask(
            "[...document.querySelectorAll('body *')].filter((node) => node.checkVisibility() &&"
            " !node.closest('.picture, .wide, .unseen, .skip') &&"
            " node.getBoundingClientRect().right > 375.5).map((node) => node.outerHTML)"
        )
        assert outside == []
    assert page.ask("getComputedStyle(document.body).color") == "rgb(229, 232, 234)", "dark"


PICTURE = """
(() => {
  const place = document.getElementById('picture'), svg = place.querySelector('svg');
  const inside = (node) => node.getBoundingClientRect();
  return {
    background: getComputedStyle(place).backgroundColor.match(/[0-9]+/g).map(Number),
    white: [svg, svg.querySelector('g > rect[stroke-width="3"]')].map(inside)
      .map((box) => [box.x + scrollX + 6, box.y + scrollY + 6]),
    ink: [svg.querySelector('g > rect[stroke-width="3"]')].map(inside)
      .map((box) => [box.x + scrollX, box.y + scrollY + box.height / 2])[0],
    drawn: svg.viewBox.baseVal.width, width: svg.getBoundingClientRect().width,
    room: place.clientWidth,
    hidden: [place.scrollWidth - place.clientWidth, place.scrollHeight - place.clientHeight],
  };
})()
"""


@pytest.mark.system
@pytest.mark.parametrize("dark", [False, True])
def test_picture_has_the_background_of_the_page(page, dark):
    pytest.importorskip("treekit_plot")
    page.open("wide", width=1400, dark=dark)
    page.wait("document.querySelector('#picture svg') !== null")
    found = page.ask(PICTURE)
    assert len(found["white"]) == 2
    for x, y in found["white"]:
        assert page.browser.colour(x, y) == tuple(found["background"])
    ink = page.browser.colour(*found["ink"])
    assert min(ink) > 160 if dark else max(ink) < 90


@pytest.mark.system
def test_picture_fits_or_scrolls_horizontally_if_too_small(page):
    pytest.importorskip("treekit_plot")
    for width, view in ((1400, "auto"), (390, "auto"), (390, "way")):
        page.open("wide", width=width)
        select = "document.getElementById('view')"
        page.ask(f"{select}.value = '{view}', {select}.dispatchEvent(new Event('change'))")
        time.sleep(0.5)
        found = page.ask(PICTURE)
        assert found["hidden"][1] == 0, "nothing is cut below"
        least = 0.7 * found["drawn"]
        wanted = min(found["drawn"], max(least, found["room"]))
        assert found["width"] == pytest.approx(wanted, abs=1)
        assert (found["hidden"][0] > 0) == (least > found["room"])
        assert page.ask("document.documentElement.scrollWidth") == width
        assert (width, view) != (1400, "auto") or found["drawn"] > found["room"], "it is reduced"


@pytest.mark.system
def test_print_hides_screen_controls(page):
    page.open("melon")
    page.browser.show(1280, 900, media="print")
    assert [
        one for one in ("#predict", "#pin", ".top", "#models", "#rules-form") if page.seen(one)
    ] == []
    assert page.seen("#answer .is")
    page.browser.show(1280, 900)


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.system
def test_an_unreachable_server_is_reported_and_retried(faulty):
    faulty.open("melon")
    faulty.browser.online(False)
    faulty.ask("document.getElementById('field-0').select()")
    faulty.browser.type("0.1")
    faulty.wait("!document.getElementById('trouble').hidden")
    assert "does not respond" in faulty.text("#trouble")
    assert "the server did not answer" in faulty.text("#stale")
    faulty.browser.online(True)
    faulty.click("#trouble button")
    faulty.settle()
    assert not faulty.seen("#trouble")
    assert not faulty.seen("#stale")
    assert faulty.shares() == shares_of(faulty.served.models["melon"], **ROW | {"density": 0.1})


@pytest.mark.system
@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [(429, [(b"retry-after", b"7")], "again in 7 s"), (503, [], "again in a moment")],
)
def test_busy_server_is_reported_with_a_retry_button(faulty, status, headers, said):
    answers = faulty.served.scripted.answers
    answers["/predict"] = (status, {"error": "256 requests are in the works"}, headers)
    faulty.open("melon", wait=False)
    faulty.wait("!document.getElementById('trouble').hidden")
    assert said in faulty.text("#trouble")
    assert "256 requests" in faulty.text("#trouble")
    answers.clear()
    faulty.click("#trouble button")
    faulty.settle()
    assert not faulty.seen("#trouble")


@pytest.mark.system
def test_error_response_marks_the_field_it_names(faulty):
    error = "row 0 (counting from 0): column 'sugar' holds <b>too much</b>"
    faulty.served.scripted.answers["/predict"] = (400, {"error": error}, [])
    faulty.open("melon", wait=False)
    faulty.wait("!document.getElementById('trouble').hidden")
    assert faulty.text("#field-3-fault") == error
    faulty.click("#trouble button")
    assert faulty.ask("document.activeElement.id") == "field-3"
    assert faulty.ask("document.activeElement.ariaInvalid") == "true"


@pytest.mark.system
def test_replaced_model_is_reloaded_and_the_row_is_kept(page):
    page.open("double", row=json.dumps({"density": "0.45"}))
    version, before = page.text("#facts dd"), page.shares()
    melon(at=0.5).save(page.served.folder / "double.treekit")
    page.served.repository.refresh()
    page.click("#predict")
    page.wait("!document.getElementById('changed').hidden")
    page.settle()
    assert f"version {version} is now" in page.text("#changed")
    assert page.text("#facts dd") != version
    assert page.shares() == shares_of(melon(at=0.5), **ROW | {"density": 0.45}) != before
    assert page.text("#field-0-hint") == "threshold at 0.5"


@pytest.mark.system
def test_a_model_unloaded_meanwhile_is_reported(faulty):
    faulty.open("double")
    faulty.served.repository.unload("double")
    try:
        faulty.click("#predict")
        faulty.wait("!document.getElementById('changed').hidden")
        assert "no longer loaded" in faulty.text("#changed")
        assert not faulty.seen("#work")
    finally:
        faulty.served.repository.load("double")


@pytest.mark.system
def test_token_is_requested_and_kept_for_the_tab(faulty):
    scripted = faulty.served.scripted
    scripted.token = b"Bearer s3cret"
    faulty.open("melon", wait=False)
    faulty.wait("document.activeElement.id === 'token-text'")
    faulty.browser.type("wrong")
    faulty.press("Enter", "\r")
    faulty.wait(
        "document.getElementById('token').checkVisibility() &&"
        " document.getElementById('token-text').value === ''"
    )
    time.sleep(0.2)
    faulty.ask("document.getElementById('token-text').focus()")
    faulty.browser.type("s3cret")
    faulty.press("Enter", "\r")
    faulty.settle()
    assert not faulty.seen("#token")
    assert faulty.ask("JSON.stringify(localStorage).includes('s3cret')") is False
    assert "s3cret" not in faulty.ask("document.documentElement.outerHTML + location.href")
    assert {path for path, brought in scripted.asked if brought == b"Bearer s3cret"} >= {
        "/models", "/predict", "/explain", "/models/melon/rules"
    }  # fmt: skip
    faulty.ask("sessionStorage.clear()")


@pytest.mark.system
def test_page_shows_why_a_model_is_not_loaded(page):
    one = {
        "name": "bad",
        "version": "",
        "versions": [],
        "state": "UNAVAILABLE",
        "reason": "no <i>zip</i>",
    }
    page.served.scripted.answers["/models"] = (200, [one], [])
    page.open("bad", wait=False)
    page.wait("document.querySelector('#off').checkVisibility()")
    assert "no <i>zip</i>" in page.text("#off")
    assert Path(FOLDER, "page.html").is_file()


# ---------------------------------------------------------------- behind a proxy

NGINX = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/errors; worker_processes 1;
events {{}}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {folder}/one.pem; ssl_certificate_key {folder}/one.key;
    location /trees/ {{ proxy_pass {address}/; {headers} }}
  }}
}}
"""
CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
    "/CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout one.key -out one.pem"
)


@contextlib.contextmanager
def proxy(folder, address, headers):
    """Run nginx, which ends TLS and serves the server under a prefix; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port = opened.getsockname()[1]
    subprocess.run(CERTIFICATE.split(), check=True, capture_output=True, cwd=folder)
    text = NGINX.format(folder=folder, port=port, address=address, headers=headers)
    (folder / "nginx.conf").write_text(text)
    process = subprocess.Popen(["nginx", "-e", folder / "errors", "-c", folder / "nginx.conf"])
    try:
        end = time.monotonic() + 20
        while not (folder / "nginx.pid").exists():
            assert time.monotonic() < end, "nginx did not start"
            time.sleep(0.05)
        yield f"https://127.0.0.1:{port}/trees/"
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize(
    "headers",
    ["proxy_set_header Host $http_host;", "proxy_set_header X-Forwarded-Host $http_host;"],
)
def test_the_page_works_behind_a_proxy_with_tls_and_a_prefix(page, served, tmp_path, headers):
    need("nginx", "openssl")
    page.browser.call("Security.setIgnoreCertificateErrors", ignore=True)
    with proxy(tmp_path, served.address, headers) as address:
        behind = SimpleNamespace(address=address.rstrip("/"))
        own = Page(page.browser, behind).open("melon")
        shares = own.shares()
        asked = [one for one in page.browser.requests if not one.startswith("data:")]
        assert {f"{address}{name}" for name in ("page.js", "page/words.json", "predict")} < {*asked}
        assert all(one.startswith(address) for one in asked)
        assert shares == page.open("melon").shares() != []


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"Origin": "https://trees.example.org"}, 403),
        ({"Origin": "https://{host}"}, 200),
        ({"Origin": "https://{host}.example.org"}, 403),
        ({"Origin": "https://trees.example.org", "X-Forwarded-Host": "trees.example.org"}, 200),
        ({"Origin": "http://trees.example.org", "X-Forwarded-Host": "trees.example.org, b"}, 200),
        ({"Origin": "https://trees.example.org", "X-Forwarded-Host": "example.org"}, 403),
        ({"Origin": "null", "X-Forwarded-Host": ""}, 403),
    ],
)
def test_requests_with_the_origin_of_their_host_are_same_origin(served, sent, status):
    host = served.address.removeprefix("http://")
    headers = {name: value.format(host=host) for name, value in sent.items()}
    assert httpx.get(f"{served.address}/models", headers=headers).status_code == status


def test_preflight_for_x_forwarded_host_from_another_site_is_refused(served):
    headers = {
        "Origin": "https://trees.example.org",
        "Access-Control-Request-Method": "GET",
        "Access-Control-Request-Headers": "x-forwarded-host",
    }
    assert httpx.options(f"{served.address}/models", headers=headers).status_code == 403
