"""DMN and PMML files predict as the model in public engines."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from decimal import Context, Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from treekit_interchange.dmn import (
    compute_decimal_bounds,
    format_number,
    format_string,
    make_feel_names,
)
from treekit_interchange.pmml import XmlWriter, escape_unprintable, is_xml_text

import treekit
from tests.documents.test_documents import fruit_model, kinds, numbers_model
from tests.export.test_all_targets import HOSTILE
from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.reference.models import mixed_schema, random_model, text_row
from tests.reference.rule_fits import fitting
from tests.runtimes import JAVA, need
from tests.snapshots.artifacts import digest_lines, stored_lines, uses
from tests.snapshots.make_models import model_path
from treekit.data.schema import Column, Schema
from treekit.documents import Listing, make_listing, render_listing
from treekit.errors import SettingError
from treekit.model.builder import Node, build_tree, leaf, multiway, subset, threshold
from treekit.model.model import Model, make_model
from treekit.rules import RuleList
from treekit.rules.measure import training_measures
from treekit.rules.rule_list import ConditionTable
from treekit.testing import check_document

# ---------------------------------------------------------------- rules dmn

NODE = Path(__file__).parent / "node"
SPACE = "{https://www.omg.org/spec/DMN/20191111/MODEL/}"
NAMES = [
    *("one_leaf", "float32_extremes", "float64_extremes", "float32_neighbours", "missing_only"),
    *("many_levels_in_two", "vanishing", "several_labels", "bool_labels"),
    *("several_numbers", "hostile_numbers", "mark_levels", "surrogates", "costs"),
    *("refuses_missing", "refuses_unseen", "refuses_both", "mixed_numbers", "boosted_four"),
]


def need_packages() -> None:
    need("node")
    if not (NODE / "node_modules" / "feelin").exists():
        said = f"packages are absent: npm ci --prefix {NODE}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(said)


def dmn(rules: RuleList) -> str:
    return "".join(render_listing("dmn", Listing(rules, training_measures(rules))))


def run(jobs: list[tuple[str, list[list[Any]]]], folder: Path) -> list[list[dict[str, Any]]]:
    """What the public engine answers to the rows of each file, and which rules it finds."""
    told = []
    for at, (text, rows) in enumerate(jobs):
        path = folder / f"{at}.dmn"
        path.write_bytes(text.encode())
        told.append({"file": str(path), "rows": rows})
    done = subprocess.run(
        ["node", NODE / "dmn.mjs"],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return answers


def some_rows(model: Model) -> Any:
    """Rows of numbers that FEEL has: none is infinite."""
    rows = extreme_rows(model)
    rows = rows[~np.isinf(rows).any(axis=1)]
    return rows[:: max(len(rows) // 12, 1)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What it answers for each model of `NAMES`, all in one process."""
    need_packages()
    jobs = []
    for name in NAMES:
        model = EXTREMES[name]()
        rows = [text_row(model.schema, row) for row in some_rows(model)]
        jobs.append((dmn(model.rules()), rows))
    return dict(zip(NAMES, run(jobs, tmp_path_factory.mktemp("dmn")), strict=True))


def check(model: Model, rows: Any, told: list[dict[str, Any]]) -> None:
    """The same rules fit as by the rules' own records, and the answer has the model's bits."""
    rules, answers = model.rules(), wanted(model, rows)
    fits = fitting(rules, rows)
    for row, said in enumerate(told):
        found = []
        for tree in range(rules.n_trees):
            first = int(np.searchsorted(rules.tree, tree))
            own = said["fits"]["answer" if rules.n_trees == 1 else f"tree_{tree + 1}"]
            found += [first + rule for rule in own]
        assert found == np.flatnonzero(fits[row]).tolist(), rows[row]
        if answers.label[row, 0] < 0:
            assert said["answer"] is None
            continue
        assert given(model, said["answer"]) == expected(model, answers, row)


def given(model: Model, answer: Any) -> list[Any]:
    if not isinstance(answer, dict):
        answer = {"value": answer}
    return [answer[key] for key in answer if not key.startswith("s_") and "margin" not in key]


