"""Responses under mixed load while workers are killed and files damaged: none lost or mixed.

    python -m benchmarks.serving_soak [--seconds 600] [--workers 2] [--clients 4]

Clients ask by JSON, by binary tensors, by rows with explanations and by gRPC (if tritonclient is
installed).  Meanwhile a model file is replaced several times a second, by good files, by damaged
ones and by some that take long to read; other models come and go; a worker is killed every 15 s,
and the server gets SIGHUP every 40 s.  A response is mixed if its numbers are not, bit for bit,
those of the version that it names.  A request is lost if it has no answer or another status than
200; requests of connections to a worker that is killed at that time are counted apart.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.doubling import make_wide_file
from benchmarks.serving_reloads import COLUMNS, ROWS, answers_of, make_models, put

_KILL_SECONDS, _HANGUP_SECONDS = 15.0, 40.0
_GRACE = 3.0
"""Seconds after a kill in which a lost request is one of the killed worker."""
_RESPONSE_SECONDS = 30.0

Answer = tuple[str, tuple[float, ...]]
"""Version and probabilities of a response."""


class LostError(Exception):
    """A request without an answer of status 200."""


class Soak:
    """What the clients saw, and when workers were killed."""

    def __init__(self, expected: dict[str, tuple[float, ...]]) -> None:
        self.expected = expected
        self.over = threading.Event()
        self.kills: list[float] = []
        self.answers: Counter[str] = Counter()
        self.mixed: list[str] = []
        self.lost: list[tuple[float, str]] = []

    def run_client(self, kind: str, connect: Callable[[], Callable[[], Answer]]) -> None:
        """Send requests of a kind until the end; connect again after an error."""
        while not self.over.is_set():
            try:
                ask = connect()
                for _ in range(200):
                    if self.over.is_set():
                        return
                    version, numbers = ask()
                    self.answers[kind] += 1
                    if self.expected.get(version) != numbers:
                        self.mixed.append(f"{kind}: {version} {numbers}")
            except (OSError, http.client.HTTPException, ValueError, LostError) as error:
                self.lost.append((time.monotonic(), f"{kind}: {error!r}"))

    def list_unexplained(self) -> list[str]:
        """Return the lost requests that no killed worker explains."""
        return [
            text
            for when, text in self.lost
            if not any(0.0 <= when - kill <= _GRACE for kill in self.kills)
        ]


def _send(connection: http.client.HTTPConnection, path: str, body: bytes, **headers: str) -> Any:
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise LostError(f"{answer.status}: {content[:200]!r}")
    return answer, content


def _connect_json(place: str) -> Callable[[], Answer]:
    connection = http.client.HTTPConnection(place, timeout=_RESPONSE_SECONDS)
    given = {"name": "input", "shape": list(ROWS.shape), "datatype": "FP32"}
    body = json.dumps({"inputs": [given | {"data": ROWS.ravel().tolist()}]}).encode()

    def ask() -> Answer:
        found = json.loads(_send(connection, "/v2/models/forest/infer", body)[1])
        numbers = {one["name"]: one["data"] for one in found["outputs"]}["probabilities"]
        return found["model_version"], tuple(numbers)

    return ask


def _connect_binary(place: str) -> Callable[[], Answer]:
    connection = http.client.HTTPConnection(place, timeout=_RESPONSE_SECONDS)
    tensor = ROWS.astype("<f4").tobytes()
    given = {"name": "input", "shape": list(ROWS.shape), "datatype": "FP32"}
    given |= {"parameters": {"binary_data_size": len(tensor)}}
    head = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()

    def ask() -> Answer:
        length = {"Inference-Header-Content-Length": str(len(head))}
        answer, content = _send(connection, "/v2/models/forest/infer", head + tensor, **length)
        size = int(answer.getheader("Inference-Header-Content-Length"))
        found, at = json.loads(content[:size]), size
        for one in found["outputs"]:
            n_bytes = one["parameters"]["binary_data_size"]
            if one["name"] == "probabilities":
                numbers = np.frombuffer(content[at : at + n_bytes], "<f8").tolist()
            at += n_bytes
        return found["model_version"], tuple(numbers)

    return ask


def _connect_rows(place: str) -> Callable[[], Answer]:
    connection = http.client.HTTPConnection(place, timeout=_RESPONSE_SECONDS)
    rows = [{f"x{k}": float(row[k]) for k in range(COLUMNS)} for row in ROWS]
    given = {"model": "forest", "rows": rows, "outputs": ["probabilities", "rule"]}
    body = json.dumps(given).encode()

    def ask() -> Answer:
        found = json.loads(_send(connection, "/predict", body)[1])
        numbers = [list(own["probabilities"].values()) for own in found["rows"]]
        return found["version"], tuple(itertools.chain(*numbers))

    return ask


def _connect_grpc(place: str) -> Callable[[], Answer]:
    from tritonclient import grpc as triton
    from tritonclient.utils import InferenceServerException

    client = triton.InferenceServerClient(place)
    given = triton.InferInput("input", list(ROWS.shape), "FP32")
    given.set_data_from_numpy(ROWS)

    def ask() -> Answer:
        try:
            found = client.infer("forest", [given], client_timeout=_RESPONSE_SECONDS)
        except InferenceServerException as error:
            client.close()
            raise LostError(str(error)) from None
        return found.get_response().model_version, tuple(found.as_numpy("probabilities").ravel())

    return ask


def _list_workers(server: int) -> list[int]:
    """Return the processes that a server started and that listen: its workers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            command = path.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == server and b"spawn_main" in command:
            found.append(int(path.parent.name))
    return found


