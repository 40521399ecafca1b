"""The model file: a zip of ``model.json`` and one ``.npy`` array for each field.

Arrays hold the nodes of all trees, one after the other (see
`treekit.model.joined`), each in the smallest type that is exact.  What follows
from the rest is not stored: where a node's level entries start.  A file from a
stranger is safe to load: nothing is executed, no size is believed, and the
model is checked like one built by hand.  Only models with oblique splits, with
surrogates, or with rules have the arrays of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ModelError, ModelFileError
from treekit.model.archive import array_bytes, narrowest, read_array, read_entries, write_entries
from treekit.model.check import check_forest
from treekit.model.ensemble import MissingPolicy, Model, UnknownPolicy, Voting
from treekit.model.joined import roots_of, separate
from treekit.model.links import Combine, Link
from treekit.model.plain import from_json, to_json
from treekit.model.policies import check_policies, check_units
from treekit.model.portable import MAX_TREES
from treekit.model.tree import DTYPES, PER_NODE, Split, Tree

__all__ = ["VERSION", "load", "save"]

VERSION = 3
"""Of the file format.  A reader takes files up to its own version; 2 added sums and links, 3
rules, and a model without rules is still written as 2, for readers of before.

Whatever later versions change, ``model.json`` stays a stored zip entry that
holds ``format`` and ``version``, so that older readers can say what is wrong.
"""

_FORMAT = "treekit-model"
_GROUPS = {
    "n_terms": ("term_feature", "term_weight"),
    "n_surrogates": (
        "surrogate_feature",
        "surrogate_threshold",
        "surrogate_below",
        "surrogate_level_branch",
    ),
}
"""Arrays that a file has all of or none: how many each node owns, and what it owns."""

_SIDES = ("surrogate_above", "surrogate_lost")
"""Arrays of models whose surrogates are conditions of rules; others say the same of each."""

_PLAIN = ("roots", "units", *PER_NODE, "level_branch")
_ARRAYS: dict[str, type[np.generic]] = {
    "roots": np.int64,
    "units": np.int64,
    "n_terms": np.int64,
    "n_surrogates": np.int64,
    **{name: dtype for name, dtype in DTYPES.items() if not name.endswith("_start")},
}

_MOST_OWNED = 2**31 - 1


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
    voting: Voting
    costs: tuple[tuple[int, ...], ...] | None
    settings: dict[str, Any]
    provenance: dict[str, Any]
    combine: Combine = "mean"
    link: Link = "identity"


def save(model: Model, path: str | Path) -> None:
    """Write `model` to a file, atomically; the same model gives the same bytes.

    Missing folders are made.

    Raises
    ------
    ModelFileError
        If settings or provenance hold what a file cannot.
    ModelFileAccessError
        If the file cannot be written; an existing one is then as it was.
    """
    try:
        header = _Header(
            format=_FORMAT,
            version=VERSION if _one_sided(model) else 2,
            schema=model.schema,
            exponent=model.exponent,
            missing=model.missing,
            unknown=model.unknown,
            voting=model.voting,
            costs=None if model.costs is None else tuple(map(tuple, model.costs.tolist())),
            settings=to_json(model.settings),
            provenance=to_json(model.provenance),
            combine=model.combine,
            link=model.link,
        )
        entries = {"model.json": msgspec.json.format(msgspec.json.encode(header), indent=1)}
    except (ModelError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ModelFileError(f"the model cannot be saved to {path}: {error}") from error
    for name, array in _arrays_of(model):
        entries[f"{name}.npy"] = array_bytes(narrowest(array))
    write_entries(path, entries)


def _arrays_of(model: Model) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The arrays that a file has, by name, one after the other: all would be the model again."""
    yield "roots", roots_of(model.trees)
    yield "units", model.units
    for name in _PLAIN[2:]:
        yield name, _joined(model, name)
    for count, names in _GROUPS.items():
        start = f"{count[2:-1]}_start"
        owned = np.concatenate([np.diff(getattr(tree, start)) for tree in model.trees])
        if owned.any():
            yield count, owned
            for name in names:
                yield name, _joined(model, name)
    if _one_sided(model):
        for name in _SIDES:
            yield name, _joined(model, name)


def _one_sided(model: Model) -> bool:
    return any(len(tree.surrogate_feature) and tree.one_sided for tree in model.trees)


def _joined(model: Model, name: str) -> npt.NDArray[Any]:
    """One array of all trees, as `join` has it, in the smallest type that is exact."""
    arrays = [narrowest(getattr(tree, name)) for tree in model.trees]
    if name != "first_child":
        return np.concatenate(arrays)
    roots = roots_of(model.trees).tolist()
    return np.concatenate(
        [
            np.where(tree.kind == Split.LEAF, -1, child.astype(np.int64) + root)
            for tree, child, root in zip(model.trees, arrays, roots[:-1], strict=True)
        ]
    )


