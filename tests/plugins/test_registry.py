"""Plugins are found by name; a broken one is reported and disables only itself.

The distributions are real to `importlib.metadata`: a module and a
``.dist-info`` folder, on the path of this process.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import treekit
from treekit import contracts, registry
from treekit.contracts import (
    CONTRACT_VERSION,
    Criterion,
    CriterionExtras,
    CriterionFunctions,
    Exporter,
    Pruner,
    PrunerFunctions,
    Setting,
    Splitter,
    SplitterFunctions,
)
from treekit.errors import PluginError, SettingError, TreekitWarning, VerificationError
from treekit.registry.discovery import OLDEST_CONTRACT, read_contract_version
from treekit.registry.kinds import KINDS, check_record
from treekit.settings import suggestion

# ---------------------------------------------------------------- registry

pytestmark = pytest.mark.usefixtures("fresh_registry")

GOOD = """
from treekit import Criterion, CriterionFunctions, hookimpl

def make():
    return CriterionFunctions(impurity=lambda stats: 0.0)

@hookimpl
def treekit_criteria():
    return [Criterion("{name}", "classification", make)]
"""

Install = Callable[..., None]
PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution of one module; all are gone after the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def install(
        distribution: str, code: str, version: str = "1.0", entry_points: str | None = None
    ) -> None:
        module = distribution.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(code), encoding="utf-8")
        info = tmp_path / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n", encoding="utf-8"
        )
        text = f"[treekit]\nplug = {module}\n" if entry_points is None else entry_points
        (info / "entry_points.txt").write_text(text, encoding="utf-8")

    yield install
    for name in set(sys.modules) - before:
        if name.startswith(("good", "bad", "other")):
            del sys.modules[name]


def list_criteria() -> registry.Catalogue:
    return registry.list("criterion")


def warned(ask: Callable[[], object]) -> list[str]:
    """Messages of the treekit warnings that `ask` causes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ask()
    assert all(entry.category is TreekitWarning for entry in caught)
    return [str(entry.message) for entry in caught]


def test_plugin_is_found_with_its_distribution(install: Install):
    install("good-one", GOOD.format(name="theirs"), version="2.3")
    found = registry.get("criterion", "theirs")
    assert isinstance(found, Criterion)
    assert registry.origin(found) == {
        "kind": "criterion",
        "name": "theirs",
        "plugin": "plug",
        "distribution": "good-one",
        "version": "2.3",
    }


def test_built_in_components_are_registered_by_the_same_hooks():
    component = registry.list("exporter")["c"]
    assert (component.kind, component.distribution) == ("exporter", "treekit")
    assert registry.origin(registry.get("exporter", "c"))["plugin"] == "built-in"


def test_components_lists_all_kinds(install: Install):
    install("good-one", GOOD.format(name="theirs"))
    kinds = {component.kind for component in registry.components()}
    only_plugins = {"explainer", "simplifier"}
    assert kinds - only_plugins == set(KINDS) - only_plugins
    assert "theirs" in {component.name for component in registry.components("criterion")}


def test_an_unknown_name_lists_what_is_installed_and_what_is_close(install: Install):
    install("good-one", GOOD.format(name="zinni"))
    with pytest.raises(SettingError, match=r"unknown criterion 'ginni'; installed: .*zinni") as e:
        registry.get("criterion", "ginni")
    assert "did you mean" in str(e.value)


def test_an_unknown_kind_is_refused():
    for ask in (lambda: registry.get("criteria", "gini"), lambda: registry.list("criteria")):
        with pytest.raises(SettingError, match="unknown kind of component 'criteria'; known: crit"):
            ask()


def test_missing_plugins_of_this_repository_are_named(
    monkeypatch: pytest.MonkeyPatch,
):
    folders = {path.parent.name for path in PLUGINS.glob("*/pyproject.toml")}
    assert set(registry._ABSENT_PLUGINS.values()) == folders
    installed = {(c.kind, c.name) for c in registry.components() if c.distribution in folders}
    assert installed <= set(registry._ABSENT_PLUGINS)
    monkeypatch.setattr(registry, "list", lambda kind: {})
    for (kind, name), plugin in registry._ABSENT_PLUGINS.items():
        with pytest.raises(
            SettingError, match=rf"{kind} '{name}' is in .*pip install \./plugins/{plugin}$"
        ):
            registry.get(kind, name)


