"""States of workers and errors of Dask that stop the work on a cluster, in one line each.

Dask is not imported: its states and errors are known by their names, which all versions share.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from treekit.errors import SettingError, TreekitError, warn

if TYPE_CHECKING:
    from distributed import Client

_T = TypeVar("_T")

PATIENCE = 45.0
"""Seconds without a worker, scheduler or answer until an error; a restart takes some seconds."""

ANSWER_TIME = 10.0
"""Seconds until a scheduler must answer."""

_TICK = 1.0
"""Seconds between two looks at the cluster."""


class ClusterError(TreekitError):
    """Work on a cluster failed because of its workers, not because of the data."""


# ---------------------------------------------------------------- states of workers


class _State(NamedTuple):
    words: str
    remedy: str


_STARTING = _State("is still starting", "read the log of a worker that does not finish starting")
_CLOSING = _State("is shutting down", "start other workers")

STATES = {
    "undefined": _STARTING,
    "created": _STARTING,
    "init": _STARTING,
    "starting": _STARTING,
    "paused": _State(
        "is paused because its memory is nearly full",
        "give workers more memory, free memory that other work uses there, or use fewer rows",
    ),
    "closing_gracefully": _CLOSING,
    "closing": _CLOSING,
    "closed": _CLOSING,
    "stopping": _CLOSING,
    "stopped": _CLOSING,
    "dont_reply": _CLOSING,
    "failed": _State("has failed", "read the log of a failed worker, and restart it"),
}
"""All of Dask's states of a worker in which it starts no task."""


class _Obstacle(NamedTuple):
    """What stops the work: for the line of progress, and as an error."""

    short: str
    message: str


def label_worker(address: str, worker: Mapping[str, Any]) -> str:
    """Name a worker by its address, and by its name if it has another one."""
    name = worker.get("name")
    return f"worker {address}" + (f" named {name!r}" if name not in (None, address) else "")


def join_some(texts: Sequence[str], what: str) -> str:
    """Join at most three texts and the number of those that are left out."""
    more = [f"{len(texts) - 3} more {what}"] if len(texts) > 3 else []
    return "; ".join([*texts[:3], *more])


def _describe_memory(worker: Mapping[str, Any]) -> str:
    limit, used = worker.get("memory_limit"), worker.get("metrics", {}).get("memory")
    return f" ({used / 1e9:.3g} of {limit / 1e9:.3g} GB used)" if limit and used else ""


def _is_able(worker: Mapping[str, Any]) -> bool:
    """Return whether a worker starts tasks, or is running one, as a paused worker may."""
    counts = worker.get("metrics", {}).get("task_counts", {})
    return worker["status"] == "running" or bool(counts.get("executing"))


def find_obstacle(workers: Mapping[str, Mapping[str, Any]]) -> _Obstacle | None:
    """Return why no worker can run a task; None if one can."""
    if any(map(_is_able, workers.values())):
        return None
    if not workers:
        return _Obstacle(
            "no worker has connected",
            f"the cluster has had no worker for {PATIENCE:g} seconds; start workers, read the "
            "logs of workers that stopped, and run again",
        )
    names, counts, remedies = [], Counter[str](), []
    for address, worker in sorted(workers.items()):
        status = worker["status"]
        state = STATES.get(status, _State(f"is in the state {status!r}", "read the worker's log"))
        memory = _describe_memory(worker) if status == "paused" else ""
        names.append(f"{label_worker(address, worker)} {state.words}{memory}")
        counts[status.replace("_", " ")] += 1
        remedies.append(state.remedy)
    return _Obstacle(
        ", ".join(f"{number} {status}" for status, number in sorted(counts.items())),
        f"for {PATIENCE:g} seconds, no worker could run a task: "
        f"{join_some(names, 'workers')}; {'; '.join(dict.fromkeys(remedies))}",
    )


