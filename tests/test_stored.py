"""Large files: columns in files of their own, and the very table that memory would hold."""

from __future__ import annotations

import errno
import gzip
import io
import os
import random
import tempfile
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from treekit.cli import main
from treekit.data import table as arrow_files
from treekit.data import table as csv_files
from treekit.data.binning import make_table
from treekit.data.dataset import make_dataset
from treekit.data.encoding import encode_rows
from treekit.data.out_of_core import Spill, StoredCells, StoredColumn
from treekit.data.table import read_table
from treekit.errors import DataError
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import make_model

CELLS = {
    "whole": ["1", "-2", "007", "1000000000000", "9007199254740993"],
    "real": ["1", "0.1", "-2.5e3", " 4 ", "1e-320"],
    "text": ["red", "blue", "7", "naïve", 'a "quote", and\nlines'],
    "bool": ["true", "FALSE", "True"],
    "odd": ["1_000", "inf", "nan", "-0", "true", "1", "-999"],
    "gone": ["", "NA", " ? ", "-999"],
}


@st.composite
def written_tables(draw) -> tuple[list[list[str]], list[str]]:
    """Rows of text whose columns are of many kinds, some of them only after a while."""
    kinds = draw(st.lists(st.sampled_from(list(CELLS)), min_size=1, max_size=4))
    n = draw(st.integers(1, 24))
    columns = []
    for kind in kinds:
        late = draw(st.sampled_from([kind, kind, "text", "real", "gone"]))
        gaps = draw(st.sampled_from([[], [], CELLS["gone"][:2]]))
        first = draw(st.integers(0, n))
        part = st.sampled_from(CELLS[kind] + gaps)
        rest = st.sampled_from(CELLS[late] + gaps)
        columns.append([draw(part if i < first else rest) for i in range(n)])
    return [list(row) for row in zip(*columns, strict=True)], kinds


def as_csv(rows: list[list[str]]) -> str:
    quoted = [['"' + cell.replace('"', '""') + '"' for cell in row] for row in rows]
    header = ",".join(f"c{i}" for i in range(len(rows[0])))
    return "\n".join([header, *(",".join(row) for row in quoted)]) + "\n"


def small_parts():
    """Every file is a large one, read a few rows at a time."""
    return patch.multiple(csv_files, LARGE=-8, _CHUNK=5)


def both(path: Path, **arguments):
    """A table as memory holds it, and in files."""
    plain = read_table(path, **arguments)
    with small_parts(), patch.multiple(arrow_files, LARGE=-1, _BATCH=5):
        stored = read_table(path, **arguments)
    assert isinstance(stored.cells, StoredCells)
    assert not isinstance(plain.cells, StoredCells)
    return plain, stored


def assert_equal_cells(a, b) -> None:
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)


def assert_equal_tables(plain, stored) -> None:
    assert (stored.names, stored.untyped, stored.named) == (plain.names, plain.untyped, plain.named)
    assert dict(stored.levels) == dict(plain.levels)
    assert (stored.n_rows, stored.missing) == (plain.n_rows, plain.missing)
    for position, name in enumerate(plain.names):
        assert_equal_cells(stored.column(name), plain.column(name))
        assert_equal_cells(stored.cells[position], plain.cells[position])


@given(written_tables(), st.sampled_from([None, ("", "NA", "-999"), ("red",)]))
@settings(max_examples=examples(120), deadline=None)
def test_a_csv_file_read_by_chunks_is_the_table_that_memory_holds(tmp_path_factory, table, marks):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text(as_csv(table[0]), encoding="utf-8")
    plain, stored = both(path, **({} if marks is None else {"missing": marks}))
    assert_equal_tables(plain, stored)
    other = ("?", "1")
    assert_equal_tables(read_table(plain, missing=other), read_table(stored, missing=other))


def outcome(function):
    """What a function returns, or the words it raises."""
    try:
        return function()
    except DataError as error:
        return str(error)


@given(written_tables(), st.sampled_from(["nominal", "numeric", None]))
@settings(max_examples=examples(60), deadline=None)
def test_schema_codes_and_errors_are_those_of_the_table_in_memory(tmp_path_factory, table, kind):
    rows = [[*row, "a" if i % 3 else "b"] for i, row in enumerate(table[0])]
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text(as_csv(rows), encoding="utf-8")
    declared = {} if kind is None else {kind: ["c0"]}
    tables = both(path)
    target = tables[0].names[-1]
    plain, stored = (outcome(lambda t=t: make_dataset(t, target, **declared)) for t in tables)
    if isinstance(plain, str):
        assert stored == plain
        return
    assert stored.schema == plain.schema
    assert_equal_cells(stored.y, plain.y)
    arguments = (plain.schema.n_levels, plain.schema.nominal, "histogram")
    coded = [make_table(d.columns, *arguments, n_rows=d.n_rows) for d in (plain, stored)]
    for a, b in zip(*coded, strict=True):
        assert_equal_cells(a, b)
    blocks = [encode_rows(block, plain.schema) for block in tables[1].blocks(5)]
    assert_equal_cells(np.concatenate(blocks), encode_rows(tables[0], plain.schema))


