"""Test servers: in this process, in a thread, and `treekit serve` as a process."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn

import treekit
from treekit.model.model import Model
from treekit.serve.http.app import make_app
from treekit.serve.models.repository import Repository
from treekit.serve.models.served_model import Served
from treekit.serve.scheduling import Runner, Service
from treekit.serve.settings import Limits, ServeSettings

ROOT = Path(__file__).parents[1]
STARTED = 90.0
"""Start-up timeout in seconds; kernels may have to be compiled first."""


def service_of(*sources: str | Path, control: bool = False, **limits: Any) -> Service:
    """Create a service with the models of files and folders, loaded."""
    repository = Repository(sources)
    repository.refresh()
    return Service(repository, Runner(Limits(**limits)), control=control)


def put_in_service(repository: Repository, *models: Served) -> None:
    """Replace a repository's models by these."""
    by_name = {served.name: {served.version: served} for served in models}
    repository._table = repository._table._replace(models=by_name)


def client_of(app: Any) -> httpx.AsyncClient:
    """Create an HTTP client of an application in this process; exceptions reach the test."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
    return httpx.AsyncClient(transport=transport, base_url="http://treekit.test")


@contextlib.contextmanager
def on_a_port(service: Service) -> Iterator[str]:
    """Serve over HTTP from a thread; yields "host:port"."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(make_app(service), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        end = time.monotonic() + 20
        while not server.started:
            assert thread.is_alive(), "the server stopped during start-up"
            assert time.monotonic() < end, "the server did not start in time"
            time.sleep(0.01)
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
        service.runner.close()


# -------------------------------------------------------------------------- models

N_ROWS = 240


def numbers(rows: int = N_ROWS) -> dict[str, np.ndarray]:
    """Make four numeric columns."""
    x = np.random.default_rng(8).normal(size=(rows, 4)).round(3)
    return {f"x{place}": x[:, place] for place in range(4)}


def people(rows: int = N_ROWS) -> dict[str, np.ndarray]:
    """Make numeric, text and Boolean columns with missing cells."""
    rng = np.random.default_rng(9)
    age = np.where(rng.random(rows) < 0.15, np.nan, rng.normal(40, 9, rows).round(1))
    towns = np.array(["Ulm", "Bonn", None, "São Paulo"], dtype=object)
    return {
        "age": age,
        "town": towns[rng.integers(0, 4, rows)],
        "member": rng.random(rows) < 0.4,
    }


@functools.cache
def models() -> dict[str, Model]:
    """Train a model for each kind of prediction, by name."""
    x = numbers()
    third = np.digitize(x["x0"] + x["x1"], [-0.5, 0.5])
    who = people()
    labels = {
        "texts": np.array(['"low"\\', "mid", "hoch é"], dtype=object)[third],
        "ints": third * 7 - 3,
        "floats": third * 0.1 + 0.25,
        "bools": third > 1,
    }

    def grown(table: dict[str, Any], target: Any = "y", **settings: Any) -> Model:
        return treekit.train(table, target, seed=0, max_depth=5, **settings)

    forest: dict[str, Any] = {"ensemble": "forest", "trees": 7}
    return {
        **{
            name: grown(x | {"y": y}, task="classification", **forest) for name, y in labels.items()
        },
        "wide": grown(x | {"y": third}, dtype="float64"),
        "value": grown(x | {"y": x["x0"] * x["x1"] * 1e3}, **forest),
        "mixed": grown(who | {"y": (who["age"] > 40) ^ (who["town"] == "Ulm")}, **forest),
        "classes": grown(x | {"a": third, "b": x["x1"] > 0}, ["a", "b"]),
        "values": grown(x | {"a": x["x0"] * 2, "b": x["x1"] - x["x2"]}, ["a", "b"]),
    }


def save_models(folder: Path) -> Path:
    """Save `models` as files for a server and return the folder."""
    for name, model in models().items():
        model.save(folder / f"{name}.treekit")
    return folder


