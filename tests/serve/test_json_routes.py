"""Rows, explanations, models and rules as plain JSON."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.reference.models import mixed_schema, probe_rows, random_model, text_row
from tests.serving import put_in_service
from tests.strategies import ALL_KINDS, matrices, models
from treekit.data.cells import make_object_array
from treekit.data.features import round_to_dtype
from treekit.data.schema import Column, Output, Schema
from treekit.data.table import make_table
from treekit.errors import DataError, ModelError
from treekit.explain import explain
from treekit.model.builder import Surrogate, build_tree, leaf, oblique, rule, subset, threshold
from treekit.model.model import Model, make_model
from treekit.model.scoring import leaf_indices
from treekit.rules.extract import LeafRuleTexts, rules
from treekit.rules.wording import render_conditions
from treekit.serve.errors import InvalidRequestError, TooLargeError
from treekit.serve.http import json_routes as plain_rules
from treekit.serve.http.app import make_app
from treekit.serve.http.json_routes import OutputConverter
from treekit.serve.http.openapi import make_document
from treekit.serve.models import explanation_outputs as contributions
from treekit.serve.models import explanation_outputs as reasons
from treekit.serve.models.explanation_outputs import Explanations
from treekit.serve.models.repository import Repository
from treekit.serve.models.row_converter import RowConverter
from treekit.serve.models.served_model import Served
from treekit.serve.protocol.messages import parse_json
from treekit.serve.scheduling import Runner, Service
from treekit.serve.settings import Limits

# ---------------------------------------------------------------- serve plain


def pulse_model(**policies: Any) -> Model:
    schema = Schema(
        (Column("pulse"), Column("pain", "nominal", ("mild", "severe"))),
        "where",
        classes=("home", "ward"),
    )
    below = subset("pain", ["mild"], leaf([5, 1]), leaf([0, 6]), missing=1)
    root = threshold("pulse", 60.5, leaf([9, 0]), below, missing=0)
    return make_model(schema, [build_tree(root, schema)], **policies)


def dose_model() -> Model:
    """Two trees of a number."""
    schema = Schema((Column("x"), Column("y")), "dose", task="regression")
    trees = [threshold("x", at, leaf(1.5, 2), leaf(-2.0, 2)) for at in (0.5, 1.5)]
    return make_model(schema, [build_tree(root, schema) for root in trees])


def targets_model() -> Model:
    schema = Schema(
        (Column("x"),), "first", classes=("a", "b"), more=(Output("second", (1, 2, 3)),)
    )
    root = threshold("x", 0.5, leaf([6, 1, 2, 2, 3]), leaf([0, 5, 5, 0, 0]))
    return make_model(schema, [build_tree(root, schema)])


def weighted_model() -> Model:
    """Three rules with weights, each a list of its own."""
    schema = Schema((Column("x"),), classes=(False, True))
    lists = [
        rule([Surrogate("x", at, 1, above=-1, lost=1)], leaf([0, 1]), leaf([1, 1]))
        for at in (1.0, 2.0, 3.0)
    ]
    return make_model(schema, [build_tree(own, schema) for own in lists])


MODELS = {
    "pulse": pulse_model,
    "dose": dose_model,
    "both": targets_model,
    "weighted": weighted_model,
    "forest": lambda: random_model(0, mixed_schema(), n_trees=4),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    for name, make in MODELS.items():
        make().save(place / f"{name}.treekit")
    return place


@pytest.fixture(scope="module")
def service(folder: Path) -> Service:
    repository = Repository([folder])
    repository.refresh()
    return Service(repository, Runner(Limits(explained_rows=4, rows=3000)))


def ask(
    service: Service, method: str, path: str, value: Any = None, **other: Any
) -> httpx.Response:
    """One request; a value goes as JSON without a Content-Type."""

    async def one() -> httpx.Response:
        transport = httpx.ASGITransport(make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            content = value if value is None or isinstance(value, bytes) else json.dumps(value)
            return await client.request(method, path, content=content, **other)

    return asyncio.run(asyncio.wait_for(one(), 30))


def refusal(answer: httpx.Response, status: int = 400) -> str:
    assert answer.status_code == status, answer.text
    assert [*answer.json()] == ["error"]
    text: str = answer.json()["error"]
    return text


# ------------------------------------------------------------------------------ /predict


def test_predictions_include_the_matching_rule(service: Service, folder: Path) -> None:
    rows = [{"pulse": 70, "pain": "mild"}, {"pain": "severe", "pulse": "70.0"}]
    answer = ask(service, "POST", "/predict", {"model": "pulse", "rows": rows})
    assert answer.status_code == 200
    version = service.repository.get("pulse").version
    given = answer.json()
    assert (given["model"], given["version"]) == ("pulse", version)
    shares = MODELS["pulse"]().predict_proba(rows).tolist()
    assert given["rows"][0] == {
        "label": "home",
        "probabilities": {"home": shares[0][0], "ward": shares[0][1]},
        "rule": "pulse > 60.5 and pain is mild",
    }
    assert given["rows"][1]["label"] == "ward"
    assert given["rows"][1]["rule"] == "pulse > 60.5; and pain is severe, or is missing"


def test_model_of_a_bare_list_of_rows_is_named_in_the_url(service: Service) -> None:
    rows = [{"pulse": None, "pain": None}]
    answer = ask(service, "POST", "/predict?model=pulse", rows)
    assert answer.json()["rows"][0]["rule"] == "pulse <= 60.5, or is missing"
    version = service.repository.get("pulse").version
    same = ask(service, "POST", f"/predict?model=pulse&version={version}", rows)
    assert same.json() == answer.json()
    said = refusal(ask(service, "POST", "/predict", rows))
    assert "does not name a model" in said
    assert "/predict?model=NAME" in said
    body = {"model": "dose", "rows": rows}
    assert "the URL has model" in refusal(ask(service, "POST", "/predict?model=pulse", body))


def test_nan_is_written_as_null_and_infinity_as_a_number(service: Service) -> None:
    """Python's json writes both where a dictionary holds them."""
    rows = [{"pulse": math.nan, "pain": math.nan}, {"pulse": math.inf, "pain": "mild"}]
    rows += [{"pulse": -math.inf, "pain": math.inf}]
    given = ask(service, "POST", "/predict", {"model": "pulse", "rows": rows}).json()["rows"]
    assert [row["label"] for row in given] == MODELS["pulse"]().predict(rows).tolist()
    assert given[0]["rule"] == "pulse <= 60.5, or is missing"
    for row in rows:
        answer = ask(service, "POST", "/explain", {"model": "pulse", "row": row})
        assert answer.status_code == 200
        json.loads(answer.content, parse_constant=pytest.fail)
    strict = RowConverter(pulse_model(missing="error"), "m")
    nan = parse_json(b'[{"pulse": NaN, "pain": "mild"}]')
    with pytest.raises(InvalidRequestError, match="column 'pulse' has a missing value"):
        strict.convert_rows(nan)


