"""Prints a CycloneDX list of the packages that are installed beside the Python that runs this.

Sorted and without a time or a random number: the same packages give the same bytes."""

import json
import re
from importlib.metadata import Distribution, distributions


def licence(one: Distribution) -> str:
    """Return a package's licence as its metadata has it: an SPDX expression, else its classifiers."""
    expression = one.metadata.get("License-Expression")
    if expression:
        return str(expression)
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in one.metadata.get_all("Classifier") or ()
        if text.startswith("License :: ") and not text.endswith("OSI Approved")
    ]
    stated = str(one.metadata.get("License") or "").strip().partition("\n")[0]
    return " AND ".join(sorted(classifiers)) or stated[:100] or "unknown"


def component(one: Distribution) -> dict[str, object]:
    """Return the entry of one package."""
    name = re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower()
    return {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}@{one.version}",
        "name": name,
        "version": one.version,
        "purl": f"pkg:pypi/{name}@{one.version}",
        "licenses": [{"license": {"name": licence(one)}}],
    }


def bill() -> dict[str, object]:
    """Return the whole list."""
    found = [component(one) for one in distributions()]
    (own,) = (one for one in found if one["name"] == "hocket")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**own, "type": "application"}},
        "components": sorted(
            (one for one in found if one is not own), key=lambda c: str(c["name"])
        ),
    }


if __name__ == "__main__":
    print(json.dumps(bill(), indent=1))
