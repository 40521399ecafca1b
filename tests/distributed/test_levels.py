"""Training by levels on a Dask cluster writes the model file of one process, byte for byte."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treekit
from tests.distributed import ANY, make_frame, save
from tests.distributed.test_whole_trees import return_part, wait_for_no_tasks
from treekit.distributed import level_builder, levels, whole_trees
from treekit.errors import DataError, SettingError

dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*Sending large graph:UserWarning"),
]

FOREST: dict[str, Any] = {
    **ANY, "ensemble": "forest", "trees": 7, "seed": 5, "splitter": "histogram"
}  # fmt: skip
LEVELS: dict[str, Any] = {**FOREST, "cluster_mode": "levels"}


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


@pytest.fixture(autouse=True)
def use_small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grow several levels, in two waves, of a table that would be sent whole otherwise."""
    choose_sizes = levels.choose_sizes

    def choose_small_nodes(*arguments: Any) -> Any:
        _, sizes = choose_sizes(*arguments)
        return 4, replace(sizes, small_weight=40.0)

    monkeypatch.setattr(levels, "choose_sizes", choose_small_nodes)
    monkeypatch.setattr(levels, "_RANGE_ROWS", 200)


def test_model_does_not_depend_on_the_partitions(client: Any, tmp_path: Path) -> None:
    frame = make_frame()
    expected = save(treekit.train(frame, **FOREST), tmp_path)
    seen: list[tuple[int, int]] = []
    for partitions in (1, 2, 7):
        rows = dd.from_pandas(frame, npartitions=partitions)
        model = treekit.train(
            rows, **LEVELS, cluster=client, progress=lambda *counts: seen.append(counts)
        )
        assert save(model, tmp_path) == expected
    assert seen == [(4, 7), (7, 7)] * 3
    parts = [frame.iloc[a:b] for a, b in itertools.pairwise([0, 0, 1, 2, 300, 300, 600])]
    rows = dd.from_map(return_part, parts, meta=frame.iloc[:0])
    assert save(treekit.train(rows, **LEVELS, cluster=client), tmp_path) == expected
    # In another order of rows too, whose categories Dask joins in the same order.
    rows = dd.from_map(return_part, parts[::-1], meta=frame.iloc[:0])
    assert save(treekit.train(rows, **LEVELS, cluster=client), tmp_path) == expected
    wait_for_no_tasks(client)


@pytest.mark.parametrize("mode", ["trees", "levels"])
def test_column_numeric_in_one_partition_and_text_in_another_is_refused(
    client: Any, mode: str
) -> None:
    frame = make_frame()
    parts = [frame[:200], frame[200:].assign(a="abc")]
    rows = dd.from_map(return_part, parts, meta=frame.iloc[:0])
    message = "column 'a' holds text in partition 1, but numbers in partition 0"
    with pytest.raises(DataError, match=message):
        treekit.train(rows, **FOREST, cluster=client, cluster_mode=mode)


@pytest.mark.parametrize("workers", [1, 3])
def test_model_does_not_depend_on_the_number_of_workers(workers: int, tmp_path: Path) -> None:
    frame = make_frame()
    numbers = {**FOREST, "target": "number", "ignore": ["y", "w"], "task": "regression"}
    expected = save(treekit.train(frame, **numbers), tmp_path)
    rows = dd.from_pandas(frame, npartitions=5)
    model = treekit.train(rows, **numbers, cluster_mode="levels", cluster=f"local:{workers}")
    assert save(model, tmp_path) == expected


@pytest.mark.parametrize("settings", [{}, {"ensemble": "tree"}], ids=["forest", "tree"])
@pytest.mark.parametrize("weights", [None, "w"])
def test_regression_means_of_many_magnitudes_do_not_depend_on_partitions(
    client: Any, settings: dict[str, Any], weights: str | None, tmp_path: Path
) -> None:
    frame = make_frame()
    frame["number"] = 10.0 ** np.random.default_rng(0).uniform(0, 7, len(frame))
    ignored = ["y"] if weights else ["y", "w"]
    numbers = {**FOREST, "target": "number", "ignore": ignored, "task": "regression"}
    numbers |= {"weights": weights, **settings}
    if settings:
        del numbers["trees"]
    expected = save(treekit.train(frame, **numbers), tmp_path)
    for mode, partitions in (("levels", 3), ("levels", 1), ("trees", 3)):
        rows = dd.from_pandas(frame, npartitions=partitions)
        model = treekit.train(rows, **numbers, cluster=client, cluster_mode=mode)
        assert save(model, tmp_path) == expected, mode


