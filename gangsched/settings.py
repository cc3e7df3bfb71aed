"""Settings: one frozen model of everything an administrator may set.

Invariant: every number has its unit in its name and a bound. Descriptions follow kubectl: a noun
phrase, then the meaning of special values. Flags, environment and file are read in `configuration`.
Whether the values fit the cluster is not checked here.
"""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from gangsched.api.dialects import KINDS, NAMES, DialectName
from gangsched.api.label_selector import parse_label_selector
from gangsched.api.values import MOST_STRIKES, BadValue
from gangsched.model.backfill import BackfillOrder, OnOverrun
from gangsched.model.devices import DeviceScope
from gangsched.model.gang import MatchPolicy
from gangsched.model.gpu_policy import TOPOLOGY_KEYS, HealPreference, PlainReplicas
from gangsched.model.owners import OwnerGangs
from gangsched.model.preemption import BrokenDeadlock, BudgetRule, VictimScope

ENV_PREFIX = "GANGSCHED_"
LIVE = frozenset({"log_level", "writes_per_s"})
"""Settings that take effect while the daemon runs (`gangsched.reload`); all others need
a restart.
"""

BOOLEANS = frozenset({"leader_elect", "home_can_grow", "provisioning"})
LEAST_PATIENCE_S = 60
"""The shortest time in which an autoscaler adds a node and takes it back."""


class SettingsError(ValueError):
    """The settings are invalid; `str()` is one sentence that names the setting and its source."""


class LogFormat(StrEnum):
    """Format of log lines: JSON, or text for a terminal."""

    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LabelKey = Annotated[str, StringConstraints(pattern=r"^\S+$", max_length=317)]
