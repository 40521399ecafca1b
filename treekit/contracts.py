"""What a plugin provides: one small frozen record for each kind of component.

This page is the whole contract.  A plugin is a package with an entry point in
the group ``treekit`` whose module implements some of the hooks in
`treekit.hookspecs`; each hook returns a list of these records.

Fields of every record
----------------------
name : str
    As users type it (``--criterion NAME``): letters, digits, ``_``, ``-`` and ``.``.
make : callable
    Of a criterion, splitter or pruner: ``make(**settings)`` returns its functions.
settings : tuple of Setting
    The keywords of ``make`` (of ``export``, of ``read``), checked before it is called.
summary : str
    A few words for the listing ``treekit plugins``.
exempt : mapping of str to str
    Laws of `treekit.testing` that by its nature do not hold for the component, each
    with the reason.

Versions
--------
The contract has a version of its own, `CONTRACT_VERSION`, a whole number that grows
when something in it is taken away or changes its meaning; what is only added, with a
default that keeps old plugins as they were, does not change it.  The module that an
entry point names says which version it was written for::

    treekit_contract = 2

and without that line version 1 is assumed.  Of a plugin

- for this version, everything is promised that this page says;
- for an older one, what changed since is adapted for as long as that version is
  supported: at least two minor releases of treekit, and a year, after the release
  that replaced it.  Where something that is gone is really used, one warning names
  the plugin and what to write instead; what still holds is used without a word;
- for a version that is no longer supported, or that is newer than this treekit knows,
  or that is no whole number, it is left out, under its name.

A change of the contract raises the number, adds a line below, and one function to
`treekit.discovery`, the only module that knows older versions; a plugin of the
former version stays in the tests and must train what its successor trains.

2
    `CriterionFunctions.choose` takes ``(gains, scores, levels)``.  In version 1 it could
    also take two arguments, ``(gains, scores)``.
1
    The first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from treekit.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "CONTRACT_VERSION",
    "Criterion",
    "CriterionFunctions",
    "Exporter",
    "Importer",
    "Layout",
    "Pruner",
    "PrunerFunctions",
    "Ranks",
    "Setting",
    "Splitter",
    "SplitterFunctions",
    "Sums",
    "Task",
    "TaskColumn",
]

CONTRACT_VERSION = 2
"""Of this page; a plugin's module says ``treekit_contract = 2``."""


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
        What it does, units included.
    type : type or tuple of types
        Accepted Python types; defaults to the default's own type.
    choices : tuple
        If given, the only accepted values.
    minimum, maximum : float, optional
        Inclusive bounds of a number.
    above : float, optional
        A lower bound that is itself outside.
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
    """Statistics of a number that add up: ``(weight, sum of weight * y)``.

    Attributes
    ----------
    centred : bool
        Whether y is taken from its median, which leaves the finest grid; a
        criterion that does more than compare means (a logarithm) needs y itself.
    smallest : float, optional
        The least y that the criterion is defined for; less is refused by name.
    """

    centred: bool = True
    smallest: float | None = None


@dataclass(frozen=True)
class Ranks:
    """Statistics of a number by its order: ``(weight, q, below, above)``.

    q is the weighted quantile of y; ``below`` the sum of
    ``weight * (q - y)`` over the rows below it and ``above`` that of
    ``weight * (y - q)`` over those above.  Where a whole interval qualifies,
    q is its middle: the median of an even number of rows is the mean of the
    middle two.  Of held-out rows, q is that of the training rows.

    Attributes
    ----------
    quantile : float
        Level, between 0 and 1.
    """

    quantile: float = 0.5


