"""Named byte strings in one file: written atomically, read without trust.

The container is a zip whose entries are stored, not compressed, so that no
entry can be larger than the file itself: a bomb has nothing to swell from.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelFileAccessError, ModelFileError, ModelFileNotFoundError

__all__ = [
    "array_bytes",
    "narrowest",
    "read_array",
    "read_entries",
    "replacing",
    "write_entries",
]

_DATE = (1980, 1, 1, 0, 0, 0)
"""Of every entry: the same model gives the same bytes."""

# The only form of header that NumPy writes for the arrays of a model; a regular
# expression reads it without evaluating anything.
_HEADER = re.compile(
    rb"\{'descr': '([|][iu]1|<[iu][248]|<f[48])', 'fortran_order': False, "
    rb"'shape': \((\d{1,12}),?(?: (\d{1,12}))?\), \} *\n"
)
_MAGIC = b"\x93NUMPY\x01\x00"

# What zipfile was seen to raise, or documents, on broken files.
_BROKEN = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
    LookupError,
    ValueError,
    OverflowError,
    struct.error,
)


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write in one step: readers see the old file or the new one, whole.

    A temporary file in the same folder is written, flushed to the disk and
    renamed; if anything fails it is removed, and an existing file stays.
    """
    target = Path(os.path.realpath(path))
    # Not tempfile: its files are private, and the user's umask should decide.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def write_entries(path: str | Path, entries: Mapping[str, bytes]) -> None:
    """Write the file in one step, see `replacing`; missing folders are made.

    Raises
    ------
    ModelFileAccessError
        If it cannot be written; it names `path`, not the draft beside it.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, content in entries.items():
                info = zipfile.ZipInfo(name, _DATE)
                info.create_system = 3  # the same bytes on every system
                info.external_attr = 0o644 << 16
                archive.writestr(info, content)
    except OSError as error:
        why = error.strerror or error
        raise ModelFileAccessError(f"cannot write model file {os.fspath(path)!r}: {why}") from error


def read_entries(path: str | Path) -> dict[str, bytes]:
    """All entries of a file that `write_entries` wrote.

    Raises
    ------
    ModelFileError
        If it is not such a file, or is truncated or corrupted.
    ModelFileNotFoundError, ModelFileAccessError
        If it is not there, or cannot be opened.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            with zipfile.ZipFile(file) as archive:
                infos = archive.infolist()
                names = [info.filename for info in infos]
                if len(set(names)) != len(names):
                    raise ModelFileError("an entry appears twice")
                if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
                    raise ModelFileError("an entry is compressed; model files store them as is")
                if sum(max(info.file_size, info.compress_size) for info in infos) > size:
                    raise ModelFileError("the entries claim to be larger than the file")
                return {info.filename: archive.read(info) for info in infos}
        except ModelFileError as error:
            raise ModelFileError(f"{path}: {error}") from None
        except _BROKEN as error:
            raise ModelFileError(
                f"{path} is not a model file, or it is damaged: {error}"
            ) from error


def _opened(path: str | Path) -> IO[bytes]:
    try:
        return Path(path).open("rb")
    except FileNotFoundError as error:
        raise ModelFileNotFoundError(
            f"there is no model file {os.fspath(path)!r}; check the path"
        ) from error
    except OSError as error:
        why = error.strerror or error
        raise ModelFileAccessError(f"cannot read model file {os.fspath(path)!r}: {why}") from error


def narrowest(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`array` in the smallest type that holds each of its values exactly."""
    if array.dtype == np.float32:
        return array
    if array.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            single = array.astype(np.float32)
        same = np.array_equal(single.astype(np.float64).view(np.uint64), array.view(np.uint64))
        return single if same else array
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    kinds: tuple[type[np.signedinteger[Any]], ...] = (np.int8, np.int16, np.int32, np.int64)
    return array.astype(
        next(k for k in kinds if np.iinfo(k).min <= low and high <= np.iinfo(k).max), copy=False
    )


def array_bytes(array: npt.NDArray[Any]) -> bytes:
    """`array` as a .npy file, version 1.0, little endian."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    header = f"{{'descr': '{little.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}"
    # The format asks for a multiple of 64 bytes up to and including the line end.
    padded = header + " " * (-(len(_MAGIC) + 2 + len(header) + 1) % 64) + "\n"
    head = _MAGIC + struct.pack("<H", len(padded)) + padded.encode("ascii")
    return b"".join((head, little.data))


def read_array(content: bytes, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The array of a .npy file, widened to `dtype`; ValueError if it is not one.

    The stored type must be of the same kind and no wider, and the size must be
    exactly what the shape says, which is checked before anything is allocated.
    """
    wanted = np.dtype(dtype)
    end = 10 + int.from_bytes(content[8:10], "little")
    header = _HEADER.fullmatch(content[10:end])
    if content[:8] != _MAGIC or header is None:
        raise ValueError("not an array as treekit writes it")
    stored = np.dtype(header[1].decode("ascii"))
    kinds = "iu" if wanted.kind in "iu" else wanted.kind
    if stored.kind not in kinds or stored.itemsize > wanted.itemsize:
        raise ValueError(f"an array of {stored}; expected {wanted} or narrower")
    shape = tuple(int(n) for n in header.groups()[1:] if n is not None)
    count = shape[0] * (shape[1] if len(shape) == 2 else 1)
    if count * stored.itemsize != len(content) - end:
        raise ValueError(f"an array of {len(content) - end} bytes, its shape is {shape}")
    array = np.frombuffer(content, dtype=stored, offset=end).reshape(shape)
    if wanted.kind == "u" and array.size and int(array.min()) < 0:
        raise ValueError("a negative number where none can be")
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return array.astype(wanted)
