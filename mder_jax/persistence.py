"""Model files, and checkpoints of training: killed at any moment, it goes on exactly where it was."""

import hashlib
import json
import pathlib
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mder_jax._files import as_path, write_whole
from mder_jax._interrupts import deferred

__all__ = ["ModelFileError", "load", "save"]

# A model file is one of safetensors: an eight-byte length, that many bytes of JSON, the arrays. In the JSON under this
# name, again as JSON, stands the document.
DOCUMENT = "mder_jax"
FORMAT = 1
HEADER_BYTES = 1 << 24
MODEL_BYTES = 1 << 31


class ModelFileError(ValueError):
    """A file that is no model file, or not whole, or not as it was written.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     pathlib.Path(folder, "model.mder").write_bytes(b"something else")
      ...     try:
      ...         load(f"{folder}/model.mder")
      ...     except ModelFileError as error:
      ...         print(str(error).removeprefix(folder))
      14
      /model.mder is not a model file, or cut short
    """


def save(path: str | pathlib.Path, document: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a document (anything JSON can hold) and arrays as one file, whole or not at all; nothing is pickled.

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
        raise ValueError(f"the document takes {header:,} bytes; of more than {HEADER_BYTES:,} `load` reads none")
    if len(content) > MODEL_BYTES:
        raise ValueError(f"the file would have {len(content):,} bytes; of more than {MODEL_BYTES:,} `load` reads none")
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
    return _document(path, head), arrays


def _document(path: pathlib.Path, head: dict[str, Any]) -> dict[str, Any]:
    try:
        document = json.loads(head["document"])
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from None
    if not isinstance(document, dict):
        raise ModelFileError(f"{path} is not a model file of mder_jax: its document is a {type(document).__name__}")
    return document


def _read_head(path: pathlib.Path) -> dict[str, Any]:
    """The header of a model file, checked before anything large is read."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 10 or not 2 <= length <= min(size - 8, HEADER_BYTES):
            raise ModelFileError(f"{path} is not a model file, or cut short")
        try:
            header = json.loads(file.read(length))
            head = json.loads(header["__metadata__"][DOCUMENT])
            form, text, digest = head["format"], head["document"], head["sha256"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ModelFileError(f"{path} is not a model file of mder_jax") from None
    if not isinstance(form, int) or not isinstance(text, str) or not isinstance(digest, str):
        raise ModelFileError(f"{path} is not a model file of mder_jax")
    if form > FORMAT:
        raise ModelFileError(
            f"{path} was written by a newer mder_jax (format {form}, this one reads up to {FORMAT}): "
            "pip install --upgrade mder-jax"
        )
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


class Checkpoints:
    """Checkpoints of one run in a directory, written by orbax: each appears whole or not at all, and Ctrl-C waits.

    Args:
      directory: made if it is not there; relative paths work.
      identity: what the run is, as text by name. A directory that holds another run is refused, the difference named.
    """

    @deferred()
    def __init__(self, directory: str | pathlib.Path, identity: dict[str, str]) -> None:
        import orbax.checkpoint as ocp

        as_path(directory).mkdir(parents=True, exist_ok=True)
        self._ocp = ocp
        self._identity = identity
        options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False, create=True)
        names = ("state", "identity")
        self._manager = ocp.CheckpointManager(pathlib.Path(directory).absolute(), options=options, item_names=names)
        self._directory = directory
        self._refuse_another_run()

    @deferred()
    def save(self, epoch: int, leaves: list[np.ndarray]) -> None:
        """Write the arrays of a state after so many epochs; the two latest are kept. A full disk only warns."""
        if epoch in self._manager.all_steps():
            return
        args = self._ocp.args.Composite(
            state=self._ocp.args.StandardSave(dict(_named(leaves))),
            identity=self._ocp.args.JsonSave(self._identity),
        )
        try:
            needed, free = sum(leaf.nbytes for leaf in leaves), shutil.disk_usage(self._directory).free
            if needed > free:  # orbax would write a page of tracebacks from its threads first
                raise OSError(f"it may need {needed:,} bytes, and the disk has {free:,} left")
            self._manager.save(epoch, args=args, force=True)
        except (OSError, ValueError) as error:
            failed = f"the checkpoint of epoch {epoch} could not be written to {self._directory} ({error})"
            warnings.warn(f"{failed}; training goes on", RuntimeWarning, stacklevel=2)

    @deferred()
    def latest(self, like: list[np.ndarray]) -> tuple[int, list[np.ndarray]] | None:
        """The epoch and the arrays of the latest checkpoint that can be read, or None if there is none."""
        steps = sorted(self._manager.all_steps(), reverse=True)
        for position, epoch in enumerate(steps):
            try:
                state = self._restore(epoch, state=self._ocp.args.StandardRestore(dict(_named(like)))).state
            except Exception as error:
                self._manager.delete(epoch)
                rest = "an older one is used" if position + 1 < len(steps) else "training starts from the beginning"
                warnings.warn(
                    f"the checkpoint of epoch {epoch} in {self._directory} cannot be read ({error}); {rest}",
                    RuntimeWarning,
                    stacklevel=2,
                )
            else:
                return epoch, [np.asarray(state[name]) for name, _ in _named(like)]
        return None

    @deferred()
    def close(self) -> None:
        """Give up the directory."""
        self._manager.close()

    def _restore(self, epoch: int, **items: Any) -> Any:
        return self._manager.restore(epoch, args=self._ocp.args.Composite(**items))

    def _refuse_another_run(self) -> None:
        latest = self._manager.latest_step()
        if latest is None:
            return
        try:
            saved = self._restore(latest, identity=self._ocp.args.JsonRestore()).identity
        except Exception:  # damaged: `latest` passes over it
            return
        names = sorted(saved.keys() | self._identity.keys())
        other = [name for name in names if saved.get(name) != self._identity.get(name)]
        if other:
            lines = [f"  {name}: {saved.get(name)} when saved, {self._identity.get(name)} now" for name in other]
            raise ValueError(
                f"{self._directory} holds the checkpoints of another run; name another directory, or go back to the "
                "arguments it was started with:\n" + "\n".join(lines)
            )


def _named(leaves: list[np.ndarray]) -> list[tuple[str, np.ndarray]]:
    return [(f"{number:04}", leaf) for number, leaf in enumerate(leaves)]


def identify_array(array: Any) -> str:
    """Shape, dtype and a hash of the values."""
    values = np.ascontiguousarray(array)
    return f"{values.dtype}{list(values.shape)} {hashlib.sha256(values.tobytes()).hexdigest()[:16]}"


def identify_function(function: Callable[..., Any], *examples: Any) -> str:
    """A hash of what a function computes: its operations on arguments of these shapes, and the constants in it."""
    program = jax.jit(function).trace(*examples).lower(lowering_platforms=("cpu",))
    return hashlib.sha256(program.as_text().encode()).hexdigest()[:16]
