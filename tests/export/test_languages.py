"""JavaScript, Java, Rust and Go, and languages of template folders, predict equal bits."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import treekit
from tests.export.test_all_targets import MODEL as HOSTILE_MODEL
from tests.export.test_all_targets import tame_model
from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.reference.encode import level_of
from tests.reference.models import chain, mixed_schema, random_model
from tests.runtimes import need
from treekit.cli import main
from treekit.data.schema import Column, Schema, level_text
from treekit.errors import (
    ExportError,
    SettingError,
    TreekitWarning,
    VerificationError,
)
from treekit.export.languages import load_languages, read_profile
from treekit.export.literals import Limits, Tables, identifiers, list_shipped_folders
from treekit.export.lowering import Step, leaf_table, lower, write_source_functions
from treekit.model.builder import build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model
from treekit.model.scoring import leaf_indices
from treekit.model.tree import make_derived_columns
from treekit.testing import check_exporter
from treekit.verify.answers import differing
from treekit.verify.run_language import LanguageProgram

# ---------------------------------------------------------------- languages

RUNTIMES = {
    "python": (),
    "javascript": ("node",),
    "java": ("javac",),
    "rust": ("rustc",),
    "go": ("go",),
}
SHIPPED = {
    exporter.name: exporter
    for exporter in load_languages(list_shipped_folders()[0])
    if exporter.export.profile.verify is not None
}
CHECKS = {
    "go": (["gofmt", "-l", "."], ["go", "vet", "./m{}"]),
    "java": (
        ["javac", "-Xlint:all", "-Werror", "-d", "strict", "m{0}/M{0}.java"],
        ["javac", "--release", "8", "-Xlint:-options", "-Werror", "-d", "oldest", "m{0}/M{0}.java"],
    ),
}
"""What more the tools of a language have to say, of some artifacts: no word, or a test fails."""
SOME = range(0, 60, 7)
EDITIONS = ("2018", "2021", "2024")
"""Editions of Rust that accept the modules."""


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
        yield name, make(), "full"
        if number % 8 == 0 or name in ("oblique", "surrogates", "mixed", "many_levels_in_two"):
            yield f"{name}, as tables", make(), "table"
    for link in ("softmax", "sigmoid"):
        for classes in (("a", "b"), ("a", "b", "c")):
            yield f"{link} of {len(classes)}", boosted(link, classes), "full"
    for link in ("identity", "exp", "sigmoid"):
        yield f"{link} of sums", boosted(link, ()), "full"
        yield f"{link} of means", boosted(link, (), "mean"), "full"


@pytest.mark.matrix
@pytest.mark.parametrize("language", SHIPPED)
def test_every_extreme_model_is_predicted_with_equal_bits(language, tmp_path):
    need(*RUNTIMES[language])
    exporter, cases = SHIPPED[language], list(models())
    (tmp_path / "program").mkdir()
    paths = [
        treekit.export(model, exporter, tmp_path / f"m{number}", form=form)[0]
        for number, (_, model, form) in enumerate(cases)
    ]
    schemas = [model.schema for _, model, _ in cases]
    program = LanguageProgram(exporter.export, paths, schemas, tmp_path / "program")
    rows = [extreme_rows(model, most=400) for _, model, _ in cases]
    programs = [program]
    if language == "python":  # of a fresh file, the driver computes the sums of a row once
        (tmp_path / "fresh").mkdir()
        fresh = LanguageProgram(exporter.export, paths, schemas, tmp_path / "fresh", fresh=True)
        assert "share_sums(artifact)" in (tmp_path / "fresh" / "driver.py").read_text()
        programs.append(fresh)
    for run in programs:
        for (name, model, _), own, told in zip(cases, rows, run.predict_rows(rows), strict=True):
            assert not len(differing(wanted(model, own), told)), name
    for *command, files in CHECKS.get(language, ()):
        asked = [*command, *dict.fromkeys(map(files.format, SOME))]
        done = subprocess.run(asked, cwd=program.folder, check=False, capture_output=True)
        assert (done.returncode, done.stdout) == (0, b""), (done.stdout + done.stderr)[:2000]
    if language == "rust":
        modules = "".join(f"pub mod m{number};\n" for number in range(len(cases)))
        alone = "#![no_std]\n#![forbid(unsafe_code)]\n#![deny(warnings)]\n" + modules
        (program.folder / "alone.rs").write_text(alone, encoding="utf-8")
        for edition in EDITIONS:
            kind = ["--crate-type=lib", "--emit=metadata"]
            command = ["rustc", "--edition", edition, *kind, "alone.rs"]
            subprocess.run(command, cwd=program.folder, check=True)


@pytest.mark.matrix
@pytest.mark.parametrize("language", sorted(SHIPPED.keys() - {"python"}))  # tests of its own
@pytest.mark.parametrize("form", ["table", "if_else"])
def test_hostile_names_are_ascii_and_change_literals_only(language, form):
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


def test_models_beyond_the_limits_of_a_language_are_refused(tmp_path):
    java, deep = SHIPPED["java"], chain(3000, mixed_schema())
    with pytest.raises(ExportError, match=r"supports up to 4000 nodes.*the model has 6001"):
        java.export(deep, "m", form="if_else")
    with pytest.raises(ExportError, match=r"'A-b\.java'.*rename it to 'A_b\.java'"):
        java.export(deep, "a-b")
    with pytest.raises(ExportError, match=r"rename it to 'String_\.java'"):
        java.export(deep, "string")
    made = [*java.export(deep, "horse_model")]
    assert made == ["HorseModel.java"]
    assert [*java.export(deep, "HTTPModel")] == ["HTTPModel.java"]
    for package in ("com..x", "1x", "com.x;", "a b", "com.int"):
        with pytest.raises(ExportError, match="package="):
            java.export(deep, "m", package=package)
    assert b"\npackage com.example;\n" in java.export(deep, "m", package="com.example")["M.java"]
    assert b"\npackage type_\n" in SHIPPED["go"].export(deep, "type")["type.go"]
    narrow = replace(java.export.profile.literals.limits, table_bytes=10_000)
    tables = Tables(replace(java.export.profile.literals, limits=narrow))
    with pytest.raises(ExportError, match="exceed 10000 bytes, the limit of this target"):
        tables(np.zeros(2000))


def test_large_tables_are_strings_of_bytes_and_small_ones_are_numbers():
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


def test_functions_of_nested_conditions_respect_depth_and_size_limits():
    model = random_model(3, mixed_schema(), n_trees=1, n_splits=300)
    (tree,) = lower(model)
    columns = identifiers(model.schema.names, "in_")
    given = ((tree,), model.schema, leaf_table(model.units), columns, make_derived_columns(model))
    for deepest, most in ((16, 20), (3, tree.n_nodes), (1000, 7)):
        functions = [f.lines for f in write_source_functions(*given, deepest, most, outer=0)]
        others = ("otherwise", "end", "leaf", "call", "unused")
        tests = [[line for line in lines if line.op not in others] for lines in functions]
        assert sum(map(len, tests)) == np.count_nonzero(tree.kind != Step.LEAF)
        assert max(map(len, tests)) <= most
        assert max(len(line.indent) for lines in functions for line in lines) <= 4 * deepest
        called = [line.at for lines in functions for line in lines if line.op == "call"]
        assert sorted(called) == list(range(1, len(functions)))


@pytest.mark.matrix
def test_javascript_exporter_passes_the_contract_checks():
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
def test_javascript_numbers_are_categories_in_objects_and_codes_in_arrays(tmp_path):
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
    treekit.export(model, "javascript", tmp_path / "m.mjs", form="full")
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
        "M.java",
        "Main.java",
        """\
