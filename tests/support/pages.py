"""HTML pages as tests see them: parsed, and opened in a browser."""

import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

needs_browser = pytest.mark.skipif(not shutil.which("chromium"), reason="needs Debian's chromium")
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Text, what is loaded, tables as lists of rows, and whether all elements are closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.loads, self.text, self.tables, self.images = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        given = dict(attributes)
        self.loads += [given[key] for key in ("src", "href") if key in given]
        if tag == "img":
            self.images.append(given)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data


def browser_messages(path):
    """What the browser's console says of the page; a screenshot is made beside it."""
    shot = path.with_suffix(".shot.png")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    options = [f"--user-data-dir={path.parent}", "--window-size=400,800", f"--screenshot={shot}", path.as_uri()]
    result = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    assert shot.stat().st_size > 5000
    return re.findall(r"CONSOLE.*", result.stderr)
