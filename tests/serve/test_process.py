"""``treekit serve`` as a process: options, output, signals, workers, TLS."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click.testing
import httpx
import pytest
import uvicorn

from tests.serving import (
    ROOT,
    ServerProcess,
    children,
    infer_body,
    save_forest,
    server_process,
    server_thread,
    service_of,
)
from tests.serving_gate import Lines
from treekit.cli import main
from treekit.errors import SettingError
from treekit.serve.http.app import make_app
from treekit.serve.process.run import (
    bind_sockets,
    get_server_url,
    handle_signals,
    is_loopback,
    log_addresses,
)
from treekit.serve.process.worker import EXIT_SECONDS, load_models, refuse_connections
from treekit.serve.settings import ServeSettings

# ---------------------------------------------------------------- serve run

posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
ONE_ROW = infer_body((0.5, 0.25))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "said.treekit"
    save_forest(path)
    return path


def connect(url: str, timeout: float = 20) -> Any:
    """A connection that is kept alive, for a `with`."""
    place = url.removeprefix("http://")
    return contextlib.closing(http.client.HTTPConnection(place, timeout=timeout))


def ask(connection: http.client.HTTPConnection, body: bytes = ONE_ROW) -> tuple[int, Any, bool]:
    """Status and JSON of an answer, and whether the server closes the connection after it."""
    connection.request("POST", "/v2/models/said/infer", body)
    answer = connection.getresponse()
    closing = answer.getheader("connection") == "close"
    return answer.status, json.loads(answer.read()), closing


def ask_once(url: str) -> tuple[int, Any]:
    with connect(url) as connection:
        return ask(connection)[:2]


def wait_until(happens: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


# ---------------------------------------------------------------- the command


def serve_refused(*args: object) -> str:
    """What `treekit serve` says when it does not start."""
    done = click.testing.CliRunner().invoke(main, ["serve", *map(str, args)])
    assert done.exit_code == 2, done.output
    return done.stderr


def test_help_has_examples_and_exit_codes():
    done = click.testing.CliRunner().invoke(main, ["serve", "--help"])
    assert done.exit_code == 0
    for told in (
        "treekit serve iris.treekit",
        "/v2/models/iris/infer",
        "Exit codes: 0",
        "--control",
        "/predict -d",
    ):
        assert told in done.output


def test_help_states_the_actual_limits():
    from treekit.serve.settings import Limits

    told = click.testing.CliRunner().invoke(main, ["serve", "--help"]).output
    for name, flag in zip(
        Limits.__struct_fields__,
        ("body", "rows", "explained", "seconds", "requests"),
        strict=True,
    ):
        option = " ".join(told.split(f"--max-{flag} ")[1].split("\n  --")[0].split())
        assert f"[default: {getattr(Limits(), name):.0f}]" in option


def test_help_paragraph_has_no_gaps():
    told = click.testing.CliRunner().invoke(main, ["serve", "--help"]).output
    about = told.split("  A folder contains")[1].split("Examples:")[0]
    assert "   " not in " ".join(line.strip() for line in about.splitlines())


def test_the_command_line_becomes_settings():
    from treekit.cli.serve import make_serve_settings, serve_command

    line = (
        "m --port 9 --workers 3 --max-body 7 --max-seconds 1.5 --allow-host a "
        "--allow-host b --log json --control --grpc-port 0"
    )
    context = serve_command.make_context("serve", line.split())
    sources = context.params.pop("sources")
    settings = make_serve_settings(sources, context.params)
    assert settings.sources == ("m",)
    assert (settings.port, settings.workers, settings.grpc_port) == (9, 3, 0)
    assert (settings.limits.body_bytes, settings.limits.seconds) == (7, 1.5)
    assert settings.limits.rows == ServeSettings(("m",)).limits.rows
    assert settings.allow_hosts == ("a", "b")
    assert (settings.log, settings.control) == ("json", True)


def test_command_line_without_options_uses_the_default_settings():
    from treekit.cli.serve import make_serve_settings, serve_command

    context = serve_command.make_context("serve", ["m"])
    sources = context.params.pop("sources")
    assert make_serve_settings(sources, context.params) == ServeSettings(("m",))


# ------------------------------------------------------------------- refusals


def test_missing_files_are_refused(tmp_path, model):
    gone = tmp_path / "gone.treekit"
    assert f"there is no model file or folder {str(gone)!r}" in serve_refused(model, gone)


def test_files_that_are_not_models_are_refused_with_the_reason(tmp_path, model):
    other = tmp_path / "notes.txt"
    other.write_text("no model")
    assert "is not a model file of treekit; give .treekit files, or folders" in serve_refused(other)
    bad = tmp_path / "bad.treekit"
    bad.write_bytes(model.read_bytes()[:1000])
    said = serve_refused(model, bad, "--port", 0)
    assert str(bad) in said
    assert "Error:" in said


def test_two_models_of_one_name_are_refused(tmp_path, model):
    twin = tmp_path / model.name
    shutil.copy(model, twin)
    assert "are both model 'said'; rename one" in serve_refused(model, twin)


def test_a_port_in_use_is_reported(model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} of 127.0.0.1 is in use" in serve_refused(model, "--port", port)
        said = serve_refused(model, "--port", port, "--workers", 2)
        assert said.count("is in use") == 1


def test_host_of_another_machine_is_refused(model):
    assert "is not an address of this machine" in serve_refused(model, "--host", "192.0.2.1")
    assert "has no address" in serve_refused(model, "--host", "nobody.invalid")
    # An unset variable of a script must not open a server to all.
    assert "the host is empty" in serve_refused(model, "--host", "")


def test_a_folder_that_stays_empty_is_refused(tmp_path):
    assert "reloading is disabled" in serve_refused(tmp_path, "--reload", 0)


def test_equal_http_and_grpc_ports_are_refused(model):
    assert "HTTP and gRPC have the same port 18599" in serve_refused(
        model, "--port", 18599, "--grpc-port", 18599
    )


@pytest.mark.system
def test_control_with_several_workers_is_refused(model):
    assert "--control needs one worker" in serve_refused(model, "--control", "--workers", 2)


def test_an_install_without_extras_names_the_extra(model):
    script = """
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(name)
import importlib.util
ABSENT = {"starlette", "uvicorn", "httptools", "prometheus_client", "grpc"}
sys.meta_path.insert(0, Absent())
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *own: None if name in ABSENT else found(name, *own)
from treekit.cli import main
main(["serve", *sys.argv[1:]], prog_name="treekit")
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(model), "--port", "0"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'treekit-ml[serve]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("library", "extra"), [("uvicorn", "serve"), ("grpc", "grpc"), ("grpc_health", "grpc")]
)
def test_a_missing_library_is_reported_with_its_extra(model, monkeypatch, library, extra):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == library else real(name)
    )
    assert f"pip install 'treekit-ml[{extra}]'" in serve_refused(model, "--grpc-port", 0)


