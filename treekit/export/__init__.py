"""Writing a model for other languages and runtimes.

>>> treekit.export(model, "c", "out/adult.c")
[PosixPath('out/adult.c'), PosixPath('out/adult.h')]
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from treekit.contracts import Exporter
from treekit.errors import ExportError
from treekit.model.model import model_of

__all__ = ["export"]


def export(model: Any, target: str | Exporter, path: str | Path, **settings: Any) -> list[Path]:
    """Write a model for a target, all files or none.

    Parameters
    ----------
    model : Model or fitted treekit estimator
    target : str or Exporter
        Name of an installed exporter (``treekit plugins`` lists them), or one.
    path : str or Path
        The main file.  The target's ending is added where it is left out;
        missing folders are made.  A target that is a folder of files
        (``triton``) may be given that folder.
    **settings
        Of the exporter.

    Returns
    -------
    list of Path
        The files written, the main one first.

    Raises
    ------
    ExportError
        If the target cannot express the model, or the file has another target's
        ending.
    SettingError
        For an unknown exporter or setting, or a value outside its range.
    PluginError
        If a plugin's exporter fails, or returns what is no set of files.
    TypeError
        If there is no model in what is given as one.

    Notes
    -----
    Python and JavaScript read a category as `Model.predict` does: ``TRUE``, ``True`` and
    ``"true"`` are one, as are ``3``, ``3.0`` and ``"3.0"``.  So does SQL, but for numbers in
    unusual words (``3.00``, ``1e0``); SQLite has no bools, its 1 and 0 are true and false.
    C, Java, Rust, Go, ONNX and Triton take the code of a category or exactly its text, and
    DMN, PMML and rules name it by exactly its text, which is that of the training table.
    """
    from treekit.export.contents import contents_of
    from treekit.export.files import write_files
    from treekit.settings import resolve

    model = model_of(model)

    if isinstance(target, Exporter):
        exporter = target
    else:
        from treekit.export.languages import target_named

        exporter = target_named(target, settings)
    values = resolve(exporter.settings, settings, f"exporter {exporter.name!r}")
    folder, name = _place(Path(path), exporter)
    above = next((part for part in (folder, *folder.parents) if os.path.lexists(part)), None)
    if above is not None and above.is_file():
        raise ExportError(f"cannot write {str(path)!r}: {str(above)!r} is not a folder")
    return write_files(folder, contents_of(exporter, model, name, values))


def _place(path: Path, exporter: Exporter) -> tuple[Path, str]:
    """Folder and stem of the main file."""
    within = exporter.suffix.startswith("/")
    if within and path.name == exporter.suffix[1:]:
        path = path.parent
    name = path.name
    # Of ".rules.txt" the file may already have ".rules".
    parts = exporter.suffix.split(".")
    for end in range(len(parts), 1, -1):
        begun = ".".join(parts[:end])
        if name.endswith(begun) and name != begun:
            return path.parent, name.removesuffix(begun)
    if not name or any(name.lower().endswith(ending.lower()) for ending in _endings(exporter)):
        raise ExportError(
            f"{str(path)!r} cannot be the folder of a model for the target {exporter.name!r}: "
            "give it a name, and no file's"
            if within
            else f"{str(path)!r} cannot be a file of the target {exporter.name!r}: "
            f"its name must end in {exporter.suffix!r}"
        )
    return path.parent, name


def _endings(exporter: Exporter) -> set[str]:
    """Of the main files of all exporters: a file called so is taken for what it is not."""
    from treekit import registry

    installed = (part.record for part in registry.components("exporter"))
    return {exporter.suffix} | {other.suffix for other in installed if isinstance(other, Exporter)}
