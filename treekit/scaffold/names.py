"""The names of a new plugin: one word from its author, and all that is called after it.

``tsallis`` becomes the component ``tsallis`` of the distribution
``treekit-tsallis``, whose module is ``treekit_tsallis``: by the prefix one
finds plugins on PyPI, and no module hides another's.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
import warnings
from dataclasses import dataclass
from importlib import metadata

from treekit import registry
from treekit.discovery import Component
from treekit.errors import SettingError, TreekitWarning

__all__ = ["PluginNames", "plugin_names"]

_LONGEST = 40
_PREFIX = "treekit-"


@dataclass(frozen=True)
class PluginNames:
    """What a plugin's parts are called.

    Attributes
    ----------
    component : str
        As users type it: ``--criterion my_entropy``.
    distribution : str
        As pip knows it: ``treekit-my-entropy``.
    module : str
        As Python imports it: ``treekit_my_entropy``.
    """

    component: str
    distribution: str
    module: str


def plugin_names(name: str) -> PluginNames:
    """All names of the plugin `name`; a leading ``treekit-`` is not repeated.

    Raises
    ------
    SettingError
        Unless `name` is a name on PyPI and, with ``_`` for ``-``, of a Python
        module: ASCII letters, digits, single ``-`` or ``_`` between them, a
        letter first; no keyword, no module of the standard library, and
        nothing that is installed already.
    """
    stem = name.lower().replace("_", "-").removeprefix(_PREFIX)
    if not name.isascii() or not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", stem):
        raise SettingError(
            f"{name!r} cannot name a plugin: the name is part of one on PyPI and of a Python "
            "module, so it is made of ASCII letters, digits and single '-' or '_' between them, "
            "and begins with a letter"
        )
    if len(stem) > _LONGEST:
        raise SettingError(
            f"{name[:80]!r} cannot name a plugin: it has {len(stem)} characters, and people type "
            f"it; use {_LONGEST} at most"
        )
    names = PluginNames(stem.replace("-", "_"), _PREFIX + stem, f"treekit_{stem.replace('-', '_')}")
    if taken := _taken(names):
        raise SettingError(f"{name!r} cannot name a plugin: {taken}; choose another")
    return names


def _taken(names: PluginNames) -> str:
    """What else is called so, or nothing."""
    word = names.component
    if keyword.iskeyword(word) or keyword.issoftkeyword(word):
        return f"{word!r} is a keyword of Python"
    if word in sys.stdlib_module_names:
        return f"{word!r} is a module of Python's standard library"
    if word == "treekit":
        return "that is treekit's own name"
    for component in _installed():
        if component.name.replace("-", "_").lower() == word:
            return (
                f"the {component.kind} {component.name!r} of {component.distribution} is installed"
            )
    if _is_distribution(names.distribution):
        return f"the distribution {names.distribution!r} is installed"
    if importlib.util.find_spec(names.module) is not None:
        return f"a module {names.module!r} can be imported already"
    return ""


def _installed() -> tuple[Component, ...]:
    """Every component; what is wrong with other plugins is not told here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TreekitWarning)
        return registry.components()


def _is_distribution(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
