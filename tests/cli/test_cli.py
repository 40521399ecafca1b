"""The command line: output, messages, files and exit codes."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
import pytest
from click.testing import CliRunner, Result
from numba.core import event

import treekit
import treekit.kernels
from tests.rules.test_rule_text import rules_edited_melons as melons
from tests.runtimes import need
from treekit import progress
from treekit.cli import demo, main
from treekit.cli.terminal import escape_text, write_text
from treekit.data import DEMO_TARGET, demo_table
from treekit.data.schema import Column, Output, Schema
from treekit.documents import treekit_documents
from treekit.errors import DataError, ModelFileError, SettingError
from treekit.kernels import numba_compiler as compilation
from treekit.model.builder import build_tree, leaf, threshold
from treekit.model.model import hash_model, make_model

# ---------------------------------------------------------------- cli

ROOT = Path(__file__).resolve().parents[2]
MELONS = ROOT / "examples" / "tables" / "watermelon"
COMMANDS = [
    *("columns", "train", "evaluate"),
    *("inspect", "rules", "explain", "importances", "plot", "diff"),
    *("predict", "export", "verify", "serve"),
    *("simplify", "revise", "import"),
    *("plugins", "plugin", "demo", "completion", "warm-up"),
]
HEAVY = {"numpy", "numba", "onnx", "onnxruntime", "sklearn", "pandas", "narwhals", "rich"}
TREEKIT = "import sys; from treekit.cli import main; main(prog_name='treekit')"
EACH = """
import json, sys
from treekit.cli import main
for words in json.loads(sys.argv[1]):
    main(words, prog_name="treekit", standalone_mode=False)
"""


def call(*args: object, code: int = 0, **settings: object) -> Result:
    """Run the command line in this process, and expect an exit code."""
    result = CliRunner().invoke(main, [str(arg) for arg in args], **settings)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def facts(text: str) -> dict[str, str]:
    """Names and values of the lines that hold a pair."""
    pairs = re.findall(r"^  (\S+) +(.+)$", text, re.MULTILINE)
    return dict(pairs)


def at_terminal(*commands: list[object]) -> str:
    """What a person at a terminal sees of commands, one after another in a process of its own."""
    lines = json.dumps([list(map(str, words)) for words in commands])
    return watch([sys.executable, "-c", EACH, lines])


def watch(command: list[str]) -> str:
    """What a person at a terminal sees of a process."""
    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"}
    for name in ("NO_COLOR", "FORCE_COLOR", "CI"):
        environment.pop(name, None)
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    seen = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # Linux: the other side is closed
            break
        if not part:
            break
        seen += part
    os.close(master)
    assert process.wait() == 0, seen
    return seen.decode()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pruned tree of the table that ships with treekit."""
    path = tmp_path_factory.mktemp("models") / "tree.treekit"
    arguments = ["train", demo_table(), "--target", DEMO_TARGET, "--seed", 0, "-o", path]
    call(*arguments, "--pruner", "cost_complexity")
    return path


