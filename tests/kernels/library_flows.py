"""Trainings and uses of models in a separate process.

``python -m tests.kernels.library_flows KIND`` prints digests of the models, and whether numba
was imported.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import treekit
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.schema import Column, Schema
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.serve.models.served_model import Served

_TARGETS = ("price", "dear", "kind")


def make_example_table(rows: int = 400) -> dict[str, Any]:
    """Make a table with missing numbers, categories, and a target of each task."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, rows))
    price = x + rng.normal(size=rows) / 2
    y[rng.random(rows) < 0.2] = np.nan
    colour = rng.choice(["red", "green", "blue"], rows)
    kind = np.digitize(price, [-0.5, 0.5])
    return {"x": x, "y": y, "colour": colour, "price": price, "dear": price > 0, "kind": kind}


def train_example(target: str, *, rows: int = 400, levels: bool = True, **settings: Any) -> Model:
    """Train on the example table; `levels` keeps its nominal column.

    400 rows have more distinct numbers than codes of 8 bits; 120 have fewer.
    """
    left = {*_TARGETS, *(() if levels else ("colour",))} - {target}
    table = {name: column for name, column in make_example_table(rows).items() if name not in left}
    return treekit.train(table, target, **({"seed": 0} | settings))


def train_seven_classes(**settings: Any) -> Model:
    x = np.random.default_rng(0).normal(size=(2, 400))
    table = {"x": x[0], "y": x[1], "label": np.arange(400) % 7}
    return treekit.train(table, "label", max_depth=4, seed=0, **settings)


def train_many_classes() -> Model:
    x = np.random.default_rng(0).normal(size=(2, 900))
    table = {"x": x[0], "y": x[1], "label": np.digitize(x[0], np.linspace(-2, 2, 29)).astype(str)}
    return treekit.train(table, "label", max_depth=6, seed=0, criterion="entropy")


def train_many_categories() -> Model:
    shop = np.random.default_rng(0).integers(0, 300, 2000)
    table = {"shop": shop.astype(str), "x": np.arange(2000) % 7, "dear": shop % 7 > 3}
    return treekit.train(table, "dear", max_depth=4, seed=0, splitter="histogram")


USUAL: dict[str, Callable[[], Model]] = {
    "demo forest": lambda: treekit.train(
        demo_table(), DEMO_TARGET, ensemble="forest", trees=5, seed=0
    ),
    "demo tree": lambda: treekit.train(demo_table(), DEMO_TARGET, pruner="cost_complexity", seed=0),
}
"""Trainings that need the usual kernels only."""

ALL: dict[str, Callable[[], Model]] = USUAL | {
    "numeric": lambda: train_example("dear", levels=False),
    "few rows": lambda: train_example("dear", rows=120),
    "regression": lambda: train_example("price", pruner="cost_complexity"),
    "absolute error": lambda: train_example("price", criterion="absolute_error"),
    "categories": lambda: train_example("kind"),
    "entropy": lambda: train_example("kind", criterion="entropy"),
    "seven classes": train_seven_classes,
    "seven classes by entropy": lambda: train_seven_classes(criterion="entropy"),
    "surrogates": lambda: train_example("dear", missing="surrogate"),
    "fractional": lambda: train_example("dear", missing="fractional"),
    "c45": lambda: train_example("dear", algorithm="c45"),
    "id3": lambda: train_example("dear", algorithm="id3", missing="direction"),
    "histogram": lambda: train_example("dear", splitter="histogram"),
    "extra trees": lambda: train_example("kind", algorithm="extra_trees", trees=3),
    "best first": lambda: train_example("dear", max_leaves=5),
    "constraint": lambda: train_example("dear", monotonic={"x": 1}),
    "float64": lambda: train_example("dear", dtype="float64"),
    "chi squared": lambda: train_example("dear", pruner="chi_squared"),
    "error based": lambda: train_example("dear", pruner="error_based"),
    "oblique": lambda: train_example("dear", splitter="oblique"),
    "oblique axes": lambda: train_example(
        "price", splitter="oblique", **{"splitter.method": "principal"}
    ),
    "many classes": train_many_classes,
    "many categories": train_many_categories,
    "reduced error": lambda: train_example("price", pruner="reduced_error"),
}


def digest_model(model: Model) -> str:
    digest = hashlib.sha256()
    for tree in model.trees:
        for part in (tree.kind, tree.feature, tree.threshold, tree.value, tree.first_child):
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def use_demo(targets: tuple[str, ...] = ("c", "python", "rules")) -> int:
    """Predict, write rules, save, load, export and verify the models of the demo."""
    rows = str(demo_table())
    for train in USUAL.values():
        model = train()
        model.predict_proba(rows)
        with tempfile.TemporaryDirectory() as folder:
            paths = [treekit.export(model, to, Path(folder, to))[0] for to in targets]
            treekit.verify(model, [path for path in paths if path.suffix != ".c"], random_rows=200)
            model.save(Path(folder, "model.treekit"))
            treekit.load(Path(folder, "model.treekit"))
        if model.n_trees == 1:
            model.rules()
    return len(USUAL)


def serve() -> int:
    """Answer requests of several sizes, with explanations, for models of float32."""
    served = list(_make_served_models())
    for one in served:
        for rows in (1, 2, 600):
            reasons = one.explanation_outputs if rows < 600 else ()
            inputs = one.parse_inputs(one.make_sample_inputs(rows))
            one.compute_outputs(inputs, [*one.default_outputs, "leaf", *sorted(reasons)])
    return len(served)


def _make_served_models() -> list[Served]:
    made = []
    for column in (Column("z"), Column("colour", "nominal", ("a", "b", "c"))):
        for task in ({"classes": ("n", "y")}, {"task": "regression"}):
            schema = Schema((Column("x"), column), dtype="float32", **task)  # type: ignore[arg-type]
            low, high = ([1.0, 2.0], [3.0, 0.0]) if schema.classes else ([0.25], [0.75])
            below = threshold(0, 0.5, leaf(low), leaf(high), missing=1)
            root = threshold(1, 1.5, below, leaf(high))
            if schema.nominal.any():
                root = subset(1, ["a", "c"], below, leaf(high))
            for n_trees in (1, 12):
                model = make_model(schema, [build_tree(root, schema)] * n_trees)
                made.append(Served("m", "1", "", model))
    return made


def main(kind: str) -> None:
    found: dict[str, Any]
    if kind in ("usual", "all"):
        flows = USUAL if kind == "usual" else ALL
        found = {name: digest_model(train()) for name, train in flows.items()}
    else:
        found = {"done": {"use": use_demo, "serve": serve}[kind]()}
    found["numba"] = "numba" in sys.modules or "llvmlite" in sys.modules
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
