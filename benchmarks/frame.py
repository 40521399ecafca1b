"""What a benchmark is, what it gives, and the list of all of them.

A benchmark yields an `Entry` for each round of each side; everything else is
the same for all: the command line, the file of results, the tables, the ratios.
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
"""How the names of treekit's own sides begin."""


@dataclass(frozen=True)
class Figure:
    """A column of a table.

    Attributes
    ----------
    key : str
        Its name in entries.
    title : str
        Its name and unit in tables.
    form : str
        How one value is written.
    ratio : bool
        Whether a column with the ratio to the first side stands beside it.
    mean : bool
        Rounds are put together by their mean, not by their median.
    spread : bool
        Their standard deviation stands behind.
    """

    key: str
    title: str
    form: str = ".2f"
    ratio: bool = False
    mean: bool = False
    spread: bool = False

    def written(self, measured: Measured) -> str:
        """What a cell says; empty without a figure."""
        value = self.of(measured)
        if value is None:
            return ""
        said = format(value, self.form)
        if self.spread:
            said += f" ±{statistics.pstdev(measured.values(self.key)):{self.form.lstrip('+')}}"
        return said

    def of(self, measured: Measured) -> float | None:
        """The rounds put together; None if no round has the figure."""
        values = measured.values(self.key)
        if not values:
            return None
        return statistics.mean(values) if self.mean else statistics.median(values)


@dataclass(frozen=True)
class Parameter:
    """A size that the command line may set, and what it is at toy size."""

    default: Any
    toy: Any
    help: str = ""


@dataclass(frozen=True)
class Options:
    """What one run was asked for.

    Attributes
    ----------
    values : mapping of str to value
        The benchmark's parameters.
    sides : tuple of str
        Who takes part.
    rounds : int
    apart : bool
        Each measurement in a fresh process, or all in this one (toy size).
    limit : float
        Most seconds of one measurement in a process of its own.
    folder : Path
        For data and sources; empty, and gone after the run.
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
    """One round of one side of one case: its figures, or why there are none."""

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
        """One figure, round by round."""
        return [one[key] for one in self.rounds if key in one]

    def ratio(self, base: Measured, key: str) -> float | None:
        """Median of the ratios round by round; None where a side has no figure."""
        pairs = list(zip(self.values(key), base.values(key), strict=False))
        if not pairs or any(b == 0 for _, b in pairs):
            return None
        return statistics.median(a / b for a, b in pairs)


Cases = dict[str, dict[str, Measured]]


@dataclass
class Result:
    """What a run gave: the rounds of each side of each case, and where and how it ran."""

    name: str
    cases: Cases
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """A registered benchmark.

    Attributes
    ----------
    name, line : str
        Its name on the command line, and what it measures in one line.
    run : callable
        Options to entries; sides take turns, a round at a time.
    figures : tuple of Figure
    parameters : mapping of str to Parameter
    own, peers : tuple of str
        treekit's sides, and the peers' in the order of tables; the first one
        that has a figure is what ratios refer to.
    rounds : int
    fair : bool
        Whether accuracy and leaves of the sides are compared; see `benchmarks.tables`.
    toy_peers : tuple of str or None
        The peers of a toy run, where all of them would take long; None: all.
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
    """Put on the list; a second one of that name is an error."""
    if benchmark.name in BENCHMARKS:
        raise ValueError(f"two benchmarks are named {benchmark.name!r}; rename one")
    BENCHMARKS[benchmark.name] = benchmark


def collect(
    benchmark: Benchmark, options: Options, tell: Callable[[Entry], None] | None = None
) -> Cases:
    """Run, and put the entries in order: sides of a case as `options` names them."""
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
