"""Shared fixtures, hypothesis profiles, and the kernels that all workers share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# No deadline: the first example of a test may compile kernels.
settings.register_profile("few", deadline=None, max_examples=20)
settings.register_profile("many", deadline=None)
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples hypothesis draws, and let child processes be interrupted."""
    few = "not matrix" in config.getoption("markexpr")
    settings.load_profile("few" if few else "many")
    if os.environ.get("CI"):
        settings.load_profile("ci")
        settings.register_profile("ci few", settings.get_profile("ci"), max_examples=20)
        settings.load_profile("ci few" if few else "ci")
    # A shell that ignores Ctrl-C (`nohup`, `&`) hands that on to all that it starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl
def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the kernels once, before workers start, if all tests are to run."""
    config = session.config
    in_worker = hasattr(config, "workerinput")
    of_all = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if in_worker or not of_all or config.option.collectonly or not config.option.numprocesses:
        return
    from tests.compile_kernels import compile_kernels

    seconds = compile_kernels()
    sys.stderr.write(f"kernels compiled in {seconds:.0f} s\n")


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    """Discovery starts anew for this test, and for the one after it."""
    from treekit import registry

    registry.configure()
    yield
    registry.configure()
