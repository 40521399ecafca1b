"""Models as Treelite checkpoints (format 4), which nvForest, cuML's and Triton's FIL read.

The bytes follow https://treelite.readthedocs.io/en/latest/serialization/v4.html, and are written
without Treelite.  Thresholds and leaf values are doubles; rows are doubles, too: numbers as they
are, codes of categories (their positions in the column's list), and NaN for a missing value or
an unseen category.

Votes
    A leaf value is the integer of the model times one constant, `compute_vote_scale`: all sums
    are exact in doubles, in any order.  The class with the largest output is the model's
    label, and an output divided by the sum of the row's outputs is its probability, to the last
    bit.  The outputs themselves are at most `bound_vote_error` below the probabilities,
    relatively: 0 if the number of trees is a power of two.
Numbers and margins
    A leaf value is the model's integer times its step, a power of two of at least 2**-960.  Sums
    and means are equal to the model's, to the last bit.  Models whose sums exceed 2**53 are
    refused, except single trees.
Link functions
    Treelite computes them by the C library, and softmax in float32; the tests measure the
    differences.  The label of two classes is the second if the margin is above 0.

Treelite answers each row by the sum of one leaf a tree: what needs more is refused by name.
"""

from __future__ import annotations

import itertools
import json
import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Schema
from treekit.errors import ExportError
from treekit.export.lowering import compute_double_thresholds
from treekit.exporting import ABILITIES, LoweredTree, Step, lower, needs
from treekit.model.fixed_point import scale_units
from treekit.model.model import Model

__all__ = [
    "bound_vote_error",
    "compute_vote_scale",
    "export_treelite",
]

Doubles = npt.NDArray[np.float64]

_VERSION = (4, 0, 0)
"""The oldest version of Treelite that reads the format."""
_FLOAT64 = 3
_BINARY, _REGRESSION, _CLASSES = 0, 1, 2
"""Task types."""
_LEAF_NODE, _NUMERIC_NODE, _CATEGORY_NODE = 0, 1, 2
_LESS, _LESS_OR_EQUAL = 2, 3
"""Operators."""
_REFUSED = ("sums", "parts", "costs", "wide", "floors")
_DOUBLE_BITS = 53
_REMEDY = "export to onnx, c or python"


class _Layout(NamedTuple):
    """How the outputs of a model are arranged in a checkpoint.

    Attributes
    ----------
    task : int
    postprocessor : str
    n_classes : tuple of int
        Outputs of each target: 1 for numbers, and for two classes with one margin.
    values : (leaves, targets, largest of n_classes) float64
    average : bool
    """

    task: int
    postprocessor: str
    n_classes: tuple[int, ...]
    values: Doubles
    average: bool


# ---------------------------------------------------------------- export


def export_treelite(model: Model, name: str) -> dict[str, bytes]:
    """Export a model to a Treelite checkpoint ``NAME.tl``.

    Raises
    ------
    ExportError
        If a checkpoint cannot express the model.
    """
    _check_expressible(model)
    layout = _arrange_outputs(model)
    trees = lower(model)
    parts = [_write_header(model.schema, layout, len(trees))]
    parts += [_write_tree(tree, model.schema, layout.values) for tree in trees]
    return {f"{name}.tl": b"".join(parts)}


def _check_expressible(model: Model) -> None:
    """Raise `ExportError` if a checkpoint cannot express the model."""
    asked = [ability for ability in needs(model) if ability in _REFUSED]
    if model.n_trees == 1 and "wide" in asked:
        asked.remove("wide")  # nothing is added
    if asked:
        raise ExportError(f"Treelite cannot express {ABILITIES[asked[0]]}: {_REMEDY}")
    refused = [
        (model.missing == "error", "rows with missing values (missing='error')"),
        (
            model.unknown == "error" and bool(model.schema.nominal.any()),
            "rows with unseen categories (unknown='error')",
        ),
    ]
    for refuses, rows in refused:
        if refuses:
            raise ExportError(
                f"the model refuses {rows}, and Treelite cannot refuse a row: {_REMEDY}"
            )


