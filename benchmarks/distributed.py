"""Forests on a Dask cluster of this machine beside one process, and beside other libraries.

Each cluster has one thread a process. Workers hold the table in eight partitions and have
loaded their libraries before timing. CPU seconds are those of this process, the scheduler in
it, and all workers. `equal` is 1 if the trees are those of the library's first side, byte for
byte. In the second case a worker process is killed halfway through.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.clock import Cost, peak, reset_peak
from benchmarks.data import Rows, points
from benchmarks.frame import Benchmark, Entry, Figure, Options, Parameter, register

__all__: list[str] = []

_PARTITIONS = 8
_TARGET = "y"
_SIDES = {
    "treekit": ("treekit", 0),
    "treekit, local:1": ("treekit", 1),
    "treekit, local:2": ("treekit", 2),
    "treekit, levels, local:1": ("treekit levels", 1),
    "treekit, levels, local:2": ("treekit levels", 2),
    "xgboost, 1 worker": ("xgboost", 1),
    "xgboost, 2 workers": ("xgboost", 2),
    "lightgbm, 1 worker": ("lightgbm", 1),
    "lightgbm, 2 workers": ("lightgbm", 2),
}
"""Library (and mode) and number of workers of each side; 0: this process."""


def _train_treekit(client: Any, table: Any, options: Options, mode: str = "auto") -> bytes:
    import treekit

    model = treekit.train(
        table, _TARGET, ensemble="forest", trees=options.trees, seed=0, cluster=client,
        max_depth=options.depth or None, oob=False, n_jobs=1, cluster_mode=mode,
        splitter="histogram",
    )  # fmt: skip
    model.save(options.folder / "m.treekit")
    return (options.folder / "m.treekit").read_bytes()


def _train_treekit_by_levels(client: Any, table: Any, options: Options) -> bytes:
    return _train_treekit(client, table, options, "levels")


def _train_lightgbm(client: Any, table: Any, options: Options) -> bytes:
    import lightgbm

    model = lightgbm.DaskLGBMClassifier(
        client=client, boosting_type="rf", subsample=0.632, subsample_freq=1, verbose=-1,
        n_estimators=options.trees, max_depth=options.depth or -1, num_leaves=131_072,
        min_child_samples=1, min_child_weight=0.0, min_split_gain=1e-6, random_state=0,
        n_jobs=1, feature_fraction_bynode=options.features**-0.5, histogram_pool_size=256.0,
    )  # fmt: skip
    x = table.drop(columns=_TARGET).to_dask_array(lengths=True)
    model.fit(x, table[_TARGET].to_dask_array(lengths=True))
    text: str = model.booster_.model_to_string()
    return text.partition("\nparameters:")[0].encode()


def _train_xgboost(client: Any, table: Any, options: Options) -> bytes:
    import xgboost.dask

    settings = {
        "objective": "binary:logistic", "tree_method": "hist", "learning_rate": 1.0, "seed": 0,
        "num_parallel_tree": options.trees, "max_depth": options.depth or 0, "nthread": 1,
        "subsample": 0.632, "colsample_bynode": options.features**-0.5, "min_child_weight": 0.0,
        "lambda": 0.0,
    }  # fmt: skip
    data = xgboost.dask.DaskDMatrix(client, table.drop(columns=_TARGET), table[_TARGET])
    found = xgboost.dask.train(client, settings, data, num_boost_round=1)
    return bytes(found["booster"].save_raw("json"))


_TRAIN: dict[str, Callable[[Any, Any, Options], bytes]] = {
    "treekit": _train_treekit,
    "treekit levels": _train_treekit_by_levels,
    "xgboost": _train_xgboost,
    "lightgbm": _train_lightgbm,
}


def _run(options: Options) -> Iterator[Entry]:
    """Train on each side in turn, then on two workers of which one is killed."""
    for number in range(options.rounds):
        rows, _ = points(options.rows * 5 // 4, options.features, 2, number)
        known: dict[str, bytes] = {}
        walls: dict[str, float] = {}
        for side in options.sides:
            library, workers = _SIDES[side]
            if why := _find_absent(library):
                yield Entry("a forest", side, failed=why)
                continue
            with _start(library, workers, rows) as (client, table):
                trees, cost = _measure(client, lambda: _TRAIN[library](client, table, options))  # noqa: B023 - called here
            walls[library] = cost.wall
            first = known.setdefault(library.partition(" ")[0], trees)
            equal = {"equal": float(trees == first)}
            yield Entry("a forest", side, cost.figures() | equal)
        for side in options.sides:
            library, workers = _SIDES[side]
            if workers == 2 and library in walls:
                yield _kill(
                    side, rows, known[library.partition(" ")[0]], walls[library] / 2, options
                )


def _find_absent(library: str) -> str:
    needed = (library.partition(" ")[0], "distributed")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    return f"{missing[0]} is not installed" if missing else ""


@contextmanager
def _start(library: str, workers: int, rows: Rows) -> Iterator[tuple[Any, Any]]:
    """Start workers that have loaded the library, and hold the table; with 0 workers, only this."""
    frame = rows.frame().assign(**{_TARGET: rows.y})
    frame.columns = frame.columns.map(str)
    if not workers:
        _warm_up(library)
        yield None, frame
        return
    import dask
    import dask.dataframe as dd
    from distributed import Client, LocalCluster, wait

    with (
        dask.config.set({"distributed.worker.memory.terminate": False}),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        client.run(_warm_up, library)
        table = dd.from_pandas(frame, npartitions=_PARTITIONS, sort=False).persist()
        wait(table)
        yield client, table


def _warm_up(library: str) -> None:
    """Load a library, and treekit's kernels by a forest of one split."""
    importlib.import_module(library.partition(" ")[0])
    if library.startswith("treekit"):
        import treekit

        rows, _ = points(100, 3, 2, 0)
        frame = rows.frame().assign(**{_TARGET: rows.y})
        frame.columns = frame.columns.map(str)
        treekit.train(
            frame, _TARGET, ensemble="forest", trees=1, max_depth=1, seed=0, oob=False,
            splitter="histogram",
        )  # fmt: skip
        if library == "treekit levels":
            from treekit.grow.level_builder import LocalEngine
            from treekit.training.levels import Resources, train_by_levels

            settings = {"ensemble": "forest", "trees": 16, "seed": 0, "splitter": "histogram"}
            places = [("the table", len(frame))]
            train_by_levels(LocalEngine(), [frame], places, _TARGET, {}, settings, Resources(1))


