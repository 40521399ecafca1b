"""Optional programs and libraries of tests: required in CI, skipped elsewhere."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

__all__ = ["JAVA", "need"]

JAVA = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Environment for short Java runs, with the fast compiler only."""


def need(*names: str) -> None:
    """Skip a test unless each program or module is installed; fail it if ``CI`` is set.

    ``.ci/run`` installs all of them, so no test is skipped there.
    """
    for name in names:
        if shutil.which(name) is None and importlib.util.find_spec(name) is None:
            reason = f"program or module {name!r} is not installed"
            (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
