"""How much faster the stable form of the evidence is than the printed one: value and gradient, ratios in one run."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mder_jax as mder
from experiments.harness.figures import new_figure, size_axis
from experiments.speed.clock import in_turn, ratio, seconds, shown

GOALS = {2: 3.0, 4: 15.0, 8: 8.0, 16: 4.0}
COMPILE_GOAL = 2.0
FORMS: dict[str, dict[str, Any]] = {
    "slogdet": {"form": "slogdet"},
    "stable": {},
    "missing": {"missing": True},
}


def measure(points: int, sizes: tuple[int, ...], compile_up_to: int, repeats: int, seed: int) -> dict[str, Any]:
    """Time all forms in turn, so that a slow moment of the machine affects them identically."""
    rows = []
    for n in sizes:
        arguments = examples(np.random.default_rng(seed), points, n)
        row: dict[str, Any] = {"n": n}
        candidates = {}
        for name, options in FORMS.items():
            compiled, row[f"{name}_compile_s"] = compile_form(options, arguments)
            candidates[name] = partial(
                _milliseconds, compiled, with_gaps(arguments) if name == "missing" else arguments
            )
            candidates[name]()  # the first call is slower
        times = in_turn(f"n = {n}", candidates, repeats)
        row |= {f"{name}_ms": float(np.median(values)) for name, values in times.items()}
        rows.append(row | {"ratio": ratio(times["slogdet"], times["stable"])})
    compile_s = {}
    for n in range(1, compile_up_to + 1):
        one = examples(np.random.default_rng(seed), 1, n)
        shapes = [jax.ShapeDtypeStruct((points, *array.shape[1:]), array.dtype) for array in one]
        compile_s[str(n)] = compile_form(FORMS["stable"], shapes)[1]
    return {"points": points, "rows": rows, "compile_s": compile_s}


def _milliseconds(program: Callable[..., Any], arguments: list[jax.Array]) -> float:
    return 1e3 * seconds(lambda: jax.block_until_ready(program(*arguments)))


def compile_form(options: dict[str, Any], arguments: list[Any]) -> tuple[Callable[..., Any], float]:
    """A form of the evidence and its gradient as a program, and the seconds to trace and compile it."""
    start = time.perf_counter()
    program = jax.jit(value_and_gradient(options)).lower(*arguments).compile()
    return program, time.perf_counter() - start


def value_and_gradient(options: dict[str, Any]) -> Callable[..., Any]:
    """The sum of the evidence over examples, and its gradient in every parameter."""

    def total(mu: jax.Array, L: jax.Array, kappa: jax.Array, nu: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.sum(mder.log_evidence(mder.NIW(mu, L, kappa, nu), y, **options))

    return jax.value_and_grad(total, argnums=(0, 1, 2, 3))


def examples(rng: np.random.Generator, points: int, n: int) -> list[jax.Array]:
    """Random float32 parameters and targets."""
    L = np.tril(0.3 * rng.normal(size=(points, n, n)))
    L[:, range(n), range(n)] = np.exp(0.3 * rng.normal(size=(points, n)))
    mu, y = rng.normal(size=(2, points, n))
    kappa, excess = np.exp(rng.normal(size=(2, points)))
    return [jnp.asarray(array, jnp.float32) for array in (mu, L, kappa, n + 1 + excess, y)]


def with_gaps(arguments: list[jax.Array]) -> list[jax.Array]:
    """The same with every tenth target missing."""
    *parameters, y = arguments
    return [*parameters, jnp.where(jnp.arange(y.size).reshape(y.shape) % 10 == 0, jnp.nan, y)]


def report(results: dict[str, Any]) -> str:
    """The table of docs/speed."""
    lines = [
        f"evidence of {results['points']:,} points, value and gradient, float32, median ms",
        "|  n | as printed | stable | ratio (range)      | goal | compile s | with missing targets |",
        "|---:|-----------:|-------:|--------------------|-----:|----------:|---------------------:|",
    ]
    for row in results["rows"]:
        lines.append(
            f"| {row['n']:2} | {row['slogdet_ms']:10.2f} | {row['stable_ms']:6.2f} | {shown(row['ratio']):18} "
            f"| {GOALS.get(row['n'], ''):>4} | {row['stable_compile_s']:9.2f} | {row['missing_ms']:20.2f} |"
        )
    missed = [row["n"] for row in results["rows"] if row["ratio"]["median"] < GOALS.get(row["n"], 0)]
    lines.append(f"ratios below their goal: n = {missed}" if missed else "every ratio reaches its goal")
    if results["compile_s"]:
        n, slowest = max(results["compile_s"].items(), key=lambda item: item[1])
        verdict = "within" if slowest <= COMPILE_GOAL else "NOT within"
        lines.append(
            f"compiling, n = 1 to {len(results['compile_s'])}: all {verdict} {COMPILE_GOAL:g} s, "
            f"slowest {slowest:.2f} s (n = {n})"
        )
    return "\n".join(lines)


def plot(results: dict[str, Any]) -> Any:
    """Time against n."""
    figure, axes = new_figure()
    n = [row["n"] for row in results["rows"]]
    for name, label in (("slogdet", "as printed (slogdet)"), ("missing", "stable, NaN allowed"), ("stable", "stable")):
        axes.loglog(n, [row[f"{name}_ms"] for row in results["rows"]], marker=".", label=label)
    size_axis(axes, n, "number of targets n")
    axes.set_ylabel(f"ms for {results['points']:,} points")
    axes.legend()
    return figure
