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
from treekit.serve.process.messages import (
    ChangeCommand,
    ChangeRequest,
    ChangeResponse,
    ChangeResult,
    ErrorMessage,
    WorkerFailed,
    WorkerReady,
    message_to_error,
)
from treekit.serve.process.startup_log import LogEvent, StartupLog
from treekit.serve.process.worker import run_worker
from treekit.serve.settings import ServeSettings

_POLL_SECONDS = 0.2
"""Maximum seconds between checks of signals and time limits."""
_MAX_PENDING_CHANGES = 32
"""Maximum pending requests to load or unload models."""
_SHORT_LIFE_SECONDS = 10.0
_MAX_PAUSE_SECONDS = 30.0
_EXIT_SECONDS = 5.0
"""Seconds that a worker has to end after its last response before it is killed."""


@dataclass(eq=False)
class _WorkerState:
    """Worker process, running or to be started."""

    number: int
    process: SpawnProcess | None = None
    link: Connection | None = None
    started_at: float = 0.0
    is_ready: bool = False
    restart_delay: float = 0.0
    """Seconds from its last end to its next start."""


@dataclass
class _PendingChange:
    """Request to load or unload a model, broadcast to all workers."""

    requester: _WorkerState
    request: ChangeRequest
    deadline: float
    was_unloaded: bool = False
    waiting: set[int] = field(default_factory=set)
    """Numbers of the workers that have not confirmed it."""
    errors: list[ErrorMessage] = field(default_factory=list)


