"""``treekit predict --url``: the same file as without, and one clear line where it cannot be."""

from __future__ import annotations

import csv
import json
import re
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import treekit
from tests.serving import on_a_port, put_in_service, service_of
from tests.serving_rpc import app_server, certificate, grpc_server, scripted_server
from treekit.cli import main
from treekit.errors import SettingError
from treekit.serve import client as remote
from treekit.serve.client import Client, read_token
from treekit.serve.errors import RemoteError
from treekit.serve.http.app import make_app
from treekit.serve.models.served_model import Batch, Served
from treekit.serve.models.tensors import Spec, Tensor

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ROWS = 60
WORDS = ("oak", "3", "False", 'no, "really"', "行", "line\nbreak", " blank ")


def table_of(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerows([names, *rows])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of every kind of row and answer."""
    place = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=ROWS), rng.normal(size=ROWS) * 1e9
    words = [WORDS[i] for i in rng.integers(0, len(WORDS), ROWS)]
    high = a + 1e-9 * b > 0
    holes = [None if i % 7 == 0 else w for i, w in enumerate(words)]

    def save(name: str, table: dict[str, Any], target: Any = "y", **settings: Any) -> None:
        treekit.train(table, target, seed=1, **settings).save(place / f"{name}.treekit")

    numbers = {"a": a, "b": b}
    save("whole", {**numbers, "y": np.where(high, 2**62, -1)}, ensemble="forest", trees=7)
    save("bool", {**numbers, "y": high})
    save("real", {**numbers, "y": np.where(high, 0.1, 3.0)}, task="classification")
    save("double", {**numbers, "y": words}, dtype="float64")
    save("number", {**numbers, "y": a * b}, ensemble="forest", trees=3)
    save("mixed", {**numbers, "kind": holes, "y": words}, ensemble="forest", trees=3)
    save("marked", {"a": a, "kind": words, "y": high}, missing_marks=["none", "-999"])
    save("strict", {"a": a, "kind": words, "y": high}, missing="error", unknown="error")
    save("split", {"a": a, "kind": holes, "y": high}, missing="fractional")
    save("both", {"a": a, "y": words, "z": np.where(high, "p", "q")}, ["y", "z"])
    save("sums", {"a": a, "y": b, "z": a}, ["y", "z"])
    return place


CELLS = ("oak", "3", "3.0", "FALSE", "beech", "", "?", "行", "line\nbreak", "blank", " blank ")
NUMBERS = ("0.1", "-0", "1e400", "-inf", "", "NA", "1e-320", "7", "-3.25", "0.30000000000000004")


@pytest.fixture(scope="module")
def table(folder: Path) -> Path:
    """Cells as files have them, in another order than the models', and columns of no use."""
    rng = np.random.default_rng(3)
    rows = [
        (rng.choice(NUMBERS), "x", CELLS[rng.integers(len(CELLS))], rng.choice(NUMBERS))
        for _ in range(200)
    ]
    return table_of(folder.parent / "rows.csv", ("b", "of no use", "kind", "a"), rows)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with on_a_port(service_of(folder)) as place:
        yield f"http://{place}"


def predict(*arguments: object) -> SimpleNamespace:
    """What the command says: its bytes, its code, and its one line of error."""
    done = CliRunner().invoke(main, ["predict", *map(str, arguments)])
    return SimpleNamespace(out=done.stdout_bytes, code=done.exit_code, error=done.stderr)


def refusal(*arguments: object) -> str:
    done = predict(*arguments)
    assert done.code == 2, done
    assert done.out.count(b"\n") <= 1  # the names of columns, as without a server
    assert done.error.count("\n") == 1, done.error
    return done.error


# ------------------------------------------------------------------------ the same file

MODELS = ("whole", "bool", "real", "double", "number", "mixed", "split", "both", "sums")


@pytest.mark.parametrize("name", MODELS)
def test_the_file_is_the_same_to_the_byte(name: str, server: str, folder: Path, table: Path):
    for options in ([], ["--proba"])[: 1 if name in ("number", "sums") else 2]:
        there = predict(name, table, "--url", server, *options)
        here = predict(folder / f"{name}.treekit", table, *options)
        assert (there.code, there.error) == (here.code, here.error) == (0, "")
        assert there.out == here.out
        assert here.out.count(b"\n") > 200
        assert len(set(here.out.split(b"\n"))) > 3


def test_a_model_has_its_own_marks_of_missing_cells(server: str, folder: Path, tmp_path: Path):
    rows = table_of(
        tmp_path / "t.csv", ("a", "kind"), [(-999, "none"), (0.5, "oak"), ("none", "3")]
    )
    there = predict("marked", rows, "--url", server)
    assert there.out == predict(folder / "marked.treekit", rows).out
    assert there.code == 0
    other = table_of(tmp_path / "u.csv", ("a", "kind"), [("gone", "oak"), (0.5, "gone")])
    assert "'gone'" in refusal("marked", other, "--url", server)
    there = predict("marked", other, "--url", server, "--missing-marks", "gone")
    assert there.out == predict(folder / "marked.treekit", other, "--missing-marks", "gone").out
    assert there.code == 0


@pytest.mark.parametrize("row", [("", "oak"), ("1", "beech"), ("text", "oak")])
def test_what_the_model_refuses_is_refused_in_the_same_words(
    row: tuple[str, str], server: str, folder: Path, tmp_path: Path
):
    rows = table_of(tmp_path / "t.csv", ("a", "kind"), [("1", "oak")] * 30 + [row])
    said = refusal("strict", rows, "--url", server)
    assert said == predict(folder / "strict.treekit", rows).error
    assert "row 30" in said


def test_a_file_is_written_whole_or_not_at_all(server: str, table: Path, tmp_path: Path):
    out = tmp_path / "new" / "out.csv"
    assert predict("mixed", table, "--url", server, "-o", out).code == 0
    assert out.read_bytes() == predict("mixed", table, "--url", server).out
    assert "input of this command" in predict("mixed", table, "--url", server, "-o", table).error


@pytest.mark.parametrize("limits", [{"rows": 7}, {"body_bytes": 600}])
def test_a_server_that_takes_little_is_given_little(
    limits: dict[str, int], folder: Path, table: Path
):
    here = predict(folder / "mixed.treekit", table, "--proba").out
    with on_a_port(service_of(folder, **limits)) as place:
        assert predict("mixed", table, "--url", f"http://{place}", "--proba").out == here


def test_many_rows_go_in_parts(server: str, folder: Path, table: Path, monkeypatch: Any):
    sizes = []
    infer = Client.infer

    def counted(self: Client, path: Any, inputs: Any, outputs: Any) -> Any:
        sizes.append(len(inputs[0].cells))
        return infer(self, path, inputs, outputs)

    monkeypatch.setattr(Client, "infer", counted)
    monkeypatch.setattr(remote, "_ROWS", 64)
    here = predict(folder / "both.treekit", table, "--proba").out
    assert predict("both", table, "--url", server, "--proba").out == here
    assert sizes == [64, 64, 64, 8]
    sizes.clear()
    monkeypatch.setattr(remote, "_BYTES", 4 * 50)
    assert predict("both", table, "--url", server, "--proba").out == here
    assert sizes == [50, 50, 50, 50]


# -------------------------------------------------------------------- others' models


class Other(Served):
    """A model of which nothing but inputs and outputs is known."""

    name, version, digest, platform = "other", "3", "0" * 64, "onnxruntime_onnx"
    inputs = (Spec("n", "FP64", (-1, 1)), Spec("i", "INT32", (-1,)), Spec("s", "BYTES", (-1, 1)))
    outputs = (
        Spec("twice", "FP32", (-1,)),
        Spec("both", "INT64", (-1, 2)),
        Spec("s", "BYTES", (-1,)),
        Spec("no", "FP32", (-1,)),
    )
    usual = ("twice", "both", "s")

    def read(self, tensors: Sequence[Tensor]) -> Batch:
        assert [tensor.cells.ndim for tensor in tensors] == [2, 1, 2]
        return Batch(len(tensors[0].cells), tuple(tensor.cells.ravel() for tensor in tensors))

    def answer(self, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        n, i, s = batch.arrays
        told = {
            "twice": Tensor("twice", "FP32", (n * 2).astype(np.float32)),
            "both": Tensor("both", "INT64", np.stack([i, -i], axis=1).astype(np.int64)),
            "s": Tensor("s", "BYTES", s),
        }
        return [told[name] for name in wanted]


class Matrix(Other):
    """One that takes all columns as one."""

    name = "matrix"
    inputs = (Spec("X", "FP32", (-1, 2)),)
    outputs = (Spec("sum", "FP64", (-1, 1)),)
    usual = ("sum",)

    def read(self, tensors: Sequence[Tensor]) -> Batch:
        return Batch(len(tensors[0].cells), (tensors[0].cells,))

    def answer(self, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        return [Tensor("sum", "FP64", batch.arrays[0].sum(1, np.float64, keepdims=True))]


@pytest.fixture(scope="module")
def others(folder: Path) -> Iterator[str]:
    service = service_of(folder / "bool.treekit")
    put_in_service(service.repository, Other(), Matrix())
    with on_a_port(service) as place:
        yield f"http://{place}"


def test_the_outputs_of_others_are_columns(others: str, tmp_path: Path):
    rows = [("007", "1.5", "3"), ("", "", "-4"), ("a,b", "inf", "0")]
    path = table_of(tmp_path / "t.csv", ("s", "n", "i"), rows)
    assert predict("other", path, "--url", others).out.decode() == (
        'twice,both[0],both[1],s\n3.0,3,-3,007\nnan,-4,4,\ninf,0,0,"a,b"\n'
    )


def test_one_input_takes_all_columns_in_their_order(others: str, tmp_path: Path):
    path = table_of(tmp_path / "t.csv", ("p", "q"), [(1, 2), (0.5, 0.25)])
    assert predict("matrix", path, "--url", others).out == b"sum\n3.0\n0.75\n"
    wide = table_of(tmp_path / "u.csv", ("p", "q", "r"), [(1, 2, 3)])
    assert "3 columns" in refusal("matrix", wide, "--url", others)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([("a", "1", "1.5")], "1.5 in row 0"),
        ([("a", "1", "1"), ("a", "1", "")], "nan in row 1"),
        ([("a", "1", "3000000000")], "3000000000 in row 0"),
        ([("a", "text", "1")], "'text'"),
    ],
)
def test_cells_that_another_model_cannot_take_are_named(
    rows: list[tuple[str, ...]], text: str, others: str, tmp_path: Path
):
    path = table_of(tmp_path / "t.csv", ("s", "n", "i"), rows)
    assert text in refusal("other", path, "--url", others)


def test_columns_that_another_model_needs_are_named(others: str, tmp_path: Path):
    path = table_of(tmp_path / "t.csv", ("s", "m", "i"), [("a", 1, 1)])
    assert "no column 'n'" in refusal("other", path, "--url", others)
    assert "leave --proba out" in predict("other", path, "--url", others, "--proba").error


# ----------------------------------------------------------------- what cannot be done


def test_a_name_that_is_not_there_gets_those_that_are_near(server: str, table: Path):
    assert refusal("mixd", table, "--url", server) == (
        "Error: there is no model 'mixd'; did you mean 'mixed'?\n"
    )
    for name in ("", "..", "a/b", "行", "x" * 3000, "?"):
        assert predict(name, table, "--url", server).code == 2


def test_what_does_not_fit_together_is_said_before_anything_is_sent(table: Path, folder: Path):
    model = folder / "bool.treekit"
    for option in ("--token-file", "--ca-file"):
        assert "give its --url" in predict(model, table, option, table).error
    for url in (
        "127.0.0.1:80",
        "ftp://x",
        "http://",
        "http://x:port",
        "http://u:p@x",
        "http://x?y",
    ):
        assert repr(url) in refusal("bool", table, "--url", url)
        with pytest.raises(SettingError):
            Client(url)
    assert "without TLS" in refusal("bool", table, "--url", "http://x", "--ca-file", table)
    assert "no file of certificates" in refusal(
        "bool", table, "--url", "https://x", "--ca-file", table
    )


def test_probabilities_of_numbers_are_no_use(server: str, table: Path):
    assert "leave --proba out" in predict("number", table, "--url", server, "--proba").error


def test_a_server_that_is_not_there_is_said(table: Path):
    with scripted_server() as port:
        pass
    said = refusal("bool", table, "--url", f"http://127.0.0.1:{port}")
    assert said == (
        f"Error: cannot reach http://127.0.0.1:{port}: Connection refused; is a server running "
        "there?\n"
    )


def test_a_certificate_is_trusted_where_its_file_is_given(
    folder: Path, table: Path, tmp_path: Path
):
    cert, key = certificate(tmp_path)
    app = make_app(service_of(folder))
    here = predict(folder / "bool.treekit", table).out
    with app_server(app, ssl_certfile=cert, ssl_keyfile=key) as port:
        url = f"https://localhost:{port}"
        assert predict("bool", table, "--url", url, "--ca-file", cert).out == here
        assert "not accepted: self-signed certificate" in refusal("bool", table, "--url", url)
        (tmp_path / "other").mkdir()
        stranger, _ = certificate(tmp_path / "other")
        assert "not accepted" in refusal("bool", table, "--url", url, "--ca-file", stranger)
        assert refusal("bool", table, "--url", f"http://localhost:{port}")
    with on_a_port(service_of(folder)) as place:
        assert "no TLS" in refusal("bool", table, "--url", f"https://{place}")


def guarded(app: Any, refuse: Callable[[Any], tuple[int, dict[str, str]] | None]) -> Any:
    """The application behind one that may refuse."""

    async def guard(scope: Any, receive: Any, send: Any) -> None:
        found = refuse(scope)
        if found is None:
            await app(scope, receive, send)
            return
        status, headers = found
        given = [(k.encode(), v.encode()) for k, v in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": given})
        body = json.dumps({"error": f"refused with {status}"}).encode()
        await send({"type": "http.response.body", "body": body})

    return guard


def test_the_token_of_a_file_opens_the_server(folder: Path, table: Path, tmp_path: Path):
    def check(scope: Any) -> tuple[int, dict[str, str]] | None:
        given = dict(scope["headers"]).get(b"authorization")
        return None if given == b"Bearer a.b~c" else (401, {})

    token = tmp_path / "token"
    token.write_text("a.b~c\n", encoding="ascii")
    with app_server(guarded(make_app(service_of(folder)), check)) as port:
        url = f"http://127.0.0.1:{port}"
        here = predict(folder / "bool.treekit", table).out
        assert predict("bool", table, "--url", url, "--token-file", token).out == here
        assert refusal("bool", table, "--url", url) == (
            "Error: refused with 401; give its file by --token-file\n"
        )


@pytest.mark.parametrize("content", ["", "two words", "a\r\nHost: x", "é"])
def test_a_file_of_no_token_is_refused(content: str, tmp_path: Path, table: Path):
    path = tmp_path / "token"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SettingError, match="holds no token"):
        read_token(path)
    arguments = ("x", table, "--url", "http://127.0.0.1:1", "--token-file")
    assert "holds no token" in refusal(*arguments, path)
    assert "cannot read" in refusal(*arguments, tmp_path / "nothing")


def test_a_token_is_not_sent_in_clear_without_a_warning():
    with pytest.warns(treekit.errors.TreekitWarning, match="ask https"):
        Client("http://example.invalid", token="t")


def test_a_server_that_is_busy_is_asked_again_when_it_says(folder: Path, server: str):
    answers = [(429, {"retry-after": "2"}), (503, {}), (503, {"retry-after": "3600"}), None]
    waits: list[float] = []
    app = guarded(make_app(service_of(folder / "bool.treekit")), lambda scope: answers.pop(0))
    with app_server(app) as port:
        client = Client(f"http://127.0.0.1:{port}", sleep=waits.append)
        assert client.get("v2", "models", "bool")["name"] == "bool"
        client.close()
    assert waits == [2, 1, 30]


def test_a_server_that_stays_busy_is_left_alone(folder: Path):
    waits: list[float] = []
    app = guarded(None, lambda scope: (503, {}))
    with app_server(app) as port:
        client = Client(f"http://127.0.0.1:{port}", sleep=waits.append)
        with pytest.raises(RemoteError, match="refused with 503"):
            client.get("v2")
        client.close()
    assert waits == [0.5, 1, 2, 4, 8]


def test_other_refusals_are_final(folder: Path):
    app = guarded(None, lambda scope: (int(scope["path"].removeprefix("/v2/")), {}))
    with app_server(app) as port:
        client = Client(f"http://127.0.0.1:{port}", sleep=lambda seconds: pytest.fail("waits"))
        for status in (400, 403, 404, 418, 500):
            with pytest.raises(RemoteError, match=f"refused with {status}") as found:
                client.get("v2", str(status))
            assert found.value.status == status
        client.close()


def said(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def test_a_kept_connection_that_was_closed_is_made_anew():
    good = said(b'{"name": "x"}')
    with scripted_server([good, good], [good]) as port:
        client = Client(f"http://127.0.0.1:{port}")
        assert [client.get("v2")["name"] for _ in range(3)] == ["x"] * 3
        client.close()


def test_a_refusal_before_all_has_been_sent_is_read():
    refusal = said(b'{"error": "too much"}', status="413 Content Too Large")
    large = Tensor("x", "UINT8", np.zeros(8 << 20, np.uint8))
    with scripted_server([refusal]) as port:
        client = Client(f"http://127.0.0.1:{port}")
        with pytest.raises(RemoteError, match="too much") as found:
            client.infer(["v2", "models", "m"], [large], ["y"])
        client.close()
    assert found.value.status == 413


def test_a_model_that_is_replaced_meanwhile_gives_no_mixed_file(
    folder: Path, table: Path, tmp_path: Path, monkeypatch: Any
):
    place = tmp_path / "bool.treekit"
    place.write_bytes((folder / "bool.treekit").read_bytes())
    service = service_of(place)
    monkeypatch.setattr(remote, "_ROWS", 50)
    infer = Client.infer

    def late(self: Client, *given: Any) -> Any:
        found = infer(self, *given)
        place.write_bytes((folder / "whole.treekit").read_bytes())
        service.repository.load("bool")
        return found

    monkeypatch.setattr(Client, "infer", late)
    out = tmp_path / "out.csv"
    with on_a_port(service) as address:
        said = refusal("bool", table, "--url", f"http://{address}", "-o", out)
    assert "has no version" in said
    assert "was replaced while it was asked" in said
    assert not out.exists()


# ------------------------------------------------------------- servers of no good


COLUMN = {"name": "a"}
SCHEMA = {"columns": [COLUMN], "classes": ["p", "q"], "target": "y", "task": "classification"}
KNOWN = {"schema": json.dumps(SCHEMA), "missing": "direction", "unknown": "missing"}
LABEL = {"name": "label", "datatype": "BYTES", "shape": [2]}


def metadata(**changes: Any) -> bytes:
    told = {"name": "m", "versions": ["1"], "inputs": [], "outputs": [], "parameters": KNOWN}
    return said(json.dumps(told | changes).encode())


def schema(**changes: Any) -> list[bytes]:
    return [metadata(parameters=KNOWN | {"schema": json.dumps(SCHEMA | changes)})] * 2


def answer(data: bytes = b"", size: int | None = None, **changes: Any) -> list[bytes]:
    """All answers up to that of two rows, whose label has these bytes."""
    parameters = {"binary_data_size": len(data) if size is None else size}
    output = LABEL | {"parameters": parameters} | changes
    head = json.dumps({"model_name": "m", "outputs": [output]}).encode()
    length = f"Inference-Header-Content-Length: {len(head)}"
    return [metadata(), metadata(), said(head + data, length)]


BAD = {
    "no JSON": ([said(b"<html>")], "no JSON object"),
    "a list": ([said(b"[1]")], "no JSON object"),
    "deep JSON": ([said(b"[" * 100_000)], "no JSON object"),
    "no HTTP": ([b"SSH-2.0-OpenSSH\r\n\r\n"], "no HTTP"),
    "nothing": ([b""], "If it speaks TLS, its URL begins with https://"),
    "half an answer": ([said(b'{"name": "m"}')[:-4]], "ended early"),
    "an error of no JSON": ([said(b"oops", status="500 Oops")], "status 500"),
    "an error of control characters": (
        [said(b'{"error": "\\u001b[31mred"}', status="400 Bad")],
        "\\x1b[31mred",
    ),
    "versions of no list": ([metadata(versions=7)], "cannot be used"),
    "a schema without columns": (schema(columns=[]), "cannot be used"),
    "a schema of one name twice": (schema(columns=[COLUMN, COLUMN]), "cannot be used"),
    "a schema of no such member": (schema(nonsense=1), "cannot be used"),
    "no policies": ([metadata(parameters={"schema": json.dumps(SCHEMA)})] * 2, "cannot be used"),
    "no inputs": ([metadata(parameters={}, inputs=None)] * 2, "cannot be used"),
    "no bytes": (answer(parameters={}, data=b"", size=0), "binary data"),
    "an answer as JSON": (answer(parameters=None, data=b""), "binary data"),
    "too few rows": (answer(b"\1\0\0\0q", shape=[1]), "1 rows"),
    "too many columns": (answer(b"\0" * 16, shape=[2, 2]), "2 columns"),
    "a huge shape": (answer(shape=[2**40]), "binary data"),
    "a shape of no number": (answer(shape=["2"]), "binary data"),
    "a negative size": (answer(b"\0" * 9, size=-1), "binary data"),
    "a size beyond": (answer(b"\0" * 8, size=9), "binary data"),
    "another output": (answer(b"\0" * 8, name="l"), "binary data"),
    "no datatype": (answer(b"\0" * 8, datatype="TEXT"), "binary data"),
    "a head of no number": (
        [*answer()[:2], said(b"{}", "Inference-Header-Content-Length: x")],
        "binary data",
    ),
}


@pytest.fixture
def two_rows(tmp_path: Path) -> Path:
    return table_of(tmp_path / "t.csv", ("a",), [(1,), (2,)])


def test_a_good_answer_by_the_same_script_is_taken(two_rows: Path):
    with scripted_server(answer(b"\1\0\0\0q\1\0\0\0p")) as port:
        assert predict("m", two_rows, "--url", f"http://127.0.0.1:{port}").out == b"y\nq\np\n"


@pytest.mark.parametrize("case", BAD)
def test_a_server_of_no_good_is_one_line_of_error(case: str, two_rows: Path, tmp_path: Path):
    answers, text = BAD[case]
    out = tmp_path / "out.csv"
    with scripted_server(answers) as port:
        said = refusal("m", two_rows, "--url", f"http://127.0.0.1:{port}", "-o", out)
    assert text in said
    assert not out.exists()


def test_an_answer_without_end_is_not_read_to_it(monkeypatch: Any):
    monkeypatch.setattr("treekit.serve.client._MOST_BYTES", 1000)
    with scripted_server([said(b" " * 1000 + b"{}")]) as port:
        client = Client(f"http://127.0.0.1:{port}")
        with pytest.raises(RemoteError, match="longer than 1,000 bytes"):
            client.get("v2")
        client.close()


def test_the_client_needs_no_server_installed():
    script = (
        "import sys; import treekit.serve.client; "
        "from treekit.serve.client import Client;"
        "print({'starlette', 'uvicorn', 'grpc', 'onnx', 'numba'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_tls_of_the_client_checks_names():
    assert Client("https://x")._server._connection._context.check_hostname  # type: ignore[attr-defined]
    assert Client("https://x")._server._connection._context.verify_mode is ssl.CERT_REQUIRED  # type: ignore[attr-defined]


# --------------------------------------------------------------------------- the examples


@pytest.mark.system
@pytest.mark.parametrize("face", ["http", "grpc"])
def test_the_program_of_the_examples_with_tritonclient_runs(
    face: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(
        r"```python\n(import numpy as np\nimport tritonclient.*?)```", text, re.S
    )
    melons = EXAMPLES / "tables" / "watermelon" / "watermelon_3.0.csv"
    model = treekit.train(melons, "好瓜", ignore=["编号"], ensemble="forest", trees=3, seed=0)
    model.save(tmp_path / "melons.treekit")
    service = service_of(tmp_path)
    with on_a_port(service) as place, grpc_server(service) as port:
        address = place if face == "http" else f"127.0.0.1:{port}"
        assert "127.0.0.1:8080" in program
        program = program.replace("127.0.0.1:8080", address)
        program = program.replace("tritonclient.http", f"tritonclient.{face}")
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    label, shares = capfd.readouterr().out.split(" ", 1)
    row = re.search(r"np\.array\(\[\[(.*?)\]\]", program)[1].replace('"', "").split(", ")  # type: ignore[index]
    first = table_of(tmp_path / "t.csv", model.schema.names, [row])
    assert eval(label).decode() == model.predict(first)[0]
    assert shares.strip() == str(model.predict_proba(first)[0])


@pytest.mark.system
def test_the_example_of_the_standard_library_is_ten_lines_and_names_a_refusal(server: str):
    program = EXAMPLES / "standalone" / "ask_server.py"
    lines = program.read_text(encoding="utf-8").split('"""')[2].split("\n")
    assert len([line for line in lines if line]) <= 12
    imported = {line.split()[1].partition(".")[0] for line in lines if line.startswith("import")}
    assert imported <= set(sys.stdlib_module_names)
    asked = [sys.executable, "-I", "-S", program, server, "bool"]
    done = subprocess.run([*asked, "0.5", ""], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("label\t")
    done = subprocess.run([*asked, "0.5"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
