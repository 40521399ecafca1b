"""What an edit of rules changes, row by row."""

from __future__ import annotations

import numpy as np
import pytest

from treekit.data.schema import Column, Schema
from treekit.errors import DataError
from treekit.model.builder import build_tree, leaf, threshold
from treekit.model.model import Model, make_model
from treekit.rules.language import language
from treekit.rules.revise import changed

COLUMNS = (Column("age"), Column("sugar"))
CLASSES = Schema(COLUMNS, "ripe", "classification", classes=("no", "yes"))
NUMBERS = Schema(COLUMNS, "weight", "regression")
TABLE = {
    "age": [1.0, 2.0, 3.0, 4.0],
    "sugar": [0.0, 0.0, 1.0, 1.0],
    "ripe": ["no", "yes", "yes", "yes"],
    "weight": [1.0, 1.0, 5.0, 5.0],
}


def _classes(at: float) -> Model:
    return make_model(
        CLASSES, [build_tree(threshold("age", at, leaf([1, 0]), leaf([0, 1])), CLASSES)]
    )


def _numbers(high: float) -> Model:
    return make_model(NUMBERS, [build_tree(threshold("age", 2.0, leaf(1.0), leaf(high)), NUMBERS)])


def test_rows_that_switch_are_named_and_counted() -> None:
    (change,) = changed(_classes(2.5), _classes(1.5), TABLE)
    assert change.changed.tolist() == [1]
    assert [(s.before, s.after, s.rows) for s in change.switches] == [("no", "yes", 1)]
    assert (change.before, change.after) == (0.75, 1.0)


def test_an_edit_that_changes_no_answer_says_so() -> None:
    (change,) = changed(_classes(2.5), _classes(2.25), TABLE)
    assert change.switches == ()
    assert change.before == change.after == 0.75
    assert change.lines()[0] == "ripe: 0 of 4 rows get another answer"


def test_a_table_without_the_target_still_shows_what_switches() -> None:
    (change,) = changed(_classes(3.5), _classes(1.5), {"age": [2.0, 3.0], "sugar": [None, None]})
    assert change.changed.tolist() == [0, 1]
    assert np.isnan(change.before)
    assert len(change.lines()) == 2


def test_rows_whose_target_is_missing_are_not_judged() -> None:
    (change,) = changed(_classes(2.5), _classes(1.5), {**TABLE, "ripe": [None, "yes", None, "yes"]})
    assert (change.before, change.after) == (0.5, 1.0)


def test_numbers_say_how_far_they_moved() -> None:
    (change,) = changed(_numbers(3.0), _numbers(5.0), TABLE)
    assert change.changed.tolist() == [2, 3]
    assert (change.largest, change.mean) == (2.0, 1.0)
    assert change.after == 1.0 > change.before == 1.0 - 8 / 16


def test_what_changed_is_told_in_chinese() -> None:
    (change,) = changed(_classes(2.5), _classes(1.5), TABLE)
    assert change.lines(language("zh"))[0] == "ripe：4 行中有 1 行的回答改变"


def test_models_of_other_targets_cannot_be_compared() -> None:
    with pytest.raises(DataError, match="other targets"):
        changed(_classes(1.5), _numbers(1.0), TABLE)


def test_names_and_labels_are_told_visibly() -> None:
    schema = Schema(COLUMNS, "t\x1b[2J", "classification", classes=("no\u202e", "yes\n"))
    models = [
        make_model(schema, [build_tree(threshold("age", at, leaf([1, 0]), leaf([0, 1])), schema)])
        for at in (1.5, 2.5)
    ]
    (change,) = changed(*models, {"age": [1.0, 2.0, 3.0], "sugar": [0.0] * 3})
    told = change.lines()
    assert all(line.isprintable() for line in told)
    assert told[0].startswith('"t\\u001b[2J": 1 of 3 rows')
