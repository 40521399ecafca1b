"""Train models.

`train` accepts any table; `fit` accepts a `Dataset` and is also called by the estimators.
Component names are resolved in this package and in no lower layer.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.column_report import merge_declaration
from treekit.data.dataset import Dataset, make_dataset, make_validation
from treekit.data.table import is_dask_collection
from treekit.errors import DataError, SettingError, TreekitWarning
from treekit.model.model import Model, compute_units
from treekit.model.validation import check_trees
from treekit.training.class_weights import BALANCED_BAGS, apply_class_weights
from treekit.training.later import Later, make_known
from treekit.training.plan import Plan, make_plan
from treekit.training.retrain import get_settings_like
from treekit.training.settings import SETTINGS, expand_settings
from treekit.training.tasks import describe_task, get_reading_options, use_prediction_schema

if TYPE_CHECKING:
    from treekit.data.table import Table
    from treekit.grow.forest_builder import BootstrapSampler
    from treekit.training.run import Outcome

__all__ = ["SETTINGS", "Fitted", "fit", "is_training_table", "train"]

Progress = Callable[[int, int], None]


class Fitted:
    """A trained model with its out-of-bag votes.

    Parameters
    ----------
    model : Model, or Later
    oob_votes : (rows, outputs) float64 or None
        Sums over the trees for which a training row was out of bag; see
        `treekit.grow.forest_builder.Forest`.
    oob_times : (rows,) int64 or None
        Number of trees for which each row was out of bag.
    sampler : BootstrapSampler or None
        Draws the rows of a forest's trees again; None if all are used, or workers drew them.
    """

    def __init__(
        self,
        model: Model | Later[Model],
        oob_votes: npt.NDArray[np.float64] | None = None,
        oob_times: npt.NDArray[np.int64] | None = None,
        sampler: BootstrapSampler | None = None,
    ) -> None:
        self.is_later = isinstance(model, Later)
        self._model = model if isinstance(model, Later) else make_known(model)
        self.oob_votes, self.oob_times, self.sampler = oob_votes, oob_times, sampler

    @property
    def model(self) -> Model:
        """The model, made of a small tree's nodes when it is first read."""
        return self._model.value

    @property
    def outcome(self) -> Outcome:
        """The trees and votes, for adding further trees."""
        from treekit.training.run import Outcome

        return Outcome(list(self.model.trees), self.oob_votes, self.oob_times)


