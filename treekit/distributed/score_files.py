"""Predictions of many Parquet files by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from treekit.data.encoding import Absent
from treekit.data.schema import level_text
from treekit.data.table import read_table
from treekit.distributed.cluster import connect, locate_part
from treekit.distributed.parquet_files import (
    ParquetFiles,
    list_index_columns,
    read_file,
    write_folder,
)
from treekit.errors import DataError
from treekit.model.model import Model
from treekit.model.scoring import (
    compute_probabilities,
    encode_table,
    predict_from_sums,
    sum_leaf_values,
)

if TYPE_CHECKING:
    import pandas as pd


def predict_files(
    model: Model,
    files: ParquetFiles,
    output: str,
    cluster: Any,
    *,
    proba: bool = False,
    marks: Collection[str] | None = None,
    absent: Absent = "error",
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Predict Parquet files, and write a folder with a file for each, in their order.

    Parameters
    ----------
    model : Model
    files : ParquetFiles
    output : str
        Path or URL of a new folder, written by this process.
    cluster : distributed.Client or str
        See `treekit.distributed.cluster.connect`.
    proba : bool
        Add the probability of each class.
    marks : collection of str, optional
        Texts that mean missing; default: those of the model.
    absent : {"error", "missing"}
        See `treekit.model.model.Model.predict`.
    progress : callable, optional
        ``progress(done, total)`` after each file.

    Raises
    ------
    DataError
        If a file does not fit the model; names the file and the row.
    ClusterError
    """
    with write_folder(output) as open_file, connect(cluster) as engine:
        sent = engine.send(model)
        options = (proba, marks, absent)
        tasks = [engine.submit(predict_file, path, sent, *options) for path in files.paths]
        done = 0

        def write(k: int) -> None:
            nonlocal done
            with open_file(f"part-{k:05}.parquet") as stream:
                engine.take([tasks[k]])[0].to_parquet(stream)
            tasks[k].release()  # the worker need not keep it
            done += 1
            if progress is not None:
                progress(done, len(tasks))

        engine.wait(tasks, write)


def predict_file(
    path: str, model: Model, proba: bool, marks: Collection[str] | None, absent: Absent
) -> pd.DataFrame:
    """Predict the rows of a Parquet file, with its index.

    Returns
    -------
    DataFrame
        A column per target; with `proba`, columns ``TARGET=CLASS`` follow.
    """
    import pandas as pd

    schema = model.schema
    table = read_file(path, schema.names)
    needed = [name for name in schema.names if name in table.column_names]
    needed = needed or table.column_names[:1]  # a table without columns has no rows
    try:
        rows = read_table(
            table.select(needed), missing=schema.missing_marks if marks is None else marks
        )
        matrix = encode_table(model, rows, absent=absent, missing_marks=rows.missing)
    except DataError as error:
        raise locate_part(error, repr(path), table.num_rows) from None
    sums = sum_leaf_values(model, matrix)
    predicted = predict_from_sums(model, sums)
    columns = list(predicted.T) if schema.more else [predicted]
    names = [output.name for output in schema.outputs]
    if proba:
        shares = compute_probabilities(model, sums)
        for output, block in zip(schema.outputs, shares if schema.more else [shares], strict=True):
            columns += list(block.T)
            names += [f"{output.name}={level_text(label)}" for label in output.classes]
    index = table.select(list_index_columns(table.schema)).to_pandas().index
    frame = pd.DataFrame(dict(enumerate(columns)), index=index)
    frame.columns = pd.Index(names)
    return frame
