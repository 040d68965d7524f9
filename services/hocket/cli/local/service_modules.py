"""The platform's processes and their modules."""

MODULES = {
    "coordinator": "hocket.coordinator",
    "worker": "hocket.workers",
    "gateway": "hocket.gateway",
    "ledger": "hocket.ledger",
    "admin": "hocket.admin",
}