def test_transposed_letters_of_a_short_name_get_a_suggestion():
    assert suggestion("sk", ["gini", "ks"]) == "; did you mean 'ks'?"
    assert suggestion("sk", ["gini", "mdl"]) == ""


def test_a_record_passes_through_unchanged():
    mine = Criterion("mine", "classification", lambda: CriterionFunctions(impurity=min))
    assert registry.get("criterion", mine) is mine
    assert registry.origin(mine)["distribution"] == ""


def test_a_record_of_another_kind_is_refused():
    pruner = Pruner("mine", lambda: PrunerFunctions(before=max))
    with pytest.raises(SettingError, match=r"the name of a criterion or a treekit\.Criterion"):
        registry.get("criterion", pruner)  # type: ignore[arg-type]


BROKEN = {
    "an import error": ("import no_such_library_anywhere", "ModuleNotFoundError"),
    "an exit while it is imported": ("raise SystemExit(3)", "SystemExit: 3"),
    "a syntax error": ("def f(:", "SyntaxError"),
    "a misspelt hook": (
        """
        from treekit import hookimpl
        @hookimpl
        def treekit_criterions():
            return []
        """,
        "implements treekit_criterions, which is not a hook of treekit",
    ),
    "a hook without its marker": (
        "def treekit_criteria():\n    return []",
        "defines treekit_criteria without @treekit.hookimpl",
    ),
    "no hook at all": ("value = 1", "implements none of the hooks"),
    "a hook with arguments": (
        """
        from treekit import hookimpl
        @hookimpl
        def treekit_criteria(config):
            return []
        """,
        "PluginValidationError",
    ),
    "a hook that raises": (
        """
        from treekit import hookimpl
        @hookimpl
        def treekit_criteria():
            return [1 / 0]
        """,
        "failed in treekit_criteria: ZeroDivisionError: division by zero",
    ),
    "a hook that returns nothing": (
        """
        from treekit import hookimpl
        @hookimpl
        def treekit_criteria():
            pass
        """,
        "returned NoneType from treekit_criteria, expected a list",
    ),
    "a record of the wrong type": (
        """
        from treekit import Pruner, PrunerFunctions, hookimpl
        @hookimpl
        def treekit_criteria():
            return [Pruner("p", lambda: PrunerFunctions())]
        """,
        "treekit_criteria lists treekit.Criterion records, not a Pruner",
    ),
    "one name twice": (
        GOOD.format(name="twin").rstrip() + " * 2\n",
        "has two criteria named 'twin'; the second is ignored",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_plugin_warns_and_other_plugins_work(install: Install, case: str):
    code, cause = BROKEN[case]
    install("bad-one", code, version="0.7")
    install("good-one", GOOD.format(name="theirs"))
    (message,) = warned(list_criteria)
    assert "plugin 'plug' of bad-one 0.7" in message
    assert cause in message
    assert "theirs" in registry.list("criterion")
    assert warned(list_criteria) == []  # told once


@pytest.mark.parametrize("case", BROKEN)
def test_strict_discovery_raises_for_a_broken_plugin(install: Install, case: str):
    code, cause = BROKEN[case]
    install("bad-one", code)
    registry.configure(strict=True)
    with pytest.raises(PluginError, match=r"plugin 'plug' of bad-one 1\.0") as error:
        registry.list("criterion")
    assert cause in str(error.value)


def test_strict_mode_can_be_set_by_the_environment(install: Install, monkeypatch):
    install("bad-one", "import no_such_library_anywhere")
    monkeypatch.setenv("TREEKIT_STRICT_PLUGINS", "1")
    registry.configure()
    with pytest.raises(PluginError):
        registry.list("criterion")


def test_valid_hooks_of_a_partly_broken_plugin_work(install: Install):
    extra = "\n@hookimpl\ndef treekit_prunerz():\n    return []\n"
    install("bad-one", GOOD.format(name="theirs") + extra)
    assert len(warned(list_criteria)) == 1
    assert registry.get("criterion", "theirs").name == "theirs"


def test_error_of_an_unknown_name_lists_plugins_left_out(install: Install):
    install("bad-one", "import no_such_library_anywhere")
    warned(list_criteria)
    with pytest.raises(SettingError, match=r"left out: plugin 'plug' of bad-one 1\.0"):
        registry.get("criterion", "theirs")


def test_malformed_entry_points_disable_only_their_distribution(install: Install):
    install("bad-one", "", entry_points="[treekit]\nthis is no entry point\n")
    install("good-one", GOOD.format(name="theirs"))
    (message,) = warned(list_criteria)
    assert "bad-one 1.0" in message
    assert "theirs" in registry.list("criterion")


def test_entry_points_of_other_tools_are_not_loaded(install: Install):
    install("other-tool", "raise SystemExit", entry_points="[pytest11]\nx = other_tool\n")
    assert warned(list_criteria) == []


BOTH = """
from treekit import Criterion, CriterionFunctions, Pruner, PrunerFunctions, hookimpl

@hookimpl
def treekit_criteria():
    return [Criterion("theirs", "classification", lambda: CriterionFunctions(impurity=min))]

@hookimpl
def treekit_pruners():
    return [Pruner("theirs", lambda: PrunerFunctions(before=max))]
"""


def test_a_plugin_is_imported_when_a_component_of_its_kind_is_missing(install: Install):
    points = "[treekit.criteria]\np = good_one\n"
    install("good-one", GOOD.format(name="theirs"), entry_points=points)
    registry.list("pruner")
    gini = registry.get("criterion", "gini")
    assert registry.origin(gini)["distribution"] == "treekit"
    assert not registry.is_foreign(gini)
    assert "good_one" not in sys.modules
    assert registry.get("criterion", "theirs").name == "theirs"
    assert "good_one" in sys.modules


def test_strict_discovery_imports_the_plugins_of_all_kinds(install: Install):
    install("bad-one", "import no_such_library", entry_points="[treekit.pruners]\np = bad_one\n")
    assert registry.get("criterion", "gini").name == "gini"
    assert warned(list_criteria) == []
    registry.configure(strict=True)
    with pytest.raises(PluginError, match=r"plugin 'p' of bad-one 1\.0 could not be loaded"):
        registry.get("criterion", "gini")


def test_a_plugin_of_two_kinds_has_an_entry_point_for_each(install: Install):
    points = "[treekit.criteria]\np = good_one\n[treekit.pruners]\np = good_one\n"
    install("good-one", BOTH, entry_points=points)
    for kind in ("criterion", "pruner"):
        (found,) = (one for one in registry.components(kind) if one.name == "theirs")
        assert (found.plugin, found.distribution) == ("p", "good-one")
    assert registry.faults() == ()


@pytest.mark.parametrize(
    ("entry_points", "cause"),
    [
        (
            "[treekit.criteria]\np = bad_one\n",
            "implements treekit_pruners, but has no entry point in treekit.pruners; add it to",
        ),
        (
            "[treekit.criteria]\np = bad_one\n[treekit.pruners]\np = bad_one\n"
            "[treekit.documents]\np = bad_one\n",
            "has an entry point in treekit.documents, but no hook treekit_documents",
        ),
        (
            "[treekit.criterions]\np = bad_one\n",
            "is in treekit.criterions, which is not a group of treekit; groups: treekit, treekit.c",
        ),
    ],
)
def test_entry_points_that_do_not_match_the_hooks_are_reported(
    install: Install, entry_points: str, cause: str
):
    install("bad-one", BOTH, entry_points=entry_points)
    (message,) = warned(list_criteria)
    assert "plugin 'p' of bad-one 1.0" in message
    assert cause in message


def test_duplicate_component_names_are_an_error_only_for_that_name(install: Install):
    install("good-one", GOOD.format(name="same"))
    install("other-one", GOOD.format(name="same"), version="5.0")
    install("good-two", GOOD.format(name="free"))
    assert registry.get("criterion", "free").name == "free"
    assert "same" in registry.list("criterion")
    for ask in (
        lambda: registry.get("criterion", "same"),
        lambda: dict(registry.list("criterion")),
    ):
        with pytest.raises(PluginError, match=r"provided by .*good-one 1\.0 and by .*other-one 5"):
            ask()
    offered = [c.distribution for c in registry.components("criterion") if c.name == "same"]
    assert offered == ["good-one", "other-one"]


def test_plugin_cannot_replace_a_built_in_name(install: Install):
    install("good-one", GOOD.format(name="gini"))
    (told,) = warned(list_criteria)
    assert "good-one 1.0 provides criterion 'gini', the name of treekit's own; its author" in told
    assert registry.origin(registry.get("criterion", "gini"))["distribution"] == "treekit"
    registry.configure(strict=True)
    with pytest.raises(PluginError, match="the name of treekit's own"):
        registry.get("criterion", "entropy")


RUN = """
from treekit import Exporter, hookimpl

def runner():
    {body}

def export(model, name):
    return {{name + ".theirs": b"theirs"}}

@hookimpl
def treekit_exporters():
    return [Exporter("theirs", ".theirs", export, runner=runner)]
"""
RUNNER = """from treekit.verify.runtime import Runner, Runtime
    return Runner("theirs", ".theirs", (Runtime("their-engine", run, lambda: "7"),))

def run(job, rows):
    from treekit.errors import VerificationError
    raise VerificationError("not " + job.path.read_text())"""


def test_verify_runs_files_by_the_runner_of_their_exporter(install: Install, tmp_path: Path):
    install("good-one", RUN.format(body=RUNNER))
    model = train_small()
    paths = treekit.export(model, "theirs", tmp_path / "m")
    report = treekit.verify(model, paths, runtimes=["their-engine"])
    assert [(one.runtime, one.error) for one in report.artifacts] == [
        ("their-engine", "not theirs")
    ]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import no_such_library", "'theirs' (from good-one 1.0) failed: ModuleNotFoundError"),
        ("raise SystemExit", "'theirs' (from good-one 1.0) failed: SystemExit"),
        ("return 3", "runner of exporter 'theirs' (from good-one 1.0) returned int"),
    ],
)
def test_failing_runner_is_reported_for_its_own_files_only(
    body: str, said: str, install: Install, tmp_path: Path
):
    install("good-one", RUN.format(body=body))
    model = train_small()
    with pytest.raises(VerificationError, match=f"cannot run 'm.theirs'.*{re.escape(said)}"):
        treekit.verify(model, treekit.export(model, "theirs", tmp_path / "m"))
    assert treekit.verify(model, treekit.export(model, "python", tmp_path / "m.py")).equal


