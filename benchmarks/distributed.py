"""Forests on a cluster of this machine beside one process, and beside other libraries.

Each cluster (Dask's; Spark's own for Spark) has one thread a process.  Workers hold the table in
eight partitions and have loaded their libraries before timing.  CPU seconds are those of this
process, the scheduler and all workers; MB sent are those of the loopback interface.  `equal` is 1
if the trees are those of the library's first side, byte for byte; AUC is that of other rows.  In
the second case a worker process is killed halfway through.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import pickle
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.clock import peak, reset_peak
from benchmarks.data import Rows, points
from benchmarks.frame import OWN, Benchmark, Entry, Figure, Options, Parameter, register

__all__: list[str] = []

_PARTITIONS = 8
_TARGET = "y"
_LEAVES = 131_072
"""Largest number of leaves of LightGBM."""
_SPARK_DEPTH = 30
"""Largest depth of MLlib."""
_SIDES = {
    "treekit": ("treekit", 0),
    "treekit local:1": ("treekit", 1),
    "treekit local:2": ("treekit", 2),
    "treekit levels local:1": ("treekit levels", 1),
    "treekit levels local:2": ("treekit levels", 2),
    "xgboost local:1": ("xgboost", 1),
    "xgboost local:2": ("xgboost", 2),
    "lightgbm local:1": ("lightgbm", 1),
    "lightgbm local:2": ("lightgbm", 2),
    "spark local:1": ("pyspark", 1),
    "spark local:2": ("pyspark", 2),
}
"""Library (and mode) and number of workers of each side; 0: this process."""


class Trained(NamedTuple):
    """Trees as bytes, and the function that returns scores of the second class for rows."""

    trees: bytes
    score: Callable[[Rows], Any]


class Cluster(NamedTuple):
    """A running cluster: its client, the table that it holds, and the process IDs of workers."""

    client: Any
    table: Any
    workers: list[int]


# ---------------------------------------------------------------- libraries


def _train_treekit(cluster: Cluster, options: Options, mode: str = "auto") -> Trained:
    import treekit

    model = treekit.train(
        cluster.table, _TARGET, ensemble="forest", trees=options.trees, seed=0,
        cluster=cluster.client, max_depth=options.depth or None, oob=False, n_jobs=1,
        cluster_mode=mode, splitter="histogram",
    )  # fmt: skip
    model.save(options.folder / "m.treekit")
    trees = (options.folder / "m.treekit").read_bytes()
    return Trained(trees, lambda rows: model.predict_proba(_frame(rows))[:, 1])


def _train_treekit_by_levels(cluster: Cluster, options: Options) -> Trained:
    return _train_treekit(cluster, options, "levels")


def _train_lightgbm(cluster: Cluster, options: Options) -> Trained:
    import lightgbm

    model = lightgbm.DaskLGBMClassifier(
        client=cluster.client, boosting_type="rf", subsample=0.632, subsample_freq=1, verbose=-1,
        n_estimators=options.trees, max_depth=options.depth or -1,
        num_leaves=min(2**options.depth, _LEAVES) if options.depth else _LEAVES,
        min_child_samples=1, min_child_weight=0.0, min_split_gain=1e-6, random_state=0,
        n_jobs=1, feature_fraction_bynode=options.features**-0.5, histogram_pool_size=256.0,
    )  # fmt: skip
    x = cluster.table.drop(columns=_TARGET).to_dask_array(lengths=True)
    model.fit(x, cluster.table[_TARGET].to_dask_array(lengths=True))
    text: str = model.booster_.model_to_string()
    return Trained(
        text.partition("\nparameters:")[0].encode(), lambda rows: model.booster_.predict(rows.x)
    )


def _train_xgboost(cluster: Cluster, options: Options) -> Trained:
    import xgboost
    import xgboost.dask

    settings = {
        "objective": "binary:logistic", "tree_method": "hist", "learning_rate": 1.0, "seed": 0,
        "num_parallel_tree": options.trees, "max_depth": options.depth or 0, "nthread": 1,
        "subsample": 0.632, "colsample_bynode": options.features**-0.5, "min_child_weight": 0.0,
        "lambda": 0.0,
    }  # fmt: skip
    table = cluster.table
    data = xgboost.dask.DaskDMatrix(cluster.client, table.drop(columns=_TARGET), table[_TARGET])
    found = xgboost.dask.train(cluster.client, settings, data, num_boost_round=1)
    booster = found["booster"]
    names = list(table.columns.drop(_TARGET))
    return Trained(
        bytes(booster.save_raw("json")),
        lambda rows: booster.predict(xgboost.DMatrix(rows.x, feature_names=names)),
    )


def _train_spark(cluster: Cluster, options: Options) -> Trained:
    from pyspark.ml.classification import RandomForestClassifier
    from pyspark.ml.functions import vector_to_array

    model = RandomForestClassifier(
        labelCol=_TARGET, numTrees=options.trees, maxDepth=options.depth or _SPARK_DEPTH, seed=0,
        featureSubsetStrategy="sqrt", minInstancesPerNode=1, maxBins=255, maxMemoryInMB=512,
    ).fit(cluster.table)  # fmt: skip

    def score(rows: Rows) -> Any:
        path = options.folder / "test.parquet"
        _frame(rows).to_parquet(path)
        table = _assemble(cluster.client.read.parquet(str(path)).coalesce(1))
        shares = model.transform(table).select(vector_to_array("probability")[1])
        return shares.toPandas().to_numpy().ravel()

    return Trained(model.toDebugString.partition("\n")[2].encode(), score)


def _assemble(table: Any) -> Any:
    """Return a table of Spark with the columns in one vector, as MLlib requires them."""
    from pyspark.ml.feature import VectorAssembler

    names = [name for name in table.columns if name != _TARGET]
    kept = ["features", *(name for name in table.columns if name == _TARGET)]
    return VectorAssembler(inputCols=names, outputCol="features").transform(table).select(kept)


_TRAIN: dict[str, Callable[[Cluster, Options], Trained]] = {
    "treekit": _train_treekit,
    "treekit levels": _train_treekit_by_levels,
    "xgboost": _train_xgboost,
    "lightgbm": _train_lightgbm,
    "pyspark": _train_spark,
}


# ---------------------------------------------------------------- rounds


def _run(options: Options) -> Iterator[Entry]:
    """Train on each side in turn, then on two workers of which one is killed."""
    from sklearn.metrics import roc_auc_score

    for number in range(options.rounds):
        rows, test = points(options.rows * 5 // 4, options.features, 2, number)
        known: dict[str, bytes] = {}
        walls: dict[str, float] = {}
        for side in options.sides:
            library, workers = _SIDES[side]
            if why := _find_absent(library):
                yield Entry("a forest", side, failed=why)
                continue
            with _start(library, workers, rows, options) as cluster:
                train = partial(_TRAIN[library], cluster, options)
                trained, figures = _measure(cluster.workers, train)
                figures["auc"] = float(roc_auc_score(test.y, trained.score(test)))
            walls[library] = figures["wall"]
            first = known.setdefault(library.partition(" ")[0], trained.trees)
            yield Entry("a forest", side, figures | {"equal": float(trained.trees == first)})
        for side in options.sides:
            library, workers = _SIDES[side]
            if workers == 2 and library in walls:
                yield _kill(
                    side, rows, known[library.partition(" ")[0]], walls[library] / 2, options
                )


def _find_absent(library: str) -> str:
    needed = [library.partition(" ")[0]] + ["distributed"] * (library != "pyspark")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    return f"{missing[0]} is not installed" if missing else ""


def _frame(rows: Rows) -> Any:
    frame = rows.frame()
    frame.columns = frame.columns.map(str)
    return frame


@contextmanager
def _start(library: str, workers: int, rows: Rows, options: Options) -> Iterator[Cluster]:
    """Start workers that have loaded the library, and hold the table; with 0 workers, only this."""
    frame = _frame(rows).assign(**{_TARGET: rows.y})
    if library == "pyspark":
        with _start_spark(workers, frame, options) as cluster:
            yield cluster
        return
    if not workers:
        _warm_up(library)
        yield Cluster(None, frame, [os.getpid()])
        return
    import dask
    import dask.dataframe as dd
    from distributed import Client, LocalCluster, wait

    with (
        dask.config.set({"distributed.worker.memory.terminate": False}),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as local,
        Client(local) as client,
    ):  # fmt: skip
        client.run(_warm_up, library)
        table = dd.from_pandas(frame, npartitions=_PARTITIONS, sort=False).persist()
        wait(table)
        yield Cluster(client, table, list(client.run(os.getpid).values()))


@contextmanager
def _start_spark(workers: int, frame: Any, options: Options) -> Iterator[Cluster]:
    """Start a cluster of Spark with an executor process a worker, which caches the table."""
    import psutil
    import pyspark
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    settings = {
        "spark.executor.memory": f"{options.memory}m", "spark.driver.memory": "2g",
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
    }  # fmt: skip
    master = f"local-cluster[{workers},1,{options.memory}]"
    session = SparkSession.builder.master(master).config(map=settings).getOrCreate()
    try:
        frame.to_parquet(options.folder / "train.parquet")
        stored = session.read.parquet(str(options.folder / "train.parquet"))
        table = _assemble(stored.repartition(_PARTITIONS)).cache()
        table.count()
        executors = [
            child.info["pid"]
            for child in psutil.process_iter(["pid", "cmdline"])
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend"
            in (child.info["cmdline"] or ())
        ]
        yield Cluster(session, table, executors)
    finally:
        session.stop()


def _warm_up(library: str) -> None:
    """Load a library, and treekit's kernels by a forest of one split."""
    importlib.import_module(library.partition(" ")[0])
    if library.startswith("treekit"):
        import treekit

        rows, _ = points(100, 3, 2, 0)
        frame = _frame(rows).assign(**{_TARGET: rows.y})
        treekit.train(
            frame, _TARGET, ensemble="forest", trees=1, max_depth=1, seed=0, oob=False,
            splitter="histogram",
        )  # fmt: skip
        if library == "treekit levels":
            from treekit.distributed.level_builder import LocalEngine
            from treekit.distributed.levels import Resources, train_by_levels

            settings = {"ensemble": "forest", "trees": 16, "seed": 0, "splitter": "histogram"}
            places = [("the table", len(frame))]
            train_by_levels(LocalEngine(), [frame], places, _TARGET, {}, settings, Resources(1))


