"""Compile the usual kernels ahead of time, for containers, wheels and tests.

The first use of a kernel compiles it and stores its machine code in numba's cache.  This module
trains, uses, exports and verifies small models of all common kinds, so that later processes load
the machine code from the cache, or from a wheel (``hatch_build.py``).
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from treekit.data.schema import Dtype, Schema
    from treekit.model.builder import Node
    from treekit.model.model import Model

__all__ = [
    "KINDS",
    "SECONDS",
    "build_machine_code",
    "compile_for_serving",
    "compile_in_background",
    "compile_in_processes",
    "compile_kinds",
    "main",
    "split_kinds",
]

_MANY_CLASSES = range(4, 11)
"""Numbers of classes, besides 2 and 3, for which cuts are scanned by code of their own."""


_MANY_ROWS, _FEW_ROWS = 400, 120
"""More distinct numbers than codes of 8 bits, and fewer: kernels are compiled for each size."""


def make_example_table(rows: int = _MANY_ROWS) -> dict[str, Any]:
    """Make a table with missing numbers, categories, and a target of each task."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, rows))
    price = x + rng.normal(size=rows) / 2
    y[rng.random(rows) < 0.2] = np.nan
    colour = rng.choice(["red", "green", "blue"], rows)
    kind = np.digitize(price, [-0.5, 0.5])
    return {"x": x, "y": y, "colour": colour, "price": price, "dear": price > 0, "kind": kind}


_TARGETS = ("price", "dear", "kind")


def train_example(
    target: str, *, rows: int = _MANY_ROWS, levels: bool = True, **settings: Any
) -> Model:
    """Train on the example table; `levels` keeps its nominal column."""
    import treekit

    left = {*_TARGETS, *(() if levels else ("colour",))} - {target}
    table = {name: column for name, column in make_example_table(rows).items() if name not in left}
    return treekit.train(table, target, **({"seed": 0} | settings))


def _use(model: Model, targets: Sequence[str] = ("onnx", "c", "python", "rules")) -> None:
    """Predict, write rules, save, load, export and verify."""
    import treekit

    rows = make_example_table()
    model.predict(rows)
    model.predict({name: column[:1] for name, column in rows.items()})
    if model.schema.classes:
        model.predict_proba(rows)
    with tempfile.TemporaryDirectory() as folder:
        paths = [treekit.export(model, to, Path(folder, to))[0] for to in targets]
        treekit.verify(model, [path for path in paths if path.suffix != ".c"], random_rows=200)
        model.save(Path(folder, "model.treekit"))
        treekit.load(Path(folder, "model.treekit"))
    if model.n_trees == 1 and "rules" in targets:
        model.rules()


def _compile_use() -> None:
    from treekit.data.schema import Column, Schema
    from treekit.model.builder import build_tree, leaf, subset, threshold
    from treekit.model.model import make_model

    colour = Column("colour", "nominal", ("red", "green", "blue"))
    schema = Schema((Column("x"), colour), "dear", classes=("no", "yes"))
    red = subset("colour", ["red"], leaf([2.0, 1.0]), leaf([0.0, 3.0]))
    tree = build_tree(threshold("x", 0.5, red, leaf([1.0, 5.0]), missing=1), schema)
    for n_trees in (12, 1):
        _use(make_model(schema, [tree] * n_trees))


def _compile_demo() -> None:
    import treekit
    from treekit.data import DEMO_TARGET, demo_table

    forest = treekit.train(demo_table(), DEMO_TARGET, ensemble="forest", trees=12, seed=0)
    forest.predict_proba(demo_table())
    treekit.train(demo_table(), DEMO_TARGET, pruner="cost_complexity", seed=0)
    _compile_use()


def _compile_trees() -> None:
    for target in ("dear", "kind"):
        for rows in (_FEW_ROWS, _MANY_ROWS):
            _use(train_example(target, rows=rows, ensemble="forest", trees=12))
            _use(train_example(target, rows=rows, pruner="cost_complexity"))
    train_example("dear", dtype="float64")


