"""What is the matter with one connection or watch, told once.

Invariant: a sentence is not repeated while it is true, and that it no longer is comes once.
"""

from __future__ import annotations

from gangsched.kube.ports import Warn


class Trouble:
    """The present trouble, if there is one."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._sentence = ""

    def begins(self, sentence: str) -> None:
        """Warn of it, unless that was the last warning."""
        if sentence != self._sentence:
            self._sentence = sentence
            self._warn(sentence)

    def is_over(self, sentence: str) -> None:
        """Say so if there was any."""
        if self._sentence:
            self._sentence = ""
            self._warn(sentence)
