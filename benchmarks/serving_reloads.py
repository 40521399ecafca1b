"""Responses while model files are replaced: number lost, or mixed from two versions.

    python -m benchmarks.serving_reloads [--seconds 10] [--trees 100]

Clients request one model continuously, each over its own connections, while its file is
replaced by a rename every 0.1 to 0.3 s by one of two models with different predictions. A
response is lost if it is an error or missing; it is mixed if its numbers are not, bit for
bit, those of the version it names. Runs with one worker and two, with one file and with
version folders. At the end, a signal stops the server under load, and no response may be
lost.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import treekit

COLUMNS = 28
ROWS = np.random.default_rng(0).normal(size=(3, COLUMNS)).astype(np.float32)
PATH = "/v2/models/forest/infer"
BODY = json.dumps(
    {
        "inputs": [
            {
                "name": "input",
                "shape": list(ROWS.shape),
                "datatype": "FP32",
                "data": ROWS.ravel().tolist(),
            }
        ]
    }
)


@dataclass
class Tally:
    """Responses and errors of the clients."""

    answers: list[tuple[str, tuple[float, ...]]] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def make_models(folder: Path, trees: int) -> list[Path]:
    """Train two forests on the same columns with different predictions."""
    paths = []
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(4000, COLUMNS))
        table = {f"x{place}": x[:, place] for place in range(COLUMNS)}
        table["y"] = np.where(x[:, seed] + rng.normal(size=4000) > 0, "yes", "no")
        model = treekit.train(table, "y", ensemble="forest", trees=trees, max_depth=10, seed=seed)
        path = folder / f"{seed}.treekit"
        model.save(path)
        paths.append(path)
    return paths


def answers_of(path: Path) -> tuple[float, ...]:
    """Predict the probabilities of `ROWS` in this process."""
    rows = {f"x{place}": ROWS[:, place] for place in range(COLUMNS)}
    return tuple(treekit.load(path).predict_proba(rows).ravel().tolist())


def put(source: Path, target: Path) -> None:
    """Replace a file atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}")
    shutil.copy(source, draft)
    draft.replace(target)


def ask(place: str, over: threading.Event, tally: Tally) -> None:
    """Send requests until `over` is set or the server closes the connection."""
    while not over.is_set():
        connection = http.client.HTTPConnection(place, timeout=30)
        try:
            for _ in range(50):
                started = time.perf_counter()
                connection.request("POST", PATH, BODY)
                answer = connection.getresponse()
                content = json.loads(answer.read())
                tally.milliseconds.append((time.perf_counter() - started) * 1e3)
                if answer.status != 200:
                    tally.lost.append(f"{answer.status}: {content}")
                    continue
                numbers = {one["name"]: one["data"] for one in content["outputs"]}["probabilities"]
                tally.answers.append((content["model_version"], tuple(numbers)))
                if answer.getheader("connection") == "close":
                    return
        except (OSError, http.client.HTTPException, ValueError) as error:
            tally.lost.append(repr(error))
        finally:
            connection.close()


def run(models: list[Path], workers: int, versions: bool, seconds: float, clients: int) -> bool:
    """Run a server under load and print a summary; return whether all responses were right."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        expected: dict[str, tuple[float, ...]] = {}

        def place(number: int) -> None:
            source = models[number % 2]
            if versions:
                expected[str(number)] = answers_of(source)
                put(source, folder / "forest" / str(number) / "model.treekit")
                if number > 3:
                    shutil.rmtree(folder / "forest" / str(number - 3))
            else:
                expected[hashlib.sha256(source.read_bytes()).hexdigest()[:12]] = answers_of(source)
                put(source, folder / "forest.treekit")

        place(1)
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "treekit", "serve", text, "--port", "0", "--log", "json"),
                *("--workers", str(workers), "--reload", "0.05"),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stderr is not None
        lines: list[dict[str, str]] = []
        for line in server.stderr:
            lines.append(json.loads(line))
            if lines[-1]["event"] == "listening":
                break
        events: dict[str, int] = {}

        def listen() -> None:
            assert server.stderr is not None
            for line in server.stderr:
                event = json.loads(line)["event"]
                events[event] = events.get(event, 0) + 1

        listener = threading.Thread(target=listen)
        listener.start()
        tally, over = Tally(), threading.Event()
        host = lines[-1]["url"].removeprefix("http://")
        threads = [threading.Thread(target=ask, args=(host, over, tally)) for _ in range(clients)]
        for thread in threads:
            thread.start()
        end, number = time.monotonic() + seconds, 1
        pauses = np.random.default_rng(number)
        while time.monotonic() < end:
            time.sleep(pauses.uniform(0.1, 0.3))
            number += 1
            place(number)
        server.terminate()  # under load
        over_by = time.monotonic() + 10
        for thread in threads:
            thread.join(max(over_by - time.monotonic(), 0))
        over.set()
        code = server.wait(60)
        listener.join()
    mixed = [answer for answer in tally.answers if expected.get(answer[0]) != answer[1]]
    seen = {version for version, _ in tally.answers}
    times = np.array(tally.milliseconds)
    print(
        f"{workers} worker{'s' * (workers > 1)}, {'versions' if versions else 'one file'}: "
        f"{number} files, {events.get('model-replaced', 0) + events.get('model-loaded', 0)} "
        f"loads, {len(tally.answers)} responses of {len(seen)} versions, {len(tally.lost)} lost, "
        f"{len(mixed)} mixed; p50 {np.quantile(times, 0.5):.2f} ms, "
        f"p99 {np.quantile(times, 0.99):.2f} ms; exit code {code}",
        flush=True,
    )
    for line in tally.lost[:5]:
        print("  ", line)
    return not tally.lost and not mixed and code == 0 and len(seen) > 1


def main() -> int:
    """Run all cases; return 1 if a response was lost or mixed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--clients", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = make_models(Path(folder), options.trees)
        right = [
            run(models, workers, versions, options.seconds, options.clients)
            for workers in (1, 2)
            for versions in (False, True)
        ]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
