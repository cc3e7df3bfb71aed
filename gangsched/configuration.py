"""Configuration: settings merged from flags, environment and file.

Invariant: flags override the environment, which overrides the file, which overrides defaults; an
invalid value is refused with one sentence that names its source, never ignored.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource
from pydantic_settings import SettingsError as UnreadableSetting

from gangsched.removed import REMOVED, was_removed
from gangsched.settings import ENV_PREFIX, Settings, SettingsError

_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")
"""For a Service called gangsched-debug Kubernetes sets GANGSCHED_DEBUG_PORT=tcp://10.0.0.1:80."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and a description of the source of each value."""

    settings: Settings
    sources: Mapping[str, str]


def load_settings(config: Path | None, overrides: Mapping[str, object]) -> Settings:
    """The settings of `load`, without their sources."""
    return load(config, overrides).settings


def load(config: Path | None, overrides: Mapping[str, object]) -> Loaded:
    """Merge defaults, the YAML file `config`, GANGSCHED_* variables and `overrides` (flags); later
    sources override earlier ones.

    Overrides that are None count as not given. Raises SettingsError with one sentence: each invalid
    setting with its value, bound and source, or the replacement of a removed one. Unknown variables
    are ignored: Kubernetes sets GANGSCHED_SERVICE_HOST and others in pods if a Service is called
    gangsched.
    """
    layers: list[tuple[str, Mapping[str, object]]] = [
        (f"the file {config}", _read_file(config) if config is not None else {}),
        ("the environment", _read_environment()),
        ("the flags", {name: value for name, value in overrides.items() if value is not None}),
    ]
    merged: dict[str, Any] = {name: value for _, values in layers for name, value in values.items()}
    stated = {name: _source(origin, name) for origin, values in layers for name in values}

    try:
        return Loaded(
            Settings(**merged),
            {name: stated.get(name, "default") for name in Settings.model_fields},
        )
    except ValidationError as error:
        # one complaint a setting: of a bad list, what is wrong with its first bad entry
        sources: dict[str, str] = {}
        for detail in error.errors():
            sources.setdefault(str(detail["loc"][:1]), _complaint(detail, layers))

        raise SettingsError("; ".join(sources.values()) + ".") from None


def _read_file(config: Path) -> dict[str, object]:
    """The file's mapping; an empty file is an empty mapping."""
    try:
        content = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingsError(f"Cannot read the file {config} named by --config: {why}.") from error
    except yaml.YAMLError as error:
        why = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
        raise SettingsError(f"The file {config} is not YAML: {why}.") from error

    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(
            f"The file {config} must hold settings as `name: value`, not a"
            f" {type(content).__name__}."
        )

    return {str(name): value for name, value in content.items()}


def _read_environment() -> dict[str, Any]:
    try:
        stated = EnvSettingsSource(Settings)()
    except UnreadableSetting as error:
        raise SettingsError(
            f"Cannot read the environment's {ENV_PREFIX}* variables: {error}."
        ) from error

    known = {name: text for name, text in stated.items() if not _SERVICE_LINK.match(str(text))}
    given = {name.upper(): text for name, text in os.environ.items()}
    return known | {
        name: given[key] for name in REMOVED if (key := f"{ENV_PREFIX}{name.upper()}") in given
    }


_PLAIN_WORDS = {
    "too_short": "it should name at least one",
    "string_pattern_mismatch": "a name should be one word without spaces",
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "it should be a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "it should be a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "it should be true or false"),
}
"""Descriptions of errors, by pydantic's type, where pydantic's own words are for programmers."""


def _complaint(detail: ErrorDetails, layers: list[tuple[str, Mapping[str, object]]]) -> str:
    """The error of one setting, as part of a sentence."""
    if not detail["loc"]:  # settings that do not go with each other
        return str(detail["ctx"]["error"])

    name = str(detail["loc"][0])
    origin, value = next(
        (origin, values[name]) for origin, values in reversed(layers) if name in values
    )

    if name in REMOVED:
        return f"{name} ({_source(origin, name)}) {was_removed(name)}"

    if detail["type"] == "extra_forbidden":
        nearest = _nearest(name)
        return f'{origin} has "{name}", which is no setting' + (
            f' (did you mean "{nearest}"?)' if nearest else ""
        )

    cause = detail.get("ctx", {}).get("error")
    why = _PLAIN_WORDS.get(detail["type"]) or detail["msg"].replace("Input should", "it should", 1)

    if cause is not None:
        why = str(cause)

    if origin == "the environment":
        origin = f"the environment variable {ENV_PREFIX}{name.upper()}"

    return f"{name} is {_shown(value)} in {origin}: {why}"


def _source(origin: str, name: str) -> str:
    """Where a setting comes from, by the layer that has it."""
    if origin == "the environment":
        return f"environment variable {ENV_PREFIX}{name.upper()}"
    if origin == "the flags":
        return f"flag --{name.replace('_', '-')}"

    return origin.removeprefix("the ")


def _nearest(name: str) -> str | None:
    """The nearest setting, in snake_case, kebab-case or camelCase."""
    plain = {known.replace("_", ""): known for known in Settings.model_fields}
    close = difflib.get_close_matches(name.lower().replace("_", "").replace("-", ""), plain, n=1)
    return plain[close[0]] if close else None


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        text = f"[{', '.join(map(_shown, value))}]"
    else:
        text = f'"{value}"' if isinstance(value, str) else str(value)

    return text if len(text) <= 80 else text[:79] + "…"
