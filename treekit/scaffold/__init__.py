"""New plugins: an installable package around a component that works, for its author to change.

>>> from treekit.scaffold import new_plugin
>>> new_plugin("tsallis", "criterion")
NewPlugin(folder=PosixPath('treekit-tsallis'), ...)
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from treekit.errors import SettingError
from treekit.records import KINDS
from treekit.scaffold.contents import contents
from treekit.scaffold.names import PluginNames, plugin_names

__all__ = ["NewPlugin", "new_plugin"]


@dataclass(frozen=True)
class NewPlugin:
    """A package that was written.

    Attributes
    ----------
    folder : Path
    names : PluginNames
    files : tuple of str
        Paths below `folder`, with ``/``.
    """

    folder: Path
    names: PluginNames
    files: tuple[str, ...]


def new_plugin(name: str, kind: str, directory: str | Path = ".") -> NewPlugin:
    """Write the package ``treekit-NAME`` into a folder of that name, whole or not at all.

    Parameters
    ----------
    name : str
        Of the component; see `treekit.scaffold.names.plugin_names`.
    kind : {"criterion", "splitter", "pruner", "exporter", "importer"}
    directory : str or Path
        An existing folder, in which the package's own is made.

    Raises
    ------
    SettingError
        For an unknown kind, a name that cannot be, a folder that is not there,
        and one that is: nothing is overwritten.
    OSError
        If the disk refuses; then nothing is left behind.
    """
    if kind not in KINDS:
        raise SettingError(f"unknown kind of plugin {kind!r}; known: {', '.join(KINDS)}")
    names = plugin_names(name)
    parent = Path(directory)
    if not parent.is_dir():
        raise SettingError(f"there is no folder {str(parent)!r} to write the plugin into; make it")
    folder = parent / names.distribution
    if os.path.lexists(folder):
        raise SettingError(f"{str(folder)!r} exists already; choose another name or folder")
    files = contents(names, kind)
    _write(folder, files)
    return NewPlugin(folder, names, tuple(files))


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make the folder beside its place and move it there as the last step."""
    draft = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        for name, content in files.items():
            place = draft / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        # Nothing is overwritten by this either: it fails on a file, and on a
        # folder that holds anything and came into being meanwhile.
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
