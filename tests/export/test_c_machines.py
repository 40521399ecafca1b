"""C source on other compilers and processors, without floating point, and its stated sizes."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris

import treekit
from tests.extremes import EXTREMES, extreme_rows, refused, wanted
from tests.reference.artifacts import STRICT, compile_together
from tests.runtimes import need
from treekit.export import c as c_answers
from treekit.export import export
from treekit.export.c import export_c
from treekit.export.c import layouts as c_packed
from treekit.model import tree as tree_module
from treekit.model.model import Model
from treekit.model.tree import make_derived_columns
from treekit.verify import run_c
from treekit.verify.answers import differing
from treekit.verify.runtime import Job

# ---------------------------------------------------------------- c machines

EVERY_WARNING = [*STRICT, "-Wshadow"]
WAYS = {
    "table": {"form": "table"},
    "if_else": {"form": "if_else"},
    "integer": {"form": "table", "arithmetic": "integer"},
    "integer_if_else": {"form": "if_else", "arithmetic": "integer"},
    "float": {"form": "table", "input": "float"},
    "hybrid": {"form": "hybrid"},
    "integer_hybrid": {"form": "hybrid", "arithmetic": "integer"},
    "compact": {"form": "compact"},
    "integers_compact": {"form": "compact", "arithmetic": "integer"},
}
# Every helper and every part of a source is in one of them.
VARIED = ("mixed", "surrogates", "several_labels", "refuses_both", "costs", "wide_numbers")
LINKS = ("boosted_four", "boosted_share", "linked_means")
"""One model of each link, of margins and of means, of both types of numbers."""


def has_form(model: Model, way: str) -> bool:
    if model.missing == "fractional" and way.endswith(("if_else", "hybrid")):
        return False
    if "compact" in way and (
        model.missing == "fractional" or make_derived_columns(model).n_columns
    ):
        return False
    if way == "float" and model.schema.dtype == "float64":
        return False
    return "integer" not in way or not any(len(tree.term_weight) for tree in model.trees)


def written(folder: Path, ways: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """Stems of the sources of some extreme models in some ways, which ``all.c`` has, too."""
    stems = []
    for name in names:
        model = EXTREMES[name]()
        for way in ways:
            if has_form(model, way):
                stems.append(f"{name}_{way}")
                for file, content in export_c(model, stems[-1], **WAYS[way]).items():
                    (folder / file).write_bytes(content)
    with (folder / "all.c").open("a") as together:
        together.writelines(f'#include "{stem}.c"\n' for stem in stems)
    return stems


def compiles(folder: Path, *command: str) -> None:
    need(command[0])
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    assert done.stderr == ""


@pytest.mark.parametrize(
    "compiler",
    [
        pytest.param("gcc", marks=pytest.mark.matrix),
        pytest.param("clang", marks=pytest.mark.system),
    ],
)
def test_compilers_give_no_warnings(tmp_path, compiler):
    need(compiler)
    written(tmp_path, tuple(WAYS), ("mixed", "surrogates", "several_labels"))
    some = ("refuses_both", "costs", "wide_numbers", "oblique", "fractional", *LINKS)
    written(tmp_path, ("table", "hybrid", "integer_if_else"), some)
    compiles(tmp_path, compiler, *EVERY_WARNING, "-O2", "-c", "all.c")
    for standard in ("c11", "c17"):
        compiles(
            tmp_path, compiler, f"-std={standard}", *EVERY_WARNING[1:], "-fsyntax-only", "all.c"
        )


@pytest.mark.system
def test_header_is_usable_from_cpp(tmp_path):
    need("clang")
    stems = written(tmp_path, ("table", "integer"), ("mixed", "several_labels"))
    text = "".join(f'#include "{stem}.h"\n' for stem in stems)
    (tmp_path / "main.cpp").write_text(
        f"{text}int main() {{ return mixed_table_predict(nullptr, nullptr); }}\n"
    )
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-c"]
    compiles(tmp_path, "clang", "-x", "c++", *flags, "main.cpp")
    names = subprocess.run(
        ["nm", "main.o"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "U mixed_table_predict\n" in names.stdout


def answers_on(runtime: str, model: Model, folder: Path, rows: np.ndarray, **settings: str) -> None:
    """Run a source as verify does, and compare each bit; skip without the compiler."""
    need(EMULATED.get(runtime, runtime))
    (found,) = [one for one in run_c.C_RUNTIMES if one.name == runtime]
    assert found.why_unavailable(folder) == ""
    export(model, "c", folder / "m.c", **settings)
    (folder / "job").mkdir()
    answers, gone = wanted(model, rows), refused(model, rows)
    modes = []
    for mode, given in found.run(Job(folder / "m.c", model.schema, folder / "job"), rows):
        modes.append(mode)
        assert len(differing(answers, given)) == 0, mode
        assert ((given.label[:, 0] == -1) == gone).all()
    assert modes == ["single", "batch"]


EMULATED = {
    "qemu-arm": "arm-linux-gnueabi-gcc",
    "qemu-aarch64": "aarch64-linux-gnu-gcc",
    "qemu-s390x": "s390x-linux-gnu-gcc",
}


@pytest.mark.system
@pytest.mark.parametrize("runtime", EMULATED)
@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("mixed", "table"),
        ("mixed64", "integer"),
        ("refuses_both", "integer"),
        ("oblique", "hybrid"),
        ("mixed", "integers_compact"),
        ("mixed64", "compact"),
    ],
)
def test_other_processors_predict_the_same_bits(runtime, name, way, tmp_path):
    """An ARM without floating point, a 64-bit one, and one of the other byte order."""
    need(runtime, EMULATED[runtime])
    model = EXTREMES[name]()
    answers_on(runtime, model, tmp_path, extreme_rows(model, most=60), **WAYS[way])


FUSED = re.compile(r"\bv?f?n?m(add|sub|la|ls|adb|sdb|adbr|sdbr)\w*\b")
"""Instructions that multiply and add, and round once, of the processors below."""


@pytest.mark.parametrize(
    ("compiler", "flags"),
    [
        pytest.param("gcc", ["-mfma"], marks=pytest.mark.matrix),
        pytest.param("clang", ["-mfma"], marks=pytest.mark.system),
        pytest.param("aarch64-linux-gnu-gcc", [], marks=pytest.mark.system),
        pytest.param("s390x-linux-gnu-gcc", [], marks=pytest.mark.system),
    ],
)
def test_compilers_do_not_fuse_multiply_and_add_in_links(compiler, flags, tmp_path):
    """They do so by default where no ISO standard is asked for; fused sums round once less."""
    need(compiler)
    if flags and not here("x86_64"):
        flags = []
    fusing = [compiler, "-std=gnu99", "-O3", "-ffp-contract=fast", *flags, "-S"]
    (tmp_path / "sum.c").write_text("double f(double a, double b, double c) { return a * b + c; }")
    compiles(tmp_path, *fusing, "sum.c")
    assert FUSED.search((tmp_path / "sum.s").read_text())
    written(tmp_path, ("table",), LINKS)
    compiles(tmp_path, *fusing, "all.c")
    assert not FUSED.search((tmp_path / "all.s").read_text())


def here(processor: str) -> bool:
    """Whether programs of this machine's gcc run on such a processor."""
    need("gcc")
    told = subprocess.run(["gcc", "-dumpmachine"], capture_output=True, text=True, check=True)
    return bool(re.match(processor, told.stdout))


