"""Damaged files raise a clear error or are read as something valid: no crash, no hang.

Some cases of each kind of file belong to the first tier; with ``-m system`` there are 10,000
of model files, half of which change values of a valid file, and half its bytes.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.extremes import EXTREMES
from tests.fuzz.damage import broken_bytes, broken_text, broken_zip, mixed
from tests.fuzz.harness import Subject, cases, fuzz, try_case
from tests.reference.models import mixed_schema, random_model
from tests.strategies import ALL_KINDS, models
from treekit.data.schema import Column, Schema
from treekit.data.table import read_table
from treekit.export.languages import read_profile
from treekit.model.model import Model
from treekit.model.model_file import load, save
from treekit.model.scoring import sum_leaf_values
from treekit.model.tree import FIELD_DTYPES
from treekit.rules import parse_rules, rules


def file_of(model: Model) -> bytes:
    """The bytes of the model's file."""
    with saved(model) as path:
        return path.read_bytes()


@contextlib.contextmanager
def saved(model: Model) -> Iterator[Path]:
    """The model's file for a moment; no disk is waited for, which takes longest."""
    with tempfile.TemporaryDirectory() as folder, patch.object(os, "fsync"):
        path = Path(folder) / "model"
        save(model, path)
        yield path


def assert_same(a: Model, b: Model) -> None:
    """Two models are one."""
    for name in ("schema", "exponent", "missing", "unknown", "voting", "combine", "link"):
        assert getattr(a, name) == getattr(b, name), name
    assert repr(a.settings) == repr(b.settings)  # NaN is not itself
    assert (a.costs is None) == (b.costs is None)
    np.testing.assert_array_equal(a.units, b.units)
    for one, other in zip(a.trees, b.trees, strict=True):
        for name in FIELD_DTYPES:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


def assert_sound(model: Model) -> None:
    """It scores, and comes back from its own file as it is."""
    rows = np.array([0.0, np.nan, -1.0, 1e30])[:, None].repeat(model.schema.n_features, axis=1)
    if model.missing != "error" and model.unknown != "error":
        sum_leaf_values(model, rows)
    with saved(model) as path:
        assert_same(load(path), model)


SMALL = (
    *(
        "one_leaf",
        "one_class",
        "float32_extremes",
        "missing_only",
        "several_labels",
        "hostile_names",
    ),
    *("oblique", "surrogates", "fractional", "hard_costs", "refuses_both", "wide_numbers64"),
    *("boosted_four", "boosted_counts", "float_labels"),
)
HOSTILE = Schema(
    (Column('a"b\\'), Column("is", "nominal", ("x: one of {}", "line\nbreak", "\u202e", "é, 行"))),
    target="then   support 3",
    classes=("", "NA", "node 1"),
)
MODELS = [
    random_model(1, HOSTILE, n_splits=5),
    random_model(2, mixed_schema((), dtype="float64"), n_trees=2, n_splits=4),
    *(EXTREMES[name]() for name in SMALL),
]
FILES = [file_of(model) for model in MODELS]


def check_seed(model: Model) -> None:
    """Where checksums hold, a file that is read says what a sound one says."""
    for seed in MODELS:
        if seed.schema == model.schema and seed.n_nodes == model.n_nodes:
            return assert_same(model, seed)
    raise AssertionError("no sound file holds this model")


@cases(100, 5000)
def test_a_damaged_model_file_is_refused_or_predicts_equally(tmp_path, count):
    damaged = Subject("damaged.treekit", FILES, load, check_seed, broken_bytes)
    refused, _ = fuzz(damaged, tmp_path, count)
    assert refused


@cases(100, 5000)
def test_forged_model_file_is_refused_or_read_as_a_valid_model(tmp_path, count):
    forged = Subject("forged.treekit", FILES, load, assert_sound, broken_zip)
    refused, read = fuzz(forged, tmp_path, count)
    assert refused > read > 0


@cases(5, 200)
def test_any_forged_model_is_refused_or_read_as_a_valid_model(tmp_path, count):
    fuzz(Subject("sound.treekit", FILES, load, assert_sound, broken_zip), tmp_path, 0)  # imports

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(model=models(kinds=ALL_KINDS), way=st.integers(0, 2**32 - 1))
    def check(model, way):
        forged = Subject("drawn.treekit", [file_of(model)], load, assert_sound, broken_zip)
        content = broken_zip(forged.seeds, np.random.default_rng(way))
        try_case(forged, tmp_path / "drawn.treekit", content, f"way {way}")

    check()


# ------------------------------------------------------------------ rules

RULES = [  # those of "hostile_names" are 3 MB, which take all the time
    str(rules(model)).encode("utf-8") for model in MODELS if len(model.trees) < 20
]


def check_text_is_parsed(found) -> None:
    """Rules that are read are written as they were."""
    parse_rules(str(found))


@cases(100, 3000)
def test_a_damaged_rule_text_is_refused_or_reads_equally(tmp_path, count):
    def read(path: Path):
        text = path.read_bytes().decode("utf-8", "replace")
        found = parse_rules(text)
        assert str(found) == text
        return found

    broken = Subject(
        "broken.rules.txt", RULES, read, check_text_is_parsed, mixed(broken_text, broken_bytes)
    )
    refused, _ = fuzz(broken, tmp_path, count)
    assert refused


# ------------------------------------------------------------------ languages

PROFILES = sorted((Path(__file__).parents[2] / "templates").glob("*/language.toml"))


@cases(100, 3000)
def test_broken_language_profile_is_refused_or_read(tmp_path, count):
    broken = Subject(
        "language.toml",
        [path.read_bytes() for path in PROFILES],
        lambda path: read_profile(path.parent),
        lambda profile: hash(profile.name),
        mixed(broken_text, broken_text, broken_bytes),
    )
    assert PROFILES
    refused, read = fuzz(broken, tmp_path, count)
    assert refused
    assert read


# ------------------------------------------------------------------ tables

TABLE = (
    'size,"the colour",n\n1.5,red,1\n,"deep, ""blue""",2\n-3e-7,?,3\n1e300,"two\nlines",4\n'
    "0x10,é行,5\nTrue,NA,6\n"
)


def is_a_table(table) -> None:
    """Its columns are alike long, and each has its cells."""
    assert {len(table.get_typed_cells(name)) for name in table.names} == {table.n_rows}


@cases(30, 1000)
@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "parquet", "feather"])
def test_broken_table_is_refused_or_read(ending, tmp_path, count):
    seeds = [written(TABLE, ending, tmp_path), written("a\n1\n\n2\n", ending, tmp_path)]
    text = ending in ("csv", "tsv")
    ways = mixed(broken_text, broken_bytes) if text else broken_bytes
    broken = Subject(f"broken.{ending}", seeds, read_table, is_a_table, ways)
    refused, read = fuzz(broken, tmp_path, count)
    assert refused
    assert read


def written(text: str, ending: str, folder: Path) -> bytes:
    """The table in a file of this kind."""
    import gzip

    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet

    if ending == "tsv":
        return text.replace(",", "\t").encode()
    if ending == "csv":
        return text.encode()
    if ending == "csv.gz":
        return gzip.compress(text.encode(), mtime=0)
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    table = pyarrow.csv.read_csv(io.BytesIO(text.encode()), parse_options=options)
    path = folder / "sound"
    if ending == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.feather.write_feather(table, path)
    return path.read_bytes()