class Watch:
    """Look at a cluster while this process waits for it.

    Parameters
    ----------
    client : distributed.Client
    show : callable, optional
        Shows what the cluster waits for; an empty text if for nothing.
    """

    def __init__(self, client: Client, show: Callable[[str], None] = lambda _: None) -> None:
        self.client, self._show = client, show
        self.scheduler = _get_address(client)
        self._next = 0.0
        self._since = math.inf  # begin of the present obstacle
        self._able: set[str] = set()
        self._inspected = time.monotonic()
        self._heard: dict[str, tuple[float, float]] = {}

    def call(self, function: Callable[..., Awaitable[_T]], *arguments: Any, **options: Any) -> _T:
        """Return the result of a method of the client, and check the cluster meanwhile."""

        async def run() -> _T:  # in the client's event loop, where its methods are awaited
            return await function(*arguments, **options)

        running = asyncio.run_coroutine_threadsafe(run(), self.client.loop.asyncio_loop)
        try:
            while not concurrent.futures.wait([running], _TICK).done:
                self.check()
        except BaseException:
            running.cancel()
            raise
        return running.result()

    def read_workers(self) -> dict[str, dict[str, Any]]:
        """Return Dask's description of each worker by its address."""
        if self.client.scheduler is None:
            raise ConnectionError("the client is closed")
        found: dict[str, dict[str, Any]] = self.client.sync(
            self.client.scheduler.identity, callback_timeout=ANSWER_TIME
        )["workers"]
        return found

    def wait_for_workers(self) -> dict[str, dict[str, Any]]:
        """Wait until a worker can run tasks; return the description of all workers."""
        while True:
            with suppress(OSError):  # counted by `check`
                workers = self.read_workers()
                if find_obstacle(workers) is None:
                    return workers
            self.check()
            time.sleep(0.1)

    def check(self) -> None:
        """Raise `ClusterError` if no task could run for too long; call it at least each second."""
        now = time.monotonic()
        if now < self._next:
            return
        if self.client.status in ("closing", "closed"):
            raise ClusterError(
                f"the connection to the scheduler at {self.scheduler} is closed; check that it "
                "runs, connect a new client, and run again"
            )
        able: set[str] = set()
        obstacle: _Obstacle | None
        try:
            workers = self.read_workers()
        except OSError:
            obstacle = _Obstacle(
                "the scheduler does not answer",
                f"the scheduler at {self.scheduler} has not answered for {PATIENCE:g} seconds; "
                "check that it runs and that this machine reaches it, and run again",
            )
        else:
            able = {address for address, worker in workers.items() if _is_able(worker)}
            obstacle = find_obstacle(workers)
            if obstacle is None and self._since < now and not able & self._able:
                obstacle = _Obstacle(
                    "workers that restart",
                    f"for {PATIENCE:g} seconds, every worker stopped and was restarted before it "
                    "could run a task; read the workers' logs, and perhaps give them more memory",
                )
            self._warn_of_silent_workers(workers, now)
        self._able = able
        self._show(f"waiting for workers: {obstacle.short}" if obstacle else "")
        self._since = min(self._since, now) if obstacle else math.inf
        if obstacle and now - self._since >= PATIENCE:
            raise ClusterError(obstacle.message)
        if obstacle is None and now - self._inspected >= PATIENCE / 3:
            self._check_restrictions()
            self._inspected = time.monotonic()
        self._next = time.monotonic() + _TICK

    def _warn_of_silent_workers(self, workers: Mapping[str, Mapping[str, Any]], now: float) -> None:
        """Warn, once a worker, if Dask's heartbeats do not come; it may only be very busy."""
        last = self._heard
        self._heard = {
            address: last[address]
            if address in last and last[address][0] == worker["last_seen"]
            else (worker["last_seen"], now)
            for address, worker in workers.items()
        }
        for address, (_, heard) in self._heard.items():
            if now - heard >= PATIENCE:
                warn(
                    f"{label_worker(address, workers[address])} has sent no message for "
                    f"{PATIENCE:g} seconds; if this continues, restart it: its tasks then run on "
                    "other workers"
                )
                self._heard[address] = (workers[address]["last_seen"], math.inf)

    def _check_restrictions(self) -> None:
        """Raise `ClusterError` if no worker may run a task of this process."""
        blocked = self._inspect(find_blocked_tasks, self.client.id) or []
        texts = [text for seconds, text in blocked if seconds >= PATIENCE]
        if blocked:
            self._show(f"waiting for workers: none may run {len(blocked)} tasks")
        if texts:
            raise ClusterError(
                f"no worker may run {join_some(texts, 'tasks')}; start workers that meet these "
                "restrictions, or remove them (dask.annotate, resources)"
            )

    def find_failed_workers(self, key: Any) -> str:
        """Name the workers on which a task failed."""
        return " and ".join(self._inspect(find_failed_workers, key) or ["a worker"])

    def _inspect(self, function: Callable[..., _T], *arguments: Any) -> _T | None:
        """Call a function in the scheduler; None if that is not allowed, or treekit not there."""
        with suppress(Exception):
            found: _T = self.client.sync(  # in the event loop, clients return awaitables
                lambda: self.client.run_on_scheduler(function, *arguments),
                callback_timeout=ANSWER_TIME,
            )
            return found
        return None


