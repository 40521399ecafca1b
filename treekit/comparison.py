"""Comparison of two models: their rules, and their predictions on a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from treekit.errors import DataError
from treekit.model.model import Model, as_model, hash_model
from treekit.rules.compare import (
    Change,
    RuleComparison,
    Scores,
    check_same_targets,
    compare_predictions,
    compare_rules,
)
from treekit.rules.language import Language, load_language
from treekit.rules.measure import as_table
from treekit.training import has_training_rows


@dataclass(frozen=True)
class Comparison:
    """The differences of two models; ``str()`` returns them as text.

    Attributes
    ----------
    before, after : str
        Digests of the models, as in certificates.
    rules : RuleComparison or None
        None if the models have different numbers of trees.
    changes : tuple of Change
        The predictions for each target; empty without a table.
    trained_on : tuple of str
        Which of the models, ``before`` and ``after``, were trained on the rows of the table.
    words : Language
    """

    before: str
    after: str
    rules: RuleComparison | None
    changes: tuple[Change, ...]
    trained_on: tuple[str, ...]
    words: Language

    def lines(self, most: int | None = 100) -> Iterator[str]:
        """Generate the lines of text, with at most `most` changed rules."""
        say = self.words.say
        if self.rules is None:
            yield say("edit_other_trees")
        else:
            yield from self.rules.lines(self.words, most)
        for change in self.changes:
            yield from change.lines(self.words)
        yield from self.list_warnings()

    def list_warnings(self) -> list[str]:
        """Return a sentence for each model that was trained on the rows of the table."""
        say = self.words.say
        return [say("edit_trained", which=say(f"edit_trained_{one}")) for one in self.trained_on]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        rules = None
        if self.rules is not None:
            changes = [change._asdict() for change in self.rules.changes]
            rules = {"unchanged": self.rules.unchanged, "changes": changes}
        return {
            "before": self.before,
            "after": self.after,
            "rules": rules,
            "targets": [_list_fields(change) for change in self.changes],
            "trained_on": list(self.trained_on),
        }

    def to_json(self) -> str:
        """Return the comparison as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"

    def list_scores(self, change: Change) -> list[tuple[str, int, int, Scores | None]]:
        """Return name, rows, changed rows and scores of all rows, and of each group."""
        whole = ("all rows", change.rows, len(change.changed), change.scores)
        return [whole, *((name, *parts) for name, parts in change.groups.items())]

    def to_html(self, title: str = "") -> str:
        """Return one HTML page."""
        from treekit.documents.pages import render_page

        return render_page("comparison", title=title or "Two models compared", found=self)


def compare_models(
    before: Model,
    after: Model,
    rules: RuleComparison | None,
    table: Any,
    by: str | None,
    words: Language,
) -> Comparison:
    """Compare the predictions of two models, and add a comparison of their rules; see `compare`."""
    changes: tuple[Change, ...] = ()
    trained_on: tuple[str, ...] = ()
    if table is not None:
        rows = as_table(table, before.schema)
        changes = compare_predictions(before, after, rows, by)
        models = {"before": before, "after": after}
        trained_on = tuple(name for name, one in models.items() if has_training_rows(one, rows))
    return Comparison(hash_model(before), hash_model(after), rules, changes, trained_on, words)


def _list_fields(change: Change) -> dict[str, Any]:
    fields = asdict(change)
    fields["switches"] = [switch._asdict() for switch in change.switches]
    fields["scores"] = None if change.scores is None else change.scores._asdict()
    fields["groups"] = [
        {
            "group": group,
            "rows": rows,
            "changed": changed,
            "scores": None if scores is None else scores._asdict(),
        }
        for group, (rows, changed, scores) in change.groups.items()
    ]
    return fields


def compare(
    before: Any, after: Any, table: Any = None, *, by: str | None = None, lang: str = "en"
) -> Comparison:
    """Compare two models: their rules and, on a table, their predictions and scores.

    Parameters
    ----------
    before, after : Model or estimator
        With the same targets.
    table : table, optional
        Anything that `treekit.train` accepts; without the target, scores are left out.
    by : str, optional
        Column of the table: also compare the rows of each of its categories.
    lang : str
        Language of the text: ``en``, ``zh``.

    Returns
    -------
    Comparison

    Raises
    ------
    DataError
        If the models have different targets, or the table lacks a column.

    Examples
    --------
    >>> print(treekit.compare(old, new, "test.csv", by="region"))
    """
    one, other = as_model(before), as_model(after)
    check_same_targets(one, other)
    if by is not None and table is None:
        raise DataError(f"by={by!r} needs a table; give one")
    words = load_language(lang)
    rules = compare_rules(one.rules(), other.rules(), words)
    return compare_models(one, other, rules, table, by, words)
