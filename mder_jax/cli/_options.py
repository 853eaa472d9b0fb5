"""The command line of `mder`: its commands, their options and the allowed values."""

import argparse
import csv
import itertools
import math
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from mder_jax._version import __version__
from mder_jax.cli._text_files import Reading

# Values of --beside, and what they are for the estimator; without the option it has its own default.
BESIDE = {"process": ["process"], "forest": ["forest"], "both": ["process", "forest"], "none": []}
EPILOG = """examples:
  mder train houses.csv --targets price,rent --out model.mder
  mder predict model.mder new.csv -o predictions.csv
  mder evaluate model.mder test.csv --report report.html
  mder info model.mder

A table is a file that ends in .csv, .tsv, .txt (also with .gz), .parquet,
.feather or .arrow; text has the names of its columns in the first line.
`mder train --help` etc. show all options.
Exit codes: 0 success, 1 a file or its data is wrong, 2 the command line is
wrong, 130 interrupted.
"""
TRAIN = """Train a model on the rows of a table and write it to a file.

Numbers, dates and true/false are read as such, other text becomes categories.
Features and targets may be missing: an empty cell, NA, NaN, null or what --na
names. Columns that nothing can be learnt from, such as names and row numbers,
are left out, with a warning. After Ctrl-C the same command resumes where it
stopped.
"""
PREDICT = """Write a table of predictions, one row for each row of TABLE.

Columns for each target a: a_mean, a_std, a_aleatoric_std, a_epistemic_std,
a_lower and a_upper, for each pair of targets corr_a_b. a_std, the interval and
the correlation are those of a new observation. Units are those of the training
table. The column outside names the columns in which a row is unlike those of
training: far out of range, an unseen category, or missing where nothing was.
The model finds its features by name and ignores other columns.
"""
EVALUATE = """Print how well a model predicts the targets of a table.

Use rows that it was neither trained nor calibrated with.
"""
TRANSFORMS = {
    "log": "targets above 0 of which the logarithm is learnt, such as prices; results are in original units",
    "log1p": "the same with ln(1 + y), for counts with zeros",
    "sqrt": "the same with the square root",
}
MEMBERS = "members"  # --calibrate with the rows that members held out
INFO = "Print a summary of a model file."


