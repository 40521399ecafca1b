"""Faults in artifacts are detected exactly if some input shows them.

Whether a fault can show at all is decided without `verify`: the models are so
small that the slow oracle and the faulty artifact can be compared on the full
grid of cells that all thresholds and their neighbours make, times all levels,
an unseen category and missing values.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from functools import cache

import numpy as np
import pytest

from tests.reference import evaluate
from tests.reference.models import random_model
from tests.reference.mutants import beside, moved, onnx_mutants, rules_mutants, source_mutants
from tests.reference.mutants_wide import c_mutants, graph_mutants, python_mutants, text_mutants
from tests.verify.models import SCHEMA, divided_model, sums_model, surrogates_model
from treekit.data.schema import Column, Schema
from treekit.errors import VerificationError
from treekit.export import export
from treekit.model.builder import Surrogate, build_tree, leaf, oblique, rule, threshold
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import make_model, predict_labels
from treekit.model.tree import Split
from treekit.verify import verify
from treekit.verify.answers import Answers, differing
from treekit.verify.run_artifact import find_runner

# ---------------------------------------------------------------- mutants

pytestmark = pytest.mark.matrix

COLUMNS = (Column("x"), Column("colour", "nominal", ("red", "green", "blue")), Column("y"))


@cache
def model_of(task, seed):
    classes = ("no", "yes", "perhaps") if task == "classes" else ()
    settings = {} if classes else {"task": "regression"}
    schema = Schema(COLUMNS, classes=classes, **settings)
    return random_model(seed, schema, n_trees=2, n_splits=7)


@cache
def grid_of(task, seed):
    """Every cell that the model or a fault in one threshold can tell apart, and the answers."""
    model = model_of(task, seed)
    axes = [axis(model, f) for f in range(len(COLUMNS))]
    rows = np.array(list(itertools.product(*axes)))
    sums = np.array([evaluate.sums(model, row) for row in rows.tolist()])
    if task == "classes":
        number = sums / model.unit_total
        return rows, Answers(sums.argmax(axis=1)[:, None], number)
    number = np.ldexp(sums / model.n_trees, model.exponent)
    return rows, Answers(np.zeros((len(rows), 1), dtype=np.int64), number)


def axis(model, feature):
    if COLUMNS[feature].kind == "nominal":
        return [math.nan, 0.0, 1.0, 2.0, 3.0]
    bounds = set()
    for tree in model.trees:
        for t in tree.threshold[(tree.kind == Split.THRESHOLD) & (tree.feature == feature)]:
            edge = float(to_double_threshold(t))
            bounds |= {edge, *moved(edge)}
    # One number in each cell (a, b] between neighbouring bounds: b itself.
    return [math.nan, -math.inf, *sorted(bounds), math.inf]


def shows(path, task, seed):
    """Whether the artifact differs from the oracle anywhere on the grid."""
    rows, right = grid_of(task, seed)
    model = model_of(task, seed)
    try:
        for _, given in find_runner(path).run_rows(path, model.schema, rows):
            n = len(given.label)
            if len(differing(Answers(right.label[:n], right.number[:n]), given)):
                return True
    except VerificationError:
        return True
    return False


def spread(mutants, most):
    """Up to `most` mutants: of every sort of fault as many as there are, and all over the file."""
    rng = np.random.default_rng(0)
    sorts = {}
    for place in rng.permutation(len(mutants)):
        sorts.setdefault(mutants[place][0], []).append(mutants[place])
    by_turns = itertools.zip_longest(*sorts.values())
    return [mutant for turn in by_turns for mutant in turn if mutant is not None][:most]


def checked(mutants, path, task, seed, most):
    """Verify the artifact and up to `most` mutants in one go; counts of (fault, shows)."""
    chosen = spread(list(mutants), most)
    paths = written(chosen, path)
    report = verify(model_of(task, seed), [path, *paths], random_rows=100)
    # On these rows it is the model: so a mutant that differs on them shows what it is.
    assert report.artifacts[0].equal
    assert not shows(path, task, seed)
    counts = Counter()
    for (fault, _), mutant, result in zip(chosen, paths, report.artifacts[1:], strict=True):
        assert not result.equal or not shows(mutant, task, seed), f"{fault} in {mutant}\n{report}"
        counts[fault, not result.equal] += 1
    return counts


def written(chosen, path):
    """A folder for each mutant, with its file and what stands beside it."""
    paths = []
    for i, (_, content) in enumerate(chosen):
        place = path.parent / str(i)
        place.mkdir()
        (place / path.name).write_bytes(content)
        header = path.with_suffix(".h")
        if path.suffix == ".c":
            (place / header.name).write_bytes(header.read_bytes())
        paths.append(place / path.name)
    return paths


CASES = [
    ("onnx", {}, onnx_mutants, "classes", 20, 70),
    ("onnx", {}, onnx_mutants, "classes", 40, 70),
    ("onnx", {}, onnx_mutants, "value", 8, 90),
    ("rules", {}, rules_mutants, "classes", 20, 70),
    ("rules", {}, rules_mutants, "value", 40, 70),
    ("python", {"form": "if_else"}, source_mutants, "classes", 20, 45),
    ("python", {"form": "table"}, source_mutants, "value", 8, 45),
    ("c", {"form": "if_else"}, source_mutants, "classes", 40, 20),
    ("c", {"form": "table"}, source_mutants, "value", 20, 20),
]


@pytest.mark.parametrize(("target", "form", "mutate", "task", "seed", "most"), CASES)
def test_faults_are_detected_exactly_if_some_input_shows_them(
    tmp_path, target, form, mutate, task, seed, most
):
    path = export(model_of(task, seed), target, tmp_path / "model", **form)[0]
    content = path.read_bytes()
    mutants = mutate(content if target == "onnx" else content.decode())
    counts = checked(mutants, path, task, seed, most)
    assert 0.9 * most <= sum(counts.values()) <= most
    assert {fault for fault, _ in counts} == {"threshold", "leaf", "missing", "category"}
    caught = {fault: n for (fault, visible), n in counts.items() if visible}
    assert sum(caught.values()) >= most // 2
    assert len(caught) == 4
    assert min(caught.values()) >= most // 12


# ---------------------------------------------------------------- mutants wide
# Faults in what artifacts say of sums, surrogates, divided rows and costs are seen.
#
# What inputs can show is tried without `verify`: a model is so small that single
# columns can be tried around all their thresholds, and one number of a sum
# solved for many values of the others.

COSTS = np.array([[0, 3, 2], [7, 0, 1], [1, 2, 0]])


def costs_model():
    schema = SCHEMA.__class__(SCHEMA.columns, classes=("no", "yes", "perhaps"))
    rng = np.random.default_rng(2)

    def tree(depth):
        if depth == 0:
            return leaf(np.eye(3)[rng.integers(3)].tolist())  # few votes: single costs decide
        return threshold(int(rng.integers(2)), float(rng.integers(-4, 5)), tree(depth - 1),
                         tree(depth - 1), missing=int(rng.integers(2)))  # fmt: skip

    trees = [build_tree(tree(4), schema) for _ in range(3)]
    return make_model(schema, trees, costs=COSTS)


def mixed_model():
    """Sums and surrogates in several trees, answers weighed by costs."""
    long = oblique({"x": 0.4, "y": -0.9}, 1 / 3, leaf([1, 5]), leaf([7, 2]), missing=0)
    trees = [*surrogates_model().trees, *sums_model().trees, build_tree(long, SCHEMA)]
    return make_model(SCHEMA, trees, missing="surrogate", costs=np.array([[0, 3], [2, 0]]))


def listed_model():
    """An ordered list, and lists of one rule, of conditions of every sort."""

    def colours(*others, lost):
        return Surrogate("colour", levels=dict.fromkeys(others, 1), lost=lost)

    def at_least(name, at, lost):
        return Surrogate(name, at, below=1, above=-1, lost=lost)

    def at_most(name, at, lost):
        return Surrogate(name, at, below=-1, above=1, lost=lost)

    gone, known = Surrogate("y", 0.0, 1, above=1), Surrogate("y", 0.0, -1, above=-1, lost=1)
    node = rule([known], leaf([1, 6]), leaf([3, 2]))
    node = rule([at_most("y", 0.25, -1), colours("green", lost=-1)], leaf([5, 2]), node)
    node = rule([gone, colours("red", "blue", lost=1)], leaf([4, 1]), node)
    node = rule([at_least("x", -1.5, 1), at_most("x", 2.5, 1)], leaf([0, 7]), node)
    other = rule([at_least("y", 1.25, -1), colours("red", lost=1)], leaf([9, 1]), leaf([2, 3]))
    return make_model(SCHEMA, [build_tree(node, SCHEMA), build_tree(other, SCHEMA)])


MODELS = {
    "listed": listed_model,
    "sums": sums_model,
    "surrogates": surrogates_model,
    "divided": divided_model,
    "costs": costs_model,
    "mixed": mixed_model,
}


@cache
def mutants_wide_model_of(name):
    return MODELS[name]()


@cache
def tried(name):
    """Rows around everything that the model asks, and the right answers."""
    model, rng = mutants_wide_model_of(name), np.random.default_rng(0)
    axes = [*(mutants_wide_axis(model, f) for f in (0, 1)), [math.nan, 0.0, 1.0, 2.0]]
    rows = np.array(list(itertools.product(*axes)))
    if len(rows) > 4000:
        rows = rows[rng.permutation(len(rows))[:4000]]
    rows = np.concatenate([rows, *(solved(tree, rows[:400], rng) for tree in model.trees)])
    total = np.array([evaluate.sums(model, row) for row in rows.tolist()])
    return rows, Answers(
        predict_labels(total, model.label_costs)[:, None], total / model.unit_total
    )


def mutants_wide_axis(model, feature):
    bounds = {0.0, 1.0, -1.0}
    for tree in model.trees:
        asked = tree.threshold[(tree.kind == 1) & (tree.feature == feature)]
        instead = tree.surrogate_threshold[tree.surrogate_feature == feature]
        for t in [*asked.tolist(), *instead[~np.isnan(instead)].tolist()]:
            bounds |= {t, *beside(t)}
    return [math.nan, -math.inf, *sorted(bounds), math.inf]


def solved(tree, rows, rng):
    """Rows with one number of a sum such that the sum nearly is the threshold."""
    found = [rows[:0]]
    for node in np.flatnonzero(np.diff(tree.term_offsets)):
        terms = slice(tree.term_offsets[node], tree.term_offsets[node + 1])
        columns, weights = tree.term_feature[terms], tree.term_weight[terms]
        made = rows.copy()
        made[:, columns] = np.float32(rng.normal(size=(len(rows), len(columns))) * 3)
        k = int(rng.integers(len(columns)))
        others = made[:, columns] @ weights - made[:, columns[k]] * weights[k]
        exact = np.float32((tree.threshold[node] - others) / weights[k])
        for step in (-1, 0, 1):
            moved = made.copy()
            moved[:, columns[k]] = exact + step * np.spacing(exact)
            found.append(moved)
    return np.concatenate(found)


def mutants_wide_shows(path, name):
    rows, right = tried(name)
    try:
        answers = [
            given
            for _, given in find_runner(path).run_rows(
                path, mutants_wide_model_of(name).schema, rows
            )
        ]
    except VerificationError:
        return True
    return any(
        len(differing(Answers(right.label[: len(a.label)], right.number[: len(a.label)]), a))
        for a in answers
    )


MUTANTS_WIDE_CASES = [
    ("listed", "c", "table", c_mutants, {"surrogate"}, 10),
    ("listed", "python", "if_else", python_mutants, {"surrogate", "weight"}, 30),
    ("listed", "onnx", None, graph_mutants, {"surrogate", "weight", "threshold"}, 30),
    ("listed", "rules", None, text_mutants, {"surrogate"}, 20),
    ("sums", "c", "if_else", c_mutants, {"weight", "threshold"}, 10),
    ("sums", "python", "table", python_mutants, {"weight", "threshold", "surrogate"}, 26),
    ("sums", "onnx", None, graph_mutants, {"weight", "threshold", "surrogate"}, 26),
    ("sums", "rules", None, text_mutants, {"weight", "threshold", "surrogate"}, 26),
    ("surrogates", "c", "table", c_mutants, {"surrogate"}, 10),
    ("surrogates", "python", "if_else", python_mutants, {"surrogate", "weight"}, 26),
    ("surrogates", "rules", None, text_mutants, {"surrogate"}, 15),
    ("divided", "c", "table", c_mutants, {"share"}, 10),
    ("divided", "python", "table", python_mutants, {"share"}, 24),
    ("divided", "rules", None, text_mutants, {"share"}, 36),
    ("costs", "c", "if_else", c_mutants, {"cost"}, 8),
    ("costs", "python", "table", python_mutants, {"cost"}, 15),
    ("costs", "rules", None, text_mutants, {"cost"}, 15),
    ("mixed", "python", "table", python_mutants, {"weight", "threshold", "surrogate", "cost"}, 30),
    ("mixed", "onnx", None, graph_mutants, {"weight", "threshold", "surrogate", "cost"}, 60),
    ("mixed", "rules", None, text_mutants, {"weight", "threshold", "surrogate", "cost"}, 60),
]


@pytest.mark.parametrize(("name", "target", "form", "mutate", "faults", "most"), MUTANTS_WIDE_CASES)
def test_faults_shown_by_some_input_are_detected(
    tmp_path, name, target, form, mutate, faults, most
):
    model = mutants_wide_model_of(name)
    settings = {"form": form} if form else {}
    path = export(model, target, tmp_path / "model", **settings)[0]
    content = path.read_bytes()
    chosen = spread(list(mutate(content if target == "onnx" else content.decode())), most)
    paths = written(chosen, path)
    report = verify(model, [path, *paths], random_rows=100)
    assert report.artifacts[0].equal, str(report)
    assert not mutants_wide_shows(path, name)
    assert {fault for fault, _ in chosen} == faults
    caught, missed = Counter(), Counter()
    for (fault, _), mutant, result in zip(chosen, paths, report.artifacts[1:], strict=True):
        assert not result.equal or not mutants_wide_shows(mutant, name), (
            f"{fault} in {mutant}\n{report}"
        )
        (missed if result.equal else caught)[fault] += 1
    # The label alone tells of a cost: few inputs lie where one by one decides.
    assert all(2 * caught[fault] >= missed[fault] for fault in faults - {"cost"}), (caught, missed)
    assert caught.keys() | {"cost"} >= faults