def test_responses_of_regression_and_several_targets_have_their_fields(service: Service) -> None:
    rows = [{"x": 1, "y": 0}]
    answer = ask(service, "POST", "/predict", {"model": "dose", "rows": rows})
    assert answer.json()["rows"] == [{"value": -0.25}]
    answer = ask(service, "POST", "/predict", {"model": "both", "rows": [{"x": 0}]})
    (row,) = answer.json()["rows"]
    assert row["targets"]["first"]["label"] == "a"
    assert row["targets"]["second"]["label"] == 3
    assert [*row["targets"]["second"]["probabilities"]] == ["1", "2", "3"]
    assert row["rule"] == "x <= 0.5"


def test_weighted_lists_return_the_matching_rules(service: Service) -> None:
    answer = ask(service, "POST", "/predict", {"model": "weighted", "rows": [{"x": 2.5}]})
    (row,) = answer.json()["rows"]
    assert row["label"] is True
    assert row["rules"] == [{"tree": 1, "rule": "x > 1"}, {"tree": 2, "rule": "x > 2"}]


def test_only_requested_outputs_are_returned(service: Service) -> None:
    outputs = ["leaf", "rule", "value", "contributions", "bias"]
    body = {"model": "dose", "rows": [{"x": 1, "y": None}], "outputs": outputs}
    (row,) = ask(service, "POST", "/predict", body).json()["rows"]
    assert row["leaf"] == [2, 1]
    assert [one["tree"] for one in row["rules"]] == [1, 2]
    assert row["rules"][0]["rule"].startswith("x > 0.5")
    assert row["bias"] + row["contributions"]["x"] + row["contributions"]["y"] == row["value"]
    assert row["contributions"]["y"] == 0.0
    body = {"model": "both", "rows": [{"x": 0}], "outputs": ["contributions", "label", "bias"]}
    (row,) = ask(service, "POST", "/predict", body).json()["rows"]
    second = row["targets"]["second"]
    assert second["bias"]["2"] + second["contributions"]["x"]["2"] == pytest.approx(2 / 7)
    assert "probabilities" not in second


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        (["lable"], "unknown output 'lable'; did you mean 'label'"),
        (["label", "label"], "each only once"),
        ([], "one output or more"),
        ([3], "Expected `str`, got `int` - at `$.outputs[0]`, got 3"),
        ([["label"]], "Expected `str`, got `array` - at `$.outputs[0]`, got ['label']"),
        ("label", "got `str` - at `$.outputs`, got 'label'"),
    ],
)
def test_unknown_outputs_are_refused(service: Service, outputs: Any, said: str) -> None:
    body = {"model": "pulse", "rows": [{"pulse": 1, "pain": None}], "outputs": outputs}
    assert said in refusal(ask(service, "POST", "/predict", body))


def test_rules_are_omitted_beyond_the_limit_of_explained_rows(service: Service) -> None:
    row = {"pulse": 70, "pain": "mild"}
    answer = ask(service, "POST", "/predict", {"model": "pulse", "rows": [row] * 5})
    assert [*answer.json()["rows"][4]] == ["label", "probabilities"]
    body = {"model": "pulse", "rows": [row] * 5, "outputs": ["rule"]}
    assert "explains 4 at once" in refusal(ask(service, "POST", "/predict", body), 413)
    body = {"model": "pulse", "rows": [row] * 3001}
    assert "takes 3,000 at once" in refusal(ask(service, "POST", "/predict", body), 413)


def test_bodies_of_too_many_json_objects_are_refused_before_parsing(
    service: Service,
) -> None:
    for unread, said in (
        (b"[" + b"{}," * 4001, "4,001 JSON objects"),  # 3,000 rows and 1,000 others
        (b"[{" + b'"a": 1,' * 100_000, "100,000 JSON members"),
        (b"[" * 200_000, "200,000 JSON lists"),
    ):
        assert said in refusal(ask(service, "POST", "/predict", unread), 413)
    assert "not JSON" in refusal(ask(service, "POST", "/predict", b"[" + b"{}," * 4000))
    empty = Service(Repository([]), service.runner)
    wide = json.dumps([{f"x{k}": k for k in range(2000)}]).encode()
    assert "no model yet" in refusal(ask(empty, "POST", "/predict", wide), 404)
    in_strings = [json.dumps({"model": r'{[:"' * 2000 + end, "rows": [{}]}) for end in ("", "\\")]
    for text in in_strings:
        assert "unknown model" in refusal(ask(service, "POST", "/predict", text.encode()), 404)


def test_large_request_body_is_answered_like_a_small_one(service: Service) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"pulse": x, "pain": ["mild", "severe", None][k]}
        for x, k in zip(rng.normal(60, 9, 2500).tolist(), rng.integers(0, 3, 2500), strict=True)
    ]
    assert len(json.dumps(rows)) > 1 << 16
    answer = ask(service, "POST", "/predict?model=pulse", rows)
    labels = [row["label"] for row in answer.json()["rows"]]
    assert labels == MODELS["pulse"]().predict(rows).tolist()


def test_row_outside_a_list_is_refused_with_advice(service: Service) -> None:
    said = refusal(ask(service, "POST", "/predict?model=pulse", ROW))
    assert "unknown field `pulse`; there are: 'model', 'version', 'absent', 'rows'" in said
    assert "did you mean 'rows'" in refusal(ask(service, "POST", "/predict", {"row": [ROW]}))
    assert "the body is empty" in refusal(ask(service, "POST", "/predict?model=pulse"))


def test_all_absent_columns_of_a_row_are_named_in_one_error(service: Service) -> None:
    said = refusal(ask(service, "POST", "/predict?model=pulse", [{}]))
    assert "has no column 'pulse', 'pain'" in said
    assert "give null where a value is missing" in said


