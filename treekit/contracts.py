"""Plugin contract: one small frozen record for each kind of component.

This page is the complete contract.  A plugin is a package with an entry point in
the group ``treekit`` whose module implements some of the hooks in
`treekit.hookspecs`; each hook returns a list of these records.

Fields of every record
----------------------
name : str
    As users type it (``--criterion NAME``): letters, digits, ``_``, ``-`` and ``.``.
make : callable
    Of a criterion, splitter or pruner: ``make(**settings)`` returns its functions.
settings : tuple of Setting
    The keywords of ``make`` (of ``export``, ``read``, ``render``, ``simplify`` or
    ``explain``), checked before it is called.
summary : str
    A few words for the output of ``treekit plugins``.
exempt : mapping of str to str
    Laws of `treekit.testing` that do not apply to the component, each with the
    reason.

Versions
--------
The contract has its own version, `CONTRACT_VERSION`, an integer that increases
when something is removed or changes its meaning; additions with a backward-compatible
default do not change it.  The module that an entry point names declares the version
that it was written for::

    treekit_contract = 2

Without that line version 2 is assumed, the oldest supported one.  A plugin for a version
that is no longer supported, is newer than this treekit supports, or is not an integer, is
left out, and named in a warning with the remedy.  A change of the contract increments the
number and adds a line below.

2
    `CriterionExtras.choose` takes ``(gains, scores, levels)``.  Version 1, in which it
    could take two arguments, is no longer supported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

from treekit.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "CONTRACT_VERSION",
    "Criterion",
    "CriterionExtras",
    "CriterionFunctions",
    "Document",
    "Explainer",
    "Exporter",
    "Importer",
    "Layout",
    "Pruner",
    "PrunerFunctions",
    "Ranks",
    "Setting",
    "Simplifier",
    "Splitter",
    "SplitterFunctions",
    "Sums",
    "Task",
    "TaskColumn",
]

CONTRACT_VERSION = 2
"""Current version; a plugin's module declares it as ``treekit_contract = 2``."""


@dataclass(frozen=True)
class Setting:
    """One setting of a component, or of training.

    Attributes
    ----------
    name : str
        A Python identifier; the keyword of ``make`` and of ``--set NAME=VALUE``.
    default : object
        None, bool, int, float or str.
    help : str
        Meaning of the setting, units included.
    type : type or tuple of types
        Accepted Python types; defaults to the default's own type.
    choices : tuple
        If given, the only accepted values.
    minimum, maximum : float, optional
        Inclusive bounds of a number.
    above : float, optional
        An exclusive lower bound.
    """

    name: str
    default: Any
    help: str
    type: type | tuple[type, ...] | None = None
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None


@dataclass(frozen=True)
class Sums:
    """Additive statistics of a number: ``(weight, sum of weight * y)``.

    Attributes
    ----------
    centred : bool
        Whether the median is subtracted from y, which gives the finest fixed-point unit; a
        criterion that does more than compare means (a logarithm) needs y itself.
    smallest : float, optional
        The smallest y for which the criterion is defined; smaller values are refused.
    """

    centred: bool = True
    smallest: float | None = None


@dataclass(frozen=True)
class Ranks:
    """Rank statistics of a numeric target: ``(weight, q, below, above)``.

    q is the weighted quantile of y; ``below`` the sum of
    ``weight * (q - y)`` over the rows below it and ``above`` that of
    ``weight * (y - q)`` over those above.  If an interval of values qualifies,
    q is its midpoint: the median of an even number of rows is the mean of the
    middle two.  For held-out rows, q is that of the training rows.

    Attributes
    ----------
    quantile : float
        Level, between 0 and 1.
    """

    quantile: float = 0.5


