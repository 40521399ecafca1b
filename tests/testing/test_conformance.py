"""The conformance checks of components: their reports, and built-in components that pass."""

import importlib
import re
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import treekit
from tests.broken import criteria, pruners, splitters, tasks
from treekit import Criterion, CriterionFunctions, PluginError, SettingError, registry, testing
from treekit.cli import main
from treekit.registry.discovery import Component
from treekit.registry.kinds import KINDS, check_record
from treekit.testing import ConformanceError, check_criterion, check_pruner, check_splitter
from treekit.testing.report import format_report

# ---------------------------------------------------------------- conformance


def of_classes(exempt=(), **functions):
    return Criterion(
        "own", "classification", lambda: CriterionFunctions(**functions), exempt=dict(exempt)
    )


def gini(stats):
    total = stats.sum()
    return 1.0 - (stats * stats).sum() / (total * total)


def counted(stats):
    return gini(stats) * stats.sum()


CHECKS = {"criterion": check_criterion, "splitter": check_splitter, "pruner": check_pruner}
FEW = {"exact"}
"""Components whose laws are checked in the first tier, beside the pruner "mdl" below.

The packages in plugins/ are judged by `treekit plugin check` in .ci/run.
"""


def listed(module):
    """What a module's hooks list: kind and record of each."""
    hooks = [(kind.name, getattr(module, kind.hook, list)) for kind in KINDS.values()]
    return [(kind, record) for kind, hook in hooks for record in hook()]


def built_in():
    modules = [importlib.import_module(kind.builtin) for kind in KINDS.values() if kind.builtin]
    return [found for module in modules for found in listed(module)]


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        pytest.param(
            kind, record, id=record.name, marks=() if record.name in FEW else pytest.mark.matrix
        )
        for kind, record in built_in()
        if kind in CHECKS
    ],
)
def test_every_built_in_component_passes_the_contract_checks(kind, record):
    report = CHECKS[kind](record, strict=True)
    assert report.ok
    assert {verdict.state for verdict in report.verdicts} <= {"holds", "does not apply", "declared"}


def test_breach_report_names_law_smallest_example_and_advice():
    with pytest.raises(ConformanceError) as failure:
        check_criterion(of_classes(impurity=counted))
    head, _, breach = str(failure.value).partition("\n\n")
    assert head == "criterion 'own' breaks 1 law of its contract, 3 not judged"
    assert breach == (
        "doubling-weights-changes-nothing: With every weight doubled, impurity, score and leaf "
        "value stay the same.\n"
        "  smallest example: impurity([1, 1])\n"
        "  got:              1.0, and 2.0 for impurity([2, 2])\n"
        "  expected:         the same\n"
        "  look at:          absolute weights: divide by the node's weight (a test of significance "
        "declares this law)"
    )


def test_laws_that_could_not_be_checked_are_counted_separately():
    def has_undefined_name(stats):
        return 1.0 - stats[0] / wieght  # noqa: F821

    report = check_criterion(of_classes(impurity=has_undefined_name), fail=False)
    n_laws = sum(verdict.state == "not judged" for verdict in report.verdicts)
    assert f"breaks 1 law of its contract, {n_laws} not judged\n" in report.complaint()
    assert str(report).endswith(f"do not apply, {n_laws} not judged")
    (line,) = (line for line in str(report).splitlines() if line.startswith("  not judged"))
    assert line == f"  not judged {n_laws} laws: {report.breaches[0].law.name} is broken"
    assert format_report(report, every=True).count("\n  not judged") == n_laws
    look = report.breaches[0].look
    assert re.fullmatch(r"test_conformance\.py:\d+: return .* / wieght  # noqa: F821", look)


@pytest.mark.matrix
def test_declared_breach_is_accepted():
    exempt = {"doubling-weights-changes-nothing": "it counts rows"}
    report = check_criterion(of_classes(exempt, impurity=counted))
    assert [(v.law.name, v.why) for v in report.declared] == list(exempt.items())


@pytest.fixture
def without_trees(monkeypatch):
    """Leave out the laws that train trees, which take most of the time."""
    make, stages = testing._KINDS["criterion"]
    monkeypatch.setitem(testing._KINDS, "criterion", (make, stages[:2]))


@pytest.mark.matrix
@pytest.mark.usefixtures("without_trees")
def test_a_declared_law_that_holds_is_reported_and_fails_under_strict():
    own = of_classes({"purity-is-zero": "so I believe"}, impurity=gini)
    report = check_criterion(own)
    assert [verdict.law.name for verdict in report.idle] == ["purity-is-zero"]
    with pytest.raises(ConformanceError, match="declared-law-holds"):
        replace(report, strict=True).settled(fail=True)


