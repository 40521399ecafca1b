"""Errors of the server, one class per HTTP status.

HTTP responses use `status`, gRPC responses the corresponding code (`treekit.serve.grpc`); both
include the message, which names the value, the rule and the remedy.
"""

from __future__ import annotations

from treekit.errors import TreekitError

__all__ = [
    "BusyError",
    "ForbiddenError",
    "InvalidRequestError",
    "NotFoundError",
    "RemoteError",
    "ServeError",
    "TooLargeError",
    "TooSlowError",
    "UnauthorisedError",
    "UnavailableError",
    "UnsupportedError",
    "shown",
]

_MAX_SHOWN = 80


def shown(text: object) -> str:
    """Return the ``repr`` of a request value, truncated for error messages."""
    written = repr(text)
    return written if len(written) <= _MAX_SHOWN else f"{written[:_MAX_SHOWN]}..."


class ServeError(TreekitError):
    """Base class of errors sent as a response, with an HTTP status and headers."""

    status = 400
    headers: tuple[tuple[bytes, bytes], ...] = ()


class RemoteError(TreekitError):
    """Error raised by the client if a server is unreachable or rejects a request.

    Attributes
    ----------
    status : int
        HTTP status of the response; 0 without a response.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class InvalidRequestError(ServeError):
    """The request violates the protocol or the model's schema."""

    status = 400


class UnauthorisedError(ServeError):
    """The request lacks a valid token."""

    status = 401


class ForbiddenError(ServeError):
    """The host, origin or kind of the request is not allowed."""

    status = 403


class NotFoundError(ServeError):
    """The path, model or version does not exist."""

    status = 404


class TooSlowError(ServeError):
    """The request body did not arrive in time."""

    status = 408


class TooLargeError(ServeError):
    """The request exceeds the limit on bytes, rows or explanations."""

    status = 413


class UnsupportedError(ServeError):
    """The Content-Encoding of the body is not supported."""

    status = 415


class BusyError(ServeError):
    """The server has too many concurrent requests; the client may retry."""

    status = 429


class UnavailableError(ServeError):
    """The model is not loaded, the response takes too long, or the server is closing."""

    status = 503
