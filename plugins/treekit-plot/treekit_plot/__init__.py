"""Draw trees (SVG, or DOT for Graphviz), importances, ROC and calibration curves, pruning paths.

>>> from treekit_plot import plot, plot_roc
>>> plot(model, "tree.svg", table="train.csv")  # with histograms of the split columns
>>> plot(model, row={"age": 39})  # the decision path of a row, displayed in a notebook
>>> plot_roc(treekit.evaluate(model, "test.csv")).save("roc.svg")
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from treekit import Document, Setting, hookimpl

if TYPE_CHECKING:
    from treekit.documents import Listing
    from treekit_plot.charts import (
        Chart,
        plot_calibration,
        plot_importances,
        plot_pruning_path,
        plot_roc,
    )
    from treekit_plot.draw import plot
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

_MODULE_OF = {"MOST_ENDS": "picture", "Picture": "picture", "plot": "draw"}

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
_EXEMPT = {"writes-some-rules": "no example model was pruned by cost complexity"}
_MOST = Setting("most", 30, "maximum number of columns, by importance", minimum=1)


def _import_renderer(module: str, function: str) -> Callable[..., Iterable[str]]:
    """Return a function that renders with a module of the plugin, imported on first call."""

    def render(listing: Listing, **settings: Any) -> Iterable[str]:
        write = getattr(importlib.import_module(f"{__name__}.{module}"), function)
        text: Iterable[str] = write(listing, **settings)
        return text

    return render


def _make_document(
    name: str, suffix: str, module: str, settings: tuple[Setting, ...], summary: str
) -> Document:
    render = _import_renderer(module, f"render_{name.replace('-', '_')}")
    exempt = _EXEMPT if name == "pruning-path" else {}
    return Document(name, suffix, render, settings, summary, measured=False, exempt=exempt)


@hookimpl
def treekit_documents() -> list[Document]:
    """Register the pictures."""
    charts = (
        ("importances", (_MOST,), "a chart of the columns' shares in gain, or permuted on a table"),
        ("roc", (), "a chart of the ROC curves of a table's rows"),
        ("calibration", (), "a chart of observed over predicted frequencies of a table's rows"),
        ("pruning-path", (), "a chart of the risk of each pruned tree"),
    )
    return [
        _make_document("svg", ".svg", "draw", _TREE_SETTINGS, "a picture of a tree"),
        _make_document("dot", ".dot", "draw", _TREE_SETTINGS, "a tree in Graphviz's language"),
        *(
            _make_document(name, f".{name}.svg", "charts", settings, summary)
            for name, settings, summary in charts
        ),
    ]


def __getattr__(name: str) -> Any:
    # Imported on first use: treekit imports this module at start-up.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF.get(name, 'charts')}"), name)
