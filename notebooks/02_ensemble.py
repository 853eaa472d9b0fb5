# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
"""
# A hundred networks in one compiled program

The paper trains a hundred small networks on the same data. This notebook does it step by step: first with `jax.vmap`
alone, then with `mder.fit_ensemble`, which is the same idea with shuffled minibatches, several devices and care for
members that fail. Then it looks at what the networks learned, and at what they did not.

The data and the recipe are those of Sec. 4 and App. E of Meinert and Lavin,
[arXiv:2104.06135](https://arxiv.org/abs/2104.06135).
"""

# %%
import functools
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import mder_jax as mder
from mder_jax import plotting

mder.use_all_cores()  # before anything else: one JAX device for each CPU core
plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
print(f"JAX sees {len(jax.devices())} device(s): {jax.devices()}")

# %% [markdown]
# ## The data
#
# 300 points $(x, y) = (1 + \epsilon)(\cos t, \sin t)$ with $\epsilon \sim \mathcal N(0, 0.1^2)$. The input is $t$, the
# targets are $x$ and $y$. The noise moves a point along the radius only, so $x$ and $y$ are fully correlated (App. E).
# 2000 more points are kept for the end.

# %%
table = jax.jit(mder.datasets.circle, static_argnames="points")(jax.random.key(1), points=2300)
(t, fresh_t), (xy, fresh_xy) = (np.split(np.asarray(part), [300]) for part in table)
figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
points = left.scatter(*xy.T, c=t[:, 0], s=9, vmin=0, vmax=2 * np.pi)
left.set(xlabel="x", ylabel="y", aspect="equal")
figure.colorbar(points, ax=left, label="t (rad)")
right.hist(t[:, 0], bins=np.linspace(0, 2 * np.pi, 25), color="0.7")
right.set(xlabel="t (rad)", ylabel="number of points")
figure.get_layout_engine().set(wspace=0.1)
plt.show()
sparse = np.abs(t[:, 0] - np.pi) < np.pi / 4
dense = np.minimum(t[:, 0], 2 * np.pi - t[:, 0]) < np.pi / 4
print(f"within π/4 of t = 0 and 2π: {dense.sum()} points; within π/4 of t = π: {sparse.sum()}")

# %% [markdown]
# Left: the points, with $t$ as colour. Right: their number over $t$. Data are dense at $t = 0$ and $2\pi$, the right
# end of the circle, and sparse at $t = \pi$, its left end.
#
# ## One network, then a hundred
#
# A network of this library is a pair of functions: `init(key, x)` makes parameters, `apply(params, x)` turns rows into
# the output, here one NIW for each row. The paper's network has two hidden layers of 32 and six outputs. The link turns
# these into $\mu_0$, $L$ and $\nu = 8 + 5\tanh p_6$, and sets $\kappa = \nu/r$ with $r = 1$ (eq:kappanucoupling).

# %%
network = mder.mlp((32, 32), mder.num_outputs(2), link=functools.partial(mder.niw_link, n=2, r=1.0))


