"""The stand-in over HTTPS: with simple-salesforce, which knows nothing else, and as a command."""

import asyncio
import signal
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
import requests
from simple_salesforce import Salesforce as Simple
from simple_salesforce import SalesforceExpiredSession, SalesforceLogin
from simple_salesforce.exceptions import (
    SalesforceAuthenticationFailed,
    SalesforceMalformedRequest,
    SalesforceResourceNotFound,
)

from crewel.mock import Salesforce
from tests.template import Command

pytestmark = pytest.mark.server
LIMIT_S = 30.0


@pytest.fixture
def org() -> Any:
    with Salesforce(tls=True) as org:
        yield org


@pytest.fixture
def http(org: Salesforce, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(org.certificate))
    with requests.Session() as http:
        yield http


def test_simple_salesforce_logs_in_changes_records_and_queries(org: Salesforce, http: requests.Session) -> None:
    session, instance = SalesforceLogin(
        username="joe@example.org", password="right", security_token="", scratch_url=org.login_url, session=http
    )
    assert f"https://{instance}" == org.url
    sf = Simple(instance=instance, session_id=session, session=http)
    created = sf.Account.create({"Name": "Acme", "Phone": "1"})
    assert created["success"]
    other = sf.Account.create({"Name": "Other"})
    assert sf.Account.update(created["id"], {"Phone": "2"}) == 204
    assert sf.Account.get(created["id"])["Phone"] == "2"
    [found] = sf.query("SELECT Id, Phone FROM Account WHERE Name = 'Acme'")["records"]
    assert (found["Id"], found["Phone"], "Name" in found) == (created["id"], "2", False)
    assert sf.query("SELECT Id FROM Account")["totalSize"] == 2
    with pytest.raises(SalesforceMalformedRequest, match="the stand-in knows only SELECT"):
        sf.query("SELECT Id FROM Account WHERE Phone > '1' ORDER BY Id")
    assert sf.Account.delete(created["id"]) == 204
    with pytest.raises(SalesforceResourceNotFound):
        sf.Account.get(created["id"])
    assert [each["Id"] for each in sf.query("SELECT Id FROM Account")["records"]] == [other["id"]]
    sf.PushTopic.create({"Name": "Orders", "Query": "SELECT Id FROM Order__c", "ApiVersion": 59.0})
    [topic] = sf.query("SELECT Id, Name FROM PushTopic WHERE Name = 'Orders'")["records"]
    assert topic["Name"] == "Orders"
    org.revoke(session)
    for use in (lambda: sf.query("SELECT Id FROM PushTopic"), lambda: sf.Account.create({}), sf.describe):
        with pytest.raises(SalesforceExpiredSession):
            use()


def test_simple_salesforce_learns_of_a_wrong_password(org: Salesforce, http: requests.Session) -> None:
    with pytest.raises(SalesforceAuthenticationFailed, match="INVALID_LOGIN"):
        SalesforceLogin(
            username="joe@example.org", password="wrong", security_token="", scratch_url=org.login_url, session=http
        )


def test_the_streaming_api_is_served_too_and_after_a_move(org: Salesforce, http: requests.Session) -> None:
    http.headers["Authorization"] = f"Bearer {org.token}"
    handshake = [{"channel": "/meta/handshake", "version": "1.0"}]
    assert http.post(org.streaming_url, json=handshake, timeout=LIMIT_S).json()[0]["successful"]
    before = org.url
    assert org.move() != before
    assert org.url.startswith("https://")
    assert http.post(org.streaming_url, json=handshake, timeout=LIMIT_S).json()[0]["successful"]


def test_a_name_with_several_addresses_has_one_port() -> None:
    with Salesforce(tls=True, host="localhost") as org:
        assert (urlsplit(org.url).hostname, urlsplit(org.login_url).hostname) == ("localhost", "localhost")
        trusting = ssl.create_default_context(cafile=str(org.certificate))
        for url in (org.url, org.login_url):
            port = urlsplit(url).port
            for info in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM):
                with (
                    socket.create_connection(info[4][:2], LIMIT_S) as plain,
                    trusting.wrap_socket(plain, server_hostname="localhost") as secure,
                ):
                    assert secure.version()


def test_who_does_not_trust_the_certificate_does_not_connect(org: Salesforce) -> None:
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(org.url, timeout=LIMIT_S)


def test_the_files_are_gone_afterwards() -> None:
    with Salesforce(tls=True) as org:
        assert org.certificate is not None
        key = org.certificate.with_name("key.pem")
        assert key.stat().st_mode & 0o777 == 0o600
    assert not key.exists()


def test_a_port_that_is_taken_is_named_and_nothing_stays(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        org = Salesforce(port=port, tls=True)
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            org.__enter__()
        assert org.certificate is None or not org.certificate.exists()
    with org:
        assert org.url == f"https://127.0.0.1:{port}"


async def test_the_command_prints_what_clients_trust(tmp_path: Path) -> None:
    process = Command(["mock", "salesforce", "--tls"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    words = dict(process.stdout.readline().strip().split(" ", 1) for _ in range(6))
    certificate = words["certificate"]
    assert words["trust"] == " ".join(
        f"{name}={certificate}" for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
    )
    trusting = ssl.create_default_context(cafile=certificate)
    address = words["ready"].removesuffix("/cometd") + "/services/data"
    with await asyncio.to_thread(urlopen, address, context=trusting) as response:
        assert response.status == 200
    script = f"fetch({address!r}).then(answer => console.log(answer.status))"
    node = await asyncio.create_subprocess_exec(
        "node",
        "--eval",
        script,
        env={"NODE_EXTRA_CA_CERTS": certificate, "PATH": "/usr/bin:/usr/local/bin"},
        stdout=subprocess.PIPE,
    )
    assert (await node.communicate())[0] == b"200\n"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
