"""Sums of the integer leaf values over the trees of an ONNX graph: ``exact_sums``.

Two methods; the one with the smaller file is chosen:

per class
    each leaf adds its integers to float32 sums of the tree operator, in limbs so
    short that each sum stays within 2**24: exact for any order, batch and number
    of threads.  Limbs are combined in double.  Integers that are 0 take no space.
    Of two classes only the second is summed: up to a third faster (10 rows), equal for thousands.
per tree
    each leaf outputs its number in a target of its tree; Gather looks up its
    integers and ReduceSum adds them, in 32 or 64 bits.  ``TreeEnsemble``, whose
    leaves have one number each, and outputs of leaves need this method.  It takes
    some 20 bytes of memory for each row of a batch and tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from treekit.errors import ExportError
from treekit.export.lowering import LoweredTree, Step, lower_unless_fractional, require_depth
from treekit.export.onnx.graph import Graph
from treekit.export.onnx.trees import (
    OnnxNodes,
    add_regressor,
    add_tree_ensemble,
    convert_to_onnx_nodes,
)
from treekit.model.model import Model
from treekit.model.tree import MAX_DEPTH

_MAX_EXACT = 2**24
"""Integers up to this are exact in float32."""

_MAX_LOOKUP_CELLS = 1024
"""Integers of a row that are looked up at once, to bound memory."""

_NODE_BYTES, _ENTRY_BYTES, _ENSEMBLE_NODE_BYTES = 28, 11, 12
"""Average bytes of a node of the regressor, a number of a leaf, and a node of ``TreeEnsemble``."""


@dataclass(frozen=True)
class LoweredModel:
    """Lowered trees of a model, for tree operators.

    Attributes
    ----------
    trees : tuple of LoweredTree
        Empty if the model uses fractional instances.
    """

    trees: tuple[LoweredTree, ...]

    @cached_property
    def nodes(self) -> OnnxNodes:
        """Nodes of the trees; each set is a chain of tests."""
        return convert_to_onnx_nodes(self.trees)

    @property
    def chains_too_deep(self) -> bool:
        """Whether the chains exceed the maximum depth, so that sets must be single tests."""
        return bool(self.trees) and self.nodes.depth > MAX_DEPTH


def lower_model(model: Model) -> LoweredModel:
    """Lower the trees of a model, unless it uses fractional instances."""
    trees = lower_unless_fractional(model)
    require_depth(trees, "onnx")
    return LoweredModel(trees)


def add_tree_sums(
    graph: Graph, model: Model, form: LoweredModel, columns: str, *, need_leaves: bool
) -> str:
    """Add ``exact_sums`` (N, values) double; return the name of the leaves reached.

    Parameters
    ----------
    columns : str
        (N, features + derived).
    need_leaves : bool
        Whether the graph must compute the leaves.

    Returns
    -------
    str
        (N, trees) int64: rows of `Model.units`; empty if they are not computed.
    """
    if form.chains_too_deep and graph.ml_opset < 5:
        raise ExportError(
            f"onnx supports trees up to {MAX_DEPTH} tests deep, but this model needs "
            f"{form.nodes.depth}, since ai.onnx.ml before version 5 has no tests of sets of "
            "categories: set max_depth"
        )
    limbs = _split_limbs(model.units, model.n_trees)
    must = need_leaves or form.chains_too_deep
    countable = int(np.diff(model.leaf_offsets).max()) <= _MAX_EXACT
    if must and not countable:
        raise ExportError(f"onnx: a tree has more than {_MAX_EXACT} leaves: set max_depth")
    if must or (countable and _is_per_tree_smaller(graph, model, form, limbs)):
        reached = _add_reached_leaves(graph, model, form, columns)
        _add_leaf_sums(graph, model, reached)
        return reached
    _add_class_sums(graph, model, form.nodes, limbs, columns)
    return ""


def _is_per_tree_smaller(
    graph: Graph, model: Model, form: LoweredModel, limbs: list[npt.NDArray[np.int64]]
) -> bool:
    """Return whether the method per tree makes the file smaller.

    With the older operator it must be half as large to be worth the memory at run time.
    """
    wide = graph.real.itemsize // 4
    numbers = sum(int(np.count_nonzero(limb)) for limb in limbs)
    regressor = len(form.nodes.tree) * _NODE_BYTES
    fetched = model.units.size * _choose_integer_dtype(model).itemsize
    if graph.ml_opset >= 5:
        ensemble = model.n_nodes * _ENSEMBLE_NODE_BYTES * wide
        return ensemble + fetched < regressor + numbers * _ENTRY_BYTES * wide
    of_leaves = len(model.units) * _ENTRY_BYTES * wide
    return 2 * (regressor + of_leaves + fetched) < regressor + numbers * _ENTRY_BYTES * wide


def _choose_integer_dtype(model: Model) -> np.dtype[np.signedinteger]:
    """Return int32 or int64, the narrower one that holds any sum over the trees."""
    most = int(np.abs(model.units).max(initial=0)) * model.n_trees
    return np.dtype(np.int32 if most < 2**31 else np.int64)


# ------------------------------------------------------------------ per class


def _split_limbs(units: npt.NDArray[np.int64], n_trees: int) -> list[npt.NDArray[np.int64]]:
    """Split integers into the fewest limbs whose sums are exact in float32, lowest first.

    ``v == limbs[0] + base * limbs[1] + base**2 * limbs[2] + ...``, and `n_trees`
    times any limb is within 2**24; see `_compute_limb_base` for the base.
    """
    base, limbs, rest = _compute_limb_base(n_trees), [], units
    while int(np.abs(rest).max(initial=0)) * n_trees > _MAX_EXACT:
        high = (rest + base // 2) // base
        limbs.append(rest - high * base)
        rest = high
    return [*limbs, rest]


def _compute_limb_base(n_trees: int) -> int:
    """Return the largest power of two whose half, times `n_trees`, is within 2**24."""
    return 2 << (_MAX_EXACT // n_trees).bit_length() - 1


def _add_class_sums(
    graph: Graph, model: Model, nodes: OnnxNodes, limbs: list[npt.NDArray[np.int64]], columns: str
) -> None:
    """Add ``exact_sums`` of the operator's sums: as one product if it is exact in any order.

    One number per leaf is faster than two: of two classes only the second is summed.
    """
    n_trees, width = model.n_trees, model.schema.n_values
    base = float(_compute_limb_base(n_trees))
    product = np.vstack([np.eye(width) * base**number for number in range(len(limbs))])
    units = np.hstack([limb[nodes.row] for limb in limbs])
    rest = np.zeros(width)
    if sums_second_class_only(model):
        units, product, rest = units[:, 1:], np.array([[-1.0, 1.0]]), np.array([1.0, 0.0])
        rest *= model.unit_total
    kept = units != 0
    kept[:, 0] |= ~kept.any(axis=1)  # every leaf must have a target
    leaf, target = np.nonzero(kept)
    add_regressor(graph, columns, nodes, leaf, target, units[kept], units.shape[1], "sums")
    if product.shape == (width, width) and not rest.any():
        graph.add_cast("sums", np.float64, "exact_sums")
        return
    graph.add_cast("sums", np.float64, "sums_of_limbs")
    most = np.abs(units).max(axis=0, initial=0) * float(n_trees)
    if (most @ np.abs(product) + np.abs(rest)).max() <= 2.0**53:
        graph.add_constant("product", product)
        graph.add_constant("rest", rest)
        graph.add_operator("Gemm", ["sums_of_limbs", "product", "rest"], "exact_sums")
        return
    total = ""
    graph.add_constant("base", base)
    for number in range(len(limbs) - 1, -1, -1):
        own = number * width + np.arange(width)
        limb = graph.add_selection("sums_of_limbs", f"limb_{number}_of", own, f"limb_{number}")
        if total:
            graph.add_operator("Mul", [total, "base"], f"shifted_{number}")
            name = f"total_{number}" if number else "exact_sums"
            limb = graph.add_operator("Add", [f"shifted_{number}", limb], name)
        total = limb


def sums_second_class_only(model: Model) -> bool:
    """Return whether the trees of two classes sum only the votes of the second.

    The votes of the first are the total minus those of the second.
    """
    schema = model.schema
    single = schema.task == "classification" and len(schema.outputs) == 1 and schema.n_values == 2
    return single and not model.margins and model.unit_total <= _MAX_EXACT


# ------------------------------------------------------------------ per tree


def _add_reached_leaves(graph: Graph, model: Model, form: LoweredModel, columns: str) -> str:
    """Add the leaf of each tree that a row reaches: (N, trees) int64, rows of `Model.units`."""
    own = [tree.leaf[tree.kind == Step.LEAF] for tree in form.trees]
    tree = np.repeat(np.arange(len(own)), list(map(len, own)))
    number = np.concatenate(own) - model.leaf_offsets[tree]
    if graph.ml_opset >= 5:
        add_tree_ensemble(graph, columns, form.trees, number, model.schema.n_levels, "leaf_numbers")
    else:
        nodes, every = form.nodes, np.arange(len(number))
        add_regressor(graph, columns, nodes, every, tree, number, model.n_trees, "leaf_numbers")
    graph.add_constant("first_leaf", model.leaf_offsets[:-1])
    graph.add_cast("leaf_numbers", np.int64, "whole_leaf_numbers")
    return graph.add_operator("Add", ["whole_leaf_numbers", "first_leaf"], "reached_leaves")


_LOW_BITS = 26
"""Bits of the low parts of integers whose sums exceed 2**53."""


def _add_leaf_sums(graph: Graph, model: Model, reached: str) -> None:
    """Add ``exact_sums`` of the leaves reached; integer sums do not depend on the order.

    onnxruntime adds 64-bit integers in double: sums beyond 2**53 are those of two parts.
    """
    units = model.units
    if int(np.abs(units).max(initial=0)) * model.n_trees <= 2**53:
        total = _add_sums_of(graph, model, reached, units, "")
        graph.add_cast(total, np.float64, "exact_sums")
        return
    for prefix, part in ("low_", units & (2**_LOW_BITS - 1)), ("high_", units >> _LOW_BITS):
        total = _add_sums_of(graph, model, reached, part, prefix)
        graph.add_cast(total, np.float64, f"{prefix}sums")
    graph.add_constant("high_unit", 2.0**_LOW_BITS)
    graph.add_operator("Mul", ["high_sums", "high_unit"], "shifted_sums")  # exact
    graph.add_operator("Add", ["shifted_sums", "low_sums"], "exact_sums")


def _add_sums_of(
    graph: Graph, model: Model, reached: str, units: npt.NDArray[np.int64], prefix: str
) -> str:
    """Add the integer sums (N, values) of `units` (leaves, values) over the leaves reached."""
    graph.add_constant(f"{prefix}units", units.astype(_choose_integer_dtype(model)))
    graph.add_constant("over_trees", [1])
    size = max(_MAX_LOOKUP_CELLS // model.schema.n_values, 1)
    total = ""
    for number, first in enumerate(range(0, model.n_trees, size)):
        some = reached
        if size < model.n_trees:
            trees = np.arange(first, min(first + size, model.n_trees))
            name = f"{prefix}leaves_{number}"
            some = graph.add_selection(reached, f"{prefix}trees_{number}", trees, name)
        graph.add_operator("Gather", [f"{prefix}units", some], f"{prefix}units_{number}", axis=0)
        part = graph.add_operator(
            "ReduceSum",
            [f"{prefix}units_{number}", "over_trees"],
            f"{prefix}units_of_{number}",
            keepdims=0,
        )
        name = f"{prefix}units_to_{number}"
        total = graph.add_operator("Add", [total, part], name) if total else part
    return total
