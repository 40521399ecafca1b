"""What an exporter made of templates needs: a model as values that templates write.

The counterpart of `treekit.splitting` for exporters.  A language that treekit
does not know becomes a target by a folder of jinja2 templates and one record::

    LANGUAGE = Language(strings="bytes", floats="hex")

    @hookimpl
    def treekit_exporters():
        folder = Path(__file__).with_name("templates")
        return [template_exporter("zig", ".zig", folder, "zig/model.jinja", LANGUAGE)]

Templates decide nothing about the model: they loop over the arrays that
`template_values` describes.  They write integers and `Code`, which is text
that is source already; names of columns and labels arrive as string literals
of the language, and a text that no escaper has seen is refused.

Every tree is a plain binary one here, with tables in place of nested tests, so
that a loop of a dozen lines walks a tree of any depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from treekit.contracts import Exporter, Setting
from treekit.errors import ExportError
from treekit.export.language import Language
from treekit.export.literals import (
    Code,
    float_literal,
    hex_literal,
    identifier,
    identifiers,
    string_literal,
    string_literals,
)
from treekit.export.lower import LoweredTree, Step, lower
from treekit.export.render import render_from
from treekit.export.table import LeafTable, NodeTable, leaf_table, node_table
from treekit.export.values import ABILITIES, needs, template_values
from treekit.model.ensemble import Model

__all__ = [
    "ABILITIES",
    "Code",
    "Language",
    "LeafTable",
    "LoweredTree",
    "NodeTable",
    "Step",
    "float_literal",
    "hex_literal",
    "identifier",
    "identifiers",
    "leaf_table",
    "lower",
    "needs",
    "node_table",
    "render_from",
    "string_literal",
    "string_literals",
    "template_exporter",
    "template_values",
]


def template_exporter(
    name: str,
    suffix: str,
    folder: str | Path,
    files: str | Mapping[str, str],
    language: Language,
    *,
    abilities: Iterable[str] = (),
    settings: tuple[Setting, ...] = (),
    summary: str = "",
) -> Exporter:
    """An exporter that is a folder of templates.

    Parameters
    ----------
    name, suffix, summary
        As in `treekit.contracts.Exporter`.
    folder : path
        Holds the templates, best in a subfolder called `name`.  A user's own
        folder (``--set templates=DIR``) goes first.
    files : str or mapping
        Template of the one file, or of each file by its ending, the main one first.
    language : Language
    abilities : iterable of str
        Keys of `ABILITIES` that the templates have; a model that needs another
        is refused by name.
    settings : tuple of Setting
        More settings; templates find their values under their names.
    """
    made = {suffix: files} if isinstance(files, str) else dict(files)
    able = frozenset(abilities)
    if unknown := sorted(able - set(ABILITIES)):
        raise ValueError(f"unknown ability {unknown[0]!r}; known: {', '.join(ABILITIES)}")

    def export(model: Model, stem: str, *, templates: str = "", **given: Any) -> dict[str, bytes]:
        for ability in needs(model):
            if ability not in able:
                raise ExportError(
                    f"the target {name!r} cannot write {ABILITIES[ability]}, which this model "
                    "has; export to another target"
                )
        values = template_values(model, stem, language) | given
        folders = [templates, str(folder)] if templates else [str(folder)]
        return {
            f"{stem}{ending}": render_from(folders, file, **values) for ending, file in made.items()
        }

    own = Setting("templates", "", "a folder whose templates replace the shipped ones")
    return Exporter(name, suffix, export, (own, *settings), summary)
