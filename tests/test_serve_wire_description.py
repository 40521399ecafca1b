"""The description at /openapi.json: schemathesis finds the server as it says."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.serving import client_of, models, on_a_port, service_of
from treekit.serve.http.app import make_app, routes
from treekit.serve.http.metrics import Metrics, metrics_route
from treekit.serve.http.page import page_paths
from treekit.serve.scheduling import Service

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


def test_every_path_of_the_server_is_described_and_no_other(service: Service) -> None:
    served = {
        (re.sub(r"{(name|version)}", r"{model_\1}", route.path), method.lower())
        for route in (*routes(service), metrics_route(Metrics(service)))
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = set(operations(fetched(service)))
    pictures = {"/models/{model_name}/tree.svg", *page_paths()}
    assert served - described == {(path, "get") for path in {"/openapi.json", "/v2/", *pictures}}
    assert described <= served


def test_the_refusals_that_the_specification_leaves_out_are_there(service: Service) -> None:
    found = operations(fetched(service))
    for (path, method), operation in found.items():
        assert {"401", "403", "408", "413", "429", "503"} <= operation["responses"].keys()
        named = "{model_name}" in path
        asked = path in ("/predict", "/explain")  # name a model in their bodies, or none
        searched = path.endswith("/rules")
        assert ("400" in operation["responses"]) == (method == "post" or searched), path
        assert ("404" in operation["responses"]) == (named or asked), path
    ids = [operation["operationId"] for operation in found.values()]
    assert len(set(ids)) == len(ids) == 17


def test_every_reference_leads_somewhere(service: Service) -> None:
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


def name_texts(operation: Any, version: str) -> None:
    """Have an operation ask the model "texts", in its query and in its body."""
    known = {"model": {"enum": ["texts"]}, "version": {"enum": [version]}}
    for parameter in operation["parameters"]:
        parameter["schema"] = known[parameter["name"]]
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    for form in body.get("anyOf", [body]):
        if "properties" in form:
            form["properties"] |= known
            form["required"] = [*form["required"], "model"]


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
            name_texts(item["post"], version)
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
