"""The protocol's paths, and those of Triton's model repository, as OpenAPI has them.

Written from ``specification/protocol/inference_rest.md`` of
https://github.com/kserve/open-inference-protocol, with the refusals that its own
``open_inference_rest.yaml`` leaves out.
"""

from __future__ import annotations

from typing import Any

from treekit.serve.web.description import JSON, json_body, operation
from treekit.serve.web.schemas import ref

__all__ = ["NAME", "oip_paths"]

Item = dict[str, Any]

_BYTES = "application/octet-stream"


def _in_path(name: str, text: str) -> Item:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": text,
        "schema": {"type": "string", "minLength": 1},
    }


NAME = _in_path("model_name", "A model's name: that of its file.")
_VERSION = _in_path("model_version", "One of the model's versions.")
_LENGTH: Item = {
    "name": "Inference-Header-Content-Length",
    "in": "header",
    "description": "Bytes of JSON in the body, where binary data follow.",
    "schema": {"type": "integer", "minimum": 0},
}


def _probe(name: str, summary: str, answer: Item) -> Item:
    """An operation that says no with the same object as yes."""
    content = {JSON: {"schema": {"anyOf": [answer, ref("error_response")]}}}
    no = {"503": {"description": "Not ready.", "content": content}}
    return operation(name, summary, answer, responses=no)


def _infer(name: str) -> Item:
    found = operation(
        name,
        "Answer rows.",
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
            "description": "Bytes of JSON, where bytes of outputs follow.",
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
    """Path to path item."""
    live, ready = ref("live_server_response"), ref("ready_server_response")
    server = ref("metadata_server_response")
    control = json_body(ref("repository_control_request"), required=False)
    changed = ref("repository_control_response")
    return {
        "/v2/health/live": {"get": operation("server_live", "Does the server answer?", live)},
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
                    f"{what.capitalize()} a model, where the server has --control.",
                    changed,
                    body=control,
                    refusals=("400", "404", "415"),
                ),
            }
            for what in ("load", "unload")
        },
    }
