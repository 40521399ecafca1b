"""Models of a cluster equal those of one process, byte for byte."""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import RegressorMixin, clone

import treekit
from tests.distributed import ANY, FOREST, make_frame, save
from treekit.distributed import cluster as clusters
from treekit.distributed import whole_trees
from treekit.distributed.cluster import DaskEngine, check_workers
from treekit.distributed.failures import ClusterError, Watch
from treekit.distributed.parquet_files import find_files
from treekit.distributed.score_files import predict_files
from treekit.errors import DataError, SettingError
from treekit.estimators import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from treekit.progress import reports_compilation
from treekit.registry.discovery import find_declarations

dd = pytest.importorskip("dask.dataframe")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*Sending large graph:UserWarning"),
]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Return a client of two worker processes."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


TRAININGS: dict[str, dict[str, Any]] = {
    "classes": {**ANY, **FOREST},
    "weights": {"target": "y", "ignore": ["number"], "weights": "w", **FOREST},
    "numbers": {"target": "number", "ignore": ["y", "w"], "task": "regression", **FOREST},
    "quantile": {
        "target": "number", "ignore": ["y", "w"], "criterion": "absolute_error", **FOREST
    },
    "extra trees": {**ANY, **FOREST, "splitter": "random", "bootstrap": False},
    "surrogates": {**ANY, **FOREST, "missing": "surrogate"},
    "fractional": {**ANY, **FOREST, "missing": "fractional", "max_depth": 4},
    "pruned": {**ANY, **FOREST, "pruner": "reduced_error"},
    "a pruned tree": {**ANY, "pruner": "cost_complexity", "seed": 1},
    "c45": {**ANY, "algorithm": "c45", "seed": 1},
}  # fmt: skip


@pytest.mark.parametrize("training", TRAININGS)
def test_model_of_partitions_equals_that_of_the_table(
    training: str, client: Any, tmp_path: Path
) -> None:
    frame, settings = make_frame(), dict(TRAININGS[training])
    target = settings.pop("target")
    expected = save(treekit.train(frame, target, **settings), tmp_path)
    for partitions in (1, 7):
        rows = dd.from_pandas(frame, npartitions=partitions)
        assert save(treekit.train(rows, target, cluster=client, **settings), tmp_path) == expected


@pytest.mark.parametrize("workers", [1, 3])
def test_model_does_not_depend_on_the_number_of_workers(workers: int, tmp_path: Path) -> None:
    frame = make_frame()
    expected = save(treekit.train(frame, **ANY, **FOREST), tmp_path)
    model = treekit.train(frame, **ANY, **FOREST, cluster=f"local:{workers}")
    assert save(model, tmp_path) == expected


def return_part(part: pd.DataFrame) -> pd.DataFrame:
    """Return a partition."""
    return part


def test_empty_and_tiny_partitions_do_not_change_the_model(client: Any, tmp_path: Path) -> None:
    frame = make_frame()
    ends = [0, 0, 1, 2, 300, 300, 600]
    parts = [frame.iloc[a:b] for a, b in itertools.pairwise(ends)]
    # Each partition declares only the categories that it has.
    parts = [part.assign(c=part["c"].cat.remove_unused_categories()) for part in parts]
    parts[0] = frame.iloc[:0]
    rows = dd.from_map(return_part, parts, meta=frame.iloc[:0])
    # Categories are in the order in which the partitions declare them, as for Dask itself.
    expected = save(treekit.train(rows.compute(), **ANY, **FOREST), tmp_path)
    assert save(treekit.train(rows, **ANY, **FOREST, cluster=client), tmp_path) == expected


def test_validation_table_may_be_a_dask_collection(client: Any, tmp_path: Path) -> None:
    frame, held = make_frame(), make_frame(200, seed=1)
    settings = {**ANY, **FOREST, "pruner": "reduced_error"}
    expected = save(treekit.train(frame, **settings, validation=held), tmp_path)
    found = treekit.train(
        dd.from_pandas(frame, npartitions=3), **settings, cluster=client,
        validation=dd.from_pandas(held, npartitions=2),
    )  # fmt: skip
    assert save(found, tmp_path) == expected


@pytest.mark.parametrize("kind", [RandomForestClassifier, RandomForestRegressor])
def test_estimators_use_the_dask_backend_of_joblib(kind: Any, client: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4))
    y = x[:, 0] + rng.normal(size=400)
    y = y if kind is RandomForestRegressor else y > 0
    alone = kind(40, oob_score=True, random_state=0).fit(x, y)
    with joblib.parallel_config(backend="dask"):
        shared = kind(40, oob_score=True, random_state=0).fit(x, y)
    assert save(shared.model_, tmp_path) == save(alone.model_, tmp_path)
    assert shared.oob_score_ == alone.oob_score_


ESTIMATORS: list[Any] = [
    RandomForestClassifier(7, oob_score=True, random_state=0),
    RandomForestRegressor(7, random_state=0),
    DecisionTreeClassifier(random_state=0, ccp_alpha=0.001),
    DecisionTreeRegressor(random_state=0, max_depth=5),
]


