"""Triton's extensions for statistics and for the configuration of models, as JSON and over gRPC.

https://github.com/triton-inference-server/server, ``docs/protocol/extension_statistics.md`` and
``extension_model_configuration.md``.  ``perf_analyzer`` needs both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from treekit.serve.models.served_model import Served
    from treekit.serve.models.tensors import TensorSpec

# ---------------------------------------------------------------- statistics


class InferenceCounts(NamedTuple):
    """Inferences of one version of a model since the server has started.

    Attributes
    ----------
    requests, rows : int
        Number of answered requests, and of their rows.
    seconds : float
        Duration of these requests, from the head of each to the end of its response.
    last : float
        Time of the last one in seconds since 1970; 0 without one.
    failures : int
        Number of requests that were answered with an error, or not at all.
    failure_seconds : float
        Duration of these.
    """

    requests: int = 0
    rows: int = 0
    seconds: float = 0.0
    last: float = 0.0
    failures: int = 0
    failure_seconds: float = 0.0


StatisticsByVersion = Mapping[tuple[str, str], InferenceCounts]
"""Counts by name and version of a model."""


class Duration(msgspec.Struct):
    """A number of requests and their duration in nanoseconds."""

    count: int = 0
    ns: int = 0


class InferenceStatistics(msgspec.Struct):
    """Durations of inferences; the phases of a request are not told apart: all is compute_infer."""

    success: Duration
    compute_infer: Duration
    fail: Duration
    queue: Duration = msgspec.field(default_factory=Duration)
    compute_input: Duration = msgspec.field(default_factory=Duration)
    compute_output: Duration = msgspec.field(default_factory=Duration)


class VersionStatistics(msgspec.Struct):
    """Statistics of a version: milliseconds since 1970, rows, requests and durations."""

    name: str
    version: str
    last_inference: int
    inference_count: int
    execution_count: int
    inference_stats: InferenceStatistics


class ModelStatistics(msgspec.Struct):
    """Statistics of versions of models."""

    model_stats: list[VersionStatistics]


def make_statistics(versions: Iterable[Served], counts: StatisticsByVersion) -> ModelStatistics:
    """Return the statistics of versions of models."""
    found = []
    for served in versions:
        own = counts.get((served.name, served.version), InferenceCounts())
        took = own.requests, round(own.seconds * 1e9)
        lost = own.failures, round(own.failure_seconds * 1e9)
        found.append(
            VersionStatistics(
                *(served.name, served.version, round(own.last * 1e3), own.rows, own.requests),
                InferenceStatistics(Duration(*took), Duration(*took), Duration(*lost)),
            )
        )
    return ModelStatistics(found)


# ---------------------------------------------------------------- configuration


class Reshape(msgspec.Struct):
    """Shape of a tensor for the model, if it differs from dims."""

    shape: list[int]


class TensorConfig(msgspec.Struct, omit_defaults=True):
    """A tensor of a model: its lengths without the rows."""

    name: str
    data_type: str
    dims: list[int]
    reshape: Reshape | None = None


class VersionPolicy(msgspec.Struct):
    """Versions that are served: all."""

    all: dict[str, str] = {}


class TransactionPolicy(msgspec.Struct):
    """Whether a request may have another number of responses than one."""

    decoupled: bool = False


class ModelConfig(msgspec.Struct):
    """Configuration of a model."""

    name: str
    platform: str
    backend: str
    version_policy: VersionPolicy
    max_batch_size: int
    input: list[TensorConfig]
    output: list[TensorConfig]
    model_transaction_policy: TransactionPolicy


def make_config(served: Served, most: int) -> ModelConfig:
    """Return the configuration of a model, whose batches have at most `most` rows."""
    return ModelConfig(
        *(served.name, served.platform, served.platform, VersionPolicy(), most),
        [_describe_tensor(spec) for spec in served.inputs],
        [_describe_tensor(spec) for spec in served.outputs],
        TransactionPolicy(),
    )


def _describe_tensor(spec: TensorSpec) -> TensorConfig:
    kind = f"TYPE_{'STRING' if spec.datatype == 'BYTES' else spec.datatype}"
    dims = list(spec.shape[1:])
    if dims:
        return TensorConfig(spec.name, kind, dims)
    return TensorConfig(spec.name, kind, [1], Reshape([]))  # dims cannot be empty
