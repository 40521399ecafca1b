"""C4.5rules compared with a slow oracle, on known concepts, and its invariants."""

from __future__ import annotations

import itertools
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from treekit_rule_learning import row_bitsets
from treekit_rule_learning.generalised_paths import (
    MAX_EXHAUSTIVE,
    ClassRules,
    c45rules,
    compute_exception_bits,
    compute_rule_bits,
    extract_paths,
    find_matching_rows,
    generalise_paths,
    make_rate_bound,
    make_row_sets,
    order_by_false_positives,
    prune_rule_list,
    select_shortest_subset,
)

import treekit
from tests.examples import examples
from tests.export.test_all_targets import model_differences
from tests.kernels.test_kernels import signed_in
from tests.reference import c45rules as oracle
from tests.reference import rules as matching
from tests.snapshots.make_models import TRAINED, model_path
from tests.strategies import matrices, models
from treekit import DataError, ModelError, SettingError
from treekit.cli import main
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.dataset import Dataset, make_coded_dataset
from treekit.data.schema import Column, Schema
from treekit.model import builder as build
from treekit.model.builder import (
    Node,
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    threshold,
)
from treekit.model.fixed_point import MASS
from treekit.model.model import Model, make_model
from treekit.model.scoring import compute_label_codes, sum_leaf_values
from treekit.rule_learning import LearnedList
from treekit.rules.evaluate import pack_bits
from treekit.rules.rule_list import ConditionTuple
from treekit.testing import check_simplifier

NAN = float("nan")
WEATHER = Schema(
    (
        Column("outlook", "nominal", ("sunny", "overcast", "rain")),
        Column("humidity"),
        Column("windy", "nominal", ("no", "yes")),
    ),
    target="play",
    classes=("no", "yes"),
)


def said(found: LearnedList, rows: np.ndarray) -> list[int]:
    """Class of the first rule of a list that fits each row, by the oracle of rules."""
    labels = found.rules.units.argmax(axis=1)
    answers = []
    for row in rows.tolist():
        fits = [mass > 0 for _, mass in matching.masses(found.rules, row)]
        answers.append(int(labels[fits.index(True)]))
    return answers


def planted(seed: int, n: int = 90, missing: Any = "direction") -> tuple[Model, Dataset]:
    """A greedy tree for three classes, numbers, levels, missing cells and noise; its rows."""
    rng = np.random.default_rng(seed)
    rows = np.stack(
        [rng.integers(0, 9, n), rng.integers(0, 3, n), rng.integers(0, 6, n) / 2, rng.random(n)],
        axis=1,
    ).astype(float)
    y = np.where(rows[:, 0] > 5, 2, ((rows[:, 1] == 1) | (rows[:, 2] > 2)).astype(int))
    y = np.where(rng.random(n) < 0.15, rng.integers(0, 3, n), y).astype(np.int32)
    rows[rng.random(rows.shape) < 0.05] = NAN
    schema = Schema(
        (Column("a"), Column("b", "nominal", ("u", "v", "w")), Column("c"), Column("d")),
        classes=("x", "y", "z"),
        dtype="float64",
    )
    tree = build_tree(grown(rng, rows, y, 5), schema)
    return make_model(schema, [tree], missing=missing), make_coded_dataset(rows, y, schema)


def grown(rng: np.random.Generator, rows: np.ndarray, y: np.ndarray, depth: int) -> Node:
    """A split of some drawn ones that leaves fewest errors, and so on."""
    counts = np.bincount(y, minlength=3)
    if depth == 0 or counts.max() > len(y) - 2:
        return leaf((counts + (counts.sum() == 0)).tolist())
    best: tuple[float, int, float, np.ndarray] | None = None
    for _ in range(8):
        f = int(rng.integers(rows.shape[1]))
        known = rows[:, f][~np.isnan(rows[:, f])]
        if f == 1 or len(np.unique(known)) < 2:
            continue
        at = float(rng.choice(known[known < known.max()]))
        below = ~(rows[:, f] > at)
        impurity = sum(gini(y[side]) for side in (below, ~below))
        if best is None or impurity < best[0]:
            best = impurity, f, at, below
    if rng.random() < 0.3 or best is None:
        sides = {lv: rows[:, 1] == k for k, lv in enumerate("uvw")}
        sides["v"] |= np.isnan(rows[:, 1])
        below = {lv: grown(rng, rows[s], y[s], depth - 1) for lv, s in sides.items()}
        return multiway("b", below, missing=1)
    _, f, at, below = best
    nodes = [grown(rng, rows[s], y[s], depth - 1) for s in (below, ~below)]
    return threshold("abcd"[f], at, *nodes, missing=0)


