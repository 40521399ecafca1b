"""Train level by level over the partitions of a table that no process holds as a whole.

The model equals that of training in one process.  This process holds the target, the weights
and the columns of a plugin's task; the engine holds everything else, in partitions.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.contracts import Ranks
from treekit.data.binning import NOMINAL_CODES, choose_code_type
from treekit.data.column_warnings import find_identifier_warning
from treekit.data.dataset import (
    MAX_INTEGER_CLASSES,
    Dataset,
    WeightUnit,
    check_some_weight,
    check_weight_range,
    digest_rows,
    find_weight_unit,
    make_dataset,
    read_task_columns,
)
from treekit.data.features import convert_to_numbers, find_loss, round_to_dtype
from treekit.data.schema import Schema
from treekit.data.table import read_table
from treekit.distributed.bins_by_counting import (
    BinSearch,
    DigitCounts,
    assign_codes,
    count_digits,
    decode_keys,
)
from treekit.distributed.cluster import locate_row
from treekit.distributed.failures import ClusterError
from treekit.distributed.level_builder import Engine, LevelSizes, Partition, grow_by_levels
from treekit.distributed.parquet_files import join_parts
from treekit.errors import DataError, SettingError, TreekitWarning, warn
from treekit.grow.forest_builder import (
    BootstrapSampler,
    compute_draw_rate,
    compute_poisson_table,
    count_copies,
    draw_tree_seeds,
    find_codes_present,
    hash_drawn_rows,
    number_copies,
    number_leaves,
    select_drawn,
)
from treekit.grow.route import find_leaves
from treekit.grow.target_statistics import TargetStatistics, choose_draws, round_to_step
from treekit.kernels.records import Table
from treekit.kernels.route_rows import sum_votes
from treekit.model.tree import Tree
from treekit.training import Fitted, check_inputs_complete, make_fitted, warn_of_small_weights
from treekit.training.class_weights import BALANCED_BAGS, apply_class_weights
from treekit.training.leaf_values import (
    NumberGrids,
    choose_number_grids,
    set_means,
    sum_leaf_numbers,
)
from treekit.training.plan import Plan, make_plan
from treekit.training.prepare import EncodedData, get_coding_weights, scale_criterion_target
from treekit.training.run import (
    Outcome,
    choose_vote_step,
    compute_oob_score,
    make_vote_function,
    predict_out_of_bag,
)
from treekit.training.target_precision import check_target_precision

Ids = npt.NDArray[np.uint32]
Hashes = npt.NDArray[np.uint64]
Places = list[tuple[str, int]]
"""Name and number of rows of each partition of a table."""

# ---------------------------------------------------------------- training


DEFAULT_MEMORY = 2 << 30
"""Bytes that each thread may use on workers without a memory limit."""


class Resources(NamedTuple):
    """Threads of all workers, and bytes of memory for each thread."""

    n_threads: int
    memory: int = DEFAULT_MEMORY


def train_by_levels(
    engine: Engine,
    parts: list[Any],
    places: Places,
    target: str | Sequence[str],
    reading: Mapping[str, Any],
    settings: Mapping[str, Any],
    resources: Resources,
    progress: Callable[[int, int], None] | None = None,
) -> Fitted:
    """Train on the partitions of a table.

    Parameters
    ----------
    parts : list
        Results of the engine, such as Dask futures: dataframes, Arrow tables or arrays.  The
        list is cleared when they have been read.
    places
        Name and number of rows of each part, for messages.
    target, reading, settings, progress
        See `treekit.distributed.whole_trees.train_on_cluster`.
    """
    if not isinstance(reading.get("weights"), (str, type(None))):
        raise SettingError(
            "training by levels needs the weights in a column of the table, not in an array; set "
            "weights to the column's name, or set cluster_mode='trees'"
        )
    known = [(part, place) for part, place in zip(parts, places, strict=True) if place[1]]
    if not known:
        raise DataError("the table has no rows; training needs at least one")
    empty = _find_schema(engine, known, target, reading)
    n_rows = sum(n for _, (_, n) in known)
    chunks, sizes = [], []
    for own in _group_parts(known, _choose_chunks(resources, n_rows, len(empty.schema.columns))):
        chunk = engine.submit(
            read_chunk, [part for part, _ in own], [place for _, place in own], target,
            dict(reading), empty,
        )  # fmt: skip
        chunks.append(chunk)
        sizes.append(sum(n_rows for _, (_, n_rows) in own))
    del known, own
    parts.clear()  # each is released when its chunk is read
    engine.take([engine.submit(getattr, chunk, "n_rows") for chunk in chunks])
    digest = _digest_rows(engine, chunks, empty.schema, n_rows)
    dataset = _collect_target(engine, chunks, sizes, empty)
    if dataset.weights is not None and (unit := find_weight_unit(dataset.weights)) is not None:
        dataset = replace(dataset, weights=unit.scale(dataset.weights))
        chunks = [engine.submit(scale_chunk, chunk, unit) for chunk in chunks]
    plan = make_plan(dataset, settings)
    warn_of_small_weights(dataset, plan)
    check_supported(plan)
    whole = _scale_target(dataset, plan)
    grids = None
    if check_target_precision(dataset, plan, whole):
        grids = choose_number_grids(dataset, copies=whole.noise == 0.0, drawn=plan.draws_rows)
    data, partitions = _encode(engine, chunks, plan, empty.schema, whole, exact=grids is not None)
    del chunks, chunk
    if plan.draws_rows:
        partitions = _add_samplers(engine, partitions, plan, n_rows)
    outcome = _grow(engine, data, partitions, dataset, grids, max(sizes), resources, progress)
    return make_fitted(dataset, plan, outcome, digest)


def _collect_target(
    engine: Engine, chunks: Sequence[Any], sizes: Sequence[int], empty: Dataset
) -> Dataset:
    """Return a dataset without input columns: the target, weights and columns of a task."""
    columns: dict[Any, npt.NDArray[Any]] = {}
    end = 0
    for chunk, n_rows in zip(chunks, sizes, strict=True):  # one at a time: this process is small
        (found,) = engine.take([engine.submit(get_target, chunk)])
        for name, own in found.items():
            if name not in columns:
                columns[name] = np.empty((sum(sizes), *own.shape[1:]), own.dtype)
            columns[name][end : end + n_rows] = own
        end += n_rows
    y, weights = columns.pop("y"), columns.pop("weights", None)
    if weights is not None:
        check_some_weight(weights)
    task_columns = {
        role: replace(column, values=columns[role]) for role, column in empty.task_columns.items()
    }
    return Dataset(empty.schema, (), y, weights, task_columns=task_columns)


@dataclass(frozen=True)
class _ComputedRows:
    """An array whose rows are computed when they are read."""

    compute: Callable[[Any], Any]

    def __getitem__(self, rows: Any) -> Any:
        return self.compute(rows)


def _scale_target(dataset: Dataset, plan: Plan) -> TargetStatistics:
    """Choose the grids of the statistics, from all rows in blocks."""
    class_weights = plan.class_weights
    factors: Any = None
    if class_weights is not None:
        factors = _ComputedRows(lambda rows: class_weights[dataset.y[rows]])
    placed: Any = dataset.y
    if plan.criterion.layout is not None:
        placed = _ComputedRows(lambda rows: plan.criterion.place_rows(dataset.take(rows)))
    return scale_criterion_target(dataset, plan.criterion, plan.draws_rows, placed, factors)


_READ_BYTES = 20
"""Bytes of a cell while a chunk is read: as joined, as float64, and rounded."""

_READ_SHARE = 8
"""Part of a thread's memory that a chunk may take while it is read."""