# ------------------------------------------------------------------ its words


def collect_log_lines(**settings: Any) -> list[dict[str, Any]]:
    """What a server of these settings says of its addresses."""
    lines = Lines()
    lines.collect()
    with socket.create_server(("127.0.0.1", 0)) as opened:
        log_addresses(ServeSettings(("m",), **settings), [opened], 5)
    return lines.json


@pytest.mark.system
def test_a_server_prints_models_page_start_and_stop(model):
    with server_process(model) as running:
        url = running.url
        assert running.end() == 0
    said = [line.split(maxsplit=2)[1:] for line in running.lines]
    said = [one for one in said if "loading models" not in one[1]]  # a machine that is slow
    assert [level for level, _ in said] == ["info"] * 4
    assert re.fullmatch(r"model 'said' [0-9a-f]{12} is loaded", said[0][1])
    assert [message for _, message in said[1:]] == [
        f"web page at {url}/",
        f"listening on {url}",
        "the server has stopped",
    ]


def test_a_public_server_without_a_token_warns():
    open_to_all = [line for line in collect_log_lines(host="0.0.0.0") if line["level"] == "warning"]
    assert [line["event"] for line in open_to_all] == ["open"]
    assert "--token-file" in open_to_all[0]["message"]
    for host, token in (("0.0.0.0", "token"), ("127.0.0.1", None), ("::1", None)):
        lines = collect_log_lines(host=host, token_file=token)
        assert not [line for line in lines if line["level"] == "warning"]


