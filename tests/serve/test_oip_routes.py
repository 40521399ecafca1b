"""The model repository over HTTP, and metadata of models."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving import client_of, models, on_a_port, service_of
from treekit.serve.http.app import list_routes, make_app
from treekit.serve.http.metrics import Metrics, make_metrics_route
from treekit.serve.http.page import list_page_paths
from treekit.serve.scheduling import Service

# ---------------------------------------------------------------- serve wire control


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models()["texts"].save(tmp_path / "texts.treekit")
    for version, name in (("1", "ints"), ("12", "bools")):
        place = tmp_path / "many" / version
        place.mkdir(parents=True)
        models()[name].save(place / "model.treekit")
    return tmp_path


def asked(service: Service, method: str, path: str, body: bytes = b"") -> httpx.Response:
    async def ask() -> httpx.Response:
        async with client_of(make_app(service)) as client:
            return await client.request(method, path, content=body)

    return asyncio.run(ask())


def changed(service: Service, name: str, what: str, body: bytes = b"") -> httpx.Response:
    return asked(service, "POST", f"/v2/repository/models/{name}/{what}", body)


def index(service: Service, body: bytes = b"") -> Any:
    return asked(service, "POST", "/v2/repository/index", body).json()


def test_the_index_lists_every_version_with_the_reason_of_failures(folder: Path) -> None:
    (folder / "broken.treekit").write_bytes(b"no model")
    service = service_of(folder)
    lines = {(line["name"], line["version"]): line for line in index(service)}
    assert {name for name, _ in lines} == {"texts", "many", "broken"}
    assert lines["many", "12"]["state"] == "READY"
    assert lines["broken", ""]["state"] == "UNAVAILABLE"
    assert "broken.treekit" in lines["broken", ""]["reason"]
    ready = {line["name"] for line in index(service, b'{"ready": true}')}
    assert ready == {"texts", "many"}
    assert asked(service, "GET", "/v2/health/ready").status_code == 503
    refused = asked(service, "GET", "/v2/models/broken/ready")
    assert (refused.status_code, refused.json()) == (503, {"name": "broken", "ready": False})


def test_metadata_state_versions_and_digest(folder: Path) -> None:
    service = service_of(folder)
    found = asked(service, "GET", "/v2/models/many").json()
    assert found["versions"] == ["12", "1"]
    path = folder / "many" / "1" / "model.treekit"
    first = asked(service, "GET", "/v2/models/many/versions/1").json()
    assert first["parameters"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert {out["name"]: out["datatype"] for out in first["outputs"]}["label"] == "INT64"
    assert {out["name"]: out["datatype"] for out in found["outputs"]}["label"] == "BOOL"


def test_each_version_predicts_as_its_model(folder: Path) -> None:
    service = service_of(folder)
    given = {"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [0.1, 0.2, 0.3, 0.4]}
    body = json.dumps({"inputs": [given]}).encode()
    newest, first = ("12", bool), ("1", int)
    for path, (version, kind) in {
        "": newest,
        "/versions/12": newest,
        "/versions/1": first,
    }.items():
        answer = asked(service, "POST", f"/v2/models/many{path}/infer", body).json()
        assert answer["model_version"] == version
        assert type(answer["outputs"][0]["data"][0]) is kind


def test_control_is_refused_unless_the_server_allows_it(folder: Path) -> None:
    service = service_of(folder)
    for what in ("load", "unload"):
        answer = changed(service, "texts", what, b"no JSON at all")
        assert answer.status_code == 403
        assert "--control" in answer.json()["error"]
    assert service.repository.get("texts")


X = {"name": "a", "shape": [1], "datatype": "FP32", "data": [1]}
MANY = {
    "inputs": ({"inputs": [X] * 100}, "the request has 100 inputs, but model 'texts' only"),
    "outputs": ({"inputs": [X], "outputs": [{"name": "label"}] * 100}, "selects 100 outputs"),
    "objects": ({"inputs": [X] * 20_000}, "20,001 JSON objects"),
    "objects and NaN": ({"x": float("nan"), "inputs": [X] * 20_000}, "20,001 JSON objects"),
    "members": ({"inputs": [X], "parameters": dict.fromkeys(map(str, range(9000)))}, "members"),
    "lists": ({"inputs": [X], "x": ["", *[[]] * 900_000]}, "JSON lists"),
}


@pytest.mark.parametrize("case", MANY)
def test_too_many_inputs_or_outputs_are_refused_before_decoding(
    folder: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    body, said = MANY[case]
    service = service_of(folder)
    text = json.dumps(body).encode()
    name = "treekit.serve.http.oip_routes.decode_tensors"
    monkeypatch.setattr(name, lambda *_: pytest.fail("decoded"))
    answer = asked(service, "POST", "/v2/models/texts/infer", text)
    assert (answer.status_code, said in answer.text) == (413, True), answer.text
    # The same before the bytes of inputs.
    headers = {"Inference-Header-Content-Length": str(len(text))}

    async def ask() -> httpx.Response:
        async with client_of(make_app(service)) as client:
            path = "/v2/models/texts/infer"
            return await client.post(path, content=text + b"{" * 9, headers=headers)

    assert asyncio.run(ask()).text == answer.text


def test_braces_in_strings_and_binary_data_are_not_counted_as_objects(folder: Path) -> None:
    service = service_of(folder)
    texts = ['{"[:\\' * 30] * 500
    given = {"name": "a", "shape": [500], "datatype": "BYTES", "data": texts}
    answer = asked(
        service, "POST", "/v2/models/texts/infer", json.dumps({"inputs": [given]}).encode()
    )
    assert answer.status_code == 400  # not 413: "a" is no input of texts, or lacks others
    assert "input" in answer.json()["error"]


def test_a_large_request_to_the_repository_is_refused(folder: Path) -> None:
    service = service_of(folder)
    service.control = True
    answer = changed(
        service, "texts", "load", b'{"parameters": {"file:1": "%b"}}' % (b"a" * 70_000)
    )
    assert answer.status_code == 413
    assert "leave out their content" in answer.json()["error"]


def test_a_model_that_appears_is_loaded(folder: Path) -> None:
    service = service_of(folder, control=True)
    shutil.copy(folder / "texts.treekit", folder / "fresh.treekit")
    assert asked(service, "GET", "/v2/models/fresh").status_code == 404
    answer = changed(service, "fresh", "load", b'{"parameters": {"unload_dependents": false}}')
    assert answer.json() == {"name": "fresh", "versions": [service.repository.get("fresh").version]}
    assert asked(service, "GET", "/v2/models/fresh").status_code == 200


def test_file_that_became_invalid_keeps_the_old_model_serving(folder: Path) -> None:
    service = service_of(folder, control=True)
    (folder / "texts.treekit").write_bytes(b"no model")
    answer = changed(service, "texts", "load")
    assert answer.status_code == 400
    assert "'texts' was not loaded" in answer.json()["error"]
    assert asked(service, "GET", "/v2/models/texts/ready").status_code == 200


def test_duplicate_model_names_do_not_prevent_loading_others(folder: Path) -> None:
    service = service_of(folder, control=True)
    models()["texts"].save(folder / "twin.treekit")
    (folder / "twin" / "1").mkdir(parents=True)
    (folder / "twin" / "1" / "model.treekit").write_bytes(b"another of that name")
    assert changed(service, "texts", "load").status_code == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[]", "invalid request to the model repository: Expected `object`"),
        (b"{", "the body is not JSON"),
        (b"\xff", "a string in the body is not UTF-8"),
        (b'{"parameters": {"config": "{}"}}', "unsupported parameter 'config'"),
        (
            b'{"parameters": {"file:1/model.onnx": "AA=="}}',
            "unsupported parameter 'file:1/model.onnx'",
        ),
        (
            b'{"parameters": {"unload_dependents": 1}}',
            "'unload_dependents' must be true or false, got 1",
        ),
        (b'{"parameters": 7}', "Expected `object"),
    ],
)
def test_control_requests_of_another_form_are_refused(
    folder: Path, body: bytes, words: str
) -> None:
    service = service_of(folder, control=True)
    for what in ("load", "unload"):
        answer = changed(service, "texts", what, body)
        assert answer.status_code == 400
        assert words in answer.json()["error"]
    assert asked(service, "GET", "/v2/models/texts/ready").status_code == 200


def test_unloading_twice_or_an_unknown_model_is_refused(folder: Path) -> None:
    service = service_of(folder, control=True)
    assert changed(service, "texts", "unload").json() == {"name": "texts", "versions": []}
    assert changed(service, "texts", "unload").status_code == 200
    assert changed(service, "nobody", "unload").status_code == 404
    assert {line["reason"] for line in index(service) if line["name"] == "texts"} == {"unloaded"}


# ---------------------------------------------------------------- serve wire description
# The description at /openapi.json: schemathesis finds the server as it says.

SECONDS = 15
"""Of schemathesis; it takes as long again where the machine is busy."""


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return a_service(tmp_path, control=True)


def a_service(tmp_path: Path, *, control: bool) -> Service:
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("texts", "mixed", "spare"):
        models()["texts" if name == "spare" else name].save(folder / f"{name}.treekit")
    return service_of(folder, control=control, body_bytes=1 << 20)


def fetched(service: Service) -> Any:
    async def ask() -> Any:
        async with client_of(make_app(service)) as client:
            return (await client.get("/openapi.json")).json()

    return asyncio.run(ask())


def operations(document: Any) -> dict[tuple[str, str], Any]:
    return {
        (path, method): item[method]
        for path, item in document["paths"].items()
        for method in ("get", "post")
        if method in item
    }


def test_openapi_document_describes_exactly_the_paths_of_the_server(service: Service) -> None:
    served = {
        (re.sub(r"{(name|version)}", r"{model_\1}", route.path), route.method.lower())
        for route in (*list_routes(service), make_metrics_route(Metrics(service)))
    }
    described = set(operations(fetched(service)))
    pictures = {"/models/{model_name}/tree.svg", *list_page_paths()}
    assert served - described == {(path, "get") for path in {"/openapi.json", "/v2/", *pictures}}
    assert described <= served


def test_openapi_document_lists_the_additional_error_responses(service: Service) -> None:
    found = operations(fetched(service))
    for (path, method), operation in found.items():
        assert {"401", "403", "408", "413", "429", "503"} <= operation["responses"].keys()
        named = "{model_name}" in path
        asked = path in ("/predict", "/explain")  # name a model in their bodies, or none
        searched = path.endswith("/rules")
        assert ("400" in operation["responses"]) == (method == "post" or searched), path
        assert ("404" in operation["responses"]) == (named or asked), path
    ids = [operation["operationId"] for operation in found.values()]
    assert len(set(ids)) == len(ids) == 22


def test_every_reference_of_the_openapi_document_resolves(service: Service) -> None:
    document = fetched(service)
    references = set(re.findall(r'"\$ref":\s*"#/([^"]+)"', json.dumps(document)))
    assert len(references) > 20
    for reference in references:
        place = document
        for step in reference.split("/"):
            place = place[step]
    assert all(
        f"components/schemas/{name}" in references or name == "parameters"
        for name in document["components"]["schemas"]
    )


def name_texts(operation: Any, version: str, schemas: Any) -> None:
    """Have an operation ask the model "texts", in its query and in its body."""
    known = {"model": {"enum": ["texts"]}, "version": {"enum": [version]}}
    for parameter in operation["parameters"]:
        parameter["schema"] = known.get(parameter["name"], parameter["schema"])
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    for form in body.get("anyOf", [body]):
        if "$ref" in form:
            own = schemas[form["$ref"].rpartition("/")[2]]
            own["properties"] |= known
            own["required"] = [*own["required"], "model"]


def of_these_models(document: Any, service: Service) -> Any:
    """The description with the names that are there, and requests that are right.

    Names alone would be random, and nothing but 404 seen.
    """
    version = service.repository.get("texts").version
    good = {
        "id": "7",
        "inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [0.5] * 4}],
        "outputs": [{"name": "probabilities"}],
    }
    for path, item in document["paths"].items():
        for parameter in item.get("parameters", ()):
            if parameter["name"] == "model_name":
                name = "spare" if "/repository/" in path else "texts"
                parameter["schema"] = {"enum": [name]}
            if parameter["name"] == "model_version":
                parameter["schema"] = {"enum": [version]}
        if path in ("/predict", "/explain"):
            name_texts(item["post"], version, document["components"]["schemas"])
        if path.endswith("/infer"):
            content = item["post"]["requestBody"]["content"]
            content["application/json"]["examples"] = {"one": {"value": good}}
    return document


CONFIGURATION = """\
# What a schema cannot say (names of columns, shapes against data) is refused with 400.
[[operations]]
include-path-regex = "/infer$"
checks.positive_data_acceptance.expected-statuses = ["2XX", "400", "413"{more}]
[[operations]]
include-path-regex = "^/(predict|explain)$"
checks.positive_data_acceptance.expected-statuses = ["2XX", "400", "404", "413"]
"""


@pytest.mark.system
@pytest.mark.parametrize("names", ["known", "any"])
def test_schemathesis_finds_no_server_error_and_no_violation(tmp_path: Path, names: str) -> None:
    # Where it may name any model, it finds those that are there, and would unload them.
    service = a_service(tmp_path, control=names == "known")
    document = fetched(service)
    if names == "known":
        document = of_these_models(document, service)
    description = tmp_path / "openapi.json"
    description.write_text(json.dumps(document))
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(CONFIGURATION.replace("{more}", ', "404"' if names == "any" else ""))
    examples, phases = {
        "known": ("12", "examples,coverage,fuzzing"),
        "any": ("4", "fuzzing"),
    }[names]
    with on_a_port(service) as address:
        command = [
            *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
            *("--config-file", str(configuration), "run", str(description)),
            *("--url", f"http://{address}", "--seed", "8", "--checks", "all"),
            *("--max-examples", examples, "--phases", phases, "--no-color"),
        ]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=12 * SECONDS, check=False
        )
    report = done.stdout + done.stderr
    assert done.returncode == 0, report[-6000:]
    passed = re.search(r"(\d+) generated, (\d+) passed", report)
    assert passed, report[-3000:]
    assert int(passed[1]) == int(passed[2]) > (20 if names == "any" else 150)
    if names == "known":
        assert "Missing test data" not in report  # the models were reached
