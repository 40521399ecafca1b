"""The model repository over HTTP, and what models say of themselves."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving import client_of, models, service_of
from treekit.serve.http.app import make_app
from treekit.serve.scheduling import Service


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


def test_the_index_has_every_version_and_says_why_one_does_not_answer(folder: Path) -> None:
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


def test_metadata_tell_versions_and_digest(folder: Path) -> None:
    service = service_of(folder)
    found = asked(service, "GET", "/v2/models/many").json()
    assert found["versions"] == ["12", "1"]
    path = folder / "many" / "1" / "model.treekit"
    first = asked(service, "GET", "/v2/models/many/versions/1").json()
    assert first["parameters"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert {out["name"]: out["datatype"] for out in first["outputs"]}["label"] == "INT64"
    assert {out["name"]: out["datatype"] for out in found["outputs"]}["label"] == "BOOL"


def test_each_version_answers_as_itself(folder: Path) -> None:
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


def test_a_model_that_appears_is_loaded(folder: Path) -> None:
    service = service_of(folder, control=True)
    shutil.copy(folder / "texts.treekit", folder / "fresh.treekit")
    assert asked(service, "GET", "/v2/models/fresh").status_code == 404
    answer = changed(service, "fresh", "load", b'{"parameters": {"unload_dependents": false}}')
    assert answer.json() == {"name": "fresh", "versions": [service.repository.get("fresh").version]}
    assert asked(service, "GET", "/v2/models/fresh").status_code == 200


def test_a_file_that_is_no_model_any_more_leaves_the_old_one_serving(folder: Path) -> None:
    service = service_of(folder, control=True)
    (folder / "texts.treekit").write_bytes(b"no model")
    answer = changed(service, "texts", "load")
    assert answer.status_code == 400
    assert "'texts' was not loaded" in answer.json()["error"]
    assert asked(service, "GET", "/v2/models/texts/ready").status_code == 200


def test_two_files_of_one_name_do_not_keep_others_from_being_loaded(folder: Path) -> None:
    service = service_of(folder, control=True)
    models()["texts"].save(folder / "twin.treekit")
    (folder / "twin.onnx").write_bytes(b"another of that name")
    assert changed(service, "texts", "load").status_code == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[]", "no request to the model repository: Expected `object`"),
        (b"{", "truncated"),
        (b"\xff", "malformed"),
        (b'{"parameters": {"config": "{}"}}', "'config' is not for this server"),
        (b'{"parameters": {"file:1/model.onnx": "AA=="}}', "'file:1/model.onnx' is not for"),
        (b'{"parameters": {"unload_dependents": 1}}', "'unload_dependents' is 1"),
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


def test_unloading_twice_or_a_stranger(folder: Path) -> None:
    service = service_of(folder, control=True)
    assert changed(service, "texts", "unload").json() == {"name": "texts", "versions": []}
    assert changed(service, "texts", "unload").status_code == 200
    assert changed(service, "nobody", "unload").status_code == 404
    assert {line["reason"] for line in index(service) if line["name"] == "texts"} == {"unloaded"}
