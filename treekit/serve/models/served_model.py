"""Interface of a served model: inputs, outputs and prediction.

Implemented by `treekit.serve.models.treekit_model`.  Served models are immutable: a changed file
becomes a new object, and a running request finishes with the model it started with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy.typing as npt

from treekit.serve.errors import InvalidRequestError
from treekit.serve.models.tensors import Tensor, TensorSpec

if TYPE_CHECKING:
    from treekit.model.model import Model
    from treekit.serve.models.fast_path import FastPath


class Batch(NamedTuple):
    """Rows of a request, validated against the schema and converted for the model.

    Attributes
    ----------
    rows : int
    arrays : tuple of (rows, ...) arrays
    """

    rows: int
    arrays: tuple[npt.NDArray[Any], ...]


class Served(ABC):
    """Served version of a model.

    Attributes
    ----------
    name : str
    version : str
        Number of the version folder, or the start of the file's digest; part of every response.
    digest : str
        SHA-256 of the file as 64 hexadecimal digits.
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
    visits_per_row : float
        Approximate node visits per row, to decide which requests run in a thread.
    model : Model, optional
        The model; None for a server of tensors only.
    fast_path : FastPath, optional
        Faster path for the most common request bodies, with identical responses.
    """

    name: str
    version: str
    digest: str
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    default_outputs: tuple[str, ...]
    other_inputs: tuple[tuple[TensorSpec, ...], ...] = ()
    explanation_outputs: frozenset[str] = frozenset()
    visits_per_row: float = 1.0
    model: Model | None = None
    fast_path: FastPath | None = None

    @abstractmethod
    def parse_inputs(self, tensors: Sequence[Tensor]) -> Batch:
        """Validate and convert the inputs of a request.

        Raises
        ------
        InvalidRequestError
            If an input is invalid; the message names the input, the rule and, where
            applicable, the row and the value.
        """

    @abstractmethod
    def compute_outputs(self, batch: Batch, wanted: Sequence[str]) -> list[Tensor]:
        """Compute the selected outputs, (rows, ...) each, in the given order.

        Raises
        ------
        InvalidRequestError
            If a policy of the model rejects a row.
        """

    def require_model(self) -> Model:
        """Return the model; raise `InvalidRequestError` if tensors only are served."""
        if self.model is None:
            raise InvalidRequestError(
                f"model {self.name!r} takes tensors only; use POST /v2/models/{self.name}/infer"
            )
        return self.model

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
