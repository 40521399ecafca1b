"""
Run exported C and rules without treekit
========================================

::

    python examples/c_and_rules_without_treekit.py

The C of a forest with Chinese categories is compiled with a small main program. The rule
text is executed by a program that only uses the standard library. Both must give the
model's predictions, bit for bit.
"""

import csv
import os
import subprocess
import tempfile
from pathlib import Path

from isolated import EXAMPLES, answers, run_bare

import treekit
from treekit.data import DEMO_TARGET, demo_table

MELONS = EXAMPLES / "tables" / "watermelon" / "watermelon_3.0.csv"
FOREST = {"ensemble": "forest", "trees": 15, "seed": 0}


def run_c(folder):
    """Export, compile, and score melons; one has a missing texture and an unseen colour."""
    model = treekit.train(MELONS, "好瓜", ignore=["编号"], **FOREST)
    source, _ = treekit.export(model, "c", folder / "melons.c")
    program = folder / "score"
    compiler = os.environ.get("CC", "gcc")
    main = EXAMPLES / "standalone" / "score.c"
    command = [compiler, "-std=c99", "-O2", "-I", folder, main, source, "-o", program]
    subprocess.run(command, check=True)

    with MELONS.open(encoding="utf-8", newline="") as stream:
        rows = [[row[name] for name in model.schema.names] for row in csv.DictReader(stream)]
    rows.append(["紫色", "蜷缩", "浊响", "", "凹陷", "硬滑", "0.5", "0.3"])
    lines = "".join("\t".join(row) + "\n" for row in rows)
    done = subprocess.run(
        [program], input=lines, stdout=subprocess.PIPE, check=True, encoding="utf-8"
    )
    labels, shares = answers(done.stdout)

    columns = dict(zip(model.schema.names, zip(*rows, strict=True), strict=True))
    table = {
        name: list(map(float, cells)) if name in ("密度", "含糖率") else cells
        for name, cells in columns.items()
    }
    assert labels == model.predict(table).tolist()
    assert shares == model.predict_proba(table).tolist()
    print(f"{len(labels)} melons: predictions of C equal the model's, bit for bit")


def run_rules(folder):
    """Export and execute the rules of a classifier and of a regressor."""
    horses = treekit.train(demo_table(), DEMO_TARGET, **FOREST)
    labels, shares = answers(run_bare(*_rules(horses, folder / "horses.rules.txt", demo_table())))
    assert labels == horses.predict(demo_table()).tolist()
    assert shares == horses.predict_proba(demo_table()).tolist()

    sugar = treekit.train(MELONS, "含糖率", ignore=["编号"], **FOREST)
    _, numbers = answers(run_bare(*_rules(sugar, folder / "sugar.rules.txt", MELONS)))
    assert [row[0] for row in numbers] == sugar.predict(MELONS).tolist()
    print(f"{len(labels)} horses, {len(numbers)} melons: so do those of the rule text")


def _rules(model, path, table):
    (path,) = treekit.export(model, "rules", path)
    return EXAMPLES / "standalone" / "read_rules.py", path, table


def main():
    with tempfile.TemporaryDirectory() as folder:
        run_c(Path(folder))
        run_rules(Path(folder))


if __name__ == "__main__":
    main()
