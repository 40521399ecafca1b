"""`treekit plugin new` writes packages that work as they stand, and nothing but whole ones."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from treekit.cli import main
from treekit.discovery import KINDS
from treekit.errors import SettingError
from treekit.scaffold import PluginNames, new_plugin, plugin_names
from treekit.testing import reference
from treekit.testing.reference import convert_docstring

# ---------------------------------------------------------------- scaffold

LONGEST = "a23456789-b23456789-c23456789-d23456789x"


def command(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["plugin", "new", *map(str, arguments)])


@pytest.mark.parametrize("name", ["my-entropy", "my_entropy", "treekit-my-entropy", "My_Entropy"])
def test_all_names_of_a_plugin_follow_from_one_word(name: str):
    wanted = PluginNames("my_entropy", "treekit-my-entropy", "treekit_my_entropy")
    assert plugin_names(name) == wanted


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "-", "--help", ".", "..", "../up", "/etc", "a/b", "a\\b", "c:x", "a b", "a.b"),
        *("1st", "a--b", "-a", "a-", "_a", "é", "entropié", "ａ", "a\n", "a\0", "a\u202eb"),
        *("'; ls", "{{ kind }}", "{% raw %}", '"', "$HOME", "a[b]", "treekit-", "\u212a"),
    ],
)
def test_a_name_that_is_none_is_refused_by_the_rule(name: str, tmp_path: Path):
    with pytest.raises(SettingError, match="use ASCII letters, digits") as refused:
        new_plugin(name, "criterion", tmp_path)
    assert repr(name) in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("class", "'class' is a Python keyword"),
        ("match", "'match' is a Python keyword"),
        ("random", "'random' is a module of Python's standard library"),
        ("treekit", "treekit's own name"),
        ("treekit-gini", "the criterion 'gini' of treekit is installed"),
        ("onnx", "the exporter 'onnx' of treekit is installed"),
        ("scikit_learn", "the importer 'scikit-learn' of treekit is installed"),
        ("x" * 41, "it has 41 characters"),
    ],
)
def test_a_name_that_is_taken_is_refused_by_who_has_it(name: str, why: str, tmp_path: Path):
    with pytest.raises(SettingError, match=why):
        new_plugin(name, "criterion", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_module_that_can_be_imported_already_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "treekit_mine.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingError, match="a module 'treekit_mine' already exists"):
        plugin_names("mine")


def test_an_installed_distribution_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "treekit_mine-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: treekit-mine\nVersion: 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingError, match="the distribution 'treekit-mine' is installed"):
        plugin_names("mine")


PRUNES = """
from treekit import Pruner, PrunerFunctions, hookimpl

@hookimpl
def treekit_pruners():
    return [Pruner("snip", lambda: PrunerFunctions(after=lambda tree, context: tree))]
