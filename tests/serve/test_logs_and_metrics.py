"""The server's log and metrics: their contents, escaping, and a blocked stderr."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from tests.serving_gate import INFER, Lines, Twice, ask, ask_async, make_gate_app, rows, service_of
from treekit.errors import SettingError
from treekit.serve.http.logs import (
    LineHandler,
    _RawStream,
    configure_logging,
    log_changes,
    log_event,
    log_request,
)
from treekit.serve.http.metrics import Metrics
from treekit.serve.models.repository import Change, Repository
from treekit.serve.scheduling import RequestRecord, Service
from treekit.serve.settings import ServeSettings

# ---------------------------------------------------------------- serve gate logs

TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
HOSTILE = [
    "x\n2026-01-01T00:00:00.000Z info forged",
    "x\r\nforged",
    "\x1b[2J\x1b[31mred",
    "\x9b31mC1",
    "a\x7f\x08b",
    "a\u2028b\u2029c\x85d",
    "\u202eevil",
    '","status":200,"x":"',
    "\ud800",
    "名前",
]


@pytest.fixture
def service(tmp_path: Path) -> Any:
    made = service_of(Twice(), folder=tmp_path)
    yield made
    made.runner.close()


def _record(request_id: str = "id-1", **facts: Any) -> RequestRecord:
    record = RequestRecord(id=request_id)
    record.status = 200
    for name, value in facts.items():
        setattr(record, name, value)
    return record


def test_request_is_logged_as_a_json_line(service: Any) -> None:
    lines = Lines()
    app = make_gate_app(service, lines, log="json")
    ask(app, "POST", INFER + "?secret=1", json=rows(1, 2, 3), headers={"X-Request-Id": "r-1"})
    ask(app, "GET", "/v2", host="evil.example")
    ask(app, "GET", "/v2/models/none")
    good, bad, none = lines.json
    assert TIME.fullmatch(good.pop("time"))
    assert 0 < good.pop("ms") < 10_000
    assert good == {
        "level": "info",
        "event": "request",
        "id": "r-1",
        "method": "POST",
        "path": INFER,
        "status": 200,
        "client": "192.0.2.7",
        "model": "twice",
        "version": "1",
        "rows": 3,
    }
    assert (bad["level"], bad["status"]) == ("warning", 403)
    assert "'evil.example' is not a name of this server" in bad["error"]
    assert none["status"] == 404
    assert "there is no model 'none'" in none["error"]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (1767225599.0, "2025-12-31T23:59:59.000Z"),
        (1767225599.25, "2025-12-31T23:59:59.250Z"),
        (1767225599.9999, "2025-12-31T23:59:59.999Z"),
        (1767225600.0, "2026-01-01T00:00:00.000Z"),
    ],
)
def test_times_have_milliseconds(seconds: float, expected: str) -> None:
    lines = Lines()
    lines.collect("text")
    assert lines.handler is not None
    record = logging.LogRecord("x", logging.ERROR, "", 0, "late", None, None)
    record.created = seconds
    lines.handler.handle(record)
    assert lines.text == [f"{expected} error   late"]


def test_request_is_logged_as_a_text_line(service: Any) -> None:
    lines = Lines()
    app = make_gate_app(service, lines, log="text")
    ask(app, "POST", INFER, json=rows(1), headers={"X-Request-Id": "r-1"})
    ask(app, "GET", "/v2", headers={"X-Request-Id": "r-2"})
    first, second = lines.text
    stamp, rest = first.split(" ", 1)
    assert TIME.fullmatch(stamp)
    assert re.fullmatch(
        r"info    200 POST /v2/models/twice/infer \d+\.\d ms 1 row by twice 1 \[192\.0\.2\.7 r-1\]",
        rest,
    )
    assert re.search(r"info    200 GET /v2 \d+\.\d ms \[192\.0\.2\.7 r-2\]$", second)


def test_quiet_log_contains_failures_and_model_changes_only(service: Any) -> None:
    lines = Lines()
    lines.collect("quiet")
    for status in (200, 404, 429, 503):
        log_request(_record(status=status), "GET", b"/v2", "", 0.1)
    assert lines.text == []
    log_request(_record(status=500), "GET", b"/v2", "", 0.1)
    log_changes([Change("m", "abc", "replaced")])
    assert [line.split(" ", 1)[1][:7] for line in lines.text] == ["error  ", "info   "]


def test_quiet_server_does_not_log_requests_answered_with_404(service: Any) -> None:
    lines = Lines()
    app = make_gate_app(service, lines, log="quiet")
    ask(app, "GET", "/v2")
    ask(app, "GET", "/nothing")
    assert lines.text == []


@pytest.mark.parametrize("mode", ["json", "text"])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_client_text_cannot_forge_log_lines_or_control_a_terminal(
    hostile: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Reports of pytest, which hold captured lines, cannot carry half of a surrogate pair.
    monkeypatch.setattr(logging.getLogger("treekit.serve"), "propagate", False)
    lines = Lines()
    lines.collect(mode)
    path = hostile.encode("utf-8", "surrogatepass")
    record = _record(model=hostile, version=hostile, error=hostile)
    log_request(record, hostile, path, hostile, 0.1)
    log_event("event", "a message", model=hostile)
    log_changes([Change(hostile, hostile, "kept", hostile)])
    assert lines.text
    text = lines.data.decode()
    assert all(c == "\n" or c.isprintable() for c in text), ascii(text)
    if mode == "json":
        assert text.isascii()
        request, event, change = map(json.loads, text.splitlines())
        assert (request["status"], request["model"], event["model"]) == (200, hostile, hostile)
        assert change["reason"] == hostile
    else:
        # A further line is indented, so that it cannot be taken for one of its own.
        starts = [line for line in text.splitlines() if not line.startswith("    ")]
        assert len(starts) == 3
        assert all(TIME.match(line) for line in starts)


def test_long_path_is_truncated_in_the_log() -> None:
    lines = Lines()
    lines.collect()
    log_request(_record(), "GET", b"/" + b"a" * 100_000, "", 0.1)
    assert 300 < len(lines.text[0]) < 1000


def test_model_changes_are_logged(service: Any) -> None:
    lines = Lines()
    make_gate_app(service, lines, log="json")
    service.repository.unload("twice")
    service.repository.load("twice")
    assert [(line["event"], line["model"], line["version"]) for line in lines.json] == [
        ("model-unloaded", "twice", "1"),
        ("model-loaded", "twice", "1"),
    ]
    log_changes([Change("m", "v1", "kept", "it is no model")])
    line = lines.json[-1]
    assert (line["level"], line["reason"]) == ("error", "it is no model")
    assert line["message"] == "model 'm' v1 is kept, as its new file was rejected: it is no model"


def test_unknown_log_format_is_refused() -> None:
    with pytest.raises(SettingError, match="text, json, quiet"):
        LineHandler("xml")


# ------------------------------------------------------------------------ Python's loggers


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What `configure_logging` makes, writing to `Lines`; undone after the test."""
    root, lines = logging.getLogger(), Lines()
    before = root.handlers[:]
    logging.captureWarnings(False)  # of a server of another test
    # A server of another test in this process may have configured uvicorn's own loggers.
    for name in ("uvicorn", "uvicorn.error"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)

    def configure(mode: str) -> Lines:
        lines.handler = configure_logging(mode)
        lines.handler.listener._stream = io.BufferedWriter(_RawStream(lines._take))
        return lines

    yield configure
    logging.captureWarnings(False)
    assert lines.handler is not None
    lines.handler.close()
    root.handlers[:] = before