def test_printed_page_url_of_a_server_on_all_addresses_is_a_local_one():
    lines = {line["event"]: line for line in collect_log_lines(host="0.0.0.0")}
    assert lines["page"]["url"].startswith("http://127.0.0.1:")
    assert lines["listening"]["url"].startswith("http://0.0.0.0:")
    assert lines["listening-grpc"]["port"] == 5


def test_addresses_are_written_as_clients_write_them():
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port = opened.getsockname()[1]
        six = ServeSettings(("m",), host="::1", tls_cert="c", tls_key="k")
        assert get_server_url(six, [opened]) == f"https://[::1]:{port}"
    assert is_loopback("127.0.0.9")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("nobody.invalid")


def test_all_addresses_of_a_host_have_one_port(monkeypatch):
    here = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.2")]
    monkeypatch.setattr("treekit.serve.process.run._resolve_host", lambda host: here)
    sockets = bind_sockets("both", 0)
    try:
        (one, port), (other, same) = (opened.getsockname() for opened in sockets)
        assert (one, other) == ("127.0.0.1", "127.0.0.2")
        assert port == same != 0
    finally:
        for opened in sockets:
            opened.close()


@pytest.mark.system
def test_json_log_lines_are_machine_readable(model):
    with server_process(model, "--log", "json") as running:
        lines = [json.loads(line) for line in running.lines]
        lines = [line for line in lines if line["event"] != "loading"]  # a machine that is slow
        assert running.end() == 0
        assert json.loads(running.lines[-1])["event"] == "stopped"
    assert [line["event"] for line in lines] == ["model-loaded", "page", "listening"]
    assert lines[0]["model"] == "said"
    assert lines[2]["url"].startswith("http://127.0.0.1:")
    assert {line["level"] for line in lines} == {"info"}
    assert all(line["time"].endswith("Z") for line in lines)


@pytest.mark.system
def test_grpc_calls_are_logged_and_counted(model):
    from tritonclient.grpc import InferenceServerClient
    from tritonclient.utils import InferenceServerException

    with server_process(model, "--log", "json", "--grpc-port", 0) as running:
        port = running.wait_for('"event": "listening-grpc", "port": ([0-9]+)')[1]
        with InferenceServerClient(f"127.0.0.1:{port}") as client:
            assert client.get_model_metadata("said").name == "said"
            with pytest.raises(InferenceServerException, match="no inputs"):
                client.infer("said", [])
            [told] = client.get_inference_statistics("said").model_stats
            assert (told.inference_stats.fail.count, told.inference_stats.success.count) == (1, 0)
            assert told.inference_stats.fail.ns > 0
        line = json.loads(running.wait_for('^.*"path": "ModelMetadata".*$')[0])
        counted = httpx.get(f"{running.url}/metrics").text
    assert (line["method"], line["status"], line["client"]) == ("gRPC", 200, "127.0.0.1")
    assert 'seconds_count{endpoint="ModelMetadata",model=""} 1.0' in counted


# -------------------------------------------------------- folders at the start


@pytest.mark.system
def test_invalid_model_file_makes_the_server_not_ready_but_others_serve(tmp_path, model):
    shutil.copy(model, tmp_path / "said.treekit")
    (tmp_path / "bad.treekit").write_text("no model")
    with server_process(tmp_path, "--reload", 0.05) as running:
        assert "error   model 'bad' was rejected: " in running.said
        assert httpx.get(f"{running.url}/v2/health/live").status_code == 200
        assert httpx.get(f"{running.url}/v2/health/ready").status_code == 503
        assert ask_once(running.url)[0] == 200
        (tmp_path / "bad.treekit").unlink()
        wait_until(lambda: httpx.get(f"{running.url}/v2/health/ready").status_code == 200)
        running.wait_for("model 'bad'  ?is removed")


