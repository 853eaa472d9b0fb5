"""Settings of Sphinx: `sphinx-build -c docs . build/docs` makes the API reference, with README and pages around it."""

import pathlib
from typing import Any

import mder_jax

project = "mder_jax"
author = "The mder_jax developers"
project_copyright = "2026, The mder_jax developers"
version = release = mder_jax.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
    "myst_parser",
]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/api/*.rst", "experiments/results/ledger.md"]
templates_path = [str(pathlib.Path(__file__).parent / "_templates")]
html_theme = "furo"
html_additional_pages = {"index": "to_readme.html"}
default_role = "py:obj"
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"exclude-members": "set_fit_request, set_predict_request, set_score_request"}
autosummary_ignore_module_all = False
napoleon_use_rtype = False

CONTENTS = """
```{toctree}
:hidden:

docs/api
docs/tables
docs/ensembles
docs/defaults
docs/benchmark
docs/speed
docs/inputs
experiments/results/ledger
CONTRIBUTING
CHANGELOG
```
"""


def add_contents(app: Any, name: str, source: list[str]) -> None:
    """Give the README the list of pages that only Sphinx understands."""
    if name == root_doc:
        source[0] += CONTENTS


def skip_fields(app: Any, kind: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what Python says of the fields of a named tuple; the tuple's docstring has them."""
    return True if (member.__doc__ or "").startswith("Alias for field number") else None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("autodoc-skip-member", skip_fields)
