"""C source of every extreme model, in every form and arithmetic, in few programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from tests.extremes import EXTREMES, extreme_rows, refused, wanted
from tests.reference.artifacts import Compiled, compile_together
from tests.tiers import by_size
from treekit.errors import ExportError
from treekit.export.c import export_c
from treekit.model.model import Model
from treekit.model.scoring import leaf_indices, sums
from treekit.verify.answers import Answers

WAYS = {
    "table": {"form": "table"},
    "if_else": {"form": "if_else"},
    "float": {"form": "table", "input": "float"},
    "float_if_else": {"form": "if_else", "input": "float"},
    "integer": {"form": "table", "arithmetic": "integer"},
    "integer_if_else": {"form": "if_else", "arithmetic": "integer"},
    "hybrid": {"form": "hybrid"},
    "integer_hybrid": {"form": "hybrid", "arithmetic": "integer"},
}
MOST_NODES = 400
"""Larger models are written as nested tests in one way only: compilers take their time."""


def refusal(model: Model, way: str) -> str | None:
    """A word of the reason for which a model has no such source."""
    if model.missing == "fractional" and way.endswith(("if_else", "hybrid")):
        return "rows divide"
    if model.schema.dtype == "float64" and "float" in way:
        return "would round"
    sums_of_columns = any(
        (np.diff(tree.term_start) > 1).any() or (tree.term_weight != 1.0).any()
        for tree in model.trees
    )
    return "oblique" if sums_of_columns and "integer" in way else None


def sources(names: Sequence[str], each: int) -> Iterator[tuple[str, str, str]]:
    """File, model and way of every source: each model as a table and in `each` ways by turns."""
    others = [way for way in WAYS if way != "table"]
    for number, name in enumerate(names):
        model = EXTREMES[name]()
        by_turns = (others * 2)[number % len(others) :][:each]
        for way in ("table", *by_turns):
            large = model.n_nodes > MOST_NODES and way.endswith(("_if_else", "hybrid"))
            if refusal(model, way) is None and not large:
                yield f"m{number}_{way}", name, way


FEW = (
    *("one_leaf", "one_class", "vanishing", "several_labels", "several_numbers", "oblique"),
    *("surrogates", "fractional", "costs", "refuses_both", "boosted_four", "boosted_each"),
    *("linked_means", "float32_extremes"),
)
"""One of each kind."""


# Groups, as starting compilers takes time, and those of one group would start many.
@pytest.mark.parametrize(
    ("names", "each"),
    [
        pytest.param(FEW, 3, id="few"),
        *(
            pytest.param(tuple(EXTREMES)[k::4], 7, id=f"all {k}", marks=pytest.mark.matrix)
            for k in range(4)
        ),
    ],
)
def test_extreme_models_give_their_bits_and_leaves_in_every_way(names, each, tmp_path):
    named = list(sources(names, each))
    programs = compile_together(
        {file: (EXTREMES[name](), WAYS[way]) for file, name, way in named}, tmp_path
    )
    assert {name for _, name, way in named if way == "table"} == set(names)
    rows_of = {name: extreme_rows(EXTREMES[name]()) for name in names}
    wanted_of = {name: wanted(EXTREMES[name](), rows) for name, rows in rows_of.items()}
    for file, name, way in named:
        gives_its_bits(programs[file], rows_of[name], wanted_of[name], f"{name}, {way}")
        tells_its_leaves(programs[file], rows_of[name][::9], f"{name}, {way}")


def gives_its_bits(program: Compiled, rows: np.ndarray, answers: Answers, what: str) -> None:
    gone = refused(program.model, rows)
    labels, out = program.answers(rows)
    assert np.array_equal(labels, answers.label[:, : labels.shape[1]]), what
    if program.number == np.float64:
        bits = out[~gone].view(np.int64) == answers.number[~gone].view(np.int64)
        assert bits.all(), what
    else:
        assert np.array_equal(out[~gone], sums(program.model, rows[~gone])), what
    assert (out[gone] == -77).all(), what


def tells_its_leaves(program: Compiled, rows: np.ndarray, what: str) -> None:
    model = program.model
    if model.missing == "fractional":
        with pytest.raises(AttributeError):
            program.leaves(rows)
        return
    gone = refused(model, rows)
    told = program.leaves(rows)
    assert np.array_equal(told[~gone], leaf_indices(model, rows[~gone])), what
    assert (told[gone] == -1).all(), what


@pytest.mark.parametrize("name", by_size(EXTREMES))
def test_what_a_source_cannot_hold_is_refused_by_its_reason(name):
    for way, settings in WAYS.items():
        reason = refusal(EXTREMES[name](), way)
        if reason:
            with pytest.raises(ExportError, match=reason):
                export_c(EXTREMES[name](), "m", **settings)