def gini(y: np.ndarray) -> float:
    return len(y) - float((np.bincount(y) ** 2).sum()) / max(len(y), 1)


def slow_table(rows: Dataset) -> oracle.Table:
    return oracle.Table(rows.to_matrix().tolist(), rows.y.tolist(), len(rows.schema.classes))


@pytest.mark.parametrize("missing", ["direction", "fractional"])
def test_dropped_conditions_equal_the_oracle(missing: str) -> None:
    shorter = 0
    for seed in range(6):
        model, rows = planted(seed, missing=missing)
        table, ground = slow_table(rows), make_row_sets(rows)
        paths = extract_paths(model, 0)
        met = find_matching_rows(paths.conditions, rows.to_matrix(), model.schema.n_levels)
        made = generalise_paths(paths, met, ground, make_rate_bound(0.25))
        starts = [0, *paths.end[:-1].tolist()]
        for i, rule in enumerate(oracle.paths(model, model.trees[0])):
            here = slice(starts[i], paths.end[i])
            assert int(paths.label[i]) == rule.label
            nodes = paths.node[here][made.kept[here]]
            shorter += len(nodes) < len(rule.questions)
            expected = oracle.dropped(table, rule, 0.25)
            assert len(nodes) == len(expected.questions)
            covered = expected.covers(table)
            own = np.bitwise_and.reduce(met[nodes], axis=0) if len(nodes) else ground.all_rows
            np.testing.assert_array_equal(
                own, pack_bits(np.isin(range(90), list(covered))[None])[0]
            )
            assert made.rate[i] == pytest.approx(oracle.rate(table, covered, rule.label, 0.25))
            conditions = paths.merge_conditions(nodes)
            assert len({asked.column for asked in conditions}) == len(conditions)
            assert bits_of(conditions, rows) == own.tolist()
    assert shorter > 20


def bits_of(conditions: tuple[ConditionTuple, ...], rows: Dataset) -> list[int]:
    """Rows that merged conditions fit, found value by value."""
    fits = np.ones(rows.n_rows, np.bool_)
    for asked in conditions:
        x = rows.to_matrix()[:, asked.column]
        known = np.isin(x, asked.fits) if asked.fits else (x > asked.low) & (x <= asked.high)
        fits &= np.where(np.isnan(x), asked.missing, known & asked.known)
    return pack_bits(fits[None])[0].tolist()


