"""Generated C of one model: treekit's compared with m2cgen's, tl2cgen's and YDF's C++.

treekit imports the scikit-learn estimator that m2cgen and tl2cgen write; YDF writes its
own forest of the same size. All are compiled by gcc with the same flags and score the
same rows in turn. "Differing" are boundary rows, at and next to thresholds, for which
the source predicts another label than its model; "other bits" are rows whose
probabilities differ in any bit (m2cgen and tl2cgen compare doubles that scikit-learn
first rounds to float32).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks import sides
from benchmarks.apart import Failed
from benchmarks.c_compiled import Compiled, build
from benchmarks.c_written import OWN, PEERS, own_kind, written
from benchmarks.data import Rows, points
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register

__all__ = ["Models", "fitted"]

FIGURES = (
    Figure("single", "us a row", ".3f", ratio=True),
    Figure("batch", "us in a batch", ".3f"),
    Figure("source", "source MB", ".2f"),
    Figure("compile", "compile s", ".2f"),
    Figure("compile_mb", "compile MB", ".0f"),
    Figure("compiled", "compiled KB", ".0f"),
    Figure("differing", "differing", ",.0f"),
    Figure("other bits", "other bits", ",.0f"),
    Figure("probes", "boundary rows", ",.0f"),
)
GRAPHS = ("onnx", "skl2onnx")


class Models(NamedTuple):
    """The models of the writers: scikit-learn's, its import by treekit, and YDF's."""

    estimator: Any
    model: Any
    ydf: Any

    def of(self, side: str) -> Any:
        """Return the model that a side writes."""
        if side == "ydf C++":
            return self.ydf
        return self.model if side in OWN else self.estimator

    def shares(self, side: str, rows: Any) -> Any:
        """Predict class shares (rows, classes) by the side's own model."""
        if side == "ydf C++":
            share = self.ydf.predict(_columns(rows))
            return np.stack([1 - share, share], axis=1)
        if side in OWN or side == "treekit, onnx":
            named = dict(zip(self.model.schema.names, rows.T, strict=True))
            return self.model.predict_proba(named)
        return self.estimator.predict_proba(rows)


def _columns(rows: Any) -> dict[str, Any]:
    return Rows(rows.astype(np.float32), np.zeros(len(rows))).columns(text=True)


def fitted(rows: Rows, trees: int, depth: int | None, peers: tuple[str, ...]) -> Models:
    """Fit the models, YDF's only if it is among the peers."""
    from sklearn.ensemble import RandomForestClassifier

    import treekit

    one = {"bootstrap": False, "max_features": None} if trees == 1 else {}
    forest = RandomForestClassifier(trees, max_depth=depth, random_state=0, n_jobs=2, **one)
    estimator = forest.fit(rows.x, rows.y)
    ydf = None
    if "ydf C++" in peers and not sides.absent("ydf C++"):
        work = sides.Work(trees, depth, tried="all" if trees == 1 else "sqrt")
        learner = sides.learner("ydf")
        ydf = learner.fit(work, learner.given(rows), rows)
    return Models(estimator, treekit.read_model(estimator), ydf)


