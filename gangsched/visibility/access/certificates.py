"""The serving certificate, signed by a certificate authority whose key is discarded after one
signature.

Invariant: the authority's private key is never stored, so whoever reads the Secret can impersonate
this server, but cannot sign anything else. Keys are P-256.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=365)
# Two months for an administrator to notice that renewing fails.
RENEWED_BEFORE = timedelta(days=60)
NAME = "gangsched-visibility"


@dataclass(frozen=True, slots=True)
class Serving:
    """Certificates and key in PEM; `authority` may also contain the previous authority."""

    authority: str
    certificate: str
    key: str


def make_serving(names: list[str], now: datetime, before: str = "") -> Serving:
    """Create an authority and a certificate for these DNS names; authorities in `before` stay
    trusted.
    """
    # The authority's key is a local variable: it signs once and is gone.
    authority_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"{NAME}-ca@{int(now.timestamp())}")]
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    signing = _usage(signs=True)
    authority = (
        _builder(issuer, issuer, authority_key, authority_key, now)
        # path_length=0: even with its key, which is discarded, no further authority could be made.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signing, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(subject, issuer, key, authority_key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in names]),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )

    # The previous authority stays trusted until all replicas serve the new certificate.
    return Serving(_pem(authority) + before, _pem(certificate), private.decode())


def lasts(serving: Serving, names: list[str], now: datetime) -> bool:
    """Whether the certificate is for these names, valid, and not yet due for renewal."""
    try:
        found = x509.load_pem_x509_certificate(serving.certificate.encode())
        key = serialization.load_pem_private_key(serving.key.encode(), None)
        authorities = x509.load_pem_x509_certificates(serving.authority.encode())
        stated = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, x509.ExtensionNotFound):
        return False

    if found.public_key() != key.public_key() or not any(
        _signed(authority, found, now) for authority in authorities
    ):
        return False

    of_names = set(names) <= set(stated.get_values_for_type(x509.DNSName))
    return of_names and now < found.not_valid_after_utc - RENEWED_BEFORE


def _signed(authority: x509.Certificate, certificate: x509.Certificate, now: datetime) -> bool:
    """Whether a certificate is of an authority that is valid now."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False

    return authority.not_valid_before_utc <= now < authority.not_valid_after_utc


def newest_authority(authorities: str, now: datetime) -> str:
    """The first of these certificates if it is still valid; it stays trusted in addition to a new
    one.
    """
    try:
        first = x509.load_pem_x509_certificates(authorities.encode())[0]
    except (ValueError, IndexError):
        return ""

    return _pem(first) if now < first.not_valid_after_utc else ""


def utc(at_s: float) -> datetime:
    """Convert a second since the epoch to a time in UTC."""
    return datetime.fromtimestamp(at_s, UTC)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    now: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # The clock of the API server may be behind ours.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
