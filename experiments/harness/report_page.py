"""The ledger of claims, and one self-contained report with figures, claims and settings of all saved studies."""

import json
import pathlib
from collections import Counter
from collections.abc import Iterable
from html import escape
from typing import Any

from experiments.harness import storage
from experiments.harness.claims import FAILS, HOLDS, IN_PART, OPEN
from mder_jax.cli.html import document, element, figure, table

COLUMNS = {"where": "Where", "claim": "Claim", "statistic": "Tested by", "paper": "Paper", "ours": "Here"}
CLASSES = {HOLDS: "holds", IN_PART: "part", FAILS: "fails", OPEN: "open"}
PLURAL = {HOLDS: "hold", IN_PART: "hold in part", FAILS: "do not hold", OPEN: "cannot be decided"}
TITLE = "Multivariate Deep Evidential Regression, reproduced"
STYLE = """
.more { display: inline-block; margin: 0 1rem .3rem 0; font-size: .9rem; } table, img { width: 100%; }
figure { display: inline-block; vertical-align: top; max-width: 100%; margin: 1rem 2rem 1rem 0; }
pre { overflow-x: auto; background: var(--soft); padding: .7rem; font-size: .8rem; border-radius: 4px; }
details { margin: .5rem 0; } summary { cursor: pointer; } summary .verdict { margin-left: .7rem; font-weight: 400; }
.verdict { white-space: nowrap; font-weight: 600; }
.verdict::before { content: "●"; margin-right: .35rem; }
.holds::before { color: #009E73; } .part::before { color: #E69F00; }
.fails::before { color: #D55E00; } .open::before { color: #888; }
@media (max-width: 46rem) {
  thead { display: none; } td { display: block; border: 0; padding: .1rem 0; }
  td:empty { display: none; } td::before { content: attr(data-name) ": "; font-weight: 600; opacity: .7; }
  tr { display: block; border-bottom: 1px solid var(--line); padding: .6rem 0; }
}
"""