def expected(model: Model, answers: Any, row: int) -> list[Any]:
    blocks = itertools.pairwise(model.schema.blocks)
    found: list[Any] = []
    for at, (output, (first, last)) in enumerate(zip(model.schema.outputs, blocks, strict=True)):
        if output.classes:
            found.append(output.classes[answers.label[row, at]])
        if not model.margins:
            found += answers.number[row, first:last].tolist()
    return found


@pytest.mark.system
@pytest.mark.parametrize("name", NAMES)
def test_dmn_engine_predicts_as_the_model(
    name: str, engine: dict[str, list[dict[str, Any]]]
) -> None:
    model = EXTREMES[name]()
    check(model, some_rows(model), engine[name])


@pytest.mark.system
def test_dmn_of_an_ordered_list_predicts_by_the_first_matching_rule(tmp_path: Path) -> None:
    from dataclasses import replace

    need_packages()
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    inner = threshold(1, 0.5, leaf([3, 1]), leaf([1, 3]), missing=0)
    tree = build_tree(threshold(0, 2.5, inner, leaf([0, 2])), schema)
    rules = make_model(schema, [tree]).rules()
    ordered = replace(rules, order="first", end=np.array([1, 2, 2]))
    text = dmn(ordered)
    assert 'hitPolicy="FIRST"' in text
    rows = [[1.0, 5.0], [9.0, 0.0], [None, None], [3.0, 9.0], [0.0, 0.0]]
    (told,) = run([(text, rows)], tmp_path)
    assert [said["fits"]["answer"] for said in told] == [[0, 2], [1, 2], [1, 2], [2], [0, 1, 2]]
    labels = [ordered[said["fits"]["answer"][0]].label for said in told]
    assert [said["answer"]["label"] for said in told] == labels


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_decimal_bounds_split_numbers_as_the_model_does(
    dtype: Any,
) -> None:
    rng = np.random.default_rng(0)
    odd = [0.0, 1.0, 2.5, 0.1, 16777216.0, 1e-45, -1e-45, 3.4028234663852886e38, 1e-38]
    drawn = np.concatenate([odd, np.negative(odd), rng.normal(size=60), rng.lognormal(0, 30, 40)])
    drawn = drawn.astype(np.float32).astype(np.float64) if dtype == "float32" else drawn
    drawn = np.append(drawn, np.finfo(dtype).max)
    feel = Context(prec=34)
    for at, (decimal, closed) in compute_decimal_bounds(drawn, dtype).items():
        bound = Decimal(decimal)
        assert feel.plus(bound) == bound, "FEEL holds it"
        step = Decimal(1).scaleb(bound.adjusted() - 33) if bound else Decimal("1e-400")
        near = [bound + k * step for k in (-2, -1, 0, 1, 2)]
        for x in (feel.plus(v) for v in [*near, Decimal(at), Decimal(repr(at))]):
            value = float(x)
            with np.errstate(over="ignore", under="ignore"):
                value = float(np.float32(value)) if dtype == "float32" else value
            assert (value <= at) == ((x <= bound) if closed else (x < bound)), (at, x)


def test_names_invalid_in_feel_get_generated_variables() -> None:
    names = ["age", "x2", "a b", "if", "Sum", "色泽", "a-b", "x4", "", "refused", "x'); drop"]
    made = make_feel_names(names, {"refused"})
    assert made == ["age", "x2", "x3", "x4_", "x5", "色泽", "x7", "x4", "x9", "x10", "x11"]
    assert len(set(made)) == len(made)