def arrow_table(n: int, seed: int) -> pa.Table:
    """A column of every plain type, with and without nulls, some of them long gone at first."""
    draw = random.Random(seed)

    def column(values, dtype, gaps=0.3, first=0):
        cells = [
            None if i < first or draw.random() < gaps else draw.choice(values) for i in range(n)
        ]
        return pa.array(cells, type=dtype)

    columns = {
        "whole": column([1, -2, 2**60 + 1], pa.int64(), 0),
        "gaps": column([1, -2, 300], pa.int64(), 0.2, draw.choice([0, 7])),
        "late": pa.array([1] * (n - 1) + [None], type=pa.int8()),
        "short": column([0, 255], pa.uint8(), 0),
        "single": column([0.1, 1e30], pa.float32(), 0.3, 7),
        "double": column([0.1, -0.0, 1e300], pa.float64()),
        "yes": column([True, False], pa.bool_(), draw.choice([0, 0.4]), draw.choice([0, 7])),
        "name": column(["x", "y", "NA", " ?"], pa.string(), 0.2, draw.choice([0, 7])),
        "level": column(["n", "m", "k"], pa.string(), 0.2).dictionary_encode(),
        "cents": pa.array([draw.randrange(999) for _ in range(n)]).cast(pa.decimal128(30, 2)),
        "nothing": pa.array([None] * n, type=pa.string()),
    }
    return pa.table(columns)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("seed", range(4))
def test_parquet_and_arrow_in_batches_are_the_table_that_memory_holds(tmp_path, ending, seed):
    table = arrow_table(23, seed)
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        pa.parquet.write_table(table, path, row_group_size=9)
    else:
        pa.feather.write_feather(table, path, chunksize=6, compression="uncompressed")
    assert_equal_tables(*both(path))


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_columns_whose_names_look_like_paths_are_told_apart(tmp_path, ending):
    names = ["a", "a.b", "a.b.c", ".", "ü", "a*"]
    table = pa.table({name: [i] * 12 for i, name in enumerate(names)})
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.feather.write_feather(table, path, compression="lz4")
    assert_equal_tables(*both(path))


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_large_file_is_read_within_the_memory_of_a_column(tmp_path, ending):
    rows = 50_000  # one row group, or batch, of 40 columns: 16 MB
    rng = np.random.default_rng(0)
    table = pa.table({f"x{i}": rng.normal(size=rows) for i in range(40)})
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        pa.parquet.write_table(table, path, compression="none")
    else:
        pa.feather.write_feather(table, path, chunksize=rows, compression="uncompressed")
    del table
    largest, seen = [0], []

    def progress(*done):
        largest[0] = max(largest[0], pa.total_allocated_bytes() - before)
        seen.append(done)

    before = pa.total_allocated_bytes()
    with patch.multiple(arrow_files, LARGE=-1):
        read_table(path, progress=progress)
    assert largest[0] < 8_000_000
    assert seen[-1] == (40 * rows, 40 * rows)


def test_types_that_a_batch_does_not_tell_are_read_at_once(tmp_path):
    ordered = pa.array(["b", "a"]).dictionary_encode()
    ordered = ordered.cast(pa.dictionary(pa.int32(), pa.string(), ordered=True))
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"o": ordered}), path)
    with patch.multiple(arrow_files, LARGE=-1):
        assert dict(read_table(path).levels) == {"o": ("b", "a")}
    pa.parquet.write_table(pa.table({"when": pa.array([0, 1]).cast(pa.timestamp("s"))}), path)
    with patch.multiple(arrow_files, LARGE=-1), pytest.raises(DataError, match="'when' holds date"):
        read_table(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n3\n", "line 3 has 1 cells but the header has 2"),
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 cells"),
        ('a\n"1', "line 2: .*check the quotes"),
        ("a,b\n", "has a header but no rows"),
        ("", "is empty"),
    ],
)
def test_what_is_no_table_is_refused_in_the_same_words(tmp_path, text, words):
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    for parts in (nullcontext(), small_parts()):
        with parts, pytest.raises(DataError, match=words):
            read_table(path)


def test_a_packed_file_is_read_by_chunks_with_progress_in_bytes(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(as_csv([["1", "x"]] * 12).encode()))
    seen: list[tuple[int, int]] = []
    with small_parts():
        table = read_table(path, progress=lambda done, total: seen.append((done, total)))
    assert table.column("c0").tolist() == [1] * 12
    assert len(seen) == 3
    assert seen[-1][0] <= seen[-1][1] == path.stat().st_size


def test_no_name_of_the_file_of_a_table_is_left_whatever_ends_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    path = tmp_path / "t.csv"
    path.write_text(as_csv([["1", "x"]] * 12), encoding="utf-8")
    with small_parts():
        table = read_table(path)
    assert table.column("c1").tolist() == ["x"] * 12
    if os.name == "posix":
        assert list((tmp_path / "temporary").iterdir()) == []


