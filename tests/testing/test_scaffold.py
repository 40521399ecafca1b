"""`treekit plugin new` writes complete packages that pass their tests."""

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

from tests.snapshots.public_api import list_private_names
from treekit import hookspecs
from treekit.cli import main
from treekit.errors import SettingError
from treekit.registry.discovery import GROUPS
from treekit.registry.kinds import KINDS
from treekit.scaffold import PluginNames, new_plugin, plugin_names

# ---------------------------------------------------------------- scaffold

LONGEST = "a23456789-b23456789-c23456789-d23456789x"


def command(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["plugin", "new", *map(str, arguments)])


@pytest.mark.parametrize("name", ["my-entropy", "my_entropy", "treekit-my-entropy", "My_Entropy"])
def test_plugin_names_are_derived_from_one_word(name: str):
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
def test_an_invalid_name_is_refused_with_the_rule(name: str, tmp_path: Path):
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
def test_taken_name_is_refused_naming_its_owner(name: str, why: str, tmp_path: Path):
    with pytest.raises(SettingError, match=why):
        new_plugin(name, "criterion", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_name_of_an_importable_module_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "treekit_mine.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingError, match="a module 'treekit_mine' already exists"):
        plugin_names("mine")


def test_name_of_an_installed_distribution_is_refused(
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
def test_name_of_an_installed_component_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "treekit_garden-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: treekit-garden\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[treekit]\ngarden = garden_of_the_test\n")
    (tmp_path / "garden_of_the_test.py").write_text(PRUNES)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingError, match="the pruner 'snip' of treekit-garden is installed"):
        plugin_names("snip")
    del sys.modules["garden_of_the_test"]


def test_unknown_kind_is_refused_with_the_known_ones(tmp_path: Path):
    result = command("mine", "--kind", "leaf", "--dir", tmp_path)
    assert result.exit_code == 2
    assert "unknown kind of plugin 'leaf'; known: criterion, splitter, pruner, " in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_the_files_and_the_next_three_commands(tmp_path: Path):
    result = command("mine", "--kind", "criterion", "--dir", tmp_path)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "treekit-mine"
    files = {str(path) for path in folder.rglob("*") if path.is_file()}
    told = result.stdout.splitlines()
    assert set(told[: len(files)]) == files
    assert [line.strip() for line in told[-3:]] == [
        *(f"cd {folder}", "pip install -e '.[test]'", "pytest")
    ]


def test_printed_folder_is_quoted_for_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("-a b").mkdir()
    result = command("mine", "--kind", "pruner", "--dir=-a b")
    assert "  cd './-a b/treekit-mine'\n" in result.stdout


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_existing_files_are_not_overwritten(make, tmp_path: Path):
    place = tmp_path / "treekit-mine"
    make(place)
    with pytest.raises(SettingError, match="already exists; choose another name or folder"):
        new_plugin("mine", "criterion", tmp_path)
    assert list(tmp_path.iterdir()) == [place]
    assert not place.is_dir() or list(place.iterdir()) == []


def test_missing_folder_is_refused(tmp_path: Path):
    with pytest.raises(SettingError, match=r"folder '.*gone' does not exist"):
        new_plugin("mine", "criterion", tmp_path / "gone")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fails", ["write_bytes", "rename", "mkdir"])
def test_failed_plugin_creation_leaves_no_files(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
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


def test_a_package_has_the_metadata_of_pip_and_treekit(packages: dict[str, Path]):
    for folder in packages.values():
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["name"] == folder.name
        ((group, points),) = project["entry-points"].items()
        assert group in GROUPS
        (module,) = points.values()
        assert (folder / f"{module}.py").is_file() or (folder / module / "__init__.py").is_file()


def test_created_packages_use_only_the_facades(packages: dict[str, Path]):
    for folder in packages.values():
        for path in folder.rglob("*.py"):
            assert list_private_names(path.read_text(encoding="utf-8")) == set()


@pytest.mark.system
def test_created_packages_pass_ruff_check_and_format(packages: dict[str, Path]):
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
    ((group, points),) = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {module}" for name, module in points.items()), ""]
    (told / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.system
def test_every_created_package_passes_its_tests(tmp_path: Path):
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
# The documentation shows the docstrings of all that a plugin uses.

CONTRACT_PAGE = (Path(__file__).resolve().parents[2] / "docs" / "contract.md").read_text("utf-8")
MODULES = re.findall(r"automodule:: (\S+)\n +:members: ?(.*)", CONTRACT_PAGE)


@pytest.mark.parametrize(("name", "members"), MODULES)
def test_every_public_name_and_every_field_is_documented(name: str, members: str):
    module = importlib.import_module(name)
    names = members.split(", ") if members else module.__all__
    public = {own: value for own in names if callable(value := getattr(module, own))}
    assert [own for own, value in public.items() if not inspect.getdoc(value)] == []
    for own, value in public.items():
        is_record = inspect.isclass(value) and dataclasses.is_dataclass(value)
        fields = [field.name for field in dataclasses.fields(value)] if is_record else []
        documented = (inspect.getdoc(value) or "") + (inspect.getdoc(module) or "")
        for field in (*fields, *getattr(value, "_fields", ())):
            pattern = rf"^([\w*]+, )*{field}(, [\w*]+)*( :|$)"
            assert re.search(pattern, documented, re.MULTILINE), f"{name}.{own}.{field}"


def test_every_hook_is_documented():
    hooks = {name: value for name, value in vars(hookspecs).items() if name.startswith("treekit_")}
    assert sorted(dict(MODULES)["treekit.hookspecs"].split(", ")) == sorted(hooks)
