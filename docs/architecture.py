"""Draws the modules of the package and what each builds on, from its imports: `python docs/architecture.py`."""

import ast
import functools
import json
import pathlib
import re
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "architecture.svg"

# The modules by what they are for, each with its place, (column, row). The arrows come from the code.
GROUPS = {
    "distributions": {
        **{"special": (0, 0), "linalg": (0, 1), "student_t": (1, 0), "niw": (2, 0), "nig": (3, 0)},
        **{"process": (3, 2.17), "forest": (7, 1.5)},
        **{"mixture": (4, 0), "links": (4, 1.02), "losses": (4, 1.82)},
    },
    "networks": {
        **{"networks": (0, 3.7), "persistence": (4, 3.7), "train": (1, 3.7)},
        **{"devices": (5, 3.7), "ensemble": (2, 3.7)},
    },
    "judging": {
        "datasets": (2, 1),
        "columns": (3, 2.98),
        "metrics": (5, 0),
        "calibration": (5, 0.85),
        "plotting": (6, 0),
    },
    "faces": {"estimator": (6, 2.7), "pipeline": (7, 2.7), "cli": (7, 3.7)},
}
COLOURS = {"distributions": "#dbe9f6", "networks": "#e3f2dd", "judging": "#fdeacb", "faces": "#f6dbe4"}
KINDS = {name: kind for kind, group in GROUPS.items() for name in group}
PLACES = {name: place for group in GROUPS.values() for name, place in group.items()}
WIDTH, HEIGHT = 0.82, 0.76


def dotted(path: pathlib.Path, package: str = "mder_jax") -> str:
    """A file of a package as a dotted name below it: ``estimator._file``, ``cli`` for ``cli/__init__.py``."""
    return ".".join(path.relative_to(ROOT / package).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def modules(package: str = "mder_jax") -> dict[str, pathlib.Path]:
    """Every module of a package by dotted name."""
    files = sorted((ROOT / package).rglob("*.py"))
    return {dotted(path, package): path for path in files if path != ROOT / package / "__init__.py"}


@functools.cache
def imports(path: pathlib.Path, package: str = "mder_jax") -> set[str]:
    """Modules of a package, by dotted name, that a file imports anywhere, also inside functions."""
    known, found = modules(package), set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == package:
            inside = node.module.removeprefix(package).removeprefix(".")
            names = [f"{inside}.{alias.name}".removeprefix(".") for alias in node.names]
            found.update(name if name in known else inside for name in names)
        elif isinstance(node, ast.Import):
            found.update(alias.name.removeprefix(f"{package}.") for alias in node.names)
    return found & known.keys()


def imports_of_top(name: str) -> set[str]:
    """The modules and packages at the top that a module or package at the top imports from."""
    used = set().union(*(imports(path) for other, path in modules().items() if other.split(".")[0] == name))
    return {other.split(".")[0] for other in used} - {name}


def arrows() -> dict[str, list[str]]:
    """For every public module the public ones it builds on, directly or through private ones.

    A module that is reached through another one is left out: `niw` builds on `linalg` through `student_t`.
    """
    direct = {name: imports_of_top(name) for name in modules() if "." not in name}

    def through_private(name: str) -> set[str]:
        below = (through_private(used) if used.startswith("_") else {used} for used in direct[name])
        return set().union(*below) - {name}

    builds_on = {name: through_private(name) for name in direct if not name.startswith("_")}

    def all_below(name: str) -> set[str]:
        return builds_on[name].union(*(all_below(used) for used in builds_on[name]))

    return {
        name: sorted(used for used in below if not any(used in all_below(other) for other in below))
        for name, below in sorted(builds_on.items())
    }


def purpose(path: pathlib.Path) -> str:
    """The first clause of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return re.split(r"[:;.]", docstring.splitlines()[0])[0].replace("`", "")


def draw() -> None:
    """Write the figure; the arrows it shows are in its metadata, where a test finds them."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import FancyBboxPatch, Patch

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "mder_jax", "font.family": "sans-serif"})
    figure, ax = plt.subplots(figsize=(16.5, 6.2))
    files, edges = modules(), arrows()
    for name, (column, row) in PLACES.items():
        corner, style = (column - WIDTH / 2, -row - HEIGHT / 2), {"boxstyle": "round,pad=0.02", "linewidth": 0.8}
        colours = {"facecolor": COLOURS[KINDS[name]], "edgecolor": "#555555"}
        ax.add_patch(FancyBboxPatch(corner, WIDTH, HEIGHT, **style, **colours))
        ax.text(column, -row + 0.23, name, ha="center", va="center", fontsize=11, weight="bold")
        ax.text(column, -row - 0.11, textwrap.fill(purpose(files[name]), 23), ha="center", va="center", fontsize=7.5)
        for used in edges[name]:
            _arrow(ax, PLACES[used], (column, row))
    handles = [Patch(facecolor=colour, edgecolor="#555555", label=kind) for kind, colour in COLOURS.items()]
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.02), ncol=4, frameon=False)
    ax.set(xlim=(-0.55, 7.55), ylim=(-4.2, 0.45))
    ax.axis("off")
    figure.savefig(PICTURE, bbox_inches="tight", metadata={"Date": None, "Description": json.dumps(edges)})


def _arrow(ax, start: tuple[float, float], end: tuple[float, float]) -> None:
    """From a module to one that builds on it: sideways between columns, up or down within one."""
    (x0, y0), (x1, y1) = start, end
    if x0 == x1:
        tail, head = (x0, -y0 - HEIGHT / 2 - 0.02), (x1, -y1 + HEIGHT / 2 + 0.02)
    else:
        side = (WIDTH / 2 + 0.02) * (1 if x1 > x0 else -1)
        tail, head = (x0 + side, -y0), (x1 - side, -y1)
    ax.annotate("", head, tail, arrowprops={"arrowstyle": "-|>", "color": "#555555", "linewidth": 1.0, "shrinkB": 0})


if __name__ == "__main__":
    draw()
