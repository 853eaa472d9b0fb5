"""The paper's training job in PyTorch, as users would write it: the peers that `speed` times (extra `bench`)."""

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils.data import DataLoader, TensorDataset

from experiments.paper.circle_recipe import DECAY, RATE
from experiments.speed.job import Job

Tensors = dict[str, torch.Tensor]


def make_network(job: Job) -> nn.Sequential:
    """The same layers; PyTorch's own initialiser is uniform in ±1/√fan_in."""
    linear = [nn.Linear(inputs, outputs) for inputs, outputs in job.layers]
    return nn.Sequential(linear[0], nn.ReLU(), linear[1], nn.ReLU(), linear[2])


def loss(raw: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The paper's coupled loss for two targets and r = 1, one value per row, in the same stable form as ours."""
    nu = 8 + 5 * torch.tanh(raw[..., 5])
    first = (y[..., 0] - raw[..., 0]) * torch.exp(-raw[..., 2])
    second = (y[..., 1] - raw[..., 1] - raw[..., 3] * first) * torch.exp(-raw[..., 4])
    q = first * first + second * second
    constants = torch.log(torch.pi * (1 + nu)) - torch.log((nu - 1) / 2)
    return constants + raw[..., 2] + raw[..., 4] + (nu + 1) / 2 * torch.log1p(q / (1 + nu))


def loop(job: Job) -> float:
    """Seconds of an epoch of one network with its own optimiser, rows indexed, times the number of networks."""
    x, y = map(torch.tensor, job.data())
    return _one_by_one(job, lambda: ((x[index], y[index]) for index in torch.randperm(job.rows).split(job.batch)))


def loop_with_loader(job: Job) -> float:
    """The same with a DataLoader, which puts a minibatch together row by row."""
    loader = DataLoader(TensorDataset(*map(torch.tensor, job.data())), job.batch, shuffle=True)
    return _one_by_one(job, lambda: loader)


def _one_by_one(job: Job, minibatches: Callable[[], Iterable[Any]]) -> float:
    network = make_network(job)
    optimizer = torch.optim.Adam(network.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, job.decays, DECAY)
    start = time.perf_counter()
    for _ in range(job.epochs):
        for rows, targets in minibatches():
            optimizer.zero_grad()
            loss(network(rows), targets).mean().backward()
            optimizer.step()
        schedule.step()
    return job.members * (time.perf_counter() - start) / job.epochs


def vectorised(job: Job, compiled: bool) -> Callable[[], float]:
    """A function that trains all networks under `vmap`, and returns the seconds of an epoch."""
    x, y = map(torch.tensor, job.data())
    step = make_step(job, x, y)
    # Without dynamic=False the short last batch would make one slower program for all lengths.
    step = torch.compile(step, dynamic=False) if compiled else step

    def epochs() -> float:
        networks = stack_module_state([make_network(job) for _ in range(job.members)])[0]
        params = {name: value.detach() for name, value in networks.items()}
        moments = [{name: torch.zeros_like(value) for name, value in params.items()} for _ in range(2)]
        number = itertools.count(1)
        start = time.perf_counter()
        for epoch in range(job.epochs):
            rate = torch.tensor(RATE * DECAY ** sum(epoch >= decay for decay in job.decays))
            for index in torch.rand(job.members, job.rows).argsort(1).split(job.batch, 1):
                params, *moments = step(params, *moments, torch.tensor(float(next(number))), rate, index)
        return (time.perf_counter() - start) / job.epochs

    return torch.no_grad()(epochs)


def make_step(job: Job, x: torch.Tensor, y: torch.Tensor) -> Callable[..., Any]:
    """One step of all networks with Adam, a pure function."""
    template = make_network(job).to("meta")

    def mean_loss(params: Tensors, rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return loss(functional_call(template, params, (rows,)), targets).mean()

    def step(
        params: Tensors,
        first: Tensors,
        second: Tensors,
        number: torch.Tensor,
        rate: torch.Tensor,
        index: torch.Tensor,
    ) -> tuple[Tensors, Tensors, Tensors]:
        gradient = vmap(grad(mean_loss))(params, x[index], y[index])
        first = {name: 0.9 * first[name] + 0.1 * value for name, value in gradient.items()}
        second = {name: 0.999 * second[name] + 0.001 * value * value for name, value in gradient.items()}
        scale, bias = 1 - 0.9**number, 1 - 0.999**number
        params = {
            name: value - rate * (first[name] / scale) / (torch.sqrt(second[name] / bias) + 1e-8)
            for name, value in params.items()
        }
        return params, first, second

    return step


def product(batch: int, rows: int, inner: int, columns: int) -> Callable[[], Any]:
    """A function that makes one batch of matrix products in float32, with all threads."""
    left, right = torch.rand(batch, rows, inner), torch.rand(batch, inner, columns)
    out = torch.empty(batch, rows, columns)
    return lambda: torch.bmm(left, right, out=out)
