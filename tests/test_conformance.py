"""The kit that judges components: what it reports, and that what is installed passes."""

import numpy as np
import pytest

from treekit import Criterion, CriterionFunctions, PluginError, SettingError, registry
from treekit.records import KINDS, check_record
from treekit.testing import ConformanceError, check_criterion


def of_classes(exempt=(), **functions):
    return Criterion(
        "own", "classification", lambda: CriterionFunctions(**functions), exempt=dict(exempt)
    )


def gini(stats):
    total = stats.sum()
    return 1.0 - (stats * stats).sum() / (total * total)


def counted(stats):
    return gini(stats) * stats.sum()


@pytest.mark.parametrize("name", sorted(registry.criteria()))
def test_every_installed_criterion_keeps_its_laws(name):
    report = check_criterion(name, strict=True)
    assert report.ok
    assert {verdict.state for verdict in report.verdicts} <= {"holds", "does not apply", "declared"}


def test_a_breach_names_the_law_the_smallest_example_and_where_to_look():
    with pytest.raises(ConformanceError) as failure:
        check_criterion(of_classes(impurity=counted))
    head, _, breach = str(failure.value).partition("\n\n")
    assert head.startswith("criterion 'own' breaks 1 of ")
    assert breach == (
        "doubling-weights-changes-nothing: With every weight doubled, impurity, score and leaf "
        "value stay as they are.\n"
        "  smallest example: impurity([1, 1])\n"
        "  got:              1.0, and 2.0 for impurity([2, 2])\n"
        "  expected:         the same\n"
        "  look at:          absolute weights: divide by the node's weight (a test of significance "
        "declares this law)"
    )


def test_a_declared_breach_passes():
    exempt = {"doubling-weights-changes-nothing": "it counts rows"}
    report = check_criterion(of_classes(exempt, impurity=counted))
    assert [(v.law.name, v.why) for v in report.declared] == list(exempt.items())


def test_a_declared_law_that_holds_is_told_and_fails_under_strict():
    own = of_classes({"purity-is-zero": "so I believe"}, impurity=gini)
    assert [v.law.name for v in check_criterion(own).idle] == ["purity-is-zero"]
    with pytest.raises(ConformanceError, match="declared-law-holds"):
        check_criterion(own, strict=True)


def test_a_declared_law_that_there_is_not_is_a_breach():
    with pytest.raises(ConformanceError, match="declares-laws-there-are"):
        check_criterion(of_classes({"purity-is-1": "a slip"}, impurity=gini))


@pytest.mark.parametrize("exempt", [{"a-law": ""}, {"a-law": 1}, {1: "why"}, ["a-law"], None])
def test_a_record_whose_exemptions_are_no_sentences_is_refused(exempt):
    own = Criterion("own", "classification", lambda: None, exempt=exempt)
    with pytest.raises(PluginError, match="exempt of criterion 'own'"):
        check_record(own, KINDS["criterion"])


def test_a_make_that_fails_is_a_breach_and_an_unknown_name_is_not():
    def make():
        raise KeyError("boom")

    report = check_criterion(Criterion("own", "classification", make), fail=False)
    assert [breach.law.name for breach in report.breaches] == ["makes-its-functions"]
    with pytest.raises(SettingError, match="unknown criterion 'ginni'"):
        check_criterion("ginni")


def test_records_with_exemptions_can_still_be_told_apart_by_hash():
    one = of_classes({"purity-is-zero": "so"}, impurity=gini)
    assert len({one, one}) == 1
    assert np.isfinite(hash(one))
