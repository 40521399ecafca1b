"""Which runtimes an artifact runs on, and why not on the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from treekit.errors import VerificationError
from treekit.settings import suggestion
from treekit.verify.report import Untried
from treekit.verify.runners import runner_of, runners
from treekit.verify.runtime import Runner, Runtime

__all__ = ["ALL", "Chosen", "choose"]

ALL = "all"
"""What to ask for to run an artifact on every runtime that the machine has."""


@dataclass(frozen=True)
class Chosen:
    """One artifact, and what it runs on.

    Attributes
    ----------
    path : Path
    runner : Runner
    runtimes : tuple of Runtime
    lacking : str
        Why it runs on none, or not on one that was asked for by name; empty if it does.
    untried : tuple of Untried
        The other runtimes of its kind.
    """

    path: Path
    runner: Runner
    runtimes: tuple[Runtime, ...]
    lacking: str
    untried: tuple[Untried, ...]


def choose(
    paths: Sequence[Path],
    wanted: Collection[str],
    without: Collection[str],
    templates: str | Path = "",
) -> tuple[Chosen, ...]:
    """Choose runtimes for each artifact.

    Parameters
    ----------
    paths : sequence of Path
    wanted, without : collection of str
        Names of runtimes, or `ALL`.  Kinds of which none is wanted by name
        take the first that can run.
    templates : str or Path
        A folder of languages besides those that are known.

    Raises
    ------
    VerificationError
        If a file is absent, or of no kind that is known, or a name is.
    """
    kinds = [runner_of(path, templates) for path in paths]
    for path in paths:
        if not path.is_file():
            raise VerificationError(f"there is no file {str(path)!r} to verify")
    named, barred = _names(wanted, templates), _names(without, templates)
    return tuple(
        _choose(path, runner, named, barred) for path, runner in zip(paths, kinds, strict=True)
    )


def _names(given: Collection[str], templates: str | Path) -> set[str]:
    names = {given} if isinstance(given, str) else set(given)
    known = [runtime.name for runner in runners(templates) for runtime in runner.runtimes]
    for name in sorted(names):
        if name not in {*known, ALL}:
            raise VerificationError(
                f"unknown runtime {name!r}{suggestion(name, known) or ';'} "
                f"known: {', '.join(dict.fromkeys(known))}"
            )
    return names


def _choose(path: Path, runner: Runner, wanted: set[str], without: set[str]) -> Chosen:
    lacking = {runtime.name: runtime.lacking(path) for runtime in runner.runtimes}
    lacking |= {name: "left out, as asked" for name in lacking if name in without}
    able = [runtime for runtime in runner.runtimes if not lacking[runtime.name]]
    named = wanted & set(lacking)
    if ALL in wanted:
        taken = able
    elif named:
        taken = [runtime for runtime in able if runtime.name in named]
    else:
        taken = able[:1]
    absent = [lacking[name] for name in lacking if lacking[name] and name in named]
    if not taken and not absent:
        absent = list(dict.fromkeys(lacking.values()))
    used = {runtime.name for runtime in taken}
    return Chosen(
        path, runner, tuple(taken), ", ".join(absent), tuple(_untried(path, lacking, used))
    )


def _untried(path: Path, lacking: dict[str, str], used: set[str]) -> Iterator[Untried]:
    for name, why in lacking.items():
        if name not in used:
            yield Untried(str(path), name, why or "not asked for")