@dataclass(frozen=True)
class CriterionFunctions:
    """Result of ``Criterion.make``: plain Python functions of small float64 arrays.

    numba compiles them on first use (``error_model="numpy"``, read-only
    arrays); functions that it cannot compile still work, much slower, with a warning.

    Statistics of a node have shape (S,): for classification, the weight of each
    class in the schema's order; for regression, as defined by `statistics`; for a `Task`,
    as defined by its layout.

    With fractional instances (``missing="fractional"``), splits are judged by the rows
    whose value is known: a gain or score is computed for them and multiplied by their
    share of the weight (Quinlan 1993, p. 28).

    Attributes
    ----------
    impurity : callable, optional
        ``impurity(stats) -> float``.  The split score is then the decrease:
        ``impurity(parent) - sum(w_b * impurity(b)) / w_parent``.
    score : callable, optional
        ``score(parent, children) -> float``, children (branches, S), larger is
        better, 0 for a useless split.  Give either or both; `score` decides if
        given.
    order : callable, optional
        ``order(stats) -> float``: sort key of a category for subset splits,
        which then cut along that order.  By default categories are ordered by the
        mean or by the second of two classes' share: the best subset is among
        these cuts for squared error (Fisher 1958) and for impurities concave in the
        class shares (Breiman et al. 1984, theorem 4.5), and may be missed by
        other criteria.  With more classes all subsets are tried, for any
        criterion, up to the setting ``exact_levels``; beyond it cuts along some orders.
    leaf_value : callable, optional
        ``leaf_value(stats) -> float`` of a regression leaf, on the scale of
        the statistics.  Default: the mean, or the quantile.  (Leaf values of a `Task` are
        those of its layout.)
    priority : callable, optional
        ``priority(stats) -> float`` of a node in best-first growth, larger first.
    loss : callable, optional
        ``loss(stats, judged) -> float``: loss of a regression node with the value of `stats`
        on the rows ``judged`` (statistics, too), summed over their weight; used by pruners.
        Default: the squared error, or ``weight * impurity(judged)`` with `Ranks`; a `Task`
        that predicts numbers has no default.
    statistics : Sums or Ranks
        Statistics that a regression criterion gets.
    extras : CriterionExtras
        What C4.5 needs, and faster forms of the score.
    """

    impurity: Callable[..., float] | None = None
    score: Callable[..., float] | None = None
    _: KW_ONLY
    order: Callable[..., float] | None = None
    leaf_value: Callable[..., float] | None = None
    priority: Callable[..., float] | None = None
    loss: Callable[..., float] | None = None
    statistics: Sums | Ranks = Sums()
    extras: CriterionExtras = field(default_factory=lambda: CriterionExtras())  # noqa: PLW0108 - below


@dataclass(frozen=True, kw_only=True)
class CriterionExtras:
    """Parts of a criterion for C4.5, and faster forms of its score.

    `impurity` and `score` are those of `CriterionFunctions`.

    Attributes
    ----------
    choose : callable, optional
        ``choose(gains, scores, levels) -> int`` picks among the best splits of several
        features (arrays with one entry per feature, ascending; NaN = no split); needs both
        `impurity` (whose decrease is the gain and picks within a feature, except with
        `levels_by_score`) and `score`.  ``levels`` is the number of declared categories of a
        nominal feature, per training weight (0.3: three categories for ten rows); 0 for a
        numeric feature.  -1 = none.  With fractional instances the score is then not multiplied
        by a share: ``parent`` includes the missing rows, which are in none of the ``children``,
        so that gain ratio can count them as a branch of its split information.
    penalty : callable, optional
        ``penalty(candidates, weight) -> float`` is subtracted from the gain of the best cut
        of a numeric feature, given the number of candidate cuts and the weight of the node;
        without a positive gain left there is no cut.  With `choose`, the score is reduced
        in the same proportion.
    tolerance : float
        Gains (or scores) of the cuts of one feature that differ by at most this much are
        ties, besides those within 1e-9, relative, and the first of them wins.
    levels_by_score : bool
        With `choose`: among splits of one category from the rest of its feature, pick the
        one with the largest score, not the one with the largest gain.
    term, term_score : callable, optional
        A faster form of `score`, for a criterion that needs only the weight of a node and the
        sum of ``term(class_weight) -> float`` over its classes: for Gini, the sum of squares.
        ``term_score(parent, children) -> float`` returns what `score` returns, from the pair
        ``(weight, sum of terms)`` of the node and of each of its two branches.  `term` must be
        convex, 0 for 0, and an integer for each integer: sums below 2**53 are then exact in any
        order.  The time per cut does not grow with the number of classes.  Used for numeric
        features with integer weights and five or more classes; `score` is used otherwise.
    count_score : callable, optional
        A faster form of `score` for nodes in which the weight of each class is an integer, and
        their sum at most `MAX_COUNT`: a table can replace logarithms.  Same arguments; must
        return what `score` returns, bit for bit.  Used for numeric features.
    """

    choose: Callable[..., int] | None = None
    penalty: Callable[..., float] | None = None
    tolerance: float = 0.0
    levels_by_score: bool = False
    term: Callable[..., float] | None = None
    term_score: Callable[..., float] | None = None
    count_score: Callable[..., float] | None = None