def compute_vote_scale(total: int) -> float:
    """Return the factor of the votes, whose sum over the classes is `total`.

    It is ``1 / total``, rounded down to so few bits that its product with any sum of votes is a
    double.
    """
    bits = max(_DOUBLE_BITS - total.bit_length(), 1)
    exponent = total.bit_length() + bits - 1
    return float(np.ldexp((1 << exponent) // total, -exponent))


def bound_vote_error(total: int) -> float:
    """Return by how much outputs are below the probabilities, as a share of them, at most."""
    return 1.0 - total * compute_vote_scale(total)  # exact: the product is a double below 1


def _arrange_outputs(model: Model) -> _Layout:
    schema = model.schema
    sizes = [b - a for a, b in itertools.pairwise(schema.blocks)]
    if schema.task == "regression":
        numbers = scale_units(model.units, model.exponent)
        link = {"identity": "identity", "exp": "exponential", "sigmoid": "sigmoid"}[model.link]
        ones = (1,) * len(sizes)
        return _Layout(_REGRESSION, link, ones, numbers[:, :, None], model.divisor > 1)
    if model.margins:
        numbers = scale_units(model.units, model.exponent)
        if model.link == "softmax" and sizes == [2]:  # (0, margin)
            return _Layout(_BINARY, "sigmoid", (1,), numbers[:, None, 1:], average=False)
        link = {"softmax": "softmax", "sigmoid": "multiclass_ova"}[model.link]
        return _Layout(_CLASSES, link, tuple(sizes), numbers[:, None, :], average=False)
    votes = model.units * compute_vote_scale(model.unit_total)
    values = np.zeros((len(votes), len(sizes), max(sizes)))
    for k, (first, last) in enumerate(itertools.pairwise(schema.blocks)):
        values[:, k, : last - first] = votes[:, first:last]
    return _Layout(_CLASSES, "identity_multiclass", tuple(sizes), values, average=False)


# ---------------------------------------------------------------- bytes


def _write_array(values: Any, dtype: str) -> bytes:
    """Write an array after its length; dtypes are little-endian."""
    array = np.ascontiguousarray(values, dtype=dtype)
    return struct.pack("<Q", array.size) + array.tobytes()


def _write_text(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _write_header(schema: Schema, layout: _Layout, n_trees: int) -> bytes:
    """Write all that precedes the trees."""
    _, n_targets, width = layout.values.shape
    target = 0 if n_targets == 1 else -1
    class_ = 0 if width == 1 else -1
    return b"".join(
        [
            struct.pack("<3i2B", *_VERSION, _FLOAT64, _FLOAT64),
            struct.pack("<Qi", n_trees, schema.n_features),
            struct.pack("<B?I", layout.task, layout.average, n_targets),
            _write_array(layout.n_classes, "<u4"),
            _write_array([n_targets, width], "<u4"),
            _write_array(np.full(n_trees, target), "<i4"),
            _write_array(np.full(n_trees, class_), "<i4"),
            _write_text(layout.postprocessor),
            struct.pack("<2f", 1.0, 1.0),  # the slopes of link functions
            _write_array(np.zeros(n_targets * width), "<f8"),
            _write_text(json.dumps({"treekit": describe_schema(schema)})),
            struct.pack("<i", 0),
        ]
    )


def describe_schema(schema: Schema) -> dict[str, Any]:
    """Describe the columns of a row and the outputs, for the attributes of a checkpoint."""
    columns = [
        {"name": column.name} | ({"categories": column.levels} if column.kind == "nominal" else {})
        for column in schema.columns
    ]
    outputs = [
        {"name": output.name} | ({"classes": output.classes} if output.classes else {})
        for output in schema.outputs
    ]
    return {"columns": columns, "outputs": outputs}


def _write_tree(tree: LoweredTree, schema: Schema, values: Doubles) -> bytes:
    """Write the nodes of a tree; the yes branch is the left child."""
    kind, n = tree.kind, tree.n_nodes
    is_leaf = kind == Step.LEAF
    on_levels = np.array([column.kind == "nominal" for column in schema.columns])
    lacks_level = (kind == Step.MISSING) & on_levels[np.where(is_leaf, 0, tree.feature)]
    lacks_number = (kind == Step.MISSING) & ~lacks_level
    by_set = (kind == Step.IN) | lacks_level
    node_type = np.where(is_leaf, _LEAF_NODE, np.where(by_set, _CATEGORY_NODE, _NUMERIC_NODE))
    threshold = compute_double_thresholds(tree, schema)
    threshold[lacks_number] = -np.inf  # no number is below
    operator = np.where(lacks_number, _LESS, _LESS_OR_EQUAL)
    sets = [
        np.arange(len(schema.columns[tree.feature[node]].levels))
        if lacks_level[node]
        else tree.codes(node)
        for node in np.flatnonzero(by_set).tolist()
    ]
    set_sizes = np.zeros(n, dtype=np.int64)
    set_sizes[by_set] = [len(codes) for codes in sets]
    set_ends = np.cumsum(set_sizes)
    own = values[tree.leaf[is_leaf]].reshape(np.count_nonzero(is_leaf), -1)
    is_vector = own.shape[1] > 1
    leaf_value = np.zeros(n)
    if not is_vector:
        leaf_value[is_leaf] = own[:, 0]
    vector_ends = np.cumsum(np.where(is_leaf, own.shape[1] * is_vector, 0))
    return b"".join(
        [
            struct.pack("<i?", n, bool(by_set.any())),
            _write_array(node_type, "i1"),
            _write_array(tree.yes, "<i4"),
            _write_array(tree.no, "<i4"),
            _write_array(np.where(is_leaf, -1, tree.feature), "<i4"),
            _write_array(tree.missing_yes, "?"),
            _write_array(leaf_value, "<f8"),
            _write_array(threshold, "<f8"),
            _write_array(np.where(node_type == _NUMERIC_NODE, operator, 0), "i1"),
            _write_array(lacks_level, "?"),  # their categories go right
            _write_array(own if is_vector else [], "<f8"),
            _write_array(np.append(0, vector_ends[:-1]), "<u8"),
            _write_array(vector_ends, "<u8"),
            _write_array(np.concatenate([[], *sets]), "<u4"),
            _write_array(np.append(0, set_ends[:-1]), "<u8"),
            _write_array(set_ends, "<u8"),
            struct.pack("<6Q2i", *[0] * 8),  # no statistics of nodes, no optional fields
        ]
    )
