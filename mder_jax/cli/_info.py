"""`mder info`: a summary of a model file."""

import argparse
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from mder_jax.cli._encoding import Column, Encoding
from mder_jax.cli._model import Result, regressor
from mder_jax.cli._tables import listed, quoted


def info(options: argparse.Namespace) -> Result:
    """A summary of a model file."""
    from mder_jax import persistence
    from mder_jax.estimator import model_file

    about, arrays = persistence.load(options.model)
    model = model_file.restored(regressor(), options.model, about, arrays)
    return about, "\n".join(_outline(options.model, model, about))


def _outline(path: pathlib.Path, model: Any, about: dict[str, Any]) -> Iterator[str]:
    """The lines of the summary; the JSON holds everything."""
    from mder_jax._checks import target_names

    design, usual = model.predictor_.design, type(model)().get_params()
    encoding = Encoding.from_json(model.extra_["encoding"]) if "encoding" in model.extra_ else None
    targets = encoding.target_names if encoding else target_names(model.target_names_, design.targets)
    chosen = {name: value for name, value in model.get_params().items() if value != usual[name]}
    versions = about.get("versions") or {}
    yield f"{path}: {model.predictor_.members} networks with hidden layers of {_joined(design.widths, ' and ')}"
    yield f"targets:   {listed(targets)}"
    if encoding:
        yield f"features:  {', '.join(map(_described, encoding.features))}"
    else:
        yield f"features:  {listed(getattr(model, 'feature_names_in_', [])) or f'{design.inputs} columns'}"
    yield f"trained:   {model.n_rows_:,} rows, {model.n_iter_} epochs"
    yield f"settings:  {_joined(f'{name} {value}' for name, value in chosen.items()) or 'the defaults'}"
    yield f"written:   {about.get('date')}, {_joined(f'{name} {version}' for name, version in versions.items())}"
    yield str(model.calibration_ or "not calibrated")


def _described(column: Column) -> str:
    known = f" ({listed(column.categories)})" if column.categories else ""
    return f"{quoted(column.name)}{known}"


def _joined(parts: Iterable[Any], between: str = ", ") -> str:
    return between.join(map(str, parts))
