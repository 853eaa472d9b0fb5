r"""Lower-triangular algebra on stacks of small matrices: no inverse, no determinant of a sum, no LAPACK call.

Every routine is written out in array operations over the batch. For the small n of regression targets this is faster
than one library call per matrix, and it cannot hang: in jaxlib up to 0.10 two batched LAPACK calls that run at the
same time inside one program wait for each other forever on a machine with two cores.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike

from mder_jax._arguments import integer
from mder_jax._checks import check_event, check_rank, floats, is_concrete, same_rank

__all__ = ["half_logdet", "tril_size", "unpack_tril", "whiten"]

# The largest n for which each of these is written out entry by entry, and why it is not above.
_SOLVED = 16  # a triangular solve: a loop compiles faster
ENTRYWISE = 8  # a log-density, which makes link and loss 2 to 4 times faster: the matrix between them is never formed
_MULTIPLIED = 8  # a product of matrices: one library call for each is faster
_ROTATED = 4  # leaving rows out: a loop of reflections compiles faster
_DIFFERENTIATED = 3  # the derivative of a triangular solve: another solve is faster


def tril_size(n: int) -> int:
    """n(n+1)/2, the number of entries of a lower-triangular n × n matrix.

    Example:
      >>> tril_size(3)
      6
    """
    n = integer("n", n, least=0)
    return n * (n + 1) // 2


def unpack_tril(entries: ArrayLike, n: int) -> Array:
    """The rows of a lower-triangular matrix, (..., n(n+1)/2) -> (..., n, n), in the order the paper packs them.

    Example:
      >>> print(unpack_tril(jnp.array([1.0, 2.0, 3.0]), 2))
      [[1. 0.]
       [2. 3.]]
    """
    (entries,), n = floats(entries=entries), integer("n", n)
    if entries.shape[-1:] != (tril_size(n),):
        raise ValueError(f"a {n} x {n} lower triangle has {tril_size(n)} entries; got shape {entries.shape}")
    if n <= ENTRYWISE:
        return join_tril(split_last(entries), n)
    front = [(0, 0)] * (entries.ndim - 1)
    rows = [entries[..., tril_size(j) : tril_size(j + 1)] for j in range(n)]
    return jnp.stack([jnp.pad(row, [*front, (0, n - row.shape[-1])]) for row in rows], axis=-2)


def split_last(x: Array) -> list[Array]:
    """The entries of the last axis as separate arrays, (..., k) -> k times (...)."""
    return [jnp.squeeze(part, -1) for part in lax.split(x, (1,) * x.shape[-1], x.ndim - 1)]


def split_tril(L: Array) -> list[list[Array]]:
    """The lower triangle of (..., n, n) as separate arrays: row i is a list of i + 1 arrays (...)."""
    rows = lax.split(L, (1,) * L.shape[-1], L.ndim - 2)
    return [split_last(jnp.squeeze(row, -2))[: i + 1] for i, row in enumerate(rows)]


def join_tril(entries: list[Array], n: int) -> Array:
    """The inverse of `split_tril`, from the rows one after another: n(n+1)/2 times (...) -> (..., n, n)."""
    entries = [entry[..., None, None] for entry in entries]
    zero = jnp.zeros_like(entries[0])
    rows = [[*entries[tril_size(i) : tril_size(i + 1)], *[zero] * (n - 1 - i)] for i in range(n)]
    return jnp.concatenate([jnp.concatenate(row, axis=-1) for row in rows], axis=-2)


def log_determinant_and_distance(L: Array, d: Array) -> tuple[Array, Array]:
    """Σ_j ln L_jj and ‖L⁻¹ d‖², (..., n, n) and (..., n) -> (...) twice: all a Gaussian or a Student-t needs."""
    if d.shape[-1] > ENTRYWISE:
        white = whiten(L, d)
        return half_logdet(L), jnp.sum(white * white, axis=-1)
    rows = split_tril(L)
    log_diagonal, squares = [jnp.log(row[-1]) for row in rows], [x * x for x in _solve_rows(rows, split_last(d))]
    return sum(log_diagonal[1:], log_diagonal[0]), sum(squares[1:], squares[0])


def _solve_rows(rows: list[list[Array]], b: list[Array]) -> list[Array]:
    """L⁻¹ b by forward substitution, entry by entry."""
    solved: list[Array] = []
    for row, rest in zip(rows, b, strict=True):
        for entry, known in zip(row[:-1], solved, strict=True):
            rest = rest - entry * known
        solved.append(rest / row[-1])
    return solved


def pack_tril(matrix: Array) -> Array:
    """The inverse of `unpack_tril`: (..., n, n) -> (..., n(n+1)/2), row by row."""
    return jnp.concatenate([matrix[..., j, : j + 1] for j in range(matrix.shape[-1])], axis=-1)


def diagonal(matrix: Array) -> Array:
    """The diagonal of the last two axes, (..., n, n) -> (..., n): a masked sum, since a gather's gradient is slow."""
    return jnp.sum(jnp.where(on_diagonal(matrix), matrix, 0.0), axis=-1)


