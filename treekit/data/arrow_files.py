"""Read Parquet and Arrow files by pyarrow: small ones into memory, large ones column by column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from treekit.data import table as tables
from treekit.data.cells import Cells, is_text, replace_marks
from treekit.data.table import FileColumns, Table, check_column_names, read_arrow_table
from treekit.data.text_format import TextFormat
from treekit.errors import DataError

ARROW_FILE_ERRORS = (OSError, ValueError, NotImplementedError, MemoryError, OverflowError)
"""Exceptions observed from pyarrow for damaged files, besides its own."""


def read_arrow_file(path: Path, form: str) -> Table:
    """Read a file of format ``parquet`` or ``feather`` (Arrow IPC)."""
    import pyarrow.feather
    import pyarrow.parquet

    with _name_errors(path, form):
        if form == "parquet" or _is_arrow_file(path):
            columns = ArrowColumns(path, form)
            if columns.n_rows * len(columns) > tables.LARGE:
                return Table(columns.names, columns, columns.find_levels())
        read = pyarrow.parquet.read_table if form == "parquet" else pyarrow.feather.read_table
        content = read(path)
        # Text offsets are not validated otherwise, and may point anywhere in a damaged file.
        content.validate(full=True)
        return read_arrow_table(content)


def _is_arrow_file(path: Path) -> bool:
    """Check for an Arrow IPC file, not the first version of Feather."""
    with path.open("rb") as head:
        return head.read(6) == b"ARROW1"


@contextmanager
def _name_errors(path: Path, form: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except DataError:
        raise
    except (pa.ArrowException, *ARROW_FILE_ERRORS) as error:
        raise DataError(f"{path.name!r} is not a readable {form} file: {error}") from error


class ArrowColumns(FileColumns):
    """The columns of a Parquet or Arrow file, each read from the file on access.

    Attributes
    ----------
    names : tuple of str
    """

    def __init__(self, path: Path, form: str) -> None:
        self._path, self._form, stat = path, form, path.stat()
        self._state = stat.st_size, stat.st_mtime_ns
        file = self._open()
        if form == "parquet":
            self._schema, self.n_rows = file.schema_arrow, file.metadata.num_rows
        else:
            self._schema = file.schema
            self.n_rows = sum(file.get_batch(i).num_rows for i in range(file.num_record_batches))
        self.names = check_column_names(self._schema.names)

    def _open(self, *, position: int | None = None) -> Any:
        """Open the file; `position` is the only column to read of an Arrow file."""
        import pyarrow as pa
        import pyarrow.parquet

        if self._form == "parquet":
            # Without these two settings pyarrow holds a complete row group of a column.
            return pyarrow.parquet.ParquetFile(self._path, buffer_size=1 << 18, pre_buffer=False)
        # Pages of a mapping count as memory until it is closed: one for each reading.
        options = pa.ipc.IpcReadOptions(included_fields=[] if position is None else [position])
        return pa.ipc.open_file(pa.memory_map(str(self._path)), options=options)

    def find_levels(self) -> dict[str, tuple[Any, ...]]:
        """Return the categories of the columns whose type declares them."""
        from pyarrow import types

        found: dict[str, tuple[Any, ...]] = {}
        for position, dtype in enumerate(self._schema.types):
            if types.is_dictionary(dtype):
                found.update(self._read_column(position).levels)
        return found

    def _read_column(self, position: int) -> Table:
        import pyarrow as pa

        with _name_errors(self._path, self._form):
            stat = self._path.stat()
            if (stat.st_size, stat.st_mtime_ns) != self._state:
                raise DataError(
                    f"{self._path.name!r} has changed while treekit was reading it; start again "
                    "when no program writes to it"
                )
            name = self._schema.names[position]
            if self._form == "parquet":  # its selection of "a" includes "a.b"
                column = self._open().read(columns=[name]).column(name)
            else:
                file = self._open(position=position)
                parts = [file.get_batch(i).column(0) for i in range(file.num_record_batches)]
                column = pa.chunked_array(parts, self._schema.types[position])
            content = pa.table({self.names[position]: column})
            content.validate(full=True)
            return read_arrow_table(content)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return tuple(self[i] for i in range(*position.indices(len(self))))
        return self._read_column(range(len(self))[position]).cells[0]

    def read_typed(self, position: int, how: TextFormat) -> Cells:
        """Return the typed cells of a column; text is names."""
        cells: Cells = self[position]
        return replace_marks(cells, how) if is_text(cells) else cells

    def count_texts(self, position: int) -> dict[Any, int]:
        """Count the distinct cells of a column."""
        return dict(Counter(self[position].tolist()))

    def find_merged_texts(self, position: int, how: TextFormat) -> None:
        """Return None: numbers of a typed file are numbers."""

    def iterate_blocks(self, n_rows: int) -> Iterator[Sequence[Cells]]:
        """Yield the cells of up to `n_rows` rows after the other."""
        import pyarrow as pa

        with _name_errors(self._path, self._form):
            for batch in self._iterate_batches(n_rows):
                content = pa.Table.from_batches([batch]).rename_columns(list(self.names))
                content.validate(full=True)
                yield read_arrow_table(content).cells

    def _iterate_batches(self, n_rows: int) -> Iterator[Any]:
        import pyarrow as pa

        if self._form == "parquet":
            yield from self._open().iter_batches(batch_size=n_rows, use_threads=False)
            return
        for number in range(self._open().num_record_batches):
            batch = pa.ipc.open_file(pa.memory_map(str(self._path))).get_batch(number)
            for first in range(0, batch.num_rows, n_rows):
                yield batch.slice(first, n_rows)