_initialise = CriterionFunctions.__init__


@wraps(_initialise)
def _accept_extras(self: CriterionFunctions, *given: Any, **named: Any) -> None:
    own = {name: named.pop(name) for name in vars(CriterionExtras()).keys() & named.keys()}
    if own:
        named["extras"] = replace(named.get("extras", CriterionExtras()), **own)
    _initialise(self, *given, **named)


# The extras were fields of `CriterionFunctions`, and are still accepted as its keywords.
CriterionFunctions.__init__ = _accept_extras  # type: ignore[method-assign]

MAX_COUNT = 4096
"""Largest weight of a node that `CriterionExtras.count_score` is called with."""


@dataclass(frozen=True, eq=False)
class TaskColumn:
    """The target of a task, or an additional column that it reads; no cell is missing.

    Attributes
    ----------
    name : str
    values : (rows,) float64 numbers, or int32 codes
    levels : tuple
        Labels of the codes of text, bools and categories, in order; empty for numbers.
    weights : (rows,) float64 or None
        Of a target: row weights; None: 1 each.  A row of integer weight w must
        count as w rows of the table, and one of weight 0 must not count.
    """

    name: str
    values: npt.NDArray[np.float64] | npt.NDArray[np.int32]
    levels: tuple[Any, ...] = ()
    weights: npt.NDArray[np.float64] | None = None

    @property
    def labels(self) -> tuple[Any, ...]:
        """Levels in order, or distinct numbers in ascending order."""
        return self.levels or tuple(sorted(set(self.values.tolist())))

    def codes(self, labels: tuple[Any, ...]) -> npt.NDArray[np.int64]:
        """Return (rows,) int64: the position of each cell among `labels`.

        Raises
        ------
        DataError
            If a cell is not among `labels`; the message contains the first such cell.
        """
        import numpy as np

        own = self.levels or tuple(np.unique(self.values).tolist())
        at = np.array([labels.index(label) if label in labels else -1 for label in own])
        codes = at[self.values if self.levels else np.searchsorted(own, self.values)]
        if (codes < 0).any():
            row = int((codes < 0).argmax())
            value = self.levels[int(self.values[row])] if self.levels else self.values[row].item()
            raise DataError(
                f"column {self.name!r} holds {value!r} in row {row} (counting from 0); expected "
                "one of " + ", ".join(map(repr, labels))
            )
        return codes


@dataclass(frozen=True)
class Layout:
    """Layout of the statistics of a task; fitted once, on all training rows.

    Attributes
    ----------
    size : int
        S, the number of cells of a node's statistics.
    place : callable
        ``place(target, columns) -> (rows,) integers``: the cell, 0 to S - 1, to which each
        row adds its weight; or ``-> (rows, S) float64``, dense statistics: the first is 1
        and each is multiplied by the row's weight, so that cell 0
        is the weight.  `target` is a `TaskColumn`, `columns` a mapping from the
        task's column settings to theirs.  Also called for held-out rows.
    answer : callable
        ``answer(stats) -> (nodes, V) float64`` from statistics (nodes, S): the values of
        the nodes.  The weight of each class of the target, or the V named numbers: finite,
        and of similar scale, because all have the same fixed-point unit, 2**-48 of
        the largest.  Plain NumPy, called once per tree.
    names : tuple of str
        Names of the V numbers; empty for classes.
    extra : object
        Additional data for ``make``.
    """

    size: int
    place: Callable[..., npt.NDArray[Any]]
    answer: Callable[..., npt.NDArray[np.float64]]
    names: tuple[str, ...] = ()
    extra: Any = None


