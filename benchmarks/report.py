"""Tables and plots of README.md and RESULTS.md, made from stored results.

    python -m benchmarks report

Replaces the text between the markers ``<!-- made: NAME -->`` and ``<!-- end -->``; NAME
is ``aims``, ``machine``, or a benchmark. The text of a benchmark without a result is
unchanged. Sentences on aims come from ``notes.toml``.
"""

from __future__ import annotations

import argparse
import itertools
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from benchmarks import everything, results, scaling
from benchmarks.aims import AIMS, Aim, Judged, judged
from benchmarks.frame import RESULTS, Result
from benchmarks.plots import curves_svg
from benchmarks.tables import of, row

__all__ = ["aims_table", "main", "section"]

HERE = Path(__file__).resolve().parent
PAGES = ("README.md", "RESULTS.md")
MARKED = re.compile(r"(?<=<!-- made: )([\w-]+)( -->\n)(.*?)(?=<!-- end -->)", re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the tables into the pages, and the plots."""
    parser = argparse.ArgumentParser("python -m benchmarks report", description="make both pages")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, action="append", help="default: both pages")
    parser.add_argument("--plots", type=Path, default=HERE / "plots")
    parser.add_argument("--notes", type=Path, default=HERE / "notes.toml")
    given = parser.parse_args(arguments)
    pages = given.page or [HERE / name for name in PAGES]
    for path, what in (*((page, "page") for page in pages), (given.notes, "file of notes")):
        if not path.is_file():
            parser.error(f"no {what} at {path}; give one with --{what.split()[-1]}")
    notes = tomllib.loads(given.notes.read_text(encoding="utf-8"))
    unknown = set(notes) - {aim.row for aim in AIMS}
    if unknown:
        parser.error(f"{given.notes.name} has notes for unknown rows: {sorted(unknown)}")

    def made(match: re.Match[str]) -> str:
        name, end, before = match.groups()
        if name == "aims":
            return name + end + aims_table(given.results, notes)
        if name == "machine":
            return name + end + machine(given.results)
        result = results.read(name, given.results)
        return name + end + (before if result is None else section(result, given.plots))

    for page in pages:
        text = page.read_text(encoding="utf-8")
        page.write_text(MARKED.sub(made, text), encoding="utf-8")
    count = sum(results.read(name, given.results) is not None for name in everything())
    print(f"wrote {count} results of {given.results} to {', '.join(map(str, pages))}")


def aims_table(folder: Path, notes: dict[str, str]) -> str:
    """Return the table of aims with figures and verdicts, followed by the notes."""
    head = ["work", "peers", "treekit", "ratio", "aim", "met"]
    lines = [row(head), "|---" * len(head) + "|"]
    unmet = []
    found = {name: results.read(name, folder) for name in {aim.benchmark for aim in AIMS}}
    for work, aims in itertools.groupby(AIMS, lambda aim: aim.work):
        for number, aim in enumerate(aims):
            one = judged(aim, found[aim.benchmark], everything()[aim.benchmark])
            peers = ", ".join(
                text if text.startswith(side) else f"{side} {text}"  # "ydf is not installed"
                for side, text in one.peers.items()
            )
            first = (work, peers) if number == 0 else ("", "")
            lines.append(row([*first, one.own, _ratio(aim, one), aim.say, one.verdict]))
            if aim.row in notes and one.verdict != "yes":
                unmet.append(f"- *{work}*, {aim.say}: {notes[aim.row]}")
    return "\n".join([*lines, *(["", *unmet] if unmet else []), ""])


def _ratio(aim: Aim, one: Judged) -> str:
    if one.ratio is None or not aim.against:
        return ""
    return f"{one.ratio:.3f} (1/{1 / one.ratio:.1f})" if 0 < one.ratio < 1 else f"{one.ratio:.2f}"


def machine(folder: Path) -> str:
    """List the distinct machines and versions of the results."""
    seen: dict[str, list[str]] = {}
    for name in everything():
        result = results.read(name, folder)
        if result is None:
            continue
        facts = result.about["machine"] | result.about["versions"]
        text = ", ".join(f"{key} {value}" for key, value in facts.items())
        date = result.about["date"][:10]
        seen.setdefault(f"{date}: {text}", []).append(name)
    lines = [f"- {text}: {', '.join(names)}." for text, names in seen.items()]
    return "\n".join([*lines, ""])


def section(result: Result, plots: Path) -> str:
    """Return a benchmark's settings and table, and the plot of a scaling benchmark."""
    benchmark = everything()[result.name]
    about = result.about
    settings = ", ".join(f"{k} {_plain(v)}" for k, v in about["settings"].items() if v != "")
    rounds = f"{about['rounds']} round{'s' * (about['rounds'] != 1)}"
    parts = [f"*{about['date'][:10]}, {rounds}; {settings}.*"]
    if result.name.startswith("scaling-"):
        parts.append(_drawn(result, plots))
        parts.append(_sizes(result))
    else:
        parts.append(of(benchmark, result))
    return "\n\n".join(parts) + "\n"


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return "/".join(map(_plain, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _drawn(result: Result, plots: Path) -> str:
    """Write the plot; return the line of the picture and the exponents."""
    axis = result.name.removeprefix("scaling-")
    key, up = ("wall", "wall seconds") if axis == "threads" else ("cpu", "CPU seconds")
    plots.mkdir(parents=True, exist_ok=True)
    picture = curves_svg(f"{up} over {axis}", axis, up, scaling.curves(result, key))
    (plots / f"{result.name}.svg").write_text(picture, encoding="utf-8")
    slopes = scaling.exponents(result, key)
    text = ", ".join(f"{side} {slope:.2f}" for side, slope in slopes.items())
    return f"![{up} over {axis}](plots/{result.name}.svg)\n\nExponents: {text}."


def _sizes(result: Result) -> str:
    """Return a table with a row per size and a column of CPU (threads: wall) seconds per side."""
    axis = result.name.removeprefix("scaling-")
    lines = {
        side: dict(line)
        for side, line in scaling.curves(result, "wall" if axis == "threads" else "cpu").items()
    }
    sizes = sorted({size for line in lines.values() for size in line})
    body = [
        row(
            [
                f"{size:,.0f}",
                *(f"{line[size]:.3g}" if size in line else "" for line in lines.values()),
            ]
        )
        for size in sizes
    ]
    return "\n".join([row([axis, *lines]), "|---" * (len(lines) + 1) + "|", *body])
