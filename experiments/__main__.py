"""The command ``python -m experiments [name] [options]``."""

import argparse
import os
import pathlib
import sys

from experiments.harness import command_options, execute, progress, report_page, storage
from experiments.harness.study import STUDIES, find
from experiments.paper.misprints import MISPRINTS


def main(arguments: list[str] | None = None) -> int:
    """Run one study, or all of the paper's."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    if options.list:
        for name, study in STUDIES.items():
            print(f"{name:18} {study.what}{'' if study.in_paper else ' (not part of the run without a name)'}")
        return 0
    try:
        storage.open_folder(options.out)
        _run([options.name] if options.name else [name for name, study in STUDIES.items() if study.in_paper], options)
    except storage.ResultsError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"cannot write results: {error}; studies that had finished are saved", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; studies that had finished are saved", file=sys.stderr)
        return 130
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    """The options: a first pass finds the name of the study, a second one knows its options."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Reproduce the paper's studies and measure the library. Without a name: all studies of the paper, "
        "their claims as a ledger, and one report with all of it, report.html.",
        epilog="python -m experiments NAME --help lists the options of a study, --list names the studies.",
        parents=[_common()],
    )
    parser.add_argument("name", nargs="?", choices=STUDIES, metavar="name", help="one of " + ", ".join(STUDIES))
    usage = parser.format_usage().removeprefix("usage: ")
    first = argparse.ArgumentParser(parser.prog, usage, parents=[_common()], add_help=False)
    first.add_argument("words", nargs="*")
    known, others = first.parse_known_args(arguments)
    named = next((word for word in known.words if word in STUDIES), None)
    if named and not known.list:
        command_options.add_options(parser.add_argument_group(f"options of {named}"), find(named).Config)
    if not named:
        _refuse_options_of_studies(parser, [word.split("=")[0] for word in others if word not in ("-h", "--help")])
    return parser.parse_args(arguments)


def _refuse_options_of_studies(parser: argparse.ArgumentParser, options: list[str]) -> None:
    """End with the studies that have one of these options, which were given without the name of a study."""
    for option in options:
        having = [name for name in STUDIES if command_options.has_option(find(name).Config, option)]
        if having:
            example = f"{parser.prog} {having[0]} {option}"
            parser.error(f"{option} is an option of {', '.join(having)}: name the study first, as in {example}")


def _common() -> argparse.ArgumentParser:
    """The options of all studies."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--list", action="store_true", help="list the studies and exit")
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("results"), help="of results (default results)"
    )
    parser.add_argument("--full", action="store_true", help="run the large version of each study")
    parser.add_argument("--plot-only", action="store_true", help="draw figures again from saved results")
    parser.add_argument("--no-cache", action="store_true", help="do not use a cache of compiled programs")
    return parser


def _run(chosen: list[str], options: argparse.Namespace) -> None:
    """Compute and draw the studies, print their results and write the report."""
    with progress.bar(len(chosen)) as done:
        execute.studies(chosen, options, done)
    parts = report_page.read(options.out, list(STUDIES))
    print(report_page.summary({name: parts[name] for name in chosen}))
    report_page.write(options.out, parts, MISPRINTS)
    small = "" if options.full or options.name else "; these are small versions, --full has more behind each claim"
    print(f"results, figures and report.html are in {options.out}/{small}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
