"""What a server's parent process and its workers say to each other, and errors among it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from treekit.errors import TreekitError
from treekit.serve import errors
from treekit.serve.errors import ServeError, UnavailableError

__all__ = ["Answer", "Ask", "Do", "Done", "Failed", "Ready", "Refusal", "error_of", "refusal_of"]

What = Literal["load", "unload"]


class Refusal(NamedTuple):
    """An error, by the name of its class: what crosses is plain."""

    kind: str
    message: str


class Ready(NamedTuple):
    """A worker answers requests."""

    models: list[dict[str, Any]]
    grpc_port: int | None


class Failed(NamedTuple):
    """A worker cannot start."""

    refusal: Refusal


class Ask(NamedTuple):
    """A worker was asked to load or unload; all are to do it."""

    number: int
    what: What
    name: str


class Do(NamedTuple):
    """A worker is to load or unload."""

    number: int
    what: What
    name: str


class Done(NamedTuple):
    """A worker has done so, or refused."""

    number: int
    refusal: Refusal | None


class Answer(NamedTuple):
    """All have done what a worker asked for, or one refused."""

    number: int
    refusal: Refusal | None


def refusal_of(error: Exception) -> Refusal:
    """An error as what crosses."""
    return Refusal(type(error).__name__, str(error))


def error_of(refusal: Refusal, otherwise: type[TreekitError] = UnavailableError) -> TreekitError:
    """What crossed as an error: one of `treekit.serve.errors`, or `otherwise`."""
    kind = getattr(errors, refusal.kind, None)
    if isinstance(kind, type) and issubclass(kind, ServeError):
        return kind(refusal.message)
    return otherwise(refusal.message)
