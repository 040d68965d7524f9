"""Which addresses are public."""

import pytest

from hocket.kit.public_addresses import PublicResolver, is_address, is_public

PUBLIC = ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "64:ff9b::101:101"]
PRIVATE = [
    "127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1",
    "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "64:ff9b::a00:1", "64:ff9b::7f00:1", "2002:7f00:1::", "2002:a00:1::1", "2001:db8::1",
    "::7f00:1", "::a00:1", "fec0::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_may_be_asked(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_one_may_not(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("host", ["localhost", "127.1", "0x7f.1", "2130706433", "0177.0.0.1"])
async def test_a_name_of_a_private_address_is_refused(host: str) -> None:
    resolver = PublicResolver(PermissionError)
    with pytest.raises(PermissionError):
        await resolver.resolve(host, 80)
    await resolver.close()


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "2130706433",
        "0",
        "0177.0.0.1",
        "00000.0.0.0",
        "\uff11\uff12\uff17.0.0.1",
        "127.0.0.1.",
    ],
)
def test_what_a_client_takes_for_an_address_without_asking_a_resolver_is_no_public_one(
    host: str,
) -> None:
    assert is_address(host)
    assert not is_public(host)
