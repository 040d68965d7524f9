"""Every subject that the documents of NATS name, and the rest, by every identity: what each may do there
stands in one table, by hand, and is what the permissions say."""

import yaml

from hocket.kit.access.nats_accounts import accounts_text
from hocket.schemas import subjects
from hocket.schemas.access.keys import Principal
from hocket.schemas.access.nats_table import (
    CROSSINGS,
    PULLED_S,
    SERVICES,
    STORED_S,
    TOLD,
    NatsPermissions,
    of_bearer,
)
from hocket.schemas.access.roles import ROLES, permissions_of
from support.places import ROOT

KEY_ID = "0123456789ab"
VALUES = {
    "{tenant}": "acme", "{pipeline}": "p", "{partition}": "0", "{lane}": "normal",
    "{pool}": "crm-lookup", "{type}": "crm-lookup", "{reply_to}": f"_INBOX.key.{KEY_ID}.x",
}  # fmt: skip
P, S = "publishes", "subscribes"
TENANTS = ("viewer", "developer", "operator", "auditor", "admin")
TABLE: dict[str, dict[str, set[str]]] = {
    "hocket.task.acme.p": {P: {"developer", "operator", "admin", "REST"}, S: set()},
    "hocket.task.rival.p": {P: {"REST"}, S: set()},
    "hocket.event.acme.p.run-finished": {
        P: {"coordinator"},
        S: {"REST", "gateway", "worker-gateway"},
    },
    "hocket.event.acme.p.task-rejected": {P: {"coordinator"}, S: {"REST"}},
    "hocket.event.acme.p.runs-changed": {P: {"coordinator"}, S: {"REST"}},
    "hocket.usage": {P: {"gateway", "worker-gateway", "REST"}, S: set()},
    f"_INBOX.key.{KEY_ID}.x": {
        P: {"coordinator", "gateway", "worker-gateway", "ledger", "REST"},
        S: {"developer", "operator", "admin", "teams-worker"},
    },
    "_INBOX.key.ba9876543210.x": {
        P: {"coordinator", "gateway", "worker-gateway", "ledger", "REST"},
        S: set(),
    },
    "_INBOX.service.coordinator.x": {
        P: {"coordinator", "gateway", "worker-gateway", "ledger", "REST"},
        S: {"coordinator"},
    },
    "_R_.abcdef.ghijkl": {
        P: {"coordinator", "gateway", "worker-gateway", "ledger", "REST"},
        S: set(),
    },
    "hocket.step.crm-lookup.normal": {P: {"coordinator", "REST"}, S: set()},
    "hocket.step.python.normal": {P: {"coordinator", "REST"}, S: set()},
    "hocket.log.0.finished": {
        P: {"coordinator", "REST", "worker", "worker-gateway"},
        S: set(),
    },
    "hocket.log.0.results": {
        P: {"coordinator", "REST", "worker", "worker-gateway"},
        S: set(),
    },
    "hocket.log.0.returned": {
        P: {"coordinator", "REST", "worker", "worker-gateway"},
        S: set(),
    },
    "hocket.log.0.accepted": {P: {"coordinator", "REST"}, S: set()},
    "hocket.log.0.signal": {P: {"coordinator", "REST"}, S: set()},
    "hocket.cancel": {
        P: {"coordinator"},
        S: {"gateway", "worker", "worker-gateway", "teams-worker"},
    },
    "hocket.dlq.step._unattributed": {
        P: {"coordinator", "ledger", "REST", "worker", "worker-gateway"},
        S: set(),
    },
    "hocket.worker.asked": {
        P: {"coordinator", "REST"},
        S: {"worker", "worker-gateway", "teams-worker"},
    },
    "hocket.worker.announced": {P: {"worker", "worker-gateway"}, S: {"coordinator", "REST"}},
    "hocket.worker.described": {P: {"worker", "worker-gateway"}, S: {"REST"}},
    "hocket.worker.announced.crm-lookup": {P: set(), S: {"coordinator", "REST"}},
    "hocket.worker.described.crm-lookup": {P: set(), S: {"REST"}},
    "hocket.guest.announced.crm-lookup": {P: {"teams-worker"}, S: set()},
    "hocket.guest.announced.python": {P: set(), S: set()},
    "hocket.guest.described.crm-lookup": {P: {"teams-worker"}, S: set()},
    "hocket.guest.described.python": {P: set(), S: set()},
    f"hocket.guest.result.{KEY_ID}": {P: {"teams-worker"}, S: set()},
    f"hocket.guest.letter.{KEY_ID}": {P: {"teams-worker"}, S: set()},
    "hocket.guest.result.ba9876543210": {P: set(), S: set()},
    "hocket.guest.letter.ba9876543210": {P: set(), S: set()},
    "hocket.guest.result.any": {P: {"teams-worker"}, S: set()},
    "hocket.worker.described.python": {P: set(), S: {"REST"}},
    "hocket.worker.consumers.crm-lookup": {
        P: {"worker", "worker-gateway", "teams-worker"},
        S: {"coordinator"},
    },
    "hocket.worker.consumers.python": {P: {"worker", "worker-gateway"}, S: {"coordinator"}},
    "hocket.gateway.call": {
        P: {"worker", "worker-gateway", "teams-worker", "REST"},
        S: {"gateway", "worker-gateway"},
    },
    "hocket.gateway.cancel": {
        P: {"worker", "worker-gateway", "teams-worker", "REST"},
        S: {"gateway", "worker-gateway"},
    },
    "hocket.gateway.guest": {P: set(), S: {"gateway", "worker-gateway"}},
    "hocket.gateway.control": {P: {"REST"}, S: {"gateway", "worker-gateway"}},
    "hocket.ledger.content": {P: {"gateway", "worker-gateway"}, S: {"ledger"}},
    "hocket.ledger.spent": {P: {"gateway", "worker-gateway"}, S: {"ledger"}},
    "hocket.access.keys": {P: {"gateway", "worker-gateway"}, S: {"REST"}},
    f"hocket.access.events.{KEY_ID}": {P: {"developer", "admin"}, S: {"REST"}},
    "$KV.hocket-coordinators.x": {P: {"coordinator"}, S: set()},
    "$KV.hocket-budgets.x": {P: {"gateway", "worker-gateway"}, S: set()},
    "hocket.worker.journal.read.crm-lookup": {
        P: {"worker", "worker-gateway", "teams-worker"},
        S: {"coordinator"},
    },
    "hocket.worker.journal.write.crm-lookup": {
        P: {"worker", "worker-gateway", "teams-worker"},
        S: {"coordinator"},
    },
    "hocket.worker.journal.read.python": {P: {"worker", "worker-gateway"}, S: {"coordinator"}},
    "hocket.worker.journal.write.python": {P: {"worker", "worker-gateway"}, S: {"coordinator"}},
    "hocket.worker.lines.crm-lookup": {
        P: {"worker", "worker-gateway", "teams-worker"},
        S: {"ledger"},
    },
    "hocket.journal.r1.j1": {P: {"coordinator"}, S: set()},
    "hocket.journal.r1.j1.x": {P: set(), S: set()},
    "$JS.API.DIRECT.GET.JOURNALS": {P: {"coordinator", "REST"}, S: set()},
    "$JS.API.DIRECT.GET.JOURNALS.hocket.journal.r1.j1": {P: {"coordinator", "REST"}, S: set()},
    "$JS.API.STREAM.INFO.JOURNALS": {
        P: {"coordinator", "gateway", "worker-gateway", "ledger"},
        S: set(),
    },
    "$JS.API.STREAM.PURGE.JOURNALS": {P: {"ledger"}, S: set()},
    "$JS.API.STREAM.MSG.GET.JOURNALS": {P: set(), S: set()},
    "$JS.API.STREAM.DELETE.TASKS": {P: set(), S: set()},
    "$JS.API.STREAM.MSG.GET.STEPS": {P: {"worker", "worker-gateway"}, S: set()},
    "$JS.API.CONSUMER.CREATE.STEPS.x": {P: {"coordinator"}, S: set()},
    "$JS.API.CONSUMER.CREATE.EVENTS.x": {P: {"REST", "ledger"}, S: set()},
    f"$JS.API.CONSUMER.MSG.NEXT.EVENTS.key-{KEY_ID}": {
        P: {"developer", "admin", "ledger"},
        S: set(),
    },
    "$JS.API.CONSUMER.MSG.NEXT.EVENTS.key-ba9876543210": {P: {"ledger"}, S: set()},
    "$JS.API.CONSUMER.MSG.NEXT.EVENTS.webhooks": {P: {"REST", "ledger"}, S: set()},
    "$JS.API.CONSUMER.MSG.NEXT.STEPS.step-crm-lookup-normal": {
        P: {"worker", "worker-gateway", "teams-worker"},
        S: set(),
    },
    "$JS.API.CONSUMER.MSG.NEXT.STEPS.step-python-normal": {P: {"worker", "worker-gateway"}, S: set()},
}  # fmt: skip


