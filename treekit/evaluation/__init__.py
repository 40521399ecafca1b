"""Evaluation of models on a table, and of settings by cross-validation.

Scores are computed by ``sklearn.metrics``.  Each has a 95% interval and is compared with a baseline
that always predicts the class frequencies or the mean, as scikit-learn's dummy estimators do: those
of the training rows in a cross-validation, else of the rows themselves.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.data.dataset import Dataset, digest_rows, make_dataset, make_validation
from treekit.data.encoding import read_rows_for
from treekit.data.groups import read_groups
from treekit.data.schema import Label, Schema, level_text
from treekit.data.table import Table, read_table
from treekit.distributed.cluster import connect, locate_part
from treekit.distributed.parquet_files import ParquetFiles, read_file
from treekit.errors import DataError, SettingError
from treekit.evaluation.groups import Estimate, GroupScores, score_groups
from treekit.model.links import convert_sums
from treekit.model.model import as_model, hash_model
from treekit.model.scoring import compute_label_codes, sum_leaf_values
from treekit.settings import check_integer
from treekit.training import fit, has_training_digest
from treekit.training.settings import expand_settings, select_chosen_settings
from treekit.training.tasks import check_scorable, get_reading_options, predicts_numbers

if TYPE_CHECKING:
    from treekit.model.model import Model


_N_PARTS = 10
"""Number of parts of the rows on which a score is computed for its interval."""

_MAX_ROC_POINTS = 200
"""Maximum number of points of a ROC curve."""

_N_BINS = 10
"""Number of bins of a calibration curve, with equal numbers of rows."""

SCORES = {
    "accuracy": ("accuracy", 0.0, 1.0),
    "balanced_accuracy": ("balanced accuracy", 0.0, 1.0),
    "log_loss": ("log loss", 0.0, math.inf),
    "brier": ("Brier score", 0.0, 2.0),
    "roc_auc": ("ROC AUC", 0.0, 1.0),
    "r2": ("R squared", -math.inf, 1.0),
    "rmse": ("RMSE", 0.0, math.inf),
    "mae": ("MAE", 0.0, math.inf),
}
"""Readable name, smallest and largest value of each score."""

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
Progress = Callable[[int, int], None]
_DATASET_OPTIONS = (
    "nominal",
    "numeric",
    "levels",
    "classes",
    "weights",
    "ignore",
    "dtype",
    "missing_marks",
    "decimal",
    "thousands",
)


_FACTS = {"model_sha256": "digest of the model", "rows": "training rows"}
"""Names of parts of `Evaluation.trained` on a page."""


@dataclass(frozen=True)
class Score:
    """A score, its 95% interval and the baseline's score; None where undefined."""

    value: float | None
    low: float | None
    high: float | None
    baseline: float | None


