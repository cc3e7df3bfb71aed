"""Settings: one frozen model of everything an administrator may set.

Law: a flag wins over the environment, that over the file, that over the default; an invalid value is refused with one
sentence, never ignored. Every number has its unit in its name and a bound. Not done here: to look for files, or to
judge whether the values fit the cluster.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, StringConstraints, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as UnreadableSetting

from gangsched.api.label_selector import parse_label_selector
from gangsched.api.values import BadValue
from gangsched.model.backfill import BackfillOrder, OnOverrun
from gangsched.model.gang import MatchPolicy
from gangsched.model.gpu_policy import TOPOLOGY_KEYS
from gangsched.model.preemption import BudgetRule, VictimScope

ENV_PREFIX = "GANGSCHED_"
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")
"""For a Service called gangsched-debug Kubernetes sets GANGSCHED_DEBUG_PORT=tcp://10.0.0.1:80."""


class SettingsError(ValueError):
    """The settings are invalid; `str()` is one sentence that names the setting and its source."""


class LogFormat(StrEnum):
    """The form of log lines: JSON, or text for a terminal."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The lowest level that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LabelKey = Annotated[str, StringConstraints(pattern=r"^\S+$", max_length=317)]
LeaseName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
Identity = Annotated[str, StringConstraints(pattern=r"^\S+$", max_length=253)]
SchedulerName = Annotated[str, StringConstraints(pattern=r"^\S+$", max_length=253)]


class Settings(BaseSettings):
    """The daemon's settings. Made directly it takes only its arguments; `load_settings` reads file and environment."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, env_prefix=ENV_PREFIX)

    kubeconfig: Path | None = Field(
        default=None,
        description="Kubeconfig to use; without it the pod's service account, then KUBECONFIG, ~/.kube/config.",
    )
    scheduler_names: Annotated[tuple[SchedulerName, ...], NoDecode] = Field(
        default=("gangsched",), min_length=1, description="Pods whose spec.schedulerName is one of these are ours (I1)."
    )
    node_selector: str = Field(
        default="", description="Labels of the nodes that there are for this instance, as for kubectl -l (I7)."
    )
    api_server_wait_s: float = Field(
        default=60.0, ge=0, le=3_600, description="How long a start waits for an API server that is away."
    )
    health_host: str = Field(
        default="", description="Address that the health port listens on; without it every one, IPv4 and IPv6."
    )
    health_port: int = Field(
        default=8080, ge=0, le=65535, description="Port of /livez, /readyz and /metrics; 0 is off."
    )
    debug_host: str = Field(
        default="127.0.0.1", min_length=1, description="Address that the debug port listens on; it names every gang."
    )
    debug_port: int = Field(default=8081, ge=0, le=65535, description="Port of /debug/gangs; 0 is off.")
    visibility_port: int = Field(
        default=0, ge=0, le=65535, description="Port of the API of gangs, for the API server's front proxy; 0 is off."
    )
    visibility_host: str = Field(
        default="", description="Address that the visibility port listens on; without it every one, IPv4 and IPv6."
    )
    visibility_cert_file: Path | None = Field(
        default=None, description="Certificate of the API of gangs; without it one is made and shared in a Secret."
    )
    visibility_key_file: Path | None = Field(default=None, description="The key of that certificate.")
    log_format: LogFormat = Field(default=LogFormat.JSON, description="json or console.")
    log_level: LogLevel = Field(default=LogLevel.INFO, description="debug, info, warning or error.")
    wait_time_s: float = Field(
        default=600.0, gt=0, description="How long a gang may hold room when it does not say (I3, T2)."
    )
    hold_max_s: float = Field(
        default=3600.0, gt=0, description="The longest that a gang may hold room, whatever wait time it asks for (T2)."
    )
    match_policy: MatchPolicy = Field(
        default=MatchPolicy.ONCE_SATISFIED, description="Which members Permit counts when a gang does not say (I3, B1)."
    )
    bind_connections: int = Field(default=96, ge=1, le=256, description="Binds in flight at a time.")
    total_write_burst: int = Field(
        default=5_000, ge=1, description="Conditions and statuses, or Events, that may be written at once."
    )
    total_writes_per_s: float = Field(default=400, gt=0, description="How many a second after that.")
    namespace_write_burst: int = Field(
        default=2_000, ge=1, description="The same in one namespace: what may be written at once."
    )
    namespace_writes_per_s: float = Field(default=200, gt=0, description="How many a second after that.")
    object_write_burst: int = Field(
        default=10, ge=1, description="How often a pod's condition or a PodGroup's status may be written at once."
    )
    object_write_every_s: float = Field(default=5, ge=0, description="Time between its writes after that.")
    event_burst: int = Field(default=25, ge=1, description="Events about one object that may be written at once.")
    event_every_s: float = Field(default=300, ge=0, description="Time for one more after that; others are dropped.")
    plan_groups: int = Field(default=400, ge=1, le=100_000, description="Groups that one plan looks at.")
    plan_pods: int = Field(default=5_000, ge=1, le=1_000_000, description="Pods that one plan tries.")
    reservations: int = Field(
        default=8, ge=0, le=64, description="Groups that room is reserved for at a time; 0 turns reservations off (H3)."
    )
    reserve_horizon_s: float = Field(
        default=604_800, gt=0, le=31_536_000, description="How far ahead a reservation with a time may start (H5)."
    )
    fence_after_s: float = Field(
        default=21_600,
        ge=0,
        le=31_536_000,
        description="How long a group waits for room before nodes are kept for it without a time (H6).",
    )
    fence_age_s: float = Field(
        default=604_800,
        ge=60,
        le=31_536_000,
        description="Longest time for which nodes are kept for a group without a time (H6).",
    )
    fence_idle_s: float = Field(
        default=345_600,
        ge=60,
        le=31_536_000,
        description="Longest time for which the accelerators of these nodes idle on average (H6).",
    )
    small_head_after_s: float = Field(
        default=3_600,
        ge=0,
        le=31_536_000,
        description="A group of less than a node is a head once it has waited for its run time, at least this (H3).",
    )
    small_head_latest_s: float = Field(
        default=172_800,
        ge=0,
        le=31_536_000,
        description="The most that it waits for that, and how long it does where its run time is unknown (H3).",
    )
    reservations_per_namespace: int = Field(
        default=2, ge=1, le=64, description="The most reservations that the groups of one namespace have (H7)."
    )
    reserve_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="The most of one kind of accelerator that all reservations but the first may take together (H7).",
    )
    default_expected_runtime_s: float | None = Field(
        default=None,
        gt=0,
        le=31_536_000,
        description="How long a pod is expected to run when nobody says; without it that is unknown (H1).",
    )
    backfill_order: BackfillOrder = Field(
        default=BackfillOrder.SHORTEST,
        description="Which of equal groups may pass a reservation first: the shortest, or by age (H9).",
    )
    backfill_overrun: OnOverrun = Field(
        default=OnOverrun.TELL,
        description="What to do with a group that was let onto reserved room and overruns: tell, or also evict (H11).",
    )
    backfill_overrun_after_s: float = Field(
        default=600,
        ge=1,
        le=31_536_000,
        description="How much longer than stated it runs at least, and a tenth, before it may be evicted (H11).",
    )
    ignore_run_times_s: float = Field(
        default=86_400,
        ge=0,
        le=31_536_000,
        description="How long run times of a namespace count for nothing after one was far too short; 0: never (H11).",
    )
    settle_ms: int = Field(
        default=250, ge=0, le=1_000, description="How long a verdict must stand before it is told (E1)."
    )
    bind_retry_keep_s: float = Field(
        default=30.0,
        ge=0,
        le=3_600,
        description="How long a member of an incomplete gang keeps its room after its bind failed (B3).",
    )
    kubelet_rejection_avoid_s: float = Field(
        default=60.0,
        ge=0,
        le=86_400,
        description="How long a gang keeps off a node whose kubelet rejected a member (B6).",
    )
    podgroup_sweep_s: float = Field(
        default=60.0, ge=1, le=3_600, description="Time between full lists of the PodGroups."
    )
    topology_keys: Annotated[tuple[LabelKey, ...], NoDecode] = Field(
        default=TOPOLOGY_KEYS,
        description="Node labels whose domains keep a gang together, the closest neighbours first.",
    )
    accelerators: Annotated[tuple[LabelKey, ...], NoDecode] = Field(
        default=(), description="Resources that count as accelerators, beside those known by name."
    )
    preemption: VictimScope = Field(
        default=VictimScope.OWN,
        description="Whose pods of lower priority may be evicted: own, all (of every scheduler) or off (V5).",
    )
    preempt_min_run_s: int = Field(
        default=0, ge=0, le=86_400, description="Pods that started less than this ago are not evicted (V5)."
    )
    preempt_hold_back_s: int = Field(
        default=60,
        ge=0,
        le=3_600,
        description="How long lower groups are held back where one waits that would preempt them; 0 never (V27).",
    )
    preempt_pdb: BudgetRule = Field(
        default=BudgetRule.RESPECT,
        description="respect: PodDisruptionBudgets are kept; last_resort: broken where nothing else helps (V7).",
    )
    preempt_work_cap_s: int = Field(
        default=3600,
        ge=0,
        le=604_800,
        description="Work older than this counts as saved when the least loss is chosen (V8).",
    )
    preempt_per_cycle: int = Field(
        default=4, ge=1, le=1_000, description="Groups for which one plan may evict others (V15)."
    )
    preempt_max_pods: int = Field(
        default=500, ge=1, le=100_000, description="Pods that may be evicted for one group at a time (V15)."
    )
    leader_elect: bool = Field(
        default=False, description="Whether several instances share the work of one: the holder of a Lease plans."
    )
    lease_namespace: LeaseName = Field(default="gangsched-system", description="Namespace of the Lease.")
    lease_name: LeaseName = Field(
        default="gangsched", description="Name of the Lease; instances with other scheduler names need another one."
    )
    identity: Identity | None = Field(
        default=None, description="Name of this instance in the Lease; without it the host's name and a random part."
    )
    lease_duration_s: float = Field(
        default=15, ge=1, le=300, description="How long another instance waits for a holder that is silent."
    )
    lease_renew_s: float = Field(
        default=10, ge=0.5, le=300, description="How long the holder goes on without renewing the Lease."
    )
    lease_retry_s: float = Field(default=2, ge=0.1, le=60, description="Time between renewals, and between looks.")
    shutdown_s: float = Field(default=10.0, gt=0, le=300, description="Time to finish binds and reports after SIGTERM.")
    visibility_drain_s: float = Field(
        default=5.0,
        ge=0,
        le=60,
        description="Time that the API of gangs stays open after SIGTERM, until no Service routes to the replica.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take arguments only: `load_settings` merges the sources itself, so that it can name them in errors."""
        return (init_settings,)

    @field_validator("*", mode="before")
    @classmethod
    def _no_booleans(cls, value: object, info: ValidationInfo) -> object:
        # YAML reads `off` as false, and `on` and `yes` as true, which pydantic would read as the number 1.
        if value is False and info.field_name == "preemption":
            return VictimScope.OFF
        if isinstance(value, bool) and info.field_name != "leader_elect":
            raise ValueError("it is a boolean, and this setting is none")
        return value

    @field_validator("node_selector")
    @classmethod
    def _is_label_selector(cls, value: str) -> str:
        try:
            return parse_label_selector(value)
        except BadValue as bad:
            raise ValueError(f"it {bad}") from None

    @field_validator("scheduler_names", "topology_keys", "accelerators", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        if isinstance(value, str):
            value = [name.strip() for name in value.split(",") if name.strip()]
        return value

    @field_validator("scheduler_names", "topology_keys", "accelerators")
    @classmethod
    def _unique_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value))

    @model_validator(mode="after")
    def _certificate_has_its_key(self) -> Self:
        if (self.visibility_cert_file is None) != (self.visibility_key_file is None):
            raise ValueError("visibility_cert_file and visibility_key_file go together: one of them is missing")
        return self

    @model_validator(mode="after")
    def _lease_times_fit(self) -> Self:
        # As in client-go: there is time for more than one renewal, and it is over before others try.
        duration_s, renew_s, retry_s = self.lease_duration_s, self.lease_renew_s, self.lease_retry_s
        if not duration_s > renew_s > 1.2 * retry_s:
            raise ValueError(
                f"lease_duration_s ({duration_s:g}) must be more than lease_renew_s ({renew_s:g}), and that more than "
                f"1.2 times lease_retry_s ({retry_s:g})"
            )
        return self


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, and where the value of each comes from, in words."""

    settings: Settings
    sources: Mapping[str, str]


def load_settings(config: Path | None, overrides: Mapping[str, object]) -> Settings:
    """The settings of `load`."""
    return load(config, overrides).settings


def load(config: Path | None, overrides: Mapping[str, object]) -> Loaded:
    """Merge defaults, the YAML file `config`, GANGSCHED_* variables and `overrides` (flags), the last one winning.

    Overrides that are None count as not given. Raises SettingsError with one sentence that names each setting that is
    wrong, its value, its bound and its source. Variables that name no setting are ignored: Kubernetes itself sets
    GANGSCHED_SERVICE_HOST and the like in pods beside a Service called gangsched.
    """
    layers: list[tuple[str, Mapping[str, object]]] = [
        (f"the file {config}", _read_file(config) if config is not None else {}),
        ("the environment", _read_environment()),
        ("the flags", {name: value for name, value in overrides.items() if value is not None}),
    ]
    merged: dict[str, Any] = {name: value for _, values in layers for name, value in values.items()}
    stated = {name: _source(origin, name) for origin, values in layers for name in values}
    try:
        return Loaded(Settings(**merged), {name: stated.get(name, "default") for name in Settings.model_fields})
    except ValidationError as error:
        found: dict[str, str] = {}  # one complaint a setting: of a bad list, what is wrong with its first bad entry
        for detail in error.errors():
            found.setdefault(str(detail["loc"][:1]), _complaint(detail, layers))
        raise SettingsError("; ".join(found.values()) + ".") from None


def _read_file(config: Path) -> dict[str, object]:
    """The file's mapping; an empty file is an empty mapping."""
    try:
        content = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingsError(f"Cannot read the file {config} named by --config: {said}.") from error
    except yaml.YAMLError as error:
        said = " ".join(str(error).replace('in "<unicode string>", ', "at ").split())
        raise SettingsError(f"The file {config} is not YAML: {said}.") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"The file {config} must hold settings as `name: value`, not a {type(content).__name__}.")
    return {str(name): value for name, value in content.items()}


