"""Small trees as readable code: few lines, plain names, the model's predictions."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from sklearn.datasets import load_iris

import treekit
from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.reference.models import mixed_schema, random_model
from tests.runtimes import need
from tests.strategies import models
from tests.tiers import later
from treekit import registry
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError, SettingError
from treekit.export import export
from treekit.export.c import explain_unreadable_c
from treekit.export.literals import Language
from treekit.export.lowering import lower_unless_fractional
from treekit.export.readable import comment_text, explain_unreadable, readable_names
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import make_model
from treekit.verify import verify
from treekit.verify.answers import differing
from treekit.verify.run_language import LanguageProgram

HOSTILE = [
    '"""',
    "a\nb",
    "\\",
    "row",
    "class",
    "nan",
    "a b",
    "a-b",
    "色泽",
    "",
    "1",
    "x_1",
    "X 1",
    "İ٣",
    "getClass",
    "*/",
    "\u202e",
]


@pytest.fixture(scope="module")
def iris():
    frame = load_iris(as_frame=True).frame
    frame["target"] = load_iris().target_names[frame["target"]]
    return treekit.train(frame, "target", max_depth=3, seed=0, dtype="float64")


def reason_of(model):
    """Return why a model has no readable form."""
    return explain_unreadable(model, lower_unless_fractional(model))


def written(model, folder, **settings):
    (path,) = export(model, "python", folder / "tree.py", **({"form": "auto"} | settings))
    return path


@pytest.mark.parametrize("language", ["c", "python", "javascript", "go"])
def test_the_readable_form_is_written_or_refused_with_the_reason(language, iris, tmp_path):
    auto, readable, full, table = (
        export(iris, language, tmp_path / form / "iris", form=form)[0].read_text()
        for form in ("auto", "readable", "full", "table")
    )
    assert readable == auto
    assert full not in (readable, table)
    assert "Form: if_else; the model has" in full
    forest = make_model(iris.schema, iris.trees * 2)
    with pytest.raises(
        ExportError, match="'readable' takes one small tree, and the model has 2 tr"
    ):
        export(forest, language, tmp_path / "forest", form="readable")
    (path, *_) = export(forest, language, tmp_path / "two")
    assert "no readable form: the model has 2" in path.read_text()
    with pytest.raises(SettingError, match="'api'"):
        export(iris, language, tmp_path / "old", api="full")


def test_readable_c_is_refused_with_other_input_or_arithmetic(iris, tmp_path):
    with pytest.raises(ExportError, match="input or arithmetic is set"):
        export(iris, "c", tmp_path / "iris", form="readable", arithmetic="integer")
    made = export(iris, "c", tmp_path / "iris", arithmetic="integer")[0].read_text()
    assert "no readable form" not in made


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_iris_is_written_in_25_lines_that_ruff_accepts(dtype, tmp_path):
    frame = load_iris(as_frame=True).frame
    iris = treekit.train(frame, "target", max_depth=3, seed=0, dtype=dtype)
    path = written(iris, tmp_path)
    assert (
        "petal_length_cm <= " + ("f32(2.45)" if dtype == "float32" else "2.45") in path.read_text()
    )
    assert len(path.read_text().splitlines()) <= 25
    for command in (["check", "--select=E4,E7,E9,F,B,I,RET,SIM"], ["format", "--check"]):
        subprocess.run(["ruff", *command, "--isolated", path], check=True)
    assert verify(iris, [path]).exit_code == 0


def test_the_tree_of_the_demo_is_written_in_40_lines(tmp_path):
    model = treekit.train(demo_table(), DEMO_TARGET, pruner="cost_complexity", seed=0)
    path = written(model, tmp_path)
    assert len(path.read_text().splitlines()) <= 40
    assert verify(model, [path]).exit_code == 0


def test_only_columns_that_are_tested_are_read(iris, tmp_path):
    predict = runpy.run_path(str(written(iris, tmp_path)))["predict"]
    assert predict({"petal length (cm)": 3.0, "petal width (cm)": None}) == "versicolor"
    with pytest.raises(KeyError, match="petal width"):
        predict({"petal length (cm)": 3.0})