@dataclass(frozen=True)
class ClassScores:
    """The scores of one class against the rest, its ROC curve and calibration curve.

    Attributes
    ----------
    label : bool, int, float or str
    rows : int or float
        Rows of the class, or their weight.
    precision, recall : Score
    roc : list of (float, float)
        False positive rate and true positive rate.
    calibration : list of (float, float)
        Mean predicted probability and observed share of each bin of equally many rows.
    auc : float or None
        Area under the ROC curve.
    """

    label: Label
    rows: float
    precision: Score
    recall: Score
    roc: list[tuple[float, float]]
    calibration: list[tuple[float, float]]
    auc: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """Result of `evaluate`; ``str()`` returns it as text.

    Attributes
    ----------
    target : str
    task : {"classification", "regression"}
    rows : int
        Rows that were predicted.
    method : {"table", "cross-validation"}
        How rows were predicted: by the given model, or each by a model not trained on it.
    folds, repeats : int
        Numbers of a cross-validation; 0 otherwise.
    trained_on : bool
        Whether the table is the training table.  Scores are then training scores.
    scores : dict of str to Score
        ``accuracy``, ``balanced_accuracy``, ``log_loss``, ``brier``, ``roc_auc`` (mean of each
        class against the rest); or ``r2``, ``rmse``, ``mae``.
    classes : list of ClassScores
        One for each class; empty for regression.
    confusion : list of lists of int
        Rows, or their weight, of each true class (first index) and predicted class; of a
        repeated cross-validation, the first repeat.
    by : str or None
        Column of the groups.
    groups : list of GroupScores
        Of a repeated cross-validation, those of the first repeat.
    trained : dict
        What is scored: ``settings``, the components and those that differ from their defaults;
        for a model also ``model_sha256``, and the numbers of ``trees``, ``leaves`` and training
        ``rows``.
    """

    target: str
    task: Literal["classification", "regression"]
    rows: int
    method: Literal["table", "cross-validation"]
    folds: int
    repeats: int
    trained_on: bool
    scores: dict[str, Score]
    classes: list[ClassScores]
    confusion: list[list[float]]
    by: str | None = None
    groups: list[GroupScores] = field(default_factory=list)
    trained: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Description of the estimation, in one line."""
        rows = f"{self.rows:,} row{'s' * (self.rows != 1)}"
        if self.method == "table":
            return f"{self.target!r} on {rows}"
        again = f", {self.repeats} times" if self.repeats > 1 else ""
        return f"{self.target!r} by {self.folds}-fold cross-validation on {rows}{again}"

    @property
    def warning(self) -> str:
        """Warning about training scores; empty if there is none."""
        if not self.trained_on:
            return ""
        return (
            "These are training scores: the model was trained on this table. Expect lower scores "
            "on new data; use a test table or cross-validation."
        )

    @property
    def baseline(self) -> str:
        """Description of the baseline."""
        what = "the class frequencies" if self.classes else "the mean"
        return f"The baseline predicts {what} of {'the training' if self.folds else 'these'} rows."

    def named_scores(self) -> dict[str, Score]:
        """Return the scores by readable names; training scores are marked as such."""
        before = "training " if self.trained_on else ""
        return {before + SCORES[name][0]: score for name, score in self.scores.items()}

    @property
    def group_note(self) -> str:
        """Description of the columns of the groups."""
        note = "Each difference is from all other rows, with its 95% interval."
        if len(self.classes) > 2:
            return note
        shares = [f"share of {one.label!r} in the predictions" for one in self.classes[1:]]
        what = shares[0] if shares else "mean prediction"
        return f"{note} rate: {what}; observed: the same in the target."

    def list_group_rows(self) -> list[list[str]]:
        """Return the head and the rows of the table of groups."""
        differs = ["difference", "95% interval"]
        head = [str(self.by), "rows", "accuracy" if self.classes else "MAE", *differs]
        with_rate = bool(self.groups) and self.groups[0].rate is not None
        rows = [[*head, *(["rate", *differs, "observed"] if with_rate else [])]]
        for one in self.groups:
            cells = [one.group, _format_count(one.rows), format_number(one.score.value)]
            cells += format_difference(one.score_difference)
            if one.rate is not None:
                cells += [format_number(one.rate.value), *format_difference(one.rate_difference)]
                cells.append(format_number(one.observed))
            rows.append(cells)
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        found = asdict(self)
        for one, group in zip(found["groups"], self.groups, strict=True):
            for name in ("score", "score_difference", "rate", "rate_difference"):
                estimate = getattr(group, name)
                one[name] = None if estimate is None else estimate._asdict()
        if self.trained_on:
            found["training_scores"] = found.pop("scores")
            found["warning"] = self.warning
        return found

    def to_json(self) -> str:
        """Return the evaluation as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"

    def to_html(self, title: str = "") -> str:
        """Return one HTML page with scores, confusion matrix, ROC and calibration curves."""
        from treekit.documents.pages import render_page

        return render_page(
            "evaluation",
            found=self,
            facts=self._list_facts(),
            title=title or self.title,
            number=format_number,
            interval=format_interval,
            count=_format_count,
        )

    def _list_facts(self) -> list[tuple[str, str]]:
        """Return the names and texts of what is scored."""
        own = {_FACTS.get(key, key): value for key, value in self.trained.items()}
        facts = own | own.pop("settings", {})
        return [
            (name, f"{value:,}" if type(value) is int and name != "seed" else str(value))
            for name, value in facts.items()
            if value is not None
        ]

    def __str__(self) -> str:
        lines = [self.title, *([self.warning] if self.warning else []), ""]
        rows = [["", "score", "95% interval", "baseline"]]
        rows += [_format_row(name, score) for name, score in self.named_scores().items()]
        lines += [*align_columns(rows), "", self.baseline]
        if self.classes:
            table = [["class", "rows", "precision", "95% interval", "recall", "95% interval"]]
            for one in self.classes:
                parts = [_format_row("", score)[1:3] for score in (one.precision, one.recall)]
                table.append([repr(one.label), _format_count(one.rows), *parts[0], *parts[1]])
            lines += ["", *align_columns(table), ""]
            lines.append("rows by true class (down) and predicted class")
            names = [repr(one.label) for one in self.classes]
            cells = zip(names, self.confusion, strict=True)
            lines += align_columns(
                [["", *names], *([name, *map(_format_count, row)] for name, row in cells)]
            )
        if self.groups:
            lines += ["", *align_columns(self.list_group_rows()), "", self.group_note]
        return "\n".join(lines)


