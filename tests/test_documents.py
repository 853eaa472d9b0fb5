"""README, pages and pictures: their code runs, and what they show is what the code and the saved results say."""

import collections
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = {path.name: path.read_text() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]}


def blocks(text, language):
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
    return [content for named, content in fences if named == language]


def between(marker):
    return README.split(f"<!-- {marker} -->\n")[1].split(f"<!-- /{marker} -->")[0]


@pytest.fixture
def folder(tmp_path):
    """The tables that the examples read: houses with numbers and text, and two targets; some cells are empty."""
    random = np.random.default_rng(0)
    X = random.uniform(-2, 2, size=(600, 3))
    Y = X[:, :2] + random.multivariate_normal([0, 0], [[0.2, 0.1], [0.1, 0.2]], 600)
    Y[7::50, 1] = X[5::60, 2] = np.nan
    Y[555, 0] = np.nan
    header = "district,rooms,area,age,price,rent"
    cells = [["" if np.isnan(value) else f"{value:.6f}" for value in row] for row in np.hstack([X, Y])]
    lines = [",".join([random.choice(["north", "south", ""]), *row]) for row in cells]
    (tmp_path / "houses.csv").write_text("\n".join([header, *lines]) + "\n")
    (tmp_path / "test.csv").write_text("\n".join([header, *lines[-100:]]) + "\n")
    features = [line.rsplit(",", 2)[0] for line in (header, *lines[:5])]
    (tmp_path / "new.csv").write_text("\n".join(features) + "\n")
    return tmp_path


@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if blocks(text, "python")])
def test_python_blocks_of_a_page_run_and_print_what_they_say(page, folder):
    script = "\n".join(blocks(PAGES[page], "python"))
    result = subprocess.run([sys.executable, "-W", "error", "-c", script], cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    promised = re.findall(r"# prints: (.*)", script)
    assert promised
    assert result.stdout.splitlines() == promised


def test_shell_blocks_of_the_readme_run(folder, free_port):
    commands = blocks(README, "sh")
    (script,) = blocks(README, "py")
    assert "localhost:12345" in script
    (folder / "train.py").write_text(script.replace("12345", str(free_port)))
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    options = {"env": os.environ | {"PATH": path}, "stdin": subprocess.DEVNULL}
    for command in commands:
        result = subprocess.run(["bash", "-ec", command], cwd=folder, capture_output=True, text=True, **options)
        assert result.returncode == 0, result.stderr
    assert result.stdout.count("Ensemble(8 members, 5 epochs, 0 diverged)") == 2
    assert {"model.mder", "predictions.csv", "report.html"} < {path.name for path in folder.iterdir()}


def test_only_commands_that_install_are_not_run():
    for block in blocks(README, ""):
        assert block.startswith(("pip install", "@article"))


@pytest.mark.parametrize("page", PAGES)
def test_links_and_pictures_of_a_page_exist(page):
    here = ROOT if (ROOT / page).exists() else ROOT / "docs"
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", PAGES[page]):
        assert target.startswith("https://") or (here / target).exists(), target


def test_readme_shows_the_saved_ledger():
    rows = json.loads((ROOT / "experiments" / "results" / "ledger.json").read_text())
    counts = collections.defaultdict(collections.Counter)
    for row in rows:
        for study in (f"`{row['study']}`", "all"):
            counts[study][row["verdict"]] += 1
    lines = [line.strip("| ").split(" | ") for line in between("ledger").splitlines()[2:]]
    verdicts = ("holds", "holds in part", "does not hold")
    assert {study: tuple(map(int, numbers)) for study, *numbers in lines} == {
        study: (count.total(), *(count[verdict] for verdict in verdicts)) for study, count in counts.items()
    }


@pytest.mark.parametrize("page", ["README.md", "docs/benchmark.md"])
def test_a_page_shows_the_saved_benchmark(page):
    from experiments import publish

    saved, ledger = (json.loads((ROOT / publish.HOME / f"{name}.json").read_text()) for name in ("benchmark", "ledger"))
    text = (ROOT / page).read_text()
    assert text == publish.updated(text, publish.TABLES[page], saved["results"], ledger)


def test_new_results_are_copied_and_shown(tmp_path):
    from experiments import publish
    from experiments.harness import storage

    root, run = tmp_path / "root", tmp_path / "run"
    for folder in (root / "docs", root / publish.HOME, run):
        folder.mkdir(parents=True)
    for page in (*publish.TABLES, publish.HOME / "ledger.json"):
        (root / page).write_text((ROOT / page).read_text())
    saved = json.loads((ROOT / publish.HOME / "benchmark.json").read_text())
    changed = saved["results"]["problems"]["A boston, 40 epochs"]["rows"]["NIW ensemble"]["nll_in_units"]
    changed[:] = [123.456] * len(changed)
    (run / "benchmark.json").write_text(json.dumps(saved))
    (run / "benchmark_joint.png").write_bytes(b"a picture")
    publish.publish(publish.full_runs(run), root)
    assert (root / publish.HOME / "benchmark_joint.png").read_bytes() == b"a picture"
    assert json.loads((root / publish.HOME / "benchmark.json").read_text()) == saved
    assert (root / "README.md").read_text() == README and "123.46 ± 0.00" in (root / "docs/benchmark.md").read_text()
    for small in ({**saved, "full": False}, {**saved, "results": {**saved["results"], "missing": {"rf1": "not here"}}}):
        (run / "benchmark.json").write_text(json.dumps(small))
        with pytest.raises(storage.ResultsError, match="nothing was changed"):
            publish.full_runs(run)


def test_a_new_ledger_is_copied_and_counted(tmp_path):
    from experiments import publish
    from experiments.harness import report_page, storage
    from experiments.harness.study import PAPER

    for folder in (tmp_path / "docs", tmp_path / publish.HOME, run := tmp_path / "run"):
        folder.mkdir(parents=True)
    for page in (*publish.TABLES, publish.HOME / "benchmark.json"):
        (tmp_path / page).write_text((ROOT / page).read_text())
    claim = dict.fromkeys(("id", "claim", *report_page.COLUMNS), "new") | {"verdict": "cannot be decided"}
    for full in (False, True):
        for study in PAPER:
            (run / f"{study}{storage.PART}").write_text(json.dumps({"full": full, "claims": [claim]}))
        for figure in publish.PAPER_FIGURES:
            (run / figure).write_bytes(b"a picture")
        if not full:
            with pytest.raises(storage.ResultsError, match="nothing was changed"):
                publish.full_runs(run)
    publish.publish(publish.full_runs(run), tmp_path)
    assert f"| all | {len(PAPER)} | {len(PAPER)} |\n" in (tmp_path / "README.md").read_text()
    assert (tmp_path / publish.HOME / "ledger.md").read_text().count("| `new` |") == len(PAPER)
    assert (tmp_path / publish.HOME / "circle_nu.png").read_bytes() == b"a picture"


def test_the_picture_of_the_architecture_shows_the_import_statements():
    architecture = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
    shown = re.search(r"<dc:description>(.*?)</dc:description>", architecture["PICTURE"].read_text(), re.S)
    assert json.loads(shown[1].replace("&quot;", '"')) == architecture["arrows"]()
    assert set(architecture["PLACES"]) == set(architecture["KINDS"]) == set(architecture["arrows"]())


def test_the_api_reference_is_made_without_a_warning(tmp_path):
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "-c",
        "docs",
        "-d",
        tmp_path / "trees",
        ".",
        tmp_path / "html",
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "html" / "docs" / "api" / "mder_jax.niw.html").read_text()
    assert "log_evidence" in page and "eq:nll2" in page