@pytest.mark.system
@pytest.mark.parametrize("runtime", ["clang", *EMULATED])
def test_links_give_the_same_bits_on_every_processor(runtime, tmp_path):
    need(*([runtime, EMULATED[runtime]] if runtime in EMULATED else [runtime]))
    model = EXTREMES["boosted_four"]()
    answers_on(runtime, model, tmp_path, extreme_rows(model, most=60))


@pytest.mark.system
def test_integer_arithmetic_has_no_floating_point_at_all(tmp_path):
    """Compilers refuse to touch a floating point register, and soft-float calls no helper."""
    need("arm-linux-gnueabi-gcc")
    written(tmp_path, ("integer", "integer_if_else", "integer_hybrid"), ("mixed", "surrogates"))
    others = (*VARIED[2:], "mixed64", "fractional", "fractional_numbers", *LINKS)
    written(tmp_path, ("integer",), others)
    if here("x86_64|aarch64"):
        compiles(tmp_path, "gcc", *EVERY_WARNING, "-O2", "-mgeneral-regs-only", "-c", "all.c")
    compiles(tmp_path, "arm-linux-gnueabi-gcc", *EVERY_WARNING, "-O2", "-c", "all.c")
    told = subprocess.run(
        ["nm", "--undefined-only", "all.o"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    called = set(re.findall(r"U (\S+)", told.stdout))
    assert called <= {"__aeabi_lmul", "memset", "memcpy", "__aeabi_unwind_cpp_pr0"}
    assert not re.search("float|double", without_comments((tmp_path / "all.c").parent))


def without_comments(folder: Path) -> str:
    text = "".join(path.read_text() for path in folder.glob("*_integer*.[ch]"))
    return re.sub(r'"[^"\n]*"', "", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))


@pytest.mark.parametrize(
    "names",
    [
        ("mixed", "oblique", "fractional"),
        pytest.param((*VARIED[1:], "thousand_classes"), marks=pytest.mark.matrix),
    ],
    ids=["few", "others"],
)
def test_stated_bytes_of_tables_equal_the_object_file(names, tmp_path):
    sources = {
        f"{name}_{way}": (EXTREMES[name](), WAYS[way])
        for name in names
        for way in (
            ("table", "if_else", "integer", "hybrid", "compact", "integers_compact")
            if name != "thousand_classes"
            else ("table", "compact")
        )
        if has_form(EXTREMES[name](), way)
    }
    programs = compile_together(sources, tmp_path)
    library = next(iter(programs.values())).library._name
    command = ["nm", "-S", "--defined-only", library]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    sizes = {name: int(size, 16) for size, name in re.findall(r"\w+ (\w+) r (\w+)\n", told)}
    for stem, program in programs.items():
        stated = macro((tmp_path / f"{stem}.h").read_text(), "TABLE_BYTES")
        assert program.function("bytes", ctypes.c_size_t)() == stated
        others = re.compile(f"{stem}_(level_starts|level_codes|\\w+_names|level_texts)")
        own = {name: size for name, size in sizes.items() if name.startswith(f"{stem}_")}
        assert sum(size for name, size in own.items() if not others.fullmatch(name)) == stated, stem


def macro(header: str, name: str, at: int = 0) -> int:
    """Number of a macro; of one for each word size: the first is for 64-bit processors."""
    text = re.findall(rf"^#define \w+?_{name} (.*)$", header, re.MULTILINE)[0]
    sizes = re.fullmatch(r"\(sizeof\(char \*\) > 4 \? (\d+) : (\d+)\)", text)
    return int(sizes[1 + at] if sizes else text)


PROCESSORS = {"gcc": 0, "arm-none-eabi-gcc": 1}
"""Compilers, and which of two stated sizes is for their processors."""
M0 = ("-mcpu=cortex-m0", "-mthumb")


def deepest_stacks(folder: Path, stem: str, compiler: str) -> dict[str, int]:
    """Bytes of the deepest chain of calls below each entry point, the larger of -O2 and -Os."""
    own = M0 if compiler.startswith("arm-none") else ()
    deepest: dict[str, int] = {}
    for optimise in ("-O2", "-Os"):
        flags = ("-std=c99", optimise, *own, "-fcallgraph-info=su")
        compiles(folder, compiler, *flags, "-c", f"{stem}.c", "-o", f"{stem}.o")
        graph = (folder / f"{stem}.ci").read_text()
        frames = {
            name: int(size)
            for name, size in re.findall(
                r'title: "([^"]+)" label: "[^"]*\\n(\d+) bytes \(static\)', graph
            )
        }
        edges = re.findall(r'sourcename: "([^"]+)" targetname: "([^"]+)"', graph)
        chains: dict[str, int] = {}

        def find(name: str) -> int:
            if name not in chains:  # noqa: B023
                below = [find(callee) for caller, callee in edges if caller == name]  # noqa: B023
                chains[name] = frames.get(name, 0) + max(below, default=0)  # noqa: B023
            return chains[name]  # noqa: B023

        for entry in ("predict", "leaf", "predict_batch", "predict_label", "predict_labels"):
            if f"{stem}_{entry}" in frames:
                deepest[entry] = max(deepest.get(entry, 0), find(f"{stem}_{entry}"))
    return deepest


def compare_stack(folder: Path, stem: str, compiler: str) -> tuple[float, float]:
    """Stack stated for a row and for a batch, as a share of what the compiler uses."""
    header, at = (folder / f"{stem}.h").read_text(), PROCESSORS[compiler]
    used = deepest_stacks(folder, stem, compiler)
    batch = used.pop("predict_batch")
    row = macro(header, "STACK_BYTES", at) / max(used.values())
    return row, macro(header, "BATCH_STACK_BYTES", at) / batch


@pytest.mark.matrix
@pytest.mark.parametrize("compiler", PROCESSORS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_stack_of_the_header_is_at_most_twice_what_gcc_uses(compiler, dtype, tmp_path):
    need(compiler)
    classes = load_iris(as_frame=True).frame.astype({"target": str})
    numbers = load_diabetes(as_frame=True).frame
    settings = {"seed": 0, "dtype": dtype, "max_depth": 5}
    forest = {"ensemble": "forest", "trees": 20}
    models = {
        "tree": treekit.train(classes, "target", **settings),
        "forest": treekit.train(classes, "target", **settings, **forest),
        "regression_tree": treekit.train(numbers, "target", **settings),
        "regression_forest": treekit.train(numbers, "target", **settings, **forest),
    }
    for name, model in models.items():
        for form in ("table", "if_else", "compact"):
            stem = f"{name}_{form}"
            for file, content in export_c(model, stem, form=form).items():
                (tmp_path / file).write_bytes(content)
            for share in compare_stack(tmp_path, stem, compiler):
                assert 1.0 <= share <= 2.0, stem


@pytest.mark.matrix
@pytest.mark.parametrize("compiler", PROCESSORS)
def test_the_stack_is_not_deeper_than_the_header_states(compiler, tmp_path):
    need(compiler)
    every = ("table", "if_else", "integer", "hybrid", "compact", "integers_compact")
    stems = written(tmp_path, every, ("mixed", "mixed64", "fractional", "boosted_two", "costs"))
    stems += written(tmp_path, ("table", "hybrid"), ("oblique", "surrogates", "refuses_both"))
    stems += written(tmp_path, ("table", "integer"), ("thousand_classes", "several_labels"))
    stems += written(tmp_path, ("if_else", "hybrid"), ("deep_right", "linked_means"))
    for stem in stems:
        assert min(compare_stack(tmp_path, stem, compiler)) >= 1.0, stem


SOFT_DOUBLE = re.compile(r"__(aeabi_(d\w+|c?dcmp\w+|f2d|u?[il]2d|ul2d)|\w+df\w*)$")
"""Helpers of libgcc that compute with doubles, or convert to them."""


def link_for_m0(folder: Path, body: str) -> list[str]:
    """Symbols of a program for a Cortex-M0, without the functions that it does not call."""
    (folder / "main.c").write_text(f'#include "m.h"\nint main(void)\n{{\n    {body}\n}}\n')
    flags = ("-std=c99", "-Os", *M0, "-ffunction-sections", "-fdata-sections", "-nostdlib")
    link = ("-Wl,--gc-sections", "-Wl,-emain", "main.c", "m.c", "-lgcc", "-lc", "-lgcc")
    compiles(folder, "arm-none-eabi-gcc", *flags, *link, "-o", "m.elf")
    symbols = subprocess.run(
        ["arm-none-eabi-nm", "m.elf"], cwd=folder, capture_output=True, text=True, check=True
    )
    return [line.split()[-1] for line in symbols.stdout.splitlines()]


@pytest.mark.parametrize("way", ["readable", "if_else", "table", "hybrid", "integer"])
def test_predict_label_links_no_double_arithmetic_on_a_cortex_m0(way, tmp_path):
    need("arm-none-eabi-gcc", "arm-none-eabi-nm")
    table = {"x": [1.5, 2.5, None, 4.0] * 5, "y": [1, 2, 3, 5, 8] * 4}
    table |= {"k": list("pqrs") * 5, "z": list("ab") * 10}
    if way == "readable":
        model, settings = treekit.train(table, "z", seed=0), {}
        body = "static struct m_row row; return (int)m_predict(&row);"
    else:
        model = treekit.train(table, "z", seed=0, ensemble="forest", trees=9)
        settings = {"form": "full"} | WAYS[way]
        settings |= {} if way == "integer" else {"input": "float"}
        cell = "uint32_t" if way == "integer" else "float"
        body = f"static {cell} row[M_FEATURES]; return m_predict_label(row);"
    assert model.schema.dtype == "float32"
    for file, content in export_c(model, "m", **settings).items():
        (tmp_path / file).write_bytes(content)
    names = link_for_m0(tmp_path, body)
    assert ("m_predict" if way == "readable" else "m_predict_label") in names
    assert [name for name in names if SOFT_DOUBLE.match(name)] == []
    if way in ("if_else", "table", "hybrid"):  # shares of votes are doubles
        with_shares = body.replace("m_predict_label(row)", "m_predict(row, (double *)row)")
        assert any(map(SOFT_DOUBLE.match, link_for_m0(tmp_path, with_shares)))


def test_predict_label_returns_the_labels_of_predict(tmp_path):
    """Of one target and of several; -1 where the model refuses a row."""
    names = ("mixed", "costs", "several_labels", "refuses_both", "boosted_four", "fractional")
    sources = {name: (EXTREMES[name](), {"form": "table"}) for name in names}
    for name, program in compile_together(sources, tmp_path).items():
        several = bool(program.model.schema.more)
        rows = np.ascontiguousarray(program.rows(extreme_rows(program.model, most=100)))
        labels, _ = program.answers(rows)
        alone = np.full_like(labels, -1)
        pointers = (ctypes.c_void_p,) * (1 + several)
        predict = program.function(f"predict_label{'s' * several}", ctypes.c_int, *pointers)
        for row, own in zip(rows, alone, strict=True):
            if several:
                predict(row.ctypes.data, own.ctypes.data)
            else:
                own[0] = predict(row.ctypes.data)
        assert np.array_equal(alone, labels), name


def test_very_large_tables_stored_as_strings_predict_equally(tmp_path, monkeypatch):
    for module in (c_packed, c_answers):
        monkeypatch.setattr(module, "MAX_ARRAY_ELEMENTS", 3)
    monkeypatch.setattr(tree_module, "BATCH_NODES", 5)
    names = ("mixed", "mixed64_numbers", "many_levels_in_two", "fractional", "boosted_two")
    programs = compile_together(
        {name: (EXTREMES[name](), {"form": "table"}) for name in names}, tmp_path
    )
    for name, program in programs.items():
        source = (tmp_path / f"{name}.c").read_text()
        assert "[2049] = {" in source
        assert "??" not in source
        rows = extreme_rows(program.model)
        labels, out = program.answers(rows)
        answers = wanted(program.model, rows)
        assert np.array_equal(labels, answers.label[:, : labels.shape[1]])
        assert np.array_equal(out, answers.number)
        assert program.function("bytes", ctypes.c_size_t)() == macro(
            (tmp_path / f"{name}.h").read_text(), "TABLE_BYTES"
        )
