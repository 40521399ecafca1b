"""Pictures as documents: by suffix, by settings, in notebooks; and models that cannot be drawn."""

from __future__ import annotations

import json
import re
import runpy
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import treekit_plot
from click.testing import CliRunner
from treekit_plot import plot, plot_importances, plot_pruning_path
from treekit_plot.charts import MOST_COLUMNS

import treekit
from tests.model.test_fixed_point import boosted
from tests.reference.models import mixed_schema
from tests.rules.test_rule_models import ordered_short
from tests.snapshots.artifacts import digest_lines, stored_lines
from tests.snapshots.make_models import MODELS, model_path
from treekit import registry
from treekit.cli import main
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.schema import Column, Schema
from treekit.documents import Listing, make_listing, render_listing
from treekit.errors import DataError, ExportError, SettingError
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.testing import check_document

ROOT = Path(__file__).resolve().parents[3]
PICTURES = [document.name for document in treekit_plot.treekit_documents()]
SCHEMA = Schema(
    (Column("density"), Column("color", "nominal", ("green", "black")), Column("sugar")),
    target="good",
    classes=("no", "yes"),
)


def small() -> Model:
    inner = subset("color", ["green"], leaf([3, 0]), leaf([0, 5]))
    root = threshold("density", 0.25, threshold("sugar", 0.5, leaf([2, 1]), inner), leaf([0, 2]))
    return make_model(SCHEMA, [build_tree(root, SCHEMA), build_tree(leaf([1, 2]), SCHEMA)])


def drawn(form: str, listing: Listing, **settings) -> str:
    return "".join(render_listing(form, listing, **settings))


@pytest.fixture(scope="module")
def horses() -> Model:
    return treekit.train(demo_table(), DEMO_TARGET, pruner="cost_complexity", seed=0)


# ---------------------------------------------------------------- artifacts


@pytest.mark.parametrize("name", MODELS)
def test_pictures_have_the_stored_digests(name):
    made = digest_lines(treekit.load(model_path(name)), made_by=["treekit-plot"])
    assert made["picture"] == stored_lines()[name]["picture"]


def test_picture_of_the_readme_is_drawn_from_the_model(horses):
    # After a wanted change, copy the new one there.
    picture = re.search(r'<img src="(.*?)"', (ROOT / "README.md").read_text(encoding="utf-8"))
    assert picture is not None
    assert (ROOT / picture[1]).read_text(encoding="utf-8") == plot(horses).svg()


@pytest.mark.parametrize("form", PICTURES)
def test_documents_pass_the_contract_checks(form):
    check_document(form)


def test_pictures_have_every_phrase_in_both_languages():
    folder = Path(treekit_plot.__file__).parent / "phrases"
    texts = [(folder / f"{code}.toml").read_text(encoding="utf-8") for code in ("en", "zh")]
    english, chinese = map(tomllib.loads, texts)
    assert list(english) == list(chinese)
    for key, text in english.items():
        fields = [re.findall(r"\{(\w+)\}", one) for one in (text, chinese[key])]
        assert sorted(fields[0]) == sorted(fields[1]), key


# ---------------------------------------------------------------- settings


def test_the_suffix_selects_the_picture(tmp_path, horses):
    wanted = {
        "m.svg": plot(horses).svg(),
        "roc.svg": plot(horses).svg(),
        "M.DOT": plot(horses).dot(),
        "m.importances.svg": plot_importances(horses).svg(),
        "m.pruning-path.svg": plot_pruning_path(horses).svg(),
    }
    for name, text in wanted.items():
        path = treekit.write_rules(horses, tmp_path / name)
        assert path.read_text(encoding="utf-8") == text, name


def test_picture_settings_act_as_the_parameters_of_plot():
    model, row = small(), {"density": 0.1, "color": "black"}
    table = {"density": [0.1, 0.9], "color": ["black"] * 2, "sugar": [1.0, 0.2], "good": ["no"] * 2}
    bare, listed = make_listing(model, with_rules=False), make_listing(model, table=table)
    assert drawn("svg", bare, max_depth=1) == plot(model, max_depth=1).svg()
    assert drawn("dot", bare, max_depth="all") == plot(model, max_depth=None).dot()
    assert drawn("svg", bare, marked=" 1, 2,") == plot(model, marked=[1, 2]).svg()
    way = plot(model, marked=[3], max_depth="way").svg()
    assert drawn("svg", bare, marked="3", max_depth="way") == way
    assert drawn("svg", bare, row=json.dumps(row)) == plot(model, row=row).svg()
    assert drawn("svg", listed) == plot(model, table=table).svg()
    first = {name: cells[0] for name, cells in table.items()}
    assert drawn("svg", listed, row="0") == plot(model, row=first, table=table).svg()
    second = make_listing(model, tree=1, words="zh")
    assert drawn("svg", second) == plot(model, tree=1, language="zh").svg()
    assert drawn("svg", bare, max_boxes=7) == plot(model).svg()


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"max_depth": "deep"}, SettingError, "an integer of at least 0 or one of auto, all, way"),
        ({"max_depth": -1}, SettingError, "an integer of at least 0"),
        ({"max_depth": "way"}, SettingError, "'way' (only if nodes are marked)"),
        ({"marked": "1,x"}, SettingError, "'x' is not a node"),
        ({"marked": "-1"}, SettingError, "'-1' is not a node"),
        ({"marked": "9"}, SettingError, "there is no node 9"),
        ({"row": "density=1"}, SettingError, "neither a JSON object of cells by column nor"),
        ({"row": "[1]"}, SettingError, "neither a JSON object"),
        ({"row": "[" * 100_000}, SettingError, "neither a JSON object"),
        ({"row": "0"}, SettingError, "row 0 is the number of a row in the table; give a table"),
        ({"row": '{"size": 1}'}, DataError, "no column 'size'"),
        ({"max_boxes": 6}, ExportError, "would have 7 boxes, but the limit is 6"),
        ({"max_boxes": 0}, SettingError, "an integer of at least 1"),
    ],
)
def test_models_that_cannot_be_drawn_are_refused(settings, error, said):
    with pytest.raises(error, match=re.escape(said)):
        drawn("svg", make_listing(small(), with_rules=False), **settings)


