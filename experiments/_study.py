"""The contract of a study, and what happens to every one of them: run, save, print, draw."""

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import pathlib
import platform
import time
from datetime import UTC, datetime
from typing import Any, Protocol, cast

import jax
import numpy as np

import mder_jax
from experiments import _store
from experiments._claims import Claim
from experiments._figures import rendered
from experiments._options import make_config


class Study(Protocol):
    """A module of this folder. Everything but `run` reads saved results alone.

    One that has ``RESUMES`` gets the folder too, to keep there what is done so far.
    """

    Config: type
    CAPTIONS: dict[str, str]

    def run(self, config: Any, *folder: pathlib.Path) -> dict[str, Any]:
        """Compute; what comes back (dicts, lists, numbers, text, arrays) is saved."""

    def report(self, results: dict[str, Any]) -> str:
        """What to print."""

    def claims(self, results: dict[str, Any]) -> list[Claim]:
        """Rows of the ledger."""

    def plot(self, results: dict[str, Any]) -> dict[str, Any]:
        """Figures by name; each has a caption."""


def find(name: str) -> Study:
    """The study of this name."""
    return cast(Study, importlib.import_module(f"experiments.{name}"))


def prepare_jax(cache: bool) -> None:
    """One device for each core, and compiled programs kept for the next run."""
    with contextlib.suppress(RuntimeError):  # JAX may run already, in a notebook or a test
        mder_jax.use_all_cores()
    if cache:
        mder_jax.use_compilation_cache()


def compute(name: str, options: argparse.Namespace, folder: pathlib.Path) -> None:
    """Run a study and save its results with config, versions, date and time."""
    study = find(name)
    config = make_config(study.Config, options, options.full)
    date, start = datetime.now(UTC), time.perf_counter()
    results = study.run(config, folder) if hasattr(study, "RESUMES") else study.run(config)
    document = {
        "study": name,
        "config": dataclasses.asdict(config),
        "full": options.full,
        "versions": versions(),
        "date": date.isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - start, 2),
        "results": results,
    }
    _store.save(folder, name, document)


def draw(name: str, folder: pathlib.Path) -> None:
    """All figures of a study, and its part of the page, from saved results."""
    document = _store.load(folder, name)
    study, results = find(name), document.pop("results")
    for label, figure in study.plot(results).items():
        for ending, content in rendered(figure).items():
            _store.write(folder / f"{name}_{label}.{ending}", content)
    part = {
        **document,
        "what": (study.__doc__ or "").strip().splitlines()[0],
        "report": study.report(results),
        "claims": [dataclasses.asdict(claim) for claim in study.claims(results)],
        "captions": study.CAPTIONS,
    }
    _store.write(folder / f"{name}{_store.PART}", json.dumps(part, indent=1, ensure_ascii=False).encode())


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    return {
        "mder_jax": mder_jax.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "devices": f"{jax.device_count()} {jax.default_backend()}",
    }
