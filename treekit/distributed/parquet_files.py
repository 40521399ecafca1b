"""Tables in many Parquet files, local or at a URL: find, read, join and write them.

The files are read by pyarrow, as a single file is, so that their model equals that of one
file with the same rows.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from treekit.data.arrow_files import ARROW_FILE_ERRORS
from treekit.data.cells import sort_naturally
from treekit.data.table import names_many_files
from treekit.distributed.cluster import join_partitions
from treekit.errors import DataError, MissingExtraError

_SUFFIXES = (".parquet", ".pq")


class ParquetFiles(NamedTuple):
    """A table in Parquet files, in the natural order of their names.

    Attributes
    ----------
    source : str
        Path, pattern or URL as given.
    paths : tuple of str
        Absolute paths or URLs.
    """

    source: str
    paths: tuple[str, ...]


def find_if_many(source: Any) -> Any:
    """Return the `ParquetFiles` of a folder, pattern or URL, and any other table unchanged."""
    if isinstance(source, (str, os.PathLike)) and names_many_files(source):
        return find_files(source)
    return source


def find_files(source: str | os.PathLike[str]) -> ParquetFiles:
    """Find the Parquet files of a path, a folder, a pattern or a URL.

    In a folder, names that begin with ``_`` or ``.`` are skipped, as by Spark and Dask.

    Raises
    ------
    DataError
        If there are none, or files of another kind.
    """
    text = os.fspath(source)
    system, root = _open_filesystem(text)
    if system.isfile(root):
        found = [root]
    elif any(mark in root for mark in "*?["):
        matches = system.glob(root, detail=True)
        found = []
        for path, info in matches.items():
            found += _list_folder(system, path) if info["type"] == "directory" else [path]
    else:
        found = _list_folder(system, root)
    if not found:
        raise DataError(f"there is no Parquet file {text!r}; check the path")
    for path in found:
        if not path.lower().endswith(_SUFFIXES):
            raise DataError(
                f"{path!r} is not a Parquet file; a cluster reads .parquet only: convert the table "
                "to Parquet, or give it as one file without --cluster"
            )
        for folder in path.split("/")[:-1]:
            if "=" in folder and folder not in root.split("/"):
                raise DataError(
                    f"column {folder.partition('=')[0]!r} is in the folder names of {path!r}, "
                    "which are not read; write it into the files"
                )
    local = "file" in ([system.protocol] if isinstance(system.protocol, str) else system.protocol)
    ordered = sort_naturally(found)
    return ParquetFiles(text, tuple(ordered if local else map(system.unstrip_protocol, ordered)))


def _open_filesystem(url: str) -> tuple[Any, str]:
    """Return the filesystem of a path or URL, and the path in it."""
    try:
        import pyarrow.parquet  # noqa: F401
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingExtraError("dask", "dask") from None
    try:
        system, path = url_to_fs(url)
    except (ImportError, ValueError) as error:  # an unknown protocol, or a missing library for it
        raise DataError(f"{url!r} cannot be opened: {error}; check the address") from None
    system.invalidate_cache()  # other processes write to it, too
    return system, path


def _list_folder(system: Any, root: str) -> list[str]:
    """List the Parquet files below a folder, or all visible files if none is Parquet."""
    try:
        found = system.find(root)
    except FileNotFoundError:  # raised for a bucket that does not exist
        return []
    start = len(root.rstrip("/"))
    visible = [path for path in found if not re.search(r"/[._]", path[start:])]
    return [path for path in visible if path.lower().endswith(_SUFFIXES)] or visible


def read_file(path: str, columns: Collection[str] | None = None) -> Any:
    """Read a Parquet file as an Arrow table.

    Parameters
    ----------
    path : str
    columns : collection of str, optional
        Columns to read, of those that exist, besides the index of pandas; default: all.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    import fsspec
    import pyarrow as pa
    import pyarrow.parquet

    try:
        with fsspec.open(path, "rb") as stream:
            file = pyarrow.parquet.ParquetFile(stream)
            wanted = None
            if columns is not None:
                kept = {*columns, *list_index_columns(file.schema_arrow)}
                wanted = [name for name in file.schema_arrow.names if name in kept]
            table = file.read(columns=wanted)
            # The selection of "a" includes "a.b".
            table = table if wanted is None else table.select(wanted)
        table.validate(full=True)  # text offsets may point anywhere in a damaged file
    except FileNotFoundError:
        raise DataError(
            f"there is no file {path!r} on a worker; give a path that all workers can read"
        ) from None
    except (pa.ArrowException, *ARROW_FILE_ERRORS) as error:
        raise DataError(
            f"{path!r} is not a readable Parquet file: {error}; write it again"
        ) from error
    return table