@dataclass(frozen=True)
class CriterionFunctions:
    """What ``Criterion.make`` returns: plain Python over small float64 arrays.

    numba compiles them on first use (``error_model="numpy"``, read-only
    arrays); what it cannot compile still works, slower, with a warning.

    Statistics of a node, shape (S,): classification, the weight of each
    class in the schema's order; regression, as `statistics` says; a `Task`, as its
    layout places rows.

    Where rows with missing values go down every branch (``missing="fractional"``),
    splits are judged by the rows whose value is known: a gain, or a score that
    decides alone, is computed for them and multiplied by their share of the
    weight (Quinlan 1993, p. 28).  With `choose`, the score is the criterion's own
    affair: `parent` then includes the missing rows, which are in none of the
    `children`, so that gain ratio can count them as a branch of its split
    information.  Otherwise `parent` is the sum of `children`.

    Attributes
    ----------
    impurity : callable, optional
        ``impurity(stats) -> float``.  The split score is then the decrease:
        ``impurity(parent) - sum(w_b * impurity(b)) / w_parent``.
    score : callable, optional
        ``score(parent, children) -> float``, children (branches, S), larger is
        better, 0 for a useless split.  Give either or both; `score` decides if
        given.
    choose : callable, optional
        ``choose(gains, scores, levels) -> int`` picks among the best splits of several
        features (arrays of one entry a feature, ascending; NaN = no split); needs both
        `impurity` (whose decrease is the gain and picks within a feature, but for
        `levels_by_score`) and `score`.  ``levels`` is the number of declared levels of a
        nominal feature, per training weight (0.3: three levels for ten rows); 0 for a
        number.  -1 = none.
    penalty : callable, optional
        ``penalty(candidates, weight) -> float``: what is taken off the gain of
        the best cut of a number that was found among so many candidates at a
        node of this weight; without a gain left there is no cut.  With
        `choose`, its score shrinks in the same proportion.
    tolerance : float
        Gains (or scores) of the cuts of one feature that differ by no more are
        ties, besides those within 1e-9, relative, and the first of them wins.
    levels_by_score : bool
        With `choose`: of the splits of one level from the rest of its feature the
        one of the largest score stands for the feature, not that of the largest gain.
    order : callable, optional
        ``order(stats) -> float``: sort key of a category for subset splits,
        which then run along that order.  Without it levels are ordered by the
        mean or by the second of two classes' share: the best subset is among
        them for squared error (Fisher 1958) and for impurities concave in the
        class shares (Breiman et al. 1984, theorem 4.5), and may be missed by
        other criteria.  Of more classes all subsets are tried, for any
        criterion, up to the setting ``exact_levels``; above it some orders.
    leaf_value : callable, optional
        ``leaf_value(stats) -> float`` of a regression leaf, on the scale of
        the statistics.  Default: the mean, or the quantile.  (A `Task` answers by
        its layout.)
    priority : callable, optional
        ``priority(stats) -> float`` of a node in best-first growth, larger first.
    loss : callable, optional
        ``loss(stats, judged) -> float``: what it costs a regression node that
        answers as `stats` say to be asked for the rows `judged` (statistics,
        too), summed over their weight; pruners weigh trees by it.  Default:
        the squared error, or ``weight * impurity(judged)`` with `Ranks`; a `Task`
        that answers numbers has none but its own.
    statistics : Sums or Ranks
        What a regression criterion is given.
    """

    impurity: Callable[..., float] | None = None
    score: Callable[..., float] | None = None
    choose: Callable[..., int] | None = None
    order: Callable[..., float] | None = None
    leaf_value: Callable[..., float] | None = None
    priority: Callable[..., float] | None = None
    loss: Callable[..., float] | None = None
    statistics: Sums | Ranks = Sums()
    penalty: Callable[..., float] | None = None
    tolerance: float = 0.0
    levels_by_score: bool = False