class ServerProcess:
    """`treekit serve` with the given arguments; its stderr is collected in `lines`."""

    def __init__(self, *args: object, env: dict[str, str] | None = None) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # background job of a shell (&)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # else the child ignores it
        self.lines: list[str] = []
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "treekit", "serve", *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | (env or {}),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    @property
    def said(self) -> str:
        """Complete stderr so far."""
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, seconds: float = STARTED) -> re.Match[str]:
        """Wait for the first line that matches; raise AssertionError after the timeout."""
        end = time.monotonic() + seconds
        seen = 0
        with self._news:
            while True:
                for line in self.lines[seen:]:
                    if match := re.search(pattern, line):
                        return match
                seen = len(self.lines)
                left = end - time.monotonic()
                ended = not self._reader.is_alive() or self.process.poll() is not None
                if left <= 0 or (ended and not self._news.wait(0.5) and seen == len(self.lines)):
                    raise AssertionError(f"no line {pattern!r} in:\n{self.said}")
                self._news.wait(min(left, 0.2))

    @property
    def url(self) -> str:
        """URL of the server, once it listens."""
        return self.wait_for(r"listening on (https?://[^\s\"]+)")[1]

    def end(self, seconds: float = 40.0) -> int:
        """Stop the server by SIGTERM and return its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.wait(seconds)

    def wait(self, seconds: float = 40.0) -> int:
        """Wait until the server exits and return its exit code."""
        code = self.process.wait(seconds)
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def stop(self) -> None:
        """Stop the server, killing it after a timeout."""
        try:
            self.end(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.wait(20)


@contextlib.contextmanager
def server_process(*args: object, env: dict[str, str] | None = None) -> Iterator[ServerProcess]:
    """Run `treekit serve ARGS` on a free port of 127.0.0.1, unless the arguments give one.

    The server already listens when it is yielded.
    """
    where = () if "--port" in args else ("--port", 0)
    server = ServerProcess(*args, *where, env=env)
    try:
        server.wait_for("listening on ")
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def server_thread(*sources: object, **settings: object) -> Iterator[str]:
    """Run a server of `ServeSettings(sources, ...)` in a thread; yields its URL.

    A thread starts faster than a process, and the test's patches apply to it.
    """
    from treekit.serve.process.run import bind_sockets, get_server_url
    from treekit.serve.process.worker import ServiceProcess, make_config, make_service

    asked = ServeSettings(tuple(map(str, sources)), **{"port": 0, "log": "quiet"} | settings)  # type: ignore[arg-type]
    sockets = bind_sockets(asked.host, asked.port)
    url = get_server_url(asked, sockets)
    service = make_service(asked)
    service.repository.refresh()
    started = threading.Event()
    process = ServiceProcess(asked, service, lambda _: started.set())
    server = uvicorn.Server(make_config(process.app, asked))
    thread = threading.Thread(target=server.run, args=(sockets,), name="server", daemon=True)
    thread.start()
    try:
        assert started.wait(STARTED), "the server did not start"
        yield url
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not stop"


def save_forest(path: Path, seed: int = 0, trees: int = 5) -> None:
    """Train and save a forest of two numeric columns and labels "no" and "yes", one per seed."""
    import numpy as np

    import treekit

    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (200, 2))
    said = np.where(x[:, 0] + (seed % 7 - 3) * x[:, 1] > 0, "yes", "no")
    table = {"a": x[:, 0], "b": x[:, 1], "said": said}
    model = treekit.train(table, target="said", ensemble="forest", trees=trees, seed=seed)
    model.save(path)


def infer_body(*rows: tuple[float, float]) -> bytes:
    """Encode a request with rows for a model of `save_forest`."""
    data = [cell for row in rows for cell in row]
    tensor = {"name": "input", "shape": [len(rows), 2], "datatype": "FP32", "data": data}
    return json.dumps({"inputs": [tensor]}).encode()


def children(pid: int) -> list[int]:
    """List the worker processes of a server, without multiprocessing's helper processes."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    lines = {}
    for child in found:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            lines[int(child)] = Path(f"/proc/{child}/cmdline").read_bytes()
    return [child for child, line in lines.items() if b"spawn_main" in line]
