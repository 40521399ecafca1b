"""Splitters that each violate one law."""

import numpy as np

from treekit import Setting, Splitter, SplitterFunctions
from treekit.splitting import (
    branch_stats,
    code_range,
    draw_features,
    heavy_enough,
    level_split,
    missing_to,
    scored,
    threshold_split,
)


def proposed(node, feature, low, high):
    """A cut in the middle, or the lowest level present against the rest."""
    if node.table.nominal[feature] == 0:
        return threshold_split(feature, (low + high - 1) // 2)
    levels = np.full(node.table.n_codes[feature], -1, np.int32)
    for i in range(len(node.rows.ids)):
        level = node.table.codes[feature][node.rows.ids[i]]
        if level < node.table.n_codes[feature]:
            levels[level] = 0 if level == low else 1
    return level_split(feature, levels, 2)


def search(node, criterion, rng, *, most=None, heavy=heavy_enough, propose=proposed):
    found, best, tried = None, 0.0, 0
    for feature in draw_features(node, rng):
        low, high, _ = code_range(node, feature)
        if low >= high or tried == (most or node.n_try):
            continue
        tried += 1
        split = missing_to(propose(node, feature, low, high), high % 2)
        children = branch_stats(node, split)
        if heavy(node, children):
            score = criterion.score(node.stats, children)
            if score > best:
                best, found = score, scored(split, score)
    return found


def raises_for_missing(node, criterion, rng):
    if (node.table.codes[1][node.rows.ids] == node.table.n_codes[1]).any():
        raise IndexError("a value is missing")
    return search(node, criterion, rng)


def sorts_rows(node, criterion, rng):
    node.rows.ids[:] = node.rows.ids[::-1].copy()
    return search(node, criterion, rng)


def returns_a_tuple(node, criterion, rng):
    found = search(node, criterion, rng)
    return None if found is None else (found.feature, found.cut)


def nan(node, criterion, rng):
    found = search(node, criterion, rng)
    return None if found is None else scored(found, np.nan)


hidden = np.random.default_rng(0)


def hidden_generator(node, criterion, rng):
    return search(node, criterion, hidden, most=1)


def cuts_levels(node, criterion, rng):
    def propose(node, feature, low, high):
        return threshold_split(feature, low)

    return search(node, criterion, rng, propose=propose)


def threshold_beyond_node(node, criterion, rng):
    def propose(node, feature, low, high):
        split = proposed(node, feature, low, high)
        if split.kind != 1:
            return split
        at = node.table.value_start[feature] + split.cut
        return threshold_split(feature, split.cut, node.table.low[at + 1])

    return search(node, criterion, rng, propose=propose)


def spare_branch(node, criterion, rng):
    def propose(node, feature, low, high):
        split = proposed(node, feature, low, high)
        return split if split.kind == 1 else level_split(feature, split.levels, 3)

    return search(node, criterion, rng, propose=propose)


def ignores_minimum_weight(node, criterion, rng):
    def not_empty(node, children):
        return children.shape[0] == 2 and (children.sum(axis=1) > 0.0).all()

    return search(node, criterion, rng, heavy=not_empty)


def by_first_row(node, criterion, rng):
    cells, ids = node.table.codes[0], node.rows.ids
    return search(node, criterion, rng) if cells[ids[0]] <= cells[ids[-1]] else None


def by_number_of_rows(node, criterion, rng):
    return search(node, criterion, rng) if len(node.rows.ids) > 5 else None


def ignores_minimum_weight_below_root(node, criterion, rng):
    def heavy(node, children):
        return node.depth > 0 or heavy_enough(node, children)

    return search(node, criterion, rng, heavy=heavy)


def doubled_score(node, criterion, rng):
    found = search(node, criterion, rng)
    return None if found is None else scored(found, 2.0 * found.score)


def ignores_max_features(node, criterion, rng):
    return search(node, criterion, rng, most=len(node.table.n_codes))


def finds_nothing(node, criterion, rng):
    return None


def make_with_share(share):
    """Fails where a share of the columns is asked for that is none."""
    most = int(1.0 / share)
    assert most >= 1
    return SplitterFunctions(search)


def splitter(find, **options):
    return Splitter(find.__name__, lambda: SplitterFunctions(find), **options)


BROKEN = {
    "answers-every-node": splitter(raises_for_missing),
    "inputs-are-not-written": splitter(sorts_rows),
    "returns-a-split-or-none": splitter(returns_a_tuple),
    "finite-values": splitter(nan),
    "reproducible-by-its-rng": splitter(hidden_generator),
    "split-fits-its-column": splitter(cuts_levels),
    "threshold-lies-in-the-node": splitter(threshold_beyond_node),
    "no-branch-is-empty": splitter(spare_branch),
    "min-weight-leaf-is-obeyed": splitter(ignores_minimum_weight),
    "claimed-score-is-the-criterion-s": splitter(doubled_score),
    "max-features-is-obeyed": splitter(ignores_max_features),
    "finds-what-separates": splitter(finds_nothing),
    "settings-work-at-their-bounds": Splitter(
        "shares",
        make_with_share,
        (Setting("share", 0.5, "of the columns", minimum=0.0, maximum=1.0),),
    ),
}
"""One splitter for each law, which breaks that law and no other."""

FURTHER = (
    ("permuting-rows-changes-nothing", splitter(by_first_row)),
    ("integer-weights-equal-repeated-rows", splitter(by_number_of_rows)),
    ("min-weight-leaf-is-obeyed", splitter(ignores_minimum_weight_below_root)),
)
"""Laws that only trees show to be broken, and splitters that break them."""