def show_shapes(tree):
    """Print name and shape of each array of a tree."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        print(f"{jax.tree_util.keystr(path, simple=True, separator=' / '):20s} {leaf.shape}")


init = jax.jit(network.init)
one = init(jax.random.key(0), t[:1])
show_shapes(one)
print("parameters in all:", sum(leaf.size for leaf in jax.tree.leaves(one)))

# %% [markdown]
# The parameters are a tree of arrays. `jax.vmap` over a hundred keys gives the same tree, with one more axis in front
# of each array. Slice 7 of all arrays is the network that key 7 makes on its own.

# %%
MEMBERS = 100
keys = jax.random.split(jax.random.key(0), MEMBERS)
stacked = jax.jit(jax.vmap(network.init, in_axes=(0, None)))(keys, t[:1])
show_shapes(stacked)
seventh = jax.tree.map(lambda leaf: np.asarray(leaf)[7], stacked)
same = jax.tree.map(np.array_equal, seventh, init(keys[7], t[:1]))
print("slice 7 is what key 7 makes on its own:", all(jax.tree.leaves(same)))
assert all(jax.tree.leaves(same))

# %% [markdown]
# `apply` becomes the forward pass of the ensemble in the same way: one slice of the parameters for each member (`0`),
# the same rows for all (`None`). The output is one NIW whose arrays have the shape (members, rows, ...).

# %%
niw = jax.jit(jax.vmap(network.apply, in_axes=(0, None)))(stacked, t)
show_shapes(niw)
assert niw.batch_shape == (MEMBERS, 300)

# %% [markdown]
# ## Training by hand
#
# The loss of one network is the mean of eq:nll over rows. `vmap` of a training step is a step of all networks at once;
# nothing in it goes from one member to another. Five steps of Adam, all rows in each:

# %%
loss = functools.partial(mder.mder_nll, missing=False)  # no target is missing: the faster form
optimizer = optax.adam(1e-3)


def objective(params):
    """Mean loss of one network over all rows."""
    return jnp.mean(loss(network.apply(params, t), xy))


@jax.jit
@jax.vmap
def step(params, state):
    """One step, written for one network."""
    value, gradient = jax.value_and_grad(objective)(params)
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state, value


params, state, values = stacked, jax.jit(jax.vmap(optimizer.init))(stacked), []
for _ in range(5):
    params, state, value = step(params, state)
    values.append(value)
by_hand = np.stack(values, axis=1)
print("shape of the losses:", by_hand.shape)
print("mean over members, step by step:", by_hand.mean(axis=0).round(3))

# %% [markdown]
# `fit_ensemble` does the same. For the comparison it gets a network that starts at our parameters: a `PerMember` is one
# value for each member, in the place of an argument that all share. Without `batch_size` an epoch is one step.

# %%
from_ours = mder.PerMember(stacked, lambda start: mder.Network(init=lambda key, x: start, apply=network.apply))
result = mder.fit_ensemble(keys, from_ours, loss, t, xy, optimizer=optimizer, epochs=5, progress=False)
largest = np.abs(result.history.train - by_hand).max()
print(f"largest difference of a loss, {MEMBERS} members and 5 steps: {largest:.0e}")
assert largest < 1e-4

# %% [markdown]
# ## The paper's recipe
#
# Adam with learning rates 1e-2, 1e-3 and 1e-4 for a third of the steps each, minibatches of 100, 1500 epochs.
# `fit_ensemble` gives each member its own initial parameters and its own shuffles.

# %%
EPOCHS = 1500
steps = EPOCHS * 3  # 300 rows in minibatches of 100
schedule = optax.piecewise_constant_schedule(1e-2, {steps // 3: 0.1, 2 * steps // 3: 0.1})
recipe = {"optimizer": optax.adam(schedule), "batch_size": 100, "epochs": EPOCHS}

start = time.perf_counter()
ensemble = mder.fit_ensemble(keys, network, loss, t, xy, progress=False, **recipe)
print(f"{ensemble}: {time.perf_counter() - start:.1f} s, of which {ensemble.seconds:.1f} s are training")
print("diverged members:", int(np.sum(ensemble.diverged_at >= 0)))

# %% [markdown]
# A member whose loss became non-finite would be named in a warning, with its epoch in `ensemble.diverged_at` (−1:
# never). It would be left out of the predictions below by `ensemble.keep(ensemble.diverged_at < 0)`.

# %%
low, median, high = np.nanquantile(ensemble.history.train, [0.05, 0.5, 0.95], axis=0)
epochs = np.arange(1, EPOCHS + 1)
figure, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
ax.fill_between(epochs, low, high, color=BLUE, alpha=0.3, lw=0, label="5 to 95 % of the members")
ax.plot(epochs, median, color=ORANGE, lw=1.5, label="median")
for third in (1, 2):
    ax.axvline(third * EPOCHS / 3, color="0.4", lw=0.8, ls=":", label="learning rate / 10" if third == 1 else None)
ax.set(xlabel="epoch", ylabel="mean loss (nats)")
ax.legend()
plt.show()
print(f"last epoch: median {median[-1]:.2f}, 5 to 95 % of the members {low[-1]:.2f} to {high[-1]:.2f}")

# %% [markdown]
# The loss falls below zero because a density can exceed 1. At each change of the learning rate it steps down and
# becomes calmer.
#
# ## Member i is `fit` with key i
#
# `fit` is one training run as a pure function of its key, and member 7 should be what it makes with key 7. Over the
# first 20 epochs, which are 60 steps, it is, up to the rounding of float32:

# %%
fit_one = jax.jit(lambda key: mder.fit(key, network, loss, t, xy, **(recipe | {"epochs": 200})))
of_seven, of_eight = ensemble.history.train[7, :200], ensemble.history.train[8, :200]
apart = np.abs(fit_one(keys[7]).history.train - of_seven)
for epoch in (1, 20, 50, 200):
    print(f"largest difference of the loss up to epoch {epoch:3d}: {apart[:epoch].max():.0e}")
print(f"the same between members 7 and 8, epochs 101 to 200: {np.abs(of_seven - of_eight)[100:].max():.0e}")
assert apart[:20].max() < 1e-5

# %% [markdown]
# Later the two runs part. They are the same computation, but two programs round differently, and training at this
# learning rate amplifies the rounding until the losses differ as those of two members do.
#
# ## What the networks predict
#
# `predict` runs all members on new inputs: here a grid of $t$ and the 2000 fresh points.

# %%
ensemble = ensemble.keep(ensemble.diverged_at < 0)
grid = np.linspace(0, 2 * np.pi, 401, dtype=np.float32)
predicted = jax.tree.map(np.asarray, mder.predict(ensemble, np.concatenate([grid[:, None], fresh_t])))
niw = jax.tree.map(lambda leaf: leaf[:, :401], predicted)
niw_fresh = jax.tree.map(lambda leaf: leaf[:, 401:], predicted)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8), width_ratios=[1, 1.4], layout="constrained")
left.plot(niw.mu[..., 0].T, niw.mu[..., 1].T, color=BLUE, lw=0.4, alpha=0.3)
left.plot([], [], color=BLUE, label="μ₀ of all members")
left.plot(np.cos(grid), np.sin(grid), color="black", lw=1.2, ls=":", label="truth")
left.set(xlabel="x", ylabel="y", aspect="equal", xlim=(-1.5, 1.5), ylim=(-1.5, 1.5))
left.legend(loc="center", fontsize="small")
plotting.nu_gate(grid, niw, ax=right)
right.set(xlabel="t (rad)", ylim=(2.5, 13.5))
plt.show()
dense, sparse = np.minimum(grid, 2 * np.pi - grid) < np.pi / 4, np.abs(grid - np.pi) < np.pi / 4
fall = niw.nu[:, dense].mean(axis=1) - niw.nu[:, sparse].mean(axis=1)
print(f"median of ν within π/4 of 0 and 2π: {np.median(niw.nu[:, dense]):.1f}")
print(f"median of ν within π/4 of π:        {np.median(niw.nu[:, sparse]):.1f}")
print(f"members in which ν falls by more than 1 towards π: {np.mean(fall > 1):.0%}, rises: {np.mean(fall < -1):.0%}")
print(f"members with ν > 12 on the whole grid: {np.mean(niw.nu.min(axis=1) > 12):.0%}")
scatter = np.linalg.norm(niw.mu.std(axis=0), axis=1)
print(f"scatter of μ₀ between members: dense {np.median(scatter[dense]):.3f}, sparse {np.median(scatter[sparse]):.3f}")
assert np.median(fall) > 0

# %% [markdown]
# Left: the predicted means follow the circle, and scatter most on its left, where data are sparse. Right: the gate
# $\nu$ (fig:nu of the paper). In many members it is open (13) where data are dense and closes towards $t = \pi$. In
# others it stays open everywhere: not all networks find the same solution, as the paper says.
#
# ## Covariance and correlation
#
# The members' $\mathbb E[\Sigma]$ against the truth, $0.1^2 (\cos t, \sin t)(\cos t, \sin t)^\top$ (App. E):

# %%
truth = np.asarray(mder.datasets.circle_covariance(grid))
members = np.asarray(jax.jit(mder.aleatoric)(niw))
variance = np.diagonal(members, axis1=-2, axis2=-1)
correlation = members[..., 0, 1] / np.sqrt(variance[..., 0] * variance[..., 1])
ANGLES = np.pi / 2 * np.arange(5), ["0", "π/2", "π", "3π/2", "2π"]
figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained")
curves = (members[..., 0, 1], truth[:, 0, 1], "covariance"), (correlation, np.sign(truth[:, 0, 1]), "correlation")
for ax, (of_members, true, name) in zip(axes, curves, strict=True):
    ax.plot(grid, of_members.T, color=BLUE, lw=0.4, alpha=0.2)
    ax.plot([], [], color=BLUE, lw=1, label="members")
    ax.plot(grid, np.median(of_members, axis=0), color=ORANGE, lw=2, label="median")
    ax.plot(grid[1:-1], true[1:-1], color="black", ls=":", label="truth")
    ax.set_xticks(*ANGLES)
    ax.set(xlabel="t (rad)", ylabel=f"{name} of x and y")
axes[0].set_ylim(-0.02, 0.02)
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
plt.show()
print(f"{'':9s}{'correlation':^41s} {'covariance':^29s}\nquadrant ", end="")
print(f"{'truth':>8s} {'median':>8s} {'16 to 84 % of members':>23s} {'truth':>9s} {'median':>9s} {'largest':>9s}")
for quadrant, sign in enumerate((1, -1, 1, -1)):
    middle = 50 + 100 * quadrant  # of the quadrant
    rho, covariance = correlation[:, middle], members[:, middle, 0, 1]
    low, median, high = np.quantile(rho, [0.16, 0.5, 0.84])
    print(f"{quadrant + 1:8d} {sign:+8d} {median:+8.2f} {f'{low:+.2f} to {high:+.2f}':>23s}", end=" ")
    print(f"{truth[middle, 0, 1]:+9.4f} {np.median(covariance):+9.4f} {np.abs(covariance).max():9.2g}")
    assert sign * median > 0

# %% [markdown]
# Where data are dense (first and last quadrant) the members agree on the correlation, and it is right. In the two
# quadrants in the middle they scatter, and at the sign flips they change over smoothly where the truth jumps. The
# covariance has the right sign, but in the middle its size is far off in some members: they leave the left panel, and
# the last column has the largest size.
#
# ## The mixture
#
# `Mixture` is the ensemble's prediction: the equally weighted mixture of the members' Student-t distributions. Its
# covariance is the sum of three parts: the mean of the members' aleatoric covariances, the mean of their own epistemic
# ones (*within*), and the covariance of their means (*between*).


# %%
@jax.jit
def parts_and_total(niw):
    """The three parts of the mixture's covariance, each (rows, 2, 2), and the whole."""
    mixture = mder.Mixture(niw)
    return (mixture.aleatoric(), mixture.epistemic_within(), mixture.epistemic_between()), mixture.total()


