"""Models of sums and links, as boosting makes them: portable to the last bit."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

import treekit
from treekit.data.schema import Column, Schema
from treekit.errors import ModelError, ModelFileError
from treekit.model import links
from treekit.model.builder import build_tree, leaf, multiway, threshold
from treekit.model.links import LIMIT, exp, sigmoid, softmax
from treekit.model.model import Model, make_model
from treekit.model.scoring import sums
from treekit.rules import parse_rules

GOLDEN_EXP = [
    "0x1.5bf0a8b14576ap+1",
    "0x1.78b56362cef38p-2",
    "0x1.1aec7b35a00d4p+0",
    "0x1.0772c096d61b7p-25",
    "0x1.efe2e2bf329a4p+60",
    "0x1.c3714f17ae742p+433",
    "0x1.300ff6c7c2e28p-938",
]
GOLDEN_SOFTMAX = ["0x1.32ac289f4acd1p-4", "0x1.aa5560ecf5569p-7", "0x1.d301256862d10p-1"]
COLUMNS = (Column("x"), Column("c", "nominal", ("a", "b", "d")))


def boosted(classes=("no", "yes"), link="softmax", n_trees=20, seed=0, dtype="float32") -> Model:
    """A base score and trees that each add to one class, or to the number."""
    task = "classification" if classes else "regression"
    schema = Schema(COLUMNS, task=task, classes=classes, dtype=dtype)
    rng = np.random.default_rng(seed)

    def say(k):
        value = np.zeros(schema.n_values)
        value[k] = rng.normal() * 10.0 ** rng.integers(-3, 1)
        return leaf(value.tolist(), weight=float(rng.integers(1, 9)))

    roots = [leaf(([0.0] + [0.25] * (schema.n_values - 1)) if classes else 1e4)]
    for tree in range(n_trees):
        k = 1 if len(classes) == 2 else tree % schema.n_values
        at = float(np.float32(rng.normal()))
        branches = {level: say(k) for level in "abd"}
        roots.append(threshold("x", at, multiway("c", branches), say(k), missing=tree % 2))
    trees = [build_tree(root, schema, margins=True) for root in roots]
    return make_model(schema, trees, combine="sum", link=link)


def rows_of(n=500, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    x[rng.random(n) < 0.1] = np.nan
    return np.stack([x, rng.integers(-1, 4, n)], axis=1)


def margins_of(model, rows):
    """The definition, in plain arithmetic: leaf values added up as fractions."""
    exponent = model.exponent
    return np.array([[math.ldexp(u, exponent) for u in row] for row in sums(model, rows).tolist()])


MODELS = {
    "two classes": boosted,
    "four classes": lambda: boosted(("a", "b", "c", "d"), n_trees=21),
    "one against the rest": lambda: boosted((1, 2, 3), "sigmoid"),
    "number": lambda: boosted((), "identity"),
    "count": lambda: boosted((), "exp", seed=3),
    "share": lambda: boosted((), "sigmoid", dtype="float64"),
}


def true_exp(x: float) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        return Decimal(x).exp()


def test_exp_is_within_two_units_in_the_last_place():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-LIMIT, LIMIT, 2000), rng.normal(size=2000) * 3])
    for value, said in zip(x.tolist(), exp(x).tolist(), strict=True):
        assert abs(Decimal(said) - true_exp(value)) <= 2 * Decimal(math.ulp(said))


def test_exp_of_whole_multiples_and_of_the_limits():
    assert exp(np.array([0.0, -0.0])).tolist() == [1.0, 1.0]
    beyond = exp(np.array([LIMIT, 1e300, -LIMIT, -1e300]))
    assert beyond[0] == beyond[1] > 1e304
    assert 0 < beyond[2] == beyond[3] < 1e-303


def test_links_follow_their_definition():
    rng = np.random.default_rng(2)
    m = rng.normal(size=(300, 4)) * 10
    said = softmax(m)
    for row, shares in zip(m.tolist(), said.tolist(), strict=True):
        parts = [true_exp(v) for v in row]
        for part, share in zip(parts, shares, strict=True):
            assert abs(Decimal(share) / (part / sum(parts)) - 1) < Decimal("1e-14")
    assert np.allclose(sigmoid(m) + sigmoid(-m), 1.0, rtol=0, atol=1e-15)
    assert sigmoid(np.array([0.0, 1e4, -1e4])).tolist()[:2] == [0.5, 1.0]


def test_softmax_adds_in_class_order():
    m = np.random.default_rng(3).normal(size=(200, 9))
    for row, said in zip(m, softmax(m).tolist(), strict=True):
        t = exp(row - row.max()).tolist()
        total = list(itertools.accumulate(t))[-1]
        assert said == [one / total for one in t]


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_the_margins(name):
    model = MODELS[name]()
    rows = rows_of()
    table = {"x": rows[:, 0], "c": [dict(enumerate("abd")).get(c) for c in rows[:, 1]]}
    margins = margins_of(model, rows)
    if model.schema.task == "classification":
        best = [model.schema.classes[k] for k in margins.argmax(axis=1)]
        assert model.predict(table).tolist() == best
        link = softmax if model.link == "softmax" else sigmoid
        assert (model.predict_proba(table) == link(margins)).all()
    else:
        link = {"identity": np.array, "exp": exp, "sigmoid": sigmoid}[model.link]
        assert (model.predict(table) == link(margins)[:, 0]).all()


@pytest.mark.parametrize("name", MODELS)
def test_sums_are_those_of_the_leaf_values_to_a_step_a_tree(name):
    model = MODELS[name]()
    rows = rows_of(200)
    said = margins_of(model, rows)
    value = np.zeros((len(rows), model.schema.n_values))
    from treekit.model.scoring import leaf_indices

    ends = leaf_indices(model, rows)
    for t, tree in enumerate(model.trees):
        value += tree.value[ends[:, t]]
    step = 2.0**model.exponent
    assert np.abs(said - value).max() <= model.n_trees * step / 2 + 1e-9 * step
    assert step < 1e-10


@pytest.mark.parametrize("name", MODELS)
def test_a_file_keeps_sums_and_links(name, tmp_path):
    model = MODELS[name]()
    model.save(tmp_path / "m.treekit")
    again = treekit.load(tmp_path / "m.treekit")
    assert (again.combine, again.link, again.exponent) == ("sum", model.link, model.exponent)
    assert (again.units == model.units).all()


@pytest.mark.parametrize("name", MODELS)
def test_the_text_of_rules_is_executed_to_the_same_bits(name, tmp_path):
    model = MODELS[name]()
    text = str(model.rules())
    assert "combine  sum" in text
    again = parse_rules(text)
    assert str(again) == text
    assert (again.units == model.rules().units).all()
    path = treekit.export(model, "rules", tmp_path / "m")
    report = treekit.verify(model, path)
    assert report.equal, str(report)


def test_a_rule_names_what_it_adds():
    first, second, *_ = boosted().rules()
    assert first.answers[0].margins == (0.0, 0.25)
    assert first.label is None
    assert "then yes: 0.25" in str(boosted().rules())
    assert second.answers[0].margins[0] == 0.0


def test_forged_rules_of_margins_are_refused():
    text = str(boosted().rules())
    for old, new in (
        ("then yes: 0.25", "then yes: 0.25, yes: 0.25"),
        ("then yes: 0.25", "then yes: 0"),
        ("link     softmax", "link     probit"),
        ("combine  sum", "combine  product"),
        ("link     softmax", "link     sigmoid"),
    ):
        assert old in text
        with pytest.raises(ModelFileError):
            parse_rules(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"link": "exp"}, "does not fit"),
        ({"link": "identity"}, "does not fit"),
        ({"link": "cloglog"}, "unknown link"),
        ({"combine": "product"}, "unknown way to combine"),
        ({"missing": "fractional"}, "do not divide"),
        ({"voting": "hard"}, "hard voting"),
        ({"costs": np.array([[0, 1], [1, 0]])}, "hard voting and costs"),
    ],
)
def test_what_does_not_fit_a_sum_is_refused(changes, words):
    model = boosted()
    policies = {"combine": "sum", "link": "softmax"} | changes
    with pytest.raises(ModelError, match=words):
        make_model(model.schema, model.trees, **policies)


def test_votes_have_no_link():
    schema = Schema(COLUMNS, classes=("no", "yes"))
    tree = build_tree(leaf([1, 2]), schema)
    with pytest.raises(ModelError, match="does not fit"):
        make_model(schema, [tree], link="softmax")
    with pytest.raises(ModelError, match="negative"):
        make_model(schema, [build_tree(leaf([-1.0, 2.0]), schema, margins=True)])


def test_values_too_large_to_add_up_are_refused():
    schema = Schema(COLUMNS, task="regression")
    trees = [build_tree(leaf(1e308), schema)] * 3
    with pytest.raises(ModelError, match="too large"):
        make_model(schema, trees, combine="sum")


def test_integers_that_add_up_to_more_than_a_double_holds_are_refused(tmp_path):
    from dataclasses import replace

    model = boosted((), "identity")
    forged = replace(model, units=model.units * 4)
    forged.save(tmp_path / "m.treekit")
    with pytest.raises(ModelFileError, match="grid"):
        treekit.load(tmp_path / "m.treekit")


def test_a_picture_of_a_sum_says_what_is_added():
    model = boosted(("a", "b", "c"))
    picture = model.plot(tree=1).svg()
    added = np.ldexp(float(model.tree_units(1)[0, 0]), model.exponent)
    assert added != 0
    assert f"{added:.3g}"[:5] in picture


def test_links_are_what_they_were_when_files_were_written():
    """Artifacts hold the constants: a model that changed them would leave its files behind."""
    x = [1.0, -1.0, 0.1, -17.3, 42.25, 300.7, -650.0]
    assert [value.hex() for value in exp(np.array(x)).tolist()] == GOLDEN_EXP
    shares = softmax(np.array([[0.5, -1.25, 3.0]]))[0].tolist()
    assert [value.hex() for value in shares] == GOLDEN_SOFTMAX
    assert (*(1.4426950408889634, 0.6931471803691238, 1.9082149292705877e-10, 700.0),) == (
        links.LOG2_E,
        links.LN2_HIGH,
        links.LN2_LOW,
        links.LIMIT,
    )
