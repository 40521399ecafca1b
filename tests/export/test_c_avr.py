"""C source on AVR, where int has 16 bits, double has 32 and tables can stay in flash."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.extremes import EXTREMES, extreme_rows, refused, wanted
from tests.reference.models import mixed_schema, random_model
from tests.runtimes import need
from treekit.data.schema import Column, Schema
from treekit.export.c import export_c
from treekit.model.builder import build_tree, leaf, subset
from treekit.model.model import Model, make_model
from treekit.model.scoring import leaf_indices, sum_leaf_values
from treekit.model.tree import make_derived_columns

# ---------------------------------------------------------------- c avr

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Woverflow", "-Wshift-count-overflow")
IN_FLASH = "-DM_ADDRESS_SPACE=__flash"
LARGE = "atmega2560"  # 8 KiB of RAM, 256 KiB of flash
MORE_RAM = "atmega1284p"  # 16 KiB of RAM
MAX_ROW_BYTES = 12_000  # of the rows in flash
MAX_NUMBERS = 6_000  # that a program prints
UNWRITTEN = -77

FORMS = ("table", "if_else", "hybrid", "compact")
MODELS = (
    *("one_leaf", "one_class", "unused_features", "thousand_classes", "missing_only", "vanishing"),
    *("float32_extremes", "float64_extremes", "float32_neighbours", "float64_neighbours"),
    *("many_levels_in_two", "many_levels_each", "surrogates", "several_labels", "several_numbers"),
    *("fractional", "fractional_numbers", "fractional_unequal"),
    *("costs", "hard_voting", "hard_costs", "refuses_missing", "refuses_unseen", "refuses_both"),
    *("wide_numbers", "wide_numbers64", "unequal_numbers", "wide_sums", "linked_means"),
    *("boosted_two", "boosted_four", "boosted_each", "boosted_counts", "boosted_share"),
    *("mixed", "mixed_numbers", "mixed64", "mixed64_numbers"),
)
"""Each arithmetic of keys and sums, kind of split, policy and kind of answer."""

DRIVER = r"""
#include "m.h"
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>

static const __flash uint{bits}_t rows[{rows}][M_FEATURES] = {{
{cells}
}};
static uint{bits}_t x[{block}][M_FEATURES];
static {out} out[{block}][M_OUTPUTS];
static int labels[{block}][M_LABELS], leaves[M_TREES];

static void put(char c)
{{
    while (!(UCSR0A & (1 << UDRE0)))
        ;
    UDR0 = (uint8_t)c;
}}

static void say(int64_t number)
{{
    int8_t i;

    put(':');
    for (i = 15; i >= 0; i--)
        put("0123456789abcdef"[(uint64_t)number >> 4 * i & 15]);
    put('\n');
}}

/* A row: numbers are the bits of IEEE 754, of which the source makes keys. */
static void load(int row, uint{bits}_t *cells)
{{
    int f;

    for (f = 0; f < M_FEATURES; f++)
        cells[f] = m_level_count(f) < 0 ? m_key(rows[row][f]) : rows[row][f];
}}

static void clear(void)
{{
    int i, k;

    for (i = 0; i < {block}; i++) {{
        for (k = 0; k < M_OUTPUTS; k++)
            out[i][k] = {unwritten};
        for (k = 0; k < M_LABELS; k++)
            labels[i][k] = {unwritten};
    }}
    for (i = 0; i < M_TREES; i++)
        leaves[i] = {unwritten};
}}

