"""Comparison of tables of nodes with a model's trees, on every path.

Rows are samples; this is exhaustive.  Every leaf of every tree is a box of inputs, with
which the tables are traversed at once (`treekit.verify.kernels.tree_equivalence`).
Sums and surrogate splits are additional columns, which the tables must
define as `treekit.model.tree` does.  Left to rows is the code around the
tables: the loop that traverses them, and the conversion of sums to predictions.  For C
files `treekit.verify.run_c` also checks that treekit wrote that code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError, SettingError, VerificationError
from treekit.export.lowering import FORM_REASON, leaf_table, lower, node_table
from treekit.export.readable import UNREADABLE
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import Model
from treekit.model.tree import DerivedColumns, Split, concatenate_trees, make_derived_columns
from treekit.verify.routing import has_accepted_rows, make_extended_walk

if TYPE_CHECKING:
    from treekit.rules.kernels import TreeWalk
    from treekit.verify.kernels.tree_equivalence import BinaryNodes


Array = npt.NDArray[Any]

_MAX_ROWS = 20
_MAX_STEPS = 4_000_000_000
"""About ten seconds; each path of a tree takes as many steps as its length."""


@dataclass(frozen=True)
class BinaryTables:
    """Tables of an artifact, for inputs in double.

    Attributes
    ----------
    feature, kind, value, yes, no, root : arrays
        As in `treekit.verify.kernels.tree_equivalence.BinaryNodes`; features after those of the
        row are derived columns.
    set_start : (nodes + 1,) int64
    set_codes : (codes,) int64
    leaves : (leaves, values) int64
        Leaf values.
    derived : DerivedColumns, optional
        None if the tables have none.
    """

    feature: Array
    kind: Array
    value: Array
    yes: Array
    no: Array
    root: Array
    set_start: Array
    set_codes: Array
    leaves: Array
    derived: DerivedColumns | None = None


@dataclass(frozen=True)
class StructureComparison:
    """Result of comparing an artifact's tables with the model.

    Attributes
    ----------
    proved : bool
        Whether every path agrees.
    summary : str
        Result as text, with the reason if it is not proved.
    rows : (rows, features) float64
        Rows for which the tables and the model differ.
    fresh : bool
        Whether the file is equal, byte for byte, to a fresh export.
    """

    proved: bool
    summary: str
    rows: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    fresh: bool = False


# ---------------------------------------------------------------- comparison with a fresh export
# Sources depend only on the model and the settings that they contain.  The tests read the trees
# of written files back and compare them on every path.

_FORM_LINE = re.compile(r"^(?: \* )?Form: (\w+); (.*)\.$", re.MULTILINE)


def find_source_settings(text: str) -> dict[str, str] | None:
    """Return the setting ``form`` that a source names, None if it names none."""
    line = _FORM_LINE.search(text)
    if line is None:
        return None
    if line[1] == "readable" or UNREADABLE in line[2]:
        return {"form": "auto"}
    return {"form": line[1] if line[2] == FORM_REASON else "full"}


def compare_with_export(
    path: Path, write: Callable[[], Mapping[str, bytes]]
) -> StructureComparison:
    """Compare files, byte for byte, with those that this version writes for the model."""
    try:
        is_fresh = all(
            content in (found, normalize_line_ends(found))
            for name, content in write().items()
            for found in (path.with_name(name).read_bytes(),)
        )
    except (ExportError, SettingError, OSError):
        is_fresh = False  # this model cannot have been exported with these settings
    if is_fresh:
        return StructureComparison(
            True, "proved: equal, byte for byte, to what this version of treekit writes", fresh=True
        )
    return NOT_FRESH


def normalize_line_ends(content: bytes) -> bytes:
    """Convert the line ends that tools write on Windows to those of treekit."""
    return content.replace(b"\r\n", b"\n")


NOT_FRESH = StructureComparison(
    False,
    "not proved: differs from what this version of treekit writes (another version or other "
    "templates wrote it, or it was changed)",
)


# ---------------------------------------------------------------- comparison of paths


def make_lowered_tables(model: Model) -> BinaryTables:
    """Return the tables that `treekit.export.lowering` makes for a model."""
    derived = make_derived_columns(model)
    leaves = leaf_table(model.units)
    table = node_table(lower(model), leaves, model.schema)
    kind = table.question & 3
    is_set = kind == 2
    number = np.where(is_set, table.value, 0).astype(np.int64)
    sizes = np.where(is_set, np.diff(table.set_start, append=0)[number], 0)
    return BinaryTables(
        feature=table.question >> 2,
        kind=kind,
        value=np.where(is_set, 0.0, table.value),
        yes=table.yes,
        no=table.no,
        root=table.root,
        set_start=np.cumsum(np.append(0, sizes)),
        set_codes=table.set_codes,
        leaves=leaves.vectors,
        derived=derived if derived.n_columns else None,
    )


def compare_paths(model: Model, tables: BinaryTables) -> StructureComparison:
    """Compare tables with the trees of a model, on every path."""
    if not has_accepted_rows(model):
        return StructureComparison(False, "not proved: the model refuses every row")
    try:
        binary, ends, leaf_ids = _check_tables(model, tables)
    except VerificationError as error:
        return StructureComparison(False, f"not proved: {error}")
    walk, roots = _make_model_walk(model)
    rows = np.empty((_MAX_ROWS, model.schema.n_features))
    from treekit.verify.kernels.tree_equivalence import compare_with_tables

    trees, paths, differing = compare_with_tables(
        walk, roots, leaf_ids, binary, ends, _MAX_STEPS, rows
    )
    some = f"{model.n_trees:,} trees" if model.n_trees > 1 else "the tree"
    if differing:
        found = f"{differing:,}" if differing < _MAX_ROWS else f"{differing:,} or more"
        summary = f"NOT the model's: {found} paths of {some} lead to different leaves"
        return StructureComparison(False, summary, rows[:differing])
    if trees < model.n_trees:
        return StructureComparison(
            False, f"not proved: {trees:,} of {some} compared within the step limit"
        )
    return StructureComparison(True, f"proved: every path of {some}, {paths:,} in total")


def _check_tables(model: Model, tables: BinaryTables) -> tuple[BinaryNodes, Array, Array]:
    """Convert the tables for the kernel; raise an error if they do not form trees."""
    from treekit.verify.kernels.tree_equivalence import BACKTRACK_DTYPE, BinaryNodes, compute_depth

    derived = make_derived_columns(model)
    n_columns = model.schema.n_features + derived.n_columns
    feature = tables.feature.astype(np.int64)
    ends = -1 - np.minimum(np.concatenate([tables.yes, tables.no, tables.root]), -1)
    if len(tables.root) != model.n_trees or tables.leaves.shape[1] != model.schema.n_values:
        raise VerificationError("the artifact's tables have a different number of trees or values")
    if np.any((feature < 0) | (feature >= n_columns)) or np.any(ends >= len(tables.leaves)):
        raise VerificationError("the artifact's tables name a column or leaf that does not exist")
    if np.any(tables.root >= len(feature)) or np.isnan(tables.value).any():
        raise VerificationError("the artifact's tables have a missing root or a NaN threshold")
    deepest = compute_depth(tables.yes.astype(np.int64), tables.no.astype(np.int64))
    if deepest < 0:
        raise VerificationError("the nodes in the artifact's tables do not form trees")
    if derived.n_columns and not has_same_columns(derived, tables.derived):
        raise VerificationError("the artifact's derived columns differ from the model's")
    ids = leaf_table(np.concatenate([model.units, tables.leaves])).row
    nodes, _ = concatenate_trees(model.trees)
    leaf_ids = np.full(nodes.n_nodes, -1)
    leaf_ids[nodes.kind == Split.LEAF] = ids[: len(model.units)]
    binary = BinaryNodes(
        value=tables.value.astype(np.float64),
        set_offsets=tables.set_start.astype(np.int64),
        value_ids=ids[len(model.units) :].astype(np.int64),
        **{
            name: getattr(tables, name).astype(np.int64)
            for name in ("feature", "kind", "yes", "no", "root", "set_codes")
        },
    )
    return binary, np.zeros(max(int(deepest), 1), dtype=BACKTRACK_DTYPE), leaf_ids


def has_same_columns(mine: DerivedColumns, given: DerivedColumns | None) -> bool:
    """Whether derived columns are equal, entry by entry; tests on categories have no threshold."""
    if given is None or len(mine.threshold) != len(given.threshold):
        return False
    linear = mine.level_feature < 0
    return all(
        np.array_equal(getattr(mine, name)[own], getattr(given, name)[own])
        for name in DerivedColumns._fields
        if name != "column"
        for own in (linear if name in ("threshold", "below", "above") else slice(None),)
    )


def _make_model_walk(model: Model) -> tuple[TreeWalk, Array]:
    """Concatenate the trees, with a column per sum or surrogate split and thresholds as doubles."""
    schema, derived = model.schema, make_derived_columns(model)
    nodes, roots = concatenate_trees(model.trees)
    asks = derived.column >= 0
    threshold = nodes.threshold.copy()
    at = nodes.kind == Split.THRESHOLD
    if schema.dtype == "float32":
        threshold[at] = to_double_threshold(threshold[at])
    plain = replace(
        nodes,
        kind=np.where(asks, np.uint8(Split.THRESHOLD), nodes.kind),
        feature=np.where(asks, schema.n_features + derived.column, nodes.feature),
        threshold=np.where(asks, 0.0, threshold),
    )
    return make_extended_walk(model, plain, derived.n_columns, model.depth), roots[:-1]
