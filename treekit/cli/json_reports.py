"""The JSON that commands print with ``--json``: one record per command.

Fields are added in later releases, and none is renamed or removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from treekit.model.model import Model


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record of a report."""


class Size(Record, frozen=True):
    """The size of a model: numbers of trees, nodes and leaves, and the depth."""

    trees: int
    nodes: int
    leaves: int
    depth: int


class Estimate(Record, frozen=True):
    """A score on new rows, as estimated in training.

    Attributes
    ----------
    measure : str
        ``accuracy``, ``weighted accuracy``, ``R squared``, ``mean loss`` or ``mean cost``.
    value : float
    baseline : float, optional
        The score of always predicting the most frequent class, or the mean.
    how : str
        Rows and method of the estimate.
    """

    measure: str
    value: float
    baseline: float | None
    how: str


class TestScore(Record, frozen=True):
    """A score on the table of ``--test``.

    Attributes
    ----------
    measure : str
        ``accuracy`` or ``R squared``, with the target if there are several.
    value : float
    rows : int
    is_training_table : bool
        Whether the model was trained on the same rows.
    """

    measure: str
    value: float
    rows: int
    is_training_table: bool


class TrainReport(Record, frozen=True):
    """Printed by ``treekit train --json``.

    Attributes
    ----------
    model : str, optional
        The file that was written; null for standard output.
    model_sha256 : str
        Digest of all that determines predictions.
    rows : int
        Rows of the training table.
    targets : list of str
    size : Size
    settings : dict
        All settings, as ``treekit inspect`` shows them.
    estimate : Estimate, optional
        Null if training gives no estimate.
    test : list of TestScore
        One for each target; empty without ``--test``.
    """

    model: str | None
    model_sha256: str
    rows: int
    targets: list[str]
    size: Size
    settings: dict[str, Any]
    estimate: Estimate | None
    test: list[TestScore]


class Column(Record, frozen=True):
    """An input column: ``numeric`` or ``nominal``, with its categories."""

    name: str
    kind: str
    levels: list[str]


class Target(Record, frozen=True):
    """A predicted column, with its classes; none for numbers."""

    name: str
    classes: list[str | int | float | bool]


class InspectReport(Record, frozen=True):
    """Printed by ``treekit inspect --json``.

    Attributes
    ----------
    model_sha256, file_sha256 : str
        Digests of all that determines predictions, and of the model file.
    task : str
        ``classification`` or ``regression``.
    targets : list of Target
    columns : list of Column
    dtype : str
        Type of numeric inputs, ``float32`` or ``float64``.
    missing, unknown : str
        What happens to missing cells, and to categories that training has not seen.
    voting, combine, link : str
    costs : list of lists of int, optional
        Costs of predicting a class (second index) instead of the true one.
    size : Size
    settings, provenance : dict
    """

    model_sha256: str
    file_sha256: str
    task: str
    targets: list[Target]
    columns: list[Column]
    dtype: str
    missing: str
    unknown: str
    voting: str
    combine: str
    link: str
    costs: list[list[int]] | None
    size: Size
    settings: dict[str, Any]
    provenance: dict[str, Any]


class Importance(Record, frozen=True):
    """The importance of a column.

    Attributes
    ----------
    column : str
    gain : float
        Share in the gain of the splits.
    decrease, standard_error : float, optional
        Decrease of the score when the column is shuffled; null without a table.
    """

    column: str
    gain: float
    decrease: float | None
    standard_error: float | None


class ImportancesReport(Record, frozen=True):
    """Printed by ``treekit importances --json``.

    Attributes
    ----------
    columns : list of Importance
        The most important first.
    measure : str, optional
        ``accuracy`` or ``r2``; null without a table.
    score : float, optional
        On the table, before shuffling.
    """

    columns: list[Importance]
    measure: str | None
    score: float | None


class ComponentRecord(Record, frozen=True):
    """An installed component."""

    kind: str
    name: str
    distribution: str
    version: str
    contract: int
    summary: str