@pytest.mark.filterwarnings("ignore:.* rows are in the bag of every tree")
@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda own: type(own).__name__)
def test_estimators_are_fitted_to_dask_collections(kind: Any, client: Any, tmp_path: Path) -> None:
    frame = make_frame()
    target = "number" if isinstance(kind, RegressorMixin) else "y"
    inputs = frame[["a", "b", "c"]]
    alone = clone(kind).fit(inputs, frame[target], frame["w"])
    rows = dd.from_pandas(frame, npartitions=3)
    blocks = da.from_array(frame["w"].to_numpy(), chunks=200)
    shared = clone(kind).fit(rows[["a", "b", "c"]], rows[target], blocks)
    assert save(shared.model_, tmp_path) == save(alone.model_, tmp_path)
    assert list(vars(shared)) == list(vars(alone))
    assert list(shared.feature_names_in_) == ["a", "b", "c"]
    assert getattr(shared, "oob_score_", 0) == getattr(alone, "oob_score_", 0)
    numbers = frame[["b", "w"]].to_numpy()
    alone = clone(kind).fit(numbers, frame[target].to_numpy())
    shared = clone(kind).fit(
        da.from_array(numbers, chunks=(250, 1)), da.from_array(frame[target].to_numpy(), 170)
    )
    assert save(shared.model_, tmp_path) == save(alone.model_, tmp_path)
    lazy = shared.predict(da.from_array(numbers, chunks=(250, 1)))
    assert lazy.dtype == alone.predict(numbers).dtype
    np.testing.assert_array_equal(lazy.compute(), alone.predict(numbers))


def test_estimators_refuse_unsupported_settings_with_dask_collections(client: Any) -> None:
    frame = make_frame()
    rows = dd.from_pandas(frame, npartitions=3)
    forest = RandomForestClassifier(2, warm_start=True, random_state=0)
    forest.fit(rows[["a", "b"]], rows["y"])
    with pytest.raises(SettingError, match="warm_start continues no forest on Dask collections"):
        forest.set_params(n_estimators=3).fit(rows[["a", "b"]], rows["y"])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        DecisionTreeClassifier().fit(rows[["a", "b"]], rows["y"].partitions[:2])
    frame.loc[430, "number"] = np.inf
    rows = dd.from_pandas(frame, npartitions=3)
    with pytest.raises(DataError, match=r"row 30 of partition 2 \(counting from 0\)"):
        DecisionTreeClassifier().fit(rows[["number"]], rows["y"])


def test_categories_and_types_of_a_single_file_do_not_change_the_model(
    client: Any, tmp_path: Path
) -> None:
    frame = make_frame()
    frame["c"] = frame["c"].astype(object)
    frame.loc[250, "c"] = "only here"
    frame.loc[200:399, "d"] = None  # of type null in this file
    frame.loc[:199, "d"] = "s"
    frame.loc[400:, "d"] = "t"
    frame["k"] = frame["b"].astype(object)
    frame.loc[599, "k"] = None  # an integer elsewhere
    (tmp_path / "rows").mkdir()
    for k in range(3):
        part = frame.iloc[200 * k : 200 * k + 200]
        part = part.assign(k=part["k"].astype(float if k == 2 else int))
        part.to_parquet(tmp_path / f"rows/p{k}.parquet")
    settings = {"ignore": ["number", "w"], **FOREST}
    expected = treekit.train(frame.assign(k=frame["k"].astype(float)), "y", **settings)
    assert {"only here"} < set(expected.schema.columns[2].levels)
    found = treekit.train(f"{tmp_path}/rows", "y", cluster=client, **settings)
    assert save(found, tmp_path) == save(expected, tmp_path)
    predict_files(found, find_files(tmp_path / "rows"), f"{tmp_path}/said", client)
    parts = [pd.read_parquet(path) for path in sorted((tmp_path / "said").iterdir())]
    np.testing.assert_array_equal(pd.concat(parts)["y"], expected.predict(frame))


def test_a_model_file_does_not_mention_workers(client: Any, tmp_path: Path) -> None:
    content = save(treekit.train(make_frame(), **ANY, **FOREST, cluster=client), tmp_path)
    names = ["cluster", "worker", "dask", "partition", "tcp:"]
    names += [address.partition("//")[2] for address in client.scheduler_info()["workers"]]
    with zipfile.ZipFile(tmp_path / "m.treekit") as archive:
        content += b"".join(archive.read(name) for name in archive.namelist())
    assert b"training_table" in content
    assert [name for name in names if name.encode() in content] == []


def test_progress_counts_the_trees_and_no_task_remains(client: Any) -> None:
    seen: list[tuple[int, int]] = []
    rows = dd.from_pandas(make_frame(), npartitions=3)
    treekit.train(
        rows, **ANY, **FOREST, cluster=client, progress=lambda *counts: seen.append(counts)
    )
    assert seen == sorted(seen)
    assert seen[-1] == (7, 7)
    wait_for_no_tasks(client)


