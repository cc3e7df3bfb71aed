"""Connection flags: those of kubectl, accepted before the command and after it.

Invariant: they are named, spelled and merged as kubectl does it, so that a script may add them to
any command; what follows the command wins, and repeatable flags add up.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from gangsched.api.values import BadValue, parse_delay
from gangsched.kube.http.plain_credentials import Overrides
from kubectl_gangsched.session import CannotAnswer, Session

NAMESPACE = "namespace"


class Flag(NamedTuple):
    """A flag of kubectl: its spellings, its type and its help text."""

    spellings: tuple[str, ...]
    type: Any
    help: str
    metavar: str | None = None


FLAGS = {
    NAMESPACE: Flag(
        ("--namespace", "-n"),
        str,
        "Namespace. Default: that of the kubeconfig context.",
    ),
    "kubeconfig": Flag(
        ("--kubeconfig",),
        Path,
        "Path to a kubeconfig. Default: $KUBECONFIG, else ~/.kube/config.",
        "FILE",
    ),
    "context": Flag(("--context",), str, "Kubeconfig context. Default: the current context."),
    "cluster": Flag(("--cluster",), str, "Kubeconfig cluster. Default: that of the context."),
    "user": Flag(("--user",), str, "Kubeconfig user. Default: that of the context."),
    "server": Flag(("--server", "-s"), str, "Address of the API server."),
    "token": Flag(("--token",), str, "Bearer token for the API server."),
    "username": Flag(("--username",), str, "User name for basic authentication."),
    "password": Flag(("--password",), str, "Password for basic authentication."),
    "client_certificate": Flag(("--client-certificate",), Path, "Client certificate file.", "FILE"),
    "client_key": Flag(("--client-key",), Path, "Client key file.", "FILE"),
    "certificate_authority": Flag(
        ("--certificate-authority",),
        Path,
        "Certificate authority file.",
        "FILE",
    ),
    "tls_server_name": Flag(
        ("--tls-server-name",),
        str,
        "Name to verify in the server's certificate. Default: the host name.",
    ),
    "insecure_skip_tls_verify": Flag(
        ("--insecure-skip-tls-verify/--no-insecure-skip-tls-verify",),
        bool,
        "Accept any certificate of the server.",
    ),
    "as_user": Flag(("--as",), str, "User to impersonate."),
    "as_group": Flag(("--as-group",), list[str], "Group to impersonate; repeatable."),
    "as_uid": Flag(("--as-uid",), str, "UID to impersonate."),
    "as_user_extra": Flag(
        ("--as-user-extra",),
        list[str],
        "Extra field to impersonate; repeatable, also for a key.",
        "KEY=VALUE",
    ),
    "request_timeout": Flag(
        ("--request-timeout",),
        str,
        "Limit of each request, such as 30s; 0 for none. Default: 15s without data.",
    ),
    "cache_dir": Flag(("--cache-dir",), str, "Accepted as by kubectl; nothing is cached."),
    "disable_compression": Flag(
        ("--disable-compression",),
        bool,
        "Accepted as by kubectl; nothing is compressed.",
    ),
}
"""By the name of the parameter."""

LEFT_OUT = {
    "kuberc": "there are no preferences",
    "log-flush-frequency": "there is no log",
    "match-server-version": "the command works with each supported version",
    "profile": "nothing is profiled",
    "profile-output": "nothing is profiled",
    "v": "there is no log",
    "vmodule": "there is no log",
    "warnings-as-errors": "warnings of the server are not shown",
}
"""Global flags of kubectl that are refused, with reasons."""


def parameters(shown: frozenset[str]) -> list[inspect.Parameter]:
    """The flags as parameters for typer; only those in `shown` are in the help."""
    result: list[inspect.Parameter] = []
    for name, flag in FLAGS.items():
        result.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=_annotation(flag, hidden=name not in shown),
            )
        )

    return result


def _annotation(flag: Flag, *, hidden: bool) -> object:
    option = typer.Option(
        *flag.spellings,
        help=flag.help,
        metavar=flag.metavar,
        hidden=hidden,
        show_default=False,
        rich_help_panel=None,
    )
    return Annotated[flag.type | None, option]


def with_flags(command: Callable[..., int], *, takes_namespace: bool) -> Callable[..., int]:
    """`command`, whose first parameter is a Session, with the connection flags in place of that
    parameter.
    """

    @wraps(command)
    def connected(called: typer.Context, **options: Any) -> int:
        own = {name: value for name, value in options.items() if name not in FLAGS}
        after = {name: options[name] for name in FLAGS}
        return command(session(merged(called.obj or {}, after)), **own)

    _, *others = inspect.signature(command, eval_str=True).parameters.values()
    before = inspect.Parameter(
        "called",
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        annotation=typer.Context,
    )
    shown = frozenset({"kubeconfig", "context", *([NAMESPACE] if takes_namespace else ())})
    arguments = [other.replace(kind=inspect.Parameter.KEYWORD_ONLY) for other in others]
    connected.__signature__ = inspect.Signature([before, *arguments, *parameters(shown)])  # type: ignore[attr-defined]

    return connected


def merged(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of both places: the last one counts, and lists add up."""
    flags = {name: value for name, value in before.items() if value is not None}
    for name, value in after.items():
        if isinstance(value, list):
            flags[name] = [*flags.get(name, ()), *value]
        elif value is not None:
            flags[name] = value

    return flags


def session(given: Mapping[str, Any]) -> Session:
    """The session for these flags. Raises Misconfigured and CannotAnswer."""
    if given.get("token") and given.get("username"):
        raise CannotAnswer("--token and --username contradict each other: pass one of them.")
    if given.get("certificate_authority") and given.get("insecure_skip_tls_verify"):
        raise CannotAnswer(
            "--certificate-authority and --insecure-skip-tls-verify contradict each other."
        )

    overrides = Overrides(
        context=given.get("context") or "",
        cluster=given.get("cluster") or "",
        user=given.get("user") or "",
        of_cluster=_fields(
            given,
            ("server", "certificate_authority", "tls_server_name", "insecure_skip_tls_verify"),
        ),
        of_user={
            **_fields(given, ("token", "username", "password", "client_certificate", "client_key")),
            "as": given.get("as_user"),
            "as-uid": given.get("as_uid"),
            "as-groups": given.get("as_group"),
            "as-user-extra": _extra(given.get("as_user_extra") or ()),
        },
    )
    return Session(
        given.get(NAMESPACE),
        given.get("kubeconfig"),
        overrides,
        within_s=_timeout(given),
    )


def _fields(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Values of flags by the names that a kubeconfig has for them."""
    fields = {name.replace("_", "-"): given.get(name) for name in names}
    return {
        name: str(value) if isinstance(value, Path) else value for name, value in fields.items()
    }


def _extra(given: Sequence[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise CannotAnswer(f'--as-user-extra "{pair}" is not KEY=VALUE.')

        groups.setdefault(key, []).append(value)

    return groups


def _timeout(given: Mapping[str, Any]) -> float | None:
    """The limit in seconds, 0 for none; None if the flag is not given."""
    text = given.get("request_timeout")
    if not text:
        return None

    try:
        # As for kubectl, a number alone counts seconds.
        return parse_delay(f"{text}s" if text.isascii() and text.isdigit() else text)
    except BadValue as error:
        raise CannotAnswer(f'--request-timeout "{text}" {error}.') from error
