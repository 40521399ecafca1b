"""What the README shows runs as it stands."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import treekit
from benchmarks import equality
from treekit.cli import main
from treekit.data import DEMO_TARGET, demo_table

ROOT = Path(__file__).resolve().parents[1]
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
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_readme_fits_on_a_screen_the_table_of_probes_apart():
    before, _, rest = TEXT.partition(equality.BEGIN)
    _, _, after = rest.partition(equality.END)
    assert len(before.splitlines()) + len(after.splitlines()) <= 122


def test_the_table_of_probes_has_every_kind_of_model_and_every_target():
    table = TEXT.partition(equality.BEGIN)[2].partition(equality.END)[0].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert cells[0][1:] == list(equality.TARGETS)
    assert [row[0] for row in cells[2:]] == list(equality.KINDS)
    answered = [cell.replace("= ", "").replace(",", "") for row in cells[2:] for cell in row[1:]]
    assert all(cell == "refused" or int(cell) > 500 for cell in answered)
    assert answered.count("refused") < len(answered) / 10


def test_twelve_lines_of_python_run(capsys: pytest.CaptureFixture[str]):
    lines = block("From Python")
    assert len(lines) == 12
    exec("\n".join(lines), {})
    told = capsys.readouterr().out
    assert "'accuracy'" in told
    assert "treekit rules, format 2" in told
    assert "all 4 artifacts are equal to the model, bit for bit" in told
    assert {path.name for path in Path("out").iterdir()} == {
        *("horses.onnx", "horses.c", "horses.h", "horses.py", "horses.rules.txt")
    }


def test_ten_lines_of_commands_run():
    shutil.copy(demo_table(), "horses.csv")
    lines = block("From the command line")
    assert len(lines) == 10
    told = [treekit_command(line) for line in lines]
    assert "pruner.alpha" in told[0]
    assert "balanced accuracy" in told[1]
    assert Path("scores.html").is_file()
    assert "rule 1 of" in told[2]
    assert len(Path("answers.csv").read_text(encoding="utf-8").splitlines()) == 369
    assert "equal to the model, bit for bit" in told[5]
    assert Path("out/proof.json").is_file()


def test_the_plugin_of_fifteen_lines_trains_by_its_name(
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


def test_the_map_names_rooms_that_are_there():
    table = TEXT.partition("| room | holds ")[2]
    rooms = re.findall(r"`(\w+)/?`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    here = [path.stem for path in (ROOT / "treekit").glob("[!_.]*") if path.name != "py.typed"]
    assert sorted(rooms) == sorted(here)
