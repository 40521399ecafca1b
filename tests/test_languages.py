"""JavaScript, Java, Rust and Go, and any language that is a folder: equal to the last bit."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import treekit
from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.reference.encode import level_of
from tests.reference.models import chain, mixed_schema, random_model
from tests.runtimes import need
from tests.test_hostile_names import MODEL as HOSTILE_MODEL
from tests.test_hostile_names import tame_model
from treekit.data.schema import Column, Schema, level_text
from treekit.errors import ExportError
from treekit.export.languages import languages
from treekit.export.literals import Limits, Tables
from treekit.export.lowering import Step, lower
from treekit.export.nested_tests import nested
from treekit.export.render import shipped_folders
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.model.scoring import leaf_indices
from treekit.testing import check_exporter
from treekit.verify.answers import differing
from treekit.verify.run_language import Program

RUNTIMES = {"javascript": ("node",), "java": ("javac",), "rust": ("rustc",), "go": ("go",)}
SHIPPED = {exporter.name: exporter for exporter in languages(shipped_folders()[0])}
CHECKS = {
    "go": (["gofmt", "-l", "."], ["go", "vet", "./m{}"]),
    "java": (["javac", "-Xlint:all", "-Werror", "-d", "strict", "m{0}/m{0}.java"],),
}
"""What more the tools of a language have to say, of some artifacts: no word, or a test fails."""
SOME = range(0, 60, 7)


def boosted(link: str, classes: tuple[str, ...], combine: str = "sum") -> Model:
    """Six small trees whose values add up, of margins or of numbers, and a link."""
    schema, rng, trees = mixed_schema(classes), np.random.default_rng(len(link)), []
    for _ in range(6):
        values = rng.normal(size=(3, schema.n_values)) * (4 if classes else 300)
        if len(classes) == 2:
            values[:, 0] = 0.0
        first, second, third = (leaf(row.tolist() if classes else row[0]) for row in values)
        node = threshold(
            "size",
            float(np.float32(rng.normal())),
            first,
            subset("colour", ["red"], second, third),
        )
        trees.append(build_tree(node, schema, margins=True))
    return make_model(schema, trees, combine=combine, link=link)


def models() -> Iterator[tuple[str, Model, str]]:
    """Every extreme model in the form that suits it, and some in both."""
    for number, (name, make) in enumerate(EXTREMES.items()):
        yield name, make(), "auto"
        if number % 8 == 0 or name in ("oblique", "surrogates", "mixed", "many_levels_in_two"):
            yield f"{name}, as tables", make(), "table"
    for link in ("softmax", "sigmoid"):
        for classes in (("a", "b"), ("a", "b", "c")):
            yield f"{link} of {len(classes)}", boosted(link, classes), "auto"
    for link in ("identity", "exp", "sigmoid"):
        yield f"{link} of sums", boosted(link, ()), "auto"
        yield f"{link} of means", boosted(link, (), "mean"), "auto"


@pytest.mark.matrix
@pytest.mark.parametrize("language", SHIPPED)
def test_every_extreme_model_is_answered_with_equal_bits(language, tmp_path):
    need(*RUNTIMES[language])
    exporter, cases = SHIPPED[language], list(models())
    (tmp_path / "program").mkdir()
    paths = [
        treekit.export(model, exporter, tmp_path / f"m{number}", form=form)[0]
        for number, (_, model, form) in enumerate(cases)
    ]
    schemas = [model.schema for _, model, _ in cases]
    program = Program(exporter.export, paths, schemas, tmp_path / "program")
    rows = [extreme_rows(model, most=400) for _, model, _ in cases]
    for (name, model, _), own, told in zip(cases, rows, program.answers(rows), strict=True):
        assert not len(differing(wanted(model, own), told)), name
    for *command, files in CHECKS.get(language, ()):
        asked = [*command, *dict.fromkeys(map(files.format, SOME))]
        done = subprocess.run(asked, cwd=program.folder, check=False, capture_output=True)
        assert (done.returncode, done.stdout) == (0, b""), (done.stdout + done.stderr)[:2000]
    if language == "rust":
        modules = "".join(f"pub mod m{number};\n" for number in range(len(cases)))
        alone = "#![no_std]\n#![forbid(unsafe_code)]\n#![deny(warnings)]\n" + modules
        (program.folder / "alone.rs").write_text(alone, encoding="utf-8")
        command = ["rustc", "--edition", "2021", "--crate-type=lib", "--emit=metadata", "alone.rs"]
        subprocess.run(command, cwd=program.folder, check=True)


@pytest.mark.matrix
@pytest.mark.parametrize("language", SHIPPED)
@pytest.mark.parametrize("form", ["table", "if_else"])
def test_hostile_names_are_ascii_text_and_change_nothing_else(language, form):
    exporter = SHIPPED[language]
    hostile, tame = (
        next(iter(exporter.export(model, "m", form=form).values())).decode("ascii")
        for model in (HOSTILE_MODEL, tame_model())
    )
    assert set(hostile) <= {"\n", "\t", *map(chr, range(32, 127))}
    assert hostile != tame
    assert without_names(hostile) == without_names(tame)


def without_names(source: str) -> str:
    """Source without literals, identifiers of columns, lengths of texts, and orders of levels."""
    source = re.sub(r'"(\\.|[^"\\\n])*"', "S", source)
    source = re.sub(r"\b(in|IN)_\w+", "C", source)
    source = re.sub(r"(S,?\s*)+", "S ", source)
    source = re.sub(r"texts\(new int\[\] \{[^}]*\}", "T", source)
    return re.sub(r"(LEVEL_ORDER[^=]*= [^;]*);", "O", source)


def test_what_a_language_s_limits_forbid_is_refused_by_name(tmp_path):
    java, deep = SHIPPED["java"], chain(3000, mixed_schema())
    with pytest.raises(ExportError, match=r"writes up to 4000 nodes.*the model has 6001"):
        java.export(deep, "m", form="if_else")
    with pytest.raises(ExportError, match=r"'a-b\.java'.*call it 'a_b\.java'"):
        java.export(deep, "a-b")
    with pytest.raises(ExportError, match=r"call it 'class_\.java'"):
        java.export(deep, "class")
    for package in ("com..x", "1x", "com.x;", "a b", "com.int"):
        with pytest.raises(ExportError, match="package="):
            java.export(deep, "m", package=package)
    assert b"\npackage com.example;\n" in java.export(deep, "m", package="com.example")["m.java"]
    assert b"\npackage type_\n" in SHIPPED["go"].export(deep, "type")["type.go"]
    narrow = replace(java.export.profile.literals.limits, table_bytes=10_000)
    tables = Tables(replace(java.export.profile.literals, limits=narrow))
    with pytest.raises(ExportError, match="more than the 10000 bytes that this target compiles"):
        tables(np.zeros(2000))


def test_large_tables_are_text_of_their_bytes_and_small_ones_are_numbers():
    language = replace(
        SHIPPED["go"].export.profile.literals, limits=Limits(elements=100, literal=96)
    )
    few, many = Tables(language), Tables(language)
    assert few(np.arange(70)).form == "elements"
    numbers = {
        "f64": np.linspace(-1, 1, 80) * 5e-324 + 0.1,
        "i32": np.arange(-40, 40) * 2**24,
        "i64": np.arange(-40, 40) * 2**40,
        "u32": np.arange(80) * 2**25,
    }
    arrays = [many(values, kind) for kind, values in numbers.items()]
    for array, (kind, values) in zip(arrays, numbers.items(), strict=True):
        assert array.form == "packed"
        assert all(len(piece) <= 98 for piece in array.packed)
        content = b"".join(base64.b64decode(piece[1:-1]) for piece in array.packed)
        read = np.frombuffer(content, dtype=f"<{kind[0]}{int(kind[1:]) // 8}")
        assert read.tolist() == values.tolist()
        assert len(base64.b64decode(array.packed[0][1:-1])) == array.each * int(kind[1:]) // 8


def test_functions_of_nested_tests_keep_within_depth_and_size():
    model = random_model(3, mixed_schema(), n_trees=1, n_splits=300)
    (tree,) = lower(model)
    for deepest, most in ((16, 20), (3, None), (1000, 7)):
        functions = nested(tree, deepest, most)
        tests = [[line for line in lines if line.op == "test"] for lines in functions]
        assert sum(map(len, tests)) == np.count_nonzero(tree.kind != Step.LEAF)
        assert max(map(len, tests)) <= (most or tree.n_nodes)
        assert max(line.depth for lines in functions for line in lines) <= deepest
        called = [line.at for lines in functions for line in lines if line.op == "call"]
        assert sorted(called) == list(range(1, len(functions)))


@pytest.mark.matrix
def test_the_laws_of_exporters_hold():
    need("node")
    check_exporter("javascript")


NAMED_ROWS = """\
import * as m from "./m.mjs";
import { readFileSync } from "node:fs";
for (const cell of JSON.parse(readFileSync(0, "utf8"))) {
  console.log(m.predict({ size: 0, cp: cell }), m.predict(new Map([["cp", cell]])));
  console.log(m.levelCode(1, cell));
}
for (const row of [{ cp: null }, { cp: undefined }, { cp: NaN }, {}, [0, null], [0, undefined]]) {
  console.log(m.predict(row));
}
m.levels[1].forEach((text, code) => console.log(m.predict([0, code]), m.predict([0, text])));
const refused = [{ size: true }, { size: "1" }, { age: 1 }, [0], [0, true], [0, {}], "ab", 4, null];
for (const row of refused) {
  try {
    console.log(m.predict(row));
  } catch (error) {
    console.log(error.constructor.name);
  }
}
"""


@pytest.mark.matrix
def test_a_number_in_a_row_with_names_is_a_category_and_in_an_array_a_code(tmp_path):
    need("node")
    cells = [*(4, 4.0, 1, 0, -0.0, -3, 2.5, 0.1, 1e-4, 1.5e-5, -1e-7, 1e-10, 5e-324, 1e16, 1e21)]
    cells += [2.0**70, 1.7976931348623157e308, 123456.789, True, False]
    # Levels in an order in which no code is the category of that number.
    levels = list(dict.fromkeys(str(level_text(cell)) for cell in cells))
    levels = [*levels, "2", "3", "null", "undefined", "NaN"]
    schema = Schema((Column("size"), Column("cp", "nominal", tuple(levels))), task="regression")
    node = leaf(-1.0)
    for code, level in enumerate(levels):
        node = subset("cp", [level], leaf(float(code)), node)
    (tmp_path / "main.mjs").write_text(NAMED_ROWS, encoding="utf-8")
    model = make_model(schema, [build_tree(node, schema)])
    treekit.export(model, "javascript", tmp_path / "m.mjs")
    asked = [*cells, 5, 7.5, 1e300, "4", "True", "true", "4.0", "unheard of", None]
    command = ["node", "main.mjs"]
    done = subprocess.run(
        command, cwd=tmp_path, input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    codes = [-1 if (at := level_of(cell, levels)) is None else at for cell in asked]
    wanted = [f"{code} {code}\n{code}" for code in codes] + ["-1"] * 6
    wanted += [f"{code} {code}" for code in range(len(levels))] + ["TypeError"] * 9
    assert done.stdout.split("\n") == [*"\n".join(wanted).split("\n"), ""]


LEAVES = {
    "javascript": (
        "m.mjs",
        "main.mjs",
        """\
