"""Small models of every kind, to test an exporter.

They are in ascending size, so that the first that breaks a law is the smallest example.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Output, Schema
from treekit.model.builder import (
    Node,
    Surrogate,
    build_tree,
    is_missing,
    leaf,
    multiway,
    oblique,
    subset,
    threshold,
)
from treekit.model.model import Model, make_model
from treekit.model.tree import MAX_DEPTH, Split
from treekit.verify.probe_values import draw_random_rows, list_values_around
from treekit.verify.probes import make_refused_rows

# ---------------------------------------------------------------- models


@dataclass(frozen=True)
class SampleModel:
    """A model and its description: ``"a threshold"``."""

    what: str
    model: Model


SIZE, COLOUR, AGE = (
    Column("size"),
    Column("colour", "nominal", ("red", "green", "blue")),
    Column("age"),
)
COLUMNS = (SIZE, COLOUR, AGE)
YES_NO = Schema(COLUMNS, "y", classes=("no", "yes"))
THREE = Schema(COLUMNS, "y", classes=("a", "b", "c"))
NUMBER = Schema(COLUMNS, "y", task="regression")
"""Schema of models for regression."""


def make_example_model(schema: Schema, *roots: Node, **policies: Any) -> Model:
    """Make the model of trees given by their roots, with some settings and provenance."""
    metadata: dict[str, Any] = {"settings": {"max_depth": 9}, "provenance": {"rows": [12, 3]}}
    return make_model(schema, [build_tree(root, schema) for root in roots], **metadata, **policies)


def make_cut(at: float = 0.1, missing: int = 1, column: str = "size") -> Node:
    """Make a threshold split with two leaves of two classes."""
    at = float(np.float32(at))
    return threshold(column, at, leaf([3.0, 1.0]), leaf([1.0, 4.0]), missing)


def make_simplest() -> SampleModel:
    """Return a threshold on a number."""
    return SampleModel("a threshold", make_example_model(YES_NO, make_cut()))


def iter_samples() -> Iterator[SampleModel]:
    """Yield all models but the hostile and deepest ones, made anew as exporters may change them."""
    for part in (
        _iter_split_models(),
        _iter_policy_models(),
        _iter_output_models(),
        _iter_forest_models(),
    ):
        for what, model in part:
            yield SampleModel(what, model)


def _iter_split_models() -> Iterator[tuple[str, Model]]:
    """Yield models with every kind of split, for two classes."""
    few, many, some = leaf([5.0, 0.0]), leaf([1.0, 6.0]), leaf([2.0, 3.0])
    yield "a threshold", make_simplest().model
    yield "a threshold, missing values to the left", make_example_model(YES_NO, make_cut(missing=0))
    yield "a single leaf", make_example_model(YES_NO, leaf([1.0, 2.0]))
    yield (
        "a set of categories",
        make_example_model(YES_NO, subset("colour", ["red"], few, many, 0, ["blue"])),
    )
    branches = {"blue": few, "red": many, "green": some}
    yield "a branch for each category", make_example_model(YES_NO, multiway("colour", branches))
    del branches["green"]
    yield (
        "a category without a branch",
        make_example_model(YES_NO, multiway("colour", branches, missing=1)),
    )
    yield "a test for missing numbers", make_example_model(YES_NO, is_missing("size", few, many))
    yield (
        "a test for missing categories",
        make_example_model(YES_NO, is_missing("colour", few, many)),
    )
    yield (
        "an oblique split",
        make_example_model(YES_NO, oblique({"size": 0.5, "age": -1.25}, 0.3, few, many)),
    )
    surrogates = (Surrogate("colour", levels={"red": 0}), Surrogate("age", 2.5, below=1))
    with_surrogates = threshold("size", 0.5, few, many, 1, surrogates)
    yield "surrogates", make_example_model(YES_NO, with_surrogates, missing="surrogate")
    deeper = threshold("age", 7.0, subset("colour", ["red", "blue"], few, some), many, 0)
    tree = threshold("size", -1.5, deeper, multiway("colour", {"red": make_cut(), "green": few}))
    yield "several kinds of splits in one tree", make_example_model(YES_NO, tree)
    levels = tuple(f"town {i}" for i in range(300))
    towns = Schema((Column("void", "nominal"), Column("town", "nominal", levels)), classes=(0, 1))
    yield (
        "300 categories",
        make_example_model(towns, subset(1, levels[::3], few, is_missing(0, some, many))),
    )
    yield "a path of 120 splits", make_example_model(YES_NO, _make_path(120))


def _iter_policy_models() -> Iterator[tuple[str, Model]]:
    """Yield models with every policy for missing and unseen values."""
    tree = subset(
        "colour", ["red"], make_cut(), threshold("age", 2.0, leaf([0.0, 1.0]), make_cut(3.5), 0)
    )
    yield "missing values are an error", make_example_model(YES_NO, tree, missing="error")
    yield "unseen categories are an error", make_example_model(YES_NO, tree, unknown="error")
    yield "both are an error", make_example_model(YES_NO, tree, missing="error", unknown="error")
    yield (
        "fractional instances at missing values",
        make_example_model(YES_NO, tree, missing="fractional"),
    )
    wide = Schema(COLUMNS, "y", classes=("no", "yes"), dtype="float64")
    at = 0.1 + 2.0**-40  # not a float32
    yield (
        "inputs in double",
        make_example_model(wide, threshold("size", at, leaf([3.0, 1.0]), leaf([0.0, 1.0]))),
    )


def _iter_output_models() -> Iterator[tuple[str, Model]]:
    """Yield models with every kind of output."""
    three = [leaf([1.0, 0.0, 2.0]), leaf([0.0, 5.0, 1.0])]
    yield "three classes", make_example_model(THREE, threshold("size", 1.5, three[0], three[1]))
    for labels in ((False, True), (3, -7), (0.5, 1e300)):
        yield f"labels {labels}", make_example_model(Schema(COLUMNS, classes=labels), make_cut())
    costs = [[0, 1], [9, 0]]
    yield "costs", make_example_model(YES_NO, make_cut(), costs=np.array(costs, dtype=np.int64))
    numbers = threshold("size", 1.5, leaf(-0.3), threshold("age", 2.0, leaf(1e9), leaf(7.25)), 0)
    yield "a number", make_example_model(NUMBER, numbers)
    several = Schema(COLUMNS, "y", classes=("no", "yes"), more=(Output("z", ("a", "b", "c")),))
    votes = [leaf([1.0, 2.0, 0.0, 2.0, 1.0]), leaf([5.0, 0.0, 1.0, 1.0, 3.0])]
    yield "two labels", make_example_model(several, threshold("size", 1.5, votes[0], votes[1]))
    more = Schema(COLUMNS, "y", task="regression", more=(Output("z"), Output("w")))
    leaves = [leaf([1.0, -2.5, 1e-3]), leaf([0.1, 2.0, 3.0])]
    yield "three numbers", make_example_model(more, threshold("size", 1.5, leaves[0], leaves[1]))


def _iter_forest_models() -> Iterator[tuple[str, Model]]:
    trees = [
        make_cut(),
        subset("colour", ["green"], make_cut(0.7, 0), make_cut(-3.0)),
        make_cut(2.5, column="age"),
    ]
    yield "a forest", make_example_model(YES_NO, *trees)
    yield "a forest of hard votes", make_example_model(YES_NO, *trees, voting="hard")
    numbers = [threshold("size", at, leaf(at / 3.0), leaf(1e6 * at)) for at in (0.5, 1.5, 2.5)]
    yield "a forest of numbers", make_example_model(NUMBER, *numbers)


def _make_path(depth: int) -> Node:
    """Make a path of nested thresholds, each with a leaf as its other branch."""
    node = leaf([0.0, 1.0])
    for level in range(depth - 1, -1, -1):
        node = threshold("size", float(level), leaf([level + 1.0, 2.0]), node, level % 2)
    return node


def make_deepest() -> SampleModel:
    """Return a path of the maximum depth of a model."""
    return SampleModel(
        f"a path of {MAX_DEPTH:,} splits", make_example_model(YES_NO, _make_path(MAX_DEPTH))
    )


def make_hostile() -> tuple[SampleModel, SampleModel]:
    """Return a model whose names and texts look like parts of a program, and a harmless twin."""
    harmless = (f"name{i}" for i in range(len(HOSTILE_NAMES)))
    return (
        SampleModel("names that look like parts of a program", _make_named_model(*HOSTILE_NAMES)),
        SampleModel("harmless names", _make_named_model(*harmless)),
    )


def iter_hostile_alone() -> Iterator[SampleModel]:
    """Yield models with one hostile name each, and with texts that few languages support."""
    for name in (*HOSTILE_NAMES, *_UNREPRESENTABLE):
        yield SampleModel(f"names like {name!r}", _make_named_model(name))


def _make_named_model(*names: str) -> Model:
    levels = (*names, "plain")
    columns = (*map(Column, names), Column(f"{names[0]} too", "nominal", levels))
    schema = Schema(columns, f"target {names[0]}", classes=(*names, "other"))
    first, last = ([float(k == i) for k in range(schema.n_values)] for i in (0, len(names)))
    last_split = threshold(len(names) - 1, 0.5, leaf(first), leaf(last))
    return make_example_model(
        schema, subset(len(names), [levels[0]], last_split, leaf(last), missing=0)
    )


HOSTILE_NAMES = (
    *(
        'a"b',
        "a'b",
        "back\\",
        "line\nbreak",
        "return\r",
        "// comment \\",
        "*/ end",
        "??/",
        "%d {} $x",
    ),
    *(
        "{{ x }}",
        "{% raw %}",
        "<b>&amp;",
        "-->",
        "\u202eright",
        "é 行 😀",
        "class",
        "",
        " ",
        "0",
        "x",
    ),
)
_UNREPRESENTABLE = ("nul\0", "half \ud800")


# ---------------------------------------------------------------- rows
# Rows that show differences of predictions: around thresholds, missing, unseen.

_MAX_ROWS = 400
"""Maximum number of rows for one column."""


def make_probe_rows(model: Model, seed: int = 0) -> tuple[npt.NDArray[np.float64], int]:
    """Make rows of numbers and codes, the last of which the policies refuse.

    Parameters
    ----------
    model : Model
    seed : int
        Seed of the other columns' values, and of additional random rows.

    Returns
    -------
    rows : (rows, features) float64
        Numbers around each threshold, each category, and missing and unseen
        values where the model accepts them.
    refused : int
        Number of rows at the end that the model refuses.
    """
    rng = np.random.default_rng(seed)
    pools = [_list_thresholds(model, f) for f in range(model.schema.n_features)]
    parts = [draw_random_rows(model, pools, 60, rng)]
    for f, pool in enumerate(pools):
        values = _list_values(model, f, pool)
        part = draw_random_rows(model, pools, len(values), rng)
        part[:, f] = values
        parts.append(
            part if len(part) <= _MAX_ROWS else part[rng.permutation(len(part))[:_MAX_ROWS]]
        )
    rows = np.concatenate(parts)
    refused = make_refused_rows(model, rows, rng)
    return np.concatenate([rows, refused]), len(refused)


def _list_thresholds(model: Model, feature: int) -> npt.NDArray[np.float64]:
    """Return the thresholds of a column, (thresholds,) float64, ascending."""
    found = [
        threshold[is_tested & (features == feature)]
        for tree in model.trees
        for threshold, is_tested, features in (
            (tree.threshold, tree.kind == Split.THRESHOLD, tree.feature),
            (tree.surrogate_threshold, ~np.isnan(tree.surrogate_threshold), tree.surrogate_feature),
        )
    ]
    return np.unique(np.concatenate(found) + 0.0)


def _list_values(model: Model, f: int, pool: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the values to test of one column, each repeated for three rows."""
    column = model.schema.columns[f]
    if column.kind == "nominal":
        return np.repeat(np.arange(float(len(column.levels))), 3)
    values = list_values_around(pool, model.schema.dtype).ravel()
    return np.repeat(values[~np.isnan(values)], 3)
