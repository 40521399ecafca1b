"""What each method of the service does: messages to the core, and its answers back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from treekit.errors import TreekitError
from treekit.serve.answering.service import Service
from treekit.serve.errors import (
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    ServeError,
    UnavailableError,
    shown,
)
from treekit.serve.models.repository import Change
from treekit.serve.protocol.metadata import server_metadata
from treekit.serve.rpc.contents import fill, refuse_parameters, tensors_of
from treekit.serve.rpc.messages import methods

__all__ = ["Methods"]

_ANSWERS = {name: answer for name, (_, answer) in methods().items()}


def _new(method: str, /, **fields: Any) -> Any:
    """The answer of a method."""
    return _ANSWERS[method](**fields)


class Methods:
    """The methods on one service: each takes the request's message and gives the answer's."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def __getitem__(self, name: str) -> Callable[[Any], Awaitable[Any]]:
        """The method of this name."""
        known: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server,
            "ModelMetadata": self._model,
            "ModelInfer": self._infer,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }
        return known[name]

    async def _live(self, request: Any) -> Any:
        del request
        return _new("ServerLive", live=True)

    async def _ready(self, request: Any) -> Any:
        del request
        return _new("ServerReady", ready=self._service.ready)

    async def _model_ready(self, request: Any) -> Any:
        """Also of a model that is not there: who waits for one asks again."""
        try:
            self._service.repository.get(request.name or None, request.version or None)
        except (NotFoundError, UnavailableError):
            return _new("ModelReady", ready=False)
        return _new("ModelReady", ready=True)

    async def _server(self, request: Any) -> Any:
        del request
        return _new("ServerMetadata", **server_metadata())

    async def _model(self, request: Any) -> Any:
        repository = self._service.repository
        served = repository.get(request.name or None, request.version or None)
        return _new(
            "ModelMetadata",
            name=served.name,
            versions=repository.versions(served.name),
            platform=served.platform,
            inputs=[spec._asdict() for spec in served.inputs],
            outputs=[spec._asdict() for spec in served.outputs],
        )

    async def _infer(self, request: Any) -> Any:
        served = self._service.repository.get(
            request.model_name or None, request.model_version or None
        )
        names = [output.name for output in request.outputs] or None
        for output in request.outputs:
            refuse_parameters(f"output {shown(output.name)}", output.parameters)
        service = self._service
        given = request, service.limits.rows
        outputs = await service.infer(served, names, request.ByteSize(), tensors_of, *given)
        answer = _new(
            "ModelInfer", model_name=served.name, model_version=served.version, id=request.id
        )
        size = 8 * sum(output.cells.size for output in outputs)
        fill_all = partial(fill, answer, outputs, raw=bool(request.raw_input_contents))
        await service.runner.sized(size, fill_all)
        return answer

    async def _index(self, request: Any) -> Any:
        self._check_repository(request)
        entries = self._service.repository.index()
        return _new(
            "RepositoryIndex",
            models=[
                entry._asdict() for entry in entries if entry.state == "READY" or not request.ready
            ],
        )

    async def _load(self, request: Any) -> Any:
        await self._alter(request, self._service.repository.load)
        return _new("RepositoryModelLoad")

    async def _unload(self, request: Any) -> Any:
        await self._alter(request, self._service.repository.unload)
        return _new("RepositoryModelUnload")

    async def _alter(self, request: Any, do: Callable[[str], list[Change]]) -> None:
        self._check_repository(request)
        if not self._service.control:
            raise ForbiddenError(
                "models are loaded and unloaded by requests only where the server was started "
                "with --control"
            )
        for key in request.parameters:
            if key != "unload_dependents":  # there are none
                raise InvalidRequestError(
                    f"this server has no parameter {shown(key)}: a model is what its file says"
                )
        try:
            await asyncio.to_thread(do, request.model_name)
        except ServeError:
            raise
        except (TreekitError, OSError) as error:  # of files: two of one name, say
            name = shown(request.model_name)
            raise UnavailableError(f"model {name} was not changed: {error}") from error

    @staticmethod
    def _check_repository(request: Any) -> None:
        if request.repository_name:
            raise InvalidRequestError(
                f"there is no repository {shown(request.repository_name)}; this server has one, "
                "without a name"
            )
