"""What is known of one call, for metrics and logs."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from time import perf_counter
from typing import Any
from urllib.parse import unquote

__all__ = ["Call", "Note"]


class Call:
    """One call, as metrics and logs are told of it; the names are those of HTTP's record.

    Attributes
    ----------
    id : str
        16 hexadecimal digits.
    method, path : str
        ``gRPC``, and the method's name.
    client : str
        Its address, without the port.
    status : int
        HTTP's for the same; 0 where the client went before it was answered.
    model, version, rows : str, str, int
        What answered, and of how much; empty and 0 where no model did.
    error : str
        The message of a refusal.
    seconds : float
    """

    status = rows = 0
    model = version = error = ""
    method = "gRPC"

    def __init__(self, path: str, peer: str) -> None:
        self.id, self.path, self.client = secrets.token_hex(8), path, _address(peer)
        self.seconds = perf_counter()

    def answered(self, answer: Any) -> None:
        """Take what a ``ModelInferResponse`` tells."""
        self.model, self.version = answer.model_name, answer.model_version
        self.rows = answer.outputs[0].shape[0] if answer.outputs else 0


def _address(peer: str) -> str:
    """The address in what gRPC says of a client, such as ``ipv6:%5B::1%5D:4711``."""
    return unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]") or peer


Note = Callable[[Call], None]
"""Told of each call that has ended."""
