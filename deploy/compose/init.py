"""Makes what the containers of docker-compose.yml share and nobody has to think of: certificates,
passwords and keys, each once. Runs before everything else, as the user of all containers.

What is there stays. Certificates of servers and clients are made anew if this runs in their last 30
days: restart NATS and Postgres then. The key of the authority is on a volume of its own, which only this
mounts.
"""

import os
import secrets
import subprocess
from pathlib import Path
from urllib.parse import quote

import yaml

from hocket.kit.access.account_files import kept_accounts

CA, ACCESS, KEYS = Path("/srv/ca"), Path("/srv/access"), Path("/srv/keys")
ADMIN = Path("/srv/admin")
NATS, POSTGRES = Path("/srv/nats-secrets"), Path("/srv/postgres-secrets")
URLS = {
    **dict.fromkeys(("hocket", "access", "admin"), ADMIN),
    **dict.fromkeys(("coordinator", "gateway", "ledger"), KEYS),
    "worker": ACCESS,
}
"""Where the address of NATS is with each user's password: whoever mounts a folder can read what is
there."""
CA_DAYS, DAYS, RENEW_S = 3_650, 365, 30 * 86_400
DEMO_READER = "hocket_demo_reader"
VERIFIER = "hocket.workers.nodes.verify:verify_draft"


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


def once(path: Path, content: str) -> str:
    """Write a file if it is not there; return what it holds."""
    if not path.exists():
        write(path, content)
    return path.read_text()


def write(path: Path, content: str) -> None:
    part = path.with_name(path.name + ".part")
    part.touch(mode=0o600)
    part.write_text(content)
    part.replace(path)


def authority() -> None:
    if (CA / "ca.crt").exists():
        return
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-keyout", str(CA / "ca.key"), "-out", str(CA / "ca.part"), "-days", str(CA_DAYS)),
        *("-subj", "/CN=Hocket", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
    )
    (CA / "ca.part").rename(CA / "ca.crt")


def certificate(folder: Path, name: str, *, usage: str, hosts: tuple[str, ...]) -> None:
    """Put a certificate of the authority, its key and the authority's certificate into a folder."""
    write(folder / "ca.crt", (CA / "ca.crt").read_text())
    made = folder / f"{name}.crt"
    valid = ["openssl", "x509", "-checkend", str(RENEW_S), "-noout", "-in", str(made)]
    if made.exists() and subprocess.run(valid, check=False, capture_output=True).returncode == 0:
        return
    names = ",".join(f"DNS:{host}" for host in hosts)
    extensions = folder / "extensions"
    extensions.write_text(
        f"subjectAltName={names}\nextendedKeyUsage={usage}\nkeyUsage=critical,digitalSignature\n"
        "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    )
    key, request, part = (str(folder / f"{name}.{end}") for end in ("key.part", "csr", "crt.part"))
    openssl(
        *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-keyout", key, "-out", request, "-subj", f"/CN={name}"),
    )
    openssl(
        *("x509", "-req", "-in", request, "-CA", str(CA / "ca.crt"), "-CAkey", str(CA / "ca.key")),
        *("-CAcreateserial", "-days", str(DAYS), "-extfile", str(extensions), "-out", part),
    )
    os.chmod(key, 0o600)
    os.replace(key, folder / f"{name}.key")
    os.replace(part, made)
    extensions.unlink()
    Path(request).unlink()


def main() -> None:
    os.umask(0o077)
    authority()
    certificate(NATS, "nats", usage="serverAuth", hosts=("nats", "localhost"))
    certificate(POSTGRES, "postgres", usage="serverAuth", hosts=("postgres", "localhost"))
    certificate(ACCESS, "client", usage="clientAuth", hosts=("hocket",))
    once(KEYS / "capability_key", secrets.token_hex(32))
    once(ADMIN / "key", f"hk_{secrets.token_hex(6)}_{secrets.token_hex(32)}")
    files = "&".join(
        (f"ca={ACCESS}/ca.crt", f"cert={ACCESS}/client.crt", f"key={ACCESS}/client.key")
    )
    kept_accounts(NATS, f"tls://nats:4222?{files}")
    for user, folder in URLS.items():
        write(folder / f"nats_url_{user}", (NATS / f"{user}.url").read_text())
    write(ADMIN / "nats_access_seed", (NATS / "access.seed").read_text())
    tls = f"sslmode=verify-full&sslrootcert={ACCESS}/ca.crt"
    postgres = quote(os.environ["POSTGRES_PASSWORD"], safe="")
    write(ACCESS / "database_url", f"postgresql://hocket:{postgres}@postgres:5432/hocket?{tls}")
    config = yaml.safe_load(Path("/etc/hocket/hocket.yaml").read_text()) or {}
    if os.environ.get("HOCKET_DEMO", "1") == "1":
        reader = once(ACCESS / "demo_password", secrets.token_urlsafe(24))
        url = f"postgresql://{DEMO_READER}:{reader}@postgres:5432/hocket"
        databases = config.setdefault("databases", {})
        databases["demo"] = {"url": url, "tables": ["demo_data.*"]}
        python = config.setdefault("node_types", {}).setdefault("python", {})
        python["modules"] = [*python.get("modules", ()), VERIFIER]
    write(ACCESS / "hocket.yaml", yaml.safe_dump(config))


main()