def test_the_file_is_closed_with_the_table(tmp_path):
    spill = Spill()
    column = StoredColumn(spill)
    column.append(np.arange(3))
    file = spill._file
    del spill
    assert column.read().tolist() == [0, 1, 2]
    del column
    assert file.closed


def test_a_full_folder_for_temporary_files_is_named(tmp_path):
    class Full(io.BytesIO):
        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device")

    with patch("tempfile.TemporaryFile", lambda **_: Full()):
        column = StoredColumn(Spill())
    with pytest.raises(DataError, match="No space left on device; make room there, or set TMPDIR"):
        column.append(np.arange(3))


def test_pieces_of_columns_in_one_file_are_read_whole_and_in_part():
    spill, rng = Spill(), np.random.default_rng(0)
    columns = [StoredColumn(spill) for _ in range(3)]
    kept = [np.empty(0, np.int64) for _ in columns]
    for size in (0, 4, 1, 7, 3):
        for i, column in enumerate(columns):
            cells = rng.integers(-9, 9, size)
            column.append(cells)
            kept[i] = np.append(kept[i], cells)
    columns[1].append(np.array([0.5]))  # as wide: in the old places
    kept[1] = np.append(kept[1], 0.5)
    for column, cells in zip(columns, kept, strict=True):
        for first in range(column.n_rows + 1):
            for stop in range(first, column.n_rows + 1):
                assert_equal_cells(column.read(first, stop), cells[first:stop])


def test_a_csv_file_that_changes_between_readings_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    text = as_csv([["1", "p"], ["2", "q"]] * 20)
    path.write_text(text, encoding="utf-8")
    with small_parts():
        table = read_table(path)
        assert len(make_dataset(table, "c1", nominal=["c0"]).y) == 40
        table = read_table(path)
        path.write_text(text + '"3","q"\n', encoding="utf-8")
        with pytest.raises(DataError, match="has changed since treekit began"):
            make_dataset(table, "c1", nominal=["c0"])


def test_a_csv_file_that_changes_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(as_csv([["1", "p"], ["2", "q"]] * 20), encoding="utf-8")

    def grow(done, _):
        if done < 999:
            with path.open("a", encoding="utf-8") as file:
                file.write('"3","q"\n' * 200)

    with small_parts(), pytest.raises(DataError, match="has changed"):
        read_table(path, progress=grow)


@pytest.mark.parametrize("codes", [[0] * 6 + [1] * 6, [1] * 6 + [0] * 6, [1] * 12])
def test_batches_of_a_missing_level_alone_are_missing_cells(tmp_path, codes):
    level = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(["a", None]))
    path = tmp_path / "t.arrow"
    table = pa.table({"d": level, "x": list(range(12))})
    pa.feather.write_feather(table, path, chunksize=6, compression="uncompressed")
    assert_equal_tables(*both(path))


def test_text_that_is_all_missing_in_a_part_stays_text():
    column = StoredColumn(Spill())
    column.append(np.array(["x", None], dtype=object))
    column.append(np.full(2, np.nan))
    assert column.read().tolist() == ["x", None, None, None]


def test_numbers_that_turn_out_to_need_a_wider_type_are_written_again():
    column = StoredColumn(Spill())
    column.append_missing(2)
    column.append(np.array([1, 2], np.int8))
    column.append(np.array([2**40], np.int64))
    column.append_missing(1)
    assert column.read().dtype == np.float64
    np.testing.assert_array_equal(column.read(), [np.nan, np.nan, 1, 2, 2**40, np.nan])
    np.testing.assert_array_equal(column.read(2, 4), [1, 2])


def test_predictions_for_a_large_file_are_written_block_by_block(tmp_path, monkeypatch):
    rows = [[f"{i % 7}", "xyz"[i % 3], "ab"[i % 2]] for i in range(40)]
    path = tmp_path / "t.csv"
    path.write_text(as_csv(rows), encoding="utf-8")
    schema = make_dataset(path, "c2").schema
    tree = build_tree(
        threshold("c0", 3.0, subset("c1", ["x"], leaf([1, 0]), leaf([1, 2])), leaf([0, 1])), schema
    )
    make_model(schema, [tree], unknown="error").save(tmp_path / "m.treekit")
    command = ["predict", str(tmp_path / "m.treekit"), str(path), "--proba"]
    at_once = CliRunner().invoke(main, command)
    monkeypatch.setattr("treekit.cli.predict._ROWS_A_BLOCK", 7)
    with small_parts():
        in_blocks = CliRunner().invoke(main, command)
    assert in_blocks.exit_code == at_once.exit_code == 0
    assert in_blocks.stdout == at_once.stdout
    assert len(in_blocks.stdout.splitlines()) == 41
    path.write_text(as_csv([*rows, ["1", "w", "a"]]), encoding="utf-8")
    with small_parts():
        refused = CliRunner().invoke(main, command)
    assert "holds 'w' in row 40 (counting from 0)" in refused.stderr
