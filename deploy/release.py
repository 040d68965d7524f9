"""`make release`: all of a release in `dist/`, and proof that it installs in an empty environment.

Wheel, source distribution, the chart, the list of components (CycloneDX) with licences, images where a
Docker engine answers, and SHA256SUMS of all. Files carry the time of the last commit."""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
HELM = ROOT / ".venv-deploy" / "bin" / "helm"
IMAGES = {"services": "hocket", "worker": "hocket-worker"}


def run(*command: str | Path, **environment: str) -> str:
    """Run a command at the top of the checkout; what it says is shown where it fails."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-2_000:]}{done.stderr[-4_000:]}")
    return done.stdout.strip()


def packages(epoch: str) -> Path:
    """Build wheel and source distribution; return the wheel."""
    run(sys.executable, "-m", "hatchling", "build", "-d", DIST, SOURCE_DATE_EPOCH=epoch)
    (wheel,) = DIST.glob("*.whl")
    return wheel


def proven(wheel: Path) -> str:
    """Install the wheel with the locked packages in an empty environment, run it there, and return the
    list of components of that environment."""
    with tempfile.TemporaryDirectory(prefix="hocket-release-") as folder:
        python = Path(folder) / "bin" / "python"
        run(sys.executable, "-m", "venv", folder)
        pip = (
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--disable-pip-version-check",
        )
        run(*pip, "--require-hashes", "-r", ROOT / "requirements.lock")
        run(*pip, wheel)
        program = Path(folder) / "bin" / "hocket"
        version = run(program, "version")
        run(python, "-m", "pip", "check")
        run(program, "schema")
        said = subprocess.run(
            [program, "demo", "--data-dir", Path(folder) / "demo"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=folder,
        )
        if said.returncode:
            sys.exit(
                f"the demo failed in an empty environment:\n{said.stdout[-2_000:]}{said.stderr}"
            )
        print(f"installed in an empty environment: {version}; its demo succeeded", flush=True)
        return run(python, ROOT / "deploy" / "image" / "sbom.py")


def licences(sbom: str) -> str:
    """Return the packages of a list of components by licence, one on a line."""
    rows = [
        f"{one['licenses'][0]['license']['name']}\t{one['name']}\t{one['version']}"
        for one in json.loads(sbom)["components"]
    ]
    return "\n".join(sorted(rows)) + "\n"


def chart() -> None:
    """Package the chart."""
    if not HELM.exists():
        sys.exit("helm is not installed: `make manifests` first")
    run(HELM, "package", ROOT / "deploy" / "chart", "--destination", DIST)


def images(epoch: str) -> None:
    """Build the images and save them, where a Docker engine answers."""
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        print("no Docker engine answers: no images in this release", flush=True)
        return
    for target, name in IMAGES.items():
        tag = f"{name}:0.1.0"
        dockerfile = ("-f", "deploy/Dockerfile", "--target", target)
        stamp = ("--build-arg", f"SOURCE_DATE_EPOCH={epoch}")
        run(docker, "build", "-q", "--network", "host", *dockerfile, *stamp, "-t", tag, ".")
        run(docker, "save", "-o", DIST / f"{name}-0.1.0.tar", tag)


def main() -> None:
    """Make a release."""
    parser = argparse.ArgumentParser(prog="make release")
    parser.add_argument("--no-images", action="store_true")
    asked = parser.parse_args()
    epoch = run("git", "log", "-1", "--format=%ct")
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    wheel = packages(epoch)
    sbom = proven(wheel)
    (DIST / "sbom.cdx.json").write_text(sbom + "\n")
    (DIST / "licences.tsv").write_text(licences(sbom))
    chart()
    if not asked.no_images:
        images(epoch)
    sums = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        for file in sorted(DIST.iterdir())
    ]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    print("".join(sums), end="")


if __name__ == "__main__":
    main()
