"""The ledger of claims, and one self-contained page with figures, claims and settings of all saved studies."""

import base64
import html
import json
import pathlib
from collections import Counter
from typing import Any

from experiments import _store
from experiments._claims import FAILS, HOLDS, IN_PART, OPEN
from experiments._misprints import MISPRINTS

COLUMNS = {"where": "Where", "claim": "Claim", "statistic": "Tested by", "paper": "Paper", "ours": "Here"}
CLASSES = {HOLDS: "holds", IN_PART: "part", FAILS: "fails", OPEN: "open"}
PLURAL = {HOLDS: "hold", IN_PART: "hold in part", FAILS: "do not hold", OPEN: "cannot be decided"}
STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 0 auto; padding: 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; }
nav a { display: inline-block; margin: 0 1rem .3rem 0; }
figure { margin: 1.5rem 0; } figcaption { font-size: .9rem; opacity: .85; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
pre { overflow-x: auto; background: var(--soft); padding: .7rem; font-size: .8rem; border-radius: 4px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .5rem; border-bottom: 1px solid var(--line); }
.verdict { white-space: nowrap; font-weight: 600; }
.verdict::before { content: "●"; margin-right: .35rem; }
.holds::before { color: #009E73; } .part::before { color: #E69F00; }
.fails::before { color: #D55E00; } .open::before { color: #888; }
@media (max-width: 46rem) {
  thead { display: none; } td { display: block; border: 0; padding: .1rem 0; }
  td::before { content: attr(data-name) ": "; font-weight: 600; opacity: .7; }
  tr { display: block; border-bottom: 1px solid var(--line); padding: .6rem 0; }
}
"""


def write(folder: pathlib.Path, studies: list[str]) -> None:
    """``ledger.json``, ``ledger.md`` and ``report.html`` from what the folder holds."""
    parts = {name: _part(folder, name) for name in studies if (folder / f"{name}{_store.PART}").exists()}
    rows = [{"study": name, **claim} for name, part in parts.items() for claim in part["claims"]]
    _store.write(folder / "ledger.json", json.dumps(rows, indent=1, ensure_ascii=False).encode())
    _store.write(folder / "ledger.md", markdown(rows).encode())
    _store.write(folder / "report.html", page(folder, parts, rows).encode())


def summary(folder: pathlib.Path, studies: list[str]) -> str:
    """What to print: every study's report, then its claims with their verdicts, and how many there are of each."""
    told, claims = [], []
    for name in studies:
        part = _part(folder, name)
        lines = [f"  {claim['verdict']:18} {claim['claim']}: {claim['ours']}" for claim in part["claims"]]
        told.append("\n".join([f"\n== {name} ({part['seconds']:.1f} s)", part["report"], *lines]))
        claims += part["claims"]
    return "\n".join([*told, *([f"\n{counted(claims)}; ledger.md says how each was tested"] if claims else [])])


def counted(claims: list[dict[str, str]]) -> str:
    """How many claims there are, and of each verdict."""
    counts = Counter(claim["verdict"] for claim in claims)
    each = [f"{counts[one]} {one if counts[one] == 1 else several}" for one, several in PLURAL.items() if counts[one]]
    return f"{len(claims)} claims: {', '.join(each)}"


def _part(folder: pathlib.Path, name: str) -> dict[str, Any]:
    return json.loads((folder / f"{name}{_store.PART}").read_text())


def markdown(rows: list[dict[str, str]]) -> str:
    """The ledger as a page with one table."""
    titles = ["Study", *COLUMNS.values(), "Verdict"]
    lines = [titles, ["---"] * len(titles)]
    lines += [[f"`{row['study']}`", *(row[key] for key in COLUMNS), f"**{row['verdict']}**"] for row in rows]
    table = "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
    return f"# The paper's claims, each as a number\n\n{table}"


def page(folder: pathlib.Path, parts: dict[str, Any], rows: list[dict[str, str]]) -> str:
    """All of it as one HTML file without any link to the outside."""
    links = "".join(f'<a href="#{name}">{name}</a>' for name in parts)
    sections = "".join(_section(folder, name, part) for name, part in parts.items())
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>Multivariate Deep Evidential Regression, reproduced</title><style>{STYLE}</style>
</head><body>
<h1>Multivariate Deep Evidential Regression, reproduced</h1>
<p>The figures and claims of Meinert &amp; Lavin, <i>Multivariate Deep Evidential Regression</i> (arXiv:2104.06135),
made by <code>python -m experiments</code>. {counted(rows)}.</p>
<nav><a href="#ledger">ledger</a>{links}<a href="#misprints">misprints</a></nav>
<h2 id="ledger">The ledger of claims</h2>
{_table(rows)}
{sections}
<h2 id="misprints">Misprints found on the way</h2>
{_rows(["Where", "Printed", "Meant"], [list(row) for row in MISPRINTS])}
</body></html>
"""


def _table(rows: list[dict[str, str]]) -> str:
    titles = ["Study", *COLUMNS.values(), "Verdict"]
    cells = [[row["study"], *(row[key] for key in COLUMNS), row["verdict"]] for row in rows]
    return _rows(titles, cells, [f"verdict {CLASSES[row['verdict']]}" for row in rows])


def _rows(titles: list[str], rows: list[list[str]], last: list[str] | None = None) -> str:
    """A table; ``last`` are the classes of the cells of the last column."""
    head = "".join(f"<th>{title}</th>" for title in titles)
    body = ""
    for number, row in enumerate(rows):
        cells = [f'<td data-name="{title}">{html.escape(cell)}</td>' for title, cell in zip(titles, row, strict=True)]
        if last:
            cells[-1] = f'<td data-name="{titles[-1]}"><span class="{last[number]}">{html.escape(row[-1])}</span></td>'
        body += f"<tr>{''.join(cells)}</tr>\n"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _section(folder: pathlib.Path, name: str, part: dict[str, Any]) -> str:
    settings = json.dumps({key: part[key] for key in ("config", "versions", "date", "seconds")}, indent=1)
    figures = "".join(_figure(folder / f"{name}_{label}.png", text) for label, text in part["captions"].items())
    return f"""<h2 id="{name}">{name}</h2>
<p>{html.escape(part["what"])}</p>
{figures}
<pre>{html.escape(part["report"])}</pre>
<details><summary>Settings, versions, time</summary><pre>{html.escape(settings)}</pre></details>
"""


def _figure(path: pathlib.Path, caption: str) -> str:
    if not path.exists():
        return ""
    data = base64.b64encode(path.read_bytes()).decode()
    text = html.escape(caption)
    return f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>\n'
