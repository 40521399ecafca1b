"""The model file: a zip of ``model.json`` and one ``.npy`` array per field.

Arrays hold the nodes of all trees, concatenated (see `treekit.model.tree`),
each in the smallest exact type.  Derivable arrays, such as the offsets of a node's
categories, are not stored.  Untrusted files are safe to load: nothing is executed,
no stated size is trusted, and the model is checked like one built by hand.  Only
models with oblique splits, surrogates or rules have the respective arrays.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import struct
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import (
    ModelError,
    ModelFileAccessError,
    ModelFileError,
    ModelFileNotFoundError,
    TreekitError,
    find_repeated,
)
from treekit.model.fixed_point import MASS, MASS_BITS, MAX_TREES, SUM_LIMIT, make_exponent
from treekit.model.json_values import from_json, to_json
from treekit.model.links import Combine, Link
from treekit.model.model import MissingPolicy, Model, UnknownPolicy, Voting
from treekit.model.tree import (
    FIELD_DTYPES,
    PER_NODE_FIELDS,
    Split,
    Tree,
    compute_root_offsets,
    split_trees,
)
from treekit.model.validation import check_forest, check_policies, check_units

# ---------------------------------------------------------------- saving and loading

FORMAT_VERSION = 5
"""Version of the file format; a reader accepts files up to its own version.

Version 2 added sums and link functions, 3 rules, 4 outputs with different fixed-point
steps, the notation of numbers, and categories found by rounding, 5 sums beyond 2**53, and
fractional instances whose parts of numbers are rounded down to steps; a model is written in the
first version that has what it needs, for older readers.
In all future versions ``model.json`` must remain an uncompressed zip entry with ``format``
and ``version``, so that older readers can report the version.
"""

_FIRST_WITH_PARTS = 5
_FORMAT = "treekit-model"
_OPTIONAL_ARRAYS = {
    "n_terms": ("term_feature", "term_weight"),
    "n_surrogates": (
        "surrogate_feature",
        "surrogate_threshold",
        "surrogate_below",
        "surrogate_level_branch",
    ),
}
"""Optional arrays, all present or all absent: the counts per node, and their entries."""

_CONDITION_ARRAYS = ("surrogate_above", "surrogate_lost")
"""Arrays of models with rules; surrogates of other models have the default values."""

_REQUIRED_ARRAYS = ("roots", "units", *PER_NODE_FIELDS, "level_branch")
_ARRAY_DTYPES: dict[str, type[np.generic]] = {
    "roots": np.int64,
    "units": np.int64,
    "n_terms": np.int64,
    "n_surrogates": np.int64,
    **{name: dtype for name, dtype in FIELD_DTYPES.items() if not name.endswith("_offsets")},
}

_MAX_ENTRIES = 2**31 - 1


class _FormatStamp(msgspec.Struct, frozen=True):
    """The part of ``model.json`` that is common to all versions."""

    format: str
    version: int


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``model.json`` of this version."""

    format: str
    version: int
    schema: Schema
    exponent: int | tuple[int, ...]
    missing: MissingPolicy
    unknown: UnknownPolicy
    voting: Voting
    costs: tuple[tuple[int, ...], ...] | None
    settings: dict[str, Any]
    provenance: dict[str, Any]
    combine: Combine = "mean"
    link: Link = "identity"


_EQUAL_FIELDS = ("schema", "exponent", "missing", "unknown", "voting", "combine", "link")
"""Fields of the header with the same name and value as in the model."""