def on_diagonal(matrix: Array) -> Array:
    """True on the diagonal, in the rank of the matrix."""
    return jnp.expand_dims(jnp.eye(matrix.shape[-1], dtype=bool), range(matrix.ndim - 2))


def diagonal_matrix(entries: Array) -> Array:
    """The matrix with these entries on its diagonal, (..., n) -> (..., n, n)."""
    rows = entries[..., :, None]
    return jnp.where(on_diagonal(jnp.broadcast_to(rows, (*entries.shape, entries.shape[-1]))), rows, 0.0)


def half_logdet(L: ArrayLike) -> Array:
    """½ ln|L Lᵀ| = Σ_j ln L_jj, (..., n, n) -> (...).

    Example:
      >>> print(half_logdet(jnp.array([[1.0, 0.0], [5.0, 1.0]])))
      0.0
    """
    (L,) = floats(L=L)
    check_rank("L", L, 2, "(..., n, n)")
    check_event("L", L, (L.shape[-1],) * 2, "a square matrix")
    return jnp.sum(jnp.log(diagonal(L)), axis=-1)


def matmul(A: Array, B: Array) -> Array:
    """A B; small factors as a fused sum of products, faster than one library call per matrix."""
    if A.shape[-1] > _MULTIPLIED:
        return A @ B
    return jnp.sum(A[..., :, :, None] * B[..., None, :, :], axis=-2)


def gram(L: Array) -> Array:
    """L Lᵀ, (..., n, k) -> (..., n, n)."""
    return matmul(L, jnp.swapaxes(L, -1, -2))


def whiten(L: ArrayLike, d: ArrayLike) -> Array:
    """L⁻¹ d by forward substitution, (..., n, n) and (..., n) -> (..., n); derivatives by one more solve.

    Example:
      >>> print(whiten(jnp.array([[2.0, 0.0], [1.0, 4.0]]), jnp.array([2.0, 9.0])))
      [1. 2.]
    """
    L, d = floats(L=L, d=d)
    check_rank("d", d, 1, "(..., n)")
    check_event("L", L, (d.shape[-1],) * 2, f"d {d.shape}")
    try:
        batch = np.broadcast_shapes(L.shape[:-2], d.shape[:-1])
    except ValueError:
        raise ValueError(f"batch shapes do not agree: L {L.shape[:-2]}, d {d.shape[:-1]}") from None
    L, d = same_rank(L, batch, 2), jnp.broadcast_to(d, (*batch, d.shape[-1]))
    if d.shape[-1] <= _DIFFERENTIATED:
        return _forward(L, d)

    def product(x: Array) -> Array:
        return jnp.sum(jnp.tril(L) * x[..., None, :], axis=-1)

    return lax.custom_linear_solve(product, d, lambda _, b: _forward(L, b), lambda _, b: _backward(L, b))


def _backward(L: Array, b: Array) -> Array:
    """L⁻ᵀ b: with its rows and columns reversed, Lᵀ is a lower triangle."""
    return jnp.flip(_forward(jnp.flip(jnp.swapaxes(L, -1, -2), (-1, -2)), jnp.flip(b, -1)), -1)


def _forward(L: Array, b: Array) -> Array:
    """L⁻¹ b by forward substitution."""
    n = b.shape[-1]
    if n <= _SOLVED:
        return jnp.stack(_solve_rows(split_tril(L), split_last(b)), axis=-1)
    index = _axis(n, b.ndim)

    def eliminate(j: Array, x: Array) -> Array:
        known = (jnp.take(x, j, axis=-1) / L[..., j, j])[..., None]
        return jnp.where(index > j, x - L[..., :, j] * known, jnp.where(index == j, known, x))

    return lax.fori_loop(0, n, eliminate, b)


def whiten_columns(L: Array, B: Array) -> Array:
    """L⁻¹ B for a matrix of right-hand sides, (..., n, n) and (..., n, k) -> (..., n, k)."""
    columns = jnp.swapaxes(B, -1, -2)
    return jnp.swapaxes(whiten(L[..., None, :, :], columns), -1, -2)


