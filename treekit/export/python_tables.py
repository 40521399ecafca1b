"""Tables of the target "python": numbers as text that Python reads in no time.

Source of a million numerals takes the compiler minutes and gigabytes; one
string of base64 takes it nothing (a million nodes import in 0.8 s, measured).
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError
from treekit.export.divided import divided_table
from treekit.export.literals import Code
from treekit.export.lower import LoweredTree
from treekit.export.table import LeafTable, leaf_table, node_table
from treekit.model.derived_features import DerivedColumns
from treekit.model.model import Model

__all__ = ["derived_tables", "divided_tables", "each_leaf", "leaf_tables", "node_tables", "text_of"]

_MOST = 2**31 - 1
_MISSING_NO, _MISSING_YES, _IN, _MISSING = range(4)


def text_of(numbers: npt.NDArray[Any], dtype: str) -> Code:
    """Lines of base64: the numbers one after the other, the lowest byte first.

    Parameters
    ----------
    numbers : (n,) array
    dtype : {"f8", "i4", "i8"}
    """
    if dtype == "i4" and len(numbers) and int(numbers.max()) > _MOST:
        raise ExportError(f"the model needs more than {_MOST} table entries: train fewer trees")
    content = np.ascontiguousarray(numbers, dtype=f"<{dtype}").tobytes()
    return Code(base64.encodebytes(content).decode("ascii").rstrip("\n"))


def leaf_tables(model: Model) -> dict[str, Any]:
    """What leaves say, by their row in `Model.units`, and their nodes in the trees.

    Of several classes or numbers few are not 0, and most leaves of a fully
    grown forest say one of a few things, so that each is written once.
    """
    nodes = np.concatenate([tree.leaves for tree in model.trees])
    if model.schema.n_values == 1:
        return {
            "units_template": "units_one",
            "leaf_node": text_of(nodes, "i4"),
            "leaf_units": text_of(model.units[:, 0], "i8"),
        }
    leaves = leaf_table(model.units)
    start, column, units = leaves.sparse()
    return {
        "units_template": "units_many",
        "leaf_node": text_of(nodes, "i4"),
        "leaf_vector": text_of(leaves.row, "i4"),
        "units_start": text_of(start, "i4"),
        "units_column": text_of(column, "i4"),
        "units": text_of(units, "i8"),
    }


def each_leaf(model: Model) -> LeafTable:
    """Every leaf for itself: its number in tables is its row in `Model.units`."""
    return LeafTable(np.arange(model.n_leaves), model.units)


def node_tables(
    model: Model, trees: tuple[LoweredTree, ...], derived: DerivedColumns
) -> dict[str, Any]:
    """Inner nodes as a loop with few cases wants them; see ``python/table.jinja``.

    Missing values become cells of their own behind those of the row: -inf, which
    is at most any threshold, where the missing side is yes, and 0 or 1 where a
    node asks for what is missing.  So all but sets and derived columns is one test.
    """
    table = node_table(trees, each_leaf(model), model.schema)
    feature, kind = table.question >> 2, table.question & 3
    n = model.schema.n_features
    is_set, is_derived = kind == _IN, feature >= n
    low = (kind == _MISSING_YES) & ~is_derived
    gone = kind == _MISSING
    low_columns, low_rank = np.unique(feature[low], return_inverse=True)
    gone_columns, gone_rank = np.unique(feature[gone], return_inverse=True)
    asks, value = feature.copy(), table.value.copy()
    asks[low] = n + low_rank
    asks[gone] = n + len(low_columns) + gone_rank
    set_number = table.value[is_set].astype(np.int64)
    asks[is_set] = -1 - set_number
    asks[is_derived] = -1 - len(set_number) - (feature[is_derived] - n)
    value[is_set] = 0.0
    # What an unknown answer of a derived column counts as: 0 says yes.
    value[is_derived] = kind[is_derived] == _MISSING_NO
    return {
        "low": text_of(low_columns, "i4"),
        "gone": text_of(gone_columns, "i4"),
        "nodes": {
            "value": text_of(value, "f8"),
            "asks": text_of(asks, "i4"),
            "yes": text_of(table.yes, "i4"),
            "no": text_of(table.no, "i4"),
        },
        "roots": text_of(table.root, "i4"),
        "set_column": text_of(feature[is_set], "i4"),
        "set_start": text_of(table.set_start, "i4"),
        "set_codes": text_of(table.set_codes, "i4"),
        "walk_template": f"python/walk{'_derived' if derived.n_columns else ''}.jinja",
        "and_derived": Code(", or does a derived column say 1" if derived.n_columns else ""),
    }


def divided_tables(model: Model, derived: DerivedColumns) -> dict[str, Any]:
    """Nodes of trees whose rows divide at missing values."""
    table = divided_table(model, each_leaf(model), derived)
    names = ("question", "child", "low", "high")
    return {
        "nodes": {name: text_of(getattr(table, name), "i4") for name in names}
        | {"value": text_of(table.value, "f8")},
        "roots": text_of(table.root, "i4"),
        "branches": text_of(table.level_branch, "i4"),
    }


def derived_tables(derived: DerivedColumns) -> dict[str, Code]:
    """What derived columns ask; see `treekit.model.derived_features.DerivedColumns`."""
    by_levels = derived.level_feature >= 0
    arrays: dict[str, tuple[npt.NDArray[Any], str]] = {
        "test_start": (derived.test_start, "i4"),
        "threshold": (np.where(by_levels, 0.0, derived.threshold), "f8"),
        "below": (derived.below, "i4"),
        "above": (derived.above, "i4"),
        "lost": (derived.lost, "i4"),
        "term_start": (derived.term_start, "i4"),
        "term_feature": (derived.term_feature, "i4"),
        "term_weight": (derived.term_weight, "f8"),
        "level_feature": (derived.level_feature, "i4"),
        "level_start": (derived.level_start, "i4"),
        "level_branch": (derived.level_branch, "i4"),
    }
    return {name: text_of(numbers, dtype) for name, (numbers, dtype) in arrays.items()}
