"""Tools for exporters made of templates: convert a model to values for the templates.

The counterpart of `treekit.splitting` for exporters.  A language that treekit
does not support becomes a target through a folder of jinja2 templates with a small
profile, ``language.toml`` (its keys: `treekit.export.languages`).  A user gives
the folder around it by ``--set templates=DIR``; a plugin is one line::

    @hookimpl
    def treekit_exporters():
        return [language_exporter(Path(__file__).with_name("templates") / "zig")]

`template_exporter` is the same with Python code in between.

Templates decide nothing about the model: they loop over the arrays that
`template_values` describes.  They write integers and `Code`, which is source
text; names of columns and labels are passed as string literals of the language,
and unescaped text is refused.

Every tree is a binary tree here.  As tables, it is evaluated by a loop of a dozen
lines, whatever its depth; as nested tests, it is split into functions that are not
too deep or too long for any compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from treekit.contracts import Exporter, Setting
from treekit.export.languages import TEMPLATES_SETTING, language_exporter, require_abilities
from treekit.export.literals import (
    Array,
    Code,
    Language,
    Limits,
    Texts,
    float_literal,
    hex_literal,
    identifier,
    identifiers,
    render_from,
    string_literal,
    string_literals,
)
from treekit.export.lowering import (
    LeafTable,
    LoweredTree,
    NodeTable,
    Step,
    leaf_table,
    lower,
    node_table,
)
from treekit.export.template_values import ABILITIES, needs, template_values
from treekit.model.model import Model

__all__ = [
    "ABILITIES",
    "Array",
    "Code",
    "Language",
    "LeafTable",
    "Limits",
    "LoweredTree",
    "NodeTable",
    "Step",
    "Texts",
    "float_literal",
    "hex_literal",
    "identifier",
    "identifiers",
    "language_exporter",
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
    """Return an exporter made of a folder of templates.

    Parameters
    ----------
    name, suffix, summary
        As in `treekit.contracts.Exporter`.
    folder : path
        The templates, preferably in a subfolder called `name`.  A user's own
        folder (``--set templates=DIR``) takes precedence.
    files : str or mapping
        Template of the single file, or of each file by its suffix, the main one first.
    language : Language
    abilities : iterable of str
        Keys of `ABILITIES` that the templates support; models that need others
        are refused with a message.
    settings : tuple of Setting
        Further settings; templates get their values under their names.
    """
    made = {suffix: files} if isinstance(files, str) else dict(files)
    able = frozenset(abilities)
    if unknown := sorted(able - set(ABILITIES)):
        raise ValueError(f"unknown ability {unknown[0]!r}; known: {', '.join(ABILITIES)}")

    def export(model: Model, stem: str, *, templates: str = "", **given: Any) -> dict[str, bytes]:
        require_abilities(model, name, able)
        values = template_values(model, stem, language) | given
        folders = [templates, str(folder)] if templates else [str(folder)]
        return {
            f"{stem}{ending}": render_from(folders, file, **values) for ending, file in made.items()
        }

    return Exporter(name, suffix, export, (TEMPLATES_SETTING, *settings), summary)
