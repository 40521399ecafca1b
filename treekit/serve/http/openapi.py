"""OpenAPI 3.1 document of the server at ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from treekit._version import __version__
from treekit.serve.models.tensors import DATATYPES
from treekit.serve.protocol.tensor_data import MOST_DIMENSIONS

__all__ = [
    "JSON",
    "NAME",
    "SCHEMAS",
    "array",
    "document",
    "fields",
    "json_body",
    "oip_paths",
    "operation",
    "plain_paths",
    "ref",
]


# ---------------------------------------------------------------- document

Item = dict[str, Any]

JSON = "application/json"

_REFUSALS = {
    "400": "The request violates the protocol or the model's schema.",
    "401": "The bearer token is missing or invalid.",
    "403": "The host, origin or kind of the request is not allowed.",
    "404": "The model or version does not exist.",
    "408": "The body did not arrive in time.",
    "413": "The request exceeds the limit on bytes, rows or explanations.",
    "415": "The Content-Encoding is not gzip or deflate.",
    "429": "Too many concurrent requests; retry later.",
    "503": "The model is not loaded, the response takes too long, or the server is closing.",
}
_OF_ALL = ("401", "403", "408", "413", "429", "503")
"""Error statuses of all endpoints, raised by the middleware or while reading the body."""


def json_body(schema: Item, *, required: bool = True, more: Item | None = None) -> Item:
    """Describe a request body: JSON with a schema, and other media types."""
    return {"required": required, "content": {JSON: {"schema": schema}, **(more or {})}}


def operation(
    name: str,
    summary: str,
    answer: Item,
    *,
    body: Item | None = None,
    parameters: Iterable[Item] = (),
    refusals: Iterable[str] = (),
    responses: Item | None = None,
) -> Item:
    """Describe an operation with a JSON response.

    Parameters
    ----------
    name : str
        Its ``operationId``.
    summary : str
    answer : schema
        Schema of the response with status 200.
    body : dict, optional
        Result of `json_body`.
    parameters : iterable of dict
    refusals : iterable of str
        Error statuses in addition to those of all endpoints.
    responses : dict, optional
        Responses that replace some of these.
    """
    found: Item = {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": "Success.", "content": {JSON: {"schema": answer}}},
            **{
                status: {"$ref": f"#/components/responses/refused_{status}"}
                for status in sorted({*_OF_ALL, *refusals})
            },
            **(responses or {}),
        },
    }
    if body is not None:
        found["requestBody"] = body
    if parameters:
        found["parameters"] = list(parameters)
    return found


def document(paths: Mapping[str, Item], schemas: Mapping[str, Item]) -> Item:
    """Create the OpenAPI 3.1 document.

    Parameters
    ----------
    paths : mapping
        Path items of all endpoints, by path.
    schemas : mapping
        Schemas that they refer to, including `error_response`.

    Returns
    -------
    dict
        The document.
    """
    refused = {"content": {JSON: {"schema": ref("error_response")}}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "treekit",
            "version": __version__,
            "summary": "Decision trees and forests over the Open Inference Protocol v2.",
            "description": "https://github.com/kserve/open-inference-protocol, with Triton's "
            "extensions for binary tensors and the model repository.",
        },
        "paths": dict(paths),
        "components": {
            "schemas": dict(schemas),
            "responses": {
                f"refused_{status}": {"description": text, **refused}
                for status, text in _REFUSALS.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # The token is optional, as not every server has one.
        "security": [{}, {"token": []}],
    }


# ---------------------------------------------------------------- protocol paths
# Paths of the protocol and of Triton's model repository.
#
# Written from ``specification/protocol/inference_rest.md`` of
# https://github.com/kserve/open-inference-protocol, including the error responses that its
# ``open_inference_rest.yaml`` omits.

_BYTES = "application/octet-stream"


def _in_path(name: str, text: str) -> Item:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": text,
        "schema": {"type": "string", "minLength": 1},
    }


NAME = _in_path("model_name", "Name of the model, that of its file.")
_VERSION = _in_path("model_version", "Version of the model.")
_LENGTH: Item = {
    "name": "Inference-Header-Content-Length",
    "in": "header",
    "description": "Length of the JSON in bytes, if binary data follow.",
    "schema": {"type": "integer", "minimum": 0},
}


def _probe(name: str, summary: str, answer: Item) -> Item:
    """Describe an operation whose negative response (503) has the schema of the positive one."""
    content = {JSON: {"schema": {"anyOf": [answer, ref("error_response")]}}}
    no = {"503": {"description": "Not ready.", "content": content}}
    return operation(name, summary, answer, responses=no)


def _infer(name: str) -> Item:
    found = operation(
        name,
        "Predict rows.",
        ref("inference_response"),
        body=json_body(
            ref("inference_request"),
            more={_BYTES: {"schema": {"description": "JSON, then the bytes of tensors."}}},
        ),
        parameters=[_LENGTH],
        refusals=("400", "404", "415"),
    )
    answer = found["responses"]["200"]
    answer["content"][_BYTES] = {"schema": {"description": "JSON, then the bytes of outputs."}}
    answer["headers"] = {
        _LENGTH["name"]: {
            "description": "Length of the JSON in bytes, if bytes of outputs follow.",
            "schema": {"type": "integer"},
        }
    }
    return found


def _model_paths() -> dict[str, Item]:
    paths: dict[str, Item] = {}
    versioned = "/v2/models/{model_name}/versions/{model_version}"
    for place, end, given in (
        ("/v2/models/{model_name}", "", [NAME]),
        (versioned, "_version", [NAME, _VERSION]),
    ):
        metadata = operation(
            f"model_metadata{end}",
            "Describe a model.",
            ref("metadata_model_response"),
            refusals=("404",),
        )
        ready = _probe(f"model_ready{end}", "Is the model ready?", ref("ready_model_response"))
        ready["responses"]["404"] = {"$ref": "#/components/responses/refused_404"}
        paths[place] = {"parameters": given, "get": metadata}
        paths[f"{place}/ready"] = {"parameters": given, "get": ready}
        paths[f"{place}/infer"] = {"parameters": given, "post": _infer(f"model_infer{end}")}
    return paths


def oip_paths() -> dict[str, Item]:
    """Return the OpenAPI paths of the protocol."""
    live, ready = ref("live_server_response"), ref("ready_server_response")
    server = ref("metadata_server_response")
    control = json_body(ref("repository_control_request"), required=False)
    changed = ref("repository_control_response")
    return {
        "/v2/health/live": {"get": operation("server_live", "Is the server alive?", live)},
        "/v2/health/ready": {"get": _probe("server_ready", "Are all models ready?", ready)},
        "/v2": {"get": operation("server_metadata", "Describe the server.", server)},
        **_model_paths(),
        "/v2/repository/index": {
            "post": operation(
                "repository_index",
                "List the models.",
                ref("repository_index_response"),
                body=json_body(ref("repository_index_request"), required=False),
                refusals=("400", "415"),
            )
        },
        **{
            f"/v2/repository/models/{{model_name}}/{what}": {
                "parameters": [NAME],
                "post": operation(
                    f"repository_{what}",
                    f"{what.capitalize()} a model; requires a server with --control.",
                    changed,
                    body=control,
                    refusals=("400", "404", "415"),
                ),
            }
            for what in ("load", "unload")
        },
    }


# ---------------------------------------------------------------- JSON paths

Json = dict[str, Any]

_TEXT: Json = {"type": "string"}
_CELL: Json = {"type": ["string", "number", "boolean", "null"]}
_ROW: Json = {
    "type": "object",
    "description": "A value for each column of the model; null or NaN if it is missing.",
    "minProperties": 1,
    "additionalProperties": _CELL,
}


def plain_paths() -> Json:
    """Return the OpenAPI paths of `treekit.serve.http.json_routes.plain_routes`."""
    return {
        "/predict": {"post": _predict()},
        "/explain": {"post": _explain()},
        "/models": {"get": _models()},
        "/models/{model_name}/rules": {"parameters": [NAME], "get": _rules()},
        "/metrics": {"get": _metrics()},
    }


def _metrics() -> Json:
    described = operation("metrics", "Prometheus metrics of requests, models and processes.", _TEXT)
    openmetrics = "application/openmetrics-text"
    described["responses"]["200"]["content"] = {
        media: {"schema": _TEXT} for media in ("text/plain", openmetrics)
    }
    return described


def _predict() -> Json:
    names = ["label", "probabilities", "value", "leaf", "rule", "contributions", "bias"]
    rows: Json = {"type": "array", "minItems": 1, "items": _ROW}
    body = _object(
        {
            **_which(),
            "rows": rows,
            "outputs": {
                "type": ["array", "null"],
                "uniqueItems": True,
                "description": f"Outputs of a treekit model: {', '.join(names)}.",
                "items": _TEXT,
            },
        },
        ["rows"],
    )
    body["additionalProperties"] = False
    answer = _object({"model": _TEXT, "version": _TEXT, "rows": _list(_answered())})
    return operation(
        "predict",
        "Predict rows given as JSON objects.",
        answer,
        body=json_body({"anyOf": [body, rows]}),
        parameters=[_query("model", _TEXT), _query("version", _TEXT)],
        refusals=("400", "404", "415"),
    )


def _answered() -> Json:
    """Return the schema of a predicted row; rows of foreign models contain outputs by name."""
    one = {
        "label": {"type": ["string", "number", "boolean"]},
        "probabilities": {"type": "object", "additionalProperties": {"type": "number"}},
        "value": {"type": ["number", "null"]},
        "contributions": {
            "type": "object",
            "description": "For each column a number, or a number for each class.",
        },
        "bias": {"type": ["number", "object"]},
    }
    fired = {"tree": {"type": "integer", "minimum": 1}, "rule": _TEXT}
    targets = {"type": "object", "additionalProperties": _object(one, [])}
    several = {
        "targets": targets,
        "leaf": _list({"type": "integer"}),
        "rule": _TEXT,
        "rules": _list(_object(fired)),
    }
    return _object(one | several, [])


def _explain() -> Json:
    whole: Json = {"type": ["integer", "null"]}
    body = _object(
        {
            **_which(),
            "row": _ROW,
            "lang": {"type": ["string", "null"], "enum": ["en", "zh", None]},
            "tree": whole | {"minimum": 1, "description": "Tree of the decision path, from 1."},
            "changes": whole | {"minimum": 0, "maximum": 2},
            "wish": _CELL | {"description": "A label, or a range such as '>= 10'."},
            "target": {"type": ["string", "null"]},
            "fixed": {"type": ["array", "null"], "items": _TEXT},
        },
        ["row"],
    )
    body["additionalProperties"] = False
    line = {"type": "array", "prefixItems": [_TEXT, {"type": "boolean"}], "minItems": 2}
    answer = {"model": _TEXT, "version": _TEXT, "explanation": {"type": "object"}}
    return operation(
        "explain",
        "Explain the prediction of one row, with counterfactuals.",
        _object(answer | {"text": _list(line)}),
        body=json_body(body),
        parameters=[_query("model", _TEXT), _query("version", _TEXT)],
        refusals=("400", "404", "415"),
    )


def _models() -> Json:
    model = {
        "name": _TEXT,
        "version": _TEXT,
        "versions": _list(_TEXT),
        "state": {"enum": ["READY", "UNAVAILABLE"]},
        "reason": _TEXT,
    }
    summary = "Describe the models: columns, categories, targets."
    return operation("models", summary, _list(_object(model)))


def _rules() -> Json:
    whole: Json = {"type": "integer"}
    rule = {
        "number": whole,
        "tree": whole,
        "conditions": _list(_TEXT),
        "text": _TEXT,
        "says": _TEXT,
        "shares": _TEXT,
        "weight": {"type": "number"},
    }
    page = {"model": _TEXT, "version": _TEXT, "total": whole, "found": whole}
    return operation(
        "rules",
        "List the rules of a model, paged, optionally only those that contain a text.",
        _object(page | {"rules": _list(_object(rule))}),
        parameters=[
            _query("version", _TEXT),
            _query("lang", {"enum": ["en", "zh"], "default": "en"}),
            _query("search", _TEXT | {"maxLength": 200}),
            _query("first", whole | {"minimum": 0, "maximum": 999_999_999, "default": 0}),
            _query("count", whole | {"minimum": 1, "maximum": 500, "default": 50}),
            _query("tree", whole | {"minimum": 1, "maximum": 999_999_999}),
        ],
        refusals=("400", "404"),
    )


def _which() -> Json:
    """Return the optional properties that select model and version."""
    return {"model": {"type": ["string", "null"]}, "version": {"type": ["string", "null"]}}


def _object(properties: Json, required: list[str] | None = None) -> Json:
    """Return the schema of an object; by default all properties are required."""
    needed = [*properties] if required is None else required
    return {"type": "object", "properties": properties, "required": needed}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _query(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema}


# ---------------------------------------------------------------- schemas
# JSON schemas of requests and responses, written from the protocol's specification.
#
# https://github.com/kserve/open-inference-protocol, ``specification/protocol``: names are those of
# ``inference_rest.md`` and of Triton's extensions.

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}


def ref(name: str) -> Schema:
    """Return a reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema, **bounds: int) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": items, **bounds}