@pytest.fixture(scope="module")
def forest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small forest of the same table."""
    path = tmp_path_factory.mktemp("models") / "forest.treekit"
    arguments = ["train", demo_table(), "--target", DEMO_TARGET, "--seed", 0, "-o", path]
    call(*arguments, "--ensemble", "forest", "--trees", 3)
    return path


# ---------------------------------------------------------------- the frame


def test_help_imports_no_heavy_library():
    code = (
        "import sys; from treekit.cli import main; main(['--help'], standalone_mode=False);"
        f"print({HEAVY!r} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")
    assert re.findall(r"^  ([a-z][a-z-]*)  ", done.stdout, re.MULTILINE) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str):
    help_text = call(command, "--help").stdout
    assert "Usage:" in help_text
    assert len(help_text.splitlines()) > 5


@pytest.mark.system
def test_python_m_treekit_runs_the_command():
    command = [sys.executable, "-m", "treekit", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"treekit {treekit.__version__}\n"


def test_the_version_is_printed():
    assert call("--version").stdout == f"treekit {treekit.__version__}\n"


@pytest.mark.system
def test_error_in_a_process_is_one_line_on_stderr_with_exit_code_2(tmp_path: Path):
    command = [sys.executable, "-c", TREEKIT, "inspect", str(tmp_path / "nothing.treekit")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"Error: there is no model file '.*nothing\.treekit'; .*\n", done.stderr)


def test_debug_shows_the_traceback_of_an_error(tmp_path: Path):
    result = call("--debug", "inspect", tmp_path / "nothing", code=2)
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: ")


def test_interrupted_command_exits_with_the_interrupt_code(
    tree: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("treekit.model.model_file.load", interrupted)
    assert "stopped" in call("inspect", tree, code=130).stderr


STOPPED = """
import os, signal, sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Stop())
"""
"""Module that presses Ctrl-C during an import; Python runs it at its start."""


@pytest.mark.parametrize(
    "module", ["treekit.cli", "click", "treekit.training", "treekit.kernels.grow_tree"]
)
def test_ctrl_c_during_an_import_ends_without_a_traceback(tmp_path: Path, module: str):
    (tmp_path / "sitecustomize.py").write_text(STOPPED.format(module=module))
    (tmp_path / "t.csv").write_text("x,y\n1,a\n2,b\n")
    command = [
        *(sys.executable, "-m", "treekit", "train", "t.csv"),
        "--target",
        "y",
        "-o",
        "t.treekit",
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, Path.cwd())))}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=env, check=False
    )
    assert done.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.treekit"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_termination_signal_lets_a_command_clean_up(
    tree: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
):
    cleaned: list[str] = []

    def ended(path: str) -> None:
        try:
            signal.raise_signal(number)
        finally:
            cleaned.append(path)

    monkeypatch.setattr("treekit.model.model_file.load", ended)
    before = signal.signal(number, signal.SIG_DFL)  # under nohup it is ignored, and stays so
    try:
        assert "stopped" in call("inspect", tree, code=128 + number).stderr
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert cleaned


# ---------------------------------------------------------------- train


def test_train_prints_table_settings_and_results(tree: Path, tmp_path: Path):
    path = tmp_path / "again.treekit"
    arguments = ["train", demo_table(), "--target", DEMO_TARGET, "--seed", 0, "-o", path]
    told = call(*arguments, "--pruner", "cost_complexity", "--test", demo_table()).stdout
    model = treekit.load(path)
    said = facts(told)
    assert said["rows"] == "368"
    assert said["columns"] == "20 (7 numeric, 13 nominal)"
    assert (said["leaves"], said["depth"]) == (str(model.n_leaves), str(model.depth))
    assert (said["criterion"], said["splitter"], said["seed"]) == ("gini", "exact", "0")
    assert (said["pruner"], said["pruner.folds"]) == ("cost_complexity", "10")
    with demo_table().open(encoding="utf-8") as stream:
        actual = [row[DEMO_TARGET] for row in csv.DictReader(stream)]
    right = sum(model.predict(demo_table()) == actual)
    first = f"score on 368 rows of {str(demo_table())!r}\n  accuracy {right / 368:.4f}\n"
    assert told.startswith(first)
    assert told.count("accuracy") == 1
    assert "sequence" not in told  # results of a pruner are shown by `treekit inspect`
    assert path.read_bytes() == tree.read_bytes()


def test_command_line_and_python_train_equal_models(forest: Path):
    model = treekit.train(demo_table(), DEMO_TARGET, ensemble="forest", trees=3, seed=0)
    again = forest.with_name("python.treekit")
    model.save(again)
    assert again.read_bytes() == forest.read_bytes()


def test_train_prints_the_out_of_bag_score_of_a_forest(tmp_path: Path):
    path = tmp_path / "f.treekit"
    arguments = ["train", demo_table(), "--target", DEMO_TARGET, "-o", path]
    told = call(*arguments, "--ensemble", "forest", "--trees", 5).stdout
    oob = treekit.load(path).provenance["oob"]
    rows = f"{oob['rows']} rows"
    shares = f"accuracy {oob['accuracy']:.4f} (most frequent class: {oob['majority']:.4f})"
    assert told.startswith(f"score on new rows\n  {shares}, out of bag on {rows}\n")
    assert facts(told)["trees"] == "5"


def test_a_regression_is_scored_by_r_squared(tmp_path: Path):
    rows = [f"{x},{x * x}.5" for x in range(40)]
    table = tmp_path / "t.csv"
    table.write_text("x,y\n" + "\n".join(rows) + "\n", encoding="utf-8")
    path = tmp_path / "m.treekit"
    told = call("train", table, "--target", "y", "-o", path, "--test", table).stdout
    assert told.startswith(f"score on 40 rows of {str(table)!r}\n  R squared 1.0000\n")
    assert "the training rows: the score on new rows will be lower" in told
    said = call("predict", path, table).stdout.splitlines()
    assert said == ["y", *(row.split(",")[1] for row in rows)]
    call("predict", path, table, "--proba", code=2)


def test_table_options_select_columns_weights_and_missing_marks(tmp_path: Path):
    table = tmp_path / "t.csv"
    lines = ["id,size,colour,w,y", "1,1,3,1,no", "2,-,4,1,yes", "3,2,3,1,no", "4,8,4,0,maybe"]
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = tmp_path / "deep" / "folder" / "m.treekit"
    call(
        *("train", table, "--target", "y", "-o", path, "--ignore", "id", "--nominal", "colour"),
        *("--weights", "w", "--classes", 'yes, no,maybe,"a,b"', "--missing-marks", "-,?"),
        *("--numeric", "size", "--dtype", "float64"),
    )
    model = treekit.load(path)
    assert model.schema.dtype == "float64"
    assert model.schema.classes == ("yes", "no", "maybe", "a,b")
    assert [(c.name, c.kind) for c in model.schema.columns] == [
        ("size", "numeric"),
        ("colour", "nominal"),
    ]
    assert model.trees[0].weight[0] == 3
    assert model.schema.missing_marks == ("-", "?")
    assert call("predict", path, table).stdout.split()[0] == "y"
    call("predict", path, table, "--missing-marks", "?", code=2)  # '-' is no number


def test_component_settings_are_stored_in_the_model(tmp_path: Path):
    path = tmp_path / "m.treekit"
    call(
        *("train", MELONS / "watermelon_3.0_en.csv", "--target", "good", "--ignore", "id"),
        *("--set", "criterion.base=2.718", "--criterion", "entropy", "--set", "max-depth=2"),
        *("--set", "nominal_splits=multiway", "-o", path),
    )
    settings = treekit.load(path).settings
    assert settings["criterion"] == "entropy"
    assert settings["criterion.base"] == 2.718
    assert (settings["max_depth"], settings["nominal_splits"]) == (2, "multiway")


BAD = {
    "a file that is not there": (["--seed", "1"], "there is no file"),
    "an unknown target": (["--target", "goood"], "no target column 'goood'; did you mean 'good'?"),
    "an unknown setting": (["--set", "max_depht=3"], "did you mean 'max_depth'?"),
    "an unknown criterion": (["--criterion", "ginni"], "did you mean 'gini'?"),
    "an unknown pruner": (
        ["--pruner", "cost"],
        "installed: chi_squared, cost_complexity, error_based, holdout, mdl",
    ),
    "a value of a wrong type": (["--trees", "many"], "must be an integer"),
    "a value out of range": (["--set", "max_bins=256"], "from 2 to 255, not 256"),
    "the end of a range": (
        ["--criterion", "entropy", "--set", "criterion.base=1"],
        "must be a number above 1, not 1.0",
    ),
    "an algorithm in other letters": (["--algorithm", "CART"], "not 'CART'; did you mean 'cart'?"),
    "an algorithm misspelt": (["--algorithm", "cat45"], "not 'cat45'; did you mean 'c45'?"),
    "a setting given twice": (["--trees", "5", "--set", "trees=6"], "'trees' is given twice"),
    "no assignment": (["--set", "trees"], "write KEY=VALUE"),
    "a setting of no component": (["--set", "pruner.folds=3"], "add --pruner NAME"),
    "a setting of nothing": (["--set", "tree.depth=3"], "unknown setting 'tree.depth'"),
    "a component's unknown setting": (
        ["--criterion", "entropy", "--set", "criterion.bas=3"],
        "criterion 'entropy' has no setting 'bas'; did you mean 'base'?",
    ),
    "a criterion of another task": (["--criterion", "squared_error"], "is for regression"),
    "an unknown column": (["--ignore", "idd"], "'idd'; did you mean 'id'?"),
    "a test without the target": (
        ["--test", str(MELONS / "watermelon_3.0.csv")],
        "the table has no target column 'good'",
    ),
    "a validation table without the target": (
        ["--pruner", "reduced_error", "--validation", str(MELONS / "watermelon_3.0.csv")],
        "the validation table has no target column 'good'",
    ),
    "oblique splits of doubles": (
        ["--splitter", "oblique", "--dtype", "float64"],
        "train with dtype='float32' (--dtype float32)",
    ),
    "a device as the output": (["-o", os.devnull], "is not a regular file"),
    "a setting as an option": (["--max-bins", "3"], "write --set max_bins=3"),
    "a setting as an option with its value": (["--max-bins=4"], "write --set max_bins=4"),
    "an option of nothing": (["--depht", "3"], "No such option"),
    "open quotes": (["--classes", 'a,"b'], "write a,b or"),
}


@pytest.mark.parametrize(("arguments", "said"), BAD.values(), ids=BAD)
def test_train_refuses_invalid_arguments(arguments: list[str], said: str, tmp_path: Path):
    table = tmp_path / "nothing.csv" if "no file" in said else MELONS / "watermelon_3.0_en.csv"
    output = tmp_path / "m.treekit"
    result = call("train", table, "--target", "good", "-o", output, *arguments, code=2)
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left_out", ["TABLE", "--target", "--output"])
def test_train_requires_a_table_a_target_and_an_output(left_out: str):
    parts = {"TABLE": ["t.csv"], "--target": ["--target", "y"], "--output": ["-o", "m"]}
    arguments = [word for name, words in parts.items() if name != left_out for word in words]
    assert left_out in call("train", *arguments, code=2).stderr


def test_help_settings_needs_no_other_argument():
    lines = call("train", "--help-settings", "all").stdout.splitlines()
    assert lines[0].split() == ["setting", "accepts", "default", "meaning"]
    from treekit.training import SETTINGS
    from treekit.training.settings import PRESETS

    *tables, blank, note = lines
    table, algorithms = tables[: tables.index("")], tables[tables.index("") + 1 :]
    assert [line.split()[0] for line in table[1:]] == [setting.name for setting in SETTINGS]
    assert not any("." in line.split()[0] for line in table)
    assert algorithms[0].split() == ["algorithm", "meaning", "its", "settings"]
    assert [line.split()[0] for line in algorithms[1:]] == list(PRESETS)
    assert blank == ""
    assert "--criterion NAME, --splitter NAME or --pruner NAME" in note


def test_help_shows_common_settings_and_all_of_them_on_request():
    from treekit.training import SETTINGS
    from treekit.training.settings import COMMON_SETTINGS, PRESETS

    def shown(*arguments: str) -> list[str]:
        lines = call("train", *arguments).stdout.splitlines()
        return [line.split()[0] for line in lines[1 : lines.index("")]]

    assert {setting.name for setting in SETTINGS} > set(COMMON_SETTINGS)
    assert sorted(shown("--help-settings")) == sorted(COMMON_SETTINGS)
    assert "22 more settings" in call("train", "--help-settings").stdout
    assert {"resolution", *COMMON_SETTINGS} <= set(
        shown("--set", "resolution=1", "--help-settings")
    )
    for name, preset in PRESETS.items():  # what an algorithm sets is listed with it
        assert set(shown("--algorithm", name, "--help-settings")) > {
            key for key in preset.settings if "." not in key
        }
    assert "expected" not in call("train", "--help-settings", "all").stderr
    assert "'some' is not one of" in call("train", "--help-settings", "some", code=2).stderr


def test_help_settings_lists_the_settings_of_chosen_components():
    chosen = ["--criterion", "entropy", "--set", "pruner=cost_complexity"]
    told = call("train", *chosen, "--help-settings").stdout
    assert re.search(r"^criterion\.base +a number above 1 +2\.0 +base of", told, re.MULTILINE)
    assert re.search(r"^pruner\.folds +an integer", told, re.MULTILINE)
    assert (
        "unknown criterion" in call("train", "--help-settings", "--criterion", "x", code=2).stderr
    )


# ---------------------------------------------------------------- what people are told meanwhile


def compile_one(module: str, name: str = "add") -> None:
    """Compile a function that says it is of that module."""

    def add(a):
        return a + 1

    add.__module__, add.__name__ = module, name
    assert numba.njit(add)(1) == 2


@pytest.fixture
def fresh_notice() -> Iterator[compilation.CompilationNotice]:
    """A notice that has not been printed."""
    with event.install_listener("numba:compile", compilation.CompilationNotice()) as fresh:
        yield fresh


@pytest.mark.usefixtures("fresh_notice")
@pytest.mark.parametrize(
    "module", ["treekit.kernels.grow_tree", "treekit.distributed.kernels.levels"]
)
def test_compilation_of_kernels_is_announced_once(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(compilation.notice, "is_printed", True)  # that of this process
    monkeypatch.setattr(progress, "_choice", {"reporting": True})
    compile_one(module)
    compile_one(module)
    told = capsys.readouterr().err
    assert told.startswith("compiling kernels")
    assert told.count("\n") == 1


@pytest.mark.usefixtures("fresh_notice")
@pytest.mark.parametrize(
    ("module", "reporting"), [("treekit_hellinger", True), ("treekit.kernels.grow_tree", False)]
)
def test_compilations_of_plugins_or_without_a_terminal_are_not_announced(
    module: str,
    reporting: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(compilation.notice, "is_printed", True)
    monkeypatch.setattr(progress, "_choice", {"reporting": True} if reporting else {})
    compile_one(module)
    assert capsys.readouterr().err == ""


def test_progress_is_shown_in_a_terminal_a_notebook_or_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(progress, "_choice", {})
    assert not progress.reports_compilation()
    with monkeypatch.context() as patch:
        patch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        assert progress.reports_compilation()
        progress.report_compilation(False)  # a worker that is not the first
        assert not progress.reports_compilation()
    monkeypatch.setattr(progress, "_choice", {})
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ipykernel", sys)
        assert progress.reports_compilation()
    call("plugins")
    assert progress.reports_compilation()


@pytest.mark.system
def test_tree_progress_is_shown_on_a_terminal_but_not_in_a_pipe(tmp_path: Path):
    arguments = ["train", demo_table(), "--target", DEMO_TARGET, "--ensemble", "forest"]
    arguments += ["--trees", 20, "-o", tmp_path / "m.treekit"]
    assert "20/20" in at_terminal(arguments)
    assert call(*arguments).stderr == ""


# ---------------------------------------------------------------- inspect, predict, rules


def test_inspect_prints_schema_policies_size_settings_and_provenance(tree: Path):
    told = call("inspect", tree).stdout
    said = facts(told)
    model = treekit.load(tree)
    assert said["target"] == repr(DEMO_TARGET)
    assert (said["missing"], said["unknown"], said["type"]) == ("direction", "missing", "float32")
    assert said["nodes"] == str(model.n_nodes)
    assert said["model_sha256"] == hash_model(model)
    assert said["file_sha256"] == hashlib.sha256(tree.read_bytes()).hexdigest()
    assert set(model.settings) - set(said) == {"bootstrap", "max_samples", "oob"}
    assert said["trees"] == "1"
    assert "gini (treekit" in said["criterion"]
    assert re.search(r"^age +nominal +'adult', 'young'$", told, re.MULTILINE)


def test_inspect_prints_targets_voting_and_costs(tmp_path: Path):
    columns = (Column("n"),)
    schema = Schema(columns, "first", classes=("no", "yes"), more=(Output("other", (1, 2, 3)),))
    model = make_model(schema, [build_tree(leaf([3, 1, 1, 2, 3]), schema)], voting="hard")
    model.save(tmp_path / "m.treekit")
    told = call("inspect", tmp_path / "m.treekit").stdout
    assert re.findall(r"^  target +(.+)$", told, re.MULTILINE) == ["'first'", "'other'"]
    assert "3 classes, 1, 2, 3" in told
    assert facts(told)["voting"] == "hard"
    one = Schema(columns, classes=("no", "yes"))
    model = make_model(one, [build_tree(leaf([3, 1]), one)], costs=[[0, 1], [5, 0]])
    model.save(tmp_path / "m.treekit")
    said = facts(call("inspect", tmp_path / "m.treekit").stdout)
    assert (said["voting"], said["costs"]) == ("soft", "'no'>'yes'=1, 'yes'>'no'=5")


def test_predict_prints_the_predictions_of_the_model(forest: Path):
    model = treekit.load(forest)
    rows = list(csv.reader(io.StringIO(call("predict", forest, demo_table(), "--proba").stdout)))
    assert rows[0] == [DEMO_TARGET, f"{DEMO_TARGET}=no", f"{DEMO_TARGET}=yes"]
    assert [row[0] for row in rows[1:]] == model.predict(demo_table()).tolist()
    shares = [[float(cell) for cell in row[1:]] for row in rows[1:]]
    assert shares == model.predict_proba(demo_table()).tolist()


def test_predict_prints_one_column_per_target(tmp_path: Path):
    columns = (Column("n"), Column("c", "nominal", ("a", "b")))
    labels = Schema(columns, "first", classes=("no", "yes"), more=(Output("other", (1, 2, 3)),))
    root = threshold("n", 1.5, leaf([3, 1, 1, 2, 3]), leaf([0, 4, 9, 1, 0]))
    numbers = Schema(columns, "sum", task="regression", more=(Output("rest"),))
    model = make_model(labels, [build_tree(root, labels)])
    model.save(tmp_path / "labels.treekit")
    tree = build_tree(threshold("n", 1.5, leaf([0.1, -2]), leaf([7, 0.5])), numbers)
    second = make_model(numbers, [tree])
    second.save(tmp_path / "numbers.treekit")
    (tmp_path / "rows.csv").write_text("c,n\na,1\nb,2\n")
    place = tmp_path / "labels.treekit", tmp_path / "rows.csv"
    assert call("predict", *place).stdout == "first,other\nno,3\nyes,1\n"
    rows = list(csv.reader(io.StringIO(call("predict", *place, "--proba").stdout)))
    names = ["first=no", "first=yes", "other=1", "other=2", "other=3"]
    assert rows[0] == ["first", "other", *names]
    shares = np.concatenate(model.predict_proba({"c": ["a", "b"], "n": [1, 2]}), axis=1)
    assert [[float(cell) for cell in row[2:]] for row in rows[1:]] == shares.tolist()
    said = call("predict", tmp_path / "numbers.treekit", tmp_path / "rows.csv").stdout
    rows = list(csv.reader(io.StringIO(said)))
    assert rows[0] == ["sum", "rest"]
    answers = second.predict({"c": ["a", "b"], "n": [1, 2]}).tolist()
    assert [list(map(float, row)) for row in rows[1:]] == answers


def test_prediction_file_is_replaced_completely_or_not_at_all(tree: Path, tmp_path: Path):
    output = tmp_path / "deep" / "out.csv"
    call("predict", tree, demo_table(), "-o", output)
    whole = output.read_text(encoding="utf-8")
    assert whole == call("predict", tree, demo_table()).stdout
    call("predict", tree, MELONS / "watermelon_3.0.csv", "-o", output, code=2)
    assert output.read_text(encoding="utf-8") == whole

    def pieces():
        yield "half"
        raise ModelFileError("the rest is gone")

    with pytest.raises(ModelFileError):
        write_text(pieces(), output)
    assert output.read_text(encoding="utf-8") == whole
    assert [path.name for path in output.parent.iterdir()] == ["out.csv"]


def test_predict_prints_nothing_if_the_table_lacks_columns(tree: Path):
    assert call("predict", tree, MELONS / "watermelon_3.0.csv", code=2).stdout == ""


def test_table_given_as_model_is_refused_with_its_first_bytes(tmp_path: Path):
    said = call("predict", demo_table(), tmp_path / "x.csv", code=2).stderr
    assert "is not a treekit model: it begins with b'" in said


def test_output_to_a_symlink_writes_its_target(tree: Path, tmp_path: Path):
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "real.csv")
    call("predict", tree, demo_table(), "-o", link)
    assert link.is_symlink()
    assert (tmp_path / "real.csv").is_file()


@pytest.mark.system
def test_a_closed_pipe_is_not_an_error(forest: Path):
    command = f'{sys.executable} -c "{TREEKIT}" rules {forest} | head -n 1'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout == "treekit rules, format 4\n"
    assert done.stderr == ""


def test_rules_are_printed_and_written(forest: Path, tmp_path: Path):
    text = str(treekit.load(forest).rules())
    assert call("rules", forest).stdout == text
    output = tmp_path / "r.txt"
    call("rules", forest, "-o", output)
    assert output.read_bytes() == text.encode()


def test_rules_are_printed_in_chinese_and_verified(tree: Path, tmp_path: Path):
    told = call("rules", tree, "--lang", "zh").stdout
    assert told.startswith("treekit rules, format 4, language zh\n")
    assert "\n  若 " in told
    call("export", tree, "--to", "rules", "--set", "language=zh", "-o", tmp_path / "m")
    assert (tmp_path / "m.rules.txt").read_text(encoding="utf-8") == told
    call("verify", tree, tmp_path / "m.rules.txt", "--rows", 20)
    assert "unknown language 'xx'" in call("rules", tree, "--lang", "xx", code=2).stderr


def test_rules_of_one_tree_equal_its_part_of_all_rules(forest: Path):
    whole = str(treekit.load(forest).rules())
    head, notes = whole.partition("\nrule ")[0], whole[whole.index("\nHow to read this") :]
    parts = [call("rules", forest, "--tree", n).stdout for n in (1, 2, 3)]
    assert all(part.startswith(head) and part.endswith(notes) for part in parts)
    inner = "".join(part.removeprefix(head).removesuffix(notes) for part in parts)
    assert head + inner + notes == whole
    assert "there is no tree 4" in call("rules", forest, "--tree", 4, code=2).stderr
    call("rules", forest, "--tree", 0, code=2)


def test_inspect_prints_settings_as_train_accepts_them(tmp_path: Path):
    table = tmp_path / "t.csv"
    labels = ["a,b", 'say "c"', "d"] * 8
    with table.open("w", newline="") as stream:
        csv.writer(stream).writerows([["x", "y"], *([i % 7, y] for i, y in enumerate(labels))])
    one, two = tmp_path / "one.treekit", tmp_path / "two.treekit"
    given = ["--set", 'class_weight="a,b=2",d=0.1', "--set", 'costs="a,b>d=2.5"', "--seed", 1]
    call("train", table, "--target", "y", *given, "-o", one)
    told = facts(call("inspect", one).stdout.partition("settings\n")[2].partition("\n\n")[0])
    again = [part for key in told for part in ("--set", f"{key}={told[key]}")]
    call("train", table, "--target", "y", *again, "-o", two)
    assert treekit.load(two).settings == treekit.load(one).settings
    assert told["class_weight"] == '"a,b=2.0",d=0.1,"say ""c""=1.0"'


def test_inspect_lists_the_sequence_of_pruned_trees(tree: Path):
    told = call("inspect", tree).stdout
    *_, table = told.split("pruner.sequence")
    head, *rows = [re.split(r"  +", line) for line in table.strip().splitlines()]
    sequence = treekit.load(tree).provenance["pruner"]["sequence"]
    assert head == list(sequence)
    assert [[float(cell) for cell in row] for row in rows] == [
        list(row) for row in zip(*sequence.values(), strict=True)
    ]


# ---------------------------------------------------------------- importances


def test_importances_are_printed_largest_first(tree: Path):
    gains = [line.split() for line in call("importances", tree).stdout.splitlines()]
    numbers = [float(gain) for _, gain in gains[1:]]
    assert gains[0] == ["column", "gain"]
    assert numbers == sorted(numbers, reverse=True)
    assert sum(numbers) == pytest.approx(1.0, abs=1e-3)
    told = call("importances", tree, demo_table(), "--repeats", 2).stdout
    head, first, *_ = told.splitlines()
    assert re.split(r"  +", head) == ["column", "accuracy decrease", "standard error", "gain"]
    assert first.split()[0] == gains[1][0]
    assert re.search(r"^accuracy: 0\.\d+$", told, re.MULTILINE)


def test_importances_out_of_bag_need_a_forest_and_its_table(tree: Path, tmp_path: Path):
    said = call("importances", tree, demo_table(), "--out-of-bag", code=2).stderr
    assert "no out-of-bag rows" in said
    assert "give one" in call("importances", tree, "--out-of-bag", code=2).stderr
    forest = tmp_path / "forest.treekit"
    given = ["--target", DEMO_TARGET, "--ensemble", "forest", "--trees", 3, "--seed", 0]
    call("train", demo_table(), *given, "-o", forest)
    told = call("importances", forest, demo_table(), "--out-of-bag").stdout
    assert "single trees" in told


# ---------------------------------------------------------------- outputs that are inputs


def refused_as_input(*args: object) -> None:
    """A command that would write over a file it reads says so, and nothing has changed."""
    said = call(*args, code=2).stderr
    assert "is an input of this command; choose another name" in " ".join(said.split())


def test_no_command_overwrites_its_input(tree: Path, tmp_path: Path):
    model, table = tmp_path / "m.treekit", tmp_path / "t.csv"
    model.write_bytes(tree.read_bytes())
    table.write_bytes(Path(demo_table()).read_bytes())
    link = tmp_path / "link.csv"
    link.symlink_to(table)
    before = {path: path.read_bytes() for path in (model, table)}
    train = ["train", "--target", DEMO_TARGET]
    refused_as_input(*train, table, "-o", table)
    refused_as_input(*train, table, "-o", link)
    refused_as_input(*train, demo_table(), "--test", table, "-o", tmp_path / "." / "t.csv")
    refused_as_input("predict", model, table, "-o", model)
    refused_as_input("predict", model, table, "-o", table)
    refused_as_input("rules", model, "-o", model)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("name", ["m.c", "m.h"])
def test_export_does_not_overwrite_its_model(name: str, tree: Path, tmp_path: Path):
    model = tmp_path / name
    model.write_bytes(tree.read_bytes())
    refused_as_input("export", model, "--to", "c", "-o", tmp_path / "m")
    assert model.read_bytes() == tree.read_bytes()


def test_certificate_does_not_overwrite_verified_files(tree: Path, tmp_path: Path):
    call("export", tree, "--to", "c", "-o", tmp_path / "m")
    source = tmp_path / "m.c"
    before = source.read_bytes(), tree.read_bytes()
    for certificate in (source, tmp_path / "m.h", tree):
        refused_as_input("verify", tree, source, "--certificate", certificate)
    assert (source.read_bytes(), tree.read_bytes()) == before


def test_output_path_below_a_file_is_refused_before_work_begins(tree: Path, tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("x", encoding="utf-8")
    for command in (
        ["train", demo_table(), "--target", DEMO_TARGET],
        ["predict", tree, demo_table()],
        ["rules", tree, "--as", "text"],
        ["plot", tree],
        ["export", tree, "--to", "c"],
    ):
        said = " ".join(call(*command, "-o", file / "m.c", code=2).stderr.split())
        assert str(file / "m.c") in said
        assert f"{str(file)!r} is not a folder" in said


def test_disk_error_names_the_requested_file(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", ".a-draft.tmp")

    monkeypatch.setattr("os.fsync", full)
    for command in (
        ["train", MELONS / "watermelon_3.0_en.csv", "--target", "good"],
        ["predict", tree, demo_table()],
        ["rules", tree, "--as", "text"],
    ):
        output = tmp_path / f"{command[0]}.out"
        said = call(*command, "-o", output, code=2).stderr
        assert f"{str(output)!r}: No space left on device" in said
        assert "draft" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, "gone", "a\nb"), "'a\\nb': gone"),
        ((2, "gone", b"a"), "b'a': gone"),
        ((2, "gone", Path("a")), "'a': gone"),
        ((9, "bad descriptor", 7), "7: bad descriptor"),
        ((2, "gone", 1.5), "1.5: gone"),
        ((2, "gone", ("a", 1)), "('a', 1): gone"),
        ((2, "gone", None), "gone"),
        ((0, 1, 30), "Errno 0"),  # such as distributed's error of workers that do not start
        ((0, None, object()), "Errno 0"),
        (("only text",), "only text"),
        ((), "OSError"),
    ],
)
def test_operating_system_error_is_one_line(
    arguments: tuple[object, ...], message: str, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> None:
        raise OSError(*arguments)

    monkeypatch.setattr("treekit.data.demo_table", fail)
    said = call("demo", code=2).stderr
    assert said.count("\n") == 1
    assert said.startswith("Error: ")
    assert message in said


# ---------------------------------------------------------------- export and verify


@pytest.mark.parametrize(
    ("target", "files"),
    [
        ("onnx", ["m.onnx"]),
        ("c", ["m.c", "m.h"]),
        ("python", ["m.py"]),
        ("rules", ["m.rules.txt"]),
    ],
)
def test_every_target_is_exported_and_verified(
    target: str, files: list[str], tree: Path, tmp_path: Path
):
    need(*{"c": ("gcc",)}.get(target, ()))
    written = call("export", tree, "--to", target, "-o", tmp_path / "m").stdout.splitlines()
    assert written == [str(tmp_path / name) for name in files]
    certificate = tmp_path / "certificate.json"
    arguments = ["--rows", 50, "--seed", 3, "--certificate", certificate]
    told = call("verify", tree, written[0], *arguments).stdout
    assert told.startswith("the artifact is equal to the model, bit for bit\n")
    assert "rows reach of the model" in told
    proof = json.loads(certificate.read_text(encoding="utf-8"))
    assert proof["equal"] is True
    assert (proof["probes"]["random"], proof["probes"]["seed"]) == (50, 3)


def test_an_export_to_c_prints_the_bytes_of_its_tables_and_its_stack(tree: Path, tmp_path: Path):
    result = call("export", tree, "--to", "c", "--form", "full", "-o", tmp_path / "m")
    header = (tmp_path / "m.h").read_text(encoding="ascii")
    for name in ("TABLE_BYTES", "STACK_BYTES", "BATCH_STACK_BYTES"):
        (size,) = re.findall(rf"^#define M_{name} (?:.*\? )?(\d+)", header, re.MULTILINE)
        assert f"{int(size):,}" in result.stderr
    assert result.stderr.startswith("tables: ")


def test_export_set_option_passes_settings_to_the_target(tree: Path, tmp_path: Path):
    texts = []
    for form in ("if_else", "table"):
        call("export", tree, "--to", "c", "--set", f"form={form}", "-o", tmp_path / f"{form}.c")
        texts.append((tmp_path / f"{form}.c").read_text(encoding="utf-8").replace(form, ""))
    assert texts[0] != texts[1]


def test_export_settings_are_accepted_as_options(tree: Path, tmp_path: Path):
    for number, words in enumerate(
        (["--set", "target_runtime=1.31"], ["--target-runtime", "1.31"], ["--target-runtime=1.31"])
    ):
        call("export", tree, "--to", "onnx", *words, "-o", tmp_path / f"m{number}.onnx")
    written = {path.read_bytes() for path in tmp_path.glob("m*.onnx")}
    assert len(written) == 1
    call("export", tree, "--to", "onnx", "-o", tmp_path / "other.onnx")
    assert (tmp_path / "other.onnx").read_bytes() not in written
    said = call(
        "export", tree, "--to", "c", "--shape", "round", "-o", tmp_path / "m", code=2
    ).stderr
    assert "exporter 'c' has no setting 'shape'" in said
    said = call("export", tree, "--to", "c", "-o", tmp_path / "m", "--shape", code=2).stderr
    assert "Option '--shape' requires a value" in said


def test_the_settings_of_targets_are_listed():
    everything = call("export", "--help-settings").stdout
    assert all(name in everything for name in ("target_runtime", "arithmetic", "package"))
    own = call("export", "--help-settings", "--to", "java").stdout
    assert "package" in own
    assert "arithmetic" not in own


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "cc"], "unknown exporter 'cc'"),
        (["--to", "js"], "did you mean 'javascript'?"),
        (["--to", "py"], "did you mean 'python'?"),
        (["--to", "pyhton"], "did you mean 'python'?"),
        (
            ["--to", "c", "--set", "form=tabel"],
            "must be one of auto, readable, full, if_else, hybrid, table",
        ),
        (["--to", "c", "--set", "from=table"], "did you mean 'form'?"),
        (["--to", "c", "-o", "m.onnx"], "must end in '.c'"),
        (["--to", "javascript", "-o", "m.js"], "must end in '.mjs'"),
    ],
)
def test_export_refuses_invalid_arguments(
    arguments: list[str], said: str, tree: Path, tmp_path: Path
):
    result = call("export", tree, "-o", tmp_path / "m", *arguments, code=2)
    assert said in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_verify_exits_with_1_and_shows_a_differing_row(tree: Path, tmp_path: Path):
    path = tmp_path / "m.rules.txt"
    call("export", tree, "--to", "rules", "-o", path)
    text = path.read_text(encoding="utf-8")
    other = text.replace('pain is "alert no pain"', 'pain is "alert no pain", or is missing')
    other = other.replace('"intermittent severe pain", or is missing', '"intermittent severe pain"')
    path.write_text(other, encoding="utf-8")
    told = call("verify", tree, path, code=1).stdout
    assert told.startswith("the artifact is NOT equal to the model\n")
    assert f"first differing row of {path}" in told
    assert "\n  model:     " in told


def test_verify_accepts_a_glob_and_skips_other_files(tree: Path, tmp_path: Path):
    need("gcc")
    model, proof = tmp_path / "m.treekit", tmp_path / "m.json"
    model.write_bytes(tree.read_bytes())
    for target in ("c", "rules"):
        call("export", model, "--to", target, "-o", tmp_path / "m")
    for _ in range(2):  # the second time the certificate is there too
        files = sorted(tmp_path.iterdir())
        told = call("verify", model, *files, "--rows", 0, "--certificate", proof).stdout
        assert told.startswith("all 2 artifacts are equal to the model, bit for bit\n")
    assert "no artifact among" in call("verify", model, model, code=2).stderr
    assert "cannot run 'm.h'" in call("verify", model, tmp_path / "m.h", code=2).stderr


def test_verify_warns_if_max_rows_limits_coverage(forest: Path, tmp_path: Path):
    call("export", forest, "--to", "rules", "-o", tmp_path / "m")
    arguments = ["verify", forest, tmp_path / "m.rules.txt", "--rows", 0]
    told = call(*arguments, "--max-rows", 40).stdout
    assert "the same bytes as a new export, and all rows run agree" in told.splitlines()[0]
    assert "a sample of the splits got rows; raise max_rows" in told
    assert call(*arguments).stdout.splitlines()[0].endswith("bit for bit")


def test_verify_requires_existing_artifacts(tree: Path, tmp_path: Path):
    assert "no such file" in call("verify", tree, tmp_path / "m.c", code=2).stderr
    assert "ARTIFACT" in call("verify", tree, code=2).stderr


# ---------------------------------------------------------------- plugins


BROKEN = """
from treekit import hookimpl

