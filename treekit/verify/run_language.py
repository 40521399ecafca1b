"""Execution of artifacts of the languages defined by folders of templates and their profiles.

The driver is rendered from the language's own templates.  It contains one artifact or
several, compiled together, and answers requests on its standard input, one after the
other, until the end of input.  Numbers are little-endian, integers have 32 bits; a text
is its length in bytes and the bytes.

========================================  ==============================================
request                                   reply
========================================  ==============================================
number of the artifact                    lists of texts: columns, targets, labels of each
                                          target, categories of each column; each preceded
                                          by its length
number of texts, then for each the        for each text the code of that category, -1 =
column and the text                       none
number of rows, then doubles              for each row a label for each target (-1 =
                                          refused, 0 for numbers, -3 = refused by one
                                          function only), and the doubles of the prediction
========================================  ==============================================

A driver of the readable form (`treekit.export.readable`) gets the number of the artifact,
the number of rows and doubles, and replies with a double for each row: the code of the
label, -1 = none of the classes, or the number.
"""

from __future__ import annotations

import importlib.util
import io
import math
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.contracts import Exporter
from treekit.data.schema import Schema
from treekit.errors import ExportError, TreekitWarning, VerificationError
from treekit.export.languages import (
    PROFILE_FILE,
    LanguageExport,
    Verify,
    find_languages_folder,
    language_exporter,
    load_languages,
)
from treekit.export.literals import Code, Tables, list_shipped_folders, render_from
from treekit.export.template_values import compute_schema_values
from treekit.model.model import Model
from treekit.verify.answers import (
    Answers,
    concatenate_answers,
    parse_plain_predictions,
    parse_predictions,
)
from treekit.verify.fresh_export import (
    equals_export,
    find_source_settings,
    normalize_line_ends,
)
from treekit.verify.probe_values import list_category_texts, make_unseen_text
from treekit.verify.runtime import Job, Rows, Runner, Runtime, read_version

_READABLE_LINE = re.compile(r"^(\S+ )?Form: readable; ", re.MULTILINE)
_ROWS_PER_PROCESS = 5000
_BUILT_MARKER = "treekit-built"
"""Marker file of a job folder in which the driver is built."""