int main(void)
{{
    int i, k, row;

    UCSR0A = 1 << U2X0;
    UCSR0B = 1 << TXEN0;
    for (row = 0; row < {rows}; row += {block}) {{
        clear();
        for (i = 0; i < {block}; i++)
            load(row + i, x[i]);
        {score}
        for (i = 0; i < {block}; i++) {{
            for (k = 0; k < M_LABELS; k++)
                say(labels[i][k]);
            for (k = 0; k < M_OUTPUTS; k++)
                say(out[i][k]);
            for (k = 0; k < {trees}; k++)
                say(leaves[k]);
        }}
    }}
    for (row = 0; row < 9999; row++)
        __asm__ volatile("");
    cli();
    sleep_enable();
    sleep_cpu();
    return 0;
}}
"""
BATCH = "(void)m_predict_batch(x[0], {block}, labels[0], out[0]);"
SINGLE = {
    "label": "labels[0][0] = m_predict(x[0], out[0]);",
    "labels": "(void)m_predict(x[0], labels[0], out[0]);",
    "number": "labels[0][0] = m_predict(x[0], out[0]);",
}
LEAVES = " (void)m_leaf(x[0], leaves);"


def compile_for_avr(
    folder: Path, *flags: str, processor: str = LARGE, files: tuple[str, ...] = ("main.c", "m.c")
) -> subprocess.CompletedProcess[str]:
    command = ["avr-gcc", "-std=gnu99", "-Os", f"-mmcu={processor}", "-ffunction-sections"]
    command += ["-fdata-sections", "-Wl,--gc-sections", *flags, *files, "-o", "m.elf"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def export_to(folder: Path, model: Model, **settings: str) -> None:
    for file, content in export_c(model, "m", **settings).items():
        (folder / file).write_bytes(content)


def spread(rows: np.ndarray, most: int) -> np.ndarray:
    """Up to `most` rows of all, at equal distances."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, most).astype(int))]


def cells_of(model: Model, rows: np.ndarray) -> np.ndarray:
    """Bits of numbers, and codes: the largest integer is missing, 2**31 is no category."""
    with np.errstate(over="ignore", under="ignore"):
        numbers = rows.astype(model.schema.dtype)
    cells = numbers.view(f"u{numbers.itemsize}").copy()
    for f in np.flatnonzero(model.schema.nominal):
        own = rows[:, f]
        known = (own >= 0) & (own < 2**31) & (own == np.floor(own))
        codes = np.where(known, own, 2**31).astype(cells.dtype)
        cells[:, f] = np.where(np.isnan(own), np.iinfo(cells.dtype).max, codes)
    return cells


def write_driver(folder: Path, model: Model, rows: np.ndarray, block: int, batch: bool) -> None:
    schema, cells = model.schema, cells_of(model, rows)
    several = bool(schema.more) and schema.task == "classification"
    kind = "labels" if several else "label" if schema.task == "classification" else "number"
    leaves = model.missing != "fractional" and not batch
    (folder / "main.c").write_text(
        DRIVER.format(
            bits=cells.itemsize * 8,
            rows=len(cells),
            cells=",\n".join("{" + ", ".join(map("0x%xu".__mod__, row)) + "}" for row in cells),
            block=block,
            out=re.findall(r'_OUTPUT "(\w+)"', (folder / "m.h").read_text())[0],
            unwritten=UNWRITTEN,
            score=BATCH.format(block=block) if batch else SINGLE[kind] + LEAVES * leaves,
            trees=model.n_trees if leaves else 0,
        )
    )


def run_on_avr(folder: Path, processor: str) -> np.ndarray:
    """Run the program in the emulator, and return the numbers that it prints."""
    command = ["simavr", "-m", processor, "-f", "16000000", "m.elf"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, timeout=600
    )
    words = re.findall(r":([0-9a-f]{16})", done.stdout + done.stderr)
    return np.array([int(word, 16) for word in words], np.uint64).view(np.int64)


def assert_right(model: Model, rows: np.ndarray, told: np.ndarray, leaves: bool = True) -> None:
    """Compare labels, integer sums and leaves of each row with the model's."""
    gone, expected = refused(model, rows), wanted(model, rows)
    several = bool(model.schema.more) and model.schema.task == "classification"
    sums = np.full((len(rows), model.schema.n_values), UNWRITTEN, np.int64)
    sums[~gone] = sum_leaf_values(model, rows[~gone])
    parts = [expected.label[:, : len(model.schema.outputs) if several else 1], sums]
    if leaves and model.missing != "fractional":
        nodes = np.full((len(rows), model.n_trees), UNWRITTEN, np.int64)
        nodes[~gone] = leaf_indices(model, rows[~gone])
        parts.append(nodes)
    right = np.concatenate(parts, axis=1)
    assert np.array_equal(told.reshape(right.shape), right)


def used_ram(folder: Path) -> int:
    """Bytes of RAM of a program's variables, without the stack."""
    told = subprocess.run(
        ["avr-size", "m.elf"], cwd=folder, capture_output=True, text=True, check=True
    )
    _, data, bss, *_ = told.stdout.splitlines()[1].split()
    return int(data) + int(bss)


