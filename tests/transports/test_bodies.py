"""Bodies without a connection: what of a request are messages."""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.errors import Fault, PayloadError
from crewel.settings import Settings
from crewel.settings.server_settings import Bayeux
from crewel.transports.bodies import elements_of, elements_of_values, media_type

SETTINGS = Settings(bayeux=Bayeux(max_batch_messages=5, max_depth=6))
FORM = "application/x-www-form-urlencoded"
BATCH = [{"channel": "/a", "data": "é + ü & ="}]
TEXT = json.dumps(BATCH)


def fault(body: bytes, media: str = "application/json", charset: str | None = None) -> Fault:
    with pytest.raises(PayloadError) as refused:
        elements_of(body, media, charset, SETTINGS)
    return refused.value.fault


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", ("", None)),
        ("application/json", ("application/json", None)),
        ("Application/JSON;charset=UTF-8", ("application/json", "utf-8")),
        ('text/plain; a=b; Charset = "ISO-8859-1" ; c', ("text/plain", "iso-8859-1")),
        ("text/plain;charset=", ("text/plain", "")),
        (";charset=utf-8", ("", "utf-8")),
        ("text/plain; xcharset=latin-1", ("text/plain", None)),
    ],
)
def test_media_type_and_charset_are_read(header: str, expected: tuple[str, str | None]) -> None:
    assert media_type(header) == expected


@pytest.mark.parametrize("media", ["application/json", "text/plain", "", FORM, "image/png"])
def test_json_is_read_under_any_media_type(media: str) -> None:
    assert elements_of(TEXT.encode(), media, None, SETTINGS) == BATCH
    assert elements_of(b" \n" + TEXT.encode(), media, "utf-8", SETTINGS) == BATCH
    assert elements_of(json.dumps(BATCH[0]).encode(), media, "UTF8", SETTINGS) == BATCH


@pytest.mark.parametrize(
    "charset", ["iso-8859-1", "latin1", "utf-16", "utf-16-be", "utf-32", "cp1252", "koi8-r", "gb18030"]
)
def test_other_charsets_are_decoded(charset: str) -> None:
    assert elements_of('[{"a":"b"}]'.encode(charset), "text/json", charset, SETTINGS) == [{"a": "b"}]
    assert elements_of(f"message={quote(TEXT)}".encode(charset), FORM, charset, SETTINGS) == BATCH


@pytest.mark.parametrize(
    "charset",
    ["klingon", "punycode", "idna", "base64", "rot13", "unicode_escape", "undefined", "", "\x00", "mbcs", "utf-7"],
)
def test_an_unknown_charset_is_refused(charset: str) -> None:
    assert fault(TEXT.encode(), charset=charset) is Fault.CHARSET


def test_bytes_outside_the_charset_are_refused() -> None:
    assert fault(b"[\xff]", charset="us-ascii") is Fault.MALFORMED
    assert fault(b"[1]\x00", charset="utf-16") is Fault.MALFORMED
    assert fault(b"\xff[]") is Fault.MALFORMED


@pytest.mark.parametrize("encode", [quote, quote_plus])
@pytest.mark.parametrize("media", [FORM, "text/plain", ""])
def test_a_form_is_read(encode: object, media: str) -> None:
    encoded = encode(TEXT)  # type: ignore[operator]
    assert elements_of(f"message={encoded}".encode(), media, None, SETTINGS) == BATCH
    assert elements_of(f"message={encoded}&message={encoded}".encode(), media, None, SETTINGS) == BATCH * 2


@pytest.mark.parametrize("body", [b"", b"a=b", b"message", b"a", b"%", b"&", b"a=b&message", b"message=%80"])
def test_a_form_without_messages_is_refused(body: bytes) -> None:
    assert fault(body, FORM) in (Fault.EMPTY, Fault.MALFORMED)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", Fault.MALFORMED),
        (b"[]", Fault.EMPTY),
        (b"null", Fault.EMPTY),
        (b"7", Fault.MALFORMED),
        (b"[{}]]", Fault.MALFORMED),
        (b"\xef\xbb\xbf[{}]", Fault.MALFORMED),
        (b"[" + b",".join([b"{}"] * 6) + b"]", Fault.TOO_MANY),
        (b'[{"a":[[[[[]]]]]}]', Fault.TOO_DEEP),
        (b'[{"channel":"/meta/handshake"},{}]', Fault.HANDSHAKE_IN_BATCH),
    ],
)
def test_a_wrong_payload_is_refused_with_its_fault(body: bytes, expected: Fault) -> None:
    assert fault(body) is expected


def test_a_form_with_too_many_messages_is_refused_with_their_number() -> None:
    body = "&".join(["message=%7B%7D"] * 6)
    for form, charset in ((body.encode(), None), (body.encode("utf-16"), "utf-16")):
        with pytest.raises(PayloadError) as refused:
            elements_of(form, FORM, charset, SETTINGS)
        assert str(refused.value) == "too many messages in one batch (6; bayeux.max_batch_messages is 5)"


def test_the_limits_hold_over_all_parameters_together() -> None:
    with pytest.raises(PayloadError) as refused:
        elements_of_values(['[{"a":1},{"a":2},{"a":3}]'] * 2, SETTINGS)
    assert refused.value.fault is Fault.TOO_MANY
    with pytest.raises(PayloadError) as refused:
        elements_of_values(['{"channel":"/meta/handshake"}', "{}"], SETTINGS)
    assert refused.value.fault is Fault.HANDSHAKE_IN_BATCH
    with pytest.raises(PayloadError) as refused:
        elements_of_values([], SETTINGS)
    assert refused.value.fault is Fault.EMPTY


@given(
    body=st.binary(max_size=60) | st.text(max_size=30).map(str.encode),
    media=st.sampled_from(["application/json", FORM, "text/plain"]),
    charset=st.none()
    | st.text(max_size=8)
    | st.sampled_from(["utf-8", "utf-16", "utf-32", "ascii", "cp037", "gb2312"]),
)
def test_any_bytes_are_messages_or_a_fault(body: bytes, media: str, charset: str | None) -> None:
    try:
        elements = elements_of(body, media, charset, SETTINGS)
    except PayloadError:
        return
    assert elements
