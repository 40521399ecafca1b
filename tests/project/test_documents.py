"""The examples of README, tutorials and plugin pages run as shown."""

from __future__ import annotations

import ast
import csv
import math
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import treekit
from benchmarks import equality
from tests.runtimes import need
from treekit.cli import main
from treekit.data import DEMO_TARGET, demo_table
from treekit.registry.kinds import KINDS

# ---------------------------------------------------------------- readme

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def block(title: str) -> list[str]:
    """Lines of the first block of code below a title, blank ones left out."""
    body = re.search(rf"^## {title}$.*?^```\w+\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert body is not None
    return [line for line in body[1].splitlines() if line.strip()]


def treekit_command(line: str) -> str:
    """What a command of the README prints."""
    program, *arguments = shlex.split(line)
    assert program == "treekit"
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(autouse=True)
def change_to_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_readme_fits_on_two_screens():
    assert len(TEXT.splitlines()) <= 120


def test_equality_table_covers_every_kind_of_model_and_target():
    page = equality.PAGE.read_text(encoding="utf-8")
    table = page.partition(equality.BEGIN)[2].partition(equality.END)[0].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert cells[0][1:] == list(equality.TARGETS)
    assert [row[0] for row in cells[2:]] == list(equality.KINDS)
    probes = [cell.replace("= ", "").replace(",", "") for row in cells[2:] for cell in row[1:]]
    assert all(cell == "refused" or int(cell) > 500 for cell in probes)
    assert probes.count("refused") < len(probes) / 10
    assert f"{len(equality.KINDS)} kinds of model in {len(equality.TARGETS)} targets" in TEXT


def test_readme_python_lines_print_the_shown_output(capsys: pytest.CaptureFixture[str]):
    need("gcc")
    lines = block("From Python")
    assert len(lines) <= 11
    exec("\n".join(lines), {})
    shown = re.search(r"^```text\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert shown is not None
    printed = capsys.readouterr().out
    assert agree(shown[1], printed), printed
    assert {path.name for path in Path("out").iterdir()} == {
        *("horses.onnx", "horses.c", "horses.h", "horses.py")
    }


def test_readme_commands_run(monkeypatch: pytest.MonkeyPatch):
    need("gcc")
    shutil.copy(demo_table(), "horses.csv")
    served: list[object] = []
    monkeypatch.setattr("treekit.serve.process.run.serve", served.append)
    lines = block("From the command line")
    assert len(lines) == 10
    printed = [treekit_command(line) for line in lines]
    assert "rectal_temperature" in printed[0]
    assert "pruner.alpha" in printed[1]
    assert "balanced accuracy" in printed[2]
    assert Path("scores.html").is_file()
    assert "rule 1 of" in printed[3]
    assert len(Path("predictions.csv").read_text(encoding="utf-8").splitlines()) == 369
    assert "equal to the model, bit for bit" in printed[6]
    assert Path("out/certificate.json").is_file()
    assert served


def test_readme_plugin_trains_by_its_name(
    fresh_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lines = block("A plugin in fifteen lines")
    assert len(lines) <= 15
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("readme_plugin.py").write_text("\n".join(lines), encoding="utf-8")
    info = tmp_path / "readme_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: readme-plugin\nVersion: 1.0\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text("[treekit]\nplug = readme_plugin\n", encoding="utf-8")
    told = treekit_command(
        f"treekit --strict-plugins train {shlex.quote(str(demo_table()))} --target {DEMO_TARGET} "
        "--criterion hellinger_squared --set max_leaves=9 -o m.treekit"
    )
    assert "hellinger_squared" in told
    model = treekit.load("m.treekit")
    assert model.n_leaves == 9
    assert model.provenance["components"][0]["distribution"] == "readme-plugin"
    gini = treekit.train(demo_table(), DEMO_TARGET, max_leaves=9)
    assert (model.predict(demo_table()) != gini.predict(demo_table())).any()


def test_contributing_map_lists_every_subpackage():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("## Map of the code")[2].partition("\n## ")[0]
    rooms = re.findall(r"`(\w+)/?`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    here = [path.stem for path in (ROOT / "treekit").glob("[!_.]*") if path.name != "py.typed"]
    assert sorted(rooms) == sorted(here)


def test_the_files_named_in_contributing_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:treekit|tests|templates|plugins|tools|benchmarks)/[\w./-]*)`", text)
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []


# ---------------------------------------------------------------- pages
# The tutorial and the pages of docs/ run as they stand: every block of sh and python, in order,
# and what they print.
#
# In a fresh environment that borrows the libraries of the one that runs the tests, without a
# network: what pip would download is there already.

PLUGINS = ROOT / "plugins"
TUTORIAL_TEXT = (PLUGINS / "TUTORIAL.md").read_text(encoding="utf-8")
PAGES = [
    PLUGINS / "CONTRACT.md",
    PLUGINS / "TUTORIAL.md",
    *(
        path
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if not {"generated", "build"} & set(path.parts)
        and path.name != "distributed.md"  # tests/distributed/test_page.py
        and "```" in path.read_text(encoding="utf-8")
    ),
]