@pytest.mark.system
def test_an_empty_folder_waits_for_its_first_model(tmp_path, model):
    with server_process(tmp_path, "--reload", 0.05) as running:
        assert "warning no model found yet" in running.said
        assert httpx.get(f"{running.url}/v2/health/ready").status_code == 503
        shutil.copy(model, tmp_path / ".draft")
        (tmp_path / ".draft").rename(tmp_path / "said.treekit")
        wait_until(lambda: httpx.get(f"{running.url}/v2/health/ready").status_code == 200)
        assert ask_once(running.url)[0] == 200


# ------------------------------------------------------------------------ TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two self-made certificates, and an encrypted key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("one", "two"):
        line = (
            f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
            f"-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 "
            f"-keyout {folder}/{name}.key -out {folder}/{name}.pem"
        )
        subprocess.run(line.split(), check=True, capture_output=True)
    line = f"openssl ec -in {folder}/one.key -aes128 -passout pass:secret -out {folder}/locked.key"
    subprocess.run(line.split(), check=True, capture_output=True)
    return folder


@pytest.mark.system
def test_a_server_with_a_certificate_serves_https(model, certificates):
    cert, key = certificates / "one.pem", certificates / "one.key"
    with server_process(model, "--tls-cert", cert, "--tls-key", key) as running:
        assert running.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(cert))
        answer = httpx.get(f"{running.url}/v2/models/said", verify=trusted)
        assert answer.json()["name"] == "said"
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{running.url}/v2/models/said", verify=ssl.create_default_context())
        assert running.end() == 0


@pytest.mark.system
def test_invalid_or_mismatched_certificates_are_refused(model, certificates, tmp_path):
    cert, key = certificates / "one.pem", certificates / "one.key"
    assert "a TLS certificate was given without --tls-key" in serve_refused(
        model, "--tls-cert", cert
    )
    assert "a TLS key was given without --tls-cert" in serve_refused(model, "--tls-key", key)
    for pair in (
        (cert, certificates / "two.key"),
        (cert, certificates / "locked.key"),
        (key, cert),
    ):
        said = serve_refused(model, "--tls-cert", pair[0], "--tls-key", pair[1])
        assert "are not a certificate and its key" in said
    gone = tmp_path / "gone.pem"
    said = serve_refused(model, "--tls-cert", gone, "--tls-key", key)
    assert f"{str(gone)!r} and {str(key)!r} are not a certificate and its key (No such file" in said


# -------------------------------------------------------------------- the end