def read(folder: pathlib.Path, studies: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The parts of the report that the folder holds, by study."""
    paths = {name: folder / f"{name}{storage.PART}" for name in studies}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def summary(parts: dict[str, dict[str, Any]]) -> str:
    """What to print: every study's report, then its claims with their verdicts, and how many there are of each."""
    texts = []
    for name, part in parts.items():
        lines = [f"  {claim['verdict']:18} {claim['claim']}: {claim['ours']}" for claim in part["claims"]]
        texts.append("\n".join([f"\n== {name} ({part['seconds']:.1f} s)", part["report"], *lines]))
    claims = _claims(parts)
    return "\n".join([*texts, *([f"\n{counted(claims)}; ledger.md says how each was tested"] if claims else [])])


def write(folder: pathlib.Path, parts: dict[str, dict[str, Any]], misprints: list[tuple[str, str, str]]) -> None:
    """``ledger.json``, ``ledger.md`` and ``report.html`` from the parts, and from the figures in the folder."""
    for name, content in ledger(parts).items():
        storage.write(folder / name, content)
    storage.write(folder / "report.html", page(folder, parts, misprints).encode())


def ledger(parts: dict[str, dict[str, Any]]) -> dict[str, bytes]:
    """The claims of all parts as the files ``ledger.json`` and ``ledger.md``."""
    claims = _claims(parts)
    titles = ["Id", *COLUMNS.values(), "Verdict"]
    rows = [[f"`{claim['id']}`", *(claim[key] for key in COLUMNS), f"**{claim['verdict']}**"] for claim in claims]
    text = f"# The paper's claims, each as a number\n\n{markdown([titles, *rows])}"
    return {"ledger.json": json.dumps(claims, indent=1, ensure_ascii=False).encode(), "ledger.md": text.encode()}


def verdicts_table(claims: list[dict[str, str]]) -> str:
    """How many claims of each study have which verdict, as a table of Markdown."""
    counts = Counter((study, row["verdict"]) for row in claims for study in (f"`{row['study']}`", "all"))
    verdicts = [verdict for verdict in PLURAL if counts["all", verdict]]
    rows = [["study", "claims", *(PLURAL[verdict] for verdict in verdicts)]]
    for study in [*dict.fromkeys(f"`{row['study']}`" for row in claims), "all"]:
        numbers = [counts[study, verdict] for verdict in verdicts]
        rows.append([study, *map(str, [sum(numbers), *numbers])])
    return markdown(rows)


def counted(claims: list[dict[str, str]]) -> str:
    """How many claims there are, and of each verdict."""
    return f"{len(claims)} claims: {', '.join(_counts(claims).values())}"


def markdown(rows: list[list[str]]) -> str:
    """A table of Markdown, its header first."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def page(folder: pathlib.Path, parts: dict[str, dict[str, Any]], misprints: list[tuple[str, str, str]]) -> str:
    """All of it as one HTML file without external links: figures by study, then the ledger, then misprints."""
    introduction = f"""<p>The figures and claims of Meinert &amp; Lavin, <i>Multivariate Deep Evidential Regression</i>
(arXiv:2104.06135), made by <code>python -m experiments</code>. {counted(_claims(parts))}.</p>"""
    folded = _failures(parts) + "".join(_ledger(name, part["claims"]) for name, part in parts.items())
    rows = [[escape(cell) for cell in row] for row in misprints]
    sections = [
        *((name, name, _study(folder, name, part)) for name, part in parts.items()),
        ("ledger", "The ledger of claims", folded),
        ("misprints", "Misprints found on the way", _table(["Where", "Printed", "Meant"], rows)),
    ]
    return document(TITLE, introduction, sections, STYLE)


def _claims(parts: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    """The claims of all parts, each with its study."""
    return [{"study": name, **claim} for name, part in parts.items() for claim in part["claims"]]


def _counts(claims: list[dict[str, str]]) -> dict[str, str]:
    """Texts such as "3 hold" by verdict."""
    counts = Counter(claim["verdict"] for claim in claims)
    return {one: f"{counts[one]} {one if counts[one] == 1 else many}" for one, many in PLURAL.items() if counts[one]}


def _study(folder: pathlib.Path, name: str, part: dict[str, Any]) -> str:
    settings = json.dumps({key: part[key] for key in ("config", "versions", "date", "seconds")}, indent=1)
    figures = "".join(_figure(folder / f"{name}_{label}.png", text) for label, text in part["captions"].items())
    claims = f'<a class="more" href="#{name}-claims">{counted(part["claims"])}</a>' if part["claims"] else ""
    return f"""<p>{escape(part["what"])}</p>
{figures}
<pre>{escape(part["report"])}</pre>
{claims}<details><summary>Settings, versions, time</summary><pre>{escape(settings)}</pre></details>"""


def _figure(path: pathlib.Path, caption: str) -> str:
    """The figure, or nothing if it was not drawn."""
    if not path.exists():
        return ""
    png = path.read_bytes()
    width = int.from_bytes(png[16:20]) // 2  # sharp on screens with two pixels for each of CSS
    return figure(png, caption, f"width: {width}px")


def _failures(parts: dict[str, dict[str, Any]]) -> str:
    rows = [claim for claim in _claims(parts) if claim["verdict"] == FAILS]
    items = "".join(f'<li><a href="#{row["id"]}">{row["study"]}</a>: {escape(row["claim"])}</li>\n' for row in rows)
    return f'<p class="verdict fails">Claims that do not hold</p>\n<ul>\n{items}</ul>\n' if rows else ""


def _ledger(name: str, claims: list[dict[str, str]]) -> str:
    """The claims of a study, folded below their counts."""
    if not claims:
        return ""
    counts = " ".join(_verdict(verdict, text) for verdict, text in _counts(claims).items())
    rows = [[*(_cell(claim, key) for key in COLUMNS), _verdict(claim["verdict"], claim["verdict"])] for claim in claims]
    return f"""<details><summary>{name} {counts}</summary>
<p id="{name}-claims">{counted(claims)}</p>
{_table([*COLUMNS.values(), "Verdict"], rows)}
</details>
"""


def _cell(claim: dict[str, str], key: str) -> str:
    """A part of a claim; links to the id of the claim lead to its text."""
    text = escape(claim[key])
    return element("span", text, id=claim["id"]) if key == "claim" else text


def _verdict(verdict: str, text: str) -> str:
    return element("span", text, class_=f"verdict {CLASSES[verdict]}")


def _table(titles: list[str], rows: list[list[str]]) -> str:
    """A table of cells in HTML, which have their titles beside them where the window is narrow."""
    body = [[element("td", cell, data_name=title) for title, cell in zip(titles, row, strict=True)] for row in rows]
    return table([[element("th", title) for title in titles]], body)
