"""Members that are no networks: which there are, and the weights of all, by rows that networks held out."""

import contextlib
from typing import Any, NamedTuple

import jax
import numpy as np

from mder_jax._arguments import is_integer
from mder_jax.estimator._judge import Judge
from mder_jax.estimator._rows import Rows, plain_inputs
from mder_jax.estimator.forest_member import ForestMember, fit_forest_member, forest_arrays, forest_of, within_limits
from mder_jax.estimator.process_member import ProcessMember, fit_process_member, left_out, process_arrays, process_of
from mder_jax.niw import NIW

PROCESS, FOREST = KINDS = ("process", "forest")
# With fewer rows that have all targets, or more targets, there is none.
FEWEST_ROWS, MOST_TARGETS = 10, 32
# One with less weight is left out, since it takes time.
LEAST_WEIGHT = 0.02


class Beside(NamedTuple):
    """Further members, at least one, and their weights in the mixture; the networks share what is left.

    Args:
      members: by kind.
      weights: by kind, positive, together less than 1.
    """

    members: dict[str, Any]
    weights: dict[str, float]

    def predict(self, X: np.ndarray) -> NIW:
        """For standardised rows (N, d), batch shape (N, K), as arrays of numpy in single precision."""
        each = [member.predict(X) for member in self.members.values()]
        return jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *each)

    def log_weights(self, networks: int) -> np.ndarray:
        """ln w of so many networks, and then of these, (networks + K,)."""
        own = np.array(list(self.weights.values()))
        return np.log(np.append(np.full(networks, (1 - own.sum()) / networks), own)).astype(np.float32)

    def of_fold(self, members: tuple[int, ...], rows: Rows, held_out: np.ndarray) -> "Beside | None":
        """Those that have not learned from the rows of a mask (N,), which these networks and no others held out."""
        found: dict[str, Any] = {}
        for kind, member in self.members.items():
            apart = member.given(rows, ~held_out) if kind == PROCESS else member.of_members(members)
            if apart is not None:
                found[kind] = apart
        return Beside(found, {kind: self.weights[kind] for kind in found}) if found else None


def fit_beside(
    kinds: tuple[str, ...],
    rows: Rows,
    held_out: np.ndarray | None,
    embedded: tuple[tuple[int, int], ...],
    judge: Judge,
    params: Any,
    seed: int,
) -> tuple[Beside | None, float]:
    """Further members, None if none is worth it, and the factor on L of the networks: those of `Judge.blend`.

    Both are by rows that neither the networks nor the further members were given.

    Args:
      kinds: of `KINDS`.
      rows: of the fit, standardised.
      held_out: which of them the networks held out, (M, N); None if the judge has rows of its own.
      embedded: as in `ProcessMember`.
      judge: of the networks.
      params: of the networks.
      seed: of all that is drawn.
    """
    of_process = np.zeros(len(rows.X), bool) if held_out is None else left_out(held_out)
    missing = [of_process] if held_out is None else [of_process, *held_out]
    if min(len(rows.complete(~own)) for own in missing) < FEWEST_ROWS or rows.Y.shape[1] > MOST_TARGETS:
        kinds = ()
    if held_out is not None and not of_process[judge.index].any():
        kinds = tuple(kind for kind in kinds if kind != PROCESS)
    found: dict[str, Any] = {}
    judged = np.ones(len(judge.index), bool)
    if PROCESS in kinds:
        with contextlib.suppress(np.linalg.LinAlgError):  # rows that are nearly alike, in a table of many columns
            found[PROCESS] = fit_process_member(rows, ~of_process, embedded, seed)
            judged = judged if held_out is None else of_process[judge.index]
    if FOREST in kinds:
        found[FOREST] = fit_forest_member(rows, held_out, embedded, seed)
    candidates = {
        kind: member.candidate(judge.rows)
        if isinstance(member, ProcessMember)
        else member.candidate(judge.rows, None if held_out is None else held_out[:, judge.index])
        for kind, member in found.items()
    }
    while candidates:
        blend = judge.blend(params, list(candidates.values()), judged)
        shares = dict(zip(candidates, blend.shares, strict=True))
        if min(shares.values()) >= LEAST_WEIGHT:
            whole = np.ones(len(rows.X), bool)
            if PROCESS in shares and held_out is not None:
                found[PROCESS] = found[PROCESS].given(rows, whole)
            if FOREST in shares:
                spread, floor = np.exp(blend.theta[list(candidates).index(FOREST)]).tolist()
                found[FOREST] = found[FOREST]._replace(spread=spread, floor=floor)
            return Beside({kind: found[kind] for kind in shares}, shares), blend.factor
        lightest = min(shares, key=shares.__getitem__)
        del candidates[lightest]
        if lightest == PROCESS:
            judged = np.ones(len(judge.index), bool)
    return None, judge.loss_and_factor(params)[1]


def to_document(beside: Beside | None) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """For a file: fields for JSON, and arrays."""
    if beside is None:
        return None, {}
    fields: dict[str, Any] = {"weights": beside.weights}
    arrays: dict[str, np.ndarray] = {}
    for member in beside.members.values():
        fields["embedded"] = [list(pair) for pair in member.embedded]
        if isinstance(member, ProcessMember):
            arrays |= process_arrays(member.process)
        else:
            arrays |= forest_arrays(member.forest)
            groups = [list(group) for group in member.groups]
            fields["forest"] = {"groups": groups, "spread": member.spread, "floor": member.floor}
    return fields, arrays


def from_document(
    fields: dict[str, Any] | None,
    arrays: dict[str, np.ndarray],
    inputs: int,
    targets: int,
    embedded: tuple[tuple[int, int], ...],
) -> Beside | None:
    """The further members of a file, for networks of so many standardised inputs and targets; else a ValueError.

    Files of earlier versions have none.
    """
    if fields is None:
        return None
    weights = {str(kind): float(weight) for kind, weight in fields["weights"].items()}
    known = weights and set(weights) <= set(KINDS) and min(weights.values()) > 0 and sum(weights.values()) < 1
    if not known or tuple(map(tuple, fields["embedded"])) != embedded:
        raise ValueError(f"members beside the networks do not fit them: {fields!r:.80}")
    width = plain_inputs(np.zeros((1, inputs)), embedded).shape[1]
    members: dict[str, Any] = {}
    for kind in weights:
        if kind == PROCESS:
            members[kind] = ProcessMember(process_of(arrays, width, targets), embedded)
            continue
        own = fields["forest"]
        groups, spread, floor = own["groups"], float(own["spread"]), float(own["floor"])
        good = groups and all(group and all(is_integer(one) and one >= 0 for one in group) for group in groups)
        if not good or not within_limits(spread, floor):
            raise ValueError(f"groups and scale of the forest are inconsistent: {own!r:.80}")
        forest = forest_of(arrays, width, targets, len(groups))
        members[kind] = ForestMember(forest, tuple(map(tuple, groups)), spread, floor, embedded)
    return Beside(members, weights)
