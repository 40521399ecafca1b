"""Benchmarks, their results, and the registry of all benchmarks.

A benchmark yields an `Entry` for each round of each side; the command line, the results
file, the tables and the ratios are shared.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "BENCHMARKS",
    "RESULTS",
    "Benchmark",
    "Entry",
    "Figure",
    "Measured",
    "Options",
    "Parameter",
    "Result",
    "collect",
    "register",
]

RESULTS = Path(__file__).resolve().parent / "results"
OWN = "treekit"
"""Prefix of the names of treekit's own sides."""


@dataclass(frozen=True)
class Figure:
    """A column of a table.

    Attributes
    ----------
    key : str
        Name in entries.
    title : str
        Name and unit in tables.
    form : str
        Format of a value.
    ratio : bool
        Whether to add a column with the ratio to the first side.
    mean : bool
        Whether to average rounds by the mean instead of the median.
    spread : bool
        Whether to add the standard deviation over rounds.
    """

    key: str
    title: str
    form: str = ".2f"
    ratio: bool = False
    mean: bool = False
    spread: bool = False

    def written(self, measured: Measured) -> str:
        """Format the figure for a table cell; empty without a figure."""
        value = self.of(measured)
        if value is None:
            return ""
        text = format(value, self.form)
        if self.spread:
            text += f" ±{statistics.pstdev(measured.values(self.key)):{self.form.lstrip('+')}}"
        return text

    def of(self, measured: Measured) -> float | None:
        """Return the mean or median over rounds; None if no round has the figure."""
        values = measured.values(self.key)
        if not values:
            return None
        return statistics.mean(values) if self.mean else statistics.median(values)


@dataclass(frozen=True)
class Parameter:
    """A command-line option, with its default at full and at toy size."""

    default: Any
    toy: Any
    help: str = ""


@dataclass(frozen=True)
class Options:
    """Options of a run.

    Attributes
    ----------
    values : mapping of str to value
        Parameters of the benchmark.
    sides : tuple of str
        Sides to compare.
    rounds : int
    apart : bool
        Whether each measurement runs in a fresh process, or all in this one (toy size).
    limit : float
        Maximum seconds of a measurement in a separate process.
    folder : Path
        Temporary folder for data and sources.
    """

    values: Mapping[str, Any]
    sides: tuple[str, ...]
    rounds: int
    apart: bool
    limit: float
    folder: Path

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True)
class Entry:
    """One round of one side of one case: its figures, or the reason of its failure."""

    case: str
    side: str
    figures: Mapping[str, float] = field(default_factory=dict)
    failed: str = ""


@dataclass
class Measured:
    """All rounds of one side of one case."""

    rounds: list[dict[str, float]] = field(default_factory=list)
    failed: str = ""

    def values(self, key: str) -> list[float]:
        """Return the values of a figure by round."""
        return [one[key] for one in self.rounds if key in one]

    def ratio(self, base: Measured, key: str) -> float | None:
        """Return the median of the ratios by round; None if a side lacks the figure."""
        pairs = list(zip(self.values(key), base.values(key), strict=False))
        if not pairs or any(b == 0 for _, b in pairs):
            return None
        return statistics.median(a / b for a, b in pairs)


Cases = dict[str, dict[str, Measured]]


@dataclass
class Result:
    """Result of a run: the rounds of each side of each case, and how it was run."""

    name: str
    cases: Cases
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """A registered benchmark.

    Attributes
    ----------
    name, line : str
        Name on the command line, and a one-line description.
    run : callable
        Function from options to entries; sides take turns in each round.
    figures : tuple of Figure
    parameters : mapping of str to Parameter
    own, peers : tuple of str
        treekit's sides and the peers, in the order of tables; ratios refer to the first
        one that has the figure.
    rounds : int
    fair : bool
        Whether accuracy and leaves of the sides are compared; see `benchmarks.tables`.
    toy_peers : tuple of str or None
        Peers of a toy run, if all would take long; None: all.
    """

    name: str
    line: str
    run: Callable[[Options], Iterator[Entry]]
    figures: tuple[Figure, ...]
    parameters: Mapping[str, Parameter]
    own: tuple[str, ...] = (OWN,)
    peers: tuple[str, ...] = ()
    rounds: int = 5
    fair: bool = False
    toy_peers: tuple[str, ...] | None = None


BENCHMARKS: dict[str, Benchmark] = {}


def register(benchmark: Benchmark) -> None:
    """Register a benchmark; its name must be unique."""
    if benchmark.name in BENCHMARKS:
        raise ValueError(f"two benchmarks are named {benchmark.name!r}; rename one")
    BENCHMARKS[benchmark.name] = benchmark


def collect(
    benchmark: Benchmark, options: Options, tell: Callable[[Entry], None] | None = None
) -> Cases:
    """Run a benchmark and collect its entries; sides of a case are in the order of `options`."""
    found: Cases = {}
    for entry in benchmark.run(options):
        measured = found.setdefault(entry.case, {}).setdefault(entry.side, Measured())
        if entry.failed:
            measured.failed = entry.failed
        else:
            measured.rounds.append(dict(entry.figures))
        if tell is not None:
            tell(entry)
    place = {side: number for number, side in enumerate(options.sides)}
    return {
        case: dict(sorted(sides.items(), key=lambda pair: place.get(pair[0], len(place))))
        for case, sides in found.items()
    }
