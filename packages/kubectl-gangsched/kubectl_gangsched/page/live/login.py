"""As whom the page reads, and new credentials in place of those that have expired.

Invariant: whoever the page began as is who it goes on as, and at the same server: what a kubeconfig
says by now may be about somebody else.
"""

from __future__ import annotations

import time

from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import Fault
from kubectl_gangsched.session import Session

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
WITHIN_S = 5.0
FIRST_S = 5.0
MOST_S = 300.0
"""Between two tries, at first and at most: an exec plugin may ask its user something."""


def user_of(session: Session) -> str:
    """The name under which the API server knows the user; "" where it does not say. Raises Fault
    if it does not answer.
    """
    session.client.get("/version")
    return _user(session.client)


def _user(client: BlockingClient) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = client.json("POST", REVIEW, body)
    except Fault:
        return ""

    return str(answer.get("status", {}).get("userInfo", {}).get("username") or "")


class Login:
    """The credentials of a session, and of the clients that share them."""

    def __init__(self, session: Session, user: str, *others: BlockingClient) -> None:
        """`user` is whom they are of."""
        self._session = session
        self._user = user
        self._clients = (session.client, *others)
        self._next_s = 0.0
        self._wait_s = FIRST_S

    def renew(self) -> None:
        """Use what the kubeconfig, its token file or its exec plugin say by now, if it is new and
        of the same user; called when the server no longer accepts what there is.
        """
        now_s = time.monotonic()
        if now_s < self._next_s:
            return

        self._next_s = now_s + self._wait_s
        self._wait_s = min(MOST_S, 2 * self._wait_s)
        before = self._session.client.access
        try:
            access = self._session.read_again()
            if access.server != before.server:
                return

            trial = BlockingClient(access, within_s=WITHIN_S)
            trial.get("/version")
            if _user(trial) != self._user:
                return
        except Fault:
            return

        for client in self._clients:
            client.access = access

        self._wait_s = FIRST_S