def _axis(size: int, rank: int) -> Array:
    """0, 1, ..., size-1 along the last of `rank` axes."""
    return jnp.expand_dims(jnp.arange(size), range(rank - 1))


def _factor_tangent(L: Array, X: Array) -> Array:
    """The tangent of L when that of L Lᵀ is L (X + Xᵀ) Lᵀ: L times the lower half of X + Xᵀ."""
    return matmul(L, jnp.tril(X) + jnp.tril(jnp.swapaxes(X, -1, -2), -1))


@jax.custom_jvp
def cholesky(S: Array) -> Array:
    """The lower-triangular factor of a positive definite matrix, S = L Lᵀ; NaN where it is not."""
    rows = _axis(S.shape[-1], S.ndim - 1)

    def eliminate(j: Array, rest: Array) -> Array:
        pivot = jnp.take(rest, j, axis=-1)  # column j
        column = jnp.where(rows >= j, pivot / jnp.sqrt(jnp.take(pivot, j, axis=-1))[..., None], 0.0)
        update, place = rest - column[..., :, None] * column[..., None, :], rows[..., None, :]
        return jnp.where(place > j, update, jnp.where(place == j, column[..., :, None], rest))

    return lax.fori_loop(0, S.shape[-1], eliminate, S)


@cholesky.defjvp
def _cholesky_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (S,), (dS,) = primals, tangents
    L = cholesky(S)
    M = whiten_columns(L, jnp.swapaxes(whiten_columns(L, 0.5 * (dS + jnp.swapaxes(dS, -1, -2))), -1, -2))
    return L, _factor_tangent(L, 0.5 * M)


