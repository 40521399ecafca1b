"""Each benchmark runs at toy size, so that it never rots; nothing here asserts a time."""

import numpy as np
import pandas as pd

from benchmarks import accuracy, equality, foreign, forest, generated_c, third_party


def test_the_forest_benchmark_compares_every_side_on_the_same_data(capsys):
    small = ["--rows", "400", "--features", "6", "--trees", "2", "--seeds", "1"]
    runs = forest.main([*small, "--no-plugins"])
    table = capsys.readouterr().out
    for side, (run,) in runs.items():
        assert side in table
        assert run.leaves >= 2
        assert 0.5 < run.accuracy <= 1.0


def test_the_accuracy_benchmark_compares_every_side_on_tables_of_a_folder(tmp_path, capsys):
    rng = np.random.default_rng(0)
    job = rng.choice(["admin", "retired", "student"], 300)
    age = rng.integers(18, 90, 300)
    bank = pd.DataFrame({"age": age, "job": job, "y": np.where(age > 50, "yes", "no")})
    bank.loc[::9, "job"] = None
    bank.to_csv(tmp_path / "bank_full.csv.gz", index=False)
    cut = np.where(job == "admin", "Ideal", "Good")
    diamonds = pd.DataFrame({"carat": age / 50, "cut": cut, "price": age * 20 + (job == "admin")})
    diamonds.to_csv(tmp_path / "diamonds.csv.gz", index=False)
    arguments = ["--folder", str(tmp_path), "--tables", "bank", "diamonds"]
    results = accuracy.main([*arguments, "--trees", "3", "--seeds", "1"])
    table = capsys.readouterr().out
    assert set(results) == {(t, k) for t in ("bank", "diamonds") for k in accuracy.KINDS}
    for (name, _), found in results.items():
        assert name in table
        assert set(found) == set(accuracy.SIDES)
        assert all(0.8 < score <= 1.0 for scores in found.values() for score in scores)


def test_the_benchmark_of_third_parties_grows_each_tree_on_every_side(capsys):
    ratios = third_party.main(["--rows", "300", "--trees", "2", "--rounds", "1", "--no-processes"])
    table = capsys.readouterr().out
    assert set(ratios) == {(w, s) for w in third_party.WAYS for s in ("gini", "module", "notebook")}
    assert all(value > 0.0 for value in ratios.values())
    assert all(way in table for way in third_party.WAYS)


def test_the_benchmark_of_generated_c_asks_every_side_the_same_rows(capsys):
    small = ["--rows", "300", "--trees", "4", "--depth", "3", "--tree-rows", "300"]
    few = ["--score-rows", "500", "--probes", "300", "--rounds", "1", "--no-peers"]
    results = generated_c.main([*small, *few])
    table = capsys.readouterr().out
    assert len(results) == 2
    for sides in results.values():
        assert set(sides) == {*generated_c.OWN, "treekit ONNX"}
        for name, measured in sides.items():
            assert name in table
            assert measured.failed == ""
            assert (measured.differing, measured.other_bits) == (0, 0)
            assert measured.probes > 100


def test_the_benchmark_of_foreign_models_finds_the_same_labels(capsys):
    found = foreign.main(["--rows", "120", "--trees", "3"])
    table = capsys.readouterr().out
    assert "scikit-learn HistGradientBoosting, 3 classes" in found
    for name, one in found.items():
        assert name in table
        assert one.rows > 120
        assert one.labels == 0
        assert one.margins < 1e-6
        assert one.shares < 1e-6


def test_the_table_of_probes_is_measured(tmp_path, monkeypatch, capsys):
    copy = tmp_path / "README.md"
    copy.write_text(f"before\n{equality.BEGIN}\nold\n{equality.END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(equality, "README", copy)
    small = ["--rows", "200", "--kinds", "several targets", "C4.5, rows divided", "--write"]
    cells = equality.main([*small, "--targets", "Python", "rules"])
    assert {len(own) for own in cells.values()} == {2}
    assert all(cell.probes > 100 for own in cells.values() for cell in own.values())
    text = copy.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{equality.BEGIN}\n| equal bits")
    assert text.endswith(f"{equality.END}\nafter\n")
    assert "old" not in text
    assert "several targets: rules" in capsys.readouterr().out


def test_a_cell_says_what_was_refused_or_not_run_or_differs():
    cell = equality.Cell
    said = [cell(5000), cell(5000, 2), cell(refused="rows divide"), cell(failed="no gcc")]
    assert list(map(str, said)) == ["= 5,000", "**2 differ**", "refused", "**not run**"]