@dataclass
class Step:
    """A block of the tutorial: a file to write, or what to run and what it prints."""

    kind: str
    code: str
    line: int
    file: str = ""
    output: str | None = None


def steps(text: str) -> Iterator[Step]:
    """The blocks in order; an output belongs to the block before it.

    Blocks of a language in braces are directives of the documentation.
    """
    blocks = re.compile(r"(?:<!-- file: (\S+) -->\n+)?^```(\w+)\n(.*?)^```$", re.M | re.S)
    last = None
    for found in blocks.finditer(text):
        file, kind, code = found.groups()
        line = text.count("\n", 0, found.start(2)) + 1
        if kind == "text":
            assert last is not None, f"line {line}: an output of nothing"
            last.output = code
            continue
        if last is not None:
            yield last
        last = Step(kind, code, line, file or "")
    if last is not None:
        yield last


def agree(wanted: str, got: str) -> bool:
    """Whether an output is as shown; ``...`` stands for anything, as a line for any lines."""
    pattern = ""
    for line in wanted.strip().splitlines():
        parts = map(re.escape, line.split("..."))
        pattern += r"(?:.*\n)*?" if line == "..." else ".*?".join(parts) + r"\n"
    lines = "".join(f"{line.rstrip()}\n" for line in got.strip().splitlines())
    return re.fullmatch(pattern, lines) is not None


def _borrow(library: Path) -> None:
    """Let an environment use what is installed here, but the plugins of treekit."""
    own = ("treekit", "_editable_impl_treekit")
    told = f"treekit_ml-{treekit.__version__}.dist-info"
    for folder in dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")):
        for path in Path(folder).iterdir():
            place = library / path.name
            if (path.name == told or not path.name.startswith(own)) and not place.exists():
                place.symlink_to(path)
    root = Path(treekit.__file__).parents[1]
    (library / "borrowed.pth").write_text(f"{root}\n", encoding="utf-8")


MARK = "\n==== the next block ====\n"
EACH = f"""
import pathlib, sys
here = pathlib.Path(__file__).parent
names = {{"__name__": "__main__"}}
for i in range(int(sys.argv[1])):
    print(end={MARK!r} * (i > 0), flush=True)
    block = here / f"block{{i}}.py"
    exec(compile(block.read_text("utf-8"), block, "exec"), names)
"""


