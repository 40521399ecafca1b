"""PMML answers as the model does: labels, probabilities to the bit, and which rule it was."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.reference.models import mixed_schema, random_model, text_row
from tests.reference.rule_fits import fitting
from tests.runtimes import JAVA, need
from tests.test_hostile_names import HOSTILE
from treekit.data.schema import Column, Schema
from treekit.documents import Listing, written
from treekit.documents.pmml import Xml, holds, visible
from treekit.errors import SettingError
from treekit.model.builder import Node, build_tree, leaf, multiway, subset, threshold
from treekit.model.model import Model, make_model
from treekit.rules import RuleList
from treekit.rules.measure import training_measures
from treekit.rules.rule_list import ConditionTable

HERE = Path(__file__).parent
COSTS = [[0, 3, 1], [2, 0, 4], [5, 1, 0]]


def one_tree(**policies: Any) -> Model:
    schema = Schema(mixed_schema().columns[:4], classes=("a", "b", "c"))
    return make_model(schema, random_model(2, schema, 1, 20).trees, **policies)


def hostile(n_trees: int, most: int) -> Model:
    """Hostile names, categories and labels, as far as XML can hold them."""
    texts = tuple(text for text in HOSTILE if holds(text))[:most]
    schema = Schema(
        (*map(Column, texts), Column("levels", "nominal", texts)), classes=texts, target=texts[0]
    )

    def only(k: int) -> Node:
        return leaf([float(k == j) for j in range(len(texts))])

    named = multiway("levels", {text: only(k) for k, text in enumerate(texts)})
    halves = subset("levels", texts[::2], named, leaf([1.0] * len(texts)))
    roots = [threshold(k, 0.5, halves, only(k)) for k in range(1, 1 + n_trees)]
    return make_model(schema, [build_tree(root, schema) for root in roots])


def tied() -> Model:
    schema = Schema((Column("x"),), classes=("a", "b", "c"))
    roots = [
        threshold(0, float(k), leaf(own), leaf(own[::-1]))
        for k, own in enumerate(([0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]))
    ]
    return make_model(schema, [build_tree(root, schema) for root in roots])


MODELS: dict[str, Callable[[], Model]] = {
    name: EXTREMES[name]
    for name in (
        *("one_leaf", "one_number", "one_class", "unused_features", "float32_extremes"),
        *("float64_extremes", "float32_neighbours", "many_levels_in_two"),
        *("missing_only", "vanishing", "mark_levels", "hard_voting", "refuses_missing"),
        *("refuses_unseen", "refuses_both", "wide_numbers", "wide_sums", "bool_labels"),
        *("float_labels", "mixed", "mixed64_numbers"),
    )
} | {
    "one_tree": one_tree,
    "one_tree_of_costs": lambda: one_tree(costs=COSTS),
    "one_tree_refusing_missing": lambda: one_tree(missing="error"),
    "one_tree_refusing_unseen": lambda: one_tree(unknown="error"),
    "hostile": lambda: hostile(1, 40),
    "hostile_forest": lambda: hostile(2, 5),
    "tied": tied,
}
LISTS = [name for name, make in MODELS.items() if make().n_trees == 1 and make().schema.classes]


def pmml(model: Model, form: str = "pmml") -> str:
    rules = model.rules()
    return "".join(written(form, Listing(rules, training_measures(rules), model=model)))


def ordered() -> RuleList:
    """Rules that overlap: each asks the half of its conditions, the last one nothing."""
    rules = one_tree().rules()
    starts = np.append(0, rules.end[:-1])
    sizes = (rules.end - starts + 1) // 2
    sizes[-1] = 0
    table, kept = (
        rules.conditions,
        np.concatenate([np.arange(a, a + n) for a, n in zip(starts, sizes, strict=True)]),
    )
    levels = [table.codes(at)[0] for at in kept]
    own = {name: getattr(table, name)[kept] for name in table._fields[:-2]}
    conditions = ConditionTable(
        **own,
        level_end=np.cumsum([len(codes) for codes in levels]),
        levels=np.concatenate(levels).astype(np.int32),
    )
    return replace(rules, order="first", end=np.cumsum(sizes), conditions=conditions)


def some_rows(model: Model) -> Any:
    rows = extreme_rows(model)
    return rows[:: max(len(rows) // 50, 1)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """Documents of all models, as trees and as rule sets."""
    folder, made = tmp_path_factory.mktemp("pmml"), {}
    for form, names in (("pmml", list(MODELS)), ("pmml-rules", LISTS)):
        for name in names:
            made[form, name] = folder / f"{name}.{form}.pmml"
            made[form, name].write_bytes(pmml(MODELS[name](), form).encode())
    made["ordered", "one_tree"] = folder / "ordered.pmml"
    text = "".join(written("pmml-rules", Listing(ordered(), training_measures(ordered()))))
    made["ordered", "one_tree"].write_bytes(text.encode())
    return made


@pytest.fixture(scope="module")
def engine(files: dict[tuple[str, str], Path]) -> dict[tuple[str, str], Any]:
    """What the public engine answers, all in one process."""
    need("java", "jpmml_evaluator")
    jobs = []
    for (_, name), path in files.items():
        model = MODELS[name]()
        cells = [text_row(model.schema, row) for row in some_rows(model)]
        data = [list(column) for column in zip(*cells, strict=True)]
        jobs.append({"file": str(path), "columns": model.schema.names, "data": data})
    done = subprocess.run(
        [sys.executable, HERE / "pmml_engine.py"],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=False,
        env=JAVA,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(files, json.loads(done.stdout), strict=True))


@pytest.mark.system
@pytest.mark.parametrize("name", MODELS)
def test_trees_answer_the_same_labels_and_bits(
    name: str, engine: dict[tuple[str, str], Any]
) -> None:
    model, said = MODELS[name](), engine["pmml", name]
    assert "error" not in said, said
    answers, errors = wanted(model, some_rows(model)), said.pop("errors")
    columns = list(said.values())
    classes = model.schema.classes
    for row, code in enumerate(answers.label[:, 0].tolist()):
        if code < 0:
            assert errors[row], "the engine refuses what the model refuses"
            continue
        assert not errors or not errors[row], errors[row]
        given = [column[row] for column in columns][: 1 + len(classes)]
        numbers = answers.number[row].tolist()
        assert given == ([classes[code], *numbers] if classes else numbers)


@pytest.mark.system
@pytest.mark.parametrize("name", LISTS)
def test_rule_sets_answer_by_the_rule_that_fits(
    name: str, engine: dict[tuple[str, str], Any]
) -> None:
    model, said = MODELS[name](), engine["pmml-rules", name]
    assert "error" not in said, said
    rules, errors = model.rules(), said.pop("errors")
    fits = fitting(rules, some_rows(model))
    labels, entities = list(said.values())
    for row, own in enumerate(fits):
        if not own.any():
            assert errors[row], "the engine refuses what the model refuses"
            continue
        assert [int(entities[row]) - 1] == np.flatnonzero(own).tolist()
        assert labels[row] == rules[int(np.argmax(own))].label


@pytest.mark.system
def test_documents_are_valid_against_the_schema_of_pmml(
    files: dict[tuple[str, str], Path], tmp_path: Path
) -> None:
    need("java", "jpmml_evaluator")
    spec = importlib.util.find_spec("jpmml_evaluator")
    assert spec is not None
    assert spec.origin is not None
    (jar,) = (Path(spec.origin).parent / "dependencies").glob("pmml-model-[0-9]*.jar")
    with zipfile.ZipFile(jar) as archive:
        archive.extract("pmml.xsd", tmp_path)
    done = subprocess.run(
        ["java", HERE / "node/Validate.java", tmp_path / "pmml.xsd", *files.values()],
        capture_output=True,
        text=True,
        check=False,
        env=JAVA,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.system
def test_the_first_rule_that_is_met_answers_where_order_counts(
    engine: dict[tuple[str, str], Any],
) -> None:
    rules, said = ordered(), engine["ordered", "one_tree"]
    fits = fitting(rules, some_rows(one_tree()))
    assert fits.sum(axis=1).max() > 1
    _, entities = [column for name, column in said.items() if name != "errors"]
    assert [int(entity) - 1 for entity in entities] == fits.argmax(axis=1).tolist()


@pytest.mark.parametrize(
    ("name", "form", "message"),
    [
        ("oblique", "pmml", "single columns"),
        ("surrogates", "pmml", "single columns"),
        ("fractional", "pmml", "cannot divide rows"),
        ("boosted_four", "pmml", "margins and links"),
        ("costs", "pmml", "least cost"),
        ("several_labels", "pmml", "has one target"),
        ("deep_right", "pmml", "depth 3000"),
        ("int_labels", "pmml", "beyond an integer"),
        ("hostile_names", "pmml", "XML 1.0 cannot"),
        ("mixed", "pmml-rules", "rules of 3 trees"),
        ("one_number", "pmml-rules", "answers classes"),
    ],
)
def test_what_pmml_cannot_say_exactly_is_refused_by_name(
    name: str, form: str, message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        pmml(EXTREMES[name](), form)


def test_trees_need_the_model() -> None:
    rules = one_tree().rules()
    with pytest.raises(SettingError, match="only rules"):
        list(written("pmml", Listing(rules, training_measures(rules))))


def test_xml_holds_what_it_is_given_or_shows_it() -> None:
    from xml.etree import ElementTree as ET

    text = "a\r\n\t<b a='1'>&amp;]]>--><!-- \u2028\u202e\x85\U0001f600\""
    xml = Xml()
    xml.begin("root", {"name": text})
    xml.leaf("text", text)
    xml.end()
    written = xml.take()
    assert written.replace("\n", "").replace("\t", "").isprintable()
    root = ET.fromstring(written)
    assert root.get("name") == text
    assert root.findtext("text") == text
    assert [holds(c) for c in "\x00\x0b\ufffe\ud800\ud83d\n\x85"] == [False] * 5 + [True] * 2
    assert visible("a\n\u202e\U000e0001é") == "a\\u000a\\u202e\\U000e0001é"


@pytest.mark.parametrize("form", ["pmml", "pmml-rules"])
def test_a_rule_costs_a_fraction_of_a_millisecond(form: str) -> None:
    model = random_model(1, mixed_schema(), n_trees=1, n_splits=500)
    begin = time.process_time()
    assert pmml(model, form)
    assert (time.process_time() - begin) / model.n_leaves < 2e-3
