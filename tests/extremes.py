"""Degenerate and extreme models with edge-case rows, used to test every exporter.

>>> model = EXTREMES["one_leaf"]()
>>> rows = extreme_rows(model)
>>> answers = wanted(model, rows)

Models are built by hand, once per process, without training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType

import numpy as np

from tests.extreme_rows import extreme_rows, refused, wanted
from tests.reference.models import chain, mixed_schema, random_model
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

__all__ = ["EXTREMES", "extreme_rows", "refused", "wanted"]

_LETTERS = ("a", "b", "c", "d")
_TWO = (Column("x"), Column("colour", "nominal", ("red", "green", "blue")))


def _leaves(schema: Schema, start: int = 0) -> Iterator[Node]:
    """Yield leaves with different values."""
    number = start
    while True:
        if schema.task == "regression":
            yield leaf([0.3 * number - 2.0 + k for k in range(schema.n_values)])
        else:
            yield leaf([number * (k + 2) % 7 + 0.5 for k in range(schema.n_values)])
        number += 1


def _ascending(feature: int, at: Sequence[float], leaves: Iterator[Node], missing: int = 1) -> Node:
    """Build a balanced tree of ascending thresholds on one column, with both missing branches."""
    if not at:
        return next(leaves)
    middle = len(at) // 2
    low = _ascending(feature, at[:middle], leaves, missing)
    high = _ascending(feature, at[middle + 1 :], leaves, 1 - missing)
    return threshold(feature, at[middle], low, high, missing=missing)


def _one_leaf() -> Model:
    schema = Schema(_TWO, classes=("no", "yes"))
    return make_model(schema, [build_tree(leaf([3.0, 5.0]), schema)])


def _one_number() -> Model:
    schema = Schema(_TWO, task="regression")
    return make_model(schema, [build_tree(leaf(-0.1), schema)])


def _one_class() -> Model:
    schema = Schema(_TWO, classes=("only",))
    tree = threshold("x", 0.5, leaf([2.0]), subset("colour", ["red"], leaf([1.0]), leaf([4.0])))
    return make_model(schema, [build_tree(tree, schema)] * 3)


def _unused_features() -> Model:
    columns = [
        Column(f"column {i}", *(("nominal", ("p", "q")) if i % 3 == 0 else ())) for i in range(60)
    ]
    schema = Schema(tuple(columns), classes=("no", "yes"))
    return make_model(schema, [build_tree(_ascending(40, [1.5], _leaves(schema)), schema)])


def _thousand_classes() -> Model:
    schema = Schema((Column("x"),), classes=tuple(range(1000)))
    leaves = iter([leaf([0.0] * k + [1.0] + [0.0] * (999 - k)) for k in range(1000)])
    tree = build_tree(_ascending(0, [k + 0.5 for k in range(999)], leaves), schema)
    return make_model(schema, [tree, tree])


def _five_thousand_trees() -> Model:
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes", "maybe"))
    trees = [
        build_tree(_ascending(k % 2, [k / 8 - 3.0], _leaves(schema, k), k % 2), schema)
        for k in range(50)
    ]
    return make_model(schema, trees * 100)


def _two_thousand_features() -> Model:
    schema = Schema(tuple(Column(f"x{i}") for i in range(2000)), classes=("no", "yes"))
    asked = [0, 1, 255, 256, 999, 1023, 1024, 1998, 1999]
    trees = [
        build_tree(_ascending(f, [-1.0, 0.25, 3.0], _leaves(schema, f)), schema) for f in asked
    ]
    return make_model(schema, trees)


def _float_extremes(dtype: str) -> Model:
    info = np.finfo(dtype)
    sizes = [float(info.max), float(info.tiny), float(info.smallest_subnormal)]
    at = sorted([0.0, *sizes, *(-size for size in sizes)])
    schema = Schema((Column("x"), Column("y")), classes=_LETTERS, dtype=dtype)
    trees = [_ascending(f, at, _leaves(schema, 5 * f)) for f in range(2)]
    return make_model(schema, [build_tree(tree, schema) for tree in trees])


def _neighbours(dtype: str) -> Model:
    """Make thresholds one ulp apart, whose midpoints round to even and to odd numbers."""
    at = [np.asarray(0.1, dtype=dtype)[()]]
    for _ in range(8):
        at.append(np.nextafter(at[-1], at[-1].dtype.type(np.inf)))
    schema = Schema((Column("x"),), classes=_LETTERS, dtype=dtype)
    tree = _ascending(0, [*map(float, at)], _leaves(schema))
    return make_model(schema, [build_tree(tree, schema)])


_MANY = tuple(f"level {i}" for i in range(500))


def _many_levels_in_two() -> Model:
    schema = Schema((Column("town", "nominal", _MANY), Column("x")), classes=("no", "yes"))
    said = [(leaf([k + 1.0, 2.0]), leaf([9.0, 1.0 + 9 * k])) for k in range(2)]
    trees = [
        subset("town", _MANY[k::3], *said[k], missing=k, absent=_MANY[k + 1 :: 3]) for k in range(2)
    ]
    return make_model(schema, [build_tree(tree, schema) for tree in trees])


def _many_levels_each() -> Model:
    schema = Schema((Column("town", "nominal", _MANY), Column("x")), task="regression")
    leaves = _leaves(schema)
    return make_model(
        schema, [build_tree(multiway("town", {text: next(leaves) for text in _MANY}, 7), schema)]
    )


def _missing_only() -> Model:
    schema = Schema((*_TWO, Column("y")), classes=_LETTERS)
    leaves = _leaves(schema)
    tree = is_missing(
        "x",
        is_missing("colour", next(leaves), is_missing("y", next(leaves), next(leaves))),
        is_missing("colour", next(leaves), next(leaves)),
    )
    return make_model(schema, [build_tree(tree, schema)])


def _vanishing() -> Model:
    """Make splits that send every category to the missing branch, and a column without any."""
    schema = Schema((*_TWO, Column("void", "nominal")), classes=_LETTERS)
    leaves = _leaves(schema)
    low = subset("void", [], next(leaves), next(leaves), missing=0)
    high = subset("colour", [], next(leaves), next(leaves), 1, absent=("red", "green", "blue"))
    some = multiway("colour", {"green": next(leaves), "red": low}, missing=0)
    tree = threshold("x", 0.0, some, high)
    return make_model(schema, [build_tree(tree, schema)])


def _several(task: str) -> Model:
    if task == "regression":
        schema = Schema(_TWO, task="regression", more=(Output("second"), Output("third")))
    else:
        schema = Schema(_TWO, classes=("no", "yes"), more=(Output("second", (1, 2, 3)),))
    leaves = _leaves(schema)
    trees = [
        subset("colour", ["red"], _ascending(0, [-0.5, 0.5], leaves), next(leaves)),
        _ascending(0, [0.125, 0.25, 0.375], leaves),
    ]
    return make_model(schema, [build_tree(tree, schema) for tree in trees])


def _hostile_names() -> Model:
    from tests.export.test_all_targets import hostile_model

    return hostile_model()


def _hostile_numbers() -> Model:
    from tests.export.test_all_targets import HOSTILE

    schema = Schema(
        (*map(Column, HOSTILE), Column("levels", "nominal", HOSTILE)),
        target=HOSTILE[0],
        task="regression",
        more=(Output(HOSTILE[5]),),
    )
    levels = subset("levels", HOSTILE[::2], leaf([1.0, 0.5]), leaf([2.0, 0.25]))
    trees = [threshold(f, 0.5, levels, leaf([f, -f])) for f in range(0, len(HOSTILE), 5)]
    return make_model(schema, [build_tree(tree, schema) for tree in trees])


def _mark_levels() -> Model:
    """Make categories whose texts usually mark missing values, or look like numbers."""
    levels = ("NA", "", "?", "1", "1.5", "True", " ", "nan")
    schema = Schema((Column("mark", "nominal", levels), Column("x")), classes=_LETTERS)
    leaves = _leaves(schema)
    tree = multiway("mark", {text: next(leaves) for text in levels[:-1]}, missing=5)
    return make_model(schema, [build_tree(tree, schema)])


def _oblique() -> Model:
    schema = Schema((Column("x"), Column("y"), Column("z"), _TWO[1]), classes=("no", "yes"))
    leaves = _leaves(schema)
    largest = float(np.finfo(np.float32).max)
    trees = [
        oblique(
            {"x": 1.0, "y": -1.0},
            0.25,
            oblique({"x": 0.1, "y": 0.7, "z": -3.0}, -1e-9, next(leaves), next(leaves), 0),
            subset("colour", ["red"], next(leaves), next(leaves)),
        ),
        oblique({"y": largest, "z": -largest}, 0.0, next(leaves), next(leaves)),
        oblique({"z": 1e-30}, -1e-50, next(leaves), _ascending(2, [0.5], leaves)),
    ]
    return make_model(schema, [build_tree(tree, schema) for tree in trees])


def _surrogates() -> Model:
    schema = Schema((*_TWO, Column("y")), classes=_LETTERS)
    leaves = _leaves(schema)
    others = [Surrogate("colour", levels={"red": 0, "blue": 1}), Surrogate("y", 2.5, below=1)]
    low = threshold("x", 0.5, next(leaves), next(leaves), 0, others)
    high = subset("colour", ["red"], next(leaves), next(leaves), 1, ["blue"], others[1:])
    trees = [threshold("y", -1.0, low, high, 1, [Surrogate("x", 0.0)]), low]
    return make_model(schema, [build_tree(tree, schema) for tree in trees], missing="surrogate")


def _fractional(task: str) -> Model:
    schema = Schema(_TWO, task=task, classes=_LETTERS if task == "classification" else ())
    leaves = (leaf(node.value, weight=1.0 + i) for i, node in enumerate(_leaves(schema)))
    named = {"red": next(leaves), "blue": _ascending(0, [0.25, 0.75], leaves)}
    trees = [
        threshold("x", 0.5, multiway("colour", named), subset("colour", ["red"], *_pair(leaves))),
        is_missing("x", next(leaves), _ascending(0, [-1.0, 0.0, 1.0], leaves)),
    ]
    return make_model(schema, [build_tree(tree, schema) for tree in trees], missing="fractional")


def _pair(leaves: Iterator[Node]) -> tuple[Node, Node]:
    return next(leaves), next(leaves)


def _weighed(voting: str, costs: list[list[int]] | None) -> Model:
    schema = mixed_schema(("a", "b", "c"))
    drawn = random_model(3, schema, n_trees=4, n_splits=12)
    return make_model(schema, drawn.trees, voting=voting, costs=costs)


_COSTS = [[0, 3, 1], [2, 0, 4], [5, 1, 0]]


def _refusing(missing: str, unknown: str) -> Model:
    schema = Schema((*_TWO, Column("y")), classes=("no", "yes"))
    tree = subset("colour", ["red"], *_pair(_leaves(schema)), absent=["blue"])
    other = _ascending(2, [0.0, 1.0], _leaves(schema, 2))
    trees = [build_tree(tree, schema), build_tree(other, schema)]
    return make_model(schema, trees, missing=missing, unknown=unknown)


def _wide_numbers(dtype: str) -> Model:
    schema = Schema(_TWO, task="regression", dtype=dtype)
    trees = [
        threshold("x", k / 4, leaf(1e9 + k), subset("colour", ["red"], leaf(1e-9 * k), leaf(-0.1)))
        for k in range(7)
    ]
    return make_model(schema, [build_tree(tree, schema) for tree in trees])


def _fractional_wide() -> Model:
    """Make sums beyond 2**53, of numbers of both signs in odd parts."""
    schema = Schema(_TWO, task="regression")
    trees = [
        threshold(
            "x",
            k / 4,
            leaf(1e9 + k, weight=1.0 + k),
            multiway("colour", {"red": leaf(-1e-9 * k, weight=3.0), "blue": leaf(-(0.1**k))}),
        )
        for k in range(7)
    ]
    return make_model(schema, [build_tree(tree, schema) for tree in trees], missing="fractional")


def _unequal_numbers(dtype: str, missing: str = "direction") -> Model:
    """Make a rate, a count, a turnover and zeros, each with a step of its own."""
    more = tuple(map(Output, ("count", "turnover", "nothing")))
    schema = Schema(_TWO, task="regression", dtype=dtype, more=more)
    number = iter(range(1, 100))
    leaves = (leaf([k * 1e-13, k / 3, k * 1e15, 0.0], weight=1.0 * k) for k in number)
    trees = [
        threshold("x", k / 4, subset("colour", ["red"], *_pair(leaves)), next(leaves))
        for k in range(3)
    ]
    return make_model(schema, [build_tree(tree, schema) for tree in trees], missing=missing)


def _unequal_sums() -> Model:
    drawn = _unequal_numbers("float32")
    trees = [tree.with_value(tree.value * [1.0, 1.0, 1e-20, 1.0]) for tree in drawn.trees]
    return make_model(drawn.schema, trees, combine="sum", link="exp")


def _boosted(classes: tuple[str, ...], link: str, dtype: str = "float32") -> Model:
    """Make a base score and trees that each add to one class, to the number, or nothing.

    Some margins tie, and some exceed the domain of the exponential.
    """
    task = "classification" if classes else "regression"
    schema = Schema(_TWO, task=task, classes=classes, dtype=dtype)
    n = schema.n_values

    def say(k: int, number: float) -> Node:
        return leaf([number * (column == k) for column in range(n)], weight=1.0)

    roots = [leaf([0.0, *[0.25] * (n - 1)] if classes else [-0.5])]
    for tree, number in enumerate((0.1, -0.7, 1e-9, 800.0, -800.0, 3.0, 0.0)):
        k = 1 if n == 2 else tree % n
        levels = {level: say(k, number * (i + 1) / 3) for i, level in enumerate(_TWO[1].levels)}
        at = tree - 3.5
        roots.append(threshold("x", at, multiway("colour", levels), say(k, -number), tree % 2))
    trees = [build_tree(root, schema, margins=True) for root in roots]
    return make_model(schema, trees, combine="sum", link=link)


def _linked_means(link: str) -> Model:
    drawn = _several("regression")
    return make_model(drawn.schema, drawn.trees, link=link)


def _wide_sums() -> Model:
    drawn = _wide_numbers("float32")
    return make_model(drawn.schema, drawn.trees, combine="sum")


def _labelled(classes: tuple[bool | int | float, ...]) -> Model:
    schema = Schema(_TWO, classes=classes)
    tree = _ascending(0, [-1.0, 0.0, 1.0], _leaves(schema))
    return make_model(schema, [build_tree(tree, schema)])


def _mixed(dtype: str, classes: tuple[str, ...], n_trees: int) -> Model:
    return random_model(11, mixed_schema(classes, dtype=dtype), n_trees=n_trees, n_splits=30)


_MAKERS: dict[str, Callable[[], Model]] = {
    "one_leaf": _one_leaf,
    "one_number": _one_number,
    "one_class": _one_class,
    "unused_features": _unused_features,
    "thousand_classes": _thousand_classes,
    "five_thousand_trees": _five_thousand_trees,
    "deep_right": lambda: chain(3000, Schema((Column("x"),), classes=("no", "yes")), 1),
    "deep_left": lambda: chain(3000, Schema((Column("x"),), task="regression"), 0),
    "two_thousand_features": _two_thousand_features,
    "float32_extremes": lambda: _float_extremes("float32"),
    "float64_extremes": lambda: _float_extremes("float64"),
    "float32_neighbours": lambda: _neighbours("float32"),
    "float64_neighbours": lambda: _neighbours("float64"),
    "many_levels_in_two": _many_levels_in_two,
    "many_levels_each": _many_levels_each,
    "missing_only": _missing_only,
    "vanishing": _vanishing,
    "several_labels": lambda: _several("classification"),
    "several_numbers": lambda: _several("regression"),
    "hostile_names": _hostile_names,
    "hostile_numbers": _hostile_numbers,
    "mark_levels": _mark_levels,
    "oblique": _oblique,
    "surrogates": _surrogates,
    "fractional": lambda: _fractional("classification"),
    "fractional_numbers": lambda: _fractional("regression"),
    "costs": lambda: _weighed("soft", _COSTS),
    "hard_voting": lambda: _weighed("hard", None),
    "hard_costs": lambda: _weighed("hard", _COSTS),
    "refuses_missing": lambda: _refusing("error", "missing"),
    "refuses_unseen": lambda: _refusing("direction", "error"),
    "refuses_both": lambda: _refusing("error", "error"),
    "wide_numbers": lambda: _wide_numbers("float32"),
    "wide_numbers64": lambda: _wide_numbers("float64"),
    "unequal_numbers": lambda: _unequal_numbers("float32"),
    "unequal_numbers64": lambda: _unequal_numbers("float64"),
    "fractional_wide": _fractional_wide,
    "fractional_unequal": lambda: _unequal_numbers("float32", "fractional"),
    "unequal_sums": _unequal_sums,
    "boosted_two": lambda: _boosted(("no", "yes"), "sigmoid"),
    "boosted_four": lambda: _boosted(_LETTERS, "softmax"),
    "boosted_each": lambda: _boosted(_LETTERS[:3], "sigmoid", "float64"),
    "boosted_counts": lambda: _boosted((), "exp"),
    "boosted_share": lambda: _boosted((), "sigmoid", "float64"),
    "linked_means": lambda: _linked_means("exp"),
    "wide_sums": _wide_sums,
    "bool_labels": lambda: _labelled((True, False)),
    "int_labels": lambda: _labelled((7, -3, 0, 2**40)),
    "float_labels": lambda: _labelled((0.5, -1e300, 1e-9, 0.1)),
    "mixed": lambda: _mixed("float32", ("no", "yes"), 3),
    "mixed_numbers": lambda: _mixed("float32", (), 3),
    "mixed64": lambda: _mixed("float64", ("no", "yes", "maybe"), 20),
    "mixed64_numbers": lambda: _mixed("float64", (), 5),
}

EXTREMES: Mapping[str, Callable[[], Model]] = MappingProxyType(
    {name: cache(make) for name, make in _MAKERS.items()}
)
"""Function that makes each model; a second call returns the same object."""
