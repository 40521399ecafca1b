"""A plugin of version 1 of the contract, one component of each kind.

Not changed: treekit must adapt plugins of this version.
"""

import json
import math
from pathlib import Path

import treekit
from treekit import (
    Criterion,
    CriterionFunctions,
    Exporter,
    Importer,
    Pruner,
    PrunerFunctions,
    Setting,
    Splitter,
    SplitterFunctions,
    hookimpl,
)
from treekit.splitting import (
    branch_stats,
    code_range,
    heavy_enough,
    missing_to,
    scored,
    threshold_split,
)


def bits(stats):
    total = stats.sum()
    found = 0.0
    for k in range(stats.shape[0]):
        if stats[k] > 0.0:
            found -= stats[k] / total * math.log2(stats[k] / total)
    return found


def ratio(parent, children):
    total, kept, size = children.sum(), 0.0, 0.0
    for b in range(children.shape[0]):
        share = children[b].sum() / total
        if share > 0.0:
            kept += share * bits(children[b])
            size -= share * math.log2(share)
    return (bits(parent) - kept) / size if size > 0.0 else 0.0


def make_ratio(slack):
    def choose(gains, scores):
        mean, offered, best = 0.0, 0, -1
        for f in range(gains.shape[0]):
            if gains[f] == gains[f]:
                mean, offered = mean + gains[f], offered + 1
        for f in range(gains.shape[0]):
            if gains[f] >= mean / offered - slack and (best < 0 or scores[f] > scores[best]):
                best = f
        return best

    return CriterionFunctions(impurity=bits, score=ratio, choose=choose)


def find_middle(node, criterion, rng):
    best = threshold_split(0, 0)
    found = 0.0
    for feature in range(len(node.table.n_codes)):
        low, high, _ = code_range(node, feature)
        if low >= high or node.table.nominal[feature] > 0:
            continue
        split = missing_to(threshold_split(feature, (low + high) // 2), 0)
        children = branch_stats(node, split)
        if heavy_enough(node, children):
            score = criterion.score(node.stats, children)
            if score > found:
                found, best = score, scored(split, score)
    return best if found > 0.0 else None


def make_large(rows):
    def before(parent, children, held_parent, held_children):
        return parent.sum() >= rows

    def after(tree, context):
        context.report["nodes"] = tree.n_nodes
        return tree

    return PrunerFunctions(before=before, after=after)


def export_summary(model, name, indent):
    text = json.dumps({"leaves": model.n_leaves, "depth": model.depth}, indent=indent)
    return {f"{name}.summary": text.encode()}


def read_link(source):
    return treekit.load(Path(source.read_text("utf-8").strip()))


@hookimpl
def treekit_criteria():
    slack = Setting("slack", 0.0, "how far below the average a gain may be", minimum=0.0)
    return [Criterion("former_ratio", "classification", make_ratio, (slack,))]


@hookimpl
def treekit_splitters():
    return [Splitter("former_middle", lambda: SplitterFunctions(find_middle))]


@hookimpl
def treekit_pruners():
    rows = Setting("rows", 8, "rows that a node needs to be split", minimum=0)
    return [Pruner("former_large", make_large, (rows,))]


@hookimpl
def treekit_exporters():
    indent = Setting("indent", 1, "spaces", minimum=0)
    return [Exporter("former_summary", ".summary", export_summary, (indent,))]


@hookimpl
def treekit_importers():
    def recognises(source):
        return isinstance(source, Path) and source.suffix == ".link"

    return [Importer("former_link", recognises, read_link)]
