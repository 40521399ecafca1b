"""OpenAPI 3.1 document of the server at ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from treekit._version import __version__
from treekit.serve.models.tensors import DATATYPES
from treekit.serve.protocol.tensor_data import MAX_DIMENSIONS

# ---------------------------------------------------------------- document

Item = dict[str, Any]

JSON_TYPE = "application/json"

_ERROR_DESCRIPTIONS = {
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
_COMMON_ERRORS = ("401", "403", "408", "413", "429", "503")
"""Error statuses of all endpoints, raised by the middleware or while reading the body."""


def make_json_body(schema: Item, *, required: bool = True, more: Item | None = None) -> Item:
    """Describe a request body: JSON with a schema, and other media types."""
    return {"required": required, "content": {JSON_TYPE: {"schema": schema}, **(more or {})}}


def make_operation(
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
        Result of `make_json_body`.
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
            "200": {"description": "Success.", "content": {JSON_TYPE: {"schema": answer}}},
            **{
                status: {"$ref": f"#/components/responses/refused_{status}"}
                for status in sorted({*_COMMON_ERRORS, *refusals})
            },
            **(responses or {}),
        },
    }
    if body is not None:
        found["requestBody"] = body
    if parameters:
        found["parameters"] = list(parameters)
    return found


def make_document(paths: Mapping[str, Item], schemas: Mapping[str, Item]) -> Item:
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
    refused = {"content": {JSON_TYPE: {"schema": make_reference("error_response")}}}
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
                for status, text in _ERROR_DESCRIPTIONS.items()
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

_BYTES_TYPE = "application/octet-stream"


def _path_parameter(name: str, text: str) -> Item:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": text,
        "schema": {"type": "string", "minLength": 1},
    }


NAME_PARAMETER = _path_parameter("model_name", "Name of the model, that of its file.")
_VERSION_PARAMETER = _path_parameter("model_version", "Version of the model.")
_LENGTH_PARAMETER: Item = {
    "name": "Inference-Header-Content-Length",
    "in": "header",
    "description": "Length of the JSON in bytes, if binary data follow.",
    "schema": {"type": "integer", "minimum": 0},
}


def _make_health_operation(name: str, summary: str, answer: Item) -> Item:
    """Describe an operation whose negative response (503) has the schema of the positive one."""
    content = {JSON_TYPE: {"schema": {"anyOf": [answer, make_reference("error_response")]}}}
    no = {"503": {"description": "Not ready.", "content": content}}
    return make_operation(name, summary, answer, responses=no)


def _make_infer_operation(name: str) -> Item:
    found = make_operation(
        name,
        "Predict rows.",
        make_reference("inference_response"),
        body=make_json_body(
            make_reference("inference_request"),
            more={_BYTES_TYPE: {"schema": {"description": "JSON, then the bytes of tensors."}}},
        ),
        parameters=[_LENGTH_PARAMETER],
        refusals=("400", "404", "415"),
    )
    answer = found["responses"]["200"]
    answer["content"][_BYTES_TYPE] = {"schema": {"description": "JSON, then the bytes of outputs."}}
    answer["headers"] = {
        _LENGTH_PARAMETER["name"]: {
            "description": "Length of the JSON in bytes, if bytes of outputs follow.",
            "schema": {"type": "integer"},
        }
    }
    return found


def _make_model_paths() -> dict[str, Item]:
    paths: dict[str, Item] = {}
    versioned = "/v2/models/{model_name}/versions/{model_version}"
    for place, end, given in (
        ("/v2/models/{model_name}", "", [NAME_PARAMETER]),
        (versioned, "_version", [NAME_PARAMETER, _VERSION_PARAMETER]),
    ):
        metadata = make_operation(
            f"model_metadata{end}",
            "Describe a model.",
            make_reference("metadata_model_response"),
            refusals=("404",),
        )
        ready = _make_health_operation(
            f"model_ready{end}", "Is the model ready?", make_reference("ready_model_response")
        )
        ready["responses"]["404"] = {"$ref": "#/components/responses/refused_404"}
        paths[place] = {"parameters": given, "get": metadata}
        paths[f"{place}/ready"] = {"parameters": given, "get": ready}
        paths[f"{place}/infer"] = {
            "parameters": given,
            "post": _make_infer_operation(f"model_infer{end}"),
        }
    return paths


def protocol_paths() -> dict[str, Item]:
    """Return the OpenAPI paths of the protocol."""
    live, ready = make_reference("live_server_response"), make_reference("ready_server_response")
    server = make_reference("metadata_server_response")
    control = make_json_body(make_reference("repository_control_request"), required=False)
    changed = make_reference("repository_control_response")
    return {
        "/v2/health/live": {"get": make_operation("server_live", "Is the server alive?", live)},
        "/v2/health/ready": {
            "get": _make_health_operation("server_ready", "Are all models ready?", ready)
        },
        "/v2": {"get": make_operation("server_metadata", "Describe the server.", server)},
        **_make_model_paths(),
        "/v2/repository/index": {
            "post": make_operation(
                "repository_index",
                "List the models.",
                make_reference("repository_index_response"),
                body=make_json_body(make_reference("repository_index_request"), required=False),
                refusals=("400", "415"),
            )
        },
        **{
            f"/v2/repository/models/{{model_name}}/{what}": {
                "parameters": [NAME_PARAMETER],
                "post": make_operation(
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

_STRING_SCHEMA: Json = {"type": "string"}
_CELL_SCHEMA: Json = {"type": ["string", "number", "boolean", "null"]}
_ROW_SCHEMA: Json = {
    "type": "object",
    "description": "A value for each column of the model; null or NaN if it is missing.",
    "minProperties": 1,
    "additionalProperties": _CELL_SCHEMA,
}


def json_paths() -> Json:
    """Return the OpenAPI paths of `treekit.serve.http.json_routes.list_json_routes`."""
    return {
        "/predict": {"post": _make_predict_operation()},
        "/explain": {"post": _make_explain_operation()},
        "/models": {"get": _make_models_operation()},
        "/models/{model_name}/rules": {
            "parameters": [NAME_PARAMETER],
            "get": _make_rules_operation(),
        },
        "/metrics": {"get": _make_metrics_operation()},
    }


def _make_metrics_operation() -> Json:
    described = make_operation(
        "metrics", "Prometheus metrics of requests, models and processes.", _STRING_SCHEMA
    )
    openmetrics = "application/openmetrics-text"
    described["responses"]["200"]["content"] = {
        media: {"schema": _STRING_SCHEMA} for media in ("text/plain", openmetrics)
    }
    return described


def _make_predict_operation() -> Json:
    names = ["label", "probabilities", "value", "leaf", "rule", "contributions", "bias"]
    rows: Json = {"type": "array", "minItems": 1, "items": _ROW_SCHEMA}
    body = _object_schema(
        {
            **_model_properties(),
            "rows": rows,
            "outputs": {
                "type": ["array", "null"],
                "uniqueItems": True,
                "description": f"Outputs of a treekit model: {', '.join(names)}.",
                "items": _STRING_SCHEMA,
            },
        },
        ["rows"],
    )
    body["additionalProperties"] = False
    answer = _object_schema(
        {
            "model": _STRING_SCHEMA,
            "version": _STRING_SCHEMA,
            "rows": _list_schema(_predicted_row_schema()),
        }
    )
    return make_operation(
        "predict",
        "Predict rows given as JSON objects.",
        answer,
        body=make_json_body({"anyOf": [body, rows]}),
        parameters=[
            _query_parameter("model", _STRING_SCHEMA),
            _query_parameter("version", _STRING_SCHEMA),
        ],
        refusals=("400", "404", "415"),
    )


def _predicted_row_schema() -> Json:
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
    fired = {"tree": {"type": "integer", "minimum": 1}, "rule": _STRING_SCHEMA}
    targets = {"type": "object", "additionalProperties": _object_schema(one, [])}
    several = {
        "targets": targets,
        "leaf": _list_schema({"type": "integer"}),
        "rule": _STRING_SCHEMA,
        "rules": _list_schema(_object_schema(fired)),
    }
    return _object_schema(one | several, [])


def _make_explain_operation() -> Json:
    whole: Json = {"type": ["integer", "null"]}
    body = _object_schema(
        {
            **_model_properties(),
            "row": _ROW_SCHEMA,
            "lang": {"type": ["string", "null"], "enum": ["en", "zh", None]},
            "tree": whole | {"minimum": 1, "description": "Tree of the decision path, from 1."},
            "changes": whole | {"minimum": 0, "maximum": 2},
            "wish": _CELL_SCHEMA | {"description": "A label, or a range such as '>= 10'."},
            "target": {"type": ["string", "null"]},
            "fixed": {"type": ["array", "null"], "items": _STRING_SCHEMA},
        },
        ["row"],
    )
    body["additionalProperties"] = False
    line = {"type": "array", "prefixItems": [_STRING_SCHEMA, {"type": "boolean"}], "minItems": 2}
    answer = {"model": _STRING_SCHEMA, "version": _STRING_SCHEMA, "explanation": {"type": "object"}}
    return make_operation(
        "explain",
        "Explain the prediction of one row; changes, wish and target need treekit-counterfactuals.",
        _object_schema(
            answer | {"text": _list_schema(line), "explainers": _list_schema(_STRING_SCHEMA)}
        ),
        body=make_json_body(body),
        parameters=[
            _query_parameter("model", _STRING_SCHEMA),
            _query_parameter("version", _STRING_SCHEMA),
        ],
        refusals=("400", "404", "415"),
    )


def _make_models_operation() -> Json:
    model = {
        "name": _STRING_SCHEMA,
        "version": _STRING_SCHEMA,
        "versions": _list_schema(_STRING_SCHEMA),
        "state": {"enum": ["READY", "UNAVAILABLE"]},
        "reason": _STRING_SCHEMA,
    }
    summary = "Describe the models: columns, categories, targets."
    return make_operation("models", summary, _list_schema(_object_schema(model)))


def _make_rules_operation() -> Json:
    whole: Json = {"type": "integer"}
    rule = {
        "number": whole,
        "tree": whole,
        "conditions": _list_schema(_STRING_SCHEMA),
        "text": _STRING_SCHEMA,
        "says": _STRING_SCHEMA,
        "shares": _STRING_SCHEMA,
        "weight": {"type": "number"},
    }
    page = {"model": _STRING_SCHEMA, "version": _STRING_SCHEMA, "total": whole, "found": whole}
    return make_operation(
        "rules",
        "List the rules of a model, paged, optionally only those that contain a text.",
        _object_schema(page | {"rules": _list_schema(_object_schema(rule))}),
        parameters=[
            _query_parameter("version", _STRING_SCHEMA),
            _query_parameter("lang", {"enum": ["en", "zh"], "default": "en"}),
            _query_parameter("search", _STRING_SCHEMA | {"maxLength": 200}),
            _query_parameter("first", whole | {"minimum": 0, "maximum": 999_999_999, "default": 0}),
            _query_parameter("count", whole | {"minimum": 1, "maximum": 500, "default": 50}),
            _query_parameter("tree", whole | {"minimum": 1, "maximum": 999_999_999}),
        ],
        refusals=("400", "404"),
    )


def _model_properties() -> Json:
    """Return the optional properties that select model and version."""
    return {"model": {"type": ["string", "null"]}, "version": {"type": ["string", "null"]}}


def _object_schema(properties: Json, required: list[str] | None = None) -> Json:
    """Return the schema of an object; by default all properties are required."""
    needed = [*properties] if required is None else required
    return {"type": "object", "properties": properties, "required": needed}


def _list_schema(items: Json) -> Json:
    return {"type": "array", "items": items}


def _query_parameter(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema}


# ---------------------------------------------------------------- schemas
# JSON schemas of requests and responses, written from the protocol's specification.
#
# https://github.com/kserve/open-inference-protocol, ``specification/protocol``: names are those of
# ``inference_rest.md`` and of Triton's extensions.

Schema = dict[str, Any]

STRING_SCHEMA: Schema = {"type": "string"}
BOOLEAN_SCHEMA: Schema = {"type": "boolean"}


def make_reference(name: str) -> Schema:
    """Return a reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def array_schema(items: Schema, **bounds: int) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": items, **bounds}


