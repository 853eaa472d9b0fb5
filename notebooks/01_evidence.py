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
# The evidence of a Normal-Inverse-Wishart

A network of this library predicts, for each row, the four parameters of a Normal-Inverse-Wishart distribution (NIW).
Its loss is minus the logarithm of the NIW's evidence. This notebook looks at both without any network:

1. what μ₀, L, κ and ν mean,
2. why the evidence is a multivariate Student-t,
3. whether value and gradient of the loss are right,
4. the limit ν → ∞,
5. what the loss cannot tell, and why the paper couples ν = rκ,
6. what the choice of r changes and what it does not.

Names such as eq:nll are the labels of equations in the source of Meinert and Lavin,
[arXiv:2104.06135](https://arxiv.org/abs/2104.06135). There are n = 2 targets throughout.
"""

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import mpmath
import numpy as np
from mpmath import mpf

import mder_jax as mder
from mder_jax import plotting

jax.config.update("jax_enable_x64", True)  # float64 where nothing else is said
plt.rcParams.update({"figure.dpi": 80, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False})
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"

# %% [markdown]
# ## 1. What the four parameters mean
#
# A NIW is a distribution of a mean $\mu$ and a covariance $\Sigma$ (eq:niw):
#
# $$\Sigma \sim \mathcal W^{-1}(\Psi, \nu), \qquad \mu \,|\, \Sigma \sim \mathcal N(\mu_0, \Sigma/\kappa),
# \qquad \Psi = \nu\,\Sigma_0, \quad \Sigma_0 = L L^\top .$$
#
# $\mu_0$ is the guess of $\mu$ and $\Sigma_0$ that of $\Sigma$. $\kappa$ and $\nu$ say how many observations these
# guesses are worth: $\kappa$ for the mean, $\nu$ for the covariance.
#
# The next function draws $(\mu, \Sigma)$ from a NIW, and from each of these Gaussians one observation $y$.

# %%
mu0 = jnp.array([0.0, 0.0])
L = jnp.array([[1.0, 0.0], [0.6, 0.8]])


@jax.jit
def simulate(key, niw):
    """Draws of (μ, Σ), and one y from each N(μ, Σ), which is a Student-t with infinite degrees of freedom."""
    prior_key, y_key = jax.random.split(key)
    draws = mder.sample(prior_key, niw, 50_000)
    return draws, mder.StudentT(jnp.inf, draws.mu, mder.linalg.cholesky(draws.sigma)).sample(y_key)


figure, axes = plt.subplots(2, 2, figsize=(6.0, 6.0), sharex=True, sharey=True, layout="constrained")
for ax, (kappa, nu) in zip(axes.flat, [(2, 4), (2, 200), (200, 4), (200, 200)], strict=True):
    (mu, sigma), _ = simulate(jax.random.key(1), mder.NIW(mu0, L, kappa, nu))
    gaussians = mder.StudentT(jnp.inf, mu[:12], np.linalg.cholesky(sigma[:12]))
    plotting.ellipses(gaussians, rows=range(12), coverage=0.5, ax=ax)
    ax.get_legend().remove()
    ax.set(
        title=f"κ = {kappa}, ν = {nu}", xlim=(-6, 6), ylim=(-6, 6), aspect="equal", xticks=(-4, 0, 4), yticks=(-4, 0, 4)
    )
    ax.label_outer()
plt.show()

# %% [markdown]
# Twelve draws of $(\mu, \Sigma)$ in each panel: a cross is $\mu$, and half of the probability of $\mathcal N(\mu,
# \Sigma)$ is inside its ellipse. From the upper to the lower row $\kappa$ grows and the centres come together. From the
# left to the right column $\nu$ grows and the ellipses become alike.
#
# Each observation adds one to $\kappa$ and one to $\nu$, whatever its value (eq:postdens):

# %%
small = mder.NIW(mu0, L, kappa=2.0, nu=4.0)
after = jax.jit(mder.posterior)(small, np.random.default_rng(2).normal(size=(7, 2)))
print(f"before: κ = {small.kappa}, ν = {small.nu}    after 7 observations: κ = {after.kappa}, ν = {after.nu}")
assert after.kappa == small.kappa + 7 and after.nu == small.nu + 7

# %% [markdown]
# Two moments are read off a prediction. The *aleatoric* uncertainty is $\mathbb E[\Sigma] = \frac{\nu}{\nu-n-1} L
# L^\top$, the *epistemic* one is $\operatorname{var}[\mu] = \mathbb E[\Sigma]/\kappa$ (Sec. 4, derived in App. C). Here
# they are beside averages over draws. For $\nu \le n + 1$ they do not exist, and the library says so with infinities
# and NaN.


# %%
@jax.jit
def uncertainties(niw):
    """Both, as covariances (2, 2)."""
    return {"aleatoric": mder.aleatoric(niw), "epistemic": mder.epistemic(niw)}


niw = mder.NIW(mu0, L, kappa=3.0, nu=9.0)
(mu, sigma), _ = simulate(jax.random.key(3), niw)
samples = {"aleatoric": np.asarray(sigma), "epistemic": np.asarray(mu)[:, :, None] * np.asarray(mu)[:, None, :]}
for name, exact in uncertainties(niw).items():
    for i, j in ((0, 0), (1, 0), (1, 1)):
        values = samples[name][:, i, j]
        away = (values.mean() - float(exact[i, j])) / (values.std() / np.sqrt(len(values)))
        print(f"{name}[{i}, {j}]  formula {exact[i, j]:.4f}  draws {values.mean():.4f}  ({away:+.1f} standard errors)")
        assert abs(away) < 4
print("\naleatoric for ν = 2.5:", uncertainties(mder.NIW(mu0, L, kappa=3.0, nu=2.5))["aleatoric"].tolist())

# %% [markdown]
# ## 2. The evidence is a Student-t
#
# Nobody observes $\mu$ and $\Sigma$. What can be compared with data is the distribution of $y$ when both are integrated
# out (eq:modev):
#
# $$p(y\,|\,\mu_0, L, \kappa, \nu) = \int \mathcal N(y\,|\,\mu, \Sigma)\,\mathrm{NIW}(\mu, \Sigma)\,d\mu\,d\Sigma =
# t_{\nu-n+1}\!\left(y \,\Big|\, \mu_0, \tfrac{1}{\nu-n+1}\tfrac{1+\kappa}{\kappa}\Psi\right).$$
#
# The draws of $y$ above do this integral by chance. `predictive` is the closed form. Its elliptic regions should hold
# the share of draws that they promise:

# %%
niw = mder.NIW(mu0, L, kappa=3.0, nu=5.0)
_, y = simulate(jax.random.key(4), niw)
t = mder.predictive(niw)
levels = np.array([0.5, 0.9, 0.99])
radii = np.asarray(jax.jit(t.region_radius)(levels))
distance = np.asarray(jax.jit(t.mahalanobis)(y))
print(f"predictive: Student-t with {t.df} degrees of freedom")
for level, radius in zip(levels, radii, strict=True):
    inside, error = np.mean(distance <= radius), np.sqrt(level * (1 - level) / len(y))
    print(f"the {level:.0%} region holds {inside:.2%} of the draws ({(inside - level) / error:+.1f} standard errors)")
    assert abs(inside - level) < 4 * error

# %%
line, wide = np.linspace(-7, 7, 141), np.linspace(-12, 12, 241)[:, None]
one = jax.jit(lambda t: t.marginal([0]))(t)
gaussian = mder.StudentT(jnp.inf, one.loc, jnp.sqrt(one.covariance()))  # of the same variance
log_prob = jax.jit(lambda t, y: t.log_prob(y))
figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
left.hist2d(*np.asarray(y).T, bins=np.linspace(-7, 7, 71), cmap="Greys", norm="log", vmin=1, vmax=2e4)
plane = np.stack(np.meshgrid(line, line), axis=-1)
contours = left.contour(line, line, jax.jit(t.mahalanobis)(plane), levels=radii, colors=ORANGE, linewidths=1.6)
left.clabel(contours, fmt=dict(zip(contours.levels, ["50%", "90%", "99%"], strict=True)))
left.set(xlabel="$y_0$", ylabel="$y_1$", title="draws (grey) and regions of the t", aspect="equal")
right.hist(np.asarray(y)[:, 0], bins=np.linspace(-12, 12, 97), density=True, color="0.8", label="draws")
right.plot(wide, np.exp(log_prob(one, wide)), color=ORANGE, label="predictive t")
right.plot(wide, np.exp(log_prob(gaussian, wide)), color=BLUE, ls="--", label="Gaussian, same variance")
right.set(yscale="log", ylim=(1e-6, 1), xlabel="$y_0$", ylabel="density")
right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize="small")
plt.show()
for place in (0.0, 4.0, 9.0):
    ratio = np.exp(log_prob(gaussian, np.array([place])) - log_prob(one, np.array([place])))
    print(f"density of the Gaussian / density of the t at y₀ = {place:.0f}: {ratio:.2g}")

# %% [markdown]
# Left: the cloud of draws thins out along the contours of the t. Right: the t follows the histogram into its tails. A
# Gaussian of the same variance does not: it is too low in the middle, too high around 4 and far too low at 9.
#
# ## 3. Is the loss right?
#
# The loss is minus the log evidence, with all constants. In print it is (eq:nll)
#
# $$\mathcal L = \ln\Gamma\!\left(\tfrac{\nu-n+1}2\right) - \ln\Gamma\!\left(\tfrac{\nu+1}2\right) +
# \tfrac n2 \ln\!\left(\pi\tfrac{1+\kappa}\kappa\right) - \tfrac\nu2 \ln|\Psi| +
# \tfrac{\nu+1}2 \ln\left|\Psi + \tfrac\kappa{1+\kappa}(y-\mu_0)(y-\mu_0)^\top\right| .$$
#
# `mder_nll` computes the same number in another form. We check its value and its gradient over seven numbers: $\mu_0$
# (2), the entries of $L$ with logarithms on the diagonal (3), $\ln\kappa$ and $\ln\nu$.

# %%
NAMES = ["μ₀[0]", "μ₀[1]", "ln L[0,0]", "L[1,0]", "ln L[1,1]", "ln κ", "ln ν"]


def uncoupled(theta):
    """A NIW from seven numbers without bounds."""
    L = jnp.array([[jnp.exp(theta[2]), 0.0], [theta[3], jnp.exp(theta[4])]])
    return mder.NIW(theta[:2], L, jnp.exp(theta[5]), jnp.exp(theta[6]))


@jax.jit
def value_and_gradient(theta, y):
    """The loss of one observation and its gradient by `jax.grad`."""
    return jax.value_and_grad(lambda theta: mder.mder_nll(uncoupled(theta), y))(theta)


def central_differences(theta, y):
    """(f(θ + h) − f(θ − h)) / 2h for each of the seven numbers, h = eps^(1/3)."""
    h = np.finfo(float).eps ** (1 / 3)
    steps = h * np.eye(7)
    return [(value_and_gradient(theta + h, y)[0] - value_and_gradient(theta - h, y)[0]) / 2 / h.max() for h in steps]


# %% [markdown]
# The reference is eq:nll with 50 digits in mpmath, and its gradient by `mpmath.diff`.

# %%
mpmath.mp.dps = 50


def printed_nll(theta, y, n=2):
    """eq:nll as it is printed."""
    kappa, nu = mpmath.exp(theta[5]), mpmath.exp(theta[6])
    L = mpmath.matrix([[mpmath.exp(theta[2]), 0], [theta[3], mpmath.exp(theta[4])]])
    Psi, d = nu * L * L.T, mpmath.matrix([y[0] - theta[0], y[1] - theta[1]])
    return (
        mpmath.loggamma((nu - n + 1) / 2)
        - mpmath.loggamma((nu + 1) / 2)
        + mpf(n) / 2 * mpmath.log(mpmath.pi * (1 + kappa) / kappa)
        - nu / 2 * mpmath.log(mpmath.det(Psi))
        + (nu + 1) / 2 * mpmath.log(mpmath.det(Psi + kappa / (1 + kappa) * d * d.T))
    )


def with_50_digits(theta, y):
    """Value and gradient, rounded to float64 at the end."""
    theta, y = [mpf(float(x)) for x in theta], [mpf(float(x)) for x in y]
    units = np.eye(7, dtype=int).tolist()
    gradient = [mpmath.diff(lambda *point: printed_nll(point, y), tuple(theta), tuple(unit)) for unit in units]
    return float(printed_nll(theta, y)), np.array([float(x) for x in gradient])


# %% [markdown]
# One ordinary point first. The inputs are float32 numbers, so that all columns start from the same values. Shown are
# relative errors of each component of the gradient.

# %%
observed = np.float32([0.7, -1.1])
point = np.float32([0.1, -0.2, -0.5, 0.3, 0.2, np.log(4), np.log(8)])


def relative_errors(point):
    """The gradient (7,); errors of differences and of `jax.grad` in both types (3, 7); errors of the value (2,)."""
    value, gradient = with_50_digits(point, observed)
    inputs = [(point.astype(kind), observed.astype(kind)) for kind in (np.float64, np.float32)]
    (value64, gradient64), (value32, gradient32) = (value_and_gradient(*pair) for pair in inputs)
    assert gradient64.dtype == jnp.float64 and gradient32.dtype == jnp.float32
    found = np.array([central_differences(*inputs[0]), gradient64, gradient32])
    return gradient, np.abs(found / gradient - 1), np.abs(np.array([value64, value32]) / value - 1)


gradient, errors, _ = relative_errors(point)
print(f"{'':10s} {'gradient':>12s} {'differences':>14s} {'grad, float64':>14s} {'grad, float32':>14s}")
for name, component, row in zip(NAMES, gradient, errors.T, strict=True):
    print(f"{name:10s} {component:12.6f} " + " ".join(f"{error:14.0e}" for error in row))
assert errors[0].max() < 1e-8 and errors[1].max() < 1e-13 and errors[2].max() < 1e-5

# %% [markdown]
# Finite differences agree to nine digits or more, which is about what they can do in float64. The 50 digits show that
# `jax.grad` is right to the rounding of the type it is computed in.
#
# Now points that are less ordinary. Each number is the worst of the seven components.

# %%
cases = {
    "ordinary": point,
    "ν = 1.01, near n − 1": [0.1, -0.2, -0.5, 0.3, 0.2, np.log(4), np.log(1.01)],
    "κ = 1e-6": [0.1, -0.2, -0.5, 0.3, 0.2, np.log(1e-6), np.log(8)],
    "L about 1e-5": [0.1, -0.2, -10.0, 1e-5, -12.0, np.log(4), np.log(8)],
    "correlation 1 − 3e-7": [0.1, -0.2, 0.0, 3.0, -6.0, np.log(4), np.log(8)],
    "ν = 1e8": [0.1, -0.2, -0.5, 0.3, 0.2, np.log(4), np.log(1e8)],
}
print(f"{'relative error':22s} {'gradient':^33s} {'value':^21s}\n{'':22s} {'differences':>11s}", end=" ")
print(" ".join(f"{name:>10s}" for name in ("float64", "float32") * 2))
for name, values in cases.items():
    _, errors, of_value = relative_errors(np.float32(values))
    print(f"{name:22s} {errors[0].max():11.0e} " + " ".join(f"{x:10.0e}" for x in (*errors[1:].max(axis=1), *of_value)))
    assert errors[1].max() < 1e-13 and errors[2].max() < 1e-5
    assert of_value[0] < 1e-14 and of_value[1] < 1e-6

# %% [markdown]
# `jax.grad` of `mder_nll` keeps its digits at all of these points. Finite differences do not: with $L$ about 1e-5 the
# step is as long as the parameter, and for $\nu$ = 1e8 the slope in $\ln\nu$ is lost in the rounding of the value.
#
# ## 4. The limit $\nu \to \infty$
#
# With $\kappa = \nu/r$ the evidence becomes the Gaussian $\mathcal N(\mu_0, \Sigma_0)$ as $\nu \to \infty$. The paper
# remarks that this limit is numerically unstable and cuts $\nu$ off (Sec. 4). In the printed form it is: the two
# determinants of eq:nll are multiplied by $\nu$, and what matters is their small difference. The library keeps this
# form as `form="slogdet"`. Its loss uses another, in which the determinants are divided first (eq:sylvester).

# %%
nus = np.logspace(0.5, 9, 60)
y = np.random.default_rng(6).normal(size=(200, 2)) @ np.asarray(L).T
limit = np.asarray(log_prob(mder.StudentT(jnp.inf, mu0, L), y))


def from_gaussian(form, dtype):
    """|ln p − ln N|, the largest of 200 observations, for each ν = κ; the Gaussian is in float64."""
    centre, factor, at = (jnp.asarray(x, dtype) for x in (mu0, L, y))
    log_p = jax.vmap(lambda nu: mder.log_evidence(mder.couple(centre, factor, nu), at, form=form))
    found = jax.jit(log_p)(jnp.asarray(nus, dtype))
    assert found.dtype == dtype
    return np.abs(np.asarray(found, float) - limit).max(axis=1)


true = from_gaussian("stable", jnp.float64)
stable = from_gaussian("stable", jnp.float32)
printed = from_gaussian("slogdet", jnp.float32)
figure, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
ax.loglog(nus, printed, ".-", color=ORANGE, label="as printed (eq:nll), float32")
ax.loglog(nus, stable, ".-", color=BLUE, label="stable form, float32")
ax.loglog(nus, true, color="black", lw=1, ls="--", label="stable form, float64")
ax.set(xlabel="ν = κ", ylabel="largest |ln p − ln N| (nats)", title="distance of the evidence from the Gaussian")
ax.legend()
plt.show()

# %% [markdown]
# The true distance falls as $1/\nu$ (dashed). The stable form in float32 follows it down to the rounding of float32.
# The printed form leaves it and goes up again, to an error of many nats. The last column of the table says why: it is
# the distance between neighbouring float32 numbers of the size of $\frac\nu2\ln|\Psi|$.

# %%
print(f"{'ν':>8s} {'true':>9s} {'stable':>9s} {'printed':>9s} {'spacing':>9s}")
for i in np.searchsorted(nus, [1e1, 1e3, 1e5, 1e7, 9.9e8]):
    term = np.float32(nus[i] / 2 * np.log(nus[i] ** 2 * np.linalg.det(L) ** 2))
    print(f"{nus[i]:8.0e} {true[i]:9.1e} {stable[i]:9.1e} {printed[i]:9.1e} {np.spacing(term):9.1e}")
slope = np.polyfit(np.log(nus[-30:]), np.log(true[-30:]), 1)[0]
at_infinity = jax.jit(lambda nu: mder.log_evidence(mder.couple(mu0, L, nu), y))(jnp.inf)
largest = np.abs(at_infinity - limit).max()
print(f"slope of the true distance: {slope:.3f}; distance at ν = ∞: {largest:.0e}")
assert abs(slope + 1) < 0.01 and stable[-1] < 1e-5 and printed[-1] > 1 and largest < 1e-14

# %% [markdown]
# ## 5. What the loss cannot tell
#
# The evidence (eq:modev) depends on $\kappa$ and $\Psi$ through the product $\frac{1+\kappa}\kappa\Psi$ only, so one of
# the seven numbers is free. To see it, take 2000 observations, find the minimum of their mean loss, and look at the
# Hessian there. The minimum is found under the coupling $\nu = r\kappa$ (eq:kappanucoupling) with $r = 1$, by Newton's
# method over six numbers. The seven are a linear function of the six.

# %%
data = simulate(jax.random.key(7), mder.couple(mu0, L, nu=6.0))[1][:2000]


def mean_loss(theta):
    """Mean loss of the data over seven numbers: κ and ν on their own."""
    return -jnp.mean(mder.log_evidence(uncoupled(theta), data))


derivatives = jax.jit(lambda theta: (jax.grad(mean_loss)(theta), jax.hessian(mean_loss)(theta)))
couple = np.eye(7)[:, :6]  # seven = couple @ six
couple[5:, 5] = 1.0  # ln κ = ln ν
six = np.array([0.0, 0.0, 0.0, 0.6, np.log(0.8), np.log(6.0)])  # start at the truth
for _ in range(6):
    gradient, hessian = derivatives(couple @ six)
    six -= np.linalg.solve(couple.T @ hessian @ couple, couple.T @ gradient)
minimum = couple @ six
gradient, hessian = (np.asarray(x) for x in derivatives(minimum))
steepest = np.abs(gradient).max()
print(f"largest component of the gradient at the minimum, κ and ν free: {steepest:.0e}")
print(f"ν at the minimum: {np.exp(minimum[6]):.2f}, truth 6")
assert steepest < 1e-12

# %% [markdown]
# The point is a minimum also of the loss with $\kappa$ and $\nu$ free. On the curve of constant
# $\frac{1+\kappa}\kappa\Psi$ a step $d\ln L_{jj} = 1$, $dL_{10} = L_{10}$ goes with $d\ln\kappa = 2(1+\kappa)$. In this
# direction the Hessian should have the eigenvalue zero.

# %%
eigenvalues, vectors = np.linalg.eigh(hessian)
coupled_hessian = couple.T @ hessian @ couple
eigenvalues_coupled = np.linalg.eigvalsh(coupled_hessian)
null = np.array([0, 0, 1, minimum[3], 1, 2 * (1 + np.exp(minimum[5])), 0])
null /= np.linalg.norm(null)
flattest = np.abs(eigenvalues).argmin()
cosine = abs(vectors[:, flattest] @ null)
print("eigenvalues, κ and ν free:", "  ".join(f"{x:.1e}" for x in eigenvalues))
print(
    "eigenvalues, ν = κ:       ", " " * len(f"{eigenvalues[0]:.1e}"), "  ".join(f"{x:.1e}" for x in eigenvalues_coupled)
)
print(f"|cosine| of the flattest eigenvector and the expected direction: {cosine:.12f}")
slopes = [abs(value_and_gradient(minimum, y)[1] @ null) for y in np.asarray(data[:100])]
print(f"largest slope of a single observation in that direction, of 100: {max(slopes):.0e}")
assert flattest == 0 and abs(eigenvalues[0]) < 1e-13 and eigenvalues[1] > 1e-3
assert abs(cosine - 1) < 1e-10 and eigenvalues_coupled.min() > 1e-3 and max(slopes) < 1e-12

# %% [markdown]
# One eigenvalue is zero and belongs to the expected direction; the other six are positive. With the coupling there is
# no zero. More data would not help: the loss of each single observation has no slope in that direction.
#
# The picture follows the whole curve through the minimum, from $\kappa$ = 1e-3 to 1e3.

# %%
kappas = np.logspace(-3, 3, 61)


def at(kappa, shrink):
    """Loss, aleatoric and epistemic variance of the first target, at another κ and with L times a factor."""
    grow = jnp.log(shrink)
    change = jnp.array([0, 0, grow, minimum[3] * (shrink - 1), grow, jnp.log(kappa) - minimum[5], 0])
    niw = uncoupled(minimum + change)
    return mean_loss(minimum + change), mder.aleatoric(niw)[0, 0], mder.epistemic(niw)[0, 0]


curve = jax.jit(jax.vmap(at))
compensated = np.sqrt((1 + np.exp(-minimum[5])) / (1 + 1 / kappas))  # keeps (1+κ)/κ Ψ
loss, *variances = (np.asarray(x) for x in curve(kappas, compensated))
aleatoric, epistemic = np.sqrt(variances)
alone = curve(kappas, np.ones_like(kappas))[0]
figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.7), layout="constrained")
left.semilogx(kappas, alone, color=GREY, ls="--", label="κ alone changes")
left.semilogx(kappas, loss, color=BLUE, lw=2, label="(1+κ)/κ Ψ constant")
left.set(xlabel="κ", ylabel="mean loss (nats)", title="the loss")
right.loglog(kappas, aleatoric, color=ORANGE, label="aleatoric")
right.loglog(kappas, epistemic, color=GREEN, label="epistemic")
right.set(xlabel="κ", ylabel="standard deviation of $y_0$", title="what is read off, (1+κ)/κ Ψ constant")
for ax in (left, right):
    ax.axvline(np.exp(minimum[5]), color="black", lw=0.8, ls=":", label="ν = κ")
    ax.legend(fontsize="small")
plt.show()
print(f"loss:      largest minus smallest {np.ptp(loss):.0e}")
print(f"aleatoric: from {aleatoric[0]:.3f} to {aleatoric[-1]:.3f}")
print(f"epistemic: from {epistemic[0]:.3f} to {epistemic[-1]:.3f}")
assert np.ptp(loss) < 1e-12 and aleatoric[-1] > 10 * aleatoric[0] and epistemic[0] > 10 * epistemic[-1]

# %% [markdown]
# Left: on the curve the loss is constant (blue), although a small $\kappa$ alone would change it (dashed). Right: along
# the same curve both uncertainties change by more than a factor of ten. Nothing in the loss prefers one point of the
# curve. The coupling picks one, the dotted line for $r = 1$.
#
# The coupling does not make $\nu$ easy to find. The inverse of the Hessian gives the statistical errors of the fit, and
# that of $\ln\nu$ is the largest:

# %%
standard_errors = np.sqrt(np.diag(np.linalg.inv(coupled_hessian)) / len(data))
for name, error in zip([*NAMES[:5], "ln ν"], standard_errors, strict=True):
    print(f"{name:10s} ± {error:.3f} from {len(data)} observations")
assert standard_errors.argmax() == 5

# %% [markdown]
# ## 6. What $r$ does
#
# For every $r$ there is an $L$ with the same predictive distribution, so no data can tell $r$. With $\kappa = \nu/r$ it
# is $L_r = L_1\sqrt{(1 + 1/\nu)/(1 + r/\nu)}$. The total covariance $\mathbb E[\Sigma] + \operatorname{var}[\mu]$
# stays, and $r$ moves the border within it: the epistemic share is $\frac{1}{1+\kappa} = \frac{r}{r+\nu}$.

# %%
NU = 8.0
rs = np.array([0.1, 1.0, 10.0, 100.0])


@jax.jit
@jax.vmap
def with_r(r):
    """The NIW coupled by r with the predictive distribution of r = 1, and ln p of the data."""
    niw = mder.couple(mu0, L * jnp.sqrt((1 + 1 / NU) / (1 + r / NU)), NU, r)
    return niw, mder.log_evidence(niw, data)


niws, log_p = with_r(rs)
aleatoric, epistemic = (np.asarray(part)[:, 0, 0] for part in uncertainties(niws).values())
total = aleatoric + epistemic
change = np.abs(log_p - log_p[1]).max(axis=1)
print(f"{'r':>6s} {'κ':>6s} {'aleatoric':>10s} {'epistemic':>10s} {'sum':>8s} {'share':>7s} {'change of ln p':>15s}")
for i, r in enumerate(rs):
    print(f"{r:6.1f} {niws.kappa[i]:6.2f} {aleatoric[i]:10.4f} {epistemic[i]:10.4f} {total[i]:8.4f}", end=" ")
    print(f"{epistemic[i] / total[i]:7.1%} {change[i]:15.0e}")
assert change.max() < 1e-12 and np.abs(epistemic / total - rs / (rs + NU)).max() < 1e-12

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 2.9), width_ratios=[1, 2.4], layout="constrained")
r = np.logspace(-2, 4, 200)
left.stackplot(r, NU / (r + NU), r / (r + NU), colors=[ORANGE, GREEN], alpha=0.7, labels=["aleatoric", "epistemic"])
left.set(xscale="log", xlabel="r", ylabel="share of the variance", xlim=(r[0], r[-1]), ylim=(0, 1))
left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize="small")
places = np.stack([7.0 * np.arange(4), np.zeros(4)], axis=1)  # side by side
plotting.ellipses(mder.NIW(mu0 + places, niws.L, niws.kappa, niws.nu), rows=range(4), ax=right)
right.set_xticks(places[:, 0], [f"r = {r:g}" for r in rs])
right.set(xlabel="$y_0$, each from −3.5 to 3.5", ylabel="$y_1$", xlim=(-3.5, 24.5), ylim=(-4, 4), aspect="equal")
plt.show()

# %% [markdown]
# Left: the larger $r$, the more of the same variance is called epistemic. Right: the blue region, which holds 90 % of
# new observations, is the same for all four $r$; the orange ellipse is the aleatoric part and shrinks.
#
# So $r$ is a convention. Of two inputs, the one with the smaller $\nu$ has the larger epistemic share for every $r$. By
# how much, however, depends on $r$:

# %%
for r in (0.1, 1.0, 10.0, 100.0):
    few, many = r / (r + 4.0), r / (r + 13.0)
    print(f"r = {r:5.1f}: epistemic share {few:5.1%} for ν = 4 and {many:5.1%} for ν = 13, ratio {few / many:.2f}")
    assert few > many