def read(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, checked; a wrong command line ends the process with code 2."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command != "info":
        given = {name: getattr(options, name) for name in Reading._fields}
        options.reading = Reading(**given | {"missing": tuple(options.missing)})
    if options.command == "train":
        _check_roles(parser, options)
        options.own_checkpoint = options.checkpoint is None
        options.checkpoint = options.checkpoint or options.out.with_name(options.out.name + ".checkpoint")
    return options


def _check_roles(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with an error if a column is to be two things at once; sets `transforms`, by the name of a target."""
    special = {
        "--weights": [options.weights] * bool(options.weights),
        "--groups": [options.groups] * bool(options.groups),
    }
    uses = {"--targets": options.targets, "--exclude": options.exclude} | special
    kinds = {f"--{kind}": getattr(options, kind) for kind in TRANSFORMS}
    for of_columns in (
        uses | {"--features": options.features or []},
        uses | {"--categorical": options.categorical},
        kinds,
    ):
        for (one, names), (other, others) in itertools.combinations(of_columns.items(), 2):
            if both := set(names) & set(others):
                parser.error(f"{min(both)!r} is named in {one} and in {other}; give one of them")
    if unknown := set(options.categorical) - set(options.features or options.categorical):
        parser.error(f"--categorical: {min(unknown)!r} is not one of --features")
    for flag, names in kinds.items():
        if unknown := set(names) - set(options.targets):
            parser.error(f"{flag}: {min(unknown)!r} is not one of --targets")
    if options.last and options.calibrate == MEMBERS:
        parser.error("--calibrate members: --last holds out the same rows for all members; give cv5, or a fraction")
    if options.groups and options.last:
        parser.error("--groups and --last are two ways to hold out rows; give one of them")
    options.transforms = {name: kind for kind in TRANSFORMS for name in getattr(options, kind)}


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    about = "Multivariate deep evidential regression: predictions of several targets, with their covariances."
    parser = argparse.ArgumentParser("mder", description=about, epilog=EPILOG, formatter_class=form, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"mder {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="train | predict | evaluate | info")
    for name, add, about in (
        ("train", _add_train, TRAIN),
        ("predict", _add_predict, PREDICT),
        ("evaluate", _add_evaluate, EVALUATE),
        ("info", _add_info, INFO),
    ):
        short = about.splitlines()[0]
        command = commands.add_parser(name, help=short, description=about, formatter_class=form, allow_abbrev=False)
        add(command)
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        command.add_argument("--quiet", action="store_true", help="print only warnings, errors and JSON")
    return parser


def _add_train(command: argparse.ArgumentParser) -> None:
    _add_table(command, ["refuse", "skip"])
    command.add_argument("--targets", type=_names, required=True, metavar="a,b", help="columns to predict")
    chosen = command.add_mutually_exclusive_group()
    chosen.add_argument("--features", type=_names, metavar="x,y", help="columns to predict from; default: all others")
    chosen.add_argument("--exclude", type=_names, default=[], metavar="z", help="columns to leave out")
    command.add_argument(
        "--categorical",
        type=_names,
        default=[],
        metavar="x,y",
        help="columns of numbers that are categories, such as postcodes; text is recognised",
    )
    for name, about in TRANSFORMS.items():
        command.add_argument(f"--{name}", type=_names, default=[], metavar="a,b", help=about)
    command.add_argument("--weights", type=_name, metavar="COLUMN", help="weights of the rows, 0 or more; no feature")
    _add_output(command, "--out", "the model file")
    command.add_argument("--members", type=_count, metavar="M", help="number of networks (default 10)")
    command.add_argument(
        "--hidden", type=_widths, metavar="64,64", help="widths of hidden layers (default 128,128,128)"
    )
    command.add_argument(
        "--beside",
        choices=tuple(BESIDE),
        help="members that are no networks: a Gaussian process, a forest (default both, weighted by held-out rows)",
    )
    command.add_argument("--epochs", type=_count, metavar="E", help="largest number of epochs (default: 100 or more)")
    command.add_argument(
        "--learning-rate",
        type=_positive,
        metavar="RATE",
        help="largest learning rate (default 0.005 or 0.001, the better)",
    )
    command.add_argument(
        "--validation",
        type=_fraction,
        metavar="FRACTION",
        help="of the rows, held out by each network for early stopping (default 0.1)",
    )
    command.add_argument(
        "--groups",
        type=_name,
        metavar="COLUMN",
        help="such as patient: rows of a group are held out together, for early stopping and calibration; no feature",
    )
    command.add_argument(
        "--last",
        action="store_true",
        help="hold out the last rows, for early stopping and calibration: for rows in the order of time",
    )
    command.add_argument("--seed", type=_seed, default=0, metavar="S", help="seed of random numbers (default 0)")
    command.add_argument(
        "--calibrate",
        type=_calibration,
        metavar="FRACTION|TABLE|cvK|members",
        help="rows to calibrate covariances and intervals with: a fraction of those with a target, another table, or "
        "cv5: the training rows, by five more fits without a fifth of them each; members: the training rows, by the "
        "networks that held them out",
    )
    resume = "directory to resume from after Ctrl-C (default OUT.checkpoint)"
    command.add_argument("--checkpoint", type=pathlib.Path, metavar="DIR", help=resume)


def _add_predict(command: argparse.ArgumentParser) -> None:
    _add_model_and_table(command, ["refuse", "skip", "flag"])
    _add_output(command, "-o", "the table of predictions, .csv or .parquet", "--out")
    command.add_argument("--keep", type=_names, default=[], metavar="x,y", help="columns of TABLE to copy into it")


def _add_evaluate(command: argparse.ArgumentParser) -> None:
    _add_model_and_table(command, ["refuse", "skip"])
    command.add_argument("--report", type=pathlib.Path, metavar="REPORT.html", help="also write a report with figures")
    command.add_argument("--force", action="store_true", help="overwrite the report if it exists")


def _add_info(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", type=pathlib.Path, help="a file written by mder train")


def _add_model_and_table(command: argparse.ArgumentParser, bad_rows: list[str]) -> None:
    _add_info(command)
    _add_table(command, bad_rows)
    command.add_argument(
        "--coverage", type=_fraction, default=0.9, metavar="P", help="probability of the intervals (default 0.9)"
    )


def _add_table(command: argparse.ArgumentParser, bad_rows: list[str]) -> None:
    command.add_argument("table", metavar="TABLE", type=pathlib.Path, help="a .csv, .tsv, .parquet or .feather file")
    group = command.add_argument_group("how TABLE is written", "Determined from the start of the file, unless given.")
    group.add_argument("--delimiter", type=_delimiter, metavar="C", help="character between the cells, or tab")
    group.add_argument("--decimal", choices=[".", ","], metavar="MARK", help="decimal mark of the numbers: . or ,")
    group.add_argument("--encoding", type=_encoding, metavar="NAME", help="of the text, such as utf-8 or latin-1")
    group.add_argument(
        "--na",
        dest="missing",
        type=_names,
        action="extend",
        default=[],
        metavar="?,none",
        help="further texts that mean a missing value; may be repeated. A model knows those it was trained with",
    )
    which = "rows with a wrong number of fields" + (", or a cell that cannot be read," if "flag" in bad_rows else "")
    flag = ", or predicted as empty cells with a column that says why" if "flag" in bad_rows else ""
    group.add_argument(
        "--bad-rows",
        choices=bad_rows,
        default="refuse",
        help=f"{which} are refused (default), left out{flag}",
    )


def _add_output(command: argparse.ArgumentParser, flag: str, what: str, *more: str) -> None:
    command.add_argument(flag, *more, dest="out", type=pathlib.Path, required=True, metavar="OUT", help=what)
    command.add_argument("--force", action="store_true", help="overwrite OUT if it exists")


def _names(text: str) -> list[str]:
    """Names between commas; a name with a comma is put in double quotes."""
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or not all(names):
        raise argparse.ArgumentTypeError(f"expected names with commas between them; got {text!r}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise argparse.ArgumentTypeError(f"{twice[0]!r} is named twice")
    return names


def _name(text: str) -> str:
    names = _names(text)
    if len(names) > 1:
        raise argparse.ArgumentTypeError(f"expected the name of one column; got {text!r}")
    return names[0]


def _delimiter(text: str) -> str:
    delimiter = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(delimiter) != 1 or delimiter in '"\r\n' or ord(delimiter) > 127:
        raise argparse.ArgumentTypeError(f"expected one character such as ; or | or the word tab; got {text!r}")
    return delimiter


def _encoding(text: str) -> str:
    try:
        b"abcd".decode(text, "replace")
    except (LookupError, ValueError):
        raise argparse.ArgumentTypeError(
            f"expected the name of an encoding such as utf-8, utf-16 or latin-1; got {text!r}"
        ) from None
    return text


def _number(kind: type, low: float, high: float, rule: str) -> Callable[[str], Any]:
    """A reader of numbers between low and high."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low < value < high:
            raise argparse.ArgumentTypeError(f"expected {rule}; got {text!r}")
        return value

    return read


_count = _number(int, 0, math.inf, "an integer, 1 or more")
_seed = _number(int, -1, 1 << 32, "an integer from 0 to 4294967295")
_positive = _number(float, 0, math.inf, "a positive number")
_fraction = _number(float, 0, 1, "a number between 0 and 1")


def _widths(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(","))


def _calibration(text: str) -> float | int | str | pathlib.Path:
    """A fraction, the number of folds (5 for "cv" alone), "members", or the path of a table."""
    if text == MEMBERS:
        return text
    if folds := re.fullmatch(r"cv(\d*)", text):
        count = int(folds[1] or 5)
        if count < 2:
            raise argparse.ArgumentTypeError(f"expected cv with 2 folds or more, such as cv5; got {text!r}")
        return count
    try:
        float(text)
    except ValueError:
        return pathlib.Path(text)
    return _fraction(text)