def _measure(client: Any, call: Callable[[], bytes]) -> tuple[bytes, Cost]:
    """Measure a call: CPU seconds of all processes, and the largest rise of a worker's memory."""
    ask = (lambda f: list(client.run(f).values())) if client else (lambda f: [f()])
    before = ask(reset_peak)
    cpu, own, wall = sum(ask(time.process_time)), time.process_time(), time.perf_counter()
    trees = call()
    wall = time.perf_counter() - wall
    own = time.process_time() - own if client else 0.0
    cpu = sum(ask(time.process_time)) - cpu + own
    rises = [b - a for a, b in zip(before, ask(peak), strict=True) if None not in (a, b)]
    return trees, Cost(cpu, wall, max([0.0, *rises]) if rises else None)


def _kill(side: str, rows: Rows, expected: bytes, after: float, options: Options) -> Entry:
    """Kill a worker of two after some seconds of training; a library may raise, or hang."""
    library, workers = _SIDES[side]
    found: list[bytes | BaseException] = []
    with _start(library, workers, rows) as (client, table):

        def train() -> None:
            try:
                found.append(_TRAIN[library](client, table, options))
            except BaseException as error:  # noqa: BLE001 - any failure is a figure
                found.append(error)

        victim = next(iter(client.run(os.getpid).values()))
        thread = threading.Thread(target=train, daemon=True)
        began = time.perf_counter()
        thread.start()
        time.sleep(after)
        late = not thread.is_alive()
        os.kill(victim, signal.SIGKILL)
        thread.join(options.patience)
        wall = time.perf_counter() - began
    if late:
        return Entry("a worker is killed", side, failed="ended before the worker was killed")
    if not found:
        return Entry("a worker is killed", side, failed=f"no answer in {options.patience:.0f} s")
    if isinstance(found[0], BaseException):
        words = " ".join(str(found[0]).split())
        return Entry("a worker is killed", side, failed=f"{type(found[0]).__name__}: {words:.90}")
    equal = float(found[0] == expected)
    return Entry("a worker is killed", side, {"wall": wall, "equal": equal})


register(
    Benchmark(
        "distributed",
        "a forest on a Dask cluster of this machine; a worker is killed",
        _run,
        (
            Figure("cpu", "CPU s", ratio=True),
            Figure("wall", "wall s"),
            Figure("memory", "largest worker, MB more", ".0f"),
            Figure("equal", "same trees", ".0f"),
        ),
        {
            "rows": Parameter(200_000, 2_000, "training rows"),
            "features": Parameter(28, 5, "columns"),
            "trees": Parameter(20, 20, "trees"),
            "depth": Parameter(0, 0, "largest depth; 0: none"),
            "patience": Parameter(120.0, 60.0, "seconds to wait after a worker was killed"),
        },
        own=tuple(side for side in _SIDES if side.startswith("treekit")),
        peers=tuple(side for side in _SIDES if not side.startswith("treekit")),
        rounds=1,
        toy_peers=(),
    )
)
