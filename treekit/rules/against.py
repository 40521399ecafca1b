"""Rules held against a table: what each was expected to do, what it does, what has drifted.

Two questions are apart.  Do as many rows come to each rule as did in training?  The
population stability index says how far the shares moved (as used in credit scoring:
Siddiqi 2006, "Credit Risk Scorecards", which calls less than 0.1 stable and from 0.25 a
shift; what chance alone makes of it: Yurdakul 2018).  And is a rule as right as it was?
That is tested rule by rule, and the level of the test is divided by the number of tests
(Bonferroni), so that a long list raises no false alarm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.errors import DataError
from treekit.model.links import values_of
from treekit.model.model import least_cost
from treekit.rules.drift import compared_means, compared_shares, stability
from treekit.rules.fired import fired
from treekit.rules.language import Language
from treekit.rules.measure import Measures, labels_of, table_measures, training_measures
from treekit.rules.rulelist import RuleList
from treekit.rules.tables import Known, known_rows

__all__ = ["LEVEL", "Against", "Quality", "rules_against"]

Numbers = npt.NDArray[np.float64]
Stability = Literal["stable", "moved", "shifted", "unknown"]

LEVEL = 0.05
"""Chance of any false alarm among all rules, if nothing has changed."""

_MOVED, _SHIFTED = 0.1, 0.25


class Quality(NamedTuple):
    """How right the whole list is for one target; rows count by their weights.

    Attributes
    ----------
    target : str
    rows : int
        Rows with an answer whose target is known.
    accuracy : float
        Classification, else NaN.
    r_squared, mean_error : float
        Regression: 1 - squared error / variance, and the mean absolute error; else NaN.
    """

    target: str
    rows: int
    accuracy: float = math.nan
    r_squared: float = math.nan
    mean_error: float = math.nan


@dataclass(frozen=True, eq=False)
class Against:
    """Expected and live figures of each rule, and of the list.

    Attributes
    ----------
    rules : RuleList
    expected : Measures
        From training.
    live : Measures
        From the table: its rows, weight and coverage are of all rows, the rest is of those
        whose targets are known.
    difference : (rules, targets) float64
        Live confidence (regression: mean) less the expected one.
    low, high : (rules, targets) float64
        95% interval of the live figure: of Wilson (1927) for shares, of the normal
        distribution for means.
    p_value : (rules, targets) float64
        How likely chance alone makes so large a difference: the two-sample test of shares
        with a pooled variance; of means by the live spread.  NaN where nothing is known.
    drift : (rules,) bool
        Whether a p-value is below `LEVEL` divided by the number of tests.
    move : (rules,) float64
        A rule's part of the stability index of its tree.
    stability_index, by_chance : (trees,) float64
        The index, and what it stays below in 95% of tables if nothing has changed.
    rows, refused, unanswered : int
        Rows of the table; those that a policy refuses; those that some tree has no rule for.
    overall : tuple of Quality
        One for each target.
    """

    rules: RuleList = field(repr=False)
    expected: Measures = field(repr=False)
    live: Measures = field(repr=False)
    difference: Numbers = field(repr=False)
    low: Numbers = field(repr=False)
    high: Numbers = field(repr=False)
    p_value: Numbers = field(repr=False)
    drift: npt.NDArray[np.bool_] = field(repr=False)
    move: Numbers = field(repr=False)
    stability_index: Numbers = field(repr=False)
    by_chance: Numbers = field(repr=False)
    rows: int
    refused: int
    unanswered: int
    overall: tuple[Quality, ...]

    def stability(self, tree: int = 0) -> Stability:
        """Whether the shares of a tree's rules moved, by more than chance makes of them."""
        index = float(self.stability_index[tree])
        if math.isnan(index):
            return "unknown"
        if index < _MOVED or index <= self.by_chance[tree]:
            return "stable"
        return "moved" if index < _SHIFTED else "shifted"

    def text(self, language: str | Language = "en", sort: str = "rule") -> str:
        """A table for a terminal, one line for each rule and target; `sort` is a key of records."""
        from treekit.rules.against_text import against_text

        return against_text(self, language, sort)

    def records(self) -> list[dict[str, Any]]:
        """One record for each rule and target, for JSON, CSV or a dataframe; NaN is None."""
        numbers = self.rules.schema.task == "regression"
        expected, live = self.expected, self.live
        figure = "mean" if numbers else "confidence"
        said = None if numbers or self.rules.margins else labels_of(self.rules)
        found: list[dict[str, Any]] = []
        for rule in range(len(self.rules)):
            for k, output in enumerate(self.rules.schema.outputs):
                record = {
                    "rule": rule + 1,
                    "tree": int(self.rules.tree[rule]) + 1,
                    "target": output.name,
                    "answer": None if said is None else output.classes[said[rule, k]],
                    "rows": 0 if live.rows is None else int(live.rows[rule]),
                    "expected_coverage": expected.coverage[rule],
                    "coverage": live.coverage[rule],
                    "move": self.move[rule],
                    f"expected_{figure}": getattr(expected, figure)[rule, k],
                    figure: getattr(live, figure)[rule, k],
                    "difference": self.difference[rule, k],
                    "low": self.low[rule, k],
                    "high": self.high[rule, k],
                    "p_value": self.p_value[rule, k],
                    "drift": bool(self.drift[rule]),
                }
                if numbers:
                    value = np.ldexp(float(self.rules.units[rule, k]), self.rules.exponent)
                    record["answer"] = float(value)
                found.append({name: _plain(value) for name, value in record.items()})
        return found

    def summary(self) -> dict[str, Any]:
        """The figures of the whole list, for JSON."""
        trees = range(len(self.stability_index))
        return {
            "rows": self.rows,
            "refused": self.refused,
            "unanswered": self.unanswered,
            "drifting": int(self.drift.sum()),
            "stability_index": [_plain(index) for index in self.stability_index],
            "by_chance": [_plain(index) for index in self.by_chance],
            "stability": [self.stability(tree) for tree in trees],
            "overall": [
                {name: _plain(value) for name, value in quality._asdict().items()}
                for quality in self.overall
            ],
        }