ROW = {"pulse": 70, "pain": "mild"}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"pain": None}, "row 1 (counting from 0) has no column 'pulse'"),
        ({"puls": 1, "pain": None}, "no column 'pulse' (it has the unknown column 'puls'"),
        (
            {**ROW, "pian": 1},
            "column 'pian', which model 'pulse' does not have; did you mean 'pain'",
        ),
        ({**ROW, "where": "home"}, "it is the target of the model: leave it out"),
        ({**ROW, "pulse": "fast"}, "row 1 (counting from 0): column 'pulse' has the string 'fast'"),
        ({**ROW, "pulse": "1_000"}, "has the string '1_000'"),
        ({**ROW, "pulse": "４１"}, "has the string '４１'"),
        ({**ROW, "pulse": True}, "column 'pulse' has True"),
        ({**ROW, "pulse": [1]}, "column 'pulse' has [1]; expected a number"),
        ({**ROW, "pain": {"a": 1}}, "column 'pain' has {'a': 1}; expected"),
        ({**ROW, "pulse": 10**400}, "exceeds the largest double"),
        ({**ROW, "pain": 10**30}, "beyond 64 bits"),
        ([1, 2], "Expected `object`, got `array` - at `$.rows[1]`, got [1, 2]"),
        (None, "Expected `object`, got `null` - at `$.rows[1]`"),
    ],
)
def test_invalid_row_is_refused_with_row_column_and_value(
    service: Service, row: Any, said: str
) -> None:
    answer = ask(service, "POST", "/predict", {"model": "pulse", "rows": [ROW, row]})
    assert said in refusal(answer)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is empty"),
        (b'{"rows": [{"pulse": 1, "pai', "not JSON"),
        (b"\xff\xfe{}", "send UTF-8 without one"),
        (b'{"rows": [{"pulse": "\xff"}]}', "not UTF-8"),
        (b'{"rows": [{"pulse": nan}]}', "not JSON: Expecting value"),
        (b'{"model": "pulse", "rows": [{"pulse": 1e999, "pain": null}]}', "exceeds the largest"),
        (b'[{"pulse": 1, "pain": null, "pulse": 2}]', "the duplicate name 'pulse'"),
        (b'["\\ud800"]', "surrogates not allowed"),
        (b'{"rows": [{"pulse": ' + b"9" * 5000 + b"}]}", "thousands of digits"),
        (b'"rows"', "Expected `object | array`, got `str`, got 'rows'"),
        (b"null", "Expected `object | array`, got `null`"),
        (b'{"model": "pulse"}', "missing required field `rows`"),
        (b'{"model": "pulse", "rows": []}', "Expected `array` of length >= 1 - at `$.rows`"),
        (b'{"model": "pulse", "rows": {}}', "got `object` - at `$.rows`"),
        (b'{"model": 3, "rows": []}', "got `int` - at `$.model`, got 3"),
        (b'{"model": "pulse", "row": []}', "unknown field `row`; did you mean 'rows'"),
    ],
)
def test_an_invalid_body_is_refused(service: Service, body: bytes, said: str) -> None:
    assert said in refusal(ask(service, "POST", "/predict", body))


def test_unknown_models_and_versions_are_refused_with_suggestions(service: Service) -> None:
    rows = [ROW]
    answer = ask(service, "POST", "/predict", {"model": "pulze", "rows": rows})
    assert "did you mean 'pulse'" in refusal(answer, 404)
    answer = ask(service, "POST", "/predict", {"model": "pulse", "version": "7", "rows": rows})
    assert "no version '7'" in refusal(answer, 404)
    answer = ask(service, "POST", "/predict", {"model": "p" * 100_000, "rows": rows})
    assert len(refusal(answer, 404)) < 200
    assert "unknown field `modell`; did you mean 'model'" in refusal(
        ask(service, "POST", "/predict?modell=a", rows)
    )
    refused = ask(service, "POST", "/predict?model=a&model=b", rows)
    assert "duplicate name 'model'" in refusal(refused)
    assert "cannot be read" in refusal(ask(service, "POST", "/predict?model=%ff", rows))


def test_missing_and_unknown_error_policies_name_the_cell() -> None:
    strict = RowConverter(pulse_model(missing="error", unknown="error"), "m")
    assert len(strict.convert_rows([ROW])) == 1
    for row, said in (
        ({"pulse": None, "pain": "mild"}, "row 1 .* column 'pulse' has a missing value"),
        ({"pulse": "NA", "pain": "mild"}, "column 'pulse' has a missing value"),
        ({"pulse": 1, "pain": "?"}, "column 'pain' has a missing value"),
        ({"pulse": 1, "pain": "milt"}, "'milt', an unseen category; did you mean 'mild'"),
        ({"pulse": 1, "pain": 3}, "'pain' has 3, an unseen category"),
    ):
        with pytest.raises(InvalidRequestError, match=said):
            strict.convert_rows([ROW, row])


# ------------------------------------------------------- rows as the library reads them

COLUMNS = (
    Column("number"),
    Column("town", "nominal", ("Ulm", "", "NA", "3", "3.5", "True", "-1", "1e+30", "ü")),
    Column("code", "nominal", ("0", "1", "2")),
    Column("flag", "nominal", ("False", "True")),
    Column("void", "nominal"),
)
MARKS = ["", "NA", "?", "-999", "nan", " x "]
TEXTS = ["", " ", "NA", " NA ", "?", "-999", "-999 ", "x", " 41 ", "41", "4_1", "1e3", "nan"]
TEXTS += ["NaN", "inf", "-Infinity", "0x1", "1e400", "3", "3.0", "3.5", "True", "true", "Ulm", "ü"]
TEXTS += ["٣", "-0", "9" * 400, "+5", ".5", "5.", "--1", "1e+30", "\t7\n"]
CELLS = st.one_of(
    st.none(),
    st.sampled_from(TEXTS),
    st.text(max_size=4),
    st.floats(allow_nan=False),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-5, 5),
    st.floats(-5, 5).map(lambda x: round(x, 1)),
)
PLAIN = st.one_of(CELLS, st.booleans())
ROWS = st.tuples(
    st.one_of(st.floats(allow_nan=False), CELLS),
    st.one_of(st.sampled_from(COLUMNS[1].levels), PLAIN),
    st.one_of(st.sampled_from([0, 1.0, "2"]), PLAIN),
    st.one_of(st.booleans(), PLAIN),
    st.one_of(st.none(), st.none(), PLAIN),
)


