"""Export of models to other languages and runtimes.

>>> treekit.export(model, "c", "out/adult.c")
[PosixPath('out/adult.c'), PosixPath('out/adult.h')]
"""

from __future__ import annotations

import contextlib
import os
import secrets
import unicodedata
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from treekit import registry
from treekit.contracts import Exporter
from treekit.errors import ExportError, PluginError, TreekitError
from treekit.model.model import Model, as_model
from treekit.registry.isolation import FOREIGN_ERRORS, call_isolated, describe_error

__all__ = ["contents_of", "export", "is_place", "write_files"]


# ---------------------------------------------------------------- export


def export(model: Any, target: str | Exporter, path: str | Path, **settings: Any) -> list[Path]:
    """Export a model to a target: all files are written, or none.

    Parameters
    ----------
    model : Model or fitted treekit estimator
    target : str or Exporter
        Name of an installed exporter (``treekit plugins`` lists them), or an `Exporter`.
    path : str or Path
        Main file.  A missing suffix is added and missing folders are created.
        For a target that writes a folder (``triton``) the path may be that folder.
    **settings
        Settings of the exporter.

    Returns
    -------
    list of Path
        Files written, the main file first.

    Raises
    ------
    ExportError
        If the target cannot express the model, or the file has the suffix of another
        format: of another target, or any other suffix of letters alone.
    SettingError
        For an unknown exporter or setting, or a value outside its range.
    PluginError
        If the exporter of a plugin fails or does not return a mapping of files.
    TypeError
        If `model` is neither a `Model` nor a fitted estimator.

    Notes
    -----
    Python and JavaScript read a category as `Model.predict` does: ``TRUE``, ``True`` and
    ``"true"`` are equal, as are ``3``, ``3.0`` and ``"3.0"``.
    C, Java, Rust, Go, ONNX and Triton take the code of a category or its exact text;
    DMN, PMML and rules use its exact text, as in the training table.
    """
    from treekit.settings import resolve

    model = as_model(model)

    if isinstance(target, Exporter):
        exporter = target
    else:
        from treekit.export.languages import find_exporter

        exporter = find_exporter(target, settings)
    values = resolve(exporter.settings, settings, f"exporter {exporter.name!r}")
    folder, name = _split_main_path(Path(path), exporter)
    above = next((part for part in (folder, *folder.parents) if os.path.lexists(part)), None)
    if above is not None and above.is_file():
        raise ExportError(f"cannot write {str(path)!r}: {str(above)!r} is not a folder")
    return write_files(folder, contents_of(exporter, model, name, values))


def _split_main_path(path: Path, exporter: Exporter) -> tuple[Path, str]:
    """Return the folder and the stem of the main file."""
    within = exporter.suffix.startswith("/")
    if within and path.name == exporter.suffix[1:]:
        path = path.parent
    name = path.name
    # The name may already end in a part of the suffix: ".rules" of ".rules.txt".
    parts = exporter.suffix.split(".")
    for end in range(len(parts), 1, -1):
        begun = ".".join(parts[:end])
        if name.endswith(begun) and name != begun:
            return path.parent, name.removesuffix(begun)
    installed = (part.record for part in registry.components("exporter"))
    suffixes = {other.suffix for other in installed if isinstance(other, Exporter)}
    # A file must not have the suffix of another format: of a target, or of letters, as ".pt";
    # ".v2" is a part of the name.
    foreign = name.lower().endswith(tuple(map(str.lower, {exporter.suffix} | suffixes)))
    if not name or foreign or (not within and path.suffix[1:].isalpha()):
        raise ExportError(
            f"{str(path)!r} cannot be a model folder of the target {exporter.name!r}: "
            "give a folder name that does not end in the file suffix of a target"
            if within
            else f"{str(path)!r} cannot be a file of the target {exporter.name!r}: "
            f"its name must end in {exporter.suffix!r}"
        )
    return path.parent, name


# ---------------------------------------------------------------- files