def load(path: str | Path) -> Model:
    """Read a model file, which may come from anyone.

    It takes at most 100 bytes of memory for each byte of the file, and 4 kB
    for each tree, of which there are at most `MAX_TREES`; usually 4 to 10.

    Raises
    ------
    ModelFileError
        If it is not a model file, is truncated, corrupted or malformed, or was
        written in a format newer than this treekit reads.
    ModelFileNotFoundError, ModelFileAccessError
        If it is not there, or cannot be opened; these are OSErrors, too.
    """
    entries = read_entries(path)
    try:
        _check_stamp(entries)
        expected = _expected(entries)
        if strange := sorted(set(entries) ^ {f"{name}.npy" for name in expected} ^ {"model.json"}):
            raise ModelFileError(f"entries are missing or unknown: {', '.join(strange)!r}")
        header = msgspec.json.decode(entries.pop("model.json"), type=_Header)
        arrays = {name: _array(name, entries.pop(f"{name}.npy")) for name in expected}
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


def _expected(entries: Mapping[str, bytes]) -> list[str]:
    """The arrays that belong in a file with these entries."""
    groups = [group for group in _GROUPS if f"{group}.npy" in entries]
    owned = [name for group in groups for name in _GROUPS[group]]
    sides = _SIDES if f"{_SIDES[0]}.npy" in entries else ()
    return [*_PLAIN, *groups, *owned, *sides]


def _array(name: str, content: bytes) -> npt.NDArray[Any]:
    try:
        return read_array(content, _ARRAYS[name])
    except ValueError as error:
        raise ModelFileError(f"{name}.npy holds {error}") from None


def _model(header: _Header, arrays: dict[str, npt.NDArray[Any]]) -> Model:
    """Build the model after every check that a model built by hand passes."""
    schema, roots, units = header.schema, arrays.pop("roots"), arrays.pop("units")
    for name, array in arrays.items():
        if (
            name in (*PER_NODE, *_GROUPS)
            and name != "value"
            and array.shape != arrays["kind"].shape
        ):
            raise ModelFileError(f"{name} has shape {array.shape}, kind {arrays['kind'].shape}")
    if roots.ndim != 1 or not 2 <= len(roots) <= MAX_TREES + 1:
        raise ModelFileError(f"a model holds 1 to {MAX_TREES} trees; roots has {roots.shape}")
    arrays |= _starts(arrays, schema)
    for group in _GROUPS:
        arrays.pop(group, None)
    nodes = Tree(**arrays)
    margins = schema.task == "classification" and header.combine == "sum"
    check_forest(nodes, roots, schema, margins)
    costs = None if header.costs is None else _cost_table(header.costs)
    model = Model(
        schema=schema,
        trees=separate(nodes, roots),
        units=units,
        exponent=header.exponent,
        missing=header.missing,
        unknown=header.unknown,
        voting=header.voting,
        costs=costs,
        combine=header.combine,
        link=header.link,
        settings=from_json(header.settings),
        provenance=from_json(header.provenance),
    )
    check_policies(model)
    check_units(model, nodes.n_leaves)
    return model


def _cost_table(costs: tuple[tuple[int, ...], ...]) -> npt.NDArray[np.int64]:
    if len({len(row) for row in costs}) != 1:
        raise ModelFileError("costs is no table")
    return np.array(costs, dtype=np.int64)


def _starts(
    arrays: Mapping[str, npt.NDArray[Any]], schema: Schema
) -> dict[str, npt.NDArray[np.int64]]:
    """Where the entries of each owner start: what the file leaves out."""
    kind, feature = arrays["kind"], arrays["feature"]
    asks = (kind == Split.SUBSET) | (kind == Split.MULTIWAY)
    starts = {"level_start": _level_starts(feature, asks, schema)}
    for group in _GROUPS:
        if group in arrays:
            if np.any((arrays[group] < 0) | (arrays[group] > _MOST_OWNED)):
                raise ModelFileError(f"{group} is out of range")
            starts[f"{group[2:-1]}_start"] = np.cumsum(np.append(0, arrays[group]))
    if "n_surrogates" in arrays:
        asked = arrays["surrogate_feature"]
        everyone = np.ones(len(asked), dtype=np.bool_)
        starts["surrogate_level_start"] = _level_starts(asked, everyone, schema)
    return starts


def _level_starts(
    feature: npt.NDArray[Any], asks: npt.NDArray[np.bool_], schema: Schema
) -> npt.NDArray[np.int64]:
    """A level split has one entry for each level of its column."""
    asks = (
        asks & (feature >= 0) & (feature < schema.n_features)
    )  # others are refused later, by name
    counts = np.zeros(len(feature) + 1, dtype=np.int64)
    counts[1:][asks] = schema.n_levels[feature[asks]]
    return np.cumsum(counts)
