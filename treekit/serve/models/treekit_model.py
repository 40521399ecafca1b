"""treekit's models in service: one tensor, or a named input a column, in; answers out.

Outputs are named as in the ONNX files that treekit writes: ``label`` and ``probabilities``
(``label_0``, ... of several targets), or ``value``.  Asked for by name there are ``leaf``,
``rule``, ``contributions`` and ``bias``, too; see `treekit.serve.models.treekit_model`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.encoding import encode_rows
from treekit.data.features import round_to
from treekit.data.schema import Output, python_label
from treekit.data.table import make_table, near_names
from treekit.errors import DataError, ModelError
from treekit.explain.contributions import NodeUnits, fineness, shared
from treekit.explain.decision_path import Passage, TreeNodes, walk
from treekit.model.fixed_point import mass_bounds
from treekit.model.links import values_of
from treekit.model.model import Model
from treekit.model.row_scorer import Scorer
from treekit.model.scoring import label_codes, leaf_indices, probabilities, sums
from treekit.model.tree import Split
from treekit.serve.errors import InvalidRequestError, TooLargeError
from treekit.serve.models.fast_path import Quick
from treekit.serve.models.served_model import Batch, Served
from treekit.serve.models.tensors import Spec, Tensor

if TYPE_CHECKING:
    from treekit.rules.extract import LeafRules

__all__ = [
    "ONE_TENSOR",
    "Added",
    "Reasons",
    "TreekitServed",
    "Ways",
]


# ---------------------------------------------------------------- of treekit

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


# ---------------------------------------------------------------- reasons
# Why a row is answered so, as outputs: rules that fired, and what each column added.
#
# ``rule``: in each tree the rule of the leaf in which the row ends, or the rule of a list
# that fired, in English with exact numerals.  Where a row divides (missing policy
# ``fractional``) that of the leaf with the largest part, which the text says.
#
# ``contributions`` and ``bias``: of each value of the answer (probabilities, margins before
# a link, numbers), by the path decomposition of Saabas; see
# `treekit.explain.contributions`.  Integers that add up to the row's sums exactly are
# computed, and checked; what goes out is the double nearest to each.

_KEPT = 8 << 20
"""Characters of rules that a model keeps."""

_MOST_TEXT = 64 << 20
_MOST_CELLS = 1 << 23
"""Characters, and numbers, of one answer: vocabularies and columns may be many."""


class Reasons:
    """The reasons of one model; made when they are first asked for, safe in threads.

    Parameters
    ----------
    model : Model
    kept : int
        Characters of texts to keep at most; the oldest are said anew when they are asked for.
    """

    def __init__(self, model: Model, kept: int = _KEPT) -> None:
        self._model, self._most = model, kept
        self._lock = threading.Lock()
        self._texts: dict[tuple[int, int], str] = {}
        self._size = 0
        self._added: Added | None = None

    def output(self, name: str, matrix: npt.NDArray[Any]) -> Tensor:
        """The output ``rule``, ``contributions`` or ``bias`` of encoded rows (rows, features).

        Raises
        ------
        TooLargeError
            If the answer would be huge.
        DataError
            If a policy of the model refuses a row.
        """
        if name == "rule":
            return Tensor(name, "BYTES", self.rules(matrix))
        if name == "bias":
            cells = np.repeat(self.added.bias[None], len(matrix), axis=0)
            return Tensor(name, "FP64", cells)
        if name != "contributions":
            raise InvalidRequestError(
                f"there is no reason {name!r}; there are: rule, contributions, bias"
            )
        schema = self._model.schema
        if len(matrix) * schema.n_features * schema.n_values > _MOST_CELLS:
            raise TooLargeError(
                f"the contributions of {len(matrix):,} rows are more than {_MOST_CELLS:,} numbers: "
                "send fewer rows at once"
            )
        return Tensor(name, "FP64", self.added.contributions(matrix))

    @property
    def added(self) -> Added:
        """What columns add; what does not depend on rows is computed once."""
        with self._lock:
            if self._added is None:
                self._added = Added(self._model)
            return self._added

    @cached_property
    def _leaf_rules(self) -> LeafRules:
        from treekit.rules.extract import LeafRules

        return LeafRules(self._model)

    def rules(self, matrix: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        """(rows, trees) object: the text of the rule of each row in each tree."""
        from treekit.model.scoring import leaf_indices

        model = self._model
        leaves = leaf_indices(model, matrix).astype(np.int64)
        texts = self._said(leaves)
        said = np.empty(leaves.shape, dtype=object)
        size = 0
        for row, own in enumerate(leaves.tolist()):
            said[row] = [texts[pair] for pair in enumerate(own)]
            size += sum(map(len, said[row]))
            if size > _MOST_TEXT:
                raise TooLargeError(
                    f"the rules of {len(leaves):,} rows are more than {_MOST_TEXT:,} characters: "
                    "send fewer rows at once"
                )
        return _with_parts(model, matrix, said) if model.mass > 1 else said

    def _said(self, leaves: npt.NDArray[np.int64]) -> dict[tuple[int, int], str]:
        """The texts of leaves (rows, trees), by tree and node."""
        pairs = {pair for row in leaves.tolist() for pair in enumerate(row)}
        with self._lock:
            known = {pair: self._texts[pair] for pair in pairs if pair in self._texts}
        fresh: dict[int, list[int]] = {}
        for tree, leaf in pairs - known.keys():
            fresh.setdefault(tree, []).append(leaf)
        found = self._leaf_rules.texts(fresh)
        with self._lock:
            self._keep(found)
        return known | found

    def _keep(self, found: dict[tuple[int, int], str]) -> None:
        for pair, text in found.items():
            if pair not in self._texts:
                self._texts[pair] = text
                self._size += len(text)
        while self._size > self._most:
            oldest = next(iter(self._texts))
            self._size -= len(self._texts.pop(oldest))


def _with_parts(
    model: Model, matrix: npt.NDArray[Any], said: npt.NDArray[np.object_]
) -> npt.NDArray[np.object_]:
    """The texts, those of rows that divide with the part that ends in the leaf."""
    ways = Ways(model)
    for row, cells in enumerate(round_to(matrix, model.schema.dtype)):
        if not _may_divide(model, cells):
            continue
        for tree in range(model.n_trees):
            _, leaves = ways.walk(tree, cells.tolist())
            part = max(mass for _, mass in leaves) / model.mass
            if len(leaves) > 1:
                said[row, tree] += f" [{100 * part:.3g}% of the row, its largest part]"
    return said


def _may_divide(model: Model, cells: npt.NDArray[np.float64]) -> bool:
    """Whether anything is missing, or may be a level that a node never saw."""
    return bool(model.schema.nominal.any() or np.isnan(cells).any())


# ---------------------------------------------------------------- contributions
# What each column adds to the answers of many rows; once a model what rows do not alter.
#
# The integers are those of `treekit.explain.contributions`.  Where every node asks one
# column, all rows and trees climb together from their leaves to the roots, and what a node
# changes is its column's.  Other trees, and rows that divide, are walked row by row.

Integers = npt.NDArray[np.int64]

_ONE_COLUMN = (Split.LEAF, Split.THRESHOLD, Split.SUBSET, Split.MULTIWAY, Split.MISSING)
_EXACT = 1 << 53
"""Up to here a double holds every integer."""


class Ways:
    """The ways of rows through the trees of a model; nodes are read when a row meets them."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._nodes: dict[int, tuple[TreeNodes, Integers | None]] = {}

    def walk(self, tree: int, row: list[float]) -> tuple[list[Passage], list[tuple[int, int]]]:
        """See `treekit.explain.decision_path.walk`."""
        model = self._model
        if tree not in self._nodes:
            own = model.trees[tree]
            bounds = mass_bounds(own) if model.missing == "fractional" else None
            self._nodes[tree] = TreeNodes(own, model.schema), bounds
        nodes, bounds = self._nodes[tree]
        return walk(nodes, row, model.mass, bounds)


