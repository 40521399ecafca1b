"""Dask collections without a cluster: lazy predictions, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treekit
from tests.distributed import ANY, FOREST, make_frame
from treekit.data.table import read_table
from treekit.distributed.cluster import locate_part, locate_row
from treekit.errors import DataError, SettingError
from treekit.estimators import RandomForestClassifier, RandomForestRegressor

dd = pytest.importorskip("dask.dataframe")
da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.matrix


def test_dask_collection_without_a_client_is_refused() -> None:
    rows = dd.from_pandas(make_frame(30), npartitions=2)
    with pytest.raises(SettingError, match="no client is active; create one"):
        treekit.train(rows, **ANY)
    with pytest.raises(DataError, match=r"got a Dask collection; pass table\.compute\(\)"):
        read_table(rows)


@pytest.mark.parametrize("cluster", ["local:0", "local:", "localhost:8786", 3])
def test_objects_that_are_not_clusters_are_refused(cluster: Any) -> None:
    with pytest.raises(SettingError, match=r"expected a cluster such as tcp://HOST:8786 or local"):
        treekit.train(make_frame(30), **ANY, cluster=cluster)


def test_lazy_predictions_equal_those_of_the_whole_table() -> None:
    frame = make_frame()
    frame.index = np.arange(len(frame))[::-1] * 3
    rows = dd.from_pandas(frame, npartitions=5, sort=False)
    model = treekit.train(frame, **ANY, **FOREST)
    labels, shares = model.predict(rows), model.predict_proba(rows)
    found = labels.compute(scheduler="synchronous")
    np.testing.assert_array_equal(found, model.predict(frame))
    np.testing.assert_array_equal(found.index, frame.index)
    assert (found.dtype, found.name) == (labels.dtype, "y")
    found = shares.compute(scheduler="synchronous")
    assert list(found.columns) == list(shares.columns) == ["no", "rare", "yes"]
    np.testing.assert_array_equal(found, model.predict_proba(frame))
    number = treekit.train(frame, "number", ignore=["y", "w"], task="regression", seed=0)
    found = number.predict(rows).compute(scheduler="synchronous")
    np.testing.assert_array_equal(found, number.predict(frame))


def test_lazy_predictions_of_an_array_equal_the_model() -> None:
    x = np.random.default_rng(0).normal(size=(500, 4))
    model = RandomForestClassifier(5, random_state=0).fit(x, x[:, 0] > 0).model_
    blocks = da.from_array(x, chunks=(120, 3))
    labels, shares = model.predict(blocks), model.predict_proba(blocks)
    assert (labels.shape, shares.shape) == ((500,), (500, 2))
    np.testing.assert_array_equal(labels.compute(scheduler="sync"), model.predict(x))
    np.testing.assert_array_equal(shares.compute(scheduler="sync"), model.predict_proba(x))
    with pytest.raises(DataError, match="two-dimensional Dask array, got Array"):
        model.predict(blocks[:, 0])


def test_lazy_predictions_of_several_outputs_equal_the_model() -> None:
    frame = make_frame()
    model = treekit.train(frame, ["y", "c"], ignore=["number", "w"], **FOREST)
    rows = dd.from_pandas(frame, npartitions=5)
    labels, shares = model.predict(rows), model.predict_proba(rows)
    found = labels.compute(scheduler="synchronous")
    assert list(found.columns) == list(labels.columns) == ["y", "c"]
    assert list(found.dtypes) == list(labels.dtypes)
    np.testing.assert_array_equal(found, model.predict(frame))
    found = shares.compute(scheduler="synchronous")
    assert list(found.columns) == ["y=no", "y=rare", "y=yes", "c=p", "c=q", "c=r"]
    np.testing.assert_array_equal(found, np.hstack(model.predict_proba(frame)))
    x = np.random.default_rng(0).normal(size=(300, 3))
    blocks = da.from_array(x[:, :1], chunks=(70, 1))
    numbers = treekit.train(x, ["x1", "x2"], task="regression", seed=0)
    found = numbers.predict(blocks).compute(scheduler="sync")
    np.testing.assert_array_equal(found, numbers.predict(x[:, :1]))
    x[:, 1:] = x[:, 1:] > 0
    classes = treekit.train(x, ["x1", "x2"], task="classification", max_depth=3, seed=0)
    both = classes.predict_proba(blocks)
    for lazy, expected in zip(both, classes.predict_proba(x[:, :1]), strict=True):
        np.testing.assert_array_equal(lazy.compute(scheduler="sync"), expected)


def test_lazy_predictions_of_estimators_keep_index_and_types() -> None:
    frame = make_frame()
    frame.index = np.arange(len(frame))[::-1] * 3
    inputs, rows = frame[["a", "b", "c"]], dd.from_pandas(frame, npartitions=5, sort=False)
    for target in ("y", "b", "number"):
        kind = RandomForestRegressor if target == "number" else RandomForestClassifier
        columns = [name for name in ("a", "b", "c") if name != target]
        forest = kind(5, random_state=0).fit(inputs[columns], frame[target])
        lazy = forest.predict(rows[columns])
        found = lazy.compute(scheduler="synchronous")
        np.testing.assert_array_equal(found, forest.predict(inputs[columns]))
        np.testing.assert_array_equal(found.index, frame.index)
        assert found.dtype == lazy.dtype
        empty = forest.predict(rows[rows["w"] > 99][columns])
        assert empty.compute(scheduler="synchronous").dtype == lazy.dtype
    # Two forests of the same parameters differ by their rows only.
    x = np.random.default_rng(0).normal(size=(300, 3))
    blocks = da.from_array(x, chunks=(70, 2))
    first, second = (RandomForestClassifier(5, random_state=0).fit(x, x[:, k] > 0) for k in (0, 1))
    both = da.stack([first.predict_proba(blocks), second.predict_proba(blocks)])
    expected = np.stack([first.predict_proba(x), second.predict_proba(x)])
    np.testing.assert_array_equal(both.compute(scheduler="sync"), expected)
    with pytest.raises(DataError, match=r"got a Dask collection; pass X\.compute\(\)"):
        first.apply(blocks)


def test_functions_that_use_the_package_are_sent_to_workers() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    for module in (treekit, treekit.export):
        assert cloudpickle.loads(cloudpickle.dumps(module)) is module


@pytest.mark.matrix  # its workers compile kernels
def test_errors_of_lazy_predictions_name_the_partition_and_its_row() -> None:
    frame = make_frame()
    model = treekit.train(frame, **ANY, **FOREST, unknown="error")
    frame["c"] = frame["c"].astype(str)
    frame.loc[430, "c"] = "new"
    rows = dd.from_pandas(frame, npartitions=3)
    with pytest.raises(
        DataError, match=r"column 'c' holds 'new' in row 30 of partition 2 \(counting from 0\), a"
    ):
        model.predict(rows).compute(scheduler="synchronous")
    x = np.random.default_rng(0).normal(size=(500, 4))
    model = treekit.train(np.column_stack([x, x[:, 0] > 0]), "x4", missing="error")
    x[130, 0] = np.nan
    with pytest.raises(DataError, match=r"missing in row 10 of block 1 \(counting from 0\)"):
        model.predict(da.from_array(x, chunks=(120, 4))).compute(scheduler="synchronous")


def test_row_number_of_an_error_is_translated_to_its_partition() -> None:
    places = [("'a'", 2), ("'b'", 0), ("'c'", 3)]
    error = DataError("column 'row 0 (counting from 0)' has x in row 3 (counting from 0); fix it")
    assert str(locate_row(error, places)) == (
        "column 'row 0 (counting from 0)' has x in row 1 of 'c' (counting from 0); fix it"
    )
    for message in ("no row", "row 5 (counting from 0)"):
        error = DataError(message)
        assert locate_row(error, places) is error
    assert str(locate_part(DataError("no column"), "'a'", 2)) == "'a': no column"