def identities() -> dict[str, NatsPermissions]:
    found = {("REST" if name == "admin" else name): may for name, may in SERVICES.items()}
    for role in TENANTS:
        bearer = Principal(KEY_ID, "k", "acme", role, permissions_of(role, None))
        found[role] = of_bearer(bearer) or NatsPermissions()
    allowed = permissions_of("worker", None)
    bearer = Principal(KEY_ID, "k", None, "worker", allowed, pools=("crm.lookup",))
    found["teams-worker"] = of_bearer(bearer) or NatsPermissions()
    return found


def matches(pattern: str, subject: str) -> bool:
    wanted, given = pattern.split("."), subject.split(".")
    for place, token in enumerate(wanted):
        if token == ">":
            return len(given) > place
        if place >= len(given) or token not in ("*", given[place]):
            return False
    return len(wanted) == len(given)


def may(patterns: tuple[str, ...], subject: str) -> bool:
    return any(matches(pattern, subject) for pattern in patterns)


def test_each_may_do_what_the_table_says_and_nothing_else() -> None:
    cells = 0
    for subject, said in TABLE.items():
        for name, permissions in identities().items():
            assert may(permissions.publish, subject) is (name in said[P]), (name, P, subject)
            assert may(permissions.subscribe, subject) is (name in said[S]), (name, S, subject)
            cells += 2
    print(f"{cells} cells (subject, identity, direction) were right")
    assert set(TENANTS) | {"worker"} == set(ROLES)


