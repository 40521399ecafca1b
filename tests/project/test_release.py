"""Files of a release: workflows, forms, citation, recipe and notes."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml

import treekit
from tools import release_notes

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name: str) -> dict:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.system
@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("vendor.github-workflows", ".github/workflows/*.yml"),
        ("custom.github-workflows-require-timeout", ".github/workflows/*.yml"),
        ("vendor.dependabot", ".github/dependabot.yml"),
        ("vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("vendor.github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
    ],
)
def test_ci_and_repository_files_are_valid_against_their_schemas(schema: str, names: str):
    from check_jsonschema import main
    from click.testing import CliRunner

    files = [str(path) for path in sorted(ROOT.glob(names))]
    assert files
    done = CliRunner().invoke(main, ["--builtin-schema", schema, *files])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_of_a_workflow_is_pinned_by_digest(path: Path):
    used = re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    assert used
    pinned = r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
    assert not [name for name in used if not re.fullmatch(pinned, name)]


def test_an_action_has_one_digest_everywhere():
    texts = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    found = set(re.findall(r"uses: ([\w.-]+/[\w.-]+)\S*@(\w+)", texts))
    assert len(found) == len({action for action, _ in found})


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_read_permissions_unless_a_job_requests_more(path: Path):
    workflow = read(str(path.relative_to(ROOT)))
    assert workflow["permissions"] == {"contents": "read"}


def test_tested_python_versions_equal_the_classifiers():
    prefix = "Programming Language :: Python :: 3."
    named = [c.removeprefix(prefix) for c in PROJECT["classifiers"] if c.startswith(prefix)]
    wanted = [f"3.{minor}" for minor in named]
    assert PROJECT["requires-python"] == f">={wanted[0]}"
    for name, job in (("tests", "package"), ("release", "try")):
        jobs = read(f".github/workflows/{name}.yml")["jobs"]
        assert jobs[job]["strategy"]["matrix"]["python"] == wanted


def test_conda_recipe_has_the_requirements_of_the_distribution():
    recipe = read("conda/recipe.yaml")
    assert recipe["package"]["name"] == PROJECT["name"]
    python, *run = recipe["requirements"]["run"]
    assert [name.replace(" ", "") for name in run] == PROJECT["dependencies"]
    assert python.replace(" ", "") == f"python{PROJECT['requires-python']}"
    (command,) = recipe["build"]["python"]["entry_points"]
    assert PROJECT["scripts"] == dict([command.split(" = ")])
    assert (recipe["about"]["summary"], recipe["about"]["license"]) == (
        PROJECT["description"],
        PROJECT["license"],
    )


def test_all_files_state_the_version_of_the_package():
    assert set(release_notes.read_versions().values()) == {treekit.__version__}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy of the files that state the version, and a changelog of two versions."""
    for name in release_notes.VERSIONS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    text = (
        "# Changelog\n\n## [Unreleased]\n\n"
        f"## [{treekit.__version__}] - 2026-12-01\n\n### Added\n\n- Trees.\n\n"
        "## [0.0.9] - 2026-11-01\n\n- Roots.\n"
    )
    (tmp_path / "CHANGELOG.md").write_text(text, encoding="utf-8")
    return tmp_path


def test_release_notes_are_the_section_of_the_changelog(repository: Path):
    notes = release_notes.make_notes(f"v{treekit.__version__}", repository)
    assert notes == "### Added\n\n- Trees.\n"


def test_tag_without_matching_version_or_section_is_refused(repository: Path):
    with pytest.raises(ValueError, match=r"tag is v9.9.9, but treekit/_version.py states"):
        release_notes.make_notes("v9.9.9", repository)
    (repository / "CHANGELOG.md").write_text("## [Unreleased]\n\n- Trees.\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has no section"):
        release_notes.make_notes(f"v{treekit.__version__}", repository)