def axes_of(S: Array) -> Array:
    """U with orthonormal columns and Uᵀ S U diagonal, for symmetric S, (..., n, n) -> (..., n, n): Jacobi's rotations.

    A round turns n/2 pairs of axes at once, the i-th with the (i + n/2)-th; between rounds the axes move as the players
    of a tournament do, so that n − 1 rounds meet every pair and end where they began. It converges quadratically.
    """
    n = S.shape[-1]
    S = jnp.pad(S, [(0, 0)] * (S.ndim - 2) + [(0, n % 2)] * 2)  # for odd n an axis that stays separate
    size, half = n + n % 2, (n + n % 2) // 2
    bound = 4 * float(jnp.finfo(S.dtype).eps) ** 2

    def moved(matrix: Array, axis: int) -> Array:
        """The axes in the seats of the next round: along the first half, back along the second; the first stays."""
        if half == 1:
            return matrix
        first, others, last, opposite, rest = jnp.split(matrix, (1, half - 1, half, half + 1), axis)
        return jnp.concatenate([first, opposite, others, rest, last], axis)

    def turn(matrix: Array, cosine: Array, sine: Array) -> Array:
        """Columns i and i + n/2 turned by the i-th angle."""
        first, second = matrix[..., :half], matrix[..., half:]
        cosine, sine = cosine[..., None, :], sine[..., None, :]
        return jnp.concatenate([cosine * first - sine * second, sine * first + cosine * second], axis=-1)

    def round_(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        S, U = state
        gap = diagonal(S[..., half:, half:]) - diagonal(S[..., :half, :half])
        angle = 0.5 * jnp.arctan2(2 * diagonal(S[..., :half, half:]), gap)
        angle = jnp.where(jnp.abs(angle) > 0.25 * np.pi, angle - jnp.sign(angle) * 0.5 * np.pi, angle)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        S = turn(jnp.swapaxes(turn(S, cosine, sine), -1, -2), cosine, sine)
        return moved(moved(S, -2), -1), moved(turn(U, cosine, sine), -1)

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        S, _, count = state
        outside = jnp.sum(jnp.where(on_diagonal(S), 0.0, S) ** 2, axis=(-1, -2))
        return (count < 12) & jnp.any(outside > bound * jnp.sum(S**2, axis=(-1, -2)))

    def sweep(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        S, U, count = state
        return *lax.fori_loop(0, size - 1, round_, (S, U)), count + 1

    identity = diagonal_matrix(jnp.ones_like(S[..., 0]))
    return lax.while_loop(unfinished, sweep, (S, identity, jnp.zeros((), jnp.int32)))[1][..., :n, :n]


@jax.jit
def triangularise(B: Array) -> Array:
    """The lower-triangular L with positive diagonal and L Lᵀ = B Bᵀ, (..., k, m) -> (..., k, k), k ≤ m.

    One Householder reflection a row, so the condition number is not squared as it is by forming B Bᵀ. Compiled here,
    since a loop that is called without `jit` is compiled anew each time.
    """
    return _triangularise(B, jnp.ones(B.shape[:-1], bool))


@custom_vmap
def _all(x: Array) -> Array:
    """Whether all are True, also over the axes of `jax.vmap`: `lax.cond` on it then computes one branch, not both."""
    return jnp.all(x)


@_all.def_vmap
def _all_of_batch(size: int, batched: list[bool], x: Array) -> tuple[Array, bool]:
    return _all(x), False


def leave_rows_out(L: Array, observed: Array) -> Array:
    """Factor of the observed rows of a lower-triangular L, (..., n, n) and (..., n) -> (..., n, n).

    The rows not observed become those of the identity; the others factor the Gram matrix of the observed rows alone.
    Where all rows are observed it is L itself; if they are everywhere, nothing is computed.
    """
    if is_concrete(observed):
        return L if np.asarray(observed).all() else _left_out(L, observed)
    return lax.cond(_all(observed), lambda L, _: L, _left_out, L, observed)


def _left_out(L: Array, observed: Array) -> Array:
    factor = _triangularise(jnp.tril(L), observed) if L.shape[-1] > _ROTATED else _rotated(L, observed)
    return jnp.where(jnp.all(observed, axis=-1)[..., None, None], L, factor)


def _rotated(L: Array, observed: Array) -> Array:
    """`leave_rows_out` by rotations: the column of a row left out is free to be rotated into the diagonal below it."""
    entry, seen = split_tril(L), split_last(observed)
    for i in range(len(seen)):
        for k in range(i):  # Givens rotation of columns k and i that turns the entry (i, k) into 0
            below = jnp.where(seen[i] & ~seen[k], entry[i][k], 0.0)
            length = jnp.sqrt(entry[i][i] ** 2 + below**2)
            cosine, sine = entry[i][i] / length, below / length
            entry[i][i] = length
            for row in entry[i + 1 :]:
                row[i], row[k] = cosine * row[i] + sine * row[k], cosine * row[k] - sine * row[i]
    pairs = [(i, k) for i in range(len(seen)) for k in range(i + 1)]
    kept = [jnp.where(seen[i] & seen[k], entry[i][k], 1.0 if i == k else 0.0) for i, k in pairs]
    return join_tril(kept, len(seen))


@jax.custom_jvp
def _triangularise(B: Array, observed: Array) -> Array:
    k, m = B.shape[-2:]
    columns = _axis(m, B.ndim - 1)
    rows = _axis(k, B.ndim - 1)[..., :, None]

    def reflect(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        B, taken = state
        here = columns == i
        seen = jnp.take(observed, i, axis=-1)[..., None]
        row = jnp.take(B, i, axis=-2)
        # A row left out is reflected as a unit vector: nothing happens to the rows below it.
        v = jnp.where(seen, jnp.where(taken, 0.0, row), jnp.where(here, 1.0, 0.0))
        pivot = jnp.take(v, i, axis=-1)[..., None]
        length = jnp.sqrt(jnp.sum(v * v, axis=-1, keepdims=True))
        sign = jnp.where(pivot >= 0, 1.0, -1.0)
        u = jnp.where(here, v + sign * length, v)
        along = jnp.sum(B * u[..., None, :], axis=-1, keepdims=True) / (length * (length + jnp.abs(pivot)))[..., None]
        reflected = B - along * u[..., None, :]
        # The reflection turns v into -sign · length; turning the column's sign back makes the diagonal positive.
        reflected = jnp.where(here[..., None, :], -sign[..., None] * reflected, reflected)
        done = jnp.where(here, length, jnp.where(taken & seen, row, 0.0))
        B = jnp.where(rows > i, reflected, jnp.where(rows == i, done[..., None, :], B))
        return B, taken | (here & seen)

    return lax.fori_loop(0, k, reflect, (B, jnp.zeros((*B.shape[:-2], m), bool)))[0][..., :k]


@_triangularise.defjvp
def _triangularise_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (B, observed), (dB, _) = primals, tangents
    L = _triangularise(B, observed)
    kept = observed[..., None]
    Q = whiten_columns(L, jnp.where(kept, B, 0.0))  # orthonormal rows, L Q = B
    X = matmul(whiten_columns(L, jnp.where(kept, dB, 0.0)), jnp.swapaxes(Q, -1, -2))
    return L, _factor_tangent(L, X)