@pytest.mark.parametrize("mode", ["trees", "levels"])
def test_no_task_remains_after_an_error_with_its_traceback_kept(client: Any, mode: str) -> None:
    rows = dd.from_pandas(make_frame(), npartitions=3)
    with pytest.raises(DataError) as raised:
        treekit.train(rows, "nothing", cluster=client, cluster_mode=mode, ensemble="forest")
    wait_for_no_tasks(client)
    assert raised.value.__traceback__ is not None


def wait_for_no_tasks(client: Any) -> None:
    """Wait until the scheduler has forgotten all tasks."""
    for _ in range(100):
        if not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
            return
        time.sleep(0.1)
    raise AssertionError("tasks remain on the scheduler")


# ------------------------------------------------------------------ faults

STEPS = {"reading": "_load", "encoding": "_prepare", "growing": "_grow", "making": "_fit"}


@pytest.mark.parametrize("step", STEPS)
def test_killed_worker_does_not_change_the_model(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = make_frame()
    expected = save(treekit.train(frame, **ANY, **FOREST), tmp_path)
    mark = str(tmp_path / "killed")
    monkeypatch.setattr(whole_trees, STEPS[step], KillOnce(STEPS[step], mark))
    model = treekit.train(dd.from_pandas(frame, npartitions=4), **ANY, **FOREST, cluster="local:2")
    assert Path(mark).exists()
    assert save(model, tmp_path) == expected


class KillOnce:
    """A task that kills its worker process the first time."""

    def __init__(self, name: str, mark: str) -> None:
        self.__name__, self.mark = name, mark

    def __call__(self, *arguments: Any) -> Any:
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return getattr(whole_trees, self.__name__)(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def kill_worker(*_: Any) -> None:
    """Kill the worker process."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_task_that_kills_every_worker_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_trees, "_count_trees", kill_worker)
    with pytest.raises(ClusterError, match=r"4 workers died while .* they ran out"):
        treekit.train(make_frame(), **ANY, **FOREST, cluster="local:2")


def test_only_one_worker_of_a_local_cluster_reports_compilation() -> None:
    with clusters._start_local_cluster(2) as client:
        assert sorted(client.run(reports_compilation).values()) == [False, True]


def sleep(seconds: float) -> None:
    """Sleep."""
    time.sleep(seconds)


def test_ctrl_c_cancels_all_tasks(client: Any) -> None:
    engine = DaskEngine(client)
    tasks = [engine.submit(sleep, 5.0 + k) for k in range(6)]
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        engine.wait(tasks)
    timer.join()
    assert all(task.cancelled() for task in tasks)


def test_data_errors_equal_those_of_one_process(client: Any) -> None:
    frame = make_frame()
    for settings, error in (({"trees": 0}, SettingError), ({"ignore": ["nothing"]}, DataError)):
        messages = []
        given = {**ANY, **FOREST, **settings}
        for rows in (frame, dd.from_pandas(frame, npartitions=2)):
            with pytest.raises(error) as raised:
                treekit.train(rows, **given, cluster=None if rows is frame else client)
            messages.append(str(raised.value))
        assert messages[0] == messages[1]


def test_worker_with_a_different_plugin_is_reported(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_workers(Watch(client))
    only_here = SimpleNamespace(source=SimpleNamespace(distribution="treekit-one", version="1.0"))
    monkeypatch.setattr(
        clusters, "find_declarations", lambda complain: [*find_declarations(complain), only_here]
    )
    with pytest.raises(
        ClusterError,
        match=r"worker tcp://\S+ named \d has plugin treekit-one not installed, this process 1\.0",
    ):
        check_workers(Watch(client))


def test_every_difference_of_a_worker_is_reported() -> None:
    own = clusters.describe_process()
    assert clusters.describe_process() == own
    other = {**own, "numba": "0.1", "plugin x": "2", "checksum of log and exp": "0"}
    with pytest.raises(ClusterError) as raised:
        clusters.compare_workers(own, {"worker tcp://b": own, "worker tcp://a": other})
    message = str(raised.value)
    assert f"worker tcp://a has numba 0.1, this process {own['numba']}" in message
    assert "worker tcp://a has plugin x 2, this process not installed" in message
    assert "worker tcp://a has checksum of log and exp 0, this process" in message
    assert "tcp://b" not in message


def test_a_table_that_does_not_fit_a_worker_is_refused_with_figures(monkeypatch: Any) -> None:
    table = whole_trees._Held([], [("partition 0", 1)], 10_000_000_000, 1)
    limits = iter([(4_000_000_000, "worker tcp://a"), None])
    monkeypatch.setattr(whole_trees, "find_smallest_memory", lambda _: next(limits))
    error = whole_trees._find_unfit([table], SimpleNamespace(client=None))
    assert re.search(r"the table takes 10 GB .* but worker tcp://a has 4 GB", str(error))
    assert whole_trees._find_unfit([table], SimpleNamespace(client=None)) is None
