"""LightGBM's boosted trees, from model texts and from fitted objects, as models.

A text is parsed without LightGBM; of an object its ``model_to_string`` is read.
Reading takes about 10 times the file's size in memory.

How the answers compare with LightGBM's:

Paths
    equal.  LightGBM compares doubles; with ``dtype="float32"`` numbers are
    rounded first, and for a float32 x, ``x <= t`` is ``x <= floor32(t)``.  It
    takes numbers within 1e-35 of 0 for 0: thresholds within are moved out.
Missing values
    as each split treats them: by its side (missing type NaN), or as 0 (None).
    Models of ``zero_as_missing`` are read where a split's side for missing
    values is that of 0, and refused by name where it is not.
Categories
    a column's levels are the training frame's categories, or the whole numbers
    0, 1, 2, ...; unseen and missing ones go right, there and here.  Numbers
    that are not whole are unseen here; LightGBM cuts off their fraction.
Names
    of columns are LightGBM's, which has ``_`` for the blanks of a frame's names
    and keeps no others, not even in its objects.
Margins
    leaf values are doubles, put on a grid of ``2**exponent``: the sum of T
    trees is off by at most ``T * 2**(exponent - 1)``, some ``T * 2**-53`` of
    the largest sum, and is rounded once where LightGBM rounds T times.
    Random forests (``boosting=rf``) answer the mean of their trees, of each its
    T-th part; their ``raw_score`` is the sum.
Labels
    equal unless two classes are closer than these roundings.
Probabilities and exponentials
    within 4 ulp of the exact link of the margin (see `treekit.model.links`).

`tests/test_import_lightgbm.py` measures them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from treekit.data.schema import Dtype, python_label
from treekit.errors import ModelError, ModelFileError
from treekit.interop.boosted import Boosted, Outcome, read_boosted
from treekit.interop.files import beginning, read_whole
from treekit.interop.lightgbm_nodes import SOURCE, nodes_of, vocabularies_of, whole_option
from treekit.interop.lightgbm_text import TreeText, parse_text
from treekit.interop.vocabulary import checked_names, columns_of
from treekit.model.links import Link
from treekit.model.model import Model

__all__ = ["read_lightgbm", "recognises_lightgbm"]

_PLAIN = (
    *("regression", "regression_l1", "huber", "fair", "quantile", "mape"),
    *("lambdarank", "rank_xendcg", "custom"),
)
_NUMBERS: dict[str, Link] = {
    "poisson": "exp",
    "gamma": "exp",
    "tweedie": "exp",
    "cross_entropy": "sigmoid",
    **dict.fromkeys(_PLAIN, "identity"),
}
"""Objectives that predict numbers, and what they make of their sums."""


def recognises_lightgbm(source: Any) -> bool:
    """Whether `source` is a LightGBM model text (``.txt``, ``.lgb``, ``.model``) or object."""
    if beginning(source, (".txt", ".lgb", ".model"), 5) in (b"tree\n", b"tree\r"):
        return True
    return _kind(source) is not None


def _kind(source: Any) -> str | None:
    """``Booster`` or ``LGBMModel`` for objects of these classes, without importing them."""
    for kind in type(source).__mro__:
        if kind.__module__.partition(".")[0] == "lightgbm":
            for name in ("Booster", "LGBMModel"):
                if kind.__name__ == name:
                    return name
    return None


def read_lightgbm(
    source: Any,
    *,
    dtype: str = "auto",
    answer: str = "predictions",
    iterations: int | None = None,
) -> Model:
    """The model of a LightGBM text or object.

    Parameters
    ----------
    source : pathlib.Path, lightgbm.Booster or lightgbm.LGBMModel
    dtype : {"auto", "float32", "float64"}
        Input type of the model; auto: float64, in which LightGBM compares.
    answer : {"predictions", "margins"}
        ``margins``: the raw scores of the classes, as numbers.
    iterations : int, optional
        Boosting rounds to read; default the best one's of an object that
        knows it, else all.

    Raises
    ------
    ModelError
        If it is no such model, is damaged, or has what treekit cannot express.
    """
    text, labels, best = _opened(source)
    wide: Dtype = "float32" if dtype == "float32" else "float64"
    parsed = parse_text(text)
    objective, options = _objective(parsed.header)
    per_round = whole_option(parsed.header, "num_tree_per_iteration", len(parsed.trees) or 1)
    trees = _kept(parsed.trees, per_round, iterations if iterations is not None else best)
    vocabularies = vocabularies_of(parsed, trees)
    names = checked_names(parsed.header.get("feature_names", "").split(), len(vocabularies), SOURCE)
    columns = columns_of(names, vocabularies)
    outcome = _outcome(objective, options, per_round, labels)
    averaged = "average_output" in parsed.header
    return read_boosted(
        Boosted(
            source=SOURCE,
            columns=columns,
            dtype=wide,
            nodes=nodes_of(trees, columns, vocabularies, wide),
            group=np.arange(len(trees)) % per_round,
            base=np.zeros(per_round),
            divisor=len(trees) // per_round if averaged else 1,
            outcome=outcome,
        ),
        answer=answer,
        settings={"objective": parsed.header.get("objective", "custom")},
        provenance={"importer": "lightgbm", "lightgbm": parsed.header["version"]},
    )


def _opened(source: Any) -> tuple[str, tuple[Any, ...] | None, int | None]:
    """Text, class labels if they are known, and the best round if there is one."""
    kind = _kind(source)
    if kind is None:
        if not recognises_lightgbm(source):
            raise ModelError(f"a {type(source).__qualname__} is no LightGBM model")
        try:
            return read_whole(source).decode("utf-8"), None, None
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{SOURCE} is damaged: it is no UTF-8 text: {error}") from error
    labels = None
    if kind == "LGBMModel":
        if not getattr(source, "fitted_", False):
            raise ModelError(f"the {type(source).__name__} is not fitted: call fit first")
        if hasattr(source, "classes_"):
            labels = tuple(python_label(label) for label in source.classes_)
        source = source.booster_
    return source.model_to_string(num_iteration=-1), labels, max(source.best_iteration, 0) or None


def _kept(trees: list[TreeText], per_round: int, rounds: int | None) -> list[TreeText]:
    if not trees or len(trees) % per_round:
        raise ModelFileError(
            f"{SOURCE} has {len(trees)} trees, which are no whole rounds of {per_round}"
        )
    if rounds is None:
        return trees
    if rounds * per_round > len(trees):
        raise ModelError(
            f"{SOURCE} has {len(trees) // per_round} iterations, not {rounds}; ask for fewer"
        )
    return trees[: rounds * per_round]


def _objective(header: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Name and options: ``binary sigmoid:1`` is ``binary`` with ``{"sigmoid": "1"}``."""
    name, *rest = header.get("objective", "").split() or ["custom"]
    return name, {key: value for key, _, value in (text.partition(":") for text in rest)}


def _outcome(
    objective: str, options: dict[str, str], per_round: int, labels: tuple[Any, ...] | None
) -> Outcome:
    if objective in ("binary", "multiclass", "multiclassova"):
        n_classes = 2 if objective == "binary" else per_round
        if (per_round == 1) != (objective == "binary") or len(
            labels or range(n_classes)
        ) != n_classes:
            raise ModelFileError(
                f"{SOURCE} is damaged: objective {objective!r} with {per_round} trees a round"
            )
        if objective == "multiclass":
            return Outcome("softmax", labels or tuple(range(n_classes)))
        scale = _number(options.get("sigmoid", "1"))
        return Outcome("sigmoid", labels or tuple(range(n_classes)), scale=scale)
    if objective not in _NUMBERS or "sqrt" in options:
        told = objective + (" sqrt" if "sqrt" in options else "")
        return Outcome("identity", refused=f"the objective {told!r} transforms its sums")
    return Outcome(_NUMBERS[objective])


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < np.inf:
        raise ModelFileError(f"{SOURCE} is damaged: sigmoid is {text!r:.40}")
    return value
