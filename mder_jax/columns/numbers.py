"""Numbers as people write them: 1,5  17,674.5  1.234,5  1_000  3.1 %  $5  −2, and markers of what is missing."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf(inity)?|nan)$"
_GROUPED = r"\d{1,3}([,._'’ \x{a0}\x{2009}\x{202f}]\d{3})+([.,]\d+)?"
_DECIMAL = r"(\d+[.,]?\d*|[.,]\d+)([eE][+\-−]?\d+)?"
_BLANK = r"[\s\x{a0}\x{202f}]?"
SPELLED = rf"^[$€£¥]?{_BLANK}[+\-−–]?[$€£¥]?({_DECIMAL}|{_GROUPED}){_BLANK}[%‰$€£¥]?$"
_ERROR = r"#(n/a|value!|div/0!|ref!|name\?|num!|null!)"
MARKER = rf"^([^\pL\pN]+|(?i:n/?a|n\.a\.?|nan|null|unknown|missing|not (available|known)|tbd|{_ERROR}))$"

# What only a decimal comma explains, and what only a decimal point does.
_WITH_COMMA = r"(^|\D)0?,\d|\d{4,},\d|,(\d{1,2}|\d{4,})(\D|$)|\.\d{3}[.,]\d"
_WITH_POINT = r"(^|\D)0?\.\d|\d{4,}\.\d|\.(\d{1,2}|\d{4,})(\D|$)|,\d{3}[.,]\d"
_GROUPED_BY = {mark: rf"^[+-]?[1-9]\d{{0,2}}(\{mark}\d{{3}})+(\{other}\d*)?$" for mark, other in (",.", ".,")}


def matches(text: pa.Array, pattern: str) -> np.ndarray:
    """Which texts match a pattern, (k,) bool."""
    return pc.match_substring_regex(text, pattern).to_numpy(zero_copy_only=False).astype(bool)


def decimal_mark(text: pa.Array) -> str:
    """The decimal mark of a column, "." or ",": what explains more of its different texts; "." if both do."""
    spelled = text.filter(pc.match_substring_regex(text, SPELLED))
    return "," if matches(spelled, _WITH_COMMA).sum() > matches(spelled, _WITH_POINT).sum() else "."


def parse(text: pa.Array, decimal: str = ".") -> np.ndarray:
    """Texts as float64, (k,); NaN where one is not a number. The other mark, "," or ".", separates thousands.

    3 % is 0.03. With a decimal comma, 1.234 is 1234 and 1.23 is 1.23; with a decimal point, 1,23 is not a number.
    """
    if decimal == ".":
        try:
            return _floats(pc.cast(text, pa.float64()))
        except pa.ArrowInvalid:
            pass
    parts = np.where(matches(text, "%$"), 100.0, np.where(matches(text, "‰$"), 1000.0, 1.0))
    read = pc.if_else(pc.match_substring_regex(text, f"{SPELLED}|{NUMBER}"), text, None)
    read = pc.replace_substring_regex(read, r"[\s$€£¥%‰_'’\x{a0}\x{2009}\x{202f}]", "")
    read = pc.replace_substring_regex(read, "[−–]", "-")
    other = "," if decimal == "." else "."
    grouped = pc.match_substring_regex(read, _GROUPED_BY[other])
    read = pc.if_else(grouped, pc.replace_substring(read, other, ""), read)
    if decimal == ",":
        read = pc.replace_substring(read, ",", ".")
    return _floats(pc.cast(pc.if_else(pc.match_substring_regex(read, NUMBER), read, None), pa.float64())) / parts


def parse_booleans(text: pa.Array) -> np.ndarray:
    """True as 1 and false as 0, in any case, (k,); NaN otherwise."""
    return _floats(pc.cast(pc.index_in(pc.utf8_lower(text), pa.array(["false", "true"])), pa.float64()))


def _floats(values: pa.Array) -> np.ndarray:
    return values.to_numpy(zero_copy_only=False)
