r"""Lower-triangular algebra on stacks of small matrices: no inverse, no determinant of a sum, no LAPACK call.

Every routine is written out in array operations over the batch. For the small n of regression targets this is faster
than one library call per matrix, and it cannot hang: in jaxlib up to 0.10 two batched LAPACK calls that run at the
same time inside one program wait for each other forever on a machine with two cores.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from mder_jax._checks import check_event, check_rank, floats, integer, same_rank

__all__ = ["half_logdet", "tril_size", "unpack_tril", "whiten"]

# Up to this size a triangular solve is written out entry by entry; above, it is a loop, which compiles faster.
_UNROLLED = 16
# Up to this size a log-density treats every entry of L as an array of its own over the batch: the compiler then removes
# the matrix between link and loss, and value and gradient of both are two to four times faster.
ENTRYWISE = 8
# Up to this size rows are left out by rotations written out entry by entry.
_ROTATED = 4


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
    rows = []
    for j in range(n):
        row = entries[..., tril_size(j) : tril_size(j + 1)]
        rows.append(jnp.pad(row, [(0, 0)] * (row.ndim - 1) + [(0, n - 1 - j)]))
    return jnp.stack(rows, axis=-2)


def split_last(x: Array) -> list[Array]:
    """The entries of the last axis as arrays of their own, (..., k) -> k times (...)."""
    return [jnp.squeeze(part, -1) for part in lax.split(x, (1,) * x.shape[-1], x.ndim - 1)]


def split_tril(L: Array) -> list[list[Array]]:
    """The lower triangle of (..., n, n) as arrays of their own: row i is a list of i + 1 arrays (...)."""
    n, rank = L.shape[-1], L.ndim
    rows = [lax.split(row, (1,) * n, rank - 1) for row in lax.split(L, (1,) * n, rank - 2)]
    return [[jnp.squeeze(entry, (-1, -2)) for entry in row[: i + 1]] for i, row in enumerate(rows)]


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
    n = matrix.shape[-1]
    return jnp.concatenate([matrix[..., j, : j + 1] for j in range(n)], axis=-1)


def diagonal(matrix: Array) -> Array:
    """The diagonal of the last two axes, (..., n, n) -> (..., n): a masked sum, since a gather's gradient is slow."""
    return jnp.sum(jnp.where(on_diagonal(matrix), matrix, 0.0), axis=-1)


def on_diagonal(matrix: Array) -> Array:
    """True on the diagonal, in the rank of the matrix."""
    n = matrix.shape[-1]
    return jnp.eye(n, dtype=bool).reshape((1,) * (matrix.ndim - 2) + (n, n))


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
    if A.shape[-1] > 8:
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
    if L.shape[:-1] != d.shape:
        L, d = _aligned(L, d)
    if d.shape[-1] <= 3:  # the derivative of so few operations is faster than another solve
        return _forward(L, d)

    def product(x: Array) -> Array:
        return jnp.sum(jnp.tril(L) * x[..., None, :], axis=-1)

    return lax.custom_linear_solve(product, d, lambda _, b: _forward(L, b), lambda _, b: _backward(L, b))


def _aligned(L: Array, d: Array) -> tuple[Array, Array]:
    """L with as many axes as it needs, and d for every L: axes of size one are stretched."""
    longest = max(L.shape[:-2], d.shape[:-1], key=len)
    aligned, d = same_rank(L, longest, 2), same_rank(d, longest, 1)
    sizes = list(zip(aligned.shape[:-2], d.shape[:-1], strict=True))
    if any(a != b and 1 not in (a, b) for a, b in sizes):
        raise ValueError(f"batch shapes do not agree: L {L.shape[:-2]}, d {d.shape[:-1]}")
    return aligned, jnp.broadcast_to(d, (*(b if a == 1 else a for a, b in sizes), d.shape[-1]))


def _forward(L: Array, b: Array) -> Array:
    """L⁻¹ b, from the top."""
    return _substitute(b, range(b.shape[-1]), lambda row, column: L[..., row, column])


def _backward(L: Array, b: Array) -> Array:
    """L⁻ᵀ b, from the bottom."""
    return _substitute(b, range(b.shape[-1])[::-1], lambda row, column: L[..., column, row])


