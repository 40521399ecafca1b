"""Exceptions of treekit.

Messages name the value, the rule it breaks and the remedy.  All derive from
`TreekitError`, so that one ``except`` catches all errors that users can fix.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from types import FrameType
from typing import Any

__all__ = [
    "AbsentError",
    "DataError",
    "ExportError",
    "MissingExtraError",
    "ModelError",
    "ModelFileAccessError",
    "ModelFileError",
    "ModelFileNotFoundError",
    "PluginError",
    "SettingError",
    "TreekitError",
    "TreekitWarning",
    "VerificationError",
]


def warn(text: str) -> None:
    """Issue a `TreekitWarning` that points to the caller of treekit."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "treekit":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, TreekitWarning, stacklevel=level)


def find_repeated(names: Iterable[Any]) -> Any | None:
    """Return the first name that occurs twice; None if all differ.  The time is linear."""
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


class TreekitError(Exception):
    """Base class of all errors that treekit raises on purpose."""


class DataError(TreekitError, ValueError):
    """Invalid table, column, label or weight."""


class SettingError(TreekitError, ValueError):
    """Unknown setting, or value outside its range."""


class ModelError(TreekitError, ValueError):
    """Invalid tree or model."""


class AbsentError(ModelError, AttributeError):
    """Attribute that an estimator's model does not provide; ``hasattr`` returns False."""


class ModelFileError(TreekitError, ValueError):
    """Truncated, corrupted, malicious or too recent model file."""


class ModelFileAccessError(ModelFileError, OSError):
    """Model file that the operating system refuses to read or write."""


class ModelFileNotFoundError(ModelFileAccessError, FileNotFoundError):
    """Missing model file."""


class ExportError(TreekitError, ValueError):
    """Model that a target cannot express; the message names the reason."""


class PluginError(TreekitError):
    """Failure of a plugin; the message names plugin, distribution and cause."""


class VerificationError(TreekitError):
    """Artifact that could not be run."""


class MissingExtraError(TreekitError, ImportError):
    """Missing optional library; the message names the extra to install."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(
            f"{library} is not installed; install it with: pip install 'treekit-ml[{extra}]'"
        )


class TreekitWarning(UserWarning):
    """Deviation from the request; the message gives the reason."""
