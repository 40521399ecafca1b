"""Parent process of several workers: starts and restarts them, and broadcasts model changes.

If a worker receives a request to load or unload a model, all workers execute it, one request after
the other, before the response is sent; workers started later receive the list of unloaded models.
So no worker serves a model after the request that unloaded it was answered.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

import msgspec

from treekit.errors import SettingError
from treekit.serve.http.metrics import forget_process
from treekit.serve.process.messages import Answer, Ask, Do, Done, Failed, Ready, Refusal, error_of
from treekit.serve.process.startup_log import Say, Start
from treekit.serve.process.worker import work
from treekit.serve.settings import ServeSettings

__all__ = [
    "Workers",
]

_LOOK = 0.2
"""Maximum seconds between checks of signals and time limits."""
_AT_ONCE = 32
"""Maximum pending requests to load or unload models."""
_SHORT_LIFE = 10.0
_LONGEST_PAUSE = 30.0
_LAST_SECONDS = 5.0
"""Seconds that a worker has to end after its last response before it is killed."""


@dataclass(eq=False)
class _Worker:
    """Worker process, running or to be started."""

    number: int
    process: SpawnProcess | None = None
    link: Connection | None = None
    began: float = 0.0
    ready: bool = False
    pause: float = 0.0
    """Seconds from its last end to its next start."""


@dataclass
class _Order:
    """Request to load or unload a model, broadcast to all workers."""

    asker: _Worker
    ask: Ask
    until: float
    was_left_out: bool = False
    waiting: set[int] = field(default_factory=set)
    """Numbers of the workers that have not confirmed it."""
    refusals: list[Refusal] = field(default_factory=list)


class Workers:
    """Supervisor of worker processes that share a port.

    Parameters
    ----------
    settings : ServeSettings
    sockets : sequence of socket
        Bound sockets on which all workers listen.
    say : Say
    start : Start
        Messages logged when all workers are ready.
    """

    def __init__(
        self, settings: ServeSettings, sockets: Sequence[socket.socket], say: Say, start: Start
    ) -> None:
        self._settings, self._sockets, self._say, self._start = settings, sockets, say, start
        self._workers = [_Worker(number) for number in range(1, settings.workers + 1)]
        self._orders: dict[int, _Order] = {}
        self._issued = 0
        self._left_out: set[str] = set()
        self._told = False
        self._end_by: float | None = None
        self._ending = False

    def run(self) -> None:
        """Start workers and restart them until `end`; return when all have ended.

        Raises
        ------
        TreekitError
            If the workers cannot start initially.
        """
        try:
            while True:
                self._start_missing()
                self._hear()
                self._be_patient()
                if self._ending and not self._living():
                    return
        finally:
            self.kill()
            for worker in self._living():
                assert worker.process is not None  # noqa: S101 - it lives
                worker.process.join()

    def end(self) -> None:
        """Shut down all workers after their requests in progress; safe in a signal handler."""
        self._ending = True

    def kill(self) -> None:
        """Kill all workers."""
        for worker in self._living():
            assert worker.process is not None  # noqa: S101 - it lives
            worker.process.kill()

    def _living(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.process is not None]

    # ------------------------------------------------------- starts and restarts

    def _start_missing(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.process is None and not self._ending and now >= worker.began + worker.pause:
                self._begin(worker)

    def _begin(self, worker: _Worker) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        worker.process = context.Process(
            target=work,
            args=(
                worker.number,
                msgspec.json.encode(self._settings),
                list(self._sockets),
                sorted(self._left_out),
                theirs,
            ),
            name=f"treekit-worker-{worker.number}",
        )
        worker.link, worker.ready, worker.began = ours, False, time.monotonic()
        worker.process.start()
        theirs.close()

    def _bury(self, worker: _Worker) -> None:
        """Clean up after a worker that has ended, and schedule its restart."""
        assert worker.process is not None  # noqa: S101 - it was alive
        assert worker.link is not None  # noqa: S101
        worker.process.join()
        code, pid = worker.process.exitcode, worker.process.pid
        worker.link.close()
        worker.process, worker.link = None, None
        if pid is not None:
            forget_process(pid)
        for number, order in list(self._orders.items()):
            order.waiting.discard(worker.number)
            self._close_if_done(number, order)
        if self._ending:
            return
        if not self._told:
            raise SettingError(f"worker {worker.number} ended at startup: {_end_of(code)}")
        lived = time.monotonic() - worker.began
        worker.pause = min(max(2 * worker.pause, 0.5), _LONGEST_PAUSE) * (lived < _SHORT_LIFE)
        worker.began = time.monotonic()
        self._say(
            "worker-died",
            f"worker {worker.number} ended: {_end_of(code)}; restarting"
            + (f" in {worker.pause:g} s" if worker.pause else ""),
            level="error",
            worker=worker.number,
            pid=pid,
        )

    def _be_patient(self) -> None:
        """Enforce the time limits of requests and of shutdown."""
        now = time.monotonic()
        for number, order in list(self._orders.items()):
            if now >= order.until:
                missing = ", ".join(map(str, sorted(order.waiting)))
                order.refusals.append(
                    Refusal(
                        "UnavailableError",
                        f"worker {missing} of {len(self._workers)} has not confirmed that model "
                        f"{order.ask.name!r} was {order.ask.what}ed; retry",
                    )
                )
                order.waiting.clear()
                self._close_if_done(number, order)
        if not self._ending:
            return
        if self._end_by is None:
            self._end_by = now + self._settings.limits.seconds + _LAST_SECONDS
            for opened in self._sockets:  # otherwise clients could still connect, without answer
                opened.close()
            for worker in self._living():
                assert worker.process is not None  # noqa: S101 - it lives
                worker.process.terminate()
        elif now >= self._end_by:
            self.kill()

    # ----------------------------------------------------------------- messages

    def _hear(self) -> None:
        """Wait for messages and ends of workers, and process them."""
        links: dict[Any, _Worker] = {worker.link: worker for worker in self._living()}
        ends: dict[Any, _Worker] = {
            worker.process.sentinel: worker for worker in self._living() if worker.process
        }
        for heard in wait([*links, *ends], _LOOK):
            if heard in ends:
                worker = ends[heard]
                while worker.link is not None and worker.link.poll():
                    if not self._hear_one(worker):
                        break
                self._bury(worker)
                return  # the remaining events are reported by the next call
            self._hear_one(links[heard])

    def _hear_one(self, worker: _Worker) -> bool:
        """Process one message; return False if the connection is closed."""
        assert worker.link is not None  # noqa: S101 - it lives
        try:
            message = worker.link.recv()
        except (EOFError, OSError):
            return False
        self._take(worker, message)
        return True

    def _take(self, worker: _Worker, message: Any) -> None:
        if isinstance(message, Ready):
            worker.ready = True
            self._tell_ready(worker, message)
        elif isinstance(message, Failed):
            if not self._told:
                raise error_of(message.refusal, SettingError)
            self._say(
                "worker-failed",
                f"worker {worker.number} cannot start: {message.refusal.message}",
                level="error",
                worker=worker.number,
            )
        elif isinstance(message, Ask):
            self._send_round(worker, message)
        elif isinstance(message, Done) and (order := self._orders.get(message.number)):
            order.waiting.discard(worker.number)
            if message.refusal is not None:
                order.refusals.append(message.refusal)
            self._close_if_done(message.number, order)

    def _tell_ready(self, worker: _Worker, message: Ready) -> None:
        if self._told:
            self._say("worker-started", f"worker {worker.number} is ready", worker=worker.number)
        elif all(one.ready for one in self._workers):
            self._told = True
            self._start.tell(self._say, message.models, message.grpc_port)

    def _send_round(self, asker: _Worker, ask: Ask) -> None:
        """Broadcast a request of one worker to all workers."""
        until = time.monotonic() + self._settings.limits.seconds
        order = _Order(asker, ask, until)
        if len(self._orders) >= _AT_ONCE:
            order.refusals.append(
                Refusal("BusyError", "server busy: too many pending model changes; retry later")
            )
            self._close_if_done(0, order)
            return
        # Updated immediately, for workers that start before the others have finished.
        order.was_left_out = ask.name in self._left_out
        (self._left_out.add if ask.what == "unload" else self._left_out.discard)(ask.name)
        self._issued += 1
        self._orders[self._issued] = order
        for worker in self._living():
            if _send(worker, Do(self._issued, ask.what, ask.name)):
                order.waiting.add(worker.number)

    def _close_if_done(self, number: int, order: _Order) -> None:
        if order.waiting:
            return
        self._orders.pop(number, None)
        if order.refusals and order.refusals[0].kind != "UnavailableError":  # not executed
            change = self._left_out.add if order.was_left_out else self._left_out.discard
            change(order.ask.name)
        if order.asker.link is not None:
            refusal = order.refusals[0] if order.refusals else None
            _send(order.asker, Answer(order.ask.number, refusal))


def _send(worker: _Worker, message: Any) -> bool:
    """Send a message to a worker; return False if the worker is ending."""
    assert worker.link is not None  # noqa: S101 - it lives
    try:
        worker.link.send(message)
    except OSError:
        return False
    return True


def _end_of(code: int | None) -> str:
    return f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"
