"""Each benchmark runs at toy size, so that it never rots; nothing here asserts a time."""

from benchmarks import forest


def test_the_forest_benchmark_compares_every_side_on_the_same_data(capsys):
    runs = forest.main(["--rows", "400", "--features", "6", "--trees", "2", "--seeds", "1"])
    table = capsys.readouterr().out
    for side, (run,) in runs.items():
        assert side in table
        assert run.leaves >= 2
        assert 0.5 < run.accuracy <= 1.0
