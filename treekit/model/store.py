"""The model file: a zip of ``model.json`` and one ``.npy`` array for each field.

Arrays hold the nodes of all trees, one after the other (see
`treekit.model.joined`), each in the smallest type that is exact.  What follows
from the rest is not stored: where a node's level entries start.  A file from a
stranger is safe to load: nothing is executed, no size is believed, and the
model is checked like one built by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ModelError, ModelFileError
from treekit.model.archive import array_bytes, narrowest, read_array, read_entries, write_entries
from treekit.model.ensemble import MissingPolicy, Model, UnknownPolicy
from treekit.model.joined import join, separate
from treekit.model.plain import from_json, to_json
from treekit.model.portable import MAX_TREES, Grid, grid_shape, units_per_tree
from treekit.model.tree import DTYPES, Split, Tree, check_forest

__all__ = ["VERSION", "load", "save"]

VERSION = 1
"""Of the file format.  A reader takes files up to its own version.

Whatever later versions change, ``model.json`` stays a stored zip entry that
holds ``format`` and ``version``, so that older readers can say what is wrong.
"""

_FORMAT = "treekit-model"
_ARRAYS: dict[str, type[np.generic]] = {
    "roots": np.int64,
    "units": np.int64,
    **{name: dtype for name, dtype in DTYPES.items() if name != "level_start"},
}
_ENTRIES = {"model.json", *(f"{name}.npy" for name in _ARRAYS)}

_LOWEST_EXPONENT, _HIGHEST_EXPONENT = -960, 1024


class _Stamp(msgspec.Struct, frozen=True):
    """What every version's ``model.json`` starts with."""

    format: str
    version: int


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``model.json`` of this version."""

    format: str
    version: int
    schema: Schema
    exponent: int
    missing: MissingPolicy
    unknown: UnknownPolicy
    settings: dict[str, Any]
    provenance: dict[str, Any]


def save(model: Model, path: str | Path) -> None:
    """Write `model` to a file, atomically; the same model gives the same bytes.

    Raises
    ------
    ModelFileError
        If settings or provenance hold what a file cannot.
    OSError
        If the file cannot be written; an existing one is then as it was.
    """
    try:
        header = _Header(
            format=_FORMAT,
            version=VERSION,
            schema=model.schema,
            exponent=model.exponent,
            missing=model.missing,
            unknown=model.unknown,
            settings=to_json(model.settings),
            provenance=to_json(model.provenance),
        )
        entries = {"model.json": msgspec.json.format(msgspec.json.encode(header), indent=1)}
    except (ModelError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ModelFileError(f"the model cannot be saved to {path}: {error}") from error
    nodes, roots = join(model.trees)
    arrays = {name: getattr(nodes, name) for name in DTYPES if name in _ARRAYS}
    for name, array in {"roots": roots, "units": model.units, **arrays}.items():
        entries[f"{name}.npy"] = array_bytes(narrowest(array))
    write_entries(path, entries)


def load(path: str | Path) -> Model:
    """Read a model file, which may come from anyone.

    Raises
    ------
    ModelFileError
        If it is not a model file, is truncated, corrupted or malformed, or was
        written in a format newer than this treekit reads.
    OSError
        If it cannot be opened.
    """
    entries = read_entries(path)
    try:
        _check_stamp(entries)
        if set(entries) != _ENTRIES:
            strange = sorted(set(entries) ^ _ENTRIES)
            raise ModelFileError(f"entries are missing or unknown: {', '.join(strange)!r}")
        header = msgspec.json.decode(entries.pop("model.json"), type=_Header)
        arrays = {name: _array(name, entries.pop(f"{name}.npy")) for name in _ARRAYS}
        return _model(header, arrays)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged or malformed: {error}") from error


def _check_stamp(entries: dict[str, bytes]) -> None:
    if "model.json" not in entries:
        raise ModelFileError("not a model file: it has no entry 'model.json'")
    stamp = msgspec.json.decode(entries["model.json"], type=_Stamp)
    if stamp.format != _FORMAT or stamp.version < 1:
        raise ModelFileError(f"not a model file: format {stamp.format!r}")
    if stamp.version > VERSION:
        raise ModelFileError(
            f"the file has format version {stamp.version}, and this treekit reads up to "
            f"version {VERSION}; upgrade treekit"
        )


def _array(name: str, content: bytes) -> npt.NDArray[Any]:
    try:
        return read_array(content, _ARRAYS[name])
    except ValueError as error:
        raise ModelFileError(f"{name}.npy holds {error}") from None


def _model(header: _Header, arrays: dict[str, npt.NDArray[Any]]) -> Model:
    """Build the model after every check that a model built by hand passes."""
    schema, roots, units = header.schema, arrays.pop("roots"), arrays.pop("units")
    for name, array in arrays.items():
        if name not in ("level_branch", "value") and array.shape != arrays["kind"].shape:
            raise ModelFileError(f"{name} has shape {array.shape}, kind {arrays['kind'].shape}")
    if roots.ndim != 1 or not 2 <= len(roots) <= MAX_TREES + 1:
        raise ModelFileError(f"a model holds 1 to {MAX_TREES} trees; roots has {roots.shape}")
    nodes = Tree(**arrays, level_start=_level_start(arrays, schema))
    check_forest(nodes, roots, schema)
    _check_units(units, header, nodes.n_leaves, len(roots) - 1)
    units.flags.writeable = False
    return Model(
        schema=schema,
        trees=separate(nodes, roots),
        units=units,
        exponent=header.exponent,
        missing=header.missing,
        unknown=header.unknown,
        settings=from_json(header.settings),
        provenance=from_json(header.provenance),
    )


def _level_start(arrays: dict[str, npt.NDArray[Any]], schema: Schema) -> npt.NDArray[np.int64]:
    """Where the level entries of each node start: a level split has one for each level."""
    kind, feature = arrays["kind"], arrays["feature"]
    asks = (kind == Split.SUBSET) | (kind == Split.MULTIWAY)
    asks &= (feature >= 0) & (feature < schema.n_features)  # others are refused later, by name
    counts = np.zeros(len(kind) + 1, dtype=np.int64)
    counts[1:][asks] = schema.n_levels[feature[asks]]
    return np.cumsum(counts)


def _check_units(
    units: npt.NDArray[np.int64], header: _Header, n_leaves: int, n_trees: int
) -> None:
    """Refuse integers that `make_model` could not have made."""
    schema = header.schema
    if units.shape != (n_leaves, schema.n_outputs):
        raise ModelFileError(f"units has shape {units.shape}, not {(n_leaves, schema.n_outputs)}")
    if schema.task == "classification":
        total = units_per_tree(n_trees, schema.dtype)
        fits = bool(np.all((units >= 0) & (units <= total)))
        if header.exponent != 0 or not fits or not bool(np.all(units.sum(axis=1) == total)):
            raise ModelFileError(f"the votes of a leaf do not share {total} units")
        return
    if not _LOWEST_EXPONENT <= header.exponent <= _HIGHEST_EXPONENT:
        raise ModelFileError(f"the grid's exponent {header.exponent} is out of range")
    bound = Grid(header.exponent, *grid_shape(n_trees, schema.dtype)).bound
    if not bool(np.all((units >= -bound) & (units <= bound))):
        raise ModelFileError(f"a leaf's integer lies beyond the grid's {bound}")
