"""Convert the trees of a model to the arrays that ``shap.TreeExplainer`` reads.

shap's trees test ``code <= threshold`` only.  A split on categories becomes a chain of such
tests on the codes of the column, one for each run of consecutive codes that take the same
branch.  The subtree of a branch is repeated for each of its runs, which divide its weight
equally.  Any division gives the same SHAP values: only the sum of the weights matters.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.encoding import encode_rows
from treekit.errors import AbsentError
from treekit.model.fixed_point import scale_units
from treekit.model.model import Model
from treekit.model.tree import Split, Tree

MAX_NODES = 1_000_000
"""Maximum number of nodes of a converted tree."""

_OUTPUTS = {"identity": "raw_value", "sigmoid": "log_odds", "softmax": "raw_value"}


def to_shap(model: Any) -> dict[str, Any]:
    """Convert a model or a fitted estimator to a dictionary for ``shap.TreeExplainer``.

    >>> explainer = shap.TreeExplainer(treekit.to_shap(model))
    >>> explainer(treekit.shap_inputs(model, rows))

    Returns
    -------
    dict
        For ``shap.TreeExplainer`` and ``shap.Explainer``.  The base value and the SHAP values
        of a row add up to its probability, predicted number, or margin (boosted trees).

    Raises
    ------
    AbsentError
        If shap does not support a split (sums of columns, rules), the missing policy or the
        link function.
    """
    model = _get_model(model)
    if model.link not in _OUTPUTS or model.missing not in ("direction", "error"):
        what = f"missing={model.missing!r}" if model.link in _OUTPUTS else f"link {model.link!r}"
        raise AbsentError(f"shap does not support {what}; use permutation importances")
    numbers = model.schema.task == "regression" or model.margins
    scale = scale_units(1.0, model.exponent) if numbers else np.asarray(1.0 / model.units_each)
    if model.combine == "mean":
        scale = scale / model.n_trees
    return {
        "trees": [
            _Converter(tree, model.tree_units(at) * scale).arrays
            for at, tree in enumerate(model.trees)
        ],
        "internal_dtype": np.float64,
        "input_dtype": np.dtype(model.schema.dtype).type,
        "tree_output": _OUTPUTS[model.link] if numbers else "probability",
    }


def shap_inputs(model: Any, rows: Any) -> Any:
    """Encode rows as input of the explainer: a number or the code of a category in each cell.

    Returns
    -------
    pandas.DataFrame
        NaN where a cell is missing, or is a category not seen in training.
    """
    import pandas as pd

    model = _get_model(model)
    matrix = encode_rows(rows, model.schema, missing=model.missing, unknown=model.unknown)
    return pd.DataFrame(matrix, columns=list(model.schema.names))


def _get_model(model: Any) -> Model:
    found = getattr(model, "model_", model)
    if not isinstance(found, Model):
        raise TypeError(f"expected a model or a fitted estimator, got {type(model).__name__}")
    return found


class _Converter:
    """Convert the nodes of one tree to `arrays`, as shap reads them."""

    def __init__(self, tree: Tree, values: npt.NDArray[np.float64]) -> None:
        unsupported = {Split.OBLIQUE: "sums of columns", Split.RULE: "rules"}
        for kind, what in unsupported.items():
            if np.any(tree.kind == kind):
                raise AbsentError(f"shap does not support splits on {what}; use another splitter")
        self._tree = tree
        self._values = np.zeros((tree.n_nodes, values.shape[1]))
        self._values[tree.leaves] = values
        self._nodes: list[tuple[int, int, int, int, float, int, float]] = []
        pending = [(0, self._add(0, float(tree.weight[0])))]
        while pending:  # nodes of the tree, and their places in the result
            node, place = pending.pop()
            if tree.kind[node] != Split.LEAF:
                pending += self._split(node, place)
        left, right, default, feature, threshold, source, weight = zip(*self._nodes, strict=True)
        self.arrays = {
            "children_left": np.array(left, np.int32),
            "children_right": np.array(right, np.int32),
            "children_default": np.array(default, np.int32),
            "features": np.array(feature, np.int32),
            "thresholds": np.array(threshold, np.float64),
            "values": self._values[list(source)],
            "node_sample_weight": np.array(weight, np.float64),
        }

    def _add(self, source: int, weight: float) -> int:
        """Add a leaf for a node of the tree; return its index in the result."""
        if len(self._nodes) >= MAX_NODES:
            raise AbsentError(
                f"a tree has more than {MAX_NODES:,} nodes when its splits on categories are "
                "converted for shap; train with nominal_splits='one_vs_rest'"
            )
        self._nodes.append((-1, -1, -1, -2, -2.0, source, weight))
        return len(self._nodes) - 1

    def _split(self, node: int, place: int) -> list[tuple[int, int]]:
        """Convert the split of a node at index `place`; return its children and their indices."""
        tree = self._tree
        first, lost = int(tree.first_child[node]), int(tree.missing[node])
        pieces = self._list_pieces(node)
        if lost not in [branch for branch, _ in pieces]:  # its rows are missing cells only
            pieces = [*pieces[:-1], (pieces[-1][0], np.inf), (lost, np.nan)]
        owners = [branch for branch, _ in pieces]
        shared = self._nodes[place][-1] / max(float(tree.weight[node]), 5e-324)
        weights = [
            shared * float(tree.weight[first + branch]) / owners.count(branch) for branch in owners
        ]
        found = []
        for k, (branch, threshold) in enumerate(pieces[:-1]):
            left = self._add(first + branch, weights[k])
            right = self._add(first + owners[-1], sum(weights[k + 1 :]))
            default = left if branch == lost and lost not in owners[:k] else right
            feature, source = int(tree.feature[node]), self._nodes[place][5]
            weight = self._nodes[place][-1]
            self._nodes[place] = (left, right, default, feature, threshold, source, weight)
            found.append((first + branch, left))
            place = right
        return [*found, (first + owners[-1], place)]

    def _list_pieces(self, node: int) -> list[tuple[int, float]]:
        """Return the branches of a split in the order of codes, each with its upper threshold."""
        tree, kind = self._tree, self._tree.kind[node]
        if kind == Split.THRESHOLD:
            return [(0, float(tree.threshold[node])), (1, np.inf)]
        if kind == Split.MISSING:
            return [(1, np.inf)]
        branches = tree.level_branch[tree.level_offsets[node] : tree.level_offsets[node + 1]]
        taken = np.where(branches < 0, tree.missing[node], branches).tolist()
        pieces, code = [], 0
        for branch, run in groupby(taken):
            code += len(list(run))
            pieces.append((branch, code - 0.5))
        return pieces
