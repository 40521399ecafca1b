"""Explanation of one prediction, as records."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from treekit.data.schema import Dtype, Label

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from treekit.data.table import Table
    from treekit.explain.decision_path import DecisionReason
    from treekit.explain.row import ExplainedRow
    from treekit.explain.text import ExplanationWords
    from treekit.model.model import Model
    from treekit.model.split_tests import BranchCondition, TreeNodes
    from treekit.rules.language import Language


# ---------------------------------------------------------------- explanation


@dataclass(frozen=True)
class Explanation:
    """Explanation of a prediction; ``print`` it, or call `text` or `plain`.

    Attributes
    ----------
    says : tuple of Said
        The prediction for each target; empty if `refused`.
    row : tuple of Given
        The cells of the row.
    dtype : {"float32", "float64"}
        The model's input type.
    trees : int
        Number of trees of the model.
    tree : int, optional
        Tree of `path`, `leaves` and `rule`, from 0; None: a forest, and no tree was requested.
    path : tuple of Step
        Nodes on the decision path.
    leaves : tuple of Ending
        Leaves that the row reaches, the one with the largest fraction of the row first.
    rule : tuple of BranchCondition
        Conditions of the leaf's rule, at most one per column; empty for fractional instances
        that end in several leaves, and for rule lists.
    votes : tuple of Votes
        For forests that vote or average.
    sums : tuple of Sums
        Feature contributions to each predicted value of each target: the probability or margin
        of a class, or the number.
    parts : tuple of (str, ExplanationPart)
        Additions of explainers, by name.
    """

    says: tuple[Said, ...]
    row: tuple[Given, ...]
    dtype: Dtype
    trees: int
    tree: int | None = None
    path: tuple[Step, ...] = ()
    leaves: tuple[Ending, ...] = ()
    rule: tuple[BranchCondition, ...] = ()
    votes: tuple[Votes, ...] = ()
    sums: tuple[Sums, ...] = ()
    parts: tuple[tuple[str, ExplanationPart], ...] = ()

    @property
    def refused(self) -> bool:
        """Whether the row has no prediction: a missing or unseen value is an error in the model."""
        return any(cell.refused for cell in self.row)

    def plain(self) -> dict[str, Any]:
        """Return dicts, lists, texts and numbers for JSON; infinities become None."""
        own = {one.name: to_json_value(getattr(self, one.name)) for one in fields(self)}
        del own["parts"]
        return {"refused": self.refused, **own, **{name: part.plain() for name, part in self.parts}}

    def lines(self, language: Language | None = None) -> Iterator[tuple[str, bool]]:
        """Return the lines of the text, and whether each is a heading."""
        from treekit.explain.text import format_lines

        return format_lines(self, language)

    def text(self, language: Language | None = None) -> str:
        """Return the explanation as text, in English by default."""
        return "".join(f"{line}\n" for line, _ in self.lines(language))

    def __str__(self) -> str:
        return self.text()


def to_json_value(value: Any) -> Any:
    """Return a record of an explanation as dicts, lists, texts and numbers; infinities are None."""
    if is_dataclass(value):
        own = {one.name: to_json_value(getattr(value, one.name)) for one in fields(value)}
        if isinstance(value, Sums):
            own["numbers"] = {
                "bias": value.number(value.bias),
                "columns": [[name, value.number(units)] for name, units in value.columns],
                "total": value.number(value.total),
            }
        return own
    if isinstance(value, tuple):
        return [to_json_value(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class ExplanationPart(Protocol):
    """Addition of an explainer to an explanation."""

    def plain(self) -> Any:
        """Return dicts, lists, texts and numbers for JSON."""

    def lines(self, words: ExplanationWords) -> Iterator[tuple[str, bool]]:
        """Return the lines of the text, and whether each is a heading."""


@dataclass(frozen=True)
class ExplanationCase:
    """Input of an explainer: a prediction and its explanation.

    Attributes
    ----------
    model : Model
    row : ExplainedRow
    nodes : tuple of (TreeNodes, (nodes, 2) int64 or None)
        Nodes of each tree, and the mass bounds of fractional instances.
    sums : (values,) int64
        Integer sums of the row.
    explanation : Explanation
    fixed : frozenset of str
        Columns that must not change.
    table : Table, optional
        Rows to scale numeric columns.
    """

    model: Model
    row: ExplainedRow
    nodes: tuple[tuple[TreeNodes, Any], ...]
    sums: npt.NDArray[np.int64]
    explanation: Explanation
    fixed: frozenset[str]
    table: Table | None


# ---------------------------------------------------------------- records
# Parts of an explanation.


@dataclass(frozen=True)
class Given:
    """A cell of the row.

    Attributes
    ----------
    column : str
    text : str, optional
        Text as given; None if missing.
    state : {"known", "missing", "absent", "unseen"}
        ``absent``: the row has no such column; missing if a tree tests it.  ``unseen``: a
        category not in the model's vocabulary, treated as missing.
    asked : bool
        Whether a node on the decision path tests the column.
    refused : bool
        Whether the cell is an error: it is missing and the model has ``missing="error"``, or it
        is unseen and either setting, `missing` or `unknown`, is ``"error"``.
    similar : str, optional
        The most similar category of an unseen one.
    """

    column: str
    text: str | None
    state: Literal["known", "missing", "absent", "unseen"]
    asked: bool = False
    refused: bool = False
    similar: str | None = None


@dataclass(frozen=True)
class Step:
    """A node on the decision path.

    Attributes
    ----------
    node : int
    why : str
        Reason of the decision; see `treekit.explain.decision_path.DecisionReason`.
    asked : tuple of (str, str or None)
        Columns of the node's own test, and the row's cells.
    decided : tuple of (str, str or None)
        Columns that decided, and the row's cells.
    clause : BranchCondition, optional
        Condition that holds on the branch taken, of the test that decided or, if none applied,
        of the node's own test.  None if the row is split among all branches.
    goes : tuple of (int, float)
        Next nodes, and the fraction of the row that each gets.
    """

    node: int
    why: DecisionReason
    asked: tuple[tuple[str, str | None], ...]
    decided: tuple[tuple[str, str | None], ...]
    clause: BranchCondition | None
    goes: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Said:
    """Prediction for one target: a label with the shares of all classes, or a number."""

    target: str
    label: Label | None = None
    value: float | None = None
    shares: tuple[tuple[Label, float], ...] = ()


@dataclass(frozen=True)
class Ending:
    """A leaf that the row, or a fraction of it, reaches.

    Attributes
    ----------
    node : int
    part : float
        Fraction of the row.
    support : float
        Training weight of the leaf.
    says : tuple of Said
        The prediction of this tree alone, for each target.
    """

    node: int
    part: float
    support: float
    says: tuple[Said, ...]


@dataclass(frozen=True)
class Votes:
    """Predictions of the single trees of a forest for one target.

    Attributes
    ----------
    target : str
    trees : tuple of (label, int)
        Classification: number of trees that predict each class.
    quantiles : tuple of float
        Regression: minimum, lower quartile, median, upper quartile and maximum of the trees'
        numbers.
    """

    target: str
    trees: tuple[tuple[Label, int], ...] = ()
    quantiles: tuple[float, ...] = ()


@dataclass(frozen=True)
class Sums:
    """Feature contributions to one predicted value, as integers that add up exactly.

    ``bias + sum(of columns) == total``; an integer i means ``i / divisor * 2**exponent``,
    where i is rounded to a double first if these are numbers or margins.

    Attributes
    ----------
    target : str
    label : label, optional
        Class of the probability or margin.
    margin : bool
        Whether the numbers are before the model's link function.
    bias, total, divisor, exponent : int
    columns : tuple of (str, int)
        Column and contribution, largest absolute contribution first.
    """

    target: str
    label: Label | None
    margin: bool
    bias: int
    total: int
    divisor: int
    exponent: int
    columns: tuple[tuple[str, int], ...]

    def number(self, units: int) -> float:
        """Return the number that an integer represents."""
        votes = self.label is not None and not self.margin
        return math.ldexp((units if votes else float(units)) / self.divisor, self.exponent)
