"""Tables at an S3 address, served by moto on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import treekit
from tests.distributed import ANY, FOREST, make_frame
from tests.runtimes import need
from treekit.cli import main
from treekit.distributed.parquet_files import find_files, write_folder
from treekit.errors import DataError

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Start a server with an empty bucket; return its filesystem."""
    for package in ("s3fs", "moto", "flask_cors"):
        need(package)
    from moto.server import ThreadedMotoServer
    from s3fs import S3FileSystem

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()
    system = S3FileSystem()
    system.mkdir("bucket")
    yield system
    system.invalidate_cache()
    system.rm("bucket", recursive=True)  # the next server of this process has it, too
    S3FileSystem.clear_instance_cache()
    server.stop()


def run(*arguments: str, code: int = 0) -> Result:
    """Run a command."""
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == code, result.output
    return result


def test_commands_read_and_write_a_bucket(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = make_frame()
    frame.to_parquet("one.parquet")
    for k in (0, 1):
        frame.iloc[300 * k : 300 * k + 300].to_parquet(f"s3://bucket/rows/p{k}.parquet")
    store.pipe("bucket/rows/_SUCCESS", b"")
    forest = ["--target", "y", "--ignore", "number", "--ignore", "w", "--ensemble", "forest"]
    forest += ["--trees", "5", "--seed", "1"]
    cluster = ["--cluster", "local:1"]
    run("train", "one.parquet", *forest, "-o", "a.treekit")
    run("train", "s3://bucket/rows/*.parquet", *forest, *cluster, "-o", "b.treekit")
    assert Path("a.treekit").read_bytes() == Path("b.treekit").read_bytes()
    run("predict", "b.treekit", "s3://bucket/rows", *cluster, "-o", "s3://bucket/said/")
    names = ["bucket/said/part-00000.parquet", "bucket/said/part-00001.parquet"]
    assert store.find("bucket") == ["bucket/rows/_SUCCESS", *_rows(), *names]
    found = pd.concat([pd.read_parquet(f"s3://{name}") for name in names])
    model = treekit.load("b.treekit")
    np.testing.assert_array_equal(found["y"], model.predict(frame))
    np.testing.assert_array_equal(found.index, frame.index)
    again = ["predict", "b.treekit", "s3://bucket/rows", *cluster, "-o", "s3://bucket/said"]
    assert "the output 's3://bucket/said' exists; remove it" in run(*again, code=2).stderr
    run("export", "b.treekit", "--to", "python", "-o", "m.py")
    run("verify", "b.treekit", "m.py", "--rows", "1", "--on", "s3://bucket/rows", *cluster)


def _rows() -> list[str]:
    return ["bucket/rows/p0.parquet", "bucket/rows/p1.parquet"]


def write(url: str, failure: Exception | None = None) -> None:
    """Write a folder of one file, or fail after it."""
    with write_folder(url) as open_file:
        with open_file("part-00000.parquet") as stream:
            stream.write(b"x")
        if failure is not None:
            raise failure


def _fail(*_: Any) -> None:
    raise OSError("no space")


def test_bucket_is_listed_again_and_has_no_partial_output_folder(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = make_frame(20)
    frame.to_parquet("s3://bucket/rows/p0.parquet")
    assert find_files("s3://bucket/rows/*").paths == ("s3://bucket/rows/p0.parquet",)
    other = type(store)(skip_instance_cache=True)  # as another process does
    other.pipe("bucket/rows/p1.parquet", b"")
    assert [f"s3://{name}" for name in _rows()] == list(find_files("s3://bucket/rows/*").paths)
    with pytest.raises(KeyError):
        write("s3://bucket/said", KeyError())
    assert other.find("bucket") == _rows()
    monkeypatch.setattr(store, "cp_file", _fail)  # the instance that a URL finds
    with pytest.raises(OSError, match="no space"):
        write("s3://bucket/said")
    other.invalidate_cache()
    assert other.find("bucket") == _rows()
    for source in ("s3://bucket/none*", "s3://absent/rows"):
        with pytest.raises(DataError, match=r"there is no Parquet file 's3://"):
            find_files(source)


def test_a_cluster_reads_a_bucket(store: Any) -> None:
    frame = make_frame()
    frame.to_parquet("s3://bucket/rows.parquet")
    found = treekit.train("s3://bucket/rows.parquet", **ANY, **FOREST, cluster="local:1")
    expected = treekit.train(frame, **ANY, **FOREST)
    np.testing.assert_array_equal(found.predict_proba(frame), expected.predict_proba(frame))
