"""Training on a cluster whose workers each hold the encoded table and grow a share of the trees.

Trees do not depend on each other, so that the model equals, byte for byte, that of one process.
Tables that do not fit a worker are trained on by levels (`treekit.distributed.levels`).
"""

from __future__ import annotations

import copy
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from treekit.data.dataset import Dataset, make_dataset
from treekit.data.table import is_dask_collection
from treekit.distributed.cluster import (
    DaskEngine,
    connect,
    count_threads,
    find_smallest_memory,
    find_thread_memory,
    locate_row,
)
from treekit.distributed.failures import ClusterError
from treekit.distributed.parquet_files import ParquetFiles, find_if_many, join_parts, read_file
from treekit.errors import DataError, SettingError
from treekit.grow.forest_builder import BootstrapSampler
from treekit.training import Fitted, fit, make_fitted, prepare_fit, read_validation
from treekit.training.prepare import EncodedData, encode_data
from treekit.training.run import (
    Outcome,
    grow_share,
    has_finish,
    join_outcomes,
    make_forest_sampler,
    score_outcome,
)
from treekit.training.tasks import use_prediction_schema

if TYPE_CHECKING:
    from distributed import Client, Future

_SHARES_PER_THREAD = 4
"""Shares of the trees for each thread: small ones balance the load and lose little work."""

_JOINED = 8
"""Number of shares whose votes are added by one task."""

MODES = ("auto", "trees", "levels")
"""Chosen by memory; whole trees, each on one worker; levels of trees, over partitions."""

_Places = list[tuple[str, int]]
"""Name and number of rows of each partition of a table."""


def train_on_cluster(
    source: Any,
    target: str | Sequence[str],
    reading: Mapping[str, Any],
    validation: Any,
    settings: Mapping[str, Any],
    cluster: Any = None,
    progress: Callable[[int, int], None] | None = None,
    mode: str = "auto",
) -> Fitted:
    """Train on a Dask collection, Parquet files or any other table, on the workers of a cluster.

    Parameters
    ----------
    source : Dask dataframe, two-dimensional Dask array, `ParquetFiles`, or table
        The workers read Parquet files that are given by a folder, a pattern or a URL.
    target, reading, validation, settings, progress
        See `treekit.train`; `reading` are the arguments of `make_dataset`.
    cluster : distributed.Client or str, optional
        See `treekit.distributed.cluster.connect`.
    mode : {"auto", "trees", "levels"}
        ``trees``: each worker holds the encoded table; ``levels``: a part of it; ``auto``: a part
        if the table does not fit into a worker's memory.
    """
    if mode not in MODES:
        raise SettingError(f"unknown cluster_mode {mode!r}; known: {', '.join(MODES)}")
    settings = dict(settings)
    if settings.get("seed") is None:  # drawn once, not by each worker
        settings["seed"] = secrets.randbits(32)
    source, validation = find_if_many(source), find_if_many(validation)
    with connect(cluster) as engine:
        table = _hold(source, engine)
        unfit = None
        if mode != "levels":
            unfit = _find_unfit([table], engine)
        if mode == "levels" or (unfit and mode == "auto" and validation is None):
            return _train_by_levels(
                engine, table, target, reading, validation, settings, progress, unfit
            )
        held_table = _hold(validation, engine)
        if unfit := unfit or _find_unfit([held_table], engine):
            raise unfit
        (parts, places, *_), (held, held_places, *_) = table, held_table
        del table, held_table
        data = engine.submit(
            _load, parts, held, places, held_places, target, dict(reading), settings
        )
        del parts, held
        try:
            return _train(engine, data, settings, progress)
        except DataError as error:
            of_validation = str(error).startswith("in the validation table, ")
            raise locate_row(error, held_places if of_validation else places) from None


class _Held(NamedTuple):
    """Computed partitions of a table, the name and number of rows of each, and its size.

    `size` is in bytes.  A table that this process has sent has no places and no size.
    """

    parts: list[Any]
    places: _Places
    size: int
    cells: int


def fit_estimator(estimator: Any, tables: Sequence[Any], seed: int) -> Any:
    """Fit an estimator to Dask collections by the workers of the active client.

    Parameters
    ----------
    estimator : EstimatorBase
    tables : sequence
        Inputs, target, weights, and inputs and target of validation; each a Dask collection, a
        table of this process, or None.
    seed : int

    Returns
    -------
    EstimatorBase
        A fitted copy.
    """
    with connect() as engine:
        held = [_hold(table, engine) for table in tables]
        if unfit := _find_unfit(held, engine):
            raise unfit
        parts = [table.parts for table in held]
        places = held[0].places if tables[3] is None else []
        prepared = engine.submit(_prepare_estimator, engine.send(estimator), *parts)
        data = engine.submit(_get_datasets, prepared)
        del parts, held
        try:
            (settings,) = engine.take([engine.submit(_get_settings, prepared)])
        except DataError as error:
            raise locate_row(error, places) from None
        fitted = _grow_model(engine, data, settings | {"seed": seed}, None)
        return engine.take([engine.submit(_finish_estimator, prepared, fitted)])[0]