@dataclass(frozen=True)
class Task:
    """Learning task of a criterion other than classification and regression.

    Survival, treatment effects, fairness towards groups: the target is
    read together with other columns, rows are counted in cells that the task defines,
    and leaf values are classes, or a vector of named numbers, which the model file and
    every exporter treat like several targets.

    Attributes
    ----------
    name : str
    target : {"classification", "regression"}
        How the target column is read: as classes, or as a number.
    answers : {"classification", "regression"}
        Predictions: labels and shares of the target's classes, or the layout's named numbers.
    lay_out : callable
        ``lay_out(target, columns, **settings) -> Layout``, of training rows; see
        `Layout.place`.  Raises `treekit.DataError` for columns it cannot use.  The
        settings that name columns are not passed: their columns are in `columns`.
    columns : tuple of str
        Names of those `settings`, of type str, whose values name further columns of the
        table.  These columns are not inputs of the model.
    settings : tuple of Setting
        Given with the criterion's own settings, ``criterion.NAME``; they are passed
        to `lay_out`, not to ``make``, which gets data through `Layout.extra`.
    """

    name: str
    target: Literal["classification", "regression"]
    answers: Literal["classification", "regression"]
    lay_out: Callable[..., Layout]
    columns: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class Criterion:
    """A measure of the quality of a split.

    Attributes
    ----------
    task : {"classification", "regression"} or Task
    make : callable
        ``make(**settings) -> CriterionFunctions``; with a `Task`
        ``make(layout, **settings)``, with the layout fitted to the training rows.
    classes : int, optional
        The only number of classes that a classification criterion supports, such as 2.
    """

    name: str
    task: Literal["classification", "regression"] | Task
    make: Callable[..., CriterionFunctions]
    settings: tuple[Setting, ...] = ()
    summary: str = ""
    exempt: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)
    classes: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class SplitterFunctions:
    """Result of ``Splitter.make``.

    Attributes
    ----------
    find : callable
        ``find(node, criterion, rng) -> Split | None``; see
        `treekit.splitting` for `Node` and the functions that make splits.
        ``rng`` is a `numpy.random.Generator`.
    coding : {"exact", "histogram"}
        Coding of numeric columns: one code per distinct value, or at most 255 bins.
    sums : bool
        Whether it may split on sums of columns.  These need exact coding and a
        model of input type float32, in which products are exact.
    intervals : bool
        Whether it may split a number into several intervals at once
        (`treekit.splitting.interval_split`).
    """

    find: Callable[..., Any]
    coding: Literal["exact", "histogram"] = "exact"
    sums: bool = False
    intervals: bool = False


@dataclass(frozen=True)
class Splitter:
    """Search for the split of a node. ``make(**settings)`` returns `SplitterFunctions`."""

    name: str
    make: Callable[..., SplitterFunctions]
    settings: tuple[Setting, ...] = ()
    summary: str = ""
    exempt: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)


@dataclass(frozen=True)
class PrunerFunctions:
    """Result of ``Pruner.make``: `before`, `after` or both.

    Attributes
    ----------
    before : callable
        ``before(parent, children, held_parent, held_children) -> bool``: whether
        the node may be split.  Statistics as for a criterion (scaled weights
        for regression); ``held_*`` are those of the held-out rows, zeros
        without held-out rows.
    after : callable
        ``after(tree, context) -> Tree``: a pruned tree; see
        `treekit.components.pruning`.
    holdout : float or None
        Share of the training rows to hold out for `before` and `after`, if
        no validation table is given; 0 = none.  None: held-out rows are not
        used, and a validation table is refused.
    """

    before: Callable[..., bool] | None = None
    after: Callable[..., Any] | None = None
    holdout: float | None = 0.0


