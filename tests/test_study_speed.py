"""Tiny runs of the speed study, with their numbers checked."""

import sys

import jax
import numpy as np
import pytest

from experiments import speed
from experiments.speed import growth, training
from experiments.speed.job import Job


def test_speed_measures_every_form():
    results = speed.run(speed.Config(parts=("evidence",), points=50, sizes=(2,), repeats=2, compile_up_to=2))
    (row,) = results["evidence"]["rows"]
    assert row["ratio"]["low"] > 0 and all(row[f"{name}_ms"] > 0 for name in ("slogdet", "stable", "missing"))
    assert "|  2 |" in speed.report(results) and set(results["evidence"]["compile_s"]) == {"1", "2"}


@pytest.mark.slow
def test_speed_measures_training_and_says_that_torch_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    small = {"members": 2, "rows": 16, "batch": 16, "epochs": 3, "turn_epochs": 2, "repeats": 1, "whole_runs": 1}
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax and Flax need them
        results = speed.run(speed.Config(parts=("training",), **small))
    training = results["training"]
    assert set(training["step_ms"]) == {"ours", "jax", "floor", "large"}
    assert all(values["median"] > 0 for values in training["step_ms"].values())
    assert training["whole"]["ours_s"]["median"] > 0 and training["whole"]["diverged"] == 0
    text = speed.report(results)
    assert "NO PYTORCH ROWS" in text and text.count("NOT MEASURED") == 2 and "% of an epoch" in text
    assert set(speed.plot(results)) == {"training"}
    training["step_ms"]["floor"] = {"low": 1.0, "median": 2.0, "high": 4.0}
    assert "NOT VALID: the floor itself varied by a factor of 4.0" in speed.report(results)


def test_speed_judges_growth_against_the_best_of_each_round(monkeypatch):
    seconds = iter([2.0, 24.0, 100.0, 4.0, 36.0, 200.0])  # two rounds of 2, 12 and 100 networks

    def fresh(job: Job) -> dict[str, float]:
        return {"wall_s": 1.0, "epoch_s": next(seconds), "peak_mb": 300.0, "diverged": 0}

    monkeypatch.setattr(growth, "in_fresh_process", fresh)
    others = {"growth_rows": (), "growth_widths": (), "growth_targets": ()}
    results = speed.run(speed.Config(parts=("growth",), growth_members=(2, 12, 100), growth_runs=2, **others))
    assert [row["of_best"]["median"] for row in results["growth"]["rows"]] == [1.0, 1.75, 1.0]
    assert "MISSED : time per network and epoch within 1.3 of its best from 10 networks on: not for [12]" in (
        speed.report(results)
    )
    assert set(speed.plot(results)) == {"growth"}


def test_speed_trains_larger_jobs_for_fewer_epochs():
    job = Job()
    assert growth.shortened(job, 200.0).epochs == int(200e9 / job.flop)
    assert growth.shortened(Job(members=2), 200.0).epochs == 1500
    assert growth.shortened(Job(rows=10**6), 200.0).epochs == 5


def test_speed_counts_the_products_of_an_epoch():
    layers = 2 * 1 * 32 + 3 * 32 * 32 + 3 * 32 * 6
    assert Job().flop == 2 * 270 * 100 * layers and Job().steps == 3


def test_speed_leaves_out_a_peer_that_fails_and_says_so():
    def broken() -> float:
        raise RuntimeError("no compiler")

    working, notes = training.ready({"ours": lambda: 1.0, "compiled": broken})
    assert set(working) == {"ours"} and notes == ["LEFT OUT: torch.func, torch.compile: RuntimeError: no compiler"]


@pytest.mark.parametrize("name", ["loop", "loop_with_loader"])
def test_speed_loops_of_pytorch_see_every_row_once_in_an_epoch(monkeypatch, name):
    pytest.importorskip("torch")
    from experiments.speed import torch_peers as peers

    seen, loss = [], peers.loss
    monkeypatch.setattr(peers, "loss", lambda raw, y: seen.append(y.numpy()) or loss(raw, y))
    job = Job(members=3, rows=10, batch=4, epochs=2)
    assert getattr(peers, name)(job) > 0
    assert [len(y) for y in seen] == [4, 4, 2] * 2
    _, Y = job.data()
    epochs = [np.concatenate(seen[:3]), np.concatenate(seen[3:])]
    assert all(np.array_equal(np.sort(y, axis=0), np.sort(Y, axis=0)) for y in epochs)
    assert not np.array_equal(*epochs) and not np.array_equal(epochs[0], Y)
    monkeypatch.setattr(peers, name, lambda job: 5.0)
    assert training.contenders(job)["loop" if name == "loop" else "loader"]() == 5.0


def test_speed_judges_against_the_loop_that_indexes_rows(monkeypatch):
    same = {"low": 1.0, "median": 1.0, "high": 1.0}
    whole = {"ours_s": same, "diverged": 0, "loop_s": same, "ratio": same}
    rows = dict.fromkeys(training.LABELS, same)
    results = {"job": vars(Job()), "notes": [], "step_ms": rows, "against_ours": rows, "of_floor": rows}
    text = training.report(results | {"shuffle": same, "whole": whole})
    assert "| PyTorch loop over networks, rows indexed  |" in text and "| PyTorch loop with a DataLoader" in text
    assert "faster than the PyTorch loop, rows indexed" in text
    loops, loop = [], lambda: 2.0
    monkeypatch.setattr(training, "contenders", lambda job: dict.fromkeys(rows, lambda: 1.0) | {"loop": loop})
    monkeypatch.setattr(training, "shuffling", lambda *_: same)
    monkeypatch.setattr(training, "whole_job", lambda job, loop, runs: loops.append(loop))
    found = training.measure(Job(), 1, 1, 1)
    assert loops == [loop] and found["against_ours"]["loop"]["median"] == 2.0


@pytest.mark.slow
def test_speed_measures_the_estimator():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        results = speed.run(speed.Config(parts=("estimator",), table_rows=60, table_epochs=2, table_runs=1))
    text = speed.report(results)
    assert "MLPRegressor 10 times against MDERRegressor" in text and "60 rows" in text
    assert all(len(seconds) == 1 and seconds[0] > 0 for seconds in results["estimator"]["seconds"].values())
    assert set(speed.plot(results)) == {"estimator"}
