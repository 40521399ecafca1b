"""Make rows to run artifacts on: one for each leaf, and rows at and beside each split's value.

A row of a split is taken from the box of a leaf below it (`treekit.verify.boxes`); only the cell
that the split tests is changed.  Random rows and rows that must be refused are added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treekit.errors import VerificationError
from treekit.model.model import Model
from treekit.model.tree import Split, expand_slices, take_slices
from treekit.rules.extract import is_rule_list
from treekit.verify.boxes import (
    Boxes,
    compute_sums,
    demand_leaves,
    demand_values,
    draw_index,
    draw_inside,
    draw_rows,
    draw_terms,
    find_all_ends,
    find_ends,
    find_flipped_ends,
    find_trees,
    free_column,
    intersect,
    make_boxes,
    move_to_edges,
    move_to_sum,
    replace_unknown,
    share_rows,
)
from treekit.verify.coverage import Coverage, Part
from treekit.verify.probe_values import (
    N_AROUND,
    UNSEEN_CODES,
    draw_random_rows,
    find_levels,
    find_next_above,
    list_values_around,
)

# ---------------------------------------------------------------- probes

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_MAX_CELLS = 1 << 27
"""Maximum number of cells of the constructed rows: 1 GiB."""
_CHUNK_CELLS = 1 << 24
_ATTEMPTS, _FEW_ATTEMPTS = 64, 12
"""Further rows tried at thresholds, and at others, until the prediction shows the branch."""
_USUAL_ROWS, _MAX_ROUNDS = 4_000, 8
"""Small models get several rows for each target, about this number in total."""


@dataclass(frozen=True)
class Probes:
    """Rows to run artifacts on, and what they reach of the model.

    Attributes
    ----------
    rows : (rows, features) float64
        Numbers, category codes (any other code is an unseen category), and NaN
        for missing; the model has a prediction for each of them.
    refused : (rows, features) float64
        Rows with a missing or unseen value that is an error in the model.
    coverage : Coverage
    """

    rows: Array
    refused: Array
    coverage: Coverage


def make_probes(model: Model, n_random: int, seed: int, max_rows: int) -> Probes:
    """Construct the probes of a model; the same seed makes the same ones.

    If more than `max_rows` are needed, a random sample of the splits and of their values gets rows.
    """
    if max_rows < 1 or n_random < 0:
        raise VerificationError(
            f"max_rows must be at least 1 and random_rows at least 0, got {max_rows} and {n_random}"
        )
    rng = np.random.default_rng(seed)
    boxes = make_boxes(model)
    if len(boxes.leaf):
        most = min(max_rows, max(_MAX_CELLS // model.schema.n_features, 1))
        spread = draw_random_rows(model, boxes.thresholds, n_random, rng)
        rows, coverage = _construct_rows(boxes, spread, most, rng)
        rows = np.concatenate([rows, spread])
    else:
        rows, coverage = np.empty((0, model.schema.n_features)), _make_coverage(boxes)
    return Probes(rows, make_refused_rows(model, rows, rng), coverage)


def _construct_rows(
    boxes: Boxes, spread: Array, most: int, rng: np.random.Generator
) -> tuple[Array, Coverage]:
    """Construct at most `most` rows besides the rows `spread`: for each target, leaf, and sum."""
    targets = list_targets(boxes)
    hit, found = _mark_hit(boxes, spread, targets, rng)
    rows, sums, end = make_sum_rows(boxes, rng)
    parts, ends, kept = [rows[:most]], [end[:most], found], [sums.take(np.arange(len(rows))[:most])]
    kept.append(targets.take(np.flatnonzero(hit)))
    order = np.flatnonzero(~hit)
    order = order if len(order) <= most else rng.permutation(order)
    while len(order) and (left := most - sum(map(len, parts))) > 0:
        size = min(_count_chunk_rows(boxes), left)
        if n_thresholds := int(np.count_nonzero(targets.kind[order] <= ABOVE)):
            size = min(size, n_thresholds)  # their rows reach most of the other targets
        chunk, order = targets.take(np.sort(order[:size])), order[size:]
        rows, end, other, state = _draw_until_shown(boxes, chunk, rng)
        good = np.flatnonzero(state > 0)
        kept.append(chunk.take(good))
        shared = _share_target_rows(boxes, rows[good], kept[-1], end[good], other[good], rng)
        parts.append(np.concatenate([move_to_edges(boxes, own, rng) for own in shared]))
        hit, found = _mark_hit(boxes, parts[-1], targets.take(order), rng)
        kept.append(targets.take(order[hit]))
        ends += [end[good], found]
        order = order[~hit]
    left = max(most - sum(map(len, parts)), 0)
    rows, end = _draw_in_missed_leaves(boxes, np.concatenate(ends), rng)
    cut = len(order) > 0 or len(rows) > left
    parts, ends = [*parts, rows[:left]], [*ends, end[:left]]
    fields: Any = (np.concatenate(field) for field in zip(*kept, strict=True))
    reached = Targets(*fields)
    coverage = _make_coverage(boxes, targets, reached, np.concatenate(ends), cut)
    rounds = min(_USUAL_ROWS, most) // max(sum(map(len, parts)), 1) - 1
    if not cut and rounds > 0:
        again = reached.take(np.flatnonzero(~_compares_sum(boxes, reached)))
        parts += [
            _draw_target_rows(boxes, _vary_values(boxes, again, number), rng)[0]
            for number in range(min(rounds, _MAX_ROUNDS))
        ]
    return np.concatenate(parts)[:most], coverage


def _count_chunk_rows(boxes: Boxes) -> int:
    """Return the number of rows that are constructed at once."""
    return max(_CHUNK_CELLS // boxes.row_cells, 1000)


def _share_target_rows(
    boxes: Boxes, rows: Array, targets: Targets, end: Index, other: Index, rng: np.random.Generator
) -> list[Array]:
    """Return fewer rows for the same targets, if trees allow it: in a forest a row serves several.

    Such a row is in the box of the leaf `end`, and, apart from the cell of its target, in
    that of the leaf `other`, so that its prediction still shows the branch.
    """
    if not boxes.exact or boxes.model.n_trees == 1:
        return [rows]
    some = np.flatnonzero(end >= 0)
    alone = np.setdiff1d(np.arange(len(rows)), some)
    column, value = targets.column[some], targets.value[some]
    besides = demand_leaves(boxes, other[some])
    free_column(boxes, besides, column)
    inside = demand_leaves(boxes, end[some])
    demand_values(boxes, inside, np.arange(len(some)), column, value)
    both, possible = intersect(boxes, inside, besides)
    rest = np.concatenate([alone, some[~possible]])
    return [rows[rest], draw_rows(boxes, share_rows(boxes, both.take(possible), rng), rng)]


_MAX_STEPS = 1 << 25
"""Nodes of decision paths that `_mark_hit` visits at most; of more rows it takes a sample."""


def _mark_hit(
    boxes: Boxes, rows: Array, targets: Targets, rng: np.random.Generator
) -> tuple[Mask, Index]:
    """Mark the targets of a forest that rows cover; also return the leaves that the rows reach.

    Targets are missing values and categories.  A row covers one if it has that value at the
    node and would get other leaf values by another branch.  None is marked for a single tree,
    or if the boxes are not `exact`.
    """
    hit = np.zeros(len(targets.node), dtype=np.bool_)
    if not boxes.exact or boxes.model.n_trees == 1 or not len(rows):
        return hit, np.empty(0, dtype=np.int64)
    depth = math.ceil(math.log2(len(boxes.leaf)) + 1)
    most = max(_MAX_STEPS // (boxes.model.n_trees * depth), 1)
    rows = rows if len(rows) <= most else rows[rng.permutation(len(rows))[:most]]
    coded = np.flatnonzero(targets.kind > ABOVE)
    ends = find_all_ends(boxes, rows)
    row = _find_hits(boxes, rows, ends, targets.take(coded))
    some = np.flatnonzero(row >= 0)
    node, units = targets.node[coded[some]], _get_leaf_units(boxes)
    end = ends[find_trees(boxes, node), row[some]]
    other = find_flipped_ends(boxes, rows[row[some]], node, rng)
    hit[coded[some]] = (other >= 0) & (units[end] != units[other]).any(axis=1)
    return hit, np.unique(ends)


def _find_hits(boxes: Boxes, rows: Array, ends: Index, targets: Targets) -> Index:
    """Return the index of a row that reaches the node of each target with its value, or -1.

    Targets are missing values and categories; `ends` are the leaves of the rows, (trees, rows).
    """
    schema, nodes = boxes.model.schema, boxes.nodes
    code = np.empty(
        rows.shape, dtype=np.int64
    )  # after the categories: unseen, or a number; then missing
    for f, column in enumerate(schema.columns):
        code[:, f] = find_levels(column, rows[:, f]) + np.isnan(rows[:, f])
    inner = nodes.n_children > 0
    parent = np.full(len(nodes.kind), -1)
    children = expand_slices(nodes.first_child[inner], nodes.n_children[inner])
    parent[children] = np.repeat(np.flatnonzero(inner), nodes.n_children[inner])
    feature = np.where(inner, nodes.feature, 0)
    sizes = np.where(inner, schema.n_levels[feature] + 2, 0)
    first_key = np.cumsum(sizes) - sizes
    found = np.full(int(sizes.sum()), -1)
    row = np.tile(np.arange(len(rows)), len(ends))
    node = parent[boxes.leaf[ends.ravel()]]
    while len(node):
        row, node = row[node >= 0], node[node >= 0]
        found[first_key[node] + code[row, feature[node]]] = row
        node = parent[node]
    value = np.where(targets.kind == MISSING, schema.n_levels[targets.column] + 1, targets.value)
    hits: Index = found[first_key[targets.node] + value.astype(np.int64)]
    return hits


def _get_leaf_units(boxes: Boxes) -> Index:
    """Return the units of each leaf that inputs can reach, (leaves, values) int64."""
    units: Index = boxes.model.units[np.cumsum(boxes.nodes.kind == Split.LEAF)[boxes.leaf] - 1]
    return units


def _draw_in_missed_leaves(
    boxes: Boxes, end: Index, rng: np.random.Generator
) -> tuple[Array, Index]:
    """Draw rows inside the leaves that are not in `end`; also return the leaves they reach."""
    missed = np.setdiff1d(np.arange(len(boxes.leaf)), end)
    if boxes.exact:
        return draw_rows(boxes, share_rows(boxes, demand_leaves(boxes, missed), rng), rng), missed
    rows, ends = [np.empty((0, boxes.model.schema.n_features))], [end[:0]]
    for _ in range(_FEW_ATTEMPTS):
        inside = draw_inside(boxes, missed, rng)
        found = find_ends(boxes, inside, find_trees(boxes, boxes.leaf[missed]))
        met = found == missed
        rows.append(inside[met])
        ends.append(missed[met])
        missed = missed[~met]
    return np.concatenate(rows), np.concatenate(ends)


# ---------------------------------------------------------------- targets

AT, ABOVE, LEVEL, MISSING, UNSEEN = range(5)
"""Kinds of targets."""


class Targets(NamedTuple):
    """Values that splits compare; each is to be the cell of a row that reaches the split.

    Attributes
    ----------
    node, test, kind : (targets,) int64
        `test` is one of the node, -1 if the node asks only whether a value is missing.
    column : (targets,) int64
    value : (targets,) float64
    """

    node: Index
    test: Index
    kind: Index
    column: Index
    value: Array

    def take(self, which: Index) -> Targets:
        """Return some of the targets."""
        fields: Any = (field[which] for field in self)
        return Targets(*fields)


def list_targets(boxes: Boxes) -> Targets:
    """List the values that splits compare, thresholds first; not those of sums."""
    tests, model = boxes.tests, boxes.model
    n_terms = np.diff(tests.term_start)
    first_term = np.append(tests.term_feature, 0)[tests.term_start[:-1]]
    column = np.where(n_terms > 0, first_term, tests.level_feature)
    single = np.flatnonzero((n_terms > 0) & ~find_sums(boxes))
    threshold = tests.threshold[single] + 0.0
    coded = np.flatnonzero(n_terms == 0)
    levels, starts = take_slices(tests.level_start, coded)
    of_level = np.repeat(coded, np.diff(starts))
    parts = [
        (single, AT, column[single], threshold),
        (single, ABOVE, column[single], find_next_above(threshold, model.schema.dtype)),
        (of_level, LEVEL, column[of_level], levels - tests.level_start[of_level]),
    ]
    absence = np.zeros(0, dtype=np.int64)
    if model.missing != "error":
        absence = np.flatnonzero(boxes.nodes.kind == Split.MISSING)
        last = np.zeros(len(n_terms), dtype=np.bool_)  # with the earlier ones, see _blank_earlier
        last[tests.test_start[1:] - 1] = True
        last |= boxes.nodes.kind[boxes.node_of_test] == Split.RULE  # every condition is tested
        known = np.flatnonzero(last & ~find_sums(boxes))
        parts.append((known, MISSING, column[known], np.full(len(known), np.nan)))
        parts.append(
            (
                np.full(len(absence), -1),
                MISSING,
                boxes.nodes.feature[absence],
                np.full(len(absence), np.nan),
            )
        )
        if _takes_unseen(model):
            parts.append((coded, UNSEEN, column[coded], model.schema.n_levels[column[coded]]))
    test = np.concatenate([part[0] for part in parts])
    node = np.append(boxes.node_of_test, -1)[test]
    node[test < 0] = absence
    kind = np.repeat([part[1] for part in parts], [len(part[0]) for part in parts])
    columns, values = (np.concatenate([part[k] for part in parts]) for k in (2, 3))
    found = Targets(node, test, kind, columns.astype(np.int64), values.astype(np.float64))
    return found.take(np.flatnonzero(boxes.count[node] > 0))


def _takes_unseen(model: Model) -> bool:
    """Return whether unseen categories are predicted, like missing values."""
    return model.unknown == "missing" and model.missing != "error"


def find_sums(boxes: Boxes) -> Mask:
    """Mark the tests that compare a sum, (tests,) bool."""
    tests = boxes.tests
    n_terms = np.diff(tests.term_start)
    weight = np.append(tests.term_weight, 1.0)[tests.term_start[:-1]]
    found: Mask = (n_terms > 1) | ((n_terms == 1) & (weight != 1.0))
    return found


def _compares_sum(boxes: Boxes, targets: Targets) -> Mask:
    """Mark the targets of sums."""
    found: Mask = np.append(find_sums(boxes), False)[targets.test]
    return found


Drawn = tuple[Array, Index, Index, Index]
"""Of each target: a row (features,), the place of its leaf, that of a leaf below another branch,
and a state: 0 = the row does not reach the node of its target, 1 = it does, 2 = the two leaves also
differ."""


def _draw_until_shown(boxes: Boxes, targets: Targets, rng: np.random.Generator) -> Drawn:
    """Draw rows until most of them show in the prediction which branch they take."""
    drawn = _draw_target_rows(boxes, targets, rng)
    state = drawn[-1]
    left = np.arange(len(state))
    for attempt in range(_ATTEMPTS):
        # Without sums and the like a row that does not reach the node proves that none does.
        left = left[state[left] == 1] if boxes.exact else left[state[left] < 2]
        left = left[(targets.kind[left] <= ABOVE) | (attempt < _FEW_ATTEMPTS)]
        if not len(left):
            break
        again = _draw_target_rows(boxes, targets.take(left), rng)
        better = again[-1] > state[left]
        for old, new in zip(drawn, again, strict=True):
            old[left[better]] = new[better]
    return drawn


def _draw_target_rows(boxes: Boxes, targets: Targets, rng: np.random.Generator) -> Drawn:
    """Draw a row for each target."""
    first, count = boxes.first[targets.node], boxes.count[targets.node]
    if is_rule_list(boxes.model):  # the rule itself is the first leaf
        count = np.minimum(count, 1)
    other = draw_index(first, count, rng)
    rows = draw_inside(boxes, other, rng)
    _blank_earlier(boxes, targets, rows)
    rows[np.arange(len(rows)), targets.column] = targets.value
    end, reached = _find_reached(boxes, targets, rows)
    some = np.flatnonzero(targets.kind <= ABOVE)
    beside = rows[some]  # on the other side of the threshold
    threshold = boxes.tests.threshold[targets.test[some]]
    above = find_next_above(threshold, boxes.model.schema.dtype)
    value = np.where(targets.kind[some] == AT, above, threshold)
    beside[np.arange(len(some)), targets.column[some]] = value
    other[some] = find_ends(boxes, beside, find_trees(boxes, targets.node[some]))
    if boxes.exact:
        some = np.flatnonzero(reached & (targets.kind > ABOVE))
        flipped = find_flipped_ends(boxes, rows[some], targets.node[some], rng)
        other[some] = np.where(flipped >= 0, flipped, end[some])
    units = _get_leaf_units(boxes)
    differs = (units[end] != units[other]).any(axis=1)
    return rows, end, other, reached.astype(np.int64) + (reached & differs)


def _find_reached(boxes: Boxes, targets: Targets, rows: Array) -> tuple[Index, Mask]:
    """Return the places of the rows' leaves, and whether the rows reach their targets' nodes."""
    end = find_ends(boxes, rows, find_trees(boxes, targets.node))
    first = boxes.first[targets.node]
    reached = (end >= first) & (end < first + boxes.count[targets.node])
    if boxes.model.missing == "fractional":  # a part of the row does, though not the largest
        reached |= (targets.kind == MISSING) | (targets.kind == UNSEEN)
    return end, reached


def _blank_earlier(boxes: Boxes, targets: Targets, rows: Array) -> None:
    """Remove the values that earlier tests of a split compare, so that a surrogate decides."""
    if boxes.model.missing != "surrogate":
        return
    tests = boxes.tests
    start = tests.test_start[tests.column[targets.node]]
    some = np.flatnonzero(targets.test > start)
    for k in range(int((targets.test - start).max(initial=0))):
        some = some[start[some] + k < targets.test[some]]
        test = start[some] + k
        coded = tests.level_feature[test] >= 0
        rows[some[coded], tests.level_feature[test[coded]]] = np.nan
        term, starts = take_slices(tests.term_start, test)
        rows[np.repeat(some, np.diff(starts)), tests.term_feature[term]] = np.nan


def _vary_values(boxes: Boxes, targets: Targets, number: int) -> Targets:
    """Replace numbers by others around the same thresholds, such as infinities and zeros."""
    value = targets.value.copy()
    for kind, column in ((AT, number), (ABOVE, number + N_AROUND // 2)):
        at = np.flatnonzero(targets.kind == kind)
        thresholds = boxes.tests.threshold[targets.test[at]]
        around = list_values_around(thresholds, boxes.model.schema.dtype)[:, column % N_AROUND]
        value[at] = np.where(np.isnan(around), value[at], around)
    return targets._replace(value=value)


# ---------------------------------------------------------------- sums

_SUM_TRIES, _LEAST_TRIES, _MOST_TRIES = 50_000, 60, 2_000
_NEAREST = 3
"""Rows kept for each term of a sum, on each side of the threshold and with an unknown sum."""


def make_sum_rows(boxes: Boxes, rng: np.random.Generator) -> tuple[Array, Targets, Index]:
    """Make rows whose sums are at the thresholds they are compared with, or just above, or unknown.

    Of many tries those are kept that reach the split and whose sum is nearest to the threshold,
    relative to one of its terms: the last bit of a weight shows where its term is large.  The
    third result is the places of their leaves.
    """
    tests = boxes.tests
    sums = np.flatnonzero(find_sums(boxes))
    sums = sums[boxes.count[boxes.node_of_test[sums]] > 0]
    tries = int(np.clip(_SUM_TRIES // max(len(sums), 1), _LEAST_TRIES, _MOST_TRIES))
    test = np.repeat(sums, tries)
    node = boxes.node_of_test[test]
    rows = draw_inside(boxes, draw_index(boxes.first[node], boxes.count[node], rng), rng)
    variants = _move_sums_to_thresholds(boxes, rows, test, rng)
    n = len(variants)
    test, rows = np.tile(test, n), np.concatenate(variants)
    total = compute_sums(boxes, test, rows)
    distance = np.abs(total - tests.threshold[test])
    kind = np.where(np.isnan(total), MISSING, np.where(total > tests.threshold[test], ABOVE, AT))
    column = tests.term_feature[tests.term_start[test]]
    targets = Targets(np.tile(node, n), test, kind, column, np.zeros(len(test)))
    order = np.argsort(targets.node, kind="stable")
    end = np.empty(len(order), dtype=np.int64)
    reached = np.empty(len(order), dtype=np.bool_)
    end[order], reached[order] = _find_reached(boxes, targets.take(order), rows[order])
    some, kept = np.flatnonzero(reached), []
    for k in range(int(np.diff(tests.term_start)[sums].max(initial=0))):
        term = np.minimum(tests.term_start[test[some]] + k, tests.term_start[test[some] + 1] - 1)
        part = tests.term_weight[term] * rows[some, tests.term_feature[term]]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(distance[some] == 0, 0.0, distance[some] / np.abs(part))
        group = (test[some] * (UNSEEN + 1) + kind[some]) * 2 + (part > 0)
        order = np.lexsort((ratio, group))
        place = np.arange(len(order)) - np.searchsorted(group[order], group[order])
        kept.append(some[order[place < _NEAREST]])
    chosen = np.unique(np.concatenate([some[:0], *kept]))
    return rows[chosen], targets.take(chosen), end[chosen]


def _move_sums_to_thresholds(
    boxes: Boxes, rows: Array, test: Index, rng: np.random.Generator
) -> list[Array]:
    """Return rows whose sums are about the thresholds, one step beside, and unknown."""
    tests, dtype = boxes.tests, boxes.model.schema.dtype
    with np.errstate(over="ignore", under="ignore"):
        rows = rows.astype(dtype).astype(np.float64)
    replace_unknown(boxes, rows, test, rng)
    term, fine = draw_terms(boxes, test, rng), draw_terms(boxes, test, rng)
    # A second number near zero, whose steps are finer, moves half of the sums still nearer.
    twice = np.flatnonzero((rng.random(len(test)) < 0.5) & (term != fine))
    rows[twice, tests.term_feature[fine[twice]]] = 0.0
    threshold = tests.threshold[test]
    aim = np.where(rng.random(len(test)) < 0.5, threshold, np.nextafter(threshold, np.inf))
    move_to_sum(boxes, rows, test, term, aim)
    moved = rows[twice]
    move_to_sum(boxes, moved, test[twice], fine[twice], aim[twice])
    rows[twice], term[twice] = moved, fine[twice]
    row, feature = np.arange(len(test)), tests.term_feature[term]
    variants = [rows]
    for towards in (np.inf, -np.inf):
        beside, numbers = rows.copy(), rows[row, feature].astype(dtype)
        with np.errstate(over="ignore", under="ignore"):
            beside[row, feature] = np.nextafter(numbers, np.array(towards, dtype))
        variants.append(beside)
    unknown = rows.copy()  # infinities may cancel each other
    every, starts = take_slices(tests.term_start, test)
    some = np.flatnonzero(rng.random(len(every)) < 0.6)
    values = [np.inf, -np.inf] + [np.nan] * (boxes.model.missing != "error")
    owner = np.repeat(row, np.diff(starts))[some]
    unknown[owner, tests.term_feature[every[some]]] = rng.choice(values, len(some))
    return [*variants, unknown]


# ---------------------------------------------------------------- coverage


def _make_coverage(
    boxes: Boxes,
    targets: Targets | None = None,
    reached: Targets | None = None,
    end: Index | None = None,
    cut: bool = False,
) -> Coverage:
    """Count what rows reach; by default there are none.

    Parameters
    ----------
    boxes : Boxes
    targets : Targets
        Of the whole model, without sums.
    reached : Targets
        Targets of rows that reach them.
    end : (rows,) int64
        Places of the leaves of the rows.
    cut : bool
        Whether rows were left out.
    """
    never = np.flatnonzero(boxes.count == 0)
    tree = find_trees(boxes, never)
    unreachable = tuple(zip(tree.tolist(), (never - boxes.roots[tree]).tolist(), strict=True))
    if targets is None or reached is None or end is None:
        return Coverage((), unreachable)
    leaf = np.zeros(len(boxes.leaf) + 1, dtype=np.bool_)
    leaf[end[end >= 0]] = True
    n_before = np.cumsum(np.append(0, leaf[:-1]))
    child = np.flatnonzero(boxes.count > 0)
    child = child[~np.isin(child, boxes.roots)]
    first = boxes.first[child]
    below = n_before[first + boxes.count[child]] > n_before[first]
    parts = [
        Part("branches of splits", int(below.sum()), len(child)),
        Part("leaves", int(leaf[:-1].sum()), len(boxes.leaf)),
    ]
    sums = np.flatnonzero(find_sums(boxes))
    sums = sums[boxes.count[boxes.node_of_test[sums]] > 0]
    for name, kinds in _PARTS.items():
        some = reached.take(np.flatnonzero(np.isin(reached.kind, kinds)))
        values = np.where(np.isnan(some.value), -1.0, some.value)
        n_reached = np.unique(np.stack([some.node, some.test, values]), axis=1).shape[1]
        total = n_reached
        if cut or not boxes.exact:  # what no row reaches may be impossible
            total = int(np.isin(targets.kind, kinds).sum()) + len(sums) * (
                kinds[0] in (AT, ABOVE, MISSING)
            )
        parts.append(Part(name, n_reached, total))
    return Coverage(tuple(parts), unreachable, ROWS_CUT if cut else "")


_PARTS = {
    "number at a threshold": (AT,),
    "number just above it": (ABOVE,),
    "missing value at a split": (MISSING,),
    "category at a split": (LEVEL,),
    "unseen category at a split": (UNSEEN,),
}
ROWS_CUT = "a sample of the splits got rows; raise max_rows"


# ---------------------------------------------------------------- bounds of rules

_VALUES_OF_INTERVAL = 5
"""Each bound and the number above it, and a missing value."""


def make_rule_rows(model: Model, max_rows: int, rng: np.random.Generator) -> tuple[Array, int, int]:
    """Make rows on and just beyond the bounds of rules, which have bounds of their own in a text.

    Returns
    -------
    rows : (rows, features) float64
        At most `max_rows`.
    probed, rules : int
        Number of rules with such rows, spread evenly over the model, and of all rules.
    """
    boxes = make_boxes(model)
    if is_rule_list(model):  # each condition occurs once in the text, as in code
        return np.empty((0, model.schema.n_features)), model.n_leaves, model.n_leaves
    chosen = _choose_leaves(boxes, max_rows)
    leaf, column, value, inside = _list_bounds(boxes, chosen)
    # One row has values inside of all bounds of its rule, or outside of one.
    inside &= boxes.exact
    number = np.where(inside, _count_within(leaf, column, inside), -1 - np.arange(len(leaf)))
    row_leaf, row = np.unique(np.stack([leaf, number]), axis=1, return_inverse=True)
    order = np.argsort(row, kind="stable")
    starts = np.searchsorted(row[order], np.arange(row_leaf.shape[1] + 1))
    rows, size = [np.empty((0, model.schema.n_features))], _count_chunk_rows(boxes)
    mixed = rng.permutation(row_leaf.shape[1])
    for first in range(0, len(mixed), size):
        part = mixed[first : first + size]
        demands = demand_leaves(boxes, row_leaf[0, part])
        at, ends = take_slices(starts, part)
        values, to = order[at], np.repeat(np.arange(len(part)), np.diff(ends))
        demand_values(boxes, demands, to, column[values], value[values])
        if boxes.exact:
            demands = share_rows(boxes, demands, rng)
        rows.append(draw_rows(boxes, demands, rng))
    n_left = int(np.count_nonzero(~chosen))
    return np.concatenate(rows), model.n_leaves - n_left, model.n_leaves


def _choose_leaves(boxes: Boxes, most: int) -> Mask:
    """Choose leaves, spread evenly over the model, whose rules have at most `most` values."""
    schema, table = boxes.model.schema, boxes.conditions
    at = np.flatnonzero(table.column < schema.n_features)
    leaf = np.searchsorted(boxes.offsets, at, side="right") - 1
    column = table.column[at]
    counts = np.where(schema.nominal[column], schema.n_levels[column] + 1, _VALUES_OF_INTERVAL)
    of_leaf = np.bincount(leaf, counts, len(boxes.leaf))
    step = max(math.ceil(of_leaf.sum() / most), 1)
    chosen = np.zeros(len(boxes.leaf), dtype=np.bool_)
    chosen[::step] = np.cumsum(of_leaf[::step]) <= most
    return chosen


def _list_bounds(boxes: Boxes, chosen: Mask) -> tuple[Index, Index, Array, Mask]:
    """List the values at bounds of rules: leaf, column, value, and whether it meets the rule."""
    model, table = boxes.model, boxes.conditions
    n_levels = model.schema.n_levels
    at = np.flatnonzero(table.column < model.schema.n_features)
    leaf = np.searchsorted(boxes.offsets, at, side="right") - 1
    column = table.column[at].astype(np.int64)
    at, leaf, column = (own[chosen[leaf]] for own in (at, leaf, column))
    parts = []
    if model.missing != "error":
        parts.append((np.arange(len(at)), np.full(len(at), np.nan), table.missing[at]))
    coded = np.flatnonzero(model.schema.nominal[column])
    owner = np.repeat(coded, n_levels[column[coded]])
    code = np.arange(len(owner)) - np.searchsorted(owner, owner)
    place = boxes.first_level[column[owner]] + code
    fits = demand_leaves(boxes, np.arange(len(boxes.leaf))).levels[leaf[owner], place]
    parts.append((owner, code.astype(np.float64), fits & table.known[at[owner]]))
    for bounds, upper in ((table.low[at], False), (table.high[at], True)):
        some = np.flatnonzero(np.isfinite(bounds))
        above = find_next_above(bounds[some], model.schema.dtype)
        known = table.known[at[some]]
        parts.append((some, bounds[some], known & upper))
        parts.append((some, above, known & (not upper)))
    which, value, inside = (np.concatenate(field) for field in zip(*parts, strict=True))
    return leaf[which], column[which], value, inside


def _count_within(leaf: Index, column: Index, chosen: Mask) -> Index:
    """Number the chosen values of each leaf and column from 0."""
    order = np.lexsort((~chosen, column, leaf))
    key = leaf[order] * (int(column.max(initial=0)) + 1) + column[order]
    number = np.empty(len(leaf), dtype=np.int64)
    number[order] = np.arange(len(leaf)) - np.searchsorted(key, key)
    return number


# ---------------------------------------------------------------- refused rows
# Rows with a missing or unseen value that is an error in the model and in every artifact.

_MAX_COLUMNS = 1000


def make_refused_rows(model: Model, accepted: Array, rng: np.random.Generator) -> Array:
    """Make rows that are errors in the model: copies of `accepted` with one cell replaced.

    Returns
    -------
    (rows, features) float64
        Empty if the model has a prediction for every row.
    """
    replacements: list[tuple[int, float]] = []
    for f, column in enumerate(model.schema.columns[:_MAX_COLUMNS]):
        if model.missing == "error":
            replacements.append((f, np.nan))
        if column.kind == "nominal" and "error" in (model.missing, model.unknown):
            sizes = [0, *([len(column.levels)] * (len(UNSEEN_CODES) - 1))]
            replacements += [(f, n + code) for n, code in zip(sizes, UNSEEN_CODES, strict=True)]
    rows = (
        accepted[rng.integers(len(accepted), size=len(replacements))]
        if len(accepted)
        else (np.zeros((len(replacements), model.schema.n_features)))
    )
    for row, (f, value) in zip(rows, replacements, strict=True):
        row[f] = value
    return rows
