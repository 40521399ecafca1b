"""What a request or a model file is refused for: one error for each way out of the server.

The HTTP face answers with `status`, the gRPC face with the code that it stands for
(`treekit.serve.grpc`); both give the message, which names the value, the rule and the remedy.
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

_SHOWN = 80


def shown(text: object) -> str:
    """The representation of something that a request brought, short enough for a message."""
    written = repr(text)
    return written if len(written) <= _SHOWN else f"{written[:_SHOWN]}..."


class ServeError(TreekitError):
    """Base of all that a server answers with an error of its own; `status` is HTTP's."""

    status = 400


class RemoteError(TreekitError):
    """What a client has of a server that it cannot reach, or that refuses its request.

    Attributes
    ----------
    status : int
        Of the answer; 0 without one.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class InvalidRequestError(ServeError):
    """A request that breaks a rule of the protocol, or of the model's schema."""

    status = 400


class UnauthorisedError(ServeError):
    """A request without the token that the server asks for."""

    status = 401


class ForbiddenError(ServeError):
    """A request of a host, an origin or a kind that the server does not serve."""

    status = 403


class NotFoundError(ServeError):
    """A path, model or version that is not there."""

    status = 404


class TooSlowError(ServeError):
    """A request whose body took too long to arrive."""

    status = 408


class TooLargeError(ServeError):
    """A request of more bytes, rows or explanations than the server takes."""

    status = 413


class UnsupportedError(ServeError):
    """A body in a coding that the server does not read."""

    status = 415


class BusyError(ServeError):
    """More requests at once than the server takes; worth another try."""

    status = 429


class UnavailableError(ServeError):
    """A model that is not loaded, an answer that takes too long, a server that is closing."""

    status = 503
