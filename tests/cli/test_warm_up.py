"""``treekit warm-up``, and the process that compiles in the background of the demo."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from numba.core.event import trigger_event

from treekit import warm_up
from treekit.cli import main
from treekit.warm_up import (
    KINDS,
    compile_in_background,
    compile_in_processes,
    compile_kinds,
    split_kinds,
)


def test_kinds_are_split_between_two_processes():
    parts = split_kinds(KINDS)
    assert len(parts) == 2
    assert sorted(kind for part in parts for kind in part) == sorted(KINDS)
    assert split_kinds(["demo"]) == [["demo"]]


def test_each_kind_is_printed_when_it_is_compiled(monkeypatch, capsys):
    ran: list[str] = []
    kinds = {name: lambda name=name: ran.append(name) for name in ("a", "b")}
    monkeypatch.setattr(warm_up, "KINDS", kinds)
    compile_kinds(["b", "a"])
    assert ran == ["b", "a"]
    assert capsys.readouterr().out == "b\na\n"


def instead(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let the other processes run some code, with the kinds in `sys.argv`."""
    command = [sys.executable, "-c", code]
    monkeypatch.setattr(warm_up, "_make_command", lambda *kinds: [*command, *kinds])


@pytest.mark.system
def test_progress_counts_the_kinds_of_all_processes(monkeypatch):
    instead(monkeypatch, "import sys; print(*sys.argv[1:], sep=chr(10))")
    seen: list[tuple[int, int]] = []
    compile_in_processes([["a", "b"], ["c"]], progress=lambda *step: seen.append(step))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.system
def test_a_process_that_fails_is_an_error_with_its_output(monkeypatch):
    instead(monkeypatch, "import sys; sys.exit('no ' + sys.argv[1])")
    with pytest.raises(RuntimeError, match="do not compile:\nno a"):
        compile_in_processes([["a"]])


def test_the_command_compiles_the_kinds_named(monkeypatch):
    given: list[Any] = []
    monkeypatch.setattr(
        warm_up, "compile_in_processes", lambda parts, progress: given.extend(parts)
    )
    done = CliRunner().invoke(main, ["warm-up", "serving", "use"])
    assert done.exit_code == 0, done.output
    assert sorted(kind for part in given for kind in part) == ["serving", "use"]
    assert "the kernels are compiled; machine code of the wheel: " in done.output


def test_an_unknown_kind_is_refused_by_name():
    done = CliRunner().invoke(main, ["warm-up", "everything"])
    assert done.exit_code == 2
    assert "unknown kind 'everything'; known: use, demo" in done.output


class Helper:
    """A process that only records what happens to it."""

    def __init__(self, command: list[str], **streams: Any) -> None:
        self.command, self.streams, self.calls = command, streams, []

    def terminate(self) -> None:
        self.calls.append("terminate")

    def wait(self) -> None:
        self.calls.append("wait")


@pytest.fixture
def helpers(monkeypatch: pytest.MonkeyPatch) -> list[Helper]:
    """The processes that were started."""
    started: list[Helper] = []

    def start(command: list[str], **streams: Any) -> Helper:
        started.append(Helper(command, **streams))
        return started[-1]

    monkeypatch.setattr(warm_up.subprocess, "Popen", start)
    monkeypatch.setattr(warm_up.os, "cpu_count", lambda: 2)
    return started


def compile_something(
    module: str = "treekit.kernels.grow_tree", path: str | None = "cache"
) -> None:
    kernel = SimpleNamespace(
        py_func=SimpleNamespace(__module__=module, __name__="kernel"),
        stats=SimpleNamespace(cache_path=path),
    )
    with trigger_event("numba:compile", {"dispatcher": kernel}):
        pass


def test_the_first_kernel_starts_one_process_that_ends_with_the_block(helpers: list[Helper]):
    with compile_in_background("use"):
        assert not helpers
        compile_something()
        compile_something()
        (helper,) = helpers
        assert helper.command[-1] == "use"
        assert set(helper.streams.values()) == {subprocess.DEVNULL}
        assert not helper.calls
    assert helper.calls == ["terminate", "wait"]
    compile_something()
    assert len(helpers) == 1


def test_other_functions_and_kernels_without_a_cache_start_none(helpers: list[Helper]):
    with compile_in_background("use"):
        compile_something("plugin.criteria")
        compile_something(path=None)
    assert not helpers


def test_one_processor_compiles_alone(helpers: list[Helper], monkeypatch):
    monkeypatch.setattr(warm_up.os, "cpu_count", lambda: 1)
    with compile_in_background("use"):
        compile_something()
    assert not helpers


def test_where_no_process_can_start_this_one_compiles_all(monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(warm_up.subprocess, "Popen", fail)
    monkeypatch.setattr(warm_up.os, "cpu_count", lambda: 2)
    with compile_in_background("use"):
        compile_something()
