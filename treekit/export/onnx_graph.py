"""Building an ONNX graph: operators and constants in order, under names of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from treekit.data.schema import Dtype

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto

__all__ = ["ML_DOMAIN", "Graph"]

ML_DOMAIN = "ai.onnx.ml"


class Graph:
    """Nodes and constants, collected in order, for versions of the two standard domains.

    Parameters
    ----------
    opset, ml_opset : int
        Versions of the standard operators and of ai.onnx.ml.
    dtype : {"float32", "float64"}
        Type of the columns, which is the model's input type.

    Attributes
    ----------
    ml_used : int
        The version of ai.onnx.ml that the operators added so far need.
    """

    def __init__(self, opset: int, ml_opset: int = 3, dtype: Dtype = "float32") -> None:
        self.opset, self.ml_opset = opset, ml_opset
        self.ml_used = 3
        self.real = np.dtype(dtype)
        self.nodes: list[NodeProto] = []
        self._own: dict[str, TensorProto] = {}

    @property
    def real_type(self) -> int:
        """ONNX's number for the type of the columns."""
        from onnx import helper

        return int(helper.np_dtype_to_tensor_dtype(self.real))

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        """Add a constant; returns its name.

        It may be added again, but no other under its name.
        """
        from onnx import numpy_helper

        made = numpy_helper.from_array(value, name)
        if name in self._own:
            if self._own[name] != made:
                raise ValueError(f"two constants of a graph are called {name!r}")
            return name
        self._own[name] = made
        return name

    @property
    def constants(self) -> list[TensorProto]:
        """All constants, in order."""
        return list(self._own.values())

    def texts(self, name: str, values: list[bytes]) -> str:
        """Add a constant (texts,) of UTF-8 texts; returns its name."""
        from onnx import TensorProto

        kind = TensorProto.STRING
        self._own[name] = TensorProto(
            name=name, data_type=kind, dims=[len(values)], string_data=values
        )
        return name

    def number(self, name: str, value: float) -> str:
        """Add a constant of the columns' type; returns its name."""
        return self.constant(name, np.array(value, dtype=self.real))

    def constant_type(self, name: str) -> int:
        """ONNX's number for the element type of a constant."""
        return int(self._own[name].data_type)

    def add(
        self,
        operator: str,
        inputs: list[str],
        output: str,
        *,
        attributes: tuple[AttributeProto, ...] = (),
        **plain: Any,
    ) -> str:
        """Add an operator with one output; returns the output's name.

        Large attributes come as `attributes`: `onnx.helper` looks at every element.
        """
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], **plain))
        self.nodes[-1].attribute.extend(attributes)
        return output

    def has(self, name: str) -> bool:
        """Whether an operator gives `name`."""
        return any(name in node.output for node in self.nodes)

    def add_reduction(self, operator: str, numbers: str, output: str) -> str:
        """Add ReduceMin or ReduceMax of each row of `numbers` (N, columns): (N, 1)."""
        if self.opset < 18:
            return self.add(operator, [numbers], output, axes=[1], keepdims=1)
        axis = self.constant("second_axis", np.array([1]))
        return self.add(operator, [numbers, axis], output, keepdims=1)

    def add_look_up(
        self,
        codes: str,
        features: npt.NDArray[np.int64],
        replies: list[npt.NDArray[Any]],
        missing: npt.NDArray[Any] | np.generic,
        output: str,
    ) -> str:
        """Add tables over codes: (N, tables), of each row the reply to its code.

        Parameters
        ----------
        codes : str
            (N, columns): codes of the vocabulary, NaN = missing.
        features : (tables,) int64
            Column that each table is asked by.
        replies : list of (levels,) arrays
            One for each table.
        missing : scalar, or (tables,) array
            The reply to a missing value.
        """
        from onnx import TensorProto

        sizes = np.array([len(reply) + 1 for reply in replies])
        lost = np.broadcast_to(missing, len(replies))
        entries = np.concatenate(
            [np.append(none, reply) for none, reply in zip(lost, replies, strict=True)]
        )
        self.constant(f"{output}_features", features)
        self.constant(f"{output}_starts", np.cumsum(sizes) - sizes)
        self.constant(f"{output}_entries", entries.astype(missing.dtype))
        self.number(f"{output}_absent", -1)
        self.constant(f"{output}_first", np.array(1))
        x = self.add("Gather", [codes, f"{output}_features"], f"{output}_x", axis=1)
        self.add("Equal", [x, x], f"{output}_known")
        self.add("Where", [f"{output}_known", x, f"{output}_absent"], f"{output}_code")
        self.add("Cast", [f"{output}_code"], f"{output}_whole", to=TensorProto.INT64)
        self.add("Add", [f"{output}_whole", f"{output}_first"], f"{output}_entry")
        self.add("Add", [f"{output}_entry", f"{output}_starts"], f"{output}_at")
        return self.add("Gather", [f"{output}_entries", f"{output}_at"], output, axis=0)

    def proto(
        self, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto], names: list[str]
    ) -> GraphProto:
        """The graph, with the constants that it uses.

        Parameters
        ----------
        inputs, outputs : list of ValueInfoProto
            Under the names that the operators know them by.
        names : list of str
            What the inputs are called instead: names of columns, which may be any
            but those of outputs.  What else is called so gets another name.
        """
        from onnx import helper

        used = {name for node in self.nodes for name in node.input}
        constants = [one for one in self.constants if one.name in used]
        new = self._new_names(inputs, names)
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

    def _new_names(self, inputs: list[ValueInfoProto], names: list[str]) -> dict[str, str]:
        """The name of each input, and of whatever else is called as one."""
        new = {one.name: name for one, name in zip(inputs, names, strict=True)}
        own = {one.name for one in self.constants}
        own |= {name for node in self.nodes for name in node.output}
        taken = set(names)
        for name in sorted(own & taken):
            other = name + "'"
            while other in own or other in taken:
                other += "'"
            taken.add(other)
            new[name] = other
        return new
