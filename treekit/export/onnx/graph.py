"""Construction and check of an ONNX graph, and the runtime profile of its operators."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype
from treekit.errors import ExportError
from treekit.model.model import Model

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto


# ---------------------------------------------------------------- onnx graph

ML_DOMAIN = "ai.onnx.ml"


class Graph:
    """Builder of an ONNX graph: operators and constants in order.

    Parameters
    ----------
    opset, ml_opset : int
        Versions of the standard operators and of ai.onnx.ml.
    dtype : {"float32", "float64"}
        Type of the columns, the model's input dtype.

    Attributes
    ----------
    ml_used : int
        Version of ai.onnx.ml that the operators added so far need.
    """

    def __init__(self, opset: int, ml_opset: int = 3, dtype: Dtype = "float32") -> None:
        self.opset, self.ml_opset = opset, ml_opset
        self.ml_used = 3
        self.real = np.dtype(dtype)
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}

    @property
    def real_type(self) -> int:
        """ONNX type number of the columns."""
        from onnx import helper

        return int(helper.np_dtype_to_tensor_dtype(self.real))

    def add_constant(self, name: str, value: npt.ArrayLike) -> str:
        """Add a constant, numbers in 64 bits; return its name.

        Adding an equal constant again has no effect; a different one raises ValueError.
        """
        from onnx import numpy_helper

        made = numpy_helper.from_array(np.asarray(value), name)
        if self.constants.setdefault(name, made) != made:
            raise ValueError(f"two constants of a graph are called {name!r}")
        return name

    def add_number(self, name: str, value: float) -> str:
        """Add a scalar constant of the columns' type; return its name."""
        return self.add_constant(name, np.array(value, dtype=self.real))

    def add_operator(
        self,
        operator: str,
        inputs: list[str],
        output: str,
        *,
        attributes: tuple[AttributeProto, ...] = (),
        **plain: Any,
    ) -> str:
        """Add an operator with one output; return the name of the output.

        Large attributes are passed as `attributes`, because ``onnx.helper`` inspects every element.
        """
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], **plain))
        self.nodes[-1].attribute.extend(attributes)
        return output

    def add_cast(self, value: str, dtype: npt.DTypeLike, output: str) -> str:
        """Add a conversion to a type of numpy; return the name of the output."""
        from onnx import helper

        kind = int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        return self.add_operator("Cast", [value], output, to=kind)

    def add_selection(self, table: str, name: str, columns: npt.ArrayLike, output: str) -> str:
        """Add the columns of `table` whose numbers are the constant `name`."""
        own = self.add_constant(name, columns)
        return self.add_operator("Gather", [table, own], output, axis=1)

    def add_first_maximum(self, values: str, output: str, axis: int = 1) -> str:
        """Add the position of the largest value, the first of equal ones."""
        return self.add_operator(
            "ArgMax", [values], output, axis=axis, keepdims=0, select_last_index=0
        )

    def has_output(self, name: str) -> bool:
        """Return whether an operator has the output `name`."""
        return any(name in node.output for node in self.nodes)

    def add_reduction(self, operator: str, numbers: str, output: str) -> str:
        """Add ReduceMin or ReduceMax over each row of `numbers` (N, columns): (N, 1)."""
        if self.opset < 18:
            return self.add_operator(operator, [numbers], output, axes=[1], keepdims=1)
        axis = self.add_constant("second_axis", [1])
        return self.add_operator(operator, [numbers, axis], output, keepdims=1)

    def add_lookup(
        self,
        codes: str,
        features: npt.NDArray[np.int64],
        replies: list[npt.NDArray[Any]],
        missing: npt.NDArray[Any] | np.generic,
        output: str,
    ) -> str:
        """Add lookup tables by category code: (N, tables), the entry of each row's code.

        Parameters
        ----------
        codes : str
            (N, columns): codes of the vocabulary, NaN = missing.
        features : (tables,) int64
            Column of the codes of each table.
        replies : list of (levels,) arrays
            Entries of each table.
        missing : scalar, or (tables,) array
            Entry of a missing value.
        """
        sizes = np.array([len(reply) + 1 for reply in replies])
        lost = np.broadcast_to(missing, len(replies))
        entries = np.concatenate([np.append(*pair) for pair in zip(lost, replies, strict=True)])
        x = self.add_selection(codes, f"{output}_features", features, f"{output}_x")
        self.add_constant(f"{output}_starts", np.cumsum(sizes) - sizes)
        self.add_constant(f"{output}_entries", entries.astype(missing.dtype))
        self.add_number(f"{output}_absent", -1)
        self.add_constant(f"{output}_first", 1)
        self.add_operator("Equal", [x, x], f"{output}_known")
        self.add_operator("Where", [f"{output}_known", x, f"{output}_absent"], f"{output}_code")
        self.add_cast(f"{output}_code", np.int64, f"{output}_whole")
        self.add_operator("Add", [f"{output}_whole", f"{output}_first"], f"{output}_entry")
        self.add_operator("Add", [f"{output}_entry", f"{output}_starts"], f"{output}_at")
        return self.add_operator("Gather", [f"{output}_entries", f"{output}_at"], output, axis=0)

    def make_graph_proto(
        self, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto], names: list[str]
    ) -> GraphProto:
        """Build the graph with the constants that it uses.

        Parameters
        ----------
        inputs, outputs : list of ValueInfoProto
            Inputs and outputs under the names that the operators use.
        names : list of str
            New names of the inputs: names of columns, different from those of the
            outputs.  Other values with such a name are renamed.
        """
        from onnx import helper

        used = {name for node in self.nodes for name in node.input}
        constants = [one for name, one in self.constants.items() if name in used]
        new = self._assign_names(inputs, names)
        for place in inputs:
            place.name = new.get(place.name, place.name)
        for constant in constants:
            constant.name = new.get(constant.name, constant.name)
        for node in self.nodes:
            node.input[:] = [new.get(name, name) for name in node.input]
            node.output[:] = [new.get(name, name) for name in node.output]
        graph: GraphProto = helper.make_graph(
            self.nodes, "treekit", inputs, outputs, initializer=constants
        )
        return graph

    def _assign_names(self, inputs: list[ValueInfoProto], names: list[str]) -> dict[str, str]:
        """Return the new name of each input and of other values that have one of these names."""
        new = {one.name: name for one, name in zip(inputs, names, strict=True)}
        own = self.constants.keys() | {name for node in self.nodes for name in node.output}
        taken = set(names)
        for name in sorted(own & taken):
            other = name + "'"
            while other in own or other in taken:
                other += "'"
            taken.add(other)
            new[name] = other
        return new