def write_files(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write `contents` (by file name, or path with ``/``) into `folder`: all files or none.

    All files are written under temporary names in the target folder, then renamed, so that a
    full disk leaves existing files unchanged.  The main file (the first) is renamed
    last, because it may refer to the others.  Names must be plain, see `is_place`.

    Raises
    ------
    ExportError
        If the path of a file is a folder, or writing fails.
    """
    places = [folder / name for name in contents]
    if folders := [place for place in places if place.is_dir()]:
        raise ExportError(f"cannot write {str(folders[0])!r}: it is a folder")
    token = secrets.token_hex(4)
    drafts = [place.with_name(f".treekit-{token}-{i}.tmp") for i, place in enumerate(places)]
    made: list[Path] = []
    try:
        for parent in dict.fromkeys([folder, *(place.parent for place in places)]):
            made += [part for part in (parent, *parent.parents) if not part.exists()][::-1]
            parent.mkdir(parents=True, exist_ok=True)
        for draft, content in zip(drafts, contents.values(), strict=True):
            _write_new_file(draft, content)
        for draft, place in reversed(list(zip(drafts, places, strict=True))):
            draft.replace(place)
        made.clear()
    except OSError as error:
        raise ExportError(f"cannot write {str(places[0])!r}: {error.strerror}") from error
    finally:
        for draft in drafts:
            if draft.parent.is_dir():
                draft.unlink(missing_ok=True)
        for empty in reversed(made):
            with contextlib.suppress(OSError):
                empty.rmdir()
    return places


def _write_new_file(path: Path, content: bytes) -> None:
    with path.open("xb") as stream:
        stream.write(content)
        stream.flush()
        # Without it a crash after the rename may leave an empty file under the final name.
        os.fsync(stream.fileno())


# ---------------------------------------------------------------- contents
# The files returned by an exporter are checked before any is written.

_NOTHING_WRITTEN = "; nothing was written"


def contents_of(
    exporter: Exporter, model: Model, name: str, settings: Mapping[str, Any]
) -> dict[str, bytes]:
    """Return the file names and contents that an exporter makes of a model.

    Raises
    ------
    ExportError
        If the target cannot express the model.
    PluginError
        If the exporter fails, or its result is not a mapping of files with plain names (in
        the folder `name`, if its main file is there), distinct on every file system,
        the main file first.
    """
    if not registry.is_foreign(exporter):
        return dict(exporter.export(model, name, **settings))
    who = registry.described(exporter)
    # Arrays of a model are read-only; its settings and provenance are not, so copy them.
    lent = replace(model, settings=deepcopy(model.settings), provenance=deepcopy(model.provenance))
    try:
        made = call_isolated(who, exporter.export, lent, name, **settings)
        if not isinstance(made, Mapping):
            raise TypeError(f"export returned a {type(made).__name__}, not a mapping of files")
        contents = dict(made)
    except TreekitError:
        raise
    except FOREIGN_ERRORS as error:
        raise PluginError(f"{who} failed with {describe_error(error)}{_NOTHING_WRITTEN}") from error
    problem = find_file_problem(contents, name + exporter.suffix)
    if problem:
        raise PluginError(f"{who} {problem}{_NOTHING_WRITTEN}")
    return contents


def find_file_problem(contents: Mapping[Any, Any], main: str) -> str:
    """Return what is wrong with the files of an exporter, or an empty text."""
    seen: dict[str, str] = {}
    folder = main.partition("/")[0] if "/" in main else ""
    for name, content in contents.items():
        if not isinstance(name, str) or not is_place(name, folder):
            where = f"in the folder {folder!r}" if folder else "without a folder"
            return f"returned the file name {name!r}; file names must be plain, {where}"
        if not isinstance(content, bytes):
            got = type(content).__name__
            remedy = "; encode it: text.encode()" if isinstance(content, str) else ""
            return f"returned a {got} for {name!r}, not bytes{remedy}"
        alike = unicodedata.normalize("NFC", name).casefold()
        if alike in seen:
            return f"returned {seen[alike]!r} and {name!r}, which are the same file on some systems"
        seen[alike] = name
    # A public class gives its file the name: HorseModel.java of horse_model.java.
    spelled = (name.replace("_", "").casefold() for name in (next(iter(contents), ""), main))
    if len(set(spelled)) > 1:
        return f"returned the files {list(contents)!r}; the first must be {main!r}"
    return ""


def is_place(name: str, folder: str = "") -> bool:
    """Return whether `name` is a plain file name, or a plain path that begins with `folder`."""
    parts = name.split("/")
    return (parts[0] == folder and len(parts) > 1 if folder else len(parts) == 1) and all(
        map(_is_plain, parts)
    )


def _is_plain(name: str) -> bool:
    """Return whether a name stays in its folder on every system."""
    return (
        name == Path(name).name
        and not set(name) & set('\\/:*?"<>|')
        and name.isprintable()
        and name not in ("", ".", "..")
    )
