"""treekit's models in service: one tensor, or a named input a column, in; answers out.

Outputs are named as in the ONNX files that treekit writes: ``label`` and ``probabilities``
(``label_0``, ... of several targets), or ``value``.  Asked for by name there are ``leaf``,
``rule``, ``contributions`` and ``bias``, too; see `treekit.serve.models.reasons`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.encoding import encode_rows
from treekit.data.features import round_to
from treekit.data.schema import Output, python_label
from treekit.data.table import make_table, near_names
from treekit.errors import DataError
from treekit.model.links import values_of
from treekit.model.model import Model
from treekit.model.row_scorer import Scorer
from treekit.model.scoring import label_codes, leaf_indices, probabilities, sums
from treekit.serve.errors import InvalidRequestError
from treekit.serve.models.quick import Quick
from treekit.serve.models.reasons import Reasons
from treekit.serve.models.served import Batch, Served
from treekit.serve.models.tensors import Spec, Tensor

__all__ = ["ONE_TENSOR", "TreekitServed"]

ONE_TENSOR = "input"
"""Name of the input that holds all columns."""

Sums = npt.NDArray[np.int64]


class TreekitServed(Served):
    """A model of treekit.

    Parameters
    ----------
    name, version, digest : str
        See `Served`.
    model : Model
    """

    platform = "treekit"

    def __init__(self, name: str, version: str, digest: str, model: Model) -> None:
        self.name, self.version, self.digest, self.model = name, version, digest, model
        schema = model.schema
        self._model = model
        self._plain = not schema.nominal.any()
        self._number = {"float32": "FP32", "float64": "FP64"}[schema.dtype]
        self.inputs, *others = self._inputs()
        self.other_inputs = tuple(others)
        self._say = _answers(model)
        self.outputs = (*(spec for spec, _ in self._say.values()), *_reasons(model))
        self.usual = tuple(self._say)
        self.explaining = frozenset({"rule", "contributions", "bias"})
        self.effort = model.n_trees * max(model.depth, 1)
        # Of the model alone: a circle through this object would keep one that is replaced,
        # and its arrays, until the collector finds it.
        self._sums = partial(_sums_of, model, model.scorer())
        self._why = Reasons(model)
        labels = _labels(schema.outputs[0])[1].tolist() if schema.task == "classification" else ()
        usual = [spec for spec, _ in self._say.values()]
        self.quick = Quick(name, version, model, usual, labels, ONE_TENSOR, self._sums)

    def _inputs(self) -> list[tuple[Spec, ...]]:
        """One tensor where every column is a number, else one input a column; then the other.

        A tensor of texts does for both: they are read as those of a CSV file are.
        """
        schema = self._model.schema
        whole = (-1, schema.n_features)
        columns = tuple(
            Spec(column.name, self._number if column.kind == "numeric" else "BYTES", (-1,))
            for column in schema.columns
        )
        numbers = (Spec(ONE_TENSOR, self._number, whole),)
        texts = (Spec(ONE_TENSOR, "BYTES", whole),)
        return [numbers, columns, texts] if self._plain else [columns, texts]

    def read(self, tensors: Sequence[Tensor]) -> Batch:
        """Check inputs: one tensor of all columns, or one named input a column.

        A tensor of numbers holds codes of levels, as the matrix of `Model.scorer` does; one
        of BYTES holds texts, as a CSV file does.
        """
        schema = self._model.schema
        if len(tensors) == 1 and tensors[0].name == ONE_TENSOR and tensors[0].cells.ndim == 2:
            matrix = self._of_tensor(tensors[0])
        else:
            matrix = self._of_columns(tensors)
        if matrix.shape[1] != schema.n_features:
            raise InvalidRequestError(
                f"input {ONE_TENSOR!r} has shape {list(matrix.shape)}; model {self.name!r} takes "
                f"[rows, {schema.n_features}]"
            )
        return Batch(len(matrix), (matrix,))

    def _of_tensor(self, tensor: Tensor) -> npt.NDArray[Any]:
        schema = self._model.schema
        if tensor.datatype != "BYTES":
            return round_to(tensor.cells, schema.dtype)
        if tensor.shape[1] != schema.n_features:
            return np.empty(tensor.shape, schema.dtype)  # refused above
        return self._coded(schema.names, tensor.cells.T, untyped=True)

    def _of_columns(self, tensors: Sequence[Tensor]) -> npt.NDArray[Any]:
        schema = self._model.schema
        given = {tensor.name: tensor for tensor in tensors}
        if len(given) < len(tensors):
            raise InvalidRequestError("an input is given twice; give each column once")
        for name in given:
            if name not in schema.names:
                raise InvalidRequestError(self._no_input(name))
        for name in schema.names:
            if name not in given:
                raise InvalidRequestError(
                    f"input {name!r} is not among the request's inputs; model {self.name!r} needs "
                    "each of its columns (null where a value is missing)"
                )
        columns = [_one_column(given[name]) for name in schema.names]
        rows = len(columns[0])
        for name, column in zip(schema.names, columns, strict=True):
            if len(column) != rows:
                raise InvalidRequestError(
                    f"input {name!r} has {len(column)} rows but {schema.names[0]!r} has {rows}; "
                    "all inputs need the same number of rows"
                )
        if not self._plain or any(column.dtype.kind == "O" for column in columns):
            return self._coded(schema.names, columns, untyped=False)
        matrix = np.empty((rows, len(columns)), dtype=schema.dtype)
        for place, column in enumerate(columns):
            matrix[:, place] = round_to(column, schema.dtype)
        return matrix

    def _no_input(self, name: str) -> str:
        schema = self._model.schema
        if name == ONE_TENSOR:
            return (
                f"input {name!r} is to have shape [rows, {schema.n_features}], all columns of "
                f"model {self.name!r} in the order of its schema"
            )
        names = list(dict.fromkeys((ONE_TENSOR, *schema.names)))
        return f"model {self.name!r} has no input {name!r}; {near_names(name, names)}"

    def _coded(
        self, names: Sequence[str], columns: Iterable[npt.NDArray[Any]], *, untyped: bool
    ) -> npt.NDArray[Any]:
        model = self._model
        try:
            table = make_table(names, columns, untyped=untyped)
            return encode_rows(table, model.schema, missing=model.missing, unknown=model.unknown)
        except DataError as error:
            raise InvalidRequestError(f"model {self.name!r}: {error}") from error

    def answer(self, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        """The outputs that are wanted."""
        (matrix,) = batch.arrays
        try:
            total = self._sums(matrix) if any(name in self._say for name in wanted) else None
            return [self._output(name, matrix, total) for name in wanted]
        except DataError as error:
            raise InvalidRequestError(f"model {self.name!r}: {error}") from error

    def _output(self, name: str, matrix: npt.NDArray[Any], total: Sums | None) -> Tensor:
        if total is not None and name in self._say:
            spec, say = self._say[name]
            return Tensor(name, spec.datatype, say(total))
        if name == "leaf":
            return Tensor(name, "INT32", leaf_indices(self._model, matrix))
        return self._why.output(name, matrix)


def _one_column(tensor: Tensor) -> npt.NDArray[Any]:
    """(rows,) of a tensor (rows,) or (rows, 1)."""
    if tensor.cells.ndim == 2 and tensor.shape[1] == 1:
        return tensor.cells[:, 0]
    if tensor.cells.ndim != 1:
        raise InvalidRequestError(
            f"input {tensor.name!r} has shape {list(tensor.shape)}; a column's is [rows] or "
            "[rows, 1]"
        )
    return tensor.cells


def _sums_of(model: Model, score: Scorer, matrix: npt.NDArray[Any]) -> Sums:
    """(rows, values) sums of encoded rows."""
    if len(matrix) == 1:
        return score.sums(matrix)[None]
    return sums(model, matrix)


Say = Callable[[Sums], npt.NDArray[Any]]


def _answers(model: Model) -> dict[str, tuple[Spec, Say]]:
    """The usual outputs: what each is, and what makes it of the sums of rows."""
    schema = model.schema
    if schema.task == "regression":
        return {"value": _numbers(model)}
    found: dict[str, tuple[Spec, Say]] = {}
    for number, output in enumerate(schema.outputs):
        end = f"_{number}" if schema.more else ""
        datatype, labels = _labels(output)
        width = len(output.classes)
        found[f"label{end}"] = (
            Spec(f"label{end}", datatype, (-1,)),
            partial(_label, model, labels, number),
        )
        found[f"probabilities{end}"] = (
            Spec(f"probabilities{end}", "FP64", (-1, width)),
            partial(_shares, model, number),
        )
    return found


def _numbers(model: Model) -> tuple[Spec, Say]:
    if model.schema.more:
        return Spec("value", "FP64", (-1, model.schema.n_values)), partial(values_of, model)
    return Spec("value", "FP64", (-1,)), lambda total: values_of(model, total)[:, 0]


def _label(model: Model, labels: npt.NDArray[Any], number: int, total: Sums) -> npt.NDArray[Any]:
    return labels[label_codes(model, total)[:, number]]


def _shares(model: Model, number: int, total: Sums) -> npt.NDArray[np.float64]:
    shares = probabilities(model, total)
    own: npt.NDArray[np.float64] = shares[number] if model.schema.more else shares
    return own


def _labels(output: Output) -> tuple[str, npt.NDArray[Any]]:
    """The datatype of labels, and (classes,) of them; integers beyond 64 bits are texts."""
    labels = [python_label(label) for label in output.classes]
    if isinstance(labels[0], bool):
        return "BOOL", np.array(labels, dtype=np.bool_)
    if isinstance(labels[0], int) and all(-(2**63) <= int(label) < 2**63 for label in labels):
        return "INT64", np.array(labels, dtype=np.int64)
    if isinstance(labels[0], float):
        return "FP64", np.array(labels, dtype=np.float64)
    texts = np.empty(len(labels), dtype=object)
    texts[:] = [str(label) for label in labels]
    return "BYTES", texts


def _reasons(model: Model) -> tuple[Spec, ...]:
    """The outputs that are given to those who ask for them by name."""
    schema = model.schema
    width = (schema.n_features, schema.n_values)
    return (
        Spec("leaf", "INT32", (-1, model.n_trees)),
        Spec("rule", "BYTES", (-1, model.n_trees)),
        Spec("contributions", "FP64", (-1, *width)),
        Spec("bias", "FP64", (-1, schema.n_values)),
    )
