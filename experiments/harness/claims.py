"""Rows of the ledger: a claim of the paper, the number that tests it, and the verdict that follows from the number."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

HOLDS, IN_PART, FAILS, OPEN = "holds", "holds in part", "does not hold", "cannot be decided"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One row of the ledger."""

    id: str  # stable name, "<study>.<short_snake_case>", that tests and ledger use
    where: str  # section and label in the paper
    claim: str  # in our words
    statistic: str  # the number that tests it
    paper: str = ""  # its value as the paper prints it, or empty
    ours: str  # the value found here, with an interval where it is an estimate
    verdict: str  # one of `HOLDS`, `IN_PART`, `FAILS`, `OPEN`

    def about(self, case: str, words: str) -> "Claim":
        """The same claim about one of several cases: its id ends with ``_case``, its text with the words."""
        return replace(self, id=f"{self.id}_{case}", claim=self.claim + words)


class Finding(NamedTuple):
    """What the test of a claim found: the last fields of its row; `paper` only if it depends on the results."""

    statistic: str
    ours: str
    verdict: str
    paper: str = ""


def claim(id: str, where: str, paper: str = "") -> Callable[[Callable[..., Finding]], Callable[..., Claim]]:
    """Turn a test of a claim, with the claim in our words as docstring, into a function that returns a ledger row."""

    def decorate(test: Callable[..., Finding]) -> Callable[..., Claim]:
        text = " ".join((test.__doc__ or "").split())

        @functools.wraps(test)
        def tested(*arguments: Any) -> Claim:
            found = test(*arguments)
            fields = {**found._asdict(), "paper": found.paper or paper}
            return Claim(id=id, where=where, claim=text, **fields)

        return tested

    return decorate


def by_id(claims: Iterable[Claim]) -> dict[str, Claim]:
    """The claims by their id, which must be unique."""
    found: dict[str, Claim] = {}
    for claim in claims:
        if claim.id in found:
            raise ValueError(f"two claims have the id {claim.id!r}")
        found[claim.id] = claim
    return found


def decide(holds: Any, in_part: Any = False) -> str:
    """The verdict of one or two conditions."""
    return HOLDS if holds else IN_PART if in_part else FAILS


def judge(holds: Any, fails: Any) -> str:
    """The verdict where the numbers may leave it open."""
    return HOLDS if holds else FAILS if fails else OPEN
