"""A test CA, a certificate for this machine alone, and a key for each node: enough to try TLS and authentication."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedtrain.flower.deployment.commands import CA_FILE, CERTIFICATE_FILE, KEY_FILE

VALIDITY = timedelta(days=30)
PEM, NO_ENCRYPTION = serialization.Encoding.PEM, serialization.NoEncryption()


def create_credentials(folder: Path, nodes: Iterable[str]) -> None:
    """A new folder that nobody else may look into, with certificates and a key of this name for each node."""
    folder.mkdir(mode=0o700)
    create_certificates(folder)
    for node in nodes:
        create_node_key(folder / node)


def create_certificates(folder: Path) -> None:
    """``ca.pem`` and a certificate for localhost signed by it; the CA's key is not kept, so it signs nothing else."""
    ca, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _build_common_name("fedco2 test CA, not for production")
    root = (
        _start_certificate(issuer, issuer, ca)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(False, False, False, False, False, True, True, False, False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca.public_key()), critical=False)
        .sign(ca, hashes.SHA256())
    )
    here = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(IPv4Address("127.0.0.1"))])
    leaf = (
        _start_certificate(_build_common_name("localhost"), issuer, server)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(here, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.public_key()), critical=False)
        .sign(ca, hashes.SHA256())
    )
    _write_private_file(folder / CA_FILE, root.public_bytes(PEM))
    _write_private_file(folder / CERTIFICATE_FILE, leaf.public_bytes(PEM))
    _write_private_file(folder / KEY_FILE, server.private_bytes(PEM, serialization.PrivateFormat.PKCS8, NO_ENCRYPTION))


def create_node_key(path: Path) -> None:
    """A node's key pair as ssh-keygen writes it: the private half at ``path``, the public one beside it as .pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private_file(path, key.private_bytes(PEM, serialization.PrivateFormat.OpenSSH, NO_ENCRYPTION))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write_private_file(path.with_name(f"{path.name}.pub"), public + b"\n")


def _build_common_name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _start_certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + VALIDITY)
    )


def _write_private_file(path: Path, content: bytes) -> None:
    """A new file that nobody else may read, from its first byte on."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
