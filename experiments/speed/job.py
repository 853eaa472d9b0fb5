"""The paper's training job in any size, trained under a clock, here or in a separate process.

``python -m experiments.speed.job '{"members": 100}'`` is that process.
"""

import json
import math
import pathlib
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np

import mder_jax as mder
from experiments.paper.circle_recipe import loss, optimizer


@dataclass(frozen=True)
class Job:
    """Networks 1 - width - width - outputs on the noisy circle; the defaults are the paper's."""

    members: int = 100
    rows: int = 270
    width: int = 32
    targets: int = 2
    batch: int = 100
    epochs: int = 1500
    seed: int = 0

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return math.ceil(self.rows / self.batch)

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Inputs and outputs of each layer."""
        return [(1, self.width), (self.width, self.width), (self.width, mder.num_outputs(self.targets))]

    @property
    def flop(self) -> int:
        """Of an epoch's matrix products: forward, by the weights, and by the input except in the first layer."""
        products = sum((2 if layer == 0 else 3) * i * o for layer, (i, o) in enumerate(self.layers))
        return 2 * self.rows * self.members * products

    @property
    def decays(self) -> tuple[int, int]:
        """Epochs at which the learning rate falls."""
        return self.epochs // 3, 2 * self.epochs // 3

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Angles (rows, 1) and points (rows, targets) on a circle of noisy radius, float32."""
        rng = np.random.default_rng(self.seed)
        angle, radius = rng.uniform(0, 2 * np.pi, (self.rows, 1)), rng.normal(1, 0.1, (self.rows, 1))
        targets = radius * np.cos(angle - np.pi * np.arange(self.targets) / self.targets)
        return angle.astype(np.float32), targets.astype(np.float32)

    def link(self, raw: jax.Array) -> mder.NIW:
        """From a network's raw outputs to the NIW."""
        return mder.niw_link(raw, n=self.targets)


def train(job: Job) -> tuple[mder.Ensemble, float]:
    """Train on all devices; the members, and the seconds of an epoch without compilation and start."""
    network = mder.mlp((job.width, job.width), mder.num_outputs(job.targets), link=job.link)
    options: dict[str, Any] = {"members": job.members, "batch_size": job.batch, "epochs": job.epochs}
    options |= {"optimizer": optimizer(job.epochs * job.steps), "progress": False}
    ensemble = mder.fit_ensemble(jax.random.key(job.seed), network, loss, *job.data(), **options)
    return ensemble, ensemble.seconds / ensemble.epochs


def in_fresh_process(job: Job) -> dict[str, float]:
    """Train in a new process on all cores: its wall time, seconds of an epoch, peak memory and diverged members."""
    command = [sys.executable, "-W", "ignore", "-m", "experiments.speed.job", json.dumps(asdict(job))]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=pathlib.Path(__file__).parents[2], stdout=subprocess.PIPE, check=True)
    return {"wall_s": time.perf_counter() - start, **json.loads(done.stdout)}


def peak_megabytes() -> float:
    """The most memory this process has held. Linux counts a parent's in ru_maxrss, so its own record goes first."""
    record = pathlib.Path("/proc/self/status")
    lines = record.read_text().splitlines() if record.exists() else []
    own = [float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")]
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return own[0] if own else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def main() -> None:
    """Train the job of the first argument and print what was measured."""
    mder.use_all_cores()
    jax.config.update("jax_enable_compilation_cache", False)
    ensemble, seconds = train(Job(**json.loads(sys.argv[1])))
    diverged = int(np.sum(ensemble.diverged_at >= 0))
    print(json.dumps({"epoch_s": seconds, "peak_mb": peak_megabytes(), "diverged": diverged}))


if __name__ == "__main__":
    main()