@hookimpl
def treekit_criteria():
    raise RuntimeError("out of\\norder \\x1b[2J")
"""


@pytest.fixture
def broken_plugin(fresh_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A distribution whose plugin fails."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "broken_plug.py").write_text(textwrap.dedent(BROKEN), encoding="utf-8")
    info = tmp_path / "broken_plug-1.0.dist-info"
    info.mkdir()
    metadata = "Metadata-Version: 2.1\nName: broken-plug\nVersion: 1.0\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "entry_points.txt").write_text("[treekit]\nplug = broken_plug\n", encoding="utf-8")
    return "plugin 'plug' of broken-plug 1.0"


def test_plugins_lists_every_component_and_its_source():
    lines = call("plugins").stdout.splitlines()
    assert lines[0].split() == ["kind", "name", "distribution", "version", "contract", "summary"]
    rows = [line.split()[:4] for line in lines[1:]]
    assert ["criterion", "gini", "treekit", treekit.__version__] in rows
    assert {row[0] for row in rows} >= {"criterion", "splitter", "pruner", "exporter", "importer"}


def test_plugins_command_lists_a_broken_plugin(broken_plugin: str):
    result = call("plugins")
    assert f"faults\n  {broken_plugin} failed in treekit_criteria: RuntimeError" in result.stdout
    assert result.stderr == ""
    assert "\x1b" not in result.stdout


def test_broken_plugin_gives_a_warning_of_one_line(broken_plugin: str, tmp_path: Path):
    wanted = "train", MELONS / "watermelon_3.0_en.csv", "--target", "good", "-o", tmp_path / "m"
    assert call(*wanted, "--criterion", "gini").stderr == "", "which needs no plugin"
    result = call(*wanted, "--criterion", "theirs", code=2)
    line, error, *_ = result.stderr.splitlines()
    assert error.startswith("Error: unknown criterion 'theirs'; installed: ")
    assert line.startswith(f"Warning: {broken_plugin}")
    assert "out of order" in line
    assert "\x1b" not in line


def test_strict_plugins_makes_a_broken_plugin_an_error(broken_plugin: str):
    result = call("--strict-plugins", "plugins", code=2)
    assert result.stderr.startswith(f"Error: {broken_plugin}")


# ---------------------------------------------------------------- colours and hostile names


def test_output_is_coloured_on_a_terminal_but_not_in_a_pipe(tree: Path, tmp_path: Path):
    call("export", tree, "--to", "rules", "-o", tmp_path / "m")
    arguments = ["verify", tree, tmp_path / "m.rules.txt", "--rows", 0]
    assert "\x1b" not in call(*arguments).stdout
    assert "\x1b[32m" in call(*arguments, color=True).stdout


def test_no_color_removes_colours_on_a_terminal(tree: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    call("export", tree, "--to", "rules", "-o", tmp_path / "m")
    arguments = ["verify", tree, tmp_path / "m.rules.txt", "--rows", 0]
    assert "\x1b" not in call(*arguments, color=True).stdout
    assert "\x1b" not in call("inspect", tmp_path / "nothing", color=True, code=2).stderr


HOSTILE = [
    "[red]name[/red]",
    "carriage\rreturn",
    "[link=https://x.org]",
    "\x1b[2Jclear",
    "a\u202eb",
    ":bomb:",
    "行\u3000",
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A table of hostile names and levels, and a model of it."""
    folder = tmp_path_factory.mktemp("hostile")
    table, path = folder / "t.csv", folder / "m.treekit"
    with table.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*HOSTILE, "[bold]y[/bold]"])
        for i in range(12):
            cells = [HOSTILE[(i + j) % len(HOSTILE)] for j in range(len(HOSTILE))]
            writer.writerow([*cells, HOSTILE[i % 3]])
    call("train", table, "--target", "[bold]y[/bold]", "-o", path)
    return table, path