def _hold(source: Any, engine: DaskEngine) -> _Held:
    """Compute the partitions of a table."""
    if isinstance(source, ParquetFiles):
        parts = [engine.submit(read_file, path) for path in source.paths]
        names = [repr(path) for path in source.paths]
    elif is_dask_collection(source):
        parts = engine.split(source)
        names = [f"partition {k}" for k in range(len(parts))]
    else:
        return _Held([None if source is None else engine.send(source)], [], 0, 0)
    engine.wait(parts)
    measured = engine.take([engine.submit(_measure, part) for part in parts])
    sizes, cells, rows = zip(*measured, strict=True)
    return _Held(parts, list(zip(names, rows, strict=True)), sum(sizes), sum(cells))


def _find_unfit(tables: Sequence[_Held], engine: DaskEngine) -> ClusterError | None:
    """Return the error for a table that does not fit into a worker's memory; None if all fit."""
    smallest = find_smallest_memory(engine)
    for table in tables:
        # The partitions and the joined table, then its columns, codes and a bag for each thread.
        needed = int(2.2 * table.size) + table.cells
        if smallest is not None and needed > smallest[0]:
            return ClusterError(
                f"the table takes {table.size / 1e9:.3g} GB and each worker needs about "
                f"{needed / 1e9:.3g} GB to train on it, but {smallest[1]} has "
                f"{smallest[0] / 1e9:.3g} GB; give workers more memory, or train on fewer rows"
            )
    return None


def _train_by_levels(
    engine: DaskEngine,
    table: _Held,
    target: str | Sequence[str],
    reading: Mapping[str, Any],
    validation: Any,
    settings: Mapping[str, Any],
    progress: Callable[[int, int], None] | None,
    unfit: ClusterError | None,
) -> Fitted:
    """Train by levels; `unfit` is the error if the table does not fit into a worker's memory."""
    import psutil  # type: ignore[import-untyped]  # of dask.distributed

    from treekit.distributed.levels import (
        DEFAULT_MEMORY,
        Resources,
        check_chunk_memory,
        train_by_levels,
    )

    if not table.places or validation is not None:
        what = "a validation table" if table.places else "a table in the memory of this process"
        raise SettingError(
            f"training by levels does not support {what}; give a Dask collection or Parquet "
            "files and no validation table, or set cluster_mode='trees'"
        )
    resources = Resources(count_threads(engine), find_thread_memory(engine) or DEFAULT_MEMORY)
    rows = sum(n for _, n in table.places)
    free = psutil.virtual_memory().available
    check_chunk_memory(table.size, table.cells, rows, resources, free)
    try:
        return train_by_levels(
            engine, table.parts, table.places, target, reading, settings, resources,
            progress,
        )  # fmt: skip
    except SettingError as error:
        raise (
            error if unfit is None else SettingError(f"{error}; levels were chosen because {unfit}")
        ) from None


def fit_on_cluster(
    client: Client,
    dataset: Dataset,
    validation: Dataset | None,
    settings: Mapping[str, Any],
    progress: Callable[[int, int], None] | None = None,
) -> Fitted:
    """Train on a dataset in the memory of this process, on the workers of a client."""
    settings = dict(settings)
    if settings.get("seed") is None:
        settings["seed"] = secrets.randbits(32)
    with connect(client) as engine:
        return _train(engine, engine.send((dataset, validation)), settings, progress)


def _train(
    engine: DaskEngine,
    data: Future,
    settings: dict[str, Any],
    progress: Callable[[int, int], None] | None,
) -> Fitted:
    fitted: Fitted
    (fitted,) = engine.take([_grow_model(engine, data, settings, progress)])
    return fitted


