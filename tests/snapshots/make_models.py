"""Definitions of the model files in ``models/``, and the command that writes them.

    python -m tests.snapshots.make_models [NAME...]

writes the named models, by default all without a file.  An existing file was written by
an earlier treekit and must still load: only ``--replace`` overwrites it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import treekit
from tests.extremes import EXTREMES
from tests.foreign import FOLDER as FOREIGN
from tests.snapshots.answers import (
    ANSWERS,
    MODELS_FOLDER,
    read_sections,
    shown_answers,
    write_answers,
    write_sections,
)
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.schema import Column, Schema
from treekit.model.builder import Surrogate, build_tree, leaf, rule, subset, threshold
from treekit.model.model import Model, make_model

__all__ = ["MODELS", "TRAINED", "model_path"]

_TABLES = Path(__file__).parents[1] / "tables"
_XGBOOST = Path(__file__).parents[2] / "plugins" / "treekit-importers" / "tests" / "xgboost"
_IRIS = (_TABLES / "iris.csv", "class")
_IRIS_NUMBERS = (_TABLES / "iris.csv", ["petallength", "petalwidth"])
_CPU = (_TABLES / "cpu.csv", "class")
_CANCER = (_TABLES / "breast-cancer.csv", "Class")
_CANCER_TWO = (_TABLES / "breast-cancer.csv", ["Class", "irradiat"])
_HORSES = (demo_table(), DEMO_TARGET)
_BANDS = {
    "tumor-size": [
        "0-4",
        "10-14",
        "15-19",
        "20-24",
        "25-29",
        "30-34",
        "35-39",
        "40-44",
        "45-49",
        "5-9",
        "50-54",
    ],
    "inv-nodes": ["0-2", "12-14", "15-17", "24-26", "3-5", "6-8", "9-11"],
}
"""Categories in the order of the stored models, which sorted them by code point."""

_FROM_EXTREMES = (
    *("one_leaf", "one_number", "one_class"),
    *("float32_extremes", "float64_extremes", "float32_neighbours"),
    *("missing_only", "vanishing", "many_levels_in_two", "mark_levels"),
    *("several_labels", "several_numbers"),
    *("oblique", "surrogates", "fractional", "fractional_numbers"),
    *("costs", "hard_costs"),
    *("refuses_missing", "refuses_unseen"),
    *("wide_numbers", "linked_means"),
    *("boosted_two", "boosted_four", "boosted_each", "boosted_counts", "boosted_share"),
    *("bool_labels", "int_labels", "float_labels", "mixed", "mixed_numbers"),
)


def _train(table: tuple[Path, Any], **settings: Any) -> Callable[[], Model]:
    """Train on an included table, with default settings unless given.

    Thresholds are midpoints, as in the versions that wrote the stored models.
    """
    if settings.get("algorithm") != "c45":
        settings["thresholds"] = "midpoint"
    return lambda: treekit.train(*table, seed=0, **settings)


def _read(path: Path) -> Callable[[], Model]:
    """Read a model of another library."""
    return lambda: treekit.read_model(path)


def _ordered_rules() -> Model:
    """Learn a short ordered rule list, whose last rule has no conditions."""
    tree = treekit.train(*_HORSES, algorithm="c45", seed=0)
    return treekit.simplify(tree, _HORSES[0]).rules.model()


def _weighted_rules() -> Model:
    """Build rules on numbers and categories with additive weights, and an intercept."""
    columns = (Column("x"), Column("y"), Column("colour", "nominal", ("red", "green", "blue")))
    schema = Schema(columns, task="regression")
    conditions = [
        [Surrogate("x", at=0.5, below=1, above=-1, lost=1)],
        [Surrogate("x", at=-1.5, below=1, above=-1), Surrogate("y", at=4.0, below=-1, above=1)],
        [Surrogate("colour", levels={"red": 1}, lost=1), Surrogate("y", 0.0, 1, above=1)],
    ]
    roots = [rule(own, leaf(k + 0.1), leaf(0.0)) for k, own in enumerate(conditions)]
    trees = [build_tree(root, schema) for root in (*roots, leaf(-2.25))]
    return make_model(schema, trees, combine="sum")


def _hostile_names() -> Model:
    """Use every short hostile text as a column name, category and class label."""
    from tests.export.test_all_targets import HOSTILE

    texts = [text for text in HOSTILE if len(text) < 100]
    names = [text for text in texts if text.strip()]  # tables reject blank names
    columns = (*map(Column, names), Column("levels", "nominal", tuple(texts)))
    schema = Schema(columns, target=texts[5], classes=tuple(texts))
    trees = []
    for k in range(0, len(names), 5):
        first, second = ([float(c == k + other) for c in range(len(texts))] for other in (0, 1))
        asked = subset("levels", texts[k::4], leaf(first), leaf(second))
        trees.append(build_tree(threshold(k, 0.5, asked, leaf(first)), schema))
    return make_model(schema, trees)


TRAINED: Mapping[str, Callable[[], Model]] = MappingProxyType(
    {
        "trained_tree": _train(_HORSES, max_depth=5),
        "trained_best_first": _train(_CANCER, levels=_BANDS, criterion="twoing", max_leaves=12),
        "trained_cost_complexity": _train(_HORSES, pruner="cost_complexity"),
        "trained_reduced_error": _train(
            _HORSES, splitter="histogram", max_bins=16, pruner="reduced_error", dtype="float64"
        ),
        "trained_entropy_mdl": _train(
            _HORSES, criterion="entropy", pruner="mdl", class_weight="balanced"
        ),
        "trained_c45": _train(_HORSES, algorithm="c45"),
        "trained_cart": _train(_CANCER, levels=_BANDS, algorithm="cart"),
        "trained_surrogates": _train(_HORSES, missing="surrogate", max_depth=4),
        "trained_oblique": _train(_IRIS, splitter="oblique", max_depth=3),
        "trained_forest": _train(_IRIS, ensemble="forest", trees=5),
        "trained_random_forest": _train(_IRIS, algorithm="random_forest", trees=4, dtype="float64"),
        "trained_extra_trees": _train(_IRIS, algorithm="extra_trees", trees=4, max_depth=4),
        "trained_costs": _train(_HORSES, costs="no>yes=5", ensemble="forest", trees=3, max_depth=4),
        "trained_labels": _train(
            _CANCER_TWO, levels=_BANDS, ensemble="forest", trees=2, max_depth=4
        ),
        "trained_numbers": _train(_IRIS_NUMBERS, max_depth=4),
        "trained_regression": _train(_CPU, max_depth=4),
        "trained_regression_forest": _train(_CPU, ensemble="forest", trees=4, max_depth=4),
        "trained_monotonic": _train(_CPU, monotonic="MMAX=1,CACH=1", max_depth=5),
        "trained_absolute_error": _train(_CPU, criterion="absolute_error", max_depth=4),
        "trained_quantile": _train(_CPU, criterion="quantile", max_leaves=8),
        "trained_poisson": _train(_CPU, criterion="poisson", max_leaves=8),
        "learned_ordered_rules": _ordered_rules,
        "read_xgboost": _read(_XGBOOST / "binary.json"),
        "read_xgboost_counts": _read(_XGBOOST / "poisson.json"),
        "read_boosting": _read(FOREIGN / "sklearn_boosted.skops"),
    }
)
"""Models trained by treekit or read from files of other libraries; making them is reproducible."""

MODELS: Mapping[str, Callable[[], Model]] = MappingProxyType(
    {name: EXTREMES[name] for name in _FROM_EXTREMES}
    | {"hostile_names": _hostile_names, "weighted_rules": _weighted_rules}
    | dict(TRAINED)
)
"""Function that makes each model, by name."""


def model_path(name: str, suffix: str = ".treekit") -> Path:
    """Return the path of a model's file."""
    return MODELS_FOLDER / f"{name}{suffix}"


def write_model(name: str) -> None:
    """Make a model, and write its file, rows and predictions."""
    path = model_path(name)
    MODELS[name]().save(path)
    model = treekit.load(path)
    rows = write_answers(model_path(name, ".npz"), model)
    sections = read_sections(ANSWERS) if ANSWERS.is_file() else {}
    sections[name] = shown_answers(model, rows)
    ordered = {known: sections[known] for known in MODELS if known in sections}
    head = "Answers of the model files; the first row of each has missing values only.\n"
    head += "Written by: python -m tests.snapshots.make_models"
    ANSWERS.write_text(write_sections(head, ordered), encoding="utf-8", newline="\n")


def main(arguments: list[str] | None = None) -> int:
    """Write models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: those without a file")
    parser.add_argument("--replace", action="store_true", help="overwrite existing files")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in MODELS]:
        parser.error(f"unknown model {unknown[0]!r}; known: {', '.join(MODELS)}")
    there = [name for name in given.names if model_path(name).exists()]
    if there and not given.replace:
        parser.error(f"{model_path(there[0])} exists and must still load; --replace overwrites it")
    for name in given.names or [name for name in MODELS if not model_path(name).exists()]:
        write_model(name)
        print(f"{name}: {model_path(name).stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