def train(
    source: Any,
    target: str | Sequence[str],
    *,
    task: Any = None,
    nominal: Any = None,
    numeric: Any = None,
    levels: Any = None,
    classes: Any = None,
    weights: Any = None,
    ignore: Any = (),
    dtype: Any = "auto",
    missing_marks: Any = None,
    decimal: Any = None,
    thousands: Any = None,
    schema: Any = None,
    validation: Any = None,
    like: Any = None,
    cluster: Any = None,
    cluster_mode: str = "auto",
    progress: Progress | None = None,
    **settings: Any,
) -> Model:
    """Train a model on any table.

    Parameters
    ----------
    source : table
        A path (CSV, TSV, Parquet), dataframe, Arrow table, dict of columns or array; or a
        Dask dataframe or array, on whose cluster the model is trained.
    target : str, or sequence of str
        Column to predict, or several columns (all classes or all numbers) predicted by
        one model.
    task, nominal, numeric, levels, classes, weights, ignore, dtype
        How to read the table; see `treekit.data.dataset.make_dataset`.
    missing_marks, decimal, thousands
        How to read the table; see `treekit.data.dataset.make_dataset`.
    schema : path, dict or TableReading, optional
        Kinds, levels, marks and notation as `treekit.columns` has written them, except for
        those that are given.
    validation : table, optional
        Rows by which pruners evaluate trees, in place of a share of the training rows:
        any table with the same columns (also that of the weights, if they are a
        column), encoded by the training table's categories and classes.
    like : Model or path, optional
        Train with the settings of this model, except for those given.
    cluster : distributed.Client or str, optional
        Cluster to train on: a client, the address of a scheduler (``tcp://HOST:PORT``), or
        ``local:N`` processes of this machine.  None: for a Dask collection, the active
        client; else this process.  The model is the same for any number of workers.
    cluster_mode : {"auto", "trees", "levels"}
        Each worker holds the whole table and grows trees, or a part of the table and all grow
        the levels of trees together; auto: levels if the table does not fit the workers.
    progress : callable, optional
        ``progress(done, total)`` after each tree of a forest.
    **settings
        Training settings; ``treekit train --help-settings`` lists them.  Components are given by
        name or as records, and their settings as ``criterion_settings={"base": 2.718}`` or
        ``**{"criterion.base": 2.718}``.  ``rng``, an integer or a `numpy.random.Generator`, may
        take the place of ``seed``, which is then drawn from it.

    Returns
    -------
    Model

    Raises
    ------
    DataError, SettingError, PluginError
    ClusterError
        If workers differ from this process, or run out of memory.
    """
    settings = expand_settings(settings)
    if like is not None:
        settings = get_settings_like(like, settings)
    given = {
        "task": task,
        "nominal": nominal,
        "numeric": numeric,
        "levels": levels,
        "classes": classes,
        "weights": weights,
        "ignore": ignore,
        "dtype": dtype,
        "missing_marks": missing_marks,
        "decimal": decimal,
        "thousands": thousands,
    }
    if schema is not None:
        given = merge_declaration(schema, [target] if isinstance(target, str) else target, given)
    reading = {**given, **get_reading_options(settings, given["task"])}
    if cluster is not None or is_dask_collection(source):
        from treekit.distributed.whole_trees import train_on_cluster

        return train_on_cluster(
            source, target, reading, validation, settings, cluster, progress, cluster_mode
        ).model
    if cluster_mode != "auto":
        raise SettingError(f"cluster_mode is {cluster_mode!r} without a cluster; set cluster too")
    dataset = make_dataset(source, target, **reading)
    held = None
    if validation is not None:
        held = read_validation(validation, dataset, weights, settings)
    return fit(dataset, settings, progress, held).model


def read_validation(
    source: Any, dataset: Dataset, weights: Any, settings: Mapping[str, Any]
) -> Dataset:
    """Encode a validation table like the training table; `weights` are those of the latter."""
    return make_validation(
        source,
        dataset.schema,
        weights=weights if isinstance(weights, str) else None,
        unknown=settings.get("unknown", "missing"),
        task_columns=dataset.task_columns,
    )


def fit(
    dataset: Dataset,
    settings: Mapping[str, Any],
    progress: Progress | None = None,
    validation: Dataset | None = None,
    start: Fitted | None = None,
) -> Fitted:
    """Train a model on a `Dataset`; see `train` for the settings.

    `validation` must have the same schema (`treekit.data.dataset.make_validation`).  `start`
    is a forest of the same settings and fewer trees: its trees are kept, and the result
    equals a forest grown at once.

    With ``joblib.parallel_config(backend="dask")``, the trees are grown by Dask's workers.
    """
    client = _find_joblib_client() if start is None else None
    if client is not None:
        from treekit.distributed.whole_trees import fit_on_cluster

        return fit_on_cluster(client, dataset, validation, settings, progress)
    dataset, plan, validation = prepare_fit(dataset, validation, settings)
    if start is not None and plan.settings["oob"] and start.oob_votes is None:
        start = None  # the same trees grow again, this time with their out-of-bag votes
    if start is not None:
        _check_start(start.model, dataset, plan)
    from treekit.training.run import Outcome, run_plan  # numba is imported when needed

    before = Outcome([]) if start is None else start.outcome
    outcome = run_plan(dataset, plan, progress, validation, before)
    if _can_wait(dataset, plan):
        return Fitted(Later(partial(_make_model, dataset, plan, outcome)))
    return make_fitted(dataset, plan, outcome)


