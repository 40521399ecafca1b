"""Build models of boosted trees: sums of leaves, a base score and a link function.

The importers of all libraries describe their models by the margin that each tree adds to,
the initial margins, and an `Outcome`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.contracts import Setting
from treekit.data.schema import Column, Dtype, Label, Output, Schema, level_text
from treekit.errors import ModelError
from treekit.interop.tree_assembly import MAX_ENTRIES, NodeTable, make_trees
from treekit.model.links import Link
from treekit.model.model import Model, UnknownPolicy, make_model

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
