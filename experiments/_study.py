"""What every study shares: options from its config, results saved with config and versions, one plot style."""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import platform
import tempfile
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol, cast

import jax
import numpy as np

import mder_jax


class Study(Protocol):
    """The contract of a module in this folder."""

    Config: type

    def run(self, config: Any) -> dict[str, Any]:
        """Compute; what comes back is saved."""

    def plot(self, results: dict[str, Any]) -> dict[str, Any]:
        """Figures by name, from saved results alone."""

    def report(self, results: dict[str, Any]) -> str:
        """What to print, from saved results alone."""


def prepare_jax(cache: bool) -> None:
    """One device for each core, and compiled programs kept for the next run."""
    with contextlib.suppress(RuntimeError):  # JAX may run already, in a notebook or a test
        mder_jax.use_all_cores()
    if cache:
        mder_jax.use_compilation_cache()


def add_options(parser: argparse.ArgumentParser, config: type) -> None:
    """One ``--option`` for each field of the config."""
    for field in dataclasses.fields(config):
        flag = "--" + field.name.replace("_", "-")
        default, kind = field.default, type(field.default)
        note = f"{field.metadata.get('help', '')} (default {_shown(default)})"
        if kind is tuple:
            item, choices = type(cast(tuple, default)[0]), field.metadata.get("choices")
            parser.add_argument(flag, type=_not_negative(item), nargs="+", default=default, help=note, choices=choices)
        else:
            parser.add_argument(flag, type=_not_negative(kind), default=default, help=note)


def _shown(default: Any) -> str:
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _not_negative(kind: type) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = kind(text)
        if kind is not str and value < 0:
            raise argparse.ArgumentTypeError(f"must not be negative; got {text}")
        return value

    parse.__name__ = kind.__name__
    return parse


def execute(study: ModuleType, options: argparse.Namespace, folder: pathlib.Path) -> None:
    """Run or reload a study, print its report, and leave results and figures in the folder."""
    name = study.__name__.rsplit(".", 1)[-1]
    module = cast(Study, study)
    saved = folder / f"{name}.json"
    if options.plot_only:
        if not saved.exists():
            raise SystemExit(f"no saved results at {saved}; run without --plot-only first")
    else:
        fields = {field.name: getattr(options, field.name) for field in dataclasses.fields(module.Config)}
        config = module.Config(**{key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()})
        document = {
            "study": name,
            "config": dataclasses.asdict(config),
            "versions": versions(),
            "results": module.run(config),
        }
        write(saved, json.dumps(document, indent=1, default=_plain).encode())
    results = json.loads(saved.read_text())["results"]
    print(module.report(results))
    for label, figure in module.plot(results).items():
        for ending in ("png", "pdf"):
            drawing = io.BytesIO()
            figure.savefig(drawing, format=ending, dpi=200, bbox_inches="tight")
            write(folder / f"{name}_{label}.{ending}", drawing.getvalue())
    print(f"results and figures are in {folder}/{name}*")


def write(path: pathlib.Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as draft:
        try:
            draft.write(content)
            draft.flush()
            os.replace(draft.name, path)
        except BaseException:
            os.unlink(draft.name)
            raise
    path.chmod(0o644)


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    return {
        "mder_jax": mder_jax.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {jax.default_backend()}",
    }


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def new_figure(columns: int = 1, width: float = 5.0, height: float = 3.6) -> tuple[Any, Any]:
    """A figure with one row of axes in the project's style (colours of Okabe and Ito)."""
    import matplotlib

    matplotlib.use("Agg")
    from cycler import cycler
    from matplotlib import pyplot as plt

    style: dict[Any, Any] = {
        "axes.prop_cycle": cycler(color=["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "legend.frameon": False,
    }
    plt.rcParams.update(style)
    return plt.subplots(1, columns, figsize=(width * columns, height), layout="constrained")
