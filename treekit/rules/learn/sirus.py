"""SIRUS: a short list of the rules that most trees of a forest agree on.

Bénard, Biau, da Veiga and Scornet 2021, "SIRUS: Stable and interpretable rule set for
classification", Electronic Journal of Statistics 15, pp. 427-505; for numbers,
"Interpretable random forests via rule extraction", AISTATS 2021.

Trees are shallow and split at quantiles of the table only, so that the same paths
return in many of them.  The most frequent ones, without those that are linear
combinations of others, are the list.  Classes: each rule says the shares of the rows
that meet it, or of those that do not, and the list says the mean, which is drawn towards the
shares of all rows: for labels of a rare class, weigh the classes.  Numbers: each
rule's means are weighed by ridge regression with weights that are not negative, and added.

>>> learned = sirus("bank.csv", "y", rules=20, class_weight="balanced")
>>> print(learned.rules)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treekit.errors import SettingError
from treekit.model.model import Model
from treekit.rules.learn.drawing import Drawing
from treekit.rules.learn.given import check_count, read_rows, rows_and_weights, weighed
from treekit.rules.learn.quantiles import cuts_of
from treekit.rules.learn.short import ShortList, judged_short
from treekit.rules.learn.sizes import chosen_size, stability_of_halves

__all__ = ["sirus"]


def sirus(
    source: Any,
    target: str | Sequence[str] | None = None,
    *,
    model: Model | None = None,
    rules: int | None = 10,
    most: int = 25,
    above: float = 0.0,
    trees: int = 300,
    depth: int = 2,
    quantiles: int = 10,
    seed: int = 0,
    class_weight: Any = None,
    test: Any = None,
    reading: dict[str, Any] | None = None,
    **settings: Any,
) -> ShortList:
    """Draw a short list from a forest that is grown for it, or from one that there is.

    Parameters
    ----------
    source : table
        Any table with the target.
    target : str, or sequence of str, optional
        Needed without a model.
    model : Model, optional
        The forest to draw from, trained or read.  Its thresholds are moved to the nearest
        quantile of the table, and its paths cut at `depth`.
    rules : int, optional
        How many, at most; None: as few as answer about as well as any number up to
        `most`, by cross-validation; see `treekit.rules.learn.sizes`.
    above : float
        Rules that this part of the trees has, or less, are left out: the paper's p0.
    trees, depth, quantiles : int
        Of the forest; the cut points of a column are its 1/q, ..., (q - 1)/q quantiles.
    class_weight : optional
        As in training, of the shares as well; default the model's.
    test : table, optional
        The rows that the report is about; default those of `source`.
    reading : dict, optional
        How to read the table; see `treekit.data.dataset.make_dataset`.
    **settings
        Of the forest that is grown, as in `treekit.train`.

    Returns
    -------
    ShortList

    Raises
    ------
    DataError, SettingError
    """
    if rules is not None:
        check_count("rules", rules, 1, 10_000)
    for name, value, least in (("most", most, 1), ("depth", depth, 1), ("quantiles", quantiles, 2)):
        check_count(name, value, least, 10_000)
    if not 0 <= above < 1:
        raise SettingError(f"above is {above!r}; give a part of the trees, 0 or more and below 1")
    if model is not None and settings:
        raise SettingError(
            f"{next(iter(settings))} is a setting of a new forest, but a model is given; leave "
            "one of them out"
        )
    dataset = weighed(read_rows(source, target, model, reading or {}), class_weight, model)
    own = {"trees": trees, "seed": seed} | settings
    task = Drawing(dataset, model, cuts_of(dataset, quantiles), depth, above, own)
    found = task.frequent(task.forest)
    size, fold_stability = (rules, np.nan) if rules is not None else chosen_size(task, most, seed)
    listed, frequency = task.listed(found, rows_and_weights(dataset), size)
    judges = dataset if test is None else read_rows(test, None, task.forest, {})
    return judged_short(
        listed, task.forest, judges, frequency=frequency, fold_stability=fold_stability,
        stability=stability_of_halves(task, size),
    )  # fmt: skip