def reading_model(dtype: Any, marks: list[str], missing: Any, unknown: Any) -> Model:
    schema = Schema(COLUMNS, classes=(0, 1), dtype=dtype, missing_marks=tuple(marks))
    root = threshold("number", 2.5, leaf([1, 2]), leaf([2, 1]))
    return make_model(schema, [build_tree(root, schema)], missing=missing, unknown=unknown)


@settings(max_examples=examples(300))
@given(
    ROWS,
    st.sampled_from(["float32", "float64"]),
    st.lists(st.sampled_from(MARKS), unique=True),
    st.sampled_from(["direction", "error"]),
    st.sampled_from(["missing", "error"]),
)
@example((" -999", 3.0, "NA", True, None), "float32", ["-999", "NA"], "direction", "missing")
@example((16777217, "NA", 1, "True", "a"), "float32", ["NA"], "direction", "missing")
@example((1 / 3e6, "3.5", 2, True, None), "float64", ["NA"], "direction", "missing")
@example((2**64 - 1, 3, 1.0, False, ""), "float64", [""], "error", "error")
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_json_row_is_encoded_as_by_predict(
    cells: Any, dtype: Any, marks: list[str], missing: Any, unknown: Any
) -> None:
    model = reading_model(dtype, marks, missing, unknown)
    row = dict(zip(model.schema.names, cells, strict=True))
    expected: Any = None
    try:
        expected = model.scorer().rows([row])
    except DataError:
        with pytest.raises(InvalidRequestError):
            RowConverter(model, "m").convert_rows([row])
        return
    matrix = RowConverter(model, "m").convert_rows([row])
    assert matrix.dtype == expected.dtype
    assert matrix.shape == expected.shape
    assert matrix.tobytes() == expected.tobytes() or np.array_equal(
        matrix, expected, equal_nan=True
    )


TENSORS = st.tuples(
    st.one_of(
        *(st.floats(width=32), st.integers(-(2**63), 2**63 - 1)),
        *(st.sampled_from(TEXTS), st.booleans()),
    ),
    st.one_of(st.sampled_from(COLUMNS[1].levels), st.sampled_from(TEXTS), st.text(max_size=4)),
    st.one_of(st.integers(-2, 5), st.sampled_from([0.0, 1.5, math.nan]), st.sampled_from("12x")),
    st.one_of(st.booleans(), st.sampled_from(["True", "true", "yes"])),
    st.one_of(st.none(), st.sampled_from(TEXTS)),
)


@settings(max_examples=examples(200))
@given(
    TENSORS,
    st.integers(1, 3),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["direction", "error"]),
    st.sampled_from(["missing", "error"]),
    st.booleans(),
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_json_columns_are_encoded_as_by_predict(
    cells: Any, rows: int, dtype: Any, missing: Any, unknown: Any, has_gap: bool
) -> None:
    """Columns of one type each, as tensors have them; a text column may have a missing cell."""
    model = reading_model(dtype, ["NA"], missing, unknown)
    columns = {}
    for column, cell in zip(model.schema.columns, cells, strict=True):
        values = [cell] * rows
        if has_gap and rows > 1 and isinstance(cell, (str, bool)):
            values[-1] = None
        is_object = cell is None or isinstance(cell, str) or None in values
        columns[column.name] = make_object_array(values) if is_object else np.array(values)
    expected: Any = None
    try:
        expected = model.scorer().rows(make_table(model.schema.names, columns.values()))
    except DataError:
        with pytest.raises(InvalidRequestError, match=r"row \d"):
            RowConverter(model, "m").convert_columns(columns)
        return
    matrix = RowConverter(model, "m").convert_columns(columns)
    assert matrix.dtype == expected.dtype
    assert np.array_equal(matrix, expected, equal_nan=True)


@settings(max_examples=examples(50))
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_json_row_is_encoded_equally_in_any_batch(several: list[Any]) -> None:
    reader = RowConverter(reading_model("float64", ["NA"], "direction", "missing"), "m")
    rows = [dict(zip((c.name for c in COLUMNS), cells, strict=True)) for cells in several]

    def read(some: list[dict[str, Any]]) -> Any:
        try:
            return reader.convert_rows(some).tolist()
        except InvalidRequestError:
            return None

    alone = [read([row]) for row in rows]
    together = read(rows)
    if None in alone:
        assert together is None
    else:
        assert repr(together) == repr([row for (row,) in alone])


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
@settings(max_examples=examples(60))
def test_parse_json_returns_the_written_value(value: Any) -> None:
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)
        assert parse_json(text.encode()) == value


# ------------------------------------------------------------------------------ /explain


@pytest.mark.usefixtures("without_plugins")
def test_explanation_equals_that_of_the_library(service: Service) -> None:
    row = {"pulse": "70", "pain": "severe"}
    body = {"model": "pulse", "row": row, "fixed": ["pain"]}
    answer = ask(service, "POST", "/explain", body)
    assert answer.status_code == 200
    given = answer.json()
    assert given["version"] == service.repository.get("pulse").version
    found = explain(MODELS["pulse"](), row, fixed=["pain"], explainers=[])
    assert given["explainers"] == []
    assert given["explanation"] == json.loads(json.dumps(found.plain()))
    assert given["text"] == [list(line) for line in found.lines()]
    assert any("pulse" in line and heading is False for line, heading in given["text"])


def test_an_explanation_is_in_the_requested_language_for_one_tree(service: Service) -> None:
    row = {"x": 1.0, "y": None}
    body = {"model": "dose", "row": row, "lang": "zh", "tree": 2}
    given = ask(service, "POST", "/explain", body).json()
    assert given["explanation"]["tree"] == 1
    assert any("树" in line or "棵" in line for line, _ in given["text"])


def test_rows_that_the_model_refuses_are_explained(tmp_path: Path) -> None:
    pulse_model(missing="error").save(tmp_path / "strict.treekit")
    repository = Repository([tmp_path])
    repository.refresh()
    answer = ask(Service(repository), "POST", "/explain", {"row": {"pulse": None, "pain": "mild"}})
    assert answer.json()["explanation"]["refused"] is True
    refused = ask(Service(repository), "POST", "/predict", [{"pulse": None, "pain": "mild"}])
    assert "column 'pulse' has a missing value" in refusal(refused)