def _substitute(b: Array, order: range, entry: Callable[[Any, Any], Array]) -> Array:
    """Solve a triangular system whose unknowns become known in the given order; entry(:, j) is a column."""
    n = b.shape[-1]
    if n <= _UNROLLED:
        solved: dict[int, Array] = {}
        for j in order:
            rest = b[..., j]
            for k, known in solved.items():
                rest = rest - entry(j, k) * known
            solved[j] = rest / entry(j, j)
        return jnp.stack([solved[j] for j in range(n)], axis=-1)
    index = _axis(n, b.ndim)

    def eliminate(step: Array, x: Array) -> Array:
        j = order.start + order.step * step
        known = jnp.take(x, j, axis=-1) / entry(j, j)
        later = (index - j) * order.step > 0
        return jnp.where(
            later, x - entry(slice(None), j) * known[..., None], jnp.where(index == j, known[..., None], x)
        )

    return lax.fori_loop(0, n, eliminate, b)


def whiten_columns(L: Array, B: Array) -> Array:
    """L⁻¹ B for a matrix of right-hand sides, (..., n, n) and (..., n, k) -> (..., n, k)."""
    columns = jnp.swapaxes(B, -1, -2)
    return jnp.swapaxes(whiten(L[..., None, :, :], columns), -1, -2)


def _axis(size: int, rank: int) -> Array:
    """0, 1, ..., size-1 along the last of `rank` axes."""
    return jnp.arange(size).reshape((1,) * (rank - 1) + (size,))


def _factor_tangent(L: Array, X: Array) -> Array:
    """The tangent of L when that of L Lᵀ is L (X + Xᵀ) Lᵀ: L times the lower half of X + Xᵀ."""
    return matmul(L, jnp.tril(X) + jnp.tril(jnp.swapaxes(X, -1, -2), -1))


@jax.custom_jvp
def cholesky(S: Array) -> Array:
    """The lower-triangular factor of a positive definite matrix, S = L Lᵀ; NaN where it is not."""
    n = S.shape[-1]
    rows = _axis(n, S.ndim - 1)

    def eliminate(j: Array, rest: Array) -> Array:
        pivot = jnp.take(rest, j, axis=-1)  # column j
        column = jnp.where(rows >= j, pivot / jnp.sqrt(jnp.take(pivot, j, axis=-1))[..., None], 0.0)
        later = rows[..., None, :] > j
        update = rest - column[..., :, None] * column[..., None, :]
        return jnp.where(later, update, jnp.where(rows[..., None, :] == j, column[..., :, None], rest))

    return lax.fori_loop(0, n, eliminate, S)


@cholesky.defjvp
def _cholesky_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (S,), (dS,) = primals, tangents
    L = cholesky(S)
    M = whiten_columns(L, jnp.swapaxes(whiten_columns(L, 0.5 * (dS + jnp.swapaxes(dS, -1, -2))), -1, -2))
    return L, _factor_tangent(L, 0.5 * M)


