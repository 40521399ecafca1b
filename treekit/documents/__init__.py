"""Export of rules as documents and tables for other tools, one module for each form.

>>> render_listing("markdown", make_listing(model))
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from treekit.errors import SettingError
from treekit.rules.language import Language, load_language
from treekit.rules.measure import Measures, training_measures
from treekit.rules.rule_list import RuleList

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = [
    "FORMS",
    "Form",
    "Listing",
    "make_listing",
    "render_listing",
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
        `treekit.verify.report.hash_model` of the model, for documents; default none.
    table_name : str
        Name of the table that the rules were measured on, for documents; default none.
    """

    rules: RuleList
    measures: Measures
    language: Language = field(default_factory=load_language)
    title: str = ""
    model: Model | None = None
    model_digest: str = ""
    table_name: str = ""


class Form(NamedTuple):
    """A way to write a listing.

    Attributes
    ----------
    suffix : str
        File suffix: ``.html``.
    summary : str
        One line for lists of the forms.
    render : callable
        Maps a listing to its text in pieces.
    """

    suffix: str
    summary: str
    render: Callable[[Listing], Iterator[str]]


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
        Language, its code or its catalogue file.
    title, model_digest : str
        See `Listing`.
    model : Model, optional
        Source of given rules, for forms that write trees (``pmml``).  Dropped where the rules do
        not represent it completely: one tree only, shortened thresholds, or labels alone.
    table_name : str
        See `Listing`; default the file name if `table` is a path.

    Raises
    ------
    DataError
        If the table lacks a column of the rules.
    SettingError
        If the language is unknown.
    """
    from treekit.rules.measure import measured
    from treekit.rules.rule_list import take_rules

    if isinstance(source, RuleList):
        rules = source
    else:
        rules, model = source.rules(), source
    measures = training_measures(rules) if table is None else measured(rules, table)
    if tree is not None:
        mine = np.flatnonzero(rules.tree == tree)
        rules, measures = take_rules(rules, mine), measures.of(mine)
    whole = tree is None and rules.rounding is None and not rules.decisions
    own = model if whole else None
    digest = model_digest if rules.rounding is None else ""  # shortened rules are not the model's
    if not table_name and isinstance(table, (str, os.PathLike)):
        table_name = Path(table).name
    return Listing(rules, measures, load_language(words), title, own, digest, table_name)


def _import_renderer(
    module: str, function: str, **options: Any
) -> Callable[[Listing], Iterator[str]]:
    """Return a function that renders with a module of this package, imported on first call."""

    def render(listing: Listing) -> Iterator[str]:
        write = getattr(import_module(f"treekit.documents.{module}"), function)
        text: Iterator[str] = write(listing, **options)
        return text

    return render


def _render_text(listing: Listing) -> Iterator[str]:
    return listing.rules.text(language=listing.language)


FORMS: dict[str, Form] = {
    "text": Form(".txt", "plain text that can be executed exactly", _render_text),
    "markdown": Form(
        ".md",
        "tables for GitHub and other readers of Markdown",
        _import_renderer("markdown", "render_markdown"),
    ),
    "html": Form(
        ".html", "a page to sort, search, print and sign", _import_renderer("html", "render_html")
    ),
    "json": Form(
        ".json", "all rules, to edit and read back", _import_renderer("json_rules", "render_json")
    ),
    "csv": Form(
        ".csv", "one line per rule, for spreadsheets", _import_renderer("dataframe", "render_csv")
    ),
    "sql": Form(".sql", "one query per rule, for SQLite", _import_renderer("sql", "render_sql")),
    "sql-duckdb": Form(
        ".sql", "the same for DuckDB", _import_renderer("sql", "render_sql", dialect="duckdb")
    ),
    "sql-postgres": Form(
        ".sql", "the same for PostgreSQL", _import_renderer("sql", "render_sql", dialect="postgres")
    ),
    "dmn": Form(
        ".dmn", "a DMN 1.3 decision table, for rule engines", _import_renderer("dmn", "render_dmn")
    ),
    "pmml": Form(
        ".pmml",
        "the trees in PMML 4.4, for model engines",
        _import_renderer("pmml", "render_pmml"),
    ),
    "pmml-rules": Form(
        ".pmml", "a PMML 4.4 rule set, for classes", _import_renderer("pmml", "render_pmml_rules")
    ),
}


def render_listing(form: str, listing: Listing) -> Iterator[str]:
    """Return the text of `listing` in a form, in pieces.

    Raises
    ------
    SettingError
        If the form is unknown, or cannot represent these rules.
    """
    if form not in FORMS:
        raise SettingError(f"unknown form {form!r}; known: {', '.join(FORMS)}")
    return FORMS[form].render(listing)