@pytest.mark.usefixtures("without_plugins")
def test_a_request_without_its_plugin_is_refused(service: Service) -> None:
    body = {"model": "pulse", "row": ROW, "wish": "home"}
    assert "pip install treekit-counterfactuals" in refusal(ask(service, "POST", "/explain", body))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"row": {"pulse": 70}}, "no column 'pain'"),
        ({"row": {"pulse": "fast", "pain": None}}, "the string 'fast'"),
        ({"row": None}, "got `null` - at `$.row`"),
        ({"row": [ROW]}, "Expected `object`, got `array` - at `$.row`"),
        ({"rows": [ROW]}, "unknown field `rows`; did you mean 'row'"),
        ({"lang": "fr"}, "Invalid enum value 'fr' - at `$.lang`"),
        ({"lang": "/etc/passwd.toml"}, "Invalid enum value '/etc/passwd.toml' - at `$.lang`"),
        ({"tree": 0}, "Expected `int` >= 1 - at `$.tree`, got 0"),
        ({"tree": 2}, "'tree' must be 1 to 1, got 2"),
        ({"tree": True}, "got `bool` - at `$.tree`, got True"),
        ({"changes": 3}, "Expected `int` <= 2 - at `$.changes`, got 3"),
        ({"wish": "x" * 20_000}, "Expected `str` of length <= 10000 - at `$.wish`"),
        ({"fixed": ["puls"]}, "did you mean 'pulse'"),
        ({"fixed": [3]}, "Expected `str`, got `int` - at `$.fixed[0]`, got 3"),
        ({"fixed": "pulse"}, "got `str` - at `$.fixed`, got 'pulse'"),
    ],
)
def test_invalid_explain_request_is_refused(
    service: Service, other: dict[str, Any], said: str
) -> None:
    assert said in refusal(ask(service, "POST", "/explain", {"model": "pulse", "row": ROW} | other))


def test_large_requests_are_not_explained(service: Service) -> None:
    body = {"model": "pulse", "row": {"pulse": 1, "pain": "x" * 600_000}}
    assert "that can be explained" in refusal(ask(service, "POST", "/explain", body), 413)
    body["row"]["pain"] = "x" * 1000  # type: ignore[index]
    assert ask(service, "POST", "/explain", body).status_code == 200


def test_slow_explanation_times_out(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr("treekit.explain.explain", lambda *_, **__: release.wait(20) and None)
    short_time_service = Service(service.repository, Runner(Limits(seconds=0.2)))
    try:
        answer = ask(short_time_service, "POST", "/explain", {"model": "pulse", "row": ROW})
        assert "took longer than 0.2 s" in refusal(answer, 503)
    finally:
        release.set()
        short_time_service.runner.close()


def test_a_closing_server_returns_503(service: Service) -> None:
    closed = Service(service.repository, Runner(Limits()))
    closed.runner.close()
    for method, path in (("GET", "/models"), ("GET", "/models/pulse/rules")):
        assert "the server is closing" in refusal(ask(closed, method, path), 503)
    answer = ask(closed, "POST", "/explain", {"model": "pulse", "row": ROW})
    assert "the server is closing" in refusal(answer, 503)


# ----------------------------------------------------------------------- /models and rules


def test_models_are_described_with_columns_levels_and_thresholds(service: Service) -> None:
    answer = ask(service, "GET", "/models").json()
    assert [model["name"] for model in answer] == sorted(MODELS)
    pulse = next(model for model in answer if model["name"] == "pulse")
    version = service.repository.get("pulse").version
    assert (pulse["version"], pulse["versions"]) == (version, [version])
    assert pulse["targets"] == [{"name": "where", "classes": ["home", "ward"]}]
    number = {"name": "pulse", "kind": "numeric", "levels": [], "low": 60.5, "high": 60.5}
    levels = {"name": "pain", "kind": "nominal", "levels": ["mild", "severe"]}
    assert pulse["columns"] == [number, levels | {"low": None, "high": None}]
    facts = {key: pulse[key] for key in ("platform", "task", "dtype", "trees", "leaves", "depth")}
    assert facts == {
        "platform": "treekit",
        "task": "classification",
        "dtype": "float32",
        "trees": 1,
        "leaves": 3,
        "depth": 2,
    }
    assert (pulse["state"], pulse["reason"]) == ("READY", "")
    both = next(model for model in answer if model["name"] == "both")
    assert [target["classes"] for target in both["targets"]] == [["a", "b"], ["1", "2", "3"]]


def test_unloaded_models_return_the_reason(tmp_path: Path) -> None:
    for version in ("1", "2"):
        place = tmp_path / "pulse" / version
        place.mkdir(parents=True)
        pulse_model().save(place / "model.treekit")
    (tmp_path / "bad.treekit").write_bytes(b"no model")
    dose_model().save(tmp_path / "dose.treekit")
    repository = Repository([tmp_path])
    repository.refresh()
    repository.unload("dose")
    service = Service(repository)
    bad, dose, pulse = ask(service, "GET", "/models").json()
    assert (bad["state"], bad["versions"]) == ("UNAVAILABLE", [])
    assert bad["reason"]
    assert (dose["state"], dose["reason"]) == ("UNAVAILABLE", "unloaded")
    assert "columns" not in dose
    assert (pulse["version"], pulse["versions"]) == ("2", ["2", "1"])
    assert refusal(ask(service, "GET", "/models/dose/rules"), 503)


def test_rules_are_paged_and_searched(service: Service) -> None:
    page = ask(service, "GET", "/models/pulse/rules").json()
    assert (page["model"], page["total"], page["found"]) == ("pulse", 3, 3)
    assert page["version"] == service.repository.get("pulse").version
    assert page["rules"][1] == {
        "number": 2,
        "tree": 1,
        "conditions": ["pulse > 60.5", "pain is mild"],
        "text": "pulse > 60.5 and pain is mild",
        "says": "home",
        "shares": "home: 0.8333333, ward: 0.1666667",
        "weight": 6.0,
    }
    found = ask(service, "GET", "/models/pulse/rules?search=SEVERE").json()
    assert [one["number"] for one in found["rules"]] == [3]
    found = ask(service, "GET", "/models/pulse/rules", params={"search": "ward"}).json()
    assert [one["number"] for one in found["rules"]] == [3], "shares are not searched"
    chinese = ask(service, "GET", "/models/pulse/rules?lang=zh&search=pain%20为%20mild").json()
    assert [one["text"] for one in chinese["rules"]] == ["pulse > 60.5 且 pain 为 mild"]
    none = ask(service, "GET", "/models/pulse/rules?search=.*").json()
    assert (none["found"], none["rules"]) == (0, [])


def test_pages_of_a_forest_concatenate_to_its_rules(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_rules, "_BLOCK_RULES", 7)
    model = MODELS["forest"]()
    listed = model.rules()

    def numbers(**query: Any) -> tuple[int, list[int]]:
        page = ask(service, "GET", "/models/forest/rules", params=query).json()
        assert page["total"] == len(listed)
        return page["found"], [one["number"] for one in page["rules"]]

    assert numbers(first=10, count=3) == (len(listed), [11, 12, 13])
    assert numbers(first=len(listed))[1] == []
    own = [i + 1 for i, rule in enumerate(listed) if rule.tree == 2]
    assert numbers(tree=3, count=500) == (len(own), own)
    said = [render_conditions(listed, *listed.bounds(i)) for i in range(len(listed))]
    with_blue = [i + 1 for i, rule in enumerate(said) if "blue" in "".join(rule)]
    assert 0 < len(with_blue) < len(listed)
    assert numbers(search="blue", count=500) == (len(with_blue), with_blue)
    both = [i for i in with_blue if i in own]
    assert numbers(search="BLUE", tree=3, count=500) == (len(both), both)
    page = ask(service, "GET", "/models/forest/rules?first=4&count=1").json()["rules"][0]
    assert page["conditions"] == said[4]
    then = "".join(listed.text()).split("\n\n")[5].split("\n")[-1]
    assert then.startswith(f"  then {page['says']}   support {page['weight']:g}")


def test_rules_pages_of_lists_show_otherwise_and_target_names(service: Service) -> None:
    page = ask(service, "GET", "/models/weighted/rules").json()
    assert [one["text"] for one in page["rules"][:2]] == ["x > 1", "otherwise"]
    page = ask(service, "GET", "/models/both/rules?search=first%3A+b").json()
    assert [one["says"] for one in page["rules"]] == ["first: b; second: 1"]


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("count=0", 400, "Expected `int` >= 1 - at `$.count`, got '0'"),
        ("count=501", 400, "Expected `int` <= 500 - at `$.count`, got '501'"),
        ("first=-1", 400, "Expected `int` >= 0 - at `$.first`, got '-1'"),
        ("first=%D9%A3", 400, "Expected `int`, got `str` - at `$.first`"),
        ("tree=2", 404, "no tree 2; its trees are 1 to 1"),
        ("lang=x.toml", 400, "Invalid enum value 'x.toml' - at `$.lang`"),
        ("search=" + "a" * 201, 400, "Expected `str` of length <= 200 - at `$.search`"),
        ("serch=a", 400, "did you mean 'search'"),
        ("version=9", 404, "no version '9'"),
    ],
)
def test_pages_out_of_range_are_refused(
    service: Service, query: str, status: int, said: str
) -> None:
    assert said in refusal(ask(service, "GET", f"/models/pulse/rules?{query}"), status)


