"""The grammar of label selectors, as in kubectl.

Requirements are `pool=a`, `pool!=a`, `pool in (a, b)`, `pool notin (a)`, `pool` and `!pool`.
Several requirements are separated by commas, and all must hold.

Invariant: `parse_label_selector` returns a selector that the API server accepts, or raises
`BadValue` with the reason. The API server matches objects (`labelSelector`).
"""

from __future__ import annotations

import re
from typing import Final

from gangsched.api.problem import quoted
from gangsched.api.values import BadValue

_LONGEST_NAME: Final = 63
_LONGEST_PREFIX: Final = 253
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_COMMA_BETWEEN: Final = re.compile(r",(?![^()]*\))")
_EQUALS: Final = re.compile(r"([^\s=!,()<>]+)\s*(==?|!=)\s*([^\s=!,()<>]*)")
_IN: Final = re.compile(r"([^\s=!,()<>]+)\s+(in|notin)\s*\(([^()=!<>]*)\)")
_EXISTS: Final = re.compile(r"(!?)\s*([^\s=!,()<>]+)")


def parse_label_selector(text: str) -> str:
    """Parse a selector and return it without redundant spaces; "" selects everything. The grammar
    is the one of apimachinery's labels.Parse.

    Raises BadValue. Comparisons with `<` and `>`, which kubectl does not document, are refused.
    """
    if not text.strip():
        return ""

    return ",".join(_requirement(part.strip()) for part in _COMMA_BETWEEN.split(text))


def _requirement(text: str) -> str:
    if match := _IN.fullmatch(text):
        key, operator, values = match.groups()
        if not values.strip():
            raise BadValue(f"has {quoted(text)}, which has no value")

        return (
            f"{_key(key)} {operator}"
            f" ({','.join(_value(value.strip()) for value in values.split(','))})"
        )

    if match := _EQUALS.fullmatch(text):
        key, operator, value = match.groups()
        return f"{_key(key)}{'!=' if operator == '!=' else '='}{_value(value)}"

    if match := _EXISTS.fullmatch(text):
        return f"{match[1]}{_key(match[2])}"

    raise BadValue(
        f"has {quoted(text)}, which has none of the forms pool=a, pool!=a, pool in (a, b), pool"
        " notin (a), pool and !pool"
    )


def _key(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    is_prefix = not slash or (len(prefix) <= _LONGEST_PREFIX and _PREFIX.fullmatch(prefix))
    if not is_prefix or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise BadValue(f"has {quoted(text)}, which is not a label key")

    return text


def _value(text: str) -> str:
    if text and (len(text) > _LONGEST_NAME or not _NAME.fullmatch(text)):
        raise BadValue(f"has {quoted(text)}, which is not a label value")

    return text
