"""treekit's own ONNX graphs, back as models that answer every row as before.

The graph holds the trees and the integers of the leaves, its metadata the
schema and the policies.  What an exported graph no longer has is not made up:
the training weights of nodes, settings, and what derived columns were made of
(oblique tests, surrogates, rows that divide), which are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.schema import Schema
from treekit.errors import ModelError, ModelFileError
from treekit.interop.build import make_trees
from treekit.interop.onnx_graph import OPERATORS, SOURCE, Attributes, tensor_values
from treekit.interop.onnx_questions import nodes_of
from treekit.interop.onnx_trees import GTE, LEQ, MEMBER, OnnxTrees, copied, listed, placed
from treekit.interop.vocabulary import Vocabulary
from treekit.model.links import Combine, Link
from treekit.model.model import MissingPolicy, Model, UnknownPolicy, Voting
from treekit.model.tree import Tree
from treekit.model.validation import check_model

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

__all__ = ["is_own", "read_own"]

Ints = npt.NDArray[np.int64]


class _Policies(msgspec.Struct):
    """``treekit.policies`` of the metadata."""

    missing: MissingPolicy
    unknown: UnknownPolicy
    voting: Voting
    combine: Combine
    costs: list[list[int]] | None


class _Units(msgspec.Struct):
    """``treekit.units`` of the metadata."""

    exponent: int = 0
    link: Link = "identity"


def is_own(proto: ModelProto) -> bool:
    """Whether treekit made a graph, and its metadata tell the policies."""
    keys = {one.key for one in proto.metadata_props}
    return proto.producer_name == "treekit" and "treekit.policies" in keys


def read_own(proto: ModelProto, answer: str) -> Model:
    """The model of a graph that treekit made.

    Raises
    ------
    ModelError
        If it is damaged, or cannot be had back; the message names why.
    """
    told = {one.key: one.value for one in proto.metadata_props}
    try:
        schema = msgspec.json.decode(told.get("treekit.schema", ""), type=Schema)
        policies = msgspec.json.decode(told["treekit.policies"], type=_Policies)
        of_units = msgspec.json.decode(told.get("treekit.units", ""), type=_Units)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: its metadata: {error}") from error
    operators = [node for node in proto.graph.node if node.op_type in OPERATORS]
    if answer != "predictions" or len(operators) != 1 or policies.missing == "surrogate":
        raise ModelError(
            f"{SOURCE} is treekit's own and cannot be had back: its rows divide or it asks "
            "surrogates, or its margins are asked for; read the model file that it was made of"
        )
    constants = {one.name: one for one in proto.graph.initializer}
    raw, first, units = _integers(operators[0], constants, schema)
    trees = copied(_without_chains(raw, schema))
    if np.any(trees.feature[trees.true >= 0] >= schema.n_features):
        raise ModelError(
            f"{SOURCE} is treekit's own and asks derived columns, which cannot be had back; read "
            "the model file that it was made of"
        )
    codes = [
        Vocabulary(one.levels, np.arange(len(one.levels))) if one.kind == "nominal" else None
        for one in schema.columns
    ]
    nodes, _ = nodes_of(trees, schema.dtype, codes)
    read = make_trees(nodes, schema, SOURCE)
    rows = list(_rows(read, first, len(units)))
    grid = (
        0 if schema.task == "classification" and policies.combine == "mean" else of_units.exponent
    )
    if not -1100 <= grid <= 1100:
        raise ModelFileError(f"{SOURCE} is damaged: its exponent is {grid}")
    valued = [_valued(tree, units[own], grid) for tree, own in zip(read, rows, strict=True)]
    model = Model(
        schema=schema,
        trees=tuple(valued),
        units=units[np.concatenate(rows)],
        exponent=grid,
        missing=policies.missing,
        unknown=policies.unknown,
        voting=policies.voting,
        combine=policies.combine,
        link=of_units.link,
        costs=None if policies.costs is None else _cost_table(policies.costs),
        provenance={"treekit": __version__, "importer": "onnx", "operator": operators[0].op_type},
    )
    check_model(model)
    return model


def _integers(
    node: NodeProto, constants: dict[str, Any], schema: Schema
) -> tuple[OnnxTrees, Ints, Ints]:
    """Trees whose leaves name their integers, where each tree's begin, and the integers.

    Returns
    -------
    trees : OnnxTrees
        Of values (n, 1): rows of `units`, counted from `first` of the tree.
    first : (trees,) int64
    units : (rows, values) int64
    """
    attributes, width = Attributes(node), schema.n_values
    as_rows = list(node.output) == ["leaf_numbers"]
    n_targets = attributes.whole("n_targets", 1)
    if not 1 <= n_targets <= 2**24:
        raise ModelFileError(f"{SOURCE} is damaged: it has {n_targets} targets")
    if node.op_type == "TreeEnsemble":
        trees = placed(attributes, n_targets, one=as_rows)
    else:
        trees = listed(attributes, "target", n_targets, one=as_rows)
    if as_rows:
        first, units = (_constant(constants, name) for name in ("first_leaf", "units"))
        if len(units) % width or len(first) != len(trees.roots):
            raise ModelFileError(f"{SOURCE} is damaged: the integers of its leaves do not fit")
        return trees, first, units.reshape(-1, width)
    if trees.value.shape[1] == 1 and width == 2:  # the first class has the rest of the votes
        votes, rest = (_constant(constants, name).ravel() for name in ("rest", "unit_total"))
        if len(votes) != 2 or votes[0] != rest[0] or rest[0] % len(trees.roots):
            raise ModelFileError(f"{SOURCE} is damaged: its votes do not add up to {rest[0]}")
        second = trees.value[:, 0]
        first_class = np.where(trees.true < 0, rest[0] // len(trees.roots) - second, 0.0)
        trees = trees._replace(value=np.stack([first_class, second], axis=1))
    if trees.value.shape[1] % width:
        raise ModelFileError(f"{SOURCE} is damaged: {n_targets} targets of {width} values")
    n_limbs = trees.value.shape[1] // width
    base = 0
    if n_limbs > 1:
        product = _constant(constants, "product" if "product" in constants else "base").ravel()
        base = int(product[width * width] if product.size == n_limbs * width**2 else product[0])
    if not (np.all(np.abs(trees.value) <= 2.0**53) and 0 <= base <= 2**25 and n_limbs <= 8):
        raise ModelFileError(f"{SOURCE} is damaged: its leaves hold no integers")
    total = np.zeros((len(trees.mode), width), dtype=np.int64)
    with np.errstate(over="ignore"):  # refused by `check_model`
        for number in range(n_limbs - 1, -1, -1):
            limb = trees.value[:, number * width : (number + 1) * width].astype(np.int64)
            total = total * base + limb
    numbered = trees._replace(value=np.arange(len(trees.mode), dtype=np.float64)[:, None])
    return numbered, np.zeros(len(trees.roots), dtype=np.int64), total


def _constant(constants: dict[str, Any], name: str) -> Ints:
    if name not in constants:
        raise ModelFileError(f"{SOURCE} is damaged: it has no constant {name!r}")
    values = tensor_values(constants[name], name)
    if not len(values) or not np.all(values == np.floor(values)):
        raise ModelFileError(f"{SOURCE} is damaged: {name!r} holds no whole numbers")
    return values.astype(np.int64)


def _cost_table(costs: list[list[int]]) -> Ints:
    try:
        return np.array(costs, dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise ModelFileError(f"{SOURCE} is damaged: its costs are no table: {error}") from error


def _rows(trees: tuple[Tree, ...], first: Ints, n_rows: int) -> Iterator[Ints]:
    """The rows of the integers that the leaves of each tree stand for."""
    for tree, start in zip(trees, first.tolist(), strict=True):
        number = tree.value[tree.leaves, 0]
        if not np.all((number >= 0) & (number < n_rows) & (number == np.floor(number))):
            raise ModelFileError(f"{SOURCE} is damaged: a leaf has no integers")
        rows = number.astype(np.int64) + start
        if not np.all((rows >= 0) & (rows < n_rows)):
            raise ModelFileError(f"{SOURCE} is damaged: a leaf has no integers")
        yield rows


def _valued(tree: Tree, units: Ints, exponent: int) -> Tree:
    """The tree whose leaves say what their integers mean."""
    value = np.zeros((tree.n_nodes, units.shape[1]))
    with np.errstate(over="ignore"):  # refused by `check_model`
        value[tree.leaves] = np.ldexp(units.astype(np.float64), exponent)
    return replace(tree, value=value)


def _without_chains(trees: OnnxTrees, schema: Schema) -> OnnxTrees:
    """Tests of codes as sets; a chain of tests that leads to two places is one set.

    `treekit.export.onnx.trees` writes a set as the bounds between members and
    others: the false branch goes on, and the true ones share their places.
    """
    n = len(trees.mode)
    inner = np.flatnonzero(trees.true >= 0)
    known = inner[(trees.feature[inner] >= 0) & (trees.feature[inner] < schema.n_features)]
    asks = np.zeros(n, dtype=np.bool_)
    asks[known] = schema.nominal[trees.feature[known]] & ~np.isinf(trees.split[known])
    n_parents = np.bincount(np.concatenate([trees.true[inner], trees.false[inner]]), minlength=n)
    follows = np.full(n, -1, dtype=np.int64)
    tests = np.flatnonzero(asks & (trees.mode == LEQ))
    after, yes = trees.false[tests], trees.true[tests]
    same = asks[after] & (trees.mode[after] == LEQ) & (n_parents[after] == 1)
    same &= (trees.feature[after] == trees.feature[tests]) & (n_parents[yes] > 1)
    follows[tests[same]] = after[same]
    goes_on = np.zeros(n, dtype=np.bool_)
    goes_on[after[same]] = True
    members, true, false = dict(trees.members), trees.true.copy(), trees.false.copy()
    for head in np.flatnonzero(asks & ~goes_on & (trees.mode != MEMBER)).tolist():
        n_levels = int(schema.n_levels[trees.feature[head]])
        members[head], true[head], false[head] = _chain(trees, head, follows, n_levels)
    mode = np.where(asks, MEMBER, trees.mode)
    return trees._replace(mode=mode, true=true, false=false, members=members)


def _chain(
    trees: OnnxTrees, head: int, follows: Ints, n_levels: int
) -> tuple[npt.NDArray[np.float64], int, int]:
    """The codes that a chain sends one way, that way, and the other."""
    ways, at, end = np.full(n_levels, -1), head, -1
    while at >= 0:
        code = np.clip(trees.split[at], -1, n_levels)
        own = np.arange(n_levels) >= code if trees.mode[at] == GTE else np.arange(n_levels) <= code
        ways[own & (ways < 0)] = trees.true[at]
        end, at = int(trees.false[at]), int(follows[at])
    members = np.flatnonzero((ways >= 0) & (ways != end)).astype(np.float64)
    yes = np.unique(ways[members.astype(np.int64)])
    if len(yes) > 1:
        raise ModelFileError(f"{SOURCE} is damaged: a set of categories leads to several places")
    return members, int(yes[0]) if len(yes) else int(trees.true[head]), end