def test_hostile_names_are_printed_escaped(hostile: tuple[Path, Path]):
    table, path = hostile
    told = call("inspect", path).stdout
    told += call("train", table, "--target", "[bold]y[/bold]", "-o", path).stdout
    assert "\x1b" not in told
    assert "\u202e" not in told
    for name in HOSTILE:
        assert escape_text(name) in told


@pytest.mark.system
def test_hostile_names_are_printed_escaped_on_a_terminal(hostile: tuple[Path, Path]):
    table, path = hostile
    told = at_terminal(["inspect", path], ["rules", path], ["predict", path, table])
    assert "\x1b[2J" not in told
    assert "\x1b]8;" not in told  # rich's hyperlinks
    assert "\u202e" not in told
    for name in HOSTILE:
        assert escape_text(name) in told


def test_prediction_file_contains_names_unchanged(hostile: tuple[Path, Path]):
    table, path = hostile
    output = path.with_suffix(".csv")
    call("predict", path, table, "-o", output)
    with output.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ["[bold]y[/bold]"]
    assert [row[0] for row in rows[1:]] == treekit.load(path).predict(table).tolist()
    assert {row[0] for row in rows[1:]} <= set(HOSTILE)


# ---------------------------------------------------------------- demo


def test_demo_trains_exports_prints_rules_and_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    need("gcc")
    # All hundred trees, which gcc takes its time for, grow in .ci/run.
    assert demo._FOREST["trees"] == 100
    monkeypatch.setattr(demo, "_FOREST", demo._FOREST | {"trees": 12})
    out = tmp_path / "demo"
    result = call("demo", "--out", out, "--full")
    files = {path.name for path in out.iterdir()}
    endings = ("treekit", "onnx", "c", "h", "py", "rules.txt")
    assert files == {f"{name}.{ending}" for name in ("tree", "forest") for ending in endings}
    told = result.stdout
    assert told.count("all 4 artifacts are equal to the model, bit for bit") == 2
    assert told.count("rows reach of the model") == 2
    assert "368 rows, 7 numeric and 13 nominal columns, 1,925 missing cells" in told
    tree, forest = (treekit.load(out / f"{name}.treekit") for name in ("tree", "forest"))
    assert forest.n_trees == 12
    assert f"accuracy {forest.provenance['oob']['accuracy']:.4f} (most frequent class" in told
    assert re.search(r"accuracy 0\.\d{3} on 92 rows, of a tree trained on the other 276", told)
    rules = str(tree.rules())
    assert f"  rule {tree.n_leaves} of {tree.n_leaves}," in told
    assert all(
        f"  {line}".rstrip() in told for line in rules[rules.index("rule 1 of") :].split("\n")
    )