@pytest.mark.matrix
def test_declaring_an_unknown_law_is_a_breach():
    with pytest.raises(ConformanceError, match="declares-laws-there-are"):
        check_criterion(of_classes({"purity-is-1": "a slip"}, impurity=counted))


@pytest.mark.parametrize("exempt", [{"a-law": ""}, {"a-law": 1}, {1: "why"}, ["a-law"], None])
def test_a_record_with_invalid_exemptions_is_refused(exempt):
    own = Criterion("own", "classification", lambda: None, exempt=exempt)
    with pytest.raises(PluginError, match="exempt of criterion 'own'"):
        check_record(own, KINDS["criterion"])


def test_failing_make_is_a_breach_and_unknown_name_a_setting_error():
    def make():
        raise KeyError("boom")

    report = check_criterion(Criterion("own", "classification", make), fail=False)
    assert [breach.law.name for breach in report.breaches] == ["makes-its-functions"]
    with pytest.raises(SettingError, match="unknown criterion 'ginni'"):
        check_criterion("ginni")


def test_records_with_exemptions_are_hashable():
    one = of_classes({"purity-is-zero": "so"}, impurity=gini)
    assert len({one, one}) == 1
    assert np.isfinite(hash(one))


def invoked(*arguments):
    return CliRunner().invoke(main, ["plugin", "check", *arguments])


@pytest.mark.matrix
def test_the_command_shows_what_is_declared_and_exits_with_0():
    done = invoked("mdl", "--kind", "pruner")
    assert done.exit_code == 0, done.output
    assert (
        "declared doubling-weights-changes-nothing: a larger weight is stronger evidence"
        in done.output
    )
    assert "\x1b" not in done.output
    assert "purity" not in done.output
    assert done.output == f"{check_pruner('mdl')}\n\n"


def test_the_command_exits_with_1_for_a_breach(monkeypatch):
    broken = Component("criterion", of_classes(impurity=counted), "own", "treekit-own", "0.1")
    monkeypatch.setattr(registry, "components", lambda: (broken,))
    done = invoked("treekit-own", "--verbose")
    assert done.exit_code == 1
    assert "BROKEN doubling-weights-changes-nothing" in done.output
    assert "ok purity-is-zero" in done.output
    assert "smallest example: impurity([1, 1])" in done.output


def test_the_command_lists_the_known_names():
    done = invoked("ginni")
    assert done.exit_code == 2
    assert "did you mean 'gini'?" in done.output


def test_a_setting_that_the_component_does_not_have_is_refused():
    done = invoked("entropy", "--set", "bass=2")
    assert done.exit_code == 2
    assert "did you mean 'base'?" in done.output


def listing(stats):
    total = statistics.fsum(stats)
    return gini(stats) + 0.0 * total


def calls_uncompilable_function(stats):
    return listing(stats)


def gini_of_partial(scale, stats):
    return scale * gini(stats)


def fact(**functions):
    return dict(check_criterion(of_classes(**functions)).facts)["impurity"]


@pytest.mark.matrix
@pytest.mark.usefixtures("without_trees")
def test_the_report_compares_the_cost_of_compiled_functions_with_the_built_in():
    facts = dict(check_criterion(of_classes(impurity=gini)).facts)
    assert re.fullmatch(r"compiled in \d+\.\d\d s", facts["impurity"])
    told = r"a tree on 20,000 rows of 4 columns takes \S+ s, (\S+) times as long as with gini"
    match = re.fullmatch(told, facts["training"])
    assert match is not None
    assert 0.2 < float(match[1]) < 20  # an evaluation alone may take 42 times as long


def score_by_arithmetic(parent, children):
    total, squares, kept = 0.0, 0.0, 0.0
    for k in range(parent.shape[0]):
        total += parent[k]
        squares += parent[k] * parent[k]
    for b in range(children.shape[0]):
        weight, own = 0.0, 0.0
        for k in range(parent.shape[0]):
            weight += children[b, k]
            own += children[b, k] * children[b, k]
        kept += own / max(weight, 1e-300)
    return (kept - squares / total) / total


def score_by_conditions(parent, children):
    total, kept = parent.sum(), 0.0
    for b in range(children.shape[0]):
        if children[b].sum() > 0.0:
            kept += (children[b] ** 2).sum() / children[b].sum()
    return (kept - (parent**2).sum() / total) / total


