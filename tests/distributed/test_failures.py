"""Failures of a cluster end in time, with one line and a remedy."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import importlib
import inspect
import itertools
import os
import pkgutil
import re
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import treekit
from tests.distributed import ANY, FOREST, make_frame
from treekit.cli import main
from treekit.distributed import failures
from treekit.distributed.cluster import DaskEngine, connect
from treekit.distributed.failures import ClusterError, Watch, find_obstacle
from treekit.errors import DataError, SettingError, TreekitError, TreekitWarning

dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]

STATES = [status.name for status in distributed.Status if status.name != "running"]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for seconds in place of most of a minute."""
    monkeypatch.setattr(failures, "PATIENCE", 2.0)


@contextlib.contextmanager
def start_cluster(n_workers: int = 2, **options: Any) -> Iterator[Any]:
    """Start a scheduler and workers in this process; yield their client."""
    with (
        distributed.LocalCluster(
            n_workers=n_workers, processes=False, threads_per_worker=1, protocol="tcp",
            dashboard_address="127.0.0.1:0", silence_logs=50, **options,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Return a client of two workers."""
    with start_cluster() as started:
        yield started


def work(cluster: Any, use: Callable[[DaskEngine], Any] = id) -> Any:
    """Use a cluster."""
    with connect(cluster) as engine:
        return use(engine)


def check_error(
    words: Sequence[str],
    cluster: Any,
    use: Callable[[DaskEngine], Any] = id,
    kind: type[TreekitError] = ClusterError,
) -> TreekitError:
    """Check that the use of a cluster ends with an error of one line that holds words."""
    with pytest.raises(kind) as raised:
        work(cluster, use)
    check_line(str(raised.value), *words)
    return raised.value


def check_line(message: str, *words: str) -> None:
    """Check that a message is one line, with a remedy, and holds words."""
    assert "\n" not in message
    assert re.search(r"; .*\w{4}", message), message
    assert all(word in message for word in words), message


# ---------------------------------------------------------------- states of workers


def set_status(name: str, dask_worker: Any = None) -> None:
    """Set the state of a worker."""
    if name == "running":  # Dask runs tasks again only after this state
        dask_worker.status = distributed.Status.paused
    dask_worker.status = distributed.Status[name]


@pytest.fixture
def set_states(client: Any) -> Iterator[Callable[[str], None]]:
    """Return a function that sets the state of all workers until the end of the test."""
    memory = {"distributed.worker.memory.pause": False}

    def set_states(name: str) -> None:
        client.run(set_status, name)
        while {own["status"] for own in client.scheduler_info()["workers"].values()} != {name}:
            time.sleep(0.02)

    with dask.config.set(memory):
        yield set_states
    client.run(set_status, "running")


def test_every_worker_state_has_a_message_with_a_remedy() -> None:
    assert set(failures.STATES) == set(STATES)
    for state in STATES:
        worker = {"status": state, "name": "one"}
        obstacle = find_obstacle({"tcp://a:1": worker})
        assert obstacle is not None
        check_line(obstacle.message, "worker tcp://a:1 named 'one'")
        assert obstacle.short == f"1 {state.replace('_', ' ')}"
        assert find_obstacle({"a": worker, "b": {"status": "running"}}) is None
    unknown = find_obstacle({"tcp://a:1": {"status": "new"}})
    assert unknown is not None
    check_line(unknown.message, "is in the state 'new'")


@pytest.mark.parametrize("state", [name for name in STATES if name != "paused"])
def test_workers_that_start_no_task_are_reported(
    state: str, client: Any, set_states: Callable[[str], None]
) -> None:
    def use(engine: DaskEngine) -> None:
        set_states(state)
        engine.take([engine.submit(len, [1])])

    check_error([*client.scheduler_info()["workers"], "2 seconds"], client, use)


def test_workers_shutting_down_before_the_start_are_reported(
    client: Any, set_states: Callable[[str], None]
) -> None:
    set_states("closing_gracefully")
    check_error(["is shutting down", "start other workers"], client)


def test_short_wait_for_workers_is_shown_without_an_error(
    client: Any, set_states: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "PATIENCE", 600.0)
    shown: list[str] = []

    def show(text: str) -> None:
        shown.append(text)
        if text:
            set_states("running")

    set_states("init")
    engine = DaskEngine(client, Watch(client, show))
    monkeypatch.setattr(failures, "_TICK", 0.1)
    assert engine.take([engine.submit(len, [1])]) == [1]
    assert "waiting for workers: 2 init" in shown


def test_workers_paused_for_memory_are_reported_with_their_memory() -> None:
    with start_cluster(1, memory_limit="30 MB") as client:
        while {own["status"] for own in client.scheduler_info()["workers"].values()} != {"paused"}:
            time.sleep(0.02)
        error = check_error(["tcp://", "give workers more memory"], client)
    assert re.search(r"is paused .* \(\d+\.\d+ of 0\.03 GB used\); give", str(error))


def test_a_paused_worker_that_runs_a_task_does_not_block_training() -> None:
    worker = {"status": "paused", "metrics": {"task_counts": {"executing": 1}}}
    assert find_obstacle({"a": worker}) is None
    worker = {"status": "paused", "metrics": {"task_counts": {"ready": 1}}}
    assert find_obstacle({"a": worker}) is not None


def test_cluster_without_workers_raises_an_error(tmp_path: Path) -> None:
    frame = make_frame()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with start_cluster(0) as client:
        address = client.scheduler.address
        for cluster in (client, address):
            with pytest.raises(ClusterError, match="no worker for 2 seconds; start workers"):
                treekit.train(frame, **ANY, **FOREST, cluster=cluster)
        forest = treekit.RandomForestClassifier(n_estimators=2, random_state=0)
        lazy = dd.from_pandas(frame[["a", "b"]], npartitions=2)
        with client.as_current(), pytest.raises(ClusterError, match="no worker for 2 seconds"):
            forest.fit(lazy, dd.from_pandas(frame["y"], npartitions=2))
        command = ["train", str(tmp_path / "rows.csv"), "--target", "y", "--cluster", address]
        result = CliRunner().invoke(main, [*command, "-o", str(tmp_path / "m.treekit")])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "the cluster has had no worker for 2 seconds; start workers" in result.stderr


@pytest.mark.parametrize(
    ("restriction", "words"),
    [
        ({"resources": {"GPU": 1}}, "resources {'GPU': 1"),
        ({"workers": ["tcp://127.0.0.1:1"]}, "workers ['tcp://127.0.0.1:1']"),
    ],
)
def test_task_that_no_worker_may_run_raises_an_error(
    restriction: dict[str, Any], words: str, client: Any
) -> None:
    def use(engine: DaskEngine) -> None:
        with dask.annotate(**restriction):
            first = engine.submit(len, [1])
        engine.take([engine.submit(str, first)])

    check_error(["no worker may run task len-", words, "remove them"], client, use)


def test_a_scheduler_without_run_on_scheduler_is_not_an_error(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = client.cluster.scheduler.handlers
    monkeypatch.delitem(handlers, "run_function")

    def use(engine: DaskEngine) -> None:
        assert engine.take([engine.submit(wait, 3.0)]) == [None]  # time to look for restrictions
        engine.take([engine.submit(fail, MemoryError)])

    assert str(check_error([], client, use)).startswith("a worker ran out of memory")


def test_constantly_restarting_workers_raise_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_TICK", 0.0)
    shown: list[str] = []
    watch = Watch(SimpleNamespace(status="running", id="x"), shown.append)
    numbers = itertools.count()

    def read_workers() -> dict[str, Any]:
        number = next(numbers)
        time.sleep(0.01)
        one = {"status": "running", "last_seen": number}
        return {f"tcp://a:{number}": one} if number % 2 else {}

    def check_often() -> None:
        while True:
            watch.check()

    monkeypatch.setattr(watch, "read_workers", read_workers)
    with pytest.raises(ClusterError, match="2 seconds") as raised:
        check_often()
    check_line(str(raised.value))
    assert {"waiting for workers: workers that restart"} < set(shown)


# ---------------------------------------------------------------- processes


def start(code: str) -> subprocess.Popen[str]:
    """Start a process."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


@contextlib.contextmanager
def start_worker(client: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Start a worker process; yield its address and the process."""
    code = f"""
    import sys
    {before}
    from distributed.cli.dask_worker import main
    main(["{client.scheduler.address}", "--no-nanny", "--no-dashboard", "--nthreads", "1",
          "--name", "apart"])
    """
    process = start(code)
    try:
        while not (
            found := [
                address
                for address, own in client.scheduler_info()["workers"].items()
                if (own["name"], own["status"]) == ("apart", "running")
            ]
        ):
            assert process.poll() is None
            time.sleep(0.1)
        yield found[0], process
    finally:
        process.kill()
        process.wait()


def test_worker_without_treekit_is_reported() -> None:
    with (
        start_cluster(1) as client,
        start_worker(client, "sys.modules['treekit'] = None") as (address, _),
    ):
        check_error([f"worker {address} named 'apart'", "treekit", "install treekit-ml"], client)


def wait(seconds: float) -> None:
    """Sleep, under a name of this module."""
    time.sleep(seconds)


def test_unresponsive_worker_is_reported() -> None:
    with start_cluster(0) as client, start_worker(client) as (address, process):

        def use(engine: DaskEngine) -> None:
            engine.take([engine.submit(len, [1])])
            os.kill(process.pid, signal.SIGSTOP)
            threading.Timer(8.0, os.kill, (process.pid, signal.SIGCONT)).start()
            engine.take([engine.submit(len, [1])])

        with pytest.warns(TreekitWarning) as warned:
            work(client, use)
        # Python may free what other tests left behind, and warn of their open files.
        own = [str(one.message) for one in warned if issubclass(one.category, TreekitWarning)]
        assert [text.split(" for ")[0] for text in own] == [
            f"worker {address} named 'apart' has sent no message"
        ]
        os.kill(process.pid, signal.SIGSTOP)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TreekitWarning)
            check_error([f"worker {address} named 'apart'", "no answer for 2 seconds"], client)


@pytest.fixture
def apart() -> Iterator[tuple[str, Any]]:
    """Start a scheduler and a worker in another process; return the address and the process."""
    process = start("""
    import distributed, sys
    cluster = distributed.LocalCluster(
        n_workers=1, processes=False, threads_per_worker=1, protocol="tcp",
        dashboard_address="127.0.0.1:0",
    )
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
    """)
    assert process.stdout is not None
    yield process.stdout.readline().strip(), process
    process.kill()
    process.wait()


def test_killed_scheduler_raises_an_error(apart: tuple[str, Any]) -> None:
    address, process = apart
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        process.kill()

    def use(engine: DaskEngine) -> None:
        threading.Timer(1.0, kill).start()
        engine.take([engine.submit(time.sleep, 1000)])

    check_error(["lost the connection to the cluster", address], address, use)
    assert time.monotonic() - killed[0] < 60
    with pytest.raises(SettingError, match="cannot connect to a scheduler at") as refused:
        treekit.train(make_frame(), **ANY, **FOREST, cluster=address)
    check_line(str(refused.value), address, "start the scheduler")


def test_killed_scheduler_is_reported_in_one_line_on_a_terminal(
    apart: tuple[str, Any], tmp_path: Path
) -> None:
    address, process = apart
    make_frame().to_csv(tmp_path / "rows.csv", index=False)
    code = f"""
    import os, signal, sys
    from treekit.cli import main
    from treekit.distributed import whole_trees
    find_unfit = whole_trees._find_unfit
    def kill(*given):
        os.kill({process.pid}, signal.SIGKILL)
        return find_unfit(*given)
    whole_trees._find_unfit = kill
    main(["train", "rows.csv", "--target", "y", "--cluster", {address!r}, "-o", "m.treekit"])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True,
        text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(r"Error: [^\n]*; [^\n]*run again\n", done.stderr), done.stderr


def test_unresponsive_scheduler_raises_an_error(
    apart: tuple[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, process = apart
    monkeypatch.setattr(failures, "ANSWER_TIME", 5.0)

    def use(engine: DaskEngine) -> None:
        monkeypatch.setattr(failures, "ANSWER_TIME", 1.0)
        os.kill(process.pid, signal.SIGSTOP)
        engine.take([engine.submit(time.sleep, 0)])

    check_error([f"the scheduler at {address} has not answered for 2 seconds"], address, use)


# ---------------------------------------------------------------- connections


@contextlib.contextmanager
def listen(answer: bytes | None) -> Iterator[int]:
    """Listen on a port, answer each connection with some bytes and close it; or keep it open."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    if answer is None:
                        kept.append(connection)
                        continue
                    connection.sendall(answer)
                    connection.close()

        kept: list[Any] = []
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        for connection in kept:
            connection.close()
        thread.join()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tcp://127.0.0.1:1", "after 1"),  # refused, unless the last try had no time
        ("tcp://scheduler.invalid:8786", "scheduler.invalid"),
        ("tcp://127.0.0.1", "check the address"),
        ("tcp://127.0.0.1:port", "check the address"),
        ("tcp://:99999999", "check the address"),
        ("tls://127.0.0.1:1", "distributed.comm.tls"),
        ("ucx://127.0.0.1:1", "check the address"),
        ("inproc://1", "check the address"),
    ],
)
def test_address_without_a_scheduler_is_refused(
    address: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "ANSWER_TIME", 1.0)
    started = []  # a client that cannot connect may block the thread that frees it
    monkeypatch.setattr(distributed.Client, "start", lambda client, **_: started.append(client))
    check_error(["cannot connect to a scheduler at " + address, words], address, kind=SettingError)
    assert not started


@pytest.mark.parametrize(
    ("cause", "shown"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True),
        (TimeoutError(), False),  # the last try had no time left, which explains nothing
        (asyncio.CancelledError(), False),
    ],
)
def test_the_cause_of_a_connection_error_is_shown_if_it_adds_information(
    cause: BaseException, shown: bool
) -> None:
    error = OSError("Timed out")
    error.__cause__ = cause
    text = str(failures.explain_connection_error(error, "tcp://127.0.0.1:1"))
    assert ("Timed out (" in text) is shown
    assert ("Connection refused" in text) is shown


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.0 400 Bad Request\r\n\r\n" * 9])
def test_address_of_another_program_is_refused(
    answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "ANSWER_TIME", 1.0)
    with listen(answer) as port:
        words = [str(port), "check the address", "begin the address with tls://"]
        check_error(words, f"tcp://127.0.0.1:{port}", kind=SettingError)


def test_tls_scheduler_is_refused_without_its_certificate_or_tls_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("cryptography")
    monkeypatch.setattr(failures, "ANSWER_TIME", 2.0)
    security = distributed.Security.temporary()
    with distributed.LocalCluster(
        n_workers=0, processes=False, protocol="tls", security=security, silence_logs=50,
        dashboard_address="127.0.0.1:0",
    ) as cluster:  # fmt: skip
        address = cluster.scheduler_address
        for given, words in ((address, "certificate"), (f"tcp{address[3:]}", "with tls://")):
            check_error(
                ["cannot connect to a scheduler at " + given, words], given, kind=SettingError
            )


@pytest.mark.parametrize("kind", ["warning", "error"])
def test_different_dask_versions_warn_or_are_refused(
    kind: str, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = "Mismatched versions found\n\n+---+---+\n| msgpack | 1 | 2 |"
    message = {"warning": "", "error": ""} | {kind: table}
    monkeypatch.setattr(distributed.versions, "error_message", lambda *_: message)
    address = client.scheduler.address
    if kind == "warning":
        with pytest.warns(TreekitWarning, match="other versions of Dask") as warned:
            work(address)
        assert len(warned) == 1
        assert "\n" not in str(warned[0].message)
        return
    check_error(["Mismatched versions found"], address, kind=SettingError)


def test_closed_and_asynchronous_clients_are_refused() -> None:
    with start_cluster(0) as client:
        pass
    with pytest.raises(SettingError, match="the client is closed; create another"):
        treekit.train(make_frame(), **ANY, **FOREST, cluster=client)

    async def use_client() -> None:
        async with (
            distributed.LocalCluster(
                n_workers=0, processes=False, dashboard_address="127.0.0.1:0", asynchronous=True
            ) as cluster,
            distributed.Client(cluster, asynchronous=True) as client,
        ):
            with pytest.raises(SettingError, match="an asynchronous client cannot wait"):
                treekit.train(make_frame(), **ANY, **FOREST, cluster=client)

    asyncio.run(use_client())


# ---------------------------------------------------------------- errors


def fail(kind: type[BaseException], *arguments: Any) -> None:
    """Raise an error."""
    raise kind(*arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((MemoryError, "Unable to allocate 3 GiB"), "ran out of memory"),
        ((ModuleNotFoundError, "No module named 'mine'"), "install the same packages"),
        ((AttributeError, "Can't get attribute 'f' on <module 'm'>"), "install the same packages"),
        ((OSError, errno.ENOSPC, "No space left on device", "/tmp/x"), "check its disk"),
        ((ConnectionResetError, errno.ECONNRESET, "reset"), "check its disk, its network"),
    ],
)
def test_error_names_the_worker_of_a_failed_task(
    arguments: tuple[Any, ...], words: str, client: Any
) -> None:
    def use(engine: DaskEngine) -> None:
        engine.take([engine.submit(str, engine.submit(fail, *arguments))])

    error = check_error([words], client, use)
    addresses = "|".join(map(re.escape, client.scheduler_info()["workers"]))
    assert re.match(rf"worker ({addresses}) named [01] ", str(error))
    assert isinstance(error.__cause__, arguments[0])


def test_criterion_of_a_module_missing_on_a_worker_is_refused(tmp_path: Path) -> None:
    module = tmp_path / "only_here.py"
    module.write_text("def criterion(): pass\n")
    sys.path.insert(0, str(tmp_path))
    try:
        criterion = importlib.import_module("only_here").criterion
        with start_cluster(0) as client, start_worker(client) as (address, _):
            check_error(
                [f"worker {address} named 'apart'", "only_here", "plugins"],
                client,
                lambda engine: engine.take([engine.send(criterion)]),
            )
    finally:
        sys.path.remove(str(tmp_path))
        del sys.modules["only_here"]


def test_other_errors_of_a_task_are_raised_unchanged(client: Any) -> None:
    for kind in (ZeroDivisionError, DataError):
        with pytest.raises(kind, match=r"^as it is") as raised:
            work(client, lambda engine: engine.take([engine.submit(fail, kind, "as it is")]))  # noqa: B023
        assert ("raised on worker" in "".join(getattr(raised.value, "__notes__", ""))) == (
            kind is ZeroDivisionError
        )
    for local in (FileNotFoundError(2, "No such file", "out"), ValueError("mine")):
        with pytest.raises(type(local)) as raised_here, connect(client):
            raise local
        assert raised_here.value is local


def list_errors(package: Any) -> Iterator[type[Exception]]:
    """Yield the exceptions of all modules of a package that can be imported."""
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if re.search(r"\.(tests|_test|conftest|utils_test|pytest|cli|http)\b|tests?_", found.name):
            continue
        try:
            module = importlib.import_module(found.name)
        except Exception:  # noqa: BLE001  # needs other libraries
            continue
        for kind in vars(module).values():
            if (
                inspect.isclass(kind)
                and issubclass(kind, Exception)
                and not issubclass(kind, Warning)
                and kind.__module__ == found.name
            ):
                yield kind


@pytest.mark.filterwarnings("ignore")
def test_every_error_of_dask_is_one_line(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "PATIENCE", 600.0)  # of a busy machine, too
    kinds = {*list_errors(distributed), *list_errors(dask)}
    names = {kind.__name__ for kind in kinds}
    assert names >= {"KilledWorker", "CommClosedError", "FutureCancelledError", "NoWorkerError"}
    for kind in sorted(kinds, key=str):
        errors: list[Exception] = []
        if kind is distributed.scheduler.KilledWorker:
            worker = SimpleNamespace(address="tcp://a:1", name="one")
            errors.append(kind("task", worker, 3))
        for value, number in itertools.product(((), "two\nlines", 7), range(1, 7)):
            with contextlib.suppress(Exception):
                error = kind(*([value] * number))
                str(error)
                errors.append(error)
        assert errors, kind
        for error in errors:
            with pytest.raises(ClusterError) as raised, connect(client):
                raise error
            check_line(str(raised.value))
            assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionResetError(errno.ECONNRESET, "reset"),
        socket.gaierror(-2, "Name or service not known"),
        ssl.SSLError(1, "wrong version number"),
        asyncio.CancelledError(),
        concurrent.futures.CancelledError(),
        asyncio.InvalidStateError("state"),
        distributed.exceptions.WorkerStartTimeoutError(0, 1, 30),
        distributed.CancelledError("key"),
        distributed.comm.core.CommClosedError("in <TCP>: Stream is closed"),
        distributed.client.FutureCancelledError("key", "scheduler-restart", "two\nlines"),
        importlib.import_module("tornado.iostream").StreamClosedError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_the_network_are_one_line(error: BaseException, client: Any) -> None:
    with pytest.raises(ClusterError) as raised, connect(client):
        raise error
    check_line(str(raised.value), client.scheduler.address)


def test_errors_that_dask_raises_itself_are_one_line(client: Any) -> None:
    def use(engine: DaskEngine) -> None:
        task = engine.submit(wait, 0.5)
        client.cancel([task])
        engine.wait([task])

    check_error(["the tasks were cancelled"], client, use)
    with start_cluster(0) as other:
        wrong = other.submit(len, [1])
        check_error(
            ["ValueError: Cannot gather"],
            client,
            lambda engine: engine.watch.call(client.gather, [wrong]),
        )


def test_local_file_errors_are_not_cluster_failures() -> None:
    for error in (
        TimeoutError(110, "Connection timed out", "/nfs/part-00001.parquet"),
        BrokenPipeError(32, "Broken pipe", "out.csv"),
    ):
        assert failures.explain_error(error, "tcp://s:1", None) is None
    text = str(failures.explain_error(TimeoutError(110, "timed out"), "tcp://s:1", None))
    assert "the cluster did not answer in time (scheduler tcp://s:1" in text
