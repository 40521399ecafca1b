"""Planted faults: each broken component is reported under the law that it breaks, and no other."""

import pytest

from tests.broken import criteria, pruners, splitters, tasks
from treekit.testing import check_criterion, check_pruner, check_splitter

FAULTS = [
    *((check_criterion, law, record) for law, record in criteria.BROKEN.items()),
    *((check_criterion, law, record) for law, record in criteria.FURTHER),
    *((check_criterion, law, record) for law, record in tasks.BROKEN),
    *((check_splitter, law, record) for law, record in splitters.BROKEN.items()),
    *((check_splitter, law, record) for law, record in splitters.FURTHER),
    *((check_pruner, law, record) for law, record in pruners.BROKEN),
]


QUICK = {
    *("ranks", "a_dict", "unguarded", "none", "nan", "in_place", "restless", "arms", "numbered"),
    *("most_frequent", "stumbles", "sorts_rows", "a_tuple", "draws_elsewhere", "cuts_levels"),
    *("beyond", "spare_branch", "light", "boasts", "tries_all", "blind", "first_held_class"),
    *("share_of_largest", "scales_in_place", "forgets_rows"),
}
"""Names of faults that are found in less than a quarter of a second."""


def _case(check, law, record):
    slow = record.name not in QUICK or law == "trains-on-small-tables"
    marks = pytest.mark.matrix if slow else ()
    return pytest.param(check, law, record, id=f"{record.name}-{law}", marks=marks)


@pytest.mark.parametrize(("check", "law", "record"), [_case(*fault) for fault in FAULTS])
def test_a_fault_is_reported_under_its_law(check, law, record):
    report = check(record, fail=False)
    assert [breach.law.name for breach in report.breaches] == [law]
    breach = report.breaches[0]
    assert all((breach.example, breach.got, breach.expected, breach.look))


@pytest.mark.matrix
def test_the_task_of_the_faults_is_sound_without_them():
    assert check_criterion(tasks.SOUND, fail=False).breaches == ()
