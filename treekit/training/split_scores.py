"""Scores of the best split of each column at a node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from treekit.contracts import CriterionFunctions
from treekit.data.dataset import Dataset, make_dataset
from treekit.data.schema import Dtype
from treekit.model.model import Model
from treekit.model.tree import Split
from treekit.training.class_weights import apply_class_weights
from treekit.training.plan import make_plan
from treekit.training.settings import expand_settings
from treekit.training.tasks import get_reading_options

_UNUSED_SETTINGS = ("pruner", "trees", "max_leaves", "max_samples", "monotonic", "validation")
"""Settings without effect on a stump of one column, or that name other columns."""


@dataclass(frozen=True)
class SplitScore:
    """The best split of one column.

    Attributes
    ----------
    column : str
    gain : float
        Gain by which the split was chosen among those of the column; NaN if the column
        cannot split the rows.
    score : float
        Score by which columns are compared, larger is better: the gain, unless the
        criterion chooses among columns by another score (gain ratio).
    kind : Split
        Kind of split; `Split.LEAF` if there is none.
    threshold : float or None
        For a numeric column: ``x <= threshold`` against the rest.
    branches : tuple of tuple of str
        For a nominal column: the categories of each branch.
    weights : tuple of float
        Training weight of each branch.
    values : tuple of tuple of float
        Value of each branch: the weight of each class, or the mean.
    """

    column: str
    gain: float
    score: float
    kind: Split = Split.LEAF
    threshold: float | None = None
    branches: tuple[tuple[str, ...], ...] = ()
    weights: tuple[float, ...] = ()
    values: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class SplitScores(Mapping[str, SplitScore]):
    """The best split of each column, by the column's name; ``print`` shows a table.

    Attributes
    ----------
    criterion : str
    impurity : float or None
        Impurity of all rows, if the criterion defines one for classes.
    weight : float
        Weight of all rows.
    dtype : {"float32", "float64"}
        Type of the thresholds.
    """

    criterion: str
    impurity: float | None
    weight: float
    dtype: Dtype
    columns: dict[str, SplitScore] = field(repr=False)

    def __getitem__(self, column: str) -> SplitScore:
        return self.columns[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def ranked(self) -> list[SplitScore]:
        """Return the columns that can split the rows, best first, ties in the table's order."""
        able = [score for score in self.columns.values() if not math.isnan(score.score)]
        return sorted(able, key=lambda score: -score.score)

    def __str__(self) -> str:
        rows = [("column", "gain", self.criterion, "split")]
        for own in self.values():
            split = _describe_split(own, self.dtype)
            rows.append((_escape_text(own.column), f"{own.gain:.6g}", f"{own.score:.6g}", split))
        w = [max(len(row[k]) for row in rows) for k in range(3)]
        lines = [f"{a:<{w[0]}}  {b:>{w[1]}}  {c:>{w[2]}}  {d}".rstrip() for a, b, c, d in rows]
        if self.impurity is not None:
            lines.insert(0, f"impurity {self.impurity:.6g}, weight {self.weight:g}")
        return "\n".join(lines)


def split_scores(
    source: Any,
    target: str,
    *,
    task: Any = None,
    nominal: Any = None,
    numeric: Any = None,
    levels: Any = None,
    classes: Any = None,
    weights: Any = None,
    ignore: Any = (),
    dtype: Any = "auto",
    missing_marks: Any = None,
    decimal: Any = None,
    thousands: Any = None,
    **settings: Any,
) -> SplitScores:
    """Compute the gain and score of the best split of each column at the root.

    For a lower node, give the rows that reach it and, with ``missing="fractional"``, their
    weights.

    Parameters
    ----------
    source, target
        See `treekit.train`.
    task, nominal, numeric, levels, classes, weights, ignore, dtype
        How to read the table; see `treekit.data.dataset.make_dataset`.
    missing_marks, decimal, thousands
        How to read the table; see `treekit.data.dataset.make_dataset`.
    **settings
        Training settings, above all ``criterion`` and ``nominal_splits``.  Settings of
        pruning, of forests and of the size of the tree have no effect.

    Returns
    -------
    SplitScores

    Raises
    ------
    DataError, SettingError, PluginError
    """
    settings = expand_settings(settings)
    dataset = make_dataset(
        source,
        target,
        **get_reading_options(settings, task),
        nominal=nominal,
        numeric=numeric,
        levels=levels,
        classes=classes,
        weights=weights,
        ignore=ignore,
        dtype=dtype,
        missing_marks=missing_marks,
        decimal=decimal,
        thousands=thousands,
    )
    return score_columns(dataset, settings)