@pytest.fixture
def default_signals():
    """Set the default action of SIGHUP, which nohup ignores, for the programs of a test."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.system
@posix
@pytest.mark.parametrize(("name", "workers"), [("SIGINT", 1), ("SIGHUP", 1), ("SIGINT", 2)])
def test_ctrl_c_and_a_closed_terminal_stop_a_server_with_exit_code_0(
    model, name, workers, default_signals
):
    with server_process(model, "--workers", workers) as running:
        assert ask_once(running.url)[0] == 200
        running.process.send_signal(getattr(signal, name))
        assert running.wait() == 0
        assert "Traceback" not in running.said
        assert running.lines[-1].endswith("info    the server has stopped")


@pytest.mark.system
@posix
def test_active_clients_lose_no_response_when_a_server_stops(model):
    """Each learns with an answer that the connection closes after it."""
    trouble: list[Exception] = []
    answered = []

    def work(url: str) -> None:
        try:
            with connect(url) as connection:
                closing = False
                while not closing:
                    status, answer, closing = ask(connection)
                    assert status == 200, answer
                    answered.append(closing)
        except (AssertionError, OSError, http.client.HTTPException, ValueError) as error:
            trouble.append(error)

    with server_process(model) as running:
        threads = [threading.Thread(target=work, args=(running.url,)) for _ in range(12)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(answered) > 200)
        running.process.terminate()
        for thread in threads:
            thread.join(20)
        assert running.wait() == 0
    assert trouble == []
    assert answered.count(True) == len(threads)


@pytest.mark.skipif(sys.platform != "linux", reason="a filter of Linux")
def test_queued_connections_are_accepted_after_new_ones_are_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address, timeout=5) as waiting:
            waiting.sendall(b"sent before")
            refuse_connections(listener)
            with pytest.raises(OSError, match="timed out"):
                socket.create_connection(address, timeout=0.2)
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.recv(100) == b"sent before"
                waiting.sendall(b"sent after")
                assert accepted.recv(100) == b"sent after"
    refuse_connections(listener)  # closed


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere waiting connections are reset")
@pytest.mark.parametrize("workers", [1, 2])
def test_accepted_connections_are_answered_when_a_server_stops(model, workers):
    """Each client opens a connection for each request, until none can be opened."""
    answered: list[int] = []
    trouble: list[Exception] = []

    def work(url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        while True:
            try:
                opened = socket.create_connection((host, int(port)), timeout=10)
            except OSError:
                return  # refused
            connection = http.client.HTTPConnection(host, int(port))
            connection.sock = opened
            with contextlib.closing(connection):
                try:
                    answered.append(ask(connection)[0])
                except (OSError, http.client.HTTPException) as error:
                    trouble.append(error)

    with server_process(model, "--workers", workers) as running:
        threads = [threading.Thread(target=work, args=(running.url,)) for _ in range(24)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(answered) > 400)
        running.process.terminate()
        for thread in threads:
            thread.join(20)
        assert running.wait() == 0
    assert trouble == []
    assert set(answered) == {200}


def test_idle_connection_is_answered_shortly_after_uvicorn_stops(model) -> None:
    from treekit.serve.process.worker import make_config

    app = make_app(service_of(model))
    server = uvicorn.Server(make_config(app, ServeSettings(("-",)), host="127.0.0.1", port=0))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    url = "http://{}:{}".format(*server.servers[0].sockets[0].getsockname())
    with connect(url) as connection:
        connection.connect()
        time.sleep(0.1)
        server.should_exit = True
        wait_until(lambda: refused(url))
        assert ask(connection)[0] == 200
    thread.join(20)
    assert not thread.is_alive()


def half_sent(url: str) -> socket.socket:
    """A connection whose request has begun, and lacks the end of its body."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    head = f"POST /v2/models/said/infer HTTP/1.1\r\nhost: {host}:{port}\r\n"
    head += f"content-length: {len(ONE_ROW)}\r\n\r\n"
    connection.sendall(head.encode() + ONE_ROW[:20])
    return connection


@pytest.mark.system
@posix
@pytest.mark.parametrize("workers", [1, 2])
def test_stopping_server_answers_begun_requests_and_refuses_new_ones(model, workers):
    with (
        server_process(model, "--workers", workers) as running,
        half_sent(running.url) as begun,
        connect(running.url) as idle,
    ):
        assert ask(idle)[2] is False
        running.process.terminate()
        wait_until(lambda: refused(running.url), 10)
        assert running.process.poll() is None
        begun.sendall(ONE_ROW[20:])
        answer = http.client.HTTPResponse(begun)
        answer.begin()
        assert answer.status == 200
        assert answer.getheader("connection") == "close"
        assert json.loads(answer.read())["model_name"] == "said"
        answer.close()
        begun.close()
        assert running.wait() == 0
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            ask(idle)


def refused(url: str) -> bool:
    try:
        with connect(url, 1) as connection:
            connection.connect()
    except OSError:
        return True
    return False


@pytest.mark.system
@posix
def test_stopping_server_is_not_ready(model):
    with (
        server_process(model) as running,
        half_sent(running.url) as begun,
        connect(running.url) as watching,
    ):
        watching.connect()
        running.process.terminate()
        time.sleep(0.15)
        watching.request("GET", "/v2/health/ready")
        assert watching.getresponse().status == 503
        begun.close()
        assert running.wait() == 0


