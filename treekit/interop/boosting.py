"""Build models of boosted trees: sums of leaves, a base score and a link function.

The importers of all libraries describe their models by `BoostedTrees`: the margin that each
tree adds to, the initial margins, and the link function.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.contracts import Setting
from treekit.data.schema import Column, Dtype, Label, Output, Schema, level_text
from treekit.errors import ModelError
from treekit.interop.tree_assembly import MAX_ENTRIES, NodeList, make_trees
from treekit.model.links import Link
from treekit.model.model import Model, UnknownPolicy, make_model
from treekit.model.tree import Split, Tree

ANSWER_SETTING = Setting(
    "answer",
    "predictions",
    choices=("predictions", "margins"),
    help="predictions: labels and probabilities, or numbers; margins: raw scores as numbers",
)
DTYPE_SETTING = Setting(
    "dtype",
    "auto",
    choices=("auto", "float32", "float64"),
    help="input type of the model, to which numbers are rounded before comparison; auto: the "
    "type in which the library compares them",
)
ITERATIONS_SETTING = Setting(
    "iterations",
    None,
    type=int,
    minimum=1,
    help="boosting rounds to read; none: up to the best one if known, else all",
)


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


@dataclass(frozen=True, slots=True)
class BoostedTrees:
    """Boosted trees in a form common to all libraries.

    Attributes
    ----------
    source : str
        Description of the source in messages: ``"the LightGBM model"``.
    columns : tuple of Column
    dtype : {"float32", "float64"}
    nodes : Nodes
        Nodes with values (n, 1), added to one margin per tree, or (n, margins).
    margin_of_tree : (trees,) int64
        The margin that each tree adds to; unused if values have all margins.
    initial_margins : (margins,) float64
        Initial margins.
    outcome : Outcome
    divisor : int
        Divisor of the margins: trees per margin for models that average, else 1.
    unknown : str
        Treatment of unseen categories; see `treekit.model.model.UnknownPolicy`.
    """

    source: str
    columns: tuple[Column, ...]
    dtype: Dtype
    nodes: NodeList
    margin_of_tree: npt.NDArray[np.int64]
    initial_margins: npt.NDArray[np.float64]
    outcome: Outcome
    divisor: int = 1
    unknown: UnknownPolicy = "missing"


def make_boosted_model(
    boosted: BoostedTrees, *, answer: str, settings: dict[str, Any], provenance: dict[str, Any]
) -> Model:
    """Build the model of boosted trees.

    Raises
    ------
    ModelError
        If the trees are malformed, or their predictions cannot be represented.
    """
    outcome = _select_outcome(boosted, answer)
    schema = _make_schema(boosted, outcome)
    base = _to_leaf_values(boosted.initial_margins[None, :], outcome) * outcome.scale
    nodes = _expand_values(boosted, outcome)
    trees = make_trees(nodes, schema, boosted.source)
    if np.any(base):
        if not np.all(np.isfinite(base)):
            raise ModelError(f"{boosted.source} has the initial margins {base[0].tolist()}")
        trees = (_make_stump(base), *trees)
    return make_model(
        schema,
        trees,
        unknown=boosted.unknown,
        combine="sum",
        link=outcome.link,
        settings=settings | {"answer": answer},
        provenance={"treekit": __version__, **provenance},
    )


def _select_outcome(boosted: BoostedTrees, answer: str) -> Outcome:
    """Return the outcome for the setting `answer`, if a model can represent it."""
    outcome, n = boosted.outcome, len(boosted.initial_margins)
    if answer == "margins":
        texts = tuple(str(level_text(label)) for label in outcome.labels)
        names = outcome.names or (texts[-1:] if n == 1 else texts)
        return Outcome("identity", names=names)
    reason = outcome.unsupported_reason
    if not reason and len(outcome.labels) == n == 2 and outcome.link == "sigmoid":
        reason = "it has two classes with independent probabilities"
    if reason:
        raise ModelError(
            f"the predictions of {boosted.source} cannot be imported: {reason}; read it with "
            "answer='margins' for the sums"
        )
    # For two classes, softmax of (0, margin) is the logistic function of the margin.
    return outcome._replace(link="softmax") if len(outcome.labels) == 2 else outcome


def _make_schema(boosted: BoostedTrees, outcome: Outcome) -> Schema:
    n = len(boosted.initial_margins)
    if outcome.labels:
        return Schema(boosted.columns, classes=outcome.labels, dtype=boosted.dtype)
    names = outcome.names or ("target",)
    if len(names) != n:
        names = tuple(f"y{k}" for k in range(n))
    return Schema(
        boosted.columns,
        target=names[0],
        task="regression",
        dtype=boosted.dtype,
        more=tuple(Output(name) for name in names[1:]),
    )


def _to_leaf_values(margins: npt.NDArray[np.float64], outcome: Outcome) -> npt.NDArray[np.float64]:
    """Convert margins to leaf values of a `Model`: 0 and one margin for two classes."""
    if len(outcome.labels) != 2:
        return margins
    second = margins[:, -1] - (margins[:, 0] if margins.shape[1] == 2 else 0.0)
    return np.stack([np.zeros(len(margins)), second], axis=1)


def _expand_values(boosted: BoostedTrees, outcome: Outcome) -> NodeList:
    """Return the nodes with the values of all margins."""
    nodes, n = boosted.nodes, len(boosted.initial_margins)
    if len(nodes.left) * n > MAX_ENTRIES:
        raise ModelError(
            f"{boosted.source} has {n} margins and {len(nodes.left)} nodes; the maximum of their "
            f"product is {MAX_ENTRIES}"
        )
    value = nodes.value
    if value.shape[1] != n:
        spread = np.zeros((len(value), n))
        spread[np.arange(len(value)), boosted.margin_of_tree[nodes.tree]] = value[:, 0]
        value = spread
    with np.errstate(invalid="ignore", over="ignore"):  # make_trees rejects infinities and NaN
        value = _to_leaf_values(value, outcome) * (outcome.scale / boosted.divisor)
    return replace(nodes, value=value)


def _make_stump(value: npt.NDArray[np.float64]) -> Tree:
    """Make a tree that is a single leaf with the given value, (1, values)."""
    return Tree(
        kind=np.array([Split.LEAF], dtype=np.uint8),
        feature=np.full(1, -1, dtype=np.int32),
        threshold=np.array([np.nan]),
        first_child=np.full(1, -1, dtype=np.int32),
        n_children=np.zeros(1, dtype=np.int32),
        missing=np.zeros(1, dtype=np.int32),
        level_offsets=np.zeros(2, dtype=np.int64),
        level_branch=np.zeros(0, dtype=np.int32),
        value=value,
        weight=np.zeros(1),
        gain=np.zeros(1),
    )
