"""Draw trees (SVG, or DOT for Graphviz), importances, ROC and calibration curves, pruning paths.

>>> from treekit_plot import plot, plot_roc
>>> plot(model, "tree.svg", table="train.csv")  # with histograms of the split columns
>>> plot(model, row={"age": 39})  # the decision path of a row, displayed in a notebook
>>> plot_roc(treekit.evaluate(model, "test.csv")).save("roc.svg")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from treekit import Document, Setting, hookimpl
from treekit_plot.charts import (
    Chart,
    plot_calibration,
    plot_importances,
    plot_pruning_path,
    plot_roc,
    render_calibration,
    render_importances,
    render_pruning_path,
    render_roc,
)
from treekit_plot.draw import plot, render_dot, render_svg
from treekit_plot.picture import MOST_ENDS, Picture

__all__ = [
    "MOST_ENDS",
    "Chart",
    "Picture",
    "plot",
    "plot_calibration",
    "plot_importances",
    "plot_pruning_path",
    "plot_roc",
    "treekit_documents",
]

treekit_contract = 2

_TREE_SETTINGS = (
    Setting(
        "max_depth",
        "auto",
        "maximum depth to draw, where the root has depth 0; auto: as deep as is readable; way: "
        "only the paths to the nodes of the setting marked",
        (int, str),
        choices=("auto", "all", "way"),
        minimum=0,
    ),
    Setting("marked", "", "nodes whose paths are drawn with thicker lines: comma-separated"),
    Setting(
        "row",
        None,
        "row whose path is drawn: a JSON object of values by column name, or its number in the "
        "table, from 0",
        str,
    ),
    Setting(
        "max_boxes", None, "maximum number of nodes; larger pictures are refused", int, minimum=1
    ),
)
_MOST = Setting("most", 30, "maximum number of columns, by importance", minimum=1)


def _make_chart(
    name: str,
    render: Callable[..., Iterable[str]],
    summary: str,
    settings: tuple[Setting, ...] = (),
    exempt: Mapping[str, str] | None = None,
) -> Document:
    suffix = f".{name}.svg"
    return Document(
        name, suffix, render, settings, summary, measured=False, exempt=exempt or {}
    )  # fmt: skip


@hookimpl
def treekit_documents() -> list[Document]:
    """Register the pictures."""
    tree = _TREE_SETTINGS
    return [
        Document("svg", ".svg", render_svg, tree, "a picture of a tree", measured=False),
        Document("dot", ".dot", render_dot, tree, "a tree in Graphviz's language", measured=False),
        _make_chart(
            "importances",
            render_importances,
            "a chart of the columns' shares in gain, or permuted on a table",
            (_MOST,),
        ),
        _make_chart("roc", render_roc, "a chart of the ROC curves of a table's rows"),
        _make_chart(
            "calibration",
            render_calibration,
            "a chart of observed over predicted frequencies of a table's rows",
        ),
        _make_chart(
            "pruning-path",
            render_pruning_path,
            "a chart of the risk of each pruned tree",
            exempt={"writes-some-rules": "no example model was pruned by cost complexity"},
        ),
    ]
