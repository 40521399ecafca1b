"""Connect to clusters, check that all workers are equal, and run tasks with progress.

Tasks are pure functions of their arguments, so that Dask can repeat those of a lost worker on
another one.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import platform
import re
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from treekit._version import __version__
from treekit.discovery import find_plugins
from treekit.errors import DataError, MissingExtraError, SettingError, TreekitError
from treekit.progress import report_compilation

if TYPE_CHECKING:
    from distributed import Client, Future

# ---------------------------------------------------------------- connect


class ClusterError(TreekitError):
    """Work on a cluster failed because of its workers, not because of the data."""


@contextmanager
def connect(cluster: Any = None) -> Iterator[DaskEngine]:
    """Connect to a cluster and check its workers; at the end they forget all results.

    Parameters
    ----------
    cluster : distributed.Client or str, optional
        A Dask client, the address of a scheduler (``tcp://HOST:PORT``), or ``local:N`` (N
        processes on this machine until the work ends).  None: the active client.

    Raises
    ------
    SettingError
        If there is no such cluster.
    ClusterError
        If workers differ from this process.
    """
    with _open_client(cluster) as client:
        check_workers(client)
        with DaskEngine(client) as engine:
            yield engine


def _open_client(cluster: Any) -> AbstractContextManager[Client]:
    try:
        from distributed import Client, get_client
    except ImportError:
        raise MissingExtraError("dask.distributed", "dask") from None
    if isinstance(cluster, Client):
        return nullcontext(cluster)
    if cluster is None:
        try:
            return nullcontext(get_client())
        except ValueError:
            raise SettingError(
                "the table is a Dask collection and no client is active; create one "
                "(dask.distributed.Client()), set cluster, or train on table.compute()"
            ) from None
    if local := re.fullmatch(r"local:([1-9]\d*)", str(cluster)):
        return _start_local_cluster(int(local[1]))
    if not re.match(r"(tcp|tls|ucx|inproc)://", str(cluster)):
        raise SettingError(
            f"expected a cluster such as tcp://HOST:8786 or local:4, got {cluster!r}"
        )
    try:
        client: AbstractContextManager[Client] = Client(str(cluster), timeout=10)
    except OSError as error:
        raise SettingError(
            f"cannot connect to a scheduler at {cluster}: {error}; check the address, and start "
            "the scheduler if it is not running"
        ) from None
    return client


@contextmanager
def _start_local_cluster(n_workers: int) -> Iterator[Client]:
    import dask.config
    from distributed import Client, LocalCluster

    with (
        # By default a worker that takes 15 seconds to restart never comes back.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"}),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,  # errors are raised here
        ) as started,
        Client(started) as client,
    ):
        for number, worker in enumerate(client.scheduler_info()["workers"]):
            client.run(report_compilation, number == 0, workers=[worker])
        yield client


# ---------------------------------------------------------------- alike workers


def describe_process() -> dict[str, str]:
    """Return the versions of packages and plugins, and a checksum of log and exp, here."""
    found: dict[str, str] = {
        "treekit": __version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "numba": version("numba"),
    }
    for plugin in find_plugins(lambda *_: None):
        found[f"plugin {plugin.source.distribution}"] = plugin.source.version
    found["checksum of log and exp"] = _compute_checksum()
    return found


def _compute_checksum() -> str:
    """Return a digest of logarithms and exponentials, which differ between processors."""
    numbers = np.ldexp(np.arange(1.0, 100_001.0), -7)
    values = np.concatenate([np.log(numbers), np.log2(numbers), np.exp(-numbers), numbers**0.3])
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]


def check_workers(client: Client) -> None:
    """Raise `ClusterError` if there are no workers, or one differs from this process."""
    client.wait_for_workers(1, timeout=30)
    compare_workers(describe_process(), client.run(describe_process))


def compare_workers(own: Mapping[str, str], workers: Mapping[str, Mapping[str, str]]) -> None:
    """Raise `ClusterError` if a worker's description differs from that of this process."""
    differences = []
    for address, found in sorted(workers.items()):
        for name in sorted(own.keys() | found.keys()):
            here, there = own.get(name, "not installed"), found.get(name, "not installed")
            if here != there:
                differences.append(f"worker {address} has {name} {there}, this process {here}")
    if differences:
        more = f"; {len(differences) - 3} more differences" if len(differences) > 3 else ""
        raise ClusterError(
            "; ".join(differences[:3])
            + more
            + "; use the same versions and the same kind of processor on all machines"
        )


