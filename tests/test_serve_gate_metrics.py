"""What Prometheus reads of a server, by its own parser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from tests.serving_gate import INFER, Twice, ask, ask_async, gated, rows, service_of
from treekit.serve.http.metrics import Metrics, Record, kind_of
from treekit.serve.models.repository import Repository
from treekit.serve.scheduling import Service

NAMES = ['a"b', "a\\b", "a\nb", '{x="y"}', "名前"]


@pytest.fixture
def service(tmp_path: Path) -> Any:
    made = service_of(Twice(), folder=tmp_path)
    yield made
    made.runner.close()


def samples(text: str, families: Any = text_string_to_metric_families) -> dict[Any, float]:
    """Values by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families(text)
        for sample in family.samples
    }


def value(found: dict[Any, float], name: str, **labels: str) -> float | None:
    return found.get((name, *sorted(labels.items())))


def record(model: str = "", version: str = "", rows: int = 0, status: int = 200) -> Record:
    async def send(message: Any) -> None:
        pass

    made = Record(send, "id", "POST", {})
    made.model, made.version, made.rows, made.status = model, version, rows, status
    return made


def test_requests_rows_errors_and_models_are_counted(service: Any) -> None:
    app = gated(service)
    for count in (1, 2, 3):
        ask(app, "POST", INFER, json=rows(*range(count)))
    ask(app, "POST", INFER, content=b"{")
    ask(app, "POST", "/v2/models/absent/infer", json=rows(1))
    ask(app, "GET", "/v2/models/twice")
    ask(app, "GET", "/v2", host="evil.example")
    answer = ask(app, "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = samples(answer.text)
    count = "treekit_request_duration_seconds_count"
    assert value(found, count, endpoint="infer", model="twice") == 3
    assert value(found, count, endpoint="infer", model="") == 2
    assert value(found, count, endpoint="model", model="") == 1
    total = value(found, "treekit_request_duration_seconds_sum", endpoint="infer", model="twice")
    assert total is not None
    assert 0 < total < 10
    top = value(
        found, "treekit_request_duration_seconds_bucket", endpoint="infer", model="twice", le="+Inf"
    )
    assert top == 3
    assert value(found, "treekit_rows_total", model="twice", version="1") == 6
    errors = "treekit_request_errors_total"
    assert value(found, errors, endpoint="infer", status="400") == 1
    assert value(found, errors, endpoint="infer", status="404") == 1
    assert value(found, errors, endpoint="server", status="403") == 1
    labels = {"model": "twice", "version": "1", "digest": "d" * 64, "platform": "treekit"}
    assert value(found, "treekit_model_info", **labels) == 1
    assert value(found, "treekit_ready") == 1
    assert value(found, "treekit_requests_in_progress") == 1  # this one
    assert (value(found, "process_resident_memory_bytes") or 1) > 0
    assert any(name == "treekit_build_info" for name, *_ in found)


def test_times_fall_into_their_buckets(service: Any) -> None:
    metrics = Metrics(service)
    for seconds in (0.0001, 0.001, 0.0011, 60.0):
        metrics.observe("infer", record("m", "1", 1), seconds)
    found = samples(metrics.render()[0].decode())
    name, labels = "treekit_request_duration_seconds", {"endpoint": "infer", "model": "m"}
    assert value(found, f"{name}_sum", **labels) == pytest.approx(60.0022)
    reached = [
        value(found, f"{name}_bucket", le=bound, **labels)
        for bound in ("0.00025", "0.001", "0.0025", "30.0", "+Inf")
    ]
    assert reached == [1, 2, 3, 3, 4]


def test_requests_in_the_works_are_seen(service: Any) -> None:
    hold = threading.Event()
    next(service.repository.served).meanwhile = lambda: hold.wait(10)
    app = gated(service)

    async def run() -> tuple[str, str]:
        held = asyncio.create_task(ask_async(app, "POST", INFER, json=rows(1)))
        while not app._working.count:
            await asyncio.sleep(0.01)
        during = (await ask_async(app, "GET", "/metrics")).text
        hold.set()
        await held
        return during, (await ask_async(app, "GET", "/metrics")).text

    during, after = (samples(text) for text in asyncio.run(run()))
    assert value(during, "treekit_requests_in_progress") == 2
    assert value(after, "treekit_requests_in_progress") == 1


def test_changes_of_models_are_counted(service: Any) -> None:
    app = gated(service)
    service.repository.unload("twice")
    after_unload = samples(ask(app, "GET", "/metrics").text)
    assert not any(name == "treekit_model_info" for name, *_ in after_unload)
    service.repository.load("twice")
    found = samples(ask(app, "GET", "/metrics").text)
    for outcome in ("unloaded", "loaded"):
        name = "treekit_model_changes_total"
        assert value(found, name, model="twice", outcome=outcome) == 1
    assert any(name == "treekit_model_info" for name, *_ in found)


def test_a_file_that_cannot_be_used_is_seen_until_it_is_mended(tmp_path: Path) -> None:
    (tmp_path / "bad.treekit").write_bytes(b"no model")
    repository = Repository([tmp_path])
    repository.refresh()
    app = gated(Service(repository))
    assert 'treekit_model_refused{model="bad",version=""} 1.0' in ask(app, "GET", "/metrics").text
    (tmp_path / "bad.treekit").unlink()
    repository.refresh()
    assert "treekit_model_refused{" not in ask(app, "GET", "/metrics").text
    answer = ask(app, "POST", "/predict", json=[{"x": 1}])
    assert (answer.status_code, "no model on this server yet" in answer.text) == (404, True)


def test_openmetrics_is_given_where_it_is_asked_for(service: Any) -> None:
    app = gated(service)
    ask(app, "POST", INFER, json=rows(1, 2))
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answer = ask(app, "GET", "/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    found = samples(answer.text, open_families)
    assert value(found, "treekit_rows_total", model="twice", version="1") == 2
    for hostile in ("", ";;,,=", "application/openmetrics-text; version=x", "é"):
        answer = ask(app, "GET", "/metrics", headers={"Accept": hostile.encode()})
        assert answer.status_code == 200


@pytest.mark.parametrize("name", NAMES)
def test_names_of_models_stay_labels(service: Any, name: str) -> None:
    metrics = Metrics(service)
    metrics.observe("infer", record(name, "1", 2), 0.1)
    found = samples(metrics.render()[0].decode())
    assert value(found, "treekit_rows_total", model=name, version="1") == 2


def test_a_stranger_makes_no_labels(service: Any) -> None:
    app = gated(service)
    ask(app, "GET", "/metrics")
    before = samples(ask(app, "GET", "/metrics").text)
    for number in range(50):
        ask(app, "GET", f"/v2/models/m{number}")
        ask(app, "POST", f"/v2/models/m{number}/versions/{number}/infer", json=rows(1))
        ask(app, "GET", f"/{number}")
        ask(app, "GET", f"/v2/models/twice/{number}")
        ask(app, "GET", "/v2", host=f"h{number}.example")
    new = {key for key in samples(ask(app, "GET", "/metrics").text) if key not in before}
    assert {value for _, *labels in new for name, value in labels if name == "model"} == {""}
    assert {value for _, *labels in new for name, value in labels if name == "endpoint"} == {
        "infer", "model", "other", "server"
    }  # fmt: skip


def test_a_model_that_is_made_anew_for_ever_keeps_a_bounded_number_of_versions(
    service: Any,
) -> None:
    metrics = Metrics(service)
    for number in range(1000):
        metrics.observe("infer", record("m", f"v{number}", 1), 0.1)
    found = samples(metrics.render()[0].decode())
    kept = [key for key in found if key[0] == "treekit_rows_total"]
    assert len(kept) == 64
    assert value(found, "treekit_rows_total", model="m", version="v999") == 1


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (INFER, "infer"),
        ("/v2/models/m/versions/1/infer", "infer"),
        ("/v2/models/m/ready", "ready"),
        ("/v2/models/m/versions/2", "model"),
        ("/v2/health/live", "health"),
        ("/v2/repository/index", "repository"),
        ("/v2", "server"),
        ("/predict", "predict"),
        ("/explain", "explain"),
        ("/models", "models"),
        ("/models/m/rules", "rules"),
        ("/metrics", "metrics"),
        ("/models/m/tree.svg", "picture"),
        ("/openapi.json", "description"),
        ("/page.js", "page"),
        ("/page/form.js", "page"),
        ("/etc/passwd", "other"),
    ],
)
def test_paths_are_of_few_kinds(path: str, kind: str) -> None:
    assert kind_of(path) == kind


