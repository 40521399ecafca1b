"""Model files that change under load: no answer is lost, and none is mixed of two versions."""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
import os
import shutil
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import children, infer_body, save_forest, server_process, server_thread
from treekit.model.model_file import load
from treekit.serve.models.repository import look_at

ROWS = ((0.5, 0.25), (-0.5, 0.75), (0.1, -0.9), (-0.3, -0.3))
BODY = infer_body(*ROWS)


@pytest.fixture(scope="module")
def forests(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models that answer the same rows with other numbers."""
    paths = [tmp_path_factory.mktemp("forests") / f"{seed}.bin" for seed in (1, 5)]
    for seed, path in enumerate(paths, 1):
        draft = path.with_suffix(".treekit")
        save_forest(draft, seed=4 * seed, trees=20)
        draft.rename(path)
    return paths


def numbers_of(path: Path) -> list[float]:
    """What a model says of `ROWS`, as its own library has it."""
    rows = {"a": [row[0] for row in ROWS], "b": [row[1] for row in ROWS]}
    model = load(path)
    return [float(cell) for cell in model.predict_proba(rows).ravel()]


def put(source: Path, target: Path) -> None:
    """Replace a file in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}")
    shutil.copy(source, draft)
    draft.replace(target)


def version_of(path: Path) -> str:
    return look_at(path).digest[:12]


class Clients:
    """Threads that ask one model all the time; what they got, by version."""

    def __init__(self, url: str, count: int = 3) -> None:
        self._place = url.removeprefix("http://")
        self._over = threading.Event()
        self.answers: dict[str, int] = {}
        self.numbers: dict[str, set[tuple[float, ...]]] = {}
        self.trouble: list[str] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _ask(self) -> None:
        while not self._over.is_set():  # a connection for some requests: workers take turns
            try:
                with contextlib.closing(
                    http.client.HTTPConnection(self._place, timeout=20)
                ) as connection:
                    for _ in range(20):
                        self._ask_once(connection)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                self.trouble.append(repr(error))
                return

    def _ask_once(self, connection: http.client.HTTPConnection) -> None:
        connection.request("POST", "/v2/models/said/infer", BODY)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        if answer.status != 200:
            self.trouble.append(f"{answer.status} {said}")
            return
        outputs = {output["name"]: output["data"] for output in said["outputs"]}
        with self._lock:
            version = said["model_version"]
            self.answers[version] = self.answers.get(version, 0) + 1
            self.numbers.setdefault(version, set()).add(tuple(outputs["probabilities"]))