LeaseName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)
]
Identity = Annotated[str, StringConstraints(pattern=r"^\S+$", max_length=253)]
ProvisioningClass = Annotated[
    str, StringConstraints(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", max_length=253)
]
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
SchedulerName = Annotated[str, StringConstraints(pattern=r"^\S+$", max_length=253)]


class Settings(BaseSettings):
    """The daemon's settings. The constructor uses only its arguments; `load_settings` reads file
    and environment.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        env_prefix=ENV_PREFIX,
    )

    kubeconfig: Path | None = Field(
        default=None,
        description=(
            "Path to a kubeconfig. Default: the pod's ServiceAccount, else KUBECONFIG, else"
            " ~/.kube/config."
        ),
    )
    scheduler_names: Annotated[tuple[SchedulerName, ...], NoDecode] = Field(
        default=("gangsched",),
        min_length=1,
        description="Values of spec.schedulerName that this instance serves.",
    )
    node_selector: str = Field(
        default="",
        description=(
            "Label selector of the nodes that this instance uses, as for kubectl -l. Default: all"
            " nodes."
        ),
    )
    api_server_wait_s: float = Field(
        default=60.0,
        ge=0,
        le=3_600,
        description="How long to wait for an unreachable API server at start-up, in seconds.",
    )
    bind_address: str = Field(
        default="",
        description=(
            "Bind address of the health server and the gangs API. Default: all interfaces, IPv4 and"
            " IPv6."
        ),
    )
    health_port: int = Field(
        default=8080,
        ge=0,
        le=65535,
        description="Port of /livez, /readyz and /metrics; 0 disables the server.",
    )
    debug_port: int = Field(
        default=8081,
        ge=0,
        le=65535,
        description="Port of /debug/gangs on 127.0.0.1; 0 disables the server.",
    )
    state_dir: Path | None = Field(
        default=None,
        description=(
            "Directory that outlasts a restart of the process, with the gang that is being planned"
            " and files about internal errors, up to 5 of 8 MiB. Default: none."
        ),
    )
    visibility_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="Port of the gangs API, an aggregated API server; 0 disables it.",
    )
    visibility_cert_dir: Path | None = Field(
        default=None,
        description=(
            "Directory with tls.crt and tls.key of the gangs API. Default: a self-signed"
            " certificate in a Secret that the replicas share."
        ),
    )
    log_format: LogFormat = Field(
        default=LogFormat.JSON,
        description="Log format: json or console.",
    )
    log_level: LogLevel = Field(
        default=LogLevel.INFO,
        description="Lowest level that is logged: debug, info, warning or error.",
    )
    wait_time_s: float = Field(
        default=600.0,
        gt=0,
        description=(
            "Default Permit timeout in seconds: how long members of a NonStrict gang keep their"
            " nodes while they wait for the other members."
        ),
    )
    hold_max_s: float = Field(
        default=3600.0,
        gt=0,
        description="Upper limit of the Permit timeout that a gang may set, in seconds.",
    )
    match_policy: MatchPolicy = Field(
        default=MatchPolicy.ONCE_SATISFIED,
        description=(
            "Default match policy, which decides which members count towards minMember:"
            " once-satisfied (all; a gang that has started needs no minimum), only-waiting (unbound"
            " members) or waiting-and-running (unbound and running members)."
        ),
    )
    bind_connections: int = Field(
        default=96,
        ge=1,
        le=256,
        description="Maximum number of bind requests in flight.",
    )
    writes_per_s: float = Field(
        default=400,
        gt=0,
        le=10_000,
        description=(
            "Rate limit, per second, of condition and status writes. Events have a separate limit"
            " of the same size. One namespace may use half of each."
        ),
    )
    reservations: int = Field(
        default=8,
        ge=0,
        le=64,
        description=(
            "Maximum number of groups for which capacity is reserved at the same time; 0 disables "
            "reservations."
        ),
    )
    fence_after_s: float = Field(
        default=21_600,
        ge=0,
        le=31_536_000,
        description=(
            "Waiting time, in seconds, after which a group whose start time cannot be computed gets"
            " whole nodes reserved (a fence)."
        ),
    )
    reservations_per_namespace: int = Field(
        default=2,
        ge=1,
        le=64,
        description=(
            "Maximum number of groups of one namespace for which capacity is reserved at the same"
            " time."
        ),
    )
    default_expected_runtime_s: float | None = Field(
        default=None,
        gt=0,
        le=31_536_000,
        description="Run time assumed for pods that declare none, in seconds. Default: unknown.",
    )
    backfill_order: BackfillOrder = Field(
        default=BackfillOrder.SHORTEST,
        description=(
            "Order in which groups of equal priority are tried while capacity is reserved: shortest"
            " (shortest run time first) or age (oldest first)."
        ),
    )
    backfill_overrun: OnOverrun = Field(
        default=OnOverrun.TELL,
        description=(
            "What happens to backfilled groups that exceed their declared run time: tell (only an"
            " Event reports it) or evict."
        ),
    )
    topology_keys: Annotated[tuple[LabelKey, ...], NoDecode] = Field(
        default=TOPOLOGY_KEYS,
        description=(
            "Node labels that define topology domains, the smallest domain first. Gangs prefer to"
            " stay within one domain."
        ),
    )
    bad_node_strikes: int = Field(
        default=0,
        ge=0,
        le=MOST_STRIKES,
        description=(
            "Members of one gang that die on a node before the gang avoids it, for gangs without"
            " the annotation gangsched.dev/avoid-bad-nodes; 0 for never."
        ),
    )
    bad_node_window_s: float = Field(
        default=3_600.0,
        ge=60.0,
        le=86_400.0,
        description="Time within which these members must die, in seconds.",
    )
    bad_node_s: float = Field(
        default=3_600.0,
        ge=60.0,
        le=86_400.0,
        description="How long a gang avoids a node on which its members died, in seconds.",
    )
    heal_prefers: HealPreference = Field(
        default=HealPreference.ROOM,
        description=(
            "Where a lost member is replaced if its gang only prefers the domain in which it runs"
            " and this has no free capacity: room (on a free node further away) or home (there,"
            " where lower-priority pods are evicted or capacity is reserved)."
        ),
    )
    home_can_grow: bool = Field(
        default=False,
        description=(
            "Autoscalers add nodes to the domain in which a gang that runs waits for room: its pods"
            " then have the reason Unschedulable, else WaitingForHome."
        ),
    )
    autoscaler_patience_s: int = Field(
        default=0,
        ge=0,
        le=86_400,
        description=(
            "How long a gang asks an autoscaler for nodes although those that were added do not"
            " suffice, 60 s or more; then its pods have the reason WaitingForCapacity for as long,"
            " doubling to 8 h. 0: without limit."
        ),
    )
    provisioning: bool = Field(
        default=False,
        description=(
            "Ask an autoscaler for all nodes of a gang at once, by a ProvisioningRequest, if the"
            " gang or provisioning_class names a class; needs rbac-provisioning.yaml."
        ),
    )
    provisioning_class: ProvisioningClass = Field(
        default="",
        description=(
            "Class of the ProvisioningRequests of gangs without the annotation"
            " gangsched.dev/provisioning-class, such as"
            " best-effort-atomic-scale-up.autoscaling.x-k8s.io. Default: no request."
        ),
    )
    provisioning_after_s: int = Field(
        default=10,
        ge=0,
        le=3_600,
        description="How long a gang lacks room before its request is made, in seconds.",
    )
    provisioning_keep_s: int = Field(
        default=900,
        ge=60,
        le=86_400,
        description="How long the nodes that are added for a gang are reserved for it, in seconds.",
    )
    accelerators: Annotated[tuple[LabelKey, ...], NoDecode] = Field(
        default=(),
        description=(
            "Extended resources to treat as accelerators, in addition to the built-in ones."
        ),
    )
    plain_replicas: PlainReplicas = Field(
        default=PlainReplicas.SPREAD,
        description=(
            "How pods of one ReplicaSet, StatefulSet, ReplicationController or Service are placed"
            " if they are in no gang and request no accelerators: spread (over zones and nodes) or"
            " pack."
        ),
    )
    dialects: Annotated[tuple[DialectName, ...], NoDecode] = Field(
        default=NAMES,
        description=(
            f"Third-party APIs whose objects declare gangs: {KINDS}. Labels and annotations of APIs"
            " that are not listed are ignored."
        ),
    )
    owner_gangs: OwnerGangs = Field(
        default=OwnerGangs.ASKED,
        description=(
            "Pods that become one gang because they have one owner, such as a Job: asked (of pods"
            " and namespaces with gangsched.dev/gang=owner), all (but those with the value none) or"
            " off."
        ),
    )
    preemption: VictimScope = Field(
        default=VictimScope.OWN,
        description=(
            "Lower-priority pods that may be evicted: own (pods of gangsched), all (pods of any "
            "scheduler) or off (none)."
        ),
    )
    devices: DeviceScope = Field(
        default=DeviceScope.AUTO,
        description=(
            "ResourceClaims that pods may use: allocated (only claims that another component has"
            " allocated), all (gangsched allocates devices to the other claims) or auto (all while"
            " the role gangsched-devices is bound and the API server serves ResourceSlices, else"
            " allocated)."
        ),
    )
    preempt_delay_s: int = Field(
        default=0,
        ge=0,
        le=3_600,
        description=(
            "Default time that a group waits before it preempts, in seconds, so that an autoscaler"
            " can add nodes."
        ),
    )
    preempt_min_run_s: int = Field(
        default=0,
        ge=0,
        le=86_400,
        description="How long a pod must have run before it may be evicted, in seconds.",
    )
    preempt_max_wait_s: int = Field(
        default=600,
        ge=30,
        le=86_400,
        description=(
            "How long a preempting group waits for the evicted pods to terminate, in seconds. Pods"
            " with a longer grace period are evicted only if no other victims suffice."
        ),
    )
    preempt_pdb: BudgetRule = Field(
        default=BudgetRule.RESPECT,
        description=(
            "How PodDisruptionBudgets are treated: respect, or last_resort (violate them if no"
            " other victims suffice)."
        ),
    )
    broken_deadlock: BrokenDeadlock = Field(
        default=BrokenDeadlock.TELL,
        description=(
            "What to do if two running gangs have lost members and each holds the room that the"
            " other needs: tell (report it) or yield (the one of lower rank is evicted as a whole,"
            " if preemption is on, and waits again as a whole)."
        ),
    )
    broken_deadlock_after_s: int = Field(
        default=600,
        ge=60,
        le=86_400,
        description=(
            "How long such a deadlock lasts before the gang of lower rank is evicted, in seconds."
        ),
    )
    leader_elect: bool = Field(
        default=False,
        description="Enable leader election through a Lease; only the leader schedules.",
    )
    lease_namespace: LeaseName = Field(
        default="gangsched-system",
        description="Namespace of the leader election Lease.",
    )
    lease_name: LeaseName = Field(
        default="gangsched",
        description=(
            "Name of the leader election Lease. Instances with different scheduler names need"
            " different Leases."
        ),
    )
    identity: Identity | None = Field(
        default=None,
        description=(
            "Name of this instance in the Lease (holderIdentity). Default: host name and a random"
            " suffix."
        ),
    )
    lease_duration_s: float = Field(
        default=15,
        ge=1,
        le=300,
        description=(
            "How long the Lease is valid after a renewal, in seconds; a standby takes over when it "
            "expires. A leader that cannot renew it stops writing after two thirds of this time."
        ),
    )
    shutdown_s: float = Field(
        default=10.0,
        gt=0,
        le=300,
        description=(
            "Time to finish binds and other writes after SIGTERM, in seconds. The gangs API answers"
            " for the first half of this time, until Services no longer route requests to the"
            " replica."
        ),
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
        """Use constructor arguments only: `load_settings` merges the sources itself, so that it can
        name them in errors.
        """
        return (init_settings,)

    @field_validator("*", mode="before")
    @classmethod
    def _no_booleans(cls, value: object, info: ValidationInfo) -> object:
        # YAML reads `off` as false, and `on` and `yes` as true, which pydantic would read as the
        # number 1.
        if value is False and info.field_name == "preemption":
            return VictimScope.OFF
        if isinstance(value, bool) and info.field_name not in BOOLEANS:
            raise ValueError("it is a boolean, and this setting is none")

        return value

    @field_validator("node_selector")
    @classmethod
    def _is_label_selector(cls, value: str) -> str:
        try:
            return parse_label_selector(value)
        except BadValue as bad:
            raise ValueError(f"it {bad}") from None

    @field_validator("autoscaler_patience_s")
    @classmethod
    def _is_patient(cls, value: int) -> int:
        if 0 < value < LEAST_PATIENCE_S:
            raise ValueError(f"it must be 0, or at least {LEAST_PATIENCE_S}")

        return value

    @field_validator("scheduler_names", "topology_keys", "accelerators", "dialects", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        if isinstance(value, str):
            value = [name.strip() for name in value.split(",") if name.strip()]

        return value

    @field_validator("scheduler_names", "topology_keys", "accelerators", "dialects")
    @classmethod
    def _unique_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value))

    @property
    def requested_by(self) -> str:
        """The value of the label with which ProvisioningRequests are marked as those of this
        instance.
        """
        name = min(self.scheduler_names)
        if _LABEL_VALUE.fullmatch(name):
            return name

        # Names of schedulers have no grammar, and two of them must not become one.
        return f"gangsched-{sha256(name.encode()).hexdigest()[:8]}"
