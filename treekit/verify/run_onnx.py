"""Execution of ONNX files in onnxruntime, and reading of their trees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Column, Schema
from treekit.errors import VerificationError
from treekit.export.onnx.sums import sums_second_class_only
from treekit.model.fixed_point import to_double_threshold
from treekit.model.model import Model
from treekit.verify.answers import REFUSED, Answers, encode_labels
from treekit.verify.probe_values import make_unseen_text
from treekit.verify.runtime import Job, Runtime
from treekit.verify.tree_equivalence import BinaryTables, StructureComparison, compare_paths

# ---------------------------------------------------------------- read trees


Array = npt.NDArray[Any]

_UNSUPPORTED = "unsupported ONNX graph: expected one TreeEnsembleRegressor of integer votes"


def compare_onnx_structure(path: Path, model: Model) -> StructureComparison:
    """Compare the trees of the graph with the model's, on every path."""
    try:
        return compare_paths(model, _make_binary_tables(_read_attributes(path), model))
    except (VerificationError, LookupError, ValueError, TypeError, OverflowError) as error:
        return StructureComparison(False, f"not proved: its trees cannot be read ({error})")


def _read_attributes(path: Path) -> dict[str, Any]:
    """Return the attributes of the only tree operator."""
    import onnx

    try:
        graph = onnx.load(str(path)).graph
    except Exception as error:  # protobuf raises its own types
        raise VerificationError("not an ONNX file") from error
    # A name that is not UTF-8 is returned as bytes.
    named = [node for node in graph.node if isinstance(node.op_type, str)]
    trees = [node for node in named if node.op_type.startswith("TreeEnsemble")]
    if len(trees) != 1 or trees[0].op_type != "TreeEnsembleRegressor":
        raise VerificationError(_UNSUPPORTED)
    return {one.name: onnx.helper.get_attribute_value(one) for one in trees[0].attribute}


def _read_numbers(attributes: dict[str, Any], name: str) -> tuple[Array, bool]:
    """Return an attribute as doubles, and whether it is stored as floats."""
    from onnx import numpy_helper

    if f"{name}_as_tensor" in attributes:
        return numpy_helper.to_array(attributes[f"{name}_as_tensor"]).astype(np.float64), False
    return np.array(attributes[name], dtype=np.float32).astype(np.float64), True


