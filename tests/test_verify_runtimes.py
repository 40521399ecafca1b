"""Verification says what it ran artifacts with, what it did not try, and what time cut."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
from click.testing import CliRunner

from tests.reference.models import chain, mixed_schema, random_model
from tests.runtimes import need
from treekit.cli import main
from treekit.data.schema import Column, Schema
from treekit.errors import VerificationError
from treekit.export import export
from treekit.model.builder import build_tree, leaf, oblique, threshold
from treekit.model.model import make_model
from treekit.verify import make_probes, verify
from treekit.verify.answers import Answers, expected
from treekit.verify.probes import Budget
from treekit.verify.run_artifact import Questions, run_artifact
from treekit.verify.runtime import Job, OutOfTimeError, Runner, Runtime


def small_model():
    schema = Schema((Column("x"),), classes=("no", "yes"))
    return make_model(schema, [build_tree(threshold("x", 0.5, leaf([1, 3]), leaf([3, 1])), schema)])


def exported(model, folder, target):
    return export(model, target, folder / "model")[0]


def test_an_artifact_runs_on_one_runtime_of_its_kind_and_the_others_are_named(tmp_path):
    report = verify(small_model(), [exported(small_model(), tmp_path, "c")])
    assert [artifact.runtime for artifact in report.artifacts] == ["gcc"]
    assert "clang" in {one.runtime for one in report.untried}
    assert "not tried: clang (" in str(report)


@pytest.mark.matrix
def test_all_runtimes_of_a_machine_are_tried_if_asked(tmp_path):
    need("gcc", "clang")
    paths = [exported(small_model(), tmp_path, target) for target in ("c", "python")]
    proof = tmp_path / "proof.json"
    report = verify(small_model(), paths, runtimes="all", certificate=proof)
    assert report.equal, str(report)
    assert {"gcc", "clang", "python"} <= {artifact.runtime for artifact in report.artifacts}
    assert str(report).startswith("all 2 artifacts are equal to the model")
    told = json.loads(proof.read_text())
    assert {"gcc", "clang"} <= set(told["versions"])
    assert {"gcc", "clang"} <= {artifact["runtime"] for artifact in told["artifacts"]}


@pytest.mark.matrix
def test_runtimes_are_chosen_by_name_for_their_kind_alone(tmp_path):
    need("gcc", "clang")
    paths = [exported(small_model(), tmp_path, target) for target in ("c", "python")]
    report = verify(small_model(), paths, runtimes=["clang"])
    assert [artifact.runtime for artifact in report.artifacts] == ["clang", "python"]
    report = verify(small_model(), paths[:1], without=["gcc"])
    assert [artifact.runtime for artifact in report.artifacts] == ["clang"]
    assert "gcc (left out, as asked)" in str(report)


def test_a_machine_without_a_compiler_says_so_and_proves_nothing(tmp_path, monkeypatch):
    path = exported(small_model(), tmp_path, "c")
    monkeypatch.setenv("PATH", str(tmp_path))
    report = verify(small_model(), [path])
    assert report.exit_code == 1
    assert "gcc is not installed, clang is not installed" in report.artifacts[0].error
    (asked,) = verify(small_model(), [path], runtimes=["clang"]).artifacts
    assert asked.error == "'model.c' cannot be run here: clang is not installed"


def test_an_unknown_runtime_is_named_with_the_nearest(tmp_path):
    path = exported(small_model(), tmp_path, "python")
    with pytest.raises(VerificationError, match=r"unknown runtime 'gccc'; did you mean 'gcc'"):
        verify(small_model(), [path], runtimes=["gccc"])


def test_the_command_line_chooses_runtimes_and_bounds_the_time(tmp_path):
    small_model().save(tmp_path / "m.treekit")
    path = exported(small_model(), tmp_path, "python")
    command = ["verify", str(tmp_path / "m.treekit"), str(path), "--budget", "100"]
    done = CliRunner().invoke(main, [*command, "--with", "python"])
    assert (done.exit_code, "equal to the model" in done.output) == (0, True)
    done = CliRunner().invoke(main, [*command, "--without", "python"])
    assert (done.exit_code, "left out, as asked" in done.output) == (1, True)


# ------------------------------------------------------------------ time


def questions(n):
    model = small_model()
    rows = np.random.default_rng(0).normal(size=(n, 1))
    return model.schema, Questions(rows, expected(model, rows, 0))


def asked_of(answer, n, deadline, tmp_path):
    """What a runtime answers that is a function of the job and the rows."""
    schema, asked = questions(n)
    path = tmp_path / "m.txt"
    path.write_text("")
    runtime = Runtime("fake", answer, lambda: "1")
    return run_artifact(path, Runner("fake", ".txt", (runtime,)), runtime, schema, asked, deadline)


def right(job, rows):
    yield "right", expected(small_model(), rows, 0)


def test_without_time_the_first_rows_are_asked_and_the_rest_is_said_to_be_left_out(tmp_path):
    result = asked_of(right, 20_000, time.monotonic(), tmp_path)
    assert result.equal
    assert result.rows == 2000
    assert "2,000 of 20,000 rows were asked on fake within the budget of time" in result.note
    assert asked_of(right, 20_000, math.inf, tmp_path).rows == 20_000


def test_a_fault_is_told_by_its_first_row_in_whatever_order_rows_were_asked(tmp_path):
    _, asked = questions(20_000)
    above = np.sort(asked.rows[asked.rows > 0.5])[-50:]

    def wrong(job, rows):
        said = expected(small_model(), rows, 0)
        label = np.where(np.isin(rows, above), 1 - said.label, said.label)
        yield "wrong", Answers(label, said.number)

    result = asked_of(wrong, 20_000, math.inf, tmp_path)
    assert result.differing == 50
    first = asked.rows[np.isin(asked.rows, above)][0]
    assert result.first.row == {"x": first}


def test_a_runtime_compiles_once_for_all_blocks_of_rows(tmp_path):
    seen = []

    def counting(job, rows):
        seen.append((job.folder / "made").exists())
        (job.folder / "made").touch()
        yield from right(job, rows)

    assert asked_of(counting, 5000, math.inf, tmp_path).rows == 5000
    assert seen == [False, True]


def test_a_program_that_hangs_is_stopped(tmp_path):
    job = Job(tmp_path / "m", small_model().schema, tmp_path, time.monotonic() + 0.2)
    with pytest.raises(OutOfTimeError, match="'m' did not end within the time"):
        job.call(["sleep", "20"])
    path = exported(small_model(), tmp_path, "python")
    path.write_text(path.read_text() + "\nwhile True: pass\n")
    began = time.monotonic()
    report = verify(small_model(), [path], budget=0.5)
    assert "did not end within the time" in report.artifacts[0].error
    assert time.monotonic() - began < 10


def oblique_model():
    schema = Schema((Column("x"), Column("y")), classes=("no", "yes"))
    tree = oblique({"x": 1.0, "y": -1.0}, 0.25, leaf([1, 3]), leaf([3, 1]))
    return make_model(schema, [build_tree(tree, schema)])


@pytest.mark.parametrize(
    "model", [random_model(0, mixed_schema(), n_trees=4), oblique_model()], ids=["plain", "sums"]
)
def test_construction_of_rows_that_time_cuts_is_said(model):
    probes = make_probes(model, 10, 0, 10**6, until=time.monotonic())
    assert "within the budget of time: raise it" in probes.cut


def test_a_budget_is_a_positive_number_and_shares_itself():
    for wrong in (0, -1, math.nan):
        with pytest.raises(VerificationError, match="a positive number of seconds"):
            Budget(wrong)
    assert Budget(math.inf).until(0.5) == math.inf
    half = Budget(100).until(0.5) - time.monotonic()
    assert 40 < half <= 50


def test_a_cut_verification_is_not_called_complete(tmp_path):
    model = chain(300, Schema((Column("x"),), classes=("no", "yes")))
    report = verify(model, [exported(model, tmp_path, "rules")], budget=1e-6)
    assert report.equal
    assert "on the rows tried; coverage is incomplete" in str(report)
    assert "raise it" in str(report)
    assert report.lowering.startswith("not tried within the budget of time")
