"""Served models: inputs, prediction and explanation outputs of one version of a model.

The input is one tensor with all columns, or one named input per column.  Outputs are named as in
ONNX files written by treekit: ``label`` and ``probabilities`` (``label_0``, ... for several
targets), or ``value``; ``leaf``, ``rule``, ``contributions`` and ``bias`` are returned on request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.cells import make_object_array
from treekit.data.encoding import Absent
from treekit.data.features import round_to_dtype
from treekit.data.schema import Column, Output, Schema, python_label
from treekit.data.table import suggest_names
from treekit.data.text_format import is_number
from treekit.errors import DataError, ModelError
from treekit.model.links import convert_sums
from treekit.model.model import Model
from treekit.model.scoring import (
    compute_label_codes,
    compute_probabilities,
    leaf_indices,
    sum_leaf_values,
    validate_matrix,
)
from treekit.serve.cancellation import check_cancelled
from treekit.serve.errors import InvalidRequestError, TooLargeError
from treekit.serve.models.explanation_outputs import Explanations
from treekit.serve.models.fast_path import FastPath
from treekit.serve.models.row_converter import RowConverter
from treekit.serve.models.tensors import DATATYPES, Tensor, TensorSpec

ONE_TENSOR = "input"
"""Name of the input with all columns."""

_BLOCK_VISITS = 50_000_000.0
"""Node visits of rows computed together, about 0.3 s; then work may be cancelled."""

_EXTRA_INPUTS = 16
"""Inputs and outputs accepted beyond those of a model, for messages that name the wrong one."""

Matrix = npt.NDArray[Any]
"""Encoded rows (rows, features)."""

Sums = npt.NDArray[np.int64]


class Served:
    """Served version of a model.

    It is immutable: a changed file becomes a new object, and a running request finishes with the
    model it started with.

    Parameters
    ----------
    name : str
    version : str
        Number of the version folder, or the start of the file's digest; part of every response.
    digest : str
        SHA-256 of the file as 64 hexadecimal digits.
    model : Model

    Attributes
    ----------
    platform : str
        ``treekit``.
    inputs : tuple of TensorSpec
        Inputs in the metadata.
    other_inputs : tuple of tuple of TensorSpec
        Alternative forms of input.
    outputs : tuple of TensorSpec
        All available outputs.
    default_outputs : tuple of str
        Outputs returned if a request does not select any.
    explanation_outputs : frozenset of str
        Expensive explanation outputs, limited by `Limits.explained_rows`.
    n_features : int
        Number of columns.
    visits_per_row : float
        Approximate node visits per row, to decide which requests run in a thread.
    fast_path : FastPath, optional
        Faster path for the most common request bodies, with identical responses.
    """

    platform = "treekit"
    explanation_outputs = frozenset({"rule", "contributions", "bias"})
    fast_path: FastPath | None = None

    def __init__(self, name: str, version: str, digest: str, model: Model) -> None:
        self.name, self.version, self.digest, self.model = name, version, digest, model
        schema = model.schema
        _check_names(schema)
        self.n_features = schema.n_features
        self._is_numeric = not schema.nominal.any()
        self.inputs, *self.other_inputs = self._list_input_forms()
        labels = [_convert_labels(output) for output in schema.outputs if output.classes]
        self._labels = [texts for _, texts in labels]
        usual = _list_default_specs(model, [datatype for datatype, _ in labels])
        self._default_datatypes = {spec.name: spec.datatype for spec in usual}
        self.default_outputs = tuple(self._default_datatypes)
        self.outputs = (
            *usual,
            TensorSpec("leaf", "INT32", (-1, model.n_trees)),
            TensorSpec("rule", "BYTES", (-1, model.n_trees)),
            TensorSpec("contributions", "FP64", (-1, schema.n_features, schema.n_values)),
            TensorSpec("bias", "FP64", (-1, schema.n_values)),
        )
        self.visits_per_row: float = model.n_trees * max(model.depth, 1)
        # These refer to the model only: a reference cycle through this object would keep a
        # replaced model and its arrays in memory until the next garbage collection.
        self._score = model.scorer()
        self._explanations = Explanations(model)
        first = self._labels[0].tolist() if labels else ()
        categories = self.converter.categories
        self.fast_path = FastPath(
            *(name, version, model, self._score, usual, first, ONE_TENSOR, categories)
        )

    # ---------------------------------------------------------------- inputs

    @cached_property
    def converter(self) -> RowConverter:
        """Converter of the cells of requests."""
        return RowConverter(self.model, self.name)

    def _list_input_forms(self) -> list[tuple[TensorSpec, ...]]:
        """Return the forms of input, the preferred one first.

        One tensor is preferred if all columns are numeric, else one input per column.  A tensor
        of strings is always accepted and parsed like a CSV file, and one of numbers and
        category codes.
        """
        schema = self.model.schema
        number = {"float32": "FP32", "float64": "FP64"}[schema.dtype]
        columns = tuple(
            TensorSpec(column.name, number if column.kind == "numeric" else "BYTES", (-1,))
            for column in schema.columns
        )
        numbers, texts = (
            (TensorSpec(ONE_TENSOR, datatype, (-1, schema.n_features)),)
            for datatype in (number, "BYTES")
        )
        return [numbers, columns, texts] if self._is_numeric else [columns, texts, numbers]

    def parse_inputs(self, tensors: Sequence[Tensor], absent: Absent = "error") -> Matrix:
        """Validate and encode inputs: one tensor with all columns, or one input per column.

        A numeric tensor contains category codes, as the matrix of `Model.scorer`; a BYTES
        tensor contains strings as in a CSV file.  See `fill_absent_columns` of
        `treekit.data.encoding` for columns without an input.

        Raises
        ------
        InvalidRequestError
            If an input is invalid; the message names the input, the rule and, where
            applicable, the row and the value.
        """
        if len(tensors) != 1 or tensors[0].name != ONE_TENSOR or tensors[0].cells.ndim != 2:
            return self._encode_columns(tensors, absent)
        schema, cells = self.model.schema, tensors[0].cells
        if cells.shape[1] != schema.n_features:
            raise InvalidRequestError(
                f"input {ONE_TENSOR!r} has shape {list(cells.shape)}; model {self.name!r} takes "
                f"[rows, {schema.n_features}]"
            )
        if tensors[0].datatype == "BYTES":
            return self.converter.convert_columns(dict(zip(schema.names, cells.T, strict=True)))
        return round_to_dtype(cells, schema.dtype)

    def _encode_columns(self, tensors: Sequence[Tensor], absent: Absent) -> Matrix:
        schema = self.model.schema
        given = {tensor.name: tensor for tensor in tensors}
        if len(given) < len(tensors):
            raise InvalidRequestError("duplicate input; give each column once")
        known = schema.names
        for name in given:
            if name not in known:
                raise self._unknown_input_error(name)
        columns = {
            column.name: _flatten_column(given[column.name])
            for column in schema.columns
            if column.name in given
        }
        if not columns:
            raise InvalidRequestError(
                f"the request has no inputs; model {self.name!r} has "
                f"{schema.names[0]!r}, for example"
            )
        for declared in schema.columns:
            if declared.name in given:
                _check_category_datatype(declared, given[declared.name])
        first = next(iter(columns))
        rows = len(columns[first])
        for name, column in columns.items():
            if len(column) != rows:
                raise InvalidRequestError(
                    f"input {name!r} has {len(column)} rows but {first!r} has {rows}; "
                    "all inputs must have the same number of rows"
                )
        return self.converter.convert_columns(columns, absent)

    def _unknown_input_error(self, name: str) -> InvalidRequestError:
        schema = self.model.schema
        if name == ONE_TENSOR:
            return InvalidRequestError(
                f"input {name!r} must have shape [rows, {schema.n_features}]: all columns of "
                f"model {self.name!r} in schema order"
            )
        hint = suggest_names(name, [ONE_TENSOR, *schema.names])
        return InvalidRequestError(f"model {self.name!r} has no input {name!r}; {hint}")

    def make_sample_inputs(self, rows: int) -> list[Tensor]:
        """Return inputs that every policy accepts: zeros and first categories."""
        levels = {column.name: column.levels for column in self.model.schema.columns}
        tensors = []
        for name, datatype, shape in self.inputs:
            cells = np.zeros((rows, *shape[1:]), DATATYPES[datatype])
            if datatype == "BYTES":
                cells[...] = levels[name][0] if levels[name] else ""
            tensors.append(Tensor(name, datatype, cells))
        return tensors

    def check_counts(self, n_inputs: int, n_outputs: int) -> None:
        """Raise `TooLargeError` if a request has more inputs or outputs than the model."""
        if n_inputs > self.n_features + _EXTRA_INPUTS:
            raise TooLargeError(
                f"the request has {n_inputs:,} inputs, but model {self.name!r} only "
                f"{self.n_features:,} columns; give each once, or all in one tensor {ONE_TENSOR!r}"
            )
        if n_outputs > len(self.outputs) + _EXTRA_INPUTS:
            raise TooLargeError(
                f"the request selects {n_outputs:,} outputs, but model {self.name!r} has "
                f"{len(self.outputs):,}; select each once"
            )

    # ---------------------------------------------------------------- outputs

    def select_outputs(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """Return the outputs of a request: the selected ones, or the default ones.

        Raises
        ------
        InvalidRequestError
            If an output is unknown or selected twice.
        """
        if not names:
            return self.default_outputs
        known = [spec.name for spec in self.outputs]
        for name in names:
            if name not in known:
                raise InvalidRequestError(
                    f"model {self.name!r} has no output {name!r}; it has: {', '.join(known)}"
                )
        if len(set(names)) != len(names):
            raise InvalidRequestError(f"an output is requested twice: {', '.join(names)}")
        return tuple(names)

    def compute_outputs(self, matrix: Matrix, wanted: Sequence[str]) -> list[Tensor]:
        """Compute the selected outputs, (rows, ...) each, in the given order.

        Raises
        ------
        InvalidRequestError
            If a row has a missing or unseen value that is an error in the model.
        """
        try:
            has_default = not self._default_datatypes.keys().isdisjoint(wanted)
            total = None
            if has_default:
                is_row = len(matrix) == 1
                total = (
                    self._score.sums(matrix)[None]
                    if is_row
                    else self._compute_in_blocks(sum_leaf_values, matrix)
                )
            return [self._compute_output(name, matrix, total) for name in wanted]
        except DataError as error:
            raise InvalidRequestError(f"model {self.name!r}: {error}") from error

    def _compute_in_blocks(
        self, function: Callable[[Model, Matrix], Matrix], matrix: Matrix
    ) -> Matrix:
        """Return ``function(model, matrix)``, computed in blocks of rows."""
        size = int(_BLOCK_VISITS // self.visits_per_row) + 1
        if len(matrix) <= size:
            return function(self.model, matrix)
        validate_matrix(self.model, matrix)  # its messages count rows from the first one
        blocks = []
        for start in range(0, len(matrix), size):
            check_cancelled()
            blocks.append(function(self.model, matrix[start : start + size]))
        return np.concatenate(blocks)

    def _compute_output(self, name: str, matrix: Matrix, total: Sums | None) -> Tensor:
        check_cancelled()
        if total is not None and name in self._default_datatypes:
            return Tensor(name, self._default_datatypes[name], self._convert_sums(name, total))
        if name == "leaf":
            return Tensor(name, "INT32", self._compute_in_blocks(leaf_indices, matrix))
        return self._explanations.compute_output(name, matrix)

    def _convert_sums(self, name: str, total: Sums) -> npt.NDArray[Any]:
        """Return the cells of a default output from the sums (rows, values) of rows."""
        model = self.model
        if name == "value":
            values = convert_sums(model, total)
            return values if model.schema.more else values[:, 0]
        kind, _, number = name.partition("_")
        target = int(number or 0)
        if kind == "label":
            return self._labels[target][compute_label_codes(model, total)[:, target]]
        shares = compute_probabilities(model, total)
        cells: npt.NDArray[np.float64] = shares[target] if model.schema.more else shares
        return cells


def _check_category_datatype(column: Column, tensor: Tensor) -> None:
    """Reject numbers for a column of which no category is a number; NaN is a missing value."""
    if column.kind == "numeric" or tensor.cells.dtype.kind not in "iuf":
        return
    if any(map(is_number, column.levels)) or np.isnan(tensor.cells).all():
        return
    raise InvalidRequestError(
        f"input {column.name!r} has datatype {tensor.datatype}, but its categories are texts; "
        f"send BYTES, or all columns, categories as codes, in one tensor {ONE_TENSOR!r}"
    )


def _flatten_column(tensor: Tensor) -> npt.NDArray[Any]:
    """Return a tensor of shape (rows,) or (rows, 1) as an array (rows,)."""
    if tensor.cells.ndim == 2 and tensor.shape[1] == 1:
        return tensor.cells[:, 0]
    if tensor.cells.ndim != 1:
        raise InvalidRequestError(
            f"input {tensor.name!r} has shape {list(tensor.shape)}; the shape of a column is "
            "[rows] or [rows, 1]"
        )
    return tensor.cells


def _list_default_specs(model: Model, label_datatypes: Sequence[str]) -> list[TensorSpec]:
    """Return the specs of the outputs of requests that select none."""
    schema = model.schema
    if schema.task == "regression":
        return [TensorSpec("value", "FP64", (-1, schema.n_values) if schema.more else (-1,))]
    specs = []
    for number, (output, datatype) in enumerate(zip(schema.outputs, label_datatypes, strict=True)):
        end = f"_{number}" if schema.more else ""
        specs += [
            TensorSpec(f"label{end}", datatype, (-1,)),
            TensorSpec(f"probabilities{end}", "FP64", (-1, len(output.classes))),
        ]
    return specs


def _convert_labels(output: Output) -> tuple[str, npt.NDArray[Any]]:
    """Return datatype and labels (classes,) of a target; integers beyond 64 bits are strings."""
    labels = [python_label(label) for label in output.classes]
    if isinstance(labels[0], bool):
        return "BOOL", np.array(labels, dtype=np.bool_)
    if isinstance(labels[0], int) and all(-(2**63) <= int(label) < 2**63 for label in labels):
        return "INT64", np.array(labels, dtype=np.int64)
    if isinstance(labels[0], float):
        return "FP64", np.array(labels, dtype=np.float64)
    return "BYTES", make_object_array([str(label) for label in labels])


def _check_names(schema: Schema) -> None:
    """Refuse columns that no table may have: names of line ends, tabs and the like alone."""
    for position, column in enumerate(schema.columns, 1):
        name = column.name
        if not name.strip() and name.strip(" "):
            raise ModelError(
                f"the name of column {position} is {name!r}, only white space; rename it, and "
                "train or import the model again"
            )