class Added:
    """Contributions of a model's columns.

    Parameters
    ----------
    model : Model

    Attributes
    ----------
    bias : (values,) float64
        What the model says before it looks at a row.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._units = [NodeUnits(model, t)[range(own.n_nodes)] for t, own in enumerate(model.trees)]
        roots = np.array([own[0] for own in self._units]).astype(object)
        self._bias = [model.mass * value for value in roots.sum(axis=0).tolist()]
        votes = model.schema.task == "classification" and not model.margins
        self._divisor = model.unit_total * fineness(model) if votes else model.divisor
        self._exponent = 0 if votes else model.exponent
        self.bias = self._numbers(np.array(self._bias, dtype=object))
        self._climb = _Climb(model, self._units) if _is_plain(model, self._units) else None

    def contributions(self, matrix: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """(rows, features, values) float64 of encoded rows (rows, features)."""
        found = self.integers(matrix)
        return self._numbers(found)

    def integers(self, matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(rows, features, values) int64, or objects: what columns add, exactly.

        Raises
        ------
        ModelError
            If they do not add up to what the model says: a fault of treekit.
        """
        found = self._walked(matrix) if self._climb is None else self._climb.climbed(matrix)
        said = sums(self._model, matrix).astype(object) * fineness(self._model)
        total = found.sum(axis=1).astype(object) + np.array(self._bias, dtype=object)
        if (total != said).any():
            row = int((total != said).any(axis=1).argmax())
            raise ModelError(
                f"the contributions of row {row} add up to {total[row].tolist()}, and the model "
                f"says {said[row].tolist()}: a fault of treekit, please report it with the model "
                "and the row"
            )
        return found

    def _walked(self, matrix: npt.NDArray[Any]) -> npt.NDArray[np.object_]:
        model = self._model
        ways, n_values = Ways(model), model.schema.n_values
        found = np.zeros((len(matrix), model.schema.n_features, n_values), dtype=object)
        for at, row in enumerate(round_to(matrix, model.schema.dtype).tolist()):
            walks = [
                (self._units[t], ways.walk(t, row)[0], model.mass) for t in range(model.n_trees)
            ]
            for column, own in shared(walks, row, n_values).by_column.items():
                found[at, column] = own
        return found

    def _numbers(self, integers: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The doubles that integers mean, as `treekit.explain.explanation.Sums.number`."""
        least, most = (int(f(integers)) if integers.size else 0 for f in (np.min, np.max))
        if max(-least, most, self._divisor) > _EXACT:  # Python divides any integers exactly
            shares = (integers.astype(object) / self._divisor).astype(np.float64)
        else:
            shares = integers.astype(np.float64) / self._divisor
        return np.ldexp(shares, self._exponent)


class _Climb:
    """All trees as one forest of parents, for trees whose nodes ask one column each."""

    def __init__(self, model: Model, units: list[Integers]) -> None:
        self._model = model
        counts = [tree.n_nodes for tree in model.trees]
        self._root = np.cumsum([0, *counts[:-1]])
        parts = []
        for root, parent in zip(self._root.tolist(), (t.parent for t in model.trees), strict=True):
            parts.append(np.where(parent < 0, -1, parent + root))
        self._parent = np.concatenate(parts)
        feature = np.concatenate([tree.feature for tree in model.trees])
        self._column = feature[self._parent].astype(np.int64)  # of the root: never looked at
        own = np.concatenate(units)
        self._change = own - own[self._parent]

    def climbed(self, matrix: npt.NDArray[Any]) -> Integers:
        """(rows, features, values) int64."""
        model = self._model
        n_rows, n_features = len(matrix), model.schema.n_features
        n_values = model.schema.n_values
        found = np.zeros((n_rows * n_features, n_values), dtype=np.int64)
        node = (leaf_indices(model, matrix) + self._root).ravel()
        cell = np.repeat(np.arange(n_rows) * n_features, model.n_trees)
        while len(node):
            inner = self._parent[node] >= 0
            node, cell = node[inner], cell[inner]
            np.add.at(found, cell + self._column[node], self._change[node])
            node = self._parent[node]
        return found.reshape(n_rows, n_features, n_values)


def _is_plain(model: Model, units: list[Integers]) -> bool:
    """Whether rows stay whole, nodes ask one column, and no sum on the way passes 63 bits."""
    if model.missing == "fractional" or not all(
        len(tree.surrogate_feature) == 0 and bool(np.isin(tree.kind, _ONE_COLUMN).all())
        for tree in model.trees
    ):
        return False
    largest = sum(int(np.abs(own).max()) for own in units)
    return 2 * largest * max(model.depth, 1) < 1 << 62
