"""Servers for tests: `treekit serve` as a process, and a server in a thread of this one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treekit.serve.settings import ServeSettings

ROOT = Path(__file__).parents[1]
STARTED = 90.0
"""Seconds that a server has to start: kernels may have to be compiled first."""


class ServerProcess:
    """`treekit serve` with these arguments; its stderr is gathered in `lines`."""

    def __init__(self, *args: object, env: dict[str, str] | None = None) -> None:
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
        """All of stderr up to now."""
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, seconds: float = STARTED) -> re.Match[str]:
        """The first line that matches, once it is there; AssertionError if it does not come."""
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
        """Where it listens, once it does."""
        return self.wait_for(r"listening on (https?://[^\s\"]+)")[1]

    def end(self, seconds: float = 40.0) -> int:
        """End it by SIGTERM; its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.wait(seconds)

    def wait(self, seconds: float = 40.0) -> int:
        """Its exit code, once it has ended by itself."""
        code = self.process.wait(seconds)
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def stop(self) -> None:
        """End it, by force where it takes long."""
        try:
            self.end(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.wait(20)


@contextmanager
def server_process(*args: object, env: dict[str, str] | None = None) -> Iterator[ServerProcess]:
    """`treekit serve ARGS` on a free port of 127.0.0.1 (unless the arguments say where).

    It listens when this gives it, so that `url` is there at once.
    """
    where = () if "--port" in args else ("--port", 0)
    server = ServerProcess(*args, *where, env=env)
    try:
        server.wait_for("listening on ")
        yield server
    finally:
        server.stop()


@contextmanager
def server_thread(*sources: object, **settings: object) -> Iterator[str]:
    """A server of `ServeSettings(sources, ...)` in a thread; gives its URL.

    Faster than a process, and what the test alters in this process holds for it.
    """
    from treekit.serve.listening import bind, url_of
    from treekit.serve.process import Process, make_service
    from treekit.serve.saying import teller

    asked = ServeSettings(tuple(map(str, sources)), port=0, **settings)  # type: ignore[arg-type]
    sockets = bind(asked.host, asked.port)
    url = url_of(asked, sockets)
    service = make_service(asked)
    service.repository.refresh()
    started = threading.Event()
    process = Process(asked, service, teller(asked.log), lambda _: started.set())

    def run() -> None:
        with asyncio.Runner(loop_factory=process.loop_factory) as runner:
            runner.run(process.run(sockets))

    thread = threading.Thread(target=run, name="server", daemon=True)
    thread.start()
    try:
        assert started.wait(STARTED), "the server did not start"
        yield url
    finally:
        process.end()
        thread.join(20)
        assert not thread.is_alive(), "the server did not end"


def save_forest(path: Path, seed: int = 0, trees: int = 5) -> None:
    """Train a forest that tells "no" from "yes" by two numbers, another for each seed."""
    import numpy as np

    import treekit

    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (200, 2))
    said = np.where(x[:, 0] + (seed % 7 - 3) * x[:, 1] > 0, "yes", "no")
    table = {"a": x[:, 0], "b": x[:, 1], "said": said}
    model = treekit.train(
        table, target="said", algorithm="cart", ensemble="forest", trees=trees, seed=seed
    )
    model.save(path)


def infer_body(*rows: tuple[float, float]) -> bytes:
    """A request of these rows of the columns of `save_forest`."""
    data = [cell for row in rows for cell in row]
    tensor = {"name": "input", "shape": [len(rows), 2], "datatype": "FP32", "data": data}
    return json.dumps({"inputs": [tensor]}).encode()
