"""Exported source is accepted by the oldest releases that it names, in every locale."""

from __future__ import annotations

import ast
import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import treekit
from tests.export.test_c_machines import WAYS, has_form
from tests.export.test_languages import SHIPPED, boosted
from tests.export.test_readable import hostile_model
from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.runtimes import need
from tests.tiers import LARGE, later
from treekit.data.schema import Column, Schema
from treekit.export import export
from treekit.export.c import __name__ as c_module
from treekit.export.c import export_c
from treekit.export.c import layouts as c_layouts
from treekit.export.lowering import lower_unless_fractional
from treekit.export.readable import explain_unreadable
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.verify import verify
from treekit.verify.answers import differing
from treekit.verify.run_language import LanguageProgram

# ---------------------------------------------------------------- c and c++

C_PLUS_PLUS = ("c++11", "c++14", "c++17", "c++20")
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Wnarrowing", "-Werror", "-pedantic")
VARIED = ("mixed", "surrogates", "several_labels", "refuses_both", "costs", "wide_numbers")
VARIED += ("mixed64_numbers", "boosted_four", "fractional", "oblique", "one_leaf", "one_number")


def numbers_only(classes: tuple[str, ...], n_trees: int) -> Model:
    """Make a model without categories."""
    task = "classification" if classes else "regression"
    schema = Schema((Column("a"), Column("b")), task=task, classes=classes)
    leaves = (leaf([1, 0]), leaf([0, 1])) if classes else (leaf(-1.5), leaf(2.0))
    trees = [build_tree(threshold(n % 2, n + 0.5, *leaves), schema) for n in range(n_trees)]
    return make_model(schema, trees)


def write_c(folder: Path, models: dict[str, Model], ways: tuple[str, ...] = tuple(WAYS)) -> None:
    """Write the C sources of models in some ways, and ``all.c``, which includes them."""
    stems = []
    for name, model in models.items():
        for way in ways:
            if has_form(model, way):
                stems.append(f"{name}_{way}")
                for file, content in export_c(model, stems[-1], **WAYS[way]).items():
                    (folder / file).write_bytes(content)
    (folder / "all.c").write_text("".join(f'#include "{stem}.c"\n' for stem in stems))


