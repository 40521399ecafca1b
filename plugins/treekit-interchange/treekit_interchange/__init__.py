"""Rules and models as files of other engines: DMN 1.3, PMML 4.4 and Treelite checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from treekit import Document, Exporter, hookimpl

if TYPE_CHECKING:
    from treekit.documents import Listing
    from treekit.model.model import Model
    from treekit.verify.runtime import Runner

__all__ = ["treekit_documents", "treekit_exporters"]

treekit_contract = 2


def _render_dmn(listing: Listing) -> Iterator[str]:
    from treekit_interchange.dmn import render_dmn

    return render_dmn(listing)


def _render_pmml(listing: Listing) -> Iterator[str]:
    from treekit_interchange.pmml import render_pmml

    return render_pmml(listing)


def _render_pmml_rules(listing: Listing) -> Iterator[str]:
    from treekit_interchange.pmml import render_pmml_rules

    return render_pmml_rules(listing)


@hookimpl
def treekit_documents() -> list[Document]:
    """Register the document forms."""
    return [
        Document("dmn", ".dmn", _render_dmn, summary="a DMN 1.3 decision table, for rule engines"),
        Document("pmml", ".pmml", _render_pmml, summary="the trees in PMML 4.4, for model engines"),
        Document(
            "pmml-rules",
            ".pmml",
            _render_pmml_rules,
            summary="a PMML 4.4 rule set, for classes",
        ),
    ]


def _export_treelite(model: Model, name: str) -> dict[str, bytes]:
    from treekit_interchange.treelite import export_treelite

    return export_treelite(model, name)


def _get_runner() -> Runner:
    from treekit_interchange.run_treelite import TREELITE_RUNNER

    return TREELITE_RUNNER


@hookimpl
def treekit_exporters() -> list[Exporter]:
    """Register the target of models."""
    return [
        Exporter(
            "treelite",
            ".tl",
            _export_treelite,
            summary="a Treelite checkpoint, which nvForest and Triton's FIL run on GPUs",
            runner=_get_runner,
        )
    ]
