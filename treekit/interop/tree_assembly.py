"""Assemble models from the tables of nodes of other libraries, in any numbering.

Importers fill a `NodeTable` for each tree, in the numbers of their library, and call in this
order::

    nodes = concatenate_tables(tables, source)
    columns = make_columns(nodes, check_names(names, n, source), source)
    floor_thresholds(nodes, dtype, source)

and then `make_boosted_model` for sums of leaves with a link function, or `make_trees` and
`treekit.model.model.make_model` for votes and means.

The functions check, renumber and convert the nodes of all trees at once, vectorized and linear
in nodes.  Tables are untrusted: children must exist, nodes must have one parent, and depth must
be within `MAX_DEPTH`, besides the checks of `treekit.model.validation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.contracts import Setting
from treekit.data.schema import Column, Dtype, Label, Output, Rounding, Schema, level_text
from treekit.errors import ModelError
from treekit.model.fixed_point import MAX_TREES, floor_to_dtype
from treekit.model.links import Link
from treekit.model.model import Model, UnknownPolicy, make_model
from treekit.model.tree import MAX_DEPTH, Split, Tree, split_trees

__all__ = [
    "ANSWER_SETTING",
    "DTYPE_SETTING",
    "NodeTable",
    "Outcome",
    "check_levels",
    "check_names",
    "concatenate_tables",
    "floor_thresholds",
    "make_boosted_model",
    "make_columns",
    "make_trees",
]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

MAX_ENTRIES = 2**28
"""Maximum number of leaf values, or of category branches, of one model: 2 GiB."""

MAX_INTEGER_CATEGORIES = 4096
"""Integer categories below this limit become the levels 0, 1, 2, ... without gaps."""

MAX_COLUMNS = 2**20
"""Maximum number of columns of an imported model."""


def _make_empty() -> Any:
    return np.zeros(0, dtype=np.int64)


@dataclass(slots=True)
class NodeTable:
    """The nodes of a tree, or after `concatenate_tables` of all trees, in any order.

    Attributes
    ----------
    left, right : (n,) int64
        Nodes of the branches 0 and 1; negative in leaves.
    feature : (n,) int64
        Split feature; ignored in leaves.
    threshold : (n,) float64
        ``x <= threshold`` takes branch 0, with ``inf`` all numbers, with ``-inf`` no
        number.  Ignored in leaves and nodes with sets.
    missing_left : (n,) bool
        Whether a missing value takes branch 0.
    value : (n, values) float64
    weight, gain : (n,) float64
        0 by default.
    set_node : (sets,) int64
        Nodes that split by a set of categories.
    set_sizes : (sets,) int64
    set_codes : (codes,) int64
        The categories that take branch 0, one set after the other: in the codes of the
        library, after `make_columns` in those of the schema.  All others take branch 1.
    roots : (trees,) int64
    tree : (n,) int64
        Tree of each node.
    """

    left: Ints
    right: Ints
    feature: Ints
    threshold: Floats
    missing_left: Mask
    value: Floats
    weight: Floats = field(default_factory=_make_empty)
    gain: Floats = field(default_factory=_make_empty)
    set_node: Ints = field(default_factory=_make_empty)
    set_sizes: Ints = field(default_factory=_make_empty)
    set_codes: Ints = field(default_factory=_make_empty)
    roots: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    tree: Ints = field(default_factory=_make_empty)

    def __post_init__(self) -> None:
        for name, dtype in (("weight", np.float64), ("gain", np.float64), ("tree", np.int64)):
            if not len(getattr(self, name)):
                setattr(self, name, np.zeros(len(self.left), dtype=dtype))

    @property
    def inner(self) -> Mask:
        """(n,) bool: mask of inner nodes."""
        return self.left >= 0

    @property
    def set_features(self) -> Ints:
        """(sets,) int64: split feature of each set."""
        return self.feature[self.set_node]


def _raise_unless(condition: Any, source: str, message: str) -> None:
    if not bool(condition):
        raise ModelError(f"{source} is damaged: {message}")


def concatenate_tables(tables: Sequence[NodeTable], source: str) -> NodeTable:
    """Concatenate the nodes of the trees of a model, whose children are numbered from 0.

    Parameters
    ----------
    tables : sequence of NodeTable
    source : str
        Description of the source in messages: ``"the LightGBM model"``.

    Raises
    ------
    ModelError
        If there are no or too many trees, or a child does not exist.
    """
    if not 1 <= len(tables) <= MAX_TREES:
        raise ModelError(f"{source} has {len(tables)} trees; a model must have 1 to {MAX_TREES}")
    joined = {
        one.name: np.concatenate([getattr(table, one.name) for table in tables])
        for one in fields(NodeTable)
    }
    sizes = np.array([len(table.left) for table in tables])
    first = np.cumsum(sizes) - sizes
    shift, size = np.repeat(first, sizes), np.repeat(sizes, sizes)
    left, right = joined["left"], joined["right"]
    inner = left >= 0
    _raise_unless(np.all(sizes > 0), source, "a tree has no node")
    inside = (left < size) & (right >= 0) & (right < size)
    _raise_unless(np.all(inside | ~inner), source, "a node's child does not exist")
    joined["left"] = np.where(inner, left + shift, -1)
    joined["right"] = np.where(inner, right + shift, -1)
    joined["set_node"] = joined["set_node"] + np.repeat(
        first, [len(table.set_node) for table in tables]
    )
    joined |= {"roots": first, "tree": np.repeat(np.arange(len(tables)), sizes)}
    return NodeTable(**joined)


# ---------------------------------------------------------------- columns


def make_columns(
    nodes: NodeTable,
    names: Sequence[str],
    source: str,
    *,
    named: Mapping[int, tuple[str, ...]] | None = None,
    listed: Mapping[int, Ints] | None = None,
    rounds: Rounding | msgspec.UnsetType = msgspec.UNSET,
) -> tuple[Column, ...]:
    """Make the columns, and convert the categories of `nodes` to positions in their vocabularies.

    Parameters
    ----------
    nodes : NodeTable
        Codes that are in no vocabulary become -1.
    names : sequence of str
    source : str
    named : dict of int to tuple of str
        Vocabularies of columns whose codes are positions.
    listed : dict of int to int64 array
        Codes of further nominal columns, besides those in sets.  The integers from 0 to
        the largest code are the categories, so that the codes of encoded rows, the input
        of artifacts, equal the integers; from `MAX_INTEGER_CATEGORIES` on, only those
        that occur.
    rounds : {"to_zero", "float32_down"}, optional
        How the library casts the cells of columns without a vocabulary to integers.

    Raises
    ------
    ModelError
        If a split uses a column that does not exist, or compares categories by order.
    """
    named, listed = named or {}, listed or {}
    inner, n = nodes.inner, len(names)
    known = (nodes.feature >= 0) & (nodes.feature < n)
    _raise_unless(np.all(known | ~inner), source, f"a split uses none of the {n} columns")
    nominal = {*named, *listed, *nodes.set_features.tolist()}
    by_order = inner & np.isfinite(nodes.threshold)
    by_order[nodes.set_node] = False
    if ordered := nominal.intersection(np.unique(nodes.feature[by_order]).tolist()):
        raise ModelError(
            f"{source} compares column {min(ordered)} both by order and by equality (with sets "
            "of categories), which treekit does not support"
        )
    columns = [Column(name) for name in names]
    owner, codes = np.repeat(nodes.set_features, nodes.set_sizes), nodes.set_codes
    nodes.set_codes = np.full(len(codes), -1, dtype=np.int64)
    for feature in nominal:
        own = owner == feature
        if feature in named:
            levels, vocabulary = named[feature], np.arange(len(named[feature]))
        else:
            parts = [listed.get(feature, codes[:0]), codes[own]]
            vocabulary = _list_integer_categories(np.concatenate(parts))
            levels = tuple(map(str, vocabulary.tolist()))
        cast = msgspec.UNSET if feature in named else rounds
        columns[feature] = Column(names[feature], "nominal", levels, cast)
        if len(vocabulary):
            at = np.minimum(np.searchsorted(vocabulary, codes[own]), len(vocabulary) - 1)
            nodes.set_codes[own] = np.where(vocabulary[at] == codes[own], at, -1)
    return tuple(columns)


def _list_integer_categories(codes: Ints) -> Ints:
    """List the integer categories of a column, ascending; negative codes mean missing."""
    present = np.unique(codes[codes >= 0])
    if not len(present):
        return np.zeros(1, dtype=np.int64)
    top = int(present[-1])
    return np.arange(top + 1) if top < MAX_INTEGER_CATEGORIES else present


def check_levels(categories: Sequence[Any], what: str) -> tuple[str, ...]:
    """Return the text of categories, which must be distinct and not missing."""
    levels = [level_text(category) for category in categories]
    if None in levels or len(set(levels)) != len(levels):
        raise ModelError(f"the categories of {what} are missing or have equal text: {levels!r:.80}")
    return tuple(map(str, levels))


def check_names(names: Sequence[str], n: int, source: str) -> list[str]:
    """Check the number of columns, and that names are distinct; default ``x0``, ``x1``, ..."""
    if not 1 <= n <= MAX_COLUMNS:
        raise ModelError(f"{source} has {n} columns; treekit reads 1 to {MAX_COLUMNS}")
    if not names:
        return [f"x{i}" for i in range(n)]
    if len(names) != n or len(set(names)) != n:
        raise ModelError(f"{source} has {n} columns, but not {n} distinct names")
    return list(names)


def floor_thresholds(nodes: NodeTable, dtype: Dtype, source: str) -> None:
    """Round thresholds down to the input type; reject those below all finite numbers of it."""
    rounded = floor_to_dtype(nodes.threshold, dtype)
    below = nodes.inner & (rounded == -np.inf)
    below[nodes.set_node] = False
    if np.any(below):
        raise ModelError(
            f"{source} has the threshold {nodes.threshold[below][0]}, below all finite {dtype} "
            "numbers: read it with dtype='float64', or train it without infinite numbers"
        )
    nodes.threshold = rounded


# ---------------------------------------------------------------- trees


def make_trees(
    nodes: NodeTable, schema: Schema, source: str, *, breadth_first: bool = True
) -> tuple[Tree, ...]:
    """Make the trees of a table of nodes; unreachable nodes are dropped.

    Parameters
    ----------
    nodes : NodeTable
        After `make_columns`.
    schema : Schema
    source : str
    breadth_first : bool
        Number the nodes of a tree breadth-first, else siblings by the number of their
        parent, which must be lower than theirs.

    Raises
    ------
    ModelError
        If the nodes do not form valid trees, or exceed the limits of a model.
    """
    nodes = replace(nodes, threshold=floor_to_dtype(nodes.threshold, schema.dtype))
    _check_nodes(nodes, schema, source)
    kind = np.full(len(nodes.left), Split.LEAF, dtype=np.uint8)
    kind[nodes.inner] = Split.THRESHOLD
    kind[nodes.inner & np.isinf(nodes.threshold)] = Split.MISSING
    kind[nodes.set_node] = Split.SUBSET
    nodes = _skip_constant_splits(nodes, kind == Split.MISSING)
    order, ends = _order_nodes(nodes, source, breadth_first)
    number = np.full(len(kind), -1, dtype=np.int64)
    number[order] = np.arange(len(order))
    inner, kinds = nodes.inner[order], kind[order]
    level_offsets, level_branch = _make_level_branches(nodes, schema, number)
    joined = Tree(
        kind=kinds,
        feature=np.where(inner, nodes.feature[order], -1),
        threshold=np.where(kinds == Split.THRESHOLD, nodes.threshold[order] + 0.0, np.nan),
        first_child=np.where(inner, number[nodes.left[order]], -1),
        n_children=np.where(inner, 2, 0),
        missing=inner & (kinds != Split.MISSING) & ~nodes.missing_left[order],
        level_offsets=level_offsets,
        level_branch=level_branch,
        value=_replace_non_finite(nodes.value[order]),
        weight=np.maximum(_replace_non_finite(nodes.weight[order]), 0.0),
        gain=np.where(inner, _replace_non_finite(nodes.gain[order]), 0.0),
    )
    return split_trees(joined, ends)


def _replace_non_finite(values: Floats) -> Floats:
    """Replace non-finite numbers by 0, for fields of inner nodes that predictions ignore."""
    return np.where(np.isfinite(values), values, 0.0)


def _check_nodes(nodes: NodeTable, schema: Schema, source: str) -> None:
    inner, n = nodes.inner, len(nodes.left)
    if nodes.value.size > MAX_ENTRIES:
        raise ModelError(
            f"{source} has {nodes.value.shape[1]} values in each of {n} nodes; "
            f"the maximum is {MAX_ENTRIES} in total"
        )
    children = np.concatenate([nodes.left[inner], nodes.right[inner]])
    n_parents = np.bincount(children, minlength=n)
    _raise_unless(np.all(n_parents <= 1), source, "a node has several parents")
    _raise_unless(not np.any(n_parents[nodes.roots]), source, "a root has a parent")
    _raise_unless(not np.any(np.isnan(nodes.threshold[inner])), source, "a threshold is NaN")
    leaf_values = nodes.value[~inner]
    _raise_unless(np.all(np.isfinite(leaf_values)), source, "a leaf's value is not finite")
    _raise_unless(np.all(inner[nodes.set_node]), source, "a leaf has a set of categories")
    sizes = schema.n_levels[nodes.set_features]
    if int(sizes.sum()) > MAX_ENTRIES:
        raise ModelError(
            f"{source} has too many splits on columns of many categories: they have "
            f"{int(sizes.sum())} categories in total; the maximum is {MAX_ENTRIES}"
        )
    inside = (nodes.set_codes >= 0) & (nodes.set_codes < np.repeat(sizes, nodes.set_sizes))
    _raise_unless(np.all(inside), source, "a split has a category that its column does not have")


def _skip_constant_splits(nodes: NodeTable, endless: Mask) -> NodeTable:
    """Replace nodes that send all rows to one branch by that branch.

    Where other nodes split on missing values (`endless`), these take branch 0.
    """
    numbers_left = nodes.threshold > 0
    constant = endless & (numbers_left == nodes.missing_left)
    swap = endless & ~constant & numbers_left
    left = np.where(swap, nodes.right, nodes.left)
    right = np.where(swap, nodes.left, nodes.right)
    stands_for = np.where(constant, np.where(numbers_left, left, right), np.arange(len(left)))
    for _ in range(len(left).bit_length() if constant.any() else 0):  # each pass doubles the steps
        stands_for = stands_for[stands_for]
    inner = nodes.inner
    return replace(
        nodes,
        roots=stands_for[nodes.roots],
        left=np.where(inner, stands_for[left], -1),
        right=np.where(inner, stands_for[right], -1),
    )


def _order_nodes(nodes: NodeTable, source: str, breadth_first: bool) -> tuple[Ints, Ints]:
    """Return old node numbers in the new order, and the offsets (trees + 1,) of the trees."""
    parents = [nodes.roots[nodes.inner[nodes.roots]]]
    while len(level := parents[-1]):
        if len(parents) > MAX_DEPTH:
            raise ModelError(f"{source} has a tree deeper than {MAX_DEPTH}, the maximum")
        children = np.stack([nodes.left[level], nodes.right[level]], axis=1).ravel()
        parents.append(children[nodes.inner[children]])
    joined = np.concatenate(parents)
    if not breadth_first:
        joined.sort()
    pairs = np.stack([nodes.left[joined], nodes.right[joined]], axis=1)
    order = np.concatenate([nodes.roots, pairs.ravel()])
    # A stable sort keeps siblings adjacent, and parents before their children.
    order = order[np.argsort(nodes.tree[order], kind="stable")]
    counts = np.bincount(nodes.tree[order], minlength=len(nodes.roots))
    return order, np.concatenate([[0], np.cumsum(counts)])


def _make_level_branches(
    nodes: NodeTable, schema: Schema, number: Ints
) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Compute `Tree.level_offsets` and `Tree.level_branch`; `number` is -1 for dropped nodes."""
    at = number[nodes.set_node]
    used = at >= 0
    sizes = np.zeros(int(number.max()) + 1, dtype=np.int64)
    sizes[at[used]] = schema.n_levels[nodes.set_features[used]]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    branch = np.ones(int(offsets[-1]), dtype=np.int32)
    is_used = np.repeat(used, nodes.set_sizes)
    branch[(np.repeat(offsets[at], nodes.set_sizes) + nodes.set_codes)[is_used]] = 0
    return offsets, branch


