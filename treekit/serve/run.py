"""Running a server: checks, sockets, models, and processes until a signal ends them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from treekit.errors import MissingExtraError
from treekit.serve.listening import bind, url_of
from treekit.serve.saying import Say, teller
from treekit.serve.settings import ServeSettings
from treekit.serve.watch import tell_changes

__all__ = ["serve"]


def serve(settings: ServeSettings) -> None:
    """Serve models until SIGINT or SIGTERM; returns when all that had begun is answered.

    Raises
    ------
    SettingError, DataError, ModelFileError
        If the server cannot start; nothing has been served then.
    MissingExtraError
        Without the extra ``serve``.
    """
    need_extra()
    from treekit.serve.process import Process, make_service

    say = teller(settings.log)
    sockets = bind(settings.host, settings.port)
    service = make_service(settings)
    changes = service.repository.refresh()
    tell_changes(changes, say)
    url = url_of(settings, sockets)
    process = Process(settings, service, say, lambda: _tell_listening(say, url))
    with _signals(process.end), asyncio.Runner(loop_factory=process.loop_factory) as runner:
        runner.run(process.run(sockets))


def need_extra() -> None:
    """Raise `MissingExtraError` where a library that HTTP needs is absent."""
    for library in ("uvicorn", "starlette"):
        try:
            __import__(library)
        except ImportError:
            raise MissingExtraError(library, "serve") from None


def _tell_listening(say: Say, url: str) -> None:
    say("listening", f"listening on {url}", url=url)


@contextmanager
def _signals(end: Callable[[], None]) -> Iterator[None]:
    """Let the first signal end gently, and the next one at once."""
    told = []

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        if told:
            os._exit(128 + number)
        told.append(number)
        end()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