def _make_binary_tables(attributes: dict[str, Any], model: Model) -> BinaryTables:
    schema = model.schema

    def read_integers(name: str) -> Array:
        return np.array(attributes[name], dtype=np.int64)

    modes = np.array(attributes["nodes_modes"], dtype=object)
    leaf = modes == b"LEAF"
    second = sums_second_class_only(model)
    n_targets = 1 if second else schema.n_values
    if attributes["n_targets"] != n_targets or not np.isin(modes[~leaf], b"BRANCH_LEQ").all():
        raise VerificationError(_UNSUPPORTED)
    places = _NodeIndex(read_integers("nodes_treeids"), read_integers("nodes_nodeids"))
    tree, feature = read_integers("nodes_treeids"), read_integers("nodes_featureids")[~leaf]
    if np.any(feature >= schema.n_features):
        raise VerificationError(
            "unsupported ONNX graph: oblique splits, surrogates and rules cannot be read"
        )
    number = np.where(leaf, -np.cumsum(leaf), np.cumsum(~leaf) - 1)
    leaf_values = _sum_leaf_values(attributes, places, number, n_targets)
    if second:  # the first class has the remaining votes
        leaf_values = np.hstack([model.unit_total // model.n_trees - leaf_values, leaf_values])
    value, single = _read_numbers(attributes, "nodes_values")
    if single != (schema.dtype == "float32"):  # otherwise it compares converted columns
        raise VerificationError(_UNSUPPORTED)
    value = value[~leaf]
    if single:
        rounds = np.isfinite(value) & ~schema.nominal[feature]
        value[rounds] = to_double_threshold(value[rounds])
    tracks = read_integers("nodes_missing_value_tracks_true")[~leaf]
    return BinaryTables(
        feature=feature,
        kind=(tracks != 0).astype(np.int64),
        value=value,
        yes=number[places.find_positions(tree, read_integers("nodes_truenodeids"))[~leaf]],
        no=number[places.find_positions(tree, read_integers("nodes_falsenodeids"))[~leaf]],
        root=number[np.unique(tree, return_index=True)[1]],
        set_start=np.zeros(len(feature) + 1, dtype=np.int64),
        set_codes=np.empty(0, dtype=np.int64),
        leaves=leaf_values,
    )


class _NodeIndex:
    """Positions of the nodes of trees in the lists of the operator."""

    def __init__(self, tree: Array, node: Array) -> None:
        self.width = int(node.max()) + 1
        self.keys = tree * self.width + node
        self.order = np.argsort(self.keys, kind="stable")

    def find_positions(self, tree: Array, node: Array) -> Array:
        """Return the positions of nodes; raise an error if one does not exist."""
        wanted = tree * self.width + node
        at = np.minimum(np.searchsorted(self.keys, wanted, sorter=self.order), len(self.keys) - 1)
        found: Array = self.order[at]
        if np.any(self.keys[found] != wanted):
            raise VerificationError("a node that does not exist")
        return found


def _sum_leaf_values(
    attributes: dict[str, Any], places: _NodeIndex, number: Array, n_values: int
) -> Array:
    """Sum the values of each leaf, (leaves, values) int64."""
    weight, _ = _read_numbers(attributes, "target_weights")
    at = places.find_positions(
        np.array(attributes["target_treeids"]), np.array(attributes["target_nodeids"])
    )
    target = np.array(attributes["target_ids"], dtype=np.int64)
    if np.any(weight != np.rint(weight)) or np.any(number[at] >= 0) or np.any(target >= n_values):
        raise VerificationError(_UNSUPPORTED)
    leaf_values = np.zeros((int((number < 0).sum()), n_values), dtype=np.int64)
    np.add.at(leaf_values, (-1 - number[at], target), weight.astype(np.int64))
    return leaf_values


# ---------------------------------------------------------------- run onnx


_BATCH_ROWS = 8192
_SINGLE_ROWS = 300
"""Rows run one by one, for one input; divided by the number of inputs."""
_NUMBER_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64}
_EXTRA_OUTPUTS = {"leaf", "path"}
"""Outputs other than predictions, which are ignored."""

Rows = npt.NDArray[np.float64]
Feeds = dict[str, npt.NDArray[Any]]


def run_onnx(job: Job, rows: Rows) -> Iterator[tuple[str, Answers]]:
    """Run rows in onnxruntime, in batches and, for some, one at a time."""
    import onnxruntime

    path, schema = job.path, job.schema
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors arrive as exceptions
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        _check_shape(session, path, schema)
        feeds = _make_feeds(session, schema, rows)
        # A failure without rows is an error, not a refusal of rows.
        session.run(None, _slice_feeds(feeds, 0, 0))
        yield "batches", _predict_batches(session, schema, feeds, len(rows), _BATCH_ROWS)
        # onnxruntime runs single rows in other loops.
        alone = max(_SINGLE_ROWS // len(feeds), 10)
        yield "single rows", _predict_batches(session, schema, feeds, min(len(rows), alone), 1)
    except VerificationError:
        raise
    except Exception as error:  # onnxruntime raises its own types, some bare RuntimeErrors
        raise VerificationError(f"onnxruntime cannot run {path.name!r}: {error}") from error


# ------------------------------------------------------------------ inputs


def _check_shape(session: Any, path: Path, schema: Schema) -> None:
    """Reject a graph of another width; an undeclared width fails when the graph runs."""
    inputs = session.get_inputs()
    alone = [one.name for one in inputs] == ["X"] and _get_width(inputs[0]) in (
        None,
        schema.n_features,
    )
    wanted = _list_outputs(schema)
    given = {one.name: _get_width(one) for one in session.get_outputs()}
    fits = all(given.get(name) in (None, width) for name, width in wanted.items())
    if (
        not (alone or _has_column_inputs(inputs, schema))
        or not wanted.keys() <= given.keys() <= wanted.keys() | _EXTRA_OUTPUTS
        or not fits
    ):
        raise VerificationError(
            f"{path.name!r} differs from the model in columns or classes; export it again"
        )


def _get_width(place: Any) -> int | None:
    """Return the declared width of an input or output (rows, width), if it has one."""
    width = place.shape[1] if len(place.shape) == 2 else None
    return width if isinstance(width, int) else None


def _has_column_inputs(inputs: list[Any], schema: Schema) -> bool:
    """Whether each column has an input, in order: texts or numbers, (rows, 1)."""
    return len(inputs) == schema.n_features and all(
        _get_width(one) == 1 and (one.type == "tensor(string)") == (column.kind == "nominal")
        for one, column in zip(inputs, schema.columns, strict=True)
    )


def _make_feeds(session: Any, schema: Schema, rows: Rows) -> Feeds:
    """Convert rows of numbers and codes to the inputs of the graph."""
    inputs = session.get_inputs()
    unknown = next((one.type for one in inputs if one.type not in _list_input_types()), None)
    if unknown is not None:
        raise VerificationError(f"an input has type {unknown}, which treekit does not write")
    with np.errstate(over="ignore", under="ignore"):
        if not _has_column_inputs(inputs, schema):
            return {"X": rows.astype(_NUMBER_TYPES[inputs[0].type])}
        return {
            one.name: _make_texts(schema, column, cells)
            if column.kind == "nominal"
            else cells[:, np.newaxis].astype(_NUMBER_TYPES[one.type])
            for one, column, cells in zip(inputs, schema.columns, rows.T, strict=True)
        }


def _list_input_types() -> set[str]:
    return {*_NUMBER_TYPES, "tensor(string)"}


def _make_texts(schema: Schema, column: Column, codes: Rows) -> npt.NDArray[Any]:
    """Convert codes to texts (rows, 1): categories, a missing value mark, or an unseen text."""
    n = len(column.levels)
    unseen = make_unseen_text(column)
    # Blanks around a mark are ignored; without a mark an unseen text stands for missing.
    marks = (f" {mark}\t" for mark in schema.missing_marks if mark == mark.strip())
    missing = next((mark for mark in marks if mark not in column.levels), unseen)
    texts = np.array([*column.levels, unseen, missing], dtype=object)
    known = (codes >= 0) & (codes < n) & (codes == np.floor(codes))
    at = np.where(np.isnan(codes), n + 1, np.where(known, codes, n)).astype(np.int64)
    return texts[at][:, np.newaxis]


def _slice_feeds(feeds: Feeds, first: int, last: int) -> Feeds:
    return {name: cells[first:last] for name, cells in feeds.items()}


# ------------------------------------------------------------------ outputs


def _predict_batches(session: Any, schema: Schema, feeds: Feeds, n: int, size: int) -> Answers:
    blocks = [(at, min(at + size, n)) for at in range(0, n, size)]
    answers = [part for block in blocks for part in _predict_batch(session, schema, feeds, *block)]
    label = [np.zeros((0, len(schema.outputs)), np.int64), *(one.label for one in answers)]
    number = [np.zeros((0, schema.n_values)), *(one.number for one in answers)]
    single = any(one.dtype == np.float32 for one in number)
    return Answers(
        np.concatenate(label),
        np.concatenate(number, dtype=np.float32 if single else np.float64, casting="same_kind"),
    )


def _predict_batch(
    session: Any, schema: Schema, feeds: Feeds, first: int, last: int
) -> Iterator[Answers]:
    """Yield predictions in the order of the rows; halve a batch that fails for a refused row."""
    try:
        outputs = session.run(list(_list_outputs(schema)), _slice_feeds(feeds, first, last))
    except Exception:  # noqa: BLE001 - onnxruntime raises its own types, some bare RuntimeErrors
        if last - first > 1:
            middle = (first + last) // 2
            yield from _predict_batch(session, schema, feeds, first, middle)
            yield from _predict_batch(session, schema, feeds, middle, last)
        else:
            refused = np.full((last - first, len(schema.outputs)), REFUSED, dtype=np.int64)
            yield Answers(refused, np.zeros((last - first, schema.n_values)))
        return
    yield _decode_outputs(
        dict(zip(_list_outputs(schema), outputs, strict=True)), schema, last - first
    )


def _decode_outputs(outputs: dict[str, Any], schema: Schema, n: int) -> Answers:
    """Convert the outputs of a graph for n rows, named as in `_list_outputs`."""
    codes = np.zeros((n, len(schema.outputs)), dtype=np.int64)
    if schema.task == "classification":
        labels = [outputs[name] for name in outputs if name.startswith("label")]
        for k, output in enumerate(schema.outputs):
            codes[:, k] = encode_labels(output, labels[k].tolist())
    names = [name for name in outputs if not name.startswith("label")]
    numbers = [
        _convert_maps(outputs[name], schema.outputs[k].classes)
        if isinstance(outputs[name], list)
        else _check_doubles(name, outputs[name])
        for k, name in enumerate(names)
    ]
    number = np.concatenate([one.reshape(n, -1) for one in numbers], axis=1)
    return Answers(codes, number.reshape(n, schema.n_values))


def _check_doubles(name: str, numbers: npt.NDArray[Any]) -> Rows:
    if numbers.dtype != np.float64:
        raise VerificationError(f"output {name!r}: expected double, got {numbers.dtype}")
    return numbers


def _convert_maps(maps: list[dict[Any, float]], labels: tuple[Any, ...]) -> npt.NDArray[np.float32]:
    """Convert maps of label to rounded probability, (rows, classes) float32."""
    if any(set(one) != set(labels) for one in maps):
        raise VerificationError("the maps of probabilities have different labels from the model")
    cells = [[one[label] for label in labels] for one in maps]
    return np.array(cells, dtype=np.float32).reshape(len(maps), len(labels))


def _list_outputs(schema: Schema) -> dict[str, int | None]:
    """Return the names of a graph's outputs, labels first, with their widths."""
    if schema.task == "regression":
        return {"value": schema.n_values if schema.more else None}
    ends = [f"_{k}" for k in range(len(schema.outputs))] if schema.more else [""]
    labels: dict[str, int | None] = {f"label{end}": None for end in ends}
    sizes = zip(ends, schema.outputs, strict=True)
    return labels | {f"probabilities{end}": len(output.classes) for end, output in sizes}


def _get_version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


ONNX_RUNTIMES = (Runtime("onnxruntime", run_onnx, _get_version),)