def fields(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of an object; additional members are ignored."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
    }


_FLAG = {"description": "Whether to return the output as bytes after the JSON.", **BOOLEAN}

_DATATYPE: Schema = {
    "type": "string",
    "enum": list(DATATYPES),
    "description": "BF16 is not supported; send FP32.",
}

_SHAPE = array({"type": "integer", "minimum": 0}, minItems=1, maxItems=MOST_DIMENSIONS)

_PARAMETERS: Schema = {
    "type": "object",
    "description": "Unknown parameters are ignored.",
    "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
}


def _with(parameters: dict[str, Schema]) -> Schema:
    """Return the schema of parameters with known ones."""
    return {**_PARAMETERS, "properties": parameters}


SCHEMAS: dict[str, Schema] = {
    "error_response": fields({"error": STRING}),
    "live_server_response": fields({"live": BOOLEAN}),
    "ready_server_response": fields({"live": BOOLEAN, "ready": BOOLEAN}),
    "ready_model_response": fields({"name": STRING, "ready": BOOLEAN}),
    "metadata_server_response": fields(
        {"name": STRING, "version": STRING, "extensions": array(STRING)}
    ),
    "metadata_tensor": fields(
        {
            "name": STRING,
            "datatype": _DATATYPE,
            "shape": array({"type": "integer", "minimum": -1}),
        },
        {"parameters": _with({"default": BOOLEAN})},
    ),
    "metadata_model_response": fields(
        {
            "name": STRING,
            "versions": array(STRING),
            "platform": STRING,
            "inputs": array(ref("metadata_tensor")),
            "outputs": array(ref("metadata_tensor")),
        },
        {
            "parameters": _with(
                {
                    "sha256": {"type": "string", "description": "SHA-256 of the model file."},
                    "other_inputs": {
                        "type": "string",
                        "description": "Alternative forms of input.",
                    },
                }
            )
        },
    ),
    "parameters": _PARAMETERS,
    "tensor_data": array(
        {"anyOf": [{"type": ["number", "string", "boolean", "null"]}, ref("tensor_data")]}
    )
    | {
        "description": "Flat in row-major order, or nested according to the shape; null is a "
        "missing value. NaN (read as null), Infinity and -Infinity are accepted."
    },
    "request_input": fields(
        {"name": STRING, "shape": _SHAPE, "datatype": _DATATYPE},
        {
            "data": ref("tensor_data"),
            "parameters": _with(
                {
                    "binary_data_size": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "Length of the input in bytes after the JSON.",
                    }
                }
            ),
        },
    ),
    "request_output": fields({"name": STRING}, {"parameters": _with({"binary_data": _FLAG})}),
    "inference_request": fields(
        {"inputs": array(ref("request_input"), minItems=1)},
        {
            "id": {"type": ["string", "null"]},
            "outputs": {
                "anyOf": [array(ref("request_output")), {"type": "null"}],
                "description": "Default: all outputs whose metadata have the parameter default.",
            },
            "parameters": _with({"binary_data_output": _FLAG}),
        },
    ),
    "response_output": fields(
        {"name": STRING, "shape": _SHAPE, "datatype": _DATATYPE},
        {
            "data": array({"type": ["number", "string", "boolean", "null"]}),
            "parameters": _with(
                {
                    "binary_data_size": {"type": "integer", "minimum": 0},
                    "not_finite": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "Number of NaN and infinite values, which are null in "
                        "JSON; binary data contain them.",
                    },
                }
            ),
        },
    ),
    "inference_response": fields(
        {
            "model_name": STRING,
            "model_version": STRING,
            "outputs": array(ref("response_output")),
        },
        {"id": STRING},
    ),
    "repository_index_request": fields({}, {"ready": BOOLEAN}),
    "repository_index_response": array(
        fields({"name": STRING, "version": STRING, "state": STRING, "reason": STRING})
    ),
    "repository_control_request": fields(
        {},
        {
            "parameters": _with({"unload_dependents": BOOLEAN})
            | {"description": "config and file:... are rejected; models are loaded unchanged."}
        },
    ),
    "repository_control_response": fields({"name": STRING, "versions": array(STRING)}),
}