def _change_files(folder: Path, models: list[Path], seconds: float) -> None:
    """Replace, damage, add and remove files until the end."""
    rng = np.random.default_rng(0)
    slow = make_wide_file(40_000)
    end = time.monotonic() + seconds
    for number in itertools.count():
        if time.monotonic() > end:
            return
        time.sleep(rng.uniform(0.1, 0.3))
        put(models[number % 2], folder / "forest.treekit")
        if number % 7 == 0:
            (folder / "forest.treekit").write_bytes(models[0].read_bytes()[: rng.integers(5000)])
        if number % 11 == 0:
            (folder / "slow.treekit").write_bytes(slow)
        if number % 5 == 0:
            put(models[number % 2], folder / "guest.treekit")
        elif number % 5 == 3:
            (folder / "guest.treekit").unlink(missing_ok=True)


def _disturb(soak: Soak, server: int, seconds: float) -> None:
    """Kill workers and send SIGHUP until the end."""
    rng, begin = np.random.default_rng(1), time.monotonic()
    kill, hangup = begin + _KILL_SECONDS, begin + _HANGUP_SECONDS
    while (now := time.monotonic()) < begin + seconds - _KILL_SECONDS:
        if now > kill and len(workers := _list_workers(server)) > 1:
            soak.kills.append(time.monotonic())
            os.kill(int(rng.choice(workers)), signal.SIGKILL)
            kill = now + _KILL_SECONDS
        if now > hangup:
            os.kill(server, signal.SIGHUP)
            hangup = now + _HANGUP_SECONDS
        time.sleep(0.1)


def _start(folder: Path, workers: int) -> tuple[subprocess.Popen[str], dict[str, str]]:
    given = ["--port", "0", "--grpc-port", "0", "--log", "json", "--workers", str(workers)]
    server = subprocess.Popen(
        [sys.executable, "-m", "treekit", "serve", str(folder), *given, "--reload", "0.2"],
        stderr=subprocess.PIPE,
        text=True,
    )
    places: dict[str, str] = {}
    assert server.stderr is not None
    for line in server.stderr:
        event = json.loads(line)
        if event["event"].startswith("listening"):
            place = event.get("url") or f"127.0.0.1:{event['port']}"
            places[event["event"]] = place.rpartition("/")[2]
        if len(places) == 2:
            break
    return server, places


def _list_kinds(places: dict[str, str]) -> Iterator[tuple[str, Callable[[], Callable[[], Answer]]]]:
    for kind, connect in (
        ("JSON", _connect_json),
        ("binary", _connect_binary),
        ("rows", _connect_rows),
    ):
        yield kind, lambda connect=connect: connect(places["listening"])
    try:
        import tritonclient.grpc  # noqa: F401
    except ImportError:
        return
    yield "gRPC", lambda: _connect_grpc(places["listening-grpc"])


def main() -> int:
    """Run the load; return 1 if a response was lost without a reason, or mixed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--trees", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        models = make_models(Path(text), options.trees)
        folder = Path(text, "served")
        put(models[0], folder / "forest.treekit")
        soak = Soak(
            {
                hashlib.sha256(path.read_bytes()).hexdigest()[:12]: answers_of(path)
                for path in models
            }
        )
        server, places = _start(folder, options.workers)
        events: Counter[str] = Counter()

        def listen() -> None:
            for line in server.stderr or ():
                events[json.loads(line)["event"]] += 1

        kinds = itertools.islice(itertools.cycle(_list_kinds(places)), options.clients)
        clients = [threading.Thread(target=soak.run_client, args=kind) for kind in kinds]
        others = [
            threading.Thread(target=listen),
            threading.Thread(target=_change_files, args=(folder, models, options.seconds)),
            threading.Thread(target=_disturb, args=(soak, server.pid, options.seconds)),
        ]
        for thread in (*others, *clients):
            thread.start()
        for thread in others[1:]:
            thread.join()
        soak.over.set()
        for thread in clients:
            thread.join()
        server.terminate()
        code = server.wait(60)
        others[0].join()
    unexplained = soak.list_unexplained()
    print(
        f"{options.seconds:g} s: {sum(soak.answers.values())} answers {dict(soak.answers)}, "
        f"{len(soak.mixed)} mixed; {len(soak.kills)} workers killed, "
        f"{len(soak.lost) - len(unexplained)} requests lost with them, {len(unexplained)} others; "
        f"{events['model-replaced']} reloads; exit code {code}"
    )
    for line in [*soak.mixed[:5], *unexplained[:5]]:
        print("  ", line)
    return int(bool(soak.mixed or unexplained or code))


if __name__ == "__main__":
    sys.exit(main())
