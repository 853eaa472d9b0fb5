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
# Your own network, loss and training

The trainer knows a network as three functions: `init(key, x)`, `apply(params, x)` and, for networks with noise,
`train(params, x, key)`. What `apply` returns goes into the loss. This notebook brings two Flax modules to it:

1. a convolutional network with dropout, a Linen module, that finds a blob in an image,
2. a recurrent network, an NNX module, that continues a series,

and, with the second, a loss of our own, a learning rate for each member, and a callback that stops the training. Both
tasks are made up, so that the covariance of the targets is known.
"""

# %%
import functools
import tempfile

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import linen as nn, nnx

import mder_jax as mder
from mder_jax import metrics, plotting

mder.use_all_cores()  # before anything else: one JAX device for each CPU core
jax.config.update("jax_disable_most_optimizations", True)  # compiles faster; leave it out for larger networks
plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"
folder = tempfile.TemporaryDirectory()

# %% [markdown]
# ## 1. Images: a Linen module
#
# A Gaussian blob lies at a random place $(x, y)$ of an image of 12 by 12 pixels, with pixel noise whose level differs
# from image to image. The label is the place with an error: 0.5 pixels along the line from the centre of the image and
# 0.15 across. So the errors of $x$ and $y$ are correlated, and the sign depends on where the blob is.


# %%
def make_images(seed, count, along=0.5, across=0.15):
    """Images, labels, the true covariance of the labels, and the level of the pixel noise."""
    random = np.random.default_rng(seed)
    place = random.uniform(-3, 3, (count, 2))  # from the centre of the image
    level = np.exp(random.uniform(np.log(0.03), np.log(0.6), count))
    pixel = np.arange(12) - 5.5
    x, y = place[:, 0, None, None], place[:, 1, None, None]
    blob = np.exp(-((pixel[None, None, :] - x) ** 2 + (pixel[None, :, None] - y) ** 2) / (2 * 1.2**2))
    image = blob + level[:, None, None] * random.normal(size=blob.shape)
    outwards = place / np.linalg.norm(place, axis=1, keepdims=True)
    sideways = outwards[:, ::-1] * [-1, 1]
    label = place + along * random.normal(size=(count, 1)) * outwards
    label += across * random.normal(size=(count, 1)) * sideways
    covariance = across**2 * np.eye(2) + (along**2 - across**2) * outwards[:, :, None] * outwards[:, None, :]
    return image[..., None].astype(np.float32), label.astype(np.float32), covariance, level


images, labels, _, _ = make_images(0, 1500)
images_test, labels_test, truth, level = make_images(1, 1000)
print("images", images.shape, "labels", labels.shape)

# %% [markdown]
# The last layer has `num_outputs(2)` = 6 raw outputs, and `niw_link` makes a Normal-Inverse-Wishart distribution of
# them. `from_linen` calls a module whose `__call__` takes `train` accordingly, so dropout is on while training and off
# while predicting.


# %%
class Finder(nn.Module):
    """Two convolutions and two dense layers."""

    @nn.compact
    def __call__(self, x, train):
        """From images (B, 12, 12, 1) to raw outputs (B, 6)."""
        x = nn.relu(nn.Conv(8, (3, 3), strides=2)(x))
        x = nn.relu(nn.Conv(16, (3, 3), strides=2)(x))
        x = nn.relu(nn.Dense(64)(x.reshape(x.shape[0], -1)))
        x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(mder.num_outputs(2))(x)


link = functools.partial(mder.niw_link, n=2)
finder = mder.from_linen(Finder(), link=link)

# %% [markdown]
# Four networks train as one program. The run has a checkpoint directory, and the callback ends it after 5 epochs by
# returning True. The same call again goes on from there.

# %%
recipe = {
    "members": 4,
    "epochs": 15,
    "batch_size": 100,
    "optimizer": optax.adam(optax.cosine_decay_schedule(5e-3, 15 * 15)),
    "checkpoint": folder.name,
    "progress": False,
    "callback_every": 5,
}


def look_on(progress, last):
    """Print the median loss; True ends the training."""
    print(f"epoch {progress.epoch:2d} of {progress.epochs}: median loss {np.median(progress.history.train[:, -1]):.3f}")
    return progress.epoch >= last


arguments = (jax.random.key(0), finder, mder.mder_nll, images, labels)
first = mder.fit_ensemble(*arguments, **recipe, callback=lambda progress: look_on(progress, last=5))
print("stopped:", first)
finders = mder.fit_ensemble(*arguments, **recipe, callback=lambda progress: look_on(progress, last=15))
print("resumed:", finders)
assert first.epochs == 5 and finders.epochs == 15
assert np.array_equal(finders.history.train[:, :5], first.history.train[:, :5])

# %% [markdown]
# The second call did not train epochs 1 to 5 again: their losses came with the checkpoint. Dropout is on in the pass
# for training and off in that for predictions:

# %%
one = jax.tree.map(lambda leaf: leaf[0], finders.params)
predicted = [jax.jit(finder.apply)(one, images[:3]).mu for _ in range(2)]
trained = [jax.jit(finder.train)(one, images[:3], key).mu for key in jax.random.split(jax.random.key(0))]
print("two passes alike: predicting", np.array_equal(*predicted), " training", np.array_equal(*trained))
assert np.array_equal(*predicted) and not np.array_equal(*trained)

# %% [markdown]
# Six test images, and the predicted ellipse of 90 %:

# %%
mixture = mder.Mixture(mder.predict(finders, images_test))
quiet_to_loud = np.argsort(level)[np.linspace(0, len(level) - 1, 6).astype(int)]
figure, axes = plt.subplots(2, 3, figsize=(9, 6.4), layout="constrained")
for ax, row in zip(axes.flat, quiet_to_loud, strict=True):
    ax.imshow(images_test[row, :, :, 0], cmap="Greys", origin="lower", extent=(-6, 6, -6, 6), vmin=-0.4, vmax=1.5)
    plotting.ellipses(mixture, rows=[row], y=labels_test, names=["x (pixels)", "y (pixels)"], ax=ax)
    ax.get_legend().remove()
    ax.set(title=f"pixel noise {level[row]:.2f}", xlim=(-5, 5), ylim=(-5, 5))
    ax.label_outer()
handles, legend = axes[0, 0].get_legend_handles_labels()
figure.legend(handles, legend, loc="outside upper center", ncols=len(legend))
plt.show()
share, error = metrics.joint_coverage(labels_test, mixture, level=0.9)
print(f"labels of test images inside: {share:.1%} ± {error:.1%}")

# %% [markdown]
# From little pixel noise to much. Where the noise is small, the ellipse is long along the line through the centre of
# the image, (0, 0), as the errors of the labels are. Where it is large, the ellipse is wide and has an epistemic part
# (between orange and blue) that one can see. The share of labels inside, with its standard error, says whether 90 % are
# 90 %: these networks were not calibrated. `mder.fit_scale` and `mder.conformal_radius` would take held-out images for
# that.

# %%
cov, epistemic = map(np.asarray, jax.jit(lambda m: (m.total(), m.epistemic()))(mixture))


def correlation_of(covariance):
    """Of the two targets, (N, 2, 2) -> (N,)."""
    return covariance[:, 0, 1] / np.sqrt(covariance[:, 0, 0] * covariance[:, 1, 1])


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
points = left.scatter(correlation_of(truth), correlation_of(cov), c=level, norm="log", s=6)
left.plot([-1, 1], [-1, 1], color=GREY, linewidth=1)
left.set(xlabel="true correlation", ylabel="predicted correlation", aspect="equal", xlim=(-1, 1), ylim=(-1, 1))
bar = figure.colorbar(points, ax=left, label="pixel noise", ticks=[0.03, 0.1, 0.3, 0.6], format="%g", shrink=0.8)
bar.minorticks_off()
for name, part, colour in (("total", cov, BLUE), ("epistemic", epistemic, ORANGE)):
    size = np.sqrt(np.trace(part, axis1=1, axis2=2) / 2)
    right.plot(level, size, ".", markersize=3, color=colour, label=f"predicted, {name}")
right.axhline(np.sqrt((0.5**2 + 0.15**2) / 2), color=GREY, linewidth=1.5, label="error of the labels alone")
right.set(xlabel="pixel noise", ylabel="standard deviation (pixels)", ylim=(0, None))
figure.legend(*right.get_legend_handles_labels(), loc="outside upper right", ncols=3, markerscale=3)
plt.show()
quiet = level < 0.1
agreement = np.corrcoef(correlation_of(truth)[quiet], correlation_of(cov)[quiet])[0, 1]
print(f"true and predicted correlation, images with noise below 0.1: r = {agreement:.3f}")
assert agreement > 0.8

# %% [markdown]
# Left: each point is a test image. In quiet images (dark) the predicted correlation follows the truth, though it is
# mostly too small. In loud ones (bright) it should be smaller: where the blob is not known well, neither is the
# direction of the error. Right: the predicted standard deviation grows with the pixel noise, which is in no label. In
# quiet images it should come down to the line, and mostly stays above it.
#
# ## 2. Series: an NNX module
#
# Each series is an oscillation with a frequency of its own, driven by noise,
#
# $$s_{t+1} = a\, s_t - \rho^2 s_{t-1} + \epsilon_t, \qquad a = 2 \rho \cos\omega, \quad \epsilon_t \sim
# \mathcal N(0, \sigma^2) .$$
#
# 16 steps are the input, the next two values the targets. If one knew $a$, their covariance would be
# $\sigma^2 \begin{pmatrix} 1 & a \\ a & 1 + a^2 \end{pmatrix}$: the correlation $a / \sqrt{1 + a^2}$ runs from −0.88 to
# 0.88.


# %%
def make_series(seed, count, steps=16, rho=0.95, sigma=0.3):
    """Series (count, steps, 1), the two values after them, and the coefficient a of each."""
    random = np.random.default_rng(seed)
    a = 2 * rho * np.cos(random.uniform(0.1 * np.pi, 0.9 * np.pi, count))
    values = list(random.normal(size=(2, count)))
    for _ in range(50 + steps):  # 50 steps to forget the start
        values.append(a * values[-1] - rho**2 * values[-2] + sigma * random.normal(size=count))
    values = np.stack(values[-steps - 2 :], axis=1).astype(np.float32)
    return values[:, :steps, None], values[:, steps:], a


series, ahead, _ = make_series(0, 1500)
series_val, ahead_val, _ = make_series(1, 500)
series_test, ahead_test, a = make_series(2, 1000)


class Forecaster(nnx.Module):
    """A gated recurrent unit, and a dense layer on its last state."""

    def __init__(self, rngs):
        simple = nnx.initializers.lecun_normal()  # the default is orthogonal
        self.recurrent = nnx.RNN(nnx.GRUCell(1, 16, recurrent_kernel_init=simple, rngs=rngs))
        self.head = nnx.Linear(16, mder.num_outputs(2), rngs=rngs)

    def __call__(self, x):
        """From series (B, 16, 1) to raw outputs (B, 6)."""
        return self.head(self.recurrent(x)[:, -1])


forecaster = mder.from_nnx(Forecaster, link=link)

# %% [markdown]
# ### An own loss
#
# A loss is a function of (what `apply` returns, y) with one value per row. Ours is the negative log-likelihood tempered
# as in β-NLL (Seitzer et al. 2022): rows with a large predicted covariance get more weight, so that rows which are
# already well predicted do not take all of the gradient,
#
# $$\ell_\beta = \big\lfloor |\Sigma_0|^{\beta / n} \big\rfloor \cdot \big(-\ln p(y)\big),$$
#
# without a gradient through the weight. With β = 0 it is `mder_nll`.


# %%
def beta_nll(niw, y, beta):
    """The negative log-likelihood with the weight |Σ₀|^(β/n), (rows,)."""
    weight = jnp.exp(2 * beta / niw.n * mder.half_logdet(niw.L))
    return jax.lax.stop_gradient(weight) * mder.mder_nll(niw, y)


raw = np.random.default_rng(0).normal(size=(5, 6))
own, plain = jax.jit(lambda raw, y: (beta_nll(link(raw), y, 0.0), mder.mder_nll(link(raw), y)))(raw, ahead[:5])
assert np.array_equal(own, plain)
print("own loss with β = 0, the same as mder_nll:", np.asarray(own, float).round(2))

# %% [markdown]
# ### 8 learning rates and 2 losses in one program
#
# `PerMember` gives each member its own value of an argument: here 8 learning rates for each of β = 0 and β = ½. Losses
# with different β cannot be compared, so the callback computes the plain negative log-likelihood of the validation rows
# for all members after each epoch.

# %%
rates, betas = np.logspace(-3, -0.5, 8), np.array([0.0, 0.5])
grid_beta, grid_rate = (values.ravel() for values in np.meshgrid(betas, rates, indexing="ij"))
epochs, batch = 20, 100
curves = []


@jax.jit
def validation_nll(params):
    """Of all members, (M,)."""
    return jax.vmap(lambda own: mder.mder_nll(forecaster.apply(own, series_val), ahead_val).mean())(params)


def watch(progress):
    """Keep the validation loss of all members."""
    curves.append(np.asarray(validation_nll(progress.params)).reshape(len(betas), len(rates)))
    if progress.epoch % 5 == 0:
        least = curves[-1].min(axis=1)
        print(f"epoch {progress.epoch:2d}: best of β = 0 {least[0]:.3f}, of β = ½ {least[1]:.3f}")


sweep = mder.fit_ensemble(
    jax.random.key(0),
    forecaster,
    mder.PerMember(grid_beta, lambda beta: functools.partial(beta_nll, beta=beta)),
    series,
    ahead,
    optimizer=mder.PerMember(
        grid_rate, lambda rate: optax.adam(optax.cosine_decay_schedule(rate, epochs * len(series) // batch))
    ),
    epochs=epochs,
    batch_size=batch,
    callback=watch,
    callback_every=1,
    progress=False,
)
curves = np.array(curves)  # (epochs, losses, rates)
print(sweep, curves.shape)

# %%
floor = np.log(2 * np.pi) + 1 + np.log(0.3**2)  # −E[ln p] of the true Gaussian of the two values, a known
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", sharey=True)
for i, (label, colour) in enumerate((("mder_nll", BLUE), ("own loss, β = ½", ORANGE))):
    winner = np.argmin(curves[-1, i])
    left.semilogx(rates, curves[-1, i], "o-", color=colour, label=label)
    right.plot(1 + np.arange(epochs), curves[:, i, winner], color=colour, label=f"{label}, rate {rates[winner]:.3f}")
for ax in (left, right):
    ax.axhline(floor, color=GREY, linewidth=1, linestyle="--", label="if the frequency were known")
    ax.legend(loc="upper center")
left.set(xlabel="learning rate", ylabel="−ln p of the validation rows", title="after the last epoch", ylim=(0, None))
right.set(xlabel="epoch", title="at the best rate of each loss", xticks=[1, 5, 10, 15, 20])
plt.show()
for beta, last in zip(betas, curves[-1], strict=True):
    print(f"β = {beta:g}: best of the 8 rates {last.min():.3f}, worst {last.max():.3f}")
assert abs(np.diff(curves[-1].min(axis=1))) < np.ptp(curves[-1], axis=1).min()

# %% [markdown]
# Left: one network for each point. The learning rate matters much, and its best value lies within the range. Right: the
# curves of the two losses. On this task the choice of the loss matters less than that of the rate; each network has a
# start of its own, so that small differences mean nothing. Neither loss comes down to the dashed line, which is for
# those who know the frequency.
#
# ### The correlation of the next two values
#
# The four best networks by the validation rows, as a mixture, on test rows:

# %%
best = np.argsort(curves[-1].ravel())[:4]
mixture = mder.Mixture(mder.predict(sweep.keep(best), series_test))
mean, std, cov = (np.asarray(part) for part in jax.jit(lambda m: (m.mean(), m.std(), m.total()))(mixture))
share, error = metrics.joint_coverage(ahead_test, mixture, level=0.9)
print("members:", [f"β = {grid_beta[i]:g}, rate {grid_rate[i]:.3f}" for i in best])
print(f"pairs of next values inside their ellipse of 90 %: {share:.1%} ± {error:.1%}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", width_ratios=(1.5, 1))
for shift, row in zip((-6, 0, 7), np.argsort(a)[[50, 500, 950]], strict=True):
    line = np.concatenate([series_test[row, :, 0], ahead_test[row]])
    left.plot(np.arange(1, 19), shift + line, ".-", color=GREY, linewidth=0.8, markersize=4)
    left.errorbar([17, 18], shift + mean[row], std[row], fmt="o", color=BLUE, markersize=4, capsize=3)
left.plot([], [], ".-", color=GREY, label="observed")
left.errorbar([], [], [], fmt="o", color=BLUE, markersize=4, capsize=3, label="predicted mean ± std")
left.axvline(16.5, color=ORANGE, linewidth=1, label="end of the input")
left.set(xlabel="step", ylabel="value, shifted", xticks=[1, 4, 8, 12, 16, 18])
left.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
right.plot(a / np.sqrt(1 + a**2), correlation_of(cov), ".", color=BLUE, markersize=3)
right.plot([-1, 1], [-1, 1], color=GREY, linewidth=1)
right.set(xlabel="correlation if the frequency were known", ylabel="predicted correlation", aspect="equal")
right.set(xlim=(-1, 1), ylim=(-1, 1))
plt.show()
agreement = np.corrcoef(a / np.sqrt(1 + a**2), correlation_of(cov))[0, 1]
print(f"the two correlations: r = {agreement:.3f}")
assert agreement > 0.8
folder.cleanup()

# %% [markdown]
# Left: a fast, a middling and a slow oscillation with the predictions of the two values after the end of the input.
# Right: each point is a test series. The networks were never shown a correlation or a frequency, only values; the
# correlation that they predict follows the one that a known frequency gives. It scatters, as 16 noisy steps do not tell
# the frequency exactly.