def _compile_classification() -> None:
    for target in ("dear", "kind"):
        for algorithm in ("cart", "c45", "id3", "stump", "bagging", "extra_trees"):
            settings = _limit_trees(algorithm)
            if algorithm == "id3":
                settings["missing"] = "direction"  # by itself it allows none
            model = train_example(target, algorithm=algorithm, **settings)
            if target == "dear":
                _use(model, ("python", "rules"))
                train_example(target, rows=_FEW_ROWS, algorithm=algorithm, **settings)
        for criterion in ("entropy", "misclassification", "twoing"):
            train_example(target, criterion=criterion)
        train_example(target, levels=False)
        train_example(target, levels=False, splitter="histogram")
    train_example("dear", rows=_FEW_ROWS, levels=False)


def _compile_regression() -> None:
    for rows in (_FEW_ROWS, _MANY_ROWS):
        _use(train_example("price", rows=rows, pruner="cost_complexity"))
        _use(train_example("price", rows=rows, ensemble="forest", trees=12))
    for algorithm in ("cart", "bagging", "extra_trees"):
        train_example("price", algorithm=algorithm, **_limit_trees(algorithm))
    for criterion in ("friedman", "absolute_error"):
        train_example("price", criterion=criterion)
    train_example("price", levels=False)
    train_example("price", levels=False, splitter="histogram")


def _compile_rare() -> None:
    """Oblique splits, constraints, surrogates and fractional instances, pruners."""
    for rows in (_FEW_ROWS, _MANY_ROWS):
        _use(train_example("dear", rows=rows, splitter="oblique"), ("python",))
        _use(train_example("price", rows=rows, splitter="oblique"), ("python",))
    train_example("dear", levels=False, splitter="oblique")
    train_example("dear", monotonic={"x": 1})
    _use(train_example("dear", missing="surrogate"), ("python", "rules"))
    _use(train_example("dear", missing="fractional"), ("python", "rules"))
    train_example("dear", levels=False, missing="surrogate")
    train_example("dear", max_leaves=5)
    for pruner in ("chi_squared", "error_based", "holdout", "mdl", "reduced_error"):
        train_example("dear", pruner=pruner)
    train_example("price", pruner="reduced_error")


def _compile_many_classes() -> None:
    import treekit

    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, _MANY_ROWS))
    for n_classes in _MANY_CLASSES:
        table = {"x": x[0], "y": x[1], "label": np.arange(_MANY_ROWS) % n_classes}
        for criterion in ("gini", "entropy"):
            treekit.train(table, "label", criterion=criterion, max_depth=3, seed=0)


_SERVED_ROWS = (1, 2, 600)
"""Sizes of batches; explanations are for all but the last."""


def compile_for_serving(dtypes: Sequence[Dtype] = ("float32", "float64")) -> int:
    """Predict with common kinds of models in several batch sizes; return the number of models."""
    from treekit.serve.models.served_model import Served

    count = 0
    for model in _make_served_models(dtypes):
        served = Served("m", "1", "", model)
        for rows in _SERVED_ROWS:
            reasons = served.explanation_outputs if rows < _SERVED_ROWS[-1] else ()
            inputs = served.parse_inputs(served.make_sample_inputs(rows))
            served.compute_outputs(inputs, [*served.default_outputs, "leaf", *sorted(reasons)])
        model.explain({column.name: None for column in model.schema.columns})
        count += 1
    return count


