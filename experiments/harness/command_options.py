"""A study's config as options of the command line."""

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any, cast


def option(default: Any, text: str, full: Any = None, least: float = 1, choices: tuple[str, ...] | None = None) -> Any:
    """A field of a config: default, what it is, value with ``--full``, the least and the only values allowed."""
    metadata = {"help": text, "full": default if full is None else full, "least": least, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)


def add_options(parser: argparse._ActionsContainer, config: type) -> None:
    """One ``--option`` for each field; only what is given appears in the parsed options."""
    for field in dataclasses.fields(config):
        default, meta = cast(Any, field.default), field.metadata
        many = isinstance(default, tuple)
        kind = type(default[0] if many else default)
        note = f"{meta['help']} (default {_shown(default)}"
        note += f", with --full {_shown(meta['full'])})" if meta["full"] != default else ")"
        parser.add_argument(
            "--" + field.name.replace("_", "-"),
            type=_at_least(kind, meta["least"]),
            nargs="+" if many else None,
            choices=meta["choices"],
            default=argparse.SUPPRESS,
            metavar=None if meta["choices"] else "N" if kind is int else "X",
            help=note.replace("%", "%%"),  # argparse formats it
        )


def has_option(config: type, option: str) -> bool:
    """Whether a field of the config has this ``--option``."""
    return option in (f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(config))


def make_config(config: type, options: argparse.Namespace, full: bool) -> Any:
    """The config with its defaults, or those of ``--full``, and what the options say."""
    values = {field.name: field.metadata["full"] if full else field.default for field in dataclasses.fields(config)}
    values |= {name: value for name, value in vars(options).items() if name in values}
    return config(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _shown(default: Any) -> str:
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _at_least(kind: type, least: float) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = kind(text)
        if kind is not str and not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be {least:g} or more; got {text}")
        return value

    parse.__name__ = "integer" if kind is int else "number" if kind is float else kind.__name__
    return parse