def test_rules_are_cached_by_model_and_least_recent_evicted(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Model] = []

    def counted(model: Model) -> Any:
        made.append(model)
        return model.rules()

    monkeypatch.setattr(plain_rules, "joined_rules", counted)
    books = plain_rules.RuleCache(most=2)
    served = {name: service.repository.get(name) for name in MODELS}

    def page(name: str, **asked: Any) -> dict[str, Any]:
        return books.get_page(served[name], plain_rules.RulesQuery(**asked))

    page("pulse")
    page("pulse", lang="zh", search="mild")
    page("dose")
    page("pulse")
    assert len(made) == 2
    page("both")  # takes the place of dose
    page("pulse")
    assert len(made) == 3
    page("dose")
    assert len(made) == 4
    assert len(books._cached) == 2


def test_models_of_too_many_rules_are_not_listed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_rules, "_MAX_CONDITIONS", 5)
    assert "too many" in refusal(ask(service, "GET", "/models/pulse/rules"), 413)


def test_rule_search_beyond_the_cache_finds_the_same_rules(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_rules, "_BLOCK_RULES", 7)
    served = service.repository.get("forest")
    asked = plain_rules.RulesQuery(search="blue", count=500)
    expected = plain_rules.RuleCache().get_page(served, asked)
    monkeypatch.setattr(plain_rules, "_MAX_CACHED_CHARS", 3000)
    books = plain_rules.RuleCache()
    assert books.get_page(served, asked) == books.get_page(served, asked) == expected
    edition = books._cached[served.digest, "en"]
    assert 0 < sum(len(text) for own in edition._cached_texts.values() for text in own) <= 3000


# ----------------------------------------------------------------------------- hostility


def test_hostile_names_are_escaped_in_json(tmp_path: Path) -> None:
    column, level, label = '"}], <script>\u202e', "a; and b > 1\n", "</script>"
    schema = Schema(
        (Column(column), Column("\x00\u2028", "nominal", (level, "b"))), classes=(label, "ok")
    )
    below = subset(1, [level], leaf([5, 1]), leaf([0, 6]), missing=1)
    root = threshold(0, 1.5, leaf([9, 0]), below, missing=0)
    name = "__proto__ <b>"
    make_model(schema, [build_tree(root, schema)]).save(tmp_path / f"{name}.treekit")
    repository = Repository([tmp_path])
    repository.refresh()
    service = Service(repository)
    row = {column: 2, "\x00\u2028": level}
    answer = ask(service, "POST", "/predict", {"model": name, "rows": [row]})
    assert answer.headers["content-type"] == "application/json"
    (said,) = answer.json()["rows"]
    assert said["label"] == label
    assert "\n" not in said["rule"]
    assert "\u202e" not in said["rule"]
    (model,) = ask(service, "GET", "/models").json()
    assert [one["name"] for one in model["columns"]] == [column, "\x00\u2028"]
    assert model["name"] == name
    page = ask(service, "GET", "/models/__proto__%20%3Cb%3E/rules")
    assert page.json()["total"] == 3
    text = ask(service, "POST", "/explain", {"row": row}).json()["text"]
    assert not any("\n" in line or "\u202e" in line for line, _ in text)
    assert "<script>" in refusal(ask(service, "POST", "/predict", [{}]))


def test_unsupported_methods_are_refused_as_json(service: Service) -> None:
    for method, path in (("GET", "/predict"), ("POST", "/models"), ("PUT", "/explain")):
        assert refusal(ask(service, method, path), 405)