def test_form_full_writes_the_complete_interface(iris, tmp_path):
    names = runpy.run_path(str(written(iris, tmp_path, form="full")))
    assert "predict_proba" in names
    assert names["FEATURES"] == iris.schema.names


def test_unseen_categories_are_replaced_by_missing_before_the_splits(tmp_path):
    schema = Schema((Column("c", "nominal", tuple("abcd")), Column("x")), classes=("n", "y"))
    tree = build_tree(
        subset(
            "c", ["a"], leaf([1, 0]),
            treekit.model.builder.is_missing("c", leaf([0, 1]), leaf([2, 1])),
            missing=1,
        ),
        schema,
    )  # fmt: skip
    model = make_model(schema, [tree])
    path = written(model, tmp_path)
    assert '    if c == "a":\n' in path.read_text()
    assert '    if c in {"b", "c", "d"}:\n' in path.read_text()
    assert verify(model, [path]).exit_code == 0


STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror")


def written_c(model, folder):
    """Write the C files of a model; they compile without a warning."""
    need("gcc")
    source, header = export(model, "c", folder / "tree.c", form="auto")
    subprocess.run(["gcc", *STRICT, "-c", source, "-o", folder / "tree.o"], check=True)
    return source, header


def test_readable_c_is_a_struct_and_nested_if_statements(tmp_path):
    frame = load_iris(as_frame=True).frame
    frame["target"] = load_iris().target_names[frame["target"]]
    iris = treekit.train(frame, "target", max_depth=3, seed=0)
    horses = treekit.train(demo_table(), DEMO_TARGET, pruner="cost_complexity", seed=0)
    for model, most in ((iris, 47), (horses, 92)):
        files = written_c(model, tmp_path)
        assert sum(len(file.read_text().splitlines()) for file in files) <= most
        assert verify(model, [files[0]]).exit_code == 0
    assert "float petal_length_cm;" in written_c(iris, tmp_path)[1].read_text()
    assert "row->petal_length_cm <= 2.45f" in (tmp_path / "tree.c").read_text()


def test_verify_detects_a_changed_condition_in_readable_c(iris, tmp_path):
    source, header = written_c(iris, tmp_path)
    right = source.read_text()
    for wrong in (right.replace("<=", ">=", 1), right.replace("return TREE_SETOSA", "return 7")):
        source.write_text(wrong)
        assert verify(iris, [source]).artifacts[0].differing > 0
    source.write_text(right.replace("{", "{ *(volatile int *)0 = 1;", 1))
    assert "exit code" in verify(iris, [source]).artifacts[0].error
    source.write_text(right)
    header.write_text(header.read_text().replace("column 3:", "column 9:"))
    assert "differs from the model in columns" in verify(iris, [source]).artifacts[0].error


def test_c_of_a_float_model_needs_no_double_on_a_small_processor(tmp_path):
    model = treekit.train(
        {"x": [1.5, 2.5, None, 4.0], "y": [1, 2, 3, 5], "z": list("abab")}, "z", seed=0
    )
    source, _ = written_c(model, tmp_path)
    need("arm-none-eabi-gcc")
    flags = ("-mcpu=cortex-m0", "-mthumb", "-Os", "-std=c99")
    subprocess.run(["arm-none-eabi-gcc", *flags, "-c", source, "-o", tmp_path / "m0.o"], check=True)
    symbols = subprocess.run(
        ["arm-none-eabi-nm", "-u", tmp_path / "m0.o"], check=True, capture_output=True, text=True
    ).stdout
    assert "__aeabi_f" in symbols
    assert "__aeabi_d" not in symbols


CORTEX_M0 = r"""
#include "tree.h"
static const float lengths[] = { LENGTHS };
static const float widths[] = { WIDTHS };
static int call_host(int operation, const void *argument)
{
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}
static void run(void)
{
    for (int i = 0; i < (int)(sizeof lengths / sizeof *lengths); i++) {
        struct tree_row row = { lengths[i], widths[i] };
        char label = (char)('0' + (int)tree_predict(&row));
        call_host(3, &label); /* SYS_WRITEC */
    }
    call_host(0x18, (void *)0x20026); /* SYS_EXIT: ADP_Stopped_ApplicationExit */
    for (;;)
        ;
}
__attribute__((section(".vectors"), used)) static void *const vectors[] = {
    (void *)0x20004000, (void *)run
};
"""


