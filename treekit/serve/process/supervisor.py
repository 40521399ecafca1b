"""Parent process of several workers: uvicorn's supervisor, with the log and time limits."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from uvicorn.supervisors.multiprocess import Multiprocess, Process

from treekit.errors import SettingError
from treekit.serve.http.logs import log_event
from treekit.serve.http.metrics import forget_process
from treekit.serve.process.shared_state import SharedState
from treekit.serve.process.worker import make_config, make_worker_app
from treekit.serve.settings import ServeSettings

_HEALTH_SECONDS = 60
"""Seconds in which a new worker must be ready when SIGHUP replaces the workers."""

_EXIT_SECONDS = 5.0
"""Seconds that a worker has to end after its last response before it is killed."""


class WorkerSupervisor(Multiprocess):
    """Supervisor of worker processes that share a port.

    Parameters
    ----------
    settings : ServeSettings
    sockets : list of socket
        Listening sockets, shared by all workers.
    path : Path
        File of the `SharedState`.
    ready : callable
        Called when all workers are ready.
    """

    def __init__(
        self,
        settings: ServeSettings,
        sockets: list[socket.socket],
        path: Path,
        ready: Callable[[], None],
    ) -> None:
        config = make_config(
            partial(make_worker_app, settings, path),
            settings,
            factory=True,
            workers=settings.workers,
            timeout_worker_healthcheck=_HEALTH_SECONDS,
        )
        super().__init__(config, sockets)
        self._shared, self._report_ready = SharedState(path), ready
        self._seconds = settings.limits.seconds + _EXIT_SECONDS

    def keep_subprocess_alive(self) -> None:
        """Restart ended workers; raise the error of one that ends at startup.

        Without the health checks of uvicorn, which wait for a worker that ends meanwhile, and end
        one that starts slowly.
        """
        for place, process in enumerate(self.processes):
            code, pid = process.exitcode, process.pid
            if code is None or pid is None:
                continue
            cause = f"exit code {code}" if code >= 0 else f"signal {-code}"
            number = self._shared.find_number(pid)
            if not self._shared.is_started:
                raise SettingError(
                    self._shared.read_error() or f"a worker ended at startup: {cause}"
                )
            forget_process(pid)
            log_event(
                "worker-died",
                f"worker {number} ended: {cause}; restarting",
                level="error",
                worker=number,
                pid=pid,
            )
            self.processes[place] = Process(self.config, self.sockets)
            self.processes[place].start()
        # Those replaced or ended by SIGHUP and SIGTTOU, too.
        self._shared.keep_workers(process.pid for process in self.processes)
        if not self._shared.is_started and self._shared.count_ready() == len(self.processes):
            self._shared.mark_started()
            self._report_ready()

    def request_shutdown(self) -> None:
        """Shut down all workers after their requests in progress; safe in a signal handler."""
        self.should_exit.set()
        for opened in self.sockets:  # otherwise clients could still connect, without answer
            opened.close()
        timer = threading.Timer(self._seconds, self.kill_all)
        timer.daemon = True
        timer.start()

    def kill_all(self) -> None:
        """Kill all workers that still run."""
        for process in self.processes:
            with contextlib.suppress(OSError):
                process.kill()
            process.join()
