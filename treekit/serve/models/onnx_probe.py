"""What a session's graph takes and gives, told by its types and by asking it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelFileError
from treekit.serve.models.onnx_graph import DATATYPES_OF_ONNX
from treekit.serve.models.onnx_session import sample_feeds
from treekit.serve.models.tensors import Spec

__all__ = ["FREE", "answers_by_row", "effort_of", "samples_of", "spec_of"]

FREE = -1
"""A length that the graph leaves open."""
_A_VISIT = 5e-9
"""Seconds of a visit, the unit of `Served.effort`."""
_VARIED = 3
"""Rows that differ cost so many times what equal ones do: a forest of 100 trees, measured."""

Cells = npt.NDArray[Any]


def spec_of(what: str, one: Any) -> Spec:
    """An ``input`` or ``output`` of a session; an output's shape is () where nothing tells it.

    Raises
    ------
    ModelFileError
        For what is no tensor of the protocol's datatypes, or an input without a dimension.
    """
    datatype = DATATYPES_OF_ONNX.get(one.type)
    if datatype is None:
        raise ModelFileError(
            f"its {what} {one.name!r:.60} is a {one.type}, which the protocol has no datatype "
            "for: convert the model so that it is a tensor of numbers, truth values or texts"
        )
    shape = tuple(size if isinstance(size, int) and size >= 0 else FREE for size in one.shape)
    if not shape and what == "input":
        raise ModelFileError(
            f"its input {one.name!r:.60} is a single value, or of no known shape; a request's "
            "tensors have at least one dimension: convert the model with a shape such as [N, 4]"
        )
    return Spec(one.name, datatype, shape)


Said = tuple[list[Cells], list[Cells], list[Cells]]


def samples_of(session: Any, inputs: Sequence[Spec], loops: bool) -> Said | None:
    """What the graph answers a row, another row, and both with the first again.

    None if it refuses plain cells, or may not end: then nothing is known of its answers.
    The two rows are one where the first dimension of an input is fixed.
    """
    if loops:
        return None
    try:
        one, two, three = (
            session.run(None, sample_feeds(session.get_inputs(), np.array(rows)))
            for rows in ([0], [1], [0, 1, 0])
        )
    except Exception:  # noqa: BLE001 - it may refuse what no client would send
        return None
    if any(spec.shape[0] != FREE for spec in inputs):
        three = []
    return one, two, three


def answers_by_row(one: list[Cells], two: list[Cells], three: list[Cells]) -> bool:
    """Whether rows asked together were answered as each alone, to the last bit."""
    if not three:
        return False
    for first, second, joined in zip(one, two, three, strict=True):
        if not (first.ndim and first.shape == second.shape and len(first) == 1):
            return False
        alone = np.concatenate([first, second, first])
        if alone.shape != joined.shape or _bits(alone) != _bits(joined):
            return False
    return True


def _bits(cells: Cells) -> object:
    """What tells arrays of one shape apart: bytes, or texts."""
    return cells.ravel().tolist() if cells.dtype.hasobject else cells.tobytes()


def effort_of(session: Any, *, by_rows: bool) -> float:
    """Visits that a row costs, by this thread's own time for some of them.

    What a request costs whatever its rows is left out, unless it is much.
    """
    once = _seconds(session, 1)
    if once > 50_000 * _A_VISIT or not by_rows:
        return once / _A_VISIT
    return _VARIED * _seconds(session, 64) / 64 / _A_VISIT


def _seconds(session: Any, rows: int) -> float:
    feeds = sample_feeds(session.get_inputs(), np.zeros(rows, dtype=np.int64))
    taken = []
    for _ in range(5):
        start = time.thread_time()
        session.run(None, feeds)
        taken.append(time.thread_time() - start)
    return max(min(taken), _A_VISIT)
