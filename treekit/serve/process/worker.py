"""A worker: one of several processes that share a port, told what to do by their parent."""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from treekit.errors import TreekitError
from treekit.serve.errors import UnavailableError
from treekit.serve.models.repository import Change, Repository
from treekit.serve.process.messages import (
    Answer,
    Ask,
    Do,
    Done,
    Failed,
    Ready,
    Refusal,
    What,
    error_of,
    refusal_of,
)
from treekit.serve.settings import ServeSettings

__all__ = ["work"]

_MORE = 5.0
"""Seconds beyond the parent's own patience that its answer is waited for."""


def work(
    number: int,
    settings: bytes,
    sockets: list[socket.socket],
    left_out: Sequence[str],
    link: Connection,
) -> None:
    """Serve, until the parent says otherwise or is gone; the whole life of a worker.

    Parameters
    ----------
    number : int
        From 1; for the log.
    settings : bytes
        `ServeSettings` as JSON.
    sockets : list of socket
        The parent's, bound.
    left_out : sequence of str
        Models that were unloaded before this worker began.
    link : Connection
        To the parent.
    """
    # The parent is told by Ctrl-C and a closed terminal, and tells its workers.
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    from treekit.serve.gate.logs import configure_logging
    from treekit.serve.process.process import Process, load_first, make_service

    asked = msgspec.json.decode(settings, type=ServeSettings)
    log = configure_logging(asked.log, worker=number)
    service = make_service(asked)
    told = _Link(link, service.repository, asked.limits.seconds + _MORE)
    service.repository.leave_out(left_out)
    service.repository.everywhere = told.everywhere
    try:
        models = load_first(service, log)
        process = Process(asked, service, log, lambda port: told.send(Ready(models, port)))
        signal.signal(signal.SIGTERM, lambda *_: process.end())
        told.start(process)
        with asyncio.Runner(loop_factory=process.loop_factory) as runner:
            runner.run(process.run(sockets))
    except (TreekitError, OSError) as error:
        told.send(Failed(refusal_of(error)))
    finally:
        log.close()


class _Link:
    """The worker's end of the link, which a thread listens to."""

    def __init__(self, link: Connection, repository: Repository, patience: float) -> None:
        self._link, self._repository, self._patience = link, repository, patience
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._asked: dict[int, Future[Refusal | None]] = {}

    def start(self, process: Any) -> None:
        """Listen; if the parent is gone, end the process."""
        threading.Thread(
            target=self._listen, args=(process,), name="treekit-parent", daemon=True
        ).start()

    def send(self, message: Any) -> None:
        """Tell the parent."""
        with self._sending:
            self._link.send(message)

    def everywhere(self, what: What, name: str) -> list[Change]:
        """Have all workers load or unload a model; `Repository.everywhere`.

        Raises
        ------
        ServeError
            If one refuses, or does not do it in time.
        """
        number = next(self._numbers)
        done = self._asked[number] = Future()
        try:
            self.send(Ask(number, what, name))
            refusal = done.result(self._patience)
        except (OSError, TimeoutError):
            raise UnavailableError(
                f"nobody confirmed that the model {name!r} was {what}ed; try again"
            ) from None
        finally:
            del self._asked[number]
        if refusal is not None:
            raise error_of(refusal)
        return []

    def _listen(self, process: Any) -> None:
        try:
            while True:
                self._take(self._link.recv())
        except (EOFError, OSError):
            process.end()

    def _take(self, message: Do | Answer) -> None:
        if isinstance(message, Answer):
            asked = self._asked.get(message.number)
            if asked is not None:
                asked.set_result(message.refusal)
            return
        refusal = None
        try:
            self._repository.do_here(message.what, message.name)
        # Whatever it is, the parent waits for a word of it.
        except Exception as error:  # noqa: BLE001
            refusal = refusal_of(error)
        self.send(Done(message.number, refusal))