def evaluate(
    model: Any,
    table: Any = None,
    *,
    target: str | None = None,
    cv: int = 10,
    repeats: int = 1,
    groups: str | None = None,
    by: str | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Evaluation:
    """Score a model on a table, or settings on a table by cross-validation.

    Parameters
    ----------
    model : Model, estimator, or table
        ``evaluate(model, table)`` predicts the rows of a table that holds the target;
        ``evaluate(table, target="y")`` trains on a part of the table and predicts the rest.
    table : table, optional
        Anything `treekit.train` accepts.
    target : str, optional
        Column to predict in a cross-validation.
    cv : int
        Number of folds.  Folds are stratified for classification.
    repeats : int
        Number of times to repeat the cross-validation, each time with new folds.
    groups : str, optional
        Column with the group of each row, such as a patient.  Rows of a group stay in the same
        fold; the column is not an input.
    by : str, optional
        Column, an input or not, whose categories are also scored one by one.
    progress : callable, optional
        ``progress(done, total)`` after each fold.
    **settings
        Settings of `treekit.train`; ``seed`` also draws the folds.  With a model: only ``weights``.

    Returns
    -------
    Evaluation

    Raises
    ------
    DataError, SettingError, PluginError

    Examples
    --------
    >>> treekit.evaluate(model, "test.csv")
    >>> treekit.evaluate("train.csv", target="income", cv=10, max_depth=5)
    """
    if target is None:
        if table is None:
            raise SettingError("give a model and a table, or a table and its target")
        weights = settings.pop("weights", None)
        unused = [*settings, *(["groups"] if groups is not None else [])]
        unused += [name for name, value in (("cv", cv != 10), ("repeats", repeats != 1)) if value]
        if unused:
            raise SettingError(f"{unused[0]} is for a cross-validation; give target and no model")
        return evaluate_model(as_model(model), table, weights=weights, by=by)
    if table is not None:
        raise SettingError(
            f"got a model and target={target!r}, but a model has its own target; leave out target "
            "to score the model, or the model to cross-validate"
        )
    if groups == target:
        raise SettingError(f"groups={groups!r} is the target; give another column")
    settings = expand_settings(settings)
    options = {name: settings.pop(name) for name in _DATASET_OPTIONS if name in settings}
    rows = read_table(
        model,
        missing=options.get("missing_marks"),
        decimal=options.get("decimal"),
        thousands=options.get("thousands"),
    )
    codes = encode_groups(rows, groups)
    if groups is not None:
        ignored = options.get("ignore", ())
        options["ignore"] = [*([ignored] if isinstance(ignored, str) else ignored), groups]
    dataset = make_dataset(
        rows, target, **get_reading_options(settings, settings.pop("task", None)), **options
    )
    return cross_validate(
        dataset,
        settings,
        cv=cv,
        repeats=repeats,
        groups=codes,
        by=None if by is None else (by, *read_groups(rows, by)),
        progress=progress,
    )


Groups = tuple[str, npt.NDArray[np.int64], list[str]]
"""A column, the group of each row, and the names of the groups."""


def evaluate_model(
    model: Model, table: Any, *, weights: str | None = None, by: str | None = None
) -> Evaluation:
    """Score a model on a table that holds its target; see `evaluate`."""
    check_one_target(model)
    groups: Groups | None = None
    if by is not None:
        table = read_rows_for(table, model.schema)
        groups = (by, *read_groups(table, by))
    return _score_rows(model, [_predict_table(model, table, weights)], groups)


def evaluate_files(
    model: Model,
    files: ParquetFiles,
    cluster: Any,
    *,
    weights: str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Score a model on Parquet files by the workers of a cluster; see `evaluate`.

    The result equals that of one table with all rows.  One worker holds the predictions of
    all rows.

    Parameters
    ----------
    cluster : distributed.Client or str
        See `treekit.distributed.cluster.connect`.
    progress : callable, optional
        ``progress(done, total)`` after each file.
    """
    check_one_target(model)
    with connect(cluster) as engine:
        sent, done = engine.send(model), itertools.count(1)

        def count_file(_: int) -> None:
            if progress is not None:
                progress(next(done), len(files.paths))

        parts = [engine.submit(_predict_file, path, sent, weights) for path in files.paths]
        engine.wait(parts, count_file)
        found: Evaluation
        (found,) = engine.take([engine.submit(_score_rows, sent, parts)])
        return found


def check_one_target(model: Model) -> None:
    """Raise `SettingError` for a model that cannot be scored."""
    check_scorable(model, "a score")
    if model.schema.more:
        raise SettingError(
            f"the model has {len(model.schema.outputs)} targets, but evaluate supports one; score "
            "its predictions with sklearn.metrics"
        )


class _PredictedTable(NamedTuple):
    """Targets, weights, probabilities or numbers, predictions and hashes of the rows of a table."""

    y: npt.NDArray[Any]
    weights: Floats | None
    shares: Floats
    predicted: npt.NDArray[Any]
    hashes: npt.NDArray[np.uint64]


def _predict_file(path: str, model: Model, weights: str | None) -> _PredictedTable | None:
    """Predict the rows of a Parquet file; None if it is empty."""
    schema = model.schema
    wanted = [*schema.names, schema.target, *([] if weights is None else [weights])]
    table = read_file(path, wanted)
    if table.num_rows == 0:
        return None
    try:
        return _predict_table(model, table, weights)
    except DataError as error:
        raise locate_part(error, repr(path), table.num_rows) from None


def _predict_table(model: Model, table: Any, weights: str | None) -> _PredictedTable:
    dataset = make_validation(
        table, model.schema, weights=weights, missing=model.missing, unknown=model.unknown,
        noun="the table", tested=model.tested,
    )  # fmt: skip
    shares, predicted = _predict_shares(model, dataset)
    return _PredictedTable(dataset.y, dataset.weights, shares, predicted, dataset.hash_rows())


def _score_rows(
    model: Model, tables: Sequence[_PredictedTable | None], groups: Groups | None = None
) -> Evaluation:
    """Score the predictions of tables, joined in order."""
    filled = [table for table in tables if table is not None]
    if not filled:
        raise DataError("the table has no rows; give at least one")
    y, shares, predicted, hashes = (
        np.concatenate(column)
        for column in zip(*((t.y, t.shares, t.predicted, t.hashes) for t in filled), strict=True)
    )
    weighed = [table.weights for table in filled if table.weights is not None]
    weights = np.concatenate(weighed) if weighed else None
    constant = _find_constant(model.schema, y, weights)
    numbers = np.arange(len(y))
    if weights is not None:  # rows of weight 0 do not count
        numbers = np.flatnonzero(weights > 0)
        y, shares, predicted = y[numbers], shares[numbers], predicted[numbers]
        weights = weights[numbers]
    if not len(y):
        raise DataError("every row of the table has a weight of 0; give some rows a weight > 0")
    rows = PredictedRows(
        model.schema, y, weights, shares, predicted, np.tile(constant, (len(y), 1)), numbers
    )
    whole, baseline = rows.compute_scores(), rows.compute_baseline()
    parts = range(_N_PARTS) if len(rows.y) >= 10 * _N_PARTS else ()
    each = [rows.compute_scores(slice(part, None, _N_PARTS)) for part in parts]
    found = {
        name: Score(
            value,
            *compute_t_interval(name, value, [one[name] for one in each], 1 / _N_PARTS),
            baseline[name],
        )
        for name, value in whole.items()
    }
    if "accuracy" in found and weights is None:
        right = int((predicted == y).sum())
        low, high = _compute_wilson_interval(right, len(y))
        found["accuracy"] = Score(whole["accuracy"], low, high, baseline["accuracy"])
    seen = has_training_digest(model, digest_rows(model.schema, [np.sort(hashes)]))
    made = rows.make_evaluation(found, "table", trained_on=seen)
    return rows.add_groups(replace(made, trained=_describe_model(model)), groups)


def cross_validate(
    dataset: Dataset,
    settings: Mapping[str, Any],
    *,
    cv: int = 10,
    repeats: int = 1,
    groups: npt.NDArray[np.int64] | None = None,
    by: Groups | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Train and predict by folds; see `evaluate`.

    Intervals are corrected for overlapping training sets (Nadeau and Bengio 2003, *Inference
    for the generalization error*).  Folds whose rows all weigh 0 are not scored.
    """
    scored, parts = run_folds(dataset, settings, cv, repeats, groups, progress)
    each = [part.compute_scores() for part in scored]
    constants = [part.compute_baseline() for part in scored]
    found = {
        name: average_folds(name, [one[name] for one in each], [one[name] for one in constants], cv)
        for name in each[0]
    }
    pooled = _concatenate_rows(parts[:cv])  # each row once
    whole = pooled.make_evaluation(found, "cross-validation", folds=cv, repeats=repeats)
    seeded = {**settings, "seed": int(settings.get("seed") or 0)}
    whole = replace(whole, trained={"settings": _describe_settings(seeded)})
    return pooled.add_groups(whole, by)


def _describe_model(model: Model) -> dict[str, Any]:
    """Return the digest, the size and the settings of a model."""
    rows = model.provenance.get("training_table", {}).get("rows")
    return {
        "model_sha256": hash_model(model),
        **({} if rows is None else {"rows": rows}),
        "trees": model.n_trees,
        "leaves": model.n_leaves,
        "settings": _describe_settings(model.settings),
    }


def _describe_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chosen settings as plain values; a component by its name."""
    return {key: _get_plain(value) for key, value in select_chosen_settings(settings).items()}


def _get_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _get_plain(own) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [_get_plain(own) for own in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(getattr(value, "name", value))


def run_folds(
    dataset: Dataset,
    settings: Mapping[str, Any],
    cv: int,
    repeats: int,
    groups: npt.NDArray[np.int64] | None,
    progress: Progress | None,
) -> tuple[list[PredictedRows], list[PredictedRows]]:
    """Train and predict by folds, which depend on the seed alone.

    Returns
    -------
    scored, parts : list of PredictedRows
        The folds whose rows do not all weigh 0, and all folds.
    """
    if dataset.schema.more:
        raise SettingError("evaluate supports one target, not several; evaluate each separately")
    if predicts_numbers(settings):
        raise SettingError(
            f"criterion {settings['criterion']!r} predicts numbers that are not a column of the "
            "table; score its models with the functions of its plugin"
        )
    seed = int(settings.get("seed") or 0)
    settings = {**settings, "seed": seed}
    folds = list(_make_folds(dataset, cv, repeats, groups, seed))
    parts: list[PredictedRows] = []
    for done, (grown, held) in enumerate(folds, start=1):
        training = dataset.take(grown)
        model = fit(training, settings).model
        parts.append(_predict_rows(model, dataset.take(held), training, held))
        if progress is not None:
            progress(done, len(folds))
    return [part for part in parts if len(part.y)], parts


# ---------------------------------------------------------------- rows and their predictions


@dataclass(frozen=True)
class PredictedRows:
    """True and predicted targets of rows, as codes or numbers.

    `shares` and `constant` are (rows, classes) probabilities, or (rows, 1) numbers: of the
    model, and of the constant prediction that is the baseline.  `numbers` are those of the rows.
    """

    schema: Schema
    y: npt.NDArray[Any]
    weights: Floats | None
    shares: Floats
    predicted: npt.NDArray[Any]
    constant: Floats
    numbers: Rows

    @property
    def classes(self) -> tuple[Label, ...]:
        """Labels of the classes; empty for a regression."""
        return self.schema.classes

    def compute_scores(self, which: slice = slice(None)) -> dict[str, float | None]:
        """Return all scores of the predictions, on a part of the rows."""
        return self._score_predictions(self.shares[which], self.predicted[which], which)

    def compute_baseline(self) -> dict[str, float | None]:
        """Return all scores of the constant prediction."""
        predicted = self.constant.argmax(axis=1) if self.classes else self.constant[:, 0]
        return self._score_predictions(self.constant, predicted, slice(None))

    def _score_predictions(
        self, shares: Floats, said: npt.NDArray[Any], which: Any
    ) -> dict[str, float | None]:
        from sklearn import metrics

        y = self.y[which]
        weights = None if self.weights is None else self.weights[which]
        own = {"sample_weight": weights}
        if not self.classes:
            return {
                "r2": float(metrics.r2_score(y, said, **own)) if len(np.unique(y)) > 1 else None,
                "rmse": float(metrics.root_mean_squared_error(y, said, **own)),
                "mae": float(metrics.mean_absolute_error(y, said, **own)),
            }
        k = len(self.classes)
        present = np.unique(y).tolist()
        recall = metrics.recall_score(
            y, said, labels=present, average="macro", zero_division=0, **own
        )
        shares = shares / shares.sum(axis=1, keepdims=True)
        one_hot = [(y == code).astype(int) for code in range(k)]
        brier = [
            metrics.brier_score_loss(one_hot[code], shares[:, code], pos_label=1, **own)
            for code in (range(k) if k > 2 else range(k - 1, k))
        ]
        log_loss = metrics.log_loss(y, shares, labels=range(k), **own) if k > 1 else 0.0
        areas = [
            metrics.roc_auc_score(one_hot[code], shares[:, code], **own)
            for code in (present if k > 2 else [1])
            if len(present) > 1
        ]
        return {
            "accuracy": float(metrics.accuracy_score(y, said, **own)),
            "balanced_accuracy": float(recall),
            "log_loss": float(log_loss),
            "brier": float(sum(brier)),
            "roc_auc": float(np.mean(areas)) if areas else None,
        }

    def make_evaluation(
        self,
        scores: dict[str, Score],
        method: Literal["table", "cross-validation"],
        *,
        folds: int = 0,
        repeats: int = 0,
        trained_on: bool = False,
    ) -> Evaluation:
        """Return the evaluation with its scores, confusion matrix and curves."""
        confusion: list[list[float]] = []
        if self.classes:
            from sklearn import metrics

            codes = [*range(len(self.classes)), -1]  # extra code: scikit-learn warns of one label
            table = metrics.confusion_matrix(
                self.y, self.predicted, labels=codes, sample_weight=self.weights
            )
            confusion = table[:-1, :-1].tolist()
        return Evaluation(
            target=self.schema.outputs[0].name,
            task=self.schema.task,
            rows=len(self.y),
            method=method,
            folds=folds,
            repeats=repeats,
            trained_on=trained_on,
            scores=scores,
            classes=[self._make_class_scores(code, confusion) for code in range(len(self.classes))],
            confusion=confusion,
        )

    def add_groups(self, evaluation: Evaluation, groups: Groups | None) -> Evaluation:
        """Add the scores of groups of rows to an evaluation."""
        if groups is None:
            return evaluation
        by, codes, names = groups
        found = score_groups(
            codes[self.numbers], names, self.y, self.predicted, self.weights, len(self.classes)
        )
        return replace(evaluation, by=by, groups=found)

    def _make_class_scores(self, code: int, confusion: list[list[float]]) -> ClassScores:
        from sklearn import metrics
        from sklearn.calibration import calibration_curve

        table = np.array(confusion)
        right, rows, said = (
            part.sum().item() for part in (table[code, code], table[code], table[:, code])
        )
        mine = (self.y == code).astype(int)
        share = self.shares[:, code]
        roc: list[tuple[float, float]] = []
        auc: float | None = None
        if 0 < mine.sum() < len(mine):
            false, true, _ = metrics.roc_curve(mine, share, sample_weight=self.weights)
            auc = float(metrics.auc(false, true))
            at = np.unique(np.linspace(0, len(false) - 1, _MAX_ROC_POINTS).round().astype(int))
            roc = list(zip(false[at].tolist(), true[at].tolist(), strict=True))
        calibration: list[tuple[float, float]] = []
        if self.weights is None:  # scikit-learn's `calibration_curve` has no weights
            observed, predicted = calibration_curve(
                mine, share.clip(0, 1), n_bins=_N_BINS, strategy="quantile"
            )
            calibration = list(zip(predicted.tolist(), observed.tolist(), strict=True))
        return ClassScores(
            label=self.classes[code],
            rows=rows,
            precision=self._make_share_score(right, said),
            recall=self._make_share_score(right, rows),
            roc=roc,
            calibration=calibration,
            auc=auc,
        )

    def _make_share_score(self, right: float, rows: float) -> Score:
        if not rows:
            return Score(None, None, None, None)
        if self.weights is not None:
            return Score(right / rows, None, None, None)
        return Score(right / rows, *_compute_wilson_interval(int(right), int(rows)), None)


def _predict_rows(
    model: Model, dataset: Dataset, training: Dataset, numbers: Rows
) -> PredictedRows:
    """Predict rows by a model, and by the class frequencies or the mean of the training rows."""
    if dataset.weights is not None:  # rows of weight 0 do not count
        used = np.flatnonzero(dataset.weights > 0)
        dataset, numbers = dataset.take(used), numbers[used]
    shares, predicted = _predict_shares(model, dataset)
    constant = _find_constant(training.schema, training.y, training.weights)
    constants = np.tile(constant, (dataset.n_rows, 1))
    return PredictedRows(
        dataset.schema, dataset.y, dataset.weights, shares, predicted, constants, numbers
    )


def _predict_shares(model: Model, dataset: Dataset) -> tuple[Floats, npt.NDArray[Any]]:
    """Return probabilities (rows, classes) or numbers (rows, 1), and class codes or numbers."""
    summed = sum_leaf_values(model, dataset.to_matrix())
    shares = np.asarray(convert_sums(model, summed), dtype=np.float64)
    if model.schema.task == "regression":
        return shares, shares[:, 0]
    return shares, compute_label_codes(model, summed)[:, 0]


def _find_constant(schema: Schema, y: npt.NDArray[Any], weights: Floats | None) -> Floats:
    """Return the class frequencies, or the mean (1,)."""
    if schema.task == "regression":
        return np.array([np.average(y, weights=weights)])
    counts = np.bincount(y, weights, minlength=len(schema.classes))
    return np.asarray(counts / counts.sum())


def _concatenate_rows(parts: Sequence[PredictedRows]) -> PredictedRows:
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("y", "weights", "shares", "predicted", "constant", "numbers")
        if getattr(parts[0], name) is not None
    }
    return PredictedRows(parts[0].schema, **{"weights": None, **columns})


# ---------------------------------------------------------------- folds


def encode_groups(table: Table, name: str | None) -> npt.NDArray[np.int64] | None:
    """Return a code per row, equal for rows with the same value in a column."""
    if name is None:
        return None
    texts = [level_text(cell) for cell in table.get_typed_cells(name).tolist()]
    if None in texts:
        raise DataError(
            f"the group {name!r} is missing in row {texts.index(None)} (counting from 0); "
            "fill it in, or drop the row"
        )
    return np.unique(np.array(texts, dtype=object), return_inverse=True)[1].astype(np.int64)


def _make_folds(
    dataset: Dataset, cv: int, repeats: int, groups: npt.NDArray[np.int64] | None, seed: int
) -> list[tuple[Rows, Rows]]:
    """Return the rows to train on and to predict, of each fold of each repeat."""
    from sklearn import model_selection as ms

    check_integer("cv", cv, 2)
    check_integer("repeats", repeats, 1)
    units = dataset.n_rows if groups is None else len(np.unique(groups))
    if units < cv:
        what = "rows" if groups is None else "groups"
        raise DataError(f"{units} {what} cannot make {cv} folds; give a lower cv")
    # Stratified, unless no class has enough rows.
    stratified = dataset.schema.task == "classification" and np.bincount(dataset.y).max() >= cv
    splitter: Any = ms.StratifiedKFold if stratified else ms.KFold
    if groups is not None:
        splitter = ms.StratifiedGroupKFold if stratified else ms.GroupKFold
    made: list[tuple[Rows, Rows]] = []
    with warnings.catch_warnings():  # scikit-learn warns of classes with fewer rows than folds
        warnings.simplefilter("ignore", UserWarning)
        for repeat in range(repeats):
            own = splitter(n_splits=cv, shuffle=True, random_state=(seed + repeat) % 2**32)
            made += own.split(np.zeros(dataset.n_rows), dataset.y, groups)
    return made


# ---------------------------------------------------------------- intervals


def _compute_wilson_interval(right: int, rows: int) -> tuple[float, float]:
    """Return Wilson's 95% interval of a share."""
    from scipy.stats import binomtest

    found = binomtest(right, rows).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)


def average_folds(
    name: str, values: Sequence[float | None], constants: Sequence[float | None], cv: int
) -> Score:
    """Return the mean over folds, with the interval of the corrected resampled t-test."""
    known = [value for value in values if value is not None]
    if not known:
        return Score(None, None, None, None)
    factor = 1.0 / len(known) + 1.0 / (cv - 1)
    low, high = compute_t_interval(name, float(np.mean(known)), known, factor)
    plain = [value for value in constants if value is not None]
    return Score(float(np.mean(known)), low, high, float(np.mean(plain)) if plain else None)


def compute_t_interval(
    name: str | None, centre: float | None, values: Sequence[float | None], factor: float
) -> tuple[float | None, float | None]:
    """Return Student's 95% interval; None if all values are equal.

    It is cut to the range of the score `name`, if one is given.  The variance over parts times
    `factor` is that of the centre.
    """
    from scipy.stats import t

    known = [value for value in values if value is not None]
    if centre is None or len(known) < 2 or len(set(known)) == 1:
        return None, None
    scale = math.sqrt(np.var(known, ddof=1) * factor)
    low, high = t.interval(0.95, len(known) - 1, centre, scale)
    if name is None:
        return float(low), float(high)
    _, least, most = SCORES[name]
    return max(float(low), least), min(float(high), most)


# ---------------------------------------------------------------- text


def _format_count(rows: float) -> str:
    return f"{rows:,}" if isinstance(rows, int) else f"{rows:,.6g}"


def format_number(value: float | None) -> str:
    """Format a number with four decimals, or six significant digits if it is 100 or more."""
    if value is None:
        return "-"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.6g}"


def format_interval(score: Score) -> str:
    """Format the interval of a score."""
    low, high = format_number(score.low), format_number(score.high)
    return "-" if score.low is None else f"{low} to {high}"


def _format_row(name: str, score: Score) -> list[str]:
    value, baseline = format_number(score.value), format_number(score.baseline)
    return [name, value, format_interval(score), baseline]


def format_difference(estimate: Estimate | None) -> list[str]:
    """Format a difference and its interval."""
    if estimate is None:
        return ["-", "-"]
    value = f"{estimate.value:+.4f}"
    if estimate.low is None or estimate.high is None:
        return [value, "-"]
    return [value, f"{estimate.low:+.4f} to {estimate.high:+.4f}"]


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the first column on the left, the others on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]
