"""Model files: a JSON document and arrays in one file, with a checksum and without pickle."""

import hashlib
import json
import pathlib
from typing import Any

import numpy as np

from mder_jax._files import as_path, write_whole

__all__ = ["ModelFileError", "load", "save"]


# A model file is one of safetensors: an eight-byte length, that many bytes of JSON, the arrays. The document is in the
# JSON under this name, again as JSON.
DOCUMENT = "mder_jax"
FORMAT = 1
HEADER_BYTES, MODEL_BYTES = 1 << 24, 1 << 31


class ModelFileError(ValueError):
    """A file that is not a model file, or incomplete, or changed since it was written.

    Example:
      >>> load("/dev/null")
      Traceback (most recent call last):
      mder_jax.persistence.ModelFileError: /dev/null is not a model file, or cut short
    """


def save(path: str | pathlib.Path, document: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a document (anything JSON can hold) and arrays as one file, completely or not at all; nothing is pickled.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     save(f"{folder}/model.mder", {"r": 1.0}, {"weights": np.ones(3)})
      ...     print(load(f"{folder}/model.mder"))
      ({'r': 1.0}, {'weights': array([1., 1., 1.])})
    """
    from safetensors.numpy import save as as_safetensors

    if not isinstance(arrays, dict) or not all(isinstance(name, str) for name in arrays):
        raise TypeError(f"arrays must be a dict of arrays by name; got {arrays!r:.60}")
    arrays = {name: _whole_array(name, array) for name, array in arrays.items()}
    try:
        text = json.dumps(document, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"the document must be a dict of what JSON can hold: {error}") from None
    if not isinstance(document, dict):
        raise TypeError(f"the document must be a dict of what JSON can hold; got {document!r:.60}")
    head = {"format": FORMAT, "sha256": _digest(text, arrays), "document": text}
    content = as_safetensors(arrays, {DOCUMENT: json.dumps(head)})
    header = int.from_bytes(content[:8], "little")
    if header > HEADER_BYTES:
        raise ValueError(f"the document has {header:,} bytes; `load` reads at most {HEADER_BYTES:,}")
    if len(content) > MODEL_BYTES:
        raise ValueError(f"the file would have {len(content):,} bytes; `load` reads at most {MODEL_BYTES:,}")
    write_whole(path, content)


def load(path: str | pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The document and the arrays of a file that `save` wrote; any other raises a `ModelFileError`.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     save(f"{folder}/model.mder", {"r": 1.0}, {"weights": np.ones(3)})
      ...     document, arrays = load(f"{folder}/model.mder")
      >>> print(document["r"], arrays["weights"])
      1.0 [1. 1. 1.]
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as from_safetensors

    path = as_path(path)
    head = _read_head(path)
    try:
        arrays = from_safetensors(path.read_bytes())
    except (SafetensorError, ValueError, KeyError, OverflowError) as error:
        raise ModelFileError(f"{path} is damaged or cut short: {error}") from None
    if _digest(head["document"], arrays) != head["sha256"]:
        raise ModelFileError(f"{path} has been changed since it was written: its checksum is wrong")
    try:
        document = json.loads(head["document"])
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from None
    if not isinstance(document, dict):
        raise ModelFileError(f"{path} is not a model file of mder_jax: its document is a {type(document).__name__}")
    return document, arrays


def _read_head(path: pathlib.Path) -> dict[str, Any]:
    """The header of a model file, checked before anything large is read."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 10 or not 2 <= length <= min(size - 8, HEADER_BYTES):
            raise ModelFileError(f"{path} is not a model file, or cut short")
        try:
            head = json.loads(json.loads(file.read(length))["__metadata__"][DOCUMENT])
            kinds = {"format": int, "document": str, "sha256": str}
            is_ours = all(isinstance(head[name], kind) for name, kind in kinds.items())
        except (ValueError, KeyError, TypeError, RecursionError):
            is_ours = False
    if not is_ours:
        raise ModelFileError(f"{path} is not a model file of mder_jax")
    if head["format"] > FORMAT:
        newer = f"a newer mder_jax (format {head['format']}, this one reads up to {FORMAT})"
        raise ModelFileError(f"{path} was written by {newer}: pip install --upgrade mder-jax")
    if size > MODEL_BYTES:
        raise ModelFileError(f"{path} has {size} bytes; model files of more than {MODEL_BYTES} are not read")
    return head


def _whole_array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value, order="C")
    except ValueError:  # rows that differ in length
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"array {name} must hold numbers or booleans; got {value!r:.60}")
    return array


def _digest(text: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()
