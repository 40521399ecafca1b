"""Writing a model for other languages and runtimes.

>>> treekit.export(model, "c", "out/adult.c")
[PosixPath('out/adult.c'), PosixPath('out/adult.h')]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from treekit.contracts import Exporter
from treekit.errors import ExportError

if TYPE_CHECKING:
    from treekit.model.ensemble import Model

__all__ = ["export"]


def export(model: Model, target: str | Exporter, path: str | Path, **settings: Any) -> list[Path]:
    """Write a model for a target, all files or none.

    Parameters
    ----------
    model : Model
    target : str or Exporter
        Name of an installed exporter (``treekit plugins`` lists them), or one.
    path : str or Path
        The main file.  A path without ending gets the target's; missing
        folders are made.
    **settings
        Of the exporter.

    Returns
    -------
    list of Path
        The files written, the main one first.

    Raises
    ------
    ExportError
        If the target cannot express the model, or the file has a wrong ending.
    SettingError
        For an unknown exporter or setting, or a value outside its range.
    """
    from treekit.export.files import write_files
    from treekit.settings import resolve

    if isinstance(target, Exporter):
        exporter = target
    else:
        from treekit import registry

        exporter = registry.exporter(target)
    values = resolve(exporter.settings, settings, f"exporter {exporter.name!r}")
    folder, name = _place(Path(path), exporter)
    return write_files(folder, exporter.export(model, name, **values), exporter)


def _place(path: Path, exporter: Exporter) -> tuple[Path, str]:
    """Folder and stem of the main file."""
    name = path.name
    if name.endswith(exporter.suffix) and name != exporter.suffix:
        return path.parent, name.removesuffix(exporter.suffix)
    if not name or path.suffix or name == exporter.suffix:
        raise ExportError(
            f"{str(path)!r} cannot be a file of the target {exporter.name!r}: "
            f"its name must end in {exporter.suffix!r}"
        )
    return path.parent, name
