"""Servers for tests: in this process, or on a free port in a thread of it."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn

import treekit
from treekit.model.ensemble import Model
from treekit.serve.app import make_app
from treekit.serve.repository import Repository
from treekit.serve.running import Runner
from treekit.serve.service import Service
from treekit.serve.settings import Limits


def service_of(*sources: str | Path, control: bool = False, **limits: Any) -> Service:
    """A service of model files and folders, loaded."""
    repository = Repository(sources)
    repository.refresh()
    return Service(repository, Runner(Limits(**limits)), control=control)


def client_of(app: Any) -> httpx.AsyncClient:
    """An HTTP client of an application in this process; its faults reach the test."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
    return httpx.AsyncClient(transport=transport, base_url="http://treekit.test")


@contextlib.contextmanager
def on_a_port(service: Service) -> Iterator[str]:
    """Serve over HTTP from a thread; gives "host:port"."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = uvicorn.Config(make_app(service), log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        end = time.monotonic() + 20
        while not server.started:
            assert thread.is_alive(), "the server ended before it began"
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
    """Four columns of numbers."""
    x = np.random.default_rng(8).normal(size=(rows, 4)).round(3)
    return {f"x{place}": x[:, place] for place in range(4)}


def people(rows: int = N_ROWS) -> dict[str, np.ndarray]:
    """Columns of numbers, texts and flags, with missing cells."""
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
    """One of each kind of answer, by name."""
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
    """The files of `models`, for a server; gives the folder."""
    for name, model in models().items():
        model.save(folder / f"{name}.treekit")
    return folder
