"""Records of growth: the inputs that all trees of a training share, and a grown tree."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.compiling.criterion import CompiledCriterion
from treekit.compiling.splitter import CompiledSplitter
from treekit.data.out_of_core import copy_row_major, may_use
from treekit.data.schema import Dtype
from treekit.grow.cut_thresholds import place_all_cuts
from treekit.grow.held_out import HeldOutRows
from treekit.grow.target_statistics import TargetStatistics
from treekit.kernels.function_pointers import FunctionPointer
from treekit.kernels.node_statistics import MAX_LANES
from treekit.kernels.records import PLAIN_RULES, Limits, Rows, SplitRules, Table
from treekit.kernels.row_records import RecordTable, count_record_bytes, make_record_table
from treekit.model.tree import Tree


@dataclass(frozen=True)
class SurrogateRule:
    """The rule by which a node keeps surrogates; see `treekit.kernels.surrogate_splits`."""

    most: int
    of_known: bool = False
    right_and_wrong: bool = False


@dataclass(frozen=True)
class Recipe:
    """The inputs that all trees of one training share.

    Attributes
    ----------
    table : Table
        Codes of the training columns.
    target : TargetStatistics
    dtype : str
        The model's input type, for thresholds.
    criterion, splitter : compiled components
    before : FunctionPointer
        The pruner's `before` function, called if `use_before` is set.
    limits : Limits
    split_rules : SplitRules
    fractional : bool
        Rows with a missing value become fractional instances in all branches; criterion
        and `split_rules` are then `known_only`.
    balance_bags : bool
        All classes weigh the same in the bootstrap sample of each tree.
    held_out : HeldOutRows, optional
        The rows of a validation table.
    monotonic_signs : (features,) float64, or None
        Monotonic constraints, 1, -1 or 0 for each column.
    needs_exact_means : bool
        Whether the sums of growth are too coarse for values of nodes, see
        `treekit.training.leaf_values`.
    surrogates : SurrogateRule or None
        The rule by which nodes keep surrogates; criterion and `split_rules` are then
        `known_only`, too.  None: trees have no surrogates.
    """

    table: Table
    target: TargetStatistics
    dtype: Dtype
    criterion: CompiledCriterion
    splitter: CompiledSplitter
    before: FunctionPointer
    use_before: bool
    limits: Limits
    split_rules: SplitRules = PLAIN_RULES
    fractional: bool = False
    balance_bags: bool = False
    held_out: HeldOutRows | None = None
    surrogates: SurrogateRule | None = None
    monotonic_signs: npt.NDArray[np.float64] | None = None
    needs_exact_means: bool = False

    @cached_property
    def row_major_codes(self) -> npt.NDArray[Any] | None:
        """The table's codes in row-major order; see `treekit.kernels.node_statistics`."""
        return copy_row_major(self.table.codes) if self.table.codes.size else None

    @cached_property
    def records(self) -> RecordTable | None:
        """The table's rows as records, to move during growth; None: row numbers move.

        Records are plain if every split is a cut that is scored in a batch: columns are numeric
        and unconstrained, nodes have 2 to 32 statistics, and no rule of the criterion or of the
        settings makes scores of different columns incomparable.
        """
        codes, target, pointers = self.table.codes, self.target, self.criterion.pointers
        if (
            not self.splitter.uses_records
            or self.fractional
            or self.surrogates is not None
            or not target.is_additive
            or codes.dtype != np.uint8
            or not codes.size
            or not (target.is_dense or target.size <= np.iinfo(codes.dtype).max)
        ):
            return None
        # Bytes of the table, and of one tree with its working memory on each processor.
        record_bytes = count_record_bytes(len(codes), target.values.shape[1])
        if not may_use(codes.shape[1] * record_bytes * (1 + 2 * (os.cpu_count() or 1))):
            return None
        is_plain = (
            2 <= target.size <= MAX_LANES
            and not (pointers.use_choose or pointers.use_penalty)
            and self.criterion.functions.extras.tolerance == 0.0
            and self.split_rules.resolution == self.split_rules.min_side_share == 0.0
            and self.monotonic_signs is None
            and bool((self.table.nominal == 0).all())
        )
        return make_record_table(codes, is_plain)

    def prepare(self) -> None:
        """Compute the properties that all trees share, before threads need them."""
        if self.records is None:
            _ = self.row_major_codes
        if self.records is None or not self.records.is_plain:
            _ = self.splitter.find
        if self.splitter.coding == "histogram":
            _ = self.bin_thresholds

    @cached_property
    def bin_thresholds(self) -> npt.NDArray[np.float64]:
        """Thresholds between neighbouring codes; see `treekit.grow.cut_thresholds`."""
        return place_all_cuts(self.table, self.dtype, self.split_rules)


@dataclass(frozen=True)
class GrownTree:
    """A tree with the statistics needed by pruners and out-of-bag scores.

    Attributes
    ----------
    tree : Tree
    stats, held_stats : (nodes, S) float64
        Statistics of training and of held-out rows at each node.
    said : (nodes, S) float64
        Statistics that node values are computed from: those of the node's training
        rows, or of its parent if it has none, clipped to monotonic constraints.
    held_ids : (entries,) uint32
        Held-out row numbers in leaf order; one entry for each leaf that a row
        reaches, several only for fractional instances.
    held_leaf : (entries,) int64
        The leaf node that each of `held_ids` reaches.
    held_values : (entries, 1) or (entries, S) float64
        Weight, or dense statistics, of the part of the row that reaches the leaf.
    held_share : (entries,) float64, or None
        Share of the row that reaches the leaf; the shares of a row add up to 1.  None
        without fractional instances.
    rows : Rows
        The complete training rows, in any order.
    """

    tree: Tree
    stats: npt.NDArray[np.float64]
    said: npt.NDArray[np.float64]
    held_stats: npt.NDArray[np.float64]
    held_ids: npt.NDArray[np.uint32]
    held_leaf: npt.NDArray[np.int64]
    held_values: npt.NDArray[np.float64]
    rows: Rows
    held_share: npt.NDArray[np.float64] | None = None
