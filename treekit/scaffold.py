"""Create plugin packages: an installable package around a working component to modify.

>>> from treekit.scaffold import new_plugin
>>> new_plugin("tsallis", "criterion")
NewPlugin(folder=PosixPath('treekit-tsallis'), ...)
"""

from __future__ import annotations

import contextlib
import importlib.util
import keyword
import os
import re
import secrets
import shutil
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from treekit import registry
from treekit._version import __version__
from treekit.contracts import CONTRACT_VERSION
from treekit.errors import SettingError, TreekitWarning
from treekit.export.literals import Code, list_template_folders, render_from
from treekit.registry.kinds import KINDS

__all__ = [
    "NewPlugin",
    "PluginNames",
    "contents",
    "new_plugin",
    "plugin_names",
]


# ---------------------------------------------------------------- scaffold


@dataclass(frozen=True)
class NewPlugin:
    """A new plugin package: its folder, names and files.

    Attributes
    ----------
    folder : Path
    names : PluginNames
    files : tuple of str
        Paths relative to `folder`, with ``/``.
    """

    folder: Path
    names: PluginNames
    files: tuple[str, ...]


def new_plugin(name: str, kind: str, directory: str | Path = ".") -> NewPlugin:
    """Write the package ``treekit-NAME`` into a folder of that name, completely or not at all.

    Parameters
    ----------
    name : str
        Name of the component; see `treekit.scaffold.plugin_names`.
    kind : str
        A kind of component, such as ``"criterion"``: a key of `treekit.registry.kinds.KINDS`.
    directory : str or Path
        An existing folder, in which the package's folder is created.

    Raises
    ------
    SettingError
        For an unknown kind, an invalid name, a missing directory, and a package folder
        that exists: nothing is overwritten.
    OSError
        If writing fails; then nothing is left behind.
    """
    if kind not in KINDS:
        raise SettingError(f"unknown kind of plugin {kind!r}; known: {', '.join(KINDS)}")
    names = plugin_names(name)
    parent = Path(directory)
    if not parent.is_dir():
        raise SettingError(f"folder {str(parent)!r} does not exist; create it, or give another one")
    folder = parent / names.distribution
    if os.path.lexists(folder):
        raise SettingError(f"{str(folder)!r} already exists; choose another name or folder")
    files = contents(names, kind)
    _write_files(folder, files)
    return NewPlugin(folder, names, tuple(files))


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write into a temporary folder next to the target, and rename it as the last step."""
    draft = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        for name, content in files.items():
            place = draft / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        # `rename` fails on a file or a non-empty folder that was created meanwhile.
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


# ---------------------------------------------------------------- contents
# Templates are in ``templates/plugin/``.


def contents(names: PluginNames, kind: str) -> dict[str, bytes]:
    """Return every file of the package, by its path with ``/`` relative to the package's folder.

    Parameters
    ----------
    names : PluginNames
        Must be valid: they are inserted into code.
    kind : str
        A kind of component.
    """
    module, component = names.module, names.component
    # An exporter has templates, and needs a package folder that contains them.
    shipped = f"{module}/__init__.py" if kind == "exporter" else f"{module}.py"
    template_of = {
        "pyproject.toml": "pyproject",
        "README.md": "readme",
        shipped: f"{kind}/module",
        f"tests/test_{component}.py": f"{kind}/test",
    }
    if kind == "exporter":
        template_of[f"{module}/templates/{component}/model.jinja"] = "exporter/model"
    texts = {
        "kind": kind,
        "component": component,
        "group": KINDS[kind].group,
        "distribution": names.distribution,
        "module": module,
        "shipped": shipped.partition("/")[0],
        "file": shipped,
        "test_file": f"tests/test_{component}.py",
        "treekit": ".".join(__version__.split(".")[:2]),
    }
    values: dict[str, Any] = {name: Code(text) for name, text in texts.items()}
    values |= {"contract": CONTRACT_VERSION, "about": f"plugin/{kind}/about.jinja"}
    return {
        place: render_from(list_template_folders(), f"plugin/{template}.jinja", **values)
        for place, template in template_of.items()
    }


# ---------------------------------------------------------------- names
# ``tsallis`` becomes the component ``tsallis`` of the distribution
# ``treekit-tsallis``, whose module is ``treekit_tsallis``: the prefix makes
# plugins easy to find on PyPI and avoids clashes of module names.

_MAX_LENGTH = 40
_PREFIX = "treekit-"


@dataclass(frozen=True)
class PluginNames:
    """The names of a plugin.

    Attributes
    ----------
    component : str
        As users type it: ``--criterion my_entropy``.
    distribution : str
        On PyPI: ``treekit-my-entropy``.
    module : str
        In Python: ``treekit_my_entropy``.
    """

    component: str
    distribution: str
    module: str


def plugin_names(name: str) -> PluginNames:
    """Return all names of the plugin `name`; a leading ``treekit-`` is not repeated.

    Raises
    ------
    SettingError
        Unless `name` is a valid name on PyPI and, with ``_`` for ``-``, of a Python
        module: ASCII letters, digits, single ``-`` or ``_`` between them, a
        letter first; not a keyword, a module of the standard library, or
        the name of anything installed.
    """
    stem = name.lower().replace("_", "-").removeprefix(_PREFIX)
    if not name.isascii() or not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", stem):
        raise SettingError(
            f"{name!r} cannot name a plugin: it must be valid on PyPI and in Python; use ASCII "
            "letters, digits and single '-' or '_' between them, and begin with a letter"
        )
    if len(stem) > _MAX_LENGTH:
        raise SettingError(
            f"{name[:80]!r} cannot name a plugin: it has {len(stem)} characters; use at most "
            f"{_MAX_LENGTH}"
        )
    names = PluginNames(stem.replace("-", "_"), _PREFIX + stem, f"treekit_{stem.replace('-', '_')}")
    if taken := _find_conflict(names):
        raise SettingError(f"{name!r} cannot name a plugin: {taken}; choose another")
    return names


def _find_conflict(names: PluginNames) -> str:
    """Describe why the name is taken; an empty text if it is free."""
    word = names.component
    if keyword.iskeyword(word) or keyword.issoftkeyword(word):
        return f"{word!r} is a Python keyword"
    if word in sys.stdlib_module_names:
        return f"{word!r} is a module of Python's standard library"
    if word == "treekit":
        return "it is treekit's own name"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TreekitWarning)  # about other plugins
        installed = registry.components()
    for component in installed:
        if component.name.replace("-", "_").lower() == word:
            named = f"the {component.kind} {component.name!r} of {component.distribution}"
            return f"{named} is installed"
    with contextlib.suppress(metadata.PackageNotFoundError):
        metadata.distribution(names.distribution)
        return f"the distribution {names.distribution!r} is installed"
    if importlib.util.find_spec(names.module) is not None:
        return f"a module {names.module!r} already exists"
    return ""