def _run(options: Options) -> Iterator[Entry]:
    o = options
    train, _ = points(o.rows * 5 // 4, o.features, 2, 0)
    models = fitted(train, o.trees, o.depth or None, o.sides)
    deep = f"depth {o.depth}" if o.depth else "fully grown"
    case = f"{o.trees:,} tree{'s' * (o.trees > 1)}, {deep}, {models.model.n_nodes:,} nodes"
    probes = _probes(models.model, o.probes)
    rows = np.random.default_rng(1).normal(scale=2.0, size=(o.score_rows, o.features))
    made: dict[str, Compiled] = {}
    first: dict[str, dict[str, float]] = {}
    for side in o.sides:
        if side.removeprefix("treekit, ") in GRAPHS:
            why = sides.absent(side)
            yield (
                Entry(case, side, failed=why)
                if why
                else Entry(case, side, _of_graph(side, models, probes, options))
            )
            continue
        try:
            made[side] = _made(side, models, options)
        except Failed as why:
            yield Entry(case, side, failed=str(why))
            continue
        first[side] = made[side].figures | _bits(side, made[side], models, probes)
    for _ in range(o.rounds):
        for side, one in made.items():
            given = one.wanted(rows)
            figures = first.pop(side, {}) | {"single": one.timed(given, "ask")}
            if side in OWN:
                figures["batch"] = one.timed(given, "ask_batch")
            yield Entry(case, side, figures)


def _probes(model: Any, most: int) -> Any:
    """Make rows at and next to thresholds, without missing values, which peers do not support."""
    from treekit.verify import make_probes

    probes = make_probes(model, most, 0, most).rows
    return np.where(np.abs(probes) < np.finfo(np.float32).max, probes, 0.0)


def _made(side: str, models: Models, options: Options) -> Compiled:
    why = sides.absent(side)
    if why:
        raise Failed(why)
    place = options.folder / side.replace(" ", "_")
    schema, kind = models.model.schema, side if side in PEERS else own_kind(side)
    written(side, models.of(side), place, options.seconds)
    return build(place, kind, schema.n_features, schema.n_values, options.seconds)


def _bits(side: str, one: Compiled, models: Models, probes: Any) -> dict[str, float]:
    """Count the boundary rows that the source predicts differently from its model."""
    shares, own = one.ask(one.wanted(probes)), models.shares(side, probes)
    found = {"probes": float(len(probes))}
    found["differing"] = float((shares.argmax(axis=1) != own.argmax(axis=1)).sum())
    if one.cells == "uint32_t":
        shares = shares / models.model.unit_total
    return found | {"other bits": float((shares != own).any(axis=1).sum())}


def _of_graph(side: str, models: Models, probes: Any, options: Options) -> dict[str, float]:
    """Return the size and differing rows of an ONNX graph on float32 rows, without timing."""
    import onnxruntime

    import treekit

    single = probes.astype(np.float32)
    if side == "skl2onnx":
        import skl2onnx

        known = models.estimator
        plain = {id(known): {"zipmap": False}}
        content = skl2onnx.to_onnx(known, single[:1], options=plain).SerializeToString()
        single = np.ascontiguousarray(single)
    else:
        path = treekit.export(models.model, "onnx", options.folder / "m.onnx")[0]
        content = path.read_bytes()
    own = models.shares(side, single.astype(np.float64))
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    labels, shares = session.run(None, {session.get_inputs()[0].name: single})
    classes = np.asarray(models.estimator.classes_)
    return {
        "source": len(content) / 1e6,
        "probes": float(len(probes)),
        "differing": float((labels != classes[own.argmax(axis=1)]).sum()),
        "other bits": float((shares != own).any(axis=1).sum()),
    }


def _parameters(rows: int, trees: int, depth: int) -> dict[str, Parameter]:
    return {
        "rows": Parameter(rows, 240, "training rows"),
        "features": Parameter(28, 5, "columns"),
        "trees": Parameter(trees, min(trees, 3), "trees"),
        "depth": Parameter(depth, 3, "depth; 0: fully grown"),
        "score_rows": Parameter(20_000, 500, "rows to score"),
        "probes": Parameter(50_000, 300, "maximum boundary rows"),
        "seconds": Parameter(150.0, 20.0, "maximum seconds for one step of a side"),
    }


_add = partial(
    Benchmark,
    run=_run,
    figures=FIGURES,
    own=(*OWN, "treekit, onnx"),
    peers=(*PEERS, "skl2onnx"),
    rounds=5,
)
register(_add("generated-c", "C of 100 trees of depth 8", parameters=_parameters(20_000, 100, 8)))
register(_add("generated-c-tree", "C of one full tree", parameters=_parameters(225_000, 1, 0)))
