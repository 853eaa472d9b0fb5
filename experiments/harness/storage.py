"""Results on disk: one npz that holds everything, and a json to read; files are written whole or not at all."""

import io
import json
import os
import pathlib
import secrets
import zipfile
from typing import Any

import numpy as np

DRAFT = ".draft-"
MARK = ".mder_jax_experiments"
PART = "_page.json"  # a study's part of the report
ARRAY = "array in npz"


class ResultsError(Exception):
    """A request that cannot be fulfilled; the message says why."""


def write(path: pathlib.Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(f"{DRAFT}{secrets.token_hex(4)}")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def open_folder(folder: pathlib.Path) -> None:
    """Make the folder for results, or check that it is one: other files must not be mixed with results."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / MARK).exists():
        others = sorted(path.name for path in folder.iterdir())
        if others:
            named = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
            raise ResultsError(f"{folder} holds files that were not made here ({named}); choose another with --out")
        write(folder / MARK, b"Results of python -m experiments. Files here are replaced by later runs.\n")


def remove_drafts(folder: pathlib.Path) -> None:
    """Remove the unfinished files of processes that were stopped."""
    for draft in folder.glob(f"{DRAFT}*"):
        draft.unlink(missing_ok=True)


def save(folder: pathlib.Path, name: str, document: dict[str, Any]) -> None:
    """A document of dicts, lists, numbers, text and arrays as ``name.npz``, and without the arrays as ``name.json``."""
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps(_take_arrays(document, "", arrays), indent=1)
    packed = io.BytesIO()
    np.savez_compressed(packed, allow_pickle=False, document=np.array(text), **arrays)
    write(folder / f"{name}.npz", packed.getvalue())
    write(folder / f"{name}.json", text.encode())


def load(folder: pathlib.Path, name: str) -> dict[str, Any]:
    """A saved document, arrays included."""
    path = folder / f"{name}.npz"
    if not path.exists():
        raise ResultsError(f"no saved results at {path}; run without --plot-only first")
    try:
        with np.load(io.BytesIO(path.read_bytes())) as packed:
            return _put_arrays(json.loads(str(packed["document"])), packed)
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ResultsError(f"{path} cannot be read ({error}); run the study again") from None


def _take_arrays(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, dict):
        return {str(key): _take_arrays(item, f"{path}.{key}".lstrip("."), arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_take_arrays(item, f"{path}.{number}", arrays) for number, item in enumerate(value)]
    if isinstance(value, np.generic) or getattr(value, "ndim", None) == 0:
        return value.item()
    if hasattr(value, "__array__"):
        arrays[path] = np.asarray(value)
        return {ARRAY: path, "shape": list(arrays[path].shape)}
    return value


def _put_arrays(value: Any, arrays: Any) -> Any:
    if isinstance(value, dict) and ARRAY in value:
        return arrays[value[ARRAY]]
    if isinstance(value, dict):
        return {key: _put_arrays(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_put_arrays(item, arrays) for item in value]
    return value
