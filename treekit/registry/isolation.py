"""Calls of third-party functions.

Isolated is everything that could affect other components or end the process: exceptions,
``sys.exit``, NumPy's error state, and the working directory, from which relative
paths are resolved.  A plugin may print, seed NumPy's global generator, and set warning
filters like any imported library; treekit does not depend on them.  A plugin that
never returns, or crashes the interpreter, cannot be stopped in the same process.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from treekit.errors import TreekitWarning

R = TypeVar("R")

FOREIGN_ERRORS = (Exception, SystemExit)
"""Exceptions that are the fault of third-party code: all but an interruption."""


def call_isolated(who: str, function: Callable[..., R], /, *arguments: Any, **settings: Any) -> R:
    """Return ``function(*arguments, **settings)``, called in its own context and directory.

    Parameters
    ----------
    who : str
        Owner of the function, for a warning if it changes the working directory.

    Raises
    ------
    Exception, SystemExit
        Exceptions of the function; catch them by `FOREIGN_ERRORS`.
    """
    before = _find_working_directory()
    try:
        # NumPy and decimal store their error handling in context variables.
        return contextvars.copy_context().run(function, *arguments, **settings)
    finally:
        if before is not None and _find_working_directory() != before:
            os.chdir(before)
            warnings.warn(
                f"{who} changed the working directory; it was restored",
                TreekitWarning,
                stacklevel=3,
            )


def describe_error(error: BaseException) -> str:
    """Return an exception as ``Type: message``, even if its ``__str__`` fails."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception class of third-party code
        return name
    return f"{name}: {text}" if text else name


def _find_working_directory() -> Path | None:
    with contextlib.suppress(OSError):  # it may have been deleted
        return Path.cwd()
    return None
