"""Template lookup and rendering; templates may write only `Code`.

Templates take no decisions: they loop over prepared values.  A plain string
in a template's output is an error, so that an unescaped name cannot
end up in generated source, not even through a user's own template.
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
    "list_shipped_folders",
    "list_template_folders",
    "list_variable_folders",
    "render_from",
    "render_template",
    "require_folder",
]

TEMPLATES_VARIABLE = "TREEKIT_TEMPLATES"
"""Environment variable that lists template folders, separated as in PATH."""

_BUFFERED_PIECES = 256  # pieces of template output encoded at a time


def list_template_folders(user: str | Path | None = None) -> list[Path]:
    """Return the template folders in order of precedence.

    The folder `user` comes first, then the existing folders of the environment variable
    ``TREEKIT_TEMPLATES`` in its order, then the shipped ones.

    Raises
    ------
    ExportError
        If the folder `user` does not exist, or the shipped ones are missing.
    """
    if user:
        require_folder(user)
    own = [Path(user)] if user else []
    # `treekit.export.languages` reports absent folders when it lists the languages.
    return (
        own
        + [folder for folder in list_variable_folders() if folder.is_dir()]
        + list_shipped_folders()
    )


def list_variable_folders() -> list[Path]:
    """Return the folders listed by the environment variable ``TREEKIT_TEMPLATES``, in order."""
    named = os.environ.get(TEMPLATES_VARIABLE, "")
    return [Path(folder) for folder in named.split(os.pathsep) if folder]


def list_shipped_folders() -> list[Path]:
    """Return the folders of treekit's own templates.

    They are inside the package in an installed wheel, and at the top of the
    checkout in an editable install.

    Raises
    ------
    ExportError
        If they are missing.
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
    """Raise `ExportError` unless `folder`, the value of `what`, is a folder."""
    if not Path(folder).is_dir():
        raise ExportError(
            f"{what}: {str(folder)!r} is not a folder; give one with subfolders c/, go/ and so on"
        )


def render_template(template: str, user_folder: str | Path | None = None, **values: Any) -> bytes:
    """Render a template (``"c/source.jinja"``) with `values` as UTF-8.

    Values are integers and `Code`, in any nesting of lists and records.
    """
    return render_from(list_template_folders(user_folder), template, **values)


def render_from(folders: Sequence[str | Path], template: str, **values: Any) -> bytes:
    """Render a template, looked up in `folders` in order; see `render_template`."""
    from jinja2 import TemplateError

    for folder in folders:
        if not Path(folder).is_dir():
            raise ExportError(f"templates: {str(folder)!r} is not a folder of templates")
    written = BytesIO()
    try:
        # Streamed: rendered at once, the text of a large model would be in memory three times.
        pieces = _make_environment(tuple(map(str, folders))).get_template(template).stream(values)
        pieces.enable_buffering(_BUFFERED_PIECES)
        for piece in pieces:
            written.write(piece.encode("utf-8"))
        return written.getvalue()
    except TemplateError as error:
        place = f"{getattr(error, 'name', None) or template}"
        raise ExportError(f"template {place}: {error}") from error


@lru_cache(maxsize=8)
def _make_environment(folders: tuple[str, ...]) -> Environment:
    from jinja2 import FileSystemLoader, StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # Templates may be untrusted: the sandbox limits them to the values passed in.
    return ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(folders, encoding="utf-8"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # Not for HTML: it makes macros return `Code`, which `_require_code` requires.
        autoescape=True,
        finalize=_require_code,
    )


def _require_code(value: Any) -> Any:
    from jinja2 import Undefined

    if isinstance(value, Markup):
        return value
    if isinstance(value, Array):
        return value.elements
    if isinstance(value, int) and not isinstance(value, bool):
        return Code(int(value))
    if isinstance(value, Undefined):
        return value  # strict: writing it raises an error that names it
    raise ExportError(
        f"a template writes {value!r}, which is unescaped text; "
        "templates may write only the values passed to them"
    )
