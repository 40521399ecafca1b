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
from treekit.verify.probe_values import around_thresholds, random_rows
from treekit.verify.probes import refused_rows

__all__ = [
    "Sample",
    "deepest",
    "hostile",
    "hostile_alone",
    "made",
    "probe_rows",
    "samples",
    "simplest",
]


# ---------------------------------------------------------------- models


@dataclass(frozen=True)
class Sample:
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


def made(schema: Schema, *roots: Node, **policies: Any) -> Model:
    """Make the model of trees given by their roots, with some settings and provenance."""
    metadata: dict[str, Any] = {"settings": {"max_depth": 9}, "provenance": {"rows": [12, 3]}}
    return make_model(schema, [build_tree(root, schema) for root in roots], **metadata, **policies)


def cut(at: float = 0.1, missing: int = 1, column: str = "size") -> Node:
    """Make a threshold split with two leaves of two classes."""
    at = float(np.float32(at))
    return threshold(column, at, leaf([3.0, 1.0]), leaf([1.0, 4.0]), missing)


def simplest() -> Sample:
    """Return a threshold on a number."""
    return Sample("a threshold", made(YES_NO, cut()))


def samples() -> Iterator[Sample]:
    """Yield all models but the hostile and deepest ones, made anew as exporters may change them."""
    for part in (_questions(), _policies(), _answers(), _forests()):
        for what, model in part:
            yield Sample(what, model)


def _questions() -> Iterator[tuple[str, Model]]:
    """Yield models with every kind of split, for two classes."""
    few, many, some = leaf([5.0, 0.0]), leaf([1.0, 6.0]), leaf([2.0, 3.0])
    yield "a threshold", simplest().model
    yield "a threshold, missing values to the left", made(YES_NO, cut(missing=0))
    yield "a single leaf", made(YES_NO, leaf([1.0, 2.0]))
    yield "a set of categories", made(YES_NO, subset("colour", ["red"], few, many, 0, ["blue"]))
    branches = {"blue": few, "red": many, "green": some}
    yield "a branch for each category", made(YES_NO, multiway("colour", branches))
    del branches["green"]
    yield "a category without a branch", made(YES_NO, multiway("colour", branches, missing=1))
    yield "a test for missing numbers", made(YES_NO, is_missing("size", few, many))
    yield "a test for missing categories", made(YES_NO, is_missing("colour", few, many))
    yield "an oblique split", made(YES_NO, oblique({"size": 0.5, "age": -1.25}, 0.3, few, many))
    surrogates = (Surrogate("colour", levels={"red": 0}), Surrogate("age", 2.5, below=1))
    with_surrogates = threshold("size", 0.5, few, many, 1, surrogates)
    yield "surrogates", made(YES_NO, with_surrogates, missing="surrogate")
    deeper = threshold("age", 7.0, subset("colour", ["red", "blue"], few, some), many, 0)
    tree = threshold("size", -1.5, deeper, multiway("colour", {"red": cut(), "green": few}))
    yield "several kinds of splits in one tree", made(YES_NO, tree)
    levels = tuple(f"town {i}" for i in range(300))
    towns = Schema((Column("void", "nominal"), Column("town", "nominal", levels)), classes=(0, 1))
    yield "300 categories", made(towns, subset(1, levels[::3], few, is_missing(0, some, many)))
    yield "a path of 120 splits", made(YES_NO, _spine(120))


def _policies() -> Iterator[tuple[str, Model]]:
    """Yield models with every policy for missing and unseen values."""
    tree = subset("colour", ["red"], cut(), threshold("age", 2.0, leaf([0.0, 1.0]), cut(3.5), 0))
    yield "missing values are an error", made(YES_NO, tree, missing="error")
    yield "unseen categories are an error", made(YES_NO, tree, unknown="error")
    yield "both are an error", made(YES_NO, tree, missing="error", unknown="error")
    yield "fractional instances at missing values", made(YES_NO, tree, missing="fractional")
    wide = Schema(COLUMNS, "y", classes=("no", "yes"), dtype="float64")
    at = 0.1 + 2.0**-40  # not a float32
    yield "inputs in double", made(wide, threshold("size", at, leaf([3.0, 1.0]), leaf([0.0, 1.0])))


