"""Put the numbers of full runs into the documents: ``python -m experiments.publish results``.

The benchmark and the ledger of that folder, with the figures that documents show, are copied to
``experiments/results``, each if its run had ``--full``; from the copies the tables of README.md and docs/benchmark.md
are made, between comments such as ``<!-- benchmark -->``, which a test checks. Without a folder only that is done.
"""

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from experiments.benchmark import goals, summary
from experiments.harness import report_page
from experiments.harness.storage import ResultsError
from experiments.harness.study import PAPER

ROOT = pathlib.Path(__file__).parent.parent
HOME = pathlib.Path("experiments", "results")
PAPER_FIGURES = ("circle_covcorr.png", "circle_nu.png", "circle_predictions.png", "sample_size_over_n.png")
# document: its tables, by the word of their comments
Table = Callable[[Any], str]
TABLES: dict[str, dict[str, Table]] = {
    "README.md": {"benchmark": summary.joint_table, "ledger": report_page.verdicts_table},
    "docs/benchmark.md": {
        "goals": goals.table,
        "univariate": summary.univariate_table,
        "rates": summary.rates_table,
        "tables": summary.as_it_comes_table,
    },
}


def updated(text: str, tables: dict[str, Table], benchmark: dict[str, Any], ledger: list[dict[str, str]]) -> str:
    """A document with its tables made from the results of the benchmark, or that named ledger from the ledger."""
    for word, table in tables.items():
        begin, end = f"<!-- {word} -->\n", f"<!-- /{word} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ResultsError(f"the document must have one pair of comments {begin.strip()} and {end}")
        before, rest = text.split(begin)
        text = before + begin + table(ledger if word == "ledger" else benchmark) + end + rest.split(end)[1]
    return text


def full_runs(folder: pathlib.Path) -> dict[str, bytes]:
    """What there is to copy: a benchmark on all tables, and the ledger if all studies of the paper have run."""
    files: dict[str, bytes] = {}
    figures: list[str] = []
    path = folder / "benchmark.json"
    document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"full": False}
    if document["full"] and not document["results"]["missing"]:
        files["benchmark.json"] = json.dumps(document).encode()  # in one line
        figures.append("benchmark_joint.png")
    parts = report_page.read(folder, PAPER)
    if set(parts) == set(PAPER) and all(part["full"] for part in parts.values()):
        files |= report_page.ledger(parts)
        figures += PAPER_FIGURES
    if not files:
        missing = "neither a benchmark with --full on all tables nor all studies of the paper with --full"
        raise ResultsError(f"{folder} holds {missing}; nothing was changed")
    return files | {name: (folder / name).read_bytes() for name in figures}


def publish(files: dict[str, bytes], root: pathlib.Path = ROOT) -> None:
    """Copy the files, and make the tables of all documents."""
    benchmark, ledger = (
        json.loads(files[name] if name in files else (root / HOME / name).read_bytes())
        for name in ("benchmark.json", "ledger.json")
    )
    saved = (benchmark["results"], ledger)
    texts = {path: updated((root / path).read_text(), tables, *saved) for path, tables in TABLES.items()}
    for name, content in files.items():
        (root / HOME / name).write_bytes(content)
    for path, text in texts.items():
        (root / path).write_text(text)


def main(arguments: list[str]) -> int:
    """The command."""
    try:
        files = full_runs(pathlib.Path(arguments[0])) if arguments else {}
        publish(files)
    except (ResultsError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"copied {', '.join(files) or 'nothing'} to {HOME}, and made the tables of {', '.join(TABLES)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
