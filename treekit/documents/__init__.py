"""Rules as documents and tables for other tools: one module for each form.

>>> written("markdown", listing(model))
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
from treekit.rules.language import Language, language
from treekit.rules.measure import Measures, training_measures
from treekit.rules.rule_list import RuleList

if TYPE_CHECKING:
    from treekit.model.model import Model

__all__ = [
    "FORMS",
    "Form",
    "Listing",
    "listing",
    "written",
]


@dataclass(frozen=True)
class Listing:
    """What a form writes; made by `listing`.

    Attributes
    ----------
    rules : RuleList
    measures : Measures
        Of the rules, in their order.
    language : Language
        Of the words; names and values stay as they are.
    title : str
        Heading of documents; default the target's name.
    model : Model, optional
        What the rules are of, for forms that write trees.
    model_digest : str
        `treekit.verify.report.model_sha256` of the model, for documents; default none.
    table_name : str
        Name of the table that the rules were measured on, for documents; default none.
    """

    rules: RuleList
    measures: Measures
    language: Language = field(default_factory=language)
    title: str = ""
    model: Model | None = None
    model_digest: str = ""
    table_name: str = ""


class Form(NamedTuple):
    """One way to write a listing.

    Attributes
    ----------
    suffix : str
        Of its files: ``.html``.
    summary : str
        One line for lists of the forms.
    pieces : callable
        From a listing to its text in pieces.
    """

    suffix: str
    summary: str
    pieces: Callable[[Listing], Iterator[str]]


def listing(
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
    """The rules of a model, or some rules, with what rows say of them.

    Parameters
    ----------
    source : Model or RuleList
    table : table, optional
        Rows that the rules are measured on; default those of training, as the model keeps them.
    tree : int, optional
        Only the rules of one tree, from 0.
    words : Language or str
        The language, or its code or file.
    title, model_digest : str
        See `Listing`.
    model : Model, optional
        That some rules are of, for forms that write trees (``pmml``).  It is left out where the
        rules are not all that it says: of one tree, with shortened thresholds, of labels alone.
    table_name : str
        See `Listing`; default the name of the file if `table` is the path of one.

    Raises
    ------
    DataError
        If the table lacks a column of the rules.
    SettingError
        If there is no such language.
    """
    from treekit.rules.measure import measured
    from treekit.rules.rule_list import taken

    if isinstance(source, RuleList):
        rules = source
    else:
        rules, model = source.rules(), source
    measures = training_measures(rules) if table is None else measured(rules, table)
    if tree is not None:
        mine = np.flatnonzero(rules.tree == tree)
        rules, measures = taken(rules, mine), measures.of(mine)
    whole = tree is None and rules.rounding is None and not rules.decisions
    own = model if whole else None
    digest = model_digest if rules.rounding is None else ""  # they are no longer the model's
    if not table_name and isinstance(table, (str, os.PathLike)):
        table_name = Path(table).name
    return Listing(rules, measures, language(words), title, own, digest, table_name)


def _from(
    module: str, function: str = "pieces", **options: Any
) -> Callable[[Listing], Iterator[str]]:
    """A function of a module of this room, which is imported when it is used."""

    def pieces(listing: Listing) -> Iterator[str]:
        write = getattr(import_module(f"treekit.documents.{module}"), function)
        said: Iterator[str] = write(listing, **options)
        return said

    return pieces


def _text(listing: Listing) -> Iterator[str]:
    return listing.rules.text(language=listing.language)


FORMS: dict[str, Form] = {
    "text": Form(".txt", "plain text that executes exactly", _text),
    "markdown": Form(".md", "tables for GitHub and other readers of Markdown", _from("markdown")),
    "html": Form(".html", "a page to sort, search, print and sign", _from("html")),
    "json": Form(".json", "all of the rules, to edit and read back", _from("write_json")),
    "csv": Form(".csv", "a line for each rule, for spreadsheets", _from("dataframe")),
    "sql": Form(".sql", "a query for each rule, for SQLite", _from("sql", "sql_pieces")),
    "sql-duckdb": Form(".sql", "the same for DuckDB", _from("sql", "sql_pieces", dialect="duckdb")),
    "sql-postgres": Form(
        ".sql", "the same for PostgreSQL", _from("sql", "sql_pieces", dialect="postgres")
    ),
    "dmn": Form(
        ".dmn", "a decision table of DMN 1.3, for engines of rules", _from("dmn", "dmn_pieces")
    ),
    "pmml": Form(
        ".pmml", "the trees in PMML 4.4, for engines of models", _from("pmml", "model_pieces")
    ),
    "pmml-rules": Form(
        ".pmml", "a rule set of PMML 4.4, of classes", _from("pmml", "ruleset_pieces")
    ),
}


def written(form: str, listing: Listing) -> Iterator[str]:
    """The text of `listing` in a form, in pieces.

    Raises
    ------
    SettingError
        For a form that there is not, or that cannot say these rules.
    """
    if form not in FORMS:
        raise SettingError(f"there is no form {form!r}; known: {', '.join(FORMS)}")
    return FORMS[form].pieces(listing)