def members_schema(
    required: dict[str, Schema], optional: dict[str, Schema] | None = None
) -> Schema:
    """Return the schema of an object; additional members are ignored."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
    }


_BINARY_FLAG_SCHEMA = {
    "description": "Whether to return the output as bytes after the JSON.",
    **BOOLEAN_SCHEMA,
}

_DATATYPE_SCHEMA: Schema = {
    "type": "string",
    "enum": list(DATATYPES),
    "description": "BF16 is not supported; send FP32.",
}

_SHAPE_SCHEMA = array_schema({"type": "integer", "minimum": 0}, minItems=1, maxItems=MAX_DIMENSIONS)

_PARAMETERS_SCHEMA: Schema = {
    "type": "object",
    "description": "Unknown parameters are ignored.",
    "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
}


def _parameters_schema(parameters: dict[str, Schema]) -> Schema:
    """Return the schema of parameters with known ones."""
    return {**_PARAMETERS_SCHEMA, "properties": parameters}


SCHEMAS: dict[str, Schema] = {
    "error_response": members_schema({"error": STRING_SCHEMA}),
    "live_server_response": members_schema({"live": BOOLEAN_SCHEMA}),
    "ready_server_response": members_schema({"live": BOOLEAN_SCHEMA, "ready": BOOLEAN_SCHEMA}),
    "ready_model_response": members_schema({"name": STRING_SCHEMA, "ready": BOOLEAN_SCHEMA}),
    "metadata_server_response": members_schema(
        {"name": STRING_SCHEMA, "version": STRING_SCHEMA, "extensions": array_schema(STRING_SCHEMA)}
    ),
    "metadata_tensor": members_schema(
        {
            "name": STRING_SCHEMA,
            "datatype": _DATATYPE_SCHEMA,
            "shape": array_schema({"type": "integer", "minimum": -1}),
        },
        {"parameters": _parameters_schema({"default": BOOLEAN_SCHEMA})},
    ),
    "metadata_model_response": members_schema(
        {
            "name": STRING_SCHEMA,
            "versions": array_schema(STRING_SCHEMA),
            "platform": STRING_SCHEMA,
            "inputs": array_schema(make_reference("metadata_tensor")),
            "outputs": array_schema(make_reference("metadata_tensor")),
        },
        {
            "parameters": _parameters_schema(
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
    "parameters": _PARAMETERS_SCHEMA,
    "tensor_data": array_schema(
        {
            "anyOf": [
                {"type": ["number", "string", "boolean", "null"]},
                make_reference("tensor_data"),
            ]
        }
    )
    | {
        "description": "Flat in row-major order, or nested according to the shape; null is a "
        "missing value. NaN (read as null), Infinity and -Infinity are accepted."
    },
    "request_input": members_schema(
        {"name": STRING_SCHEMA, "shape": _SHAPE_SCHEMA, "datatype": _DATATYPE_SCHEMA},
        {
            "data": make_reference("tensor_data"),
            "parameters": _parameters_schema(
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
    "request_output": members_schema(
        {"name": STRING_SCHEMA},
        {"parameters": _parameters_schema({"binary_data": _BINARY_FLAG_SCHEMA})},
    ),
    "inference_request": members_schema(
        {"inputs": array_schema(make_reference("request_input"), minItems=1)},
        {
            "id": {"type": ["string", "null"]},
            "outputs": {
                "anyOf": [array_schema(make_reference("request_output")), {"type": "null"}],
                "description": "Default: all outputs whose metadata have the parameter default.",
            },
            "parameters": _parameters_schema({"binary_data_output": _BINARY_FLAG_SCHEMA}),
        },
    ),
    "response_output": members_schema(
        {"name": STRING_SCHEMA, "shape": _SHAPE_SCHEMA, "datatype": _DATATYPE_SCHEMA},
        {
            "data": array_schema({"type": ["number", "string", "boolean", "null"]}),
            "parameters": _parameters_schema(
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
    "inference_response": members_schema(
        {
            "model_name": STRING_SCHEMA,
            "model_version": STRING_SCHEMA,
            "outputs": array_schema(make_reference("response_output")),
        },
        {"id": STRING_SCHEMA},
    ),
    "repository_index_request": members_schema({}, {"ready": BOOLEAN_SCHEMA}),
    "repository_index_response": array_schema(
        members_schema(
            {
                "name": STRING_SCHEMA,
                "version": STRING_SCHEMA,
                "state": STRING_SCHEMA,
                "reason": STRING_SCHEMA,
            }
        )
    ),
    "repository_control_request": members_schema(
        {},
        {
            "parameters": _parameters_schema({"unload_dependents": BOOLEAN_SCHEMA})
            | {"description": "config and file:... are rejected; models are loaded unchanged."}
        },
    ),
    "repository_control_response": members_schema(
        {"name": STRING_SCHEMA, "versions": array_schema(STRING_SCHEMA)}
    ),
}
