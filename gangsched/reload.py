"""Reads the configuration again on SIGHUP, and when the file has changed.

Invariant: only the settings in `LIVE` take effect; of the others the log says that they need a
restart. An invalid configuration changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from gangsched.settings import LIVE, Settings, SettingsError
from gangsched.telemetry.logs import set_level

LOOK_EVERY_S: Final = 5.0
"""The kubelet updates a mounted ConfigMap within a minute or two; this adds little."""


class Reloader:
    """`settings` are in effect; `changed` is called after some of them changed."""

    def __init__(self, settings: Settings, read: Callable[[], Settings], file: Path | None) -> None:
        """`read` merges all sources again and raises SettingsError; `file` is the one to look at,
        if any.
        """
        self.settings = settings
        self.changed: Callable[[Settings], None] = lambda settings: None
        self._read = read
        self._file = file
        self._content = self._look()
        self._asked = asyncio.Event()
        self._outdated: list[str] = []
        self._log = structlog.get_logger()

    def ask(self) -> None:
        """Read the configuration again, whether the file has changed or not."""
        self._asked.set()

    async def run(self) -> None:
        """Reload until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._asked.wait()

            content = self._look()
            if self._asked.is_set() or content != self._content:
                self._asked.clear()
                self._content = content
                self.reload()

    def reload(self) -> None:
        """Read the configuration, apply what can be applied, and log the rest."""
        try:
            wanted = self._read()
        except SettingsError as error:
            self._log.warning(f"The configuration is not reloaded: {error}")
            return

        names = []
        for field in Settings.model_fields:
            if getattr(wanted, field) != getattr(self.settings, field):
                names.append(field)

        live = [name for name in names if name in LIVE]
        outdated = [name for name in names if name not in LIVE]

        if live:
            self.settings = self.settings.model_copy(
                update={setting: getattr(wanted, setting) for setting in live}
            )
            set_level(self.settings.log_level)
            self.changed(self.settings)
            values = ", ".join(f"{name} is {getattr(wanted, name)}" for name in live)
            self._log.warning(f"Reloaded: {values}.")

        if outdated and outdated != self._outdated:
            self._log.warning(
                f"Changed settings take effect after a restart: {', '.join(outdated)}."
            )

        self._outdated = outdated

    def _look(self) -> bytes | None:
        try:
            if self._file is not None:
                return self._file.read_bytes()

            return None
        except OSError:
            return None  # reading it again says why, if it is asked for
