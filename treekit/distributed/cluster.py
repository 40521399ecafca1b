"""Connect to clusters, check that all workers are equal, and run tasks with progress.

Tasks are pure functions of their arguments, so that Dask can repeat those of a lost worker on
another one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import pickle
import platform
import queue
import re
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from treekit._version import __version__
from treekit.distributed import failures
from treekit.distributed.failures import (
    ClusterError,
    Watch,
    describe_error,
    explain_connection_error,
    explain_error,
    join_some,
    label_worker,
)
from treekit.errors import DataError, MissingExtraError, SettingError, TreekitError, warn
from treekit.progress import report_compilation, show_waiting
from treekit.registry.discovery import find_declarations

if TYPE_CHECKING:
    from distributed import Client, Future

# ---------------------------------------------------------------- connect


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
        If workers differ from this process, or the work fails because of the cluster: all errors
        of Dask that happen in the ``with`` block become one.
    """
    engine = None
    try:
        with _open_client(cluster) as client, show_waiting() as show:
            watch = Watch(client, show)
            check_workers(watch)
            with DaskEngine(client, watch) as engine:
                yield engine
    except (Exception, asyncio.CancelledError) as error:
        scheduler = str(cluster) if engine is None else engine.watch.scheduler
        failed, failed_on = (None, None) if engine is None else engine.failure
        explained = explain_error(error, scheduler, failed_on if error is failed else None)
        if explained is None:
            if error is failed and not isinstance(error, TreekitError):
                error.add_note(f"raised on {failed_on}")
            raise
        raise explained from error


def _open_client(cluster: Any) -> AbstractContextManager[Client]:
    try:
        from distributed import Client, get_client
    except ImportError:
        raise MissingExtraError("dask.distributed", "dask") from None
    if isinstance(cluster, Client):
        return nullcontext(_check_client(cluster))
    if cluster is None:
        try:
            active = get_client()
        except ValueError:
            raise SettingError(
                "the table is a Dask collection and no client is active; create one "
                "(dask.distributed.Client()), set cluster, or train on table.compute()"
            ) from None
        return nullcontext(_check_client(active))
    if local := re.fullmatch(r"local:([1-9]\d*)", str(cluster)):
        return _start_local_cluster(int(local[1]))
    if not re.match(r"(tcp|tls|ucx|inproc)://", str(cluster)):
        raise SettingError(
            f"expected a cluster such as tcp://HOST:8786 or local:4, got {cluster!r}"
        )
    return _connect_client(str(cluster))


def _check_client(client: Client) -> Client:
    """Return a client that is connected and not asynchronous; else raise `SettingError`."""
    if client.asynchronous:
        raise SettingError(
            "an asynchronous client cannot wait for the work; create dask.distributed.Client() "
            "without asynchronous=True, outside of coroutines"
        )
    if client.status in ("closing", "closed"):
        raise SettingError("the client is closed; create another dask.distributed.Client()")
    return client


@contextmanager
def _connect_client(address: str) -> Iterator[Client]:
    from distributed import Client
    from distributed.versions import VersionMismatchWarning

    with _silence_logs():
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", VersionMismatchWarning)
                _try_connection(address)
                client = Client(address, timeout=failures.ANSWER_TIME)
        except Exception as error:
            raise explain_connection_error(error, address) from error
        if caught:
            warn(
                f"the scheduler at {address} or its workers have other versions of Dask or its "
                "libraries than this process; if the work fails, install the same ones: "
                "client.get_versions(check=True) lists them"
            )
        try:
            yield client
        finally:
            with suppress(Exception):  # of a lost scheduler; the result or its error is there
                client.close(timeout=failures.ANSWER_TIME)


def _try_connection(address: str) -> None:
    """Raise an error if there is no scheduler.

    A client waits for ever for one that is silent, and a client that could not connect may block
    the thread in which Python later frees it.
    """
    from distributed import Security
    from distributed.comm import connect

    async def connect_and_close() -> None:
        async with asyncio.timeout(1.5 * failures.ANSWER_TIME):
            options = Security().get_connection_args("client")
            comm = await connect(address, timeout=failures.ANSWER_TIME, **options)
            await comm.close()

    with ThreadPoolExecutor(1) as thread:  # a notebook's own thread runs an event loop
        thread.submit(asyncio.run, connect_and_close()).result()


@contextmanager
def _silence_logs() -> Iterator[None]:
    """Keep Dask's logs from the terminal: errors are raised here."""
    handlers = logging.getLogger("distributed").handlers
    levels = [handler.level for handler in handlers]
    for handler in handlers:
        handler.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for handler, level in zip(handlers, levels, strict=True):
            handler.setLevel(level)


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
    for declared in find_declarations(lambda *_: None):
        found[f"plugin {declared.source.distribution}"] = declared.source.version
    found["checksum of log and exp"] = _compute_checksum()
    return found


def _compute_checksum() -> str:
    """Return a digest of logarithms and exponentials, which differ between processors."""
    numbers = np.ldexp(np.arange(1.0, 100_001.0), -7)
    values = np.concatenate([np.log(numbers), np.log2(numbers), np.exp(-numbers), numbers**0.3])
    return hashlib.sha256(values.tobytes()).hexdigest()[:16]


