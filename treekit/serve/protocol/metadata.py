"""What a server and a model say of themselves: the protocol's metadata, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from treekit._version import __version__
from treekit.serve.models.served import Served
from treekit.serve.models.tensors import Spec

__all__ = ["EXTENSIONS", "model_metadata", "server_metadata"]

EXTENSIONS = ("binary_tensor_data", "model_repository")
"""Triton's, by its names."""


def server_metadata() -> dict[str, Any]:
    """``$metadata_server_response``."""
    return {"name": "treekit", "version": __version__, "extensions": EXTENSIONS}


def model_metadata(served: Served, versions: Sequence[str]) -> dict[str, Any]:
    """``$metadata_model_response``, and what it has no place for.

    Each output's parameter ``default`` says whether a request gets it that names none.  The
    model's parameters are the SHA-256 of its file, and the other forms of input there are, as
    text: the protocol's ``inputs`` are the one that all clients may use.  Of treekit's models
    they hold the schema, too, as text of JSON, and the policies, with which a client can code
    rows itself (`treekit.serve.client.remote`).
    """
    parameters = {"sha256": served.digest}
    if served.model is not None:
        parameters |= {
            "schema": msgspec.json.encode(served.model.schema).decode(),
            "missing": served.model.missing,
            "unknown": served.model.unknown,
        }
    if served.other_inputs:
        parameters["other_inputs"] = "; or ".join(
            ", ".join(_text(spec) for spec in form) for form in served.other_inputs
        )
    return {
        "name": served.name,
        "versions": versions,
        "platform": served.platform,
        "inputs": [spec._asdict() for spec in served.inputs],
        "outputs": [
            {**spec._asdict(), "parameters": {"default": spec.name in served.usual}}
            for spec in served.outputs
        ],
        "parameters": parameters,
    }


def _text(spec: Spec) -> str:
    return f"{spec.name} {spec.datatype} {list(spec.shape)}"