@pytest.mark.usefixtures("without_plugins")
def test_verify_and_rules_name_the_plugin_of_a_file(tmp_path: Path):
    model = train_small()
    with pytest.raises(VerificationError, match=r"cannot run 'm\.sql'.*pip install treekit-sql"):
        treekit.verify(model, tmp_path / "m.sql")
    for name, plugin in (("m.sql", "sql"), ("m.DMN", "interchange")):
        with pytest.raises(SettingError, match=f"pip install treekit-{plugin}"):
            treekit.write_rules(model, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def train_small() -> treekit.Model:
    return treekit.train({"x": [0.0, 1.0, 2.0, 3.0], "y": ["a", "a", "b", "b"]}, "y")


def test_strict_discovery_refuses_duplicate_names_at_once(install: Install):
    install("good-one", GOOD.format(name="same"))
    install("other-one", GOOD.format(name="same"))
    registry.configure(strict=True)
    with pytest.raises(PluginError, match="'same' is provided by"):
        registry.get("criterion", "gini")


def noop(*args: object, **settings: object) -> CriterionFunctions:
    return CriterionFunctions(impurity=max)


RECORDS = {
    "an empty name": (Criterion("", "classification", noop), "is not a word"),
    "a name with a space": (Criterion("a b", "classification", noop), "is not a word"),
    "a name with a line break": (Criterion("a\n", "classification", noop), "is not a word"),
    "a name that is no text": (Criterion(7, "classification", noop), "is not a word"),
    "an unknown task": (Criterion("a", "ranking", noop), "task 'ranking'; known"),
    "a make that is no function": (Criterion("a", "classification", 3), "'make' of .* is a int"),
    "settings in a list": (Criterion("a", "classification", noop, []), "be a tuple"),
    "a setting that is no record": (Criterion("a", "classification", noop, ("q",)), "be a tuple"),
    "a setting twice": (
        Criterion("a", "classification", noop, (Setting("q", 1, "x"), Setting("q", 2, "x"))),
        "declares setting 'q' twice",
    ),
    "a default outside its bounds": (
        Criterion("a", "classification", noop, (Setting("q", 1, "x", minimum=2),)),
        "at least 2, not 1",
    ),
    "a make that does not take its setting": (
        Criterion("a", "classification", lambda: None, (Setting("q", 1, "x"),)),
        "has the wrong parameters: got an unexpected keyword argument 'q'",
    ),
    "a make with an undeclared parameter": (
        Criterion("a", "classification", lambda q: None),
        "missing a required argument: 'q'",
    ),
    "a suffix without a dot": (Exporter("a", "c", noop), "suffix 'c'"),
    "a suffix that leaves the folder": (Exporter("a", ".c/../x", noop), "suffix"),
    "a setting called as an argument of the front door": (
        Exporter("a", ".c", noop, (Setting("path", "", "x"),)),
        "declares setting 'path', which is an argument of treekit",
    ),
    "an export of one argument": (Exporter("a", ".c", lambda model: {}), "the wrong parameters"),
    "a runner that is no function": (Exporter("a", ".c", noop, runner=3), "'runner' of .* a int"),
    "a runner of an argument": (
        Exporter("a", ".c", noop, runner=lambda model: None),
        "'runner' of .* has the wrong parameters",
    ),
}


@pytest.mark.parametrize("case", RECORDS)
def test_a_malformed_record_is_refused(case: str):
    record, cause = RECORDS[case]
    kind = KINDS["exporter" if isinstance(record, Exporter) else "criterion"]
    with pytest.raises(PluginError, match=cause):
        check_record(record, kind)


@pytest.mark.parametrize("name", ["gini", "hinge-2.0", "基尼", "entropie_é"])
def test_component_names_may_use_any_script(name: str):
    check_record(Criterion(name, "classification", noop), KINDS["criterion"])


def test_make_resolves_the_settings_and_returns_the_functions():
    def made(q: float, hard: bool) -> CriterionFunctions:
        return CriterionFunctions(impurity=lambda stats: q if hard else 0.0)

    settings = (Setting("q", 2.0, "order", minimum=0), Setting("hard", False, "votes"))
    record = Criterion("tsallis", "classification", made, settings)
    functions, values = registry.make(record, {"hard": True})
    assert functions.impurity(None) == 2.0
    assert values == {"q": 2.0, "hard": True}
    with pytest.raises(SettingError, match="setting 'q' of criterion 'tsallis' must be"):
        registry.make(record, {"q": -1.0})


def test_criterion_functions_accept_extras_as_keywords():
    made = CriterionFunctions(impurity=min, score=max, choose=max, tolerance=0.5)
    assert made == CriterionFunctions(min, max, extras=CriterionExtras(choose=max, tolerance=0.5))
    assert made.extras.penalty is None
    changed = replace(made, penalty=min, order=max)
    assert changed.extras == CriterionExtras(choose=max, tolerance=0.5, penalty=min)
    assert (changed.score, changed.order) == (max, max)
    with pytest.raises(TypeError, match="unexpected keyword argument 'scores'"):
        CriterionFunctions(scores=max)
    with pytest.raises(TypeError, match="positional"):  # the third was `choose`
        CriterionFunctions(min, max, max)


def test_make_that_raises_is_reported_with_its_settings():
    record = Criterion("odd", "classification", lambda q: 1 / q, (Setting("q", 0, "x"),))
    said = r"criterion 'odd' failed in make with settings {'q': 0}: Zero"
    with pytest.raises(PluginError, match=said):
        registry.make(record, {})


def of_extras(**extras: object) -> CriterionFunctions:
    return CriterionFunctions(impurity=max, extras=CriterionExtras(**extras))


FUNCTIONS = {
    "another type": (Criterion("a", "classification", lambda: None), "returned None, not a"),
    "no function": (Criterion("a", "classification", CriterionFunctions), "neither impurity nor"),
    "choose alone": (
        Criterion("a", "classification", lambda: of_extras(choose=max)),
        "needs both",
    ),
    "levels by score without choose": (
        Criterion("a", "classification", lambda: of_extras(levels_by_score=True)),
        "levels_by_score, which needs choose",
    ),
    "levels by another thing": (
        Criterion("a", "classification", lambda: of_extras(levels_by_score="gain")),
        "levels_by_score 'gain'; it must be True or False",
    ),
    "an extra that is a number": (
        Criterion("a", "classification", lambda: of_extras(penalty=0.5)),
        "'penalty' of criterion 'a' is a float",
    ),
    "extras of another type": (
        Criterion("a", "classification", lambda: CriterionFunctions(max, extras={"choose": max})),
        "extras of criterion 'a' are a dict, not a treekit.CriterionExtras",
    ),
    "a number for a function": (
        Criterion("a", "classification", lambda: CriterionFunctions(impurity=0.5)),
        "'impurity' of criterion 'a' is a float",
    ),
    "an unknown coding": (Splitter("a", lambda: SplitterFunctions(max, "coarse")), "'coarse'"),
    "a splitter without find": (Splitter("a", lambda: SplitterFunctions(None)), "'find'"),
    "an idle pruner": (Pruner("a", PrunerFunctions), "neither before nor after"),
    "a hold-out of everything": (
        Pruner("a", lambda: PrunerFunctions(before=max, holdout=1.0)),
        "holdout 1.0",
    ),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_functions_that_break_the_contract_are_refused(case: str):
    record, cause = FUNCTIONS[case]
    with pytest.raises(PluginError, match=cause):
        registry.make(record, {})


def test_names_are_resolved_without_importing_heavy_libraries():
    # Without plugins: those that are installed may import what they like.
    code = (
        "import sys, importlib.metadata; importlib.metadata.distributions = lambda: ();"
        "from treekit import registry; registry.get('exporter', 'c');"
        "print({'numba', 'onnx', 'sklearn', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# ---------------------------------------------------------------- contract versions
# Plugins of every supported contract work, and what is too new or too old is left out.

FORMER = Path(__file__).parents[1] / "plugins_v1"
RNG = np.random.default_rng(4)
DATA = {
    "a": RNG.integers(0, 9, 90),
    "b": RNG.normal(size=90),
    "c": RNG.choice(list("xyz"), 90),
}
DATA["y"] = np.where(DATA["a"] + 2 * (DATA["c"] == "x") + RNG.normal(size=90) > 5, "p", "q")


@pytest.fixture
def former(monkeypatch):
    """The plugin of contract 1, installed."""
    monkeypatch.syspath_prepend(str(FORMER))
    import treekit_former

    return treekit_former


def test_plugin_that_declares_this_contract_is_checked_against_it(former, monkeypatch):
    monkeypatch.setattr(former, "treekit_contract", 2, raising=False)
    with pytest.raises(
        PluginError,
        match=r"'choose' of criterion 'former_ratio' \(from treekit-former 1.4.0\) has the wrong",
    ):
        treekit.train(DATA, "y", criterion="former_ratio")


UNSUPPORTED = {
    "newer": (CONTRACT_VERSION + 1, "for version 3 of the contract, .* upgrade treekit"),
    "too old": (1, r"for version 1 of the contract, .* choose takes \(gains, scores, levels\)"),
    "no whole number": ("2", "treekit_contract = '2', which is not an integer"),
    "a truth value": (True, "treekit_contract = True, which is not an integer"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_plugin_of_an_unsupported_contract_is_left_out_with_a_warning(former, monkeypatch, case):
    version, cause = UNSUPPORTED[case]
    monkeypatch.setattr(former, "treekit_contract", version, raising=False)
    with pytest.warns(TreekitWarning, match=f"'former' of treekit-former 1.4.0 .*{cause}") as told:
        names = set(registry.list("criterion"))
    assert len(told) == 1
    assert "gini" in names
    assert "former_ratio" not in names
    registry.configure(strict=True)
    with pytest.raises(PluginError, match=cause):
        registry.list("criterion")


def test_every_version_since_the_oldest_documents_its_changes():
    told = contracts.__doc__.partition("Versions\n")[2].splitlines()
    versions = [int(line) for line in told if line.strip().isdigit()]
    assert versions == list(range(CONTRACT_VERSION, OLDEST_CONTRACT - 1, -1))


def test_a_module_without_a_version_has_the_oldest_contract():
    assert read_contract_version(None) == read_contract_version(pytest) == OLDEST_CONTRACT


def test_built_in_functions_are_made_once_per_settings():
    record = registry.get("criterion", "quantile")
    first, settings = registry.make(record, {})
    assert registry.make(record, dict(settings))[0] is first
    other, _ = registry.make(record, {"quantile": 0.25})
    assert (first.statistics.quantile, other.statistics.quantile) == (0.5, 0.25)
    given = dataclasses.replace(record)  # an author's own record may be changed and made again
    assert registry.make(given, {})[0] is not registry.make(given, {})[0]