def list_index_columns(schema: Any) -> list[str]:
    """List the columns of an Arrow schema that hold the index of a pandas dataframe."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in index if isinstance(name, str) and name in schema.names]


def join_tables(tables: Sequence[Any], places: Sequence[str]) -> Any:
    """Join Arrow tables, in order; a type is the widest of all tables'.

    Parameters
    ----------
    tables : sequence of pyarrow.Table
    places : sequence of str
        Names of the tables in errors.

    Raises
    ------
    DataError
        If columns or types of the tables differ.
    """
    import pyarrow as pa

    names = tables[0].column_names
    common = tables[0].schema.remove_metadata()
    for table, place in zip(tables, places, strict=True):
        if other := set(names) ^ set(table.column_names):
            name = min(other)
            here, there = (place, places[0]) if name in names else (places[0], place)
            raise DataError(
                f"{here} lacks the column {name!r} of {there}; write all files with the same "
                "columns"
            )
        try:
            common = pa.unify_schemas(
                [common, table.schema.remove_metadata()], promote_options="permissive"
            )
        except pa.ArrowException as error:
            raise DataError(
                f"a column of {place} differs in type from the files before it: {error}; write "
                "all files with the same types"
            ) from None
    selected = [table.select(names).replace_schema_metadata() for table in tables]
    return pa.concat_tables(selected, promote_options="permissive")


def join_parts(parts: Sequence[Any], places: Sequence[tuple[str, int]]) -> Any:
    """Join dataframes, arrays or Arrow tables, in order; `places` are their names and rows."""
    if len(parts) == 1:
        return parts[0]
    if hasattr(parts[0], "column_names"):
        return join_tables(parts, [name for name, _ in places])
    return join_partitions(parts)


@contextmanager
def write_folder(url: str) -> Iterator[Callable[[str], IO[bytes]]]:
    """Yield a function that opens a file to write by its name in a new folder.

    The files are written to a temporary folder beside it, which is renamed at the end and
    removed on failure.  Object stores rename no folder: there the files are copied one by one.

    Raises
    ------
    DataError
        If the folder exists.
    """
    system, root = _open_filesystem(url)
    if system.exists(root):
        raise DataError(f"the output {url!r} exists; remove it, or give the name of a new folder")
    root = root.rstrip("/")
    above, slash, name = root.rpartition("/")
    temporary = f"{above}{slash}.{name}.{secrets.token_hex(8)}.tmp"
    names = []

    def open_file(name: str) -> IO[bytes]:
        names.append(name)
        stream: IO[bytes] = system.open(f"{temporary}/{name}", "wb")
        return stream

    system.makedirs(temporary)
    try:
        yield open_file
        if Path(temporary).is_dir():
            Path(temporary).rename(root)  # ``mv`` would move into a folder that exists by now
        else:
            _copy_files(system, names, temporary, root)
    finally:
        if system.exists(temporary):
            system.rm(temporary, recursive=True)


def _copy_files(system: Any, names: Sequence[str], source: str, folder: str) -> None:
    """Copy files to a new folder, and remove the copies if one fails."""
    system.makedirs(folder, exist_ok=True)
    try:
        # One by one: s3fs copies no folder that is not an object itself.
        for name in names:
            system.cp_file(f"{source}/{name}", f"{folder}/{name}")
    except BaseException:
        with suppress(FileNotFoundError):  # no file was copied
            system.rm(folder, recursive=True)
        raise