def _make_served_models(dtypes: Sequence[Dtype]) -> Iterator[Model]:
    from treekit.data.schema import Column, Schema
    from treekit.model.builder import build_tree
    from treekit.model.model import make_model

    second = (Column("z"), Column("colour", "nominal", ("a", "b", "c")))
    tasks: tuple[dict[str, Any], ...] = ({"classes": ("n", "y")}, {"task": "regression"})
    for dtype, column, task, n_trees in itertools.product(dtypes, second, tasks, (1, 12)):
        schema = Schema((Column("x"), column), dtype=dtype, **task)
        yield make_model(schema, [build_tree(_make_served_tree(schema), schema)] * n_trees)


def _make_served_tree(schema: Schema) -> Node:
    """Build a tree that splits on each column."""
    from treekit.model.builder import leaf, subset, threshold

    low, high = ([1.0, 2.0], [3.0, 0.0]) if schema.classes else ([0.25], [0.75])
    below = threshold(0, 0.5, leaf(low), leaf(high), missing=1)
    if schema.nominal.any():
        return subset(1, ["a", "c"], below, leaf(high))
    return threshold(1, 1.5, below, leaf(high))


def _compile_levels() -> None:
    """Training by levels, as the workers of a cluster do."""
    from treekit.grow.level_builder import LocalEngine
    from treekit.training.levels import Resources, train_by_levels

    table = make_example_table()
    colour = np.unique(table["colour"], return_inverse=True)[1]
    x = np.column_stack([table["x"], table["y"], colour, table["price"], table["kind"]])
    x = x.astype(np.float32)
    settings = {"ensemble": "forest", "trees": 3, "seed": 0, "splitter": "histogram"}
    for target in ("x3", "x4"):
        task = "regression" if target == "x3" else "classification"
        for ignore in ((), ("x2",)):
            others = [*ignore, "x3" if target == "x4" else "x4"]
            reading = {"task": task, "ignore": others, "nominal": None if ignore else ["x2"]}
            parts = [x[:200], x[200:]]
            places = [("first", 200), ("second", len(x) - 200)]
            # With many threads, nodes of few rows are split by the counts of all partitions.
            train_by_levels(LocalEngine(), parts, places, target, reading, settings, Resources(8))


def _limit_trees(algorithm: str) -> dict[str, Any]:
    return {"trees": 3} if algorithm in ("bagging", "extra_trees") else {}


KINDS: Mapping[str, Callable[[], object]] = {
    "use": _compile_use,
    "demo": _compile_demo,
    "trees": _compile_trees,
    "classification": _compile_classification,
    "regression": _compile_regression,
    "rare": _compile_rare,
    "many-classes": _compile_many_classes,
    "serving": compile_for_serving,
    "levels": _compile_levels,
}
"""Kinds of use, each with the function that compiles its kernels."""


def compile_kinds(kinds: Iterable[str]) -> None:
    """Compile the kernels of some kinds of use in this process, and print each kind when done."""
    for kind in kinds:
        KINDS[kind]()
        sys.stdout.write(f"{kind}\n")
        sys.stdout.flush()


SECONDS: Mapping[str, int] = {
    "use": 20,
    "demo": 50,
    "trees": 40,
    "classification": 80,
    "regression": 70,
    "rare": 80,
    "many-classes": 15,
    "serving": 25,
    "levels": 30,
}
"""Approximate compile time of each kind, after the kinds before it."""

_N_PROCESSES = 2


def split_kinds(kinds: Iterable[str]) -> list[list[str]]:
    """Split kinds into parts of about equal compile time, one for each process."""
    parts: list[list[str]] = [[] for _ in range(_N_PROCESSES)]
    for kind in sorted(kinds, key=lambda kind: -SECONDS[kind]):
        min(parts, key=lambda part: sum(SECONDS[kind] for kind in part)).append(kind)
    # The second begins with other kernels than the first, as either finds what the other stored.
    return [part for part in (parts[0], *(part[::-1] for part in parts[1:])) if part]


