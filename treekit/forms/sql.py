"""Rules as SQL: which rule answers a row, and a query for the rows of each rule."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from treekit.errors import MissingExtraError
from treekit.forms.outcomes import said
from treekit.rules.language import Language
from treekit.rules.rule_list import RuleList
from treekit.rules.wording import numerals

if TYPE_CHECKING:
    from treekit.forms import Listing

__all__ = ["comment", "sql_pieces"]

TABLE = "rows"


def sql_pieces(listing: Listing, dialect: str = "sqlite") -> Iterator[str]:
    """A query of the rules' numbers (from 1), then one query for each rule.

    Where a row may meet several rules of a tree (it divides), there is no number of the one.

    Raises
    ------
    MissingExtraError
        Without sqlglot.
    """
    try:
        import sqlglot  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("sqlglot", "sql") from error
    from treekit.forms.sql_predicates import ALIAS, DIALECTS, predicates

    rules, language = listing.rules, listing.language
    source = f'FROM "{TABLE}" AS {ALIAS}'
    title = DIALECTS[dialect].title
    yield comment(language.say("sql_head", engine=title, table=TABLE)) + "\n"
    too_many = rules.n_trees + rules.schema.n_features > DIALECTS[dialect].most_answers
    if rules.mass > 1 or too_many:
        yield comment(language.say("sql_divided" if rules.mass > 1 else "sql_trees"))
    else:
        yield from _numbered(rules, predicates(rules, dialect), source, ALIAS)
    yield "\n" + comment(language.say(f"sql_each_{rules.order}")) + "\n"
    for head, predicate in zip(_heads(rules, language), predicates(rules, dialect), strict=True):
        yield f"{head}SELECT {ALIAS}.* {source}\nWHERE {predicate};\n\n"


def _numbered(rules: RuleList, found: Iterator[str], source: str, alias: str) -> Iterator[str]:
    """For each row the number of the rule that answers it, in each tree."""
    yield f"SELECT {alias}.*"
    for tree, own in itertools.groupby(
        zip(rules.tree.tolist(), range(1, len(rules) + 1), found, strict=True), lambda rule: rule[0]
    ):
        yield ",\n  CASE\n"
        for _, number, predicate in own:
            yield f"    WHEN {predicate} THEN {number}\n"
        yield "  END AS rule" + (f"_{tree + 1}" if rules.n_trees > 1 else "")
    yield f"\n{source};\n"


def _heads(rules: RuleList, language: Language) -> Iterator[str]:
    """A comment for each rule."""
    texts = zip(said(rules, language), numerals(rules.support), strict=True)
    for number, (answer, support) in enumerate(texts, 1):
        yield comment(language.say("sql_rule", number=str(number), answer=answer, support=support))


def comment(text: str) -> str:
    """Lines of a comment: whatever could end one begins another."""
    return "".join(f"-- {line}\n" for line in text.splitlines())