def test_hostile_text_is_escaped_in_feel_and_xml() -> None:
    text = 'a"\\ ]]>\n<!--&amp;\u2028\U0001f600\x00\ud800'
    assert format_string(text) == (
        '"a\\"\\\\ ]]>\\U00000a<!--&amp;\\U002028\U0001f600\\U000000\\U00d800"'
    )
    schema = Schema(
        (Column(text), Column("b", "nominal", (text, "c"))), classes=(text, "b"), target=text
    )
    tree = build_tree(threshold(0, 0.5, leaf([1, 0]), leaf([0, 1])), schema)
    root = ET.fromstring(dmn(make_model(schema, [tree]).rules()).encode())
    labels = {element.get("label") for element in root.iter(f"{SPACE}inputData")}
    assert labels == {'a"\\ ]]>\\u000a<!--&amp;\\u2028\U0001f600\\u0000\\ud800', "b"}
    found = {entry.findtext(f"{SPACE}text") for entry in root.iter(f"{SPACE}outputEntry")}
    assert format_string(text) in found


def test_feel_numbers_have_no_exponent() -> None:
    assert [format_number(x) for x in (1e22, 5e-7, -0.0, 0.1, 3.0)] == [
        *("10000000000000000000000", "0.0000005", "0", "0.1", "3"),
    ]


