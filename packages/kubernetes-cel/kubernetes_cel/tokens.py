"""Tokens of a selector: names, literals and signs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from kubernetes_cel.faults import UnknownToSelectors

LONGEST_SELECTOR: Final = 10 * 1024
"""The API server admits no longer expression."""
# The tree is at most that large, and with it the cost of compiling.
MOST_TOKENS: Final = 4000
_MOST_DIGITS: Final = 32
_LARGEST: Final = 2**63

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\n\f\r]+|//[^\n]*)
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<int>0x[0-9a-fA-F]+[uU]?|[0-9]+[uU]?)
    |(?P<text>[bB]?[rR]?(?:\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''|"(?:[^"\\\n\r]|\\.)*"|'(?:[^'\\\n\r]|\\.)*'))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
_RAW: Final = re.compile(
    r"""[bB]?[rR](?:\"\"\".*?\"\"\"|'''.*?'''|"[^"\n\r]*"|'[^'\n\r]*')""",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(x[0-9a-fA-F]{2}|X[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)",
    re.DOTALL,
)
_ESCAPED: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip


class Token(msgspec.Struct, frozen=True, gc=False):
    """`kind` is name, sign, literal or end; a literal has a `value`."""

    kind: str
    text: str
    value: int | float | str | None = None


def tokens(source: str) -> Iterator[Token]:
    """The tokens in order, the last one of kind end. Raises UnknownToSelectors."""
    if len(source) > LONGEST_SELECTOR:
        raise UnknownToSelectors(f"more than {LONGEST_SELECTOR} characters")

    at = count = 0
    while at < len(source):
        count += 1
        if count > MOST_TOKENS:
            raise UnknownToSelectors(f"more than {MOST_TOKENS} tokens")

        # Raw texts first: the general form would read their backslashes as escapes.
        match = _RAW.match(source, at) or _TOKEN.match(source, at)
        if match is None:
            raise UnknownToSelectors(f"the unexpected character {source[at]!r}")

        kind = match.lastgroup or "text"
        text = match.group()
        at = match.end()

        if kind == "int":
            yield Token("literal", text, _integer(text))
        elif kind == "float":
            yield Token("literal", text, float(text))
        elif kind == "text":
            yield Token("literal", text, _string(text))
        elif kind != "space":
            yield Token(kind, text)

    yield Token("end", "the end")


def _integer(text: str) -> int:
    if text[-1] in "uU":
        raise UnknownToSelectors(f"the unsigned integer {text[:32]}")

    number = (
        int(text, 16)
        if text.startswith("0x")
        else int(text)
        if len(text) <= _MOST_DIGITS
        else _LARGEST + 1
    )
    if number > _LARGEST:  # 2**63 itself is a number once a minus stands before it
        raise UnknownToSelectors(f"the number {text[:32]}")

    return number


def _string(text: str) -> str:
    prefix = text[: len(text) - len(text.lstrip("bBrR"))].lower()
    if "b" in prefix:
        raise UnknownToSelectors("a bytes literal")

    text = text[len(prefix) :]
    width = 3 if text[:3] in {'"""', "'''"} and len(text) >= 6 else 1
    inner = text[width:-width]

    if "r" in prefix:
        return inner

    return _ESCAPE.sub(_unescaped, inner)


def _unescaped(match: re.Match[str]) -> str:
    escape = match.group(1)
    if len(escape) == 1:
        if escape not in _ESCAPED:
            raise UnknownToSelectors(f"the escape \\{escape}")

        return _ESCAPED[escape]

    code = int(escape, 8) if escape[0] in "0123" else int(escape[1:], 16)
    # Surrogates are no characters: such a text could not be encoded for messages.
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise UnknownToSelectors(f"the escape \\{escape}")

    return chr(code)
