"""Rules changed by an editor, a word processor or a spreadsheet are read or refused."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import treekit
from tests.rules.test_rule_text import rules_edited_melons, text_of
from treekit.data.schema import Column, Schema
from treekit.documents import files
from treekit.errors import DataError, ModelFileError, TreekitWarning
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import make_model
from treekit.rules.language import load_language
from treekit.rules.read_text import read_edited
from treekit.rules.revise import revise_model

# ---------------------------------------------------------------- numbers


def pay_model(*, regression: bool = False):
    schema = Schema(
        (Column("pay"),),
        task="regression" if regression else "classification",
        classes=() if regression else ("n", "p"),
    )
    leaves = (leaf(1050.5), leaf(-2.0)) if regression else (leaf([1, 0]), leaf([0, 1]))
    return make_model(schema, [build_tree(threshold(0, 1050.0, *leaves), schema)])


GROUPED = (
    *("1,050", "1,050.5", "1,234,567", "1.234,5", "1.234.567,8", "1.050,5", "1 050", "1'050"),
    *("1’050", "1_050", "1\u00a0050", "1\u202f050", "1\u2009050", "1,23,456", "1.050.000"),
    *("1٬050٫5", "12,3456", "-1,050", "1´050"),
)
"""Numbers with separators that may be of thousands."""


@pytest.mark.parametrize("written", GROUPED)
@pytest.mark.parametrize("regression", [False, True])
def test_advice_for_a_number_with_separators_contains_no_digits(written, regression):
    model = pay_model(regression=regression)
    text = text_of(model)
    old, new = ("then 1050.5", "then ") if regression else ("pay <= 1050", "pay <= ")
    with pytest.raises(ModelFileError, match="separators") as caught:
        read_edited(text.replace(old, new + written))
    message = str(caught.value)
    assert re.match("line [56] ", message)
    advice = message.partition("write it")[2].partition("expected a text")[0]
    assert not re.search("[0-9]", advice)
    assert "with a point before decimals" in advice


@pytest.mark.parametrize(
    ("written", "advised"),
    [("1,05", "1.05"), ("0,050", "0.050"), ("-5,5", "-5.5"), ("12,5", "12.5")],
)
@pytest.mark.parametrize("regression", [False, True])
def test_an_unambiguous_decimal_comma_is_reported(written, advised, regression):
    model = pay_model(regression=regression)
    old, new = ("then 1050.5", "then ") if regression else ("pay <= 1050", "pay <= ")
    with pytest.raises(ModelFileError, match=f"decimal comma: write {advised} with a point"):
        read_edited(text_of(model).replace(old, new + written))


@pytest.mark.parametrize("written", ["１０５０", "١٠٥٠", "½", "5 %", "1050 €", "inf", "nan", "1_0"])
@pytest.mark.parametrize("regression", [False, True])
def test_invalid_numbers_are_refused(written, regression):
    model = pay_model(regression=regression)
    old, new = ("then 1050.5", "then ") if regression else ("pay <= 1050", "pay <= ")
    with pytest.raises(ModelFileError, match=r"line [56] "):
        read_edited(text_of(model).replace(old, new + written))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        *(("−5", -5), ("–5", -5), ("—5.5", -5.5), ("1E3", 1000), ("1e+3", 1000)),
        *(("1.5E+03", 1500), ("2E−3", 0.002), ("1050.0", 1050), ("05", 5)),
    ],
)
def test_alternative_notations_of_numbers_are_read(written, read):
    text = text_of(pay_model()).replace("1050", written)
    schema = read_edited(text).schema
    bounds = [rule.conditions[0] for rule in read_edited(text)]
    assert schema.dtype == "float32"
    assert [bounds[0].high, bounds[1].low] == [np.float32(read)] * 2


def test_ambiguous_thousands_point_warns():
    text = text_of(pay_model())
    for written in ("1.050", "12.340"):
        with pytest.warns(TreekitWarning, match=f"line 5 .* point of {written} is read as a decim"):
            read_edited(text.replace("pay <= 1050", f"pay <= {written}"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for written in ("1.05", "1.234", "0.050", "1050.000", "1.0500"):
            read_edited(text.replace("pay <= 1050", f"pay <= {written}"))


# ---------------------------------------------------------------- characters


def quoted_model():
    """Make a model with names that need quotes."""
    schema = Schema(
        (Column("net pay"), Column("it's", "nominal", ("a-b", 'say "x"...', "Ü"))),
        classes=("no way", "yes"),
    )
    root = threshold(
        0, -2.5, leaf([3, 1]), subset(1, ['say "x"...', "Ü"], leaf([0, 2]), leaf([4, 0]))
    )
    return make_model(schema, [build_tree(root, schema)])


def read_as(text: str, model) -> None:
    """Assert that a text means the rules of a model."""
    revised = revise_model(model, read_edited(text))
    assert str(revised.rules()) == str(model.rules())


def curl(text: str) -> str:
    """Replace quotes as word processors do."""
    text = re.sub(r'(^|[\s(])"', "\\1“", text, flags=re.MULTILINE).replace('"', "”")
    return re.sub(r"(?<=\w)'", "’", text)


def requote(text: str, opening: str, closing: str) -> str:
    """Replace the quotes around names without escapes."""
    return re.sub(
        r'"((?:[^"\\]|\\.)*)"',
        lambda found: found[0] if "\\" in found[1] else opening + found[1] + closing,
        text,
    )


EDITORS = {
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "cr": lambda text: text.replace("\n", "\r"),
    "bom": lambda text: "\ufeff" + text,
    "bom_twice": lambda text: "\ufeff\ufeff" + text,
    "line_separators": lambda text: text.replace("\n", "\u2028"),
    "soft_line_breaks": lambda text: text.replace("\n", "\x0b"),
    "curly_quotes": curl,
    "low_quotes": lambda text: requote(text, "„", "“"),
    "guillemets": lambda text: requote(text, "«\u00a0", "\u00a0»"),
    "no_break_spaces": lambda text: text.replace(" ", "\u00a0"),
    "ideographic_spaces": lambda text: text.replace("  ", "\u3000\u3000"),
    "tabs": lambda text: text.replace("  if  ", "\tif\t").replace("   ", "\t"),
    "double_blanks": lambda text: text.replace(" <= ", "  <=  "),
    "upto": lambda text: text.replace("<=", "≤"),
    "arrow": lambda text: text.replace("<=", "⇐"),
    "html": lambda text: text.replace("<", "&lt;").replace(">", "&gt;"),
    "full_width_signs": lambda text: text.replace("<=", "＜＝").replace(">", "＞"),
    "minus": lambda text: text.replace("-2.5", "−2.5"),
    "en_dash": lambda text: text.replace("-2.5", "–2.5"),
    "dash_in_name": lambda text: text.replace("a-b", "a–b"),
    "ellipsis": lambda text: text.replace("...", "…"),
    "soft_hyphens": lambda text: text.replace("net", "n\u00adet").replace("rule", "ru\u00adle"),
    "zero_width": lambda text: text.replace(" ", "\u200b \u200b"),
    "direction_marks": lambda text: re.sub("^", "\u200e", text, flags=re.MULTILINE),
    "decomposed": lambda text: text.replace("Ü", "U\u0308"),
    "capitals": lambda text: (
        re.sub(
            "^( *)(rule|if|and|then|otherwise)\\b",
            lambda found: found[1] + found[2].capitalize(),
            text.partition("How to")[0],
            flags=re.MULTILINE,
        )
        + "How to"
        + text.partition("How to")[2]
    ),
    "bullets": lambda text: re.sub("^  (if|and|then) ", "  • \\1 ", text, flags=re.MULTILINE),
    "dashes_as_bullets": lambda text: re.sub("^  (if|and) ", "- \\1 ", text, flags=re.MULTILINE),
    "numbers": lambda text: re.sub("^rule (\\d)", "\\1. rule \\1", text, flags=re.MULTILINE),
    "letters": lambda text: re.sub("^  if ", "  a) if ", text, flags=re.MULTILINE),
    "spreadsheet": lambda text: "\n".join(
        '"' + row.replace('"', '""') + '"' if re.search('[",]', row) else row
        for row in text.split("\n")
    ),
    "spreadsheet_columns": lambda text: "\n".join(
        ('"' + row.replace('"', '""') + '"' if re.search('[";]', row) else row) + ";;"
        for row in text.split("\n")
    ),
}
"""What programs do to a text as they save it, or as one types."""


@pytest.mark.parametrize("editor", EDITORS)
def test_characters_changed_by_editors_are_read(editor):
    for model in (quoted_model(), rules_edited_melons(), pay_model(regression=True)):
        read_as(EDITORS[editor](text_of(model)), model)
    assert EDITORS[editor](text_of(quoted_model())) != text_of(quoted_model())


@pytest.mark.parametrize("editor", ["crlf", "no_break_spaces", "curly_quotes", "bullets"])
def test_characters_changed_by_editors_are_read_in_chinese(editor):
    model = quoted_model()
    words = load_language("zh")
    read_as(EDITORS[editor]("".join(model.rules().text(language=words))), model)


def test_ascii_signs_are_read_in_chinese():
    model = quoted_model()
    text = "".join(model.rules().text(language=load_language("zh")))
    assert "≤" in text
    read_as(text.replace("≤", "<="), model)


def test_changes_of_several_editors_in_sequence_are_read():
    model = quoted_model()
    text = text_of(model)
    for editor in ("capitals", "curly_quotes", "no_break_spaces", "minus", "arrow", "crlf", "bom"):
        text = EDITORS[editor](text)
    read_as(text, model)


def test_names_with_typographic_characters_are_not_confused():
    """Names that differ only in such characters are never taken for one another."""
    names = (
        "a–b",
        "a-b",
        "“q”",
        "1 050",
        "E+",
        "≤",
        "Ü",
        "U\u0308",
        "•",
        "If",
        "Then",
        "z…",
        "z...",
    )
    schema = Schema(
        (*map(Column, names), Column("c", "nominal", names)), classes=names, dtype="float64"
    )
    root = leaf([1.0] + [0.0] * (len(names) - 1))
    for code, name in enumerate(names):
        votes = [0.0] * len(names)
        votes[code] = 1.0
        root = threshold(code, -1.5, leaf(votes), subset("c", [name], leaf(votes), root))
    model = make_model(schema, [build_tree(root, schema)])
    read_as(text_of(model), model)
    with pytest.raises(ModelFileError, match="names 'a—b', which is not a category"):
        read_edited(text_of(model).replace('c is "a–b"', 'c is "a—b"'))


# ---------------------------------------------------------------- refused by name


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("pay <= 1050", "pay >= 1050", "not a condition: rules compare with > and <=, not '>='"),
        ("pay <= 1050", "pay ≥ 1050", "rules compare with > and <=, not '≥'"),
        ("pay <= 1050", "pay < 1050", "rules compare with > and <=, not '<'"),
        ("pay <= 1050", "pay = 1050", "rules compare with > and <=, not '='"),
        ("pay <= 1050", "pay => 1050", "rules compare with > and <=, not '=>'"),
        (
            "pay <= 1050",
            "pay <=\n 1050",
            "line 5 .*if an editor has wrapped it, join it with line 6",
        ),
        ("rule 1 of 2, node 1", "rule 1 of 2; node 1", "line 4 "),
        ("n: 1", "n: 0,9", "line 6 .*decimal comma: write 0.9 with a point"),
        ("n: 1", "n: 1,000", "line 6 .*separators"),
        ("support 2", "support 1,234", "line 6 .*separators"),
    ],
)
def test_ambiguous_text_is_refused_with_its_line(old, new, said):
    model = treekit.train(
        {"pay": [900.0, 1000, 1100, 1200], "y": ["n", "n", "p", "p"]}, "y", seed=0
    )
    text = text_of(model)
    assert old in text
    with pytest.raises(ModelFileError, match=said):
        read_edited(text.replace(old, new, 1))


def loaded(content: bytes, folder, suffix: str = ".txt"):
    path = folder / f"rules{suffix}"
    path.write_bytes(content)
    return files.load_edited_rules(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_files_in_unicode_are_read(encoding, tmp_path):
    model = rules_edited_melons()
    found = loaded(text_of(model).encode(encoding), tmp_path)
    assert str(revise_model(model, found).rules()) == text_of(model)
    big = b"\xfe\xff" + text_of(model).encode("utf-16-be")
    assert str(revise_model(model, loaded(big, tmp_path)).rules()) == text_of(model)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\n# größe\n".encode("latin-1"), r"line 2 has the byte 0xf6 .*'ö'.*save it as UTF-8"),
        ("treekit".encode("utf-16-le"), "UTF-16 without a byte order mark"),
        (
            b"PK\x03\x04rest",
            "ZIP.*a document of a word processor or a spreadsheet; save it as plain",
        ),
        (b"{\\rtf1 text}", "RTF"),
        (b"%PDF-1.7", "PDF"),
        (b"<!DOCTYPE html><p>", "a page"),
        (b"rule,tree,node,if,then\n", "a table of rules"),
        (b'\xef\xbb\xbf"rule";"tree";"node";"if"\n', "a table of rules"),
        (b"sep=;\nrule;tree;node;if;then\n", "a table of rules"),
    ],
)
def test_other_files_are_refused(content, said, tmp_path):
    with pytest.raises(DataError, match=said):
        loaded(content, tmp_path)


def test_csv_table_of_rules_is_refused_as_edited_rules(tmp_path):
    path = tmp_path / "rules.csv"
    treekit.write_rules(rules_edited_melons(), path)
    for content in (path.read_bytes(), path.read_bytes().replace(b",", b";")):
        with pytest.raises(DataError, match="a table of rules"):
            loaded(content, tmp_path, ".csv")