def _measure(workers: list[int], call: Callable[[], Trained]) -> tuple[Trained, dict[str, float]]:
    """Measure a call: seconds of all processes, the largest worker's memory, and MB sent."""
    known = [reset_peak(worker) for worker in workers]
    cpu, sent, wall = _get_cpu(), _get_sent(), time.perf_counter()
    trained = call()
    wall = time.perf_counter() - wall
    figures = {"cpu": _get_cpu() - cpu, "wall": wall, "sent": _get_sent() - sent}
    peaks = [peak(worker) for worker in workers]
    if None not in known:
        figures["memory"] = max(found for found in peaks if found is not None)
    return trained, figures


def _get_cpu() -> float:
    """Return the CPU seconds of this process and its descendants."""
    import psutil

    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def _get_sent() -> float:
    """Return the megabytes that the loopback interface has sent."""
    import psutil

    return float(psutil.net_io_counters(pernic=True)["lo"].bytes_sent / 1e6)


def _kill(side: str, rows: Rows, expected: bytes, after: float, options: Options) -> Entry:
    """Kill a worker of two after some seconds of training; a library may raise, or hang."""
    library, workers = _SIDES[side]
    found: list[Trained | BaseException] = []
    with _start(library, workers, rows, options) as cluster:

        def train() -> None:
            try:
                found.append(_TRAIN[library](cluster, options))
            except BaseException as error:  # noqa: BLE001 - any failure is a figure
                found.append(error)

        thread = threading.Thread(target=train, daemon=True)
        began = time.perf_counter()
        thread.start()
        time.sleep(after)
        late = not thread.is_alive()
        os.kill(cluster.workers[0], signal.SIGKILL)
        thread.join(options.patience)
        wall = time.perf_counter() - began
    if late:
        return Entry("a worker is killed", side, failed="ended before the worker was killed")
    if not found:
        return Entry("a worker is killed", side, failed=f"no answer in {options.patience:.0f} s")
    if isinstance(found[0], BaseException):
        words = " ".join(str(found[0]).split())
        return Entry("a worker is killed", side, failed=f"{type(found[0]).__name__}: {words:.90}")
    equal = float(found[0].trees == expected)
    return Entry("a worker is killed", side, {"wall": wall, "equal": equal})


