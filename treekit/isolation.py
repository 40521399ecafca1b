"""Calling a stranger's function, so that what it does wrong stays its own.

Isolated is what would change the answers of others, or end the process: exceptions,
``sys.exit``, NumPy's error state, and the working directory, from which relative
paths are read.  A plugin may print, seed NumPy's global generator, and set filters
of warnings as any imported library may; treekit relies on none of them.  A plugin
that never returns, or crashes the interpreter, cannot be stopped from within.
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

__all__ = ["FOREIGN", "cause", "isolated"]

R = TypeVar("R")

FOREIGN = (Exception, SystemExit)
"""What a stranger's code may raise that is its fault: all but an interruption."""


def isolated(who: str, function: Callable[..., R], /, *arguments: Any, **settings: Any) -> R:
    """``function(*arguments, **settings)``, in a context and a folder of its own.

    Parameters
    ----------
    who : str
        Whose function it is, for a warning if it leaves another working directory.

    Raises
    ------
    Exception, SystemExit
        Whatever the function raises; `FOREIGN` catches it.
    """
    before = _folder()
    try:
        # NumPy and decimal keep how they meet errors in context variables.
        return contextvars.copy_context().run(function, *arguments, **settings)
    finally:
        if before is not None and _folder() != before:
            os.chdir(before)
            warnings.warn(
                f"{who} changed the working directory; it was changed back",
                TreekitWarning,
                stacklevel=3,
            )


def cause(error: BaseException) -> str:
    """An exception as ``Type: message``, whatever its own ``__str__`` does."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a stranger's exception
        return name
    return f"{name}: {text}" if text else name


def _folder() -> Path | None:
    with contextlib.suppress(OSError):  # it may have been deleted
        return Path.cwd()
    return None
