"""Running a server: checks, sockets, models, and processes until a signal ends them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import msgspec

from treekit.serve.gate.logs import Log, configure_logging
from treekit.serve.process.checks import check_settings
from treekit.serve.process.listening import bind, bind_shared
from treekit.serve.process.saying import Start
from treekit.serve.settings import ServeSettings

__all__ = ["serve"]


def serve(settings: ServeSettings) -> None:
    """Serve models until SIGINT or SIGTERM; returns when all that had begun is answered.

    A second signal ends the process at once, with 128 and its number.  With more than one
    worker, programs that call this need ``if __name__ == "__main__":`` around what they do,
    as for all of `multiprocessing`.

    Parameters
    ----------
    settings : ServeSettings

    Raises
    ------
    SettingError, DataError, ModelFileError
        If the server cannot start; nothing has been served then.
    MissingExtraError
        Without the extra ``serve``, or ``grpc`` where that is asked for.
    """
    check_settings(settings)
    log = configure_logging(settings.log)
    sockets = bind(settings.host, settings.port)
    try:
        if settings.workers == 1:
            _serve_here(settings, sockets, log)
        else:
            _serve_by_workers(settings, sockets, log)
        log("stopped", "the server has stopped")
    finally:
        for opened in sockets:
            opened.close()
        log.close()


def _serve_here(settings: ServeSettings, sockets: list[socket.socket], log: Log) -> None:
    """Serve in this process."""
    from treekit.serve.process.process import Process, load_first, make_service

    service = make_service(settings)
    models = load_first(service, log)
    start = Start(settings, sockets)

    def tell(grpc_port: int | None) -> None:
        start.tell(log, models, grpc_port)

    process = Process(settings, service, log, tell)

    def leave(code: int) -> None:
        log.close()
        os._exit(code)  # not an exception: nobody is to catch it, and no thread to be waited for

    with (
        stopping(process.end, leave),
        asyncio.Runner(loop_factory=process.loop_factory) as runner,
    ):
        runner.run(process.run(sockets))


def _serve_by_workers(settings: ServeSettings, sockets: list[socket.socket], log: Log) -> None:
    """Serve in processes of their own, which this one starts, and again if they die."""
    from treekit.serve.gate.metrics import shared_metrics
    from treekit.serve.process.workers import Workers

    with contextlib.ExitStack() as held:
        held.enter_context(shared_metrics(settings.workers))
        if settings.grpc_port is not None:
            shared = held.enter_context(bind_shared(settings.host, settings.grpc_port))
            settings = msgspec.structs.replace(settings, grpc_port=shared.getsockname()[1])
        workers = Workers(settings, sockets, log, Start(settings, sockets))
        with stopping(workers.end, sys.exit):
            workers.run()


@contextlib.contextmanager
def stopping(end: Callable[[], None], at_once: Callable[[int], None]) -> Iterator[None]:
    """Let the first signal end gently, and the next one at once.

    Parameters
    ----------
    end : callable
        Asks for the end; safe in a signal handler.
    at_once : callable
        Ends with an exit code.
    """
    told: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        told.append(number)
        if len(told) == 1:
            end()
        else:
            at_once(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
