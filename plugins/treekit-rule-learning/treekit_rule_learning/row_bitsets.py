"""Sets of rows as bits: their weights, and the removal of conditions from rules.

Bit ``r & 63`` of word ``r >> 6`` of a set is row r.
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import kernel, llvm_inlined
from treekit.kernels.function_pointers import count_bits, find_lowest_bit
from treekit.kernels.pruning import estimate_pessimistic_errors


@llvm_inlined
def _weigh_word(word, first, weights):
    """Return the weight of the rows of a word, the first of which is `first`; 1 each by default."""
    if len(weights) == 0:
        return float(count_bits(word))
    total = 0.0
    while word:
        total += weights[first + find_lowest_bit(word)]
        word &= word - np.uint64(1)
    return total


@kernel
def weigh_sets(sets, weights, sums):
    """Compute the weight of each set.

    Parameters
    ----------
    sets : (sets, words) uint64
    weights : (rows,) float64
        Empty: 1 each.
    sums : (sets,) float64
        Output.
    """
    for s in range(np.uint64(sets.shape[0])):
        total = 0.0
        for w in range(np.uint64(sets.shape[1])):
            total += _weigh_word(sets[s, w], w << np.uint64(6), weights)
        sums[s] = total


@kernel
def estimate_error_rate(covered, right, bound):
    """Estimate the pessimistic error rate of a rule from its coverage; 1 without rows."""
    if not covered > 0.0:
        return 1.0
    return estimate_pessimistic_errors(covered, max(covered - right, 0.0), bound) / covered


@kernel
def drop_conditions(met, node, end, label, classes, all_rows, weights, bound, remaining, rates):
    """Drop conditions of paths one by one, as long as the error rate does not increase.

    Each round drops the condition without which the rate is lowest, the first of equal
    ones.  It only looks at the rows that fail no condition or a single one: linear in
    the words of the remaining conditions.

    Parameters
    ----------
    met : (nodes, words) uint64
        Rows that meet the condition of the step to each node.
    node, end : (steps,) and (paths,) int64
        The nodes of each path, path after path, and the end of each path.
    label : (paths,) int64
    classes, all_rows : (classes, words) and (words,) uint64
        The rows of each class, and all rows.
    weights : (rows,) float64
        Empty: 1 each.
    bound : ErrorBound
        See `treekit.kernels.pruning`.
    remaining : (steps,) bool
        Output: which conditions remain.
    rates : (paths,) float64
        Output: pessimistic error rate of each path.
    """
    start, longest = np.int64(0), np.int64(0)
    for p in range(np.uint64(len(end))):
        longest = max(longest, end[p] - start)
        start = end[p]
    left = np.empty(longest, np.uint64)
    counts = np.empty((longest + 1, 2))
    start = np.int64(0)
    for p in range(np.uint64(len(end))):
        n = np.uint64(end[p] - start)
        for i in range(n):
            left[i] = np.uint64(start) + i
            remaining[left[i]] = True
        own = classes[np.uint64(label[p])]
        while True:
            _count_failing_rows(met, node, left[:n], own, all_rows, weights, counts)
            rate = estimate_error_rate(counts[n, 0], counts[n, 1], bound)
            least, at = np.inf, n
            for i in range(n):
                one = estimate_error_rate(
                    counts[n, 0] + counts[i, 0], counts[n, 1] + counts[i, 1], bound
                )
                if one < least:
                    least, at = one, i
            if not least <= rate:
                break
            remaining[left[at]] = False
            n -= np.uint64(1)
            for i in range(at, n):
                left[i] = left[i + np.uint64(1)]
        rates[p] = rate
        start = end[p]


@kernel
def _count_failing_rows(met, node, left, own, all_rows, weights, counts):
    """Count the rows that fail each of some conditions alone, and last those that fail none.

    Their weight, and that of their class: ``counts[:, 0]`` and ``counts[:, 1]``.
    """
    n = np.uint64(len(left))
    for i in range(n + np.uint64(1)):
        counts[i, 0] = counts[i, 1] = 0.0
    for w in range(np.uint64(len(all_rows))):
        failing, failing_twice, first = np.uint64(0), np.uint64(0), w << np.uint64(6)
        for i in range(n):
            fails = all_rows[w] & ~met[np.uint64(node[left[i]]), w]
            failing_twice |= failing & fails
            failing |= fails
        none, alone = all_rows[w] & ~failing, failing & ~failing_twice
        counts[n, 0] += _weigh_word(none, first, weights)
        counts[n, 1] += _weigh_word(none & own[w], first, weights)
        if alone:
            for i in range(n):
                fails = alone & ~met[np.uint64(node[left[i]]), w]
                if fails:
                    counts[i, 0] += _weigh_word(fails, first, weights)
                    counts[i, 1] += _weigh_word(fails & own[w], first, weights)
