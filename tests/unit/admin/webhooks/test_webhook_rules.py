"""What webhooks are sent, when it is sent again, and where it may be sent to."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from pydantic import ValidationError
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from hocket.admin.webhooks import intake, messages, tries
from hocket.admin.webhooks.sending import check_target
from hocket.admin.webhooks.tries import Outcome
from hocket.kit.access.secret_box import KEY_BYTES, SecretBox, SecretUnreadable
from hocket.schemas.administration.webhooks import WebhookBody
from hocket.schemas.errors import InvalidInput
from support.administration.webhook_rig import ended

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_a_message_is_signed_as_the_specification_says() -> None:
    """The example of the specification of Standard Webhooks."""
    secret = Webhook("whsec_plJ3nmyCDGBKInavdOK15jsl")._whsecret
    at = datetime.fromtimestamp(1_731_705_121, UTC)
    text = '{"event_type":"ping","data":{"success":true}}'
    assert messages.headers([secret], "msg_loFOjxBNrRLzqYUf", text, at) == {
        "webhook-id": "msg_loFOjxBNrRLzqYUf",
        "webhook-timestamp": "1731705121",
        "webhook-signature": "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
        "content-type": "application/json",
    }


def test_an_output_is_left_out_if_it_is_too_large_as_it_is_sent() -> None:
    largest = "é" * 32_767
    for output, is_left_out in (
        (largest, False), (f"{largest}x", True), (["é"] * 13_106, False), (["é"] * 13_108, True),
        (None, False),
    ):  # fmt: skip
        end = ended("r1", "succeeded", output=output)
        _, data = messages.end(end, len(end.model_dump_json()), content=True)
        assert data["output_left_out"] is is_left_out
        assert data["output"] == (None if is_left_out else output)


def test_an_output_whose_event_shows_that_it_is_too_large_is_not_encoded() -> None:
    end = ended("r1", "succeeded", output=object())
    _, data = messages.end(end, 400_000, content=True)
    assert (data["output"], data["output_left_out"]) == (None, True)


def test_while_a_secret_is_rotated_both_verify() -> None:
    first, second, other = b"1" * 32, b"2" * 32, b"3" * 32
    headers = messages.headers([second, first], "msg_1", '{"ä":1}', datetime.now(UTC))
    for secret in (first, second):
        assert Webhook(messages.secret_text(secret)).verify('{"ä":1}', headers) == {"ä": 1}
    for secret, text in ((other, '{"ä":1}'), (first, '{"ä":2}')):
        with pytest.raises(WebhookVerificationError):
            Webhook(messages.secret_text(secret)).verify(text, headers)


def test_a_message_is_tried_seven_times_over_hours() -> None:
    at, moments = NOW, [NOW]
    for attempts in range(1, 7):
        again = tries.next_try(Outcome(500, "it answered 500"), "w1", "msg_1", attempts, at)
        assert again is not None
        at = again
        moments.append(at)
    assert tries.next_try(Outcome(500, "it answered 500"), "w1", "msg_1", 7, at) is None
    pauses = [(b - a).total_seconds() for a, b in pairwise(moments)]
    for pause, least in zip(pauses, (5, 300, 1_800, 7_200, 18_000, 36_000), strict=True):
        assert least <= pause <= 1.2 * least
    assert timedelta(hours=17) < moments[-1] - NOW < timedelta(hours=22)


def test_a_receiver_may_ask_us_to_wait_up_to_an_hour() -> None:
    for asked_s, expected_s in ((60.0, 60.0), (10**8, 3_600.0)):
        again = tries.next_try(Outcome(429, "429", asked_s), "w1", "msg_1", 1, NOW)
        assert again == NOW + timedelta(seconds=expected_s)


def test_what_is_gone_is_not_tried_again_and_what_fails_for_days_is_disabled() -> None:
    gone, failed = Outcome(410, "it answered 410"), Outcome(None, "it cannot be reached")
    assert tries.next_try(gone, "w1", "msg_1", 1, NOW) is None
    assert tries.why_disabled(gone, NOW, NOW)
    assert not tries.why_disabled(failed, NOW - timedelta(days=2.9), NOW)
    assert tries.why_disabled(failed, NOW - timedelta(days=3.1), NOW)
    assert not tries.why_disabled(Outcome(200), NOW - timedelta(days=9), NOW)


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.com/", "https://127.0.0.1/", "https://localhost:9/", "https://10.1.2.3/",
        "https://169.254.169.254/latest", "https://[::1]/", "https://[::ffff:10.0.0.1]/",
        "https://LOCALHOST/", "https://[fd00:ec2::254]/",
        "https://localhost./", "https://127.0.0.1./",
        "https://127.1/", "https://2130706433/", "https://0/", "https://0177.0.0.1/",
    ],
)  # fmt: skip
def test_no_message_goes_to_a_private_address_or_without_tls(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_target(url, ())
    assert refused.value.fields["field"] == "url"


def test_hosts_of_the_setting_may_be_private() -> None:
    check_target("http://hooks.internal:9000/x", {"hooks.internal"})
    check_target("https://hooks.example.com/x", ())
    for place in ("hooks.internal.", "HOOKS.internal", "[::1]", "[FE80::1]:9"):
        check_target(f"http://{place}/x", {"hooks.internal", "::1", "fe80::1"})


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/", "https://", "https:///x", "https://a:b@example.com/", "https://x/#y",
        "https://example.com:99999/", "https://exa mple.com/", "https://ä.example/", "//example.com/",
        "https://[::1/",
    ],
)  # fmt: skip
def test_what_is_no_place_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        WebhookBody(url=url)


def test_a_secret_opens_only_for_its_owner_and_under_a_key_that_is_known() -> None:
    old, new = SecretBox([b"o" * KEY_BYTES]), SecretBox([b"n" * KEY_BYTES, b"o" * KEY_BYTES])
    sealed = old.seal(b"secret", "webhook w1")
    assert b"secret" not in sealed
    assert new.open(sealed, "webhook w1") == b"secret"
    assert sealed != old.seal(b"secret", "webhook w1")
    for box, owner, text in (
        (old, "webhook w2", sealed),
        (SecretBox([b"n" * KEY_BYTES]), "webhook w1", sealed),
        (old, "webhook w1", sealed[:-1]),
        (old, "webhook w1", b""),
    ):
        with pytest.raises(SecretUnreadable):
            box.open(text, owner)


def test_a_tenant_whose_approvals_take_long_delays_no_others() -> None:
    turns = intake.Turns()
    tenants = ["many", "few", "other"]
    assert turns.due(tenants, 0.0) == tenants
    for tenant, took_s in (("many", 10.0), ("few", 0.05), ("other", 0.05)):
        turns.looked(tenant, took_s, 10.0)
    assert turns.due(tenants, 11.9) == []
    assert turns.due(tenants, 15.0) == ["few", "other"]
    assert turns.due(tenants, 209.9) == ["few", "other"]
    assert turns.due(tenants, 210.1) == tenants
    assert turns.due(["new", "many"], 15.0) == ["new"]
