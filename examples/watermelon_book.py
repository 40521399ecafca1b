"""
Reproduce a textbook chapter
============================

Reproduce chapter 4 of Zhou's *Machine Learning* (2016): its figures, tables and trees.

::

    pip install treekit-plot
    python examples/watermelon_book.py           # check that the pages are up to date
    python examples/watermelon_book.py --write   # write their tables, rules and pictures

The pages are examples/watermelon_book/README.md and, in Chinese, README.zh.md. The text
between two marks there is made here, from examples/tables/watermelon.
"""

# sphinx_gallery_thumbnail_path = '../examples/watermelon_book/figures/4.4.en.svg'

import csv
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from boundary import drawn

import treekit

HERE = Path(__file__).parent
TABLES = HERE / "tables" / "watermelon"
BOOK = HERE / "watermelon_book"
NUMBERS = ("density", "sugar", "密度", "含糖率")
NAVEL_FIRST = ("navel", "脐部")
"""Navel and color have equal gains in table 4.2; the book takes the navel."""


@dataclass(frozen=True)
class Edition:
    """A language: its page, the file name suffix of its tables, and the texts of made parts."""

    language: str
    page: str
    ending: str
    melon: str
    target: str
    good: str
    bad: str
    heads: tuple[str, ...]
    whole: str
    chosen: str
    accuracy: str
    weights: tuple[str, str, str]
    figure: str


ENGLISH = Edition(
    "en", "README.md", "_en", "id", "good", "yes", "no",
    ("attribute", "gain", "IV", "gain ratio", "Gini index", "threshold"),
    "Ent(D) = {:.3f}, Gini(D) = {:.3f}",
    "The gain ratio, among attributes of at least average gain, picks **{}**.",
    "correct on the validation set: **{}/{}**",
    ("branch", "melons with a known value", "weight of each melon without one"),
    "figure",
)  # fmt: skip
CHINESE = Edition(
    "zh", "README.zh.md", "", "编号", "好瓜", "是", "否",
    ("属性", "信息增益", "固有值 IV", "增益率", "基尼指数", "划分点"),
    "Ent(D) = {:.3f}，Gini(D) = {:.3f}",
    "在信息增益不低于平均水平的属性中，增益率选出 **{}**。",
    "验证集上分对: **{}/{}**",
    ("分支", "取值已知的样本", "缺失该值的每个样本划入的权重"),
    "图",
)  # fmt: skip


# ---------------------------------------------------------------- tables and trees


def melons(edition, table, *, without=(), first=()):
    """Read a table as columns of numbers or texts, None for empty cells; `first` columns first."""
    path = TABLES / f"watermelon_{table}{edition.ending}.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    names = [name for name in rows[0] if name not in (edition.melon, *without)]
    names.sort(key=lambda name: first.index(name) if name in first else len(first))
    read = {name: float if name in NUMBERS else str for name in names}
    return {name: [read[name](row[name]) if row[name] else None for row in rows] for name in names}


def vocabulary(edition, table):
    """Return the book's values, in the book's order, of a table's columns."""
    book = melons(edition, "2.0", without=[edition.target])
    return {name: list(dict.fromkeys(cells)) for name, cells in book.items() if name in table}


def reading(edition, table):
    """Return settings for ties: the good melon and the book's first value come first."""
    nominal = [name for name in table if name == edition.melon]
    levels = vocabulary(edition, table)
    return {"levels": levels, "nominal": nominal, "classes": [edition.good, edition.bad]}


def grown(edition, table, **settings):
    """Train a tree by information gain with a branch for each value, as in figure 4.2."""
    given = reading(edition, table) | {"algorithm": "id3"} | settings
    return treekit.train(table, edition.target, **given)


def scored(edition, table, criterion, **settings):
    given = reading(edition, table) | {"nominal_splits": "multiway"} | settings
    return treekit.split_scores(table, edition.target, criterion=criterion, **given)


# ---------------------------------------------------------------- made parts


def markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figures(number):
    """Format a number with three decimals, as in the book."""
    return f"{round(number, 3) + 0.0:.3f}"


def gains(edition, table, **settings):
    """Return a table of gain, intrinsic value, gain ratio and Gini index of each column."""
    entropy, ratio, gini = (
        scored(edition, table, criterion, **settings)
        for criterion in ("entropy", "gain_ratio", "gini")
    )
    numeric = any(own.threshold is not None for own in entropy.values())
    rows = []
    for name, own in entropy.items():
        # The intrinsic value is gain / ratio, which is undefined without a gain.
        intrinsic = figures(own.gain / ratio[name].score) if own.gain > 1e-9 else "—"
        row = [name, figures(own.gain), intrinsic, figures(ratio[name].score)]
        row.append(figures(gini.impurity - gini[name].gain))
        if numeric:
            row.append("" if own.threshold is None else f"{own.threshold:.4f}".rstrip("0"))
        rows.append(row)
    whole = edition.whole.format(entropy.impurity, gini.impurity)
    return whole + "\n\n" + markdown(edition.heads[: 6 if numeric else 5], rows)


def choice(edition, table):
    """Return the sentence with the root's split feature by gain ratio."""
    model = grown(edition, table, criterion="gain_ratio", max_depth=1)
    return edition.chosen.format(model.schema.names[model.trees[0].feature[0]])