public class Main {
    public static void main(String[] arguments) {
        new java.util.Scanner(System.in).useDelimiter("\\n").forEachRemaining(line -> {
            double[] x = new double[M.FEATURES];
            String[] cells = line.split(" ");
            for (int i = 0; i < x.length; i++) {
                x[i] = Double.parseDouble(cells[i]);
            }
            StringBuilder told = new StringBuilder();
            for (int node : M.leaves(x)) {
                told.append(node).append(' ');
            }
            System.out.println(told);
        });
    }
}
""",
        [["javac", "Main.java", "M.java"], ["java", "Main"]],
    ),
}
"""Where a model goes, and a program that reads rows as text and prints the leaves of each."""


@pytest.mark.matrix
@pytest.mark.parametrize("language", LEAVES)
@pytest.mark.parametrize("name", ["mixed", "fractional"])
def test_leaf_function_returns_the_leaf_nodes_of_the_model(language, name, tmp_path):
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


# ---------------------------------------------------------------- own languages
# A language that treekit does not know is a folder: exported, run and verified, no Python.

PROFILE = """\
suffix = ".pl"
summary = "Perl, no modules"
files = { ".pl" = "module.jinja" }

[literals]
strings = "bytes"

[limits]
if_else_nodes = 10

[verify]
needs = ["perl"]
version = ["perl", "-e", "print $^V"]
files = { "driver.pl" = "driver.jinja" }
artifact = "m{number}.pl"
run = ["perl", "driver.pl"]
"""

MODULE = """\
use strict;
use warnings;