@pytest.mark.system
@pytest.mark.parametrize("name", MODELS)
def test_labels_sums_and_leaves_on_avr_equal_the_model(name, tmp_path):
    """Each form, with its tables in flash, and in RAM where they fit."""
    need("avr-gcc", "simavr")
    model, programs = EXTREMES[name](), 0
    numbers = model.schema.n_values + model.n_trees + 2
    row_bytes = model.schema.n_features * np.dtype(model.schema.dtype).itemsize
    most = min(MAX_ROW_BYTES // row_bytes, max(MAX_NUMBERS // numbers, 5))
    rows = spread(extreme_rows(model, most=60), most)
    forms = FORMS[: 1 if model.missing == "fractional" else None]
    if make_derived_columns(model).n_columns:
        forms = tuple(form for form in forms if form != "compact")
    for form in forms:
        export_to(tmp_path, model, form=form, arithmetic="integer")
        if "an array of this processor" in (tmp_path / "m.c").read_text():
            continue
        write_driver(tmp_path, model, rows, 1, batch=False)
        size = int(re.findall(r"TABLE_BYTES (\d+)", (tmp_path / "m.h").read_text())[0])
        for place in [IN_FLASH, *["-DIN_RAM"] * (size < 4000)]:
            done = compile_for_avr(tmp_path, *WARNINGS, "-Werror", place)
            assert done.returncode == 0, done.stderr[:3000]
            assert_right(model, rows, run_on_avr(tmp_path, LARGE))
            programs += 1
    assert programs >= 1


@pytest.mark.system
@pytest.mark.parametrize("form", ["table", "if_else", "compact"])
@pytest.mark.parametrize("name", ["mixed", "refuses_both", "several_labels", "boosted_four"])
def test_batches_on_avr_equal_the_model(name, form, tmp_path):
    """On a processor with RAM for the stack that the header states for batches."""
    need("avr-gcc", "simavr")
    model = EXTREMES[name]()
    rows = spread(extreme_rows(model, most=60), 100)[:96]
    export_to(tmp_path, model, form=form, arithmetic="integer")
    write_driver(tmp_path, model, rows, 32, batch=True)
    done = compile_for_avr(tmp_path, *WARNINGS, "-Werror", IN_FLASH, processor=MORE_RAM)
    assert done.returncode == 0, done.stderr[:3000]
    assert_right(model, rows, run_on_avr(tmp_path, MORE_RAM), leaves=False)


@pytest.mark.system
def test_tables_of_ten_trees_in_flash_use_no_ram(tmp_path):
    need("avr-gcc", "simavr")
    model = random_model(3, mixed_schema(("a", "b", "c")), n_trees=10, n_splits=15)
    body = "static uint32_t x[M_FEATURES]; return m_predict_label(x);"
    (tmp_path / "main.c").write_text(f'#include "m.h"\nint main(void)\n{{\n    {body}\n}}\n')
    for form in FORMS:
        export_to(tmp_path, model, form=form, arithmetic="integer")
        ram = {}
        for place in (IN_FLASH, "-DIN_RAM"):
            done = compile_for_avr(tmp_path, place)
            assert (done.returncode, done.stderr) == (0, "")
            ram[place] = used_ram(tmp_path)
        assert ram["-DIN_RAM"] > (600 if form in ("if_else", "compact") else 3000)
        assert ram[IN_FLASH] <= 4 * model.schema.n_features + 8  # the row, and no table


@pytest.mark.system
def test_tables_larger_than_an_avr_array_are_refused(tmp_path):
    """By gcc 5, 64-bit integers in ``__memx`` lose their upper half."""
    need("avr-gcc")
    export_to(tmp_path, EXTREMES["mixed_numbers"](), arithmetic="integer", form="table")
    done = compile_for_avr(tmp_path, "-c", "-DM_ADDRESS_SPACE=__memx", files=("m.c",))
    assert done.returncode != 0
    assert "m_space_is_not_memx" in done.stderr
    export_to(tmp_path, EXTREMES["five_thousand_trees"](), arithmetic="integer", form="table")
    done = compile_for_avr(tmp_path, "-c", IN_FLASH, files=("m.c",))
    assert done.returncode != 0
    assert "the tables take more bytes than this processor addresses" in done.stderr
    export_to(tmp_path, EXTREMES["many_levels_each"](), arithmetic="integer", form="compact")
    done = compile_for_avr(tmp_path, "-c", IN_FLASH, files=("m.c",))
    assert done.returncode != 0
    assert "the nodes take 33435 bytes, and an array of this processor 32767" in done.stderr


@pytest.mark.system
@pytest.mark.parametrize("name", ["mixed", "mixed64_numbers", "oblique", "fractional"])
def test_floating_point_is_refused_where_double_has_32_bits(name, tmp_path):
    need("avr-gcc")
    export_to(tmp_path, EXTREMES[name](), arithmetic="float", form="full")
    done = compile_for_avr(tmp_path, "-c", files=("m.c",))
    assert done.returncode != 0
    remedy = "" if name == "oblique" else ": export with arithmetic=integer"
    assert f"the model needs IEEE 754 floats and doubles of 64 bits{remedy}" in done.stderr


@pytest.mark.system
@pytest.mark.parametrize("name", ["float64_neighbours", "one_number"])
def test_readable_form_with_doubles_is_refused_where_they_have_32_bits(name, tmp_path):
    need("avr-gcc")
    export_to(tmp_path, EXTREMES[name]())
    assert "Form: readable" in (tmp_path / "m.h").read_text()
    done = compile_for_avr(tmp_path, "-c", files=("m.c",))
    assert done.returncode != 0
    assert "doubles of 64 bits: export with arithmetic=integer" in done.stderr


READABLE_DRIVER = r"""
#include "m.h"
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>
#include <stdint.h>

static const __flash uint32_t rows[{rows}] = {{{cells}}};

int main(void)
{{
    union {{
        uint32_t bits;
        float number;
    }} cell;
    struct m_row row;
    uint16_t i;

    UCSR0B = 1 << TXEN0;
    for (i = 0; i < {rows}; i++) {{
        cell.bits = rows[i];
        row.x = cell.number;
        while (!(UCSR0A & (1 << UDRE0)))
            ;
        UDR0 = (uint8_t)('0' + m_predict(&row));
    }}
    while (!(UCSR0A & (1 << UDRE0)))
        ;
    UDR0 = '\n';
    for (i = 0; i < 9999; i++)
        __asm__ volatile("");
    cli();
    sleep_enable();
    sleep_cpu();
    return 0;
}}
"""


@pytest.mark.system
def test_readable_form_without_doubles_gives_the_labels_of_the_model(tmp_path):
    need("avr-gcc", "simavr")
    model = EXTREMES["float32_neighbours"]()
    rows = spread(extreme_rows(model, most=200), 200)
    export_to(tmp_path, model)
    assert "Form: readable" in (tmp_path / "m.h").read_text()
    cells = ", ".join(map("0x%xu".__mod__, cells_of(model, rows)[:, 0]))
    (tmp_path / "main.c").write_text(READABLE_DRIVER.format(rows=len(rows), cells=cells))
    done = compile_for_avr(tmp_path, *WARNINGS, "-Werror")
    assert done.returncode == 0, done.stderr[:3000]
    command = ["simavr", "-m", LARGE, "-f", "16000000", "m.elf"]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=600
    )
    labels = "".join(map(str, wanted(model, rows).label[:, 0]))
    assert labels in run.stdout + run.stderr


@pytest.mark.system
@pytest.mark.parametrize(("size", "refused_by_avr"), [(32_000, False), (40_000, True)])
def test_counts_beyond_an_int_of_16_bits_are_refused(size, refused_by_avr, tmp_path):
    need("gcc", "avr-gcc")
    towns = tuple(f"t{i}" for i in range(size))
    schema = Schema((Column("town", "nominal", towns),), classes=("no", "yes"))
    tree = build_tree(subset("town", ["t7"], leaf([1.0, 0.0]), leaf([0.0, 1.0])), schema)
    export_to(tmp_path, make_model(schema, [tree]), arithmetic="integer")
    done = compile_for_avr(tmp_path, "-fsyntax-only", files=("m.c",))
    message = f"the model counts to {size}, and int has 16 bits"
    assert (message in done.stderr) == refused_by_avr
    command = ["gcc", "-std=c99", "-fsyntax-only", "m.c"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