def test_demo_runs_the_forest_only_with_full(tmp_path: Path):
    need("gcc")
    told = call("demo", "--out", tmp_path / "demo").stdout
    assert told.count("all 4 artifacts are equal to the model, bit for bit") == 1
    assert told.endswith("The same with a forest of 100 trees: treekit demo --full\n")
    names = {path.name.partition(".")[0] for path in (tmp_path / "demo").iterdir()}
    assert names == {"tree"}


@pytest.mark.matrix
def test_demo_states_unverified_c_files_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("treekit.verify.run_c.shutil.which", lambda name: None)
    monkeypatch.setattr(demo, "_FOREST", demo._FOREST | {"trees": 3})
    told = call("demo", "--out", tmp_path, "--full").stdout
    assert told.count("all 3 artifacts are equal") == 2
    assert f"{tmp_path / 'tree.c'} was written but not verified: gcc is not installed" in told
    assert (tmp_path / "forest.c").is_file()


@pytest.mark.kernels
def test_train_like_uses_settings_of_a_model_unless_overridden(tmp_path: Path):
    table, first, again = MELONS / "watermelon_3.0_en.csv", tmp_path / "a", tmp_path / "b"
    own = ["--algorithm", "c45", "--set", "max_depth=2", "--seed", "3"]
    call("train", table, "--target", "good", "-o", first, *own)
    call("train", table, "--target", "good", "-o", again, "--like", first, "--set", "max_depth=1")
    one, other = treekit.load(first).settings, treekit.load(again).settings
    assert other == one | {"max_depth": 1}
    message = call("train", table, "--target", "good", "-o", first, "--like", first, code=2).stderr
    assert "is an input of this command" in message


