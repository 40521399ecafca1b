"""What a server says to whoever runs it: one line on stderr for each event.

As text for people, or as JSON for programs that collect lines.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TextIO

from treekit.serve.listening import is_loopback, url_of
from treekit.serve.settings import ServeSettings
from treekit.serve.slots import Change

__all__ = ["Say", "Start", "tell_changes", "teller"]

_LISTED = 20
"""Models that are told of at the start, each in a line."""


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


def teller(form: str, stream: TextIO | None = None) -> Say:
    """One who tells: in lines of JSON for ``json``, else of text.

    Every line is written at once, so that lines of several processes and threads do not mix.
    """

    def tell(event: str, message: str, *, level: str = "info", **facts: Any) -> None:
        if form == "json":
            line = json.dumps(
                {"time": _now(), "level": level, "event": event, **facts, "message": message}
            )
        else:
            line = _printable(message if level == "info" else f"{level}: {message}")
        out = sys.stderr if stream is None else stream
        out.write(f"{line}\n")
        out.flush()

    return tell


def _now() -> str:
    """The time in UTC, to the millisecond, as RFC 3339 has it."""
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


def _printable(text: str) -> str:
    """Names of files and models may hold what moves a cursor, or begins a line of its own."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


_WORDS = {
    "loaded": "model {name!r} {version} is loaded",
    "replaced": "model {name!r} is replaced by {version}",
    "kept": "model {name!r} {version} goes on; its new file is refused: {reason}",
    "refused": "model {name!r} is refused: {reason}",
    "removed": "model {name!r} {version} is removed",
    "unloaded": "model {name!r} {version} is unloaded",
}


def tell_changes(changes: Iterable[Change], say: Say) -> None:
    """Tell the operator what became of models."""
    for change in changes:
        say(
            f"model-{change.what}",
            _WORDS[change.what].format(**change._asdict()),
            level="error" if change.what in ("kept", "refused") else "info",
            model=change.name,
            version=change.version,
            **({"reason": change.reason} if change.reason else {}),
        )


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
            say("model", f"model {model['name']!r} {model['version']}: {size}", **model)
        if len(served) > _LISTED:
            say("models", f"and {len(served) - _LISTED} more models", models=len(served))
        tell_changes(
            [Change(one["name"], one["version"], "refused", one["reason"]) for one in refused], say
        )
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