@pytest.mark.matrix
@pytest.mark.usefixtures("without_trees")
def test_the_report_states_if_cuts_are_scored_one_at_a_time():
    facts = [
        dict(check_criterion(of_classes(score=score)).facts)["score"]
        for score in (score_by_arithmetic, score_by_conditions)
    ]
    assert ["cuts are scored one at a time" in fact for fact in facts] == [False, True]


@pytest.mark.matrix
@pytest.mark.usefixtures("without_trees")
def test_the_report_names_the_innermost_line_that_stopped_numba():
    told = fact(impurity=calls_uncompilable_function)
    line = next(n for n, text in enumerate(own_source(), 1) if "= statistics.fsum" in text)
    assert told.startswith(
        f"runs as Python, much slower: test_conformance.py:{line}: "
        "`total = statistics.fsum(stats)` Unknown attribute 'fsum' of type Module(<module "
        "'statistics'>)"
    )


def own_source():
    return Path(__file__).read_text(encoding="utf-8").splitlines()


@pytest.mark.matrix
@pytest.mark.usefixtures("without_trees")
def test_the_report_states_that_a_partial_is_not_a_function():
    told = fact(impurity=partial(gini_of_partial, 1.0))
    assert "it is of type partial, not a function written with def" in told


# ---------------------------------------------------------------- broken
# Planted faults: each broken component is reported under the law that it breaks, and no other.

FAULTS = [
    *((check_criterion, law, record) for law, record in criteria.BROKEN.items()),
    *((check_criterion, law, record) for law, record in criteria.FURTHER),
    *((check_criterion, law, record) for law, record in tasks.BROKEN),
    *((check_splitter, law, record) for law, record in splitters.BROKEN.items()),
    *((check_splitter, law, record) for law, record in splitters.FURTHER),
    *((check_pruner, law, record) for law, record in pruners.BROKEN),
]


QUICK = {
    *("ranks", "a_dict", "unguarded", "none", "nan", "in_place", "changing_result", "arms"),
    *("numbered", "most_frequent", "raises_at_80_rows", "raises_for_missing", "sorts_rows"),
    *("returns_a_tuple", "hidden_generator", "cuts_levels", "threshold_beyond_node"),
    *("spare_branch", "ignores_minimum_weight", "doubled_score", "ignores_max_features"),
    *("finds_nothing", "first_held_class", "share_of_largest", "scales_in_place"),
    *("clears_statistics",),
}
"""Names of faults that are found in less than a quarter of a second."""


def _case(check, law, record):
    slow = record.name not in QUICK or law == "trains-on-small-tables"
    marks = pytest.mark.matrix if slow else ()
    return pytest.param(check, law, record, id=f"{record.name}-{law}", marks=marks)


@pytest.mark.parametrize(("check", "law", "record"), [_case(*fault) for fault in FAULTS])
def test_each_faulty_component_breaches_exactly_its_law(check, law, record):
    report = check(record, fail=False)
    assert [breach.law.name for breach in report.breaches] == [law]
    breach = report.breaches[0]
    assert all((breach.example, breach.got, breach.expected, breach.look))


@pytest.mark.matrix
def test_base_task_of_the_faulty_tasks_has_no_breach():
    assert check_criterion(tasks.SOUND, fail=False).breaches == ()


@pytest.mark.matrix
def test_criterion_for_two_classes_is_checked_on_two_classes():
    def score(parent, children):
        apart = 0.0
        for b in range(children.shape[0]):
            apart += abs(children[b, 0] * parent[1] - children[b, 1] * parent[0])
        return apart / (parent[0] + parent[1]) ** 2  # an index error with one class

    two = Criterion("two", "classification", lambda: CriterionFunctions(score=score), classes=2)
    for breach in check_criterion(replace(two, classes=None), fail=False).breaches:
        assert breach.look.endswith(
            "if the criterion is for two only, declare classes=2 in its Criterion"
        )
    report = check_criterion(two)
    assert "times as long as with gini" in str(report)
    assert "0 broken" in str(report)
    data = {"x": [1, 2, 3], "y": ["a", "b", "c"]}
    with pytest.raises(SettingError, match="supports 2 classes, but the target 'y' has 3"):
        treekit.train(data, "y", criterion=two)
    wrong = replace(two, task="regression")
    with pytest.raises(PluginError, match="has classes 2; it must be"):
        check_record(wrong, KINDS["criterion"])
