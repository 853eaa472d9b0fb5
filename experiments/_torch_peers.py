"""The paper's training job in PyTorch, as users would write it: the peers that `speed` times (extra `bench`)."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils.data import DataLoader, TensorDataset


def make_network(width: int) -> nn.Sequential:
    """1 - width - width - 6; PyTorch's own initialiser is uniform in ±1/√fan_in."""
    return nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 6))


def loss(raw: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The paper's coupled loss for two targets and r = 1, one value per row, in the same stable form as ours."""
    nu = 8 + 5 * torch.tanh(raw[..., 5])
    first = (y[..., 0] - raw[..., 0]) * torch.exp(-raw[..., 2])
    second = (y[..., 1] - raw[..., 1] - raw[..., 3] * first) * torch.exp(-raw[..., 4])
    q = first * first + second * second
    constants = torch.log(torch.pi * (1 + nu)) - torch.log((nu - 1) / 2)
    return constants + raw[..., 2] + raw[..., 4] + (nu + 1) / 2 * torch.log1p(q / (1 + nu))


def loop_seconds(x: np.ndarray, y: np.ndarray, width: int, batch: int, epochs: int) -> float:
    """Seconds for one network, its own optimiser and DataLoader, as the authors' notebook trains it."""
    network = make_network(width)
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    loader = DataLoader(TensorDataset(torch.tensor(x), torch.tensor(y)), batch_size=batch, shuffle=True)
    start = time.perf_counter()
    for _ in range(epochs):
        for rows, targets in loader:
            optimizer.zero_grad()
            loss(network(rows), targets).mean().backward()
            optimizer.step()
    return time.perf_counter() - start


def vectorised_step(x: np.ndarray, y: np.ndarray, members: int, width: int, batch: int, compiled: bool) -> Any:
    """A function that makes one step of all networks, with Adam and own shuffles, under `torch.func.vmap`."""
    networks = [make_network(width) for _ in range(members)]
    params, _ = stack_module_state(networks)
    template = make_network(width).to("meta")
    inputs, targets = torch.tensor(x), torch.tensor(y)

    def mean_loss(params: dict[str, torch.Tensor], rows: torch.Tensor, ys: torch.Tensor) -> torch.Tensor:
        return loss(functional_call(template, params, (rows,)), ys).mean()

    def step(
        params: dict[str, torch.Tensor],
        first: dict[str, torch.Tensor],
        second: dict[str, torch.Tensor],
        number: torch.Tensor,
        index: torch.Tensor,
    ) -> Any:
        gradient = vmap(grad(mean_loss))(params, inputs[index], targets[index])
        first = {name: 0.9 * first[name] + 0.1 * value for name, value in gradient.items()}
        second = {name: 0.999 * second[name] + 0.001 * value * value for name, value in gradient.items()}
        scale, bias = 1 - 0.9**number, 1 - 0.999**number
        params = {
            name: value - 1e-2 * (first[name] / scale) / (torch.sqrt(second[name] / bias) + 1e-8)
            for name, value in params.items()
        }
        return params, first, second

    function: Callable[..., Any] = torch.compile(step) if compiled else step
    with torch.no_grad():
        params = {name: value.detach().clone() for name, value in params.items()}
        zeros = {name: torch.zeros_like(value) for name, value in params.items()}
        state: list[Any] = [params, zeros, {name: value.clone() for name, value in zeros.items()}, 0, None, 0]

    def advance() -> None:
        params, first, second, number, order, place = state
        if order is None or place >= len(inputs):
            order, place = torch.rand(members, len(inputs)).argsort(1), 0
        index = order[:, place : place + batch]
        with torch.no_grad():
            params, first, second = function(params, first, second, torch.tensor(float(number + 1)), index)
        state[:] = [params, first, second, number + 1, order, place + batch]

    return advance
