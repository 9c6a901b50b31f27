"""Make the certificates and keys of a federation with TLS and registered SuperNodes, for the loopback address.

    python certificates.py FOLDER SUPERNODES

ca.crt                          the authority that SuperNodes and `flwr` trust; its key is not kept
server.pem, server.key          the SuperLink's certificate, for localhost and 127.0.0.1, and its key
supernode-0, supernode-0.pub    a SuperNode's key pair, and so on from 0; register the public one
"""

import sys
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

LIFETIME = timedelta(days=365)


def make_name(name: str) -> x509.Name:
    """Return a certificate's common name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def draft_certificate(subject: str, key: ec.EllipticCurvePrivateKey, authority: bool) -> x509.CertificateBuilder:
    """Return a certificate that is not signed yet."""
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(make_name("Laboratory CA"), make_name(subject), key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + LIFETIME)
    return builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)


def write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> None:
    """Write a key that only its owner may read."""
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))


def write_files(folder: Path, supernodes: int) -> None:
    """Write the certificates, and one key pair per SuperNode."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    root = draft_certificate("Laboratory CA", authority, authority=True).sign(authority, hashes.SHA384())
    (folder / "ca.crt").write_bytes(root.public_bytes(Encoding.PEM))
    hosts = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = draft_certificate("localhost", server, authority=False).add_extension(hosts, critical=False)
    (folder / "server.pem").write_bytes(certificate.sign(authority, hashes.SHA384()).public_bytes(Encoding.PEM))
    write_private(folder / "server.key", server, PrivateFormat.PKCS8)
    for number in range(supernodes):
        key = ec.generate_private_key(ec.SECP384R1())
        write_private(folder / f"supernode-{number}", key, PrivateFormat.OpenSSH)
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        (folder / f"supernode-{number}.pub").write_bytes(public + b"\n")


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), int(sys.argv[2]))
