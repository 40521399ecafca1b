"""What a server says to whoever runs it: one line on stderr for each event.

As text for people, or as JSON for programs that collect lines.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from treekit.serve.process.listening import is_loopback, url_of
from treekit.serve.settings import ServeSettings

__all__ = ["Say", "Start", "soon_said"]

_LISTED = 20
"""Models that are told of at the start, each in a line."""

_PATIENCE = 2.0
"""Seconds of silence at the start."""


class Say(Protocol):
    """Tell the operator that something happened."""

    def __call__(self, event: str, message: str, *, level: str = "info", **facts: Any) -> None:
        """Tell it.

        Parameters
        ----------
        event : str
            A short fixed name, for programs.
        message : str
            A sentence, for people.
        level : {"info", "warning", "error"}
        **facts
            What the sentence is about, as values that JSON has.
        """


@contextlib.contextmanager
def soon_said(say: Say, seconds: float = _PATIENCE) -> Iterator[None]:
    """Say that models are being loaded, if that takes longer than so many seconds."""
    message = (
        "models are being loaded; the first time on a machine, and after each installation, "
        "treekit's machine code is compiled, which takes some 10 to 40 s"
    )
    timer = threading.Timer(seconds, say, ("loading", message))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Start(NamedTuple):
    """What is told when a server listens."""

    settings: ServeSettings
    sockets: Sequence[socket.socket]

    def tell(self, say: Say, models: Sequence[dict[str, Any]], grpc_port: int | None) -> None:
        """Tell which models there are, and where to ask them; that it listens comes last.

        Parameters
        ----------
        say : Say
        models : sequence of dict
            ``name``, ``version``, and ``platform`` and, of treekit's own, ``trees``; of those
            that are refused, ``reason``.
        grpc_port : int, optional
        """
        settings = self.settings
        refused = [model for model in models if "reason" in model]
        served = [model for model in models if "reason" not in model]
        for model in served[:_LISTED]:
            trees = model.get("trees")
            size = model["platform"] if trees is None else f"{trees} tree{'s' * (trees != 1)}"
            say("model", f"model {model['name']!r} {model['version']}: {size}", **_told(model))
        if len(served) > _LISTED:
            say("models", f"and {len(served) - _LISTED} more models", models=len(served))
        for one in refused:
            message = f"model {one['name']!r} is refused: {one['reason']}"
            say("model-refused", message, level="error", **_told(one))
        if not models:
            say("no-models", "there is no model yet; waiting for one", level="warning")
        if settings.token_file is None and not is_loopback(settings.host):
            say(
                "open",
                f"whoever reaches {settings.host} may ask, and no token is asked for; "
                "see --token-file",
                level="warning",
                host=settings.host,
            )
        url = url_of(settings, self.sockets)
        if grpc_port is not None:
            place = f"{settings.host}:{grpc_port}"
            say("listening-grpc", f"gRPC on {place}", port=grpc_port)
        page = f"{url_of(settings, self.sockets, nearby=True)}/"
        say("page", f"the page is {page}", url=page)
        say("listening", f"listening on {url}", url=url)


def _told(model: dict[str, Any]) -> dict[str, Any]:
    """A model by the names that lines about it have throughout."""
    return {("model" if name == "name" else name): value for name, value in model.items()}
