"""Shared fixtures, and hypothesis profiles."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

# Two workers share two cores: threads of BLAS and OpenMP would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No deadline: the first example of a test may compile kernels.
settings.register_profile("few", deadline=None, max_examples=10)
settings.register_profile("many", deadline=None, max_examples=50)
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=50,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def pytest_configure(config: pytest.Config) -> None:
    """Choose hypothesis's number of examples, and make child processes interruptible."""
    few = "not matrix" in config.getoption("markexpr")
    settings.load_profile("few" if few else "many")
    if os.environ.get("CI"):
        settings.load_profile("ci")
        settings.register_profile("ci few", settings.get_profile("ci"), max_examples=10)
        settings.load_profile("ci few" if few else "ci")
    # Restore Ctrl-C, which the processes of a background job (`&`) ignore.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a kernel was called with types that are not in the list of variants."""
    library = sys.modules.get("treekit.kernels.library")
    called = library.list_missing() if library is not None else []
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["missing"] = called
        return
    unlisted = _find_unlisted({*called, *_missing})
    if unlisted and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        sys.stderr.write("not in treekit/kernel_library/variants.py: " + "\n".join(unlisted) + "\n")


_missing: set[str] = set()
"""Variants that workers called and the library has not."""


@pytest.fixture(autouse=True)
def _marked_if_kernels_compile(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail if a test without the marker ``kernels`` compiles the loop over nodes."""
    library = sys.modules.get("treekit.kernels.library")
    before = set(library.list_missing()) if library is not None else set()
    yield
    library = sys.modules.get("treekit.kernels.library")
    if library is None or request.node.get_closest_marker("kernels"):
        return
    loaded = library.get_library()
    if loaded is not None and loaded.manifest["variants"] == "usual":
        compiled = {one.partition("(")[0] for one in set(library.list_missing()) - before}
        assert "grow_tree.grow_nodes" not in compiled, "mark this test by pytest.mark.kernels"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect what a worker called."""
    _missing.update(getattr(node, "workeroutput", {}).get("missing", ()))


def _find_unlisted(called: set[str]) -> list[str]:
    """Return the variants that are not listed, of kernels that are; tests call helpers, too."""
    if not called:
        return []
    from treekit.kernel_library.variants import iterate_kernels, iterate_pointers
    from treekit.kernels.library import describe_types, find_form

    listed: dict[str, list[str]] = {}
    for name, arguments in iterate_kernels():
        listed.setdefault(name, []).append(describe_types(arguments))
    # Of the functions that kernels call by pointer, the searches depend on types alone.
    searches = {pointer.name for pointer in iterate_pointers() if pointer.kind == "find"}
    names = {str(name).partition("(")[0] for name in searches}
    parts = [(one, *one.partition("(")) for one in sorted(called)]
    return [one for one, name, *_ in parts if name in names and one not in searches] + [
        one
        for one, name, bracket, types in parts
        if name in listed and find_form(listed[name], bracket + types) is None
    ]


_FIRST_TIER = "not matrix and not system"

_LATER = re.compile(r"^pytestmark = (\[\s*)?pytest\.mark\.(matrix|system)\b", re.MULTILINE)
"""The line of a file whose tests are all of a later tier."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of the later tiers, which may need libraries of `dev`, in the first tier.

    A file that is named on the command line is imported.
    """
    if config.option.markexpr.strip() != _FIRST_TIER:
        return None
    named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    if collection_path.suffix != ".py" or collection_path in named:
        return None
    return True if _LATER.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker whether tests were named."""
    node.workerinput["whole_suite"] = _runs_whole_suite(node.config)


def _runs_whole_suite(config: pytest.Config) -> bool:
    """Whether no file and no test was named on the command line."""
    told = getattr(config, "workerinput", {}).get("whole_suite")
    return config.args_source is not pytest.Config.ArgsSource.ARGS if told is None else told


def _has_all_kernels() -> bool:
    """Whether no kernel of a built-in component must be compiled."""
    from treekit.kernels.library import get_library

    library = get_library()
    return library is not None and library.manifest["variants"] == "all"


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out trainings that would compile kernels for minutes, except those asked for.

    In the system tier hypothesis tests run again, with all their examples.
    """
    markexpr = config.getoption("markexpr").strip()
    if _runs_whole_suite(config) and markexpr == _FIRST_TIER and not _has_all_kernels():
        left_out = [item for item in items if item.get_closest_marker("kernels")]
        items[:] = [item for item in items if not item.get_closest_marker("kernels")]
        config.hook.pytest_deselected(items=left_out)
    if markexpr != "system":
        return
    for item in items:
        later = item.get_closest_marker("matrix") or item.get_closest_marker("system")
        if not later and is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.system)


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    """Reset plugin discovery before and after the test."""
    from treekit import registry

    registry.configure()
    yield
    registry.configure()


@pytest.fixture
def numba_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile kernels by numba, also those that are in the library."""
    from treekit.kernels.compile import Kernel

    monkeypatch.setattr(Kernel, "_find_variant", lambda *_: None)


@pytest.fixture
def without_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Discover treekit's own components only, whatever is installed."""
    from treekit import registry

    monkeypatch.setattr(registry, "find_declarations", lambda _: [])
    registry.configure()
    yield
    monkeypatch.undo()
    registry.configure()
