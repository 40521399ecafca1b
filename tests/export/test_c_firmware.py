"""Estimates of the flash of C source compared with the compiler's programs for a Cortex-M0."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.export.flash import PROCESSORS, WITHOUT_LIBRARY, make_table, measure, train
from tests.extremes import EXTREMES
from tests.runtimes import need
from treekit.data.schema import Column, Schema
from treekit.errors import ExportError
from treekit.export.c import export_c
from treekit.model.builder import Node, build_tree, leaf, subset, threshold
from treekit.model.model import Model, make_model

# ---------------------------------------------------------------- c firmware


def stated_saving(header: str) -> int:
    found = re.search(r"arithmetic=integer would save about (\d+) bytes", header)
    return int(found[1]) if found else 0


FORESTS = [
    *[("wine", 1, 4), ("wine", 20, 4), ("cancer", 10, 3), ("cancer", 10, 9), ("cancer", 5, 5)],
    *[("digits", 4, 4), ("digits", 10, 5), ("diabetes", 2, 4), ("diabetes", 10, 4)],
    *[("colic", 1, 5), ("colic", 10, 4), ("colic", 25, 6)],
]


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "trees", "depth"), FORESTS)
def test_auto_chooses_the_smaller_form_and_states_bytes_saved_by_integers(
    name, trees, depth, dtype, tmp_path
):
    need("arm-none-eabi-gcc")
    model = train(name, trees, depth, dtype)
    auto, header = measure(model, tmp_path, arithmetic="integer")
    forms = {
        form: measure(model, tmp_path, arithmetic="integer", form=form)[0]
        for form in ("if_else", "table")
    }
    assert auto in forms.values()
    assert auto <= 1.05 * min(forms.values())
    assert stated_saving(header) == 0
    size, header = measure(model, tmp_path)
    assert abs(stated_saving(header) - max(size - auto, 0)) <= 0.12 * size


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fractional", {}),
        ("several_labels", {"input": "float"}),
        ("several_labels", {"form": "table"}),
        ("boosted_two", {"form": "if_else"}),
        ("linked_means", {"form": "table"}),
        ("hard_costs", {}),
        ("surrogates", {"form": "table", "input": "float"}),
        ("mixed_numbers", {"form": "if_else"}),
    ],
)
def test_stated_saving_is_close_for_other_models_and_settings(name, settings, tmp_path):
    need("arm-none-eabi-gcc")
    model = EXTREMES[name]()
    size, header = measure(model, tmp_path, **settings)
    form = {"form": settings["form"]} if "form" in settings else {}
    whole, _ = measure(model, tmp_path, arithmetic="integer", **form)
    assert stated_saving(header) > 0
    assert abs(stated_saving(header) - (size - whole)) <= 0.25 * (size - whole)


def test_no_saving_is_stated_where_integers_are_impossible():
    header = export_c(EXTREMES["oblique"](), "m", form="full")["m.h"].decode()
    assert stated_saving(header) == 0


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("trees", "depth", "form"), [(1, 3, "if_else"), (10, 9, "table"), (60, 9, "table")]
)
def test_form_of_integer_arithmetic_is_chosen_by_size(trees, depth, form):
    header = export_c(train("cancer", trees, depth), "m", arithmetic="integer")["m.h"].decode()
    assert f'M_FORM "{form}"' in header
    if trees <= 10:
        other = "nested tests" if form == "table" else "a table"
        assert re.search(rf"about \d+ bytes smaller than {other}", header)


# ---------------------------------------------------------------- flash

FLASH = re.compile(r"Flash: about (\d+) bytes of a program for a Cortex-M0, (\d+) for a Cortex-M4")
FORMS = ("table", "compact", "if_else", "hybrid")


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "trees", "depth"), FORESTS[::2])
def test_stated_flash_is_close_to_the_compiled_size(name, trees, depth, dtype, tmp_path):
    """Of models other than those that the constants were fitted to."""
    need("arm-none-eabi-gcc")
    model = train(name, trees, depth, dtype, seed=11)
    for form in FORMS:
        for at, processor in enumerate(PROCESSORS):
            size, header = measure(model, tmp_path, processor, form=form, arithmetic="integer")
            stated = FLASH.search(header)
            assert stated is not None
            assert abs(int(stated[at + 1]) - size) <= 0.2 * size + 60, (form, processor)


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["mixed", "several_labels", "costs", "refuses_both", "wide_sums"])
def test_stated_flash_of_other_models_is_close_to_the_compiled_size(name, tmp_path):
    need("arm-none-eabi-gcc")
    for form in FORMS:
        for at, processor in enumerate(PROCESSORS):
            size, header = measure(
                EXTREMES[name](), tmp_path, processor, form=form, arithmetic="integer"
            )
            stated = FLASH.search(header)
            assert stated is not None
            assert abs(int(stated[at + 1]) - size) <= 0.2 * size + 60, (form, processor)


BOUND = re.compile(
    r"Flash: up to about (\d+) bytes of a program for a Cortex-M0, (\d+) for a Cortex-M4 "
    r"\(gcc at -Os\),\s+\* besides the compiler's functions for floating point"
)
VARIED = ["mixed", "mixed_numbers", "mixed64_numbers", "several_labels", "several_numbers", "costs"]
VARIED += ["refuses_both", "wide_sums", "hard_voting", "unequal_numbers64", "float64_extremes"]
TRAINED = [(*chosen, dtype) for chosen in FORESTS for dtype in ("float32", "float64")]


def compute_excess(model: Model, folder: Path, settings: dict[str, str]) -> list[float]:
    """Return by how much the stated bounds exceed the sizes of programs, relative to these."""
    found = []
    for at, processor in enumerate(PROCESSORS):
        size, header = measure(model, folder, processor, WITHOUT_LIBRARY, **settings)
        stated = BOUND.search(header)
        assert stated is not None
        found.append(int(stated[at + 1]) / size - 1)
    return found


@pytest.mark.matrix
@pytest.mark.parametrize("form", FORMS)
def test_flash_of_floating_point_is_at_most_the_stated(form, tmp_path):
    """Of 22 models other than those that the constants were fitted to, and of 11 extreme ones."""
    need("arm-none-eabi-gcc")
    models = [train(*chosen, seed=11) for chosen in TRAINED[:: 1 if form == "if_else" else 2]]
    excess = []
    for model in [*models, *(EXTREMES[name]() for name in VARIED)]:
        cells = ("double", "float") if model.schema.dtype == "float32" else ("double",)
        for cell in cells:
            excess += compute_excess(model, tmp_path, {"form": form, "input": cell})
    assert min(excess) >= 0
    assert np.median(excess) <= 0.25


@pytest.mark.matrix
def test_flash_of_the_readable_form_is_at_most_the_stated(tmp_path):
    need("arm-none-eabi-gcc")
    models = [
        train(name, 1, depth, dtype, seed=11)
        for name, depth in (
            ("wine", 4),
            ("cancer", 6),
            ("digits", 5),
            ("diabetes", 5),
            ("colic", 4),
        )
        for dtype in ("float32", "float64")
    ]
    models += [EXTREMES[name]() for name in ("float32_neighbours", "missing_only", "vanishing")]
    excess = [
        one for model in models for one in compute_excess(model, tmp_path, {"form": "readable"})
    ]
    assert min(excess) >= 0
    assert np.median(excess) <= 0.3


def test_flash_is_about_or_at_most_or_not_stated():
    model = EXTREMES["mixed"]()
    whole = export_c(model, "m", arithmetic="integer")["m.h"].decode()
    assert FLASH.search(whole)
    assert not BOUND.search(whole)
    assert BOUND.search(export_c(model, "m", form="full")["m.h"].decode())
    for name in ("fractional", "oblique", "surrogates", "boosted_two"):
        header = export_c(EXTREMES[name](), "m", form="full")["m.h"].decode()
        assert "Flash:" not in header
    parts = export_c(EXTREMES["fractional"](), "m", arithmetic="integer")["m.h"].decode()
    assert "Flash:" not in parts


@pytest.mark.matrix
def test_flash_table_of_the_documentation_equals_compiled_sizes():
    need("arm-none-eabi-gcc")
    page = Path(__file__).parents[2] / "docs" / "tutorials" / "deploy.md"
    stated = page.read_text().partition("<!-- made: flash -->\n")[2].partition("<!-- end -->")[0]

    def list_numbers(table: str) -> list[int]:
        rows = table.strip().splitlines()[2:]
        return [int(n.replace(",", "")) for row in rows for n in re.findall(r"\d[\d,]*", row)]

    made = list_numbers(make_table())
    assert len(made) == len(list_numbers(stated))
    np.testing.assert_allclose(list_numbers(stated), made, rtol=0.05)


# ---------------------------------------------------------------- compact form


def bytes_of_nodes(model: Model) -> tuple[int, str]:
    """Return the bytes of the nodes of the compact form, and the source."""
    source = export_c(model, "m", form="compact", arithmetic="integer")["m.c"].decode()
    found = re.search(r"uint8_t m_nodes\[(\d+)\]", source)
    assert found is not None
    return int(found[1]), source


def make_forest(n_trees: int, n_thresholds: int, n_features: int = 8) -> Model:
    """Make full trees of depth 6 of `n_thresholds` different numbers a column, without floats."""
    rng = np.random.default_rng(3)
    schema = Schema(tuple(Column(f"x{i}") for i in range(n_features)), classes=("a", "b"))

    def make_node(depth: int) -> Node:
        if depth == 0:
            return leaf([1.0, 0.0] if rng.random() < 0.5 else [0.0, 1.0])
        at = int(rng.integers(n_thresholds)) + 0.5
        sides = (make_node(depth - 1), make_node(depth - 1))
        return threshold(int(rng.integers(n_features)), at, *sides)

    return make_model(schema, [build_tree(make_node(6), schema) for _ in range(n_trees)])


@pytest.mark.parametrize(
    ("n_thresholds", "cell", "most"), [(200, "uint8_t", 4.0), (400, "uint16_t", 5.0)]
)
def test_codes_of_thresholds_take_8_or_16_bits(n_thresholds, cell, most):
    model = make_forest(100, n_thresholds)
    size, source = bytes_of_nodes(model)
    inner = model.n_nodes - model.n_leaves
    assert size <= (1 + most) * inner  # and a byte for a leaf
    assert f"{cell} cells[M_FEATURES + 1]" in source
    assert "m_thresholds[" in source


def test_many_different_thresholds_are_stored_in_the_nodes():
    """A table of them would take as many bytes, and codes besides."""
    model = make_forest(2, 10**6)
    size, source = bytes_of_nodes(model)
    assert "m_thresholds[" not in source
    assert "const uint32_t *const cells = x;" in source
    assert size <= 7 * (model.n_nodes - model.n_leaves) + 10


@pytest.mark.kernels
def test_compact_form_is_smaller_than_half_a_table():
    model = train("cancer", 10, 20)
    sizes = {
        form: int(re.findall(r"_TABLE_BYTES (\d+)", header)[0])
        for form in ("compact", "table")
        for header in [export_c(model, "m", form=form, arithmetic="integer")["m.h"].decode()]
    }
    assert sizes["compact"] <= 0.6 * sizes["table"]


@pytest.mark.matrix
def test_ten_full_trees_take_less_than_2300_bytes(tmp_path):
    """As those of emlearn, whose thresholds of 8 bits are rounded (2,288 bytes for sonar)."""
    need("arm-none-eabi-gcc")
    model = train("cancer", 10, 20)
    assert model.n_nodes > 350
    assert measure(model, tmp_path, form="compact", arithmetic="integer")[0] < 2300


def test_large_models_are_refused_in_the_compact_form():
    levels = tuple(f"l{i}" for i in range(60_000))
    schema = Schema((Column("c", "nominal", levels),), classes=("a", "b"))
    own = [subset("c", [levels[k]], leaf([1.0, 0.0]), leaf([0.0, 1.0])) for k in range(80)]
    model = make_model(schema, [build_tree(node, schema) for node in own])
    with pytest.raises(ExportError, match=r"the nodes take \d+ bytes, more than 524288: choose"):
        export_c(model, "m", form="compact")
