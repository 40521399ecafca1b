"""Killing workers does not change predictions, scores or verification on a cluster."""

from __future__ import annotations

import importlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import treekit
from tests.distributed import ANY, FOREST, make_frame
from treekit import evaluation
from treekit.distributed import collections, failures, score_files
from treekit.distributed.cluster import DaskEngine
from treekit.distributed.failures import ClusterError
from treekit.distributed.parquet_files import find_files
from treekit.distributed.score_files import predict_files
from treekit.evaluation import evaluate_files
from treekit.verify import table_rows

dask = pytest.importorskip("dask")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


class KillOnce:
    """A task that kills its worker process the first time."""

    def __init__(self, module: Any, name: str, mark: Path) -> None:
        self.module, self.__name__, self.mark = module.__name__, name, str(mark)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            task = getattr(importlib.import_module(self.module), self.__name__)
            return task(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class KillEach:
    """A progress bar that kills the workers one after another, from the first finished file on."""

    def __init__(self, client: Any) -> None:
        self.left = sorted(client.run(os.getpid).values())
        self.killed: list[int] = []

    def __call__(self, done: int, total: int) -> None:
        if self.left:
            self.killed.append(self.left.pop())
            os.kill(self.killed[-1], signal.SIGKILL)


@pytest.fixture
def client() -> Iterator[Any]:
    """Return a client of two worker processes, of which tests kill some."""
    with (
        # A busy machine takes more than the default 15 seconds to restart a worker.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 day"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Return a table."""
    return make_frame()


@pytest.fixture(scope="module")
def model(frame: pd.DataFrame) -> treekit.Model:
    """Return a forest."""
    return treekit.train(frame, **ANY, **FOREST)


@pytest.fixture
def rows(frame: pd.DataFrame, tmp_path: Path) -> str:
    """Write the table as eight files."""
    (tmp_path / "rows").mkdir()
    for k in range(8):
        frame.iloc[75 * k : 75 * k + 75].to_parquet(tmp_path / f"rows/p{k}.parquet")
    return str(tmp_path / "rows")


def read_folder(path: Path) -> pd.DataFrame:
    """Read the files that `predict_files` writes."""
    assert len(list(path.iterdir())) == 8
    return pd.concat([pd.read_parquet(file) for file in sorted(path.iterdir())])


def test_predictions_are_complete_after_a_worker_is_killed(
    model: treekit.Model, frame: pd.DataFrame, rows: str, client: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    mark = tmp_path / "killed"
    monkeypatch.setattr(score_files, "predict_file", KillOnce(score_files, "predict_file", mark))
    predict_files(model, find_files(rows), str(tmp_path / "out"), client, proba=True)
    assert mark.exists()
    found = read_folder(tmp_path / "out")
    np.testing.assert_array_equal(found.pop("y"), model.predict(frame))
    np.testing.assert_array_equal(found, model.predict_proba(frame))
    np.testing.assert_array_equal(found.index, frame.index)


def test_results_are_equal_if_all_workers_are_killed_one_by_one(
    model: treekit.Model, frame: pd.DataFrame, rows: str, client: Any, tmp_path: Path
) -> None:
    kill = KillEach(client)
    predict_files(model, find_files(rows), str(tmp_path / "out"), client, progress=kill)
    assert len(kill.killed) == 2
    np.testing.assert_array_equal(read_folder(tmp_path / "out")["y"], model.predict(frame))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "rows"]
    again = KillEach(client)
    found = evaluate_files(model, find_files(rows), client, progress=again)
    assert len(again.killed) == 2
    assert found.to_dict() == treekit.evaluate(model, frame).to_dict()


def test_scores_are_equal_after_a_worker_is_killed(
    model: treekit.Model, frame: pd.DataFrame, rows: str, client: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    expected = treekit.evaluate(model, frame).to_dict()
    for name in ("_predict_file", "_score_rows"):
        mark = tmp_path / name
        monkeypatch.setattr(evaluation, name, KillOnce(evaluation, name, mark))
        assert evaluate_files(model, find_files(rows), client).to_dict() == expected
        assert mark.exists()
        monkeypatch.undo()


def test_certificate_is_unchanged_after_a_worker_is_killed(
    model: treekit.Model, rows: str, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = treekit.train(make_frame(seed=1), **ANY, **FOREST)
    (artifact,) = treekit.export(other, "python", tmp_path / "m.py")
    certificates = []
    for mark in (None, tmp_path / "killed"):
        if mark is not None:
            kill = KillOnce(table_rows, "_verify_files", mark)
            monkeypatch.setattr(table_rows, "_verify_files", kill)
        report = treekit.verify(model, [artifact], random_rows=10, on=rows, cluster=client)
        certificates.append(json.dumps([one.differing for one in report.on_artifacts]))
        assert [one.rows for one in report.on_artifacts] == [600]
        assert mark is None or mark.exists()
    assert certificates[0] == certificates[1] != "[0]"


def test_a_cluster_without_workers_is_an_error(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "PATIENCE", 2)
    task = client.submit(time.sleep, 100, pure=False)
    client.cluster.scale(0)
    with pytest.raises(ClusterError, match="the cluster has had no worker for 2 seconds; start"):
        DaskEngine(client).wait([task])


def test_lazy_predictions_are_equal_after_a_worker_is_killed(
    model: treekit.Model, frame: pd.DataFrame, client: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    mark = tmp_path / "killed"
    kill = KillOnce(collections, "_predict_frame", mark)
    monkeypatch.setattr(collections, "_predict_frame", kill)
    found = model.predict(dd.from_pandas(frame, npartitions=6)).compute()
    assert mark.exists()
    np.testing.assert_array_equal(found, model.predict(frame))