# ---------------------------------------------------------------- boosted trees

ANSWER_SETTING = Setting(
    "answer",
    "predictions",
    choices=("predictions", "margins"),
    help="predictions: labels and probabilities, or numbers; margins: raw scores as numbers",
)
"""The setting `answer` of `make_boosted_model`."""
DTYPE_SETTING = Setting(
    "dtype",
    "auto",
    choices=("auto", "float32", "float64"),
    help="input type of the model, to which numbers are rounded before comparison; auto: the "
    "type in which the library compares them",
)
"""The input type of the model, for libraries that compare doubles."""


class Outcome(NamedTuple):
    """The conversion of margins to predictions by a library.

    Attributes
    ----------
    link : str
        Link function, see `treekit.model.links`.
    labels : tuple of labels
        Class labels; empty for regression.
    scale : float
        Factor of the margins before the link function.
    unsupported_reason : str
        Reason why only the margins can be imported, or empty.
    names : tuple of str
        Names of several predicted numbers.
    """

    link: Link
    labels: tuple[Label, ...] = ()
    scale: float = 1.0
    unsupported_reason: str = ""
    names: tuple[str, ...] = ()


def make_boosted_model(
    nodes: NodeTable,
    columns: tuple[Column, ...],
    outcome: Outcome,
    *,
    source: str,
    dtype: Dtype,
    margin_of_tree: npt.NDArray[np.int64],
    initial_margins: npt.NDArray[np.float64],
    answer: str,
    settings: dict[str, Any],
    provenance: dict[str, Any],
    divisor: int = 1,
    unknown: UnknownPolicy = "missing",
) -> Model:
    """Build the model of boosted trees.

    Parameters
    ----------
    nodes : NodeTable
        Nodes with values (n, 1), added to one margin per tree, or (n, margins).
    columns : tuple of Column
    outcome : Outcome
    source : str
        Description of the source in messages: ``"the LightGBM model"``.
    dtype : {"float32", "float64"}
    margin_of_tree : (trees,) int64
        The margin that each tree adds to; unused if values have all margins.
    initial_margins : (margins,) float64
    answer : {"predictions", "margins"}
    settings, provenance : dict
        As in `Model`.
    divisor : int
        Divisor of the margins: trees per margin for models that average, else 1.
    unknown : str
        Treatment of unseen categories; see `treekit.model.model.UnknownPolicy`.

    Raises
    ------
    ModelError
        If the trees are malformed, or their predictions cannot be represented.
    """
    n, n_nodes = len(initial_margins), len(nodes.left)
    outcome = _select_outcome(outcome, n, answer, source)
    schema = _make_schema(columns, dtype, outcome, n)
    if n_nodes * n > MAX_ENTRIES:
        raise ModelError(
            f"{source} has {n} margins and {n_nodes} nodes; the maximum of their product is "
            f"{MAX_ENTRIES}"
        )
    value = nodes.value
    if value.shape[1] != n:
        value = np.zeros((n_nodes, n))
        value[np.arange(n_nodes), margin_of_tree[nodes.tree]] = nodes.value[:, 0]
    with np.errstate(invalid="ignore", over="ignore"):  # make_trees rejects infinities and NaN
        nodes.value = _to_leaf_values(value, outcome) * (outcome.scale / divisor)
    trees = make_trees(nodes, schema, source)
    base = _to_leaf_values(initial_margins[None, :], outcome) * outcome.scale
    if np.any(base):
        if not np.all(np.isfinite(base)):
            raise ModelError(f"{source} has infinite or NaN initial margins {base[0].tolist()}")
        leaf = np.full(1, -1, dtype=np.int64)
        constant = NodeTable(leaf, leaf, leaf, np.zeros(1), leaf > 0, base)
        trees = (*make_trees(constant, schema, source), *trees)
    return make_model(
        schema,
        trees,
        unknown=unknown,
        combine="sum",
        link=outcome.link,
        settings=settings | {"answer": answer},
        provenance={"treekit": __version__, **provenance},
    )


