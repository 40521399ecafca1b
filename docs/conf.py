"""Sphinx configuration: ``sphinx-build -W docs docs/build`` builds the documentation."""

import sys
from pathlib import Path

import treekit

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "plugins" / "treekit-plot"))  # for the examples

# ---------------------------------------------------------------- project

project = "treekit"
author = "the authors of treekit"
copyright = "the authors of treekit, Apache-2.0"  # noqa: A001 - Sphinx's name
version = release = treekit.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "generated_pages",
]
exclude_patterns = ["build", "templates", "generated/gallery/*.ipynb", "generated/gallery/*.py"]

# ---------------------------------------------------------------- pages

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
default_role = "py:obj"
autosummary_generate = True
templates_path = ["templates"]
autodoc_typehints = "none"  # docstrings give the types
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False  # autosummary lists them
suppress_warnings = [
    "config.cache",  # the scraper below is a function
    "misc.highlighting_failure",  # outputs of commands in pages of plugins
]


# ---------------------------------------------------------------- gallery


def scrape_pictures(_block, block_vars, gallery_conf):
    """Save the pictures that a block of an example assigns to variables, as SVG."""
    from sphinx_gallery.scrapers import figure_rst

    names = block_vars["example_globals"]
    shown = names.setdefault("__shown__", [])
    paths = []
    for value in list(names.values()):
        drawn = hasattr(value, "_repr_svg_") and not isinstance(value, type)
        if drawn and not any(value is one for one in shown):
            shown.append(value)
            paths.append(Path(next(block_vars["image_path_iterator"])).with_suffix(".svg"))
            paths[-1].write_text(value._repr_svg_(), encoding="utf-8")
    return figure_rst(list(map(str, paths)), gallery_conf["src_dir"])


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "generated/gallery",
    "filename_pattern": r"(missing_values|decision_regions|criterion_plugin|without_treekit)\.py$",
    "ignore_pattern": r"(isolated|boundary|standalone.*|conftest)\.py$",
    "image_scrapers": (scrape_pictures,),
    "reset_modules": (),
    "capture_repr": ("_repr_html_",),
    "download_all_examples": False,
    "show_signature": False,
    "default_thumb_file": str(Path(__file__).parent / "static" / "tree.svg"),
    "min_reported_time": 1e9,
    "write_computation_times": False,
}

# ---------------------------------------------------------------- appearance

html_theme = "pydata_sphinx_theme"
html_title = "treekit"
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["treekit.css"]
html_theme_options = {
    "navbar_align": "left",
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"start": [], "comparison": []}