def axes_of(S: Array) -> Array:
    """U with orthonormal columns and Uᵀ S U diagonal, for symmetric S, (..., n, n) -> (..., n, n): Jacobi's rotations.

    A round turns n/2 pairs of axes at once, the i-th with the (i + n/2)-th; between rounds the axes move as the players
    of a tournament do, so that n − 1 rounds meet every pair. It converges quadratically.
    """
    n = S.shape[-1]
    if n == 1:
        return jnp.ones_like(S)
    padding = [(0, 0)] * (S.ndim - 2) + [(0, n % 2)] * 2
    S = jnp.pad(S, padding)
    size, half = n + n % 2, (n + n % 2) // 2
    seats = [0, *range(1, half), *range(size - 1, half - 1, -1)]  # in a circle; the first stays
    moved = [seats[0], seats[-1], *seats[1:-1]]
    order = np.empty(size, int)
    order[seats] = moved
    bound = 4 * float(jnp.finfo(S.dtype).eps) ** 2

    def turn(matrix: Array, cosine: Array, sine: Array) -> Array:
        """Columns i and i + n/2 turned by the i-th angle."""
        first, second = matrix[..., :half], matrix[..., half:]
        cosine, sine = cosine[..., None, :], sine[..., None, :]
        return jnp.concatenate([cosine * first - sine * second, sine * first + cosine * second], axis=-1)

    def round_(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        S, U = state
        entries = diagonal(S)
        between = diagonal(S[..., :half, half:])
        gap = entries[..., half:] - entries[..., :half]
        angle = 0.5 * jnp.arctan2(2 * between, gap)
        angle = jnp.where(jnp.abs(angle) > 0.25 * np.pi, angle - jnp.sign(angle) * 0.5 * np.pi, angle)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        S = turn(jnp.swapaxes(turn(S, cosine, sine), -1, -2), cosine, sine)
        return S[..., order, :][..., order], turn(U, cosine, sine)[..., order]

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        S, _, count = state
        outside = jnp.sum(jnp.where(on_diagonal(S), 0.0, S) ** 2, axis=(-1, -2))
        return (count < 12) & jnp.any(outside > bound * jnp.sum(S**2, axis=(-1, -2)))

    def sweep(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        S, U, count = state
        return *lax.fori_loop(0, size - 1, round_, (S, U)), count + 1

    identity = jnp.broadcast_to(jnp.eye(size, dtype=S.dtype).reshape((1,) * (S.ndim - 2) + (size, size)), S.shape)
    U = lax.while_loop(unfinished, sweep, (S, identity, jnp.zeros((), jnp.int32)))[1]
    # The axis that was added stays an axis of its own: it is left out wherever it is now.
    if n % 2:
        place = jnp.argmax(jnp.abs(U[..., -1, :]), axis=-1)
        column = _axis(n, S.ndim - 1)
        column = jnp.where(column < place[..., None], column, column + 1)
        U = jnp.take_along_axis(U, jnp.broadcast_to(column[..., None, :], (*S.shape[:-1], n)), axis=-1)
    return U[..., :n, :]


@jax.jit
def triangularise(B: Array) -> Array:
    """The lower-triangular L with positive diagonal and L Lᵀ = B Bᵀ, (..., k, m) -> (..., k, k), k ≤ m.

    One Householder reflection a row, so the condition number is not squared as it is by forming B Bᵀ. Compiled here,
    since a loop that is called on its own would be compiled anew each time.
    """
    return _triangularise(B, jnp.ones(B.shape[:-1], bool))


def leave_rows_out(L: Array, observed: Array) -> Array:
    """Factor of the observed rows of a lower-triangular L, (..., n, n) and (..., n) -> (..., n, n).

    The rows not observed become those of the identity; the others factor the Gram matrix of the observed rows alone.
    The column of a row that was left out stays free to be rotated into the diagonal of the rows below it.
    """
    n = L.shape[-1]
    if n > _ROTATED:
        return _triangularise(jnp.tril(L), observed)
    entry = {(i, k): L[..., i, k] for i in range(n) for k in range(i + 1)}
    seen = [observed[..., i] for i in range(n)]
    for i in range(n):
        for k in range(i):  # rotate column k into column i if row i is there and row k is not
            below = jnp.where(seen[i] & ~seen[k], entry[i, k], 0.0)
            length = jnp.sqrt(entry[i, i] ** 2 + below**2)
            cosine, sine = entry[i, i] / length, below / length
            entry[i, i] = length
            for j in range(i + 1, n):
                a, b = entry[j, i], entry[j, k]
                entry[j, i], entry[j, k] = cosine * a + sine * b, cosine * b - sine * a
    zero = jnp.zeros_like(entry[0, 0])
    rows = [
        [
            jnp.where(seen[i], entry[i, k], 1.0) if k == i else jnp.where(seen[i] & seen[k], entry[i, k], 0.0)
            for k in range(i + 1)
        ]
        + [zero] * (n - i - 1)
        for i in range(n)
    ]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


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

    start = jnp.zeros((*B.shape[:-2], m), bool)
    return lax.fori_loop(0, k, reflect, (B, start))[0][..., :k]


@_triangularise.defjvp
def _triangularise_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (B, observed), (dB, _) = primals, tangents
    L = _triangularise(B, observed)
    kept = observed[..., None]
    Q = whiten_columns(L, jnp.where(kept, B, 0.0))  # orthonormal rows, L Q = B
    X = matmul(whiten_columns(L, jnp.where(kept, dB, 0.0)), jnp.swapaxes(Q, -1, -2))
    return L, _factor_tangent(L, X)
