"""A model in service: what it takes, what it gives, and one way to ask it.

Two kinds know how: `treekit.serve.models.treekit_model` for treekit's models and
`treekit.serve.models.onnx_model` for foreign ONNX files.  One is never altered: a changed file
becomes another, so that a request that has begun ends with the model it began with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy.typing as npt

from treekit.serve.errors import InvalidRequestError
from treekit.serve.models.tensors import Spec, Tensor

if TYPE_CHECKING:
    from treekit.model.model import Model
    from treekit.serve.models.fast_path import Quick

__all__ = [
    "Batch",
    "Served",
]


class Batch(NamedTuple):
    """Rows of a request, checked against the schema and as the model computes with them.

    Attributes
    ----------
    rows : int
    arrays : tuple of (rows, ...) arrays
        Batches of one model whose arrays have the same sizes but for their rows may be
        answered together: joined along the first axis.
    alone : bool
        Whether it is never to be joined with another: an ONNX graph need not have rows, and
        may answer each in view of the others.
    """

    rows: int
    arrays: tuple[npt.NDArray[Any], ...]
    alone: bool = False


class Served(ABC):
    """One version of one model.

    Attributes
    ----------
    name : str
    version : str
        The number of its folder, or the start of its file's digest; every answer names it.
    digest : str
        SHA-256 of the file, 64 hexadecimal digits.
    platform : str
        ``treekit`` or ``onnxruntime_onnx``.
    inputs : tuple of Spec
        As metadata have them.
    other_inputs : tuple of tuple of Spec
        Other forms of input, each of which may be given in their place.
    outputs : tuple of Spec
        All that may be asked for.
    usual : tuple of str
        Outputs of a request that names none.
    explaining : frozenset of str
        Outputs that cost far more than an answer: `Limits.explained_rows` bounds them.
    effort : float
        Visits of nodes, about, that a row costs: whoever has an event loop to keep free
        takes requests of many to a thread.
    model : Model, optional
        treekit's.
    quick : Quick, optional
        A shorter way from the commonest body to the same answer.
    """

    name: str
    version: str
    digest: str
    platform: str
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    usual: tuple[str, ...]
    other_inputs: tuple[tuple[Spec, ...], ...] = ()
    explaining: frozenset[str] = frozenset()
    effort: float = 1.0
    model: Model | None = None
    quick: Quick | None = None

    @abstractmethod
    def read(self, tensors: Sequence[Tensor]) -> Batch:
        """Check a request's inputs against the schema.

        Raises
        ------
        InvalidRequestError
            Names the input, the rule and, where there is one, the row and the value.
        """

    @abstractmethod
    def answer(self, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        """The outputs that are wanted, (rows, ...) each, in that order.

        Raises
        ------
        InvalidRequestError
            If a policy of the model refuses a row.
        """

    def wanted(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """The outputs of a request: those it names, each once, or the usual ones.

        Raises
        ------
        InvalidRequestError
            For an output that the model does not have, or that is named twice.
        """
        if not names:
            return self.usual
        known = [spec.name for spec in self.outputs]
        for name in names:
            if name not in known:
                raise InvalidRequestError(
                    f"model {self.name!r} has no output {name!r}; it has: {', '.join(known)}"
                )
        if len(set(names)) != len(names):
            raise InvalidRequestError(f"an output is requested twice: {', '.join(names)}")
        return tuple(names)