def test_every_subject_of_the_documents_is_in_the_table() -> None:
    for document in ("asyncapi.yaml", "worker-protocol.yaml"):
        channels = yaml.safe_load((ROOT / "docs/reference" / document).read_text())["channels"]
        assert channels
        for channel in channels.values():
            subject = channel["address"]
            for name, value in VALUES.items():
                subject = subject.replace(name, value)
            assert subject in TABLE, f"declare {subject}, and who may publish and hear it"


def test_guests_reach_nothing_but_what_crosses() -> None:
    guests = [may for name, may in identities().items() if name in (*TENANTS, "teams-worker")]
    for permissions in guests:
        for subject in permissions.publish:
            assert any(matches(one.subject, subject) for one in CROSSINGS), subject
        for subject in permissions.subscribe:
            assert any(matches(one, subject) for one in TOLD), subject


def test_a_key_of_all_tenants_publishes_for_each_and_a_narrowed_one_for_none() -> None:
    wide = of_bearer(Principal(KEY_ID, "k", None, "operator", permissions_of("operator", None)))
    assert wide is not None
    assert may(wide.publish, "hocket.task.rival.p")
    scopes = frozenset({"models.call"})
    narrow = Principal(KEY_ID, "k", "acme", "developer", permissions_of("developer", scopes))
    assert of_bearer(narrow) is None


def test_a_server_remembers_for_long_only_where_answers_to_model_calls_go() -> None:
    """Each place takes memory of the server, whoever names it."""
    long = {one.subject for one in CROSSINGS if one.answered_s > STORED_S}
    pulls = {one.subject for one in CROSSINGS if one.is_streamed}
    assert long - pulls == {subjects.GATEWAY_CALL}
    assert {one.answered_s for one in CROSSINGS if one.is_streamed} == {PULLED_S}
    text = accounts_text({"hocket": "p", "access": "q"}, "A")
    assert text.count('threshold: "3600s"') == 1