class WorkerSupervisor:
    """Supervisor of worker processes that share a port.

    Parameters
    ----------
    settings : ServeSettings
    sockets : sequence of socket
        Bound sockets on which all workers listen.
    say : LogEvent
    start : StartupLog
        Messages logged when all workers are ready.
    """

    def __init__(
        self,
        settings: ServeSettings,
        sockets: Sequence[socket.socket],
        say: LogEvent,
        start: StartupLog,
    ) -> None:
        self._settings, self._sockets, self._say, self._start = settings, sockets, say, start
        self._workers = [_WorkerState(number) for number in range(1, settings.workers + 1)]
        self._pending_changes: dict[int, _PendingChange] = {}
        self._n_issued = 0
        self._unloaded_models: set[str] = set()
        self._is_started = False
        self._end_by: float | None = None
        self._is_ending = False

    def run(self) -> None:
        """Start workers and restart them until `request_shutdown`; return when all have ended.

        Raises
        ------
        TreekitError
            If the workers cannot start initially.
        """
        try:
            while True:
                self._start_missing_workers()
                self._receive_messages()
                self._enforce_timeouts()
                if self._is_ending and not self._list_running():
                    return
        finally:
            self.kill()
            for worker in self._list_running():
                assert worker.process is not None  # noqa: S101 - it lives
                worker.process.join()

    def request_shutdown(self) -> None:
        """Shut down all workers after their requests in progress; safe in a signal handler."""
        self._is_ending = True

    def kill(self) -> None:
        """Kill all workers."""
        for worker in self._list_running():
            assert worker.process is not None  # noqa: S101 - it lives
            worker.process.kill()

    def _list_running(self) -> list[_WorkerState]:
        return [worker for worker in self._workers if worker.process is not None]

    # ------------------------------------------------------- starts and restarts

    def _start_missing_workers(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if (
                worker.process is None
                and not self._is_ending
                and now >= worker.started_at + worker.restart_delay
            ):
                self._start_worker(worker)

    def _start_worker(self, worker: _WorkerState) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        worker.process = context.Process(
            target=run_worker,
            args=(
                worker.number,
                msgspec.json.encode(self._settings),
                list(self._sockets),
                sorted(self._unloaded_models),
                theirs,
            ),
            name=f"treekit-worker-{worker.number}",
        )
        worker.link, worker.is_ready, worker.started_at = ours, False, time.monotonic()
        worker.process.start()
        theirs.close()

    def _handle_exit(self, worker: _WorkerState) -> None:
        """Clean up after a worker that has ended, and schedule its restart."""
        assert worker.process is not None  # noqa: S101 - it was alive
        assert worker.link is not None  # noqa: S101
        worker.process.join()
        code, pid = worker.process.exitcode, worker.process.pid
        worker.link.close()
        worker.process, worker.link = None, None
        if pid is not None:
            forget_process(pid)
        for number, order in list(self._pending_changes.items()):
            order.waiting.discard(worker.number)
            self._finish_if_done(number, order)
        if self._is_ending:
            return
        if not self._is_started:
            raise SettingError(f"worker {worker.number} ended at startup: {_describe_exit(code)}")
        lived = time.monotonic() - worker.started_at
        worker.restart_delay = min(max(2 * worker.restart_delay, 0.5), _MAX_PAUSE_SECONDS) * (
            lived < _SHORT_LIFE_SECONDS
        )
        worker.started_at = time.monotonic()
        self._say(
            "worker-died",
            f"worker {worker.number} ended: {_describe_exit(code)}; restarting"
            + (f" in {worker.restart_delay:g} s" if worker.restart_delay else ""),
            level="error",
            worker=worker.number,
            pid=pid,
        )

    def _enforce_timeouts(self) -> None:
        """Enforce the time limits of requests and of shutdown."""
        now = time.monotonic()
        for number, order in list(self._pending_changes.items()):
            if now >= order.deadline:
                missing = ", ".join(map(str, sorted(order.waiting)))
                order.errors.append(
                    ErrorMessage(
                        "UnavailableError",
                        f"worker {missing} of {len(self._workers)} has not confirmed that model "
                        f"{order.request.name!r} was {order.request.what}ed; retry",
                    )
                )
                order.waiting.clear()
                self._finish_if_done(number, order)
        if not self._is_ending:
            return
        if self._end_by is None:
            self._end_by = now + self._settings.limits.seconds + _EXIT_SECONDS
            for opened in self._sockets:  # otherwise clients could still connect, without answer
                opened.close()
            for worker in self._list_running():
                assert worker.process is not None  # noqa: S101 - it lives
                worker.process.terminate()
        elif now >= self._end_by:
            self.kill()

    # ----------------------------------------------------------------- messages

    def _receive_messages(self) -> None:
        """Wait for messages and ends of workers, and process them."""
        links: dict[Any, _WorkerState] = {worker.link: worker for worker in self._list_running()}
        ends: dict[Any, _WorkerState] = {
            worker.process.sentinel: worker for worker in self._list_running() if worker.process
        }
        for heard in wait([*links, *ends], _POLL_SECONDS):
            if heard in ends:
                worker = ends[heard]
                while worker.link is not None and worker.link.poll():
                    if not self._receive_message(worker):
                        break
                self._handle_exit(worker)
                return  # the remaining events are reported by the next call
            self._receive_message(links[heard])

    def _receive_message(self, worker: _WorkerState) -> bool:
        """Process one message; return False if the connection is closed."""
        assert worker.link is not None  # noqa: S101 - it lives
        try:
            message = worker.link.recv()
        except (EOFError, OSError):
            return False
        self._handle_message(worker, message)
        return True

    def _handle_message(self, worker: _WorkerState, message: Any) -> None:
        if isinstance(message, WorkerReady):
            worker.is_ready = True
            self._report_ready(worker, message)
        elif isinstance(message, WorkerFailed):
            if not self._is_started:
                raise message_to_error(message.refusal, SettingError)
            self._say(
                "worker-failed",
                f"worker {worker.number} cannot start: {message.refusal.message}",
                level="error",
                worker=worker.number,
            )
        elif isinstance(message, ChangeRequest):
            self._broadcast_change(worker, message)
        elif isinstance(message, ChangeResult) and (
            order := self._pending_changes.get(message.number)
        ):
            order.waiting.discard(worker.number)
            if message.refusal is not None:
                order.errors.append(message.refusal)
            self._finish_if_done(message.number, order)

    def _report_ready(self, worker: _WorkerState, message: WorkerReady) -> None:
        if self._is_started:
            self._say("worker-started", f"worker {worker.number} is ready", worker=worker.number)
        elif all(one.is_ready for one in self._workers):
            self._is_started = True
            self._start.log_startup(self._say, message.models, message.grpc_port)

    def _broadcast_change(self, asker: _WorkerState, ask: ChangeRequest) -> None:
        """Broadcast a request of one worker to all workers."""
        until = time.monotonic() + self._settings.limits.seconds
        order = _PendingChange(asker, ask, until)
        if len(self._pending_changes) >= _MAX_PENDING_CHANGES:
            order.errors.append(
                ErrorMessage(
                    "BusyError", "server busy: too many pending model changes; retry later"
                )
            )
            self._finish_if_done(0, order)
            return
        # Updated immediately, for workers that start before the others have finished.
        order.was_unloaded = ask.name in self._unloaded_models
        (self._unloaded_models.add if ask.what == "unload" else self._unloaded_models.discard)(
            ask.name
        )
        self._n_issued += 1
        self._pending_changes[self._n_issued] = order
        for worker in self._list_running():
            if _send_message(worker, ChangeCommand(self._n_issued, ask.what, ask.name)):
                order.waiting.add(worker.number)

    def _finish_if_done(self, number: int, order: _PendingChange) -> None:
        if order.waiting:
            return
        self._pending_changes.pop(number, None)
        if order.errors and order.errors[0].kind != "UnavailableError":  # not executed
            change = (
                self._unloaded_models.add if order.was_unloaded else self._unloaded_models.discard
            )
            change(order.request.name)
        if order.requester.link is not None:
            refusal = order.errors[0] if order.errors else None
            _send_message(order.requester, ChangeResponse(order.request.number, refusal))


def _send_message(worker: _WorkerState, message: Any) -> bool:
    """Send a message to a worker; return False if the worker is ending."""
    assert worker.link is not None  # noqa: S101 - it lives
    try:
        worker.link.send(message)
    except OSError:
        return False
    return True


def _describe_exit(code: int | None) -> str:
    return f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"