# --------------------------------------------------------------------------- description


@pytest.mark.matrix
def test_responses_follow_the_openapi_description(service: Service) -> None:
    import jsonschema_rs

    document = make_document()
    paths = document["paths"]

    def validator(content: Any) -> Any:
        own = content["application/json"]["schema"] | {"components": document["components"]}
        return jsonschema_rs.Draft202012Validator(own)

    def schema(path: str, method: str) -> Any:
        return validator(paths[path][method]["responses"]["200"]["content"])

    asks = validator(paths["/predict"]["post"]["requestBody"]["content"])
    rows = {"pulse": [ROW], "dose": [{"x": 1, "y": 1}], "both": [{"x": 1}]}
    rows["weighted"] = [{"x": 2.5}]
    names = ["leaf", "rule", "contributions", "bias"]
    for name, own in rows.items():
        for outputs in (None, names):
            asked = {"model": name, "rows": own, "outputs": outputs}
            asks.validate(asked)
            answer = ask(service, "POST", "/predict", asked)
            assert answer.status_code == 200
            schema("/predict", "post").validate(answer.json())
        answer = ask(service, "POST", "/explain", {"model": name, "row": own[0]})
        schema("/explain", "post").validate(answer.json())
        answer = ask(service, "GET", f"/models/{name}/rules")
        schema("/models/{model_name}/rules", "get").validate(answer.json())
    schema("/models", "get").validate(ask(service, "GET", "/models").json())


def test_a_reloaded_model_is_described_again(tmp_path: Path) -> None:
    path = tmp_path / "m.treekit"
    pulse_model().save(path)
    repository = Repository([path])
    repository.refresh()
    service = Service(repository)
    app = make_app(service)

    async def talk(method: str, url: str, value: Any = None) -> Any:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            content = None if value is None else json.dumps(value)
            return (await client.request(method, url, content=content)).json()

    async def both() -> tuple[list[Any], list[Any]]:
        told = []
        for row in (ROW, {"x": 1, "y": 1}):
            told.append(
                [
                    await talk("POST", "/predict", [row]),
                    await talk("GET", "/models"),
                    await talk("GET", "/models/m/rules"),
                ]
            )
            dose_model().save(tmp_path / "other")
            shutil.move(tmp_path / "other", path)
            repository.refresh()
        return told[0], told[1]

    before, after = asyncio.run(both())
    versions = [{before[0]["version"], before[1][0]["version"], before[2]["version"]}]
    versions.append({after[0]["version"], after[1][0]["version"], after[2]["version"]})
    assert [len(own) for own in versions] == [1, 1]
    assert versions[0] != versions[1]
    assert after[0]["rows"] == [{"value": -0.25}]
    assert after[1][0]["task"] == "regression"
    assert after[2]["rules"][0]["says"] in ("1.5", "-2")


def test_only_short_rules_are_included_by_default() -> None:
    assert OutputConverter(pulse_model()).returns_rule
    assert OutputConverter(weighted_model()).returns_rule
    assert not OutputConverter(dose_model()).returns_rule


# ---------------------------------------------------------------- serve reasons
# Rules and contributions as outputs are the model's own, for every kind of model.

NAN = math.nan


def serve_reasons_pulse_model(**policies: Any) -> Model:
    """One tree: ``pulse <= 60``, then ``pain is mild``."""
    schema = Schema(
        (Column("pulse"), Column("pain", "nominal", ("mild", "severe"))), classes=("home", "ward")
    )
    below = subset("pain", ["mild"], leaf([5, 1]), leaf([0, 6]), missing=1)
    root = threshold("pulse", 60.5, leaf([9, 0]), below, missing=0)
    return make_model(schema, [build_tree(root, schema)], **policies)


def rule_texts(model: Model, *rows: list[float]) -> list[list[str]]:
    matrix = np.array(rows, dtype=model.schema.dtype)
    texts: list[list[str]] = Explanations(model).compute_output("rule", matrix).cells.tolist()
    return texts


# --------------------------------------------------------------------------------- rules


def test_a_rule_is_written_with_exact_numerals() -> None:
    said = rule_texts(serve_reasons_pulse_model(), [60.5, 0], [61.0, 0], [61.0, 1], [61.0, NAN])
    assert said[0] == ["pulse <= 60.5, or is missing"]
    assert said[1] == ["pulse > 60.5 and pain is mild"]
    assert said[2] == ["pulse > 60.5; and pain is severe, or is missing"]
    assert said[3] == said[2]


def test_a_tree_of_one_leaf_always_predicts() -> None:
    schema = Schema((Column("x"),), classes=("a", "b"))
    model = make_model(schema, [build_tree(leaf([1, 2]), schema)] * 2)
    assert rule_texts(model, [3.0]) == [["always", "always"]]


def test_a_list_returns_the_matching_rule_or_otherwise() -> None:
    schema = Schema((Column("x"), Column("y")), classes=(0, 1))
    second = rule([Surrogate("y", 9.0, -1, above=1, lost=-1)], leaf([5, 1]), leaf([2, 3]))
    chain = rule([Surrogate("x", 2.5, 1, above=-1, lost=1)], leaf([1, 8]), second)
    model = make_model(schema, [build_tree(chain, schema)])
    said = rule_texts(model, [3.0, 0.0], [1.0, 9.0], [1.0, 9.5])
    assert said == [["x > 2.5"], ["y <= 9, or is missing"], ["otherwise"]]
    large = LeafRuleTexts(model, most=0)
    assert [*large.format_rules({0: model.trees[0].leaves.tolist()}).values()] == [
        own for (own,) in said
    ]


def test_rules_with_oblique_splits_and_surrogates_are_written_completely() -> None:
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


def test_rule_of_fractional_instances_is_that_of_the_largest_fraction() -> None:
    model = serve_reasons_pulse_model(missing="fractional")
    whole, divided = rule_texts(model, [50.0, NAN], [NAN, 1.0])
    assert "of the row" not in whole[0]
    assert divided[0].startswith("pulse > 60.5, or is missing: 7190235 to 16777216 (57.1%); and")
    share = 100 * 12 / 21  # of the training rows
    assert divided[0].endswith(f" [{share:.3g}% of the row, its largest part]")