def _answers() -> Iterator[tuple[str, Model]]:
    """Yield models with every kind of output."""
    three = [leaf([1.0, 0.0, 2.0]), leaf([0.0, 5.0, 1.0])]
    yield "three classes", made(THREE, threshold("size", 1.5, three[0], three[1]))
    for labels in ((False, True), (3, -7), (0.5, 1e300)):
        yield f"labels {labels}", made(Schema(COLUMNS, classes=labels), cut())
    costs = [[0, 1], [9, 0]]
    yield "costs", made(YES_NO, cut(), costs=np.array(costs, dtype=np.int64))
    numbers = threshold("size", 1.5, leaf(-0.3), threshold("age", 2.0, leaf(1e9), leaf(7.25)), 0)
    yield "a number", made(NUMBER, numbers)
    several = Schema(COLUMNS, "y", classes=("no", "yes"), more=(Output("z", ("a", "b", "c")),))
    votes = [leaf([1.0, 2.0, 0.0, 2.0, 1.0]), leaf([5.0, 0.0, 1.0, 1.0, 3.0])]
    yield "two labels", made(several, threshold("size", 1.5, votes[0], votes[1]))
    more = Schema(COLUMNS, "y", task="regression", more=(Output("z"), Output("w")))
    leaves = [leaf([1.0, -2.5, 1e-3]), leaf([0.1, 2.0, 3.0])]
    yield "three numbers", made(more, threshold("size", 1.5, leaves[0], leaves[1]))


def _forests() -> Iterator[tuple[str, Model]]:
    trees = [cut(), subset("colour", ["green"], cut(0.7, 0), cut(-3.0)), cut(2.5, column="age")]
    yield "a forest", made(YES_NO, *trees)
    yield "a forest of hard votes", made(YES_NO, *trees, voting="hard")
    numbers = [threshold("size", at, leaf(at / 3.0), leaf(1e6 * at)) for at in (0.5, 1.5, 2.5)]
    yield "a forest of numbers", made(NUMBER, *numbers)


def _spine(depth: int) -> Node:
    """Make a path of nested thresholds, each with a leaf as its other branch."""
    node = leaf([0.0, 1.0])
    for level in range(depth - 1, -1, -1):
        node = threshold("size", float(level), leaf([level + 1.0, 2.0]), node, level % 2)
    return node


def deepest() -> Sample:
    """Return a path of the maximum depth of a model."""
    return Sample(f"a path of {MAX_DEPTH:,} splits", made(YES_NO, _spine(MAX_DEPTH)))


def hostile() -> tuple[Sample, Sample]:
    """Return a model whose names and texts look like parts of a program, and a harmless twin."""
    harmless = (f"name{i}" for i in range(len(HOSTILE_NAMES)))
    return (
        Sample("names that look like parts of a program", _called(*HOSTILE_NAMES)),
        Sample("harmless names", _called(*harmless)),
    )


def hostile_alone() -> Iterator[Sample]:
    """Yield models with one such name each, and with texts that few languages can represent."""
    for name in (*HOSTILE_NAMES, *_UNSPEAKABLE):
        yield Sample(f"names like {name!r}", _called(name))


def _called(*names: str) -> Model:
    levels = (*names, "plain")
    columns = (*map(Column, names), Column(f"{names[0]} too", "nominal", levels))
    schema = Schema(columns, f"target {names[0]}", classes=(*names, "other"))
    first, last = ([float(k == i) for k in range(schema.n_values)] for i in (0, len(names)))
    last_split = threshold(len(names) - 1, 0.5, leaf(first), leaf(last))
    return made(schema, subset(len(names), [levels[0]], last_split, leaf(last), missing=0))


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
_UNSPEAKABLE = ("nul\0", "half \ud800")


# ---------------------------------------------------------------- rows
# Rows that show differences of predictions: around thresholds, missing, unseen.

_MOST = 400
"""Maximum number of rows for one column."""


def probe_rows(model: Model, seed: int = 0) -> tuple[npt.NDArray[np.float64], int]:
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
    pools = [_thresholds(model, f) for f in range(model.schema.n_features)]
    parts = [random_rows(model, pools, 60, rng)]
    for f, pool in enumerate(pools):
        values = _values(model, f, pool)
        part = random_rows(model, pools, len(values), rng)
        part[:, f] = values
        parts.append(part if len(part) <= _MOST else part[rng.permutation(len(part))[:_MOST]])
    rows = np.concatenate(parts)
    refused = refused_rows(model, rows, rng)
    return np.concatenate([rows, refused]), len(refused)


def _thresholds(model: Model, feature: int) -> npt.NDArray[np.float64]:
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


def _values(model: Model, f: int, pool: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the values to test of one column, each repeated for three rows."""
    column = model.schema.columns[f]
    if column.kind == "nominal":
        return np.repeat(np.arange(float(len(column.levels))), 3)
    values = around_thresholds(pool, model.schema.dtype).ravel()
    return np.repeat(values[~np.isnan(values)], 3)
