"""The command ``python -m experiments [name] [options]``."""

import argparse
import os
import pathlib
import sys
from collections.abc import Callable

PROCESSES = 2
# name: what it shows, and whether it belongs to the paper (and so to the run without a name)
STUDIES = {
    "circle": ("100 networks on the noisy circle: predictions, the gate ν, covariance and correlation", True),
    "sample_size": ("from 50 to 30,000 points: when the gate opens, and when the fit over-fits", True),
    "coupling": ("what the coupling r changes, and what it cannot; κ and ν both free", True),
    "degeneration": ("the likelihood cannot tell κ from β, and what Amini's regulariser makes of it", True),
    "student_fits": ("t densities, a t5 fitted to a t2, and how far a t13 is from a normal", True),
    "nu_bias": ("bias of fitted ν and σ, against the sample size", True),
    "gaussian_fit": ("a Gaussian fit and an over-fit, which has the smaller loss", True),
    "uncertainty_types": ("aleatoric and epistemic uncertainty where data are noisy, misfitted or missing", True),
    "cubic": ("the univariate experiment of Amini et al., six methods side by side", True),
    "evidence": ("the closed forms against brute-force integration, and their error in float32", True),
    "benchmark": ("real tables: this library against what else one would use; --full takes an hour and a half", False),
    "speed": ("the evidence, training against PyTorch, and how training grows, as ratios", False),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one study, or all of the paper's."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    named = next((argument for argument in arguments if argument in STUDIES), None)
    if named and "--list" not in arguments:
        from experiments import _options, _study

        _options.add_options(parser.add_argument_group(f"options of {named}"), _study.find(named).Config)
    options = parser.parse_args(arguments)
    if options.list:
        for name, (what, in_paper) in STUDIES.items():
            print(f"{name:18} {what}{'' if in_paper else ' (not part of the run without a name)'}")
        return 0
    from experiments import _store

    chosen = [options.name] if options.name else [name for name, (_, in_paper) in STUDIES.items() if in_paper]
    try:
        _store.open_folder(options.out)
        _run(chosen, options)
    except _store.ResultsError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"cannot write results: {error}; studies that had finished are saved", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; studies that had finished are saved", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Reproduce the paper's studies and measure the library. Without a name: all studies of the paper, "
        "their claims as a ledger, and one page with all of it, report.html.",
        epilog="python -m experiments NAME --help lists the options of a study, --list names the studies.",
    )
    parser.add_argument("name", nargs="?", choices=STUDIES, metavar="name", help="one of " + ", ".join(STUDIES))
    parser.add_argument("--list", action="store_true", help="name the studies and stop")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results"), help="folder (default results)")
    parser.add_argument("--full", action="store_true", help="the large version of each study")
    parser.add_argument("--plot-only", action="store_true", help="draw again from saved results")
    parser.add_argument("--no-cache", action="store_true", help="do not keep compiled programs in the user's cache")
    return parser


def _run(chosen: list[str], options: argparse.Namespace) -> None:
    """Compute and draw the studies, then print what they found and write the page."""
    from experiments import _progress, _report

    with _progress.bar(len(chosen)) as done:
        if len(chosen) == 1:
            _in_this_process(chosen[0], options)
            done()
        else:
            _in_processes(chosen, options, done)
    print(_report.summary(options.out, chosen))
    _report.write(options.out, list(STUDIES))
    small = "" if options.full or options.name else "; these are small versions, --full has more behind each claim"
    print(f"results, figures and report.html are in {options.out}/{small}", flush=True)


def _in_this_process(name: str, options: argparse.Namespace) -> None:
    from experiments import _study, _worker

    _study.prepare_jax(cache=not options.no_cache)
    _worker.perform(name, options)


def _in_processes(chosen: list[str], options: argparse.Namespace, done: Callable[[], None]) -> None:
    """Two studies at a time: compiling and drawing keep one core busy, training all."""
    from experiments import _pool, _worker

    work = [(name, options) for name in chosen]
    _pool.each(_worker.perform, work, PROCESSES, _worker.begin, (not options.no_cache,), done, options.out)


if __name__ == "__main__":
    sys.exit(main())
