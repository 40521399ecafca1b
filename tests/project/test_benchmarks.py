"""Each benchmark runs at toy size; no time is asserted."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import aims, equality, everything, results, tables
from benchmarks.__main__ import main, run
from benchmarks.clock import measured
from benchmarks.frame import Benchmark, Measured, Parameter, Result
from benchmarks.sides import absent
from benchmarks.training import grown

NAMES = list(everything())


@pytest.mark.system
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning:xgboost")
def test_every_benchmark_reports_figures_or_a_reason_for_each_library(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    benchmark = everything()[name]
    result = run(benchmark, ["--toy", "--results", str(tmp_path)])
    printed = capsys.readouterr().out
    assert result.cases
    known = {figure.key for figure in benchmark.figures}
    for case, sides in result.cases.items():
        assert case in printed
        assert any(own.rounds for own in sides.values()) or all(map(absent, sides))
        for side, own in sides.items():
            assert own.failed or own.rounds
            if side.startswith("treekit") and not absent(side):
                assert own.rounds, own.failed
            for one in own.rounds:
                assert known & set(one)
                assert all(math.isfinite(value) for value in one.values())
    assert results.read(name, tmp_path).cases.keys() == result.cases.keys()


def test_benchmark_list_shows_every_benchmark(capsys: pytest.CaptureFixture[str]):
    main([])
    listed = capsys.readouterr().out
    assert all(one.line in listed for one in everything().values())
    with pytest.raises(SystemExit, match="no benchmark is named 'forrest'"):
        main(["forrest"])


def test_unknown_library_to_compare_is_refused(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        run(everything()["forest"], ["--toy", "--peers", "sklaern"])
    assert "no such side: sklaern" in capsys.readouterr().err


@pytest.mark.system
def test_peak_memory_of_a_call_includes_freed_memory():
    cells = 6_000_000
    _, cost = measured(lambda: float(np.ones(cells).sum()))
    if cost.memory is not None:  # the system may not tell
        assert 0.9 * cells * 8 / 2**20 < cost.memory < 2.0 * cells * 8 / 2**20
    _, cost = measured(lambda: None)
    assert cost.memory is None or cost.memory < 8


@pytest.mark.system
def test_benchmark_in_a_subprocess_gives_the_figures_of_this_process(tmp_path: Path):
    from benchmarks.apart import Failed, ask
    from benchmarks.data import points, save
    from benchmarks.sides import Work

    for name, part in zip(("train", "test"), points(200, 4, 2, 0), strict=True):
        save(part, tmp_path, name)
    given = ("sklearn", Work(trees=2).plain(), str(tmp_path))
    here, there = (ask(grown, *given, apart=apart, limit=60.0) for apart in (False, True))
    assert here.keys() == there.keys()
    assert (here["leaves"], here["quality"]) == (there["leaves"], there["quality"])
    with pytest.raises(Failed, match="nobody"):
        ask(grown, "nobody", *given[1:], apart=True, limit=60.0)
    with pytest.raises(Failed, match="more than 0 s"):
        ask(grown, *given, apart=True, limit=0.01)


def of(*rounds: dict[str, float], failed: str = "") -> Measured:
    return Measured(list(rounds), failed)


def test_ratios_are_medians_over_rounds():
    ours, theirs = (of(*({"cpu": v} for v in own)) for own in ((1.0, 8.0, 3.0), (2.0, 8.0, 12.0)))
    assert ours.ratio(theirs, "cpu") == 0.5
    assert ours.ratio(of(failed="absent"), "cpu") is None


def test_results_are_comparable_if_leaves_and_accuracy_are_close():
    peer = of({"leaves": 1000, "quality": 0.9})
    assert tables.fairness(of({"leaves": 1090, "quality": 0.9029}), peer) == ""
    assert tables.fairness(of({"leaves": 890, "quality": 0.9}), peer) == "-11% leaves"
    assert "-0.0040" in tables.fairness(of({"leaves": 1000, "quality": 0.896}), peer)


@pytest.mark.system
def test_table_of_verification_rows_is_regenerated(tmp_path, monkeypatch, capsys):
    copy = tmp_path / "README.md"
    copy.write_text(f"before\n{equality.BEGIN}\nold\n{equality.END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(equality, "PAGE", copy)
    small = ["--rows", "200", "--kinds", "several targets", "C4.5, fractional instances", "--write"]
    cells = equality.main([*small, "--targets", "Python", "rules"])
    assert {len(own) for own in cells.values()} == {2}
    assert all(cell.probes > 100 for own in cells.values() for cell in own.values())
    text = copy.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{equality.BEGIN}\n| equal bits")
    assert text.endswith(f"{equality.END}\nafter\n")
    assert "old" not in text
    assert "several targets: rules" in capsys.readouterr().out


ANY = Benchmark("b", "any", lambda _: iter(()), (), {})


def aim(**more: object) -> aims.Aim:
    return aims.Aim("row", "work", "b", "a case", 0.5, "half of sklearn's", **more)


def test_performance_target_is_met_by_ratio_on_comparable_results_only():
    def verdict(given: aims.Aim, **sides: Measured) -> str:
        return aims.judged(given, Result("b", {"a case of some": sides}), ANY).verdict

    half, all_of_it = of({"cpu": 1.0, "leaves": 9.0}), of({"cpu": 2.0, "leaves": 9.0})
    against = aim(against="sklearn")
    assert verdict(against, treekit=half, sklearn=all_of_it) == "yes"
    assert verdict(against, treekit=all_of_it, sklearn=half) == "**no**"
    fewer = of({"cpu": 1.0, "leaves": 5.0})
    assert verdict(against, treekit=fewer, sklearn=all_of_it) == "not comparable: -44% leaves"
    assert verdict(against, treekit=half) == "no peer"
    assert verdict(aim(), treekit=of({"cpu": 0.5})) == "yes"
    assert verdict(aim(against=":leaves"), treekit=half) == "yes"
    assert verdict(aim()) == "not run"
    assert aims.judged(aim(), None, ANY).verdict == "not run"


def test_performance_target_is_not_evaluated_for_another_data_size():
    sides = {"treekit": of({"cpu": 0.1}), "sklearn": of({"cpu": 1.0})}
    sized = replace(ANY, parameters={"rows": Parameter(100, 9), "depths": Parameter((0, 8), (0,))})
    for rows, verdict in ((100, "yes"), (90, "run at another size: rows 90")):
        about = {"settings": {"rows": rows, "depths": [0, 8]}}
        found = Result("b", {"a case": sides}, about)
        assert aims.judged(aim(against="sklearn"), found, sized).verdict == verdict


def test_every_performance_target_refers_to_a_registered_benchmark():
    for one in aims.AIMS:
        benchmark = everything()[one.benchmark]
        assert one.side in benchmark.own
        assert one.figure in {f.key for f in benchmark.figures} | {"exponent", "speedup"}
        sides = {*benchmark.own, *benchmark.peers}
        assert not one.against or one.against.startswith(":") or one.against in sides
    assert len({one.row for one in aims.AIMS}) == len(aims.AIMS)


def test_results_page_has_a_section_for_every_benchmark():
    page = (results.RESULTS.parent / "RESULTS.md").read_text(encoding="utf-8")
    assert all(f"<!-- made: {name} -->" in page for name in NAMES)
