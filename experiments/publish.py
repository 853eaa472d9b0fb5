"""Put the numbers of a benchmark into the documents: ``python -m experiments.publish results``.

The results and the README's figure are copied from that folder to ``experiments/results``, and the tables of README.md
and docs/benchmark.md, between comments such as ``<!-- benchmark -->``, are made from them, which a test checks. Without
a folder the tables are made again from the last copy.
"""

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from experiments.benchmark import goals, summary
from experiments.harness.storage import ResultsError

ROOT = pathlib.Path(__file__).parent.parent
HOME = pathlib.Path("experiments", "results")
COPIED = ("benchmark.json", "benchmark_joint.png")
Table = Callable[[dict[str, Any]], str]
# document: its tables, by the word of their comments
TABLES: dict[str, dict[str, Table]] = {
    "README.md": {"benchmark": summary.joint_table},
    "docs/benchmark.md": {"goals": goals.table, "univariate": summary.univariate_table, "rates": summary.rates_table},
}


def updated(text: str, tables: dict[str, Table], results: dict[str, Any]) -> str:
    """A document with its tables made from the results."""
    for word, table in tables.items():
        begin, end = f"<!-- {word} -->\n", f"<!-- /{word} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ResultsError(f"the document must have one pair of comments {begin.strip()} and {end}")
        before, rest = text.split(begin)
        text = before + begin + table(results) + end + rest.split(end)[1]
    return text


def publish(folder: pathlib.Path, root: pathlib.Path = ROOT) -> None:
    """Copy the results of a folder, and make the tables of all documents from them."""
    document = json.loads((folder / COPIED[0]).read_text())
    if not document["full"] or document["results"]["missing"]:
        raise ResultsError(f"{folder} holds no run with --full on all tables; nothing was changed")
    texts = {path: updated((root / path).read_text(), tables, document["results"]) for path, tables in TABLES.items()}
    (root / HOME / COPIED[0]).write_text(json.dumps(document))  # in one line
    (root / HOME / COPIED[1]).write_bytes((folder / COPIED[1]).read_bytes())
    for path, text in texts.items():
        (root / path).write_text(text)


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