def test_readable_c_runs_on_an_emulated_cortex_m0(tmp_path):
    need("arm-none-eabi-gcc", "qemu-system-arm")
    frame = load_iris(as_frame=True).frame
    model = treekit.train(frame, "target", max_depth=3, seed=0)
    source, header = written_c(model, tmp_path)
    members = re.findall(r"float (\w+);", header.read_text())
    assert members == ["petal_length_cm", "petal_width_cm"]
    rows = frame[["petal length (cm)", "petal width (cm)"]].to_numpy(np.float32).copy()
    rows[::7, 0] = rows[::11, 1] = np.nan
    lengths, widths = (
        ", ".join("0.0f / 0.0f" if x != x else f"{x}f" for x in column) for column in rows.T
    )
    main = CORTEX_M0.replace("LENGTHS", lengths).replace("WIDTHS", widths)
    (tmp_path / "main.c").write_text(main)
    flags = ("-mcpu=cortex-m0", "-mthumb", "-Os", "-std=gnu99", "-nostdlib")
    layout = ("-Wl,--section-start=.vectors=0", "-Wl,-Ttext=0x100", "-Wl,-e,0")
    program = tmp_path / "m0.elf"
    command = ["arm-none-eabi-gcc", *flags, *layout, tmp_path / "main.c", source]
    command += ["-lgcc", "-o", program]
    subprocess.run(command, check=True)
    emulator = ["qemu-system-arm", "-M", "microbit", "-nographic", "-monitor", "none"]
    emulator += ["-serial", "none", "-semihosting-config", "enable=on,target=native"]
    done = subprocess.run(
        [*emulator, "-kernel", program], capture_output=True, timeout=60, check=False
    )
    table = frame.drop(columns="target").assign(
        **{"petal length (cm)": rows[:, 0], "petal width (cm)": rows[:, 1]}
    )
    wanted_labels = "".join(map(str, model.predict(table).tolist()))
    assert (done.stdout + done.stderr).decode() == wanted_labels


@given(models())
def test_readable_c_is_equal_to_its_model(tmp_path_factory, model):
    if explain_unreadable_c(model, lower_unless_fractional(model)):
        return
    folder = tmp_path_factory.mktemp("readable")
    source, _ = written_c(model, folder)
    assert verify(model, [source], random_rows=50).exit_code == 0


@given(models())
def test_readable_javascript_is_equal_to_its_model(tmp_path_factory, model):
    need("node")
    if reason_of(model):
        return
    (path,) = export(model, "javascript", tmp_path_factory.mktemp("readable") / "tree")
    assert verify(model, [path], random_rows=50).exit_code == 0


@pytest.mark.matrix
def test_java_class_named_like_its_record_compiles(iris, tmp_path):
    need("javac")
    (path,) = export(iris, "java", tmp_path / "Row.java", package="com.example")
    assert "public record Row_(" in path.read_text()
    assert verify(iris, [path]).exit_code == 0


