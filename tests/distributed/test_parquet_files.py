"""Tables in many Parquet files: which are found, refused, joined and written."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import treekit
from treekit.data.table import names_many_files
from treekit.distributed.parquet_files import find_files, join_tables, read_file, write_folder
from treekit.errors import DataError

pytest.importorskip("fsspec")
pa = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.matrix


def write(path: Path, frame: pd.DataFrame) -> None:
    """Write a Parquet file and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(path)


def list_names(source: str | Path, root: Path) -> list[str]:
    """Return the names of the files found, below a folder."""
    return [str(Path(path).relative_to(root)) for path in find_files(source).paths]


def test_files_are_found_by_folder_pattern_and_url(tmp_path: Path) -> None:
    one = pd.DataFrame({"a": [1.0]})
    for name in ("rows/b10.parquet", "rows/b9.parquet", "rows/_temporary/c.parquet", "more/d.pq"):
        write(tmp_path / name, one)
    (tmp_path / "rows" / "_SUCCESS").touch()
    (tmp_path / "rows" / "notes.txt").touch()
    both = ["rows/b9.parquet", "rows/b10.parquet"]
    for source in ("rows", "rows/", "rows/*.parquet", "rows/b[0-9]*"):
        assert list_names(f"{tmp_path}/{source}", tmp_path) == both
    assert list_names(f"file://{tmp_path}/rows", tmp_path) == both
    assert list_names(f"{tmp_path}/[rm]*", tmp_path) == ["more/d.pq", *both]
    assert list_names(tmp_path / "rows" / "b9.parquet", tmp_path) == both[:1]
    write(tmp_path / "rows[1].parquet", one)
    assert list_names(tmp_path / "rows[1].parquet", tmp_path) == ["rows[1].parquet"]


@pytest.mark.parametrize(
    ("source", "many"),
    [("a.csv", False), ("a*.csv", True), ("s3://b/a.parquet", True), (".", True), ("", False)],
)
def test_globs_and_folders_count_as_many_files(source: str, many: bool) -> None:
    assert names_many_files(source) is many


def test_files_that_are_not_parquet_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    for source in ("*.csv", "a.csv", "."):
        with pytest.raises(DataError, match=r"a\.csv' is not a Parquet file; .*convert the table"):
            find_files(f"{tmp_path}/{source}")
    with pytest.raises(DataError, match=r"there is no Parquet file '.*b\*'; check the path"):
        find_files(f"{tmp_path}/b*")
    with pytest.raises(DataError, match=r"'nosuch://b' cannot be opened: .*nosuch"):
        find_files("nosuch://b")
    write(tmp_path / "rows/year=2024/a.parquet", pd.DataFrame({"a": [1.0]}))
    with pytest.raises(DataError, match="column 'year' is in the folder names of"):
        find_files(tmp_path / "rows")
    assert len(find_files(tmp_path / "rows" / "year=2024").paths) == 1
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"bad\.parquet' is not a readable Parquet file"):
        read_file(str(tmp_path / "bad.parquet"))
    with pytest.raises(DataError, match="a path that all workers can read"):
        read_file(str(tmp_path / "gone.parquet"))


def test_many_files_without_a_cluster_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"names several files .*--cluster local:2"):
        treekit.train(f"{tmp_path}/*.parquet", "y")


def test_columns_and_types_of_all_files_must_agree() -> None:
    first = pa.table({"a": [1, 2], "b": ["x", None]})
    joined = join_tables(
        [first, pa.table({"b": pa.nulls(1), "a": [0.5]}), first.slice(0, 0)], ["p", "q", "r"]
    )
    assert joined.to_pydict() == {"a": [1.0, 2.0, 0.5], "b": ["x", None, None]}
    with pytest.raises(DataError, match="q lacks the column 'b' of p"):
        join_tables([first, first.select(["a"])], ["p", "q"])
    with pytest.raises(DataError, match="p lacks the column 'c' of q"):
        join_tables([first, first.append_column("c", [[1, 2]])], ["p", "q"])
    with pytest.raises(DataError, match=r"a column of .*q differs in type from .*a\b"):
        join_tables([first, pa.table({"a": ["x"], "b": ["x"]})], ["p", "q"])


def test_only_the_requested_columns_are_read(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1], "a.b": [2], "c": [3]}, index=pd.Index([7], name="key"))
    write(tmp_path / "a.parquet", frame)
    table = read_file(str(tmp_path / "a.parquet"), ["c", "a", "absent"])
    assert table.column_names == ["a", "c", "key"]


def test_output_folder_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    with write_folder(str(tmp_path / "new/out")) as open_file:
        with open_file("a") as stream:
            stream.write(b"x")
        assert not (tmp_path / "new/out").exists()
    assert (tmp_path / "new/out/a").read_bytes() == b"x"
    with pytest.raises(DataError, match="exists; remove it"), write_folder(str(tmp_path / "new")):
        raise AssertionError
    with pytest.raises(KeyError), write_folder(f"file://{tmp_path}/other/"):
        raise KeyError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]
    with write_folder("memory://out/said") as open_file, open_file("a") as stream:
        stream.write(b"y")
    import fsspec

    memory = fsspec.filesystem("memory")
    assert memory.cat("/out/said/a") == b"y"
    assert [Path(path).name for path in memory.ls("/out", detail=False)] == ["said"]
