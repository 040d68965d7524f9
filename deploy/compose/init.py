"""Makes what the containers of docker-compose.yml share and nobody has to think of: certificates,
passwords and keys, each once. Runs before everything else, as the user of all containers.

What is there stays. Certificates of servers and clients are made anew if this runs in their last 30
days: restart NATS and Postgres then. The key of the authority is on a volume of its own, which only this
mounts.
"""

import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from hocket.kit.access.account_files import kept_accounts
from hocket.kit.process.config import load
from hocket.schemas.errors import InvalidInput
from hocket.workers.configuration import parse

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
CONFIG = Path("/etc/hocket/hocket.yaml")
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


def configured(path: Path, *, demo: bool) -> dict[str, Any]:
    """Return what the configuration file says, as the processes read it, with the demo's database and
    function if wanted; raise InvalidInput if no process can read it, or if a section for workers has the
    wrong form. What a model, a database or a service needs is checked by those that use it."""
    config = load(path, named_by="deploy/hocket.yaml")
    parse(config)
    if not demo:
        return config
    reader = once(ACCESS / "demo_password", secrets.token_urlsafe(24))
    url = f"postgresql://{DEMO_READER}:{reader}@postgres:5432/hocket"
    target = {"url": url, "tables": ["demo_data.*"]}
    config["databases"] = {**(config.get("databases") or {}), "demo": target}
    types = config.get("node_types") or {}
    python = types.get("python", {})
    python = {**python, "modules": [*python.get("modules", ()), VERIFIER]}
    config["node_types"] = {**types, "python": python}
    return config


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
    try:
        config = configured(CONFIG, demo=os.environ.get("HOCKET_DEMO", "1") == "1")
    except InvalidInput as error:
        sys.exit(f"deploy/hocket.yaml: {error}")
    write(ACCESS / "hocket.yaml", yaml.safe_dump(config, sort_keys=False))


if __name__ == "__main__":
    main()