parts, total = jax.tree.map(np.asarray, parts_and_total(niw))
assert np.allclose(sum(parts), total, rtol=1e-5)
named = dict(zip(("aleatoric", "epistemic, within", "epistemic, between"), parts, strict=True))
figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.0), sharey=True, layout="constrained")
for j, ax in enumerate(axes):
    for (name, part), colour in zip(named.items(), (ORANGE, BLUE, GREEN), strict=True):
        ax.semilogy(grid, np.sqrt(part[:, j, j]), color=colour, label=name)
    typical = np.median(variance[..., j], axis=0)
    ax.semilogy(grid, np.sqrt(typical), color=ORANGE, ls="--", label="aleatoric, median member")
    ax.semilogy(grid, np.sqrt(truth[:, j, j]), color="black", ls=":", label="noise (truth)")
    ax.set_xticks(*ANGLES)
    ax.set(xlabel="t (rad)", title=f"target {'xy'[j]}", ylim=(1e-3, 1))
axes[0].set_ylabel("standard deviation")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize="small")
plt.show()
traces = {name: np.trace(part, axis1=1, axis2=2) for name, part in named.items()}
traces["aleatoric, median member"] = np.median(variance.sum(axis=-1), axis=0)
traces["noise (truth)"] = np.trace(truth, axis1=1, axis2=2)
print(f"{'root of the trace, median over t':34s} {'dense':>6s} {'sparse':>7s}")
for name, trace in traces.items():
    print(f"{name:34s} {np.sqrt(np.median(trace[dense])):6.3f} {np.sqrt(np.median(trace[sparse])):7.3f}")