@given(models())
def test_readable_models_are_equal_to_their_code(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("readable")
    path = written(model, folder)
    assert ("predict_proba" in path.read_text()) == (
        bool(reason_of(model)) and model.schema.task == "classification"
    )
    assert verify(model, [path], random_rows=50).exit_code == 0


LANGUAGES = {"javascript": "node", "java": "javac", "rust": "rustc", "go": "go"}
CHECKS = {
    "go": (["gofmt", "-l", *(f"m{number}" for number in range(30))], ["go", "vet", "./..."]),
    "java": tuple(
        ["javac", *flags, "-Werror", "-encoding", "UTF-8", "-d", "strict", "@sources"]
        for flags in (["-Xlint:all"], ["-Xlint:-options", "--release", "16"])
    ),
    "rust": tuple(
        ["rustc", "--edition", edition, "-D", "warnings", "--emit=metadata", "main.rs"]
        for edition in ("2018", "2021", "2024")
    ),
}
"""Tools of a language that must not report anything."""


def list_readable_models():
    """Return models that have a readable form: extreme, random, trained, with hostile names."""
    made = [make() for make in EXTREMES.values()]
    for seed in range(24):
        schema = mixed_schema(((), ("no", "yes"), (False, True), (1, 2, 3))[seed % 4])
        made.append(random_model(seed, schema, 1, seed + 1))
    made += [
        treekit.train(demo_table(), DEMO_TARGET, pruner="cost_complexity", seed=0),
        hostile_model(),
    ]
    return [model for model in made if not reason_of(model)]


@pytest.mark.matrix
@pytest.mark.parametrize("language", LANGUAGES)
def test_many_models_are_written_readably_in_other_languages(language, tmp_path):
    need(LANGUAGES[language])
    exporter, all_models = registry.get("exporter", language), list_readable_models()
    assert len(all_models) >= 30
    (tmp_path / "program").mkdir()
    paths = [
        export(model, exporter, tmp_path / f"m{number}")[0]
        for number, model in enumerate(all_models)
    ]
    schemas = [model.schema for model in all_models]
    program = LanguageProgram(exporter.export, paths, schemas, tmp_path / "program")
    rows = [extreme_rows(model, most=300) for model in all_models]
    for model, own, found in zip(all_models, rows, program.predict_rows(rows), strict=True):
        assert not len(differing(wanted(model, own), found)), model
    for command in CHECKS.get(language, ()):
        done = subprocess.run(command, cwd=program.folder, check=False, capture_output=True)
        assert (done.returncode, done.stdout) == (0, b""), (done.stdout + done.stderr)[:2000]


@pytest.mark.parametrize(
    "language", [name if name == "javascript" else later(name) for name in LANGUAGES]
)
def test_iris_is_written_in_40_lines_in_other_languages(language, iris, tmp_path):
    need(LANGUAGES[language])
    (path,) = export(iris, language, tmp_path / "iris")
    right = path.read_text()
    assert len(right.splitlines()) <= 40
    assert verify(iris, [path]).exit_code == 0
    for old, new in (("<=", ">="), ('"setosa"', '"other"')):
        path.write_text(right.replace(old, new, 1))
        assert verify(iris, [path]).artifacts[0].differing > 0
    (path,) = export(iris, language, tmp_path / "iris", form="full")
    assert "Form: if_else; " in path.read_text()


@pytest.mark.parametrize("text", HOSTILE)
def test_names_cannot_close_their_comment(text):
    kept = comment_text(text)
    assert not set(kept) & set("\"'\\/*\n\r#`{}")
    assert kept.isprintable()


@pytest.mark.parametrize("words", ["snake", "camel", "pascal"])
@pytest.mark.parametrize("unicode", [True, False])
def test_names_become_distinct_identifiers(unicode, words):
    reserved = frozenset({"row", "class", "nan"})
    language = Language("python", unicode=unicode, words=words, reserved=reserved)
    names = [str(name) for name in readable_names(HOSTILE, language, range(len(HOSTILE)))]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name not in reserved for name in names)
    assert ({"色泽", "X色泽"} & set(names) != set()) == unicode


def hostile_model():
    """Make a tree that tests a number and a category under every hostile name."""
    columns = [Column(name or "empty") for name in HOSTILE]
    levels = tuple(name for name in HOSTILE if name not in ("1", "nan"))
    columns += [Column(f"{name}?", "nominal", levels) for name in HOSTILE]
    schema = Schema(tuple(columns), target='"""\n*/', classes=tuple(HOSTILE))
    root = leaf([0, 1] + [0] * (len(HOSTILE) - 2))
    for number in range(len(HOSTILE)):
        votes = [0] * len(HOSTILE)
        votes[number] = number + 1
        root = threshold(number, float(number), leaf(votes), root, missing=number % 2)
        level = levels[number % len(levels)]
        root = subset(len(HOSTILE) + number, [level], leaf(votes[::-1]), root, missing=1)
    return make_model(schema, [build_tree(root, schema)])