def check_workers(watch: Watch) -> None:
    """Raise `ClusterError` if no worker can run tasks, or one differs from this process."""
    end = time.monotonic() + failures.PATIENCE
    while True:
        workers = watch.wait_for_workers()
        answers = watch.call(_describe_workers, watch.client, list(workers))
        labels = {address: label_worker(address, worker) for address, worker in workers.items()}
        errors = {
            labels[address]: answer
            for address, answer in answers.items()
            if isinstance(answer, BaseException)
        }
        if not errors:
            break
        lost = all(isinstance(error, OSError) for error in errors.values())
        if not lost or time.monotonic() >= end:
            raise _explain_answers(errors)
        watch.check()
        time.sleep(0.1)  # a worker that has ended leaves, and may restart
    compare_workers(
        describe_process(), {labels[address]: answer for address, answer in answers.items()}
    )


async def _describe_workers(client: Client, addresses: Sequence[str]) -> dict[str, Any]:
    """Return the description that each worker sends, or its error."""
    asked = {
        address: asyncio.ensure_future(
            client.run(describe_process, workers=[address], on_error="return")
        )
        for address in addresses
    }
    await asyncio.wait(asked.values(), timeout=failures.PATIENCE)
    found: dict[str, Any] = {}
    for address, answer in asked.items():
        if answer.cancel():
            found[address] = TimeoutError(f"no answer for {failures.PATIENCE:g} seconds")
        else:
            found[address] = answer.exception() or answer.result()[address]
    return found


def _explain_answers(errors: Mapping[str, BaseException]) -> ClusterError:
    """Return the error for workers that cannot describe themselves."""
    text = join_some(
        [f"{label} fails: {describe_error(error)}" for label, error in errors.items()], "workers"
    )
    if "ModuleNotFoundError" in text or "ImportError" in text:
        remedy = f"install treekit-ml {__version__} and what it needs there"
    elif "MemoryError" in text:
        remedy = "give it more memory"
    else:
        remedy = "read its log, and restart it; the first import of treekit may be slow: try again"
    return ClusterError(f"{text}; {remedy}")


def compare_workers(own: Mapping[str, str], workers: Mapping[str, Mapping[str, str]]) -> None:
    """Raise `ClusterError` if a worker's description differs from that of this process."""
    differences = []
    for worker, found in sorted(workers.items()):
        for name in sorted(own.keys() | found.keys()):
            here, there = own.get(name, "not installed"), found.get(name, "not installed")
            if here != there:
                differences.append(f"{worker} has {name} {there}, this process {here}")
    if differences:
        raise ClusterError(
            join_some(differences, "differences")
            + "; use the same versions and the same kind of processor on all machines"
        )


def count_threads(engine: DaskEngine) -> int:
    """Return the number of threads of all workers."""
    return sum(worker["nthreads"] for worker in engine.watch.read_workers().values())


def find_smallest_memory(engine: DaskEngine) -> tuple[int, str] | None:
    """Return the least memory limit of a worker in bytes, and the worker; None without limits."""
    workers = engine.watch.read_workers().items()
    limits = [(own["memory_limit"], label_worker(where, own)) for where, own in workers]
    return min((limit for limit in limits if limit[0]), default=None)


def find_thread_memory(engine: DaskEngine) -> int | None:
    """Return the least memory limit in bytes for each thread of a worker; None without limits."""
    workers = engine.watch.read_workers().values()
    limits = [own["memory_limit"] // own["nthreads"] for own in workers if own["memory_limit"]]
    return min(limits, default=None)


# ---------------------------------------------------------------- tasks


class DaskEngine:
    """Run functions on the workers of a client; see `treekit.distributed.level_builder.Engine`.

    Dask recomputes a result whose worker is lost.  At the end of a ``with`` block the workers
    forget all results, also those that the traceback of an error still refers to.
    """

    def __init__(self, client: Client, watch: Watch | None = None) -> None:
        self.client = client
        self.watch = watch or Watch(client)
        self.failure: tuple[BaseException | None, str | None] = (None, None)
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
            If no worker can run the functions for `failures.PATIENCE` seconds.
        """
        ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        for k, task in enumerate(results):
            task.add_done_callback(lambda _, k=k: ended.put(k))
        with self._cancel_on_errors():
            for _ in results:
                k = self._wait_for_one(ended)
                self._raise_error_of(results[k])
                if done is not None:
                    done(k)

    def _wait_for_one(self, ended: queue.SimpleQueue[int]) -> int:
        while True:
            self.watch.check()
            with suppress(queue.Empty):
                return ended.get(timeout=1.0)

    def take(self, results: Sequence[Future]) -> list[Any]:
        """Wait for results and fetch them."""
        self.wait(results)
        with self._cancel_on_errors():
            try:
                return list(self.watch.call(self.client.gather, list(results)))
            except Exception:
                for task in results:  # run again as its worker was lost
                    self._raise_error_of(task)
                raise

    def _raise_error_of(self, task: Future) -> None:
        """Raise the error of a task, if any, after finding out the workers on which it failed."""
        if task.status not in ("error", "cancelled"):
            return
        where = self.watch.find_failed_workers(task.key) if task.status == "error" else None
        try:
            task.result()
        except BaseException as error:
            self.failure = (error, where)
            raise

    @contextmanager
    def _cancel_on_errors(self) -> Iterator[None]:
        """Cancel all functions after an error or Ctrl-C."""
        try:
            yield
        except BaseException:
            with suppress(Exception):  # of a lost scheduler
                self.client.cancel(list(self._submitted), force=True)
            raise

    def _add(self, result: Future) -> Future:
        self._submitted.add(result)
        return result


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
