"""HTML pages of reports, from the templates that treekit ships."""

from __future__ import annotations

from typing import Any


def render_page(folder: str, **fields: Any) -> str:
    """Return the page of a folder of templates; all texts are escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from treekit.export.literals import list_shipped_folders

    folders = [shipped / part for shipped in list_shipped_folders() for part in (folder, "page")]
    environment = Environment(
        loader=FileSystemLoader(folders, encoding="utf-8"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    return environment.get_template("page.html.jinja").render(**fields)
