"""Templates: where they are found, and the rule that only `Code` is written.

Templates decide nothing: they loop over what Python prepared.  A plain string
in a template's output is an error, so that a name that nobody escaped cannot
slip into generated source, not even through a user's own template.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from treekit.errors import ExportError
from treekit.export.literals import Array, Code

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = [
    "TEMPLATES_VARIABLE",
    "render",
    "render_from",
    "require_folder",
    "shipped_folders",
    "template_folders",
    "variable_folders",
]

TEMPLATES_VARIABLE = "TREEKIT_TEMPLATES"
"""Folders of templates, as PATH names folders of programs."""

_PIECES = 256  # of a template's output that are encoded at a time


def template_folders(user: str | Path | None = None) -> list[Path]:
    """Folders that hold templates, the user's own first.

    Then those that the environment variable ``TREEKIT_TEMPLATES`` names, in its
    order, as far as they exist, and the shipped ones.

    Raises
    ------
    ExportError
        If the folder `user` does not exist, or the shipped ones are gone.
    """
    if user:
        require_folder(user)
    own = [Path(user)] if user else []
    # Who lists the languages tells which are absent: `treekit.export.languages`.
    return own + [folder for folder in variable_folders() if folder.is_dir()] + shipped_folders()


def variable_folders() -> list[Path]:
    """Folders that the environment variable ``TREEKIT_TEMPLATES`` names, in its order."""
    named = os.environ.get(TEMPLATES_VARIABLE, "")
    return [Path(folder) for folder in named.split(os.pathsep) if folder]


def shipped_folders() -> list[Path]:
    """Folders of treekit's own templates.

    They lie inside the package in an installed wheel, and at the top of the
    checkout in an editable install.

    Raises
    ------
    ExportError
        If they are gone.
    """
    package = Path(__file__).resolve().parent.parent
    shipped = [package / "templates", package.parent / "templates"]
    found = [folder for folder in shipped if (folder / "c" / "source.jinja").is_file()]
    if not found:
        raise ExportError(
            "treekit's templates are missing from the installation: reinstall treekit"
        )
    return found


def require_folder(folder: str | Path, what: str = "templates") -> None:
    """Raise `ExportError` unless `folder`, which `what` names, is one."""
    if not Path(folder).is_dir():
        raise ExportError(f"{what}: {str(folder)!r} is not a folder, which holds c/, go/ and so on")


def render(template: str, user_folder: str | Path | None = None, **values: Any) -> bytes:
    """Fill the template (``"c/source.jinja"``) with `values`; the text in UTF-8.

    Values are integers and `Code`, in any nesting of lists and records.
    """
    return render_from(template_folders(user_folder), template, **values)


def render_from(folders: Sequence[str | Path], template: str, **values: Any) -> bytes:
    """The same with the templates of other folders, the first that has one."""
    from jinja2 import TemplateError

    for folder in folders:
        if not Path(folder).is_dir():
            raise ExportError(f"templates: {str(folder)!r} is not a folder of templates")
    written = BytesIO()
    try:
        # Bit by bit: of a large model the text as a whole would be there three times.
        pieces = _environment(tuple(map(str, folders))).get_template(template).stream(values)
        pieces.enable_buffering(_PIECES)
        for piece in pieces:
            written.write(piece.encode("utf-8"))
        return written.getvalue()
    except TemplateError as error:
        place = f"{getattr(error, 'name', None) or template}"
        raise ExportError(f"template {place}: {error}") from error


@lru_cache(maxsize=8)
def _environment(folders: tuple[str, ...]) -> Environment:
    from jinja2 import FileSystemLoader, StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # A folder of templates may come from anyone: they see what they are given, no more.
    return ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(folders, encoding="utf-8"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Not for HTML: it makes macros return `Code`, which `_only_code` asks for.
        autoescape=True,
        finalize=_only_code,
    )


def _only_code(value: Any) -> Any:
    from jinja2 import Undefined

    if isinstance(value, Markup):
        return value
    if isinstance(value, Array):
        return value.elements
    if isinstance(value, int) and not isinstance(value, bool):
        return Code(int(value))
    if isinstance(value, Undefined):
        return value  # strict: it raises an error that names it when it is written
    raise ExportError(
        f"a template writes {value!r}, which is text that no escaper has seen; "
        "templates may write only what they are given"
    )
