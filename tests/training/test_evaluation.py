"""Scores of models and settings equal scikit-learn's, with baselines and intervals."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats
from sklearn import metrics
from sklearn.model_selection import StratifiedKFold

import treekit
from tests.cli.test_cli import call
from tests.reference.browser import Browser
from tests.runtimes import need
from tests.training.test_training import noisy
from treekit.cli import main
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.dataset import make_dataset
from treekit.errors import SettingError
from treekit.evaluation import cross_validate, run_folds
from treekit.evaluation.groups import score_groups
from treekit.evaluation.settings import compare_settings
from treekit.model.model import hash_model


def table(rows: int = 240, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, rows))
    kind = np.where(x + rng.normal(size=rows) / 2 > 0.8, "c", np.where(y > 0, "b", "a"))
    return {"x": x, "y": y, "job": rng.choice(["cook", "smith"], rows), "kind": kind}


def numbers(rows: int = 240, seed: int = 0) -> dict[str, Any]:
    found = table(rows, seed)
    found["price"] = 3 * found["x"] + np.random.default_rng(seed + 1).normal(size=rows)
    del found["kind"]
    return found


def write_csv(path: Path, columns: dict[str, Any]) -> Path:
    rows = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exit_code == code, result.output
    return result.output


# ---------------------------------------------------------------- a model and a table


def test_classification_scores_equal_scikit_learn() -> None:
    model = treekit.train(table(), "kind", max_depth=3)
    fresh = table(300, 5)
    found = treekit.evaluate(model, fresh)
    said, shares = model.predict(fresh), model.predict_proba(fresh)
    actual, labels = fresh["kind"], list(model.schema.classes)
    one_hot = np.array([actual == label for label in labels]).T
    value = {name: score.value for name, score in found.scores.items()}
    assert value == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(actual, said),
            "balanced_accuracy": metrics.balanced_accuracy_score(actual, said),
            "log_loss": metrics.log_loss(actual, shares),
            "brier": float(((shares - one_hot) ** 2).sum(axis=1).mean()),
            "roc_auc": metrics.roc_auc_score(actual, shares, multi_class="ovr"),
        }
    )
    np.testing.assert_array_equal(found.confusion, metrics.confusion_matrix(actual, said))
    for one, precision, recall in zip(
        found.classes,
        metrics.precision_score(actual, said, average=None, labels=labels),
        metrics.recall_score(actual, said, average=None, labels=labels),
        strict=True,
    ):
        assert one.rows == int((actual == one.label).sum())
        assert (one.precision.value, one.recall.value) == pytest.approx((precision, recall))
    assert not found.trained_on
    largest = max(map(list(actual).count, labels)) / 300
    assert found.scores["accuracy"].baseline == pytest.approx(largest)
    assert found.scores["roc_auc"].baseline == 0.5


def test_scores_of_two_classes_are_of_the_second_one() -> None:
    data = table()
    data["kind"] = np.where(data["kind"] == "c", "yes", "no")
    model = treekit.train(data, "kind", max_depth=3)
    fresh = table(300, 5)
    fresh["kind"] = np.where(fresh["kind"] == "c", "yes", "no")
    found = treekit.evaluate(model, fresh)
    share = model.predict_proba(fresh)[:, 1]
    actual = fresh["kind"] == "yes"
    assert found.scores["roc_auc"].value == pytest.approx(metrics.roc_auc_score(actual, share))
    assert found.scores["brier"].value == pytest.approx(metrics.brier_score_loss(actual, share))
    page = found.to_html()
    assert page.count("<svg") == 2
    assert 'aria-label="ROC curves of yes"' in page
    assert found.classes[1].auc == found.scores["roc_auc"].value
    assert f"yes vs. rest, AUC {found.classes[1].auc:.4f}" in page


def test_evaluation_report_lists_the_training_settings() -> None:
    data = table()
    model = treekit.train(data, "kind", max_depth=3, criterion="entropy", seed=7)
    found = treekit.evaluate(model, table(300, 5))
    digest = hash_model(model)
    assert found.trained["model_sha256"] == digest
    assert (found.trained["rows"], found.trained["trees"]) == (240, 1)
    settings = found.trained["settings"]
    assert (settings["criterion"], settings["max_depth"], settings["seed"]) == ("entropy", 3, 7)
    assert "min_gain" not in settings
    assert json.loads(found.to_json())["trained"]["settings"]["max_depth"] == 3
    page = found.to_html()
    assert f'<code title="{digest}">{digest[:12]}</code>' in page
    assert "<dt>max_depth</dt><dd>3</dd>" in page
    folds = treekit.evaluate(data, target="kind", cv=3, max_depth=2, criterion="entropy")
    assert folds.trained["settings"] == {"max_depth": 2, "criterion": "entropy", "seed": 0}


@pytest.mark.system
def test_evaluation_page_fits_narrow_and_wide_screens(tmp_path: Path) -> None:
    need("chromium")
    model = treekit.train(table(), "kind", max_depth=3)
    page = tmp_path / "page.html"
    fresh = table(300, 5)
    page.write_text(treekit.evaluate(model, fresh, by="kind").to_html(), encoding="utf-8")
    browser = Browser(tmp_path / "browser")
    try:
        for width in (390, 1400):
            browser.show(width)
            browser.open(page)
            assert browser.ask("document.documentElement.scrollWidth") == width
            cells = "[...document.querySelectorAll('table.scores td')]"
            assert browser.ask(
                f"{cells}.every((c) => getComputedStyle(c).display === 'table-cell')"
            )
            # A row of a table, its name first, is one line of cells.
            top = "(c) => c.parentElement.cells[0].getBoundingClientRect().top"
            assert browser.ask(
                f"{cells}.every((c) => c.getBoundingClientRect().top === ({top})(c))"
            )
            wide = browser.ask("document.querySelector('svg').getBoundingClientRect().width")
            assert 300 < wide <= width
        assert wide > 400
        tops = "[...document.querySelectorAll('h2')].map((h) => h.getBoundingClientRect().top)"
        assert len(set(browser.ask(tops))) < len(browser.ask(tops))  # parts stand side by side
        assert browser.complaints == []
    finally:
        browser.close()


def test_regression_scores_equal_scikit_learn() -> None:
    model = treekit.train(numbers(), "price", max_depth=4)
    fresh = numbers(300, 5)
    found = treekit.evaluate(model, fresh).scores
    said = model.predict(fresh)
    assert found["r2"].value == pytest.approx(metrics.r2_score(fresh["price"], said))
    assert found["rmse"].value == pytest.approx(
        metrics.root_mean_squared_error(fresh["price"], said)
    )
    assert found["mae"].value == pytest.approx(metrics.mean_absolute_error(fresh["price"], said))
    assert found["r2"].baseline == pytest.approx(0.0, abs=1e-12)
    assert found["rmse"].baseline == pytest.approx(fresh["price"].std())
    for score in found.values():
        assert score.low < score.value < score.high  # type: ignore[operator]


def test_integer_weights_equal_repeated_rows_and_weight_0_is_ignored() -> None:
    model = treekit.train(table(), "kind", max_depth=3)
    fresh = table(200, 5)
    copies = np.arange(200) % 4
    copies[fresh["kind"] == "c"] = 0
    weighted = treekit.evaluate(model, fresh | {"w": copies}, weights="w")
    copied = treekit.evaluate(
        model, {name: np.repeat(column, copies) for name, column in fresh.items()}
    )
    for name, score in copied.scores.items():
        assert weighted.scores[name].value == pytest.approx(score.value)
    np.testing.assert_array_equal(weighted.confusion, copied.confusion)
    for one, same in zip(weighted.classes, copied.classes, strict=True):
        assert one.rows == same.rows
        assert one.recall.value == same.recall.value
    assert weighted.scores["accuracy"].low != copied.scores["accuracy"].low
    json.loads(weighted.to_json())


def test_interval_of_an_accuracy_is_the_wilson_interval() -> None:
    model = treekit.train(table(), "kind", max_depth=1)
    found = treekit.evaluate(model, table(150, 7)).scores["accuracy"]
    n, p, z = 150, found.value, 1.959963984540054
    assert p is not None
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half))


def test_the_training_table_is_recognised_in_any_form(tmp_path: Path) -> None:
    data = table()
    path = write_csv(tmp_path / "t.csv", data)
    model = treekit.train(path, "kind")
    for same in (data, path, {name: list(column) for name, column in data.items()}):
        found = treekit.evaluate(model, same)
        assert found.trained_on
        assert "These are training scores" in str(found)
        assert "training accuracy" in str(found)
        assert "\naccuracy" not in str(found)
        assert "scores" not in found.to_dict()
    loaded = treekit.load(model.save(tmp_path / "m.treekit") or tmp_path / "m.treekit")
    assert treekit.evaluate(loaded, data).trained_on
    assert treekit.evaluate(model, {name: column[::-1] for name, column in data.items()}).trained_on
    data["x"] = data["x"] + 1.0
    assert not treekit.evaluate(model, data).trained_on


def test_one_class_and_few_rows_have_scores_without_intervals() -> None:
    data = {"x": [1.0, 2.0, 3.0], "y": ["a", "a", "a"]}
    found = treekit.evaluate(treekit.train(data, "y"), {"x": [4.0], "y": ["a"]})
    assert found.scores["accuracy"].value == 1.0
    assert found.scores["log_loss"].low is None
    assert found.scores["roc_auc"].value is None
    json.loads(found.to_json())
    assert "<svg" in found.to_html()


def test_several_targets_are_refused() -> None:
    data = table() | {"z": table()["x"] > 0}
    model = treekit.train(data, ["kind", "z"])
    with pytest.raises(treekit.SettingError, match=r"2 targets.*sklearn\.metrics"):
        treekit.evaluate(model, data)


# ---------------------------------------------------------------- cross-validation


def test_cross_validation_scores_equal_scikit_learn_folds() -> None:
    data = table()
    found = treekit.evaluate(data, target="kind", cv=5, seed=3, max_depth=3)
    right = []
    folds = StratifiedKFold(5, shuffle=True, random_state=3)
    levels = {"job": ["cook", "smith"]}
    for grown, held in folds.split(data["x"], data["kind"]):
        part = {name: column[grown] for name, column in data.items()}
        rest = {name: column[held] for name, column in data.items()}
        model = treekit.train(part, "kind", seed=3, max_depth=3, levels=levels)
        right.append(np.mean(model.predict(rest) == rest["kind"]))
    accuracy = found.scores["accuracy"]
    assert accuracy.value == pytest.approx(np.mean(right))
    half = 2.7764451051977987 * math.sqrt(np.var(right, ddof=1) * (1 / 5 + 1 / 4))
    assert accuracy.high == pytest.approx(np.mean(right) + half)
    assert np.sum(found.confusion) == found.rows == 240
    assert (found.method, found.folds, found.repeats) == ("cross-validation", 5, 1)
    assert not found.trained_on


def test_repeats_draw_different_folds_and_score_every_row() -> None:
    steps: list[tuple[int, int]] = []
    found = treekit.evaluate(
        table(), target="kind", cv=3, repeats=2, max_depth=2,
        progress=lambda done, total: steps.append((done, total)),
    )  # fmt: skip
    assert steps == [(done, 6) for done in range(1, 7)]
    assert found.rows == 240
    assert np.sum(found.confusion) == 240
    assert "3-fold cross-validation on 240 rows, 2 times" in str(found)
    # The second repeat has the folds of the next seed.
    single = [
        treekit.evaluate(table(), target="kind", cv=3, seed=seed, max_depth=2).scores["accuracy"]
        for seed in (4, 5)
    ]
    both = treekit.evaluate(table(), target="kind", cv=3, repeats=2, seed=4, max_depth=2)
    assert single[0].value != single[1].value
    assert both.scores["accuracy"].value == pytest.approx(np.mean([one.value for one in single]))


def test_intervals_stay_within_the_range_of_their_score() -> None:
    data = table(40)
    data["kind"] = np.where(data["x"] > 0, "up", "down")
    data["kind"][:2] = data["kind"][1::-1]
    found = treekit.evaluate(data, target="kind", cv=4, seed=0, max_depth=3)
    for name in ("accuracy", "balanced_accuracy", "roc_auc"):
        assert found.scores[name].high == 1.0, name
    for name in ("log_loss", "brier"):
        assert found.scores[name].low == 0.0, name
    price = {"x": np.arange(40.0), "price": np.repeat([0.0, 5.0], 20)}
    price["price"][3] = 1.0
    assert treekit.evaluate(price, target="price", cv=4, seed=0).scores["mae"].low == 0.0


@pytest.mark.parametrize("target", ["kind", "price"])
def test_a_group_stays_in_one_fold_and_is_not_an_input(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treekit import evaluation

    data: dict[str, Any] = table() if target == "kind" else numbers()
    data["patient"] = [f"p{row // 6}" for row in range(240)]
    inputs: list[tuple[str, ...]] = []
    folds: list[tuple[Any, Any]] = []
    split, fit = evaluation._make_folds, evaluation.fit
    monkeypatch.setattr(evaluation, "_make_folds", lambda *a: folds.extend(split(*a)) or split(*a))
    monkeypatch.setattr(
        evaluation, "fit", lambda d, s: inputs.append(tuple(d.schema.names)) or fit(d, s)
    )
    treekit.evaluate(data, target=target, cv=4, groups="patient", max_depth=2)
    assert set(inputs) == {("x", "y", "job")}
    assert len(folds) == 4
    for grown, held in folds:
        assert not set(grown // 6) & set(held // 6)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"cv": 1}, treekit.SettingError, "cv is 1"),
        ({"repeats": 0}, treekit.SettingError, "repeats is 0"),
        ({"cv": 241}, treekit.DataError, "240 rows cannot make 241 folds"),
        ({"groups": "job"}, treekit.DataError, "2 groups cannot make 10 folds"),
        ({"groups": "nobody"}, treekit.DataError, "nobody"),
        ({"groups": "kind"}, treekit.SettingError, "is the target"),
        ({"max_depht": 3}, treekit.SettingError, "max_depht"),
    ],
)
def test_settings_that_cannot_be_evaluated_are_refused(
    change: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        treekit.evaluate(table(), target="kind", **change)


def test_rare_classes_zero_weights_and_large_seeds_are_accepted() -> None:
    data = table(40)
    data["kind"] = [f"k{row // 2}" for row in range(40)]
    data["group"] = [f"g{row}" for row in range(40)]
    assert treekit.evaluate(data, target="kind", cv=20, groups="group").rows == 40
    few = numbers(40) | {"w": np.where(np.arange(40) < 9, 1.0, 0.0)}
    found = treekit.evaluate(few, target="price", cv=20, weights="w", seed=2**32 - 1, repeats=2)
    assert found.rows == 9
    assert found.scores["rmse"].value is not None


def test_settings_of_a_cross_validation_are_refused_with_a_model() -> None:
    model = treekit.train(table(), "kind", max_depth=1)
    for name, value in {"cv": 3, "repeats": 2, "groups": "job", "max_depth": 2}.items():
        with pytest.raises(treekit.SettingError, match=name):
            treekit.evaluate(model, table(), **{name: value})


def test_training_digest_depends_on_inputs_and_target() -> None:
    data = table()
    first = make_dataset(data, "kind").compute_digest()
    assert (
        first == make_dataset(data | {"x": data["x"].astype(np.float32)}, "kind").compute_digest()
    )
    assert first != make_dataset(data | {"kind": data["kind"][::-1]}, "kind").compute_digest()
    assert first != make_dataset(data | {"x": data["y"]}, "kind").compute_digest()


# ---------------------------------------------------------------- the command line


def test_the_command_scores_a_model_and_writes_a_page(tmp_path: Path) -> None:
    data = table()
    data["kind"] = np.where(data["kind"] == "a", "<script>a", data["kind"])
    train, test = write_csv(tmp_path / "t.csv", data), write_csv(tmp_path / "v.csv", {
        name: column[::-1] for name, column in data.items()
    })  # fmt: skip
    model = tmp_path / "m.treekit"
    run("train", train, "--target", "kind", "-o", model, "--set", "max_depth=3")
    page = tmp_path / "page.html"
    told = run("evaluate", model, test, "--html", page)
    assert "balanced accuracy" in told
    assert "95% interval" in told
    html = page.read_text()
    assert "<script" not in html
    assert "&lt;script&gt;a" in html
    assert html.count("<svg") == 6
    found = json.loads(run("evaluate", model, test, "--json"))
    assert found["rows"] == 240
    assert "These are training scores" in run("evaluate", model, train)
    assert json.loads(run("evaluate", model, train, "--json"))["training_scores"]


def test_the_command_cross_validates_settings(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", numbers())
    words = ("--target", "price", "--cv", 3, "--seed", 1, "--set", "max_depth=2", "--json")
    found = json.loads(run("evaluate", path, *words))
    same = treekit.evaluate(path, target="price", cv=3, seed=1, max_depth=2)
    assert found == json.loads(same.to_json())


def test_evaluate_refuses_mixed_options_of_scoring_and_cross_validation(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", table())
    for words in ((), (path, "--target", "kind"), ("--target", "kind", "--target", "x")):
        told = run("evaluate", path, *words, code=2)
        assert "one table and one --target" in told
    assert "one table and one --target" in run("evaluate", path, path, code=2)
    assert "--cv is for cross-validation" in run("evaluate", path, path, "--cv", 3, code=2)
    assert "--groups 'kind' is the target" in run(
        "evaluate", path, "--target", "kind", "--groups", "kind", code=2
    )


def test_like_takes_the_settings_of_another_model(tmp_path: Path) -> None:
    path, model = write_csv(tmp_path / "t.csv", table()), tmp_path / "m.treekit"
    words = ("--target", "kind", "--seed", 1)
    run("train", path, *words, "-o", model, "--set", "max_depth=2")
    like = run("evaluate", path, *words, "--like", model)
    assert like == run("evaluate", path, *words, "--set", "max_depth=2")


def test_scoring_on_the_training_table_is_reported_as_such(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", table())
    words = ("train", path, "--target", "kind", "-o", tmp_path / "m.treekit", "--test")
    told = run(*words, path)
    warning = "the training rows: the score on new rows will be lower"
    assert told.startswith(f"score on 240 rows of {str(path)!r}\n  accuracy 1.0000\n  {warning}")
    other = run(*words, write_csv(tmp_path / "v.csv", table(240, 4)))
    assert other.startswith("score on 240 rows of")
    assert warning not in other


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "not estimated; run: treekit evaluate TABLE --target 'kind' --like MODEL"),
        (("--ensemble", "forest", "--trees", 9), "most frequent class: 0."),
        (
            ("--pruner", "cost_complexity"),
            "cross-validated (optimistic: it selected",
        ),
        (("--pruner", "reduced_error"), ", validated on 60 rows, grown on 180"),
    ],
)
def test_train_ends_with_a_score_on_unseen_rows_or_how_to_get_one(
    tmp_path: Path, words: tuple[Any, ...], told: str
) -> None:
    path = write_csv(tmp_path / "t.csv", table())
    said = run("train", path, "--target", "kind", "-o", tmp_path / "m", "--seed", 0, *words)
    assert told in said


def test_out_of_bag_score_is_shown_with_the_most_frequent_class_share() -> None:
    data = table()
    model = treekit.train(data, "kind", ensemble="forest", trees=40, seed=0)
    counts = [int((data["kind"] == label).sum()) for label in model.schema.classes]
    assert len(set(counts)) == 3
    assert model.provenance["oob"]["majority"] == max(counts) / 240


# ---------------------------------------------------------------- groups


def test_interval_of_a_difference_of_proportions_is_newcombe() -> None:
    # Newcombe 1998, table II (a): 56 of 70 and 48 of 80, method 10: 0.0524 to 0.3339.
    codes = np.repeat([0, 1], [70, 80])
    y = np.ones(150, int)
    predicted = np.concatenate([np.repeat([1, 0], [56, 14]), np.repeat([1, 0], [48, 32])])
    first, second = score_groups(codes, ["a", "b"], y, predicted, None, 2)
    assert first.score.value == first.rate.value == 0.8
    assert np.round(first.score_difference, 4).tolist() == [0.2, 0.0524, 0.3339]
    assert np.round(second.rate_difference, 4).tolist() == [-0.2, -0.3339, -0.0524]
    assert first.observed == second.observed == 1.0


def test_groups_are_scored_as_separate_tables() -> None:
    rows = noisy(200)
    model = treekit.train(rows, "y", max_depth=2, seed=0)
    found = treekit.evaluate(model, rows, by="town")
    assert found.by == "town"
    assert sum(one.rows for one in found.groups) == 200
    town, said = np.array(rows["town"]), model.predict(rows)
    for one in found.groups:
        mine = town == one.group
        part = {name: list(np.array(cells, object)[mine]) for name, cells in rows.items()}
        alone = treekit.evaluate(model, part).scores["accuracy"]
        assert (one.rows, one.score) == (mine.sum(), (alone.value, alone.low, alone.high))
        rest = float(np.mean(said[~mine] == np.array(rows["y"])[~mine]))
        assert one.score_difference.value == pytest.approx(one.score.value - rest)
        assert one.rate.value == pytest.approx(np.mean(said[mine] == "yes"))
        assert one.observed == pytest.approx(np.mean(np.array(rows["y"])[mine] == "yes"))
    assert found.to_dict()["groups"][0]["score"].keys() == {"value", "low", "high"}
    assert "Each difference is from all other rows" in str(found)
    assert "Groups by town" in found.to_html()
    assert treekit.evaluate(model, rows).groups == []


def test_groups_of_a_cross_validation_have_the_rows_of_the_table() -> None:
    rows = noisy(150, task="regression")
    # A column that is no input, whose groups differ in the target alone.
    rows["half"] = ["low" if value < 0.3 else "high" for value in rows["y"]]
    found = treekit.evaluate(
        rows, target="y", cv=3, seed=0, max_depth=3, ignore=["half"], by="half"
    )
    y = np.array(rows["y"])
    for one in found.groups:
        mine = np.array(rows["half"]) == one.group
        assert one.rows == mine.sum()
        assert one.observed == pytest.approx(y[mine].mean())
    low, high = sorted(found.groups, key=lambda one: one.observed)
    assert low.rate.value < high.rate.value
    assert low.rate_difference.high < 0.0


def test_weighted_and_single_groups_have_no_intervals() -> None:
    rows = noisy(120) | {"w": [1.0, 2.0] * 60, "one": ["same"] * 120}
    model = treekit.train(rows, "y", weights="w", ignore=["one"], max_depth=2, seed=0)
    heavy, light = treekit.evaluate(model, rows, weights="w", by="w").groups
    assert (heavy.group, heavy.rows, light.rows) in (("1", 60.0, 120.0), ("2", 120.0, 60.0))
    assert heavy.score.low is heavy.score_difference.low is None
    rows["w"] = [0.0, 2.0] * 60  # rows of weight 0 do not count
    options = {"weights": "w", "ignore": ["one"], "cv": 2, "max_depth": 2}
    (counted,) = treekit.evaluate(rows, target="y", by="w", **options).groups
    assert (counted.group, counted.rows) == ("2", 120.0)
    (whole,) = treekit.evaluate(model, rows, by="one").groups
    assert whole.score_difference is None
    assert whole.score.value == treekit.evaluate(model, rows).scores["accuracy"].value


def test_groups_of_more_than_two_classes_have_no_positive_rate() -> None:
    rows = {"x": list(range(60)), "g": ["a", "b"] * 30, "y": ["u", "v", "w"] * 20}
    found = treekit.evaluate(rows, target="y", cv=2, by="g")
    assert [one.rate for one in found.groups] == [None, None]
    assert found.list_group_rows()[0] == ["g", "rows", "accuracy", "difference", "95% interval"]


def test_evaluate_by_column_reports_scores_of_each_group(tmp_path: Path) -> None:
    words = ["evaluate", demo_table(), "--target", DEMO_TARGET, "--cv", 3, "--max-depth", 2]
    printed = json.loads(call(*words, "--by", "age", "--json").stdout)
    assert {one["group"] for one in printed["groups"]} == {"adult", "young"}
    said = call(*words, "--by", "hoof", code=2).stderr
    assert "the table has no column of groups 'hoof'" in said


# ---------------------------------------------------------------- values of a setting


def test_values_of_a_setting_are_compared_by_the_same_folds() -> None:
    data = table(150)
    dataset = make_dataset(data, "kind")
    choices = {str(depth): {"max_depth": depth, "seed": 3} for depth in (1, 2, 4)}
    found = compare_settings(dataset, "max_depth", choices, cv=5, repeats=2)
    alone = [cross_validate(dataset, own, cv=5, repeats=2) for own in choices.values()]
    assert [one.scores for one in found.values] == [one.scores for one in alone]
    assert found.values[0].differences == {}
    # Nadeau and Bengio 2003: the variance over J = 10 folds of n2 / n1 = 1 / 4 counts 1/J + n2/n1.
    folds = [
        [part.compute_scores()["accuracy"] for part in run_folds(dataset, own, 5, 2, None, None)[0]]
        for own in choices.values()
    ]
    for one, scores in zip(found.values[1:], folds[1:], strict=True):
        each = np.subtract(scores, folds[0])
        half = stats.t.ppf(0.975, 9) * math.sqrt(each.var(ddof=1) * (1 / 10 + 1 / 4))
        expected = (each.mean(), each.mean() - half, each.mean() + half)
        assert one.differences["accuracy"] == pytest.approx(expected)
    page = found.to_html()
    assert page.count("<circle") == 2
    for value, middle, low, high in found.list_bars("accuracy"):
        assert f">{value}</text>" in page
        assert -1.0 <= low <= middle <= high <= 1.0
    assert json.loads(found.to_json())["values"][0]["value"] == "1"
    with pytest.raises(SettingError, match="give two or more"):
        compare_settings(dataset, "max_depth", {"1": {"max_depth": 1}})


def test_equal_scores_have_no_interval() -> None:
    dataset = make_dataset(numbers(60), "price")
    choices = {name: {"max_depth": 2} for name in ("a", "b")}
    found = compare_settings(dataset, "x", choices, cv=3)
    assert found.values[1].differences["r2"] == (0.0, None, None)
    assert "+0.0000" in str(found)


def test_the_command_compares_values(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", table())
    words = ("evaluate", path, "--target", "kind", "--cv", 3)
    told = run(*words, "--compare", "criterion=gini,entropy", "--html", tmp_path / "s.html")
    assert told.startswith("'kind' by 3-fold cross-validation on 240 rows, by criterion\n")
    assert (tmp_path / "s.html").exists()
    printed = json.loads(run(*words, "--compare", "min-gain=0,0.1", "--json"))
    assert [one["value"] for one in printed["values"]] == ["0", "0.1"]
    alone = json.loads(run(*words, "--set", "min_gain=0.1", "--json"))
    assert printed["values"][1]["scores"] == alone["scores"]
    for wrong, said in (
        (("--compare", "criterion=gini"), "is not KEY=A,B,..."),
        (("--compare", "criterion=gini,hue"), "unknown criterion 'hue'"),
        (("--compare", "criterion=gini,entropy", "--by", "job"), "exclude each other"),
    ):
        assert said in run(*words, *wrong, code=2)
    model = tmp_path / "m.treekit"
    run("train", path, "--target", "kind", "-o", model)
    assert "--compare is for cross-validation" in run(
        "evaluate", model, path, "--compare", "criterion=gini,entropy", code=2
    )
