"""Rule lists of treekit and imodels: accuracy at one size, and training cost.

Tables are those of ``benchmarks.accuracy``, with at most ``--rows`` training rows. imodels
accepts numbers only: it gets one-hot categories, and medians for missing values, before
timing. treekit gets the original table; reading it is timed. Both get the maximum number
of rules; "rules" is the number learned (imodels' RuleFit: terms, linear ones included;
FIGS: splits).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from benchmarks.accuracy import SOURCES, made, read
from benchmarks.apart import Failed, ask
from benchmarks.clock import measured
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register
from benchmarks.sides import absent

FIGURES = (
    Figure("auc", "AUC", ".4f", mean=True),
    Figure("quality", "accuracy or R²", ".4f", mean=True),
    Figure("rules", "rules", ".1f", mean=True),
    Figure("cpu", "CPU s", ".2f", ratio=True),
)
_SMALL = 400
"""Rows of a first run, which compiles before timing."""


class Parts:
    """A table split by a seed: frames, numeric matrices and targets."""

    def __init__(self, frame: pd.DataFrame, target: Any, most: int, seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(frame))
        cut = len(order) // 4
        self.test, self.train = order[:cut], order[cut:][:most]
        self.frame, self.target = frame, np.asarray(target)
        numbers = pd.get_dummies(frame, dtype=float)
        self.matrix = numbers.fillna(numbers.iloc[self.train].median()).to_numpy(np.float64)
        self.regression = self.target.dtype.kind == "f"


def of_imodels(side: str, parts: Parts, size: int, seed: int) -> dict[str, float]:
    """Measure a model of imodels."""
    import imodels

    name = side.split()[1]
    given = {"random_state": seed}
    if name == "BoostedRules":
        given["n_estimators"] = size
    elif name != "SkopeRules":  # has no bound on rules, and keeps all of sufficient precision
        given["max_rules"] = size
    y = parts.target if parts.regression else np.unique(parts.target, return_inverse=True)[1]
    kind = "Regressor" if parts.regression else "Classifier"
    model = getattr(imodels, name + kind)(**given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations of scikit-learn, and divisions by zero
        _, cost = measured(lambda: model.fit(parts.matrix[parts.train], y[parts.train]))
        new = parts.matrix[parts.test]
        predicted, shares = model.predict(new), None
        if not parts.regression:
            shares = model.predict_proba(new)
    if name == "RuleFit":
        rules = np.count_nonzero(model.coef)
    else:
        rules = model.complexity_ if name == "FIGS" else len(getattr(model, "rules_", range(size)))
    return _figures(predicted, shares, y[parts.test]) | {"rules": float(rules), "cpu": cost.cpu}


def of_treekit(side: str, parts: Parts, size: int, seed: int) -> dict[str, float]:
    """Measure a rule learner of treekit."""
    from treekit_rule_learning.frequent_paths import sirus
    from treekit_rule_learning.penalised_rules import rulefit

    learn = {"rulefit": rulefit, "sirus": sirus}[side.split()[1]]
    table = parts.frame.assign(_y=parts.target)
    task = {"task": "regression" if parts.regression else "classification"}
    learn(table.iloc[parts.train[:_SMALL]], "_y", rules=2, trees=2, reading=task)
    known = table.iloc[parts.train]
    found, cost = measured(lambda: learn(known, "_y", rules=size, seed=seed, reading=task))
    model, new = found.rules.model(), table.iloc[parts.test]
    shares = None if parts.regression else model.predict_proba(new)
    truth = parts.target[parts.test]
    figures = _figures(model.predict(new), shares, truth, model.schema.classes)
    return figures | {"rules": float(found.n_rules), "cpu": cost.cpu}


def _figures(said: Any, shares: Any, truth: Any, classes: Any = None) -> dict[str, float]:
    if shares is None:
        wrong = ((said - truth) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()
        return {"quality": float(1 - wrong)}
    order = np.unique(truth) if classes is None else np.array(classes)
    number = (truth[:, None] == order).argmax(axis=1)
    auc = (
        roc_auc_score(number, shares[:, 1])
        if shares.shape[1] == 2
        else roc_auc_score(number, shares, multi_class="ovr", average="weighted")
    )
    return {"quality": float((said == truth).mean()), "auc": float(auc)}


def measure(side: str, table: str, values: dict[str, Any], seed: int) -> dict[str, float]:
    """Measure one side on one table, split by a seed."""
    if values["made"]:
        frame, target, _ = made()[table]
    else:
        folder = values["tables_in"] or os.environ.get("TREEKIT_TABLES")
        frame, target = read(SOURCES[table], Path(folder) if folder else None)
    parts = Parts(frame, target, values["rows"], seed)
    given = of_imodels if side.startswith("imodels") else of_treekit
    return given(side, parts, values["size"], seed)


def _run(options: Options) -> Iterator[Entry]:
    for table in made() if options.made else options.tables:
        regression = table == "made, numbers" or (table in SOURCES and SOURCES[table].regression)
        for seed in range(options.rounds):
            for side in options.sides:
                if regression and side == "imodels SkopeRules":
                    continue  # classification only
                case = f"{table}, {options.size} rules"
                try:
                    if absent(side):
                        raise Failed(absent(side))
                    found = ask(
                        measure, side, table, dict(options.values), seed,
                        apart=options.apart, limit=options.limit,
                    )  # fmt: skip
                except Failed as why:
                    yield Entry(case, side, failed=str(why))
                else:
                    yield Entry(case, side, found)


register(
    Benchmark(
        "rules", "rule lists compared with imodels' of the same size", _run, FIGURES,
        {
            "tables": Parameter(tuple(SOURCES), tuple(SOURCES), "names of tables"),
            "tables_in": Parameter("", "", "folder of NAME.csv.gz; empty: OpenML"),
            "made": Parameter(False, True, "use two generated tables instead"),
            "rows": Parameter(5_000, 200, "maximum training rows"),
            "size": Parameter(20, 5, "maximum rules"),
        },
        own=("treekit rulefit", "treekit sirus"),
        peers=("imodels RuleFit", "imodels FIGS", "imodels BoostedRules", "imodels SkopeRules"),
        rounds=2,
    )
)  # fmt: skip