def lines_of(model: Model) -> dict[tuple[int, int], list[str]]:
    """The conditions of each leaf in the words of the rules, by tree and node."""
    listed = rules(model)
    return {
        (int(listed.tree[number]), int(listed.leaf[number])): render_conditions(
            listed, *listed.bounds(number)
        )
        for number in range(len(listed))
    }


@settings(max_examples=examples(30))
@given(st.data())
def test_each_leaf_has_the_conditions_of_the_rules(data: st.DataObject) -> None:
    model = data.draw(models(kinds={"fractional", "outputs", "rules"}))
    wanted = {t: tree.leaves.tolist() for t, tree in enumerate(model.trees)}
    said = LeafRuleTexts(model).format_rules(wanted)
    expected = lines_of(model)
    assert said.keys() == expected.keys()
    for pair, conditions in expected.items():
        joined = {between.join(conditions) for between in (" and ", "; and ")}
        assert said[pair] in (joined if conditions else {"always", "otherwise"})


@settings(max_examples=examples(30))
@given(st.data())
def test_a_tree_cut_to_paths_has_the_same_rules(data: st.DataObject) -> None:
    model = data.draw(models(kinds=ALL_KINDS))
    matrix = data.draw(matrices(model))
    wanted = {t: sorted(set(own.tolist())) for t, own in enumerate(leaf_indices(model, matrix).T)}
    assert LeafRuleTexts(model, most=0).format_rules(wanted) == LeafRuleTexts(model).format_rules(
        wanted
    )


def test_texts_are_cached_within_bounds() -> None:
    model = random_model(0, mixed_schema(), n_trees=5)
    rows = np.random.default_rng(0).normal(size=(40, model.schema.n_features)) * 3
    matrix = rows.astype(np.float32)
    free, tight = Explanations(model), Explanations(model, max_chars=5000)
    expected = free.matching_rule_texts(matrix)
    for _ in range(2):
        assert (tight.matching_rule_texts(matrix) == expected).all()
        assert sum(map(len, tight._texts.values())) <= 5000


def test_concurrent_requests_get_the_same_object() -> None:
    model = random_model(0, mixed_schema(), n_trees=8)
    matrix = (np.random.default_rng(0).normal(size=(60, model.schema.n_features)) * 3).astype("f4")
    expected = Explanations(model).matching_rule_texts(matrix).tolist()
    added = Explanations(model).compute_output("contributions", matrix).cells
    own = Explanations(model, max_chars=2000)
    right: list[bool] = []

    def ask(start: int) -> None:
        for i in [*range(start, 60), *range(start)]:
            same = own.matching_rule_texts(matrix[i : i + 1]).tolist() == expected[i : i + 1]
            parts = own.compute_output("contributions", matrix[i : i + 1]).cells
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
def test_contributions_equal_those_of_the_explanation(data: st.DataObject) -> None:
    model = data.draw(models(kinds=ALL_KINDS))
    matrix = data.draw(matrices(model, 3))
    why = Explanations(model)
    bias = why.compute_output("bias", matrix).cells
    added = why.compute_output("contributions", matrix).cells
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
def test_contributions_of_sums_are_before_the_link(model: Model) -> None:
    rows = round_to_dtype(np.array(probe_rows(model, 4)[-8:]), model.schema.dtype)
    why = Explanations(model)
    bias, added = (why.compute_output(name, rows).cells for name in ("bias", "contributions"))
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
def test_vectorised_contributions_equal_those_row_by_row(data: st.DataObject) -> None:
    model = data.draw(models(kinds={"outputs", "hard", "costs"}))
    matrix = data.draw(matrices(model))
    added = contributions.FeatureContributions(model)
    if added._forest_climber is None:
        assert model.has_wide_sums  # some may overflow
        return
    assert (
        added._forest_climber.compute_contributions(matrix) == added._compute_by_row(matrix)
    ).all()


def test_contributions_of_a_small_tree_are_the_changes_along_the_path() -> None:
    model = serve_reasons_pulse_model()
    why = Explanations(model)
    matrix = np.array([[70.0, 1.0]], dtype=np.float32)
    (bias,) = why.compute_output("bias", matrix).cells.tolist()
    (added,) = why.compute_output("contributions", matrix).cells.tolist()
    # The mean of the leaves: 9 of 21 rows are home; of the 12 others 5/6 of 6.
    below = 5 / 12
    assert bias == pytest.approx([14 / 21, 7 / 21], abs=1e-6)
    assert added[0] == pytest.approx([below - 14 / 21, 14 / 21 - below], abs=1e-6)
    assert added[1] == pytest.approx([-below, below], abs=1e-6)
    total = np.array(bias) + np.array(added).sum(axis=0)
    assert total == pytest.approx(model.predict_proba([{"pulse": 70, "pain": "severe"}])[0])


def test_contributions_that_do_not_sum_to_the_prediction_are_omitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = serve_reasons_pulse_model()
    added = contributions.FeatureContributions(model)
    climb = added._forest_climber
    assert climb is not None
    monkeypatch.setattr(climb, "_node_change", climb._node_change + 1)
    with pytest.raises(ModelError, match="a bug in treekit"):
        added.compute_contributions(np.array([[70.0, 1.0]], dtype=np.float32))


def test_contributions_beyond_64_bits_use_python_integers() -> None:
    model = random_model(8, mixed_schema(("no", "yes")))
    units = contributions.FeatureContributions(model)._units
    assert contributions._can_climb(model, units)
    assert not contributions._can_climb(model, [own * 0 + (1 << 60) for own in units])
    assert not contributions.FeatureContributions(random_model(8, mixed_schema(())))._forest_climber


# ---------------------------------------------------------------------- as outputs served


def test_huge_responses_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = serve_reasons_pulse_model()
    matrix = np.zeros((3, 2), np.float32)
    monkeypatch.setattr(reasons, "_MAX_RULE_CHARS", 60)
    monkeypatch.setattr(reasons, "_MAX_NUMBERS", 11)
    for name in ("rule", "contributions"):
        with pytest.raises(TooLargeError, match="fewer rows"):
            Explanations(model).compute_output(name, matrix)
        Explanations(model).compute_output(name, matrix[:2])


def test_the_protocol_returns_requested_explanations_within_their_limit() -> None:
    served = Served("pulse", "1", "d" * 64, serve_reasons_pulse_model())
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


def one_model(served: Served) -> Repository:
    """A repository that holds one model and no file."""
    repository = Repository([])
    put_in_service(repository, served)
    return repository