def test_plugin_criterion_is_used_unchanged(client: Any, tmp_path: Path) -> None:
    pytest.importorskip("treekit_hellinger")
    frame = make_frame()
    given = {**FOREST, "criterion": "hellinger"}
    frame = frame[frame["y"] != "rare"].reset_index(drop=True)
    expected = save(treekit.train(frame, **given), tmp_path)
    rows = dd.from_pandas(frame, npartitions=3)
    model = treekit.train(rows, **given, cluster_mode="levels", cluster=client)
    assert save(model, tmp_path) == expected


def test_levels_train_a_table_larger_than_the_memory_of_a_worker(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = make_frame()
    expected = save(treekit.train(frame, **FOREST), tmp_path)
    monkeypatch.setattr(whole_trees, "find_smallest_memory", lambda _: (10_000, "w"))
    rows = dd.from_pandas(frame, npartitions=3)
    assert save(treekit.train(rows, **FOREST, cluster=client), tmp_path) == expected
    with pytest.raises(SettingError, match=r"splitter 'exact'.* each worker needs about .* GB"):
        treekit.train(rows, **{**FOREST, "splitter": "exact"}, cluster=client)
    with pytest.raises(whole_trees.ClusterError, match="each worker needs about"):
        treekit.train(rows, **FOREST, cluster=client, cluster_mode="trees")
    with pytest.raises(SettingError, match="does not support a table in the memory of this"):
        treekit.train(frame, **LEVELS, cluster=client)
    with pytest.raises(SettingError, match="unknown cluster_mode 'both'; known: auto, trees"):
        treekit.train(rows, **FOREST, cluster=client, cluster_mode="both")
    with pytest.raises(SettingError, match="without a cluster"):
        treekit.train(frame, **LEVELS)


# ------------------------------------------------------------------ faults

STEPS = {
    levels: (
        "select_telling_rows", "read_chunk", "sort_hashes", "merge_hashes",
        "get_target", "count_chunk", "encode_chunk", "make_partition", "describe_drawn",
        "make_own_sampler", "split_copies", "number_later_copies", "add_sampler", "add_votes",
        "predict_votes",
    ),
    level_builder: ("draw_bags", "count_level", "split_block", "collect_rows", "grow_block"),
}  # fmt: skip


class KillOnce:
    """A task that kills its worker process, the second time it is run."""

    def __init__(self, module: Any, name: str, mark: str) -> None:
        self.module, self.__name__, self.mark = module.__name__, name, mark

    def __call__(self, *arguments: Any) -> Any:
        for mark in (f"{self.mark}-1", f"{self.mark}-2"):
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            if mark.endswith("2"):
                os.kill(os.getpid(), signal.SIGKILL)
            break
        module = {"levels": levels, "level_builder": level_builder}[self.module.split(".")[-1]]
        return getattr(module, self.__name__)(*arguments)


@pytest.mark.parametrize(
    ("module", "step"), [(module, step) for module, steps in STEPS.items() for step in steps]
)
def test_killed_worker_does_not_change_the_model(
    module: Any, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = make_frame()
    expected = save(treekit.train(frame, **FOREST), tmp_path)
    mark = str(tmp_path / "killed")
    monkeypatch.setattr(module, step, KillOnce(module, step, mark))
    rows = dd.from_pandas(frame, npartitions=4)
    model = treekit.train(rows, **LEVELS, cluster="local:2")
    assert Path(f"{mark}-2").exists()
    assert save(model, tmp_path) == expected


def test_ctrl_c_leaves_no_tasks(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level_builder, "split_block", sleep_long)
    rows = dd.from_pandas(make_frame(), npartitions=4)
    timer = threading.Timer(6.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        treekit.train(rows, **LEVELS, cluster=client)
    timer.join()
    wait_for_no_tasks(client)


def sleep_long(*_: Any) -> None:
    """Sleep longer than the test."""
    time.sleep(20.0)
