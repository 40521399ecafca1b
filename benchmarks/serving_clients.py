"""Clients of the benchmark `serving`: a script for wrk, a substitute for wrk, and slow clients.

python -m benchmarks.serving_clients slow PORT CLIENTS SECONDS
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.apart import Failed
from benchmarks.serving_apps import PATH, cores

__all__ = ["Load", "bodies", "script"]

_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


def bodies(form: str, rows: int, columns: list[str], many: int, seed: int) -> list[bytes]:
    """Make requests with different random rows; `form` is ``tensor`` or ``columns``."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(many):
        cells = rng.normal(size=(rows, len(columns))).round(4)
        if form == "tensor":
            whole = {"name": "input", "shape": list(cells.shape), "datatype": "FP32"}
            inputs = [whole | {"data": cells.ravel().tolist()}]
        else:
            inputs = [
                {"name": name, "shape": [rows], "datatype": "FP32", "data": own.tolist()}
                for name, own in zip(columns, cells.T, strict=True)
            ]
        made.append(json.dumps({"inputs": inputs}, separators=(",", ":")).encode())
    return made


def script(requests: list[bytes], folder: Path, name: str) -> Path:
    """Write a script for wrk that sends the requests in turn."""
    lines = folder / f"{name}.txt"
    lines.write_bytes(b"\n".join(requests))
    path = folder / f"{name}.lua"
    path.write_text(f"""
local requests, n = {{}}, 0
function init()
  for line in io.lines({json.dumps(str(lines))}) do
    requests[#requests + 1] = wrk.format("POST", nil, nil, line)
  end
end
function request()
  n = n % #requests + 1
  return requests[n]
end
""")
    return path


class Load:
    """Load generator that sends requests as fast as they are answered.

    Uses wrk if it is installed; results to keep must come from it. The substitute is
    slower than the server.
    """

    def __init__(self, requests: list[bytes], folder: Path, name: str) -> None:
        self._requests = requests
        self._script = script(requests, folder, name)
        self._wrk = shutil.which("wrk")

    def __call__(self, port: int, connections: int, seconds: float) -> dict[str, float]:
        """Return answered requests, requests per second, and median and 99th percentile in ms."""
        if self._wrk is None or seconds < 1:
            return asyncio.run(_stand_in(self._requests, port, connections, seconds))
        command = [
            *(self._wrk, "-t1", f"-c{connections}", f"-d{round(seconds)}s", "--latency"),
            *("-s", str(self._script), f"http://127.0.0.1:{port}{PATH}"),
        ]
        if shutil.which("taskset") and cores()[1]:
            command = ["taskset", "-c", str(min(cores()[1])), *command]
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        wrong = re.search(r"Non-2xx.*|Socket errors.*", text)
        number, rate = re.search(r"(\d+) requests in", text), re.search(r"c:\s+([\d.]+)", text)
        part = dict(re.findall(r"(50|99)%\s+([\d.]+[a-z]+)", text))
        if wrong or not number or not rate or len(part) < 2:
            raise Failed(f"wrk: {wrong[0] if wrong else text[-200:]}")
        p50, p99 = (_ms(part[name]) for name in ("50", "99"))
        return {"requests": int(number[1]), "rate": float(rate[1]), "p50": p50, "p99": p99}


def _ms(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)([a-z]+)", text).groups()  # type: ignore[union-attr]
    return float(number) * _MS[unit]


def _head(body: bytes) -> bytes:
    return (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """Read a complete response and return its status line."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    assert length is not None
    await reader.readexactly(int(length[1]))
    return head.partition(b"\r\n")[0]


async def _stand_in(
    requests: list[bytes], port: int, connections: int, seconds: float
) -> dict[str, float]:
    taken: list[float] = []
    end = time.monotonic() + seconds

    async def client(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(first, 1_000_000, connections):
            body, began = requests[number % len(requests)], time.perf_counter()
            writer.write(_head(body) + body)
            status = await _answer(reader)
            if b" 200 " not in status:
                raise Failed(f"the server answers {status.decode()}")
            taken.append((time.perf_counter() - began) * 1e3)
            if time.monotonic() > end:
                break
        writer.close()

    await asyncio.gather(*map(client, range(connections)))
    p50, p99 = statistics.median(taken), float(np.quantile(taken, 0.99))
    return {"requests": len(taken), "rate": len(taken) / seconds, "p50": p50, "p99": p99}


async def _slow(port: int, clients: int, seconds: float) -> None:
    """Run clients that repeatedly send a request at twenty bytes per second."""
    end = time.monotonic() + seconds
    (body,) = bodies("tensor", 1, [f"c{number}" for number in range(28)], 1, 0)

    async def client() -> None:
        while time.monotonic() < end:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(_head(body))
            for place in range(len(body)):
                if time.monotonic() > end:
                    break
                writer.write(body[place : place + 1])
                await writer.drain()
                await asyncio.sleep(0.05)
            else:
                await _answer(reader)
            writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))


if __name__ == "__main__":
    _, port, clients, seconds = sys.argv[1:]
    asyncio.run(_slow(int(port), int(clients), float(seconds)))
