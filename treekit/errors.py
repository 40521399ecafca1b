"""Every exception of treekit.

A message names the value, the rule it breaks and the remedy.  All derive from
`TreekitError`, so that one ``except`` catches what is the user's to mend.
"""

from __future__ import annotations

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


class TreekitError(Exception):
    """Base of all errors that treekit raises on purpose."""


class DataError(TreekitError, ValueError):
    """A table, column, label or weight that cannot be used."""


class SettingError(TreekitError, ValueError):
    """An unknown setting, or a value outside its range."""


class ModelError(TreekitError, ValueError):
    """A tree or model that breaks a structural rule."""


class AbsentError(ModelError, AttributeError):
    """What an estimator lacks because its model has no such form; ``hasattr`` says so, too."""


class ModelFileError(TreekitError, ValueError):
    """A model file that is truncated, corrupted, hostile or too new."""


class ModelFileAccessError(ModelFileError, OSError):
    """A model file that the system does not let be read or written."""


class ModelFileNotFoundError(ModelFileAccessError, FileNotFoundError):
    """A model file that is not there."""


class ExportError(TreekitError, ValueError):
    """A model that a target cannot express; the message names what."""


class PluginError(TreekitError):
    """A plugin that failed; the message names plugin, distribution and cause."""


class VerificationError(TreekitError):
    """An artifact that could not be run."""


class MissingExtraError(TreekitError, ImportError):
    """An optional library is absent; the message names the extra to install."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(
            f"{library} is not installed; install it with: pip install 'treekit-ml[{extra}]'"
        )


class TreekitWarning(UserWarning):
    """Something was done differently than asked, and why."""
