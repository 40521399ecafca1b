"""Scoring over HTTP: one worker compared with a Starlette application that returns a constant.

All servers run at the same time, pinned to the first core; wrk on the second core sends
requests to one after the other in each case and round. Every body has different random
rows. The ratio of requests per second is to the constant, the limit of a Python server.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import treekit
from benchmarks.apart import ROOT, Failed
from benchmarks.data import points
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register
from benchmarks.serving_apps import Server, cores, served
from benchmarks.serving_clients import Load, bodies

__all__ = ["CONSTANT"]

CONSTANT = "Starlette, a constant"
_COLUMNS = 28
_CLIENTS, _MANY = 8, 64


class Case(NamedTuple):
    """A kind of load: format and rows of a request, and number of connections."""

    name: str
    form: str
    rows: int
    clients: int = _CLIENTS
    slow: int = 0


CASES = (
    Case("1 row", "tensor", 1),
    Case("1 row, an input a column", "columns", 1),
    Case("100 rows", "tensor", 100),
    Case("1 row, beside 64 slow clients", "tensor", 1, slow=64),
    Case("1 row, 64 clients", "tensor", 1, clients=_MANY),
)
LARGE = Case("1 row, 64 clients, large forest", "tensor", 1, clients=_MANY)


def _forest(path: Path, options: Options, trees: int, depth: int | None) -> Path:
    rows, _ = points(options.rows, _COLUMNS, 2, 0)
    table: dict[str, Any] = {f"c{number}": own for number, own in enumerate(rows.x.T)}
    table["target"] = rows.y
    settings = {} if depth is None else {"max_depth": depth}
    model = treekit.train(
        table, "target", ensemble="forest", trees=trees, seed=0, missing="direction", **settings
    )
    model.save(path)
    return path


def _free() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


@contextlib.contextmanager
def _servers(options: Options, model: Path) -> Iterator[dict[str, Server]]:
    with contextlib.ExitStack() as stack:
        yield {
            side: stack.enter_context(served(side, model, _free(), options.limit))
            for side in options.sides
        }


@contextlib.contextmanager
def _slow_clients(server: Server, number: int, seconds: float) -> Iterator[None]:
    if not number:
        yield
        return
    module = [sys.executable, "-m", "benchmarks.serving_clients", "slow"]
    place = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    client = subprocess.Popen([*module, str(server.port), str(number), str(seconds)], env=place)
    try:
        if cores()[1]:
            os.sched_setaffinity(client.pid, cores()[1])
        yield
    finally:
        client.terminate()
        client.wait()


def _figures(server: Server, load: Load, case: Case, seconds: float) -> dict[str, float]:
    with _slow_clients(server, case.slow, seconds + 30):
        before = server.cpu()
        measured = load(server.port, case.clients, seconds)
        cpu = server.cpu() - before
    return {
        "rate": measured["rate"],
        "us": cpu * 1e6 / measured["requests"],
        "p50": measured["p50"],
        "p99": measured["p99"],
        "tail": measured["p99"] / measured["p50"],
    }


def _asked(options: Options, model: Path, cases: tuple[Case, ...]) -> Iterator[Entry]:
    """Measure all sides in turn, case by case and round by round."""
    columns = list(treekit.load(model).schema.names)
    loads = {
        case: Load(bodies(case.form, case.rows, columns, 500, 1), options.folder, f"case{place}")
        for place, case in enumerate(cases)
    }
    with _servers(options, model) as servers:
        for case in cases:  # warm-up: compile or load kernels, open connections
            for server in servers.values():
                with contextlib.suppress(Failed):
                    loads[case](server.port, case.clients, min(options.seconds, 1.0))
        for _ in range(options.rounds):
            for case, load in loads.items():
                for side, server in servers.items():
                    try:
                        yield Entry(case.name, side, _figures(server, load, case, options.seconds))
                    except Failed as why:
                        yield Entry(case.name, side, failed=str(why))
        first = loads[cases[0]]
        for side, server in servers.items():
            if options.requests and cases is CASES:
                yield Entry("memory", side, _rise(server, first, options))


def _rise(server: Server, load: Load, options: Options) -> dict[str, float]:
    """Measure the rise of memory in MB from the first tenth of the requests to the last."""
    done, before = 0.0, None
    while done < options.requests:
        done += load(server.port, _CLIENTS, options.seconds)["requests"]
        if before is None and done >= options.requests / 10:
            before = server.resident()
    assert before is not None
    return {"rise": server.resident() - before, "held": server.resident()}


def _run(options: Options) -> Iterator[Entry]:
    folder = options.folder / "served"
    folder.mkdir()
    shallow = _forest(folder / "forest.treekit", options, options.trees, options.depth)
    try:
        yield from _asked(options, shallow, CASES)
        if options.large:
            large = folder / "large"
            large.mkdir()
            deep = _forest(large / "forest.treekit", options, options.large, None)
            yield from _asked(options, deep, (LARGE,))
    except Failed as why:
        for side in options.sides:
            yield Entry(CASES[0].name, side, failed=str(why))


register(
    Benchmark(
        "serving", "HTTP requests, one worker, compared with one that returns a constant", _run,
        (
            Figure("rate", "requests a second", ",.0f", ratio=True),
            Figure("us", "CPU us a request", ".1f"),
            Figure("p50", "p50 ms", ".2f"), Figure("p99", "p99 ms", ".2f"),
            Figure("tail", "p99 / p50", ".1f"),
            Figure("rise", "memory, MB more", "+.1f"), Figure("held", "MB held", ".0f"),
        ),
        {
            "trees": Parameter(100, 5, "trees of the forest"),
            "depth": Parameter(10, 3, "depth of the trees"),
            "large": Parameter(300, 0, "trees of the large forest, fully grown; 0: none"),
            "rows": Parameter(20_000, 200, "training rows"),
            "seconds": Parameter(3.0, 0.2, "seconds of a measurement; below 1 without wrk"),
            "requests": Parameter(200_000, 200, "requests to measure memory; 0: none"),
        },
        own=("treekit",),
        peers=(CONSTANT,),
    )
)  # fmt: skip
