"""From a table and settings to a model: the front door, and what stands behind it.

`train` takes any table; `fit` takes a `Dataset` and is what the estimators
call, too.  Names become components here and nowhere deeper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit._version import __version__
from treekit.data.dataset import Dataset, make_dataset, make_validation
from treekit.errors import DataError, SettingError
from treekit.model.model import Model, make_model
from treekit.training.class_weights import with_class_weights
from treekit.training.plan import Plan, make_plan
from treekit.training.retrain import settings_like
from treekit.training.settings import SETTINGS
from treekit.training.tasks import answering, reading, recorded_task

if TYPE_CHECKING:
    from treekit.training.run import Outcome

__all__ = ["SETTINGS", "Fitted", "fit", "is_training_table", "train"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Fitted:
    """A model, and what its training saw.

    Attributes
    ----------
    model : Model
    oob_votes : (rows, outputs) float64 or None
        Sums over the trees for which a training row was out of bag; see
        `treekit.grow.forest_builder.Forest`.
    oob_times : (rows,) int64 or None
    """

    model: Model
    oob_votes: npt.NDArray[np.float64] | None = None
    oob_times: npt.NDArray[np.int64] | None = None

    @property
    def outcome(self) -> Outcome:
        """What growing gave, to be continued."""
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
    validation: Any = None,
    like: Any = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Model:
    """Train a model on any table.

    Parameters
    ----------
    source : table
        A path (CSV, TSV, Parquet), dataframe, Arrow table, dict of columns or array.
    target : str, or sequence of str
        Column to predict, or several that one model predicts together: all
        classes, or all numbers.
    task, nominal, numeric, levels, classes, weights, ignore, dtype, missing_marks
        How to read the table; see `treekit.data.dataset.make_dataset`.
    validation : table, optional
        Rows that pruners judge by, in place of a share of the training rows:
        any table with the same columns (weights too, if a column names them),
        read by the training table's levels and classes.
    like : Model or path, optional
        Train with the settings of this model, but for those given.
    progress : callable, optional
        ``progress(done, total)`` after each tree of a forest.
    **settings
        ``treekit train --help-settings`` lists them.  A component's own
        settings are written ``**{"criterion.base": 2.718}``; components may
        be given by name or as records.

    Returns
    -------
    Model

    Raises
    ------
    DataError, SettingError, PluginError
    """
    if like is not None:
        settings = settings_like(like, settings)
    marks = {} if missing_marks is None else {"missing_marks": missing_marks}
    dataset = make_dataset(
        source, target, **reading(settings, task), nominal=nominal, numeric=numeric, levels=levels,
        classes=classes, weights=weights, ignore=ignore, dtype=dtype, **marks,
    )  # fmt: skip
    held = None
    if validation is not None:
        held = make_validation(
            validation,
            dataset.schema,
            weights=weights if isinstance(weights, str) else None,
            unknown=settings.get("unknown", "missing"),
            beside=dataset.beside,
        )
    return fit(dataset, settings, progress, held).model


def fit(
    dataset: Dataset,
    settings: Mapping[str, Any],
    progress: Progress | None = None,
    validation: Dataset | None = None,
    start: Fitted | None = None,
) -> Fitted:
    """Train a model on a `Dataset`; see `train` for the settings.

    `validation` has the same schema: `treekit.data.dataset` makes it.
    `start` is a forest of the same settings and fewer trees: its trees are
    kept, and the forest is the one that growing all at once gives.
    """
    plan = make_plan(dataset, settings)
    if start is not None:
        _check_start(start.model, dataset, plan)
    if plan.settings["missing"] == "error":
        _refuse_missing(dataset, "")
    if validation is not None:
        _refuse_idle_validation(plan)
        if plan.settings["missing"] == "error":  # also if only the algorithm says so
            _refuse_missing(validation, "in the validation table, ")
        validation = with_class_weights(validation, plan.class_weights)
    dataset = with_class_weights(dataset, plan.class_weights)
    from treekit.training.run import run  # numba is imported when it is first needed

    before = None if start is None else start.outcome
    outcome = run(dataset, plan, progress, validation, before)
    task = recorded_task(dataset, plan.criterion.record)
    provenance = {
        "treekit": __version__,
        "components": plan.origins,
        "training_table": {"rows": dataset.n_rows, "sha256": dataset.digest()},
        **task,
        **outcome.report,
    }
    model = make_model(
        answering(dataset, plan.criterion.record, plan.criterion.layout).schema,
        outcome.trees,
        missing=plan.settings["missing"],
        unknown=plan.settings["unknown"],
        voting=plan.settings["voting"],
        costs=plan.costs,
        settings=plan.recorded,
        provenance=provenance,
    )
    return Fitted(model, outcome.votes, outcome.times)


def is_training_table(model: Model, dataset: Dataset) -> bool:
    """Tell whether a model was trained on these rows; models of older releases do not record it."""
    table = model.provenance.get("training_table")
    return isinstance(table, dict) and table.get("sha256") == dataset.digest()


def _refuse_idle_validation(plan: Plan) -> None:
    if plan.pruner is None or plan.pruner.functions.holdout is None:
        judge = (
            "no pruner is chosen"
            if plan.pruner is None
            else (f"pruner {plan.pruner.record.name!r} does not judge by held-out rows")
        )
        raise SettingError(
            f"a validation table is given, but {judge}; leave it out, or choose a pruner that "
            "does, such as reduced_error"
        )


def _check_start(model: Model, dataset: Dataset, plan: Plan) -> None:
    """Refuse to continue a forest that growing all at once would not have given."""
    if model.schema != dataset.schema:
        raise DataError(
            "the forest to continue was trained on other columns, levels or classes; start anew"
        )
    free = ("trees", "oob")
    for name, value in plan.recorded.items():
        if name not in free and model.settings.get(name) != value:
            raise SettingError(
                f"the forest to continue has {name}={model.settings.get(name)!r}, not {value!r}; "
                "use the same settings, or start anew"
            )
    if model.n_trees >= plan.settings["trees"]:
        raise SettingError(f"the forest to continue has {model.n_trees} trees; ask for more")


def _refuse_missing(dataset: Dataset, where: str) -> None:
    for name, column in zip(dataset.schema.names, dataset.columns, strict=True):
        gone = column < 0 if column.dtype.kind == "i" else column != column
        if gone.any():
            n = int(gone.sum())
            raise DataError(
                f"{where}column {name!r} has {n} missing cell{'s' if n > 1 else ''}, the first in "
                f"row {int(gone.argmax())} (counting from 0), and missing='error' allows none; use "
                "missing='direction', 'fractional' or 'surrogate'"
            )
