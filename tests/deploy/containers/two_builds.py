"""`make images-test`: build both images twice from one commit, as two people would.

The builds use different folders, times and file modes, and no cache. The layers must be the same, byte
for byte."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from deploy.containers.engine import PROGRAMS, base_images, engine, install, run
from support.places import ROOT

TARGETS = ("services", "worker")
UMASKS = (0o022, 0o077)
BUILD_S = 1_800
MAX_SHOWN = 20


def checkout(folder: Path, umask: int) -> Path:
    """Write the files of this checkout into a folder, as `git clone` with a umask does."""
    made = folder / f"checkout-{umask:03o}"
    shutil.rmtree(made, ignore_errors=True)
    before = os.umask(umask)
    try:
        names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout
        for name in filter(None, names.split("\0")):
            if not (ROOT / name).is_file():
                continue
            target = made / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
            if os.access(ROOT / name, os.X_OK):
                target.chmod(0o777 & ~umask)
    finally:
        os.umask(before)
    return made


def built(target: str, place: Path, tag: str, *, is_compiled: bool) -> list[str]:
    """Build one image without a cache; return the digests of its layers."""
    command = ("docker", "build", "-q", "--no-cache", "--network", "host")
    what = ("--build-arg", f"COMPILE={int(is_compiled)}", "--target", target, "-t", tag)
    done = subprocess.run(
        [*command, *what, "-f", str(place / "deploy" / "Dockerfile"), str(place)],
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if done.returncode:
        sys.exit(f"building {target} failed: {done.stdout[-1_000:]}{done.stderr[-3_000:]}")
    found: list[str] = json.loads(
        run("docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}", tag).stdout
    )
    return found


def entries(folder: Path, tag: str) -> dict[tuple[int, str], tuple[object, ...]]:
    """Return the contents of an image's layers: time, mode, owner, size, link and bytes, by layer and
    path."""
    archive, place = folder / "image.tar", folder / "image"
    shutil.rmtree(place, ignore_errors=True)
    run("docker", "save", "-o", str(archive), tag, timeout_s=600)
    with tarfile.open(archive) as tar:
        tar.extractall(place, filter="data")
    archive.unlink()
    (manifest,) = json.loads((place / "manifest.json").read_text())
    found: dict[tuple[int, str], tuple[object, ...]] = {}
    for number, layer in enumerate(manifest["Layers"]):
        with tarfile.open(place / layer) as tar:
            for one in tar:
                file = tar.extractfile(one) if one.isfile() else None
                held = hash(file.read()) if file is not None else 0
                about = (one.mtime, one.mode, one.uid, one.gid, one.size, one.linkname, held)
                found[number, one.name] = about
    return found


def differences(folder: Path, one: str, other: str) -> list[str]:
    """Return what differs between two images."""
    mine, theirs = entries(folder, one), entries(folder, other)
    return [
        f"layer {number}: {name}: {mine.get((number, name))} and {theirs.get((number, name))}"
        for number, name in sorted(mine.keys() | theirs.keys())
        if mine.get((number, name)) != theirs.get((number, name))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="make images-test")
    parser.add_argument("--folder", type=Path, help="kept for the next time: images, Debian trees")
    parser.add_argument("--compile", action="store_true", help="images with compiled parts")
    asked = parser.parse_args()
    folder = asked.folder
    temporary = folder is None
    folder = folder or Path(tempfile.mkdtemp(prefix="hocket-images-"))
    folder.mkdir(parents=True, exist_ok=True)
    install(PROGRAMS)
    same = True
    with engine(folder):
        base_images(folder)
        places = [checkout(folder, umask) for umask in UMASKS]
        for target in TARGETS:
            tags = [f"hocket-{target}-twice:{number}" for number in range(len(places))]
            pairs = zip(places, tags, strict=True)
            one, other = (
                built(target, place, tag, is_compiled=asked.compile) for place, tag in pairs
            )
            if one == other:
                print(f"{target}: {len(one)} layers, the same in both builds: {one}", flush=True)
            else:
                same = False
                shown = differences(folder, *tags)
                print(f"{target}: {one} and {other} differ in {len(shown)} files")
                print("\n".join(shown[:MAX_SHOWN]), flush=True)
            run("docker", "image", "rm", *tags)
    if temporary:
        shutil.rmtree(folder, ignore_errors=True)
    print("passed" if same else "FAILED", flush=True)
    sys.exit(not same)


if __name__ == "__main__":
    main()