# ---------------------------------------------------------------- cli rules
# ``treekit rules``, ``simplify`` and ``revise``: what they write, print and refuse.


def cli_rules_call(*args: object, code: int = 0) -> Result:
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


FORMS = {record.name: record for record in treekit_documents() if record.measured}


@pytest.mark.parametrize("form", FORMS)
def test_rules_are_written_to_a_file_in_every_form(form, here):
    measured = [] if form == "text" else ["--table", "rows.csv"]
    cli_rules_call("rules", "m.treekit", "--as", form, "-o", "out.x", *measured)
    assert Path("out.x").read_text(encoding="utf-8").strip()


def test_settings_of_a_form_are_given_with_set(here):
    said = cli_rules_call("rules", "m.treekit", "--as", "text", "--set", "x=1", code=2).stderr
    assert "form 'text' has no setting 'x'" in said


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json", "csv"])
def test_the_suffix_of_the_file_selects_the_form(form, here):
    cli_rules_call("rules", "m.treekit", "-o", f"by{FORMS[form].suffix}")
    cli_rules_call("rules", "m.treekit", "-o", "asked", "--as", form)
    assert Path(f"by{FORMS[form].suffix}").read_bytes() == Path("asked").read_bytes()


def test_unknown_suffix_of_a_rules_file_is_refused(here):
    said = cli_rules_call("rules", "m.treekit", "-o", "x.pdf", code=2).stderr
    assert "cannot write rules to 'x.pdf': unknown suffix '.pdf'; use one of ." in said
    assert " .csv, " in said
    with pytest.raises(SettingError, match=r"suffix '\.pdf'"):
        treekit.write_rules(treekit.load("m.treekit"), "x.pdf")
    assert not Path("x.pdf").exists()
    cli_rules_call("rules", "m.treekit", "-o", "plain")
    assert Path("plain").read_text(encoding="utf-8").startswith("treekit rules")


