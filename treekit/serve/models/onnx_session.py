"""onnxruntime's sessions, and a trial of a graph in a process that may die of it.

A graph that makes onnxruntime crash, or that takes all memory, would take the server with
it, and again whenever it starts; so a foreign file is first loaded and asked in a process
of its own (``python -m treekit.serve.models.onnx_session``, the file on its standard input).
What passes can still be made to fail by a later request: a trial is no sandbox.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit.errors import ModelFileError
from treekit.serve.models.onnx_graph import DATATYPES_OF_ONNX
from treekit.serve.models.tensors import DATATYPES

__all__ = ["is_memory", "make_session", "sample_feeds", "tried"]

Feeds = dict[str, npt.NDArray[Any]]

_SECONDS, _SECONDS_A_BYTE = 60.0, 1e-7
"""A trial may take so long: the time to read, optimise and ask a file grows with its size."""
_BYTES, _TIMES_THE_FILE = 4 << 30, 64
"""A trial may take so much memory."""
_OUT_OF_MEMORY = 3
"""Exit code of a trial."""


def make_session(content: bytes) -> Any:
    """A session that answers each request on the thread that asks.

    One thread a request: a row of a forest of 100 trees takes 10 us so, and 16 us with a pool
    of two, whose gain for many rows other requests then lack.  And onnxruntime's threads share
    out trees or rows by the number of rows, so that float sums have other last bits in larger
    batches; by one thread they have the same.
    """
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors arrive as exceptions
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Else a file that begins as onnxruntime's own format does would not be read as ONNX.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def sample_feeds(inputs: Iterable[Any], rows: npt.NDArray[np.int64]) -> Feeds:
    """Inputs of plain cells: zeros and empty texts where `rows` is 0, ones and "a" where 1.

    Parameters
    ----------
    inputs : iterable of onnxruntime.NodeArg
    rows : (rows,) int64
        One row where the first dimension is fixed at another number.
    """
    feeds: Feeds = {}
    for one in inputs:
        sizes = [size if isinstance(size, int) and size >= 0 else 1 for size in one.shape]
        cells = np.array(["", "a"], dtype=object) if one.type == "tensor(string)" else [0, 1]
        free = bool(one.shape) and not isinstance(one.shape[0], int)
        column = np.asarray(cells, dtype=DATATYPES[DATATYPES_OF_ONNX[one.type]])[
            rows if free else [0]
        ]
        shape = (len(column), *sizes[1:]) if free else tuple(sizes)
        spread = column.reshape((-1,) + (1,) * (len(shape) - 1))
        feeds[one.name] = np.ascontiguousarray(np.broadcast_to(spread, shape))
    return feeds


def is_memory(error: BaseException) -> bool:
    """Whether an error says that there is not enough memory."""
    said = str(error)
    return isinstance(error, MemoryError) or any(
        words in said for words in ("Failed to allocate memory", "bad_alloc")
    )


def tried(content: bytes) -> None:
    """Load a graph and ask it for a row and for three, in a process of its own.

    What onnxruntime says of it is left to whoever loads it next.

    Raises
    ------
    ModelFileError
        If the process dies, does not end, or needs too much memory.
    """
    seconds = _SECONDS + _SECONDS_A_BYTE * len(content)
    command = [sys.executable, "-P", "-m", __name__]
    # Where the parent found its modules, the child does.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(  # noqa: S603 - this module, by the interpreter that runs
            command,
            input=content,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ModelFileError(
            f"onnxruntime did not answer one row of it within {seconds:.0f} s, in a trial"
        ) from None
    if done.returncode == _OUT_OF_MEMORY:
        raise ModelFileError(
            f"onnxruntime needs more than {_bytes_for(content) >> 20:,} MiB to load it and to "
            "answer one row"
        )
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise ModelFileError(f"onnxruntime died of it ({name}) in a trial; it is not loaded")
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no word"]
        raise ModelFileError(f"its trial failed with {last[0]:.300}")


def _bytes_for(content: bytes) -> int:
    return _BYTES + _TIMES_THE_FILE * len(content)


def _bound_memory(most: int) -> None:
    """Let this process have so much, if the system has such bounds and lets it set them."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        own = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (own, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _trial() -> int:
    """Be the process of a trial; returns its exit code."""
    content = sys.stdin.buffer.read()
    _bound_memory(_bytes_for(content))
    try:
        session = make_session(content)
        for rows in ([0], [0, 1, 0]):
            session.run(None, sample_feeds(session.get_inputs(), np.array(rows)))
    except Exception as error:  # noqa: BLE001 - said by whoever loads it next
        return _OUT_OF_MEMORY if is_memory(error) else 0
    return 0


if __name__ == "__main__":
    sys.exit(_trial())
