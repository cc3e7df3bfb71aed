"""Settings on the command line: an option for each, and the effective settings as text.

Invariant: an option is derived from the field of `Settings` alone. The value of an option is a
text, which `settings` parses and validates like the value of an environment variable. No setting is
a secret: credentials are in the kubeconfig, and only its path is a setting.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from gangsched.configuration import Loaded
from gangsched.removed import REMOVED
from gangsched.settings import Settings


class ConfigFormat(StrEnum):
    """Output format of `gangsched config`: a table, or JSON."""

    TABLE = "table"
    JSON = "json"


class Command(Protocol):
    """A command that takes the settings file and the values of flags."""

    def __call__(self, config: Path | None, overrides: dict[str, object], /) -> int:
        """The exit code."""


def with_settings(command: Command, *more: inspect.Parameter) -> Callable[..., None]:
    """Wrap `command` for typer, with --config, an option for each setting, and the options of
    `more`.

    Values of `more` are passed as overrides as well; the command removes them.
    """

    def called(**given: Any) -> None:
        config = given.pop("config")
        one_by_one = given.pop("scheduler_name")
        if one_by_one:
            given["scheduler_names"] = tuple(one_by_one)

        raise typer.Exit(command(config, given))

    config = Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="YAML file with settings; flags and GANGSCHED_* variables override it.",
        ),
    ]
    name = Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=(
                "Serve pods with this spec.schedulerName; repeatable. Overrides --scheduler-names."
            ),
        ),
    ]
    parameters = [_option("config", config), _option("scheduler_name", name)]
    parameters += [_option(name, _typed(name)) for name in Settings.model_fields]

    # Accepted but not shown, so that `load` can say what took their place.
    parameters += [
        _option(name, Annotated[str | None, typer.Option(hidden=True)]) for name in REMOVED
    ]
    called.__signature__ = inspect.Signature([*parameters, *more])  # type: ignore[attr-defined]
    called.__doc__ = command.__doc__

    return called


def _option(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=annotation,
    )


def _typed(name: str) -> object:
    """The annotation of a setting's option: --name-with-dashes, or --name and --no-name."""
    field = Settings.model_fields[name]
    flag = f"--{name.replace('_', '-')}"
    is_switch = isinstance(field.default, bool)
    shown = written(field.default)

    # A default that is no value (the ServiceAccount, a self-signed certificate) stands in the
    # description.
    text = f"{field.description}  [default: {shown}]" if shown else str(field.description)
    if is_switch:
        return Annotated[
            bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", help=text, show_default=False)
        ]

    return Annotated[str | None, typer.Option(flag, help=text, metavar="VALUE", show_default=False)]


def written(value: object) -> str:
    """A setting's value in the format of environment variables and flags; "" for None."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)

    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def effective(loaded: Loaded, output: ConfigFormat) -> str:
    """Every setting with its value and source, as a table or as JSON."""
    values = loaded.settings.model_dump(mode="json")
    if output is ConfigFormat.JSON:
        printed: Mapping[str, object] = {
            name: {"value": value, "source": loaded.sources[name]} for name, value in values.items()
        }
        return json.dumps(printed, indent=2)

    rows = [("SETTING", "VALUE", "SOURCE")]
    rows += [
        (name, written(getattr(loaded.settings, name)) or "-", loaded.sources[name])
        for name in values
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]

    return "\n".join(
        f"{name:{widths[0]}}  {value:{widths[1]}}  {source}" for name, value, source in rows
    )
