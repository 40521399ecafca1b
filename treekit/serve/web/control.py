"""The model repository over HTTP: Triton's extension.

https://github.com/triton-inference-server/server,
``docs/protocol/extension_model_repository.md``
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.routing import Route
from starlette.types import Receive, Scope

from treekit.errors import TreekitError
from treekit.serve.answering.service import Service
from treekit.serve.errors import (
    ForbiddenError,
    InvalidRequestError,
    ServeError,
    UnavailableError,
    shown,
)
from treekit.serve.http import Endpoint, Reply, json_reply, read_body
from treekit.serve.protocol.malformed import malformed

__all__ = ["control_routes"]


class _IndexRequest(msgspec.Struct):
    ready: bool = False


class _ControlRequest(msgspec.Struct):
    parameters: dict[str, bool | int | float | str | None] = {}


_index = msgspec.json.Decoder(_IndexRequest)
_control = msgspec.json.Decoder(_ControlRequest)


class _Control:
    """The endpoints on one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def index(self, scope: Scope, receive: Receive) -> Reply:
        """Say which models there are, and how they are."""
        asked = await self._asked(_index, scope, receive)
        ready = asked is not None and asked.ready
        return json_reply(
            [
                entry._asdict()
                for entry in self._service.repository.index()
                if entry.state == "READY" or not ready
            ]
        )

    async def _asked(self, decoder: Any, scope: Scope, receive: Receive) -> Any:
        runner = self._service.runner
        body = await read_body(scope, receive, runner.limits)
        return await runner.sized(len(body), _read, decoder, body)

    async def load(self, scope: Scope, receive: Receive) -> Reply:
        """Load a model, or load it again."""
        return await self._change(scope, receive, self._service.repository.load)

    async def unload(self, scope: Scope, receive: Receive) -> Reply:
        """Take a model out of service."""
        return await self._change(scope, receive, self._service.repository.unload)

    async def _change(self, scope: Scope, receive: Receive, change: Callable[[str], Any]) -> Reply:
        name = scope["path_params"]["name"]
        if not self._service.control:
            raise ForbiddenError(
                "models are loaded and unloaded by requests only where the server was started "
                "with --control"
            )
        asked = await self._asked(_control, scope, receive)
        _check(asked.parameters if asked else {})
        try:
            await asyncio.to_thread(change, name)
        except ServeError:
            raise
        except (TreekitError, OSError) as error:
            raise UnavailableError(f"model {name!r} was not changed: {error}") from error
        return json_reply({"name": name, "versions": self._service.repository.versions(name)})


def _check(parameters: dict[str, bool | int | float | str | None]) -> None:
    """Refuse what would load another model than the file's; no model has dependents."""
    for name, value in parameters.items():
        if name == "config" or name.startswith("file:"):
            raise InvalidRequestError(
                f"the parameter {shown(name)} is not for this server: models are loaded from its "
                "own files, as they are; leave it out"
            )
        if name == "unload_dependents" and not isinstance(value, bool):
            raise InvalidRequestError(
                f"the parameter {name!r} is {shown(value)}; it is to be true or false"
            )


def _read(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """The object in a body, None if that is empty."""
    if not body:
        return None
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise malformed(body, error, "request to the model repository") from None


def control_routes(service: Service) -> list[Route]:
    """The extension's paths."""
    control = _Control(service)
    model = "/v2/repository/models/{name}"
    return [
        Route("/v2/repository/index", Endpoint(control.index), methods=["POST"]),
        Route(f"{model}/load", Endpoint(control.load), methods=["POST"]),
        Route(f"{model}/unload", Endpoint(control.unload), methods=["POST"]),
    ]
