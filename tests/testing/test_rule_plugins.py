"""The conformance checks of documents, simplifiers and explainers."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import treekit
from tests.tiers import later
from treekit import Document, Explainer, Simplifier
from treekit.documents import render_listing, treekit_documents
from treekit.errors import SettingError
from treekit.explain import explain
from treekit.rule_learning import compute_r_squared, evaluate_list, simplify
from treekit.testing import (
    ConformanceError,
    check_document,
    check_explainer,
    check_simplifier,
)
from treekit.testing.example_models import make_cut, make_yes_no

COUNTER = itertools.count()


@pytest.mark.parametrize(
    "name",
    [
        record.name if record.name == "markdown" else later(record.name)
        for record in treekit_documents()
    ],
)
def test_built_in_documents_pass_the_contract_checks(name):
    assert check_document(name).ok


DOCUMENT_FAULTS = {
    "an error of its own": (lambda _: {}["x"], "writes-or-refuses-by-name", "KeyError"),
    "numbers": (lambda _: [1, 2], "writes-or-refuses-by-name", "TypeError"),
    "nothing": (
        lambda _: (_ for _ in ()).throw(SettingError("never")),
        "writes-some-rules",
        "refused",
    ),
    "a counter": (lambda _: [str(next(COUNTER))], "same-rules-same-text", "two texts"),
    "names as they are": (
        lambda listing: [*listing.rules.schema.names, *map(str, listing.rules.schema.classes)],
        "names-are-escaped",
        "the character",
    ),
}


@pytest.mark.matrix
@pytest.mark.parametrize("fault", DOCUMENT_FAULTS)
def test_each_faulty_document_breaches_exactly_its_law(fault):
    render, law, got = DOCUMENT_FAULTS[fault]
    with pytest.raises(ConformanceError) as caught:
        check_document(Document("mine", ".txt", render))
    breach = next(one for one in caught.value.report.breaches if one.law.name == law)
    assert got in breach.got


def learn_alternately(model: Any, table: Any, _: Any) -> Any:
    """Learn a list of one rule, or of two, and the default rule, from a small tree."""
    size = 2 + next(COUNTER) % 2
    rules = treekit.train(table, model.schema.target, max_leaves=size, seed=0).rules()
    start, _ = rules.bounds(len(rules) - 1)
    conditions = rules.conditions.take(np.arange(start))
    listed = replace(rules, end=np.minimum(rules.end, start), conditions=conditions, order="first")
    return evaluate_list(listed, model, table)


SIMPLIFIER_FAULTS = {
    "a text": (lambda *_: "rules", "learns-a-rule-list", "a str"),
    "an error of its own": (lambda *_: {}["x"], "learns-a-rule-list", "KeyError"),
    "another seed each time": (
        learn_alternately,
        "same-table-same-list",
        "two lists",
    ),
}


@pytest.mark.parametrize("fault", SIMPLIFIER_FAULTS)
def test_each_faulty_simplifier_breaches_exactly_its_law(fault):
    function, law, got = SIMPLIFIER_FAULTS[fault]
    with pytest.raises(ConformanceError) as caught:
        check_simplifier(Simplifier("mine", function))
    breach = next(one for one in caught.value.report.breaches if one.law.name == law)
    assert got in breach.got


class Part:
    """A part of an explanation for tests."""

    def __init__(self, value: Any, line: Any = "a line") -> None:
        self.value, self.line = value, line

    def plain(self) -> Any:
        return self.value

    def lines(self, _: Any) -> Any:
        yield self.line, True


EXPLAINER_FAULTS = {
    "no part": (lambda _: 3, "adds-a-part-or-none"),
    "not a number": (lambda _: Part(math.nan), "adds-a-part-or-none"),
    "no text": (lambda _: Part(1, 2), "adds-a-part-or-none"),
    "an error of its own": (lambda _: {}["x"], "adds-a-part-or-none"),
    "a counter": (lambda _: Part(next(COUNTER)), "same-case-same-part"),
}


@pytest.mark.parametrize("fault", EXPLAINER_FAULTS)
def test_each_faulty_explainer_breaches_exactly_its_law(fault):
    function, law = EXPLAINER_FAULTS[fault]
    with pytest.raises(ConformanceError) as caught:
        check_explainer(Explainer("mine", function))
    assert law in [one.law.name for one in caught.value.report.breaches]


@pytest.mark.matrix
def test_valid_explainer_passes_the_contract_checks_and_is_listed():
    mine = Explainer("mine", lambda case: Part(float(case.sums.sum())))
    assert check_explainer(mine).ok
    found = explain(make_yes_no(make_cut()), {"size": 1}, explainers=[mine])
    assert "a line" in found.text()
    assert found.plain()["mine"] == dict(found.parts)["mine"].value


@pytest.mark.usefixtures("without_plugins")
def test_missing_plugin_is_reported():
    model = make_yes_no(make_cut())
    pairs = (("dmn", "interchange"), ("drift", "audit"), ("svg", "plot"), ("roc", "plot"))
    for form, plugin in pairs:
        with pytest.raises(SettingError, match=f"pip install treekit-{plugin}"):
            render_listing(form, model)  # type: ignore[arg-type]
    assert model._repr_html_() is None
    with pytest.raises(SettingError, match="pip install treekit-rule-learning"):
        simplify(model, {})
    with pytest.raises(SettingError, match="pip install treekit-counterfactuals"):
        explain(model, {"size": 1}, wish="yes")
    assert explain(model, {"size": 1}, changes=0).parts == ()
    with pytest.raises(SettingError, match="no explainer has a setting 'colour'"):
        explain(model, {"size": 1}, colour=3)


def test_r_squared_of_a_constant_target_is_1_if_predicted_else_0() -> None:
    ones = np.ones(3)
    assert compute_r_squared(ones, ones) == 1.0
    assert compute_r_squared(ones * 2, ones) == 0.0
    assert compute_r_squared(np.array([1.0, 2, 4]), np.array([1.0, 2, 3])) == pytest.approx(0.5)
