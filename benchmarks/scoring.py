"""Scoring from Python: single rows and batches, on one thread.

All sides score in this process, in turn, each until it has used a fifth of a second.
treekit and onnxruntime use scikit-learn's forest (treekit imports it, skl2onnx converts
it), so that the trees are the same; YDF grows a forest of the same size, and its
accuracy is reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks import sides
from benchmarks.apart import Failed
from benchmarks.c_compiled import build
from benchmarks.c_written import own_kind, written
from benchmarks.data import Rows, points
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register
from benchmarks.generated_c import Models, fitted

__all__ = ["answering"]

Ask = Callable[[], Any]

FIGURES = (
    Figure("us", "CPU us a row", ".3f", ratio=True),
    Figure("rows", "rows a CPU second", ",.0f"),
    Figure("quality", "accuracy", ".4f"),
)


def _sklearn(models: Models, rows: Any) -> Ask:
    models.estimator.n_jobs = 1
    return lambda: models.estimator.predict_proba(rows)


def _ydf(models: Models, rows: Any) -> Ask:
    columns = Rows(rows, np.zeros(len(rows))).columns(text=True)
    return lambda: models.ydf.predict(columns, num_threads=1)


def _session(content: Any, rows: Any) -> Ask:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: rows})[1]


def _onnxruntime(models: Models, rows: Any) -> Ask:
    import skl2onnx

    known = models.estimator
    graph = skl2onnx.to_onnx(known, rows[:1], options={id(known): {"zipmap": False}})
    return _session(graph.SerializeToString(), rows)


def _treekit(models: Models, rows: Any) -> Ask:
    return lambda: models.model.predict_proba(rows)


def _handle(models: Models, rows: Any) -> Ask:
    """Return a call of the low-latency scorer for one row."""
    score, row = models.model.scorer(), rows[0]
    return lambda: score.proba(row)


def _graph(models: Models, rows: Any, options: Options) -> Ask:
    import treekit

    path = treekit.export(models.model, "onnx", options.folder / "m.onnx")[0]
    return _session(str(path), rows)


def _compiled(side: str, models: Models, rows: Any, options: Options) -> Ask:
    """Return a call that scores all rows by C of treekit or m2cgen."""
    own = side.startswith("treekit")
    writer, kind = ("treekit, float rows", "float") if own else (side, side)
    place = options.folder / side.replace(" ", "_")
    written(writer, models.of(writer), place, options.limit)
    assert not own or own_kind(writer) == kind
    one = build(place, kind, rows.shape[1], models.model.schema.n_values, options.limit)
    given = one.wanted(rows)
    return partial(one.ask, given, "ask_batch" if own else "ask")


def answering(side: str, models: Models, rows: Any, options: Options) -> Ask:
    """Return a function that scores the rows; raise `Failed` if the side cannot."""
    why = sides.absent(side)
    if why:
        raise Failed(why)
    if side in ("m2cgen", "treekit C"):
        return _compiled(side, models, rows, options)
    if side == "treekit ONNX":
        return _graph(models, rows, options)
    makers = {
        "sklearn": _sklearn, "ydf": _ydf, "onnxruntime": _onnxruntime, "treekit": _treekit,
        "treekit handle": _handle,
    }  # fmt: skip
    return makers[side](models, rows)


def _seconds(ask: Ask, least: float) -> float:
    """Measure CPU seconds per call, over calls of at least `least` seconds in total."""
    calls, start = 0, time.process_time()
    while True:
        ask()
        calls += 1
        used = time.process_time() - start
        if used >= least:
            return used / calls


def _run(options: Options) -> Iterator[Entry]:
    o = options
    train, test = points(o.train_rows + o.rows, o.features, 2, 0)
    rows = Rows(np.concatenate([train.x, test.x]), np.concatenate([train.y, test.y]))
    train, test = rows.take(slice(o.train_rows)), rows.take(slice(o.train_rows, None))
    ydf = ("ydf C++",) if "ydf" in o.sides else ()
    models = fitted(train, o.trees, o.depth or None, ydf)
    deep = f"depth {o.depth}" if o.depth else "fully grown"
    many = "one row" if o.rows == 1 else f"{o.rows:,} rows"
    case = f"{many}, {o.trees} tree{'s' * (o.trees > 1)} {deep}, {models.model.n_nodes:,} nodes"
    asks: dict[str, Ask] = {}
    for side in o.sides:
        try:
            asks[side] = answering(side, models, test.x, options)
        except Failed as why:
            yield Entry(case, side, failed=str(why))
        else:
            asks[side]()  # compiles and packs before timing
    for _ in range(o.rounds):
        for side, ask in asks.items():
            used = _seconds(ask, o.seconds)
            figures = {"us": used / o.rows * 1e6, "rows": o.rows / used}
            if o.rows > 1:
                figures["quality"] = _accuracy(ask(), test.y)
            yield Entry(case, side, figures)


def _accuracy(said: Any, truth: Any) -> float:
    """Compute the accuracy of class shares (rows, classes), or of the second class's (YDF)."""
    labels = said.argmax(axis=1) if said.ndim == 2 else said > 0.5
    return float((labels == truth).mean())


def _parameters(rows: int, trees: int, depth: int, train: int = 20_000) -> dict[str, Parameter]:
    return {
        "rows": Parameter(rows, min(rows, 200), "rows per call"),
        "train_rows": Parameter(train, 200, "training rows"),
        "features": Parameter(28, 5, "columns"),
        "trees": Parameter(trees, min(trees, 3), "trees"),
        "depth": Parameter(depth, min(depth, 3), "depth; 0: fully grown"),
        "seconds": Parameter(0.2, 0.001, "minimum CPU seconds of a side in a round"),
    }


_PEERS = ("sklearn", "ydf", "onnxruntime")
_OWN = ("treekit", "treekit ONNX")
_add = partial(Benchmark, run=_run, figures=FIGURES, own=_OWN, peers=_PEERS, rounds=7)
register(
    _add("one-row", "one row from Python, 100 trees of depth 8", parameters=_parameters(1, 100, 8),
         own=("treekit", "treekit handle", "treekit ONNX"))
)  # fmt: skip
register(
    _add("batch", "a batch from Python, 100 trees of depth 8",
         parameters=_parameters(100_000, 100, 8))
)  # fmt: skip
register(
    Benchmark(
        "batch-deep", "a batch, fully grown forest of 5 million nodes", _run, FIGURES,
        _parameters(20_000, 100, 0, 235_000), _OWN, ("sklearn", "ydf"), rounds=3,
    )
)  # fmt: skip
register(
    Benchmark(
        "one-tree-batch", "a batch, one tree of depth 8, and compiled C", _run, FIGURES,
        _parameters(200_000, 1, 8), ("treekit", "treekit C"), ("sklearn", "m2cgen"), rounds=7,
    )
)  # fmt: skip
