"""Whether files of C are what treekit writes of a model, to the byte.

Tables that were read and compared say nothing of the code that walks them.  That
code is of templates, which read nothing but the model and three settings, and both
files tell these settings: so the model is exported again and compared.
"""

from __future__ import annotations

import re
from pathlib import Path

from treekit.errors import ExportError
from treekit.export.c import c_contents
from treekit.export.nested_tests import AS_ASKED
from treekit.export.render import shipped_folders
from treekit.model.model import Model

__all__ = ["as_lines", "is_as_written"]

_FORM = re.compile(r"^ \* Form: (\w+); (.*)\.$", re.MULTILINE)
_INPUT = re.compile(r'^#define \w+_INPUT "(\w+)"', re.MULTILINE)
_SETTINGS: dict[str, dict[str, str]] = {
    "double": {},
    "float": {"input": "float"},
    "uint32_t": {"arithmetic": "integer"},
    "uint64_t": {"arithmetic": "integer"},
}
"""By the type of a row's cells."""


def is_as_written(path: Path, model: Model) -> bool:
    """Tell whether a source and the header beside it are what this version writes."""
    header = path.with_suffix(".h")
    if not header.is_file():
        return False
    text = header.read_text(encoding="utf-8", errors="replace")
    form, cell = _FORM.search(text), _INPUT.search(text)
    if form is None or cell is None or cell[1] not in _SETTINGS:
        return False
    asked = {"form": form[1] if form[2] == AS_ASKED else "auto"} | _SETTINGS[cell[1]]
    try:  # by treekit's own templates, whatever others this machine uses
        written = c_contents(model, path.stem, shipped_folders(), **asked)
    except ExportError:  # nobody wrote this model so
        return False
    return all(
        as_lines(path.with_name(name).read_bytes()) == content for name, content in written.items()
    )


def as_lines(content: bytes) -> bytes:
    """A file whose lines end as treekit's do: on Windows, tools make others of them."""
    return content.replace(b"\r\n", b"\n")
