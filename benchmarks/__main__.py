"""The command line of the benchmarks.

python -m benchmarks                    # what there is
python -m benchmarks NAME --help        # its sizes and peers
python -m benchmarks NAME --peers sklearn,ydf --rounds 5
python -m benchmarks NAME --toy         # a look, in a second or so; nothing is kept
python -m benchmarks report             # tables and plots of README.md, from the results
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import everything, results, tables
from benchmarks.frame import RESULTS, Benchmark, Entry, Options, Parameter, Result, collect

__all__ = ["main", "parser", "run"]


def listed() -> str:
    """Every benchmark with its line."""
    known = everything()
    width = max(map(len, known))
    lines = [f"  {name:{width}}  {one.line}" for name, one in known.items()]
    return "\n".join(["python -m benchmarks NAME [--help]; NAME is one of", *lines])


def parser(benchmark: Benchmark, toy: bool) -> argparse.ArgumentParser:
    """The arguments of one benchmark, with its defaults or those of toy size."""
    made = argparse.ArgumentParser(
        f"python -m benchmarks {benchmark.name}",
        description=benchmark.line,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    made.add_argument("--toy", action="store_true", help="small, in this process, nothing kept")
    few = toy and benchmark.toy_peers is not None
    peers = benchmark.toy_peers if few else benchmark.peers
    made.add_argument(
        "--peers", type=_names, default=peers, help=f"of {', '.join(benchmark.peers)}"
    )
    made.add_argument("--own", type=_names, default=benchmark.own, help="sides of treekit")
    made.add_argument(
        "--rounds", "--seeds", type=int, default=1 if toy else benchmark.rounds,
        help="turns of all sides; each has data of its own seed",
    )  # fmt: skip
    made.add_argument("--limit", type=float, default=900.0, help="most seconds of a measurement")
    made.add_argument(
        "--results", type=Path, default=None if toy else RESULTS, help="folder of results"
    )
    for name, parameter in benchmark.parameters.items():
        default = parameter.toy if toy else parameter.default
        made.add_argument(
            f"--{name.replace('_', '-')}", type=_reader(parameter), default=default,
            help=parameter.help or "-",
        )  # fmt: skip
    return made


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _reader(parameter: Parameter) -> Any:
    kind = type(parameter.default)
    if kind is tuple:
        item = type(parameter.default[0])
        return lambda text: tuple(item(part) for part in text.split(","))
    if kind is bool:
        return lambda text: text.lower() in ("1", "true", "yes")
    return kind


def run(benchmark: Benchmark, arguments: Sequence[str] = ()) -> Result:
    """Measure, print, and keep the result; returns it."""
    toy = "--toy" in arguments
    made = parser(benchmark, toy)
    given = made.parse_args(list(arguments))
    unknown = {*given.peers} - {*benchmark.peers} | {*given.own} - {*benchmark.own}
    if unknown:
        sides = ", ".join(benchmark.peers + benchmark.own)
        made.error(f"no such side: {', '.join(sorted(unknown))}; there are {sides}")
    values = {name: getattr(given, name) for name in benchmark.parameters}
    with tempfile.TemporaryDirectory() as folder:
        options = Options(
            values, (*given.peers, *given.own), given.rounds, not toy, given.limit, Path(folder)
        )
        found = collect(benchmark, options, None if toy else _tell)
    about = results.about(values, given.rounds, given.limit)
    result = Result(benchmark.name, found, about)
    print(f"\n{tables.of(benchmark, result)}")
    if given.results is not None:
        print(f"\nkept in {results.write(result, given.results)}")
    return result


def _tell(entry: Entry) -> None:
    said = entry.failed or ", ".join(f"{k} {v:.4g}" for k, v in entry.figures.items())
    print(f"{entry.case}: {entry.side}: {said}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """List, run one benchmark, or make the report."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(listed())
    elif given[0] == "report":
        from benchmarks.report import main as report

        report(given[1:])
    elif given[0] in everything():
        run(everything()[given[0]], given[1:])
    else:
        sys.exit(f"no benchmark is named {given[0]!r}\n{listed()}")


if __name__ == "__main__":
    main()