@dataclass(frozen=True, eq=False)
class TaskColumn:
    """The target of a task, or a column that it reads beside the target; no cell is missing.

    Attributes
    ----------
    name : str
    values : (rows,) float64 numbers, or int32 codes
    levels : tuple
        Text, truth values and categories are codes: the label of each, in order.
        Empty for numbers.
    weights : (rows,) float64 or None
        Of a target: what each row weighs; None: 1 each.  A row of whole weight w is
        to count as w rows of the table, and one of weight 0 as none.
    """

    name: str
    values: npt.NDArray[np.float64] | npt.NDArray[np.int32]
    levels: tuple[Any, ...] = ()
    weights: npt.NDArray[np.float64] | None = None

    @property
    def labels(self) -> tuple[Any, ...]:
        """What its cells hold, in order: the levels, or the distinct numbers ascending."""
        return self.levels or tuple(sorted(set(self.values.tolist())))

    def codes(self, labels: tuple[Any, ...]) -> npt.NDArray[np.int64]:
        """(rows,) int64: the position of each cell among `labels`.

        Raises
        ------
        DataError
            Names the first cell that is none of them.
        """
        import numpy as np

        own = self.levels or tuple(np.unique(self.values).tolist())
        at = np.array([labels.index(label) if label in labels else -1 for label in own])
        codes = at[self.values if self.levels else np.searchsorted(own, self.values)]
        if (codes < 0).any():
            row = int((codes < 0).argmax())
            value = self.levels[int(self.values[row])] if self.levels else self.values[row].item()
            raise DataError(
                f"column {self.name!r} holds {value!r} in row {row} (counting from 0); it may be "
                + ", ".join(map(repr, labels))
            )
        return codes


@dataclass(frozen=True)
class Layout:
    """How the rows of a task are counted; fitted once, on all training rows.

    Attributes
    ----------
    size : int
        S, cells of a node's statistics.
    place : callable
        ``place(target, columns) -> (rows,) integers``: the cell, 0 to S - 1, that each
        row adds its weight to; or ``-> (rows, S) float64``, dense statistics, whose
        first is 1 and each of which is multiplied by the row's weight, so that cell 0
        is the weight.  `target` is a `TaskColumn`, `columns` a mapping of the
        task's column settings to theirs.  Also called for held-out rows.
    answer : callable
        ``answer(stats) -> (nodes, V) float64`` of statistics (nodes, S): what nodes
        say.  The weight of each class of the target, or the V named numbers: finite,
        and on scales that are not far apart, because all share one grid of 2**-48 of
        the largest.  Plain NumPy, called once a tree.
    names : tuple of str
        Of the V numbers; empty where the answer is classes.
    extra : object
        Whatever ``make`` wants to know.
    """

    size: int
    place: Callable[..., npt.NDArray[Any]]
    answer: Callable[..., npt.NDArray[np.float64]]
    names: tuple[str, ...] = ()
    extra: Any = None


@dataclass(frozen=True)
class Task:
    """What a criterion learns where neither classes nor a number say it.

    Survival, the effect of a treatment, fairness towards groups: the target is
    read together with other columns, rows are counted in cells of the task's own,
    and leaves say classes, or a vector of named numbers, which the model file and
    every exporter carry as they carry several targets.

    Attributes
    ----------
    name : str
    target : {"classification", "regression"}
        How the target column is read: as classes, or as a number.
    answers : {"classification", "regression"}
        Labels and shares of the target's classes, or the layout's named numbers.
    lay_out : callable
        ``lay_out(target, columns, **settings) -> Layout``, of training rows; see
        `Layout.place`.  Raises `treekit.DataError` for columns it cannot use.  The
        settings that name columns are left out: they come as `columns`.
    columns : tuple of str
        Those of `settings`, of type str, whose values name columns of the table
        that are read beside the target.  They are no inputs of the model.
    settings : tuple of Setting
        Users give them with the criterion's own, ``criterion.NAME``; they are passed
        to `lay_out`, not to ``make``, which finds what it needs in `Layout.extra`.
    """

    name: str
    target: Literal["classification", "regression"]
    answers: Literal["classification", "regression"]
    lay_out: Callable[..., Layout]
    columns: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class Criterion:
    """A measure of how good a split is.

    Attributes
    ----------
    task : {"classification", "regression"} or Task
    make : callable
        ``make(**settings) -> CriterionFunctions``; with a `Task`
        ``make(layout, **settings)``, the layout being fitted to the training rows.
    """

    name: str
    task: Literal["classification", "regression"] | Task
    make: Callable[..., CriterionFunctions]
    settings: tuple[Setting, ...] = ()
    summary: str = ""
    exempt: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)