def _select_outcome(outcome: Outcome, n: int, answer: str, source: str) -> Outcome:
    """Return the outcome for `answer`; raise `ModelError` if `n` margins cannot represent it."""
    if answer == "margins":
        texts = tuple(str(level_text(label)) for label in outcome.labels)
        names = outcome.names or (texts[-1:] if n == 1 else texts)
        return Outcome("identity", names=names)
    reason = outcome.unsupported_reason
    if not reason and len(outcome.labels) == n == 2 and outcome.link == "sigmoid":
        reason = "it has two classes with independent probabilities"
    if reason:
        raise ModelError(
            f"the predictions of {source} cannot be imported: {reason}; read it with "
            "answer='margins' for the sums"
        )
    # For two classes, softmax of (0, margin) is the logistic function of the margin.
    return outcome._replace(link="softmax") if len(outcome.labels) == 2 else outcome


def _make_schema(columns: tuple[Column, ...], dtype: Dtype, outcome: Outcome, n: int) -> Schema:
    if outcome.labels:
        return Schema(columns, classes=outcome.labels, dtype=dtype)
    names = outcome.names or ("target",)
    if len(names) != n:
        names = tuple(f"y{k}" for k in range(n))
    more = tuple(Output(name) for name in names[1:])
    return Schema(columns, target=names[0], task="regression", dtype=dtype, more=more)


def _to_leaf_values(margins: npt.NDArray[np.float64], outcome: Outcome) -> npt.NDArray[np.float64]:
    """Convert margins to leaf values of a `Model`: 0 and one margin for two classes."""
    if len(outcome.labels) != 2:
        return margins
    second = margins[:, -1] - (margins[:, 0] if margins.shape[1] == 2 else 0.0)
    return np.stack([np.zeros(len(margins)), second], axis=1)