@pytest.mark.system
@posix
def test_stopping_server_waits_max_seconds_for_an_incomplete_request(model):
    with server_process(model, "--max-seconds", 1) as running, half_sent(running.url):
        time.sleep(0.1)
        started = time.monotonic()
        running.process.terminate()
        assert running.wait() == 0
        assert 0.5 < time.monotonic() - started < 4


STUCK = """
import sys, time
from treekit.serve.models.served_model import Served
from treekit.serve.process.run import serve
from treekit.serve.settings import Limits, ServeSettings

compute = Served.compute_outputs

def stick(self, matrix, wanted):
    while len(matrix) == 5000:
        time.sleep(0.1)
    return compute(self, matrix, wanted)

Served.compute_outputs = stick
Served.fast_path = property(lambda self: None, lambda self, value: None)

if __name__ == "__main__":
    limits = Limits(seconds=0.5)
    serve(ServeSettings((sys.argv[1],), port=0, workers=int(sys.argv[2]), limits=limits))
"""


@pytest.mark.system
@posix
@pytest.mark.parametrize("workers", [1, 2])
def test_server_stops_within_its_grace_period_despite_a_stuck_thread(model, workers, tmp_path):
    script = tmp_path / "stuck.py"
    script.write_text(STUCK)
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    log = tmp_path / "log"
    with log.open("wb") as stream:
        running = subprocess.Popen(
            [sys.executable, script, model, str(workers)], stderr=stream, env=env
        )
    try:
        wait_until(lambda: "listening on http" in log.read_text(), 60)
        url = re.search(r"listening on (\S+)", log.read_text())[1]  # type: ignore[index]
        with connect(url) as connection:
            status, answer, _ = ask(connection, infer_body(*[(0.5, 0.25)] * 5000))
        assert (status, "longer than 0.5 s" in answer["error"]) == (503, True)
        started = time.monotonic()
        running.terminate()
        assert running.wait(20) == 0
        assert 3 < time.monotonic() - started < 0.5 + EXIT_SECONDS + 2
    finally:
        running.kill()
    assert "the process ends while a thread still works" in log.read_text()


@pytest.mark.system
@posix
@pytest.mark.parametrize("workers", [1, 2])
def test_second_signal_stops_a_server_at_once(model, workers):
    with server_process(model, "--workers", workers) as running, half_sent(running.url):
        time.sleep(0.1)
        workers_of = children(running.process.pid)
        running.process.terminate()
        time.sleep(0.4)
        assert running.process.poll() is None
        started = time.monotonic()
        running.process.terminate()
        assert running.wait() == 128 + signal.SIGTERM
        assert time.monotonic() - started < 3
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers_of))


# ------------------------------------------------------------------- workers


@pytest.fixture(scope="module")
def two_workers(model: Path) -> Iterator[ServerProcess]:
    with server_process(model, "--workers", 2) as running:
        yield running


@pytest.mark.system
@posix
def test_a_dead_worker_is_reported_and_restarted(two_workers):
    _, second = children(two_workers.process.pid)
    os.kill(second, signal.SIGKILL)
    two_workers.wait_for(f"error   worker {second} ended: signal 9; restarting")
    assert ask_once(two_workers.url)[0] == 200  # the other one answers
    wait_until(lambda: len(set(children(two_workers.process.pid)) - {second}) == 2)
    for pid in children(two_workers.process.pid):
        two_workers.wait_for(f"worker {pid} is ready")


@pytest.mark.system
@posix
def test_workers_are_replaced_on_hup_without_a_lost_response(two_workers):
    before, answers, over = set(children(two_workers.process.pid)), [], threading.Event()

    def work() -> None:
        while not over.is_set():
            answers.append(ask_once(two_workers.url)[0])

    thread = threading.Thread(target=work)
    thread.start()
    two_workers.process.send_signal(signal.SIGHUP)
    wait_until(lambda: not before & set(children(two_workers.process.pid)), 60)
    over.set()
    thread.join(20)
    assert set(answers) == {200}
    wait_until(lambda: len(children(two_workers.process.pid)) == 2)


