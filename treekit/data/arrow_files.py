"""Parquet and Arrow files, with pyarrow: small ones at once, large ones by parts of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from treekit.data.cells import natural_order, tidy
from treekit.data.spill import Spill
from treekit.data.stored import StoredCells, StoredColumn
from treekit.data.table import Table, check_names
from treekit.errors import DataError, MissingExtraError

__all__ = ["read_arrow"]

LARGE = 1 << 25
"""Cells above which columns go to a file: in memory they would take 256 MB and copies of that."""

_BATCH = 1 << 16
"""Rows that are decoded together."""

_BROKEN = (OSError, ValueError, NotImplementedError, MemoryError, OverflowError)
"""What pyarrow was seen to raise for damaged files, beside exceptions of its own."""

Progress = Callable[[int, int], None]
Parts = Iterator[tuple[int, Any]]
"""Positions of columns, and Arrow's arrays of cells: of each column one behind the other."""


def read_arrow(
    path: Path, form: str, marks: frozenset[str], progress: Progress | None = None
) -> Table:
    """The table in a file of the form ``parquet`` or ``feather`` (Arrow's own).

    Parameters
    ----------
    marks : frozenset of str
        Texts that mean missing.
    progress : callable, optional
        ``progress(done, total)`` of the cells of a file that is read in parts.
    """
    try:
        import pyarrow as pa
        import pyarrow.feather
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "arrow") from error
    try:
        large = _large(path, form)
        if large is not None:
            return _stored(*large, marks, progress)
        read = pyarrow.parquet.read_table if form == "parquet" else pyarrow.feather.read_table
        table = read(path)
        # Offsets of texts are believed otherwise, and point anywhere in a damaged file.
        table.validate(full=True)
        from treekit.data.frames import from_arrow

        return from_arrow(table)
    except DataError:
        raise
    except (pa.ArrowException, *_BROKEN) as error:
        raise DataError(f"{path.name!r} is not a readable {form} file: {error}") from error


def _large(path: Path, form: str) -> tuple[Any, int, Parts] | None:
    """Schema, number of rows and parts of columns of a large file; None for one to be read at once.

    Of all columns of Parquet side by side pyarrow holds more than what is asked for, a row
    group of the file at worst (106 MB where this is 4).
    """
    import pyarrow as pa
    import pyarrow.parquet

    if form == "parquet":
        # Without these two settings pyarrow keeps a row group of the column.
        file = pyarrow.parquet.ParquetFile(path, buffer_size=1 << 18, pre_buffer=False)
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
        batches = (
            (batch, [position])
            for position, name in enumerate(schema.names)
            for batch in file.iter_batches(batch_size=_BATCH, use_threads=False, columns=[name])
        )
    else:
        with path.open("rb") as head:
            if head.read(6) != b"ARROW1":  # the first version of Feather
                return None

        def mapped() -> Any:
            """Anew for each batch: what was read of a file in memory stays there with it."""
            return pa.ipc.open_file(pa.memory_map(str(path)))

        schema, numbers = mapped().schema, range(mapped().num_record_batches)
        n_rows = sum(mapped().get_batch(i).num_rows for i in numbers)
        everything = list(range(len(schema.names)))
        batches = ((mapped().get_batch(i), everything) for i in numbers)
    plain = all(map(_is_plain, schema.types))
    if not plain or n_rows == 0 or n_rows * len(schema.types) <= LARGE:
        return None
    return schema, n_rows, _parts(batches, schema.names)


def _parts(batches: Iterator[tuple[Any, Sequence[int]]], names: Sequence[str]) -> Parts:
    for batch, positions in batches:
        batch.validate(full=True)
        for position in positions:
            cells = batch.column(names[position])  # asked for "a", Parquet reads "a.b", too
            for first in range(0, len(cells), _BATCH):
                yield position, cells.slice(first, _BATCH)


def _is_plain(dtype: Any) -> bool:
    """Whether the cells of a type in one batch tell what they would be in the whole column."""
    from pyarrow import types

    if types.is_dictionary(dtype):
        return not dtype.ordered and _is_text(dtype.value_type)
    return bool(
        types.is_integer(dtype)
        or types.is_floating(dtype)
        or types.is_boolean(dtype)
        or types.is_decimal(dtype)
        or _is_text(dtype)
    )


def _is_text(dtype: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(dtype) or types.is_large_string(dtype))


def _stored(
    schema: Any,
    n_rows: int,
    parts: Parts,
    marks: frozenset[str],
    progress: Progress | None,
) -> Table:
    """The table with its columns in a file."""
    import pyarrow as pa

    from treekit.data.frames import as_cells

    names = check_names(schema.names)
    spill = Spill()
    columns = [StoredColumn(spill) for _ in names]
    done = 0
    for position, values in parts:
        name, column = names[position], columns[position]
        coded = pa.types.is_dictionary(values.type)
        plain = values.dictionary_decode() if coded else values
        if plain.null_count == len(plain):  # of codes of a missing level none is null
            column.append_missing(len(plain))
        else:
            column.append(tidy(name, as_cells(name, plain)[0])[0])
        done += len(plain)
        if progress is not None:
            progress(done, len(names) * n_rows)
    levels = {
        name: tuple(natural_order(value for value in column.distinct or () if value is not None))
        for name, column, dtype in zip(names, columns, schema.types, strict=True)
        if pa.types.is_dictionary(dtype)
    }
    pa.default_memory_pool().release_unused()
    stored = StoredCells(tuple(columns), marks, None, 0, columns[0].n_rows)
    return Table(names, stored, MappingProxyType(levels))
