"""Rules and trees as files of decision and model engines: DMN 1.3 and PMML 4.4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from treekit import Document, hookimpl

if TYPE_CHECKING:
    from treekit.documents import Listing

__all__ = ["treekit_documents"]

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
