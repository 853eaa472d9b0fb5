"""The paper's training job against peers that do the same, against its floor, and from start to end."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jax import Array, lax

import mder_jax as mder
from experiments.harness.figures import new_figure
from experiments.paper import circle_recipe as recipe
from experiments.speed.clock import in_turn, ratio, seconds, shown, spread, verdict
from experiments.speed.job import Job, in_fresh_process, train
from mder_jax.train.epochs import rounds_for, shuffle_of_pass, shuffled

WHOLE_GOAL = 100.0
COMPILED_GOAL = 2.0
FLOOR_GOAL = 2.5
SHUFFLE_GOAL = 10.0
# On a machine with nothing else to do the floor's slowest round is less than this factor slower than its fastest.
STEADY = 2.0
LABELS = {
    "ours": "fit_ensemble, all cores",
    "jax": "plain JAX, vmap and scan, one device",
    "torch": "torch.func, eager",
    "compiled": "torch.func, torch.compile",
    "loop": "PyTorch loop over networks, rows indexed",
    "loader": "PyTorch loop with a DataLoader",
    "floor": "floor: matrix products at the job's shape",
    "large": "floor: at the rate of 512 x 512",
}


def measure(job: Job, turn_epochs: int, repeats: int, whole_runs: int) -> dict[str, Any]:
    """All parts; `turn_epochs` are trained for one timing."""
    turn = Job(**{**vars(job), "epochs": turn_epochs})
    candidates, notes = ready(contenders(turn))
    if "loop" not in candidates:
        notes.insert(0, "NO PYTORCH ROWS: torch cannot be imported; pip install -e '.[bench]'. Floor: numpy's rate.")
    times = in_turn("steps", candidates, repeats)
    return {
        "job": vars(job),
        "notes": notes,
        "step_ms": {name: spread(1e3 / job.steps * np.array(values)) for name, values in times.items()},
        "against_ours": {name: ratio(values, times["ours"]) for name, values in times.items()},
        "of_floor": {name: ratio(times["ours"], times[name]) for name in ("floor", "large")},
        "shuffle": shuffling(turn, repeats),
        "whole": whole_job(job, candidates.get("loop"), whole_runs),
    }


def contenders(job: Job) -> dict[str, Callable[[], float]]:
    """Functions that train the job and return the seconds of an epoch; those of PyTorch only if it is there."""
    found = {"ours": lambda: train(job)[1], "jax": plain_jax(job)}
    product = _numpy_product
    try:
        from experiments.speed import torch_peers as peers
    except ImportError:
        pass
    else:
        found |= {"torch": peers.vectorised(job, compiled=False), "compiled": peers.vectorised(job, compiled=True)}
        found |= {"loop": lambda: peers.loop(job), "loader": lambda: peers.loop_with_loader(job)}
        product = peers.product
    return found | {
        "floor": floor(job, product, (job.members, job.batch, job.width, job.width)),
        "large": floor(job, product, (1, 512, 512, 512)),
    }


def ready(candidates: dict[str, Callable[[], float]]) -> tuple[dict[str, Callable[[], float]], list[str]]:
    """Those that get through a first run, which compiles them, and a note on each that does not."""
    notes, working = [], {}
    for name, candidate in candidates.items():
        try:
            print(f"  {LABELS[name]}: first run {1e3 * candidate():.2f} ms for an epoch", flush=True)
            working[name] = candidate
        except Exception as error:  # a compiler that is not there must not end the study
            if name in ("ours", "floor", "large"):
                raise
            reason = (str(error).strip() or "no message").splitlines()[0]
            notes.append(f"LEFT OUT: {LABELS[name]}: {type(error).__name__}: {reason}")
    return working, notes


def plain_jax(job: Job) -> Callable[[], float]:
    """The job as one would write it in JAX and Flax at first: vmap over networks of a scan over epochs."""
    X, Y = map(jnp.asarray, job.data())
    hidden: list[Any] = [nn.Dense(job.width), nn.relu, nn.Dense(job.width), nn.relu]
    network = mder.from_linen(nn.Sequential([*hidden, nn.Dense(mder.num_outputs(job.targets))]), link=job.link)
    optimizer = recipe.optimizer(job.epochs * job.steps)

    def step(params: Any, state: Any, rows: Array) -> tuple[Any, Any]:
        gradient = jax.grad(lambda params: jnp.mean(recipe.loss(network.apply(params, X[rows]), Y[rows])))(params)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    def epoch(carry: tuple[Any, Any], key: Array) -> tuple[tuple[Any, Any], None]:
        order = jax.random.permutation(key, job.rows)
        for start in range(0, job.rows, job.batch):
            carry = step(*carry, order[start : start + job.batch])
        return carry, None

    @jax.jit
    @jax.vmap
    def networks(key: Array) -> Any:
        first, later = jax.random.split(key)
        params = network.init(first, X[:1])
        return lax.scan(epoch, (params, optimizer.init(params)), jax.random.split(later, job.epochs))[0]

    keys = jax.random.split(jax.random.key(job.seed), job.members)
    return lambda: seconds(lambda: jax.block_until_ready(networks(keys))) / job.epochs


def floor(job: Job, product: Callable[..., Callable[[], Any]], shape: tuple[int, int, int, int]) -> Callable[[], float]:
    """Seconds of an epoch if it were its matrix products only, at the rate of products of this shape."""
    multiply, each = product(*shape), 2 * int(np.prod(shape))
    count = max(1, job.flop * job.epochs // each)

    def products() -> None:
        for _ in range(count):
            multiply()

    def epoch() -> float:
        multiply()
        return seconds(products) / (count * each) * job.flop

    return epoch


def _numpy_product(batch: int, rows: int, inner: int, columns: int) -> Callable[[], Any]:
    left, right = np.ones((batch, rows, inner), np.float32), np.ones((batch, inner, columns), np.float32)
    return lambda: left @ right


def shuffling(job: Job, repeats: int) -> dict[str, float]:
    """The time of the shuffles of an epoch in percent of the epoch; each device shuffles for its members."""
    size, places = jnp.int32(job.rows), jnp.arange(job.rows, dtype=jnp.int32)
    seeds = jax.random.bits(jax.random.key(job.seed), (-(-job.members // jax.device_count()), 2), jnp.uint32)

    @jax.jit
    @jax.vmap
    def passes(seed: Array) -> Array:
        def one(total: Array, number: Array) -> tuple[Array, None]:
            return total + shuffled(places, shuffle_of_pass(seed, number, size, rounds_for(job.rows))), None

        return lax.scan(one, jnp.zeros_like(places), jnp.arange(job.epochs))[0]

    def shuffles() -> float:
        return seconds(lambda: jax.block_until_ready(passes(seeds))) / job.epochs

    shuffles()
    times = in_turn("shuffling", {"epoch": lambda: train(job)[1], "shuffles": shuffles}, repeats)
    return spread(100 * np.array(times["shuffles"]) / np.array(times["epoch"]))


def whole_job(job: Job, loop: Callable[[], float] | None, runs: int) -> dict[str, Any]:
    """A process that imports, compiles, trains and exits, against the loop, each after the other."""
    candidates: dict[str, Callable[[], Any]] = {"ours": lambda: in_fresh_process(job)}
    if loop is not None:
        candidates["loop"] = loop
    results = in_turn("whole job", candidates, runs)
    walls = [result["wall_s"] for result in results["ours"]]
    whole = {"ours_s": spread(walls), "diverged": results["ours"][0]["diverged"]}
    if loop is not None:
        extrapolated = [job.epochs * epoch_s for epoch_s in results["loop"]]
        whole |= {"loop_s": spread(extrapolated), "ratio": ratio(extrapolated, walls)}
    return whole


def report(results: dict[str, Any]) -> str:
    """The tables of docs/speed, and the goals."""
    job, whole = Job(**results["job"]), results["whole"]
    lines = [
        f"training {job.members} networks 1-{job.width}-{job.width}-{job.layers[-1][1]} on {job.rows} points in "
        f"batches of {job.batch}, float32, median of rounds (range)",
        "| one step of all networks                  | ms                        | times ours (range)         |",
        "|-------------------------------------------|---------------------------|----------------------------|",
    ]
    for name, values in results["step_ms"].items():
        against = "" if name == "ours" else shown(results["against_ours"][name], 2)
        lines.append(f"| {LABELS[name]:41} | {shown(values, 2):25} | {against:26} |")
    lines.append(f"whole job, {job.epochs} epochs, imports and compilation included: {shown(whole['ours_s'])} s")
    if "ratio" in whole:
        lines.append(f"{LABELS['loop']}, extrapolated from one network a round: {shown(whole['loop_s'], 0)} s")
    lines += [f"members that diverged in the whole job: {whole['diverged']} of {job.members}", *results["notes"]]
    floor = results["step_ms"]["floor"]
    if (factor := floor["high"] / floor["low"]) > STEADY:
        what = f"the floor itself varied by a factor of {factor:.1f}, so other programs had the cores"
        lines.append(f"NOT VALID: {what}; disregard the goals below and run again on an idle machine")
    return "\n".join([*lines, *_goals(results)])


def _goals(results: dict[str, Any]) -> list[str]:
    of_peers = {
        "whole job, times faster than the PyTorch loop, rows indexed": (results["whole"].get("ratio"), WHOLE_GOAL, 1),
        "a step, times faster than torch.compile": (results["against_ours"].get("compiled"), COMPILED_GOAL, 2),
    }
    return [
        *(
            verdict(what, found, goal, True, places) if found else f"NOT MEASURED: {what}: needs PyTorch"
            for what, (found, goal, places) in of_peers.items()
        ),
        verdict("a step, times its floor", results["of_floor"]["floor"], FLOOR_GOAL, at_least=False, places=2),
        f"         times the stricter floor, at the rate of large products: {shown(results['of_floor']['large'], 2)}",
        verdict("shuffling, % of an epoch", results["shuffle"], SHUFFLE_GOAL, at_least=False),
    ]


def plot(results: dict[str, Any]) -> Any:
    """A bar for each way to make a step."""
    figure, axes = new_figure(width=6.5, height=3.2)
    bars = {name: values for name, values in results["step_ms"].items() if name not in ("floor", "large")}
    for place, (name, values) in enumerate(bars.items()):
        axes.barh(place, values["median"], color="C0" if name == "ours" else "0.7")
        axes.plot([values["low"], values["high"]], [place, place], color="0.2")
        axes.text(values["high"] * 1.1, place, f"{values['median']:.2f} ms", va="center")
    for name, style in (("floor", "--"), ("large", ":")):
        axes.axvline(results["step_ms"][name]["median"], color="C1", linestyle=style, label=LABELS[name])
    axes.set(xscale="log", xlabel=f"ms for one step of all {results['job']['members']} networks")
    axes.set_xlim(right=4 * max(values["high"] for values in bars.values()))
    axes.set_yticks(range(len(bars)), [LABELS[name] for name in bars])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.3, -0.2), ncols=1)
    return figure