@pytest.mark.parametrize("mode", ["json", "text"])
def test_tracebacks_and_warnings_are_logged_in_the_same_format(joined: Any, mode: str) -> None:
    lines = joined(mode)
    assert joined(mode) is lines
    assert sum(isinstance(h, LineHandler) for h in logging.getLogger().handlers) == 1
    try:
        raise ValueError("first\n2026-01-01T00:00:00.000Z info second")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in\nASGI application\n")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("a warning\nof two lines", UserWarning, stacklevel=1)
    logging.getLogger("uvicorn.error").info("Started")
    (handler,) = [h for h in logging.getLogger().handlers if isinstance(h, LineHandler)]
    handler.handle(logging.LogRecord("x", logging.WARNING, "", 1, "%d", ("no number",), None))
    if mode == "json":
        error, warning, odd = lines.json
        assert (error["level"], error["logger"]) == ("error", "uvicorn.error")
        assert "ValueError: first" in error["traceback"]
        assert (warning["level"], warning["logger"]) == ("warning", "py.warnings")
        assert "a warning\nof two lines" in warning["message"]
        assert odd["message"] == "%d"
    else:
        starts = [line for line in lines.text if not line.startswith("    ")]
        assert len(starts) == 3
        assert all(TIME.match(line) for line in starts)
        assert "ASGI application" in lines.data.decode()
        assert "info second" in lines.data.decode()