def compile_in_processes(
    parts: Sequence[Sequence[str]],
    environment: Mapping[str, str] | None = None,
    into: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Compile parts, each a sequence of kinds, in parallel processes.

    Parameters
    ----------
    parts : sequence of sequences of str
    environment : mapping, optional
        Environment variables of the processes; by default those of this process.
    into : str
        Folder for the machine code; by default numba's cache.
    progress : callable, optional
        Called as ``progress(done, total)`` at the start and after each kind.

    Raises
    ------
    RuntimeError
        If a process fails; the message contains its error output.
    """
    options = ["--into", into] if into else []
    reading, writing = os.pipe()
    with tempfile.TemporaryFile("w+") as errors, os.fdopen(reading, encoding="utf-8") as lines:
        processes = [
            subprocess.Popen(  # noqa: S603 - this interpreter
                _make_command(*options, *part),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=errors,
            )
            for part in parts
        ]
        os.close(writing)
        # A line for each kind; ends with the last process.
        for done, _ in enumerate(itertools.chain([""], lines)):
            if progress is not None:
                progress(done, sum(map(len, parts)))
        codes = [one.wait() for one in processes]
        if any(codes):
            errors.seek(0)
            raise RuntimeError(f"kernels do not compile:\n{errors.read()}")


def _make_command(*arguments: str) -> list[str]:
    """Return a command that runs `main` of this treekit, without modules of the current folder."""
    code = "import sys; sys.path.append(sys.argv.pop(1)); from treekit.warm_up import main; main()"
    return [sys.executable, "-P", "-c", code, str(Path(__file__).parents[1]), *arguments]


@contextmanager
def compile_in_background(kind: str) -> Iterator[None]:
    """Compile a kind of use in a second process, started when this one first compiles a kernel.

    This process loads the kernels that it needs later from the cache on disk.  The end of the
    block stops the second process; this process compiles any kernels that are still missing.
    With a library of kernels there is no second process.
    """
    from treekit.kernels import library

    if library.get_library() is not None:
        yield
        return
    from numba.core.event import Listener, install_listener

    helpers: list[subprocess.Popen[bytes]] = []

    class FirstCompilation(Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            kernel = event.data["dispatcher"]
            stored = kernel.stats.cache_path is not None
            module = str(kernel.py_func.__module__)
            if not helpers and stored and module.startswith("treekit.kernels."):
                nowhere = subprocess.DEVNULL
                with suppress(OSError):
                    helpers.append(
                        subprocess.Popen(  # noqa: S603 - this interpreter
                            _make_command(kind), stdin=nowhere, stdout=nowhere, stderr=nowhere
                        )
                    )

        def on_end(self, event: Any) -> None:
            pass

    if (os.cpu_count() or 1) < _N_PROCESSES or not sys.executable:
        yield
        return
    try:
        with install_listener("numba:compile", FirstCompilation()):
            yield
    finally:
        for helper in helpers:
            helper.terminate()
            helper.wait()


def build_machine_code(folder: str, kinds: Iterable[str] = ()) -> None:
    """Compile kinds (by default all) for a wheel, for the baseline processor of this platform."""
    from treekit.kernels.prebuilt import get_baseline

    baseline = get_baseline()
    if baseline is None:
        return
    settings = {
        "NUMBA_CPU_NAME": baseline,
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_DISABLE_INTEL_SVML": "1",  # other machines may not have that library
    }
    compile_in_processes(split_kinds(kinds or KINDS), os.environ | settings, into=folder)


def main() -> None:
    """Compile the kinds that the command line names, by default all."""
    parser = argparse.ArgumentParser("python -m treekit.warm_up", description=__doc__)
    parser.add_argument("--record", metavar="DIR", help="compile into this folder, for a wheel")
    parser.add_argument("--into", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    given = parser.parse_args()
    if given.record:
        build_machine_code(given.record, given.kinds)
        return
    if given.into:
        from treekit.kernels import prebuilt

        prebuilt.record_machine_code(Path(given.into))
    compile_kinds(given.kinds or KINDS)


if __name__ == "__main__":
    main()
