"""The page's modules as one script in the wheel.

A wheel holds the script that `page.bundle` makes of them, instead of thirty files with an entry
each; a checkout and an editable installation have the modules, which are bundled when asked for.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PAGE = Path("kubectl_gangsched") / "page"


class PageScript(BuildHookInterface):  # type: ignore[misc]
    """Puts the bundled script beside the page's other files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Bundle the modules, unless the installation is editable."""
        if version == "editable":
            return

        # By its path: the package and what it needs are not installed where it is built.
        page = Path(self.root) / PAGE
        spec = importlib.util.spec_from_file_location("bundle", page / "bundle.py")
        assert spec is not None
        assert spec.loader is not None
        bundle = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bundle)

        self._folder = tempfile.TemporaryDirectory()
        script = Path(self._folder.name) / bundle.SCRIPT
        modules = bundle.modules_of(page / "assets")
        script.write_text(bundle.bundled(modules, bundle.MAIN), encoding="utf-8")
        build_data["force_include"][str(script)] = str(PAGE / "assets" / bundle.SCRIPT)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the script once the wheel is written."""
        if version != "editable":
            self._folder.cleanup()