def test_warnings_are_printed_without_source_lines(joined: Any) -> None:
    lines = joined("json")
    (handler,) = [h for h in logging.getLogger().handlers if isinstance(h, LineHandler)]
    for text in ("/a/b.py:53: TreekitWarning: so: it is\n  warn()\n", "/a/b.py:5: UserWarning: w"):
        handler.handle(logging.LogRecord("py.warnings", 30, "", 1, "%s", (text,), None))
    assert [line["message"] for line in lines.json] == ["so: it is", "/a/b.py:5: UserWarning: w"]


def test_quiet_log_omits_warnings_of_other_loggers(joined: Any) -> None:
    lines = joined("quiet")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    logging.getLogger("uvicorn.error").error("broken")
    assert len(lines.text) == 1


def test_uvicorn_writes_no_lines_of_requests(joined: Any) -> None:
    from treekit.serve.process.worker import make_config

    joined("json")
    make_config(None, ServeSettings(("-",)))
    assert not logging.getLogger("uvicorn.access").hasHandlers()


# ------------------------------------------------------------------------------ the writer


def log_many(count: int, length: int = 1) -> None:
    for number in range(count):
        log_request(_record(f"r{number}", error="x" * length), "GET", b"/", "192.0.2.7", 0.001)


@pytest.mark.parametrize("length", [10, 200, 5000])
def test_log_lines_of_many_requests_are_written_complete_and_in_order(length: int) -> None:
    """In pieces that a pipe takes as a whole, so that lines of two processes do not mix."""
    lines, pieces = Lines(), []
    lines.collect("text", lambda data: pieces.append(data) or len(data))
    assert lines.handler is not None
    log_many(100, length)
    lines.handler.flush()
    found = b"".join(pieces).decode().splitlines()
    assert [line.rpartition(" ")[2] for line in found] == [f"r{number}]" for number in range(100)]
    assert all(piece.endswith(b"]\n") for piece in pieces)
    assert all(len(piece) <= 4096 or piece.count(b"\n") == 1 for piece in pieces)


def test_blocked_stderr_drops_log_lines_and_counts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("treekit.serve.http.logs._MAX_LINES", 100)
    monkeypatch.setattr("treekit.serve.http.logs._FLUSH_SECONDS", 0.2)
    lines, gate = Lines(), threading.Event()

    def block(data: bytes) -> int:
        assert gate.wait(10)
        return lines._take(data)

    lines.collect("json", block)
    assert lines.handler is not None
    start = time.monotonic()
    log_many(1000)
    lines.handler.flush()
    assert time.monotonic() - start < 2
    gate.set()
    monkeypatch.setattr("treekit.serve.http.logs._FLUSH_SECONDS", 5.0)
    lines.handler.flush()
    log_event("event", "after")
    told = lines.json
    kept = sum(line["event"] == "request" for line in told)
    lost = next(line for line in told if line["event"] == "lost")
    assert 100 <= kept < 300
    assert lost["message"].startswith(f"{1000 - kept} lines were lost")
    assert told[-1]["message"] == "after"


def test_closed_stderr_loses_only_log_lines() -> None:
    reader, pipe = os.pipe()
    os.close(reader)
    lines = Lines()
    lines.collect("json", lambda data: os.write(pipe, data))
    assert lines.handler is not None
    for _ in range(3):
        log_event("event", "x")
        lines.handler.flush()
    os.close(pipe)


def test_partial_writes_are_continued() -> None:
    lines, turns = Lines(), iter([True, False, True])

    def some(data: bytes) -> int:
        if next(turns, False):
            raise BlockingIOError
        return lines._take(data[:7])

    lines.collect("text", some)
    log_event("event", "0123456789abcdef")
    assert [line.split(" ", 1)[1] for line in lines.text] == ["info    0123456789abcdef"]


def test_slow_reader_gets_all_queued_log_lines_at_close() -> None:
    lines = Lines()

    def slow(data: bytes) -> int:
        time.sleep(0.005)
        return lines._take(data)

    lines.collect("text", slow)
    assert lines.handler is not None
    log_many(2000)
    lines.handler.close()
    assert lines.data.count(b"\n") == 2000


SCRIPT = """
import os, sys, time
from treekit.serve.http.logs import configure_logging, log_event
handler = configure_logging("json")
log_event("before", "parent")
handler.flush()
{work}
"""


def _run(work: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(work=work)], timeout=60, check=False, **how
    )


@pytest.mark.system
def test_queued_lines_are_written_at_exit() -> None:
    done = _run("log_event('last', 'word'); sys.exit(0)", stderr=subprocess.PIPE)
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["before", "last"]