@dataclass(frozen=True)
class SplitterFunctions:
    """What ``Splitter.make`` returns.

    Attributes
    ----------
    find : callable
        ``find(node, criterion, rng) -> Split | None``; see
        `treekit.splitting` for `Node` and the makers of splits.
        ``rng`` is a `numpy.random.Generator`.
    coding : {"exact", "histogram"}
        How numeric columns are coded for it: one code for each distinct
        value, or at most 255 bins.
    sums : bool
        Whether it may split on sums of columns.  These need exact coding and a
        model of input type float32, in which products are exact.
    intervals : bool
        Whether it may part a number into several intervals at once
        (`treekit.splitting.interval_split`).
    """

    find: Callable[..., Any]
    coding: Literal["exact", "histogram"] = "exact"
    sums: bool = False
    intervals: bool = False


@dataclass(frozen=True)
class Splitter:
    """A way to find the split of a node.  ``make(**settings)`` returns `SplitterFunctions`."""

    name: str
    make: Callable[..., SplitterFunctions]
    settings: tuple[Setting, ...] = ()
    summary: str = ""
    exempt: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)


@dataclass(frozen=True)
class PrunerFunctions:
    """What ``Pruner.make`` returns: `before`, `after` or both.

    Attributes
    ----------
    before : callable
        ``before(parent, children, held_parent, held_children) -> bool``: may
        the node be split?  Statistics as a criterion sees them (scaled weights
        for regression); ``held_*`` are those of the hold-out rows, zeros
        without a hold-out.
    after : callable
        ``after(tree, context) -> Tree``: a pruned tree; see
        `treekit.components.pruning`.
    holdout : float or None
        Share of the training rows to set aside for `before` and `after`, where
        no validation table is given; 0 = none.  None: held-out rows are not
        looked at, and a validation table is refused.
    """

    before: Callable[..., bool] | None = None
    after: Callable[..., Any] | None = None
    holdout: float | None = 0.0


@dataclass(frozen=True)
class Pruner:
    """A rule that keeps trees small.  ``make(**settings)`` returns `PrunerFunctions`.

    Attributes
    ----------
    task : {"classification", "regression"}, Task or None
        The only task that it is for; None: any.  With a `Task`, it knows what the
        statistics of that task's layout mean (``context.losses.layout``).
    costs : bool
        Whether it judges by what mistakes cost; if not, costs are refused beside it.
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
    """A target that models are written for.

    Attributes
    ----------
    suffix : str
        File ending that names the target, dot included (``".c"``); or, of a target that is
        a folder of files, a slash and the name of the main one (``"/config.pbtxt"``).
    export : callable
        ``export(model, name, **settings) -> Mapping[str, bytes]``: `name` is the
        stem of the output file; the result maps file names to contents, the
        main file (``name + suffix``) first.  Names are plain; only of a folder of files
        they are paths, with ``/``, in the folder `name`.
    """

    name: str
    suffix: str
    export: Callable[..., Mapping[str, bytes]]
    settings: tuple[Setting, ...] = ()
    summary: str = ""
    exempt: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)


@dataclass(frozen=True)
class Importer:
    """A foreign model that treekit reads.

    Attributes
    ----------
    recognises : callable
        ``recognises(source) -> bool`` on a fitted object or a `pathlib.Path`;
        cheap, and never imports what the object's own library is not.
    read : callable
        ``read(source, **settings) -> Model``.
    """

    name: str
    recognises: Callable[[Any], bool]
    read: Callable[..., Any]
    settings: tuple[Setting, ...] = ()
    summary: str = ""
    exempt: Mapping[str, str] = field(default_factory=dict, hash=False, kw_only=True)
