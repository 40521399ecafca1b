"""The shared list of extreme models says what the definition says, and its rows tell."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.extremes import EXTREMES, extreme_rows, refused, wanted
from tests.reference import evaluate
from tests.tiers import by_size
from treekit.verify.answers import REFUSED


@pytest.mark.parametrize("name", by_size(EXTREMES))
def test_what_is_wanted_of_a_model_is_what_the_definition_says(name):
    model = EXTREMES[name]()
    assert EXTREMES[name]() is model
    rows = extreme_rows(model, most=60)
    some = rows[np.random.default_rng(0).permutation(len(rows))[:12]]
    answers = wanted(model, some)
    assert ((answers.label == REFUSED).all(axis=1) == refused(model, some)).all()
    for i, row in enumerate(some.tolist()):
        try:
            said = evaluate.predict(model, row)
        except evaluate.Refused:
            assert (answers.label[i] == REFUSED).all()
            continue
        said = said if model.schema.more else [said]
        if model.schema.task == "regression":
            assert answers.number[i].tolist() == said
        else:
            assert answers.label[i].tolist() == said
            assert answers.number[i].tolist() == evaluate.probabilities(model, row)


@pytest.mark.matrix
def test_the_rows_tell_many_of_the_leaves_apart():
    for name, make in EXTREMES.items():
        model = make()
        rows = extreme_rows(model)
        told = wanted(model, rows)
        answers = {tuple(bits) for bits in told.number.view(np.int64).tolist()}
        votes = {tuple(units) for units in model.units.tolist()}
        assert len(answers) >= min(len(votes) // 2 + 1, 15), name
        assert np.isnan(rows).all(axis=1).any()


def test_the_list_holds_every_policy_and_kind_of_answer():
    models = [make() for make in EXTREMES.values()]
    tasks, dtypes = ("classification", "regression"), ("float32", "float64")
    assert {(m.schema.task, m.schema.dtype) for m in models} == set(
        itertools.product(tasks, dtypes)
    )
    assert {m.missing for m in models} == {"direction", "fractional", "surrogate", "error"}
    assert {m.voting for m in models} == {"soft", "hard"}
    assert {m.combine for m in models} == {"mean", "sum"}
    assert {m.link for m in models} == {"identity", "exp", "sigmoid", "softmax"}
    assert {len(m.schema.outputs) for m in models} >= {1, 2, 3}