"""


@pytest.mark.usefixtures("fresh_registry")
def test_a_component_of_an_installed_plugin_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "treekit_garden-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: treekit-garden\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[treekit]\ngarden = garden_of_the_test\n")
    (tmp_path / "garden_of_the_test.py").write_text(PRUNES)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingError, match="the pruner 'snip' of treekit-garden is installed"):
        plugin_names("snip")
    del sys.modules["garden_of_the_test"]


def test_an_unknown_kind_is_refused_with_those_there_are(tmp_path: Path):
    result = command("mine", "--kind", "leaf", "--dir", tmp_path)
    assert result.exit_code == 2
    assert "unknown kind of plugin 'leaf'; known: criterion, splitter, pruner, " in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_command_tells_the_files_and_the_next_three_commands(tmp_path: Path):
    result = command("mine", "--kind", "criterion", "--dir", tmp_path)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "treekit-mine"
    files = {str(path) for path in folder.rglob("*") if path.is_file()}
    told = result.stdout.splitlines()
    assert set(told[: len(files)]) == files
    assert [line.strip() for line in told[-3:]] == [
        *(f"cd {folder}", "pip install -e '.[test]'", "pytest")
    ]


def test_the_folder_is_quoted_where_a_shell_would_read_it_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("-a b").mkdir()
    result = command("mine", "--kind", "pruner", "--dir=-a b")
    assert "  cd './-a b/treekit-mine'\n" in result.stdout


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_what_stands_in_the_place_is_left_as_it_is(make, tmp_path: Path):
    place = tmp_path / "treekit-mine"
    make(place)
    with pytest.raises(SettingError, match="already exists; choose another name or folder"):
        new_plugin("mine", "criterion", tmp_path)
    assert list(tmp_path.iterdir()) == [place]
    assert not place.is_dir() or list(place.iterdir()) == []


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(SettingError, match=r"folder '.*gone' does not exist"):
        new_plugin("mine", "criterion", tmp_path / "gone")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fails", ["write_bytes", "rename", "mkdir"])
def test_a_failure_leaves_nothing(fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real, calls = getattr(Path, fails), []

    def failing(path: Path, *given: object, **options: object) -> object:
        calls.append(path)
        if len(calls) == (1 if fails == "rename" else 3):
            raise OSError(28, "No space left on device")
        return real(path, *given, **options)

    monkeypatch.setattr(Path, fails, failing)
    with pytest.raises(OSError, match="No space left"):
        new_plugin("mine", "criterion", tmp_path)
    monkeypatch.undo()
    assert calls
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module", params=["x", LONGEST])
def packages(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """A package of each kind, with a short name and with the longest one."""
    root = tmp_path_factory.mktemp("packages")
    found = {}
    for kind in KINDS:
        (root / kind).mkdir()
        found[kind] = new_plugin(request.param, kind, root / kind).folder
    return found


def test_a_package_says_what_pip_and_treekit_want_to_know(packages: dict[str, Path]):
    for folder in packages.values():
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["name"] == folder.name
        (module,) = project["entry-points"]["treekit"].values()
        assert (folder / f"{module}.py").is_file() or (folder / module / "__init__.py").is_file()


@pytest.mark.system
def test_packages_are_clean_and_formatted(packages: dict[str, Path]):
    folders = [str(folder) for folder in packages.values()]
    for check in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *check, *folders],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def installed(package: Path) -> None:
    """What installing the package in place would tell Python: its names and its entry point."""
    text = (package / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    told = package / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    told.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (told / "METADATA").write_text(head, encoding="utf-8")
    points = project["entry-points"]["treekit"].items()
    lines = ["[treekit]", *(f"{name} = {module}" for name, module in points), ""]
    (told / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.system
def test_every_package_works_and_passes_its_tests_at_once(tmp_path: Path):
    folders = [new_plugin(f"new-{kind}", kind, tmp_path).folder for kind in KINDS]
    for folder in folders:
        installed(folder)
    path = os.pathsep.join([*map(str, folders), *filter(None, sys.path)])
    tests = [str(folder / "tests") for folder in folders]
    strict = {"PYTHONPATH": path, "TREEKIT_STRICT_PLUGINS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *tests],
        cwd=tmp_path,
        env=os.environ | strict,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == 1
    assert "skipped" not in done.stdout


# ---------------------------------------------------------------- reference
# The reference page of the contract says what the docstrings say, and these say everything.

PAGE = Path(__file__).resolve().parents[2] / "plugins" / "CONTRACT.md"


def test_the_page_is_what_the_docstrings_say():
    told = reference.write_reference()
    assert PAGE.read_text(encoding="utf-8") == told, (
        "plugins/CONTRACT.md is stale: python -m treekit.testing.reference > plugins/CONTRACT.md"
    )


def test_every_hook_every_public_name_and_every_field_is_documented():
    for part in reference.PARTS:
        module = importlib.import_module(part.module)
        assert list_undocumented(part) == []
        for name, value in reference.list_names(part).items():
            documented = reference.find_docstring(module, name) + (inspect.getdoc(module) or "")
            fields = [field.name for field in dataclasses.fields(value)] if is_record(value) else []
            for field in (*fields, *getattr(value, "_fields", ())):
                assert re.search(
                    rf"^([\w*]+, )*{field}(, [\w*]+)*( :|$)", documented, re.MULTILINE
                ), f"{part.module}.{name}.{field}"


def is_record(value: object) -> bool:
    return inspect.isclass(value) and dataclasses.is_dataclass(value)


def list_undocumented(part: reference.PagePart) -> list[str]:
    module = importlib.import_module(part.module)
    names = reference.list_names(part)
    return [name for name in names if not reference.find_docstring(module, name)]


@pytest.mark.system
def test_the_page_is_written_by_the_module():
    command = [sys.executable, "-W", "error", "-m", "treekit.testing.reference"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.decode() == PAGE.read_text(encoding="utf-8")


SOURCE = '''
"""A module.

Fields of every record
----------------------
name : str
    Of the record.
"""
from dataclasses import dataclass

__all__ = ["KNOWN", "UNKNOWN", "Record", "Bare", "told", "silent"]

KNOWN = 1
"""A constant."""
UNKNOWN = 2

@dataclass
class Record:
    """A record.

    Attributes
    ----------
    first, second : int
        Two numbers.
    """

    name: str
    first: int
    second: int
    third: int

@dataclass
class Bare:
    only: int

def told(x, *, y=2):
    """A function of ``x``::

        told(1)

    and no more.
    """

def silent():
    pass
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> reference.PagePart:
    (tmp_path / "a_contract.py").write_text(SOURCE.lstrip(), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "a_contract", raising=False)
    part = reference.PagePart("All of it", "a_contract")
    monkeypatch.setattr(reference, "PARTS", (part,))
    return part


def test_what_has_no_words_is_named(module: reference.PagePart):
    assert list_undocumented(module) == ["UNKNOWN", "Bare", "silent"]


def test_a_hook_without_words_is_named_though_it_is_not_public(
    module: reference.PagePart, monkeypatch: pytest.MonkeyPatch
):
    import a_contract

    def hook():
        pass

    monkeypatch.setattr(a_contract, "treekit_sorters", hook, raising=False)
    assert "treekit_sorters" in list_undocumented(module)


@pytest.mark.usefixtures("module")
def test_docstrings_become_markdown():
    page = reference.write_reference()
    assert (
        "### `told(x, *, y=2)`\n\nA function of `x`:\n\n```\ntold(1)\n```\n\nand no more.\n" in page
    )
    assert "*Attributes*\n\n- `first`, `second` (int): Two numbers.\n" in page
    assert "### Fields of every record\n\n- `name` (str): Of the record.\n" in page
    assert "### `KNOWN`\n\nA constant.\n" in page


def test_lists_and_examples_keep_their_form():
    text = "A.\n\nReturns\n-------\n(n,) float64\n    Numbers::\n\n        x = 1\n\n    And on.\n"
    assert convert_docstring(text, "#") == (
        "A.\n\n*Returns*\n\n- (n,) float64: Numbers:\n\n  ```\n  x = 1\n  ```\n\n  And on.\n"
    )
    assert convert_docstring("B\n\n>>> f()\n1\n\nC", "#").startswith("B\n\n```\n>>> f()\n")
