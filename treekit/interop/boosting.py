"""Boosted trees of any library as a model: sums of leaves, a base score, a link.

Every reader of boosted trees says the same things here: which margin each tree
adds to, where the margins start, and what the library makes of them.
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
from treekit.interop.tree_assembly import MAX_ENTRIES, Nodes, make_trees
from treekit.model.links import Link
from treekit.model.model import Model, UnknownPolicy, make_model
from treekit.model.tree import Split, Tree

__all__ = [
    "ANSWER",
    "DTYPE",
    "ITERATIONS",
    "Boosted",
    "Outcome",
    "read_boosted",
]

ANSWER = Setting(
    "answer",
    "predictions",
    choices=("predictions", "margins"),
    help="predictions: labels and probabilities, or numbers; margins: the raw scores as numbers",
)
DTYPE = Setting(
    "dtype",
    "auto",
    choices=("auto", "float32", "float64"),
    help="input type of the model: what numbers are rounded to before they are compared; auto: the "
    "type in which the library itself compares them",
)
ITERATIONS = Setting(
    "iterations",
    None,
    type=int,
    minimum=1,
    help="boosting rounds to read; none: up to the best one where it is known, else all",
)


class Outcome(NamedTuple):
    """What a library makes of the margins.

    Attributes
    ----------
    link : str
        Of `treekit.model.links`.
    labels : tuple of labels
        Empty: the answers are numbers.
    scale : float
        What margins are multiplied by before the link.
    refused : str
        Why only the margins can be read, or nothing.
    names : tuple of str
        Of the numbers, if there are several.
    """

    link: Link
    labels: tuple[Label, ...] = ()
    scale: float = 1.0
    refused: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Boosted:
    """Boosted trees as every library has them.

    Attributes
    ----------
    source : str
        What is read, for messages: ``"the LightGBM model"``.
    columns : tuple of Column
    dtype : {"float32", "float64"}
    nodes : Nodes
        Of value (n, 1): what a tree adds to its margin; or (n, margins).
    group : (trees,) int64
        The margin that each tree adds to; ignored for values of all margins.
    base : (margins,) float64
        Where the margins start.
    outcome : Outcome
    divisor : int
        What the margins are divided by: the trees of each, where a mean is asked.
    unknown : str
        What an unseen category is; see `treekit.model.model.UnknownPolicy`.
    """

    source: str
    columns: tuple[Column, ...]
    dtype: Dtype
    nodes: Nodes
    group: npt.NDArray[np.int64]
    base: npt.NDArray[np.float64]
    outcome: Outcome
    divisor: int = 1
    unknown: UnknownPolicy = "missing"


def read_boosted(
    boosted: Boosted, *, answer: str, settings: dict[str, Any], provenance: dict[str, Any]
) -> Model:
    """The model of boosted trees.

    Raises
    ------
    ModelError
        If the trees are malformed, or their answer cannot be expressed.
    """
    outcome = _asked(boosted, answer)
    schema = _schema(boosted, outcome)
    base = _columns(boosted.base[None, :], outcome) * outcome.scale
    nodes = _placed(boosted, outcome)
    trees = make_trees(nodes, schema, boosted.source)
    if np.any(base):
        if not np.all(np.isfinite(base)):
            raise ModelError(f"{boosted.source} starts its margins at {base[0].tolist()}")
        trees = (_stump(base), *trees)
    return make_model(
        schema,
        trees,
        unknown=boosted.unknown,
        combine="sum",
        link=outcome.link,
        settings=settings | {"answer": answer},
        provenance={"treekit": __version__, **provenance},
    )


def _asked(boosted: Boosted, answer: str) -> Outcome:
    """The outcome that is asked for, one that a model can have."""
    outcome, n = boosted.outcome, len(boosted.base)
    if answer == "margins":
        texts = tuple(str(level_text(label)) for label in outcome.labels)
        names = outcome.names or (texts[-1:] if n == 1 else texts)
        return Outcome("identity", names=names)
    why = outcome.refused
    if not why and len(outcome.labels) == n == 2 and outcome.link == "sigmoid":
        why = "it has two classes, each with a probability of its own"
    if why:
        raise ModelError(
            f"{boosted.source} cannot be read for its predictions: {why}; read it with "
            "answer='margins' for the sums"
        )
    # Of two classes the share of the second is the logistic function of its margin.
    return outcome._replace(link="softmax") if len(outcome.labels) == 2 else outcome


def _schema(boosted: Boosted, outcome: Outcome) -> Schema:
    n = len(boosted.base)
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


def _columns(margins: npt.NDArray[np.float64], outcome: Outcome) -> npt.NDArray[np.float64]:
    """Values as a model's leaves hold them: of two classes 0, and the margin of the second."""
    if len(outcome.labels) != 2:
        return margins
    second = margins[:, -1] - (margins[:, 0] if margins.shape[1] == 2 else 0.0)
    return np.stack([np.zeros(len(margins)), second], axis=1)


def _placed(boosted: Boosted, outcome: Outcome) -> Nodes:
    """The nodes with their values in the margins' columns."""
    nodes, n = boosted.nodes, len(boosted.base)
    if len(nodes.left) * n > MAX_ENTRIES:
        raise ModelError(
            f"{boosted.source} has {n} margins and {len(nodes.left)} nodes; the bound of their "
            f"product is {MAX_ENTRIES}"
        )
    value = nodes.value
    if value.shape[1] != n:
        spread = np.zeros((len(value), n))
        spread[np.arange(len(value)), boosted.group[nodes.tree]] = value[:, 0]
        value = spread
    with np.errstate(invalid="ignore", over="ignore"):  # refused in make_trees
        value = _columns(value, outcome) * (outcome.scale / boosted.divisor)
    return replace(nodes, value=value)


def _stump(value: npt.NDArray[np.float64]) -> Tree:
    """The tree of one leaf of this value, (1, values)."""
    return Tree(
        kind=np.array([Split.LEAF], dtype=np.uint8),
        feature=np.full(1, -1, dtype=np.int32),
        threshold=np.array([np.nan]),
        first_child=np.full(1, -1, dtype=np.int32),
        n_children=np.zeros(1, dtype=np.int32),
        missing=np.zeros(1, dtype=np.int32),
        level_start=np.zeros(2, dtype=np.int64),
        level_branch=np.zeros(0, dtype=np.int32),
        value=value,
        weight=np.zeros(1),
        gain=np.zeros(1),
    )
