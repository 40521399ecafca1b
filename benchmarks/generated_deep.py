"""C of a fully grown forest of millions of nodes: written, compiled and run.

m2cgen and tl2cgen do not finish at this size (`generated-c` shows their cost for 30,000
nodes), so treekit is the only side. Writing and running have separate processes, so
that their memory can be measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.apart import Failed, ask
from benchmarks.c_compiled import build
from benchmarks.clock import measured
from benchmarks.data import points
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register

__all__ = ["answered", "exported"]

FIGURES = (
    Figure("total", "all, s", ".1f"),
    Figure("most", "most MB", ".0f"),
    Figure("source", "source MB", ".0f"),
    Figure("export", "write, s", ".1f"),
    Figure("export_mb", "MB", ".0f"),
    Figure("compile", "compile, s", ".1f"),
    Figure("compile_mb", "MB", ".0f"),
    Figure("run", "run, s", ".2f"),
    Figure("run_mb", "MB", ".0f"),
    Figure("batch", "us a row, in a batch", ".2f"),
    Figure("differing", "differing", ",.0f"),
)


def exported(model: str, source: str) -> dict[str, float]:
    """Measure CPU seconds and megabytes of writing the C of a model file."""
    import treekit

    own = treekit.load(model)
    _, cost = measured(lambda: treekit.export(own, "c", source, input="float"))
    return {"export": cost.cpu, "export_mb": cost.memory or 0.0}


def answered(folder: str, features: int, outputs: int) -> dict[str, float]:
    """Compile the source in a folder and score its rows; memory is measured above the rows."""
    place = Path(folder)
    one = build(place, "float", features, outputs, 600.0)
    rows, expected = np.load(place / "rows.npy"), np.load(place / "answers.npy")
    predicted, cost = measured(lambda: one.ask(rows, "ask_batch"))
    return one.figures | {
        "run": cost.cpu,
        "run_mb": cost.memory or 0.0,
        "batch": cost.cpu / len(rows) * 1e6,
        "differing": float((predicted != expected).any(axis=1).sum()),
    }


def _run(options: Options) -> Iterator[Entry]:
    import treekit

    o = options
    train, test = points(o.rows * 5 // 4, 28, 2, 0)
    forest = treekit.RandomForestClassifier(o.trees, random_state=0, n_jobs=2)
    model = forest.fit(train.x, train.y).model_
    case = f"{o.trees} trees, fully grown, {model.n_nodes:,} nodes"
    rows = np.ascontiguousarray(test.x[: o.score_rows])
    np.save(o.folder / "rows.npy", rows)
    np.save(o.folder / "answers.npy", model.predict_proba(rows))
    model.save(o.folder / "model.treekit")
    known = str(o.folder / "model.treekit"), str(o.folder / "m.c")
    size = str(o.folder), model.schema.n_features, model.schema.n_values
    for _ in range(o.rounds):
        try:
            found = ask(exported, *known, apart=o.apart, limit=o.limit)
            found |= ask(answered, *size, apart=o.apart, limit=o.limit)
        except Failed as why:
            yield Entry(case, "treekit", failed=str(why))
            return
        found["total"] = found["export"] + found["compile"] + found["run"]
        found["most"] = max(found[key] for key in ("export_mb", "compile_mb", "run_mb"))
        yield Entry(case, "treekit", found)


register(
    Benchmark(
        "generated-c-deep", "C of a fully grown forest of 5 million nodes", _run, FIGURES,
        {
            "rows": Parameter(235_000, 240, "training rows"),
            "trees": Parameter(100, 2, "trees"),
            "score_rows": Parameter(20_000, 50, "rows to score"),
        },
        rounds=1,
    )
)  # fmt: skip