def count_threads(client: Client) -> int:
    """Return the number of threads of all workers."""
    return sum(client.nthreads().values())


def find_smallest_memory(client: Client) -> int | None:
    """Return the memory limit in bytes of the smallest worker; None without limits."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    return min((own["memory_limit"] for own in workers if own["memory_limit"]), default=None)


def find_thread_memory(client: Client) -> int | None:
    """Return the least memory limit in bytes for each thread of a worker; None without limits."""
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    limits = [own["memory_limit"] // own["nthreads"] for own in workers if own["memory_limit"]]
    return min(limits, default=None)


# ---------------------------------------------------------------- tasks


class DaskEngine:
    """Run functions on the workers of a client; see `treekit.grow.level_builder.Engine`.

    Dask recomputes a result whose worker is lost.  At the end of a ``with`` block the workers
    forget all results, also those that the traceback of an error still refers to.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._submitted: weakref.WeakSet[Future] = weakref.WeakSet()

    def __enter__(self) -> DaskEngine:
        return self

    def __exit__(self, *_: object) -> None:
        for result in list(self._submitted):
            result.release()

    def send(self, value: Any) -> Future:
        """Send a value to the workers by a task, which Dask repeats if its worker is lost."""
        # Settings may hold a notebook's functions.
        import cloudpickle  # type: ignore[import-untyped]

        return self.submit(pickle.loads, cloudpickle.dumps(value))

    def split(self, collection: Any) -> list[Future]:
        """Compute the partitions of a Dask dataframe or series, or the row blocks of an array.

        Raises
        ------
        DataError
            If it is another collection.
        """
        if getattr(collection, "ndim", 0) not in (1, 2) or not hasattr(collection, "to_delayed"):
            raise DataError(
                f"expected a Dask dataframe, series or array, got {type(collection).__name__}"
            )
        if hasattr(collection, "rechunk") and collection.ndim == 2:
            collection = collection.rechunk({1: -1})
        delayed = np.ravel(np.asarray(collection.to_delayed(), dtype=object))
        return [self._add(part) for part in self.client.compute(list(delayed))]

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        """Run a function on a worker."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*Sending large graph")
            return self._add(self.client.submit(function, *arguments, pure=False))

    def wait(self, results: Sequence[Future], done: Callable[[int], None] | None = None) -> None:
        """Wait for results; cancel all functions if one fails, or on Ctrl-C.

        `done` is called with the position of each result when it is there.

        Raises
        ------
        ClusterError
            If several workers died while running a function, usually because they ran out of
            memory, or if no worker is left.
        """
        from distributed import as_completed
        from distributed.scheduler import KilledWorker

        position = {task.key: k for k, task in enumerate(results)}
        try:
            with _watch_workers(self.client, results) as none_left:
                for task in as_completed(results):
                    if none_left.is_set():
                        raise ClusterError(
                            f"the cluster has had no worker for {_PATIENCE} seconds; start "
                            "workers, check the logs of the lost workers, and run again"
                        )
                    if task.status == "error":
                        task.result()
                    if done is not None:
                        done(position[task.key])
        except KilledWorker as error:
            raise ClusterError(
                f"{error.allowed_failures + 1} workers died while running task {error.task}, "
                "usually because they ran out of memory; give workers more memory, or train on "
                "fewer rows"
            ) from None
        except BaseException:
            self.client.cancel(list(self._submitted), force=True)
            raise

    def take(self, results: Sequence[Future]) -> list[Any]:
        """Wait for results and fetch them."""
        self.wait(results)
        return list(self.client.gather(list(results)))

    def _add(self, result: Future) -> Future:
        self._submitted.add(result)
        return result


_PATIENCE = 60
"""Seconds without any worker until tasks are cancelled; a restart takes some seconds."""


@contextmanager
def _watch_workers(client: Client, tasks: Sequence[Future]) -> Iterator[threading.Event]:
    """If no worker is left, set the yielded event and cancel the tasks, which would not end."""
    none_left, ended = threading.Event(), threading.Event()

    def watch() -> None:
        absent = 0.0
        while not ended.wait(1.0):
            try:
                absent = 0.0 if client.nthreads() else absent + 1.0
            except (OSError, TimeoutError):  # the scheduler is gone, too: Dask ends the tasks
                return
            if absent >= _PATIENCE and not ended.is_set():
                none_left.set()
                client.cancel(list(tasks), force=True)
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield none_left
    finally:
        ended.set()
        watcher.join()


# ---------------------------------------------------------------- collections


def join_partitions(parts: Sequence[Any]) -> Any:
    """Join computed partitions, in order, to one dataframe, series or array.

    Raises
    ------
    DataError
        If a column holds numbers in one partition and text in another.
    """
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import pandas as pd

    if isinstance(parts[0], pd.Series):
        return join_partitions([part.to_frame() for part in parts]).iloc[:, 0]
    frames = [part for part in parts if len(part)] or [parts[0]]
    for name in frames[0].columns:
        columns = [frame[name] for frame in frames]
        kinds = [column.dtype for column in columns]
        if all(kind == kinds[0] for kind in kinds):
            continue
        _check_kinds(name, [part[name] for part in parts])
        if all(isinstance(kind, pd.CategoricalDtype) for kind in kinds):
            categories = pd.api.types.union_categoricals(columns).categories
            frames = [
                frame.assign(**{name: column.cat.set_categories(categories)})
                for frame, column in zip(frames, columns, strict=True)
            ]
    return pd.concat(frames)


def _check_kinds(name: str, columns: Sequence[Any]) -> None:
    """Raise `DataError` if a column holds numbers in one partition and text in another."""
    known = [(kind, k) for k, column in enumerate(columns) if (kind := _infer_kind(column))]
    for kind, k in known:
        if kind != known[0][0]:
            raise DataError(
                f"column {name!r} holds {kind} in partition {k}, but {known[0][0]} in partition "
                f"{known[0][1]}; convert the column to one type in all partitions"
            )


def _infer_kind(column: Any) -> str:
    """Return what a column holds: numbers, text or another type; empty if all is missing."""
    from pandas.api.types import infer_dtype

    kind: str = infer_dtype(column.dropna(), skipna=True)
    if kind in ("integer", "floating", "mixed-integer-float", "decimal", "boolean"):
        return "numbers"
    return {"empty": "", "string": "text", "categorical": "text"}.get(kind, kind)


# ---------------------------------------------------------------- rows in errors

_ROW = re.compile(r"\brow (\d+) \(counting from 0\)")


def locate_row(
    error: DataError,
    places: Sequence[tuple[str, int]],
    selected: Sequence[Sequence[int]] | None = None,
) -> DataError:
    """Return an error that gives the row within its part instead of within the joined table.

    Parameters
    ----------
    error : DataError
        If its message contains ``row N (counting from 0)``, the last match is replaced: a cell
        that it quotes may contain the same text.
    places : sequence of (str, int)
        Name and number of rows of each part.
    selected : sequence of sequences of int, optional
        Indices of the rows of each part that were joined; by default all.
    """
    message = str(error)
    found = list(_ROW.finditer(message))
    if not found:
        return error
    row = int(found[-1][1])
    for part, (place, n_rows) in enumerate(places):
        rows = range(n_rows) if selected is None else selected[part]
        if row < len(rows):
            start, end = found[-1].span()
            where = f"row {rows[row]} of {place} (counting from 0)"
            return DataError(message[:start] + where + message[end:])
        row -= len(rows)
    return error


def locate_part(error: DataError, place: str, n_rows: int) -> DataError:
    """Return an error that names its part: next to the row, or else before the message."""
    located = locate_row(error, [(place, n_rows)])
    return located if located is not error else DataError(f"{place}: {error}")
