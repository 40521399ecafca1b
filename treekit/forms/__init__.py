"""Rules as documents and tables for other tools: one module for each form.

>>> written("markdown", Listing(rules, training_measures(rules)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from treekit.errors import SettingError
from treekit.forms.dmn import dmn_pieces
from treekit.forms.pmml import model_pieces
from treekit.forms.pmml_rules import ruleset_pieces
from treekit.forms.sql import sql_pieces
from treekit.model.ensemble import Model
from treekit.rules.language import Language, language
from treekit.rules.measure import Measures
from treekit.rules.rulelist import RuleList

__all__ = ["FORMS", "Form", "Listing", "written"]


@dataclass(frozen=True)
class Listing:
    """What a form writes.

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
    """

    rules: RuleList
    measures: Measures
    language: Language = field(default_factory=language)
    title: str = ""
    model: Model | None = None


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


def _text(listing: Listing) -> Iterator[str]:
    return listing.rules.text()


FORMS: dict[str, Form] = {
    "text": Form(".txt", "plain text that executes exactly", _text),
    "sql": Form(".sql", "a query for each rule, for SQLite", sql_pieces),
    "sql-duckdb": Form(".sql", "the same for DuckDB", partial(sql_pieces, dialect="duckdb")),
    "sql-postgres": Form(
        ".sql", "the same for PostgreSQL", partial(sql_pieces, dialect="postgres")
    ),
    "dmn": Form(".dmn", "a decision table of DMN 1.3, for engines of rules", dmn_pieces),
    "pmml": Form(".pmml", "the trees in PMML 4.4, for engines of models", model_pieces),
    "pmml-rules": Form(".pmml", "a rule set of PMML 4.4, of classes", ruleset_pieces),
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
