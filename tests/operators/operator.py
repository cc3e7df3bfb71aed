"""Operators of others as processes beside a control plane, installed from the manifests of their
own modules.

Invariant: nothing of an operator is copied here. Its binary is built from the module that
`hack/tools` pins, its definitions, roles and ServiceAccount are those of the module's source, and
it runs with that account's token. What a kubelet, a Service and an image would add is left out: the
Deployment, Services, what they serve, and webhooks, unless a test has them served by `webhooks.py`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from control_plane import ControlPlane
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply, load_yaml
from control_plane.components import BIN, HELM
from control_plane.keeping import Keeping

from tests.operators.webhooks import CONFIGURATIONS, Webhooks

EXAMPLES = ROOT / "examples"
LEFT_OUT = {"Deployment", "Service", "APIService", *CONFIGURATIONS}
LOG_LINES = 20


def source(name: str) -> Path:
    """Where the Go module cache has an operator's source."""
    build = ROOT / "hack" / "control-plane" / "build.py"
    asked = subprocess.run(
        [sys.executable, build, "--source", name],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return Path(asked.stdout.strip())


def example(kind: str, *, name: str = "", file: str = "*") -> Object:
    """The object of a kind, and of a name where there are more, that examples/ or one file there
    has.
    """
    paths = sorted(EXAMPLES.glob(f"{file}.yaml"))
    bodies = [body for path in paths for body in load_yaml(path) if body["kind"] == kind]
    (found,) = [body for body in bodies if name in ("", body["metadata"]["name"])]
    return found


def install(api: Api, folder: Path, webhooks: Webhooks | None = None) -> list[Object]:
    """Apply a kustomization but what is left out; returns what was left out. `webhooks` are applied
    as well.
    """
    argv = [str(BIN / "kubectl"), "kustomize", str(folder)]
    made = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    return _install(api, load_yaml(made.stdout), webhooks, "default")


def install_chart(
    api: Api, chart: Path, webhooks: Webhooks, release: str, *settings: str
) -> list[Object]:
    """The same of a Helm chart, into a namespace of the release's name; `settings`
    are `key=value`.
    """
    argv = [
        str(HELM),
        "template",
        release,
        str(chart),
        f"--namespace={release}",
        *(f"--set={one}" for one in settings),
    ]
    made = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    apply(api, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release}})
    definitions = [
        body for path in sorted((chart / "crds").glob("*.yaml")) for body in load_yaml(path)
    ]
    return _install(api, [*definitions, *load_yaml(made.stdout)], webhooks, release)


def _install(
    api: Api, bodies: Sequence[Object], webhooks: Webhooks | None, namespace: str
) -> list[Object]:
    """Apply the objects but those left out, in their order; `namespace` is for those that name
    none.
    """
    left_out = []
    for body in bodies:
        if webhooks is not None and (body["kind"] in CONFIGURATIONS or webhooks.owns(body)):
            apply(api, webhooks.addressed(body), namespace=namespace)
        elif body["kind"] in LEFT_OUT:
            left_out.append(body)
        else:
            apply(
                api, webhooks.addressed(body) if webhooks is not None else body, namespace=namespace
            )
    return left_out


class Operator:
    """A process with the token of its ServiceAccount until the end of the block.

    `argv`, and `environment`, take @KUBECONFIG@. `part` tells the processes of one binary apart.
    """

    def __init__(
        self,
        plane: ControlPlane,
        name: str,
        *,
        account: str,
        argv: Sequence[str],
        environment: Mapping[str, str] | None = None,
        part: str = "",
    ) -> None:
        self._plane, self._binary, self._name, self._account = (
            plane,
            BIN / name,
            f"{name}{part}",
            account,
        )
        self._argv, self._environment = argv, environment or {}
        self._log = plane.logs / f"{self._name}.log"
        self._keeping: Keeping | None = None

    def __enter__(self) -> Self:
        namespace, _, account = self._account.partition("/")
        token = self._plane.service_account_token(namespace, account)
        kubeconfig = self._plane.write_kubeconfig(
            self._plane.workdir / f"{self._name}.kubeconfig", token=token
        )
        self._keeping = Keeping(self._plane.logs / f"keeper-of-{self._name}.log")
        words = [
            "env",
            *(f"{key}={value}" for key, value in self._environment.items()),
            self._binary,
            *self._argv,
        ]
        argv = [str(word).replace("@KUBECONFIG@", str(kubeconfig)) for word in words]
        self._keeping.start(self._name, argv, self._log)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._keeping is not None
        dead = self._keeping.dead().get(self._name)
        self._keeping.close()
        if error is not None or dead is not None:
            print(f"{self._name} (ended by itself: {dead}); the end of its log:")
            print("\n".join(self._log.read_text().splitlines()[-LOG_LINES:]))
        assert error is not None or dead is None, f"{self._name} ended by itself with {dead}"

    def said(self, text: str, *, within_s: float) -> None:
        """Wait until its log has a text. Raises TimeoutError."""
        deadline_s = time.monotonic() + within_s
        while text not in (self._log.read_text() if self._log.exists() else ""):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self._name} did not say {text!r} within {within_s:g} s")
            time.sleep(0.1)