def save(model: Model, path: str | Path) -> None:
    """Write `model` to a file atomically; equal models give equal bytes.

    Missing folders are created.

    Raises
    ------
    ModelFileError
        If settings or provenance contain unsupported values.
    ModelFileAccessError
        If the file cannot be written; an existing file is then unchanged.
    """
    try:
        header = _Header(
            format=_FORMAT,
            version=_choose_version(model),
            costs=None if model.costs is None else tuple(map(tuple, model.costs.tolist())),
            settings=to_json(model.settings),
            provenance=to_json(model.provenance),
            **{name: getattr(model, name) for name in _EQUAL_FIELDS},
        )
        entries = {"model.json": msgspec.json.format(msgspec.json.encode(header), indent=1)}
    except (ModelError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ModelFileError(f"cannot save the model to {path}: {error}") from error
    for name, array in _iter_arrays(model):
        entries[f"{name}.npy"] = encode_array(narrow_dtype(array))
    write_entries(path, entries)


def _choose_version(model: Model) -> int:
    """Return the first version of the format that has what a model needs."""
    if model.has_wide_sums or model.part_bits:
        return 5
    schema = model.schema
    new = schema.notation is not msgspec.UNSET or any(column.rounds for column in schema.columns)
    if new or not isinstance(model.exponent, int):
        return 4
    return 3 if _has_rule_conditions(model) else 2


def _iter_arrays(model: Model) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield the arrays of a file by name, one at a time to save memory."""
    yield "roots", compute_root_offsets(model.trees)
    yield "units", model.units
    for name in _REQUIRED_ARRAYS[2:]:
        yield name, _concatenate_field(model, name)
    for count, names in _OPTIONAL_ARRAYS.items():
        start = f"{count[2:-1]}_offsets"
        owned = np.concatenate([np.diff(getattr(tree, start)) for tree in model.trees])
        if owned.any():
            yield count, owned
            for name in names:
                yield name, _concatenate_field(model, name)
    if _has_rule_conditions(model):
        for name in _CONDITION_ARRAYS:
            yield name, _concatenate_field(model, name)


def _has_rule_conditions(model: Model) -> bool:
    return any(len(tree.surrogate_feature) and tree.one_sided for tree in model.trees)


def _concatenate_field(model: Model, name: str) -> npt.NDArray[Any]:
    """Concatenate one array of all trees like `join`, in the smallest exact type."""
    arrays = [narrow_dtype(getattr(tree, name)) for tree in model.trees]
    if name != "first_child":
        return np.concatenate(arrays)
    roots = compute_root_offsets(model.trees).tolist()
    return np.concatenate(
        [
            np.where(tree.kind == Split.LEAF, -1, child.astype(np.int64) + root)
            for tree, child, root in zip(model.trees, arrays, roots[:-1], strict=True)
        ]
    )


def load(path: str | Path) -> Model:
    """Read a model file; untrusted files are safe.

    Loading takes at most 100 bytes of memory per byte of the file, usually 4 to 10,
    and 4 kB per tree, for at most `MAX_TREES` trees.

    Raises
    ------
    ModelFileError
        If it is not a model file, is truncated, corrupted or malformed, or has a
        newer format version than this treekit supports.
    ModelFileNotFoundError, ModelFileAccessError
        If it does not exist, or cannot be opened; both are also OSErrors.
    """
    return _parse_entries(read_entries(path), path)


def parse_model_file(data: bytes, path: str | Path) -> Model:
    """Return the model in the content of a model file; `path` is for error messages.

    Raises
    ------
    ModelFileError
        See `load`.
    """
    return _parse_entries(_read_archive(io.BytesIO(data), len(data), path), path)


def _parse_entries(entries: dict[str, bytes], path: str | Path) -> Model:
    try:
        _check_format(entries)
        expected = _list_expected_arrays(entries)
        names = {"model.json", *(f"{name}.npy" for name in expected)}
        missing, unknown = sorted(names - set(entries)), sorted(set(entries) - names)
        if missing or unknown:
            raise ModelFileError(f"missing entries: {missing}; unknown entries: {unknown}")
        header = msgspec.json.decode(entries.pop("model.json"), type=_Header)
        arrays = {name: _read_array_entry(name, entries.pop(f"{name}.npy")) for name in expected}
        return _build_model(header, arrays)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged or malformed: {error}") from error


def _check_format(entries: dict[str, bytes]) -> None:
    if "model.json" not in entries:
        raise ModelFileError("not a model file: no entry 'model.json'")
    stamp = msgspec.json.decode(entries["model.json"], type=_FormatStamp)
    if stamp.format != _FORMAT or stamp.version < 1:
        raise ModelFileError(f"not a model file: format {stamp.format!r}")
    if stamp.version > FORMAT_VERSION:
        raise ModelFileError(
            f"the file has format version {stamp.version}, but this treekit reads up to "
            f"version {FORMAT_VERSION}; upgrade treekit"
        )


def _list_expected_arrays(entries: Mapping[str, bytes]) -> list[str]:
    """Return the names of the arrays that a file with these entries must have."""
    groups = [group for group in _OPTIONAL_ARRAYS if f"{group}.npy" in entries]
    owned = [name for group in groups for name in _OPTIONAL_ARRAYS[group]]
    sides = _CONDITION_ARRAYS if f"{_CONDITION_ARRAYS[0]}.npy" in entries else ()
    return [*_REQUIRED_ARRAYS, *groups, *owned, *sides]


def _read_array_entry(name: str, content: bytes) -> npt.NDArray[Any]:
    try:
        # Branches stay as narrow as they are stored: `Tree` holds them so, too.
        return decode_array(content, _ARRAY_DTYPES[name], widen=name != "level_branch")
    except ValueError as error:
        raise ModelFileError(f"{name}.npy contains {error}") from None


def _build_model(header: _Header, arrays: dict[str, npt.NDArray[Any]]) -> Model:
    """Build the model with the same checks as for a model built by hand."""
    schema, roots, units = header.schema, arrays.pop("roots"), arrays.pop("units")
    for name, array in arrays.items():
        if array.ndim != 1 and name != "value":
            raise ModelFileError(f"{name} has shape {array.shape}, expected one dimension")
        if (
            name in (*PER_NODE_FIELDS, *_OPTIONAL_ARRAYS)
            and name != "value"
            and array.shape != arrays["kind"].shape
        ):
            raise ModelFileError(
                f"{name} has shape {array.shape}, but kind has shape {arrays['kind'].shape}"
            )
    if roots.ndim != 1 or not 2 <= len(roots) <= MAX_TREES + 1:
        raise ModelFileError(
            f"roots has shape {roots.shape}, expected (trees + 1,) for 1 to {MAX_TREES} trees"
        )
    arrays |= _rebuild_offsets(arrays, schema)
    for group in _OPTIONAL_ARRAYS:
        arrays.pop(group, None)
    nodes = Tree(**arrays)
    margins = schema.task == "classification" and header.combine == "sum"
    check_forest(nodes, roots, schema, margins)
    model = Model(
        trees=split_trees(nodes, roots),
        units=units,
        costs=None if header.costs is None else _parse_costs(header.costs),
        settings=from_json(header.settings),
        provenance=from_json(header.provenance),
        **{name: getattr(header, name) for name in _EQUAL_FIELDS},
    )
    check_policies(model)
    if header.version < _FIRST_WITH_PARTS and model.part_bits:
        model = _refine_steps(model)
    check_units(model, nodes.n_leaves)
    return model


def _refine_steps(model: Model) -> Model:
    """Return a fractional regression of an older file, whose sums were of values times mass.

    With steps finer by the factor `MASS`, no part of a value is rounded.
    """
    if np.any((model.units < -SUM_LIMIT // MASS) | (model.units > SUM_LIMIT // MASS)):
        raise ModelFileError(f"a fixed-point leaf value exceeds the maximum {SUM_LIMIT // MASS}")
    exponent = make_exponent([own - MASS_BITS for own in model.exponents])
    return replace(model, units=model.units * MASS, exponent=exponent)


def _parse_costs(costs: tuple[tuple[int, ...], ...]) -> npt.NDArray[np.int64]:
    if len({len(row) for row in costs}) != 1:
        raise ModelFileError("costs is not a matrix")
    return np.array(costs, dtype=np.int64)


def _rebuild_offsets(
    arrays: Mapping[str, npt.NDArray[Any]], schema: Schema
) -> dict[str, npt.NDArray[np.int64]]:
    """Compute the offset arrays of nodes and surrogates, which the file does not store."""
    kind, feature = arrays["kind"], arrays["feature"]
    level_splits = (kind == Split.SUBSET) | (kind == Split.MULTIWAY)
    starts = {"level_offsets": _compute_level_offsets(feature, level_splits, schema)}
    for group in _OPTIONAL_ARRAYS:
        if group in arrays:
            if np.any((arrays[group] < 0) | (arrays[group] > _MAX_ENTRIES)):
                raise ModelFileError(
                    f"{group}.npy contains a count out of range; expected 0 to {_MAX_ENTRIES}"
                )
            starts[f"{group[2:-1]}_offsets"] = np.cumsum(np.append(0, arrays[group]))
    if "n_surrogates" in arrays:
        feature = arrays["surrogate_feature"]
        starts["surrogate_level_offsets"] = _compute_level_offsets(feature, np.True_, schema)
    return starts


def _compute_level_offsets(
    feature: npt.NDArray[Any], level_splits: npt.NDArray[np.bool_] | np.bool_, schema: Schema
) -> npt.NDArray[np.int64]:
    """Compute the offsets of splits on categories: one entry per category of the column."""
    # Invalid columns are rejected later, with a message of their own.
    level_splits = level_splits & (feature >= 0) & (feature < schema.n_features)
    counts = np.zeros(len(feature) + 1, dtype=np.int64)
    counts[1:][level_splits] = schema.n_levels[feature[level_splits]]
    return np.cumsum(counts)


# ---------------------------------------------------------------- archive
# A zip file whose entries are stored uncompressed, so that no entry can be larger
# than the file itself (no zip bombs).

_ENTRY_DATE = (1980, 1, 1, 0, 0, 0)
"""Constant date of all entries, so that equal models give equal bytes."""

# The only form of header that NumPy writes for the arrays of a model, parsed by a
# regular expression instead of evaluation.
_NPY_HEADER = re.compile(
    rb"\{'descr': '([|][iu]1|<[iu][248]|<f[48])', 'fortran_order': False, "
    rb"'shape': \((\d{1,12}),?(?: (\d{1,12}))?\), \} *\n"
)
_NPY_MAGIC = b"\x93NUMPY\x01\x00"

# Exceptions that zipfile documents, or was observed to raise, for broken files.
_ARCHIVE_ERRORS = (
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
def replace_atomically(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for atomic replacement: readers see the complete old or new file.

    Missing folders are created.  A temporary file in the same folder is written, flushed to
    disk and renamed; on failure it is removed, and an existing file is unchanged.

    Raises
    ------
    OSError
        If the file cannot be written; names `path`, not the temporary file.
    """
    target = Path(os.path.realpath(path))
    # Not tempfile: its files are private, but the user's umask should apply.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        if isinstance(error, TreekitError) or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_entries(path: str | Path, entries: Mapping[str, bytes]) -> None:
    """Write the file atomically, see `replace_atomically`.

    Raises
    ------
    ModelFileAccessError
        If it cannot be written.
    """
    try:
        with (
            replace_atomically(path) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
        ):
            for name, content in entries.items():
                info = zipfile.ZipInfo(name, _ENTRY_DATE)
                info.create_system = 3  # the same bytes on every system
                info.external_attr = 0o644 << 16
                archive.writestr(info, content)
    except OSError as error:
        why = error.strerror or error
        raise ModelFileAccessError(f"cannot write model file {os.fspath(path)!r}: {why}") from error


def read_entries(path: str | Path) -> dict[str, bytes]:
    """Read all entries of a file that `write_entries` wrote.

    Raises
    ------
    ModelFileError
        If the file is not a model file, or is truncated or corrupted.
    ModelFileNotFoundError, ModelFileAccessError
        If the file does not exist, or cannot be opened.
    """
    try:
        with Path(path).open("rb") as file:
            return _read_archive(file, os.fstat(file.fileno()).st_size, path)
    except FileNotFoundError as error:
        raise ModelFileNotFoundError(
            f"there is no model file {os.fspath(path)!r}; check the path"
        ) from error
    except OSError as error:
        why = error.strerror or error
        raise ModelFileAccessError(f"cannot read model file {os.fspath(path)!r}: {why}") from error


def _read_archive(file: IO[bytes], size: int, path: str | Path) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            names = [info.filename for info in infos]
            if (twice := find_repeated(names)) is not None:
                raise ModelFileError(f"entry {twice!r:.80} appears twice")
            if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
                raise ModelFileError("an entry is compressed; expected uncompressed entries")
            if sum(max(info.file_size, info.compress_size) for info in infos) > size:
                raise ModelFileError("the stated sizes of the entries exceed the file size")
            return {info.filename: archive.read(info) for info in infos}
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except _ARCHIVE_ERRORS as error:
        file.seek(0)
        start = file.read(20)
        if not start.startswith(b"PK"):  # of every zip file
            raise ModelFileError(
                f"{path} is not a treekit model: it begins with {start!r}; give a file that "
                "treekit train or Model.save wrote"
            ) from error
        raise ModelFileError(f"{path} is not a model file, or is damaged: {error}") from error


def narrow_dtype(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert `array` to the smallest type that represents all values exactly."""
    if array.dtype == np.float32:
        return array
    if array.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            single = array.astype(np.float32)
        same = np.array_equal(single.astype(np.float64).view(np.uint64), array.view(np.uint64))
        return single if same else array
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    return array.astype(np.min_scalar_type(min(low, ~high)), copy=False)  # a negative: signed type


def encode_array(array: npt.NDArray[Any]) -> bytes:
    """Return `array` as the bytes of a .npy file, version 1.0, little endian."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    header = f"{{'descr': '{little.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}"
    # The format requires a multiple of 64 bytes up to and including the newline.
    padded = header + " " * (-(len(_NPY_MAGIC) + 2 + len(header) + 1) % 64) + "\n"
    head = _NPY_MAGIC + struct.pack("<H", len(padded)) + padded.encode("ascii")
    return b"".join((head, little.data))


def decode_array(content: bytes, dtype: npt.DTypeLike, *, widen: bool = True) -> npt.NDArray[Any]:
    """Read the array of a .npy file; widen it to `dtype` if `widen`; ValueError if invalid.

    The stored type must be of the same kind and no wider.  The size must match the shape
    exactly; this is checked before memory is allocated.
    """
    target = np.dtype(dtype)
    end = 10 + int.from_bytes(content[8:10], "little")
    header = _NPY_HEADER.fullmatch(content[10:end])
    if content[:8] != _NPY_MAGIC or header is None:
        raise ValueError("no array in treekit's .npy format")
    stored = np.dtype(header[1].decode("ascii"))
    kinds = "iu" if target.kind in "iu" else target.kind
    if stored.kind not in kinds or stored.itemsize > target.itemsize:
        raise ValueError(f"an array of {stored}; expected {target} or narrower")
    shape = tuple(int(n) for n in header.groups()[1:] if n is not None)
    count = shape[0] * (shape[1] if len(shape) == 2 else 1)
    if count * stored.itemsize != len(content) - end:
        raise ValueError(f"an array of {len(content) - end} bytes, not as its shape {shape}")
    array = np.frombuffer(content, dtype=stored, offset=end).reshape(shape)
    if target.kind == "u" and array.size and int(array.min()) < 0:
        raise ValueError(f"the negative number {int(array.min())}; expected {target}")
    unsigned = target.kind == "i" and stored.kind == "u"
    if unsigned and array.size and int(array.max()) > np.iinfo(target).max:
        raise ValueError(f"the number {int(array.max())}; expected {target}")
    with np.errstate(invalid="ignore"):  # a signalling NaN would warn
        return array.astype(target if widen else stored)