@pytest.mark.system
def test_process_ends_if_nobody_reads_its_stderr() -> None:
    work = """
from treekit.serve.http import logs
logs._FLUSH_SECONDS = 0.5
for _ in range(100):
    log_event('event', 'x' * 4000)
"""
    started = subprocess.Popen([sys.executable, "-c", SCRIPT.format(work=work)], stderr=-1)
    try:
        assert started.wait(20) == 0
    finally:
        started.kill()
        started.communicate()


@pytest.mark.system
def test_process_started_without_stderr_does_not_write_to_another_file(tmp_path: Path) -> None:
    # Descriptor 2 is what is opened first, then.
    script = SCRIPT.format(work="log_event('event', 'x')")
    path = tmp_path / "file"
    code = f"stream = open({str(path)!r}, 'w'); assert stream.fileno() == 2, stream.fileno()"
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code + script],
        timeout=60,
        check=False,
        stdout=subprocess.PIPE,
    )
    assert done.returncode == 0
    assert path.read_bytes() == b""


# ---------------------------------------------------------------- serve gate metrics
# What Prometheus reads of a server, by its own parser.

NAMES = ['a"b', "a\\b", "a\nb", '{x="y"}', "名前"]


@pytest.fixture
def serve_gate_metrics_service(tmp_path: Path) -> Any:
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


def record(model: str = "", version: str = "", rows: int = 0) -> RequestRecord:
    return _record(model=model, version=version, rows=rows)


def test_requests_rows_errors_and_models_are_counted(serve_gate_metrics_service: Any) -> None:
    app = make_gate_app(serve_gate_metrics_service)
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


def test_request_durations_are_counted_in_histogram_buckets(
    serve_gate_metrics_service: Any,
) -> None:
    metrics = Metrics(serve_gate_metrics_service)
    for seconds in (0.0001, 0.001, 0.0011, 60.0):
        metrics.count_request("infer", record("m", "1", 1), seconds)
    found = samples(metrics.render()[0].decode())
    name, labels = "treekit_request_duration_seconds", {"endpoint": "infer", "model": "m"}
    assert value(found, f"{name}_sum", **labels) == pytest.approx(60.0022)
    reached = [
        value(found, f"{name}_bucket", le=bound, **labels)
        for bound in ("0.00025", "0.001", "0.0025", "30.0", "+Inf")
    ]
    assert reached == [1, 2, 3, 3, 4]


def test_requests_in_progress_are_counted(serve_gate_metrics_service: Any) -> None:
    hold = threading.Event()
    next(serve_gate_metrics_service.repository.served).meanwhile = lambda: hold.wait(10)
    app = make_gate_app(serve_gate_metrics_service)

    async def run() -> tuple[str, str]:
        held = asyncio.create_task(ask_async(app, "POST", INFER, json=rows(1)))
        while not app._working.records:
            await asyncio.sleep(0.01)
        during = (await ask_async(app, "GET", "/metrics")).text
        hold.set()
        await held
        return during, (await ask_async(app, "GET", "/metrics")).text

    during, after = (samples(text) for text in asyncio.run(run()))
    assert value(during, "treekit_requests_in_progress") == 2
    assert value(after, "treekit_requests_in_progress") == 1


def test_changes_of_models_are_counted(serve_gate_metrics_service: Any) -> None:
    app = make_gate_app(serve_gate_metrics_service)
    serve_gate_metrics_service.repository.unload("twice")
    after_unload = samples(ask(app, "GET", "/metrics").text)
    assert not any(name == "treekit_model_info" for name, *_ in after_unload)
    serve_gate_metrics_service.repository.load("twice")
    found = samples(ask(app, "GET", "/metrics").text)
    for outcome in ("unloaded", "loaded"):
        name = "treekit_model_changes_total"
        assert value(found, name, model="twice", outcome=outcome) == 1
    assert any(name == "treekit_model_info" for name, *_ in found)


def test_metrics_report_an_unusable_file_until_it_is_repaired(tmp_path: Path) -> None:
    (tmp_path / "bad.treekit").write_bytes(b"no model")
    repository = Repository([tmp_path])
    repository.refresh()
    app = make_gate_app(Service(repository))
    assert 'treekit_model_refused{model="bad",version=""} 1.0' in ask(app, "GET", "/metrics").text
    (tmp_path / "bad.treekit").unlink()
    repository.refresh()
    assert "treekit_model_refused{" not in ask(app, "GET", "/metrics").text
    answer = ask(app, "POST", "/predict", json=[{"x": 1}])
    assert (answer.status_code, "this server has no model yet" in answer.text) == (404, True)