import * as m from "./m.mjs";
import { readFileSync } from "node:fs";
for (const line of readFileSync(0, "utf8").trim().split("\\n")) {
  console.log(m.leaves(line.split(" ").map(Number)).join(" "));
}
""",
        [["node", "main.mjs"]],
    ),
    "go": (
        "m/m.go",
        "main.go",
        """\
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"x/m"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		x := []float64{}
		for _, cell := range strings.Fields(lines.Text()) {
			number, _ := strconv.ParseFloat(cell, 64)
			x = append(x, number)
		}
		nodes, _ := m.Leaves(x)
		fmt.Println(strings.Trim(fmt.Sprint(nodes), "[]"))
	}
}
""",
        [["go", "mod", "init", "x"], ["go", "build", "-o", "main", "."], ["./main"]],
    ),
    "rust": (
        "m.rs",
        "main.rs",
        """\
mod m;
fn main() {
    for line in std::io::stdin().lines() {
        let mut x = [0.0; m::FEATURES];
        for (cell, text) in x.iter_mut().zip(line.unwrap().split(' ')) {
            *cell = text.parse().unwrap();
        }
        let nodes = m::leaves(&x).unwrap();
        println!("{}", nodes.map(|node| node.to_string()).join(" "));
    }
}
""",
        [["rustc", "--edition", "2021", "-D", "warnings", "main.rs"], ["./main"]],
    ),
    "java": (
        "m.java",
        "Main.java",
        """\