@pytest.mark.system
@posix
def test_new_workers_serve_the_last_valid_model_of_a_damaged_file(model, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(model, folder / "said.treekit")
    (tmp_path / "bad").write_bytes(model.read_bytes()[:-100])
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = os.environ | {"TMPDIR": str(temporary)}
    with server_process(folder, "--workers", 2, env=env) as running:
        version = ask_once(running.url)[1]["model_version"]
        (copies,) = temporary.glob("treekit-serve-*")
        assert copies.stat().st_mode & 0o777 == 0o700
        (tmp_path / "bad").replace(folder / "said.treekit")
        for _ in range(2):
            running.wait_for("is kept, as its new file was rejected")
        before = set(children(running.process.pid))
        running.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not before & set(children(running.process.pid)), 60)
        wait_until(lambda: running.said.count("is ready") >= 4)
        for pid in children(running.process.pid):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: running.said.count("is ready") >= 6, 60)
        answers = [ask_once(running.url) for _ in range(20)]
        assert {(status, said["model_version"]) for status, said in answers} == {(200, version)}
        save_forest(tmp_path / "good", seed=1)
        (tmp_path / "good").replace(folder / "said.treekit")
        wait_until(lambda: running.said.count("is replaced by version") >= 2)
        (folder / "said.treekit").unlink()
        wait_until(lambda: running.said.count("is removed") >= 2)
        running.process.send_signal(signal.SIGHUP)
        wait_until(lambda: running.said.count("is ready") >= 8, 60)
        assert {ask_once(running.url)[0] for _ in range(10)} == {404}
    assert not list(temporary.glob("treekit-serve-*"))


@pytest.mark.system
@posix
def test_restarted_worker_serves_the_last_version_of_a_detached_folder(model, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(model, folder / "said.treekit")
    with server_process(folder, "--workers", 2, "--reload", 0) as running:
        version = ask_once(running.url)[1]["model_version"]
        folder.rename(tmp_path / "elsewhere")
        for pid in children(running.process.pid):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: running.said.count("is ready") == 4, 60)
        assert running.said.count("checking model files failed") == 2
        status, answer = ask_once(running.url)
        assert (status, answer["model_version"]) == (200, version)


@pytest.mark.system
@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="no system to share ports on")
def test_workers_share_a_port_of_grpc_that_no_other_server_takes(model):
    grpc = pytest.importorskip("grpc")
    with server_process(model, "--workers", 2, "--grpc-port", 0) as running:
        place = running.wait_for(r"gRPC on (127\.0\.0\.1:\d+)")[1]
        for _ in range(4):
            with grpc.insecure_channel(place) as channel:
                grpc.channel_ready_future(channel).result(20)
        port = place.rpartition(":")[2]
        said = serve_refused(model, "--port", 0, "--workers", 2, "--grpc-port", port)
        assert f"port {port} of 127.0.0.1 is in use" in said
        assert running.end() == 0
        assert running.lines[-1].endswith("info    the server has stopped")


FAILING = """
import os, signal, sys
from treekit.cli import main
from treekit.errors import SettingError
from treekit.serve.process import worker

def end_by_signal(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def raise_error(*_):
    raise RuntimeError("not foreseen")

def raise_setting_error(*_):
    raise SettingError("of a setting\\ud800")

name = sys.argv[1]
if name in ("end_by_signal", "raise_error"):
    worker.load_models = globals()[name]
elif name == "raise_setting_error":  # when the service starts
    worker.ServiceProcess._start = raise_setting_error

if __name__ == "__main__" or name == "no_guard":
    main(["serve", sys.argv[2], "--port", "0", "--workers", "2"])
"""


