"""The platform's processes and the modules that they are."""

MODULES = {
    "coordinator": "hocket.coordinator",
    "worker": "hocket.workers",
    "gateway": "hocket.gateway",
    "ledger": "hocket.ledger",
    "admin": "hocket.admin",
}