# A row is a list of numbers and codes; undef is missing.
my @value = ({{ nodes.value }});
my @question = ({{ nodes.question }});
my @yes = ({{ nodes.yes }});
my @no = ({{ nodes.no }});
my @root = ({{ root }});
my @sets = ({{ sets }});
my @start = ({{ leaves.start }});
my @column = ({{ leaves.column }});
my @units = ({{ leaves.units }});
my @level_counts = ({{ level_counts }});

my @names = (
{% for column in columns %}
    {{ column.name }},
{% endfor %}
);
my @labels = (
{% for label in labels[0] %}
    {{ label }},
{% endfor %}
);
my @levels = (
{% for column in columns %}
    [{% for level in column.levels %}{{ level }}, {% endfor %}],
{% endfor %}
);

sub is_missing {
    my ($x, $count) = @_;
    return $x != $x if $count < 0;
    return !($x >= 0 && $x < $count && int($x) == $x);
}

sub has_code {
    my ($x, $set) = @_;
    return 0 unless $x >= 0 && $x < 2147483648 && int($x) == $x;
    my $word = ($x >> 5) - $sets[$set];
    return $word >= 0 && $word < $sets[$set + 1] && ($sets[$set + 2 + $word] >> ($x & 31)) & 1;
}

sub says {
    my ($x, $node) = @_;
    my ($asked, $kind) = ($x->[$question[$node] >> 2], $question[$node] & 3);
    return $asked <= $value[$node] if $kind == 0;
    return !($asked > $value[$node]) if $kind == 1;
    return has_code($asked, $value[$node]) if $kind == 2;
    return is_missing($asked, $level_counts[$question[$node] >> 2]);
}

