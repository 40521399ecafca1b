"""What a notebook shows of a list: its first rules in a small table, without any script."""

from __future__ import annotations

from markupsafe import escape

from treekit.forms import Listing
from treekit.forms.facts import title
from treekit.forms.says import Said
from treekit.forms.sheet import Entry, entries, figure_texts, sheet
from treekit.rules.measure import training_measures
from treekit.rules.rule_list import RuleList

__all__ = ["SHOWN", "notebook"]

SHOWN = 50
"""Rules at most; the page has them all."""

_STYLE = (
    ".treekit-rules{border-collapse:collapse}"
    ".treekit-rules th,.treekit-rules td{text-align:left;vertical-align:top;padding:.25em .75em}"
    ".treekit-rules .n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".treekit-rules td span{display:inline-block;margin-right:.75em}"
)


def notebook(rules: RuleList) -> str:
    """A table of at most `SHOWN` rules; what they say is escaped, and styles reach no further."""
    listing = Listing(rules, training_measures(rules))
    say, page = listing.language.say, sheet(listing)
    figures = page.figures
    texts = [figure_texts(figure) for figure in figures]
    heads = [("n", say("page_head_rule")), ("", say("page_head_if")), ("", say("page_head_then"))]
    heads += [("", say("page_head_otherwise"))] * page.weighted
    heads += [("n", figure.heading) for figure in figures]
    rows = []
    for entry in entries(page, 0, SHOWN):
        always = say("page_otherwise" if entry.last else "page_always")
        cells = [
            ("n", str(entry.rule + 1)),
            ("", _conditions(entry) or f"<em>{escape(always)}</em>"),
        ]
        cells += [("", _said(entry.said))] + [("", _said(entry.otherwise))] * page.weighted
        cells += [("n", text[entry.rule]) for text in texts]
        rows.append("".join(f'<td class="{kind}">{cell}</td>' for kind, cell in cells))
    more = len(page.shown) - len(rows)
    rest = f"<p>{escape(say('page_and_more', count=str(more)))}</p>" if more > 0 else ""
    head = "".join(f'<th class="{kind}">{escape(name)}</th>' for kind, name in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div><style>{_STYLE}</style><table class="treekit-rules">'
        f"<caption>{escape(title(listing))}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}</div>"
    )


def _conditions(entry: Entry) -> str:
    return "".join(
        f"<span>{escape(a)}<b>{escape(b)}</b>{escape(c)}</span>" for a, b, c in entry.conditions
    )


def _said(said: tuple[Said, ...]) -> str:
    return "<br>".join(
        f"{escape(one.target)}: {escape(one.text)}" if one.target else str(escape(one.text))
        for one in said
    )
