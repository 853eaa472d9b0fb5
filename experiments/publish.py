"""Put the numbers of a benchmark into the documents: ``python -m experiments.publish results``.

The results and the picture of the README are copied from that folder to ``experiments/results``, and the tables of
README.md and docs/benchmark.md, which stand between comments such as ``<!-- benchmark -->``, are made from them; a test
holds that they agree. Without a folder the tables are made again from what was copied last.
"""

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from experiments import _bench_goals, _bench_report
from experiments._store import ResultsError

ROOT = pathlib.Path(__file__).parent.parent
HOME = pathlib.Path("experiments", "results")
COPIED = ("benchmark.json", "benchmark_joint.png")
Table = Callable[[dict[str, Any]], str]
# page: the tables that it has, by the word of their comments
TABLES: dict[str, dict[str, Table]] = {
    "README.md": {"benchmark": _bench_report.joint_table},
    "docs/benchmark.md": {
        "goals": _bench_goals.table,
        "univariate": _bench_report.univariate_table,
        "rates": _bench_report.rates_table,
    },
}


def updated(text: str, tables: dict[str, Table], results: dict[str, Any]) -> str:
    """A page with its tables made from the results."""
    for word, table in tables.items():
        begin, end = f"<!-- {word} -->\n", f"<!-- /{word} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ResultsError(f"the page must have one pair of comments {begin.strip()} and {end}")
        before, rest = text.split(begin)
        text = before + begin + table(results) + end + rest.split(end)[1]
    return text


def publish(folder: pathlib.Path, root: pathlib.Path = ROOT) -> None:
    """Copy the results of a folder, and make the tables of all pages from them."""
    document = json.loads((folder / COPIED[0]).read_text())
    if not document["full"] or document["results"]["missing"]:
        raise ResultsError(f"{folder} holds no run with --full on all tables; nothing was changed")
    pages = {page: updated((root / page).read_text(), tables, document["results"]) for page, tables in TABLES.items()}
    (root / HOME / COPIED[0]).write_text(json.dumps(document))  # in one line
    (root / HOME / COPIED[1]).write_bytes((folder / COPIED[1]).read_bytes())
    for page, text in pages.items():
        (root / page).write_text(text)


def main(arguments: list[str]) -> int:
    """The command."""
    folder = pathlib.Path(arguments[0]) if arguments else ROOT / HOME
    try:
        publish(folder)
    except (ResultsError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"copied {', '.join(COPIED)} to {HOME}, and made the tables of {', '.join(TABLES)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