def _get_address(client: Client) -> str:
    scheduler = getattr(client, "scheduler", None)
    return str(getattr(scheduler, "address", None) or "an unknown address")


# ---------------------------------------------------------------- run by the scheduler


def find_blocked_tasks(client: str, dask_scheduler: Any = None) -> list[tuple[float, str]]:
    """Find tasks of a client that no worker may run: seconds, and task and restrictions."""
    from distributed.metrics import monotonic

    tasks, seen, found = list(dask_scheduler.clients[client].wants_what), set(), []
    while tasks:
        task = tasks.pop()
        if task in seen:
            continue
        seen.add(task)
        if task.state == "waiting":
            tasks.extend(task.dependencies)
        elif task.state == "no-worker":
            since = dask_scheduler.unrunnable[task]
            limits = [
                f"{noun} {sorted(map(str, allowed))}"
                for noun, allowed in (
                    ("workers", task.worker_restrictions),
                    ("hosts", task.host_restrictions),
                )
                if allowed
            ]
            if task.resource_restrictions:
                limits.append(f"resources {dict(task.resource_restrictions)}")
            found.append((monotonic() - since, f"task {task.key} ({', '.join(limits)})"))
    return found


def find_failed_workers(key: Any, dask_scheduler: Any = None) -> list[str]:
    """Name the workers on which a task failed, or the task that it depends on."""
    task = dask_scheduler.tasks[key]
    names = []
    for address in sorted((task.exception_blame or task).erred_on or ()):
        worker = dask_scheduler.workers.get(address)
        known = {} if worker is None else worker.identity()
        names.append(label_worker(address, known) + _describe_memory(known))
    return names


# ---------------------------------------------------------------- errors

_LOST = (
    "lost the connection to the cluster",
    "check that its scheduler and workers run and that this machine reaches them, and run again",
)
_SHUFFLE = ("a shuffle of the table's rows failed", "run again; if it fails again, use fewer rows")
_TLS = (
    "the TLS connection failed",
    "begin the address with tls://, and set Dask's distributed.comm.tls: the certificate "
    "authority, and the client's certificate and key",
)

_EXPLANATIONS = {
    "NoValidWorkerError": (
        "no worker may run a task",
        "start workers that meet its restrictions, or remove them (dask.annotate, resources)",
    ),
    "NoWorkerError": ("no worker was running", "start workers, and run again"),
    "WorkerStartTimeoutError": ("too few workers have started", "start workers, read their logs"),
    "CancelledError": (
        "the tasks were cancelled",
        "run again, without another client that cancels tasks or restarts the cluster",
    ),
    "ClosedClientError": ("the client is closed", "create a new one, and run again"),
    "SSLError": _TLS,
    "gaierror": ("the name of a machine is unknown", "check the address"),
    "TimeoutError": ("the cluster did not answer in time", _LOST[1]),
    "P2POutOfDiskError": (
        "a worker's disk is full",
        "free space in its local directory, or set another one (dask worker --local-directory)",
    ),
    "P2PIllegalStateError": _SHUFFLE,
    "P2PConsistencyError": _SHUFFLE,
    "DataUnavailable": _SHUFFLE,
    "MaxSpillExceeded": (
        "a worker has no space left to spill to disk",
        "raise distributed.worker.memory.max-spill, or give workers more memory",
    ),
    "OSError": _LOST,
    "Exception": (
        "Dask failed",
        "read the logs of the scheduler and the workers, and install the same version of dask "
        "and distributed everywhere",
    ),
}
"""What happened and the remedy, by the name of a class or of its first base that is here."""

_LIBRARIES = ("dask", "distributed", "tornado", "asyncio", "concurrent", "ssl", "socket")


