"""The host ports of rows of pods, of which any number may be different.

Invariant: as `model.inter_pod.HostPort.conflicts` says, for all ports at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gangsched.model.inter_pod import ANY_IP, HostPort
from gangsched.model.objects import Pod
from gangsched.model.pods_by_node import Ints
from gangsched.model.snapshot import Bools

NO_PORTS: Ints = np.zeros(0, dtype=np.int64)


class PortColumn:
    """Each port of each row, as numbers."""

    def __init__(self) -> None:
        #: Rows that were read.
        self.size = 0
        self._row = NO_PORTS
        self._port = NO_PORTS
        #: A number for each protocol and each address.
        self._protocol = NO_PORTS
        self._ip = NO_PORTS
        self._code_of: dict[str, int] = {ANY_IP: 0}

    def __len__(self) -> int:
        return self._row.size

    def read(self, pods: Sequence[Pod]) -> None:
        """Add rows."""
        code_of = self._code_of
        rows: list[int] = []
        ports: list[int] = []
        protocols: list[int] = []
        ips: list[int] = []

        for row, pod in enumerate(pods, self.size):
            inter_pod = pod.shape.inter_pod
            if inter_pod is None:
                continue

            for port in inter_pod.ports:
                rows.append(row)
                ports.append(port.port)
                protocol = code_of.setdefault(port.protocol, len(code_of))
                protocols.append(protocol)

                ip = code_of.setdefault(port.ip, len(code_of))
                ips.append(ip)

        self.size += len(pods)
        if rows:
            self._row = _longer(self._row, rows)
            self._port = _longer(self._port, ports)
            self._protocol = _longer(self._protocol, protocols)
            self._ip = _longer(self._ip, ips)

    def conflicting(self, port: HostPort) -> Bools:
        """By row that was read, whether it uses a port that conflicts with this one."""
        protocol = self._code_of.get(port.protocol, -1)
        is_same = self._port == port.port
        is_same &= self._protocol == protocol

        if port.ip != ANY_IP:
            ip = self._code_of.get(port.ip, -1)
            is_any = self._ip == self._code_of[ANY_IP]
            is_same &= is_any | (self._ip == ip)

        rows = self._row[is_same]
        conflicts = np.zeros(self.size, dtype=np.bool_)
        conflicts[rows] = True

        return conflicts

    def keep(self, kept: Ints) -> None:
        """Drop all rows but these."""
        kept = kept[kept < self.size]
        place = np.full(self.size, -1)
        place[kept] = np.arange(kept.size)

        row = place[self._row]
        stays = row >= 0

        self.size = kept.size
        self._row = row[stays]
        self._port = self._port[stays]
        self._protocol = self._protocol[stays]
        self._ip = self._ip[stays]


def _longer(column: Ints, more: Sequence[int]) -> Ints:
    return np.concatenate((column, more))
