"""Pictures on the page of `treekit serve`, from its endpoint and in a browser."""

from __future__ import annotations

import json

import pytest

from tests.serve import test_page as core
from treekit.data.schema import Column, Schema
from treekit.model.builder import build_tree, leaf, multiway
from treekit.model.model import make_model
from treekit.serve.http.page import MAX_BOXES

browser, faulty, page, served = core.browser, core.faulty, core.page, core.served
PICTURE = "document.querySelectorAll('#picture svg > g > rect[stroke-width=\"3\"]').length"

# The page with pictures: their names are hostile, their width is that of the screen.
test_names = core.test_hostile_names_are_shown_as_text
test_small_screens = core.test_page_fits_a_phone_without_horizontal_scrolling
test_keyboard = core.test_every_control_is_reached_and_left_by_keyboard
test_print = core.test_print_hides_screen_controls


def test_picture_marks_the_decision_path_and_is_sandboxed(served):
    tree = served.models["melon"].trees[0]
    reply = core.picture(served, path=str(tree.leaves[-1]), lang="zh")
    assert reply.headers["content-type"].startswith("image/svg+xml")
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert policy.endswith("; sandbox")
    assert reply.text.count('stroke-width="3"') >= 4
    assert "或缺失" in reply.text
    assert 'stroke-width="3"' not in core.picture(served).text


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"path": "99"}, "there is no node 99"),
        ({"view": "way"}, "'way' (only if nodes are marked)"),
    ],
)
def test_invalid_picture_request_returns_400_with_the_reason(served, query, said):
    reply = core.picture(served, **query)
    assert (reply.status_code, said in reply.json()["error"]) == (400, True), reply.text


def test_picture_with_too_many_boxes_is_refused(served):
    levels = tuple(f"level {k}" for k in range(MAX_BOXES + 1))
    schema = Schema((Column("x", "nominal", levels),), classes=("a", "b"))
    root = multiway("x", {level: leaf([1, k]) for k, level in enumerate(levels)})
    path = served.folder / "wide.treekit"
    make_model(schema, [build_tree(root, schema)]).save(path)
    served.repository.refresh()
    try:
        reply = core.picture(served, "wide")
        assert reply.status_code == 413
        assert "402 boxes" in reply.json()["error"]
    finally:
        path.unlink()
        served.repository.refresh()


@pytest.mark.system
def test_picture_shows_the_decision_path_of_the_row(page):
    page.open("melon", row=json.dumps({"density": "0.5", "sugar": "2"}))
    row = core.ROW | {"density": 0.5, "sugar": 2.0}
    explained = page.served.models["melon"].explain(row, changes=0)
    page.wait(f"{PICTURE} === {len(explained.path) + 1}")
    assert page.ask("document.querySelector('#picture svg script, #picture svg style')") is None
    assert page.seen("#view")


@pytest.mark.system
def test_picture_shows_the_chosen_tree(page):
    page.open("forest", row=json.dumps({"density": "0.6", "sugar": "9"}))
    page.wait(f"{PICTURE} === 3")
    page.ask(
        "(() => { const tree = document.getElementById('tree'); tree.value = 5;"
        " tree.dispatchEvent(new Event('input')); })()"
    )
    page.answered()
    page.wait(f"{PICTURE} === 2")


@pytest.mark.system
def test_page_sends_the_token_with_the_picture_request(faulty):
    scripted = faulty.served.scripted
    scripted.token = b"Bearer s3cret"
    faulty.open("melon", wait=False)
    faulty.wait("document.activeElement.id === 'token-text'")
    faulty.browser.type("s3cret")
    faulty.press("Enter", "\r")
    faulty.settle()
    faulty.wait("document.querySelector('#picture svg') !== null")
    assert ("/models/melon/tree.svg", scripted.token) in scripted.asked
    faulty.ask("sessionStorage.clear()")
