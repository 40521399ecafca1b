"""Fitted trees, forests and boosted trees of scikit-learn as models.

Estimator objects, and what a file of skops says of them (see
`treekit.interop.skops`); never pickles: loading one runs what it says.

How the answers compare with scikit-learn's:

Paths
    equal, always.  scikit-learn casts inputs to float32 and compares them with
    a double threshold; for a float32 x, ``x <= t`` is ``x <= floor32(t)``.
Labels of one tree
    equal; ties go to the first class in both.
Labels of a forest
    equal unless two classes are closer than the last digits: scikit-learn adds
    up shares in double, in the order of the trees, and treekit adds integers,
    T trees of ``floor(2**24 / T)`` units.  An exact tie of shares goes to the
    first class here, and where rounding happens to push it there.
Probabilities
    within ``T / 2**24``, for 100 trees 6e-6.
Regression
    within half a step of the grid, ``2**(exponent - 1)``: for T trees at most
    ``T**2 / 2**48`` of the largest leaf, 4e-11 for 100 trees.

Bagging
    as forests: its trees' shares, or numbers, are averaged.
Gradient boosting
    paths are equal: `GradientBoosting*` compares as its trees do,
    `HistGradientBoosting*` doubles, with its sides for missing values and its sets of
    categories; unseen ones are missing, there and here.
Margins
    scikit-learn adds T doubles one after the other, and the sum here is exact
    but for the grid: they differ by at most ``T * 2**(exponent - 1)`` and
    scikit-learn's rounding, some ``T * 2**-53`` of the largest sum.
Labels of boosted trees
    equal unless two classes are closer than that.  A margin of exactly 0 is
    the first class here and in `HistGradientBoostingClassifier`, the second in
    `GradientBoostingClassifier`.
Probabilities and exponentials of boosted trees
    within 4 ulp of the exact link of the margin (see `treekit.model.links`).

`tests/test_import_sklearn.py` and `tests/test_import_boosting.py` measure them.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from treekit._version import __version__
from treekit.data.schema import Column, Dtype, Output, Schema, python_label
from treekit.errors import ModelError
from treekit.interop.sklearn_boosting import read_gradient_boosting, read_histogram_boosting
from treekit.interop.sklearn_trees import tree_of
from treekit.interop.vocabulary import MAX_COLUMNS, checked_names, checked_width
from treekit.model.model import Model, make_model
from treekit.model.tree import Tree

__all__ = ["KINDS", "ROOMS", "read_estimator", "read_sklearn", "recognises_sklearn"]

_TREES = (
    *("DecisionTreeClassifier", "DecisionTreeRegressor"),
    *("ExtraTreeClassifier", "ExtraTreeRegressor"),
)
_FORESTS = (
    *("RandomForestClassifier", "RandomForestRegressor"),
    *("ExtraTreesClassifier", "ExtraTreesRegressor"),
)
_BAGS = ("BaggingClassifier", "BaggingRegressor")
_BOOSTED = ("GradientBoostingClassifier", "GradientBoostingRegressor")
_HISTOGRAMS = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")

KINDS = (*_TREES, *_FORESTS, *_BAGS, *_BOOSTED, *_HISTOGRAMS)
"""The classes of scikit-learn that are read."""

ROOMS = ("sklearn.tree.", "sklearn.ensemble.")
"""Where scikit-learn keeps them."""


def recognises_sklearn(source: Any) -> bool:
    """Whether `source` is an estimator of one of `KINDS`, fitted or not.

    Does not import scikit-learn: an object of a class derived from its classes
    shows that somebody did.
    """
    return _kind(source) is not None


def _kind(source: Any) -> str | None:
    # Derived from its classes: treekit's own trees are only registered as such.
    for kind in type(source).__mro__:
        if kind.__module__.startswith(ROOMS) and kind.__name__ in KINDS:
            return kind.__name__
    return None


def read_sklearn(source: Any, *, dtype: str = "auto", answer: str = "predictions") -> Model:
    """The model of a fitted estimator of one of `KINDS`.

    Parameters
    ----------
    source : estimator
    dtype : {"auto", "float32", "float64"}
        Input type; auto: float64 for `HistGradientBoosting*`, which compares
        doubles, and float32 for all others, which round numbers to it.
    answer : {"predictions", "margins"}
        ``margins``: the raw scores of boosted trees, as numbers.

    Returns
    -------
    Model
        Columns as in ``feature_names_in_``, else ``x0``, ``x1``, ...

    Raises
    ------
    ModelError
        If the estimator is not fitted, or holds a tree that no fit makes.
    """
    kind = _kind(source)
    if kind is None:
        raise ModelError(f"a {type(source).__qualname__} is no tree or forest of scikit-learn")
    version = sys.modules["sklearn"].__version__
    return read_estimator(source, kind, type(source).__name__, version, dtype, answer)


def read_estimator(
    source: Any, kind: str, name: str, version: str, dtype: str, answer: str
) -> Model:
    """The model of an estimator, or of anything that has its attributes.

    Parameters
    ----------
    source : object
    kind : str
        Of `KINDS`.
    name : str
        What it is called: of a class derived from that kind.
    version : str
        Of scikit-learn.
    dtype, answer : str
        As in `read_sklearn`.
    """
    fitted = {_TREES: "tree_", _HISTOGRAMS: "_predictors"}
    needed = next((what for kinds, what in fitted.items() if kind in kinds), "estimators_")
    if not hasattr(source, needed):
        raise ModelError(f"the {name} is not fitted: call fit first")
    settings = _settings(source)
    provenance = {"importer": "scikit-learn", "estimator": name, "scikit-learn": version}
    if kind in _HISTOGRAMS:
        wide: Dtype = "float32" if dtype == "float32" else "float64"
        return read_histogram_boosting(source, name, wide, answer, settings, provenance)
    if dtype == "float64":
        raise ModelError(f"the {name} rounds numbers to float32 itself: dtype='float64' is not its")
    if kind in _BOOSTED:
        return read_gradient_boosting(source, name, answer, settings, provenance)
    if answer == "margins":
        raise ModelError(f"the {name} has no margins: leave out answer='margins'")
    schema = _schema(source, name)
    return make_model(
        schema,
        _members(source, kind, name, schema),
        settings=settings,
        provenance={"treekit": __version__, **provenance},
    )


def _members(source: Any, kind: str, name: str, schema: Schema) -> list[Tree]:
    """The trees of a tree, forest or bag."""
    if kind in _TREES:
        return [tree_of(source.tree_, schema)]
    if kind in _FORESTS:
        return [tree_of(member.tree_, schema) for member in source.estimators_]
    trees = []
    for member, features in zip(source.estimators_, source.estimators_features_, strict=True):
        if not hasattr(member, "tree_") or getattr(member, "n_outputs_", 1) != 1:
            raise ModelError(f"the {name} bags what is no tree of one output; bag decision trees")
        classes = getattr(member, "classes_", None)
        if (classes is not None) != bool(schema.classes):
            raise ModelError(f"the {name} bags trees of another task")
        own = schema if classes is None else _of_classes(schema, classes, name)
        tree = tree_of(member.tree_, own)
        columns = np.asarray(features, dtype=np.int64)
        if np.any(tree.feature >= len(columns)):
            raise ModelError(f"the {name} is damaged: a tree asks a column that it was not given")
        value = tree.value
        if classes is not None:
            value = np.zeros((tree.n_nodes, schema.n_values))
            value[:, np.asarray(classes, dtype=np.int64)] = tree.value
        asked = np.where(tree.feature >= 0, columns[tree.feature], -1).astype(np.int32)
        trees.append(replace(tree, feature=asked, value=value))
    return trees


def _of_classes(schema: Schema, classes: Any, name: str) -> Schema:
    """The schema of a bagged tree, whose classes are positions of those that its rows had."""
    positions = np.asarray(classes)
    if not np.all(np.isin(positions, np.arange(len(schema.classes)))):
        raise ModelError(f"the {name} is damaged: a tree has classes that it has not")
    labels = tuple(schema.classes[int(position)] for position in positions)
    return Schema(columns=schema.columns, classes=labels)


def _schema(source: Any, name: str) -> Schema:
    said = f"the {name}"
    names = getattr(source, "feature_names_in_", None)
    names = None if names is None else [str(name) for name in names]
    names = checked_names(names, checked_width(int(source.n_features_in_), said), said)
    columns = tuple(Column(name) for name in names)
    n_outputs = int(getattr(source, "n_outputs_", 1))
    if not 1 <= n_outputs <= MAX_COLUMNS:
        raise ModelError(f"{said} has {n_outputs} outputs; treekit reads 1 to {MAX_COLUMNS}")
    targets = ["target"] if n_outputs == 1 else [f"y{k}" for k in range(n_outputs)]
    if not hasattr(source, "classes_"):
        more = tuple(Output(target) for target in targets[1:])
        return Schema(columns=columns, target=targets[0], task="regression", more=more)
    told = [source.classes_] if n_outputs == 1 else source.classes_
    labels = [tuple(python_label(label) for label in classes) for classes in told]
    more = tuple(map(Output, targets[1:], labels[1:]))
    return Schema(columns=columns, target=targets[0], classes=labels[0], more=more)


def _settings(source: Any) -> dict[str, Any]:
    """The estimator's parameters as plain values; others as text."""
    plain = (bool, int, float, str, type(None))
    return {
        name: value if type(value) in plain else repr(value)
        for name, value in source.get_params(deep=False).items()
    }