public class Main {
    public static void main(String[] arguments) {
        new java.util.Scanner(System.in).useDelimiter("\\n").forEachRemaining(line -> {
            double[] x = new double[m.FEATURES];
            String[] cells = line.split(" ");
            for (int i = 0; i < x.length; i++) {
                x[i] = Double.parseDouble(cells[i]);
            }
            StringBuilder told = new StringBuilder();
            for (int node : m.leaves(x)) {
                told.append(node).append(' ');
            }
            System.out.println(told);
        });
    }
}
""",
        [["javac", "Main.java", "m.java"], ["java", "Main"]],
    ),
}
"""Where a model goes, and a program that reads rows as text and prints the leaves of each."""


@pytest.mark.matrix
@pytest.mark.parametrize("language", LEAVES)
@pytest.mark.parametrize("name", ["mixed", "fractional"])
def test_leaves_are_the_nodes_that_the_model_names(language, name, tmp_path):
    need(*RUNTIMES[language])
    model, (place, main, program, commands) = EXTREMES[name](), LEAVES[language]
    rows = extreme_rows(model, most=200)
    rows[np.isinf(rows)] = 1e308
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (content,) = SHIPPED[language].export(model, "m").values()
    (tmp_path / place).write_bytes(content)
    (tmp_path / main).write_text(program, encoding="utf-8")
    lines = "\n".join(" ".join(map(repr, row)) for row in rows.tolist()).replace("nan", "NaN")
    for command in commands:
        done = subprocess.run(
            command, cwd=tmp_path, input=lines, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    told = [list(map(int, line.split())) for line in done.stdout.splitlines()]
    assert told == leaf_indices(model, rows).tolist()
