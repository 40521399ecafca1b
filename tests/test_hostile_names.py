"""No name breaks generated source, none becomes code, and each comes back unharmed."""

from __future__ import annotations

import ctypes
import re

import pytest

from tests.reference import evaluate
from tests.reference.artifacts import compile_c, import_python
from tests.reference.models import text_row
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError
from treekit.export.c import export_c
from treekit.export.literals import Code, identifier, identifiers, string_literal
from treekit.export.python import export_python
from treekit.export.render import render, template_folders
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model

NAN = float("nan")
HOSTILE = (
    'double " quote',
    "single ' quote",
    '"""',
    "'''",
    "new\nline",
    "carriage\rreturn\r\n",
    "*/ #error */",
    "/* open",
    "// comment \\",
    "trailing backslash \\",
    "// trigraph ??/",
    "??/ ??' ??< ??= ??)",
    "\\",
    "\\x41\\101\\u0022",
    "\x01\x1f\x7fcontrol\tand\x0bmore",
    "\x01f",
    "\x80\x9f\u2028\u2029line ends",
    "{{ 1/0 }}",
    "{% include 'x' %}{# #}",
    "{{ p }}",
    "%s%n%d",
    "__import__('os')",
    '"); system("true"); ("',
    "int",
    "class",
    "None",
    "return",
    "_Bool",
    "#define x y",
    "汽车 价格",
    "汽车_价格",
    "🐧",
    "a b",
    "a_b",
    "a-b",
    "a_b_34",
    "a b_33",
    "9lives",
    "\u202egnirts",
    "é",
    "e\u0301",
    "long " * 2000,
    "é" * 3000 + '\n"',
    " ",
)


def hostile_model(classes: tuple[str, ...] = HOSTILE) -> Model:
    """Hostile names of features, levels, classes and target, all in use."""
    nominal = [Column("levels " + name, "nominal", HOSTILE) for name in HOSTILE[:3]]
    schema = Schema(
        (*map(Column, HOSTILE), *nominal), target=HOSTILE[5], classes=classes, dtype="float64"
    )
    trees = []
    for feature in range(len(HOSTILE)):
        first, second = (
            leaf([float(c == feature + k) + 0.01 for c in range(len(classes))]) for k in (0, 1)
        )
        low = subset(len(HOSTILE) + feature % 3, HOSTILE[feature : feature + 7], first, second)
        trees.append(build_tree(threshold(feature, 0.5, low, second), schema))
    return make_model(schema, trees)


def hostile_rows() -> list[list[float]]:
    n = len(HOSTILE)
    rows = [[float((i + r) % 3 == 0) for i in range(n)] for r in range(n)]
    return [[*row, float(r), float(n - r), NAN] for r, row in enumerate(rows)]


MODEL = hostile_model()


@pytest.mark.parametrize("form", ["if_else", "table"])
def test_c_compiles_answers_and_gives_the_names_back(tmp_path, form):
    program = compile_c(MODEL, tmp_path, form=form)
    labels, out = program.run(hostile_rows())
    assert labels == [evaluate.predict(MODEL, row) for row in hostile_rows()]
    assert out == [evaluate.probabilities(MODEL, row) for row in hostile_rows()]
    for kind, names in (("feature", MODEL.schema.names), ("class", MODEL.schema.classes)):
        name = program.function(f"{kind}_name", ctypes.c_char_p, ctypes.c_int)
        assert [name(i).decode() for i in range(len(names))] == list(names)
    code = program.function("level_code", ctypes.c_int, ctypes.c_int, ctypes.c_char_p)
    feature = len(HOSTILE) + 1
    assert [code(feature, text.encode()) for text in HOSTILE] == list(range(len(HOSTILE)))


@pytest.mark.parametrize("form", ["if_else", "table"])
def test_python_runs_answers_and_gives_the_names_back(form):
    names = import_python(MODEL, form=form)
    assert names["FEATURES"] == MODEL.schema.names
    assert names["CLASSES"] == HOSTILE
    assert list(names["LEVELS"].values()) == [HOSTILE] * 3
    for row in hostile_rows():
        cells = text_row(MODEL.schema, row)
        assert names["predict"](cells) == HOSTILE[int(evaluate.predict(MODEL, row))]
        named = dict(zip(MODEL.schema.names, cells, strict=True))
        assert names["predict_proba"](named) == evaluate.probabilities(MODEL, row)


