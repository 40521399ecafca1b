"""Why a row is answered so, as outputs: rules that fired, and what each column added."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from treekit.model.ensemble import Model
from treekit.serve.tensors import Tensor

__all__ = ["reason"]


def reason(model: Model, name: str, matrix: npt.NDArray[Any]) -> Tensor:
    """The output ``rule``, ``contributions`` or ``bias`` of encoded rows (rows, features)."""
    raise NotImplementedError(name)  # helper: reasons
