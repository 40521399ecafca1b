"""Pipes, JSON lines and shell completion of the command line."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow.csv
import pyarrow.parquet
import pytest

import treekit
from tests.cli.test_cli import TREEKIT, call
from treekit.cli import json_reports
from treekit.cli.json_reports import REPORTS
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.json_lines import read_json_rows
from treekit.errors import DataError

SMALL = "a,b,y\n1,x,0\n2,x,0\n3,y,1\n4,y,1\n5,x,1\n"
ROWS = [{"a": 1, "b": "x"}, {"a": 5.5}, {"b": None, "a": -1}]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two columns."""
    folder = tmp_path_factory.mktemp("small")
    table, path = folder / "t.csv", folder / "m.treekit"
    table.write_text(SMALL, encoding="utf-8")
    treekit.train(table, "y", seed=0).save(path)
    return path


def as_parquet() -> bytes:
    """The small table as Parquet."""
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(io.BytesIO(SMALL.encode())), sink)
    return sink.getvalue()


def as_lines(rows: list[dict[str, object]]) -> bytes:
    """JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


# ---------------------------------------------------------------- standard input

FORMS = {
    "CSV": SMALL.encode,
    "CSV with a mark": lambda: b"\xef\xbb\xbf" + SMALL.encode(),
    "gzip": lambda: gzip.compress(SMALL.encode()),
    "Parquet": as_parquet,
    "JSON lines": lambda: as_lines(
        [
            {"a": int(a), "b": b, "y": int(y)}
            for a, b, y in (line.split(",") for line in SMALL.split()[1:])
        ]
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_table_format_from_standard_input_is_detected_by_content(form, small, tmp_path):
    path = tmp_path / "m.treekit"
    call("train", "-", "--target", "y", "--seed", 0, "-o", path, input=FORMS[form]())
    assert path.read_bytes() == small.read_bytes()


def test_rows_to_predict_may_be_json_lines(small, tmp_path):
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress(as_lines(ROWS)))
    expected = "y\n" + "".join(f"{y}\n" for y in treekit.load(small).predict(ROWS))
    assert call("predict", small, "-", input=as_lines(ROWS)).stdout == expected
    assert call("predict", small, packed, "-o", "-").stdout == expected


def test_a_model_may_come_from_standard_input(small):
    piped = call("rules", "-", input=small.read_bytes()).stdout
    assert piped == call("rules", small).stdout
    edited = piped.replace("a <= 2.5", "a <= 1.5").replace("a > 2.5", "a > 1.5")
    made = call("revise", small, "-", "-o", "-", input=edited.encode())
    assert made.stdout_bytes.startswith(b"PK")
    assert "written to standard output" in made.stderr
    rules = call("rules", "-", input=made.stdout_bytes).stdout
    assert "a <= 1.5" in rules


def test_standard_input_given_twice_empty_or_damaged_is_refused(small):
    said = call("predict", "-", "-", input=small.read_bytes(), code=2).stderr
    assert "standard input can be read only once" in said
    said = call("predict", small, "-", input=b"", code=2).stderr
    assert said == "Error: standard input is empty; pipe a file into it\n"
    said = call("predict", small, "-", input=gzip.compress(b"a,b\n1,x\n")[:-9], code=2).stderr
    assert "cannot be read" in said


def test_train_leaves_no_temporary_files(small, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    call("train", "-", "--target", "y", "-o", "-", input=SMALL.encode())
    call("train", "-", "--target", "zz", "-o", "-", input=SMALL.encode(), code=2)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- standard output


def test_commands_are_connected_by_pipes(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = call("train", "-", "--target", "y", "--seed", 0, "-o", "-", input=SMALL.encode())
    assert told.stdout_bytes == small.read_bytes()
    assert "written to standard output" in told.stderr
    source = call("export", "-", "--to", "python", "-o", "-", input=told.stdout_bytes).stdout
    call("export", small, "--to", "python", "-o", tmp_path / "m.py")
    assert source == (tmp_path / "m.py").read_text(encoding="utf-8")
    said = call("export", small, "--to", "c", "-o", "-", code=2).stderr
    assert "c writes *.c and *.h; name the files with -o" in said
    certificate = call("verify", small, "m.py", "--certificate", "-").stdout
    assert json.loads(certificate)["equal"] is True
    assert [path.name for path in tmp_path.iterdir()] == ["m.py"]  # none is called "-"


@pytest.mark.parametrize("name", ["m.pkl", "m.JOBLIB", "m.onnx"])
def test_model_path_with_another_suffix_is_refused(name, small, tmp_path):
    table = small.with_name("t.csv")
    said = call("train", table, "--target", "y", "-o", tmp_path / name, code=2).stderr
    assert "a model file is" in said
    assert not (tmp_path / name).exists()


@pytest.mark.system
def test_a_pipe_closed_early_is_not_an_error(small):
    forest = small.with_name("forest.treekit")
    treekit.train(demo_table(), DEMO_TARGET, ensemble="forest", trees=30, seed=0).save(forest)
    command = [sys.executable, "-c", TREEKIT, "rules", str(forest)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"treekit rules")
        process.stdout.close()
        assert process.stderr.read() == b""


# ---------------------------------------------------------------- JSON lines

BAD_LINES = {
    "no JSON": (b'{"a": 1}\n{"a": 1', "line 2 of 'rows.jsonl' is not JSON"),
    "a list": (b"[1, 2]\n", "line 1 of 'rows.jsonl' is not an object"),
    "a cell of cells": (b'{"a": [1]}\n', "holds [1] in column 'a'"),
    "a key twice": (b'{"a": 1, "a": 2}\n', "'a' is given twice"),
    "no number": (b'{"a": NaN}\n', "NaN is not a JSON number; write null"),
    "nothing": (b"\n\n", "has no rows"),
    "other bytes": (b'{"a": "\xff"}\n', "line 1 of 'rows.jsonl' is not JSON"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_invalid_json_line_is_refused_with_its_number(case, tmp_path):
    text, said = BAD_LINES[case]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(text)
    with pytest.raises(DataError) as error:
        read_json_rows(path, packed=False)
    assert said in str(error.value)


def test_damaged_input_is_refused_with_its_name(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(as_lines(ROWS))[:-6])
    with pytest.raises(DataError, match=r"'rows.jsonl.gz' cannot be read"):
        read_json_rows(path, packed=True)


def test_json_lines_are_rows_of_a_table(tmp_path):
    path = tmp_path / "rows.ndjson"
    rows = [{"a": 2**60, "b": "01", "c": True}, {"a": 1, "c": False, "d": "?"}]
    path.write_bytes(as_lines(rows))
    read, given = treekit.data.table.read_table(path), treekit.data.table.read_table(rows)
    assert read.names == given.names
    for name in read.names:
        own, other = read.get_typed_cells(name).tolist(), given.get_typed_cells(name).tolist()
        assert repr(own) == repr(other)


# ---------------------------------------------------------------- JSON reports


def test_each_report_has_the_documented_fields(small, tmp_path):
    table = small.with_name("t.csv")
    calls = {
        "train": ["train", table, "--target", "y", "--test", table, "-o", tmp_path / "m.treekit"],
        "inspect": ["inspect", small],
        "importances": ["importances", small, table],
        "plugins": ["plugins"],
        "diff": ["diff", small, small, "--table", table, "--by", "b"],
    }
    assert calls.keys() == REPORTS.keys()
    found = {}
    for name, words in calls.items():
        printed = call(*words, "--json").stdout
        found[name] = msgspec.json.decode(printed, type=REPORTS[name])
        assert printed == msgspec.json.format(json.dumps(json.loads(printed)), indent=2) + "\n"
    model = treekit.load(tmp_path / "m.treekit")
    report = found["train"]
    assert (report.model, report.rows, report.targets) == (str(tmp_path / "m.treekit"), 5, ["y"])
    assert report.test == [json_reports.TestScore("accuracy", 1.0, 5, True)]
    assert report.estimate is None
    assert report.settings == model.settings
    inspected = found["inspect"]
    assert [(one.name, one.kind, one.levels) for one in inspected.columns] == [
        ("a", "numeric", []),
        ("b", "nominal", ["x", "y"]),
    ]
    assert inspected.targets == [json_reports.Target("y", [0, 1])]
    assert (inspected.size.nodes, inspected.costs) == (model.n_nodes, None)
    first = found["importances"].columns[0]
    assert (first.column, first.gain, found["importances"].score) == ("a", 1.0, 1.0)
    assert {"gini", "onnx"} <= {one.name for one in found["plugins"].components}


def test_importances_without_a_table_are_by_gain(small):
    report = json.loads(call("importances", small, "--json").stdout)
    assert report["measure"] is None
    assert report["columns"][0]["decrease"] is None


def test_estimates_are_the_same_in_text_and_json(tmp_path):
    path = tmp_path / "f.treekit"
    words = ["train", demo_table(), "--target", DEMO_TARGET, "--seed", 0, "-o", path]
    report = json.loads(call(*words, "--ensemble", "forest", "--trees", 7, "--json").stdout)
    oob = treekit.load(path).provenance["oob"]
    assert report["estimate"] == {
        "measure": "accuracy",
        "value": oob["accuracy"],
        "baseline": oob["majority"],
        "how": f"out of bag on {oob['rows']} rows",
    }
    told = call(*words, "--pruner", "reduced_error").stdout.splitlines()[1]
    estimate = json.loads(call(*words, "--pruner", "reduced_error", "--json").stdout)["estimate"]
    assert told.strip() == f"accuracy {estimate['value']:.4f}, {estimate['how']}"


def test_certificate_equals_the_report_of_verify(small, tmp_path):
    call("export", small, "--to", "python", "-o", tmp_path / "m.py")
    words = ["verify", small, tmp_path / "m.py", "--certificate", tmp_path / "c.json"]
    assert call(*words, "--json").stdout == (tmp_path / "c.json").read_text(encoding="utf-8")


# ---------------------------------------------------------------- completion


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("treekit ex", {"explain", "export"}),
        ("treekit train --criterion ent", {"entropy"}),
        ("treekit train --max-d", {"--max-depth"}),
        ("treekit completion ba", {"bash"}),
    ],
)
def test_shell_completion_offers_commands_options_and_names(words, expected):
    environment = os.environ | {
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
        "_TREEKIT_COMPLETE": "bash_complete",
    }
    command = [sys.executable, "-c", TREEKIT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert {line.partition(",")[2] for line in done.stdout.split()} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_accepted_by_its_shell(shell, tmp_path):
    script = tmp_path / "script"
    script.write_text(call("completion", shell).stdout, encoding="utf-8")
    assert "_TREEKIT_COMPLETE" in script.read_text(encoding="utf-8")
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(script)], check=True)