def test_rules_overwrite_a_csv_file_only_if_it_contains_rules(here):
    before = Path("rows.csv").read_bytes()
    for form in ([], ["--as", "html"]):
        said = cli_rules_call("rules", "m.treekit", "-o", "rows.csv", *form, code=2).stderr
        assert "'rows.csv' exists and is not a table of rules" in said
    with pytest.raises(DataError, match="is not a table of rules"):
        treekit.write_rules(treekit.load("m.treekit"), "rows.csv")
    assert Path("rows.csv").read_bytes() == before
    for _ in range(2):
        cli_rules_call("rules", "m.treekit", "-o", "rules.csv")
        treekit.write_rules(treekit.load("m.treekit"), "rules.csv")


def test_an_unknown_form_lists_the_known_ones(here):
    said = cli_rules_call("rules", "m.treekit", "--as", "pdf", code=2).stderr
    assert all(form in said for form in FORMS)


@pytest.mark.parametrize(("lang", "word"), [("zh", "则"), ("en", "then")])
def test_rules_are_printed_in_the_requested_language(lang, word, here):
    assert word in cli_rules_call("rules", "m.treekit", "--lang", lang).stdout


@pytest.mark.usefixtures("without_plugins")
def test_rules_options_select_a_tree_decisions_and_reports(here):
    assert cli_rules_call("rules", "m.treekit", "--tree", 1).stdout.count("\nrule ") == 4
    assert cli_rules_call("rules", "m.treekit", "--decisions").stdout.count("\nrule ") <= 4
    for report in (["--overlaps"], ["--against", "rows.csv"]):
        refused = cli_rules_call("rules", "m.treekit", *report, code=2).stderr
        assert "pip install treekit-audit" in refused
    for picture in (["t.svg"], ["t.dot"], ["t.svg", "--of", "roc", "--table", "rows.csv"]):
        refused = cli_rules_call("plot", "m.treekit", "-o", *picture, code=2).stderr
        assert "pip install treekit-plot" in refused
    assert not Path("t.svg").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--against", "rows.csv", "--overlaps"], "one at a time"),
        (["--overlaps", "--as", "html"], "leave --as out"),
        (["--tree", "2"], "there is no tree 2"),
        (["--lang", "tlh"], "unknown language"),
        (["-o", "m.treekit"], "is an input of this command"),
        (["--as", "csv", "--table", "none.csv"], "none.csv"),
        (["--table", "rows.csv"], "no measures"),
    ],
)
def test_rules_command_refuses_invalid_options(options, said, here):
    result = cli_rules_call("rules", "m.treekit", *options, code=2)
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_revise_writes_a_model_of_edited_rules_and_lists_changes(here):
    cli_rules_call("rules", "m.treekit", "-o", "r.txt")
    text = Path("r.txt").read_text(encoding="utf-8")
    edited = text.replace("then yes   support 4   yes: 1", "then no")
    assert edited != text
    Path("e.txt").write_text(edited, encoding="utf-8")
    said = cli_rules_call(
        "revise", "m.treekit", "e.txt", "-o", "n.treekit", "--table", "rows.csv"
    ).stdout
    assert "  - then yes (yes: 1)\n  + then no (no: 1)\n" in said
    assert "ripe: the prediction changes for 1 of 4 rows" in said
    assert re.search(r"accuracy \S+ before, \S+ after, difference -\S+ \(95% interval", said)
    assert treekit.load("n.treekit").predict("rows.csv").tolist()[1] == "no"
    cli_rules_call("revise", "m.treekit", "r.txt", "-o", "same.treekit", "--lang", "zh")


@pytest.mark.parametrize(
    ("rules", "output", "said"),
    [
        ("r.txt", "m.treekit", "is an input of this command"),
        ("r.txt", "r.txt", "is an input of this command"),
        ("none.txt", "n.treekit", "none.txt"),
        ("m.treekit", "n.treekit", "is an archive (ZIP)"),
        ("bad.txt", "n.treekit", "rule text must begin with"),
        ("bad.json", "n.treekit", "cannot be read"),
    ],
)
def test_revise_writes_nothing_for_an_unreadable_file(rules, output, said, here):
    cli_rules_call("rules", "m.treekit", "-o", "r.txt")
    for name in ("bad.txt", "bad.json"):
        Path(name).write_text("hello\n", encoding="utf-8")
    assert said in cli_rules_call("revise", "m.treekit", rules, "-o", output, code=2).stderr
    assert not Path("n.treekit").exists()


@pytest.mark.parametrize("command", sorted(main.commands))
def test_help_contains_no_formatting_marks(command):
    said = cli_rules_call(command, "--help").stdout
    assert "\\b" not in said
    assert "\b" not in said
