"""Programs and libraries that a machine may lack, and tests must not miss where it counts."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

__all__ = ["JAVA", "need"]

JAVA = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""An environment for short runs of Java, in which little is worth compiling well."""


def need(*names: str) -> None:
    """Skip a test unless each program or module is there; where ``CI`` is set, fail it.

    ``.ci/run`` installs all of them, so that no test is skipped there.
    """
    for name in names:
        if shutil.which(name) is None and importlib.util.find_spec(name) is None:
            said = f"there is no program and no module {name!r} on this machine"
            (pytest.fail if os.environ.get("CI") else pytest.skip)(said)
