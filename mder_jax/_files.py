"""Files that are written completely or not at all, and directories locked by one process."""

import contextlib
import os
import pathlib
import secrets
from collections.abc import Iterator

from mder_jax import _interrupts

DRAFT = ".draft-"


@contextlib.contextmanager
def draft(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A temporary path in the same folder, to write to: it replaces the path at the end, after an error it is removed.

    Of a symbolic link, the file it points to is replaced. A system error without a file name, such as a full disk, is
    given this one.
    """
    path = behind_links(path)
    beside = path.with_name(f"{DRAFT}{secrets.token_hex(4)}{path.suffix}")
    try:
        _interrupts.drafts.add(beside)
        yield beside
        if beside.exists():
            with beside.open("rb+") as file:
                os.fsync(file.fileno())
            with _interrupts.deferred():
                os.replace(beside, path)
                _interrupts.written[:] = [path]
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        beside.unlink(missing_ok=True)
        _interrupts.drafts.discard(beside)


def behind_links(path: pathlib.Path) -> pathlib.Path:
    """The file that a symbolic link points to, which need not exist; any other path unchanged."""
    return pathlib.Path(os.path.realpath(path)) if path.is_symlink() else path


def as_path(path: str | pathlib.Path) -> pathlib.Path:
    """The path as one of pathlib, or an error with its value."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"a path must be a str or a Path; got {path!r:.60}")
    if not str(path):
        raise ValueError("a path must name something; got ''")
    return pathlib.Path(path)


def write_whole(path: str | pathlib.Path, content: bytes) -> None:
    """Write a file completely or not at all."""
    if not as_path(path).name:
        raise ValueError(f"the path of a file must end with its name; got {str(path)!r}")
    with draft(as_path(path)) as beside:
        beside.write_bytes(content)


@contextlib.contextmanager
def occupied(directory: str | pathlib.Path) -> Iterator[None]:
    """Make a directory and lock it against other processes until the block or the process ends.

    Systems without such locks (Windows, some network disks) leave it unlocked.
    """
    as_path(directory).mkdir(parents=True, exist_ok=True)
    with (as_path(directory) / ".lock").open("w") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            in_use = f"{directory} is in use by another training; wait until it ends, or name another directory"
            raise BlockingIOError(in_use) from None
        except (ImportError, OSError):
            pass
        yield
