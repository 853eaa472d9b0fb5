"""The parts of a self-contained HTML report: document, table and figure. It has no script and no external link."""

import base64
from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 0 auto; padding: 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; }
nav a { display: inline-block; margin: 0 1rem .3rem 0; } figcaption { font-size: .9rem; opacity: .85; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .5rem; border-bottom: 1px solid var(--line); }
"""


def document(title: str, introduction: str, sections: Sequence[tuple[str, str, str]], style: str = "") -> str:
    """A report as one HTML file: title, introduction (HTML), links to the sections, and these.

    A section is its anchor, with spaces for hyphens also the text of the link; its heading, plain text; its body, HTML.
    """
    links = "".join(f'<a href="#{anchor}">{anchor.replace("-", " ")}</a>' for anchor, _, _ in sections)
    bodies = "".join(f'<h2 id="{anchor}">{escape(heading)}</h2>\n{body}\n' for anchor, heading, body in sections)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{STYLE}{style}</style>
</head><body>
<h1>{escape(title)}</h1>
{introduction}
<nav>{links}</nav>
{bodies}</body></html>
"""


def element(tag: str, content: str, **attributes: str) -> str:
    """An element around HTML; an attribute that is empty is left out, and a last underscore of its name."""
    given = (f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"' for name, value in attributes.items() if value)
    return f"<{tag}{''.join(given)}>{content}</{tag}>"


def table(head: Iterable[Iterable[str]], rows: Iterable[Iterable[str]]) -> str:
    """A table of rows of cells, which are elements."""
    titles, body = ("".join(f"<tr>{''.join(cells)}</tr>\n" for cells in part) for part in (head, rows))
    return f"<table><thead>{titles}</thead><tbody>{body}</tbody></table>"


def figure(png: bytes, caption: str, style: str = "") -> str:
    """An image inside the document, with its caption, also for those who cannot see it."""
    text, data = escape(caption), base64.b64encode(png).decode()
    image = f'<img alt="{text}" src="data:image/png;base64,{data}">'
    return element("figure", f"{image}<figcaption>{text}</figcaption>", style=style) + "\n"