class PluginsReport(Record, frozen=True):
    """Printed by ``treekit plugins --json``; `faults` are sentences."""

    components: list[ComponentRecord]
    faults: list[str]


class RuleChangeRecord(Record, frozen=True):
    """A rule that has changed, or that one model lacks.

    Attributes
    ----------
    kind : str
        ``changed``, ``added`` or ``removed``.
    tree : int
        From 1.
    before, after : int, optional
        Number of the rule in each model, from 1.
    lines : list of two texts
        ``-`` before, ``+`` after or a blank for both, and the condition or prediction.
    """

    kind: str
    tree: int
    before: int | None
    after: int | None
    lines: list[tuple[str, str]]


class RuleDifferences(Record, frozen=True):
    """The differences of the rules; `unchanged` is a number of rules."""

    unchanged: int
    changes: list[RuleChangeRecord]


class SwitchRecord(Record, frozen=True):
    """Rows, by number from 0, whose label changes."""

    before: str
    after: str
    rows: list[int]


class ScoresRecord(Record, frozen=True):
    """Scores of both models, and their difference with its 95% interval."""

    before: float
    after: float
    difference: float
    low: float
    high: float


class GroupRecord(Record, frozen=True):
    """The rows of a group: their number, changed predictions, and scores."""

    group: str
    rows: int
    changed: int
    scores: ScoresRecord | None


class TargetDifferences(Record, frozen=True):
    """The differences of the predictions for a target.

    Attributes
    ----------
    target : str
    rows : int
    changed : list of int
        Rows with another prediction, from 0.
    switches : list of SwitchRecord
        Empty for numbers.
    largest, mean : float
        Absolute change of numbers, over all rows.
    figure : str
        ``accuracy`` or ``R squared``.
    scores : ScoresRecord, optional
        Null if the table lacks the target.
    groups : list of GroupRecord
        Empty without ``--by``.
    """

    target: str
    rows: int
    changed: list[int]
    switches: list[SwitchRecord]
    largest: float
    mean: float
    figure: str
    scores: ScoresRecord | None
    groups: list[GroupRecord]


class DiffReport(Record, frozen=True):
    """Printed by ``treekit diff --json``.

    Attributes
    ----------
    before, after : str
        Digests of the models, ``model_sha256``.
    rules : RuleDifferences, optional
        Null if the models have different numbers of trees.
    targets : list of TargetDifferences
        Empty without a table.
    trained_on : list of str
        Which models, ``before`` and ``after``, were trained on the rows of the table.
    """

    before: str
    after: str
    rules: RuleDifferences | None
    targets: list[TargetDifferences]
    trained_on: list[str]


REPORTS: dict[str, type[Record]] = {
    "train": TrainReport,
    "inspect": InspectReport,
    "importances": ImportancesReport,
    "plugins": PluginsReport,
    "diff": DiffReport,
}
"""The record of each command."""


def print_json(report: Record) -> None:
    """Print a report as JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))


def make_size(model: Model) -> Size:
    """Return the size of a model."""
    return Size(model.n_trees, model.n_nodes, model.n_leaves, model.depth)


def make_inspect_report(model: Model, file_sha256: str) -> InspectReport:
    """Return the contents of a model file, except for the trees."""
    from treekit.model.model import hash_model

    schema = model.schema
    return InspectReport(
        model_sha256=hash_model(model),
        file_sha256=file_sha256,
        task=schema.task,
        targets=[Target(output.name, list(output.classes)) for output in schema.outputs],
        columns=[Column(one.name, one.kind, list(one.levels)) for one in schema.columns],
        dtype=schema.dtype,
        missing=model.missing,
        unknown=model.unknown,
        voting=model.voting,
        combine=model.combine,
        link=model.link,
        costs=None if model.costs is None else model.costs.tolist(),
        size=make_size(model),
        settings=model.settings,
        provenance=model.provenance,
    )
