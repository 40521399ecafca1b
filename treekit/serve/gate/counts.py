"""Counts of one process that cost a request next to nothing.

prometheus_client's own take a lock for each step, 1.4 us a request (measured); what counts
here runs in the event loop alone, and so does what reads it.  Several processes have
prometheus_client's, whose numbers are in files that all of them read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["BOUNDS", "LATENCY", "ROWS", "Counts", "Seconds", "Total"]

BOUNDS = (
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0,
)  # fmt: skip
"""Seconds; a request of just so many counts as within."""

LATENCY = (
    "treekit_request_duration_seconds",
    "Time from a request's head to the end of its answer.",
    ("endpoint", "model"),
)
ROWS = "treekit_rows", "Rows answered.", ("model", "version")


class Seconds:
    """A histogram of times: how many up to each of `BOUNDS`, and beyond; and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, amount: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS, amount)] += 1
        self.total += amount


class Total:
    """A number that grows."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def inc(self, amount: int) -> None:
        """Add to it."""
        self.total += amount


class Counts(Collector):
    """Tables of both, by the values of their labels, as Prometheus has them."""

    def __init__(
        self,
        latencies: Mapping[tuple[str, str], Seconds],
        rows: Mapping[tuple[str, str], Total],
    ) -> None:
        self._latencies, self._rows = latencies, rows

    def collect(self) -> Iterable[Metric]:
        """The two of them."""
        name, meaning, labels = LATENCY
        latency = HistogramMetricFamily(name, meaning, labels=labels)
        for values, seconds in self._latencies.items():
            reached, buckets = 0, []
            for bound, count in zip((*BOUNDS, "+Inf"), seconds.counts, strict=True):
                reached += count
                buckets.append((str(bound), reached))
            latency.add_metric(values, buckets, seconds.total)
        name, meaning, labels = ROWS
        rows = CounterMetricFamily(name, meaning, labels=labels)
        for values, answered in self._rows.items():
            rows.add_metric(values, answered.total)
        return [latency, rows]