def rules_of(seed: int, n_rules: int, n_rows: int = 60) -> tuple[oracle.Table, list[oracle.Rule]]:
    """Rules for three classes that ask one or two numbers of each row."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 8, (n_rows, 3)).astype(float)
    y = np.where(rng.random(n_rows) < 0.2, rng.integers(0, 3, n_rows), (rows[:, 0] // 3))
    rules = []
    for _ in range(n_rules):
        f, low, span = rng.integers(0, 3), rng.integers(0, 7), rng.integers(1, 4)
        asks = [lambda row, f=f, low=low, span=span: low < row[f] <= low + span]
        label = int(min((low + 1) // 3, 2)) if f == 0 else int(rng.integers(0, 3))
        rules.append(oracle.Rule(asks, label, float(rng.integers(2, 9))))
    return oracle.Table(rows.tolist(), y.astype(int).tolist(), 3), rules


def packed_rules(table: oracle.Table, rules: list[oracle.Rule]) -> np.ndarray:
    members = [[rule.meets(row) for row in table.rows] for rule in rules]
    return pack_bits(np.array(members, dtype=np.bool_).reshape(len(rules), len(table.rows)))


def ground_for(table: oracle.Table, weights: np.ndarray | None = None) -> Any:
    schema = Schema((Column("a"), Column("b"), Column("c")), classes=(0, 1, 2))
    y = np.array(table.y, dtype=np.int32)
    return make_row_sets(make_coded_dataset(np.array(table.rows), y, schema, weights))


def test_selected_rules_have_the_least_description_length_of_all_subsets() -> None:
    for seed in range(3):
        table, rules = rules_of(seed, MAX_EXHAUSTIVE - 2)
        ground = ground_for(table)
        bits = np.array([rule.bits for rule in rules])
        kept = select_shortest_subset(ClassRules(packed_rules(table, rules), bits, ground, 1))
        found = oracle.length(table, [rules[i] for i in kept], 1)
        assert found == pytest.approx(oracle.best_subset(table, rules, 1), abs=1e-9)


def test_adding_or_removing_a_rule_does_not_shorten_the_description() -> None:
    sizes = []
    for seed in range(4):
        table, rules = rules_of(seed, 24)
        bits = np.array([rule.bits for rule in rules])
        kept = set(
            select_shortest_subset(
                ClassRules(packed_rules(table, rules), bits, ground_for(table), 1)
            )
        )
        sizes.append(len(kept))
        least = oracle.length(table, [rules[i] for i in kept], 1)
        for i in range(len(rules)):
            other = [rules[j] for j in kept ^ {i}]
            assert oracle.length(table, other, 1) >= least - 1e-6
        half = [rule for i, rule in enumerate(rules) if i % 2]
        assert least <= oracle.length(table, half, 1)
    assert max(sizes) > 0


@pytest.mark.parametrize("most", [None, 3])
def test_rule_order_and_length_equal_the_oracle(most: int | None) -> None:
    dropped = 0
    for seed in range(10):
        table, rules = rules_of(seed, 9)
        met, ground = packed_rules(table, rules), ground_for(table)
        label = np.array([rule.label for rule in rules])
        order = order_by_false_positives(met, label, ground)
        expected = oracle.in_order(table, rules)
        assert [rules[i] for i in order] == expected
        kept = prune_rule_list(met[order], label[order], ground, most)
        assert [expected[i] for i in kept] == oracle.shortened(table, expected, most)
        dropped += len(rules) - len(kept)
        assert most is None or len(kept) <= most
    assert dropped > 10


def test_integer_weights_equal_repeated_rows() -> None:
    model, rows = planted(3)
    weights = np.random.default_rng(0).integers(0, 4, rows.n_rows)
    once = c45rules(model, replace(rows, weights=weights.astype(float)))
    again = c45rules(model, rows.take(np.repeat(np.arange(rows.n_rows), weights)))
    assert_same(once, again)
    assert once.fidelity == again.fidelity
    assert once.accuracy == again.accuracy
    parts = c45rules(model, replace(rows, weights=weights * 0.1))
    np.testing.assert_allclose(parts.rules.support.sum(), weights.sum() * 0.1)


def test_list_has_at_most_the_requested_length_and_scores_of_given_rows() -> None:
    model, rows = planted(5, 300)
    free = c45rules(model, rows)
    for most in range(free.n_rules + 1):
        short = c45rules(model, rows, rules=most)
        assert short.n_rules <= most
        assert short.accuracy <= free.accuracy
    assert_same(short, free)
    other = planted(6, 200)[1]
    tested = c45rules(model, rows, test=other)
    assert_same(tested, free)
    right = np.mean([a == b for a, b in zip(said(tested, other.to_matrix()), other.y, strict=True)])
    assert tested.accuracy == pytest.approx(right)
    assert tested.accuracy != free.accuracy


def assert_same(one: LearnedList, other: LearnedList) -> None:
    for name in ("units", "support", "value", "end"):
        np.testing.assert_array_equal(getattr(one.rules, name), getattr(other.rules, name))
    for mine, theirs in zip(one.rules.conditions, other.rules.conditions, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def both_or_both() -> tuple[Model, Dataset]:
    """(a and b) or (c and d): a tree repeats "c and d" (Pagallo 1989)."""
    schema = Schema(
        tuple(Column(name, "nominal", ("no", "yes")) for name in "abcd"), classes=("-", "+")
    )
    rows = np.array(list(itertools.product([0.0, 1.0], repeat=4)) * 4)
    a, b, c, d = rows.T == 1
    y = (a & b) | (c & d)

    def node(asked: str, mask: np.ndarray) -> Node:
        if not asked or len(set(y[mask].tolist())) == 1:
            return leaf([int((~y[mask]).sum()), int(y[mask].sum())])
        column = rows[:, "abcd".index(asked[0])]
        sides = {lv: node(asked[1:], mask & (column == k)) for k, lv in enumerate(("no", "yes"))}
        return multiway(asked[0], sides)

    tree = build_tree(node("abcd", np.ones(len(rows), np.bool_)), schema)
    return make_model(schema, [tree]), make_coded_dataset(rows, y.astype(np.int32), schema)


def test_disjunction_is_learned_as_one_rule_per_conjunction() -> None:
    model, rows = both_or_both()
    found = c45rules(model, rows)
    assert model.n_leaves == 10
    rules = {
        (frozenset((c.column, c.levels) for c in rule.conditions), rule.label)
        for rule in found.rules
    }
    yes = ("yes",)
    assert rules == {
        (frozenset({("a", yes), ("b", yes)}), "+"),
        (frozenset({("c", yes), ("d", yes)}), "+"),
        (frozenset(), "-"),
    }
    assert (found.n_rules, found.n_conditions) == (2, 4)
    assert found.fidelity == found.accuracy == found.accuracy_of_model == 1.0
    assert str(found).splitlines() == [
        "2 rules with 4 conditions",
        "3 rules in the list, including default rules",
        "agrees with the model on 1.0000 of the rows",
        "accuracy 1.0000; the model: 1.0000",
    ]


def test_duplicate_paths_of_a_forest_give_the_rules_of_one_tree() -> None:
    model, rows = both_or_both()
    forest = make_model(model.schema, [*model.trees, *model.trees])
    assert_same(c45rules(model, rows), c45rules(forest, rows))


@pytest.mark.matrix
@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_rule_lists_of_any_model_satisfy_their_invariants(data: Any) -> None:
    model = data.draw(models(kinds={"fractional", "hard"}))
    if model.schema.task != "classification":
        model = planted(data.draw(st.integers(0, 99)))[0]
    matrix = data.draw(matrices(model))
    matrix = np.concatenate([matrix, np.zeros((1, matrix.shape[1]))])
    n, k = len(matrix), len(model.schema.classes)
    coded = (matrix >= 0) & (matrix < model.schema.n_levels) & (matrix == np.floor(matrix))
    matrix = np.where(model.schema.nominal & ~coded, NAN, matrix)
    if model.missing == "error":
        matrix = np.nan_to_num(matrix)
    with np.errstate(over="ignore"):
        matrix = matrix.astype(model.schema.dtype)
    y = np.array(data.draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n)), np.int32)
    rows = make_coded_dataset(matrix, y, model.schema)
    found = c45rules(model, rows, confidence=0.5)
    labels = found.rules.units.argmax(axis=1).tolist()
    conditions = np.diff(found.rules.end, prepend=0)
    assert found.rules.order == "first"
    assert conditions[-1] == 0
    assert (conditions[:-1] > 0).all()
    assert [c for c, _ in itertools.groupby(labels[:-1])] == list(dict.fromkeys(labels[:-1]))
    assert found.rules.support.sum() == n
    assert (found.rules.support[:-1] > 0).all()
    right = [a == b for a, b in zip(said(found, matrix), y.tolist(), strict=True)]
    assert found.accuracy == pytest.approx(np.mean(right))
    assert sum(right) >= np.bincount(y).max()  # as any class said of all rows
    assert_same(found, c45rules(model, rows, confidence=0.5))
    deployed = found.rules.model()
    np.testing.assert_array_equal(sum_leaf_values(deployed, matrix), found.rules.sums(matrix))
    assert compute_label_codes(deployed, sum_leaf_values(deployed, matrix))[:, 0].tolist() == said(
        found, matrix
    )
    again = deployed.rules()
    assert_same(found, LearnedList(again, 1.0, 1.0, 1.0))
    np.testing.assert_array_equal(again.leaf, found.rules.leaf)
    np.testing.assert_array_equal(again.as_parent, found.rules.as_parent)


def test_missing_value_matches_no_condition_unless_the_path_sends_it_there() -> None:
    split = threshold("humidity", 70.0, leaf([0, 30]), leaf([30, 0]), missing=1)
    rows = np.array([[0, 60.0 + i % 21, 0] for i in range(60)])
    y = (rows[:, 1] <= 70).astype(np.int32)
    table = make_coded_dataset(rows.astype(np.float32), y, WEATHER)
    tree = build_tree(split, WEATHER)
    for policy, fits in [("direction", [False, True]), ("fractional", [False, False])]:
        model = make_model(WEATHER, [tree], missing=policy)  # type: ignore[arg-type]
        asked = extract_paths(model, 0).conditions
        assert asked.missing[1:].tolist() == fits
        found = c45rules(model, table)
        assert found.rules.missing == "direction"
        assert not found.rules.conditions.part_low.any()
    absent = is_missing("windy", leaf([0, 9]), leaf([9, 0]))
    asked = extract_paths(
        make_model(WEATHER, [build_tree(absent, WEATHER)], missing="fractional"), 0
    )
    assert asked.merge_conditions(np.array([1])) == (
        ConditionTuple(2, missing=True, part=(0, MASS)),
    )
    assert asked.merge_conditions(np.array([2])) == (ConditionTuple(2, known=True, fits=(0, 1)),)


def test_description_lengths_equal_the_formulas() -> None:
    interval = ConditionTuple(1, 70.0, 80.0, known=True)
    sunny = ConditionTuple(0, known=True, fits=(0,))
    known = ConditionTuple(2, known=True, fits=(0, 1))
    column = np.log2(3)
    tests = [column + 1 + np.log2(9)] * 2
    assert compute_rule_bits([interval], [3, 10, 2]) == pytest.approx(sum(tests) - 1)
    tests += [column + np.log2(3), column + 1]
    expected = sum(tests) - np.log2(24)
    assert compute_rule_bits([interval, sunny, known], [3, 10, 2]) == pytest.approx(expected)
    found = compute_exception_bits(np.array([10.0, 0.0]), np.array([8.0, 0.0]), 30.0, 12.0)
    assert found == pytest.approx([np.log2(45) + np.log2(4845), np.log2(86493225)])


def test_regression_models_are_refused() -> None:
    numbers = Schema((Column("a"), Column("b")), task="regression")
    costs = [[0, 1], [2, 0]]
    two = Schema((Column("a"), Column("b")), classes=("n", "y"))
    slanted = build_tree(oblique({"a": 1.0, "b": 2.0}, 1.0, leaf([1, 0]), leaf([0, 1])), two)
    plain = build_tree(threshold("a", 1.0, leaf([1, 0]), leaf([0, 1])), two)
    asked = [Surrogate("a", 1.0, below=-1, above=1, lost=1)]
    a_list = build_tree(build.rule(asked, leaf([1, 0]), leaf([0, 1])), two)
    table = {"a": [0.0, 2.0], "b": [1.0, 1.0], "target": ["n", "y"]}
    model = make_model(two, [plain])
    for refused, word in [
        (make_model(two, [plain, slanted]), "tree 1 has oblique splits"),
        (make_model(two, [plain], costs=costs), "costs"),
        (make_model(two, [a_list]), "a rule list already"),
        (make_model(numbers, [build_tree(leaf(3.0), numbers)]), "needs a classifier"),
    ]:
        with pytest.raises(ModelError, match=word):
            c45rules(refused, table)
    for wrong in ({"confidence": 0.0}, {"confidence": 0.6}, {"rules": -1}):
        with pytest.raises(SettingError, match=next(iter(wrong))):
            c45rules(model, table, **wrong)
    with pytest.raises(DataError, match="the table of the rules"):
        c45rules(model, {"a": [1.0], "b": [1.0]})
    with pytest.raises(DataError, match="weight"):
        c45rules(model, table | {"w": [0.0, 0.0]}, weights="w")


@pytest.mark.system
def test_subscripts_of_the_kernel_that_drops_conditions_are_unsigned() -> None:
    sets, node = np.zeros((3, 1), np.uint64), np.array([1, 2])
    bound = make_rate_bound(0.25)
    kept, rates = np.zeros(2, np.bool_), np.zeros(2)
    classes = sets[:2].copy()
    row_bitsets.drop_conditions(
        sets, node, node, node - 1, classes, sets[0].copy(), rates[:0], bound, kept, rates
    )
    row_bitsets.weigh_sets(sets, rates, np.zeros(3))
    signed, checked = signed_in(row_bitsets)
    assert signed == []
    assert checked >= 4


def test_simplifier_passes_the_contract_checks() -> None:
    assert check_simplifier("c45rules").ok


def test_command_writes_a_rule_list_of_a_model_and_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    treekit.train(demo_table(), DEMO_TARGET, algorithm="c45", seed=0).save("m.treekit")
    Path("rows.csv").write_bytes(demo_table().read_bytes())

    def call(*options: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, ["simplify", "m.treekit", "rows.csv", *options])
        assert result.exit_code == code, result.output
        return result.output

    said = call("-o", "l.treekit")
    assert "written to 'l.treekit'" in said
    assert treekit.load("l.treekit").provenance["simplified"] == "c45rules"
    zh = call("-o", "l.treekit", "--lang", "zh")
    assert zh.splitlines()[0] != said.splitlines()[0]
    assert "is an input of this command" in call("-o", "rows.csv", code=2)


def test_learned_rules_equal_the_stored_ones() -> None:
    found = model_differences(
        treekit.load(model_path("learned_ordered_rules")), TRAINED["learned_ordered_rules"]()
    )
    assert not list(found)


def test_the_example_of_signed_rules_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example = Path(__file__).parents[3] / "examples" / "sign_the_rules.py"
    runpy.run_path(str(example), run_name="__main__")
    assert "bit for bit: True" in capfd.readouterr().out