@pytest.mark.system
def test_files_are_valid_against_the_schema_of_dmn(tmp_path: Path) -> None:
    need("java")
    need_packages()
    paths = []
    for name in ("one_leaf", "hostile_names", "surrogates", "refuses_both", "several_numbers"):
        paths.append(tmp_path / f"{name}.dmn")
        paths[-1].write_bytes(dmn(EXTREMES[name]().rules()).encode())
    schema = NODE / "node_modules/dmn-moddle/resources/dmn/xsd/DMN13.xsd"
    done = subprocess.run(
        ["java", NODE / "Validate.java", schema, *paths],
        capture_output=True,
        text=True,
        check=False,
        env=JAVA,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("oblique", "sums columns"),
        ("fractional", "do not support fractional instances"),
        ("boosted_counts", "the link 'exp'"),
    ],
)
def test_models_without_feel_form_are_refused(name: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        dmn(EXTREMES[name]().rules())


def test_writing_a_dmn_rule_takes_a_fraction_of_a_millisecond() -> None:
    rules = random_model(1, mixed_schema(), n_trees=1, n_splits=500).rules()
    begin = time.process_time()
    assert dmn(rules)
    assert (time.process_time() - begin) / len(rules) < 2e-3


# ---------------------------------------------------------------- rules pmml
# PMML answers as the model does: labels, probabilities to the bit, and which rule it was.

HERE = Path(__file__).parent
COSTS = [[0, 3, 1], [2, 0, 4], [5, 1, 0]]


def one_tree(**policies: Any) -> Model:
    schema = Schema(mixed_schema().columns[:4], classes=("a", "b", "c"))
    return make_model(schema, random_model(2, schema, 1, 20).trees, **policies)


def hostile(n_trees: int, most: int) -> Model:
    """Hostile names, categories and labels, as far as XML can hold them."""
    texts = tuple(text for text in HOSTILE if is_xml_text(text))[:most]
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


def similar_numbers() -> Model:
    """Return a forest of numbers of similar size, whose sums are exact doubles."""
    drawn = EXTREMES["mixed64_numbers"]()
    trees = [tree.with_value(np.clip(tree.value, 0.1, 10.0)) for tree in drawn.trees]
    return make_model(drawn.schema, trees)


MODELS: dict[str, Callable[[], Model]] = {
    name: EXTREMES[name]
    for name in (
        *("one_leaf", "one_number", "one_class", "unused_features", "float32_extremes"),
        *("float64_extremes", "float32_neighbours", "many_levels_in_two"),
        *("missing_only", "vanishing", "mark_levels", "hard_voting", "refuses_missing"),
        *("refuses_unseen", "refuses_both", "wide_sums", "bool_labels"),
        *("float_labels", "mixed"),
    )
} | {
    "one_tree": one_tree,
    "one_tree_of_costs": lambda: one_tree(costs=COSTS),
    "one_tree_refusing_missing": lambda: one_tree(missing="error"),
    "one_tree_refusing_unseen": lambda: one_tree(unknown="error"),
    "similar_numbers": similar_numbers,
    "hostile": lambda: hostile(1, 40),
    "hostile_forest": lambda: hostile(2, 5),
    "tied": tied,
}
LISTS = [name for name, make in MODELS.items() if make().n_trees == 1 and make().schema.classes]


def pmml(model: Model, form: str = "pmml") -> str:
    rules = model.rules()
    return "".join(render_listing(form, Listing(rules, training_measures(rules), model=model)))


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
    levels = [table.list_codes(at)[0] for at in kept]
    own = {name: getattr(table, name)[kept] for name in table._fields[:-2]}
    conditions = ConditionTable(
        **own,
        level_end=np.cumsum([len(codes) for codes in levels]),
        levels=np.concatenate(levels).astype(np.int32),
    )
    return replace(rules, order="first", end=np.cumsum(sizes), conditions=conditions)


def rules_pmml_some_rows(model: Model) -> Any:
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
    text = "".join(render_listing("pmml-rules", Listing(ordered(), training_measures(ordered()))))
    made["ordered", "one_tree"].write_bytes(text.encode())
    return made


@pytest.fixture(scope="module")
def rules_pmml_engine(files: dict[tuple[str, str], Path]) -> dict[tuple[str, str], Any]:
    """What the public engine answers, all in one process."""
    need("java", "jpmml_evaluator")
    jobs = []
    for (_, name), path in files.items():
        model = MODELS[name]()
        cells = [text_row(model.schema, row) for row in rules_pmml_some_rows(model)]
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
def test_pmml_trees_predict_equal_labels_and_bits(
    name: str, rules_pmml_engine: dict[tuple[str, str], Any]
) -> None:
    model, said = MODELS[name](), rules_pmml_engine["pmml", name]
    assert "error" not in said, said
    answers, errors = wanted(model, rules_pmml_some_rows(model)), said.pop("errors")
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
def test_pmml_rule_sets_predict_by_the_matching_rule(
    name: str, rules_pmml_engine: dict[tuple[str, str], Any]
) -> None:
    model, said = MODELS[name](), rules_pmml_engine["pmml-rules", name]
    assert "error" not in said, said
    rules, errors = model.rules(), said.pop("errors")
    fits = fitting(rules, rules_pmml_some_rows(model))
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
        ["java", NODE / "Validate.java", tmp_path / "pmml.xsd", *files.values()],
        capture_output=True,
        text=True,
        check=False,
        env=JAVA,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.system
def test_pmml_of_an_ordered_list_predicts_by_the_first_matching_rule(
    rules_pmml_engine: dict[tuple[str, str], Any],
) -> None:
    rules, said = ordered(), rules_pmml_engine["ordered", "one_tree"]
    fits = fitting(rules, rules_pmml_some_rows(one_tree()))
    assert fits.sum(axis=1).max() > 1
    _, entities = [column for name, column in said.items() if name != "errors"]
    assert [int(entity) - 1 for entity in entities] == fits.argmax(axis=1).tolist()


@pytest.mark.parametrize(
    ("name", "form", "message"),
    [
        ("oblique", "pmml", "single columns"),
        ("surrogates", "pmml", "single columns"),
        ("fractional", "pmml", "cannot represent fractional instances"),
        ("boosted_four", "pmml", "margins and links"),
        ("costs", "pmml", "least cost"),
        ("wide_numbers", "pmml", "adds doubles"),
        ("several_labels", "pmml", "has one target"),
        ("deep_right", "pmml", "depth 3000"),
        ("int_labels", "pmml", "exceeds PMML's 32-bit integers"),
        ("hostile_names", "pmml", "XML 1.0 does not allow"),
        ("mixed", "pmml-rules", "rules of 3 trees"),
        ("one_number", "pmml-rules", "predicts classes"),
    ],
)
def test_models_without_exact_pmml_form_are_refused(name: str, form: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        pmml(EXTREMES[name](), form)


def test_pmml_trees_are_refused_for_rules_without_their_model() -> None:
    rules = one_tree().rules()
    with pytest.raises(SettingError, match="only rules"):
        list(render_listing("pmml", Listing(rules, training_measures(rules))))


def test_xml_writer_escapes_text_and_unprintable_characters() -> None:
    from xml.etree import ElementTree as ET

    text = "a\r\n\t<b a='1'>&amp;]]>--><!-- \u2028\u202e\x85\U0001f600\""
    xml = XmlWriter()
    xml.begin_element("root", {"name": text})
    xml.write_element("text", text)
    xml.end_element()
    written = xml.take_text()
    assert written.replace("\n", "").replace("\t", "").isprintable()
    root = ET.fromstring(written)
    assert root.get("name") == text
    assert root.findtext("text") == text
    assert [is_xml_text(c) for c in "\x00\x0b\ufffe\ud800\ud83d\n\x85"] == [False] * 5 + [True] * 2
    assert escape_unprintable("a\n\u202e\U000e0001é") == "a\\u000a\\u202e\\U000e0001é"


@pytest.mark.parametrize("form", ["pmml", "pmml-rules"])
def test_writing_a_pmml_rule_takes_a_fraction_of_a_millisecond(form: str) -> None:
    model = random_model(1, mixed_schema(), n_trees=1, n_splits=500)
    begin = time.process_time()
    assert pmml(model, form)
    assert (time.process_time() - begin) / model.n_leaves < 2e-3


# ---------------------------------------------------------------- every kind of rules

CANNOT_SAY = {
    "dmn": {"oblique": "sums columns", "divided": "do not support fractional instances"},
    "pmml": {
        "oblique": "tests single columns",
        "surrogates": "tests single columns",
        "divided": "cannot represent fractional instances",
        "weighted": "only rules",
        "ordered": "only rules",
    },
    "pmml-rules": {
        "oblique": "on more than one column",
        "surrogates": "on more than one column",
        "divided": "cannot represent fractional instances",
        "numbers": "predicts classes",
        "weighted": "predicts classes",
        "forest": "is one list",
    },
}
"""What a form cannot represent, and a part of its refusal."""


@pytest.mark.parametrize("form", CANNOT_SAY)
def test_every_kind_of_rules_is_written_or_refused(form):
    for (name, _), one in kinds().items():
        if name in CANNOT_SAY[form]:
            with pytest.raises(SettingError, match=CANNOT_SAY[form][name]) as refused:
                "".join(render_listing(form, one))
            advice = str(refused.value).partition("write form")[2]
            for advised in re.findall(r"'([a-z-]+)'(?! for)", advice):
                assert "".join(render_listing(advised, one))
            continue
        text = "".join(render_listing(form, one))
        assert text.endswith("\n")
        assert text == "".join(render_listing(form, one))


def test_pmml_is_refused_for_a_part_of_the_model():
    one = make_listing(fruit_model(), tree=0)
    with pytest.raises(SettingError, match="only rules"):
        "".join(render_listing("pmml", one))


@pytest.mark.parametrize("name", ["one_leaf", "hostile_names", "trained_tree"])
def test_artifacts_have_the_stored_digests(name):
    made = digest_lines(treekit.load(model_path(name)), made_by=[PLUGIN])
    own = {group: line for group, line in stored_lines()[name].items() if uses(group, [PLUGIN])}
    assert made == own
    assert own


PLUGIN = "treekit-interchange"


@pytest.mark.parametrize(
    ("file", "form"), [("m.dmn", "dmn"), ("m.pmml", "pmml"), ("m.PMML", "pmml")]
)
def test_file_suffix_selects_dmn_or_pmml(file, form, tmp_path):
    model = fruit_model()
    path = treekit.write_rules(model, tmp_path / file)
    assert path.read_text() == "".join(render_listing(form, make_listing(model)))


@pytest.mark.parametrize("form", ["dmn", "pmml", "pmml-rules"])
def test_documents_pass_the_contract_checks(form):
    check_document(form)


def test_dmn_of_one_tree_of_a_forest_is_refused():
    with pytest.raises(SettingError, match="leave the tree out"):
        "".join(render_listing("dmn", make_listing(numbers_model(3), tree=1)))
