"""OpenAPI 3.1 document of the server at ``/openapi.json``.

The schemas are those of the structs that decode requests and encode responses; the table
`OPERATIONS` lists the endpoints.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from treekit._version import __version__
from treekit.serve import errors
from treekit.serve.errors import ServeError
from treekit.serve.http.json_routes import (
    ExplainRequest,
    ExplainResponse,
    ModelDescription,
    ModelQuery,
    PredictRequest,
    PredictResponse,
    Rows,
    RulesQuery,
    RulesResponse,
)
from treekit.serve.models.repository import IndexEntry
from treekit.serve.protocol.messages import (
    ControlRequest,
    ControlResponse,
    ErrorResponse,
    IndexRequest,
    InferRequest,
    InferResponse,
    LiveServer,
    ModelMetadata,
    ReadyModel,
    ReadyServer,
    ServerMetadata,
)
from treekit.serve.protocol.model_extensions import ModelConfig, ModelStatistics

# ---------------------------------------------------------------- operations


class Operation(NamedTuple):
    """An endpoint: method, path, ``operationId``, summary, and the types of its JSON."""

    method: str
    path: str
    name: str
    summary: str
    answer: Any
    body: Any = None
    query: type[msgspec.Struct] | None = None


_MODEL = "/v2/models/{model_name}"
_VERSION = f"{_MODEL}/versions/{{model_version}}"
_REPOSITORY = "/v2/repository/models/{model_name}"

OPERATIONS = (
    Operation("get", "/v2/health/live", "server_live", "Is the server alive?", LiveServer),
    Operation("get", "/v2/health/ready", "server_ready", "Are all models ready?", ReadyServer),
    Operation("get", "/v2", "server_metadata", "Describe the server.", ServerMetadata),
    *(
        operation
        for path, end in ((_MODEL, ""), (_VERSION, "_version"))
        for operation in (
            Operation("get", path, f"model_metadata{end}", "Describe a model.", ModelMetadata),
            Operation(
                *("get", f"{path}/ready", f"model_ready{end}", "Is the model ready?", ReadyModel)
            ),
            Operation(
                *("get", f"{path}/config", f"model_config{end}"),
                *("Describe a model as Triton does.", ModelConfig),
            ),
            Operation(
                *("get", f"{path}/stats", f"model_statistics{end}"),
                *("Count the inferences of a model.", ModelStatistics),
            ),
            Operation(
                *("post", f"{path}/infer", f"model_infer{end}", "Predict rows."),
                *(InferResponse, InferRequest),
            ),
        )
    ),
    Operation(
        *("get", "/v2/models/stats", "statistics"),
        *("Count the inferences of all models.", ModelStatistics),
    ),
    Operation(
        *("post", "/v2/repository/index", "repository_index", "List the models."),
        *(list[IndexEntry], IndexRequest),
    ),
    *(
        Operation(
            *("post", f"{_REPOSITORY}/{what}", f"repository_{what}"),
            f"{what.capitalize()} a model; requires a server with --control.",
            *(ControlResponse, ControlRequest),
        )
        for what in ("load", "unload")
    ),
    Operation(
        *("post", "/predict", "predict", "Predict rows given as JSON objects."),
        *(PredictResponse, PredictRequest | Rows, ModelQuery),
    ),
    Operation(
        *("post", "/explain", "explain", "Explain the prediction of one row."),
        *(ExplainResponse, ExplainRequest, ModelQuery),
    ),
    Operation("get", "/models", "models", "Describe the models.", list[ModelDescription]),
    Operation(
        *("get", "/models/{model_name}/rules", "rules"),
        "List the rules of a model, paged, optionally only those that contain a text.",
        *(RulesResponse, None, RulesQuery),
    ),
    Operation("get", "/metrics", "metrics", "Prometheus metrics of this server.", str),
)

# ---------------------------------------------------------------- document

Item = dict[str, Any]

_JSON_TYPE = "application/json"
_BYTES_TYPE = "application/octet-stream"
_METRICS_TYPES = ("text/plain", "application/openmetrics-text")
_REFERENCE = "#/components/schemas/{name}"

_LENGTH_HEADER: Item = {
    "description": "Length of the JSON in bytes, if binary data follow.",
    "schema": {"type": "integer", "minimum": 0},
}
_COMMON_ERRORS = {401, 403, 408, 413, 429, 503}
"""Error statuses of all endpoints, raised by the middleware or while reading the body."""


def make_document() -> Item:
    """Create the OpenAPI 3.1 document."""
    types = [kind for own in OPERATIONS for kind in (own.answer, own.body) if kind is not None]
    found, components = msgspec.json.schema_components(
        [*types, ErrorResponse], ref_template=_REFERENCE
    )
    schemas = iter(found)
    paths: dict[str, Item] = {}
    for operation in OPERATIONS:
        answer = next(schemas)
        body = None if operation.body is None else next(schemas)
        item = paths.setdefault(operation.path, {})
        item[operation.method] = _describe_operation(operation, answer, body)
        names = re.findall(r"{(\w+)}", operation.path)
        if names:
            own = {"in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            item["parameters"] = [{"name": name} | own for name in names]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "treekit",
            "version": __version__,
            "summary": "Decision trees and forests over the Open Inference Protocol v2.",
            "description": "https://github.com/kserve/open-inference-protocol, with Triton's "
            "extensions for binary tensors and the model repository.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": _describe_errors(next(schemas)),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # The token is optional, as not every server has one.
        "security": [{}, {"token": []}],
    }


def _describe_errors(schema: Item) -> Item:
    return {
        f"refused_{kind.status}": {
            "description": kind.__doc__,
            "content": {_JSON_TYPE: {"schema": schema}},
        }
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, ServeError) and kind is not ServeError
    }


def _describe_operation(operation: Operation, answer: Item, body: Item | None) -> Item:
    success: Item = {"description": "Success.", "content": {_JSON_TYPE: {"schema": answer}}}
    statuses = set(_COMMON_ERRORS)
    if operation.method == "post":
        statuses |= {400, 415}
    if operation.query is not None:
        statuses.add(400)
    if "{model_name}" in operation.path or operation.query is ModelQuery:
        statuses.add(404)
    responses: Item = {
        str(status): {"$ref": f"#/components/responses/refused_{status}"}
        for status in sorted(statuses)
    }
    described: Item = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": {"200": success} | responses,
    }
    if body is not None:
        required = operation.body not in (IndexRequest, ControlRequest)
        content = {_JSON_TYPE: {"schema": body}}
        described["requestBody"] = {"required": required, "content": content}
    if operation.query is not None:
        described["parameters"] = _describe_query(operation.query)
    if operation.answer in (ReadyServer, ReadyModel):  # also sent with the status 503
        either = {"anyOf": [answer, {"$ref": _REFERENCE.format(name=ErrorResponse.__name__)}]}
        described["responses"]["503"] = {
            "description": "Not ready.",
            "content": {_JSON_TYPE: {"schema": either}},
        }
    elif operation.answer is InferResponse:
        tensors = {"schema": {"description": "JSON, then the bytes of tensors."}}
        name = "Inference-Header-Content-Length"
        described["requestBody"]["content"][_BYTES_TYPE] = tensors
        described["parameters"] = [{"name": name, "in": "header", **_LENGTH_HEADER}]
        success["content"][_BYTES_TYPE] = tensors
        success["headers"] = {name: _LENGTH_HEADER}
    elif operation.answer is str:
        success["content"] = {media: {"schema": answer} for media in _METRICS_TYPES}
    return described


def _describe_query(query: type[msgspec.Struct]) -> list[Item]:
    _, components = msgspec.json.schema_components([query])
    described = []
    for name, schema in components[query.__name__]["properties"].items():
        # A null default means an absent parameter, which has no text.
        own, *_ = (kind for kind in schema.get("anyOf", [schema]) if kind != {"type": "null"})
        described.append({"name": name, "in": "query", "required": False, "schema": own})
    return described