# The number of the class, and the probability of each.
sub predict {
    my ($x) = @_;
    my @votes = (0) x {{ outputs }};
    for my $root (@root) {
        my $at = $root;
        $at = says($x, $at) ? $yes[$at] : $no[$at] while $at >= 0;
        my $leaf = -1 - $at;
        $votes[$column[$_]] += $units[$_] for $start[$leaf] .. $start[$leaf + 1] - 1;
    }
    my $label = 0;
    for my $k (1 .. $#votes) { $label = $k if $votes[$k] > $votes[$label] }
    return ($label, map { $_ / {{ unit_total }} } @votes);
}

{ predict => \\&predict, names => \\@names, labels => \\@labels, levels => \\@levels };
"""

DRIVER = """\
use strict;
use warnings;
binmode STDIN;
binmode STDOUT;
local $/;
my $in = <STDIN>;
my $at = 0;
my @targets = (
{% for model in models %}
    [{% for name in model.target_names %}{{ name }}, {% endfor %}],
{% endfor %}
);
my @widths = ({% for model in models %}{{ model.features }}, {% endfor %});

sub int32 { $at += 4; return unpack("l<", substr($in, $at - 4, 4)) }

while ($at < length $in) {
    my $number = int32();
    my $model = do "./m$number.pl" or die $@;
    for my $list ($model->{names}, $targets[$number], $model->{labels}, @{$model->{levels}}) {
        print pack("l<", scalar @$list), map { pack("l</a*", $_) } @$list;
    }
    for (1 .. int32()) {
        my ($feature, $length) = (int32(), int32());
        my ($text, $levels) = (substr($in, $at, $length), $model->{levels}[$feature]);
        $at += $length;
        my ($code) = grep { $levels->[$_] eq $text } 0 .. $#$levels;
        print pack("l<", defined $code ? $code : -1);
    }
    for (1 .. int32()) {
        my @x = unpack("d<$widths[$number]", substr($in, $at, 8 * $widths[$number]));
        $at += 8 * @x;
        my ($label, @shares) = $model->{predict}->(\\@x);
        print pack("l<d<*", $label, @shares);
    }
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    templates = tmp_path_factory.mktemp("templates")
    (templates / "perl").mkdir()
    for name, text in (
        ("language.toml", PROFILE),
        ("module.jinja", MODULE),
        ("driver.jinja", DRIVER),
    ):
        (templates / "perl" / name).write_text(text, encoding="utf-8")
    return templates


@pytest.fixture(scope="module")
def model():
    return random_model(7, mixed_schema(("no", 'y"es$@\n', "é")), n_trees=4)


@pytest.mark.matrix
def test_language_folder_is_exported_run_and_verified(folder, model, tmp_path):
    need("perl")
    (path,) = treekit.export(model, "perl", tmp_path / "forest", templates=str(folder))
    assert path.name == "forest.pl"
    report = treekit.verify(model, [path], templates=folder, random_rows=300)
    assert report.equal, report
    assert report.artifacts[0].rows > 300
    path.write_bytes(path.read_bytes().replace(b"<= $value", b"< $value"))
    assert not treekit.verify(model, [path], templates=folder, random_rows=300).equal
    with pytest.raises(VerificationError, match=r"cannot run 'forest\.pl'"):
        treekit.verify(model, [path])
    with pytest.raises(SettingError, match="unknown exporter 'perl'"):
        treekit.export(model, "perl", tmp_path / "forest")


@pytest.mark.matrix
def test_command_line_accepts_a_language_folder(folder, model, tmp_path, monkeypatch):
    need("perl")
    monkeypatch.chdir(tmp_path)
    model.save("m.treekit")
    export = ["export", "m.treekit", "--to", "perl", "-o"]
    verify = ["verify", "m.treekit", "--rows", "50"]
    for command in (
        [*export, "a.pl", "--set", f"templates={folder}"],
        [*verify, "a.pl", "--templates", str(folder)],
    ):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output


def test_faulty_language_folder_is_reported_and_others_load(folder, tmp_path):
    shutil.copytree(folder / "perl", tmp_path / "perl")
    for name, profile in (("broken", "suffix = 3"), ("no name", PROFILE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "language.toml").write_text(profile, encoding="utf-8")
    faults = []
    assert [exporter.name for exporter in load_languages(tmp_path, faults.append)] == ["perl"]
    assert len(faults) == 2
    assert "Expected `str`, got `int` - at `$.suffix`" in faults[0]
    assert "is not a word" in faults[1]
    with pytest.raises(ExportError, match="got `int`"):
        load_languages(tmp_path)


def test_a_templates_setting_without_the_language_folder_is_refused(folder, model, tmp_path):
    gone = str(tmp_path / "gone")
    with pytest.raises(ExportError, match=r"templates: '.*gone' is not a folder"):
        treekit.export(model, "perl", tmp_path / "m", templates=gone)
    with pytest.raises(SettingError, match=r"'perl'; .* has no perl/language\.toml"):
        treekit.export(model, "perl", tmp_path / "m", templates=str(tmp_path))
    with pytest.raises(SettingError, match=r"'raku'; .*perl' has no raku/language\.toml"):
        treekit.export(model, "raku", tmp_path / "m", templates=str(folder / "perl"))


@pytest.mark.matrix
def test_templates_may_be_the_language_folder_or_its_parent(folder, model, tmp_path, monkeypatch):
    need("perl")
    (parent,) = treekit.export(model, "perl", tmp_path / "a.pl", templates=str(folder))
    monkeypatch.chdir(folder / "perl")
    (own,) = treekit.export(model, "perl", tmp_path / "b.pl", templates=".")
    assert own.read_bytes() == parent.read_bytes()
    assert treekit.verify(model, [own], templates=".", random_rows=20).equal
    # Its own templates go before those of a shipped language of that name.
    shutil.copytree(list_shipped_folders()[0] / "go", tmp_path / "go")
    (tmp_path / "go" / "trees.jinja").write_text("// mine: {{ trees }}\n", encoding="utf-8")
    made = treekit.export(
        model, "go", tmp_path / "m.go", templates=str(tmp_path / "go"), form="table"
    )
    assert "// mine: 4" in made[0].read_text()


@pytest.mark.matrix
def test_verify_reports_other_faulty_languages(folder, model, tmp_path):
    need("perl")
    shutil.copytree(folder / "perl", tmp_path / "perl")
    (tmp_path / "go").mkdir()
    (tmp_path / "go" / "language.toml").write_text("suffix = [", encoding="utf-8")
    (path,) = treekit.export(model, "perl", tmp_path / "m.pl", templates=str(tmp_path))
    with pytest.warns(TreekitWarning, match=r"cannot read '.*go/language\.toml'"):
        assert treekit.verify(model, [path], templates=tmp_path, random_rows=20).equal


def test_verify_states_what_a_language_needs_to_run(folder, model, tmp_path):
    profiles = {"broken": "suffix = 3", "lua": PROFILE.replace(".pl", ".lua")}
    for name, profile in profiles.items():
        (tmp_path / "faulty" / name).mkdir(parents=True)
        own = tmp_path / "faulty" / name / "language.toml"
        own.write_text(profile.partition("[verify]")[0], encoding="utf-8")
    faulty = tmp_path / "faulty"
    warnings.simplefilter("ignore", TreekitWarning)
    file = tmp_path / "q.lua"
    file.touch()
    (tmp_path / "empty").mkdir()
    for templates, said in (
        (tmp_path / "gone", "templates: .*gone' is not a folder"),
        (faulty, "'q.lua'; .*'lua' has no \\[verify\\] section in '.*lua/language.toml'"),
    ):
        with pytest.raises(VerificationError, match=said):
            treekit.verify(model, [file], templates=templates)
    other = file.rename(tmp_path / "q.tcl")
    for templates, said in (
        (tmp_path / "empty", "'q.tcl'; .*no language in .*empty': expected NAME/language.toml"),
        (faulty, "'q.tcl'; .*broken/language.toml': .*got `int` - at `\\$\\.suffix`"),
        (folder, "'q.tcl'; supported endings: .*\\.pl"),
    ):
        with pytest.raises(VerificationError, match=said):
            treekit.verify(model, [other], templates=templates)


def test_models_that_templates_cannot_express_are_refused(folder):
    schema = mixed_schema(())
    number = make_model(schema, [build_tree(leaf(1.0), schema)], combine="sum", link="exp")
    with pytest.raises(ExportError, match="'perl' does not support additive trees and link"):
        treekit.export(number, "perl", "m.pl", templates=str(folder))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('suffix = ".pl"', "suffix = 3", "Expected `str`, got `int` - at `$.suffix`"),
        ('suffix = ".pl"', "", "missing required field `suffix`"),
        ('"bytes"', '"klingon"', "Invalid enum value 'klingon' - at `$.literals.strings`"),
        ("[literals]", "[literals]\nspeed = 1", "literals.speed is unknown; known here: strings"),
        ('needs = ["perl"]', "", "missing required field `needs` - at `$.verify`"),
        ('{ ".pl" = "module.jinja" }', "{}", "form 'table' or files is missing"),
        ('suffix = ".pl"', 'suffix = ".plx"', "suffix is '.plx'; name that"),
        ("[limits]", "forms = [", "cannot read"),
        ("[limits]\n", "[limits]\nabilities = 1\n", "literals.limits.abilities is unknown"),
        ("[limits]", '[settings.form]\nhelp = "x"\n[limits]', "settings.form is a built-in"),
        ('summary = "Perl', 'abilities = ["speed"]\nsummary = "Perl', "unknown ability 'speed'"),
    ],
)
def test_faulty_language_profile_is_refused_with_the_expected_value(
    folder, model, tmp_path, before, after, said
):
    assert before in PROFILE
    (tmp_path / "perl").mkdir()
    path = tmp_path / "perl" / "language.toml"
    path.write_text(PROFILE.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(ExportError, match=r"language\.toml") as caught:
        treekit.export(model, "perl", tmp_path / "m.pl", templates=str(tmp_path))
    assert said in str(caught.value)


def test_language_profile_has_defaults(folder):
    profile = read_profile(folder / "perl")
    assert (profile.name, profile.forms, profile.file_name) == ("perl", ("table",), "any")
    assert profile.literals.limits.if_else_nodes == 10
    assert profile.verify is not None
    assert profile.verify.text == "utf-8"


def test_large_sums_without_integer_types_are_doubles_below_2_to_53(model):
    made = treekit.registry.get("exporter", "javascript").export(model, "m")["m.mjs"].decode()
    assert "const leafUnits = Float64Array.of(" in made
    assert max(np.abs(model.units).max() * model.n_trees, 1) <= 2**53