def assert_accepted(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[:3000]


def compile_as_c_plus_plus(folder: Path, standard: str) -> None:
    need("g++")
    command = ("g++", "-x", "c++", f"-std={standard}", *STRICT, "-fsyntax-only")
    assert_accepted(folder, *command, "all.c")


@pytest.mark.parametrize("standard", [C_PLUS_PLUS[0], *map(later, C_PLUS_PLUS[1:])])
def test_every_form_of_c_compiles_as_cpp(standard, tmp_path):
    need("g++")
    models = {name: EXTREMES[name]() for name in VARIED}
    for n_trees in (1, 8):
        models[f"numbers_{n_trees}"] = numbers_only((), n_trees)
        models[f"names_{n_trees}"] = numbers_only(("n", "p"), n_trees)
    write_c(tmp_path, models)
    assert "_level_codes[] = {\n-1\n};" in (tmp_path / "names_1_table.c").read_text()
    compile_as_c_plus_plus(tmp_path, standard)


@pytest.mark.matrix
@pytest.mark.parametrize("standard", C_PLUS_PLUS[::3])
@pytest.mark.parametrize("part", range(4))
def test_every_extreme_model_compiles_as_cpp(standard, part, tmp_path):
    names = sorted(EXTREMES.keys() - LARGE)[part::4]
    write_c(tmp_path, {name: EXTREMES[name]() for name in names})
    compile_as_c_plus_plus(tmp_path, standard)


@pytest.mark.matrix
def test_large_tables_of_c_compile_as_cpp(tmp_path, monkeypatch):
    """They are written as strings, which need a place for the NUL in C++."""
    for module in (c_layouts, sys.modules[c_module]):
        monkeypatch.setattr(module, "MAX_ARRAY_ELEMENTS", 3)
    names = ("mixed", "mixed64_numbers", "many_levels_in_two", "fractional")
    write_c(tmp_path, {name: EXTREMES[name]() for name in names}, ("table",))
    compile_as_c_plus_plus(tmp_path, "c++11")


CPP_WORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t
char16_t char32_t class compl concept const consteval constexpr constinit const_cast continue
co_await co_return co_yield decltype default delete do double dynamic_cast else enum explicit
export extern false float for friend goto if inline int long mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
restrict return short signed sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using
virtual void volatile wchar_t while xor xor_eq""".split()  # noqa: SIM905
"""Words of C23 and C++20."""


def test_readable_c_fields_are_not_reserved_words_of_c_or_cpp(tmp_path):
    need("gcc")
    half = len(CPP_WORDS) // 2
    columns = [Column(word) for word in CPP_WORDS[:half]]
    columns += [Column(word, "nominal", ("a", word)) for word in CPP_WORDS[half:]]
    schema = Schema(tuple(columns), classes=("class", "new"))
    root = leaf([1, 1])
    for number, word in enumerate(CPP_WORDS):
        side = leaf([number + 1, 0])
        root = (
            threshold(number, number + 0.5, side, root)
            if number < half
            else subset(number, [word], side, root)
        )
    model = make_model(schema, [build_tree(root, schema)])
    source, _ = export(model, "c", tmp_path / "tree.c")
    assert verify(model, [source]).exit_code == 0
    (tmp_path / "all.c").write_text('#include "tree.c"\n')
    for standard in C_PLUS_PLUS[::3]:
        compile_as_c_plus_plus(tmp_path, standard)


@pytest.mark.parametrize("standard", [C_PLUS_PLUS[0], *map(later, C_PLUS_PLUS[1:])])
def test_readable_c_compiles_as_cpp(standard, tmp_path):
    models = {name: make() for name, make in EXTREMES.items() if name not in LARGE}
    models["hostile"] = hostile_model()
    lines = []
    for name, model in models.items():
        if not explain_unreadable(model, lower_unless_fractional(model)):
            export(model, "c", tmp_path / f"{name}.c")
            lines.append(f'#include "{name}.c"\n')
    assert len(lines) > 8
    (tmp_path / "all.c").write_text("".join(lines))
    compile_as_c_plus_plus(tmp_path, standard)


# ---------------------------------------------------------------- python

OLDEST_PYTHON = (3, 7)


def list_pythons() -> list[Path]:
    """List other interpreters of this machine, from the oldest that exported files support."""
    found = {}
    for path in Path.home().glob(".pyenv/versions/3.*/bin/python"):
        release = tuple(map(int, path.parents[1].name.split(".")[:2]))
        if release >= OLDEST_PYTHON:
            found[release] = path
    return [path for _, path in sorted(found.items())]


def write_python(folder: Path) -> dict[Path, Model]:
    """Write models as Python in every form."""
    written = {}
    for name in ("mixed", "mixed64", "surrogates", "several_labels", "costs", "one_leaf"):
        for form in ("table", "if_else"):
            (path,) = export(EXTREMES[name](), "python", folder / f"{name}_{form}", form=form)
            written[path] = EXTREMES[name]()
    for link in ("softmax", "sigmoid"):
        model = boosted(link, ("a", "b"))
        written[export(model, "python", folder / link, form="full")[0]] = model
    fractional = EXTREMES["fractional"]()
    written[export(fractional, "python", folder / "fractional", form="full")[0]] = fractional
    for name, model in (("hostile", hostile_model()), *((n, m()) for n, m in EXTREMES.items())):
        if name not in LARGE and not explain_unreadable(model, lower_unless_fractional(model)):
            written[export(model, "python", folder / f"readable_{name}")[0]] = model
    return written


def find_late_annotations(source: str) -> list[str]:
    """Find annotations that are evaluated, and that Python 3.7 cannot evaluate."""
    tree = ast.parse(source, feature_version=OLDEST_PYTHON)
    if any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body):
        return []  # none is evaluated
    annotations = [n.annotation for n in ast.walk(tree) if isinstance(n, ast.arg) and n.annotation]
    annotations += [n.returns for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    annotations += [n.annotation for n in ast.walk(tree) if isinstance(n, ast.AnnAssign)]
    texts = [ast.unparse(annotation) for annotation in annotations if annotation]
    return [text for text in texts if re.search(r"[|\[]", text)]


def test_annotations_of_newer_python_are_found():
    assert find_late_annotations("def f(x: float | None) -> list[int]: ...") == [
        "float | None",
        "list[int]",
    ]
    assert find_late_annotations("def f(x: float) -> dict: ...") == []
    with pytest.raises(SyntaxError):
        find_late_annotations("if (x := 1): pass")


def test_exported_python_has_no_annotations_newer_than_python_3_7(tmp_path):
    for path in write_python(tmp_path):
        source = path.read_text(encoding="utf-8")
        assert find_late_annotations(source) == [], path.name
        docstring = ast.get_docstring(ast.parse(source))
        assert docstring is not None
        assert "Python 3.7 or newer" in docstring
    assert "Python 3.7" in SHIPPED["python"].summary


@pytest.mark.matrix
def test_every_installed_python_predicts_the_same_bits(tmp_path, monkeypatch):
    written = write_python(tmp_path)
    for python in [Path(sys.executable), *list_pythons()]:
        monkeypatch.setattr(sys, "executable", str(python))  # runs what verify runs
        for readable in (False, True):
            some = {p: m for p, m in written.items() if p.name.startswith("readable") == readable}
            folder = tmp_path / f"{python.parents[1].name}_{readable}"
            folder.mkdir()
            schemas = [model.schema for model in some.values()]
            program = LanguageProgram(SHIPPED["python"].export, list(some), schemas, folder)
            rows = [extreme_rows(model, most=150) for model in some.values()]
            for (path, model), own, told in zip(
                some.items(), rows, program.predict_rows(rows), strict=True
            ):
                assert not len(differing(wanted(model, own), told)), (python, path.name)


def test_integers_beyond_2_to_53_are_converted_as_by_the_model(tmp_path):
    """Python compares integers with floats exactly; the model's input is a double."""
    schema = Schema((Column("x"),), classes=("low", "high"), dtype="float64")
    model = make_model(
        schema, [build_tree(threshold(0, 2.0**53, leaf([1, 0]), leaf([0, 1])), schema)]
    )
    for form in ("auto", "full"):
        (path,) = export(model, "python", tmp_path / f"m_{form}.py", form=form)
        scope: dict[str, object] = {"__name__": "m"}
        exec(path.read_text(), scope)
        told = [scope["predict"]({"x": x}) for x in (2**53, 2**53 + 1, 2**53 + 2)]
        assert told == model.predict({"x": [2**53, 2**53 + 1, 2**53 + 2]}).tolist(), form
        assert told == ["low", "low", "high"]


# ---------------------------------------------------------------- javascript

PARSE = """\
const { parse } = require("internal/deps/acorn/acorn/dist/acorn");
const { readFileSync } = require("node:fs");
for (const path of process.argv.slice(1)) {
  parse(readFileSync(path, "utf8"), { ecmaVersion: 2020, sourceType: "module" });
}
"""


def parse_as_es2020(paths: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Parse modules with the parser that Node ships."""
    command = ["node", "--expose-internals", "--no-warnings", "-e", PARSE, *paths]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.matrix
def test_javascript_is_es2020(tmp_path):
    need("node")
    paths = []
    for name in VARIED:
        for form in ("table", "if_else"):
            if EXTREMES[name]().missing != "fractional" or form == "table":
                settings = {"form": form}
                paths += export(EXTREMES[name](), "javascript", tmp_path / name, **settings)
    paths += export(boosted("softmax", ("a", "b", "c")), "javascript", tmp_path / "boosted")
    paths += export(hostile_model(), "javascript", tmp_path / "readable")
    done = parse_as_es2020([path.name for path in paths], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for later_syntax in ("a ??= 1;", "class A { #b = 1; }", "x = 1_000;"):
        (tmp_path / "later.mjs").write_text(f"let a, x;\n{later_syntax}\n")
        assert "SyntaxError" in parse_as_es2020(["later.mjs"], tmp_path).stderr, later_syntax


# ---------------------------------------------------------------- locales


@pytest.fixture(scope="module")
def german(tmp_path_factory):
    """Environment of a locale with decimal commas."""
    source = Path("/usr/share/i18n/locales/de_DE")
    if not source.exists():  # of the package locales, which .ci/run installs
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no {source}")
    folder = tmp_path_factory.mktemp("locales")
    command = ["localedef", "-i", "de_DE", "-f", "UTF-8", str(folder / "de_DE.UTF-8")]
    subprocess.run(command, check=True, capture_output=True)
    return {"LOCPATH": str(folder), "LC_ALL": "de_DE.UTF-8"}


PLAIN = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale without UTF-8, in which Python neither leaves it nor its encoding."""


def melon_model() -> Model:
    """Make a regression model with names that are not ASCII."""
    schema = Schema(
        (Column("密度"), Column("色泽", "nominal", ("青绿", "乌黑"))),
        task="regression",
        target="糖",
    )
    root = threshold(0, 0.5, leaf(0.25), subset(1, ["青绿"], leaf(1.5), leaf(-2.75)))
    return make_model(schema, [build_tree(root, schema)])


@pytest.mark.matrix
@pytest.mark.parametrize("plain", [True, False])
def test_python_scores_a_table_in_every_locale(plain, tmp_path, request):
    environment = PLAIN if plain else request.getfixturevalue("german")
    rows = [["0.25", "青绿"], ["0.75", "青绿"], ["0.75", "乌黑"], ["", "赤"], ["x", "青绿"]]
    with (tmp_path / "瓜.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([["密度", "色泽"], *rows])
    export(melon_model(), "python", tmp_path / "m.py", form="full")
    # A program that sets the locale, as those with a window do.
    start = "import locale, runpy; locale.setlocale(locale.LC_ALL, ''); "
    start += "print(locale.localeconv()['decimal_point'], flush=True); "
    start += "runpy.run_path('m.py', run_name='__main__')"
    pythons = [sys.executable, *map(str, list_pythons()[:1])]
    for python in pythons:
        command = [python, "-c", start, "瓜.csv"]
        env = {**os.environ, **environment}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False)
        point, *lines = done.stdout.decode("utf-8").splitlines()
        assert point == ("." if plain else ",")
        assert lines == ["糖", "0.25", "1.5", "-2.75", "-2.75", '""'], done.stderr
        assert done.returncode == 1
        assert b"line 6: column" in done.stderr


LANGUAGES = {"javascript": "node", "java": "javac", "rust": "rustc", "go": "go"}


@pytest.mark.matrix
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("plain", [True, False])
def test_exports_in_other_languages_run_in_every_locale(
    language, plain, tmp_path, request, monkeypatch
):
    need(LANGUAGES[language])
    environment = PLAIN if plain else request.getfixturevalue("german")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for form in ("auto", "full"):
        path = export(melon_model(), language, tmp_path / f"m_{form}", form=form)[0]
        report = verify(melon_model(), [path])
        assert report.exit_code == 0, report.artifacts[0].error


@pytest.mark.matrix
def test_exported_c_calls_no_locale_dependent_function(german, tmp_path):
    """It calls no function of a library, and so none that looks at the locale."""
    need("gcc", "nm")
    sources = [
        export(melon_model(), "c", tmp_path / f"m_{form}.c", form=form)[0]
        for form in ("auto", "full")
    ]
    for source in sources:
        source.read_text(encoding="utf-8")
        program = source.with_suffix(".o")
        env = {**os.environ, **german}
        subprocess.run(["gcc", "-std=c99", "-c", source, "-o", program], env=env, check=True)
        asked = subprocess.run(
            ["nm", "--undefined-only", program], capture_output=True, text=True, check=True
        )
        names = set(re.findall(r"U (\S+)", asked.stdout))
        assert names <= {"memset", "memcpy"}, names


@pytest.mark.matrix
def test_exported_numbers_have_decimal_points_in_every_locale(german, tmp_path):
    """Whatever the locale, the same bytes are exported."""
    treekit.export(melon_model(), "c", tmp_path / "here.c", form="full")
    melon_model().save(tmp_path / "m.treekit")
    start = "import locale, treekit; locale.setlocale(locale.LC_ALL, ''); "
    start += "m = treekit.load('m.treekit'); treekit.export(m, 'c', 'there.c', form='full'); "
    start += "open('rules.txt', 'w', encoding='utf-8').write(str(m.rules()))"
    env = {**os.environ, **german}
    subprocess.run([sys.executable, "-c", start], cwd=tmp_path, env=env, check=True)
    here, there = ((tmp_path / f"{name}.c").read_text() for name in ("here", "there"))
    assert here == there.replace("there", "here").replace("THERE", "HERE")
    assert str(melon_model().rules()) == (tmp_path / "rules.txt").read_text(encoding="utf-8")