def _choose_chunks(resources: Resources, n_rows: int, n_columns: int) -> int:
    """Return the number of chunks: a multiple of that of threads."""
    share = _READ_BYTES * n_rows * n_columns // resources.n_threads
    most = max(resources.memory // _READ_SHARE, 1)
    return resources.n_threads * max(-(-share // most), 1)


def _group_parts(parts: Sequence[Any], n: int) -> list[list[Any]]:
    """Group neighbouring parts into up to `n` chunks of about equal numbers of rows."""
    ends = np.cumsum([place[1] for _, place in parts])
    group = np.minimum((ends - 1) * n // ends[-1], n - 1)
    return [[parts[k] for k in np.flatnonzero(group == g).tolist()] for g in np.unique(group)]


def check_supported(plan: Plan) -> None:
    """Raise `SettingError` for components and settings that training by levels does not support."""
    settings, criterion = plan.settings, plan.criterion
    splitter = plan.splitter.functions
    counts = getattr(splitter.find, "records_kernel", None) is not None  # as columns of bins
    pruner = None if plan.pruner is None else plan.pruner.functions
    numbers = criterion.functions.impurity is None and settings["min_impurity"] is not None
    wrong = [
        (
            splitter.coding != "histogram" or not counts,
            f"splitter {plan.splitter.record.name!r}", "splitter='histogram'",
        ),
        (
            isinstance(criterion.functions.statistics, Ranks),
            f"criterion {criterion.record.name!r}", "criterion='squared_error'",
        ),
        (
            settings["missing"] in ("fractional", "surrogate"),
            f"missing={settings['missing']!r}", "missing='direction'",
        ),
        (bool(settings["max_leaves"]), "max_leaves", "max_depth or min_weight_leaf"),
        (plan.balances_bags, f"class_weight={BALANCED_BAGS!r}", "class_weight='balanced'"),
        (
            pruner is not None and (pruner.after is not None or plan.holdout_share > 0),
            f"pruner {settings['pruner']!r}", "pruner='none'",
        ),
        (
            numbers,
            f"min_impurity with criterion {criterion.record.name!r}", "min_gain",
        ),
    ]  # fmt: skip
    for refused, what, instead in wrong:
        if refused:
            raise SettingError(
                f"training by levels does not support {what}; set {instead}, or "
                "cluster_mode='trees' on workers with memory for the whole table"
            )


# ---------------------------------------------------------------- schema
# The schema is that of a small table with the rows that determine it: the extremes of numbers,
# and a row of each category and class.


def _find_schema(
    engine: Engine,
    known: Sequence[tuple[Any, tuple[str, int]]],
    target: str | Sequence[str],
    reading: Mapping[str, Any],
) -> Dataset:
    """Return a dataset without rows: the schema, and the categories of a task's columns."""
    parts, places = zip(*known, strict=True)
    names = [target] if isinstance(target, str) else list(target)
    asked = [engine.submit(select_telling_rows, part, names, dict(reading)) for part in parts]
    found = engine.take(asked)
    sketch = join_parts([rows for rows, *_ in found], places)
    dtype = reading.get("dtype", "auto")
    given = {**reading, "weights": None, "dtype": "float64" if dtype == "auto" else dtype}
    if reading.get("weights") is not None:
        given["ignore"] = [*reading.get("ignore", ()), reading["weights"]]
    try:
        # Whether a column identifies rows is seen from all rows, not from these.
        empty = make_dataset(sketch, target, **given, keep_identifiers=True)
        counts: Counter[str] = sum((count for *_, count in found), Counter())
        if identifiers := _find_identifiers(empty.schema, counts, given):
            given["ignore"] = [*(given.get("ignore") or ()), *identifiers]
            empty = make_dataset(sketch, target, **given, keep_identifiers=True)
        empty = empty.take(slice(0))
    except DataError as error:
        raise locate_row(error, places, [numbers for _, numbers, *_ in found]) from None
    empty = replace(empty, columns=())
    if dtype != "auto":
        return empty
    schema = empty.schema
    rounded = set().union(*(inexact for _, _, inexact, _ in found))
    numeric = [c.name for c in schema.columns if c.kind == "numeric" and c.name in rounded]
    for name in numeric:  # one column at a time
        values = engine.take(
            [engine.submit(find_distinct_values, part, name, dict(reading)) for part in parts]
        )
        if find_loss(np.concatenate(values)) is not None:
            return empty
    return replace(empty, schema=msgspec.structs.replace(schema, dtype="float32"))


def _find_identifiers(
    schema: Schema, counts: Mapping[str, int], reading: Mapping[str, Any]
) -> list[str]:
    """Return the columns that `make_dataset` leaves out of a table with all rows, with warnings."""
    declared = {*(reading.get("nominal") or ()), *(reading.get("levels") or ())}
    found = []
    for column in schema.columns if schema.n_features > 1 else ():
        if column.kind == "nominal" and column.name not in declared:
            text = find_identifier_warning(
                column.name, len(column.levels), counts[column.name], kept=False
            )
            if text is not None:
                warn(text)
                found.append(column.name)
    return found


def _read_part(part: Any, reading: Mapping[str, Any]) -> Any:
    return read_table(
        part,
        missing=reading.get("missing_marks"),
        decimal=reading.get("decimal"),
        thousands=reading.get("thousands"),
    )


def select_telling_rows(
    part: Any, targets: Sequence[str], reading: Mapping[str, Any]
) -> tuple[Any, list[int], set[str], Counter[str]]:
    """Return the rows of a partition that determine the schema, their indices, and columns.

    The rows hold the least and the largest number of each column, and each category and class.
    The columns are those with a number that float32 rounds, and the number of present cells
    of each column of names.  Rows with infinite cells are left
    out: they are reported when the partition is read.
    """
    table = _read_part(part, reading)
    if reading.get("weights") is not None:
        table.find_column(reading["weights"], "weight column")
    nominal = {*(reading.get("nominal") or ()), *(reading.get("levels") or ())}
    complete = {*targets, *reading.get("task_columns", {}).values()}  # missing cells are errors
    used = {*table.names} - {*reading.get("ignore", ())} | complete
    names = [name for name in table.names if name in used]
    finite = np.ones(table.n_rows, np.bool_)
    for name in names:
        cells = table.get_typed_cells(name)
        if cells.dtype.kind == "f":
            finite &= ~np.isinf(cells) if name not in complete else np.isfinite(cells)
    rows: set[int] = {int(finite.argmax())}
    inexact = set()
    counts: Counter[str] = Counter()
    for name in names:
        # Integers are numbers, not classes, from so many different ones on.
        inferred = name in targets and reading.get("task") is None and not reading.get("classes")
        most = MAX_INTEGER_CLASSES + 1 if inferred else None
        cells = table.get_typed_cells(name)
        at = np.flatnonzero(finite & (cells == cells))
        known = cells[at]
        if cells.dtype.kind in "Ob":
            counts[name] = sum(value is not None for value in cells.tolist())
            first = dict(zip(known[::-1].tolist(), at[::-1].tolist(), strict=True))
            rows |= {row for value, row in first.items() if value is not None}
        elif name in nominal or (name in targets and _may_be_classes(cells, reading)):
            rows |= set(at[np.unique(known, return_index=True)[1][:most]].tolist())
        elif len(at):
            rows |= {int(at[known.argmin()]), int(at[known.argmax()])}
        if cells.dtype.kind not in "Ob":
            with np.errstate(over="ignore"):
                if np.any(known.astype(np.float32) != known):
                    inexact.add(name)
    numbers = sorted(rows)
    taken = np.array(numbers)
    telling = part[taken] if isinstance(part, np.ndarray) else part.take(taken)
    return telling, numbers, inexact, counts


def _may_be_classes(cells: npt.NDArray[Any], reading: Mapping[str, Any]) -> bool:
    """Check whether the numbers of a target may be classes."""
    if reading.get("task") is None and not reading.get("classes"):
        return cells.dtype.kind != "f"
    return reading.get("task") != "regression"


def find_distinct_values(
    part: Any, name: str, reading: Mapping[str, Any]
) -> npt.NDArray[np.float64]:
    """Return the distinct numbers of a column of a partition."""
    values = convert_to_numbers(_read_part(part, reading), name).astype(np.float64)
    return np.unique(values[values == values])


# ---------------------------------------------------------------- read


def read_chunk(
    parts: Sequence[Any],
    places: Places,
    target: str | Sequence[str],
    reading: Mapping[str, Any],
    empty: Dataset,
) -> Dataset:
    """Read neighbouring partitions by the schema and categories of the whole table."""
    schema, task_columns = empty.schema, empty.task_columns
    rows = _read_part(join_parts(parts, places), reading)
    nominal = {c.name: c.levels for c in schema.columns if c.kind == "nominal"}
    classes = {output.name: output.classes for output in schema.outputs}
    weights = reading.get("weights")
    used = {*schema.names, *([target] if isinstance(target, str) else target)}
    given = {
        **reading,
        "task": schema.task,
        "nominal": list(nominal),
        "numeric": [c.name for c in schema.columns if c.kind == "numeric"],
        "levels": nominal,
        "classes": classes if schema.task == "classification" else None,
        "weights": None,
        "ignore": [name for name in rows.names if name not in used],
        "task_columns": None,
        "dtype": "float64",
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TreekitWarning)  # of the whole table, not of a part
            dataset = make_dataset(rows, target, **given)
        own = None
        if weights is not None:
            own = convert_to_numbers(rows, weights).astype(np.float64)
            check_weight_range(own)
        names = {role: column.name for role, column in task_columns.items()}
        found = {}
        if names:
            found = read_task_columns(rows, names, task_columns)
    except DataError as error:
        raise locate_row(error, places) from None
    columns = tuple(
        column if column.dtype.kind == "i" else round_to_dtype(column, schema.dtype)
        for column in dataset.columns
    )
    return replace(dataset, schema=schema, columns=columns, weights=own, task_columns=found)


def scale_chunk(chunk: Dataset, unit: WeightUnit) -> Dataset:
    """Scale the relative weights of a chunk by the unit of all rows."""
    return replace(chunk, weights=None if chunk.weights is None else unit.scale(chunk.weights))


def get_target(chunk: Dataset) -> dict[str, npt.NDArray[Any]]:
    """Return the target, the weights if any, and a task's columns by role."""
    found = {role: column.values for role, column in chunk.task_columns.items()}
    found["y"] = chunk.y
    return found if chunk.weights is None else {**found, "weights": chunk.weights}


# ---------------------------------------------------------------- hashes of all rows
# They are sorted in ranges of their leading bits, so that no process holds all of them.

_RANGE_ROWS = 1 << 24
"""About the maximum number of rows of a range."""


def _choose_range_bits(n_rows: int) -> int:
    return max((n_rows - 1) // _RANGE_ROWS, 0).bit_length()


def _digest_rows(engine: Engine, chunks: Sequence[Any], schema: Schema, n_rows: int) -> str:
    """Return the digest of the table; one range of the hashes at a time is in this process."""
    bits = _choose_range_bits(n_rows)
    hashed = [engine.submit(sort_hashes, chunk, bits) for chunk in chunks]

    def take_ranges() -> Iterator[Hashes]:
        for r in range(1 << bits):
            pieces = [engine.submit(itemgetter(r), own) for own in hashed]
            yield from engine.take([engine.submit(merge_hashes, pieces)])

    return digest_rows(schema, take_ranges())


def sort_hashes(chunk: Dataset, bits: int) -> list[Hashes]:
    """Hash the rows of a chunk; return the hashes of each range, ascending."""
    hashes = np.sort(chunk.hash_rows())
    return np.split(hashes, np.searchsorted(hashes, _find_range_starts(bits)))


def merge_hashes(pieces: Sequence[Hashes]) -> Hashes:
    """Return the hashes of a range of all chunks, ascending."""
    return np.sort(np.concatenate(pieces))


def _find_range_starts(bits: int) -> Hashes:
    """Return the first hash of each range but the first."""
    if bits == 0:
        return np.empty(0, np.uint64)
    return np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(64 - bits)


# ---------------------------------------------------------------- encode


_COUNTED_COLUMNS = 512
"""Maximum columns, over all chunks, counted at a time; each sends 1 MB to this process."""


def _encode(
    engine: Engine,
    chunks: Sequence[Any],
    plan: Plan,
    schema: Schema,
    whole: TargetStatistics,
    *,
    exact: bool,
) -> tuple[EncodedData, list[Any]]:
    """Find the bins, encode the chunks, and return them as partitions.

    The data returned are without rows.  `exact`: values of nodes will be computed again.
    """
    settings, weighting = plan.settings, (plan.class_weights, whole.weight_step)
    numeric = np.flatnonzero(~schema.nominal).tolist()
    searches = {f: BinSearch(schema.dtype, settings["max_bins"]) for f in numeric}
    most = max(1, _COUNTED_COLUMNS // len(chunks))
    while waiting := [f for f, own in searches.items() if own.shift is not None]:
        left = {f: searches[f] for f in waiting[:most]}
        asked = {f: (own.prefixes, own.shift) for f, own in left.items()}
        counts = engine.take(
            [
                engine.submit(count_chunk, chunk, weighting, settings["max_bins"], asked)
                for chunk in chunks
            ]
        )
        for f, search in left.items():
            search.add_counts([own[f] for own in counts])
    highs = {f: own.high for f, own in searches.items()}
    n_codes = schema.n_levels
    for f, own_high in highs.items():
        n_codes[f] = len(own_high)
    none = settings["missing"] == "error"
    coded = [engine.submit(encode_chunk, own, weighting, highs, n_codes, none) for own in chunks]
    lows = engine.take([engine.submit(itemgetter(1), own) for own in coded])
    low = [decode_keys(np.min([own[f] for own in lows], axis=0), schema.dtype) for f in numeric]
    high = [decode_keys(highs[f], schema.dtype) for f in numeric]
    sizes = np.where(schema.nominal, 0, n_codes)
    table = Table(
        codes=np.empty((len(n_codes), 0), choose_code_type(int(n_codes.max()))),
        n_codes=n_codes.astype(np.uint32),
        nominal=np.where(schema.nominal, NOMINAL_CODES[settings["nominal_splits"]], 0).astype(
            np.uint8
        ),
        value_start=(np.cumsum(sizes) - sizes).astype(np.int64),
        low=np.concatenate([np.empty(0), *low]),
        high=np.concatenate([np.empty(0), *high]),
    )
    rounded = plan.class_weights is not None
    data = EncodedData(schema, plan, table, whole, rounded, needs_exact_means=exact)
    sent = engine.send(data)
    partitions = [
        engine.submit(make_partition, chunk, own, sent)
        for chunk, own in zip(chunks, coded, strict=True)
    ]
    return data, partitions


_Weighting = tuple[npt.NDArray[np.float64] | None, float]
"""Class weights, and the grid step of row weights."""


def _get_coding_weights(chunk: Dataset, weighting: _Weighting) -> npt.NDArray[np.float64] | None:
    class_weights, step = weighting
    return get_coding_weights(apply_class_weights(chunk, class_weights), step)


def count_chunk(
    chunk: Dataset,
    weighting: _Weighting,
    max_bins: int,
    asked: Mapping[int, tuple[Hashes | None, int]],
) -> dict[int, DigitCounts]:
    """Count the keys of some columns; see `treekit.distributed.bins_by_counting.count_digits`."""
    weights = _get_coding_weights(chunk, weighting)
    return {
        f: count_digits(chunk.columns[f], weights, max_bins, *wanted) for f, wanted in asked.items()
    }


def encode_chunk(
    chunk: Dataset,
    weighting: _Weighting,
    highs: Mapping[int, Hashes],
    n_codes: npt.NDArray[np.int64],
    complete: bool,
) -> tuple[npt.NDArray[Any], dict[int, Hashes]]:
    """Encode all columns; return the codes, and the lowest keys of the bins of numeric columns.

    `complete`: missing cells are an error.
    """
    if complete:
        check_inputs_complete(chunk, "")
    weights = _get_coding_weights(chunk, weighting)
    codes = np.empty((len(n_codes), chunk.n_rows), choose_code_type(int(n_codes.max())))
    lows = {}
    for f, column in enumerate(chunk.columns):
        if f in highs:
            lows[f] = assign_codes(column, weights, highs[f], codes[f])
        else:
            np.copyto(codes[f], column, casting="unsafe")
            codes[f][column < 0] = n_codes[f]
    return codes, lows


def make_partition(chunk: Dataset, coded: tuple[Any, Any], data: EncodedData) -> Partition:
    """Return an encoded chunk as a partition, without a sampler."""
    factors = apply_class_weights(chunk, data.plan.class_weights).factors
    y = data.plan.criterion.place_rows(chunk)
    target = data.target.place(y, chunk.weights, factors)
    numbers = y.astype(np.float64) if data.needs_exact_means else None
    return Partition(data.table._replace(codes=coded[0]), target, numbers=numbers)


# ---------------------------------------------------------------- bags


def _add_samplers(engine: Engine, partitions: list[Any], plan: Plan, n_rows: int) -> list[Any]:
    """Add a bootstrap sampler to each partition; equal rows are numbered across partitions."""
    found = engine.take([engine.submit(describe_drawn, part) for part in partitions])
    present = [np.any(codes, axis=0) for codes in zip(*(own.present for own in found), strict=True)]
    parted = any(own.parted for own in found)
    n_draws = choose_draws(
        sum(own.weight for own in found), sum(own.n_rows for own in found),
        whole=all(own.whole for own in found),
    )  # fmt: skip
    rate = compute_draw_rate(n_draws, plan.settings["max_samples"])
    bits = _choose_range_bits(n_rows)
    samplers = [engine.submit(make_own_sampler, part, present, parted, rate) for part in partitions]
    split = [engine.submit(split_copies, own, bits) for own in samplers]
    numbered = [
        engine.submit(number_later_copies, [engine.submit(itemgetter(r), own) for own in split])
        for r in range(1 << bits)
    ]
    return [
        engine.submit(
            add_sampler, part, sampler, [engine.submit(itemgetter(k), own) for own in numbered]
        )
        for k, (part, sampler) in enumerate(zip(partitions, samplers, strict=True))
    ]


class Drawn(NamedTuple):
    """The rows of a partition that may be drawn.

    Attributes
    ----------
    present : list of (codes + 1,) bool
        Which codes they have, by column.
    n_rows, weight : int and float
    whole, parted : bool
        Whether all weights are integers, and whether a row has a part of a copy.
    """

    present: list[npt.NDArray[np.bool_]]
    n_rows: int
    weight: float
    whole: bool
    parted: bool


def _select_own(partition: Partition) -> Ids:
    return select_drawn(np.arange(len(partition.target.values), dtype=np.uint32), partition.target)


def describe_drawn(partition: Partition) -> Drawn:
    """Describe the rows of a partition that may be drawn."""
    ids, target = _select_own(partition), partition.target
    w = np.ones(len(ids)) if target.draw_weights is None else target.draw_weights[ids]
    return Drawn(
        find_codes_present(ids, partition.table), len(ids), float(w.sum()),
        bool(np.all(w == np.floor(w))), bool(count_copies(ids, target)[1].any()),
    )  # fmt: skip


def make_own_sampler(
    partition: Partition, present: Sequence[npt.NDArray[np.bool_]], parted: bool, rate: float
) -> BootstrapSampler:
    """Make the sampler of a partition, without the numbers of copies.

    `present` are the codes that occur in any partition, by column; `parted`: whether a row of
    any partition has a part of a copy.
    """
    ids, target = _select_own(partition), partition.target
    hashes = hash_drawn_rows(ids, partition.table, target, parted=parted, present=present)
    copies, parts = count_copies(ids, target)
    return BootstrapSampler(
        ids, hashes, np.zeros(0, np.uint64), copies, parts if parted else parts[:0],
        compute_poisson_table(rate), target.draw_unit,
    )  # fmt: skip


Copies = tuple[Ids, Hashes, npt.NDArray[np.int64]]
"""Positions of rows in a sampler, their hashes, and their numbers of copies (empty: 1 each)."""


def split_copies(sampler: BootstrapSampler, bits: int) -> list[Copies]:
    """Split the rows of a sampler by the ranges of their hashes."""
    at = np.searchsorted(_find_range_starts(bits), sampler.hashes, side="right")
    order = np.argsort(at, kind="stable").astype(np.uint32)
    ends = np.cumsum(np.bincount(at, minlength=1 << bits))[:-1]
    copies = sampler.copies
    if len(sampler.parts):
        copies = copies + (sampler.parts > 0)
    return [
        (rows, sampler.hashes[rows], copies[rows] if len(copies) else copies)
        for rows in np.split(order, ends)
    ]


def number_later_copies(pieces: Sequence[Copies]) -> list[tuple[Ids, Hashes]]:
    """Return the rows of a range that equal an earlier row, and their numbers, by partition."""
    rows, hashes, copies = zip(*pieces, strict=True)
    first = number_copies(np.concatenate(hashes), np.concatenate(copies))
    ends = np.cumsum([len(own) for own in rows])[:-1]
    found = []
    for own, numbers in zip(rows, np.split(first, ends), strict=True):
        at = np.flatnonzero(numbers)
        found.append((own[at], numbers[at]))
    return found


def add_sampler(
    partition: Partition, sampler: BootstrapSampler, later: Sequence[tuple[Ids, Hashes]]
) -> Partition:
    """Return the partition with its sampler; `later` as found by `number_later_copies`."""
    first = np.zeros(len(sampler.ids), np.uint64)
    for rows, numbers in later:
        first[rows] = numbers
    return replace(partition, sampler=replace(sampler, first=first))


# ---------------------------------------------------------------- grow


def _grow(
    engine: Engine,
    data: EncodedData,
    partitions: Sequence[Any],
    dataset: Dataset,
    grids: NumberGrids | None,
    largest: int,
    resources: Resources,
    progress: Callable[[int, int], None] | None,
) -> Outcome:
    """Grow the trees in batches that fit into memory, and add up the out-of-bag votes.

    Values of nodes are computed again if `grids` are given.
    """
    plan, whole, settings = data.plan, data.target, data.plan.settings
    n_trees = settings["trees"] if settings["ensemble"] == "forest" else 1
    seeds = draw_tree_seeds(np.random.SeedSequence(settings["seed"]), n_trees)
    wave, sizes = choose_sizes(
        resources, n_trees, max(largest, -(-dataset.n_rows // resources.n_threads)),
        dataset.n_rows, whole, len(data.table.n_codes), len(partitions),
    )  # fmt: skip
    source = engine.send(data)
    scored = plan.draws_rows and settings["oob"]
    step = choose_vote_step(dataset, n_trees)
    votes: list[Any] = [None] * len(partitions)
    trees: list[Tree] = []
    for k in range(0, n_trees, wave):
        grown, drawn = grow_by_levels(
            engine, data(), source, partitions, seeds[k : k + wave], sizes
        )
        if grids is not None:
            sent = engine.send(grown)
            asked = [engine.submit(sum_numbers, part, sent, drawn, grids) for part in partitions]
            sums = [sum(own[1:], own[0]) for own in zip(*engine.take(asked), strict=True)]
            pairs = zip(grown, sums, strict=True)
            grown = [set_means(tree, own, plan.monotonic_signs) for tree, own in pairs]
        if scored:
            sent = engine.send(grown)
            votes = [
                engine.submit(add_votes, source, part, own, sent, drawn, step)
                for part, own in zip(partitions, votes, strict=True)
            ]
        trees += grown
        if progress is not None and settings["ensemble"] == "forest":
            progress(len(trees), n_trees)
    if not scored:
        return Outcome(trees)
    return Outcome(trees, report={"oob": _score_out_of_bag(engine, dataset, source, votes)})


def sum_numbers(
    partition: Partition, trees: Sequence[Tree], drawn: Sequence[int], grids: NumberGrids
) -> list[npt.NDArray[np.float64]]:
    """Return the sums of a partition's rows for each tree, see `sum_leaf_numbers`."""
    target, sampler, numbers = partition.target, partition.sampler, partition.numbers
    assert numbers is not None  # noqa: S101 - for the type checker
    ids, found = np.arange(len(target.values), dtype=np.uint32), []
    for tree, seed in zip(trees, drawn, strict=True):
        own = (ids, None) if sampler is None else (sampler.ids, sampler.draw_once(seed)[0])
        rows = target.select_rows(*own)
        leaf = find_leaves(tree, partition.table, rows.ids)
        y = numbers.reshape(len(ids), -1)[rows.ids]
        found.append(sum_leaf_numbers(grids, leaf, y, rows.values[:, 0], tree.n_nodes))
    return found


def _score_out_of_bag(
    engine: Engine, dataset: Dataset, source: Any, votes: Sequence[Any]
) -> dict[str, float]:
    """Return the out-of-bag score; predictions come one partition at a time."""
    seen = np.zeros(dataset.n_rows, np.bool_)
    predicted: npt.NDArray[Any] | None = None
    row = end = 0
    asked = [engine.submit(predict_votes, source, own) for own in votes]
    engine.take([engine.submit(len, own) for own in asked])
    for own in asked:
        ((own_seen, values),) = engine.take([own])
        if predicted is None:
            predicted = np.empty((len(seen), values.shape[1]), values.dtype)
        seen[row : row + len(own_seen)] = own_seen
        predicted[end : end + len(values)] = values
        row, end = row + len(own_seen), end + len(values)
    assert predicted is not None  # noqa: S101 - for the type checker
    return compute_oob_score(dataset, seen, predicted[:end])


def predict_votes(
    source: EncodedData, votes: tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[Any]]:
    """Return the out-of-bag rows and predictions; codes of classes in as few bytes as possible."""
    seen, predicted = predict_out_of_bag(source.schema, source.plan, *votes)
    if source.schema.task == "classification":
        most = max(len(output.classes) for output in source.schema.outputs)
        return seen, predicted.astype(np.min_scalar_type(most))
    return seen, predicted


def add_votes(
    source: EncodedData,
    partition: Partition,
    votes: tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]] | None,
    trees: Sequence[Tree],
    drawn: Sequence[int],
    step: float,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Add the votes of trees for their out-of-bag rows; see `Forest`."""
    target, sampler = partition.target, partition.sampler
    assert sampler is not None  # noqa: S101 - for the type checker
    n = len(target.values)
    sums, times = (
        (np.zeros((n, target.n_values)), np.zeros(n, np.int64))
        if votes is None
        else (votes[0].copy(), votes[1].copy())
    )
    vote = make_vote_function(Dataset(source.schema, (), np.empty(0)), source.plan)
    for tree, seed in zip(trees, drawn, strict=True):
        out = sampler.ids[sampler.draw_once(seed)[0] == 0]
        leaf = find_leaves(tree, partition.table, out)
        leaves, leaf_of_row = number_leaves(leaf, tree.n_nodes)
        sum_votes(out, leaf_of_row, round_to_step(vote(tree, leaves), step), sums)
        times[out] += 1
    return sums, times


# ---------------------------------------------------------------- memory


def choose_sizes(
    resources: Resources,
    n_trees: int,
    largest: int,
    n_rows: int,
    whole: TargetStatistics,
    n_columns: int,
    n_partitions: int,
) -> tuple[int, LevelSizes]:
    """Return the number of trees grown at a time, and the limits of their growth.

    Parameters
    ----------
    largest : int
        Maximum number of rows of a thread.
    """
    memory, n_threads = resources.memory, resources.n_threads
    row = 8 + 8 * whole.values.shape[1]
    bag = 3 * largest * row  # before and after a move, and spare
    wave = int(min(max(memory // (3 * bag), 1), n_trees))
    weight = (whole.total_weight or 0.0) / n_rows
    blocks = min(n_threads, 8)
    small_rows = min(memory // (5 * (2 * n_columns + 64)), wave * n_rows // (8 * n_threads))
    return wave, LevelSizes(
        small_weight=weight * small_rows,
        count_bytes=memory * blocks // (8 * n_partitions),  # a block has counts of all of them
        blocks=blocks,
        small_blocks=4 * n_threads,
        group_weight=weight * n_threads * (memory // (5 * (n_columns + row))),
    )


CALLER_BYTES = 64
"""Bytes of each row in the calling process, for a weighted number.

The target, weights, and copies of them while their steps are checked.
"""


def check_chunk_memory(
    table: int, cells: int, rows: int, resources: Resources, free: int | None = None
) -> None:
    """Raise `ClusterError` if the memory of a worker's thread or of this process is too small.

    `table` is the table's size in memory in bytes, `free` the bytes that this process may use.
    """
    own = CALLER_BYTES * rows
    if free is not None and own > free:
        raise ClusterError(
            f"this process needs about {own / 1e9:.3g} GB for the targets and predictions of "
            f"{rows} rows, but {free / 1e9:.3g} GB are free; train on a machine with "
            "more memory, or on fewer rows"
        )
    # Partitions or columns, with a chunk that is read or with codes and hashes; later codes, the
    # rows with their numbers, and those of one tree.
    reading = 1.1 * table + 16 * rows
    encoding = reading + max(resources.memory * resources.n_threads / _READ_SHARE, cells)
    needed = int(max(encoding, cells + rows * (40 + 3 * 16)) / resources.n_threads)
    if needed > resources.memory:
        raise ClusterError(
            f"the table takes {table / 1e9:.3g} GB and each of {resources.n_threads} threads needs "
            f"about {needed / 1e9:.3g} GB for its share of {rows} rows, but the thread with the "
            f"least memory has {resources.memory / 1e9:.3g} GB; add workers, or give them more "
            "memory"
        )
