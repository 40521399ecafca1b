"""Text of an explanation, section by section."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from treekit.data.schema import Dtype
from treekit.explain.contributions import format_contributions
from treekit.explain.explanation import Explanation, Given, Said, Step, Sums
from treekit.model.split_tests import BranchCondition
from treekit.rules.language import Language, load_language, measure_width
from treekit.rules.wording import format_branch, quote_label, quote_name, quote_text

# ---------------------------------------------------------------- sections

_MAX_COLUMNS = 12
"""Maximum number of contributions listed singly; the others are summed."""
_MAX_NAMES = 12
_MAX_ALIGNED_WIDTH = 56
"""Maximum width for alignment; the text after a longer condition is not aligned."""
_MAX_STEPS = 60
_MAX_LEAVES = 10

Lines = Iterator[tuple[str, bool]]
Section = tuple[str, Iterable[str]]
"""A heading and its lines."""


def format_lines(found: Explanation, chosen: Language | None = None) -> Lines:
    """Yield the lines of the text, and whether each is a heading."""
    clauses = (*found.rule, *(step.clause for step in found.path if step.clause))
    nominal = {name for clause in clauses if clause.levels for name in clause.columns}
    words = ExplanationWords(chosen or load_language(), found.dtype, nominal)
    if found.refused:
        yield words.get_phrase("refused"), True
        for cell in found.row:
            if cell.refused:
                key = "refused_unseen" if cell.state == "unseen" else "refused_missing"
                yield f"  {_format_unusable_cell(key, cell, words)}", False
        return
    for cell in found.row:
        if cell.state == "unseen":  # first, because it is mostly a typing error
            yield _format_unusable_cell("unseen", cell, words), True
    yield from ((words.format_prediction(said), True) for said in found.says)
    sections = [*_list_path_sections(found, words), *_list_vote_sections(found, words)]
    sections += [_format_sums(one, found.row, words) for one in _select_sums(found)]
    yield from _format_sections(sections)
    for _, part in found.parts:
        for place, line in enumerate(part.lines(words)):
            yield from [("", False)] * (place == 0)
            yield line
    yield from _format_sections(_list_unused_sections(found, words))


def _format_unusable_cell(key: str, cell: Given, words: ExplanationWords) -> str:
    """Say why a cell cannot be used, and which category may be meant."""
    value = words.format_cell("", cell.text)
    text = words.get_phrase(key, column=quote_name(cell.column), value=value)
    if cell.similar is None:
        return text
    return words.get_phrase("similar", text=text, value=quote_text(cell.similar))


def _format_sections(sections: Iterable[Section]) -> Lines:
    for heading, lines in sections:
        yield "", False
        yield heading, True
        yield from ((f"  {line}", False) for line in lines)


def _list_path_sections(found: Explanation, words: ExplanationWords) -> Iterator[Section]:
    if found.tree is None:
        return
    key = "path_of" if found.trees > 1 else "path"
    heading = words.get_phrase(key, tree=found.tree + 1, trees=found.trees)
    yield heading, [*_format_steps(found, words), *_format_leaves(found, words)]
    if found.rule:
        yield words.get_phrase("rule"), map(words.format_clause, found.rule)


def _format_steps(found: Explanation, words: ExplanationWords) -> Iterator[str]:
    if not found.path:
        yield words.get_phrase("no_questions")
    shown = found.path[:_MAX_STEPS]
    rows = [_format_step(step, place, words) for place, step in enumerate(shown, 1)]
    widths = [measure_width(left) for left, right in rows if right]
    width = max((width for width in widths if width <= _MAX_ALIGNED_WIDTH), default=0)
    parts = [sum(part for _, part in step.goes) for step in shown]
    if min(parts, default=1.0) < 1.0:
        rows = [(f"{100 * p:5.3g}%  {a}", b) for p, (a, b) in zip(parts, rows, strict=True)]
        width += len("100.0%  ") - 1
    for place, (left, right) in enumerate(rows, 1):
        text = f"{pad_text(left, width)}   {right}" if right else left
        yield f"{place:>{len(str(len(rows)))}}  {text}"
    if len(found.path) > _MAX_STEPS:
        yield words.get_phrase("more", count=len(found.path) - _MAX_STEPS)


def _format_leaves(found: Explanation, words: ExplanationWords) -> Iterator[str]:
    for leaf in found.leaves[:_MAX_LEAVES]:
        facts = [words.get_phrase("leaf", node=leaf.node)]
        if len(found.leaves) > 1:
            facts.append(words.get_phrase("part", share=f"{100 * leaf.part:.3g}%"))
        facts.append(words.get_phrase("support", support=f"{leaf.support:.6g}"))
        if len(found.leaves) > 1 or found.trees > 1:
            facts += map(words.format_prediction, leaf.says)
        yield ", ".join(facts)
    if len(found.leaves) > _MAX_LEAVES:
        yield words.get_phrase("more", count=len(found.leaves) - _MAX_LEAVES)


def _format_step(step: Step, place: int, words: ExplanationWords) -> tuple[str, str]:
    """Return the condition at a node, and the reason; node `place` of a rule list is a rule."""
    say = words.get_phrase
    condition = words.format_clause(step.clause) if step.clause else ""
    gone = [column for column, text in step.decided if text is None]
    names = words.format_names(gone or [column for column, _ in step.decided])
    cells = [(quote_name(column), words.format_cell(column, text)) for column, text in step.decided]
    value = cells[0][1] if len(cells) == 1 else ", ".join(f"{name} = {x}" for name, x in cells)
    fields = {"column": names, "value": value}
    if step.why == "held":
        return say("held", rule=place), ""
    if step.why == "divided":
        goes = ", ".join(f"{node}: {100 * part:.3g}%" for node, part in step.goes)
        return say("divided", column=words.format_names([name for name, _ in step.decided])), goes
    if step.why == "failed":
        key = "failed_missing" if gone else "failed"
        return say(key, rule=place, condition=condition, **fields), ""
    if step.why == "lost":
        return say("lost_missing" if gone else "lost_level", condition=condition, **fields), ""
    if step.why == "surrogate":
        column, lost = step.asked[0]
        key = "instead_missing" if lost is None else "instead_level"
        fields = {"column": quote_name(column), "lost": words.format_cell(column, lost)}
        return condition, say(key, value=value, **fields)
    if step.clause is not None and not step.clause.known:
        return condition, ""
    return condition, value if len(cells) > 1 else say("it_is", value=value)


def _list_vote_sections(found: Explanation, words: ExplanationWords) -> Iterator[Section]:
    for votes in found.votes:
        key = "numbers" if votes.quantiles else "votes"
        key += "_of" if len(found.says) > 1 else ""
        counts = sorted(votes.trees, key=lambda one: -one[1])
        rows = [(quote_label(label), str(count)) for label, count in counts if count]
        lines = list(align_rows(rows))
        if votes.quantiles:
            names = ("least", "lower", "middle", "upper", "most")
            texts = {n: f"{q:.6g}" for n, q in zip(names, votes.quantiles, strict=True)}
            lines.append(words.get_phrase("quantiles", **texts))
        yield words.get_phrase(key, target=quote_name(votes.target)), lines


def _select_sums(found: Explanation) -> Iterator[Sums]:
    """Yield the sums to show: of the predicted class, but for two margins that of the second."""
    for said in found.says:
        own = [one for one in found.sums if one.target == said.target]
        if len(own) == 2 and own[0].margin:
            yield own[1]
        else:
            yield from (one for one in own if one.label == said.label)


def _format_sums(one: Sums, row: Sequence[Given], words: ExplanationWords) -> Section:
    say = words.get_phrase
    key = "adds_before_link" if one.margin else "adds_number"
    if one.label is not None:
        key = "adds_margin" if one.margin else "adds_probability"
    label = "" if one.label is None else quote_label(one.label)
    cells = {cell.column: words.format_cell(cell.column, cell.text) for cell in row}
    nonzero = [(name, units) for name, units in one.columns if units]
    shown, others = nonzero[:_MAX_COLUMNS], nonzero[_MAX_COLUMNS:]
    rows = [(say("on_average"), one.bias, "")]
    rows += [(quote_name(name), units, cells[name]) for name, units in shown]
    if others:
        rest = sum(units for _, units in others)
        rows.append((say("other_columns", count=len(others)), rest, ""))
    figures = format_contributions(one, [units for _, units, _ in rows])
    rows.append((say("together"), 0, ""))
    table = [(name, text, cell) for (name, _, cell), text in zip(rows, figures, strict=True)]
    return say(key, target=quote_name(one.target), label=label), align_rows(table, right=1)


def _list_unused_sections(found: Explanation, words: ExplanationWords) -> Iterator[Section]:
    """Yield the missing and the unused columns."""
    gone = [
        cell.column
        for cell in found.row
        if cell.state == "missing" or (cell.state == "absent" and cell.asked)
    ]
    if gone:
        yield words.get_phrase("missing"), [words.format_names(gone)]
    idle = [cell.column for cell in found.row if cell.state == "known" and not cell.asked]
    if idle:
        more, text = len(idle) - _MAX_NAMES, words.format_names(idle[:_MAX_NAMES])
        rest = [words.get_phrase("more", count=more)] if more > 0 else []
        yield words.get_phrase("not_asked"), [" ".join([text, *rest])]


def format_table(rows: Sequence[Sequence[str]], *, right: int = -1, gap: int = 2) -> Lines:
    """Yield rows of aligned cells as lines; the column `right` is right-aligned."""
    return ((f"  {line}", False) for line in align_rows(rows, right=right, gap=gap))


def align_rows(rows: Sequence[Sequence[str]], *, right: int = -1, gap: int = 2) -> Iterator[str]:
    """Yield rows of aligned cells; the column `right` is right-aligned."""
    widths = [max(map(measure_width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            " " * (width - measure_width(cell)) + cell if place == right else pad_text(cell, width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield (" " * gap).join(cells).rstrip()


def pad_text(text: str, width: int) -> str:
    """Pad a text with blanks; wide East Asian characters take two columns."""
    return text + " " * max(width - measure_width(text), 0)


# ---------------------------------------------------------------- phrases

_MAX_CHOICE = 100
"""Characters after which further categories of a condition are counted instead of named."""

_RANGE_PATTERN = re.compile(r"[<>]=? -?[0-9.]+(e[-+]?[0-9]+)?")


class ExplanationWords:
    """Wording of an explanation.

    Parameters
    ----------
    language : Language
    dtype : {"float32", "float64"}
        Type of thresholds.
    nominal : set of str
        Columns whose cells are texts.
    """

    def __init__(self, language: Language, dtype: Dtype, nominal: set[str]) -> None:
        self.language, self._dtype, self._nominal = language, dtype, nominal

    def get_phrase(self, key: str, **fields: object) -> str:
        """Return a phrase of the catalogue."""
        return self.language.say(f"explain_{key}", **fields)

    def format_cell(self, column: str, text: str | None) -> str:
        """Format a cell; categories are quoted."""
        if text is None:
            return self.get_phrase("gone")
        return quote_text(text) if column in self._nominal or not _is_number(text) else text

    def format_wish(self, wish: str) -> str:
        """Format a wish: a range unchanged, a label like other labels."""
        return wish if _RANGE_PATTERN.fullmatch(wish) else quote_name(wish)

    def format_names(self, columns: Sequence[str]) -> str:
        """Join column names."""
        return ", ".join(map(quote_name, columns))

    def format_clause(self, clause: BranchCondition) -> str:
        """Format a condition."""
        return format_branch(clause, self._dtype, self.language, max_length=_MAX_CHOICE)

    def format_prediction(self, prediction: Said) -> str:
        """Format the prediction for one target."""
        target = quote_name(prediction.target)
        if prediction.label is None:
            value = repr(prediction.value).removesuffix(".0")
            return self.get_phrase("number", target=target, value=value)
        share = f"{dict(prediction.shares)[prediction.label]:.4f}"
        label = quote_label(prediction.label)
        return self.get_phrase("label", target=target, label=label, share=share)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isprintable()