def describe_error(error: BaseException) -> str:
    """Return the class and the text of an error in one line."""
    text = ""
    with suppress(Exception):  # the attributes of Dask's errors may be missing
        text = " ".join(str(error).split())
    name = type(error).__name__
    return f"{name}: {text if len(text) <= 300 else text[:297] + '...'}" if text else name


def explain_error(
    error: BaseException, scheduler: str, failed_on: str | None
) -> TreekitError | None:
    """Return an error of one line with a remedy.

    Parameters
    ----------
    error : BaseException
    scheduler : str
        Address of the scheduler.
    failed_on : str, optional
        The workers, if a task raised the error there.

    Returns
    -------
    TreekitError, optional
        None if the error is no failure of the cluster.
    """
    if isinstance(error, TreekitError):
        return None
    classes = {kind.__name__ for kind in type(error).__mro__}
    if "KilledWorker" in classes:
        return _explain_killed_worker(error)
    if failed_on is not None and not _is_of_libraries(type(error)):
        return _explain_task_error(error, failed_on)
    if failed_on is None and not _is_failure_of_cluster(error):
        return None
    what, remedy = next(
        _EXPLANATIONS[kind.__name__]
        for kind in (*type(error).__mro__, Exception)
        if kind.__name__ in _EXPLANATIONS
    )
    text, reason = describe_error(error), getattr(error, "reason", None)
    if reason in ("scheduler-connection-lost", "scheduler-restart"):
        (what, remedy), text = _LOST, str(reason)
    where = f"on {failed_on}" if failed_on else f"scheduler {scheduler}"
    return ClusterError(f"{what} ({where}; {text}); {remedy}")


def _is_of_libraries(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _LIBRARIES


def _is_failure_of_cluster(error: BaseException) -> bool:
    """Return whether an error is one of Dask, or of the network, or was raised by their code."""
    network = (ConnectionError, TimeoutError, socket.gaierror, socket.herror, ssl.SSLError)
    if any(map(_is_of_libraries, type(error).__mro__)):
        return True
    if getattr(error, "filename", None) is not None:  # of a file of this process
        return False
    if isinstance(error, network):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return module.partition(".")[0] in _LIBRARIES


def _explain_killed_worker(error: Any) -> ClusterError:
    worker = error.last_worker
    last = label_worker(getattr(worker, "address", worker), {"name": getattr(worker, "name", None)})
    return ClusterError(
        f"{error.allowed_failures + 1} workers died while running task {error.task}, the last one "
        f"{last}, usually because they ran out of memory; give workers more memory, or use fewer "
        "rows"
    )


def _explain_task_error(error: BaseException, failed_on: str) -> TreekitError | None:
    """Explain an error that a task raised because of its worker; None for other errors."""
    text = describe_error(error)
    if isinstance(error, MemoryError):
        return ClusterError(
            f"{failed_on} ran out of memory ({text}); give it more memory, or use fewer rows"
        )
    if isinstance(error, ImportError) or "Can't get attribute" in text:
        return ClusterError(
            f"{failed_on} lacks code of this process ({text}); install the same packages and "
            "plugins on all workers"
        )
    if "deserialization of the task graph" in text:  # a RuntimeError
        return ClusterError(
            "the scheduler cannot read the tasks; install the same versions of treekit, dask and "
            "distributed there as in this process"
        )
    if isinstance(error, (OSError, concurrent.futures.CancelledError, asyncio.CancelledError)):
        return ClusterError(
            f"{failed_on} failed ({text}); check its disk, its network and its files, and run again"
        )
    return None


def explain_connection_error(error: BaseException, address: str) -> SettingError:
    """Return the error for a scheduler that cannot be reached."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = describe_error(error)
    if not isinstance(cause, TimeoutError | asyncio.CancelledError) and cause is not error:
        text += f" ({describe_error(cause)})"
    remedy = "check the address, and start the scheduler if it is not running"
    if "TLS" in text or "ssl" in text.lower() or "encryption" in text:
        remedy = _TLS[1]
    elif address.startswith("tcp:"):
        remedy += "; if it uses TLS, begin the address with tls://"
    return SettingError(f"cannot connect to a scheduler at {address}: {text}; {remedy}")
