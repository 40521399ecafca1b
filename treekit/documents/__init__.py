"""Document forms of rules: pages, tables and files for other tools, one module for each form.

>>> render_listing("markdown", make_listing(model))
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treekit import registry
from treekit.contracts import Document
from treekit.hookspecs import hookimpl
from treekit.rules.language import Language, load_language
from treekit.rules.measure import Measures, training_measures
from treekit.rules.rule_list import RuleList

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = [
    "Listing",
    "make_listing",
    "render_listing",
    "treekit_documents",
]


@dataclass(frozen=True)
class Listing:
    """Rules with their measures, as input of a form; made by `make_listing`.

    Attributes
    ----------
    rules : RuleList
    measures : Measures
        Of the rules, in their order.
    language : Language
        Language of the wording; names and values are not translated.
    title : str
        Heading of documents; default the target's name.
    model : Model, optional
        Source of the rules, for forms that write trees.
    model_digest : str
        `treekit.model.model.hash_model` of the model, for documents; default none.
    table_name : str
        Name of the table that the rules were measured on, for documents; default none.
    table : table, optional
        Table that the rules were measured on, for reports.
    tree : int, optional
        Tree of the rules, from 0, if they are those of one tree; the model is complete.
    complete : RuleList, optional
        Rules of all trees; `make_listing` sets it.
    """

    rules: RuleList
    measures: Measures
    language: Language = field(default_factory=load_language)
    title: str = ""
    model: Model | None = None
    model_digest: str = ""
    table_name: str = ""
    table: Any = None
    tree: int | None = None
    complete: RuleList | None = None


def make_listing(
    source: Model | RuleList,
    *,
    table: Any = None,
    tree: int | None = None,
    words: Language | str = "en",
    title: str = "",
    model: Model | None = None,
    model_digest: str = "",
    table_name: str = "",
    measured: bool = True,
    with_rules: bool = True,
) -> Listing:
    """Make a listing of the rules of a model, or of given rules, with their measures.

    Parameters
    ----------
    source : Model or RuleList
    table : table, optional
        Rows to measure the rules on; default the training measures stored in the model.
    tree : int, optional
        Restrict to the rules of one tree, from 0.
    words : Language or str
        Language or its code.
    title, model_digest : str
        See `Listing`.
    model : Model, optional
        Model that given rules were made from, for forms that write trees (``pmml``, ``svg``).
        Ignored if the rules predict labels only.
    table_name : str
        See `Listing`; default the file name if `table` is a path.
    measured : bool
        Whether to measure the rules on `table`; False: the training measures.
    with_rules : bool
        Whether to list the model's rules; False for forms that write only its trees.

    Raises
    ------
    DataError
        If the table lacks a column of the rules.
    SettingError
        If the language is unknown.
    """
    from treekit.rules.extract import make_empty_rules
    from treekit.rules.measure import measured as measure
    from treekit.rules.rule_list import take_rules

    if isinstance(source, RuleList):
        rules = source
    else:
        rules, model = source.rules() if with_rules else make_empty_rules(source), source
    complete = rules
    live = measured and table is not None
    measures = measure(rules, table) if live else training_measures(rules)
    if tree is not None:
        mine = np.flatnonzero(rules.tree == tree)
        rules, measures = take_rules(rules, mine), measures.of(mine)
    if not table_name and isinstance(table, (str, os.PathLike)):
        table_name = Path(table).name
    return Listing(
        rules,
        measures,
        load_language(words),
        title,
        None if rules.decisions else model,
        model_digest,
        table_name,
        table,
        tree,
        complete,
    )


def render_listing(form: str | Document, listing: Listing, **settings: Any) -> Iterator[str]:
    """Return the text of `listing` in a form, in pieces.

    Parameters
    ----------
    form : str or Document
        An installed document form; ``treekit plugins`` lists them.
    listing : Listing
    **settings
        Settings of the form.

    Raises
    ------
    SettingError
        If the form is unknown or its plugin is not installed, or if it cannot represent these
        rules.
    PluginError
        If the form of a plugin fails.
    """
    document = registry.get("document", form)
    values = registry.settings_of(document, settings)
    if registry.is_foreign(document):
        return iter([registry.call(document, _join_pieces, document.render, listing, values)])
    return iter(document.render(listing, **values))


def _join_pieces(
    render: Callable[..., Iterable[str]], listing: Listing, values: dict[str, Any]
) -> str:
    return "".join(render(listing, **values))


def _import_renderer(module: str, function: str) -> Callable[..., Iterator[str]]:
    """Return a function that renders with a module of treekit, imported on first call."""

    def render(listing: Listing) -> Iterator[str]:
        write = getattr(import_module(f"treekit.documents.{module}"), function)
        text: Iterator[str] = write(listing)
        return text

    return render


def _render_text(listing: Listing) -> Iterator[str]:
    return listing.rules.text(language=listing.language)


_FORMS: tuple[tuple[str, str, str, str], ...] = (
    ("markdown", ".md", "markdown", "tables for GitHub and other readers of Markdown"),
    ("html", ".html", "html", "a page to sort, search, print and sign"),
    ("json", ".json", "json_rules", "all rules, to edit and read back"),
    ("csv", ".csv", "dataframe", "one line per rule, for spreadsheets"),
)
"""Name, suffix, module and summary of the forms of a function ``render_FORM``."""


@hookimpl
def treekit_documents() -> list[Document]:
    """Return the built-in document forms."""
    text = Document("text", ".txt", _render_text, summary="plain text that can be executed exactly")
    return [text] + [
        Document(name, suffix, _import_renderer(module, f"render_{name}"), summary=summary)
        for name, suffix, module, summary in _FORMS
    ]
