"""Rules and contributions as outputs are the model's own, for every kind of model."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference.models import mixed_schema, probe_rows, random_model, text_row
from tests.serving import put_in_service
from tests.strategies import ALL_KINDS, matrices, models
from treekit.data.features import round_to
from treekit.data.schema import Column, Schema
from treekit.errors import ModelError
from treekit.explain import explain
from treekit.model.builder import Surrogate, build_tree, leaf, oblique, rule, subset, threshold
from treekit.model.model import Model, make_model
from treekit.model.scoring import leaf_indices
from treekit.rules.extract import LeafRules, rules
from treekit.serve.errors import InvalidRequestError, TooLargeError
from treekit.serve.http.app import make_app
from treekit.serve.models import treekit_model as contributions
from treekit.serve.models import treekit_model as reasons
from treekit.serve.models.repository import Repository
from treekit.serve.models.treekit_model import Reasons, TreekitServed
from treekit.serve.scheduling import Runner, Service
from treekit.serve.settings import Limits

NAN = math.nan


def pulse_model(**policies: Any) -> Model:
    """One tree: ``pulse <= 60``, then ``pain is mild``."""
    schema = Schema(
        (Column("pulse"), Column("pain", "nominal", ("mild", "severe"))), classes=("home", "ward")
    )
    below = subset("pain", ["mild"], leaf([5, 1]), leaf([0, 6]), missing=1)
    root = threshold("pulse", 60.5, leaf([9, 0]), below, missing=0)
    return make_model(schema, [build_tree(root, schema)], **policies)


def rule_texts(model: Model, *rows: list[float]) -> list[list[str]]:
    matrix = np.array(rows, dtype=model.schema.dtype)
    texts: list[list[str]] = Reasons(model).output("rule", matrix).cells.tolist()
    return texts


# --------------------------------------------------------------------------------- rules


def test_a_rule_is_said_with_exact_numerals() -> None:
    said = rule_texts(pulse_model(), [60.5, 0], [61.0, 0], [61.0, 1], [61.0, NAN])
    assert said[0] == ["pulse <= 60.5, or is missing"]
    assert said[1] == ["pulse > 60.5 and pain is mild"]
    assert said[2] == ["pulse > 60.5; and pain is severe, or is missing"]
    assert said[3] == said[2]


def test_a_tree_of_one_leaf_always_answers() -> None:
    schema = Schema((Column("x"),), classes=("a", "b"))
    model = make_model(schema, [build_tree(leaf([1, 2]), schema)] * 2)
    assert rule_texts(model, [3.0]) == [["always", "always"]]


def test_a_list_says_the_rule_that_fired_or_otherwise() -> None:
    schema = Schema((Column("x"), Column("y")), classes=(0, 1))
    second = rule([Surrogate("y", 9.0, -1, above=1, lost=-1)], leaf([5, 1]), leaf([2, 3]))
    chain = rule([Surrogate("x", 2.5, 1, above=-1, lost=1)], leaf([1, 8]), second)
    model = make_model(schema, [build_tree(chain, schema)])
    said = rule_texts(model, [3.0, 0.0], [1.0, 9.0], [1.0, 9.5])
    assert said == [["x > 2.5"], ["y <= 9, or is missing"], ["otherwise"]]
    large = LeafRules(model, most=0)
    assert [*large.texts({0: model.trees[0].leaves.tolist()}).values()] == [own for (own,) in said]


def test_sums_of_columns_and_surrogates_are_told_in_full() -> None:
    schema = Schema((Column("x"), Column("y")), task="regression")
    root = oblique({"x": 0.1, "y": -2.0}, 1.25, leaf(1.0), leaf(2.0), missing=0)
    model = make_model(schema, [build_tree(root, schema)])
    ((below,), (above,)) = rule_texts(model, [0.0, 0.0], [90.0, 0.0])
    assert below == "(0.1 * x + -2 * y <= 1.25) holds, or is unknown"
    assert above == "(0.1 * x + -2 * y <= 1.25) fails"
    other = threshold(
        "x", 30.5, leaf(1.0), leaf(2.0), missing=1, surrogates=[Surrogate("y", 3.5, 1)]
    )
    model = make_model(schema, [build_tree(other, schema)], missing="surrogate")
    ((first,), (second,)) = rule_texts(model, [0.0, 0.0], [NAN, 1.0])
    assert first == "(x <= 30.5; if that is unknown: y > 3.5) holds"
    assert second == "(x <= 30.5; if that is unknown: y > 3.5) fails, or is unknown"


def test_a_row_that_divides_says_its_largest_part() -> None:
    model = pulse_model(missing="fractional")
    whole, divided = rule_texts(model, [50.0, NAN], [NAN, 1.0])
    assert "of the row" not in whole[0]
    assert divided[0].startswith("pulse > 60.5, or is missing: 7190235 to 16777216 (57.1%); and")
    share = 100 * 12 / 21  # of the training rows
    assert divided[0].endswith(f" [{share:.3g}% of the row, its largest part]")


CONDITION = re.compile(r"  (?:if  |and )(.*)")


def lines_of(model: Model) -> dict[tuple[int, int], list[str]]:
    """The conditions of each leaf as the text of the rules has them, by tree and node."""
    found: dict[tuple[int, int], list[str]] = {}
    listed = rules(model)
    for number, block in enumerate("".join(listed.text()).split("\n\n")[-len(listed) :]):
        lines = block.split("\n")[1:]
        own = [match[1] for line in lines if (match := CONDITION.fullmatch(line))]
        found[int(listed.tree[number]), int(listed.leaf[number])] = own
    return found


@settings(max_examples=examples(30))
@given(st.data())
def test_each_leaf_has_the_conditions_of_the_text_of_the_rules(data: st.DataObject) -> None:
    model = data.draw(models(kinds={"fractional", "outputs", "rules"}))
    wanted = {t: tree.leaves.tolist() for t, tree in enumerate(model.trees)}
    said = LeafRules(model).texts(wanted)
    expected = lines_of(model)
    assert said.keys() == expected.keys()
    for pair, conditions in expected.items():
        joined = {between.join(conditions) for between in (" and ", "; and ")}
        assert said[pair] in (joined if conditions else {"always", "otherwise"})


@settings(max_examples=examples(30))
@given(st.data())
def test_a_tree_cut_to_its_ways_says_the_same_rules(data: st.DataObject) -> None:
    model = data.draw(models(kinds=ALL_KINDS))
    matrix = data.draw(matrices(model))
    wanted = {t: sorted(set(own.tolist())) for t, own in enumerate(leaf_indices(model, matrix).T)}
    assert LeafRules(model, most=0).texts(wanted) == LeafRules(model).texts(wanted)


def test_texts_are_kept_within_bounds_and_said_again() -> None:
    model = random_model(0, mixed_schema(), n_trees=5)
    rows = np.random.default_rng(0).normal(size=(40, model.schema.n_features)) * 3
    matrix = rows.astype(np.float32)
    free, tight = Reasons(model), Reasons(model, kept=5000)
    expected = free.rules(matrix)
    for _ in range(2):
        assert (tight.rules(matrix) == expected).all()
        assert 0 < sum(map(len, tight._texts.values())) == tight._size <= 5000


def test_threads_that_ask_at_once_get_the_same() -> None:
    model = random_model(0, mixed_schema(), n_trees=8)
    matrix = (np.random.default_rng(0).normal(size=(60, model.schema.n_features)) * 3).astype("f4")
    expected = Reasons(model).rules(matrix).tolist()
    added = Reasons(model).output("contributions", matrix).cells
    own = Reasons(model, kept=2000)
    right: list[bool] = []

    def ask(start: int) -> None:
        for i in [*range(start, 60), *range(start)]:
            same = own.rules(matrix[i : i + 1]).tolist() == expected[i : i + 1]
            parts = own.output("contributions", matrix[i : i + 1]).cells
            right.append(same and bool((parts == added[i : i + 1]).all()))

    threads = [threading.Thread(target=ask, args=(10 * k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(right) == 360
    assert all(right)


# ------------------------------------------------------------------------- contributions


def text_cells(model: Model, row: np.ndarray) -> dict[str, Any]:
    return dict(zip(model.schema.names, text_row(model.schema, row.tolist()), strict=True))


@settings(max_examples=examples(30))
@given(st.data())
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_contributions_are_those_of_the_explanation(data: st.DataObject) -> None:
    model = data.draw(models(kinds=ALL_KINDS))
    matrix = data.draw(matrices(model, 3))
    why = Reasons(model)
    bias = why.output("bias", matrix).cells
    added = why.output("contributions", matrix).cells
    assert added.shape == (len(matrix), model.schema.n_features, model.schema.n_values)
    for row, own, first in zip(matrix, added, bias, strict=True):
        found = explain(model, text_cells(model, row), changes=0)
        for k, one in enumerate(found.sums):
            assert first[k] == one.number(one.bias)
            said = dict.fromkeys(model.schema.names, 0.0)
            said |= {name: one.number(units) for name, units in one.columns}
            assert own[:, k].tolist() == list(said.values())


def margins_model() -> Model:
    schema = Schema((Column("x"), Column("y")), classes=("a", "b", "c"))
    deep = threshold("y", 2.5, leaf([0.3, -1.25, 4.0], 2), leaf([0.1, 0.7, -3.0]), missing=0)
    trees = [threshold("x", at, leaf([-1.5, 0.1, 0.2], 5), deep) for at in (0.5, 1.5, 7.5)]
    built = [build_tree(root, schema, margins=True) for root in trees]
    return make_model(schema, built, combine="sum", link="softmax")


@pytest.mark.parametrize(
    "model",
    [
        margins_model(),
        random_model(9, mixed_schema(()), combine="sum", link="exp"),
        random_model(7, mixed_schema((), dtype="float64"), missing="fractional"),
        random_model(3, mixed_schema(("a", "b", "c")), voting="hard", missing="fractional"),
    ],
    ids=["margins", "link", "divided numbers", "divided votes"],
)
def test_contributions_of_sums_are_told_before_the_link(model: Model) -> None:
    rows = round_to(np.array(probe_rows(model, 4)[-8:]), model.schema.dtype)
    why = Reasons(model)
    bias, added = (why.output(name, rows).cells for name in ("bias", "contributions"))
    for row, own, first in zip(rows, added, bias, strict=True):
        for k, one in enumerate(explain(model, text_cells(model, row), changes=0).sums):
            assert first[k] == one.number(one.bias)
            said = {name: one.number(units) for name, units in one.columns}
            names = model.schema.names
            assert own[:, k].tolist() == [said.get(name, 0.0) for name in names]
            total = one.number(one.total)
            assert first[k] + own[:, k].sum() == pytest.approx(total, abs=1e-6, rel=1e-6)


@settings(max_examples=examples(30))
@given(st.data())
def test_climbing_all_trees_at_once_adds_what_walking_each_row_does(data: st.DataObject) -> None:
    model = data.draw(models(kinds={"outputs", "hard", "costs"}))
    matrix = data.draw(matrices(model))
    added = contributions.Added(model)
    assert added._climb is not None
    assert (added._climb.climbed(matrix) == added._walked(matrix)).all()


def test_contributions_of_a_hand_made_tree_are_the_changes_along_the_way() -> None:
    model = pulse_model()
    why = Reasons(model)
    matrix = np.array([[70.0, 1.0]], dtype=np.float32)
    (bias,) = why.output("bias", matrix).cells.tolist()
    (added,) = why.output("contributions", matrix).cells.tolist()
    # The mean of the leaves: 9 of 21 rows are home; of the 12 others 5/6 of 6.
    below = 5 / 12
    assert bias == pytest.approx([14 / 21, 7 / 21], abs=1e-6)
    assert added[0] == pytest.approx([below - 14 / 21, 14 / 21 - below], abs=1e-6)
    assert added[1] == pytest.approx([-below, below], abs=1e-6)
    total = np.array(bias) + np.array(added).sum(axis=0)
    assert total == pytest.approx(model.predict_proba([{"pulse": 70, "pain": "severe"}])[0])


def test_contributions_that_do_not_add_up_are_never_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pulse_model()
    added = contributions.Added(model)
    climb = added._climb
    assert climb is not None
    monkeypatch.setattr(climb, "_change", climb._change + 1)
    with pytest.raises(ModelError, match="a fault of treekit"):
        added.contributions(np.array([[70.0, 1.0]], dtype=np.float32))


def test_sums_beyond_64_bits_are_walked_in_whole_numbers() -> None:
    model = random_model(8, mixed_schema(()))
    units = contributions.Added(model)._units
    assert contributions._is_plain(model, units)
    assert not contributions._is_plain(model, [own * 0 + (1 << 60) for own in units])


# ---------------------------------------------------------------------- as outputs served


def test_answers_that_would_be_huge_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pulse_model()
    matrix = np.zeros((3, 2), np.float32)
    monkeypatch.setattr(reasons, "_MOST_TEXT", 60)
    monkeypatch.setattr(reasons, "_MOST_CELLS", 11)
    for name in ("rule", "contributions"):
        with pytest.raises(TooLargeError, match="fewer rows"):
            Reasons(model).output(name, matrix)
        Reasons(model).output(name, matrix[:2])
    with pytest.raises(InvalidRequestError, match="no reason 'rules'"):
        Reasons(model).output("rules", matrix)


def test_the_protocol_answers_reasons_that_are_asked_for_within_their_bound() -> None:
    served = TreekitServed("pulse", "1", "d" * 64, pulse_model())
    service = Service(one_model(served), Runner(Limits(explained_rows=2)))

    async def ask(rows: int, *names: str) -> httpx.Response:
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            inputs = [
                {"name": "pulse", "datatype": "FP32", "shape": [rows], "data": [70.0] * rows},
                {"name": "pain", "datatype": "BYTES", "shape": [rows], "data": ["mild"] * rows},
            ]
            outputs = [{"name": name} for name in names]
            content = json.dumps({"inputs": inputs, "outputs": outputs})
            return await client.post("/v2/models/pulse/infer", content=content)

    answer = asyncio.run(ask(2, "rule", "bias", "contributions", "label"))
    assert answer.status_code == 200
    outputs = {output["name"]: output for output in answer.json()["outputs"]}
    assert outputs["rule"]["shape"] == [2, 1]
    assert outputs["rule"]["data"] == ["pulse > 60.5 and pain is mild"] * 2
    assert outputs["contributions"]["shape"] == [2, 2, 2]
    assert outputs["bias"]["shape"] == [2, 2]
    parts = np.array(outputs["contributions"]["data"]).reshape(2, 2, 2).sum(axis=1)
    total = parts + np.array(outputs["bias"]["data"]).reshape(2, 2)
    assert total == pytest.approx(np.array([[5 / 6, 1 / 6]] * 2))
    assert outputs["label"]["data"] == ["home", "home"]
    for name in ("rule", "bias", "contributions"):
        refused = asyncio.run(ask(3, name))
        assert refused.status_code == 413
        assert name in refused.json()["error"]


def one_model(served: TreekitServed) -> Repository:
    """A repository that holds one model and no file."""
    repository = Repository([])
    put_in_service(repository, served)
    return repository
