"""What `crewel doctor` finds about the machine and about who can reach the server: the memory that a store's fork needs, the
certificate, the address and the policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from crewel.check_result import CheckResult, State
from crewel.errors import SettingsError
from crewel.security.token_keys import load_keys
from crewel.settings import Settings
from crewel.settings.access import Security
from crewel.settings.table import without_credentials
from crewel.transports.origins import is_loopback

ENDS_SOON: Final = timedelta(days=14)
"""How long before its end a certificate is worth a warning."""
_OVERCOMMIT: Final = Path("/proc/sys/vm/overcommit_memory")
_HUGE_PAGES: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_MEMORY: Final = Path("/proc/meminfo")
_CREDENTIALS: Final = "/run/credentials/"


def of_memory(used: int, *, turns_off_huge_pages: bool) -> Iterator[CheckResult]:
    """What the kernel does with the memory of a store on this machine that uses so many bytes. Nothing on other systems than
    Linux."""
    try:
        overcommit, pages, memory = (file.read_text("ascii").strip() for file in (_OVERCOMMIT, _HUGE_PAGES, _MEMORY))
    except OSError:
        return
    available = re.search(r"^MemAvailable: +(\d+) kB$", memory, re.MULTILINE)
    yield overcommit_of(overcommit, used, int(available[1]) * 1024 if available else 0)
    yield huge_pages_of(pages, turns_off=turns_off_huge_pages)


def overcommit_of(mode: str, used: int, available: int) -> CheckResult:
    """Whether a store of so many bytes can fork to rewrite its file. `mode` is `vm.overcommit_memory`."""
    if mode == "1" or (mode == "0" and used < available):
        return CheckResult("overcommit", State.OK, f"vm.overcommit_memory={mode}: the store can rewrite its file")
    found = f"vm.overcommit_memory={mode}, and the store uses {used / 2**20:,.0f} MiB of memory"
    return CheckResult(
        "overcommit", State.WARNING, found, "the rewrite of its file may fail: sysctl vm.overcommit_memory=1"
    )


def huge_pages_of(enabled: str, *, turns_off: bool) -> CheckResult:
    """Whether huge pages make the store slow after each fork. `enabled` is what the kernel says, such as
    `always [madvise] never`."""
    chosen = enabled.partition("[")[2].partition("]")[0] or enabled
    if chosen != "always":
        return CheckResult("huge pages", State.OK, chosen)
    if turns_off:
        return CheckResult("huge pages", State.OK, "always, but the store turns them off for itself")
    advice = f"the store is slow after each rewrite of its file: set `disable-thp yes`, or echo madvise > {_HUGE_PAGES}"
    return CheckResult("huge pages", State.WARNING, "always", advice)


def of_access(settings: Settings) -> Iterator[CheckResult]:
    """Who can reach the server, and what it believes them."""
    yield _of_address(settings)
    public_url = settings.http.public_url
    if public_url is not None and str(public_url).startswith("https:") and not settings.http.tls_cert:
        yield _of_cookie(settings)
    yield from _of_other_sites(settings)
    certificate = settings.http.tls_cert
    if certificate is not None:
        yield certificate_of(Path(certificate), datetime.now(UTC))


def _of_address(settings: Settings) -> CheckResult:
    http, security = settings.http, settings.security
    try:
        if is_loopback(http.host):
            return CheckResult("address", State.OK, f"{http.host}: only this machine reaches it")
    except OSError as error:
        return CheckResult("address", State.WRONG, f"{http.host}: {error.strerror}", "set http.host")
    found = f"{http.host}: other machines reach it"
    if security.policy == "open":
        state, found = State.WARNING, f"{found}, and every client may use any name"
        if not security.allow_open:
            state, found = State.WRONG, f"{http.host} with security.policy=open: the server does not start"
        return CheckResult(
            "address", state, found, "set security.policy=jwt, or put a proxy in front and listen on 127.0.0.1"
        )
    if http.tls_cert is None and not http.trusted_proxies:
        advice = "set http.tls_cert and http.tls_key, or http.trusted_proxies if a proxy ends TLS"
        return CheckResult("address", State.WARNING, f"{found} without TLS: tokens can be read in transit", advice)
    return CheckResult("address", State.OK, f"{found}, with a token (security.policy={security.policy})")


def keys_of(security: Security) -> CheckResult:
    """Whether the keys that verify tokens can be used; a set that has an address is not fetched."""
    try:
        load_keys(security)
    except SettingsError as error:
        advice = "set security.jwt_keys: docs/how-to/jwt.md"
        if (security.jwt_keys or "").startswith(_CREDENTIALS):
            advice = "credentials of a systemd unit exist only while it runs: start it; docs/how-to/deploying.md"
        return CheckResult("tokens", State.WRONG, str(error), advice)
    return CheckResult("tokens", State.OK, f"{without_credentials(security.jwt_keys or '')} verifies them")


def _of_cookie(settings: Settings) -> CheckResult:
    """Whether browsers send the cookie of a server behind a TLS proxy over TLS only."""
    http = settings.http
    if not http.trusted_proxies:
        found = "http.public_url is https, and no proxy is trusted: every request counts as unencrypted"
        return CheckResult("cookie", State.WARNING, found, "set http.trusted_proxies to the address of the proxy")
    if not settings.bayeux.cookie_secure:
        found = "browsers may send it without TLS, although http.public_url is https"
        return CheckResult("cookie", State.WARNING, found, "set bayeux.cookie_secure=true")
    return CheckResult("cookie", State.OK, "browsers send it over TLS only")


def _of_other_sites(settings: Settings) -> Iterator[CheckResult]:
    """What keeps pages of other sites from the sessions that they make."""
    http, bayeux, check = settings.http, settings.bayeux, "other sites"
    has_tls = http.tls_cert is not None or str(http.public_url).startswith("https:")
    crosses = bayeux.cookie_same_site == "none"
    if (crosses or bayeux.cookie_partitioned) and not has_tls:
        found = "browsers take a cookie with bayeux.cookie_same_site=none or bayeux.cookie_partitioned over https only"
        advice = "serve https, or leave both unset: pages of other sites need no cookie then"
        yield CheckResult(check, State.WARNING, found, advice)
    elif crosses and not bayeux.cookie_partitioned:
        found = "some browsers block the cookie, as bayeux.cookie_same_site=none, in pages of other sites"
        advice = "set bayeux.cookie_partitioned=true, or leave bayeux.cookie_same_site unset"
        yield CheckResult(check, State.WARNING, found, advice)
    if "callback-polling" in bayeux.transports and "*" in http.allowed_origins and not (crosses and has_tls):
        found = "browsers keep the cookie from callback-polling of pages of other sites, which needs it"
        advice = "let them use long-polling or websocket, and remove callback-polling from bayeux.transports"
        yield CheckResult(check, State.WARNING, found, advice)


def certificate_of(file: Path, now: datetime) -> CheckResult:
    """How long the first certificate of this file is valid."""
    from cryptography.x509 import load_pem_x509_certificate

    check = "certificate"
    try:
        certificate = load_pem_x509_certificate(file.read_bytes())
    except OSError as error:
        return CheckResult(check, State.WRONG, f"{file}: {error.strerror}", "see http.tls_cert")
    except ValueError:
        return CheckResult(check, State.WRONG, f"{file}: no certificate in PEM", "see http.tls_cert")
    since, until = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    advice = "renew it: the server takes the new files within a minute"
    if until <= now:
        return CheckResult(check, State.WRONG, f"{file}: expired on {until:%Y-%m-%d}", advice)
    if since > now:
        return CheckResult(
            check, State.WRONG, f"{file}: not valid before {since:%Y-%m-%d}", "check the clock of this machine"
        )
    found = f"{file}: valid until {until:%Y-%m-%d}"
    return (
        CheckResult(check, State.WARNING, found, advice)
        if until - now < ENDS_SOON
        else CheckResult(check, State.OK, found)
    )
