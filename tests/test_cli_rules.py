"""``treekit rules``, ``simplify`` and ``revise``: what they write, print and refuse."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import treekit
from tests.test_rules_edited import melons
from treekit.cli import main
from treekit.documents import FORMS

FRENCH = Path(__file__).parent / "catalogues" / "fr.toml"


def call(*args: object, code: int = 0) -> Result:
    """Run the command line in this process, and expect an exit code."""
    result = CliRunner().invoke(main, [str(arg) for arg in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with a model and a table."""
    monkeypatch.chdir(tmp_path)
    melons().save("m.treekit")
    rows = ["sugar,colour,size,ripe", "0.1,red,1,no", "0.1,blue,1,yes", "0.5,green,9,no", ",,2,no"]
    Path("rows.csv").write_text("\n".join(rows * 1) + "\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_written_to_a_file(form, here):
    measured = [] if form == "text" else ["--table", "rows.csv"]
    call("rules", "m.treekit", "--as", form, "-o", "out.x", *measured)
    assert Path("out.x").read_text(encoding="utf-8").strip()


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json", "csv", "sql", "dmn", "pmml"])
def test_the_suffix_of_the_file_says_the_form(form, here):
    call("rules", "m.treekit", "-o", f"by{FORMS[form].suffix}")
    call("rules", "m.treekit", "-o", "asked", "--as", form)
    assert Path(f"by{FORMS[form].suffix}").read_bytes() == Path("asked").read_bytes()


def test_a_form_that_there_is_not_lists_those_that_are(here):
    said = call("rules", "m.treekit", "--as", "pdf", code=2).stderr
    assert all(form in said for form in FORMS)


@pytest.mark.parametrize(("lang", "word"), [("zh", "则"), (FRENCH, "alors")])
def test_rules_are_said_in_the_language_asked_for(lang, word, here):
    assert word in call("rules", "m.treekit", "--lang", lang).stdout


def test_one_tree_decisions_and_reports(here):
    assert call("rules", "m.treekit", "--tree", 1).stdout.count("\nrule ") == 4
    assert call("rules", "m.treekit", "--decisions").stdout.count("\nrule ") <= 4
    assert (
        "No two rules with conditions fit one row"
        in call("rules", "m.treekit", "--overlaps").stdout
    )
    assert "4 rows" in call("rules", "m.treekit", "--against", "rows.csv").stdout
    call("rules", "m.treekit", "--digits", 2, "--table", "rows.csv")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--digits", "2"], "add --table"),
        (["--against", "rows.csv", "--overlaps"], "one at a time"),
        (["--overlaps", "--as", "html"], "leave --as out"),
        (["--tree", "2"], "there is no tree 2"),
        (["--lang", "tlh"], "no catalogue"),
        (["-o", "m.treekit"], "is an input of this command"),
        (["--as", "csv", "--table", "none.csv"], "none.csv"),
        (["--table", "rows.csv"], "no measures"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_message(options, said, here):
    result = call("rules", "m.treekit", *options, code=2)
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_an_edit_comes_back_as_a_model_and_says_what_it_changed(here):
    call("rules", "m.treekit", "-o", "r.txt")
    text = Path("r.txt").read_text(encoding="utf-8")
    edited = text.replace("then yes   support 4   yes: 1", "then no")
    assert edited != text
    Path("e.txt").write_text(edited, encoding="utf-8")
    said = call("revise", "m.treekit", "e.txt", "-o", "n.treekit", "--table", "rows.csv").stdout
    assert "+ if sugar <= 0.25 and colour is blue, or is missing then no (no: 1)" in said
    assert "ripe: 1 of 4 rows get another answer" in said
    assert "accuracy" in said
    assert treekit.load("n.treekit").predict("rows.csv").tolist()[1] == "no"
    call("revise", "m.treekit", "r.txt", "-o", "same.treekit", "--lang", "zh")


@pytest.mark.parametrize(
    ("rules", "output", "said"),
    [
        ("r.txt", "m.treekit", "is an input of this command"),
        ("r.txt", "r.txt", "is an input of this command"),
        ("none.txt", "n.treekit", "none.txt"),
        ("m.treekit", "n.treekit", "no text in UTF-8"),
        ("bad.txt", "n.treekit", "holds no rule"),
        ("bad.json", "n.treekit", "cannot be read"),
    ],
)
def test_an_edit_that_cannot_be_read_writes_nothing(rules, output, said, here):
    call("rules", "m.treekit", "-o", "r.txt")
    for name in ("bad.txt", "bad.json"):
        Path(name).write_text("hello\n", encoding="utf-8")
    assert said in call("revise", "m.treekit", rules, "-o", output, code=2).stderr
    assert not Path("n.treekit").exists()


def test_a_list_is_made_of_a_model_and_its_table(here):
    said = call("simplify", "m.treekit", "rows.csv", "-o", "l.treekit").stdout
    assert "written to 'l.treekit'" in said
    assert treekit.load("l.treekit").provenance["simplified"] == "c45rules"
    zh = call("simplify", "m.treekit", "rows.csv", "-o", "l.treekit", "--lang", "zh").stdout
    assert zh.splitlines()[0] != said.splitlines()[0]
    refused = call("simplify", "m.treekit", "rows.csv", "-o", "rows.csv", code=2).stderr
    assert "is an input of this command" in refused


def test_rules_as_sql_name_the_extra_that_they_need(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    result = call("rules", "m.treekit", "-o", "r.sql", code=2)
    assert "pip install 'treekit-ml[sql]'" in result.stderr
    assert not Path("r.sql").exists()


@pytest.mark.parametrize("command", sorted(main.commands))
def test_help_holds_no_marks_of_its_making(command):
    said = call(command, "--help").stdout
    assert "\\b" not in said
    assert "\b" not in said
