"""The server's description as OpenAPI 3.1, at ``/openapi.json``: what all faces write it with.

Each face gives its paths and schemas, as `treekit.serve.web.oip_description` does; `document`
puts them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from treekit._version import __version__
from treekit.serve.web.schemas import ref

__all__ = ["JSON", "document", "json_body", "operation"]

Item = dict[str, Any]

JSON = "application/json"

_REFUSALS = {
    "400": "The request breaks a rule of the protocol, or of the model's schema.",
    "401": "The server asks for a bearer token, and this is not it.",
    "403": "A host, an origin or a kind of request that the server does not serve.",
    "404": "No such model or version.",
    "408": "The body did not arrive in time.",
    "413": "More bytes, rows or explanations than the server takes at once.",
    "415": "A Content-Encoding other than gzip and deflate.",
    "429": "More requests at once than the server takes; worth another try.",
    "503": "The model is not loaded, the answer takes too long, or the server is closing.",
}
_OF_ALL = ("401", "403", "408", "413", "429", "503")
"""Refusals of what stands before every endpoint."""


def json_body(schema: Item, *, required: bool = True, more: Item | None = None) -> Item:
    """A request's body: JSON of a schema, and other media."""
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
    """An operation that answers JSON.

    Parameters
    ----------
    name : str
        Its ``operationId``.
    summary : str
    answer : schema
        Of status 200.
    body : dict, optional
        As `json_body` makes it.
    parameters : iterable of dict
    refusals : iterable of str
        Statuses it may refuse with, beside those of all.
    responses : dict, optional
        In place of some of these.
    """
    found: Item = {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": "The answer.", "content": {JSON: {"schema": answer}}},
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
    """The document.

    Parameters
    ----------
    paths : mapping
        Of all faces: path to path item.
    schemas : mapping
        That they refer to, `error_response` among them.

    Returns
    -------
    dict
        OpenAPI 3.1.
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
        # With a token where the server has one, without it elsewhere.
        "security": [{}, {"token": []}],
    }