def _can_wait(dataset: Dataset, plan: Plan) -> bool:
    """Check whether the model can be built lazily: from a copy of few rows, without errors."""
    from treekit.training.target_precision import keeps_all_digits

    return (
        isinstance(dataset.columns, np.ndarray)
        and plan.settings["ensemble"] == "tree"
        and all(origin["distribution"] == "treekit" for origin in plan.component_origins)
        and keeps_all_digits(dataset)
    )


def make_fitted(
    dataset: Dataset, plan: Plan, outcome: Outcome, digest: str | None = None
) -> Fitted:
    """Make the model of grown trees.

    The dataset's schema is that of the training table; with its `digest`, the columns are not
    read.
    """
    model = _make_model(dataset, plan, outcome, digest)
    return Fitted(model, outcome.votes, outcome.times, outcome.sampler)


def _make_model(dataset: Dataset, plan: Plan, outcome: Outcome, digest: str | None = None) -> Model:
    from treekit.training.prepare import get_origin  # numba is imported when needed
    from treekit.training.target_precision import check_leaf_precision

    provenance = {
        "treekit": __version__,
        "components": plan.component_origins,
        "training_table": {"rows": dataset.n_rows, "sha256": digest or dataset.compute_digest()},
        **describe_task(dataset, plan.criterion.record),
        **outcome.report,
    }
    schema = use_prediction_schema(dataset, plan.criterion.record, plan.criterion.layout).schema
    settings = plan.settings
    if get_origin(plan.splitter).is_foreign:  # its nested intervals may be too deep
        check_trees(outcome.trees, schema)
    model = compute_units(
        Model(
            schema=schema,
            trees=tuple(outcome.trees),
            units=np.empty((0, schema.n_values), np.int64),
            missing=settings["missing"],
            unknown=settings["unknown"],
            voting=settings["voting"],
            costs=None if plan.costs is None else np.array(plan.costs),
            settings=plan.recorded_settings,
            provenance=provenance,
        )
    )
    if plan.criterion.layout is None:
        check_leaf_precision(dataset, model)
    return model


def _find_joblib_client() -> Any:
    """Return the Dask client of joblib's active backend; None for other backends."""
    if "distributed" not in sys.modules:
        return None
    from joblib.parallel import get_active_backend

    return getattr(get_active_backend()[0], "client", None)


def prepare_fit(
    dataset: Dataset, validation: Dataset | None, settings: Mapping[str, Any]
) -> tuple[Dataset, Plan, Dataset | None]:
    """Scale the weights, make the plan, check the tables by it, and apply its class weights."""
    _warn_of_many_classes(dataset)
    dataset = dataset.scale_weights()
    plan = make_plan(dataset, settings)
    warn_of_small_weights(dataset, plan)
    if plan.settings["missing"] == "error":
        check_inputs_complete(dataset, "")
    if validation is not None:
        _check_validation_is_used(plan)
        if plan.settings["missing"] == "error":  # also if set by the algorithm
            check_inputs_complete(validation, "in the validation table, ")
        if plan.balances_bags:
            raise SettingError(
                f"class_weight={BALANCED_BAGS!r} cannot be used with a validation table; set "
                "class_weight='balanced', or leave the validation table out"
            )
        validation = validation.scale_weights(relative=dataset.has_relative_weights)
        validation = apply_class_weights(validation, plan.class_weights)
    return apply_class_weights(dataset, plan.class_weights), plan, validation


def is_training_table(model: Model, dataset: Dataset) -> bool:
    """Check whether a model was trained on these rows; False for models of older releases."""
    return has_training_digest(model, dataset.compute_digest())