def _read_environment() -> dict[str, Any]:
    try:
        stated = EnvSettingsSource(Settings)()
    except UnreadableSetting as error:
        raise SettingsError(f"Cannot read the environment's {ENV_PREFIX}* variables: {error}.") from error
    return {name: text for name, text in stated.items() if not _SERVICE_LINK.match(str(text))}


_PLAIN_WORDS = {
    "too_short": "it should name at least one",
    "string_pattern_mismatch": "a name should be one word without spaces",
}
"""What is wrong, by the type of pydantic's error, where pydantic's own words are for programmers."""


def _complaint(detail: ErrorDetails, layers: list[tuple[str, Mapping[str, object]]]) -> str:
    """The error of one setting, as part of a sentence."""
    if not detail["loc"]:  # settings that do not go with each other
        return str(detail["ctx"]["error"])
    name = str(detail["loc"][0])
    origin, value = next((origin, values[name]) for origin, values in reversed(layers) if name in values)
    if detail["type"] == "extra_forbidden":
        nearest = _nearest(name)
        return f'{origin} has "{name}", which is no setting' + (f' (did you mean "{nearest}"?)' if nearest else "")
    cause = detail.get("ctx", {}).get("error")
    said = _PLAIN_WORDS.get(detail["type"]) or detail["msg"].replace("Input should", "it should", 1)
    if cause is not None:
        said = str(cause)
    if origin == "the environment":
        origin = f"the environment variable {ENV_PREFIX}{name.upper()}"
    return f"{name} is {_shown(value)} in {origin}: {said}"


def _source(origin: str, name: str) -> str:
    """Where a setting comes from, by the layer that has it."""
    if origin == "the environment":
        return f"environment variable {ENV_PREFIX}{name.upper()}"
    return f"flag --{name.replace('_', '-')}" if origin == "the flags" else origin.removeprefix("the ")


def _nearest(name: str) -> str | None:
    """The nearest setting, in snake_case, kebab-case or camelCase."""
    plain = {known.replace("_", ""): known for known in Settings.model_fields}
    close = difflib.get_close_matches(name.lower().replace("_", "").replace("-", ""), plain, n=1)
    return plain[close[0]] if close else None


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:79] + "…"