class Shell:
    """A person at a terminal: commands in a folder, from block to block."""

    def __init__(self, folder: Path, page: Path) -> None:
        self.page = page
        self.folder, self.place = folder / "work", folder / "place"
        self.folder.mkdir()
        self.home = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.home], check=True)
        self.scripts = self.home / ("Scripts" if os.name == "nt" else "bin")
        python = self.scripts / "python"
        where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        library = subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
        _borrow(Path(library))
        self._script("treekit", f'exec "{python}" -m treekit "$@"')
        self._script("pytest", f'exec "{python}" -m pytest "$@"')
        self._script("pip", f'exec "{sys.executable}" -m pip --python "{python}" "$@"')

    def _script(self, name: str, line: str) -> None:
        path = self.scripts / name
        path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(self, block: list[Step]) -> list[str]:
        """What each of some blocks of one kind prints, warnings among it."""
        step = block[0]
        if step.kind == "python":
            for i, one in enumerate(block):
                (self.home / f"block{i}.py").write_text(one.code, encoding="utf-8")
            (self.home / "blocks.py").write_text(EACH, encoding="utf-8")
            command = f'"{self.scripts / "python"}" "{self.home / "blocks.py"}" {len(block)}'
        else:
            command = step.code
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f'{command}\npwd > "{self.place}"'],
            cwd=self.folder,
            env=os.environ
            | {
                "PATH": f"{self.scripts}{os.pathsep}{os.environ['PATH']}",
                "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                "PIP_NO_BUILD_ISOLATION": "0",  # means: without isolation
                "PIP_NO_DEPS": "1",
                "PIP_NO_INDEX": "1",
                "PIP_QUIET": "1",
                "PYTHONPATH": "",
                "COLUMNS": "100",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{self.page.name}, line {step.line}:\n{done.stdout}"
        self.folder = Path(self.place.read_text(encoding="utf-8").rstrip("\n"))
        return done.stdout.split(MARK)


@pytest.mark.system
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_of_a_page_runs_as_shown(page: Path, tmp_path: Path):
    text = page.read_text(encoding="utf-8")
    shell = Shell(tmp_path, page)
    for plugin in re.findall(r"^pip install (treekit-(?!ml\b)[\w-]+)$", text, re.MULTILINE):
        shutil.copytree(PLUGINS / plugin, tmp_path / plugin)
        shell.run([Step("sh", f'pip install "{tmp_path / plugin}"', 0)])
    for (kind, _), group in groupby(steps(text), key=session):
        block = list(group)
        if kind == "file":
            (shell.folder / block[0].file).write_text(block[0].code, encoding="utf-8")
            continue
        for step, told in zip(block, shell.run(block), strict=True):
            if step.output is not None:
                assert agree(step.output, told), f"{page.name}, line {step.line} prints:\n{told}"


def session(step: Step) -> tuple[str, int]:
    """What blocks run together: those of Python one after the other, which costs one start."""
    return (
        ("file", step.line) if step.file else (step.kind, 0 if step.kind == "python" else step.line)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_code_block_of_a_page_is_run_or_an_output(page: Path):
    text = page.read_text(encoding="utf-8")
    fences = re.findall(r"^```([^\n{]*)(?:\{.*)?$", text, re.MULTILINE)
    assert set(fences) <= {"", "c", "python", "sh", "text"}
    found = list(steps(text))
    assert all(step.file for step in found if step.kind not in ("python", "sh"))
    assert len([fence for fence in fences if fence not in ("", "text")]) == len(found)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\n", "a \n", True),
        ("a ... c", "a b c", True),
        ("a ... c", "a b\nc c", False),
        ("a", "ab", False),
        ("...", "a\nb", True),
        ("...\nb", "b", True),
        ("...\nb", "a b", False),
    ],
)
def test_dots_in_shown_output_match_anything(shown: str, printed: str, same: bool):
    assert agree(shown, printed) is same


# ---------------------------------------------------------------- gallery
# The gallery shows every package in plugins/, of the kinds that it is, and nothing else.

GALLERY_TEXT = (PLUGINS / "README.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| \[([\w-]+)\]\(\1\) \| (.*) \|$", GALLERY_TEXT, re.MULTILINE))
PACKAGES = sorted(path.parent for path in PLUGINS.glob("*/pyproject.toml"))


