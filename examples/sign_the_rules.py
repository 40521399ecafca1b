"""
Let an expert edit and sign rules
=================================

Let an expert read, edit and sign rules, and deploy exactly the signed rules.

::

    pip install treekit-rule-learning
    python examples/sign_the_rules.py

A tree of sick horses becomes a rule list: in English, in Chinese and as a page to print. A
rule is added to the text; the edited text is read as a model, exported and verified.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import treekit
from treekit.data import DEMO_TARGET, demo_table


def main() -> None:
    """Learn, write, edit, read, verify and explain rules."""
    horses = demo_table()
    tree = treekit.train(horses, DEMO_TARGET, algorithm="c45", max_depth=4, seed=0)
    found = treekit.simplify(tree, horses)
    print(f"rule list:\n{found}\n")
    signed = found.rules.model()
    with tempfile.TemporaryDirectory() as folder:
        text = treekit.write_rules(signed, Path(folder) / "horses.txt")
        treekit.write_rules(signed, Path(folder) / "马.txt", language="zh")
        treekit.write_rules(signed, Path(folder) / "horses.html", title="Horses")

        lines = text.read_text(encoding="utf-8").splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("rule 1 of"))
        lines[first:first] = [
            "# The vet: no surgery if the pulse is at most 44.",
            "rule",
            "  if pulse <= 44",
            "  then no",
            "",
        ]
        text.write_text("\n".join(lines) + "\n", encoding="utf-8")

        revised = treekit.revise(signed, text)
        print(treekit.compare(signed, revised, horses))

        artifacts = [
            path
            for target, name in (("c", "rules.c"), ("onnx", "rules.onnx"), ("python", "rules.py"))
            for path in treekit.export(revised, target, Path(folder) / name)
        ]
        report = treekit.verify(revised, artifacts, random_rows=200)
        print(f"\nC, ONNX and Python equal the signed rules, bit for bit: {report.equal}\n")
        print(revised.explain({"pulse": 28, "age": "adult"}, absent="missing", changes=0))


if __name__ == "__main__":
    main()
