"""JavaScript, Java, Rust and Go, and any language that is a folder: equal to the last bit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import numpy as np
import pytest

import treekit
from tests.extremes import EXTREMES, extreme_rows, wanted
from tests.reference.models import mixed_schema
from tests.runtimes import need
from treekit.export.languages import languages
from treekit.model.build import build_tree, leaf, subset, threshold
from treekit.model.ensemble import Model, make_model
from treekit.verify.answers import differing
from treekit.verify.run_language import Program

RUNTIMES = {"javascript": ("node",), "java": ("javac",), "rust": ("rustc",), "go": ("go",)}
SHIPPED = {exporter.name: exporter for exporter in languages()}
CHECKS = {
    "go": (["go", "vet", "./..."], ["gofmt", "-l", "."]),
    "java": (["javac", "-Xlint:all", "-Werror", "-d", "strict", "Driver.java", "@sources"],),
}
"""What more the tools of a language have to say: no word, or a test fails."""


def boosted(link: str, classes: tuple[str, ...], combine: str = "sum") -> Model:
    """Six small trees whose values add up, of margins or of numbers, and a link."""
    schema, rng, trees = mixed_schema(classes), np.random.default_rng(len(link)), []
    for _ in range(6):
        values = rng.normal(size=(3, schema.n_values)) * (4 if classes else 300)
        if len(classes) == 2:
            values[:, 0] = 0.0
        first, second, third = (leaf(row.tolist() if classes else row[0]) for row in values)
        node = threshold(
            "size",
            float(np.float32(rng.normal())),
            first,
            subset("colour", ["red"], second, third),
        )
        trees.append(build_tree(node, schema, margins=True))
    return make_model(schema, trees, combine=combine, link=link)


def models() -> Iterator[tuple[str, Model, str]]:
    """Every extreme model in the form that suits it, and some in both."""
    for number, (name, make) in enumerate(EXTREMES.items()):
        yield name, make(), "auto"
        if number % 4 == 0 or name in ("oblique", "surrogates", "mixed", "many_levels_in_two"):
            yield f"{name}, as tables", make(), "table"
    for link in ("softmax", "sigmoid"):
        for classes in (("a", "b"), ("a", "b", "c")):
            yield f"{link} of {len(classes)}", boosted(link, classes), "auto"
    for link in ("identity", "exp", "sigmoid"):
        yield f"{link} of sums", boosted(link, ()), "auto"
        yield f"{link} of means", boosted(link, (), "mean"), "auto"


@pytest.mark.parametrize("language", SHIPPED)
def test_every_extreme_model_is_answered_with_equal_bits(language, tmp_path):
    need(*RUNTIMES[language])
    exporter, cases = SHIPPED[language], list(models())
    (tmp_path / "program").mkdir()
    paths = [
        treekit.export(model, exporter, tmp_path / f"m{number}", form=form)[0]
        for number, (_, model, form) in enumerate(cases)
    ]
    schemas = [model.schema for _, model, _ in cases]
    program = Program(exporter.export, paths, schemas, tmp_path / "program")
    rows = [extreme_rows(model, most=400) for _, model, _ in cases]
    for (name, model, _), own, told in zip(cases, rows, program.answers(rows), strict=True):
        assert not len(differing(wanted(model, own), told)), name
    for command in CHECKS.get(language, ()):
        done = subprocess.run(command, cwd=program.folder, check=False, capture_output=True)
        assert (done.returncode, done.stdout) == (0, b""), (done.stdout + done.stderr)[:2000]
