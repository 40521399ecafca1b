"""Messages between the parent process and its workers."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from treekit.errors import TreekitError
from treekit.serve import errors
from treekit.serve.errors import ServeError, UnavailableError

__all__ = ["Answer", "Ask", "Do", "Done", "Failed", "Ready", "Refusal", "error_of", "refusal_of"]

What = Literal["load", "unload"]


class Refusal(NamedTuple):
    """Error as class name and message, for transfer between processes."""

    kind: str
    message: str


class Ready(NamedTuple):
    """Worker to parent: the worker serves requests."""

    models: list[dict[str, Any]]
    grpc_port: int | None


class Failed(NamedTuple):
    """Worker to parent: the worker cannot start."""

    refusal: Refusal


class Ask(NamedTuple):
    """Worker to parent: all workers must load or unload a model."""

    number: int
    what: What
    name: str


class Do(NamedTuple):
    """Parent to worker: load or unload a model."""

    number: int
    what: What
    name: str


class Done(NamedTuple):
    """Worker to parent: the worker has executed a `Do`, or failed."""

    number: int
    refusal: Refusal | None


class Answer(NamedTuple):
    """Parent to worker: all workers have executed its `Ask`, or one failed."""

    number: int
    refusal: Refusal | None


def refusal_of(error: Exception) -> Refusal:
    """Convert an error to a message."""
    return Refusal(type(error).__name__, str(error))


def error_of(refusal: Refusal, otherwise: type[TreekitError] = UnavailableError) -> TreekitError:
    """Convert a message to an error of `treekit.serve.errors`, or to `otherwise`."""
    kind = getattr(errors, refusal.kind, None)
    if isinstance(kind, type) and issubclass(kind, ServeError):
        return kind(refusal.message)
    return otherwise(refusal.message)
