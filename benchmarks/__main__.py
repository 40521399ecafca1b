"""Command line of the benchmarks.

python -m benchmarks                    # list all benchmarks
python -m benchmarks NAME --help        # sizes and peers of one
python -m benchmarks NAME --peers sklearn,ydf --rounds 5
python -m benchmarks NAME --toy         # small, in some seconds; result not stored
python -m benchmarks report             # write the tables and plots of both pages from results
"""

from __future__ import annotations

import argparse
import difflib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import everything, results, tables
from benchmarks.frame import RESULTS, Benchmark, Entry, Options, Parameter, Result, collect

__all__ = ["main", "parser", "run"]


def listed() -> str:
    """List every benchmark with its description."""
    known = everything()
    width = max(map(len, known))
    lines = [f"  {name:{width}}  {one.line}" for name, one in known.items()]
    more = [
        "",
        "python -m benchmarks report             writes the tables of README.md and RESULTS.md",
        "python -m benchmarks.equality --write   writes the table of equal bits there",
    ]
    return "\n".join(["python -m benchmarks NAME [--help]; NAME is one of", *lines, *more])


def parser(benchmark: Benchmark, toy: bool) -> argparse.ArgumentParser:
    """Make the argument parser of a benchmark, with defaults of full or toy size."""
    made = argparse.ArgumentParser(
        f"python -m benchmarks {benchmark.name}",
        description=benchmark.line,
    )
    made.add_argument(
        "--toy", "--quick", action="store_true", help="small sizes in this process, not stored"
    )
    few = toy and benchmark.toy_peers is not None
    peers = benchmark.toy_peers if few else benchmark.peers
    most = 1 if toy else benchmark.rounds

    def add(option: str, kind: Any, default: Any, text: str) -> None:
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        text += f" (default {shown})" if shown not in (None, "") else ""
        name, *others = option.split()
        made.add_argument(name, *others, type=kind, default=default, help=text)

    add("--peers", _names, peers, "other libraries, separated by commas")
    add("--own", _names, benchmark.own, "sides of treekit, separated by commas")
    add("--rounds --seeds", _count, most, "rounds of all sides, each with its own seed of the data")
    add("--limit", float, 900.0, "maximum seconds of a measurement")
    add("--results", Path, None if toy else RESULTS, "folder of results")
    for name, parameter in benchmark.parameters.items():
        default = parameter.toy if toy else parameter.default
        add(f"--{name.replace('_', '-')}", _reader(parameter), default, parameter.help)
    return made


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"number of rounds must be at least 1, got {text}")
    return int(text)


def _reader(parameter: Parameter) -> Any:
    """Return the parser of a parameter's text, by the type of its default."""
    kind = type(parameter.default)

    def size(text: str) -> Any:
        number = kind(text)
        if number < 0:
            raise argparse.ArgumentTypeError(f"size must be at least 0, got {text}")
        return number

    def sizes(text: str) -> Any:
        return tuple(type(parameter.default[0])(part) for part in text.split(","))

    def truth(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise argparse.ArgumentTypeError(f"expected true or false, got {text}")
        return text.lower() == "true"

    if kind is tuple:
        return sizes
    return truth if kind is bool else size if kind in (int, float) else kind


def run(benchmark: Benchmark, arguments: Sequence[str] = ()) -> Result:
    """Run a benchmark; print, store and return the result."""
    toy = not {"--toy", "--quick"}.isdisjoint(arguments)
    made = parser(benchmark, toy)
    given = made.parse_args(list(arguments))
    unknown = {*given.peers} - {*benchmark.peers} | {*given.own} - {*benchmark.own}
    if unknown:
        sides = ", ".join(benchmark.peers + benchmark.own)
        made.error(f"no such side: {', '.join(sorted(unknown))}; choose from {sides}")
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
        print(f"\nwritten to {results.write(result, given.results)}")
    return result


def _tell(entry: Entry) -> None:
    text = entry.failed or ", ".join(f"{k} {v:.4g}" for k, v in entry.figures.items())
    print(f"{entry.case}: {entry.side}: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """List the benchmarks, run one, or write the report."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(listed())
    elif given[0] == "report":
        from benchmarks.report import main as report

        report(given[1:])
    elif given[0] in everything():
        run(everything()[given[0]], given[1:])
    else:
        near = difflib.get_close_matches(given[0], [*everything(), "report"])
        meant = f"; did you mean {' or '.join(near)}?" if near else f"\n{listed()}"
        sys.exit(f"no benchmark is named {given[0]!r}{meant}")


if __name__ == "__main__":
    main()
