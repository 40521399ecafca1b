"""A graph in service by onnxruntime: its own names, types and shapes, nothing converted.

Datatypes of a request must be those of the metadata, as clients send them
(``tritonclient`` and ``kserve`` take the datatype from the metadata or the array and refuse
an array of another): a graph's FP32 is given FP32.  Numbers of JSON have the datatype that
the request says.  A null is NaN where the input is of floats; elsewhere a graph has no mark
for what is missing, and it is refused.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.data.table import near_names
from treekit.errors import ModelFileError
from treekit.serve.errors import InvalidRequestError, UnavailableError
from treekit.serve.models.onnx_graph import DATATYPES_OF_ONNX
from treekit.serve.models.onnx_probe import FREE, answers_by_row, effort_of, samples_of, spec_of
from treekit.serve.models.onnx_session import is_memory
from treekit.serve.models.served import Batch, Served
from treekit.serve.models.tensors import DATATYPES, Spec, Tensor

__all__ = ["OnnxServed"]

_MOST_SECONDS = 30.0
"""A graph that repeats itself is told to stop after so long; all others end by themselves."""

Cells = npt.NDArray[Any]


class OnnxServed(Served):
    """A graph that onnxruntime runs.

    Parameters
    ----------
    name, version, digest : str
        See `Served`.
    session : onnxruntime.InferenceSession
        One serves many threads.
    loops : bool
        Whether the graph repeats parts of itself, which need not end.
    classes : mapping of str to tuple
        The class of each column of an output that was a map, by the output's name.

    Attributes
    ----------
    by_rows : bool
        Whether the first dimension of each input and output is rows, each answered by itself.
        If not, a request is always answered alone (`Batch.alone`).

    Raises
    ------
    ModelFileError
        For an input or output that the protocol has no words for.
    """

    platform = "onnxruntime_onnx"

    def __init__(
        self,
        name: str,
        version: str,
        digest: str,
        session: Any,
        *,
        loops: bool = False,
        classes: Mapping[str, tuple[str | int, ...]] | None = None,
    ) -> None:
        self.name, self.version, self.digest = name, version, digest
        self.classes = dict(classes or {})
        self._session, self._loops = session, loops
        given = session.get_inputs()
        if not given:
            raise ModelFileError("its graph takes no input, so there is nothing to ask it")
        self.inputs = tuple(spec_of("input", one) for one in given)
        self._optional = {
            one.name: spec_of("input", one)
            for one in session.get_overridable_initializers()
            if one.shape and one.type in DATATYPES_OF_ONNX  # others keep their values
        }
        self._known = {spec.name: spec for spec in self.inputs} | self._optional
        outputs = [spec_of("output", one) for one in session.get_outputs()]
        said = samples_of(session, self.inputs, loops)
        self.by_rows = said is not None and answers_by_row(*said)
        self.outputs = tuple(
            spec if spec.shape or said is None else spec._replace(shape=(FREE,) * said[0][at].ndim)
            for at, spec in enumerate(outputs)
        )
        self.usual = tuple(spec.name for spec in self.outputs)
        self.effort = (
            float("inf") if loops or said is None else effort_of(session, by_rows=self.by_rows)
        )

    def read(self, tensors: Sequence[Tensor]) -> Batch:
        """Check inputs against the graph's: names, datatypes, shapes, no null but of floats."""
        given = {tensor.name: tensor for tensor in tensors}
        if len(given) < len(tensors):
            raise InvalidRequestError("an input is given twice; give each input once")
        for name in given:
            if name not in self._known:
                raise InvalidRequestError(
                    f"model {self.name!r} has no input {name!r}; {near_names(name, self._known)}"
                )
        for spec in self.inputs:
            if spec.name not in given:
                raise InvalidRequestError(
                    f"input {spec.name!r} is not among the request's inputs; model "
                    f"{self.name!r} needs: {', '.join(one.name for one in self.inputs)}"
                )
        more = [spec for name, spec in self._optional.items() if name in given]
        arrays = tuple(self._cells(spec, given[spec.name]) for spec in (*self.inputs, *more))
        rows = len(arrays[0])
        if self.by_rows:
            for spec, cells in zip(self.inputs, arrays, strict=False):
                if len(cells) != rows:
                    raise InvalidRequestError(
                        f"input {spec.name!r} has {len(cells)} rows but "
                        f"{self.inputs[0].name!r} has {rows}; all inputs need the same number"
                    )
        if not more:
            return Batch(rows, arrays, alone=not self.by_rows)
        return Batch(rows, (*arrays, _names(more)), alone=True)

    def _cells(self, spec: Spec, tensor: Tensor) -> Cells:
        name, cells = spec.name, tensor.cells
        if tensor.datatype != spec.datatype:
            raise InvalidRequestError(
                f"input {name!r} has datatype {tensor.datatype}, and model {self.name!r} takes "
                f"{spec.datatype}; send it as {spec.datatype}"
            )
        fits = cells.ndim == len(spec.shape) and all(
            want in (FREE, got) for want, got in zip(spec.shape, cells.shape, strict=True)
        )
        if not fits:
            raise InvalidRequestError(
                f"input {name!r} has shape {list(cells.shape)}; model {self.name!r} takes "
                f"{list(spec.shape)}, where -1 is any length"
            )
        dtype = DATATYPES[spec.datatype]
        if dtype.kind == "f":
            with np.errstate(over="ignore"):  # a number beyond the type is infinite in it
                return cells.astype(dtype, copy=False)
        null = _first_null(cells, dtype)
        if null is not None:
            raise InvalidRequestError(
                f"input {name!r} has a null at {list(null)}, and {spec.datatype} has no value "
                f"that is missing to model {self.name!r}, an ONNX graph: give a value"
            )
        return cells.astype(dtype, copy=False)

    def answer(self, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        """The outputs that are wanted, as the graph gives them."""
        names = [spec.name for spec in self.inputs]
        arrays = batch.arrays
        if len(arrays) > len(names):
            *arrays, more = arrays  # type: ignore[assignment]
            names += more.tolist()
        try:
            given = self._run(list(wanted), dict(zip(names, arrays, strict=True)))
        except Exception as error:  # onnxruntime's own kinds have no base of their own
            raise self._refusal(error) from error
        kinds = {spec.name: spec.datatype for spec in self.outputs}
        return [Tensor(name, kinds[name], cells) for name, cells in zip(wanted, given, strict=True)]

    def _run(self, wanted: list[str], feeds: dict[str, Cells]) -> list[Cells]:
        if not self._loops:
            found: list[Cells] = self._session.run(wanted, feeds)
            return found
        import onnxruntime

        options = onnxruntime.RunOptions()
        options.log_severity_level = 4
        watch = threading.Timer(_MOST_SECONDS, setattr, (options, "terminate", True))
        watch.daemon = True
        watch.start()
        try:
            found = self._session.run(wanted, feeds, options)
        finally:
            watch.cancel()
        return found

    def _refusal(self, error: Exception) -> Exception:
        """What a failed run is to the client."""
        if is_memory(error):
            return UnavailableError(
                f"model {self.name!r}: there is not enough memory for this request; send fewer "
                "rows at once"
            )
        if "terminate flag" in str(error):
            return UnavailableError(
                f"model {self.name!r}: its graph did not end within {_MOST_SECONDS:g} s and was "
                "stopped"
            )
        if isinstance(error, UnicodeError):
            return UnavailableError(f"model {self.name!r}: it answers with text that is no UTF-8")
        return InvalidRequestError(f"model {self.name!r}: its graph refuses this: {_said(error)}")


def _first_null(cells: Cells, dtype: np.dtype[Any]) -> tuple[int, ...] | None:
    """Where the first null is; None if there is none."""
    if cells.dtype.hasobject:
        lost = np.array([cell is None for cell in cells.flat]).reshape(cells.shape)
    elif cells.dtype.kind == "f" and dtype.kind != "f":
        lost = np.isnan(cells)
    else:
        return None
    if not lost.any():
        return None
    return tuple(int(at) for at in np.argwhere(lost)[0])


def _names(specs: Sequence[Spec]) -> Cells:
    """Names of inputs as an array, so that they travel with the arrays."""
    names = np.empty(len(specs), dtype=object)
    names[:] = [spec.name for spec in specs]
    return names


def _said(error: Exception) -> str:
    """onnxruntime's words in one line: the operator, if it has a name, and what was wrong."""
    text = " ".join(str(error).split())
    node = re.search(r"Name:'([^']+)'", text)
    text = text.rpartition("Status Message: ")[2]
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    # The line of its source, and the function there.
    text = re.sub(r"\S*/\S+\.(?:cc|h|cpp):\d+ (?:[\w:*&<>~ ]+\([^()]*\) (?:const )?)?", "", text)
    return (f"{node[1]}: " if node else "") + (text[:300] or type(error).__name__)