WORKER = """
import json, sys
from pathlib import Path
from tests.serving_gate import Twice, service_of
from treekit.serve.http.metrics import Metrics
from treekit.serve.http.metrics import Record
from treekit.serve.models.repository import Repository
from treekit.serve.models.repository import Change
service = service_of(Twice(), folder=Path(sys.argv[1]))
metrics = Metrics(service)
working = service.working
working.inc()
for number in range(70):
    record = Record(None, "id", "POST", {})
    record.model, record.version = "m", f"v{number % int(sys.argv[2])}"
    record.rows, record.status = 2, 200
    metrics.observe("infer", record, 0.01)
metrics.changed([Change("m", "v1", "replaced")])
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(metrics.render()[0].decode()), flush=True)
"""


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="of processes Linux alone tells here")
def test_workers_add_up_their_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from treekit.serve.http.metrics import FOLDER, forget_process, shared_metrics

    monkeypatch.delenv(FOLDER, raising=False)
    models = tmp_path / "models"
    models.mkdir()
    with shared_metrics(1):
        assert FOLDER not in os.environ
    with shared_metrics(2):
        folder = Path(os.environ[FOLDER])
        env = dict(os.environ) | {"PYTHONPATH": os.pathsep.join(sys.path)}
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, str(models), versions],
                env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for versions in ("1", "70")
        ]  # fmt: skip
        try:
            for worker in workers:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "ready\n"
            found = _asked(workers[0])
            name = "treekit_request_duration_seconds_count"
            assert value(found, name, endpoint="infer", model="m") == 140
            assert value(found, "treekit_rows_total", model="m", version="v0") == 142
            assert value(found, "treekit_rows_total", model="m", version="") == 12
            assert value(found, "treekit_requests_in_progress") == 2
            assert value(found, "treekit_model_changes_total", model="m", outcome="replaced") == 2
            assert any(name == "treekit_model_info" for name, *_ in found)
            memory = sum(_resident(worker.pid) for worker in workers)
            told = value(found, "process_resident_memory_bytes")
            assert told == pytest.approx(memory, rel=0.1)
            workers[1].kill()
            workers[1].wait()
            forget_process(workers[1].pid)
            found = _asked(workers[0])
            assert value(found, "treekit_requests_in_progress") == 1
            assert value(found, name, endpoint="infer", model="m") == 140
        finally:
            for worker in workers:
                worker.kill()
                worker.communicate()
    assert not folder.exists()
    assert FOLDER not in os.environ


def _asked(worker: Any) -> dict[Any, float]:
    worker.stdin.write("?\n")
    worker.stdin.flush()
    return samples(json.loads(worker.stdout.readline()))


def _resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.system
def test_a_missing_library_is_named_with_its_extra() -> None:
    code = """
import importlib, sys
for pair in sys.argv[1:]:
    library, module = pair.split(":")
    sys.modules[library] = None
    try:
        importlib.import_module(f"treekit.serve.{module}")
    except ImportError as error:
        print(library, type(error).__name__, error)
    del sys.modules[library]
"""
    missing = {
        "prometheus_client": "web.app",
        "starlette.routing": "web.app",
        "uvicorn": "process.connections",
        "httptools": "process.connections",
    }
    done = subprocess.run(
        [sys.executable, "-c", code, *map(":".join, missing.items())],
        env=dict(os.environ) | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE, text=True, check=True, timeout=60,
    )  # fmt: skip
    for library, told in zip(missing, done.stdout.splitlines(), strict=True):
        assert told.startswith(f"{library} MissingExtraError")
        assert "treekit-ml[serve]" in told
