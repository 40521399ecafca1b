"""The proof itself proved: faults in artifacts are seen exactly if an input can show them.

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
from tests.reference.mutants import moved, onnx_mutants, rules_mutants, source_mutants
from treekit.data.schema import Column, Schema
from treekit.errors import VerificationError
from treekit.export import export
from treekit.model.fixed_point import double_threshold
from treekit.model.tree import Split
from treekit.verify import verify
from treekit.verify.answers import Answers, differing
from treekit.verify.run_artifact import runner_of

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
            edge = float(double_threshold(t))
            bounds |= {edge, *moved(edge)}
    # One number in each cell (a, b] between neighbouring bounds: b itself.
    return [math.nan, -math.inf, *sorted(bounds), math.inf]


def shows(path, task, seed):
    """Whether the artifact differs from the oracle anywhere on the grid."""
    rows, right = grid_of(task, seed)
    model = model_of(task, seed)
    try:
        for _, given in runner_of(path).run(path, model.schema, rows):
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
def test_a_fault_is_caught_exactly_if_some_input_shows_it(
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