# ---------------------------------------------------------------- onnx profile
# The runtime profile determines the operators that an ONNX file may use.
#
# onnxruntime's compatibility table (docs/reference/compatibility.md) lists the operators
# of each version.  The following was found by running every kind of
# graph in 1.15, 1.16, 1.18, 1.20 to 1.24, 1.27, 1.29 and 1.31:
#
# float64 inputs
#     exact since 1.15, the oldest version tested, also in the tree operators of
#     ai.onnx.ml 3: thresholds one ulp apart, in every batch size.
# ``TreeEnsemble`` of ai.onnx.ml 5
#     unsupported in 1.20, although it reads files of that opset.  1.21 and 1.22 misread
#     tests of membership (58 of 60 random trees of such tests), and 1.23 trees that
#     mix tests (56 of 400 random models); from 1.24 on all 400 are correct.

Version = tuple[int, int]

OLDEST_OPSET, NEWEST_OPSET = 13, 21
_USUAL_OPSET = 17
_RELEASES: tuple[tuple[Version, int], ...] = (
    ((1, 12), 17),
    ((1, 14), 18),
    ((1, 16), 19),
    ((1, 17), 20),
    ((1, 18), 21),
)
"""Opset of the standard operators since each onnxruntime release, up to the newest written."""


@dataclass(frozen=True, slots=True)
class Ability:
    """Feature of a graph that not every runtime supports."""

    description: str
    since_runtime: Version = (1, 12)
    opset: int = OLDEST_OPSET
    ml_opset: int = 3


FLOAT64_INPUTS = Ability("inputs and thresholds in float64", since_runtime=(1, 15))
MISSING_MARKERS = Ability(
    "missing texts distinguished from unseen categories (inputs='columns' with unknown='error')",
    since_runtime=(1, 17),
    opset=20,
)
SET_MEMBERSHIP = Ability(
    "large category sets, each as a single test", since_runtime=(1, 24), ml_opset=5
)


@dataclass(frozen=True, slots=True)
class Profile:
    """Operator versions of a file.

    Attributes
    ----------
    runtime : (int, int)
        Oldest onnxruntime that the file supports.
    opset : int
        Version of the standard operators.
    ml_opset : int
        Version of ai.onnx.ml: 3, or 5 with ``TreeEnsemble``.
    """

    runtime: Version = (1, 12)
    opset: int = _USUAL_OPSET
    ml_opset: int = 3


