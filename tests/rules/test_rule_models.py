"""Rule lists as models: they predict, convert, are saved, exported and verified."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import treekit
from tests.examples import examples
from tests.reference import evaluate
from tests.reference.models import mixed_schema, probe_rows
from tests.runtimes import need
from tests.strategies import matrices, rule_lists, schemas
from treekit.data.schema import Column, Schema
from treekit.errors import ModelError, ModelFileError, SettingError
from treekit.model.builder import (
    Node,
    Surrogate,
    build_tree,
    leaf,
    make_rule_trees,
    oblique,
    rule,
    threshold,
)
from treekit.model.model import Model, make_model
from treekit.model.model_file import load
from treekit.model.scoring import sum_leaf_values
from treekit.model.tree import MAX_DEPTH, Split
from treekit.model.validation import check_tree
from treekit.rules import RuleList
from treekit.rules.read_text import parse_rules
from treekit.rules.rule_list import ConditionTable

INF = float("inf")
HOSTILE = ('a "quoted"\n{{ name }}', "it's /* %s */ -- '; DROP", "größe\u202e</td>")


def above(name: str, at: float, *, missing: bool = False) -> Surrogate:
    return Surrogate(name, at, below=1, above=-1, lost=-1 if missing else 1)


def at_most(name: str, at: float, *, missing: bool = False) -> Surrogate:
    return Surrogate(name, at, below=-1, above=1, lost=-1 if missing else 1)


def known(name: str) -> Surrogate:
    return Surrogate(name, 0.0, below=-1, above=-1, lost=1)


def gone(name: str) -> Surrogate:
    return Surrogate(name, 0.0, below=1, above=1)


def one_of(schema: Schema, name: str, *levels: str, missing: bool = False) -> Surrogate:
    vocabulary = schema.columns[schema.names.index(name)].levels
    others = dict.fromkeys((level for level in vocabulary if level not in levels), 1)
    return Surrogate(name, levels=others, lost=-1 if missing else 1)


def ordered(schema: Schema, says) -> Node:
    """Conditions of every sort, under hostile names too."""
    towns = one_of(schema, "town", *(f"town {i}" for i in range(5)), missing=True)
    node = rule([known("age")], says(4), says(5))
    node = rule([towns, above("size", -3.5, missing=True)], says(3), node)
    node = rule([one_of(schema, HOSTILE[0], HOSTILE[1], missing=False)], says(2), node)
    colours = one_of(schema, "colour", "red", "blue", missing=True)
    node = rule([above("size", 2.5), at_most("size", 9.25), colours], says(1), node)
    return rule([gone("age"), one_of(schema, "colour", "green")], says(0), node)


def schema_of(classes=("no", HOSTILE[2]), **other) -> Schema:
    mixed = mixed_schema(classes, **other)
    return structs.replace(mixed, columns=(*mixed.columns, Column(HOSTILE[0], "nominal", HOSTILE)))


def classes_model(**policies) -> Model:
    schema = schema_of(dtype=policies.pop("dtype", "float32"))
    weights = [[1, 0], [5, 1], [0, 3], [2, 7], [0, 9], [3, 2]]
    return make_model(schema, [build_tree(ordered(schema, lambda k: leaf(weights[k])), schema)],
                      **policies)  # fmt: skip


def numbers_model() -> Model:
    schema = schema_of((), dtype="float64")
    numbers = [-0.5, 2.25, 1e9, 1 / 3, 0.0, 7.0]
    return make_model(schema, [build_tree(ordered(schema, lambda k: leaf(numbers[k])), schema)])


def one_each(schema: Schema, yes, no, more, *, margins: bool = False) -> list:
    """A list of one rule for each of three, and one without conditions."""
    asked = [
        [above("size", float(np.float32(0.1)))],
        [one_of(schema, "colour", "red"), at_most("age", 3.0, missing=True)],
        [one_of(schema, HOSTILE[0], HOSTILE[0], missing=True)],
    ]
    roots = [rule(one, leaf(a), leaf(b)) for one, a, b in zip(asked, yes, no, strict=True)]
    return [build_tree(root, schema, margins) for root in (*roots, leaf(more))]


def weighted_mean() -> Model:
    """As SIRUS makes them: each rule and its contrary say a share, and the mean of all answers."""
    schema = schema_of()
    trees = one_each(schema, [[2, 7], [5, 1], [3, 3]], [[2, 1], [1, 1], [1, 6]], [1, 1])
    return make_model(schema, trees)


def weighted_sum() -> Model:
    """As RuleFit makes them: weights of rules, an intercept, a link."""
    schema = schema_of()
    none = [[0.0, 0.0]] * 3
    trees = one_each(schema, [[0, 1.5], [0, -2.25], [0, 0.1]], none, [0, 0.25], margins=True)
    return make_model(schema, trees, combine="sum", link="sigmoid")


MODELS = {
    "ordered": classes_model,
    "numbers": numbers_model,
    "weighted mean": weighted_mean,
    "weighted sum": weighted_sum,
    "refusing": lambda: classes_model(unknown="error", dtype="float64"),
}


def same(one: RuleList, other: RuleList) -> None:
    for name in ("tree", "leaf", "support", "units", "end", "value"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    for name in ConditionTable._fields:
        mine, theirs = getattr(one.conditions, name), getattr(other.conditions, name)
        np.testing.assert_array_equal(mine, theirs, name)
    assert (one.schema, one.order, str(one)) == (other.schema, other.order, str(other))


# ------------------------------------------------------------------ there and back


@st.composite
def lists(draw) -> Model:
    schema = draw(schemas(max_outputs=2))
    roots = draw(st.lists(rule_lists(schema), min_size=1, max_size=3))
    combine = "mean" if schema.task == "classification" else draw(st.sampled_from(["mean", "sum"]))
    missing = draw(st.sampled_from(["direction", "error", "surrogate"]))
    trees = [build_tree(root, schema) for root in roots]
    return make_model(schema, trees, combine=combine, missing=missing)


def has_vacuous_rules(listed: RuleList) -> bool:
    """Whether a rule that is not the last of its tree has no conditions."""
    counts = np.diff(listed.end, prepend=0)
    behind = np.append(np.diff(listed.tree) == 0, False)
    return bool(np.any((counts == 0) & behind))


@given(st.data())
@settings(max_examples=examples(40))
def test_rule_list_converts_to_a_model_of_equal_sums(data):
    model = data.draw(lists())
    listed = model.rules()
    if all(tree.n_leaves == 1 for tree in model.trees):
        assert listed.order == "disjoint"
        return
    assert listed.order == "first"
    rows = data.draw(matrices(model, max_rows=8))
    rows = rows[~listed.refused(rows)]
    wanted = [evaluate.sums(model, row) for row in rows.tolist()]
    assert listed.sums(rows).tolist() == parse_rules(str(listed)).sums(rows).tolist() == wanted
    if has_vacuous_rules(listed):
        with pytest.raises(ModelError, match="has no conditions and hides all later rules"):
            listed.model()
        return
    again = listed.model()
    same(again.rules(), listed)
    assert sum_leaf_values(again, rows).tolist() == wanted


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_condition_is_kept_by_the_model_of_a_list(name):
    model = MODELS[name]()
    listed = model.rules()
    again = listed.model({"rules": 6}, {"made": "by hand"})
    same(again.rules(), listed)
    assert (again.settings, again.provenance) == ({"rules": 6}, {"made": "by hand"})
    rows = np.array(probe_rows(model))
    rows = rows[~listed.refused(rows)]
    wanted = [evaluate.sums(model, row) for row in rows.tolist()]
    assert sum_leaf_values(model, rows).tolist() == sum_leaf_values(again, rows).tolist() == wanted
    assert len(np.unique(wanted, axis=0)) >= 2


@pytest.mark.parametrize("name", MODELS)
def test_rules_parsed_from_text_convert_to_a_model(name):
    model = MODELS[name]()
    text = str(model.rules())
    read = parse_rules(text)
    assert read.order == "first"
    assert read.value is None
    again = read.model()
    assert str(again.rules()) == text
    rows = np.array(probe_rows(model))
    rows = rows[~read.refused(rows)]
    np.testing.assert_array_equal(sum_leaf_values(again, rows), sum_leaf_values(model, rows))


def test_the_text_states_that_the_first_match_predicts():
    text = str(classes_model().rules())
    assert "order    first\n" in text
    assert "\nrule 6 of 6, node 10\n  otherwise\n  then" in text
    assert "\n  always\n" in str(weighted_sum().rules())
    for wrong in (
        text.replace("  otherwise\n", "  always\n"),
        text.replace("order    first", "order    last"),
        text.replace("'otherwise' answers", "'otherwise' does not answer"),
    ):
        with pytest.raises(ModelFileError, match="cannot be read"):
            parse_rules(wrong)


def test_a_disjoint_list_with_a_last_rule_without_conditions_is_a_model():
    schema = mixed_schema()
    tree = build_tree(threshold("size", 2.5, leaf([3, 1]), leaf([0, 4]), missing=1), schema)
    listed = make_model(schema, [tree]).rules()
    with pytest.raises(ModelError, match=r"rule 2, the last one, .* add a default rule without"):
        listed.model()
    cut = listed.conditions._replace(
        **{n: getattr(listed.conditions, n)[:1] for n in ConditionTable._fields if n != "levels"}
    )
    model = replace(listed, end=np.array([1, 1]), conditions=cut).model()
    assert [tree.kind.tolist() for tree in model.trees] == [[Split.RULE, 0, 0]]
    assert model.predict({"size": [1.0, 3.0, None], **nothing(schema, 3)}).tolist() == [
        "no", "yes", "yes",
    ]  # fmt: skip


def nothing(schema: Schema, rows: int) -> dict[str, list[None]]:
    return {name: [None] * rows for name in schema.names if name != "size"}


# ------------------------------------------------------------------ files


def test_rule_list_model_is_saved_and_format_of_other_models_is_unchanged(tmp_path):
    model = classes_model()
    model.save(tmp_path / "list.treekit")
    same(load(tmp_path / "list.treekit").rules(), model.rules())
    assert stamp(tmp_path / "list.treekit") == (3, True)
    schema = mixed_schema()
    asked = threshold("size", 0.5, leaf([1, 2]), leaf([3, 1]), 1, [Surrogate("age", 1.0, 1)])
    before = make_model(schema, [build_tree(asked, schema)], missing="surrogate")
    before.save(tmp_path / "before.treekit")
    assert stamp(tmp_path / "before.treekit") == (2, False)  # readable by what reads version 2
    (tree,) = load(tmp_path / "before.treekit").trees
    assert (tree.surrogate_above.tolist(), tree.surrogate_lost.tolist()) == ([0], [-1])


def stamp(path) -> tuple[int, bool]:
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("model.json"))
        return header["version"], "surrogate_lost.npy" in archive.namelist()


# ------------------------------------------------------------------ refusals


def test_invalid_lists_are_refused():
    schema = mixed_schema()
    chain = build_tree(ordered_short(schema), schema)
    for field, at, value, words in (
        ("surrogate_lost", 0, 0, "a condition of a rule gives branch 0"),
        ("surrogate_below", 0, 0, "a condition of a rule gives branch 0"),
        ("surrogate_above", 0, 2, "has an invalid branch"),
        ("missing", 0, 1, "missing branch of a rule must be 0"),
        ("feature", 0, 2, "is not that of its first condition"),
        ("kind", 2, Split.MISSING, "a tree of rules has other splits|not a threshold split"),
    ):
        array = getattr(chain, field).copy()
        array[at] = value
        with pytest.raises(ModelError, match=words):
            check_tree(replace(chain, **{field: array}), schema)
    branched = rule([known("age")], ordered_short(schema), leaf([1, 1]))
    with pytest.raises(ModelError, match="branch 0 is not a leaf"):
        build_tree(branched, schema)
    plain = build_tree(threshold("size", 1.0, leaf([1, 2]), leaf([2, 1])), schema)
    with pytest.raises(ModelError, match="all trees must be rule lists"):
        make_model(schema, [chain, plain])
    with pytest.raises(ModelError, match="rules do not support missing='fractional'"):
        make_model(schema, [chain], missing="fractional")
    loose = threshold("size", 1.0, leaf([1, 2]), leaf([2, 1]), 1, [known("age")])
    with pytest.raises(ModelError, match="opposite branches below and above"):
        build_tree(loose, schema)


def ordered_short(schema: Schema) -> Node:
    node = rule([known("age")], leaf([3, 1]), leaf([1, 2]))
    return rule([above("size", 1.0), one_of(schema, "colour", "red")], leaf([0, 5]), node)


def test_conditions_unsupported_by_rule_lists_are_refused():
    schema = mixed_schema()
    split = oblique({"size": 0.5, "age": -1.25}, 0.875, leaf([3, 1]), leaf([0, 4]))
    with pytest.raises(ModelError, match=r"rule 1 has a test of several columns.*without oblique"):
        make_model(schema, [build_tree(split, schema)]).rules().model()
    divided = build_tree(threshold("size", 1.0, leaf([1, 2]), leaf([2, 1])), schema)
    with pytest.raises(ModelError, match=r"rules have fractional instances.*missing='direction'"):
        make_model(schema, [divided], missing="fractional").rules().model()


def table(low: list[float]) -> ConditionTable:
    n = len(low)
    number, none = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    return ConditionTable(
        number.astype(np.int32), np.array(low), np.full(n, INF), ~none, none,
        number.astype(np.int32), number.astype(np.int32), number, number, np.empty(0, np.int32),
    )  # fmt: skip


def thousands(n: int) -> Model:
    """One list of `n` rules, the k-th for numbers above n - k, and otherwise."""
    schema = Schema((Column("x"),), classes=("a", "b"))
    value = np.column_stack([np.arange(n + 1) % 7 + 1.0, np.arange(n + 1) % 3 + 1.0])
    end = np.minimum(np.arange(1, n + 2), n)
    lows = np.arange(n - 1, -1, -1, dtype=np.float64).tolist()
    trees = make_rule_trees(
        schema, np.zeros(n + 1, int), end, table(lows), value, value.sum(axis=1)
    )
    return make_model(schema, trees)


def test_lists_of_thousands_of_rules_are_accepted_up_to_a_limit():
    model = thousands(MAX_DEPTH)
    assert (model.depth, len(model.rules())) == (MAX_DEPTH, MAX_DEPTH + 1)
    same(model.rules().model().rules(), model.rules())
    rows = np.array([[0.0], [0.5], [4999.5], [2500.0], [np.nan], [-1.0]])
    wanted = [evaluate.sums(model, row) for row in rows.tolist()]
    assert sum_leaf_values(model, rows).tolist() == model.rules().sums(rows).tolist() == wanted
    with pytest.raises(ModelError, match="more than 5000 rules, the maximum: remove some"):
        thousands(MAX_DEPTH + 1)
    with pytest.raises(ModelError, match="a bound of a condition is not a number"):
        make_rule_trees(model.schema, [0, 0], [1, 1], table([INF]), np.ones((2, 2)), np.ones(2))


@pytest.mark.parametrize("target", ["c", "python", "javascript", "java", "rust", "go", "onnx"])
def test_thousands_of_rules_are_exported_without_recursion(target, tmp_path):
    assert treekit.export(thousands(1500), target, tmp_path / "deep")[0].stat().st_size > 10_000


def test_train_like_a_rule_list_is_refused():
    with pytest.raises(SettingError, match="is a rule list, which has no training settings"):
        treekit.train({"x": [1, 2], "y": ["a", "b"]}, "y", like=classes_model())


# ------------------------------------------------------------------ artifacts


def proved_equal(model: Model, tmp_path, targets, **settings) -> None:
    paths = [
        treekit.export(model, to, tmp_path / f"m{n}", **more)[0]
        for n, (to, more) in enumerate(targets)
    ]
    report = treekit.verify(model, paths, random_rows=150)
    assert report.equal, str(report)
    assert report.coverage.complete
    assert report.coverage.part("leaves").share == 1.0


WITH_OTHERS = [
    name if name in ("ordered", "weighted sum") else pytest.param(name, marks=pytest.mark.matrix)
    for name in MODELS
]


@pytest.mark.parametrize("name", WITH_OTHERS)
def test_rule_lists_predict_equally_in_python_c_onnx_and_rules(name, tmp_path):
    need("gcc")
    targets = [("python", {"form": "table"}), ("c", {"form": "table"}), ("onnx", {}), ("rules", {})]
    proved_equal(MODELS[name](), tmp_path, targets)


@pytest.mark.parametrize(
    "name", ["ordered", pytest.param("weighted sum", marks=pytest.mark.matrix)]
)
def test_rule_lists_predict_equally_in_nested_if_statements(name, tmp_path):
    need("gcc")
    nested = {"form": "if_else"}
    proved_equal(MODELS[name](), tmp_path, [("python", nested), ("c", nested)])


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["ordered", "weighted sum"])
@pytest.mark.parametrize(
    ("target", "program"),
    [("javascript", "node"), ("java", "javac"), ("rust", "rustc"), ("go", "go")],
)
def test_rule_lists_predict_equally_in_other_languages(name, target, program, tmp_path):
    need(program)
    proved_equal(MODELS[name](), tmp_path, [(target, {})])
