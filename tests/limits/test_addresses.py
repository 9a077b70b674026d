"""Addresses: the holder of each, and whether one is in the networks of a setting."""

import pytest

from crewel.addresses import Networks, canonical, holder_of, is_loopback, is_loopback_host, without_port


@pytest.mark.parametrize(
    ("address", "holder"),
    [
        (None, ""),
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("::1", "::1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown" * 20, ("unknown" * 20)[:64]),
    ],
)
def test_a_holder_is_an_address_or_the_network_of_an_ipv6_address(address: str | None, holder: str) -> None:
    assert holder_of(address) == holder


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("203.0.113.9:51234", "203.0.113.9"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[fe80::1%eth0]:1", "fe80::1%eth0"),
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("unknown:80", "unknown:80"),
        ("203.0.113.9:", "203.0.113.9:"),
        ("[]:80", "[]:80"),
        ("", ""),
    ],
)
def test_an_address_of_a_proxy_has_no_port(text: str, address: str) -> None:
    assert without_port(text) == address


@pytest.mark.parametrize(
    ("address", "is_in"),
    [
        ("10.1.2.3", True),
        ("::1", True),
        ("::1%lo", True),
        ("11.1.2.3", False),
        ("fe80::1", False),
        ("a name", False),
        ("", False),
        (None, False),
    ],
)
def test_an_address_is_in_the_networks_of_its_kind(address: str | None, is_in: bool) -> None:
    networks = Networks(["10.0.0.0/8", "::1"])
    assert (address in networks) is is_in
    assert (address in networks) is is_in, "the remembered answer is the same"
    assert networks
    assert not Networks([])


def test_loopback_is_told_from_other_addresses_and_from_names() -> None:
    assert is_loopback("127.8.8.8")
    assert is_loopback("::1%lo")
    assert not is_loopback("10.0.0.1")
    assert not is_loopback("localhost")


@pytest.mark.parametrize(
    ("host", "is_here"),
    [("localhost", True), ("127.0.0.1", True), ("[::1]", True), ("localhost.example.org", False), ("10.0.0.1", False)],
)
def test_a_host_is_this_machine_without_any_name_being_resolved(host: str, is_here: bool) -> None:
    assert is_loopback_host(host) is is_here


@pytest.mark.parametrize("mapped", ["::ffff:10.1.2.3", "::FFFF:10.1.2.3", "::ffff:0a01:0203"])
def test_an_ipv4_address_in_the_form_of_ipv6_is_that_address(mapped: str) -> None:
    """A socket for both has its IPv4 clients in this form, and so has a proxy with such a socket."""
    for networks in (Networks(["10.0.0.0/8"]), Networks(["::ffff:10.0.0.0/104"]), Networks(["::ffff:10.1.2.3"])):
        assert mapped in networks
        assert "10.1.2.3" in networks
        assert "::ffff:11.1.2.3" not in networks
    assert "10.1.2.3" in Networks(["0.0.0.0/0"])
    assert mapped not in Networks(["::/0"])
    assert holder_of(mapped) == "10.1.2.3"
    assert canonical(mapped) == "10.1.2.3"
    assert without_port(f"[{mapped}]:443") == without_port(mapped) == "10.1.2.3"
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback(mapped)


@pytest.mark.parametrize("address", ["10.1.2.3", "2001:db8::1", "fe80::1%eth0", "a name", ""])
def test_any_other_address_stays_as_it_is(address: str) -> None:
    assert canonical(address) == address