def has_training_rows(model: Model, table: Table) -> bool:
    """Check whether a table with the target holds the rows that a model was trained on."""
    trained = model.provenance.get("training_table")
    if not isinstance(trained, dict) or trained.get("rows") != table.n_rows:
        return False  # without encoding the rows
    try:
        return is_training_table(model, make_validation(table, model.schema))
    except DataError:  # for example a label not seen in training
        return False


def has_training_digest(model: Model, digest: str) -> bool:
    """Check whether a model was trained on the table of a digest."""
    table = model.provenance.get("training_table")
    return isinstance(table, dict) and table.get("sha256") == digest


def _check_validation_is_used(plan: Plan) -> None:
    if plan.pruner is None or plan.pruner.functions.holdout is None:
        reason = "no pruner is chosen"
        if plan.pruner is not None:
            reason = f"pruner {plan.pruner.record.name!r} does not use held-out rows"
        raise SettingError(
            f"a validation table is given, but {reason}; leave it out, or choose a pruner that "
            "uses held-out rows, such as reduced_error"
        )


_MANY_CLASSES = 100


def _warn_of_many_classes(dataset: Dataset) -> None:
    """Warn if a target has so many classes that it seems to name rows."""
    for output in dataset.schema.outputs:
        n = len(output.classes)
        if n > max(_MANY_CLASSES, dataset.n_rows // 2):
            warnings.warn(
                f"target {output.name!r} has {n:,} classes in {dataset.n_rows:,} rows: training "
                "may take hours; if these are identifiers of rows, choose another target; if they "
                "are quantities, set task='regression'",
                TreekitWarning,
                stacklevel=4,
            )


def warn_of_small_weights(dataset: Dataset, plan: Plan) -> None:
    """Warn if no node can be split because the whole-number weights are too small."""
    if dataset.weights is None or dataset.has_relative_weights:
        return
    total, split = float(dataset.weights.sum()), float(plan.settings["min_weight_split"])
    limits = {"min_weight_split": split, "min_weight_leaf": float(plan.settings["min_weight_leaf"])}
    name = "min_weight_split" if total < split else "min_weight_leaf"
    least = limits[name] if name == "min_weight_split" else 2 * limits[name]
    if total < least and np.count_nonzero(dataset.weights) > 1:
        twice = "" if name == "min_weight_split" else "twice "
        warnings.warn(
            f"no node is split: the weights add up to {total:g}, but a split needs {least:g} "
            f"({twice}{name}). Whole-number weights count copies of rows; lower {name}, or, if "
            f"only the ratios of the weights matter, multiply all so that they add up to {least:g} "
            "or more",
            TreekitWarning,
            stacklevel=4,
        )


def _check_start(model: Model, dataset: Dataset, plan: Plan) -> None:
    """Raise if the forest to continue has another schema, other settings or no trees to add."""
    if model.schema != dataset.schema:
        raise DataError(
            "the forest to continue was trained on other columns, levels or classes; train a new "
            "forest"
        )
    may_differ = ("trees", "oob")
    for name, value in plan.recorded_settings.items():
        if name not in may_differ and model.settings.get(name) != value:
            raise SettingError(
                f"the forest to continue has {name}={model.settings.get(name)!r}, not {value!r}; "
                "use the same settings, or train a new forest"
            )
    if model.n_trees >= plan.settings["trees"]:
        raise SettingError(
            f"the forest to continue has {model.n_trees} trees; set trees to a larger number"
        )


def check_inputs_complete(dataset: Dataset, where: str) -> None:
    """Raise `DataError` if a cell of an input is missing, for ``missing="error"``."""
    for name, column in zip(dataset.schema.names, dataset.columns, strict=True):
        gone = column < 0 if column.dtype.kind == "i" else column != column
        if gone.any():
            n = int(gone.sum())
            raise DataError(
                f"{where}column {name!r} has {n} missing cell{'s' if n > 1 else ''}, the first in "
                f"row {int(gone.argmax())} (counting from 0), but missing='error' allows none; use "
                "missing='direction', 'fractional' or 'surrogate'"
            )