at_pi, closed = variance[:, 200].sum(axis=-1), niw.nu[:, 200] < 3.2
share = at_pi[closed].sum() / at_pi.sum()
print(f"at t = π, {closed.mean():.0%} of the members have ν < 3.2; they make {share:.0%} of the mean aleatoric part")
assert np.median(traces["epistemic, between"][sparse]) > np.median(traces["epistemic, between"][dense])

# %% [markdown]
# The disagreement between members (green) is larger where data are sparse, as it should be. By its trace, the aleatoric
# part (orange) is close to the noise where data are dense and much too large in the middle, and the epistemic part
# within members (blue) grows with it. The noise does not grow there. What grows is the factor $\nu/(\nu - 3)$ in
# $\mathbb E[\Sigma]$ of the members whose $\nu$ is close to its lower bound 3, and they make up most of the mean. The
# median member (dashed) is much closer.
#
# How good is the mixture as a density? On the fresh points:


# %%
@jax.jit
def losses(niw, y):
    """Mean loss of each member, and of the mixture."""
    return jax.vmap(lambda member: jnp.mean(loss(member, y)))(niw), -jnp.mean(mder.Mixture(niw).log_prob(y))


of_members, of_mixture = (np.asarray(part) for part in losses(niw_fresh, fresh_xy))
print(f"members, training data: median {np.median(ensemble.history.train[:, -1]):.2f}")
best, middle, worst = np.quantile(of_members, [0, 0.5, 1])
print(f"members, fresh points:  median {middle:.2f}, best {best:.2f}, worst {worst:.2f}")
print(f"mixture, fresh points:  {of_mixture:.2f}, lower than {np.mean(of_mixture < of_members):.0%} of the members")
assert np.median(of_members) > np.median(ensemble.history.train[:, -1]) and of_mixture < of_members.mean()

