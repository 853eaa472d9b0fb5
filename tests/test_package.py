"""The package as a whole: import order, lightness, equation table."""

import pathlib
import re
import runpy
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
architecture = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
ORDER = [
    *["_interrupts", "_files", "_arrays", "_gamma", "special", "linalg", "student_t", "niw", "nig", "links", "losses"],
    *["networks", "_problem", "_shuffle", "train", "persistence", "_devices", "_job", "_run", "ensemble"],
    *[
        "_ellipsoid",
        "mixture",
        "_real_tables",
        "datasets",
        "_scale_search",
        "calibration",
        "_scores",
        "_report",
        "metrics",
        "_drawing",
        "plotting",
    ],
    *["_predictor", "_calibrated", "_trained_rows", "_model_file", "_validation", "_fitting", "estimator"],
    *["_tables", "_encoding", "_survey", "_page", "_commands", "_options", "cli"],
]


@pytest.mark.parametrize("path", sorted((ROOT / "mder_jax").glob("*.py")), ids=lambda path: path.stem)
def test_imports_point_one_way(path):
    if path.stem != "__init__":
        assert path.stem in ORDER, "say where the new module stands"
        assert all(ORDER.index(name) < ORDER.index(path.stem) for name in architecture["imports"](path))


def test_import_is_light_and_changes_no_setting():
    script = """
import sys, jax
before = dict(jax.config.values)
import mder_jax
heavy = {"sklearn", "matplotlib", "flax", "orbax", "rich", "scipy.stats", "pandas", "pyarrow"}
for name in mder_jax.__all__:
    if name not in ("estimator", "MDERRegressor"):
        getattr(mder_jax, name)
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert dict(jax.config.values) == before
assert not jax._src.xla_bridge._backends, "importing must not start a backend"
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_equation_table_names_things_that_exist():
    import mder_jax

    table = README.split("## Equations")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| ")
    ]
    rows = [row for row in rows if "`" in row[1]]
    assert len(rows) >= 20
    tests = {path.name: path.read_text() for path in (ROOT / "tests").glob("test_*.py")}
    for _, functions, where in rows:
        for name in re.findall(r"`([\w.]+)`", functions):
            target = mder_jax
            for part in name.split("."):
                target = getattr(target, part)
        for file, test in re.findall(r"`(test_\w+\.py)::(\w+)`", where):
            assert f"def {test}(" in tests[file], (file, test)
        assert "::" in where


def test_every_label_of_an_equation_is_in_the_table_and_in_a_docstring():
    paper = ROOT.parent / "shared" / "paper.tex"
    if not paper.exists():
        pytest.skip("the paper's source is not beside this checkout")
    labels = set(re.findall(r"\\label\{(eq:\w+)\}", paper.read_text()))
    source = "".join(path.read_text() for path in (ROOT / "mder_jax").glob("*.py"))
    for label in labels:
        assert re.search(rf"{label}\b", README) and re.search(rf"{label}\b", source), label
