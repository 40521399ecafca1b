"""A folder of templates and one record make a target, from public names alone."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import treekit
from treekit import Setting
from treekit.errors import ExportError, SettingError
from treekit.exporting import (
    ABILITIES,
    Language,
    hex_literal,
    needs,
    string_literal,
    template_exporter,
)

JSON = Language(strings="json")

TREES = """\
{"names": [{% for c in columns %}{{ c.name }}{% if not loop.last %}, {% endif %}{% endfor %}],
 "labels": [{% for label in labels[0] %}{{ label }}{% if not loop.last %}, {% endif %}{% endfor %}],
 "value": [{{ nodes.value }}], "question": [{{ nodes.question }}],
 "yes": [{{ nodes.yes }}], "no": [{{ nodes.no }}], "root": [{{ root }}], "sets": [{{ sets }}],
 "levels": [{{ level_counts }}], "start": [{{ leaves.start }}], "column": [{{ leaves.column }}],
 "units": [{{ leaves.units }}], "outputs": {{ outputs }}, "total": {{ unit_total }}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "templates"
    place.mkdir()
    (place / "model.jinja").write_text(TREES, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x, c = rng.normal(size=200), np.array(["a", "b", 'q"\\\n</script>'], object)
    c = c[rng.integers(0, 3, 200)]
    y = np.where(x + (c == "a") > 0, "yes\u2028", "no")
    x[::9] = np.nan
    return {'x"\N{GRINNING FACE}': x, "c": c, "y": y}


def walked(told, row):
    """Votes of a row, by the tables alone: what a template's own loop would do."""
    votes = [0] * told["outputs"]
    for start in told["root"]:
        node = start
        while node >= 0:
            feature, kind = divmod(told["question"][node], 4)
            x, value = row[feature], told["value"][node]
            if kind == 2:
                first, count, *words = told["sets"][int(value) :]
                word = -1 if x != x else int(x) // 32 - first
                yes = 0 <= word < count and words[word] >> int(x) % 32 & 1 == 1
            else:
                yes = (x <= value, not x > value, None, x != x)[kind]
            node = told["yes" if yes else "no"][node]
        for at in range(told["start"][-1 - node], told["start"][-node]):
            votes[told["column"][at]] += told["units"][at]
    return votes


def test_the_values_of_a_template_answer_as_the_model_does(folder, table, tmp_path):
    exporter = template_exporter("json", ".json", folder, "model.jinja", JSON)
    model = treekit.train(table, "y", ensemble="forest", trees=5, seed=0)
    (path,) = treekit.export(model, exporter, tmp_path / "out")
    told = json.loads(path.read_text(encoding="ascii"))
    assert told["names"] == list(model.schema.names)
    assert told["labels"] == ["no", "yes\u2028"]
    levels = model.schema.columns[1].levels
    rows = [[x, levels.index(c)] for x, c in zip(*list(table.values())[:2], strict=True)]
    shares = np.array([walked(told, row) for row in rows]) / told["total"]
    assert np.array_equal(shares, model.predict_proba(table))


def test_a_model_that_templates_have_no_words_for_is_refused_by_name(folder, table):
    exporter = template_exporter("json", ".json", folder, "model.jinja", JSON)
    able = template_exporter(
        "json", ".json", folder, "model.jinja", JSON, abilities=("costs", "parts")
    )
    model = treekit.train(table, "y", max_depth=2, costs={("no", "yes\u2028"): 3.0})
    assert needs(model) == ["costs"]
    with pytest.raises(ExportError, match="'json' cannot write costs of mistakes"):
        exporter.export(model, "m")
    assert able.export(model, "m")
    with pytest.raises(ValueError, match="unknown ability 'speed'; known: sums"):
        template_exporter("json", ".json", folder, "model.jinja", JSON, abilities=("speed",))
    assert set(ABILITIES) == {"sums", "parts", "costs", "targets", "links"}


def test_a_user_s_folder_goes_first_and_more_files_and_settings_reach_templates(
    folder, table, tmp_path
):
    (folder / "note.jinja").write_text("{{ stem }} {{ width }}\n", encoding="utf-8")
    own = tmp_path / "own"
    own.mkdir()
    (own / "model.jinja").write_text("mine\n", encoding="utf-8")
    exporter = template_exporter(
        "json",
        ".json",
        folder,
        {".json": "model.jinja", ".note": "note.jinja"},
        JSON,
        settings=(Setting("width", 80, "columns of a line"),),
    )
    model = treekit.train(table, "y", max_depth=1)
    settings = {"templates": str(own), "width": 3}
    paths = treekit.export(model, exporter, tmp_path / "a b", **settings)
    assert [path.name for path in paths] == ["a b.json", "a b.note"]
    assert [path.read_text(encoding="utf-8") for path in paths] == ["mine\n", "a_b 3\n"]
    with pytest.raises(ExportError, match="is not a folder of templates"):
        treekit.export(model, exporter, tmp_path / "m", templates=str(tmp_path / "gone"))
    with pytest.raises(SettingError, match="width"):
        treekit.export(model, exporter, tmp_path / "m", width="wide")


def test_a_template_cannot_write_text_that_no_escaper_has_seen(folder, table):
    (folder / "model.jinja").write_text("{{ note }}\n", encoding="utf-8")
    note = Setting("note", "x; y", "text that nobody escaped")
    exporter = template_exporter("json", ".json", folder, "model.jinja", JSON, settings=(note,))
    with pytest.raises(ExportError, match="text that no escaper has seen"):
        exporter.export(treekit.train(table, "y", max_depth=1), "m", note="x; y")


@pytest.mark.parametrize(
    "text", ['"\\\n\0', "\N{SNOWMAN}/*??/", "${x}#{y}%s", "\u2028\N{GRINNING FACE}"]
)
def test_literals_hold_the_text_and_no_letter_that_a_language_could_read(text):
    for style, escape in (("bytes", "\\x"), ("json", "\\u")):
        literal = string_literal(text, style)
        assert literal.isascii()
        assert all(character not in literal[1:-1] for character in "\"\n$#%*?/<>'")
        assert literal.count("\\") == literal.count(escape)
    assert json.loads(string_literal(text, "json")) == text
    # bytes in Python reads the same escapes as Zig, Go, Lua and Rust do
    body = string_literal(text, "bytes")[1:-1]
    assert body.encode().decode("unicode_escape").encode("latin-1").decode() == text
    with pytest.raises(ExportError, match="not valid Unicode"):
        string_literal("\ud800", "bytes")


@pytest.mark.parametrize("number", [0.1, -5e-324, 1.7976931348623157e308, -0.0, 2.0**60])
def test_hexadecimal_is_exact(number):
    read = float.fromhex(hex_literal(number))
    assert (read, math.copysign(1, read)) == (number, math.copysign(1, number))
    assert Language("bytes", floats="hex").array(np.array([number])) == hex_literal(number)
    assert Language("bytes").array(np.zeros(0)) == "0.0"