def test_openmetrics_is_returned_on_request(serve_gate_metrics_service: Any) -> None:
    app = make_gate_app(serve_gate_metrics_service)
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
def test_hostile_model_names_are_escaped_in_metric_labels(
    serve_gate_metrics_service: Any, name: str
) -> None:
    metrics = Metrics(serve_gate_metrics_service)
    metrics.count_request("infer", record(name, "1", 2), 0.1)
    found = samples(metrics.render()[0].decode())
    assert value(found, "treekit_rows_total", model=name, version="1") == 2


def test_unknown_models_create_no_metric_labels(serve_gate_metrics_service: Any) -> None:
    app = make_gate_app(serve_gate_metrics_service)
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


def test_number_of_versions_in_metrics_is_bounded(
    serve_gate_metrics_service: Any,
) -> None:
    metrics = Metrics(serve_gate_metrics_service)
    for number in range(1000):
        metrics.count_request("infer", record("m", f"v{number}", 1), 0.1)
    found = samples(metrics.render()[0].decode())
    kept = [key for key in found if key[0] == "treekit_rows_total"]
    assert len(kept) == 64
    assert value(found, "treekit_rows_total", model="m", version="v999") == 1


def test_request_paths_are_grouped_into_few_endpoints(serve_gate_metrics_service: Any) -> None:
    app = make_gate_app(serve_gate_metrics_service)
    for path, kind in (
        ("/v2/models/twice/versions/1/infer", "infer"),
        ("/v2/models/m/ready", "ready"),
        ("/v2/models/m/versions/2", "model"),
        ("/v2/health/live", "health"),
        ("/v2/repository/index", "repository"),
        ("/predict", "predict"),
        ("/explain", "explain"),
        ("/models", "models"),
        ("/models/m/rules", "rules"),
        ("/models/m/tree.svg", "picture"),
        ("/openapi.json", "description"),
        ("/page.js", "page"),
        ("/etc/passwd", "other"),
    ):
        ask(app, "GET", path)
        found = samples(ask(app, "GET", "/metrics").text)
        count = "treekit_request_duration_seconds_count"
        assert value(found, count, endpoint=kind, model="") == 1, path


WORKER = """
import json, sys
from pathlib import Path
from tests.serving_gate import Twice, service_of
from treekit.serve.scheduling import RequestRecord
from treekit.serve.http.metrics import Metrics
from treekit.serve.models.repository import Repository
from treekit.serve.models.repository import Change
service = service_of(Twice(), folder=Path(sys.argv[1]))
metrics = Metrics(service)
working = service.working
working.begin(RequestRecord(id="id"))
for number in range(70):
    record = RequestRecord(id="id")
    record.model, record.version = "m", f"v{number % int(sys.argv[2])}"
    record.rows, record.status = 2, 200
    metrics.count_request("infer", record, 0.01)
record = RequestRecord(id="id")
record.served, record.status = next(service.repository.served), 400
metrics.count_request("infer", record, 0.01)
metrics.count_changes([Change("m", "v1", "replaced")])
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(metrics.render()[0].decode()), flush=True)
"""


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="of processes Linux alone tells here")
def test_metrics_sum_the_counts_of_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treekit.serve.http.metrics import FOLDER_VARIABLE, forget_process, shared_metrics

    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    models = tmp_path / "models"
    models.mkdir()
    with shared_metrics(1):
        assert FOLDER_VARIABLE not in os.environ
    with shared_metrics(2):
        folder = Path(os.environ[FOLDER_VARIABLE])
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
            failures = "treekit_inference_failures_total"
            assert value(found, failures, model="twice", version="1") == 2
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
    assert FOLDER_VARIABLE not in os.environ


def _asked(worker: Any) -> dict[Any, float]:
    worker.stdin.write("?\n")
    worker.stdin.flush()
    return samples(json.loads(worker.stdout.readline()))


def _resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.system
def test_missing_server_libraries_name_the_extra_to_install() -> None:
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
        "prometheus_client": "http.app",
        "uvicorn": "process.worker",
    }
    done = subprocess.run(
        [sys.executable, "-c", code, *map(":".join, missing.items())],
        env=dict(os.environ) | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE, text=True, check=True, timeout=60,
    )  # fmt: skip
    for library, told in zip(missing, done.stdout.splitlines(), strict=True):
        assert told.startswith(f"{library} MissingExtraError")
        assert "treekit-ml[serve]" in told


def test_flushing_a_closed_log_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treekit.serve.http.logs._FLUSH_SECONDS", 60.0)
    handler = LineHandler("text", write=len)
    handler.close()
    handler.emit(logging.LogRecord("late", logging.ERROR, "", 0, "too late", None, None))
    waiting = threading.Thread(target=handler.flush, daemon=True)
    waiting.start()
    waiting.join(2)
    assert not waiting.is_alive()