def test_hostile_names_are_escaped(tmp_path):
    model = hostile_model()
    path = written(model, tmp_path)
    functions = [
        part.name for part in ast.parse(path.read_text()).body if isinstance(part, ast.FunctionDef)
    ]
    assert functions == ["f32", "predict"]
    assert verify(model, [path]).exit_code == 0
    source, header = written_c(model, tmp_path)
    assert "/* column 9: 色泽 */" in header.read_text()
    assert verify(model, [source]).exit_code == 0


def test_enumerators_of_c_are_distinct(tmp_path):
    levels = ("b_c", "H", "b c", "青绿", "<5", ">5")
    schema = Schema(
        (Column("a", "nominal", levels), Column("a_b", "nominal", ("c", "C", "Missing"))),
        classes=("H", "a_h", "A_B_C"),
    )
    root = subset(
        "a",
        ["b_c", "青绿"],
        leaf([1, 0, 0]),
        subset("a_b", ["c"], leaf([0, 1, 0]), leaf([0, 0, 1])),
    )
    model = make_model(schema, [build_tree(root, schema)])
    source, header = written_c(model, tmp_path)
    assert "/* 青绿 */" in header.read_text()
    assert "TREE_A_B_MISSING_ = -1" in header.read_text()
    assert verify(model, [source]).exit_code == 0


def test_cpp_calls_readable_c_with_a_missing_category(tmp_path):
    need("g++")
    model = treekit.train(demo_table(), DEMO_TARGET, pruner="cost_complexity", seed=0)
    written_c(model, tmp_path)
    rows = {"pain": [None, "alert no pain"], "abdomen": [None, None]}
    labels = model.predict({name: [None, None] for name in model.schema.names} | rows)
    wanted = ", ".join(f"TREE_{label.upper()}" for label in labels)
    (tmp_path / "main.cpp").write_text(
        '#include "tree.h"\nint main() {\n'
        "    tree_row rows[] = {{TREE_PAIN_MISSING, TREE_ABDOMEN_MISSING},\n"
        "        {TREE_PAIN_ALERT_NO_PAIN, TREE_ABDOMEN_MISSING}};\n"
        f"    tree_class wanted[] = {{{wanted}}};\n"
        "    return tree_predict(rows) != wanted[0] || tree_predict(rows + 1) != wanted[1];\n}\n"
    )
    program = tmp_path / "main"
    files = [tmp_path / "main.cpp", tmp_path / "tree.o"]
    flags = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(["g++", *flags, *files, "-o", program], check=True)
    subprocess.run([program], check=True)


PAGE = Path(__file__).parents[2] / "examples" / "readable_code.md"
MELONS = PAGE.parent / "tables" / "watermelon" / "watermelon_3.0.csv"
NAMES = {
    "python": "Python",
    "c": "C",
    "javascript": "JavaScript",
    "java": "Java",
    "rust": "Rust",
    "go": "Go",
}


def write_page(folder):
    """Write the page of examples: two trees in every language."""
    frame = load_iris(as_frame=True).frame
    frame["target"] = load_iris().target_names[frame["target"]]
    trees = {
        "Iris": treekit.train(frame, "target", max_depth=3, seed=0),
        "Watermelons": treekit.train(MELONS, "好瓜", ignore=["编号"], seed=0),
    }
    parts = [
        "# Trees as code",
        "Two trees as `treekit export` writes them by default: nested tests on named columns.\n"
        "`--set form=full` adds probabilities, leaves and tables of rows. This page is\n"
        "written by `python -m tests.export.test_readable`.",
    ]
    for title, model in trees.items():
        for language in ("python", "c", *LANGUAGES):
            parts.append(f"## {title} in {NAMES[language]}")
            name = title if language == "java" else title.lower()
            paths = export(model, language, folder / name)
            assert verify(model, [paths[0]]).exit_code == 0
            parts += [f"```{language}\n{path.read_text().rstrip()}\n```" for path in paths[::-1]]
    return "\n\n".join(parts) + "\n"


@pytest.mark.matrix
def test_examples_page_shows_trees_in_every_language(tmp_path):
    need(*LANGUAGES.values())
    assert PAGE.read_text() == write_page(tmp_path), "run python -m tests.export.test_readable"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        PAGE.write_text(write_page(Path(place)), encoding="utf-8")
