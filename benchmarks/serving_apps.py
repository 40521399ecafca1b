"""Servers of the benchmark `serving`: one process each, pinned to the first core."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.apart import ROOT, Failed

__all__ = ["PATH", "Server", "cores", "served"]

PATH = "/v2/models/forest/infer"
_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def bare() -> Any:
    """Return a Starlette app that reads the body and returns a constant: the minimum cost."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        await request.body()
        return Response(b'{"model_name":"forest","outputs":[]}', media_type="application/json")

    return Starlette(routes=[Route(PATH, answer, methods=["POST"])])


def cores() -> tuple[set[int], set[int]]:
    """Return the cores of the servers and of the clients."""
    if not hasattr(os, "sched_getaffinity"):
        return set(), set()
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, {others[0] if others else first}


class Server:
    """A running server and its resource usage."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port

    def cpu(self) -> float:
        """Return the CPU seconds used; 0 if the system does not report them."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / _TICK

    def resident(self) -> float:
        """Return the resident megabytes; 0 if the system does not report them."""
        try:
            lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        except OSError:
            return 0.0
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


@contextmanager
def served(side: str, model: Path, port: int, limit: float) -> Iterator[Server]:
    """Run a side's server; raise `Failed` if it does not answer in time."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    log = model.with_suffix(f".{port}.log")
    with log.open("wb") as stream:
        process = subprocess.Popen(
            _command(side, model, port), env=environment, stdout=stream, stderr=stream
        )
        try:
            if cores()[0]:
                os.sched_setaffinity(process.pid, cores()[0])
            _wait(process, port, time.monotonic() + limit, log)
            yield Server(process, port)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _command(side: str, model: Path, port: int) -> list[str]:
    if side.startswith("treekit"):
        return [sys.executable, "-m", "treekit", "serve", str(model), "--port", str(port)]
    return [
        *(sys.executable, "-m", "uvicorn", "--factory", "benchmarks.serving_apps:bare"),
        *("--port", str(port), "--no-access-log", "--log-level", "warning"),
    ]


def _wait(process: subprocess.Popen[bytes], port: int, end: float, log: Path) -> None:
    """Wait for any response, which may be an error."""
    while time.monotonic() < end:
        if process.poll() is not None:
            raise Failed(f"the server ended: {log.read_text()[-300:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise Failed("the server did not answer in time")
