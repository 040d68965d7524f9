"""Network policies as data: who may connect to whom according to Kubernetes' reading of them, and who
does connect to whom according to the code."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from support.places import ROOT

INTERNET = "the internet"
SERVICES = ("coordinator", "gateway", "ledger", "admin", "worker-default")
ASKS = {
    "nats_url": r"service\.bus\(",
    "nats_access_url": r"service\.access_bus\(",
    "database_url": r"service\.(?:lazy_)?pool\(",
    "otlp_endpoint": r"settings\.otlp_endpoint\b",
    "oidc_issuer": r"from hocket\.kit\.identity\.configured import",
}
"""Code by which a service shows that it connects to what a setting names."""
WEBHOOKS = r"\bWebhookSender\("
MODELS = r"\bbuild_backends?\(|\bHttpEndpoint\("


class NetworkPolicies:
    """The network policies among some manifests."""

    def __init__(self, documents: Iterable[Mapping[str, Any]]) -> None:
        self.specs = [one["spec"] for one in documents if one["kind"] == "NetworkPolicy"]

    def may_speak(
        self, service: str, port: int, labels: Mapping[str, str], namespace: str = ""
    ) -> bool:
        """Return whether a service's pods may connect to pods with these labels on a port. `namespace`
        is that of the other pods; the default is the service's own, and INTERNET is outside the
        cluster."""
        pod = {"app": "hocket", "service": service}
        if service.startswith("worker-"):
            pod["role"] = "worker"
        rules = [
            rule
            for spec in self.specs
            if "Egress" in spec["policyTypes"] and _selects(spec["podSelector"], pod)
            for rule in spec.get("egress", ())
        ]
        assert rules, "a pod without a policy may speak to everybody"
        return any(
            port in [one["port"] for one in rule["ports"]] and _reaches(peer, labels, namespace)
            for rule in rules
            for peer in rule["to"]
        )

    def opened(self) -> dict[str, set[int]]:
        """Return the ports that are open to others, by service."""
        found: dict[str, set[int]] = {}
        for spec in self.specs:
            for rule in spec.get("ingress", ()):
                service = spec["podSelector"]["matchLabels"].get("service", "all")
                found.setdefault(service, set()).update(one["port"] for one in rule["ports"])
        return found


def _reaches(peer: Mapping[str, Any], labels: Mapping[str, str], namespace: str) -> bool:
    if "ipBlock" in peer:
        return namespace == INTERNET
    spaces = peer.get("namespaceSelector")
    inside = (
        _selects(spaces, {"kubernetes.io/metadata.name": namespace}) if spaces else not namespace
    )
    return inside and ("podSelector" not in peer or _selects(peer["podSelector"], labels))


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    wanted = selector.get("matchLabels", {})
    return wanted.items() <= labels.items() and all(
        (labels.get(one["key"]) in one["values"]) == (one["operator"] == "In")
        for one in selector.get("matchExpressions", ())
    )


def code_of(service: str) -> str:
    """Return a service's own code, without `kit`."""
    worker = ROOT / "workers" / "hocket" / "workers"
    folder = worker if service == "worker-default" else ROOT / "services" / "hocket" / service
    return "\n".join(file.read_text() for file in sorted(folder.rglob("*.py")))


def asks(service: str, pattern: str) -> bool:
    return re.search(pattern, code_of(service)) is not None