def test_row_beyond_the_table_is_refused(horses):
    listing = make_listing(horses, table=demo_table(), measured=False)
    with pytest.raises(SettingError, match="there is no row 368; rows are numbered from 0 to 367"):
        drawn("svg", listing, row="368")


@pytest.mark.parametrize("form", PICTURES)
def test_pictures_are_refused_for_rules_without_a_model(form):
    with pytest.raises(SettingError, match="only rules are given"):
        drawn(form, make_listing(small().rules(), table=None))


@pytest.mark.parametrize(
    ("form", "options", "said"),
    [
        ("roc", {}, "needs rows with the target; give a table"),
        ("calibration", {}, "needs rows with the target; give a table"),
        ("pruning-path", {"table": demo_table()}, "--table is not used"),
        ("importances", {"tree": 0}, "is of the whole model; leave --tree out"),
    ],
)
def test_charts_without_their_required_inputs_are_refused(form, options, said, horses):
    with pytest.raises(SettingError, match=re.escape(said)):
        drawn(form, make_listing(horses, measured=False, **options))


def test_a_chart_draws_the_most_important_columns(horses):
    listing = make_listing(horses, with_rules=False)
    assert drawn("importances", listing, most=3) == plot_importances(horses, most=3).svg()
    (setting,) = registry.get("document", "importances").settings
    assert setting.default == MOST_COLUMNS


def test_rules_command_writes_pictures(tmp_path, horses):
    path = tmp_path / "m.treekit"
    boosted().save(path)

    def call(*arguments: str) -> None:
        done = CliRunner().invoke(main, ["rules", str(path), *arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output

    out = tmp_path / "tree.svg"
    call("-o", str(out), "--tree", "2", "--set", "max_depth=1", "--lang", "zh")
    wanted = plot(treekit.load(path), tree=1, max_depth=1, language="zh").svg()
    assert out.read_text(encoding="utf-8") == wanted


# ---------------------------------------------------------------- notebooks and models


def test_a_notebook_shows_the_first_tree(horses):
    assert horses._repr_html_() == plot(horses)._repr_html_()


def test_a_notebook_without_the_plugin_shows_the_text(horses, monkeypatch):
    monkeypatch.setattr(registry, "list", lambda kind: {})
    assert horses._repr_html_() is None


def test_picture_of_a_boosted_tree_states_the_added_leaf_values():
    model = boosted(("a", "b", "c"))
    picture = plot(model, tree=1).svg()
    added = np.ldexp(float(model.tree_units(1)[0, 0]), model.exponent)
    assert added != 0
    assert f"{added:.3g}"[:5] in picture


def test_a_list_is_drawn_with_its_conditions(tmp_path):
    schema = mixed_schema()
    model = make_model(schema, [build_tree(ordered_short(schema), schema)])
    plot(model, tmp_path / "list.dot")
    picture = (tmp_path / "list.dot").read_text(encoding="utf-8")
    assert "size > 1, colour is red" in picture
    assert "age is known" in picture
    assert model.missing == "direction"
    assert plot(model).notes == (), "no branch says 'or missing'"


# ---------------------------------------------------------------- examples


@pytest.mark.system
@pytest.mark.parametrize("name", ["criterion_plugin.py", "missing_values.py", "watermelon_book.py"])
def test_an_example_with_pictures_runs(name, tmp_path, monkeypatch, capfd):
    examples = ROOT / "examples"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(examples)
    monkeypatch.setattr(sys, "argv", [str(examples / name)])
    runpy.run_path(str(examples / name), run_name="__main__")
    printed = capfd.readouterr().out
    assert "bit for bit" in printed or "the page is up to date" in printed
    assert list(tmp_path.iterdir()) == []
