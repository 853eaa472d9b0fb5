"""The package as a whole: import order, lightness, equation table."""

import ast
import pathlib
import re
import runpy
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
architecture = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
MODULES = architecture["modules"]()
EXPERIMENTS = architecture["modules"]("experiments")
# A module may import those above it, never those below.
ORDER = [
    *["_version", "_interrupts", "_files", "_pytree", "_messages", "_arguments", "_checks", "_blocks", "_gamma"],
    *["special", "linalg", "student_t", "niw", "nig", "process", "forest", "links", "losses"],
    *["networks", "devices", "train", "persistence", "ensemble"],
    *["mixture", "columns", "datasets", "calibration", "metrics", "plotting"],
    *["estimator", "pipeline", "cli", "__main__"],
]
# What each part of the experiments may import besides itself; the command and `publish` may import all.
PARTS = {"harness": set(), "paper": {"harness"}, "benchmark": {"harness"}, "speed": {"harness", "paper"}}
# The order inside a study; a module with another name is on the level of the computations.
LEVELS = {"statistics": 0, "claims": 2, "figures": 2, "__init__": 3}


@pytest.mark.parametrize("name", sorted({name.split(".")[0] for name in MODULES}))
def test_imports_point_one_way(name):
    assert name in ORDER, "give the new module a place in ORDER"
    assert all(ORDER.index(used) < ORDER.index(name) for used in architecture["imports_of_top"](name))


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_cycles_and_nobody_uses_the_private_modules_of_another_package(name):
    package = name.split(".")[0]
    for used in architecture["imports"](MODULES[name]):
        assert used != name and name not in everything_below(used), f"{name} and {used} import each other"
        assert not is_private(used.split(".")[1:]) or used.split(".")[0] == package, f"{name} imports {used}"


def is_private(parts):
    return any(part.startswith("_") and not part.startswith("__") for part in parts)


def everything_below(name, package="mder_jax", seen=frozenset()):
    """All modules that a module imports, also through others; those of its own package's __init__ do not count."""
    path = architecture["modules"](package)[name]
    direct = {used for used in architecture["imports"](path, package) if used not in seen}
    for used in direct:
        seen |= {used} | everything_below(used, package, seen | direct)
    return seen


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_experiments_import_one_way_and_no_private_module(name):
    part, *below = name.split(".")
    used = architecture["imports"](EXPERIMENTS[name], "experiments")
    assert part in {*PARTS, "__main__", "publish"}, "give the new part a place in PARTS"
    assert {other.split(".")[0] for other in used} <= PARTS.get(part, set(PARTS)) | {part}
    for other in used:
        assert other != name and name not in everything_below(other, "experiments"), f"{name} and {other} form a cycle"
    if part == "paper":
        studies = {other for other in EXPERIMENTS if EXPERIMENTS[other].name == "__init__.py"} - {"paper"}
        for other in used:
            study = ".".join(other.split(".")[:2])
            assert study not in studies or study == ".".join([part, *below[:1]]), f"{name} imports the study {other}"
            assert study not in studies or level(other, studies) < level(name, studies), f"{name} imports {other}"
    private = [line for line in imported_names(EXPERIMENTS[name]) if is_private(line.split("."))]
    assert not private, private


def test_experiments_use_no_private_attribute():
    allowed = {"_replace", "_asdict", "_ActionsContainer"}  # of named tuples and of argparse
    for name, path in EXPERIMENTS.items():
        code = ast.parse(path.read_text())
        used = {node.attr for node in ast.walk(code) if isinstance(node, ast.Attribute)} - allowed
        assert not [attribute for attribute in used if is_private([attribute])], name


@pytest.mark.parametrize("study", [path.parent for path in (ROOT / "experiments" / "paper").glob("*/__init__.py")])
def test_every_study_of_the_paper_has_the_same_four_modules(study):
    assert {"__init__", "statistics", "claims", "figures"} <= {path.stem for path in study.glob("*.py")}
    defined = {
        path.stem: {node.name for node in ast.parse(path.read_text()).body if hasattr(node, "name")}
        for path in study.glob("*.py")
    }
    assert {"Config", "run"} <= defined["__init__"] and {"report", "claims"} <= defined["claims"]
    assert "plot" in defined["figures"]


def level(name, studies):
    """Where a module is in the order of a study."""
    return LEVELS["__init__"] if name in studies else LEVELS.get(name.split(".")[-1], 1)


def imported_names(path):
    """Every module and every name that a file imports anywhere, as dotted names."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_import_is_light_and_changes_no_setting():
    script = """
import sys, jax
before = dict(jax.config.values)
import mder_jax
heavy = {"sklearn", "matplotlib", "flax", "orbax", "rich", "scipy.stats", "pandas", "pyarrow"}
for name in mder_jax.__all__:
    if name not in ("estimator", "MDERRegressor", "pipeline"):
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
    labels = (ROOT / "tests" / "support" / "equation_labels.txt").read_text().split()  # all \label{eq:...} of the paper
    assert len(set(labels)) == 21
    source = "".join(path.read_text() for path in (ROOT / "mder_jax").rglob("*.py"))
    for label in labels:
        assert re.search(rf"{label}\b", README) and re.search(rf"{label}\b", source), label
