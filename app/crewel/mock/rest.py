"""The part of Salesforce's REST API that streaming clients need: records, PushTopics, generic channels."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import uuid4

from aiohttp import web

from crewel.mock import shapes
from crewel.mock.extension import SalesforceExtension
from crewel.mock.front import VERSIONED, json_response
from crewel.mock.org import Org

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_BASE: Final = "/services/data/" + VERSIONED


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
        org, name, asked = self._org, request.match_info["name"], await request.json()
        if name.endswith("__e"):
            self._salesforce.publish(f"/event/{name}", asked)
            return json_response(_created(_record_id("e00", org), queued=True), status=201)
        if name == "PushTopic":
            org.topics[asked["Name"]] = {**asked, "Id": _record_id("0IF", org)}
            return json_response(_created(org.topics[asked["Name"]]["Id"]), status=201)
        record = _record_id("0M6" if name == "StreamingChannel" else "001", org)
        if name == "StreamingChannel":
            org.generic[record] = asked["Name"]
        else:
            self._publish_change(name, record, "CREATE", asked)
        return json_response(_created(record), status=201)

    async def change(self, request: web.Request) -> web.Response:
        """Update or delete a record."""
        name, record = request.match_info["name"], request.match_info["id"]
        if request.method == "DELETE":
            self._publish_change(name, record, "DELETE", {})
        else:
            self._publish_change(name, record, "UPDATE", await request.json())
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
        if self._org.has_channel(channel := f"/data/{entity}ChangeEvent"):
            header = {"recordIds": [record], "entityName": entity, "changeType": kind}
            self._salesforce.publish(channel, fields, header=header)

    async def query(self, request: web.Request) -> web.Response:
        """Find PushTopics or generic channels, all or by name."""
        org = self._org
        asked = request.query.get("q", "")
        found = re.search(r"FROM\s+(\w+)(?:.*?Name\s*=\s*'([^']*)')?", asked, re.IGNORECASE | re.DOTALL)
        records: list[dict[str, Any]] = []
        if found and found[1] == "PushTopic":
            records = [each for name, each in org.topics.items() if found[2] in (None, name)]
        elif found and found[1] == "StreamingChannel":
            records = [{"Id": key, "Name": name} for key, name in org.generic.items() if found[2] in (None, name)]
        return json_response({"totalSize": len(records), "done": True, "records": records})


async def _versions(_: web.Request) -> web.Response:
    number = shapes.NEWEST_VERSION
    return json_response([{"label": "Newest", "url": f"/services/data/v{number}", "version": number}])


async def _missing(_: web.Request) -> web.Response:
    return _not_found()


def _not_found() -> web.Response:
    return json_response([{"message": "The requested resource does not exist", "errorCode": "NOT_FOUND"}], status=404)


def _record_id(prefix: str, org: Org) -> str:
    return f"{prefix}{len(org.generic) + len(org.topics) + len(org.history) + 1:012d}AAA"


def _created(record: str, *, queued: bool = False) -> dict[str, Any]:
    errors = [{"statusCode": "OPERATION_ENQUEUED", "message": str(uuid4()), "fields": []}] if queued else []
    return {"id": record, "success": True, "errors": errors}
