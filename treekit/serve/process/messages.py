"""Messages between the parent process and its workers."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from treekit.errors import TreekitError
from treekit.serve import errors
from treekit.serve.errors import ServeError, UnavailableError

ChangeKind = Literal["load", "unload"]


class ErrorMessage(NamedTuple):
    """Error as class name and message, for transfer between processes."""

    kind: str
    message: str


class WorkerReady(NamedTuple):
    """Worker to parent: the worker serves requests."""

    models: list[dict[str, Any]]
    grpc_port: int | None


class WorkerFailed(NamedTuple):
    """Worker to parent: the worker cannot start."""

    refusal: ErrorMessage


class ChangeRequest(NamedTuple):
    """Worker to parent: all workers must load or unload a model."""

    number: int
    what: ChangeKind
    name: str


class ChangeCommand(NamedTuple):
    """Parent to worker: load or unload a model."""

    number: int
    what: ChangeKind
    name: str


class ChangeResult(NamedTuple):
    """Worker to parent: the worker has executed a `ChangeCommand`, or failed."""

    number: int
    refusal: ErrorMessage | None


class ChangeResponse(NamedTuple):
    """Parent to worker: all workers have executed its `ChangeRequest`, or one failed."""

    number: int
    refusal: ErrorMessage | None


def error_to_message(error: Exception) -> ErrorMessage:
    """Convert an error to a message."""
    return ErrorMessage(type(error).__name__, str(error))


def message_to_error(
    refusal: ErrorMessage, otherwise: type[TreekitError] = UnavailableError
) -> TreekitError:
    """Convert a message to an error of `treekit.serve.errors`, or to `otherwise`."""
    kind = getattr(errors, refusal.kind, None)
    if isinstance(kind, type) and issubclass(kind, ServeError):
        return kind(refusal.message)
    return otherwise(refusal.message)
