"""Train level by level over the partitions of a table that no process holds as a whole.

The model equals that of training in one process.  This process holds the target, the weights
and a hash of each row; the engine holds the columns, in partitions.
"""

from __future__ import annotations

import threading
import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from treekit.contracts import Ranks
from treekit.data.binning import NOMINAL_CODES, choose_code_type
from treekit.data.bins_by_counting import (
    BinSearch,
    DigitCounts,
    assign_codes,
    count_digits,
    decode_keys,
)
from treekit.data.dataset import Dataset, check_weights, digest_rows, make_dataset
from treekit.data.features import convert_to_numbers, find_loss, round_to_dtype
from treekit.data.parquet_files import join_parts
from treekit.data.schema import MISSING_MARKS, Schema
from treekit.data.table import read_table
from treekit.distributed.cluster import ClusterError, locate_row
from treekit.errors import DataError, SettingError, TreekitWarning
from treekit.grow.forest_builder import (
    BootstrapSampler,
    compute_draw_rate,
    compute_poisson_table,
    draw_tree_seeds,
    find_codes_present,
    hash_rows,
    number_copies,
    select_drawn,
)
from treekit.grow.level_builder import Engine, LevelSizes, Partition, grow_by_levels
from treekit.grow.recipe import Recipe
from treekit.grow.route import compute_leaf_shares
from treekit.grow.target_statistics import (
    TargetStatistics,
    count_draws,
    make_partition_target,
    round_to_step,
)
from treekit.kernels.records import Table
from treekit.model.tree import Tree
from treekit.training import Fitted, check_no_missing, make_fitted
from treekit.training.class_weights import apply_class_weights
from treekit.training.plan import COMPONENT_KINDS, Plan, make_component, make_plan
from treekit.training.prepare import (
    compile_recipe,
    get_coding_weights,
    get_placement,
    make_criterion_target,
)
from treekit.training.run import Outcome, choose_vote_step, make_vote_function, score_outcome

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
        See `treekit.training.whole_trees.train_on_cluster`; `settings` must have a seed.
    """
    if not isinstance(reading.get("weights"), (str, type(None))):
        raise SettingError(
            "training by levels needs the weights in a column of the table; set weights to the "
            "column's name, or set cluster_mode='trees'"
        )
    if "task_columns" in reading:
        raise SettingError(
            f"training by levels does not support criterion {settings['criterion']!r}, which "
            "defines a Task; set another criterion, or cluster_mode='trees' on workers that "
            "can hold the table"
        )
    known = [(part, place) for part, place in zip(parts, places, strict=True) if place[1]]
    if not known:
        raise DataError("the table has no rows; training needs at least one")
    schema = _find_schema(engine, [part for part, _ in known], known, target, reading)
    chunks = []
    for own in _group_parts(known, resources.n_threads):
        chunk = engine.submit(
            read_chunk, [part for part, _ in own], [place for _, place in own], target,
            dict(reading), schema,
        )  # fmt: skip
        chunks.append(chunk)
    del known, own
    described = engine.take([engine.submit(describe_chunk, chunk) for chunk in chunks])
    y, hashes = (np.concatenate([own[k] for own in described]) for k in (0, 2))
    weights = None
    if described[0][1] is not None:
        weights = np.concatenate([own[1] for own in described])
    try:
        weights = check_weights(weights, len(y))
    except DataError as error:
        raise locate_row(error, places) from None
    dataset = Dataset(schema, (), y, weights)
    digest = digest_rows(schema, hashes)
    sizes = [len(own) for own, _, _ in described]
    del described, hashes
    parts.clear()
    plan = make_plan(dataset, settings)
    dataset = apply_class_weights(dataset, plan.class_weights)
    check_supported(plan)
    whole = make_criterion_target(dataset, plan.criterion, _is_drawn(plan))
    _check_whole_weights(dataset, whole)
    context, partitions = _encode(engine, chunks, plan, schema, whole)
    del chunks, chunk
    if _is_drawn(plan):
        partitions = _add_samplers(engine, partitions, plan, whole)
    outcome = _grow(
        engine, context, partitions, plan, dataset, whole, max(sizes), resources, progress
    )
    if plan.settings["ensemble"] == "forest":
        outcome = score_outcome(dataset, plan, outcome, False)
    return make_fitted(dataset, plan, outcome, digest)


def _is_drawn(plan: Plan) -> bool:
    return bool(plan.settings["ensemble"] == "forest" and plan.settings["bootstrap"])


def _group_parts(parts: Sequence[Any], n: int) -> list[list[Any]]:
    """Group neighbouring parts into up to `n` chunks of about equal numbers of rows."""
    ends = np.cumsum([place[1] for _, place in parts])
    group = np.minimum((ends - 1) * n // ends[-1], n - 1)
    return [[parts[k] for k in np.flatnonzero(group == g).tolist()] for g in np.unique(group)]


def check_supported(plan: Plan) -> None:
    """Raise `SettingError` for components and settings that training by levels does not support."""
    settings, criterion = plan.settings, plan.criterion
    splitter = plan.splitter.functions
    kernel = getattr(splitter.find, "numeric_kernel", None)
    pruner = None if plan.pruner is None else plan.pruner.functions
    numbers = criterion.functions.impurity is None and settings["min_impurity"] is not None
    wrong = [
        (
            splitter.coding != "histogram" or kernel is None,
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
        (
            pruner is not None and (pruner.after is not None or plan.holdout_share > 0),
            f"pruner {settings['pruner']!r}", "pruner='none'",
        ),
        (plan.monotonic_signs is not None, "monotonic", "monotonic=None"),
        (settings["min_impurity_decrease"] > 0, "min_impurity_decrease", "min_gain"),
        (
            numbers,
            f"min_impurity with criterion {criterion.record.name!r}", "min_gain",
        ),
    ]  # fmt: skip
    for refused, what, instead in wrong:
        if refused:
            raise SettingError(
                f"training by levels does not support {what}; set {instead}, or "
                "cluster_mode='trees' on workers that can hold the table"
            )


def _check_whole_weights(dataset: Dataset, whole: TargetStatistics) -> None:
    weights = dataset.weights
    if weights is None:
        return
    if whole.noise > 0 or whole.draw_unit != 1.0 or np.any(weights != np.floor(weights)):
        raise SettingError(
            "training by levels needs weights that are integers with a mean of at most 16; round "
            "or scale them, or set cluster_mode='trees' on workers that can hold the table"
        )


# ---------------------------------------------------------------- schema
# The schema is that of a small table with the rows that determine it: the extremes of numbers,
# and a row of each category and class.


def _find_schema(
    engine: Engine,
    parts: Sequence[Any],
    known: Sequence[tuple[Any, tuple[str, int]]],
    target: str | Sequence[str],
    reading: Mapping[str, Any],
) -> Schema:
    names = [target] if isinstance(target, str) else list(target)
    asked = [engine.submit(select_telling_rows, part, names, dict(reading)) for part in parts]
    found = engine.take(asked)
    places = [place for _, place in known]
    sketch = join_parts([rows for rows, _, _ in found], places)
    dtype = reading.get("dtype", "auto")
    given = {**reading, "weights": None, "dtype": "float64" if dtype == "auto" else dtype}
    if reading.get("weights") is not None:
        given["ignore"] = [*reading.get("ignore", ()), reading["weights"]]
    try:
        schema = make_dataset(sketch, target, **given).schema
    except DataError as error:
        raise locate_row(error, places, [numbers for _, numbers, _ in found]) from None
    if dtype != "auto":
        return schema
    rounded = set().union(*(inexact for _, _, inexact in found))
    numeric = [c.name for c in schema.columns if c.kind == "numeric" and c.name in rounded]
    for name in numeric:  # one column at a time
        values = engine.take(
            [engine.submit(find_distinct_values, part, name, dict(reading)) for part in parts]
        )
        if find_loss(np.concatenate(values)) is not None:
            return schema
    return msgspec.structs.replace(schema, dtype="float32")


def _read_part(part: Any, reading: Mapping[str, Any]) -> Any:
    return read_table(part, missing=reading.get("missing_marks", MISSING_MARKS))


def select_telling_rows(
    part: Any, targets: Sequence[str], reading: Mapping[str, Any]
) -> tuple[Any, list[int], set[str]]:
    """Return the rows of a partition that determine the schema, their indices, and columns.

    The rows hold the least and the largest number of each column, and each category and class.
    The columns are those with a number that float32 rounds.  Rows with infinite cells are left
    out: they are reported when the partition is read.
    """
    table = _read_part(part, reading)
    if reading.get("weights") is not None:
        table.find_column(reading["weights"], "weight column")
    nominal = {*(reading.get("nominal") or ()), *(reading.get("levels") or ())}
    finite = np.ones(table.n_rows, np.bool_)
    for name in table.names:
        cells = table.get_typed_cells(name)
        if cells.dtype.kind == "f":
            finite &= ~np.isinf(cells) if name not in targets else np.isfinite(cells)
    rows: set[int] = {int(finite.argmax())}
    inexact = set()
    for name in table.names:
        cells = table.get_typed_cells(name)
        at = np.flatnonzero(finite & (cells == cells))
        known = cells[at]
        if cells.dtype.kind in "Ob":
            first = dict(zip(known[::-1].tolist(), at[::-1].tolist(), strict=True))
            rows |= {row for value, row in first.items() if value is not None}
        elif name in targets or name in nominal:
            rows |= set(at[np.unique(known, return_index=True)[1]].tolist())
        elif len(at):
            rows |= {int(at[known.argmin()]), int(at[known.argmax()])}
        if cells.dtype.kind not in "Ob":
            with np.errstate(over="ignore"):
                if np.any(known.astype(np.float32) != known):
                    inexact.add(name)
    numbers = sorted(rows)
    taken = np.array(numbers)
    return (
        part.iloc[taken] if hasattr(part, "iloc") else _take_rows(part, taken),
        numbers,
        inexact,
    )


def _take_rows(part: Any, rows: npt.NDArray[Any]) -> Any:
    return part[rows] if isinstance(part, np.ndarray) else part.take(rows)


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
    schema: Schema,
) -> Dataset:
    """Read neighbouring partitions by the schema of the whole table.

    Weights are not checked.
    """
    rows = join_parts(parts, places)
    nominal = {c.name: c.levels for c in schema.columns if c.kind == "nominal"}
    classes = {output.name: output.classes for output in schema.outputs}
    weights = reading.get("weights")
    given = {
        **reading,
        "task": schema.task,
        "nominal": list(nominal),
        "numeric": [c.name for c in schema.columns if c.kind == "numeric"],
        "levels": nominal,
        "classes": classes if schema.task == "classification" else None,
        "weights": None,
        "ignore": [*reading.get("ignore", ()), *([] if weights is None else [weights])],
        "dtype": "float64",
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TreekitWarning)  # of the whole table, not of a part
            dataset = make_dataset(rows, target, **given)
        own = None
        if weights is not None:
            own = convert_to_numbers(_read_part(rows, reading), weights).astype(np.float64)
    except DataError as error:
        raise locate_row(error, places) from None
    columns = tuple(
        column if column.dtype.kind == "i" else round_to_dtype(column, schema.dtype)
        for column in dataset.columns
    )
    return replace(dataset, schema=schema, columns=columns, weights=own)


def describe_chunk(dataset: Dataset) -> tuple[Any, Any, Hashes]:
    """Return the target, the weights and the hashes of the rows."""
    return dataset.y, dataset.weights, dataset.hash_rows()


# ---------------------------------------------------------------- encode


class _Frame(NamedTuple):
    """A table and a target without rows: the bins of the codes, the scale of the statistics."""

    table: Table
    target: TargetStatistics
    class_weights: npt.NDArray[np.float64] | None


_COUNTED_COLUMNS = 512
"""Maximum columns, over all chunks, counted at a time; each sends 1 MB to this process."""

_cached_recipes: list[tuple[str, Recipe]] = []
_lock = threading.Lock()


@dataclass(frozen=True)
class Context:
    """Arguments that all tasks share: each process makes its plan and its recipe from them."""

    token: str
    schema: Schema
    settings: dict[str, Any]
    component_settings: dict[str, Any]
    n_try: int
    costs: npt.NDArray[np.int64] | None
    frame: _Frame

    def make_plan(self) -> Plan:
        """Return the plan, with components created in this process."""
        criterion, splitter, pruner = (
            None if self.settings[kind] is None else make_component(
                kind, self.settings, self.component_settings, None  # type: ignore[arg-type]
            )
            for kind in COMPONENT_KINDS
        )  # fmt: skip
        assert criterion is not None  # noqa: S101 - for the type checker
        assert splitter is not None  # noqa: S101
        return Plan(self.settings, criterion, splitter, pruner, self.n_try, costs=self.costs)

    def __call__(self) -> Recipe:
        """Return the recipe without rows, compiled once in each process."""
        with _lock:
            if not _cached_recipes or _cached_recipes[0][0] != self.token:
                plan, frame = self.make_plan(), self.frame
                recipe = compile_recipe(
                    plan, frame.table, frame.target, self.schema.dtype,
                    get_placement(plan, self.schema.dtype),
                    rounded=frame.class_weights is not None,
                )  # fmt: skip
                _cached_recipes[:] = [(self.token, recipe)]
            return _cached_recipes[0][1]


def _encode(
    engine: Engine,
    chunks: Sequence[Any],
    plan: Plan,
    schema: Schema,
    whole: TargetStatistics,
) -> tuple[Context, list[Any]]:
    """Find the bins, encode the chunks, and return them as partitions."""
    settings, factors = plan.settings, plan.class_weights
    numeric = np.flatnonzero(~schema.nominal).tolist()
    searches = {f: BinSearch(schema.dtype, settings["max_bins"]) for f in numeric}
    most = max(1, _COUNTED_COLUMNS // len(chunks))
    while waiting := [f for f, own in searches.items() if own.shift is not None]:
        left = {f: searches[f] for f in waiting[:most]}
        asked = {f: (own.prefixes, own.shift) for f, own in left.items()}
        counts = engine.take(
            [
                engine.submit(count_chunk, chunk, factors, settings["max_bins"], asked)
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
    coded = [engine.submit(encode_chunk, own, factors, highs, n_codes, none) for own in chunks]
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
    target = replace(
        whole, cells=whole.cells[:1], values=whole.values[:1],
        draw_weights=whole.draw_weights if whole.draw_weights is None else whole.draw_weights[:1],
        total_weight=float(whole.values[:, 0].sum()),
    )  # fmt: skip
    frame = _Frame(table, target, factors)
    component_settings = {
        f"{kind}.{name}": value
        for kind in COMPONENT_KINDS
        if (part := getattr(plan, kind)) is not None
        for name, value in part.settings.items()
    }
    context = Context(
        uuid.uuid4().hex, schema, settings, component_settings, plan.n_try, plan.costs, frame
    )
    sent = engine.send(frame)
    partitions = [
        engine.submit(make_partition, chunk, own, sent)
        for chunk, own in zip(chunks, coded, strict=True)
    ]
    return context, partitions


def count_chunk(
    chunk: Dataset,
    class_weights: npt.NDArray[np.float64] | None,
    max_bins: int,
    asked: Mapping[int, tuple[Hashes | None, int]],
) -> dict[int, DigitCounts]:
    """Count the keys of some columns; see `treekit.data.bins_by_counting.count_digits`."""
    weights = get_coding_weights(apply_class_weights(chunk, class_weights))
    return {
        f: count_digits(chunk.columns[f], weights, max_bins, *wanted) for f, wanted in asked.items()
    }


def encode_chunk(
    chunk: Dataset,
    class_weights: npt.NDArray[np.float64] | None,
    highs: Mapping[int, Hashes],
    n_codes: npt.NDArray[np.int64],
    complete: bool,
) -> tuple[npt.NDArray[Any], dict[int, Hashes]]:
    """Encode all columns; return the codes, and the lowest keys of the bins of numeric columns.

    `complete`: missing cells are an error.
    """
    if complete:
        check_no_missing(chunk, "")
    weights = get_coding_weights(apply_class_weights(chunk, class_weights))
    codes = np.empty((len(n_codes), chunk.n_rows), choose_code_type(int(n_codes.max())))
    lows = {}
    for f, column in enumerate(chunk.columns):
        if f in highs:
            lows[f] = assign_codes(column, weights, highs[f], codes[f])
        else:
            np.copyto(codes[f], column, casting="unsafe")
            codes[f][column < 0] = n_codes[f]
    return codes, lows


def make_partition(chunk: Dataset, coded: tuple[Any, Any], frame: _Frame) -> Partition:
    """Return an encoded chunk as a partition, without a sampler."""
    factors = apply_class_weights(chunk, frame.class_weights).factors
    target = make_partition_target(frame.target, chunk.y, chunk.weights, factors)
    return Partition(frame.table._replace(codes=coded[0]), target)


# ---------------------------------------------------------------- bags


def _add_samplers(
    engine: Engine, partitions: list[Any], plan: Plan, whole: TargetStatistics
) -> list[Any]:
    """Add a bootstrap sampler to each partition; equal rows are numbered across partitions."""
    own = whole.draw_weights
    found = engine.take([engine.submit(find_present, part) for part in partitions])
    present = [np.any(column, axis=0) for column in zip(*found, strict=True)]
    parts = [engine.submit(hash_partition, part, present) for part in partitions]
    hashes = engine.take(parts)
    ids = select_drawn(np.arange(len(whole.values), dtype=np.uint32), whole)
    copies = np.empty(0, np.int64) if own is None else own[ids].astype(np.int64)
    first = number_copies(np.concatenate(hashes), copies)
    n_draws = len(ids) if own is None else count_draws(own[ids])
    rate = compute_draw_rate(n_draws, plan.settings["max_samples"])
    ends = np.cumsum([len(each) for each in hashes])[:-1]
    numbered = []
    for part, own_hashes, own_first in zip(partitions, parts, np.split(first, ends), strict=True):
        at = np.flatnonzero(own_first)
        later = (at.astype(np.uint32), own_first[at])
        numbered.append(engine.submit(add_sampler, part, own_hashes, later, rate))
    return numbered


def _select_own(partition: Partition) -> Ids:
    return select_drawn(np.arange(len(partition.target.values), dtype=np.uint32), partition.target)


def find_present(partition: Partition) -> list[npt.NDArray[np.bool_]]:
    """Return, for each column, which codes occur in the rows that may be drawn."""
    return find_codes_present(_select_own(partition), partition.table)


def hash_partition(partition: Partition, present: Sequence[npt.NDArray[np.bool_]]) -> Hashes:
    """Hash the rows that may be drawn; `present`: codes that occur in any partition, by column."""
    return hash_rows(_select_own(partition), partition.table, partition.target, present=present)


def add_sampler(
    partition: Partition, hashes: Hashes, later: tuple[Ids, Hashes], rate: float
) -> Partition:
    """Return the partition with its sampler.

    `later`: the rows that equal an earlier row, and the number of each among its equal rows.
    """
    ids, own = _select_own(partition), partition.target.draw_weights
    first = np.zeros(len(ids), np.uint64)
    first[later[0]] = later[1]
    copies = np.empty(0, np.int64) if own is None else own[ids].astype(np.int64)
    sampler = BootstrapSampler(
        ids, hashes, first, copies, np.empty(0, np.uint64), compute_poisson_table(rate)
    )
    return replace(partition, sampler=sampler)


# ---------------------------------------------------------------- grow


def _grow(
    engine: Engine,
    context: Context,
    partitions: Sequence[Any],
    plan: Plan,
    dataset: Dataset,
    whole: TargetStatistics,
    largest: int,
    resources: Resources,
    progress: Callable[[int, int], None] | None,
) -> Outcome:
    """Grow the trees in batches that fit into memory, and add up the out-of-bag votes."""
    settings = plan.settings
    n_trees = settings["trees"] if settings["ensemble"] == "forest" else 1
    seeds = draw_tree_seeds(np.random.SeedSequence(settings["seed"]), n_trees)
    wave, sizes = choose_sizes(
        resources, n_trees, largest, len(whole.values), whole, len(context.frame.table.n_codes)
    )
    source = engine.send(context)
    scored = _is_drawn(plan) and settings["oob"]
    step = choose_vote_step(dataset, n_trees)
    votes: list[Any] = [None] * len(partitions)
    trees: list[Tree] = []
    for k in range(0, n_trees, wave):
        grown, drawn = grow_by_levels(
            engine, context(), source, partitions, seeds[k : k + wave], sizes
        )
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
    sums, times = zip(*engine.take(votes), strict=True)
    return Outcome(trees, np.concatenate(sums), np.concatenate(times))


def add_votes(
    source: Context,
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
    vote = make_vote_function(Dataset(source.schema, (), np.empty(0)), source.make_plan())
    for tree, seed in zip(trees, drawn, strict=True):
        out = sampler.ids[sampler.draw_once(seed)[0] == 0]
        at = compute_leaf_shares(tree, partition.table, out, fractional=False)
        leaves, leaf_of_row = np.unique(at.leaf, return_inverse=True)
        sums[at.ids] += round_to_step(vote(tree, leaves)[leaf_of_row], step)
        times[at.ids] += 1
    return sums, times


# ---------------------------------------------------------------- memory


def choose_sizes(
    resources: Resources,
    n_trees: int,
    largest: int,
    n_rows: int,
    whole: TargetStatistics,
    n_columns: int,
) -> tuple[int, LevelSizes]:
    """Return the number of trees grown at a time, and the limits of their growth.

    Parameters
    ----------
    largest : int
        Rows of the largest chunk.
    """
    memory, n_threads = resources.memory, resources.n_threads
    row = 8 + 8 * whole.values.shape[1]
    bag = 3 * largest * row  # before and after a move, and spare
    wave = int(min(max(memory // (3 * bag), 1), n_trees))
    weight = float(whole.values[:, 0].sum()) / n_rows
    blocks = min(n_threads, 8)
    small_rows = min(memory // (5 * (2 * n_columns + 64)), wave * n_rows // (8 * n_threads))
    return wave, LevelSizes(
        small_weight=weight * small_rows,
        count_bytes=memory * blocks // (8 * n_threads),  # a block has counts of all partitions
        blocks=blocks,
        small_blocks=4 * n_threads,
        group_weight=weight * n_threads * (memory // (5 * (n_columns + row))),
    )


def check_chunk_memory(
    table: int, cells: int, rows: int, resources: Resources, free: int | None = None
) -> None:
    """Raise `ClusterError` if the memory of a worker's thread or of this process is too small.

    `table` is the table's size in memory in bytes, `free` the bytes that this process may use.
    """
    own = 160 * rows  # measured: target, statistics, hashes and votes
    if free is not None and own > free:
        raise ClusterError(
            f"this process needs about {own / 1e9:.3g} GB for the target and a hash of each of "
            f"{rows} rows, but {free / 1e9:.3g} GB are free; run it on a machine with more "
            "memory, or train on fewer rows"
        )
    share = 1 / resources.n_threads
    # The partitions, the joined chunk and its columns; codes and hashes; the rows of one tree.
    needed = int(share * (2.2 * table + cells + rows * (40 + 3 * 16)))
    if needed > resources.memory:
        raise ClusterError(
            f"the table takes {table / 1e9:.3g} GB and each of {resources.n_threads} threads needs "
            f"about {needed / 1e9:.3g} GB for its share of {rows} rows, but the smallest "
            f"has {resources.memory / 1e9:.3g} GB; add workers, or give them more memory"
        )
