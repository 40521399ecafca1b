"""Small models of every kind, to test an exporter.

They are in ascending size, so that the first that breaks a law is the smallest example.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

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
from treekit.model.tree import MAX_DEPTH
from treekit.verify.probes import Probes, make_probes

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


make_yes_no = partial(make_example_model, YES_NO)


def make_cut(at: float = 0.1, missing: int = 1, column: str = "size") -> Node:
    """Make a threshold split with two leaves of two classes."""
    at = float(np.float32(at))
    return threshold(column, at, leaf([3.0, 1.0]), leaf([1.0, 4.0]), missing)


def iter_samples() -> Iterator[SampleModel]:
    """Yield all models but the hostile and deepest ones, made anew as exporters may change them."""
    for what, root in _make_split_roots().items():
        policies = {"missing": "surrogate"} if what == "surrogates" else {}
        yield SampleModel(what, make_yes_no(root, **policies))
    yield from _iter_policy_models()
    yield from _iter_output_models()
    yield from _iter_forest_models()


def _make_split_roots() -> dict[str, Node]:
    """Return trees with every kind of split, for two classes."""
    few, many, some = leaf([5.0, 0.0]), leaf([1.0, 6.0]), leaf([2.0, 3.0])
    two = {"blue": few, "red": many}
    surrogates = (Surrogate("colour", levels={"red": 0}), Surrogate("age", 2.5, below=1))
    deeper = threshold("age", 7.0, subset("colour", ["red", "blue"], few, some), many, 0)
    third = multiway("colour", {"red": make_cut(), "green": few})
    return {
        "a threshold": make_cut(),
        "a threshold, missing values to the left": make_cut(missing=0),
        "a single leaf": leaf([1.0, 2.0]),
        "a set of categories": subset("colour", ["red"], few, many, 0, ["blue"]),
        "a branch for each category": multiway("colour", {**two, "green": some}),
        "a category without a branch": multiway("colour", two, missing=1),
        "a test for missing numbers": is_missing("size", few, many),
        "a test for missing categories": is_missing("colour", few, many),
        "an oblique split": oblique({"size": 0.5, "age": -1.25}, 0.3, few, many),
        "surrogates": threshold("size", 0.5, few, many, 1, surrogates),
        "several kinds of splits in one tree": threshold("size", -1.5, deeper, third),
        "a path of 120 splits": _make_path(120),
    }


def _iter_policy_models() -> Iterator[SampleModel]:
    """Yield models with every policy for missing and unseen values, and of other inputs."""
    numbers = threshold("age", 2.0, leaf([0.0, 1.0]), make_cut(3.5), 0)
    tree = subset("colour", ["red"], make_cut(), numbers)
    yield SampleModel("missing values are an error", make_yes_no(tree, missing="error"))
    yield SampleModel("unseen categories are an error", make_yes_no(tree, unknown="error"))
    both = make_yes_no(tree, missing="error", unknown="error")
    yield SampleModel("both are an error", both)
    fractional = make_yes_no(tree, missing="fractional")
    yield SampleModel("fractional instances at missing values", fractional)
    odd = threshold("age", 2.0, leaf(1e3 / 7, weight=2.0), leaf(0.1, weight=5.0))
    root = threshold("size", 0.5, leaf(-1 / 3, weight=3.0), odd)
    divided = make_example_model(NUMBER, root, missing="fractional")
    yield SampleModel("numbers of fractional instances", divided)
    wide = Schema(COLUMNS, "y", classes=("no", "yes"), dtype="float64")
    at = 0.1 + 2.0**-40  # not a float32
    cut = threshold("size", at, leaf([3.0, 1.0]), leaf([0.0, 1.0]))
    yield SampleModel("inputs in double", make_example_model(wide, cut))
    levels = tuple(f"town {i}" for i in range(300))
    towns = Schema((Column("void", "nominal"), Column("town", "nominal", levels)), classes=(0, 1))
    rest = is_missing(0, leaf([2.0, 3.0]), leaf([1.0, 6.0]))
    root = subset(1, levels[::3], leaf([5.0, 0.0]), rest)
    yield SampleModel("300 categories", make_example_model(towns, root))


def _iter_output_models() -> Iterator[SampleModel]:
    """Yield models with every kind of output."""
    costs = np.array([[0, 1], [9, 0]], dtype=np.int64)
    yield SampleModel("costs", make_yes_no(make_cut(), costs=costs))
    for labels in ((False, True), (3, -7), (0.5, 1e300)):
        model = make_example_model(Schema(COLUMNS, classes=labels), make_cut())
        yield SampleModel(f"labels {labels}", model)
    several = Schema(COLUMNS, "y", classes=("no", "yes"), more=(Output("z", ("a", "b", "c")),))
    more = Schema(COLUMNS, "y", task="regression", more=(Output("z"), Output("w")))
    numbers = threshold("age", 2.0, leaf(1e9), leaf(7.25), 0)
    for what, schema, low, high in (
        ("three classes", THREE, leaf([1.0, 0.0, 2.0]), leaf([0.0, 5.0, 1.0])),
        ("a number", NUMBER, leaf(-0.3), numbers),
        ("two labels", several, leaf([1.0, 2.0, 0.0, 2.0, 1.0]), leaf([5.0, 0.0, 1.0, 1.0, 3.0])),
        ("three numbers", more, leaf([1.0, -2.5, 1e-3]), leaf([0.1, 2.0, 3.0])),
    ):
        yield SampleModel(what, make_example_model(schema, threshold("size", 1.5, low, high)))


def _iter_forest_models() -> Iterator[SampleModel]:
    mixed = subset("colour", ["green"], make_cut(0.7, 0), make_cut(-3.0))
    trees = [make_cut(), mixed, make_cut(2.5, column="age")]
    yield SampleModel("a forest", make_yes_no(*trees))
    yield SampleModel("a forest of hard votes", make_yes_no(*trees, voting="hard"))
    numbers = [threshold("size", at, leaf(at / 3.0), leaf(1e6 * at)) for at in (0.5, 1.5, 2.5)]
    yield SampleModel("a forest of numbers", make_example_model(NUMBER, *numbers))
    sizes = [threshold("size", at, leaf(at / 3e8), leaf(1e8 * at)) for at in (0.5, 1.5, 2.5)]
    yield SampleModel("a forest of sums beyond 2**53", make_example_model(NUMBER, *sizes))


def _make_path(depth: int) -> Node:
    """Make a path of nested thresholds, each with a leaf as its other branch."""
    node = leaf([0.0, 1.0])
    for level in range(depth - 1, -1, -1):
        node = threshold("size", float(level), leaf([level + 1.0, 2.0]), node, level % 2)
    return node


def make_deepest() -> SampleModel:
    """Return a path of the maximum depth of a model."""
    return SampleModel(f"a path of {MAX_DEPTH:,} splits", make_yes_no(_make_path(MAX_DEPTH)))


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
    *('a"b', "a'b", "back\\", "line\nbreak", "return\r", "// comment \\", "*/ end", "??/"),
    *("%d {} $x", "{{ x }}", "{% raw %}", "<b>&amp;", "-->", "\u202eright", "é 行 😀", "class"),
    *("", " ", "0", "x"),
)
_UNREPRESENTABLE = ("nul\0", "half \ud800")


# ---------------------------------------------------------------- rows


def make_example_probes(model: Model) -> Probes:
    """Make rows around each threshold, of each category, missing and unseen, and refused ones."""
    return make_probes(model, n_random=60, seed=0, max_rows=2000)
