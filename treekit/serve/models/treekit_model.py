"""Served treekit models: prediction and explanation outputs.

The input is one tensor with all columns, or one named input per column.  Outputs are named as in
ONNX files written by treekit: ``label`` and ``probabilities`` (``label_0``, ... for several
targets), or ``value``; ``leaf``, ``rule``, ``contributions`` and ``bias`` are returned on request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.encoding import encode_rows
from treekit.data.features import round_to_dtype
from treekit.data.schema import Output, python_label
from treekit.data.table import make_table, suggest_names
from treekit.errors import DataError, ModelError
from treekit.explain.contributions import NodeUnits, compute_unit_factor, sum_contributions
from treekit.explain.decision_path import Passage, trace_row
from treekit.model.fixed_point import compute_mass_bounds
from treekit.model.links import convert_sums
from treekit.model.model import Model
from treekit.model.row_scorer import Scorer
from treekit.model.scoring import (
    compute_label_codes,
    compute_probabilities,
    leaf_indices,
    sum_leaf_values,
)
from treekit.model.split_tests import TreeNodes
from treekit.model.tree import Split
from treekit.serve.errors import InvalidRequestError, TooLargeError
from treekit.serve.models.fast_path import FastPath
from treekit.serve.models.served_model import Batch, Served
from treekit.serve.models.tensors import Tensor, TensorSpec

if TYPE_CHECKING:
    from treekit.rules.extract import LeafRuleTexts


# ---------------------------------------------------------------- served model

ONE_TENSOR = "input"
"""Name of the input with all columns."""

Sums = npt.NDArray[np.int64]


class TreekitServed(Served):
    """Served treekit model.

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
        self._is_numeric = not schema.nominal.any()
        self._float_datatype = {"float32": "FP32", "float64": "FP64"}[schema.dtype]
        self.inputs, *others = self._list_input_forms()
        self.other_inputs = tuple(others)
        self._default_functions = _make_default_outputs(model)
        self.outputs = (
            *(spec for spec, _ in self._default_functions.values()),
            *_make_explanation_specs(model),
        )
        self.default_outputs = tuple(self._default_functions)
        self.explanation_outputs = frozenset({"rule", "contributions", "bias"})
        self.visits_per_row = model.n_trees * max(model.depth, 1)
        # Bound to the model only: a reference cycle through this object would keep a replaced
        # model and its arrays in memory until the next garbage collection.
        self._sums = partial(_compute_sums, model, model.scorer())
        self._explanations = Explanations(model)
        labels = (
            _convert_labels(schema.outputs[0])[1].tolist()
            if schema.task == "classification"
            else ()
        )
        usual = [spec for spec, _ in self._default_functions.values()]
        self.fast_path = FastPath(name, version, model, usual, labels, ONE_TENSOR, self._sums)

    def _list_input_forms(self) -> list[tuple[TensorSpec, ...]]:
        """Return the forms of input, the preferred one first.

        One tensor is preferred if all columns are numeric, else one input per column.  A tensor
        of strings is always accepted and parsed like a CSV file.
        """
        schema = self._model.schema
        whole = (-1, schema.n_features)
        columns = tuple(
            TensorSpec(
                column.name, self._float_datatype if column.kind == "numeric" else "BYTES", (-1,)
            )
            for column in schema.columns
        )
        numbers = (TensorSpec(ONE_TENSOR, self._float_datatype, whole),)
        texts = (TensorSpec(ONE_TENSOR, "BYTES", whole),)
        return [numbers, columns, texts] if self._is_numeric else [columns, texts]

    def parse_inputs(self, tensors: Sequence[Tensor]) -> Batch:
        """Validate and encode inputs: one tensor with all columns, or one input per column.

        A numeric tensor contains category codes, as the matrix of `Model.scorer`; a BYTES
        tensor contains strings as in a CSV file.
        """
        schema = self._model.schema
        if len(tensors) == 1 and tensors[0].name == ONE_TENSOR and tensors[0].cells.ndim == 2:
            matrix = self._encode_tensor(tensors[0])
        else:
            matrix = self._encode_columns(tensors)
        if matrix.shape[1] != schema.n_features:
            raise InvalidRequestError(
                f"input {ONE_TENSOR!r} has shape {list(matrix.shape)}; model {self.name!r} takes "
                f"[rows, {schema.n_features}]"
            )
        return Batch(len(matrix), (matrix,))

    def _encode_tensor(self, tensor: Tensor) -> npt.NDArray[Any]:
        schema = self._model.schema
        if tensor.datatype != "BYTES":
            return round_to_dtype(tensor.cells, schema.dtype)
        if tensor.shape[1] != schema.n_features:
            return np.empty(tensor.shape, schema.dtype)  # rejected by the caller for its shape
        return self._encode_table(schema.names, tensor.cells.T, untyped=True)

    def _encode_columns(self, tensors: Sequence[Tensor]) -> npt.NDArray[Any]:
        schema = self._model.schema
        given = {tensor.name: tensor for tensor in tensors}
        if len(given) < len(tensors):
            raise InvalidRequestError("duplicate input; give each column once")
        for name in given:
            if name not in schema.names:
                raise InvalidRequestError(self._unknown_input_message(name))
        for name in schema.names:
            if name not in given:
                raise InvalidRequestError(
                    f"input {name!r} is missing from the request; model {self.name!r} requires "
                    "all of its columns (null for missing values)"
                )
        columns = [_flatten_column(given[name]) for name in schema.names]
        rows = len(columns[0])
        for name, column in zip(schema.names, columns, strict=True):
            if len(column) != rows:
                raise InvalidRequestError(
                    f"input {name!r} has {len(column)} rows but {schema.names[0]!r} has {rows}; "
                    "all inputs must have the same number of rows"
                )
        if not self._is_numeric or any(column.dtype.kind == "O" for column in columns):
            return self._encode_table(schema.names, columns, untyped=False)
        matrix = np.empty((rows, len(columns)), dtype=schema.dtype)
        for place, column in enumerate(columns):
            matrix[:, place] = round_to_dtype(column, schema.dtype)
        return matrix

    def _unknown_input_message(self, name: str) -> str:
        schema = self._model.schema
        if name == ONE_TENSOR:
            return (
                f"input {name!r} must have shape [rows, {schema.n_features}]: all columns of "
                f"model {self.name!r} in schema order"
            )
        names = list(dict.fromkeys((ONE_TENSOR, *schema.names)))
        return f"model {self.name!r} has no input {name!r}; {suggest_names(name, names)}"

    def _encode_table(
        self, names: Sequence[str], columns: Iterable[npt.NDArray[Any]], *, untyped: bool
    ) -> npt.NDArray[Any]:
        model = self._model
        try:
            table = make_table(names, columns, untyped=untyped)
            return encode_rows(table, model.schema, missing=model.missing, unknown=model.unknown)
        except DataError as error:
            raise InvalidRequestError(f"model {self.name!r}: {error}") from error

    def compute_outputs(self, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        """Compute the selected outputs."""
        (matrix,) = batch.arrays
        try:
            total = (
                self._sums(matrix)
                if any(name in self._default_functions for name in wanted)
                else None
            )
            return [self._compute_output(name, matrix, total) for name in wanted]
        except DataError as error:
            raise InvalidRequestError(f"model {self.name!r}: {error}") from error

    def _compute_output(self, name: str, matrix: npt.NDArray[Any], total: Sums | None) -> Tensor:
        if total is not None and name in self._default_functions:
            spec, say = self._default_functions[name]
            return Tensor(name, spec.datatype, say(total))
        if name == "leaf":
            return Tensor(name, "INT32", leaf_indices(self._model, matrix))
        return self._explanations.compute_output(name, matrix)


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


def _compute_sums(model: Model, score: Scorer, matrix: npt.NDArray[Any]) -> Sums:
    """Return the sums (rows, values) of encoded rows."""
    if len(matrix) == 1:
        return score.sums(matrix)[None]
    return sum_leaf_values(model, matrix)


OutputFunction = Callable[[Sums], npt.NDArray[Any]]


def _make_default_outputs(model: Model) -> dict[str, tuple[TensorSpec, OutputFunction]]:
    """Return the spec of each default output and the function that computes it from sums."""
    schema = model.schema
    if schema.task == "regression":
        return {"value": _make_value_output(model)}
    found: dict[str, tuple[TensorSpec, OutputFunction]] = {}
    for number, output in enumerate(schema.outputs):
        end = f"_{number}" if schema.more else ""
        datatype, labels = _convert_labels(output)
        width = len(output.classes)
        found[f"label{end}"] = (
            TensorSpec(f"label{end}", datatype, (-1,)),
            partial(_compute_labels, model, labels, number),
        )
        found[f"probabilities{end}"] = (
            TensorSpec(f"probabilities{end}", "FP64", (-1, width)),
            partial(_compute_probabilities, model, number),
        )
    return found


def _make_value_output(model: Model) -> tuple[TensorSpec, OutputFunction]:
    if model.schema.more:
        return TensorSpec("value", "FP64", (-1, model.schema.n_values)), partial(
            convert_sums, model
        )
    return TensorSpec("value", "FP64", (-1,)), lambda total: convert_sums(model, total)[:, 0]


def _compute_labels(
    model: Model, labels: npt.NDArray[Any], number: int, total: Sums
) -> npt.NDArray[Any]:
    return labels[compute_label_codes(model, total)[:, number]]


def _compute_probabilities(model: Model, number: int, total: Sums) -> npt.NDArray[np.float64]:
    shares = compute_probabilities(model, total)
    own: npt.NDArray[np.float64] = shares[number] if model.schema.more else shares
    return own


def _convert_labels(output: Output) -> tuple[str, npt.NDArray[Any]]:
    """Return datatype and labels (classes,) of a target; integers beyond 64 bits are strings."""
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


def _make_explanation_specs(model: Model) -> tuple[TensorSpec, ...]:
    """Return the specs of the outputs that must be selected by name."""
    schema = model.schema
    width = (schema.n_features, schema.n_values)
    return (
        TensorSpec("leaf", "INT32", (-1, model.n_trees)),
        TensorSpec("rule", "BYTES", (-1, model.n_trees)),
        TensorSpec("contributions", "FP64", (-1, *width)),
        TensorSpec("bias", "FP64", (-1, schema.n_values)),
    )


# ---------------------------------------------------------------- explanation outputs
# ``rule``: for each tree the rule of the row's leaf, or the matching rule of a rule list, in
# English with exact numerals.  For a fractional instance (missing policy ``fractional``) the rule
# of the leaf with the largest part, with that part.
#
# ``contributions`` and ``bias``: path decomposition (Saabas) of each predicted value
# (probabilities, margins before the link function, numbers); see
# `treekit.explain.contributions`.  Computed as integers that add up exactly to the sums of the
# row, which is checked, and returned as the nearest doubles.

_MAX_CACHED_CHARS = 8 << 20
"""Maximum characters of rule texts cached per model."""

_MAX_RULE_CHARS = 64 << 20
_MAX_NUMBERS = 1 << 23
"""Maximum characters and numbers of one response, as there may be many categories and columns."""


class Explanations:
    """Explanation outputs of one model, created on first use and thread-safe.

    Parameters
    ----------
    model : Model
    kept : int
        Maximum characters of cached texts; the oldest are discarded first.
    """

    def __init__(self, model: Model, max_chars: int = _MAX_CACHED_CHARS) -> None:
        self._model, self._max_chars = model, max_chars
        self._lock = threading.Lock()
        self._texts: dict[tuple[int, int], str] = {}
        self._size = 0
        self._contributions: FeatureContributions | None = None

    def compute_output(self, name: str, matrix: npt.NDArray[Any]) -> Tensor:
        """Compute output ``rule``, ``contributions`` or ``bias`` of encoded rows (rows, features).

        Raises
        ------
        TooLargeError
            If the output would be too large.
        DataError
            If a policy of the model rejects a row.
        """
        if name == "rule":
            return Tensor(name, "BYTES", self.matching_rule_texts(matrix))
        if name == "bias":
            cells = np.repeat(self.feature_contributions.bias[None], len(matrix), axis=0)
            return Tensor(name, "FP64", cells)
        if name != "contributions":
            raise InvalidRequestError(
                f"unknown explanation output {name!r}; expected rule, contributions or bias"
            )
        schema = self._model.schema
        if len(matrix) * schema.n_features * schema.n_values > _MAX_NUMBERS:
            raise TooLargeError(
                f"the contributions of {len(matrix):,} rows exceed {_MAX_NUMBERS:,} numbers; "
                "send fewer rows at once"
            )
        return Tensor(name, "FP64", self.feature_contributions.compute_contributions(matrix))

    @property
    def feature_contributions(self) -> FeatureContributions:
        """Feature contributions; the part that does not depend on rows is computed once."""
        with self._lock:
            if self._contributions is None:
                self._contributions = FeatureContributions(self._model)
            return self._contributions

    @cached_property
    def _leaf_rules(self) -> LeafRuleTexts:
        from treekit.rules.extract import LeafRuleTexts

        return LeafRuleTexts(self._model)

    def matching_rule_texts(self, matrix: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        """Return the rule text of each row in each tree as objects (rows, trees)."""
        from treekit.model.scoring import leaf_indices

        model = self._model
        leaves = leaf_indices(model, matrix).astype(np.int64)
        texts = self._get_rule_texts(leaves)
        found = np.empty(leaves.shape, dtype=object)
        size = 0
        for row, own in enumerate(leaves.tolist()):
            found[row] = [texts[pair] for pair in enumerate(own)]
            size += sum(map(len, found[row]))
            if size > _MAX_RULE_CHARS:
                raise TooLargeError(
                    f"the rules of {len(leaves):,} rows exceed {_MAX_RULE_CHARS:,} characters; "
                    "send fewer rows at once"
                )
        return _append_largest_parts(model, matrix, found) if model.mass > 1 else found

    def _get_rule_texts(self, leaves: npt.NDArray[np.int64]) -> dict[tuple[int, int], str]:
        """Return the rule texts of leaves (rows, trees), by tree and node."""
        pairs = {pair for row in leaves.tolist() for pair in enumerate(row)}
        with self._lock:
            known = {pair: self._texts[pair] for pair in pairs if pair in self._texts}
        fresh: dict[int, list[int]] = {}
        for tree, leaf in pairs - known.keys():
            fresh.setdefault(tree, []).append(leaf)
        found = self._leaf_rules.format_rules(fresh)
        with self._lock:
            self._cache_texts(found)
        return known | found

    def _cache_texts(self, found: dict[tuple[int, int], str]) -> None:
        for pair, text in found.items():
            if pair not in self._texts:
                self._texts[pair] = text
                self._size += len(text)
        while self._size > self._max_chars:
            oldest = next(iter(self._texts))
            self._size -= len(self._texts.pop(oldest))


def _append_largest_parts(
    model: Model, matrix: npt.NDArray[Any], texts: npt.NDArray[np.object_]
) -> npt.NDArray[np.object_]:
    """Append the largest part to the texts of fractional instances."""
    ways = DecisionPaths(model)
    for row, cells in enumerate(round_to_dtype(matrix, model.schema.dtype)):
        if not _may_be_fractional(model, cells):
            continue
        for tree in range(model.n_trees):
            _, leaves = ways.find_path(tree, cells.tolist())
            part = max(mass for _, mass in leaves) / model.mass
            if len(leaves) > 1:
                texts[row, tree] += f" [{100 * part:.3g}% of the row, its largest part]"
    return texts


def _may_be_fractional(model: Model, cells: npt.NDArray[np.float64]) -> bool:
    """Return whether values are missing or may be unseen categories."""
    return bool(model.schema.nominal.any() or np.isnan(cells).any())


# ---------------------------------------------------------------- contributions
# Feature contributions of many rows; the part that does not depend on rows is computed once.
#
# The integers are those of `treekit.explain.contributions`.  If every node splits on one feature,
# all rows and trees are traversed together from leaves to roots, and the change at each node is
# added to its split feature.  Other trees and fractional instances are traversed row by row.

Integers = npt.NDArray[np.int64]

_SINGLE_FEATURE_KINDS = (Split.LEAF, Split.THRESHOLD, Split.SUBSET, Split.MULTIWAY, Split.MISSING)
_MAX_EXACT_INTEGER = 1 << 53
"""Every integer up to this one is exactly representable as a double."""


class DecisionPaths:
    """Decision paths of rows through the trees of a model; nodes are read on demand."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._nodes: dict[int, tuple[TreeNodes, Integers | None]] = {}

    def find_path(self, tree: int, row: list[float]) -> tuple[list[Passage], list[tuple[int, int]]]:
        """Return the decision path of a row; see `treekit.explain.decision_path.trace_row`."""
        model = self._model
        if tree not in self._nodes:
            own = model.trees[tree]
            bounds = compute_mass_bounds(own) if model.missing == "fractional" else None
            self._nodes[tree] = TreeNodes(own, model.schema), bounds
        nodes, bounds = self._nodes[tree]
        return trace_row(nodes, row, model.mass, bounds)


class FeatureContributions:
    """Feature contributions of a model.

    Parameters
    ----------
    model : Model

    Attributes
    ----------
    bias : (values,) float64
        Prediction at the roots, without any feature.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._units = [NodeUnits(model, t)[range(own.n_nodes)] for t, own in enumerate(model.trees)]
        roots = np.array([own[0] for own in self._units]).astype(object)
        self._bias = [model.mass * value for value in roots.sum(axis=0).tolist()]
        votes = model.schema.task == "classification" and not model.margins
        self._divisor = model.unit_total * compute_unit_factor(model) if votes else model.divisor
        self._exponent = 0 if votes else model.exponent
        self.bias = self._to_doubles(np.array(self._bias, dtype=object))
        self._forest_climber = (
            _ForestClimber(model, self._units) if _can_climb(model, self._units) else None
        )

    def compute_contributions(self, matrix: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return contributions (rows, features, values) of encoded rows (rows, features)."""
        found = self.exact_contributions(matrix)
        return self._to_doubles(found)

    def exact_contributions(self, matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return exact contributions (rows, features, values) as int64 or Python integers.

        Raises
        ------
        ModelError
            If they do not add up to the prediction, which is a bug in treekit.
        """
        found = (
            self._compute_by_row(matrix)
            if self._forest_climber is None
            else self._forest_climber.compute_contributions(matrix)
        )
        expected = sum_leaf_values(self._model, matrix).astype(object) * compute_unit_factor(
            self._model
        )
        total = found.sum(axis=1).astype(object) + np.array(self._bias, dtype=object)
        if (total != expected).any():
            row = int((total != expected).any(axis=1).argmax())
            raise ModelError(
                f"the contributions of row {row} add up to {total[row].tolist()} instead of the "
                f"prediction {expected[row].tolist()}; this is a bug in treekit, please report it "
                "with the model and the row"
            )
        return found

    def _compute_by_row(self, matrix: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        model = self._model
        ways, n_values = DecisionPaths(model), model.schema.n_values
        found = np.zeros((len(matrix), model.schema.n_features, n_values), dtype=object)
        for at, row in enumerate(round_to_dtype(matrix, model.schema.dtype).tolist()):
            walks = [
                (self._units[t], ways.find_path(t, row)[0], model.mass)
                for t in range(model.n_trees)
            ]
            for column, own in sum_contributions(walks, row, n_values).by_column.items():
                found[at, column] = own
        return found

    def _to_doubles(self, integers: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Convert integers to doubles as `treekit.explain.explanation.Sums.number`."""
        least, most = (int(f(integers)) if integers.size else 0 for f in (np.min, np.max))
        if (
            max(-least, most, self._divisor) > _MAX_EXACT_INTEGER
        ):  # Python rounds any quotient correctly
            shares = (integers.astype(object) / self._divisor).astype(np.float64)
        else:
            shares = integers.astype(np.float64) / self._divisor
        return np.ldexp(shares, self._exponent)


class _ForestClimber:
    """Parent links of all trees, for trees whose nodes split on one feature each."""

    def __init__(self, model: Model, units: list[Integers]) -> None:
        self._model = model
        counts = [tree.n_nodes for tree in model.trees]
        self._root = np.cumsum([0, *counts[:-1]])
        parts = []
        for root, parent in zip(self._root.tolist(), (t.parent for t in model.trees), strict=True):
            parts.append(np.where(parent < 0, -1, parent + root))
        self._parent = np.concatenate(parts)
        feature = np.concatenate([tree.feature for tree in model.trees])
        self._column = feature[self._parent].astype(np.int64)  # arbitrary and unused at roots
        own = np.concatenate(units)
        self._node_change = own - own[self._parent]

    def compute_contributions(self, matrix: npt.NDArray[Any]) -> Integers:
        """Return contributions (rows, features, values) int64."""
        model = self._model
        n_rows, n_features = len(matrix), model.schema.n_features
        n_values = model.schema.n_values
        found = np.zeros((n_rows * n_features, n_values), dtype=np.int64)
        node = (leaf_indices(model, matrix) + self._root).ravel()
        cell = np.repeat(np.arange(n_rows) * n_features, model.n_trees)
        while len(node):
            inner = self._parent[node] >= 0
            node, cell = node[inner], cell[inner]
            np.add.at(found, cell + self._column[node], self._node_change[node])
            node = self._parent[node]
        return found.reshape(n_rows, n_features, n_values)


def _can_climb(model: Model, units: list[Integers]) -> bool:
    """Return whether nodes split on one feature, without fractional instances or overflow."""
    if model.missing == "fractional" or not all(
        len(tree.surrogate_feature) == 0 and bool(np.isin(tree.kind, _SINGLE_FEATURE_KINDS).all())
        for tree in model.trees
    ):
        return False
    largest = sum(int(np.abs(own).max()) for own in units)
    return 2 * largest * max(model.depth, 1) < 1 << 62