def choose_profile(
    needs: Sequence[Ability], target_runtime: str = "", opset: int | None = None
) -> Profile:
    """Choose the operator versions for a model with the given `needs`.

    Parameters
    ----------
    needs : sequence of Ability
    target_runtime : str
        Version of onnxruntime, whose verified features may all be used;
        empty: the versions that most runtimes support.
    opset : int, optional
        Version of the standard operators, instead of the profile's.

    Raises
    ------
    ExportError
        If the runtime or the operators do not support the model.
    """
    named = bool(target_runtime)
    runtime = _parse_version(target_runtime) if named else _find_oldest_runtime(needs, opset)
    for need in needs:
        if runtime < need.since_runtime:
            raise ExportError(
                f"onnx: this model needs {need.description}, which onnxruntime "
                f"{format_version(runtime)} does not support: set target_runtime to "
                f"{format_version(need.since_runtime)} or newer"
            )
        if opset is not None and opset < need.opset:
            raise ExportError(
                f"onnx: this model needs {need.description}, which opset={opset} does not "
                f"support: set opset to {need.opset} or more"
            )
    newest = max(known for since, known in _RELEASES if since <= runtime)
    if opset is not None and opset > newest:
        raise ExportError(
            f"onnx: onnxruntime {format_version(runtime)} supports the standard operators up to "
            f"version {newest}, but opset is {opset}: lower it, or set a newer target_runtime"
        )
    usual = newest if named else max([_USUAL_OPSET, *(need.opset for need in needs)])
    ml_opset = max([3, *(need.ml_opset for need in needs)])
    if named and runtime >= SET_MEMBERSHIP.since_runtime:
        ml_opset = SET_MEMBERSHIP.ml_opset
    return Profile(runtime, usual if opset is None else opset, ml_opset)


def _find_oldest_runtime(needs: Sequence[Ability], opset: int | None) -> Version:
    """Return the oldest runtime that supports all needs and the opset."""
    knows = [since for since, known in _RELEASES if opset is None or known >= opset]
    if not knows:
        raise ExportError(
            f"onnx: opset {opset} is newer than {_RELEASES[-1][1]}, the newest that treekit writes"
        )
    return max([knows[0], *(need.since_runtime for need in needs)])


def _parse_version(text: str) -> Version:
    numbers = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})?", text.strip(), re.ASCII)
    if numbers is None:
        raise ExportError(
            f"onnx: target_runtime is {text!r}, which is not a version of onnxruntime such as "
            "'1.20'"
        )
    version = int(numbers[1]), int(numbers[2])
    oldest = _RELEASES[0][0]
    if version < oldest:
        raise ExportError(
            f"onnx: onnxruntime {format_version(version)} lacks required operators; the oldest "
            f"supported target_runtime is {format_version(oldest)}"
        )
    return version


def format_version(version: Version) -> str:
    """Write a version as text."""
    return f"{version[0]}.{version[1]}"


# ---------------------------------------------------------------- onnx check

_MAX_FILE_BYTES = 2**31 - 1


def serialize_checked(proto: ModelProto, model: Model, *, columns: bool) -> bytes:
    """Serialize the graph, check it with ``onnx`` and run it with ``onnxruntime``.

    It is run on no rows, on a row of known cells and on a row of
    missing cells; it must refuse the rows that the model refuses.

    Parameters
    ----------
    columns : bool
        Whether there is an input for each column.

    Raises
    ------
    ExportError
        If a library refuses the graph, or it accepts or refuses the wrong rows.
    """
    import onnx
    import onnxruntime

    if proto.ByteSize() > _MAX_FILE_BYTES:
        raise ExportError(
            f"onnx: the file would have {proto.ByteSize():,} bytes, but the limit of protobuf is "
            "2 GiB: train fewer or smaller trees"
        )
    content: bytes = proto.SerializeToString(deterministic=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors arrive as exceptions
    try:
        onnx.checker.check_model(content, full_check=True)
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        session.run(None, _make_feeds(session, model, 0, columns))
        if all(column.kind == "numeric" or column.levels for column in model.schema.columns):
            session.run(None, _make_feeds(session, model, 1, columns))
    except Exception as error:  # the libraries raise different types, some plain RuntimeErrors
        raise ExportError(f"onnx: the check of the graph failed: {error}") from error
    try:
        session.run(None, _make_feeds(session, model, 1, columns, missing=True))
    except Exception as error:
        if model.missing != "error" and model.unknown != "error":
            raise ExportError(f"onnx: the graph fails for missing values: {error}") from error
    else:
        if model.missing == "error":
            raise ExportError("onnx: the graph accepts missing values, which the model rejects")
    return content


def _make_feeds(
    session: Any, model: Model, n_rows: int, columns: bool, *, missing: bool = False
) -> dict[str, Any]:
    """Make inputs of zeros, or of missing values, for one tensor or for columns."""
    schema, cell = model.schema, np.nan if missing else 0.0
    if not columns:
        return {"X": np.full((n_rows, schema.n_features), cell, schema.dtype)}
    feeds: dict[str, Any] = {}
    for one, column in zip(session.get_inputs(), schema.columns, strict=True):
        text = "" if missing or not column.levels else column.levels[0]
        nominal = column.kind == "nominal"
        value, kind = (text, object) if nominal else (cell, schema.dtype)
        feeds[one.name] = np.full((n_rows, 1), value, dtype=kind)
    return feeds
