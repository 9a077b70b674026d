"""Services: what their decorators bind, and how they are found."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crewel.broker.broker import Broker
from crewel.broker.services import Service, load_services
from crewel.errors import ServiceError
from crewel.extension import Extension
from crewel.security.policy import OpenPolicy
from crewel.settings import Settings
from tests.broker.world import Client, MakeWorld, World, data_of


class Locked(OpenPolicy):
    """A policy of somebody's own."""


@pytest.fixture
def service() -> Service:
    return Service("app")


class TestSubscribers:
    def test_subscribers_get_what_was_accepted_of_clients_and_server(
        self, service: Service, make_world: MakeWorld
    ) -> None:
        heard: list[tuple[str, Any]] = []
        service.subscription("/chat/**")(lambda message: heard.append((message.channel.name, message.data)))
        service.listener("/chat/no")(lambda session, message: False)
        world = make_world(services=[service])
        client = Client(world).joined()
        client.publish("/chat/a", 1)
        client.publish("/chat/no", 2)
        client.publish("/other", 3)
        service.publish("/chat/b", 4)
        assert heard == [("/chat/a", 1), ("/chat/b", 4)]

    def test_an_async_one_runs_on_its_own_and_its_failure_is_logged(
        self, service: Service, make_world: MakeWorld, caplog: Any
    ) -> None:
        heard: list[Any] = []

        @service.subscription("/a")
        async def hear(message: Any) -> None:
            heard.append(message.data)
            raise RuntimeError("broken")

        world = make_world(services=[service])
        assert Client(world).joined().publish("/a", 1)["successful"]
        assert heard == []
        world.settle()
        assert heard == [1]
        assert "a background task failed" in caplog.text

    def test_a_failing_one_is_logged_and_stops_nothing(
        self, service: Service, make_world: MakeWorld, caplog: Any
    ) -> None:
        def fail(message: Any) -> None:
            raise RuntimeError("broken")

        service.subscription("/a")(fail)
        client = Client(make_world(services=[service])).joined("/a")
        assert data_of(client.send(client.message("/a", data=1)).received) == [1]
        assert "a service failed" in caplog.text

    def test_subscribers_get_a_message_as_it_was_published(self, service: Service, make_world: MakeWorld) -> None:
        """What an extension does to it on its way to the wire is not theirs."""

        class Stamp(Extension):
            def send(self, session: Any, fields: Any) -> bool:
                fields["data"] = "stamped"
                return True

        heard: list[Any] = []
        service.subscription("/a")(lambda message: heard.append(message.data))
        world = make_world(extensions=[Stamp()], services=[service])
        client = Client(world).joined("/a")
        world.broker.publish("/a", "plain")
        assert data_of(client.connect().answer) == ["stamped"]
        assert heard == ["plain"]


class TestSessionEvents:
    def test_session_events_come_after_the_grant_and_before_the_subscriptions_go(
        self, service: Service, make_world: MakeWorld
    ) -> None:
        events: list[tuple[str, Any]] = []
        service.on_session_added(lambda session: events.append(("added", session.id)))

        @service.on_session_removed
        def removed(session: Any, expired: bool) -> None:
            events.append(("expired" if expired else "left", set(session.subscriptions)))

        world = make_world(services=[service])
        leaving, silent = Client(world).joined("/a"), Client(world).joined("/b")
        leaving.say("/meta/disconnect")
        world.sweep_after(11)
        assert events == [("added", leaving.id), ("added", silent.id), ("left", {"/a"}), ("expired", {"/b"})]

    def test_a_service_may_end_the_session_again_or_fail(
        self, service: Service, make_world: MakeWorld, caplog: Any
    ) -> None:
        calls: list[bool] = []

        @service.on_session_removed
        def removed(session: Any, expired: bool) -> None:
            calls.append(session.is_live)
            session.disconnect()
            assert not session.deliver("/a", 1)
            raise RuntimeError("broken")

        client = Client(make_world(services=[service])).joined("/a")
        assert client.say("/meta/disconnect")["successful"]
        assert calls == [False]
        assert not client.is_known
        assert caplog.text.count("a service failed") == 1

    def test_those_who_stay_hear_of_it(self, service: Service, make_world: MakeWorld) -> None:
        service.on_session_removed(lambda session, expired: service.publish("/members", "gone"))
        world = make_world(services=[service])
        leaving, staying = Client(world).joined("/members"), Client(world).joined("/members")
        held = staying.connect()
        leaving.say("/meta/disconnect")
        world.settle()
        assert data_of(held.answer) == ["gone"]


