"""Check manifests against the schemas of Kubernetes and KEDA, refusing unknown fields.

It is run by the Python of `make manifests`, which has both. `validate.py FILE...` prints what is wrong,
and exits with 1 if anything is."""

import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from cloudcoil.models.keda import v1alpha1 as keda

VERSION = "1.37"


def unknown(given: Any, known: Any, path: str = "") -> list[str]:
    """Return the paths of the fields that a model dropped from its input."""
    if isinstance(given, dict):
        return [
            place
            for name, value in given.items()
            for place in (
                unknown(value, known[name], f"{path}.{name}")
                if isinstance(known, dict) and name in known
                else [f"{path}.{name} is unknown"]
            )
        ]
    if isinstance(given, list):
        pairs = zip(given, known, strict=True)
        return [
            p for n, (one, other) in enumerate(pairs) for p in unknown(one, other, f"{path}[{n}]")
        ]
    return []


def faults(document: dict[str, Any]) -> list[str]:
    """Return what is wrong with a manifest."""
    if document["apiVersion"].startswith("keda.sh/"):
        try:
            model = getattr(keda, document["kind"]).model_validate(document)
        except (AttributeError, ValueError) as error:
            return [str(error)]
        return unknown(document, model.model_dump(mode="json", by_alias=True, exclude_unset=True))
    try:
        kubernetes_validate.validate(document, VERSION, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return [str(error).partition("\n")[0]]
    return []


def main() -> None:
    """Check the named files."""
    found = [
        f"{path}: {document['kind']} {document['metadata']['name']}: {fault}"
        for path in sys.argv[1:]
        for document in yaml.safe_load_all(Path(path).read_text())
        if document
        for fault in faults(document)
    ]
    print("\n".join(found))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
