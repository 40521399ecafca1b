"""JSON schemas of what goes in and out, written from the protocol's specification.

https://github.com/kserve/open-inference-protocol, ``specification/protocol``: the names are
those of ``inference_rest.md``, and of Triton's extensions.
"""

from __future__ import annotations

from typing import Any

from treekit.serve.models.tensors import DATATYPES
from treekit.serve.protocol.values import MOST_DIMENSIONS

__all__ = ["SCHEMAS", "array", "fields", "ref"]

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}


def ref(name: str) -> Schema:
    """The schema of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def array(items: Schema, **bounds: int) -> Schema:
    """A list of such items."""
    return {"type": "array", "items": items, **bounds}


def fields(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """An object with these members; others are passed over."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
    }


_FLAG = {"description": "Whether output comes as bytes after the JSON.", **BOOLEAN}

_DATATYPE: Schema = {
    "type": "string",
    "enum": list(DATATYPES),
    "description": "BF16 is not supported; send FP32.",
}

_SHAPE = array({"type": "integer", "minimum": 0}, minItems=1, maxItems=MOST_DIMENSIONS)

_PARAMETERS: Schema = {
    "type": "object",
    "description": "Those that are not known are passed over.",
    "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
}


def _with(parameters: dict[str, Schema]) -> Schema:
    """Parameters of which these are known."""
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
                    "sha256": {"type": "string", "description": "Of the model's file."},
                    "other_inputs": {
                        "type": "string",
                        "description": "Other forms of input, each of which may be given instead.",
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
        "description": "Flat, in row-major order, or nested as the shape is; null: missing. "
        "NaN, Infinity and -Infinity, which JSON does not have, are taken, too: NaN as null."
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
                        "description": "Bytes of this input after the JSON, instead of data.",
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
                "description": "None: all whose metadata have the parameter default.",
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
                        "description": "Numbers among data that are null because JSON has no "
                        "NaN and no infinities; binary data have them.",
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
            | {"description": "config and file:... are refused: models are loaded as they are."}
        },
    ),
    "repository_control_response": fields({"name": STRING, "versions": array(STRING)}),
}