class TestInstalling:
    def test_before_it_there_is_no_broker(self, service: Service) -> None:
        with pytest.raises(ServiceError, match="not installed"):
            service.publish("/a", 1)

    def test_after_it_there_is_one_and_no_second(self, service: Service, world: World) -> None:
        world.broker.install([service])
        assert service.broker is world.broker
        with pytest.raises(ServiceError, match="already installed"):
            world.broker.install([service])

    async def test_a_service_serves_in_two_servers_at_once_and_in_a_later_one(self) -> None:
        service, settings = Service("echo"), Settings()
        service.remote_call("echo")(lambda session, data: data)
        first, second = Broker(settings), Broker(settings)
        first.install([service])
        second.install([service])
        assert all("/service/echo" in broker.runtime.services.calls for broker in (first, second))
        with pytest.raises(ServiceError, match="installed in 2 servers"):
            service.publish("/a", 1)
        await first.close()
        assert service.broker is second
        await second.close()
        with pytest.raises(ServiceError, match="not installed"):
            service.publish("/a", 1)
        third = Broker(settings)
        third.install([service])
        assert service.broker is third
        await third.close()

    def test_one_service_brings_the_policy(self, world: World) -> None:
        services = [Service("one"), Service("two")]
        for service in services:
            service.policy = Locked()
        with pytest.raises(ServiceError, match="policy"):
            world.broker.install(services)

    def test_one_service_answers_a_remote_call(self, service: Service, world: World) -> None:
        service.remote_call("echo")(lambda session, data: data)
        service.remote_call("/echo")(lambda session, data: data)
        with pytest.raises(ServiceError, match="echo"):
            world.broker.install([service])

    @pytest.mark.parametrize("decorator", ["listener", "subscription", "authorizer", "remote_call"])
    def test_a_bad_channel_is_told_where_it_is_written(self, service: Service, decorator: str) -> None:
        with pytest.raises(ServiceError, match="is not a channel"):
            getattr(service, decorator)("/a//b")

    @pytest.mark.parametrize("decorator", ["listener", "subscription"])
    def test_what_is_never_called_on_a_meta_channel_is_refused(self, service: Service, decorator: str) -> None:
        with pytest.raises(ServiceError, match="nothing is published on '/meta/subscribe': see on_session_added"):
            getattr(service, decorator)("/meta/subscribe")

    @pytest.mark.parametrize("target", ["best/{item}", "best/*"])
    def test_a_remote_call_with_a_variable_is_refused(self, service: Service, target: str) -> None:
        with pytest.raises(ServiceError, match="is a pattern; pass the variable part as data"):
            service.remote_call(target)

    def test_decorators_leave_the_function_as_it_was(self, service: Service) -> None:
        def function(*arguments: Any) -> None: ...

        assert service.listener("/a")(function) is function
        assert service.on_session_added(function) is function


class TestLoading:
    @pytest.fixture
    def module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
        """Write a module that can be imported during the test."""
        monkeypatch.syspath_prepend(tmp_path)

        def write(name: str, text: str) -> str:
            (tmp_path / f"{name}.py").write_text(text)
            monkeypatch.delitem(sys.modules, name, raising=False)
            return name

        return write

    def test_every_service_of_the_modules_once_and_in_order(self, module: Callable[[str, str], str]) -> None:
        one = module("crewel_test_one", "from crewel import Service\na = Service('a')\nb = Service('b')\nagain = a\n")
        two = module("crewel_test_two", "from crewel_test_one import b\nfrom crewel import Service\nc = Service('c')\n")
        assert [service.name for service in load_services([one, two])] == ["a", "b", "c"]

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [("x = 1", "has no crewel.Service"), ("raise RuntimeError('no')", "cannot be imported")],
    )
    def test_what_is_no_service_module_is_told_by_name(
        self, module: Callable[[str, str], str], text: str, complaint: str
    ) -> None:
        with pytest.raises(ServiceError, match=complaint):
            load_services([module("crewel_test_bad", text)])

    @pytest.mark.parametrize("name", ["crewel_test_nowhere", "crewel_test_there.py", "crewel_test_nowhere.inner"])
    def test_a_module_that_is_not_there_is_refused_with_the_places(
        self, module: Callable[[str, str], str], name: str
    ) -> None:
        module("crewel_test_there", "x = 1")
        places = f"neither in the working directory {re.escape(str(Path.cwd()))} nor on Python's path"
        with pytest.raises(ServiceError, match=f"no service module '{re.escape(name)}', {places}"):
            load_services([name])

    def test_what_a_module_misses_is_named(self, module: Callable[[str, str], str]) -> None:
        with pytest.raises(ServiceError, match=r"cannot be imported: .*crewel_test_missing"):
            load_services([module("crewel_test_broken", "import crewel_test_missing")])


def test_background_work_is_a_coroutine_function(service: Service) -> None:
    with pytest.raises(ServiceError, match="background work is a coroutine function"):
        service.background(lambda: None)  # type: ignore[arg-type, return-value]