class LanguageProgram:
    """Artifacts of one language and their driver, built in a folder.

    Parameters
    ----------
    export : LanguageExport
        Of an exporter whose profile has a [verify] section.
    paths, schemas : sequences of Path and Schema
        The artifacts, all of the readable form or none.
    folder : Path
        Working folder; if it contains the program, the program is not built again.
    deadline, fresh
        As in `treekit.verify.runtime.Job`; what is known of a file spares a driver some calls.

    Raises
    ------
    VerificationError
        If something does not compile.
    """

    def __init__(
        self,
        export: LanguageExport,
        paths: Sequence[Path],
        schemas: Sequence[Schema],
        folder: Path,
        deadline: float = math.inf,
        fresh: bool = False,
    ) -> None:
        self.export, self.paths, self.schemas, self.folder = export, paths, schemas, folder
        if export.profile.verify is None:
            raise VerificationError(
                f"the language {export.profile.name!r} cannot be verified; add a [verify] section "
                f"to its {PROFILE_FILE}"
            )
        self.how = export.profile.verify
        what = Path(", ".join(path.name for path in paths[:3]))
        self.job = Job(what, schemas[0], folder, deadline)
        text = paths[0].read_text(encoding="utf-8", errors="replace")
        self.readable = bool(self.how.readable and _READABLE_LINE.search(text))
        if (folder / _BUILT_MARKER).exists():
            return
        models = [self._place_artifact(number) for number in range(len(paths))]
        files = self.how.readable if self.readable else self.how.files
        for name, template in files.items():
            file = f"{export.profile.name}/{template}"
            driver = render_from(export.list_folders(), file, models=models, fresh=fresh)
            (folder / name).write_bytes(driver)
        for command in self.how.build:
            self.job.run_program(_expand_command(command))
        (folder / _BUILT_MARKER).touch()

    def predict_rows(self, rows: Sequence[npt.NDArray[np.float64]]) -> list[Answers]:
        """Predict rows (n, features) with each artifact.

        Raises
        ------
        VerificationError
            If the names of columns, classes or categories of one differ from its schema.
        """
        content = b"".join(map(self._encode_request, range(len(rows)), rows))
        reply = io.BytesIO(self.job.run_program(_expand_command(self.how.run), content))
        return [self._decode_reply(number, len(some), reply) for number, some in enumerate(rows)]

    def _encode_request(self, number: int, rows: npt.NDArray[np.float64]) -> bytes:
        if self.readable:
            head = _encode_integer(number) + _encode_integer(len(rows))
            return head + rows.astype("<f8").tobytes()
        texts = list_category_texts(self.schemas[number])
        parts = [_encode_integer(number), _encode_integer(len(texts))]
        parts += [_encode_integer(f) + self._encode_text(text) for f, text, _ in texts]
        return b"".join([*parts, _encode_integer(len(rows)), rows.astype("<f8").tobytes()])

    def _decode_reply(self, number: int, n_rows: int, reply: io.BytesIO) -> Answers:
        schema, name = self.schemas[number], self.paths[number].name
        if self.readable:
            return parse_plain_predictions(name, reply.read(8 * n_rows), n_rows, schema)
        names = self._encode_names(schema)
        if reply.read(len(names)) != names:
            raise VerificationError(
                f"{name!r} differs from the model in columns or classes: other names or categories"
            )
        codes = b"".join(_encode_integer(code) for _, _, code in list_category_texts(schema))
        if reply.read(len(codes)) != codes:
            raise VerificationError(f"{name!r} differs from the model in the codes of categories")
        n_labels = len(schema.outputs)
        content = reply.read(n_rows * (4 * n_labels + 8 * schema.n_values))
        return Answers(*parse_predictions(name, content, n_rows, schema, n_labels, "<i4", "<f8"))

    def _encode_names(self, schema: Schema) -> bytes:
        """Encode all names of a schema as a driver writes them."""
        lists = [schema.names, [output.name for output in schema.outputs]]
        lists += [[str(label) for label in output.classes] for output in schema.outputs]
        lists += [column.levels for column in schema.columns]
        return b"".join(
            _encode_integer(len(texts)) + b"".join(map(self._encode_text, texts)) for texts in lists
        )

    def _encode_text(self, text: str) -> bytes:
        content = text.encode(self.how.text, "surrogatepass")
        return _encode_integer(len(content)) + content

    def _place_artifact(self, number: int) -> dict[str, Any]:
        """Copy an artifact into the folder; return the values for the driver's templates."""
        path, schema = self.paths[number], self.schemas[number]
        content = path.read_bytes()
        stem = path.name.removesuffix(self.export.profile.suffix)
        if stem == path.name:  # recognised by its content
            stem = path.stem
        name = stem + self.export.profile.suffix
        place = self.folder / self.how.artifact.format(number=number, name=name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        values = compute_schema_values(schema, stem, Tables(self.export.profile.literals))
        text = content.decode("utf-8", errors="replace")
        found = {name: _find_identifier(pattern, text) for name, pattern in self.how.find.items()}
        tested = self._describe_columns(number, text, values["columns"])
        return values | tested | {"number": number, "found": found}

    def _describe_columns(
        self, number: int, text: str, columns: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """Describe the columns to the driver: a text that is no category, and what is tested."""
        schema, pattern = self.schemas[number], self.how.readable_columns
        for column, own in zip(columns, schema.columns, strict=True):
            column["unseen"] = self.export.profile.literals.text(make_unseen_text(own))
        if not self.readable:
            return {}
        found = re.findall(pattern, text, re.MULTILINE) if pattern else []
        if any(not 1 <= int(at) <= schema.n_features for _, at in found):
            name = self.paths[number].name
            raise VerificationError(f"{name!r} differs from the model in columns")
        tested = [
            columns[int(at) - 1] | {"identifier": Code(name), "position": int(at) - 1}
            for name, at in found
        ]
        return {"tested": tested, "single": int(schema.dtype == "float32")}


def list_language_runners(templates: str | Path = "") -> list[Runner]:
    """Return runners of all languages whose profiles have a [verify] section, plugins included.

    Those of the folder `templates` come first; faulty ones are reported by a `TreekitWarning`.

    Raises
    ------
    VerificationError
        If the folder does not exist.
    """
    exports, faults = _list_language_exports(templates)
    for fault in faults:
        warnings.warn(f"{fault}; this language is skipped", TreekitWarning, stacklevel=2)
    is_fresh = {"python": is_fresh_python}
    return [
        Runner(
            *(export.profile.name, export.profile.suffix, (_make_runtime(export, how),)),
            start=how.start,
            is_fresh=is_fresh.get(export.profile.name),
        )
        for export in exports
        if (how := export.profile.verify) is not None
    ]


def is_fresh_python(path: Path, model: Model) -> bool:
    """Return whether this version of treekit writes the same Python file for the model."""
    settings = find_source_settings(normalize_line_ends(path.read_bytes()).decode(errors="replace"))
    if settings is None:
        return False
    shipped = list_shipped_folders()[0]  # even if this machine is configured for others
    export = language_exporter(shipped / "python").export
    return equals_export(path, lambda: export(model, path.stem, templates=str(shipped), **settings))


def _make_runtime(export: LanguageExport, how: Verify) -> Runtime:
    def run_rows(job: Job, rows: Rows) -> Iterator[tuple[str, Answers]]:
        known = job.deadline, job.fresh
        program = LanguageProgram(export, [job.path], [job.schema], job.folder, *known)
        n_parts = max(min(os.cpu_count() or 1, len(rows) // _ROWS_PER_PROCESS), 1)
        with ThreadPoolExecutor(n_parts) as pool:
            parts = pool.map(
                lambda part: program.predict_rows([part])[0], np.array_split(rows, n_parts)
            )
        yield "rows", concatenate_answers(list(parts))

    def get_version() -> str:
        return read_version(_expand_command(how.version)) if how.version else "unknown"

    def explain_unavailable(path: Path) -> str:
        del path
        for name in _expand_command(how.needs):
            if not (shutil.which(name) or Path(name).is_file() or importlib.util.find_spec(name)):
                return f"{name} is not installed"
        return ""

    return Runtime(how.needs[0].strip("{}"), run_rows, get_version, explain_unavailable)


def explain_missing_runner(name: str, templates: str | Path = "") -> list[str]:
    """Return the reasons why no language runs the file `name`."""
    exports, faults = _list_language_exports(templates)
    reasons = [
        f"the language {export.profile.name!r} has no [verify] section in "
        f"{str(export.folder / export.profile.name / PROFILE_FILE)!r}; add one to run its files"
        for export in exports
        if export.profile.verify is None and name.endswith(export.profile.suffix)
    ]
    if reasons:
        return reasons[:1]
    if (
        templates
        and not faults
        and not any(find_languages_folder(templates).glob(f"*/{PROFILE_FILE}"))
    ):
        faults = [f"no language in the folder {str(templates)!r}: expected NAME/{PROFILE_FILE}"]
    return faults + list(registry.faults())


def _list_language_exports(templates: str | Path) -> tuple[list[LanguageExport], list[str]]:
    """Return all languages, those of the folder `templates` first, and faults found there."""
    offered: list[Exporter] = []
    faults: list[str] = []
    if templates:
        try:
            offered += load_languages(find_languages_folder(templates), faults.append)
        except ExportError as error:
            raise VerificationError(str(error)) from error
    offered += [
        component.record
        for component in registry.components("exporter")
        if isinstance(component.record, Exporter)
    ]
    exports = [record.export for record in offered]
    return [export for export in exports if isinstance(export, LanguageExport)], faults


def _find_identifier(pattern: str, text: str) -> Code:
    """Find a name in the artifact; empty if there is none, or it is not an identifier."""
    found = re.search(pattern, text, re.MULTILINE)
    return Code(found[1] if found and re.fullmatch(r"[A-Za-z0-9_.]+", found[1]) else "")


def _encode_integer(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def _expand_command(command: Sequence[str]) -> list[str]:
    return [word.replace("{python}", sys.executable) for word in command]