@pytest.mark.parametrize("export", [export_c, export_python])
@pytest.mark.parametrize("form", ["if_else", "table"])
def test_source_is_plain_ascii_without_trigraphs_or_joined_lines(export, form):
    for content in export(MODEL, "m", form=form).values():
        text = content.decode("ascii")
        assert set(text) <= {"\n", *map(chr, range(32, 127))}
        if export is export_c:
            assert "??" not in text
            assert not re.search(r"\\$", text, re.MULTILINE)


def tame_model() -> Model:
    """The hostile model with names that nobody could object to."""
    names = tuple(f"n{i}" for i in range(len(HOSTILE)))
    columns = (
        Column(f"c{i}", column.kind, names if column.levels else ())
        for i, column in enumerate(MODEL.schema.columns)
    )
    return make_model(Schema(tuple(columns), classes=names, dtype="float64"), MODEL.trees)


def without_strings(source: str) -> str:
    """Source without literals, and without the order in which C sorts the levels."""
    source = re.sub(r"\(const char\[\]\)\{[^}]*\}", "S", source)
    source = re.sub(r"""'(\\.|[^'\\\n])*'|"(\\.|[^"\\\n])*\"""", "S", source)
    return re.sub(r"(level_codes\[\] = )\{[^}]*\}", r"\1C", source)


@pytest.mark.parametrize(("export", "file"), [(export_c, "m.c"), (export_python, "m.py")])
def test_apart_from_literals_hostile_and_tame_source_are_the_same(export, file):
    hostile, tame = (export(m, "m", form="table")[file].decode() for m in (MODEL, tame_model()))
    assert hostile != tame
    assert without_strings(hostile) == without_strings(tame)


def test_identifiers_are_distinct_and_made_of_safe_characters():
    made = identifiers([*HOSTILE, "column", "column_3", "", "!"], "in_")
    assert len(set(made)) == len(made)
    assert all(re.fullmatch(r"in_[A-Za-z0-9_]+", text) for text in made)


def test_identifiers_look_like_their_names():
    assert identifiers(["Age", "hours per week", "汽车"], "in_") == [
        "in_Age",
        "in_hours_per_week",
        "in_column",
    ]
    assert identifiers(["a b", "a_b", "a_b_1"], "") == ["a_b_0", "a_b_1", "a_b_1_2"]
    assert identifier("__3 x__", "model") == "model_3_x"


@pytest.mark.parametrize("text", ["a\0b", "\0", "half \ud800 a pair"])
def test_text_that_c_cannot_hold_is_refused_by_name(text):
    with pytest.raises(ExportError, match="rename it"):
        string_literal(text, "c")


def test_python_holds_any_text():
    schema = Schema((Column("a\0b"),), classes=("half \ud800 a pair", "\0"))
    model = make_model(schema, [build_tree(leaf([2, 1]), schema)])
    assert import_python(model)["predict"]([1]) == "half \ud800 a pair"


def test_a_user_template_comes_first_and_cannot_write_raw_text(tmp_path):
    (tmp_path / "python").mkdir()
    own = tmp_path / "python" / "module.jinja"
    own.write_text("# {{ trees }} {{ targets[0].classes[0] }}\n")
    assert template_folders(tmp_path)[0] == tmp_path
    (made,) = export_python(MODEL, "m", templates=str(tmp_path)).values()
    assert made == f"# {len(HOSTILE)} {HOSTILE[0]!r}\n".encode()
    assert export_c(MODEL, "m", templates=str(tmp_path)) == export_c(MODEL, "m")
    for source, message in [
        ("{{ name }}", "no escaper has seen"),
        ("{{ nothing }}", "'nothing' is undefined"),
        ("{% oops %}", "unknown tag 'oops'"),
    ]:
        own.write_text(source)
        with pytest.raises(ExportError, match=message):
            render("python/module.jinja", str(tmp_path), name="\n#error", trees=Code("1"))


def test_a_missing_template_folder_is_named():
    with pytest.raises(ExportError, match="'no such folder' is not a folder"):
        export_c(MODEL, "m", templates="no such folder")