def _grow_model(
    engine: DaskEngine,
    data: Future,
    settings: dict[str, Any],
    progress: Callable[[int, int], None] | None,
) -> Future:
    """Grow all trees and return the task that makes their model; release the data."""
    prepared = engine.submit(_prepare, data, settings)
    (n_trees,) = engine.take([engine.submit(_count_trees, prepared)])
    data.release()
    if n_trees is None:
        return prepared
    n_shares = min(n_trees, _SHARES_PER_THREAD * count_threads(engine))
    ends = [n_trees * k // n_shares for k in range(n_shares + 1)]
    shares = [engine.submit(_grow, prepared, ends[k], ends[k + 1]) for k in range(n_shares)]
    finished = 0

    def count_share(k: int) -> None:
        nonlocal finished
        finished += ends[k + 1] - ends[k]
        if progress is not None:
            progress(finished, n_trees)

    engine.wait(shares, count_share)
    while len(shares) > 1:
        shares = [
            engine.submit(join_outcomes, shares[k : k + _JOINED])
            for k in range(0, len(shares), _JOINED)
        ]
    return engine.submit(_fit, prepared, shares[0])


# ---------------------------------------------------------------- tasks


def _measure(part: Any) -> tuple[int, int, int]:
    """Return the bytes, cells and rows of a partition."""
    if hasattr(part, "memory_usage"):  # a number for a series
        return int(np.sum(part.memory_usage(deep=True))), part.size, len(part)
    return part.nbytes, math.prod(part.shape), len(part)


def _load(
    parts: Sequence[Any],
    held: Sequence[Any],
    places: _Places,
    held_places: _Places,
    target: Any,
    reading: dict[str, Any],
    settings: dict[str, Any],
) -> tuple[Dataset, Dataset | None]:
    """Make the training and the validation table from their partitions."""
    dataset = make_dataset(join_parts(parts, places), target, **reading)
    if held[0] is None:
        return dataset, None
    try:
        rows = join_parts(held, held_places)
        return dataset, read_validation(rows, dataset, reading["weights"], settings)
    except DataError as error:
        raise locate_row(error, held_places) from None


@dataclass(frozen=True)
class _Forest:
    """A forest to grow on a table that is encoded once, for all workers.

    `dataset` has no input columns, unless they are read after growth.
    """

    dataset: Dataset
    data: EncodedData
    sampler: BootstrapSampler | None
    digest: str


def _prepare(data: tuple[Dataset, Dataset | None], settings: dict[str, Any]) -> _Forest | Fitted:
    """Encode the table of a forest; train a single tree."""
    dataset, plan, validation = prepare_fit(*data, settings)
    if plan.settings["ensemble"] == "tree":
        return fit(data[0], settings, None, data[1])
    encoded = encode_data(dataset, plan, validation)
    digest = dataset.compute_digest()
    means = encoded.needs_exact_means and plan.settings["missing"] != "fractional"
    if not means and not has_finish(plan, validated=validation is not None):
        dataset = replace(dataset, columns=())
    sampler = make_forest_sampler(plan, encoded.table, encoded.target)
    return _Forest(dataset, encoded, sampler, digest)


def _count_trees(forest: _Forest | Fitted) -> int | None:
    """Return the number of trees of a forest; None for a single tree."""
    return None if isinstance(forest, Fitted) else forest.data.plan.settings["trees"]


def _grow(forest: _Forest, first: int, last: int) -> Outcome:
    """Grow a share of the trees."""
    plan, recipe = forest.data.plan, forest.data()
    dataset = use_prediction_schema(forest.dataset, plan.criterion.record, plan.criterion.layout)
    return grow_share(dataset, recipe, plan, first, last, None, forest.sampler)


def _fit(forest: _Forest, grown: Outcome) -> Fitted:
    """Make the model of all trees."""
    plan = forest.data.plan
    dataset = use_prediction_schema(forest.dataset, plan.criterion.record, plan.criterion.layout)
    outcome = score_outcome(dataset, plan, grown, forest.data.held_out is not None)
    return make_fitted(forest.dataset, plan, outcome, forest.digest)


# ---------------------------------------------------------------- tasks of estimators


class _PreparedEstimator(NamedTuple):
    """An estimator and the tables to fit it to."""

    estimator: Any
    datasets: tuple[Dataset, Dataset | None]
    settings: dict[str, Any]


def _prepare_estimator(estimator: Any, *tables: Sequence[Any]) -> _PreparedEstimator:
    """Join the partitions of an estimator's tables, and read them."""
    x, y, weights, *held = (join_parts(parts, []) for parts in tables)
    estimator = copy.copy(estimator)
    dataset, validation, settings = estimator._prepare_fit(
        x, y, weights, None if held[0] is None else tuple(held)
    )
    return _PreparedEstimator(estimator, (dataset, validation), settings)


def _get_datasets(prepared: _PreparedEstimator) -> tuple[Dataset, Dataset | None]:
    return prepared.datasets


def _get_settings(prepared: _PreparedEstimator) -> dict[str, Any]:
    return prepared.settings


def _finish_estimator(prepared: _PreparedEstimator, fitted: Fitted) -> Any:
    """Set the fitted attributes of an estimator."""
    return copy.copy(prepared.estimator)._finish_fit(fitted, prepared.datasets[0])
