"""Sphinx extension: write pages from the code, and copy those that live elsewhere.

All go to ``docs/generated/``, which is not under version control.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

DOCS = Path(__file__).parent
ROOT = DOCS.parent
GENERATED = DOCS / "generated"

# ---------------------------------------------------------------- pages of other folders

COPIED = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "benchmarks/RESULTS.md",
    "examples/deploy/README.md",
    "examples/readable_code.md",
    "examples/tables/*/README.md",
    "examples/watermelon_book/README.md",
    "examples/watermelon_book/README.zh.md",
    "plugins/*.md",
    "plugins/*/README.md",
)
"""Pages of the repository, which keep their paths, and so the links between them."""


def list_copied_pages() -> list[Path]:
    """Return the paths of `COPIED`."""
    return sorted(path for pattern in COPIED for path in ROOT.glob(pattern))


def copy_page(path: Path) -> str:
    """Return a page with links to the other copies, or to the repository's files."""
    pages = list_copied_pages()

    def redirect(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        place = (path.parent / target).resolve()
        if place.is_dir():
            place = next(filter(Path.is_file, (place / "README.md", *sorted(place.iterdir()))))
        if place in pages:
            return f"]({os.path.relpath(place, path.parent)}{anchor})"
        copy = GENERATED / path.relative_to(ROOT)
        return f"]({os.path.relpath(place, copy.parent)})"

    text = path.read_text(encoding="utf-8")
    return re.sub(r"\]\((?!\w+:)([^)#\s]+)(#[^)]*)?\)", redirect, text)


# ---------------------------------------------------------------- settings and components


def write_settings_page() -> Iterator[str]:
    """Yield the lines of the page of settings: those of training, then those of components."""
    from treekit import registry
    from treekit.registry.kinds import KINDS
    from treekit.training.settings import COMMON_SETTINGS, PRESETS, SETTINGS

    yield "# Settings\n\nPass a setting to `treekit.train` by keyword, or to commands by"
    yield "`--set KEY=VALUE`. Settings of a component begin with its kind:"
    yield "`--set criterion.q=1.5`, `**{'criterion.q': 1.5}`.\n\n## Training\n"
    common = [setting for setting in SETTINGS if setting.name in COMMON_SETTINGS]
    yield from format_settings([*common, *(one for one in SETTINGS if one not in common)])
    yield "\n## Algorithms\n\nAn algorithm is a named set of settings; explicit settings take"
    yield "precedence.\n"
    for name, preset in PRESETS.items():
        settings = {**preset.settings, **preset.single_tree}
        by_task = [(f" ({task})", more) for task, more in preset.by_task.items()]
        values = "; ".join(
            ", ".join(f"`{key}={value}`" for key, value in group.items()) + task
            for task, group in (("", settings), *by_task)
        )
        yield f"`{name}`\n: {preset.summary}: {values}\n"
    for kind in KINDS.values():
        own = [one for one in registry.components(kind.name) if not registry.is_foreign(one.record)]
        if own:
            yield f"\n## {kind.record.__name__}s\n".replace("Criterions", "Criteria")
        for component in own:
            yield f"### {component.name}\n\n{component.record.summary}\n"
            yield from format_settings(registry.list_settings(component.record))


def format_settings(settings: Any) -> Iterator[str]:
    """Yield the lines of a table of settings; nothing for none."""
    from treekit.settings import help_rows

    rows = list(help_rows(settings))
    if rows:
        yield "| setting | values | default | meaning |\n|---|---|---|---|"
        yield from (format_row(row) for row in rows)
        yield ""


def format_row(row: Any) -> str:
    """Format a row of `help_rows` as Markdown."""
    name, *cells = (str(cell).replace("|", "\\|").replace("*", "\\*") for cell in row)
    return " | ".join([f"| `{name}`", *cells]) + " |"


# ---------------------------------------------------------------- commands


def write_commands_page() -> Iterator[str]:
    """Yield the lines of the page of commands, as ``--help`` prints them."""
    from treekit.cli import main

    context = click.Context(main, info_name="treekit", **main.context_settings)
    yield "# Commands\n\nEvery command prints its options by `--help`. Exit codes: 0, success; 1,"
    yield "`verify` found a difference or `plugin check` a violation; 2, an invalid command, table"
    yield "or file.\n"
    yield from format_command(main, context)


def format_command(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the lines of a command, then those of its subcommands."""
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"## {context.command_path}\n\n```text\n{context.command_path} {usage}\n```\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        kept = paragraph.removeprefix("\b\n")  # click's mark of a paragraph that is not wrapped
        yield f"{escape(kept)}\n" if kept == paragraph else f"```text\n{kept}\n```\n"
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and record[1] and "--help" not in parameter.opts:
            yield f"`{record[0]}`\n: {escape(record[1])}\n"
    for name, child in getattr(command, "commands", {}).items():
        yield from format_command(child, click.Context(child, parent=context, info_name=name))


# ---------------------------------------------------------------- JSON of commands

_TYPE_NAMES = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "true or false",
    "dict[str, Any]": "object",
    "tuple[str, str]": "two texts",
}


def write_json_page() -> Iterator[str]:
    """Yield the lines of the page of the JSON that commands print."""
    from treekit.cli import json_reports

    yield "# JSON of commands\n\nWith `--json` these commands print one object. `columns`,"
    yield "`evaluate` and `explain` print JSON as well; `verify --json` prints the certificate."
    yield "Fields are added in later releases, and none is renamed or removed.\n"
    records = [one for one in vars(json_reports).values() if inspect.isclass(one)]
    own = [one for one in records if issubclass(one, json_reports.Record)]
    for record in sorted(own, key=lambda one: not one.__name__.endswith("Report")):
        fields = {name: str(kind) for name, kind in inspect.get_annotations(record).items()}
        if fields:
            text, _, described = inspect.cleandoc(record.__doc__ or "").partition("\nAttributes\n")
            yield f"## {record.__name__}\n\n{text.strip()}\n\n| field | value | |\n|---|---|---|"
            for name, kind in fields.items():
                yield f"| `{name}` | {name_type(kind)} | {find_meaning(described, name)} |"
            yield ""


def find_meaning(described: str, name: str) -> str:
    """Return what a docstring's section of attributes says of one; empty if nothing."""
    pattern = rf"^(?:\w+, )*{name}(?:, \w+)* : .*\n((?:    .*\n?)*)"
    found = re.search(pattern, described, re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def name_type(annotation: str) -> str:
    """Return the words for an annotation of a field."""
    kind, _, rest = annotation.partition(" | None")
    several = kind.removeprefix("list[").removesuffix("]") if kind.startswith("list[") else ""
    words = f"list of {name_type(several)}" if several else _TYPE_NAMES.get(kind, kind)
    return words + (" or null" if rest or annotation.endswith("| None") else "")


def escape(text: str) -> str:
    """Escape what Markdown would read as emphasis or HTML."""
    return re.sub(r"([*<])", r"\\\1", text)


# ---------------------------------------------------------------- extension


def write_pages(app: Any) -> None:
    """Write all pages; unchanged ones keep their time, so that Sphinx does not read them again."""
    # Else each folder of examples/ with a README.md would be a part of the gallery.
    app.config.sphinx_gallery_conf["source_suffix"] = {".rst": "restructuredtext"}
    pages = {path.relative_to(ROOT): copy_page(path) for path in list_copied_pages()}
    pages[Path("settings.md")] = "\n".join(write_settings_page()) + "\n"
    pages[Path("json.md")] = "\n".join(write_json_page()) + "\n"
    pages[Path("commands.md")] = "\n".join(write_commands_page()) + "\n"
    for name, text in pages.items():
        path = GENERATED / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", write_pages, priority=100)
    return {"parallel_read_safe": True}
