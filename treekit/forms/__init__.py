"""Rules as documents and tables for other tools: one module for each form.

>>> written("markdown", Listing(rules, training_measures(rules)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
    """

    rules: RuleList
    measures: Measures
    language: Language = field(default_factory=language)
    title: str = ""


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
    return listing.rules.text(language=listing.language)


FORMS: dict[str, Form] = {
    "text": Form(".txt", "plain text that executes exactly", _text),
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