def hooks(package: Path) -> list[str]:
    """Kinds of the components that a package lists."""
    sources = [path for path in package.rglob("*.py") if "tests" not in path.parts]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    return [kind.name for kind in KINDS.values() if f"def {kind.hook}(" in text]


def test_plugin_table_lists_exactly_the_packages():
    assert list(ROWS) == [package.name for package in PACKAGES]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_plugin_table_row_states_kinds_group_and_purpose(package: Path):
    kinds, uses, what, seen = (cell.strip() for cell in ROWS[package.name].split(" | "))
    assert kinds.split(", ") == hooks(package)
    assert uses in ("contract", "internals")
    assert len(what) > 20
    assert re.fullmatch(r"`.+`|!?\[.+\]\(.+\)", seen)
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == package.name
    assert set(project["entry-points"]) == {KINDS[kind].group for kind in hooks(package)}


def test_links_of_plugin_pages_are_valid():
    for page in ("README.md", "TUTORIAL.md"):
        text = (PLUGINS / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)]+)\)", text):
            path, _, anchor = target.partition("#")
            place = PLUGINS / path if path else PLUGINS / page
            assert place.exists(), target
            if anchor:
                headings = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), re.MULTILINE)
                slugs = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
                assert anchor in slugs, target


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_figures_of_a_package_are_shown_in_the_table(package: Path):
    figures = [path.name for path in package.rglob("*") if path.suffix in (".svg", ".png")]
    assert not figures or any(name in ROWS[package.name] for name in figures)


# ---------------------------------------------------------------- examples
# The examples run as they stand, and what they claim of isolation is true.

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PARTS = ("isolated.py", "boundary.py")
NEEDS_PLUGIN = (
    "sign_the_rules.py",  # run by the tests of treekit-rule-learning
    *("criterion_plugin.py", "missing_values.py", "watermelon_book.py"),  # of treekit-plot
)
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in PARTS)


def run(*command: object) -> subprocess.CompletedProcess[str]:
    """What a process of its own says."""
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


