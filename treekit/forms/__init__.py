"""Rules as documents and tables for other tools: one module for each form.

A form is imported when it is used; `treekit.forms.read_json` reads one of them back.

>>> written("markdown", Listing(rules, training_measures(rules)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple

from treekit.errors import SettingError
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
    model_digest : str
        `treekit.verify.certificate.model_sha256` of the model, for documents; default none.
    """

    rules: RuleList
    measures: Measures
    language: Language = field(default_factory=language)
    title: str = ""
    model_digest: str = ""


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


def _from(module: str) -> Callable[[Listing], Iterator[str]]:
    """`pieces` of a module of this room, which is imported when it is used."""

    def pieces(listing: Listing) -> Iterator[str]:
        written: Iterator[str] = import_module(f"treekit.forms.{module}").pieces(listing)
        return written

    return pieces


FORMS: dict[str, Form] = {
    "text": Form(".txt", "plain text that executes exactly", _text),
    "markdown": Form(".md", "tables for GitHub and other readers of Markdown", _from("markdown")),
    "html": Form(".html", "a page to sort, search, print and sign", _from("html")),
    "json": Form(".json", "all of the rules, to edit and read back", _from("json")),
    "csv": Form(".csv", "a line for each rule, for spreadsheets", _from("csv")),
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