def wait_until(happens: Callable[[], Any], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.mark.system
@pytest.mark.parametrize("workers", [1, 2])
def test_no_answer_is_lost_or_mixed_while_a_file_is_replaced(tmp_path, forests, workers):
    target = tmp_path / "said.treekit"
    put(forests[0], target)
    with server_process(
        tmp_path, "--reload", 0.02, "--workers", workers, "--log", "quiet"
    ) as running:
        with Clients(running.url) as clients:
            for turn in range(1, 9):
                seen = clients.answers.get(version_of(forests[turn % 2]), 0)
                put(forests[turn % 2], target)
                wait_until(
                    lambda now=turn, before=seen: (
                        clients.answers.get(version_of(forests[now % 2]), 0) > before + 5
                    )
                )
        assert running.end() == 0
    assert clients.trouble == []
    assert {version: list(*map(list, said)) for version, said in clients.numbers.items()} == {
        version_of(path): numbers_of(path) for path in forests
    }


@pytest.mark.system
def test_no_answer_is_lost_or_mixed_while_versions_come_and_go(tmp_path, forests):
    put(forests[0], tmp_path / "said" / "1" / "model.treekit")
    with server_thread(tmp_path, reload_seconds=0.02) as url, Clients(url, 2) as clients:
        for version in range(2, 10):
            path = tmp_path / "said" / str(version) / "model.treekit"
            put(forests[(version + 1) % 2], path)
            wait_until(lambda now=str(version): clients.answers.get(now, 0) > 3)
            shutil.rmtree(tmp_path / "said" / str(version - 1))
    assert clients.trouble == []
    expected = [tuple(numbers_of(path)) for path in forests]
    assert {int(version): said for version, said in clients.numbers.items()} == {
        version: {expected[(version + 1) % 2]} for version in range(1, 10)
    }


@pytest.mark.system
def test_a_bad_file_is_told_once_and_its_model_goes_on(tmp_path, forests):
    target = tmp_path / "said.treekit"
    put(forests[0], target)
    bad = tmp_path / "bad.bin"
    bad.write_bytes(forests[1].read_bytes()[:-100])
    with server_process(target, "--reload", 0.02) as running, Clients(running.url, 1) as clients:
        put(bad, target)
        running.wait_for("error   model 'said' .* goes on as it was: ")
        time.sleep(0.3)
        assert running.said.count("goes on as it was") == 1
        put(forests[1], target)
        running.wait_for(f"model 'said' is replaced by {version_of(forests[1])}")
        wait_until(lambda: version_of(forests[1]) in clients.answers)
    assert clients.trouble == []
    assert set(clients.answers) == {version_of(path) for path in forests}


@pytest.mark.system
def test_a_file_that_is_written_slowly_in_its_place_serves_only_when_it_is_whole(tmp_path, forests):
    target = tmp_path / "said.treekit"
    put(forests[0], target)
    content = forests[1].read_bytes()
    with server_process(target, "--reload", 0.02) as running, Clients(running.url, 1) as clients:
        with target.open("wb") as stream:
            for part in range(10):
                stream.write(content[part * len(content) // 10 : (part + 1) * len(content) // 10])
                stream.flush()
                time.sleep(0.05)
        running.wait_for(f"replaced by {version_of(forests[1])}")
        wait_until(lambda: version_of(forests[1]) in clients.answers)
    assert clients.trouble == []
    assert set(clients.answers) == {version_of(path) for path in forests}


@pytest.mark.system
def test_a_server_that_is_told_never_to_look_does_not(tmp_path, forests):
    target = tmp_path / "said.treekit"
    put(forests[0], target)
    with server_thread(target, reload_seconds=0) as url, Clients(url, 1) as clients:
        put(forests[1], target)
        time.sleep(0.2)
    assert set(clients.answers) == {version_of(forests[0])}


def test_a_model_that_is_replaced_is_let_go_at_once(tmp_path, forests):
    """Not when the collector comes by: a model may be most of a machine's memory."""
    from treekit.serve.models.repository import Repository

    put(forests[0], tmp_path / "said.treekit")
    models = Repository([tmp_path])
    models.refresh()
    old = weakref.ref(models.get("said")), weakref.ref(models.get("said").model)
    put(forests[1], tmp_path / "said.treekit")
    gc.collect()
    gc.disable()
    try:
        models.refresh()
        assert [one() for one in old] == [None, None]
    finally:
        gc.enable()
    assert models.get("said").version == version_of(forests[1])


# ------------------------------------------------ load and unload by request


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory, forests: list[Path]) -> Iterator[Any]:
    """A server of three workers that looks at files by request alone, and its folder."""
    folder = tmp_path_factory.mktemp("control")
    put(forests[0], folder / "said.treekit")
    with server_process(folder, "--reload", 0, "--workers", 3, "--control") as running:
        yield running, folder


def request(url: str, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
    """An answer by a connection of its own, which any of the workers takes."""
    place = url.removeprefix("http://")
    with contextlib.closing(http.client.HTTPConnection(place, timeout=40)) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")


def many(url: str) -> set[tuple[int, str]]:
    """Status and version of answers of, to all likelihood, all workers."""
    found: list[tuple[int, str]] = []

    def ask() -> None:
        for _ in range(8):
            status, said = request(url, "POST", "/v2/models/said/infer", BODY)
            found.append((status, said.get("model_version", "")))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 32
    return set(found)


@pytest.mark.system
def test_after_a_load_or_unload_no_worker_answers_with_the_state_before(workers, forests):
    running, folder = workers
    for turn in range(1, 3):
        put(forests[turn % 2], folder / "said.treekit")
        assert request(running.url, "POST", "/v2/repository/models/said/load")[0] == 200
        assert many(running.url) == {(200, version_of(forests[turn % 2]))}
        assert request(running.url, "POST", "/v2/repository/models/said/unload")[0] == 200
        assert many(running.url) == {(503, "")}
    assert request(running.url, "POST", "/v2/repository/models/said/load")[0] == 200


@pytest.mark.system
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_load_waits_for_the_worker_that_is_slow(workers, forests):
    running, folder = workers
    put(forests[0], folder / "said.treekit")
    done: list[int] = []

    def load_it() -> None:
        done.append(request(running.url, "POST", "/v2/repository/models/said/load")[0])

    slow = children(running.process.pid)[0]
    os.kill(slow, signal.SIGSTOP)
    try:
        thread = threading.Thread(target=load_it)
        thread.start()
        time.sleep(0.5)
        assert done == []
    finally:
        os.kill(slow, signal.SIGCONT)
    thread.join(30)
    assert done == [200]


@pytest.mark.system
def test_a_load_that_is_refused_is_refused_by_all(workers, forests):
    running, folder = workers
    put(forests[0], folder / "said.treekit")
    assert request(running.url, "POST", "/v2/repository/models/said/load")[0] == 200
    (folder / "said.treekit").write_bytes(forests[1].read_bytes()[:500])
    status, said = request(running.url, "POST", "/v2/repository/models/said/load")
    assert status == 400
    assert "was not loaded" in said["error"]
    assert many(running.url) == {(200, version_of(forests[0]))}
    status, said = request(running.url, "POST", "/v2/repository/models/sad/unload")
    assert status == 404
    assert "no model 'sad'" in said["error"]


@pytest.mark.system
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_worker_that_begins_later_knows_what_was_unloaded(workers, forests):
    running, folder = workers
    put(forests[0], folder / "said.treekit")
    assert request(running.url, "POST", "/v2/repository/models/said/load")[0] == 200
    assert request(running.url, "POST", "/v2/repository/models/said/unload")[0] == 200
    for pid in children(running.process.pid):
        os.kill(pid, 9)
    for number in (1, 2, 3):
        running.wait_for(f"worker {number} answers")
    assert many(running.url) == {(503, "")}
    assert request(running.url, "POST", "/v2/repository/models/said/load")[0] == 200
    assert many(running.url) == {(200, version_of(forests[0]))}