@dataclass(frozen=True)
class Pruner:
    """A method that limits the size of trees.  ``make(**settings)`` returns `PrunerFunctions`.

    Attributes
    ----------
    task : {"classification", "regression"}, Task or None
        The only supported task; None: any.  A pruner for a `Task` can interpret the
        statistics of that task's layout (``context.losses.layout``).
    costs : bool
        Whether it uses misclassification costs; if not, it refuses them.
    """

    name: str
    make: Callable[..., PrunerFunctions]
    settings: tuple[Setting, ...] = ()
    summary: str = ""
    task: Literal["classification", "regression"] | Task | None = None
    costs: bool = True
    exempt: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)


@dataclass(frozen=True)
class Exporter:
    """A target format of models.

    Attributes
    ----------
    suffix : str
        File ending of the target, dot included (``".c"``); or, for a target that is
        a folder of files, a slash and the name of the main file (``"/config.pbtxt"``).
    export : callable
        ``export(model, name, **settings) -> Mapping[str, bytes]``: `name` is the
        stem of the output file; the result maps file names to contents, the
        main file (``name + suffix``) first.  Names are plain; for a folder of files
        they are paths, with ``/``, in the folder `name`.
    runner : callable, optional
        ``runner() -> treekit.verify.runtime.Runner``, which runs the files for ``treekit verify``
        and ``treekit plugin check``.  It is called at every verification, of any file, so import
        heavy libraries inside the functions of the runtimes.
    """

    name: str
    suffix: str
    export: Callable[..., Mapping[str, bytes]]
    settings: tuple[Setting, ...] = ()
    summary: str = ""
    exempt: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)
    runner: Callable[[], Any] | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Importer:
    """A reader of models of another library.

    Attributes
    ----------
    recognises : callable
        ``recognises(source) -> bool`` for a fitted object or a `pathlib.Path`;
        must be fast, and import no library that the object itself has not imported.
    read : callable
        ``read(source, **settings) -> Model``.
    """

    name: str
    recognises: Callable[[Any], bool]
    read: Callable[..., Any]
    settings: tuple[Setting, ...] = ()
    summary: str = ""
    exempt: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)


@dataclass(frozen=True)
class Document:
    """A written form of rules: a page, a report, or a file for another tool.

    Attributes
    ----------
    suffix : str
        File ending, dot included (``".html"``); selects the form of an output file.
    render : callable
        ``render(listing, **settings) -> iterable of str``: the text in pieces; see
        `treekit.documents.Listing`.  Raises `treekit.SettingError` for rules that the form
        cannot represent, and for a missing table that it needs.
    measured : bool
        Whether it uses ``listing.measures``; if not, they are not computed for a table.
    """

    name: str
    suffix: str
    render: Callable[..., Iterable[str]]
    settings: tuple[Setting, ...] = ()
    summary: str = ""
    measured: bool = True
    exempt: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)


@dataclass(frozen=True)
class Simplifier:
    """A method that learns a short rule list from a model and its training table.

    Attributes
    ----------
    simplify : callable
        ``simplify(model, table, test, **settings) -> LearnedList``, with the figures of the
        rows of `test`, or of `table` if it is None; see `treekit.rule_learning`.
    """

    name: str
    simplify: Callable[..., Any]
    settings: tuple[Setting, ...] = ()
    summary: str = ""
    exempt: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)


@dataclass(frozen=True)
class Explainer:
    """An addition to the explanation of one prediction, such as counterfactuals.

    Attributes
    ----------
    explain : callable
        ``explain(model, row, explanation, **settings) -> ExplanationPart or None``; see
        `treekit.explain`.
    """

    name: str
    explain: Callable[..., Any]
    settings: tuple[Setting, ...] = ()
    summary: str = ""
    exempt: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)