def _plain(value: Any) -> Any:
    if isinstance(value, float):  # those of numpy, too
        return None if math.isnan(value) else float(value)
    return value


def rules_against(
    rules: RuleList, table: Any, targets: list[str] | None = None, weight: Numbers | None = None
) -> Against:
    """Each rule's live performance on a table, held against its training rows.

    Parameters
    ----------
    rules : RuleList
    table : table, or Known
        Anything `treekit.data.table.read_table` takes, with the target columns.
    targets : list of str, optional
        Columns of the targets; default those of the schema's names.
    weight : (rows,) float64, optional
        Default 1 each.

    Raises
    ------
    DataError
        If the table has no row, or lacks a column.
    """
    rows = table if isinstance(table, Known) else known_rows(rules.schema, table, targets)
    n_rows = len(rows.matrix)
    if n_rows == 0:
        raise DataError("the table has no row; rules are held against one row at least")
    weight = np.ones(n_rows) if weight is None else np.asarray(weight, dtype=np.float64)
    known = _is_known(rules, rows.targets)
    live = table_measures(rules, rows.matrix, rows.targets, weight)
    judged = live
    if not known.all():
        some = rows.matrix[known], rows.targets[known], weight[known]
        judged = table_measures(rules, *some)
        live = live._replace(**{name: getattr(judged, name) for name in _FIGURES})
    expected = training_measures(rules)
    numbers = rules.schema.task == "regression"
    test = compared_means if numbers else compared_shares
    difference, low, high, p_value = test(expected, judged)
    tested = max(int(np.isfinite(p_value).sum()), 1)
    move, index, chance = stability(rules, expected, live)
    return Against(
        rules=rules,
        expected=expected,
        live=live,
        difference=difference,
        low=low,
        high=high,
        p_value=p_value,
        drift=np.logical_or.reduce(p_value < LEVEL / tested, axis=1),
        move=move,
        stability_index=index,
        by_chance=chance,
        rows=n_rows,
        refused=int(rules.refused(rows.matrix).sum()),
        **_whole(rules, rows, weight),
    )


_FIGURES = ("confidence", "lift", "mean", "spread")


def _is_known(rules: RuleList, targets: Numbers) -> npt.NDArray[np.bool_]:
    """(rows,) bool: whether all targets of a row are known."""
    gone = ~np.isfinite(targets) if rules.schema.task == "regression" else targets == -1
    found: npt.NDArray[np.bool_] = ~np.logical_or.reduce(gone, axis=1)
    return found


def _whole(rules: RuleList, rows: Known, weight: Numbers) -> dict[str, Any]:
    """Rows without an answer, and how right the answers of the others are."""
    total = np.zeros((len(rows.matrix), rules.schema.n_values), dtype=np.int64)
    mass = np.zeros(len(rows.matrix), dtype=np.int64)
    for piece in fired(rules, rows.matrix):
        np.add.at(total, piece.row, rules.units[piece.rule] * piece.mass[:, None])
        np.add.at(mass, piece.row, piece.mass)
    usable = ~rules.refused(rows.matrix)
    answered = usable & (mass >= rules.mass * rules.n_trees)
    numbers, blocks = values_of(rules, total), rules.schema.blocks
    overall = []
    for k, output in enumerate(rules.schema.outputs):
        own = rows.targets[:, k]
        some = answered & (np.isfinite(own) if not output.classes else own != -1)
        n, mine = int(some.sum()), weight[some]
        if not mine.sum() > 0:
            overall.append(Quality(output.name, n))
        elif output.classes:
            said = least_cost(total[some, blocks[k] : blocks[k + 1]], rules.costs)
            right = float(np.average(said == own[some], weights=mine))
            overall.append(Quality(output.name, n, accuracy=right))
        else:
            overall.append(_fit(output.name, own[some], numbers[some, k], mine))
    return {"unanswered": int((usable & ~answered).sum()), "overall": tuple(overall)}


def _fit(name: str, y: Numbers, said: Numbers, weight: Numbers) -> Quality:
    spread = float(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight))
    error = float(np.average((y - said) ** 2, weights=weight))
    fit = 1.0 - error / spread if spread > 0 else math.nan
    away = float(np.average(np.abs(y - said), weights=weight))
    return Quality(name, len(y), r_squared=fit, mean_error=away)