# %% [markdown]
# A single member is worse on fresh points than on its training data: it over-fits. The mixture is better on them than
# most of its members.
#
# ## One device and all devices
#
# Members lie on a mesh of devices, one for each core after `use_all_cores`. The time is that of training without
# compiling (`seconds`), after a first run that warms up. The callback stops each run after 50 epochs, so that the
# program of above serves again.


# %%
def milliseconds(devices):
    """Time of one epoch of all members."""
    options = {"devices": devices, "progress": False, "callback": lambda progress: True, "callback_every": 50}
    run = mder.fit_ensemble(keys, network, loss, t, xy, **recipe, **options)
    return 1000 * run.seconds / run.epochs


every, first = jax.devices(), jax.devices()[:1]
on_all = milliseconds(every)
if len(every) == 1:
    print(f"JAX sees one device only, so there is nothing to compare: {on_all:.1f} ms an epoch")
else:
    milliseconds(first)  # warms up
    on_one = milliseconds(first)
    print(f"100 networks, 1 device:   {on_one:6.1f} ms an epoch")
    print(f"100 networks, {len(every)} devices:  {on_all:6.1f} ms an epoch; ratio {on_one / on_all:.2f}")
start = time.perf_counter()
jax.block_until_ready(fit_one(keys[7]))
single = 1000 * (time.perf_counter() - start) / 200
print(f"one network with `fit`:   {single:6.2f} ms an epoch, times 100: {100 * single:.1f} ms")

# %% [markdown]
# These times depend on what else the machine does: with other programs on the same cores the ratio falls to 1 or below.
# The last line is what a loop over networks would take with a compiled `fit`.
