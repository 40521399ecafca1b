"""Bitwise equality of every kind of model in every export target, with the number of probes.

    python -m benchmarks.equality                  # the table of benchmarks/README.md
    python -m benchmarks.equality --write          # and write it there
    python -m benchmarks.equality --rows 300 --kinds tree --targets c python

Each model is trained (or imported), exported and verified as a user would do it: the
artifact must give the model's predictions, bit for bit, for probes at every split, side,
category and leaf, and for random rows. SQL needs the plugin treekit-sql,
and the environment variable TREEKIT_POSTGRES with the connection string of a PostgreSQL server.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import treekit
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError, TreekitWarning
from treekit.model.builder import Surrogate, build_tree, leaf, rule
from treekit.model.model import Model, make_model

PAGE = Path(__file__).resolve().with_name("README.md")
BEGIN, END = "<!-- made by benchmarks/equality.py -->", "<!-- end -->"


def _demo(**settings: Any) -> Model:
    return treekit.train(demo_table(), DEMO_TARGET, seed=0, **settings)


def _numbers(rows: int = 600, seed: int = 0) -> dict[str, Any]:
    """Generate numbers with missing values, a nominal column, and several targets."""
    rng = np.random.default_rng(seed)
    x, y, z = rng.normal(size=(3, rows)) * [[1.0], [1e3], [1e-3]]
    colour = rng.choice(["red", "green", "blue", "grey"], rows)
    price = np.exp(x) * 1e4 + y + (colour == "red") * 500.0
    z[rng.random(rows) < 0.1] = np.nan
    kind = np.where(price > 2e4, "dear", np.where(price > 8e3, "fair", "cheap"))
    return {"x": x, "y": y, "z": z, "colour": colour, "price": price, "kind": kind}


def _boosted(classes: bool) -> Model:
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

    data = _numbers()
    rows, target = np.stack([data["x"], data["y"]], axis=1), data["kind" if classes else "price"]
    learner = GradientBoostingClassifier if classes else GradientBoostingRegressor
    return treekit.read_model(learner(n_estimators=30, random_state=0).fit(rows, target))


def _ordered() -> Model:
    """Return the rules of a tree, the last one without conditions as the default rule."""
    listed = _demo(pruner="cost_complexity").rules()
    start, table = listed.bounds(len(listed) - 1)[0], listed.conditions
    end = np.append(listed.end[:-1], start)
    levels = int(table.level_end[start - 1]) if start else 0
    parts = {name: array[:start] for name, array in table._asdict().items() if name != "levels"}
    conditions = table._replace(**parts, levels=table.levels[:levels])
    return replace(listed, end=end, conditions=conditions).model()


def _weighted() -> Model:
    """Make a regression model that sums rules on numbers and categories and an intercept."""
    schema = Schema(
        (Column("x"), Column("y"), Column("colour", "nominal", ("red", "green", "blue"))),
        task="regression",
    )
    conditions = [
        [Surrogate("x", at=0.5, below=1, above=-1, lost=1)],
        [Surrogate("x", at=-1.5, below=1, above=-1), Surrogate("y", at=4.0, below=-1, above=1)],
        [Surrogate("colour", levels={"red": 1}, lost=1), Surrogate("y", 0.0, 1, above=1)],
    ]
    roots = [rule(tests, leaf(k + 0.1), leaf(0.0)) for k, tests in enumerate(conditions)]
    trees = [build_tree(root, schema) for root in (*roots, leaf(-2.25))]
    return make_model(schema, trees, combine="sum")


def _without(*names: str) -> dict[str, Any]:
    return {name: values for name, values in _numbers().items() if name not in names}


KINDS: Mapping[str, Callable[[], Model]] = {
    "tree": lambda: _demo(pruner="cost_complexity"),
    "forest": lambda: _demo(ensemble="forest", trees=50),
    "regression forest": lambda: treekit.train(
        _without("kind"), "price", ensemble="forest", trees=20, seed=0
    ),
    "float64 forest": lambda: treekit.train(
        _without("price"), "kind", ensemble="forest", trees=20, dtype="float64", seed=0
    ),
    "C4.5, fractional instances": lambda: _demo(algorithm="c45"),
    "surrogate splits": lambda: _demo(missing="surrogate"),
    "oblique splits": lambda: treekit.train(_without("price"), "kind", splitter="oblique", seed=0),
    "misclassification costs": lambda: _demo(costs="no>yes=5", ensemble="forest", trees=10),
    "hard votes, refusals": lambda: treekit.train(
        _without("price", "z"), "kind", voting="hard", ensemble="forest", trees=11,
        missing="error", unknown="error", seed=0,
    ),
    "several targets": lambda: treekit.train(
        _without("y"), ["kind", "colour"], ensemble="forest", trees=10, seed=0
    ),
    "boosted classes, imported": lambda: _boosted(True),
    "boosted regression, imported": lambda: _boosted(False),
    "ordered rules": _ordered,
    "weighted rules": _weighted,
}  # fmt: skip

TARGETS: Mapping[str, Sequence[tuple[str, str, dict[str, Any]]]] = {
    "ONNX": [("onnx", ".onnx", {})],
    "C": [("c", ".c", {"form": "table"}), ("c", ".c", {"form": "if_else"})],
    "Python": [("python", ".py", {"form": "table"})],
    "rules": [("rules", ".rules.txt", {})],
    "JavaScript": [("javascript", ".mjs", {"form": "full"})],
    "Java": [("java", ".java", {"form": "full"})],
    "Rust": [("rust", ".rs", {"form": "full"})],
    "Go": [("go", ".go", {"form": "full"})],
    "SQLite": [("sql", ".sql", {"dialect": "sqlite"})],
    "DuckDB": [("sql", ".sql", {"dialect": "duckdb"})],
    "PostgreSQL": [("sql", ".sql", {"dialect": "postgres"})],
}


class Cell(NamedTuple):
    """Outcome of one model in one target.

    Attributes
    ----------
    probes, differing : int
    refused, failed : str
        Reason why it was not exported, or not run; else empty.
    """

    probes: int = 0
    differing: int = 0
    refused: str = ""
    failed: str = ""

    def __str__(self) -> str:
        if self.refused or self.failed:
            return "refused" if self.refused else "**not run**"
        return f"= {self.probes:,}" if not self.differing else f"**{self.differing:,} differ**"


def measure(
    model: Model, forms: Sequence[tuple[str, str, dict[str, Any]]], rows: int, folder: Path
) -> Cell:
    """Export a model in each form and verify it; refused only if no form supports it."""
    reasons, probes, differing = [], [], 0
    for number, (target, suffix, settings) in enumerate(forms):
        try:
            path = treekit.export(model, target, folder / f"m{number}{suffix}", **settings)[0]
        except ExportError as error:
            reasons.append(str(error))
            continue
        (result,) = treekit.verify(model, [path], max_rows=rows).artifacts
        if result.error:
            return Cell(failed=result.error)
        probes.append(result.rows)
        differing += result.differing
    return Cell(min(probes), differing) if probes else Cell(refused=reasons[0])


def table(cells: Mapping[str, Mapping[str, Cell]]) -> str:
    """Return the outcomes as a Markdown table."""
    targets = list(next(iter(cells.values())))
    head = ["equal bits on N probes", *targets]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {kind} | {' | '.join(map(str, own.values()))} |" for kind, own in cells.items()]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> dict[str, dict[str, Cell]]:
    """Measure and print all cells; return them by kind and target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="maximum constructed probes")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--write", action="store_true", help="write the table to README.md")
    given = parser.parse_args(arguments)
    cells: dict[str, dict[str, Cell]] = {}
    for kind in given.kinds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TreekitWarning)
            model = KINDS[kind]()
        cells[kind] = {}
        for target in given.targets:
            with tempfile.TemporaryDirectory() as folder:
                cell = measure(model, TARGETS[target], given.rows, Path(folder))
            cells[kind][target] = cell
            print(f"{kind}: {target}: {cell} {cell.refused or cell.failed}", flush=True)
    print(table(cells))
    if given.write:
        text = PAGE.read_text(encoding="utf-8")
        pattern = f"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})"
        lines = table(cells) + "\n"
        PAGE.write_text(
            re.sub(pattern, lambda _: lines, text, count=1, flags=re.DOTALL), encoding="utf-8"
        )
    return cells


if __name__ == "__main__":
    main()