@pytest.mark.system
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in NEEDS_PLUGIN])
def test_an_example_runs(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    """In this process, as `python -W error` runs it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capfd.readouterr().out
    assert "bit for bit" in printed or "the page is up to date" in printed
    assert list(tmp_path.iterdir()) == []


def test_the_readme_names_every_example():
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"`python examples/(\w+\.py)`", text)) == PROGRAMS
    alone = sorted(path.name for path in (EXAMPLES / "standalone").iterdir() if path.is_file())
    assert sorted(re.findall(r"^\| `(\w+\.\w+)`", text, re.MULTILINE)) == alone


@pytest.mark.parametrize(
    ("program", "allowed"),
    [
        ("read_onnx.py", {"csv", "json", "sys", "pathlib", "numpy", "onnxruntime"}),
        ("read_rules.py", sys.stdlib_module_names),
    ],
)
def test_a_standalone_program_imports_only_what_it_states(program: str, allowed: set[str]):
    tree = ast.parse((EXAMPLES / "standalone" / program).read_text(encoding="utf-8"))
    names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert names
    assert {name.partition(".")[0] for name in names} <= set(allowed)


@pytest.fixture(scope="module")
def isolated() -> SimpleNamespace:
    """The examples' own runner."""
    return SimpleNamespace(**runpy.run_path(str(EXAMPLES / "isolated.py")))


@pytest.mark.system
@pytest.mark.parametrize("line", ["import treekit", "from treekit.model.model_file import load"])
def test_treekit_cannot_be_imported_in_isolated_examples(
    line: str, isolated: SimpleNamespace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    program = tmp_path / "program.py"
    program.write_text(line, encoding="utf-8")
    assert run(sys.executable, program).returncode == 0
    for runner in (isolated.run_without_treekit, isolated.run_bare):
        with pytest.raises(subprocess.CalledProcessError):
            runner(program)
        assert capfd.readouterr().err.count("ModuleNotFoundError") == 1


@pytest.mark.system
def test_rule_reader_program_cannot_import_installed_packages(
    isolated: SimpleNamespace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    program = tmp_path / "program.py"
    program.write_text("import numpy", encoding="utf-8")
    assert isolated.run_without_treekit(program) == ""
    with pytest.raises(subprocess.CalledProcessError):
        isolated.run_bare(program)
    assert "No module named 'numpy'" in capfd.readouterr().err


HOSTILE = [
    'a"b',
    "is",
    "x: one of {}",
    "then   support 3",
    "line\nbreak",
    "\\",
    "\u202e",
    'a; missing counts as "b',
]
"""Names, levels and labels that look like parts of the format."""


def hostile_table(path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*HOSTILE, "n", "y"])
        for i in range(40):
            cells = [HOSTILE[(i * (j + 1)) % 8] if (i + j) % 5 else "" for j in range(8)]
            number = "" if i % 7 == 0 else repr(math.sin(i) * 10.0 ** (i % 9))
            writer.writerow([*cells, number, HOSTILE[i * i % 3]])


@pytest.mark.system
@pytest.mark.parametrize("settings", [{}, {"ensemble": "forest", "trees": 3}])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rule_reader_program_executes_hostile_names_exactly(
    dtype: str, settings: dict, isolated: SimpleNamespace, tmp_path: Path
):
    table = tmp_path / "t.csv"
    hostile_table(table)
    model = treekit.train(table, "y", dtype=dtype, seed=1, **settings)
    (path,) = treekit.export(model, "rules", tmp_path / "m")
    reader = EXAMPLES / "standalone" / "read_rules.py"
    labels, shares = isolated.answers(isolated.run_bare(reader, path, table))
    assert labels == model.predict(table).tolist()
    assert shares == model.predict_proba(table).tolist()
    assert len(set(labels)) > 1


@pytest.mark.system
def test_rule_reader_program_executes_ordered_lists(isolated: SimpleNamespace, tmp_path: Path):
    table = tmp_path / "t.csv"
    hostile_table(table)
    model = treekit.train(table, "y", seed=1)
    text = treekit.write_rules(model, tmp_path / "edited.txt")
    lines = text.read_text(encoding="utf-8").split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith("rule 1 of"))
    lines[at:at] = ["rule", "  if n > 0", '  then "is"', ""]
    text.write_text("\n".join(lines), encoding="utf-8")
    revised = treekit.revise(model, text)
    (path,) = treekit.export(revised, "rules", tmp_path / "m")
    assert "\n  otherwise\n" in path.read_text(encoding="utf-8")
    reader = EXAMPLES / "standalone" / "read_rules.py"
    labels, shares = isolated.answers(isolated.run_bare(reader, path, table))
    assert labels == revised.predict(table).tolist() != model.predict(table).tolist()
    assert shares == revised.predict_proba(table).tolist()


@pytest.mark.system
@pytest.mark.parametrize(
    ("policy", "row"), [({"missing": "error"}, ",1"), ({"unknown": "error"}, "tin,1")]
)
def test_rule_reader_program_refuses_what_the_model_refuses(
    policy: dict, row: str, isolated: SimpleNamespace, tmp_path: Path
):
    model = treekit.train({"a": ["oak", "elm"], "b": [1, 2], "y": ["p", "q"]}, "y", **policy)
    (path,) = treekit.export(model, "rules", tmp_path / "m")
    table = tmp_path / "t.csv"
    table.write_text(f"a,b\noak,1\n{row}\n", encoding="utf-8")
    with pytest.raises(treekit.DataError):
        model.predict(table)
    done = run(sys.executable, EXAMPLES / "standalone" / "read_rules.py", path, table)
    assert done.returncode == 1
    assert done.stdout.startswith("p\t")
    assert done.stderr.startswith("the rules refuse")
