"""Random numbers that depend on the seed, the tree, the path of a node and a row's contents.

No draw depends on the order of the rows or of growth, so that any division of the work into
rows, nodes or trees gives the same forest.  All numbers come from splitmix64 (Steele, Lea and
Flood 2014, *Fast splittable pseudorandom number generators*).
"""

from __future__ import annotations

import numpy as np

from treekit.kernels.compile import inlined, kernel


@inlined
def mix_bits(seed, at):
    """Return random integer number `at`, from 0, of the generator with this seed."""
    z = seed + (at + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def draw_integer(state):
    """Return the next random integer, uint64, of a generator whose state is (1,) uint64."""
    zero = np.uint64(0)
    number = mix_bits(state[zero], zero)
    state[zero] += np.uint64(0x9E3779B97F4A7C15)
    return number


@inlined
def draw_column(features, state, j):
    """Return column j of a random permutation (Fisher and Yates)."""
    z = draw_integer(state) >> np.uint64(32)
    pick = j + ((z * (np.uint64(len(features)) - j)) >> np.uint64(32))
    feature = features[pick]
    features[pick] = features[j]
    features[j] = feature
    return np.uint64(feature)


@inlined
def start_node_draws(scratch, seed, n_try):
    """Set the seed of a node and put its columns back into table order."""
    scratch.state[np.uint64(0)] = seed
    if n_try < len(scratch.features):
        for j in range(np.uint64(len(scratch.features))):
            scratch.features[j] = j


@kernel
def draw_bag(hashes, first, copies, parts, cumulative, seed, counts):
    """Draw how often each row is in the bag of a tree.

    A row of weight 2.3 has two whole copies and a part of one.  Each copy is drawn a
    Poisson-distributed number of times, which depends on the contents of the row, the number of
    the copy among equal ones, and the seed.  A draw of a part is kept with its probability.

    Parameters
    ----------
    hashes : (rows,) uint64
        Hash of the contents of each row.
    first : (rows,) uint64
        Number of the row's first copy among the copies of equal rows.
    copies : (rows,) int64, or (0,) = 1 each
    parts : (rows,) uint64, or (0,) = none
        Part of a copy in addition, in units of 2**-64.
    cumulative : (k,) uint64
        Probabilities of at most 0, 1, ... draws, in units of 2**-64.
    seed : uint64
        Seed of the tree.
    counts : (rows,) float64
        Output.

    Returns
    -------
    int
        Sum of the counts.
    """
    total = np.int64(0)
    for i in range(np.uint64(len(hashes))):
        count = np.int64(0)
        whole = np.uint64(1)
        if len(copies) > 0:
            whole = np.uint64(copies[i])
        for k in range(whole):
            key = mix_bits(hashes[i], first[i] + k) ^ seed
            count += _count_draws(key, cumulative)
        if len(parts) > 0:
            if parts[i] > np.uint64(0):
                key = mix_bits(hashes[i], first[i] + whole) ^ seed
                for draw in range(np.uint64(_count_draws(key, cumulative))):
                    if mix_bits(key, draw + np.uint64(1)) < parts[i]:
                        count += 1
        counts[i] = count
        total += count
    return total


@inlined
def _count_draws(key, cumulative):
    """Return a Poisson-distributed number for a key."""
    number = mix_bits(key, np.uint64(0))
    count = np.int64(0)
    # Few draws are common and cannot be predicted: no branches for them.
    few = min(len(cumulative), 4)
    for k in range(np.uint64(few)):
        count += np.int64(number >= cumulative[k])
    if count == few:
        while count < len(cumulative) and number >= cumulative[np.uint64(count)]:
            count += 1
    return count
