"""Commands with ``--cluster`` give the results of those without it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from tests.distributed import make_frame
from treekit.cli import main

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]

CLASSES = ["--target", "y", "--ignore", "number", "--ignore", "w"]
NUMBERS = ["--target", "number", "--ignore", "y", "--ignore", "w"]
FOREST = [*CLASSES, "--ensemble", "forest", "--trees", "7", "--seed", "5"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Return the address of a cluster of two worker processes."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(autouse=True)
def frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Write a table as one file and as several, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    frame = make_frame()
    frame["c"] = pd.Categorical(frame["c"].astype(str), ["r", "unused", "q", "p"])
    frame.to_parquet("one.parquet")
    frame.to_csv("one.csv", index=False)
    Path("rows").mkdir()
    for k, (a, b) in enumerate([(0, 0), (0, 1), (1, 200), (200, 590), (590, 600)]):
        frame.iloc[a:b].to_parquet(f"rows/p{k}.parquet")
    return frame


def run(*arguments: str, code: int = 0) -> Result:
    """Run a command."""
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == code, result.output
    return result


def test_train_with_a_cluster_writes_the_model_of_one_process(address: str) -> None:
    alone = run("train", "one.parquet", *FOREST, "-o", "a.treekit").stdout
    for table in ("rows", "rows/*.parquet", "one.parquet"):
        shared = run("train", table, *FOREST, "-o", "b.treekit", "--cluster", address).stdout
        assert shared == alone.replace("a.treekit", "b.treekit")
        assert Path("b.treekit").read_bytes() == Path("a.treekit").read_bytes()
    # CSV has no categories: the same model as of the CSV file without a cluster.
    pruned = [*FOREST, "--pruner", "reduced_error"]
    run("train", "one.csv", *pruned, "--validation", "one.csv", "-o", "a.treekit")
    files = ["--validation", "rows", "--cluster", address]
    run("train", "one.csv", *pruned, *files, "-o", "b.treekit")
    assert Path("b.treekit").read_bytes() == Path("a.treekit").read_bytes()


def test_train_by_levels_with_a_cluster_writes_the_model_of_one_process(address: str) -> None:
    for own in (FOREST, [*NUMBERS, "--seed", "5"]):
        histogram = [*own, "--splitter", "histogram"]
        run("train", "one.parquet", *histogram, "-o", "a.treekit")
        levels = ["--cluster-mode", "levels"]
        for table in ("rows", "one.parquet")[: 1 + (own is FOREST)]:
            given = [table, *histogram, *levels, "-o", "b.treekit", "--cluster", address]
            if table == "one.parquet":  # this process reads a single file
                assert (
                    "does not support a table in the memory of this process"
                    in run("train", *given, code=2).stderr
                )
                continue
            run("train", *given)
            assert Path("b.treekit").read_bytes() == Path("a.treekit").read_bytes()
    result = run("train", "one.parquet", *FOREST, *levels, "-o", "c.treekit", code=2)
    assert "--cluster-mode needs --cluster" in result.stderr


@pytest.mark.parametrize("settings", [FOREST, NUMBERS])
def test_predict_writes_one_file_per_input_file_with_its_index(
    settings: list[str], address: str, frame: pd.DataFrame
) -> None:
    run("train", "one.parquet", *settings, "-o", "m.treekit")
    proba = ["--proba"] * (settings is FOREST)
    run("predict", "m.treekit", "one.parquet", *proba, "-o", "one.out.csv")
    run("predict", "m.treekit", "rows", *proba, "-o", "out/", "--cluster", address)
    names = [f"part-{k:05}.parquet" for k in range(5)]
    assert sorted(path.name for path in Path("out").iterdir()) == names
    parts = [pd.read_parquet(f"out/{name}") for name in names]
    assert [len(part) for part in parts] == [0, 1, 199, 390, 10]
    found = pd.concat(parts)
    pd.testing.assert_frame_equal(
        found.reset_index(drop=True), pd.read_csv("one.out.csv"), check_exact=True
    )
    np.testing.assert_array_equal(found.index, frame.index)
    result = run("predict", "m.treekit", "rows", "-o", "out", "--cluster", address, code=2)
    assert "the output 'out' exists; remove it" in result.stderr


def test_evaluate_with_a_cluster_prints_the_scores_of_one_table(address: str) -> None:
    run("train", "one.parquet", *FOREST, "-o", "m.treekit")
    for more in ([], ["--weights", "w"]):
        alone = run("evaluate", "m.treekit", "one.parquet", "--json", *more).stdout
        shared = run("evaluate", "m.treekit", "rows", "--json", *more, "--cluster", address).stdout
        assert json.loads(shared) == json.loads(alone)
    result = run("evaluate", "rows", "--target", "y", "--cluster", address, code=2)
    assert "a cross-validation runs in this process" in result.stderr


def test_verify_with_a_cluster_sums_rows_and_differing_rows(address: str) -> None:
    run("train", "one.parquet", *FOREST, "-o", "m.treekit")
    run("export", "m.treekit", "--to", "onnx", "-o", "m.onnx")
    run("export", "m.treekit", "--to", "c", "-o", "m.c")
    few = ["m.c", "m.onnx", "--rows", "10", "--certificate", "c.json"]
    cluster = ["--on", "rows/p*", "--cluster", address]
    run("verify", "m.treekit", *few, *cluster)
    certificate = json.loads(Path("c.json").read_text())
    found = certificate["on_artifacts"]
    assert (certificate["on"], certificate["equal"]) == ("rows/p*", True)
    assert [(one["path"], one["rows"], one["differing"]) for one in found] == [
        ("m.c", 600, 0), ("m.onnx", 600, 0),
    ]  # fmt: skip
    assert len(found[0]["sha256"]) == 2
    other = [*FOREST[:-1], "6", "-o", "other.treekit"]
    run("train", "one.parquet", *other)
    certificates = []
    for on in (["--on", "one.parquet"], cluster):
        result = run("verify", "other.treekit", *few, *on, code=1)
        certificates.append(json.loads(Path("c.json").read_text())["on_artifacts"])
    for alone, shared in zip(*certificates, strict=True):
        first, place = alone.pop("first"), shared.pop("first")
        assert alone == shared
        number = int(Path(place["file"]).stem[1:])
        assert place["number"] + [0, 0, 1, 200, 590][number] == first["number"]
        assert (place["row"], place["given"]) == (first["row"], first["given"])
        where = f"row {place['number']} (counting from 0) of '{place['file']}'"
        assert where in result.stdout


def test_errors_name_the_file_and_its_row(address: str, frame: pd.DataFrame) -> None:
    run("train", "one.parquet", *FOREST, "--set", "unknown=error", "-o", "m.treekit")
    run("export", "m.treekit", "--to", "python", "-o", "m.py")
    bad = frame.iloc[590:].copy()
    bad["c"] = bad["c"].astype(str)
    bad.loc[593, "c"] = "new"
    bad.to_parquet("rows/p4.parquet")
    place = r"in row 3 of '/.*/rows/p4\.parquet' \(counting from 0\), a category not seen"
    for command in (["predict", "-o", "out"], ["evaluate"]):
        arguments = [command[0], "m.treekit", "rows", *command[1:], "--cluster", address]
        result = run(*arguments, code=2)
        assert re.search(place, result.stderr), result.stderr
        assert result.stderr.count("\n") == 1
    # Artifacts must refuse the row, too.
    run("verify", "m.treekit", "m.py", "--rows", "1", "--on", "rows", "--cluster", address)
    bad["c"] = frame["c"]
    bad.loc[595, "y"] = None
    bad.to_parquet("rows/p4.parquet")
    result = run("train", "rows", *FOREST, "-o", "b.treekit", "--cluster", address, code=2)
    assert re.search(r"row 5 of '/.*/rows/p4\.parquet' \(counting from 0\)", result.stderr)
    bad.drop(columns="a").to_parquet("rows/p4.parquet")
    result = run("predict", "m.treekit", "rows", "-o", "out", "--cluster", address, code=2)
    assert re.search(r"/rows/p4\.parquet': the table has no column 'a'", result.stderr)
    assert sorted(path.name for path in Path().glob("*out*")) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train *.csv --target y -o b", r"is not a Parquet file; a cluster reads \.parquet only"),
        ("train none* --target y -o b", "there is no Parquet file 'none*'; check the path"),
        ("train rows --target y -o b --test rows", "--test reads one file, got 'rows'"),
        ("predict m one.csv -o out", "give it as one file without --cluster"),
        ("predict m rows", "--cluster writes a folder; name it with -o"),
        ("predict m rows --url http://x -o out", "--url and --cluster exclude each other"),
        ("verify m one.csv", "--cluster runs artifacts on the rows of a table; add --on"),
    ],
)
def test_settings_without_cluster_support_are_refused(arguments: str, message: str) -> None:
    run("train", "one.parquet", "--target", "y", "-o", "m")
    result = run(*arguments.split(), "--cluster", "local:1", code=2)
    assert re.search(message.replace("*", r"\*"), result.stderr), result.stderr
    result = run("train", "rows", "--target", "y", "-o", "b", code=2)
    assert "'rows' names several files" in result.stderr
    result = run("train", "one.csv", "--target", "y", "-o", "b", "--cluster", "x:1", code=2)
    assert "expected a cluster such as tcp://HOST:8786 or local:4, got 'x:1'" in result.stderr


def test_a_local_cluster_starts_from_the_command_line() -> None:
    treekit = [sys.executable, "-m", "treekit"]
    run("train", "one.parquet", *FOREST, "-o", "a.treekit")
    command = [*treekit, "train", "rows", *FOREST, "-o", "b.treekit", "--cluster", "local:1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("b.treekit").read_bytes() == Path("a.treekit").read_bytes()


def test_missing_dask_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    any_settings: dict[str, Any] = {"distributed": None, "fsspec.core": None}
    for name, value in any_settings.items():
        monkeypatch.setitem(sys.modules, name, value)
    for table in ("one.csv", "rows"):
        result = run("train", table, *FOREST, "-o", "b", "--cluster", "local:1", code=2)
        assert "pip install 'treekit-ml[dask]'" in result.stderr
