"""A trained ensemble as one file: parameters by their path, losses, and no code."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mder_jax import persistence
from mder_jax._arguments import is_integer
from mder_jax._version import __version__
from mder_jax.ensemble.members import PerMember, leaves_by_path, like_those, number_of_members, take
from mder_jax.persistence import ModelFileError
from mder_jax.train.epochs import Losses

KIND, VERSION = "Ensemble", 1
# Integers of each member, (M,).
PER_MEMBER = ("diverged_at", "stopped_at", "best_epoch")


def write(path: str | pathlib.Path, params: Any, numbers: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Write parameters (M, ...), what JSON can hold, and further arrays."""
    versions = {"mder_jax": __version__, "jax": jax.__version__}
    named = {f"params/{name}": leaf for name, leaf in leaves_by_path(params).items()}
    persistence.save(path, {"kind": KIND, "version": VERSION, "versions": versions} | numbers, named | arrays)


def read(path: str | pathlib.Path, network: Any) -> dict[str, Any]:
    """The fields of an `Ensemble`, if they fit together and to the network."""
    built = network.of(take(network.values, 0)) if isinstance(network, PerMember) else network
    if not callable(getattr(built, "init", None)):
        raise TypeError(f"network must be a Network, or a PerMember of them, as in training; got {network!r:.60}")
    document, arrays = persistence.load(path)
    if document.get("kind") != KIND:
        raise ModelFileError(f"{path} holds a {document.get('kind')!r:.60}, not an {KIND}")
    if document.get("version") != VERSION:
        raise ModelFileError(f"{path} has version {document.get('version')!r:.20}; this mder_jax reads {VERSION}")
    try:
        return _fields(document, arrays, network, built)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise ModelFileError(f"{path} does not fit together, or to this network: {error}") from None


def _fields(document: dict[str, Any], arrays: dict[str, np.ndarray], network: Any, built: Any) -> dict[str, Any]:
    row_shape, epochs = tuple(document["row_shape"]), document["epochs"]
    if not all(is_integer(size) and 0 < size < 1 << 31 for size in (*row_shape, epochs)):
        raise ValueError(f"row shape {row_shape} and epochs {epochs!r:.20} must be integers, 1 or more")
    per_member = {name: arrays[name] for name in PER_MEMBER}
    members = len(per_member["diverged_at"])
    if any(part.shape != (members,) or part.dtype.kind != "i" for part in per_member.values()):
        raise ValueError(f"{', '.join(PER_MEMBER)} must be integers of the {members} members")
    given = number_of_members(network.values) if isinstance(network, PerMember) else members
    if given != members:
        raise ValueError(f"the network is of {given} members, the file of {members}")
    losses: list[Any] = [arrays["history/train"], arrays.get("history/validation")]
    history = Losses(*losses)
    if any(
        part.shape[:1] != (members,) or part.ndim != 2 or part.dtype.kind != "f" for part in jax.tree.leaves(history)
    ):
        raise ValueError(f"losses must be floats of shape ({members}, epochs)")
    shapes = jax.eval_shape(
        built.init, jax.random.key(0), jax.ShapeDtypeStruct((1, *row_shape), jnp.result_type(float))
    )
    found = {name.removeprefix("params/"): array for name, array in arrays.items() if name.startswith("params/")}
    return per_member | {
        "params": jax.tree.map(jnp.asarray, like_those("parameters", found, shapes, members)),
        "history": history,
        "epochs": epochs,
        "row_shape": row_shape,
        "seconds": float(document["seconds"]),
        "interrupted": bool(document["interrupted"]),
    }
