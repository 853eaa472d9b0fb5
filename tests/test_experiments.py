"""Tiny runs of every study, with their numbers checked, and the command line around them."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from experiments import evidence, speed
from experiments.__main__ import main

ROOT = pathlib.Path(__file__).parent.parent


def test_evidence_agrees_with_its_integral_and_float32_errors_stay_small():
    results = evidence.run(evidence.Config(draws=20_000, points=50))
    assert all(abs(row["deviation"]) < 4 for row in results["monte_carlo"])
    assert max(point["stable"] for point in results["error_over_nu"]) < 1e-5
    assert max(point["slogdet"] for point in results["error_over_nu"]) > 1e-1
    assert max(point["stable"] for point in results["error_over_scale"]) < 1e-4
    assert set(evidence.plot(results)) == {"float32"}


def test_speed_measures_every_form():
    results = speed.run(speed.Config(points=50, sizes=(2,), repeats=2, compile_up_to=2))
    (row,) = results["rows"]
    assert row["ratio"] > 0 and all(row[f"{name}_ms"] > 0 for name in speed.FORMS)
    assert "|  2 |" in speed.report(results) and set(results["compile_s"]) == {"1", "2"}


def test_command_saves_results_that_can_be_drawn_again(tmp_path, capsys):
    out = tmp_path / "results"
    assert (
        main(
            [
                "speed",
                "--points",
                "40",
                "--sizes",
                "1",
                "2",
                "--repeats",
                "1",
                "--compile-up-to",
                "0",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    saved = json.loads((out / "speed.json").read_text())
    assert saved["config"]["points"] == 40 and saved["versions"]["jax"]
    (out / "speed_evidence.png").unlink()
    assert main(["speed", "--plot-only", "--out", str(out)]) == 0
    assert (out / "speed_evidence.png").stat().st_size > 1000
    assert not [name for name in os.listdir(out) if name.startswith(".")]
    assert "as printed" in capsys.readouterr().out


def test_the_name_may_stand_behind_an_option(tmp_path):
    options = ["--points", "10", "--sizes", "1", "--repeats", "1", "--compile-up-to", "0"]
    assert main(["--out", str(tmp_path), "speed", *options]) == 0
    assert (tmp_path / "speed.json").exists()


def test_list_names_every_study(capsys):
    assert main(["--list"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == {"evidence", "speed"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["speed", "--points", "-3"], "must not be negative; got -3"),
        (["speed", "--colour", "red"], "unrecognized arguments: --colour red"),
        (["evidence", "--plot-only", "--out", "{tmp}/nothing"], "no saved results"),
    ],
)
def test_bad_arguments_are_named(arguments, message, tmp_path):
    arguments = [argument.replace("{tmp}", str(tmp_path)) for argument in arguments]
    result = subprocess.run(
        [sys.executable, "-m", "experiments", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode != 0 and message in result.stderr


def test_a_folder_that_cannot_be_written_is_named(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert (
        main(["speed", "--points", "10", "--sizes", "1", "--compile-up-to", "0", "--out", str(blocked / "results")])
        == 1
    )
    assert "cannot write results" in capsys.readouterr().err
