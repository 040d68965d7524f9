"""Certificates of a private authority, made with `openssl`."""

import subprocess
from pathlib import Path


class Authority:
    """An authority in a folder, which puts certificates there: `<name>.crt` and `<name>.key`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = folder / "ca.crt"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", str(folder / "ca.key"), "-out", str(self.certificate), "-days", "2"),
            *("-subj", "/CN=Test", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """Issue a certificate for 127.0.0.1 and other hosts, for servers and clients."""
        crt, key, csr = (self.folder / f"{name}.{end}" for end in ("crt", "key", "csr"))
        names = ",".join(["IP:127.0.0.1", *(f"DNS:{host}" for host in hosts)])
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(
            f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n"
            "keyUsage=critical,digitalSignature\nsubjectKeyIdentifier=hash\n"
            "authorityKeyIdentifier=keyid\n"
        )
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", str(key), "-out", str(csr), "-subj", f"/CN={name}"),
        )
        _openssl(
            *("x509", "-req", "-in", str(csr), "-CA", str(self.certificate)),
            *("-CAkey", str(self.folder / "ca.key"), "-CAcreateserial", "-days", "2"),
            *("-extfile", str(extensions), "-out", str(crt)),
        )
        return crt, key

    def server_block(self, name: str) -> str:
        """Return a `tls` block for NATS that requires certificates from clients."""
        crt, key = self.issue(name, "localhost")
        return (
            f'tls {{ cert_file: "{crt}", key_file: "{key}", ca_file: "{self.certificate}", '
            "verify: true, timeout: 5 }\n"
        )


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
