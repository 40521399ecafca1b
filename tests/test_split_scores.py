"""What each column is worth at a node: the figures of textbooks, and of the trees themselves."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

import treekit
from treekit import CriterionFunctions
from treekit.errors import SettingError
from treekit.model.tree import Split
from treekit.training.split_scores import SplitScores

MELONS = Path(__file__).resolve().parents[1] / "examples" / "tables" / "watermelon"


def melons(table: str, criterion: str = "entropy", **settings) -> SplitScores:
    """Every column of a watermelon table, nominal ones branching at every level."""
    settings = {"ignore": ["id"], "nominal_splits": "multiway"} | settings
    return treekit.split_scores(MELONS / table, "good", criterion=criterion, **settings)


def rounded(scores: SplitScores, digits: int = 3) -> dict[str, float]:
    return {name: round(own.gain, digits) for name, own in scores.items()}


# ---------------------------------------------------------------- Zhou 2016, chapter 4


def test_gains_of_table_4_1():
    # Pages 76 and 77; color is printed as 0.109, from rounded parts.
    scores = melons("watermelon_2.0_en.csv")
    assert round(scores.impurity, 3) == 0.998
    assert rounded(scores) == {
        "color": 0.108,
        "root": 0.143,
        "sound": 0.141,
        "texture": 0.381,
        "navel": 0.289,
        "touch": 0.006,
    }
    assert scores.ranked()[0].column == "texture"
    assert scores["texture"].branches == (("blurry",), ("clear",), ("slightly_blurry",))
    assert scores["texture"].weights == (3, 9, 5)
    assert scores["texture"].values == ((3, 0), (2, 7), (4, 1))


def test_gains_of_the_clear_melons():
    # Page 77: root, navel and touch tie at 0.458.
    with (MELONS / "watermelon_2.0_en.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["texture"] == "clear"]
    table = {name: [row[name] for row in rows] for name in rows[0] if name not in ("id", "texture")}
    scores = treekit.split_scores(table, "good", criterion="entropy", nominal_splits="multiway")
    assert rounded(scores) == {
        "color": 0.043,
        "root": 0.458,
        "sound": 0.331,
        "navel": 0.458,
        "touch": 0.458,
    }


@pytest.mark.parametrize(
    ("column", "own"),
    # Page 78: the entropy of the split itself.
    [("touch", 0.874), ("color", 1.580), ("id", 4.087)],
)
def test_intrinsic_values_of_table_4_1(column: str, own: float):
    scores = melons("watermelon_2.0_en.csv", "gain_ratio", ignore=[], nominal=["id"])
    assert round(scores[column].gain / scores[column].score, 3) == own


def test_gini_indices_of_table_4_1():
    # Equation 4.6: what is left of the index after the split.
    scores = melons("watermelon_2.0_en.csv", "gini")
    left = {name: round(scores.impurity - own.gain, 3) for name, own in scores.items()}
    assert left == {
        "color": 0.427,
        "root": 0.422,
        "sound": 0.424,
        "texture": 0.277,
        "navel": 0.345,
        "touch": 0.494,
    }


def test_numeric_columns_of_table_4_3():
    # Page 85.
    scores = melons("watermelon_3.0_en.csv")
    assert rounded(scores)["density"] == 0.262
    assert rounded(scores)["sugar"] == 0.349
    assert scores["density"].threshold == pytest.approx(0.3815)
    assert scores["sugar"].threshold == pytest.approx(0.126)
    assert scores["texture"].threshold is None


# ---------------------------------------------------------------- and of the trees


@pytest.mark.parametrize("criterion", ["gini", "entropy", "gain_ratio"])
@pytest.mark.parametrize("splits", ["subset", "multiway"])
def test_the_best_column_is_the_one_that_a_tree_asks_first(criterion: str, splits: str):
    rng = np.random.default_rng(7)
    n = 60
    table = {
        "a": rng.normal(size=n),
        "b": rng.choice(["p", "q", "r", "s"], n),
        "c": np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 5, n)),
    }
    table["y"] = np.where(table["a"] + (table["b"] == "p") + rng.normal(size=n) > 0.5, "u", "v")
    settings = {"criterion": criterion, "nominal_splits": splits}
    scores = treekit.split_scores(table, "y", **settings)
    tree = treekit.train(table, "y", max_depth=1, **settings).trees[0]
    best = scores.ranked()[0]
    if criterion != "gain_ratio":  # which asks columns of average gain only
        assert best.column == list(scores)[tree.feature[0]]
    own = scores[list(scores)[tree.feature[0]]]
    assert own.gain == pytest.approx(tree.gain[0], rel=1e-12)
    assert own.kind == tree.kind[0]
    assert own.weights == tuple(tree.weight[1:])


def test_a_column_that_cannot_split_has_no_score_and_one_that_gains_nothing_has_zero():
    table = {"one": ["a"] * 4, "idle": ["a", "b", "a", "b"], "y": ["u", "u", "v", "v"]}
    scores = treekit.split_scores(table, "y", nominal_splits="multiway")
    assert math.isnan(scores["one"].score)
    assert (scores["one"].kind, scores["one"].weights) == (Split.LEAF, ())
    assert scores["idle"].score == pytest.approx(0.0, abs=1e-12)
    assert [score.column for score in scores.ranked()] == ["idle"]


def test_numbers_have_scores_too():
    table = {"x": [1.0, 2.0, 3.0, 4.0], "y": [0.0, 0.0, 8.0, 8.0]}
    scores = treekit.split_scores(table, "y")
    assert scores.criterion == "squared_error"
    assert scores.impurity is None
    assert scores["x"].score == pytest.approx(16.0)  # all of the variance
    assert scores["x"].values == ((0.0,), (8.0,))


@pytest.mark.matrix
def test_a_criterion_of_your_own_is_asked():
    own = treekit.Criterion(
        "share_of_first",
        "classification",
        lambda: CriterionFunctions(impurity=lambda stats: stats[0] / (stats[0] + stats[1])),
    )
    table = {"x": [1.0, 2.0, 3.0, 4.0], "y": ["u", "u", "v", "v"]}
    scores = treekit.split_scores(table, "y", criterion=own)
    assert scores.criterion == "share_of_first"
    assert scores.impurity == 0.5


def test_settings_of_size_pruning_and_forests_make_no_difference():
    table = {"x": [1.0, 2.0, 3.0, 4.0], "y": ["u", "u", "v", "v"]}
    idle = {"pruner": "reduced_error", "pruner.holdout": 0.5, "max_leaves": 1, "trees": 7}
    plain = treekit.split_scores(table, "y")
    assert treekit.split_scores(table, "y", max_depth=0, ensemble="forest", **idle) == plain
    with pytest.raises(SettingError, match="has no setting 'criteron'"):
        treekit.split_scores(table, "y", criteron="gini")


def test_weights_count_as_copies():
    table = {"x": [1.0, 2.0, 3.0], "y": ["u", "v", "v"]}
    twice = {"x": [1.0, 2.0, 2.0, 3.0], "y": ["u", "v", "v", "v"]}
    weighted = treekit.split_scores(table, "y", weights=[1, 2, 1])
    assert weighted.weight == 4
    assert weighted["x"] == treekit.split_scores(twice, "y")["x"]


def test_the_printed_table_has_a_line_for_each_column():
    text = str(melons("watermelon_3.0_en.csv")).splitlines()
    assert text[0] == "impurity 0.997503, weight 17"
    assert text[1].split() == ["column", "gain", "entropy", "split"]
    assert text[5] == "texture    0.380592    0.380592  blurry | clear | slightly_blurry"
    assert text[-1] == "sugar      0.349294    0.349294  <= 0.126"
    assert len(text) == 10


def test_hostile_names_stay_on_their_line():
    table = {"a\nb": ["x\x1b", "y", "x\x1b", "y"], "y": ["u", "v", "u", "v"]}
    text = str(treekit.split_scores(table, "y", nominal_splits="multiway"))
    assert len(text.splitlines()) == 3
    assert "\x1b" not in text
