"""The command ``python -m experiments [name] [options]``."""

import argparse
import importlib
import pathlib
import sys

# name: what it shows, and whether it belongs to the paper (and so to the run without a name)
STUDIES = {
    "evidence": ("the closed-form evidence against brute-force integration, and its error in float32", True),
    "speed": ("the evidence, training against PyTorch, and how training grows, as ratios", False),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one study, or all of the paper's."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Reproduce the paper's studies and measure the library. Without a name: all studies of the paper.",
        epilog="studies: " + "; ".join(f"{name}: {what}" for name, (what, _) in STUDIES.items()),
    )
    parser.add_argument("name", nargs="?", choices=STUDIES, metavar="name", help="one of " + ", ".join(STUDIES))
    parser.add_argument("--list", action="store_true", help="name the studies and stop")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results"), help="folder (default results)")
    parser.add_argument("--plot-only", action="store_true", help="draw again from saved results")
    parser.add_argument("--no-cache", action="store_true", help="do not keep compiled programs in the user's cache")
    named = next((argument for argument in arguments if argument in STUDIES), None)
    if named:
        from experiments import _study

        _study.add_options(parser, importlib.import_module(f"experiments.{named}").Config)
    options = parser.parse_args(arguments)
    if options.list:
        for name, (what, in_paper) in STUDIES.items():
            print(f"{name:10} {what}{'' if in_paper else ' (not part of the run without a name)'}")
        return 0
    from experiments import _study

    _study.prepare_jax(cache=not options.no_cache)
    chosen = [options.name] if options.name else [name for name, (_, in_paper) in STUDIES.items() if in_paper]
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        for name in chosen:
            study = importlib.import_module(f"experiments.{name}")
            if not options.name:
                _study.add_options(own := argparse.ArgumentParser(), study.Config)
                options = own.parse_args([], options)
            _study.execute(study, options, options.out)
    except OSError as error:
        print(f"cannot write results: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; studies that had finished are saved", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