def rule_list(edition, model):
    """Return the rules without the lines on how to read and execute them."""
    text = "".join(model.rules().text(language=edition.language))
    rules = "\n\n".join(text.split("\n\n")[1:-3])
    return f"```text\n{rules}\n```"


def figure(edition, model, number, made):
    """Return the picture and the rules of a tree."""
    from treekit_plot import plot

    name = f"{number}.{edition.language}.svg"
    made[f"figures/{name}"] = plot(model, language=edition.language, max_depth=None).svg()
    return f"![{edition.figure} {number}](figures/{name})\n\n{rule_list(edition, model)}"


def boundary(edition, model, number, made):
    """Return the picture of the decision regions of a tree on two numbers."""
    name = f"{number}.{edition.language}.svg"
    table = melons(edition, "3.0_alpha")
    labels = [edition.good, edition.bad].index
    marks = [labels(label) for label in table.pop(edition.target)]
    made[f"figures/{name}"] = drawn(model, table, marks, f"{edition.figure} {number}")
    return f"![{edition.figure} {number}](figures/{name})"


def right(edition, model):
    """Return the sentence with a tree's accuracy on the validation set."""
    valid = melons(edition, "2.0_valid")
    truth = valid[edition.target]
    hits = int((model.predict(valid) == truth).sum())
    return edition.accuracy.format(hits, len(truth))


def parts(edition, model):
    """Return a table of the weights of melons without a texture in the branches of the root."""
    tree = model.trees[0]
    column = model.schema.columns[tree.feature[0]]
    cells = melons(edition, "2.0_alpha")[column.name]
    known = len(cells) - cells.count(None)
    rows = []
    for child, level in enumerate(column.levels, start=1):
        share = tree.weight[child] / tree.weight[0]
        rows.append([level, str(cells.count(level)), f"{share * known:.6g}/{known}"])
    return markdown(edition.weights, rows)


def page_parts(edition):
    """Return all made parts by their mark, and the pictures by their path."""
    made = {}
    two, three = melons(edition, "2.0"), melons(edition, "3.0")
    names = [name for name in two if name != edition.target]
    texture = names[3]
    clear = vocabulary(edition, two)[texture][0]
    inside = [cell == clear for cell in two[texture]]
    clear_ones = {
        name: [cell for cell, yes in zip(cells, inside, strict=True) if yes]
        for name, cells in two.items()
        if name != texture
    }
    train = melons(edition, "2.0_train", first=NAVEL_FIRST)
    alpha = melons(edition, "2.0_alpha")
    light = {"missing": "fractional", "min_weight_leaf": 0.0, "min_weight_split": 0.0}
    divided = grown(edition, alpha, **light)
    numbers = grown(edition, melons(edition, "3.0_alpha"))
    blocks = {
        "table 4.1": gains(edition, two),
        "gain ratio": choice(edition, two),
        "row number": gains(edition, numbered(edition, two)),
        "clear melons": gains(edition, clear_ones),
        "figure 4.4": figure(edition, grown(edition, two), "4.4", made),
        "table 4.2": gains(edition, train),
        "table 4.3": gains(edition, three),
        "figure 4.8": figure(edition, grown(edition, three), "4.8", made),
        "table 4.4": gains(edition, alpha, missing="fractional"),
        "parts": parts(edition, divided),
        "figure 4.9": figure(edition, divided, "4.9", made),
        "figure 4.10": figure(edition, numbers, "4.10", made),
        "figure 4.11": boundary(edition, numbers, "4.11", made),
    }
    for number, pruning in (
        ("4.5", {}),
        ("4.7", {"pruner": "reduced_error"}),
    ):
        valid = {"validation": melons(edition, "2.0_valid")} if pruning else {}
        model = grown(edition, train, **pruning, **valid)
        text = figure(edition, model, number, made)
        blocks[f"figure {number}"] = f"{text}\n\n{right(edition, model)}"
    return blocks, made


def numbered(edition, table):
    """Return the table with the number of each melon as its only input."""
    count = len(table[edition.target])
    return {
        edition.melon: [str(i + 1) for i in range(count)],
        edition.target: table[edition.target],
    }


# ---------------------------------------------------------------- the pages


def with_parts(text, blocks):
    """Replace the text between the marks of a page."""
    for name, block in blocks.items():
        mark = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)"
        text, count = re.subn(mark, lambda m, b=block: f"{m[1]}{b}\n{m[2]}", text, flags=re.DOTALL)
        assert count == 1, f"expected one part {name!r} in the page, got {count}"
    return text


def main():
    write = "--write" in sys.argv[1:]
    for edition in (ENGLISH, CHINESE):
        blocks, pictures = page_parts(edition)
        page = BOOK / edition.page
        text = page.read_text(encoding="utf-8")
        files = {edition.page: with_parts(text, blocks)} | pictures
        for name, content in files.items():
            path = BOOK / name
            if write:
                path.parent.mkdir(exist_ok=True)
                path.write_text(content, encoding="utf-8", newline="\n")
            assert path.read_text(encoding="utf-8") == content, f"{name} is out of date: --write"
        print(f"{edition.page}: {len(blocks)} tables and trees; the page is up to date")


if __name__ == "__main__":
    main()