def score_columns(dataset: Dataset, settings: Mapping[str, Any]) -> SplitScores:
    """Compute `split_scores` of a `Dataset`.

    A stump is grown for each column, so that policies, limits and plugins apply as in
    training.
    """
    from treekit.training import fit

    own = {
        key: value
        for key, value in settings.items()
        if key.partition(".")[0] not in _UNUSED_SETTINGS
    }
    own |= {"ensemble": "tree", "pruner": "none", "max_depth": 1, "seed": 0}
    own = {"min_gain": -1e300} | own  # show columns without gain, too
    found: dict[str, SplitScore] = {}
    for at, column in enumerate(dataset.schema.columns):
        alone = replace(
            dataset,
            schema=msgspec.structs.replace(dataset.schema, columns=(column,)),
            columns=(dataset.columns[at],),
        )
        model, alone = fit(alone, own).model, alone.scale_weights()
        plan = make_plan(alone, own)
        functions = plan.criterion.functions
        weighed = apply_class_weights(alone, plan.class_weights)
        found[column.name] = _make_split_score(model, functions, weighed)
    return SplitScores(
        criterion=model.settings["criterion"],
        impurity=_compute_impurity(model, functions),
        weight=float(model.trees[0].weight[0]),
        dtype=model.schema.dtype,
        columns=found,
    )


def _make_split_score(model: Model, functions: CriterionFunctions, dataset: Dataset) -> SplitScore:
    """Return the split score of a stump's root."""
    tree, (column,) = model.trees[0], model.schema.columns
    kind = Split(int(tree.kind[0]))
    if kind == Split.LEAF:
        return SplitScore(column.name, math.nan, math.nan)
    routes = tree.branches(0).tolist()
    n = int(tree.n_children[0])
    return SplitScore(
        column=column.name,
        gain=float(tree.gain[0]),
        score=_compute_score(model, functions, dataset),
        kind=kind,
        threshold=float(tree.threshold[0]) if kind == Split.THRESHOLD else None,
        branches=tuple(
            tuple(level for level, branch in zip(column.levels, routes, strict=True) if branch == b)
            for b in range(n if routes else 0)
        ),
        weights=tuple(tree.weight[1:].tolist()),
        values=tuple(map(tuple, tree.value[1:].tolist())),
    )


def _compute_score(model: Model, functions: CriterionFunctions, dataset: Dataset) -> float:
    """Return the score of the root split, by which columns are compared."""
    tree = model.trees[0]
    chooses = functions.extras.choose is not None and model.schema.task == "classification"
    if not chooses or functions.score is None or model.schema.more:
        return float(tree.gain[0])
    branches = tree.value[1:].copy()
    if model.missing == "fractional":  # the score uses only rows whose value is known
        cells = dataset.columns[0]
        gone = cells < 0 if cells.dtype.kind == "i" else np.isnan(cells)
        weights = dataset.statistical_weights
        weights = None if weights is None else weights[gone]
        missing = np.bincount(dataset.y[gone], weights, len(model.schema.classes))
        branches -= np.outer(tree.weight[1:] / tree.weight[0], missing)
    return float(functions.score(tree.value[0].copy(), branches))


def _compute_impurity(model: Model, functions: CriterionFunctions) -> float | None:
    schema, function = model.schema, functions.impurity
    if (
        function is None
        or schema.task != "classification"
        or schema.more
        or "task" in model.provenance
    ):
        return None
    return float(function(model.trees[0].value[0].copy()))


def _describe_split(score: SplitScore, dtype: Dtype) -> str:
    if score.threshold is not None:
        # The shortest text that parses to the same number of this type.
        return f"<= {np.dtype(dtype).type(score.threshold)!s}"
    if score.branches:
        return " | ".join(", ".join(map(_escape_text, levels)) for levels in score.branches)
    return "" if score.kind == Split.LEAF else "missing | known"


def _escape_text(text: str) -> str:
    """Escape text that contains line breaks or terminal control characters."""
    return text if text.isprintable() else ascii(text)
