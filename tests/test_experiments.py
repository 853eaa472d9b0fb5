"""The command around the studies: options, results on disk, the ledger, the report, and errors."""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mder_jax
from experiments import speed
from experiments.__main__ import main
from experiments.harness import claims, command_options, execute, report_page, statistics, storage, training
from experiments.harness.study import STUDIES, find
from experiments.paper.misprints import MISPRINTS
from tests.support.pages import Page, browser_messages, needs_browser

ROOT = pathlib.Path(__file__).parent.parent
TINY = ["--parts", "evidence", "--points", "40", "--sizes", "1", "2", "--repeats", "1", "--compile-up-to", "0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("command") / "results"
    assert main(["speed", *TINY, "--no-cache", "--out", str(out)]) == 0
    return out


def test_command_saves_results_that_can_be_drawn_again(folder, capsys):
    saved = json.loads((folder / "speed.json").read_text())
    assert saved["config"]["points"] == 40 and saved["versions"]["jax"] and saved["seconds"] > 0 and saved["date"]
    (folder / "speed_evidence.png").unlink()
    assert main(["speed", "--plot-only", "--out", str(folder)]) == 0
    assert (folder / "speed_evidence.png").stat().st_size > 1000
    assert json.loads((folder / "speed.json").read_text()) == saved
    assert not [name for name in os.listdir(folder) if name.startswith(".") and name != storage.MARK]
    assert "as printed" in capsys.readouterr().out


def test_results_survive_the_disk(tmp_path):
    results = {"a": np.arange(6.0).reshape(2, 3), "rows": [{"x": np.float32(1.5), "m": np.ones(2, bool)}], "text": "ν"}
    storage.save(tmp_path, "study", {"results": results})
    loaded = storage.load(tmp_path, "study")["results"]
    assert np.array_equal(loaded["a"], results["a"]) and loaded["rows"][0]["x"] == 1.5 and loaded["text"] == "ν"
    assert np.array_equal(loaded["rows"][0]["m"], [True, True]) and loaded["rows"][0]["m"].dtype == bool


@pytest.mark.parametrize("damage", [lambda raw: raw[: len(raw) // 2], lambda raw: b"", lambda raw: b"not a zip" * 99])
def test_damaged_results_are_refused_with_their_name(tmp_path, damage):
    storage.save(tmp_path, "study", {"results": {"a": np.arange(1000)}})
    path = tmp_path / "study.npz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(storage.ResultsError, match=r"study\.npz cannot be read .*run the study again"):
        storage.load(tmp_path, "study")


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "result"
    storage.write(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        storage.write(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["result"]


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_explains_its_options(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    text = capsys.readouterr().out
    assert stopped.value.code == 0 and f"options of {name}" in text
    for field in dataclasses.fields(find(name).Config):
        assert "--" + field.name.replace("_", "-") in text


def test_claims_are_counted():
    rows = [{"verdict": verdict} for verdict in (claims.HOLDS, claims.OPEN, claims.HOLDS)]
    assert report_page.counted(rows) == "3 claims: 2 hold, 1 cannot be decided"


def test_claims_are_found_by_their_id_which_is_unique():
    first, second = (
        claims.Claim(id=name, where="", claim=name, statistic="", ours="", verdict=claims.HOLDS) for name in "ab"
    )
    assert claims.by_id([first, second]) == {"a": first, "b": second} and first.paper == ""
    with pytest.raises(ValueError, match="two claims have the id 'a'"):
        claims.by_id([first, second, first])


def test_a_reader_that_has_seen_enough(folder):
    command = [sys.executable, "-m", "experiments", "speed", "--plot-only", "--out", str(folder)]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.returncode == 1 and b"Traceback" not in done.stderr


def test_list_names_every_study(capsys):
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(STUDIES)


def test_every_study_keeps_the_contract():
    for name in STUDIES:
        found = find(name)
        assert found.Config().seed >= 0 and found.CAPTIONS and f"python -m experiments {name}" in found.__doc__
        assert all(callable(getattr(found, part)) for part in ("run", "report", "claims", "plot"))
        command_options.make_config(found.Config, argparse.Namespace(), full=True)


def test_full_takes_the_large_values_but_not_over_given_ones():
    config = find("circle").Config
    assert command_options.make_config(config, argparse.Namespace(), full=False).data_sets == 1
    large = command_options.make_config(config, argparse.Namespace(members=7), full=True)
    assert large.data_sets > 1 and large.members == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["circle", "--members", "0"], "must be 1 or more; got 0"),
        (["circle", "--members", "many"], "invalid integer value: 'many'"),
        (["sample_size", "--budget", "money"], "invalid choice: 'money'"),
        (["speed", "--points", "-3"], "must be 1 or more; got -3"),
        (["speed", "--growth-work", "inf"], "must be 1 or more; got inf"),
        (["circle", "--colour", "red"], "unrecognized arguments: --colour red"),
        (["--members", "3"], "--members is an option of circle, sample_size, coupling, degeneration, "),
        (["--turn-epochs=3"], "--turn-epochs is an option of speed: name the study first, as in python -m experiments"),
        (["--colour", "red"], "invalid choice: 'red'"),
    ],
)
def test_bad_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2 and message in capsys.readouterr().err


def test_folders_that_cannot_serve_are_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["speed", *TINY, "--out", str(tmp_path / "file" / "results")]) == 1
    assert "cannot write results" in capsys.readouterr().err
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.tex").write_text("years of work")
    assert main(["speed", *TINY, "--out", str(tmp_path / "theirs")]) == 1
    assert "holds files that were not made here (thesis.tex)" in capsys.readouterr().err
    assert os.listdir(tmp_path / "theirs") == ["thesis.tex"]
    assert main(["speed", "--plot-only", "--out", str(tmp_path / "empty")]) == 1
    assert "run without --plot-only first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("trouble", "code", "message"),
    [(KeyboardInterrupt(), 130, "interrupted"), (OSError(28, "No space left on device"), 1, "No space left")],
)
def test_what_had_finished_is_kept(folder, monkeypatch, capsys, trouble, code, message):
    before = (folder / "speed.npz").read_bytes()

    def fail(config):
        raise trouble

    monkeypatch.setattr(speed, "run", fail)
    assert main(["speed", *TINY, "--out", str(folder)]) == code
    text = capsys.readouterr().err
    assert message in text and "studies that had finished are saved" in text
    assert (folder / "speed.npz").read_bytes() == before


def test_an_interrupted_training_raises_instead_of_returning_half_of_it():
    def interrupt(progress):
        raise KeyboardInterrupt

    line = mder_jax.Network(lambda key, x: jnp.ones(1), lambda w, x: x @ w)
    arguments = (jax.random.key(0), line, lambda output, y: (output - y) ** 2, np.ones((4, 1)), np.ones(4))
    with pytest.raises(KeyboardInterrupt):
        training.train("study", *arguments, optimizer=optax.sgd(0.1), epochs=2, members=1, callback=interrupt)


def test_intervals_cover_as_they_say():
    rng = np.random.default_rng(1)
    hits = [(ends := statistics.interval(rng.normal(size=60), np.mean))[1] < 0 < ends[2] for _ in range(200)]
    assert 0.88 < np.mean(hits) < 0.99
    assert statistics.fraction(42, 100) == pytest.approx((0.42, 0.3283, 0.5177), abs=1e-3)  # Wilson, from a table
    assert claims.decide(False, True) == "holds in part"


@pytest.fixture
def page(folder, monkeypatch):
    claim = claims.Claim(
        id="speed.example",
        where="Sec. 1",
        claim="a < b & c",
        statistic="a | b",
        ours="0.5 (0.4 to 0.6)",
        verdict=claims.IN_PART,
    )
    monkeypatch.setattr(speed, "claims", lambda results: [claim])
    execute.draw("speed", folder)
    report_page.write(folder, report_page.read(folder, STUDIES), MISPRINTS)
    return folder / "report.html"


def test_page_is_one_file_with_all_figures_and_claims(page):
    parser = Page(page.read_text())
    assert not parser.open
    assert all(item.startswith(("#", "data:")) for item in parser.loads)
    assert sum(item.startswith("data:image/png") for item in parser.loads) == 1
    text = "".join(parser.text)
    assert "a < b & c" in text and "1 holds in part" in text and "Misprints" in text
    (row,) = json.loads(page.with_name("ledger.json").read_text())
    assert row["study"] == "speed" and row["verdict"] == "holds in part" and row["id"] == "speed.example"
    assert "a \\| b" in page.with_name("ledger.md").read_text()


def test_page_shows_figures_first_and_failures_without_opening_the_ledger(page):
    parts = report_page.read(page.parent, STUDIES)
    assert "Claims that do not hold" not in page.read_text()
    parts["speed"]["claims"][0]["verdict"] = claims.FAILS
    text = report_page.page(page.parent, parts, MISPRINTS)
    figure, failure, folded = (text.index(part) for part in ("<img", '<a href="#speed.example">', 'id="speed-claims"'))
    assert figure < failure < folded < text.index('id="speed.example"')
    fold = text[text.rindex("<details>", 0, folded) : folded]  # a link to what is inside opens it
    assert "1 does not hold" in fold[: fold.index("</summary>")]


@needs_browser
def test_page_opens_in_a_browser_without_an_error(page):
    assert browser_messages(page) == []


def test_help_is_there_without_starting_jax():
    script = """
import sys
from experiments.__main__ import main
try:
    main(["--help"])
finally:
    assert "jax" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "report.html" in done.stdout, done.stderr


@pytest.mark.slow
def test_the_whole_ledger(tmp_path):
    out = tmp_path / "results"
    command = [sys.executable, "-m", "experiments", "--out", str(out), "--no-cache"]
    subprocess.run(command, cwd=ROOT, check=True)
    ledger = json.loads((out / "ledger.json").read_text())
    in_paper = {name for name, entry in STUDIES.items() if entry.in_paper}
    assert {row["study"] for row in ledger} == in_paper
    verdicts = {row["id"]: row["verdict"] for row in ledger}
    assert set(verdicts.values()) <= {claims.HOLDS, claims.IN_PART, claims.FAILS, claims.OPEN}
    assert verdicts["circle.nu_falls"] == "holds"
    for name in in_paper:
        labels = {path.stem for path in out.glob(f"{name}_*.png")}
        assert labels == {f"{name}_{label}" for label in find(name).CAPTIONS}
        assert {path.stem for path in out.glob(f"{name}_*.pdf")} == labels
