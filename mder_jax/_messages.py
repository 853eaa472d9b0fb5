"""Values and names in messages."""

import difflib
from collections.abc import Sequence


def quoted(value: object) -> str:
    """A value for a message: in quotes, without control characters, not longer than a line."""
    text = str(value)
    return repr(text if len(text) <= 60 else text[:60] + "…")


def listed(values: Sequence[object], most: int = 10) -> str:
    """The first few of some values, quoted."""
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(map(quoted, values[:most])) + more


def unknown(names: Sequence[str], known: Sequence[str]) -> str:
    """The first few of some names that are not known, quoted, with the known ones that are similar."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(f"{quoted(name)}{_suggestion(name, known)}" for name in names[:5]) + more


def _suggestion(name: str, known: Sequence[str]) -> str:
    by_lower_case = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), list(by_lower_case), 1)
    return f" (did you mean {quoted(by_lower_case[near[0]])}?)" if near else ""
