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
"""

from __future__ import annotations

import importlib.util
import io
import math
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treekit import registry
from treekit.contracts import Exporter
from treekit.data.schema import Schema
from treekit.errors import ExportError, TreekitWarning, VerificationError
from treekit.export.languages import PROFILE, LanguageExport, Verify, folder_of_languages, languages
from treekit.export.literals import Code, Tables
from treekit.export.render import render_from
from treekit.export.template_values import schema_values
from treekit.verify.answers import INCONSISTENT, STRANGE, Answers
from treekit.verify.probe_values import unseen_text
from treekit.verify.runtime import Job, Rows, Runner, Runtime

__all__ = ["Program", "language_runners", "why_no_runner"]

_SECONDS = 60
"""Time limit of a version command."""
_BUILT = "treekit-built"
"""Marker file of a job folder in which the driver is built."""


class Program:
    """Artifacts of one language and their driver, built in a folder.

    Parameters
    ----------
    export : LanguageExport
        Of an exporter whose profile has a [verify] section.
    paths, schemas : sequences of Path and Schema
        The artifacts.
    folder : Path
        Working folder; if it contains the program, the program is not built again.
    deadline : float
        As in `treekit.verify.runtime.Job`.

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
    ) -> None:
        self.export, self.paths, self.schemas, self.folder = export, paths, schemas, folder
        self.how = _how(export)
        what = Path(", ".join(path.name for path in paths[:3]))
        self.job = Job(what, schemas[0], folder, deadline)
        if (folder / _BUILT).exists():
            return
        models = [self._placed(number) for number in range(len(paths))]
        for name, template in self.how.files.items():
            file = f"{export.profile.name}/{template}"
            (folder / name).write_bytes(render_from(export.folders(), file, models=models))
        for command in self.how.build:
            self.job.call(_words(command))
        (folder / _BUILT).touch()

    def answers(self, rows: Sequence[npt.NDArray[np.float64]]) -> list[Answers]:
        """Predict rows (n, features) with each artifact.

        Raises
        ------
        VerificationError
            If the names of columns, classes or categories of one differ from its schema.
        """
        content = b"".join(map(self._request, range(len(rows)), rows))
        reply = io.BytesIO(self.job.call(_words(self.how.run), content))
        return [self._answers(number, len(some), reply) for number, some in enumerate(rows)]

    def _request(self, number: int, rows: npt.NDArray[np.float64]) -> bytes:
        categories = self._level_texts(number)
        texts = [_int(feature) + self._text(text) for feature, text, _ in categories]
        head = _int(number) + _int(len(texts)) + b"".join(texts) + _int(len(rows))
        return head + rows.astype("<f8").tobytes()

    def _level_texts(self, number: int) -> list[tuple[int, str, int]]:
        """List columns, texts and codes: every category, and a text outside each vocabulary."""
        texts: list[tuple[int, str, int]] = []
        for f, column in enumerate(self.schemas[number].columns):
            texts += [(f, text, code) for code, text in enumerate(column.levels)]
            texts.append((f, unseen_text(column) if column.kind == "nominal" else "x", -1))
        return texts

    def _answers(self, number: int, n_rows: int, reply: io.BytesIO) -> Answers:
        schema, name = self.schemas[number], self.paths[number].name
        names = self._names(schema)
        if reply.read(len(names)) != names:
            raise VerificationError(
                f"{name!r} differs from the model in names of columns, classes or categories"
            )
        codes = np.array([code for _, _, code in self._level_texts(number)], dtype="<i4").tobytes()
        if reply.read(len(codes)) != codes:
            raise VerificationError(f"{name!r} differs from the model in the codes of categories")
        record = np.dtype(
            [("label", "<i4", (len(schema.outputs),)), ("number", "<f8", (schema.n_values,))]
        )
        content = reply.read(n_rows * record.itemsize)
        if len(content) != n_rows * record.itemsize:
            raise VerificationError(f"{name!r} did not return a prediction for every row")
        table = np.frombuffer(content, dtype=record)
        label = table["label"].astype(np.int64)
        classes = [max(len(output.classes), 1) for output in schema.outputs]
        label[(label < INCONSISTENT) | (label >= classes)] = STRANGE
        return Answers(label, np.ascontiguousarray(table["number"], dtype=np.float64))

    def _names(self, schema: Schema) -> bytes:
        """Encode all names of a schema as a driver writes them."""
        lists = [schema.names, [output.name for output in schema.outputs]]
        lists += [[str(label) for label in output.classes] for output in schema.outputs]
        lists += [column.levels for column in schema.columns]
        return b"".join(_int(len(texts)) + b"".join(map(self._text, texts)) for texts in lists)

    def _text(self, text: str) -> bytes:
        content = text.encode(self.how.text, "surrogatepass")
        return _int(len(content)) + content

    def _placed(self, number: int) -> dict[str, Any]:
        """Copy an artifact into the folder; return the values for the driver's templates."""
        path, schema = self.paths[number], self.schemas[number]
        content = path.read_bytes()
        place = self.folder / self.how.artifact.format(number=number, name=path.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        stem = path.name.removesuffix(self.export.profile.suffix)
        values = schema_values(schema, stem, Tables(self.export.profile.literals))
        text = content.decode("utf-8", errors="replace")
        found = {name: _found(pattern, text) for name, pattern in self.how.find.items()}
        return values | {"number": number, "found": found}


def language_runners(templates: str | Path = "") -> list[Runner]:
    """Return runners of all languages whose profiles have a [verify] section, plugins included.

    Those of the folder `templates` come first; faulty ones are reported by a `TreekitWarning`.

    Raises
    ------
    VerificationError
        If the folder does not exist.
    """
    exports, faults = _offered(templates)
    for fault in faults:
        warnings.warn(f"{fault}; this language is skipped", TreekitWarning, stacklevel=2)
    return [
        Runner(
            export.profile.name,
            export.profile.suffix,
            (
                Runtime(
                    export.profile.verify.needs[0],
                    partial(_run, export),
                    partial(_version, export),
                    partial(_lacking, export),
                ),
            ),
        )
        for export in exports
        if export.profile.verify is not None
    ]


def why_no_runner(name: str, templates: str | Path = "") -> list[str]:
    """Return reasons related to languages why no runner runs the file `name`."""
    exports, faults = _offered(templates)
    reasons = [
        f"the language {export.profile.name!r} has no [verify] section in "
        f"{str(export.folder / export.profile.name / PROFILE)!r}; add one to run its files"
        for export in exports
        if export.profile.verify is None and name.endswith(export.profile.suffix)
    ]
    if reasons:
        return reasons[:1]
    if templates and not faults and not any(folder_of_languages(templates).glob(f"*/{PROFILE}")):
        faults = [f"no language in the folder {str(templates)!r}: expected NAME/{PROFILE}"]
    return faults + list(registry.faults())


def _offered(templates: str | Path) -> tuple[list[LanguageExport], list[str]]:
    """Return all languages, those of the folder `templates` first, and faults found there."""
    offered: list[Exporter] = []
    faults: list[str] = []
    if templates:
        try:
            offered += languages(folder_of_languages(templates), faults.append)
        except ExportError as error:
            raise VerificationError(str(error)) from error
    offered += [
        component.record
        for component in registry.components("exporter")
        if isinstance(component.record, Exporter)
    ]
    exports = [record.export for record in offered]
    return [export for export in exports if isinstance(export, LanguageExport)], faults


def _run(export: LanguageExport, job: Job, rows: Rows) -> Iterator[tuple[str, Answers]]:
    program = Program(export, [job.path], [job.schema], job.folder, job.deadline)
    yield "rows", program.answers([rows])[0]


def _version(export: LanguageExport) -> str:
    how = _how(export)
    if not how.version:
        return "unknown"
    done = subprocess.run(  # noqa: S603 - the command of the profile
        _words(how.version), capture_output=True, check=False, timeout=_SECONDS
    )
    return done.stdout.decode(errors="replace").strip().partition("\n")[0]


def _lacking(export: LanguageExport, path: Path) -> str:
    """Return which required program or Python module is not installed; empty if none."""
    del path
    absent = [
        name
        for name in _how(export).needs
        if shutil.which(name) is None and importlib.util.find_spec(name) is None
    ]
    return f"{absent[0]} is not installed" if absent else ""


def _how(export: LanguageExport) -> Verify:
    if export.profile.verify is None:
        raise VerificationError(
            f"the language {export.profile.name!r} cannot be verified; add a [verify] section"
        )
    return export.profile.verify


def _found(pattern: str, text: str) -> Code:
    """Find a name in the artifact; empty if there is none, or it is not an identifier."""
    found = re.search(pattern, text, re.MULTILINE)
    return Code(found[1] if found and re.fullmatch(r"[A-Za-z0-9_.]+", found[1]) else "")


def _int(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def _words(command: Sequence[str]) -> list[str]:
    return [word.replace("{python}", sys.executable) for word in command]
