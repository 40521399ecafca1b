"""Columns that rows lack: the same rule in Python, on the command line and on the server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import treekit
from tests.serving import server_thread, service_of
from tests.serving_gate import ask, make_gate_app
from treekit.cli import main
from treekit.data.schema import Column, Schema
from treekit.data.table import read_table
from treekit.errors import DataError
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.serve.client import Client, RemoteModel
from treekit.serve.errors import InvalidRequestError
from treekit.serve.models.served_model import Served
from treekit.serve.models.tensors import Tensor

TOWNS = ("Bonn", "Ulm")


def make_town_model(missing: Any = "direction") -> Model:
    """Make a model that tests `age` and `town`, but neither `size` nor `colour`."""
    columns = (
        Column("size"),
        Column("age"),
        Column("colour", "nominal", ("blue", "red")),
        Column("town", "nominal", TOWNS),
    )
    schema = Schema(columns, classes=("no", "yes"))
    deep = subset("town", ["Bonn"], leaf([3, 1]), leaf([0, 9]))
    tree = build_tree(threshold("age", 30.5, leaf([8, 1]), deep, missing=1), schema)
    return make_model(schema, [tree], missing=missing)


TESTED = {"age": [41.0, 20.0, 50.0], "town": ["Bonn", "Ulm", "Ulm"]}
WHOLE = {**TESTED, "size": [1.0, 2.0, 3.0], "colour": ["red", "red", "blue"]}
WITHOUT_TOWN = {"age": [41.0, 20.0, 50.0]}
AS_MISSING = {**WHOLE, "town": [None, None, None]}


@pytest.fixture(params=["direction", "error"])
def model(request: pytest.FixtureRequest) -> Model:
    return make_town_model(request.param)


def rows_of(table: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(table, cells, strict=True)) for cells in zip(*table.values(), strict=True)]


def test_model_lists_the_columns_it_uses(model: Model) -> None:
    assert model.tested.tolist() == [False, True, False, True]


def test_columns_unused_by_the_model_may_be_absent(model: Model) -> None:
    expected = model.predict(WHOLE).tolist()
    assert model.predict(TESTED).tolist() == expected == ["no", "no", "yes"]
    assert (model.predict_proba(TESTED) == model.predict_proba(WHOLE)).all()
    score = model.scorer()
    assert [score(row) for row in score.rows(TESTED)] == expected
    for row, label in zip(rows_of(TESTED), expected, strict=True):
        found = model.explain(row)
        assert found.says[0].label == label
        assert [cell.state for cell in found.row] == ["absent", "known", "absent", "known"]
        assert "Missing" not in found.text()


def test_absent_columns_used_by_the_model_raise_an_error(model: Model) -> None:
    for call in (model.predict, model.predict_proba, model.scorer().rows):
        with pytest.raises(DataError, match=r"the table has no column 'town'.*absent='missing'"):
            call(WITHOUT_TOWN)
    with pytest.raises(DataError, match=r"the row has no column 'town'.*absent='missing'"):
        model.explain({"age": 41.0})
    with pytest.raises(DataError, match="absent is 'skip'; expected 'error' or 'missing'"):
        model.predict(WITHOUT_TOWN, absent="skip")


def test_absent_missing_fills_absent_columns_with_missing_values() -> None:
    model = make_town_model()
    expected = model.predict(AS_MISSING).tolist()
    assert model.predict(WITHOUT_TOWN, absent="missing").tolist() == expected
    assert model.explain({"age": 41.0}, absent="missing").says[0].label == expected[0]
    with pytest.raises(DataError, match="'town' is missing in row 0"):
        make_town_model("error").predict(WITHOUT_TOWN, absent="missing")
    assert make_town_model("error").explain({"age": 41.0}, absent="missing").refused


def test_evaluation_needs_only_used_columns(model: Model) -> None:
    target = {"target": ["no", "no", "no"]}
    part, whole = (treekit.evaluate(model, {**rows, **target}) for rows in (TESTED, WHOLE))
    assert part.scores == whole.scores


def test_command_line_accepts_absent_unused_columns(tmp_path: Path) -> None:
    model = make_town_model()
    model.save(tmp_path / "m.treekit")
    (tmp_path / "r.csv").write_text("town,age\nBonn,41\nUlm,20\n")
    (tmp_path / "less.csv").write_text("age\n41\n20\n")

    def call(*words: object) -> Any:
        return CliRunner().invoke(main, [str(word) for word in words])

    command = ("predict", tmp_path / "m.treekit")
    assert call(*command, tmp_path / "r.csv").output == "target\nno\nno\n"
    refused = call(*command, tmp_path / "less.csv")
    assert refused.exit_code == 2
    assert "the table has no column 'town'" in refused.output
    given = call(*command, tmp_path / "less.csv", "--absent", "missing")
    expected = model.predict({"age": [41.0, 20.0], "town": [None, None]}).tolist()
    assert given.output.split() == ["target", *expected]
    command = ("explain", tmp_path / "m.treekit", "--row", "age=41")
    assert "the row has no column 'town'" in call(*command).output
    assert "town is missing" in call(*command, "--absent", "missing").output


def test_explanation_starts_with_an_unseen_category_and_suggestion() -> None:
    found = make_town_model().explain({"age": 41, "town": "Bon", "colour": "sea green"})
    lines = found.text().splitlines()
    unseen = "a category not seen in training: treated as missing"
    assert lines[0] == f'colour is "sea green", {unseen}'
    assert lines[1] == f'town is "Bon", {unseen}; did you mean "Bonn"?'
    assert lines[2].startswith("target is ")
    assert [cell.similar for cell in found.row] == [None, None, None, "Bonn"]
    refused = make_town_model("error").explain({"age": 41, "town": "Bon"}).text()
    assert 'did you mean "Bonn"?' in refused


@pytest.fixture
def app(tmp_path: Path) -> Any:
    make_town_model().save(tmp_path / "m.treekit")
    return make_gate_app(service_of(tmp_path))


def test_json_rows_accept_absent_unused_columns(app: Any) -> None:
    model = make_town_model()
    whole = ask(app, "POST", "/predict", json=rows_of(WHOLE)).json()
    assert ask(app, "POST", "/predict", json=rows_of(TESTED)).json() == whole
    refused = ask(app, "POST", "/predict", json=rows_of(WITHOUT_TOWN))
    assert refused.status_code == 400
    assert "row 0 (counting from 0) has no column 'town', required by" in refused.json()["error"]
    expected = model.predict(AS_MISSING).tolist()
    body = {"rows": rows_of(WITHOUT_TOWN), "absent": "missing"}
    for path, given in (("/predict", body), ("/predict?absent=missing", body["rows"])):
        answer = ask(app, "POST", path, json=given).json()
        assert [row["label"] for row in answer["rows"]] == expected
    assert "absent" in ask(app, "POST", "/predict?absent=no", json=body["rows"]).json()["error"]
    unknown = ask(app, "POST", "/predict?absent=missing", json=[{"age": 3, "twn": "Bonn"}])
    assert "did you mean 'town'?" in unknown.json()["error"]


def test_server_explanations_accept_absent_unused_columns(app: Any) -> None:
    row = {"age": 41}
    assert "has no column 'town'" in ask(app, "POST", "/explain", json={"row": row}).json()["error"]
    answer = ask(app, "POST", "/explain", json={"row": row, "absent": "missing"}).json()
    assert answer["explanation"]["row"][3]["state"] == "absent"
    tested = ask(app, "POST", "/explain", json={"row": {**row, "town": "Bonn"}}).json()
    assert tested["explanation"]["says"][0]["label"] == "no"


def inputs_of(table: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "shape": [len(cells)],
            "datatype": "BYTES" if name in ("town", "colour") else "FP32",
            "data": cells,
        }
        for name, cells in table.items()
    ]


def test_protocol_inputs_accept_absent_unused_columns(app: Any) -> None:
    model = make_town_model()

    def infer(table: dict[str, list[Any]], **parameters: str) -> Any:
        body = {"inputs": inputs_of(table), "parameters": parameters}
        return ask(app, "POST", "/v2/models/m/infer", json=body).json()

    assert infer(TESTED) == infer(WHOLE)
    assert "input 'town' is missing from the request" in infer(WITHOUT_TOWN)["error"]
    labels = infer(WITHOUT_TOWN, absent="missing")["outputs"][0]["data"]
    assert labels == model.predict(AS_MISSING).tolist()
    assert "must be 'error' or 'missing'" in infer(WITHOUT_TOWN, absent="none")["error"]
    metadata = ask(app, "GET", "/v2/models/m").json()["parameters"]
    assert json.loads(metadata["untested"]) == ["size", "colour"]


def test_numeric_inputs_accept_absent_unused_columns() -> None:
    schema = Schema((Column("a"), Column("b"), Column("c")), classes=("no", "yes"))
    tree = build_tree(threshold("b", 0.5, leaf([3, 1]), leaf([0, 9]), missing=1), schema)
    served = Served("m", "1", "0" * 64, make_model(schema, [tree], missing="error"))
    a, b = (Tensor(name, "FP32", np.ones(2, np.float32)) for name in "ab")
    assert served.parse_inputs([b]).tolist() == [[0.0, 1.0, 0.0]] * 2
    with pytest.raises(InvalidRequestError, match="input 'b' is missing from the request"):
        served.parse_inputs([a])
    with pytest.raises(InvalidRequestError, match="'b' has a missing value, which is an error"):
        served.parse_inputs([a], "missing")
    lenient = Served("m", "1", "0" * 64, make_model(schema, [tree]))
    assert np.isnan(lenient.parse_inputs([a], "missing")).tolist() == [[False, True, False]] * 2
    with pytest.raises(InvalidRequestError, match="the request has no inputs"):
        served.parse_inputs([], "missing")


def test_remote_predictions_accept_absent_unused_columns(tmp_path: Path) -> None:
    make_town_model().save(tmp_path / "m.treekit")
    with server_thread(tmp_path) as url:
        client = Client(url)
        try:
            remote = RemoteModel(client, "m")
            assert [*remote.predict_lines(read_table(TESTED))][1] == [("no",), ("no",), ("yes",)]
            with pytest.raises(DataError, match="the table has no column 'town'"):
                list(remote.predict_lines(read_table(WITHOUT_TOWN)))
            lines = [*remote.predict_lines(read_table(WITHOUT_TOWN), absent="missing")][1]
            assert [line[0] for line in lines] == make_town_model().predict(AS_MISSING).tolist()
        finally:
            client.close()