@pytest.mark.system
@posix
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("end_by_signal", "a worker ended at startup: signal 9"),
        ("raise_error", "a worker ended at startup: exit code 1"),
        ("raise_setting_error", r"of a setting\ud800"),
        ("no_guard", "a worker ended at startup: exit code 1"),
    ],
)
def test_server_whose_workers_fail_at_startup_exits_with_the_reason(model, tmp_path, name, message):
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    done = subprocess.run(
        [sys.executable, script, name, model],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count(message) == 1
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert "listening" not in done.stderr


@pytest.mark.system
@posix
@pytest.mark.parametrize("workers", [1, 2])
def test_log_of_a_stopped_server_contains_all_requests(model, workers):
    with server_process(model, "--log", "json", "--workers", workers) as running:
        for _ in range(100):
            assert ask_once(running.url)[0] == 200
        [found] = httpx.get(f"{running.url}/v2/models/said/stats").json()["model_stats"]
        pids = children(running.process.pid)
        assert running.end() == 0
    assert found["execution_count"] == 100
    events = [json.loads(line) for line in running.lines]
    requests = [event["path"] for event in events if event["event"] == "request"]
    assert requests.count("/v2/models/said/infer") == 100
    assert sum(event["event"] == "model-loaded" for event in events) == 1
    assert [event["event"] for event in events][-1] == "stopped"
    started = {event["pid"] for event in events if event["event"] == "worker-started"}
    assert started == (set(pids) if workers > 1 else set())


@pytest.mark.system
def test_a_damaged_file_is_reported_once_by_several_workers(tmp_path):
    bad = tmp_path / "bad.treekit"
    bad.write_text("no model")
    running = ServerProcess(bad, "--port", 0, "--workers", 2)
    assert running.wait(60) == 2
    assert running.said.count("bad.treekit") == 1
    assert running.said.startswith("Error: ")


@pytest.mark.system
@posix
def test_workers_end_with_their_parent(model):
    with server_process(model, "--workers", 2) as running:
        pids = children(running.process.pid)
        assert len(pids) == 2
        running.process.kill()
        running.wait()
        wait_until(lambda: not any(alive(pid) for pid in pids))


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody took note of the end of does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ----------------------------------------------------------------- in a thread


def test_server_runs_in_a_thread_of_a_python_program(model):
    with server_thread(model) as url:
        status, answer = ask_once(url)
    assert (status, answer["model_name"]) == (200, "said")
    assert refused(url)


def test_serve_function_refuses_invalid_settings(model):

    from treekit.serve.process.run import serve

    with pytest.raises(SettingError, match="0 workers"):
        serve(ServeSettings((str(model),), workers=0))


def test_the_second_of_two_servers_on_one_port_is_reported() -> None:
    first = bind_sockets("127.0.0.1", 0)
    port = first[0].getsockname()[1]
    try:
        with pytest.raises(SettingError, match=f"port {port} of 127.0.0.1 is in use"):
            bind_sockets("127.0.0.1", port)
    finally:
        for opened in first:
            opened.close()


def test_a_grpc_port_in_use_is_reported(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "gRPC cannot listen on" in serve_refused(model, "--port", 0, "--grpc-port", port)


def test_a_slow_start_prints_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treekit.serve.process.worker._LOADING_SECONDS", 0.01)

    class Slow:
        def refresh(self) -> None:
            time.sleep(0.2)

        def refused_files(self) -> list[str]:
            return []

    lines = Lines()
    lines.collect()
    load_models(Slow())  # type: ignore[arg-type]
    assert [line["event"] for line in lines.json] == ["loading"]


# ---------------------------------------------------------------- serve stop
# What signals do to a server that runs in the main thread.


def test_first_signal_stops_gracefully_and_the_second_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    ends: list[str | int] = []
    with handle_signals(lambda: ends.append("gently"), ends.append):
        os.kill(os.getpid(), signal.SIGTERM)
        assert ends == ["gently"]
        os.kill(os.getpid(), signal.SIGINT)
        assert ends == ["gently", 128 + signal.SIGINT]
    assert signal.getsignal(signal.SIGTERM) is before
