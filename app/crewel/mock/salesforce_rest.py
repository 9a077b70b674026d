"""The part of Salesforce's REST API that streaming clients need: records, PushTopics, generic channels."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

from aiohttp import web

from crewel.mock import shapes
from crewel.mock.front import VERSIONED, json_response
from crewel.mock.org import Org
from crewel.mock.salesforce_events import change_channel
from crewel.mock.salesforce_extension import SalesforceExtension

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_BASE: Final = "/services/data/" + VERSIONED
_QUERY: Final = re.compile(
    r"\s*SELECT\s+(?P<fields>\w+(?:\s*,\s*\w+)*)\s+FROM\s+(?P<name>\w+)"
    r"(?:\s+WHERE\s+(?P<field>\w+)\s*=\s*'(?P<value>[^'\\\\]*)')?(?:\s+LIMIT\s+(?P<limit>\d+))?\s*",
    re.IGNORECASE,
)
_CHANNELS: Final = {"PushTopic": "0IF", "StreamingChannel": "0M6"}
"""The objects that are channels and have no change events, and what the ids of their records begin with."""
_KNOWN_QUERIES: Final = (
    "the stand-in knows only SELECT field, … FROM object, with WHERE field = 'value' and LIMIT number"
)


def mount_rest(app: web.Application, salesforce: SalesforceExtension) -> None:
    """Serve it; all but the list of versions asks for a token."""
    rest = _Rest(salesforce)
    guarded = rest.guarded
    app.router.add_get("/services/data", _versions)
    for slash in ("", "/"):  # simple-salesforce writes it
        app.router.add_get(f"{_BASE}/query{slash}", guarded(rest.query))
        app.router.add_post(f"{_BASE}/sobjects/{{name}}{slash}", guarded(rest.create))
    for method in ("GET", "POST"):
        app.router.add_route(method, _BASE + "/sobjects/StreamingChannel/{id}/push", guarded(rest.push))
    app.router.add_get(_BASE + "/sobjects/{name}/{id}", guarded(rest.show))
    for method in ("PATCH", "DELETE"):
        app.router.add_route(method, _BASE + "/sobjects/{name}/{id}", guarded(rest.change))
    # A client with a revoked token asks for some resource, and learns from 401 that it has to log in.
    app.router.add_route("*", _BASE + "/{resource:.*}", guarded(_missing))


class _Rest:
    """The handlers of an org."""

    def __init__(self, salesforce: SalesforceExtension) -> None:
        self._salesforce, self._org = salesforce, salesforce.org

    def guarded(self, answer: Handler) -> Handler:
        """The handler behind the check of the token."""

        async def checked(request: web.Request) -> web.StreamResponse:
            if self._org.user_of(request.headers.get("Authorization", "")) is None:
                refusal = [{"message": "Session expired or invalid", "errorCode": "INVALID_SESSION_ID"}]
                return json_response(refusal, status=401)
            return await answer(request)

        return checked

    async def create(self, request: web.Request) -> web.Response:
        """Create a record, a PushTopic or a generic channel, or publish a platform event."""
        org, name, asked = self._org, self._object(request.match_info["name"]), await request.json()
        if name.endswith("__e"):
            self._salesforce.publish(f"/event/{name}", asked)
            return json_response(_created(_record_id("e00", org), queued=True), status=201)
        record = _record_id(_CHANNELS.get(name, "001"), org)
        self._keep(name, record, asked)
        self._publish_change(name, record, "CREATE", asked)
        return json_response(_created(record), status=201)

    async def show(self, request: web.Request) -> web.Response:
        """Return a record that a client has created."""
        name, record = self._object(request.match_info["name"]), request.match_info["id"]
        found = self._records(name).get(record)
        return _not_found() if found is None else json_response(_row(name, record, found))

    async def change(self, request: web.Request) -> web.Response:
        """Update or delete a record, a PushTopic or a generic channel."""
        name, record = self._object(request.match_info["name"]), request.match_info["id"]
        is_deleted = request.method == "DELETE"
        fields: dict[str, Any] = {} if is_deleted else await request.json()
        kept = self._records(name).get(record)
        if kept is not None:
            if is_deleted or name == "PushTopic":  # which is kept by its name, and that may change
                self._remove(name, record)
            if not is_deleted:
                self._keep(name, record, {**kept, **fields})
        elif name in _CHANNELS:
            return _not_found()
        # A record that no client has created is changed too: its change event is what tests of streaming clients need.
        self._publish_change(name, record, "DELETE" if is_deleted else "UPDATE", fields)
        return web.Response(status=204)

    async def push(self, request: web.Request) -> web.Response:
        """Publish to a generic channel, or list the users that receive it."""
        channel = self._org.generic.get(request.match_info["id"])
        if channel is None:
            return _not_found()
        if request.method == "GET":
            return json_response({"OnlineUserIds": sorted(self._salesforce.online(channel)), "ChannelName": channel})
        return json_response([self._pushed(channel, each) for each in (await request.json())["pushEvents"]])

    def _pushed(self, channel: str, event: dict[str, Any]) -> dict[str, Any]:
        """Publish one generic event, to some users or to all, and return its result."""
        user_ids = event.get("userIds") or []
        statuses = {each: each in self._salesforce.online(channel) for each in user_ids}
        self._salesforce.publish(channel, event["payload"], user_ids=user_ids)
        return {"fanoutCount": sum(statuses.values()) if user_ids else -1, "userOnlineStatus": statuses}

    def _publish_change(self, entity: str, record: str, kind: str, fields: dict[str, Any]) -> None:
        """Publish the change of a record, if the org has change events of its entity."""
        if entity not in _CHANNELS and self._org.has_channel(channel := change_channel(entity)):
            header = {"recordIds": [record], "entityName": entity, "changeType": kind}
            self._salesforce.publish(channel, fields, header=header)

    def _object(self, name: str) -> str:
        """The name of an object as the org has it: requests may spell it in any case."""
        known = ("PushTopic", "StreamingChannel", *self._org.records)
        return next((each for each in known if each.lower() == name.lower()), name)

    def _records(self, name: str) -> dict[str, dict[str, Any]]:
        """The fields of all records of an object, by their ids."""
        if name == "PushTopic":
            return {each["Id"]: each for each in self._org.topics.values()}
        if name == "StreamingChannel":
            return {key: {"Name": channel} for key, channel in self._org.generic.items()}
        return self._org.records.get(name, {})

    def _keep(self, name: str, record: str, fields: dict[str, Any]) -> None:
        """Keep these fields of a record."""
        if name == "PushTopic":
            self._org.topics[fields["Name"]] = {**fields, "Id": record}
        elif name == "StreamingChannel":
            self._org.generic[record] = fields["Name"]
        else:
            self._org.records.setdefault(name, {})[record] = fields

    def _remove(self, name: str, record: str) -> None:
        """Remove a record that there is."""
        if name == "PushTopic":
            del self._org.topics[self._records(name)[record]["Name"]]
        elif name == "StreamingChannel":
            del self._org.generic[record]
        else:
            del self._org.records[name][record]

    async def query(self, request: web.Request) -> web.Response:
        """Find records: all of an object, or those with one value of a field. Any other query is refused."""
        asked = _QUERY.fullmatch(request.query.get("q", ""))
        if asked is None:
            return json_response([{"message": _KNOWN_QUERIES, "errorCode": "MALFORMED_QUERY"}], status=400)
        selected, name = re.split(r"\s*,\s*", asked["fields"]), self._object(asked["name"])
        rows = [_row(name, record, fields) for record, fields in self._records(name).items()]
        if asked["field"] is not None:
            rows = [row for row in rows if _is(_field(row, asked["field"])[1], asked["value"])]
        rows = rows[: None if asked["limit"] is None else int(asked["limit"])]
        records = [dict(_field(row, field) for field in ("attributes", *selected)) for row in rows]
        return json_response({"totalSize": len(records), "done": True, "records": records})


async def _versions(_: web.Request) -> web.Response:
    number = shapes.NEWEST_VERSION
    return json_response([{"label": "Newest", "url": f"/services/data/v{number}", "version": number}])


async def _missing(_: web.Request) -> web.Response:
    return _not_found()


def _not_found() -> web.Response:
    return json_response([{"message": "The requested resource does not exist", "errorCode": "NOT_FOUND"}], status=404)


def _row(name: str, record: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A record as queries return it."""
    number = shapes.NEWEST_VERSION
    attributes = {"type": name, "url": f"/services/data/v{number}/sobjects/{name}/{record}"}
    return {"attributes": attributes, "Id": record, **fields}


def _field(row: dict[str, Any], name: str) -> tuple[str, Any]:
    """The field of a record with this name, in any case; null if it has none."""
    return next(((known, value) for known, value in row.items() if known.lower() == name.lower()), (name, None))


def _is(value: Any, text: str) -> bool:
    """Whether a field has this text, in any case."""
    return isinstance(value, str) and value.lower() == text.lower()


def _record_id(prefix: str, org: Org) -> str:
    return f"{prefix}{next(org.numbers):012d}AAA"


def _created(record: str, *, queued: bool = False) -> dict[str, Any]:
    errors = [{"statusCode": "OPERATION_ENQUEUED", "message": str(uuid4()), "fields": []}] if queued else []
    return {"id": record, "success": True, "errors": errors}
