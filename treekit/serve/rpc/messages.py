"""The protocol's messages, made at import of the description that ships with treekit.

They live in a descriptor pool of their own: a process may hold tritonclient's messages of
the same names beside them, and any version of the protobuf runtime will do, while generated
modules are bound to one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

__all__ = ["DESCRIPTION", "SERVICE", "message", "methods"]

DESCRIPTION = Path(__file__).with_name("inference.binpb")
"""The serialized description of ``inference.proto``; `treekit.serve.rpc.describe` writes it."""

SERVICE = "inference.GRPCInferenceService"

_pool = DescriptorPool()
_pool.AddSerializedFile(DESCRIPTION.read_bytes())


def message(name: str) -> Any:
    """The class of a message of the protocol, such as ``ModelInferRequest``."""
    return GetMessageClass(_pool.FindMessageTypeByName(f"inference.{name}"))


def methods() -> dict[str, tuple[Any, Any]]:
    """The classes of request and answer of each method of the service."""
    return {
        method.name: (GetMessageClass(method.input_type), GetMessageClass(method.output_type))
        for method in _pool.FindServiceByName(SERVICE).methods
    }
