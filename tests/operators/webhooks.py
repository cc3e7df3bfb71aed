"""Webhooks of operators: the API server calls them on loopback, by the Service that their manifests
name.

Invariant: rules, paths, selectors and failure policy are the operator's own. Changed is what a
cluster network would do: the Service is an alias of 127.0.0.1, and the port is the one that the
operator listens on here.
"""

from __future__ import annotations

import base64
import http.client
import time
from collections.abc import Callable
from pathlib import Path

from control_plane import ControlPlane
from control_plane.api import Api, ApiError, Object
from control_plane.pki import make_serving
from control_plane.ports import free_ports

CONFIGURATIONS = {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}
ANSWERS_WITHIN_S = 60.0


def configuration_of(name: str) -> str:
    """The configuration that JobSet and LeaderWorkerSet take alike, for `write_configuration`: one
    replica, no certificate and no metrics of its own.
    """
    return f"""\
apiVersion: config.{name}.x-k8s.io/v1alpha1
kind: Configuration
internalCertManagement: {{enable: false}}
leaderElection: {{leaderElect: false}}
health: {{healthProbeBindAddress: "0"}}
metrics: {{bindAddress: "0"}}
webhook: {{host: 127.0.0.1, port: @PORT@, certDir: "@FOLDER@"}}
"""


class Webhooks:
    """Where one operator's webhooks are: `service` is their Service, as `namespace/name`.

    `port` and `folder` are for the operator's configuration. An operator that makes its certificate
    itself names the Secret in which it keeps it (`namespace/name`): `mount` it once the operator
    runs. Else `folder` has one already.
    """

    def __init__(
        self, plane: ControlPlane, service: str, *, secret: str = "", folder: Path | None = None
    ) -> None:
        self._namespace, _, self._name = service.partition("/")
        self._secret = secret
        self.port = free_ports(1)[0]
        self.folder = folder or plane.workdir / f"{self._name}-certificate"
        self._trusted: Object = {}
        if not secret:
            authority = make_serving(self.folder, f"{self._name}.{self._namespace}.svc")
            self._trusted = {"caBundle": base64.b64encode(authority).decode()}

    def write_configuration(self, text: str) -> Path:
        """Write an operator's configuration, in which @PORT@ and @FOLDER@ stand for these; returns
        its path.
        """
        path = self.folder.with_suffix(".yaml")
        path.write_text(
            text.replace("@PORT@", str(self.port)).replace("@FOLDER@", str(self.folder))
        )
        return path

    def mount(self, api: Api) -> None:
        """Put the operator's Secret, once it is filled, where the kubelet would. Raises
        TimeoutError.
        """
        namespace, _, name = self._secret.partition("/")
        deadline_s = time.monotonic() + ANSWERS_WITHIN_S
        while not (data := api.get(f"/api/v1/namespaces/{namespace}/secrets/{name}").get("data")):
            if time.monotonic() > deadline_s:
                raise TimeoutError(
                    f"no certificate in the Secret {self._secret} within {ANSWERS_WITHIN_S:g} s"
                )
            time.sleep(0.1)
        self.folder.mkdir(parents=True, exist_ok=True)
        for file, text in data.items():
            (self.folder / file).write_bytes(base64.b64decode(text))

    def owns(self, body: Object) -> bool:
        """Whether an object is the Service."""
        meta = body["metadata"]
        namespace = meta.get("namespace", self._namespace)
        return body["kind"] == "Service" and (namespace, meta["name"]) == (
            self._namespace,
            self._name,
        )

    def addressed(self, body: Object) -> Object:
        """An object of the operator's manifests, as it has to be for calls to arrive; most as they
        are.
        """
        if self.owns(body):
            return {**body, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}}
        if body["kind"] in CONFIGURATIONS:
            return {**body, "webhooks": [self._called(webhook) for webhook in body["webhooks"]]}
        conversion = (
            body["spec"].get("conversion", {}) if body["kind"] == "CustomResourceDefinition" else {}
        )
        if "webhook" in conversion:
            called = {**conversion, "webhook": self._called(conversion["webhook"])}
            return {**body, "spec": {**body["spec"], "conversion": called}}
        return body

    def _called(self, webhook: Object) -> Object:
        """A webhook with the port, and with the authority where that is ours."""
        client = webhook["clientConfig"]
        called = {**client, **self._trusted, "service": {**client["service"], "port": self.port}}
        return {**webhook, "clientConfig": called}

    def await_answer(
        self,
        api: Api,
        path: str,
        body: Object,
        defaulted: Callable[[Object], object] = lambda _: True,
    ) -> None:
        """Create an object for show until it is taken with the operator's defaults. Raises
        TimeoutError or ApiError.
        """
        deadline_s = time.monotonic() + ANSWERS_WITHIN_S
        while True:
            late = time.monotonic() > deadline_s
            try:
                if defaulted(api.post(f"{path}?dryRun=All", body)):
                    return
            except ApiError as error:
                # "failed calling webhook"
                if late or error.status != http.client.INTERNAL_SERVER_ERROR:
                    raise
            if late:
                raise TimeoutError(f"no defaults in {body['kind']} within {ANSWERS_WITHIN_S:g} s")
            time.sleep(0.2)
