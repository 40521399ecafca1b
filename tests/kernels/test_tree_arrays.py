"""Fields of grown nodes, as the kernel writes them to the arrays of a tree."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from treekit.kernels.grow_tree import (
    N_BY_CATEGORY,
    N_EMPTY,
    N_NODE_COUNTS,
    N_OBLIQUE,
    NODE_DTYPE,
    allocate_tree_arrays,
    write_tree_arrays,
)
from treekit.kernels.oblique_splits import OBLIQUE
from treekit.kernels.records import MULTIWAY, SUBSET, THRESHOLD
from treekit.model.fixed_point import floor_to_dtype


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20), st.booleans())
@example([0.1, -0.1, -0.0, 1e39, -1e39, 1e-46, -1e-46], True)
def test_own_thresholds_are_rounded_down_to_the_type_of_the_model(
    thresholds: list[float], single: bool
) -> None:
    nodes = np.zeros(len(thresholds), NODE_DTYPE)
    nodes["kind"], nodes["threshold"] = THRESHOLD, thresholds
    arrays, counts = allocate_tree_arrays(len(nodes)), np.empty(N_NODE_COUNTS, np.int64)
    write_tree_arrays(nodes, np.zeros(1, np.int64), np.empty(0), single, arrays, counts)
    expected = floor_to_dtype(thresholds, "float32" if single else "float64")
    assert arrays.threshold.tobytes() == expected.tobytes()


def test_node_fields_are_written_and_counted_by_kind() -> None:
    nodes = np.zeros(5, NODE_DTYPE)
    nodes["kind"] = [THRESHOLD, SUBSET, OBLIQUE, MULTIWAY, 0]
    nodes["feature"], nodes["cut"] = 1, 2
    nodes["threshold"] = [np.nan, 0.0, 7.5, 0.0, 0.0]
    nodes["weight"] = [4.0, 3.0, 1.0, 0.0, 0.0]
    nodes["first_child"], nodes["gain"] = 9, 0.5
    arrays, counts = allocate_tree_arrays(5), np.empty(N_NODE_COUNTS, np.int64)
    starts, cuts = np.array([0, 4], np.int64), np.arange(10.0)
    write_tree_arrays(nodes, starts, cuts, False, arrays, counts)
    np.testing.assert_array_equal(arrays.threshold, [6.0, np.nan, 7.5, np.nan, np.nan])
    assert arrays.feature.tolist() == [1, 1, 1, 1, -1]
    assert arrays.first_child.tolist() == [9, 9, 9, 9, -1]
    assert arrays.gain.tolist() == [0.5, 0.5, 0.5, 0.5, 0.0]
    assert counts[[N_BY_CATEGORY, N_OBLIQUE, N_EMPTY]].tolist() == [2, 1, 2]
    write_tree_arrays(nodes, starts, np.empty(0), False, arrays, counts)
    assert np.isnan(arrays.threshold[0])