# ---------------------------------------------------------------- steps of training by levels

_STEPS = {
    "read": ("read_chunk", "select_telling_rows"),
    "hash and number equal rows": (
        "sort_hashes", "merge_hashes", "describe_drawn", "make_own_sampler", "split_copies",
        "number_later_copies", "add_sampler",
    ),
    "find bins, three passes": ("count_chunk",),
    "encode": ("encode_chunk", "make_partition"),
    "draw": ("draw_bags",),
    "count and split large nodes": ("count_level", "split_block", "move_bags"),
    "send small nodes": ("collect_rows",),
    "grow small nodes": ("grow_block",),
    "vote out of bag": ("add_votes", "predict_votes"),
}  # fmt: skip
"""Functions of the workers in each step."""

_SENT = ("count_level", "collect_rows", "grow_block", "count_chunk")
"""Functions whose results are sent to other processes."""


def _run_steps(options: Options) -> Iterator[Entry]:
    """Train by levels in this process, and measure each function of the workers."""
    from treekit.distributed.level_builder import LocalEngine
    from treekit.distributed.levels import Resources, train_by_levels

    class MeasuringEngine(LocalEngine):
        def __init__(self) -> None:
            self.seconds: Counter[str] = Counter()
            self.sent: Counter[str] = Counter()

        def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
            began = time.process_time()
            found = function(*arguments)
            name = getattr(function, "__name__", "")
            self.seconds[name] += time.process_time() - began
            if name in _SENT:
                part = found[1] if name == "count_level" else found
                self.sent[name] += len(pickle.dumps(part, protocol=5))
            return found

    settings = {
        "ensemble": "forest", "trees": options.trees, "seed": 0, "splitter": "histogram",
        "max_depth": options.depth or None,
    }  # fmt: skip
    for number in range(options.rounds):
        rows, _ = points(options.rows * 5 // 4, options.features, 2, number)
        frame = _frame(rows).assign(**{_TARGET: rows.y})
        for table in (frame[:1000], frame):
            engine = MeasuringEngine()
            ends = [len(table) * k // _PARTITIONS for k in range(_PARTITIONS + 1)]
            parts = [table[a:b] for a, b in itertools.pairwise(ends)]
            places = [(f"part {k}", len(part)) for k, part in enumerate(parts)]
            resources = Resources(options.workers, options.memory << 20)
            train_by_levels(engine, parts, places, _TARGET, {}, settings, resources)
        for step, names in _STEPS.items():
            seconds = sum(engine.seconds[name] for name in names)
            sent = sum(engine.sent[name] for name in names) / 1e6
            yield Entry(
                step, OWN, {"cpu": seconds, "row": seconds / len(frame) * 1e9, "sent": sent}
            )


register(
    Benchmark(
        "levels",
        "the steps of training by levels",
        _run_steps,
        (
            Figure("cpu", "CPU s"),
            Figure("row", "ns a row", ".0f"),
            Figure("sent", "MB sent", ".1f"),
        ),
        {
            "rows": Parameter(2_000_000, 2_000, "training rows"),
            "features": Parameter(28, 5, "columns"),
            "trees": Parameter(10, 2, "trees"),
            "depth": Parameter(12, 4, "largest depth; 0: none"),
            "workers": Parameter(2, 2, "threads of the workers"),
            "memory": Parameter(2048, 2048, "MB of a thread"),
        },
        rounds=1,
    )
)


register(
    Benchmark(
        "distributed",
        "a forest on a cluster of this machine; a worker is killed",
        _run,
        (
            Figure("cpu", "CPU s", ratio=True),
            Figure("wall", "wall s"),
            Figure("memory", "largest worker, MB", ".0f"),
            Figure("sent", "MB sent", ".0f"),
            Figure("auc", "AUC", ".4f"),
            Figure("equal", "same trees", ".0f"),
        ),
        {
            "rows": Parameter(200_000, 2_000, "training rows"),
            "features": Parameter(28, 5, "columns"),
            "trees": Parameter(20, 20, "trees"),
            "depth": Parameter(12, 0, "largest depth; 0: none"),
            "memory": Parameter(2048, 2048, "MB of a worker of Spark"),
            "patience": Parameter(120.0, 60.0, "seconds to wait after a worker was killed"),
        },
        own=tuple(side for side in _SIDES if side.startswith("treekit")),
        peers=tuple(side for side in _SIDES if not side.startswith("treekit")),
        rounds=1,
        toy_peers=(),
    )
)
