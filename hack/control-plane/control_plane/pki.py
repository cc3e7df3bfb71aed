"""Certificates and keys of one control plane, and of webhooks beside it: made at its start and
trusted by it alone.

Invariant: every call makes a new authority. Keys are elliptic (P-256), since RSA keys take long to
make.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=30)
#: The common name of the API server as a proxy, as kubeadm has it.
FRONT_PROXY = "front-proxy-client"
#: Of this machine, and the first one of the service range.
APISERVER_ADDRESSES = ("127.0.0.1", "10.0.0.1")
APISERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class Pki:
    """The paths of the files (all PEM)."""

    ca: Path
    ca_key: Path
    server_cert: Path
    server_key: Path
    admin_cert: Path
    admin_key: Path
    sa_key: Path
    sa_pub: Path
    proxy_ca: Path
    proxy_cert: Path
    proxy_key: Path


def make_pki(folder: Path) -> Pki:
    """Write an authority, a server certificate for 127.0.0.1, an admin's of `system:masters`, and
    token keys.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pki = Pki(
        **{
            field: folder / name
            for field, name in {
                "ca": "ca.crt",
                "ca_key": "ca.key",
                "server_cert": "server.crt",
                "server_key": "server.key",
                "admin_cert": "admin.crt",
                "admin_key": "admin.key",
                "sa_key": "sa.key",
                "sa_pub": "sa.pub",
                "proxy_ca": "front-proxy-ca.crt",
                "proxy_cert": "front-proxy-client.crt",
                "proxy_key": "front-proxy-client.key",
            }.items()
        }
    )
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _certificate(_name("gangsched-control-plane"), ca_key, issuer=None)
    _write_cert(pki.ca, ca)
    _write_key(pki.ca_key, ca_key)
    issuer = (ca, ca_key)
    server_key = ec.generate_private_key(ec.SECP256R1())
    _write_cert(
        pki.server_cert,
        _certificate(_name("kube-apiserver"), server_key, issuer=issuer, server=True),
    )
    _write_key(pki.server_key, server_key)
    admin_key = ec.generate_private_key(ec.SECP256R1())
    admin = _certificate(
        _name("control-plane-admin", group="system:masters"), admin_key, issuer=issuer
    )
    _write_cert(pki.admin_cert, admin)
    _write_key(pki.admin_key, admin_key)
    _make_front_proxy(pki)
    sa_key = ec.generate_private_key(ec.SECP256R1())
    _write_key(pki.sa_key, sa_key)
    pki.sa_pub.write_bytes(
        sa_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return pki


def issue_client(
    pki: Pki,
    folder: Path,
    name: str,
    *,
    group: str,
    lifetime: datetime.timedelta,
) -> tuple[Path, Path]:
    """Write a certificate and key of a user that the API server trusts for so long; their paths."""
    ca = x509.load_pem_x509_certificate(pki.ca.read_bytes())
    ca_key = serialization.load_pem_private_key(pki.ca_key.read_bytes(), password=None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)

    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name, group=group)
    certificate = _certificate(subject, key, issuer=(ca, ca_key), lifetime=lifetime)
    paths = folder / "client.crt", folder / "client.key"
    _write_cert(paths[0], certificate)
    _write_key(paths[1], key)
    return paths


class Authority:
    """An authority whose certificates and keys lie in `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._certificate = _certificate(_name(name), self._key, issuer=None)
        self.path = folder / f"{name}.crt"
        _write_cert(self.path, self._certificate)

    def issue(
        self,
        name: str,
        *,
        group: str = "",
        file: str = "",
        names: Sequence[str] = (),
        addresses: Sequence[str] = (),
    ) -> tuple[Path, Path]:
        """Write a certificate and key for a client, which with names or addresses is a server, too;
        their paths.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._folder / f"{file or name}.crt"
        issued = _certificate(
            _name(name, group=group),
            key,
            issuer=(self._certificate, self._key),
            server=bool(names or addresses),
            client=True,
            names=names,
            addresses=addresses,
        )
        _write_cert(certificate, issued)
        _write_key(certificate.with_suffix(".key"), key)
        return certificate, certificate.with_suffix(".key")


def make_serving(folder: Path, *names: str) -> bytes:
    """Write `tls.crt` and `tls.key` of a server with these DNS names; returns its
    authority (PEM).
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority_key, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    authority = _certificate(_name("gangsched-webhooks-ca"), authority_key, issuer=None)
    served = _certificate(
        _name(names[0]), key, issuer=(authority, authority_key), server=True, names=names
    )
    _write_cert(folder / "tls.crt", served)
    _write_key(folder / "tls.key", key)
    return authority.public_bytes(serialization.Encoding.PEM)


def _make_front_proxy(pki: Pki) -> None:
    """The certificate that the API server shows to extension API servers, of an authority of its
    own.
    """
    authority_key, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    authority = _certificate(_name("gangsched-front-proxy-ca"), authority_key, issuer=None)
    _write_cert(pki.proxy_ca, authority)
    _write_cert(
        pki.proxy_cert, _certificate(_name(FRONT_PROXY), key, issuer=(authority, authority_key))
    )
    _write_key(pki.proxy_key, key)


def _name(common_name: str, *, group: str = "") -> x509.Name:
    """A subject; Kubernetes reads the organisation as the user's group."""
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else []
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
    server: bool = False,
    client: bool = False,
    names: Sequence[str] = APISERVER_NAMES,
    addresses: Sequence[str] = APISERVER_ADDRESSES,
    lifetime: datetime.timedelta = LIFETIME,
) -> x509.Certificate:
    """A certificate for `key`: of an authority when there is no issuer, else of a server (with its
    names) or a client.

    It has what strict verifiers such as Python 3.13 require: key identifiers and critical key
    usage.
    """
    issuer_name, issuer_key = (subject, key) if issuer is None else (issuer[0].subject, issuer[1])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + lifetime)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(_usage(authority=issuer is None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    if issuer is not None:
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH] if server else []
        purposes += [ExtendedKeyUsageOID.CLIENT_AUTH] if client or not server else []
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if server:
        alternatives = [
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
            *map(x509.DNSName, names),
        ]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _usage(*, authority: bool) -> x509.KeyUsage:
    """An authority signs certificates; others only handshake."""
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write_cert(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
