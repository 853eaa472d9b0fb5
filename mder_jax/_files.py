"""Files that appear whole or not at all."""

import contextlib
import os
import pathlib
import secrets
from collections.abc import Iterator

DRAFT = ".draft-"


@contextlib.contextmanager
def draft(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A name beside the path to write to: in the end it takes the path's place, after an error it is removed."""
    beside = path.with_name(f"{DRAFT}{secrets.token_hex(4)}{path.suffix}")
    try:
        yield beside
        if beside.exists():
            with beside.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_whole(path: str | pathlib.Path, content: bytes) -> None:
    """Write a file so that it appears whole or not at all."""
    with draft(pathlib.Path(path)) as beside:
        beside.write_bytes(content)
