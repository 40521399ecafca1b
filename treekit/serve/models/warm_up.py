"""Compile the kernels for serving ahead of time: ``python -m treekit.serve.models.warm_up``.

A container image built with it answers its first request within a second, and may be read-only;
see ``examples/deploy/Containerfile``.  ``NUMBA_CACHE_DIR`` is the cache folder of the machine
code; with ``NUMBA_CPU_NAME=generic`` it runs on any machine of the architecture (a forest of 100
trees is scored as fast as with native code).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from treekit.data.schema import Column, Dtype, Schema
from treekit.model.builder import Node, build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.serve.models.served_model import Served

_TREE_COUNTS = (1, 12)
_MANY_ROWS = 600
_BATCH_ROWS = (1, 2, _MANY_ROWS)


def compile_for_serving(dtypes: Sequence[Dtype] = ("float32", "float64")) -> int:
    """Predict with common kinds of models in several batch sizes; return the number of models."""
    count = 0
    for model in _make_models(dtypes):
        served = Served("m", "1", "", model)
        for rows in _BATCH_ROWS:
            reasons = served.explanation_outputs if rows < _MANY_ROWS else ()
            inputs = served.parse_inputs(served.make_sample_inputs(rows))
            served.compute_outputs(inputs, [*served.default_outputs, "leaf", *sorted(reasons)])
        model.explain({column.name: None for column in model.schema.columns})
        count += 1
    return count


def _make_models(dtypes: Sequence[Dtype]) -> Iterator[Model]:
    columns = (
        (Column("x"), Column("z")),
        (Column("x"), Column("colour", "nominal", ("a", "b", "c"))),
    )
    for dtype in dtypes:
        for taken in columns:
            for schema in (
                Schema(taken, classes=("n", "y"), dtype=dtype),
                Schema(taken, task="regression", dtype=dtype),
            ):
                for n_trees in _TREE_COUNTS:
                    yield make_model(schema, [build_tree(_make_node(schema), schema)] * n_trees)


def _make_node(schema: Schema) -> Node:
    """Build a tree that splits on each column."""
    low, high = ([1.0, 2.0], [3.0, 0.0]) if schema.classes else ([0.25], [0.75])
    below = threshold(0, 0.5, leaf(low), leaf(high), missing=1)
    if schema.nominal.any():
        return subset(1, ["a", "c"], below, leaf(high))
    return threshold(1, 1.5, below, leaf(high))


if __name__ == "__main__":
    sys.stderr.write(f"compiled for {compile_for_serving()} models\n")
