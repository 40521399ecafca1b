"""The examples run as they stand, and what they claim of isolation is true."""

from __future__ import annotations

import ast
import csv
import math
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import treekit

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PARTS = ("isolated.py", "boundary.py")
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in PARTS)


def run(*command: object) -> subprocess.CompletedProcess[str]:
    """What a process of its own says."""
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


@pytest.mark.system
@pytest.mark.parametrize("name", PROGRAMS)
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
    assert "bit for bit" in printed or "says the same" in printed
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
def test_a_standalone_program_imports_only_what_it_says(program: str, allowed: set[str]):
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
def test_treekit_cannot_be_imported_where_the_examples_say_so(
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
def test_nothing_installed_can_be_imported_where_the_rules_are_read(
    isolated: SimpleNamespace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    program = tmp_path / "program.py"
    program.write_text("import numpy", encoding="utf-8")
    assert isolated.run_without_treekit(program) == ""
    with pytest.raises(subprocess.CalledProcessError):
        isolated.run_bare(program)
    assert "No module named 'numpy'" in capfd.readouterr().err


HOSTILE = ['a"b', "is", "x: one of {}", "then   support 3", "line\nbreak", "\\", "\u202e", "é, 行"]
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
def test_the_reader_of_rules_executes_hostile_names_exactly(
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
def test_the_reader_of_rules_executes_ordered_lists(isolated: SimpleNamespace, tmp_path: Path):
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
def test_the_reader_of_rules_refuses_what_the_model_refuses(
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
