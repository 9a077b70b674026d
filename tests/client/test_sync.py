"""What only the synchronous client has: threads, Ctrl+C, forks, the end of the process. The rest is tried by the tests of the
asynchronous client, which run with both (`conftest.py`)."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from crewel.client import BackoffRule, ErrorAnswer, Inbox, NotConnectedError, PublishRefused, State
from crewel.client.sync import Client, Consumer, Delivery, Message, Outbox
from tests.admin.desk import Desk
from tests.client.support import LIMIT_S
from tests.functional.wire import until
from tests.server_process import Server

Run = Callable[[str], "AbstractContextManager[subprocess.Popen[str]]"]


def test_two_clients_chat_without_asyncio(server: Server, transport: str) -> None:
    with Client(server.url, transports=[transport]) as joe, Client(server.url, transports=[transport]) as ann:
        room = ann.subscribe("/chat/**")
        assert joe.publish("/chat/demo", "hello")["successful"] is True
        message = room.receive(LIMIT_S)
        assert (message.channel, message.data) == ("/chat/demo", "hello")
        with pytest.raises(TimeoutError, match=r"no message within 0\.01 s"):
            room.receive(0.01)
    assert joe.state is ann.state is State.CLOSED


def test_a_client_is_opened_and_closed_without_a_block(server: Server) -> None:
    client = Client(server.url)
    with pytest.raises(NotConnectedError, match="the client is not open"):
        client.publish("/a", 1)
    assert client.open() is client
    client.publish("/a", 1)
    client.close()
    assert client.state is State.CLOSED


def test_many_threads_share_one_client_and_keep_the_order_of_each(server: Server) -> None:
    count, each = 8, 25
    with Client(server.url) as client:
        heard = client.subscribe("/threads")

        def publish(thread: int) -> None:
            for number in range(each):
                client.publish("/threads", [thread, number])

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        came = [heard.receive(LIMIT_S).data for _ in range(count * each)]
        for thread in threads:
            thread.join(LIMIT_S)
    assert sorted(came, key=lambda data: data[0]) == [
        [thread, number] for thread in range(count) for number in range(each)
    ]


def test_a_callback_may_use_the_client(server: Server) -> None:
    with Client(server.url) as client:
        answers = client.subscribe("/answers")
        client.subscribe("/questions", lambda message: client.publish("/answers", message.data + 1))
        client.publish("/questions", 1)
        assert answers.receive(LIMIT_S).data == 2


def test_requests_are_answered_in_threads(server: Server) -> None:
    meeting = threading.Barrier(2, timeout=LIMIT_S)

    def square(message: Message) -> int:
        meeting.wait()  # both requests are being processed at the same time
        if message.data == 0:
            raise ErrorAnswer("user.zero", "there is nothing to square")
        return int(message.data) ** 2

    with Client(server.url) as client:
        client.reply("/square", square, at_once=2)
        answers: list[object] = []
        asking = threading.Thread(target=lambda: answers.append(client.request("/square", 3, timeout=LIMIT_S).data))
        asking.start()
        with pytest.raises(ErrorAnswer, match=r"user\.zero \(there is nothing to square\)"):
            client.request("/square", 0, timeout=LIMIT_S)
        asking.join(LIMIT_S)
        assert answers == [9]


def test_a_worker_handles_several_messages_at_once(server: Server, tmp_path: Path) -> None:
    meeting = threading.Barrier(3, timeout=LIMIT_S)
    done: list[object] = []

    def handle(message: Delivery) -> None:
        meeting.wait()
        done.append(message.data)
        if len(done) == 3:
            worker.stop()

    with Client(server.url) as client:
        worker = client.consume("/jobs", name="jobs/1", resume_file=tmp_path / "secret")
        with worker:
            for number in range(3):
                client.publish("/jobs", number, persistent=True)
            worker.run(handle, at_once=3)
    assert sorted(map(str, done)) == ["0", "1", "2"]


def test_what_the_loop_says_of_an_object_is_an_attribute_of_its_class_too() -> None:
    """Tools that document a class, or stand in for it, ask the class."""
    assert all(getattr(kind, name) is vars(kind)[name] for kind, name in ((Delivery, "attempt"), (Outbox, "waiting")))


def test_stop_does_not_wait_for_the_event_loop() -> None:
    """It runs in handlers of signals: what those interrupt may have a lock that the loop waits for."""
    worker = Client("http://127.0.0.1:1/cometd").consume("/jobs", name="jobs/1")
    is_over, seen = threading.Event(), list[bool]()

    def keep_the_loop_busy() -> None:
        deadline = time.monotonic() + 3
        while not is_over.is_set() and time.monotonic() < deadline:
            pass
        seen.append(is_over.is_set())

    worker._background.call_soon(keep_the_loop_busy)
    worker.stop()
    is_over.set()
    assert list(worker) == []
    assert seen == [True]


def test_a_message_that_fails_comes_again(server: Server, tmp_path: Path) -> None:
    with Client(server.url) as client:
        now = BackoffRule(initial=0.001, factor=1.0, maximum=0.001)
        with client.consume(
            "/fails", name="fails/1", resume_file=tmp_path / "secret", attempts=2, backoff=now
        ) as worker:
            client.publish("/fails", "order", persistent=True)
            for message in worker:
                with message:
                    if not message.failures:
                        raise ValueError("not today")
                    break
            assert (message.data, message.failures, message.is_open) == ("order", 1, False)


def test_a_coroutine_function_is_refused(server: Server) -> None:
    async def handle(_: object) -> None: ...

    client = Client(server.url)
    with pytest.raises(TypeError, match="callback is a plain function here"):
        client.subscribe("/a", handle)
    with pytest.raises(TypeError, match="handler is a plain function here"):
        client.consume("/a", name="a/1").run(handle)


def test_a_function_that_returns_a_coroutine_has_not_processed_its_message(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def process(_: object) -> None: ...

    def handle(message: Message) -> object:
        return process(message) if message.data == 1 else ended()

    with (
        Client(server.url) as client,
        client.consume("/lazy/worker", name="lazy/1", resume_file=tmp_path / "secret") as worker,
    ):
        ended: Callable[[], object] = worker.stop
        for data in (1, 2):
            client.publish("/lazy/worker", data, persistent=True)
        worker.run(handle)
        called = threading.Event()
        ended = called.set
        client.subscribe("/lazy/callback", handle)
        for data in (1, 2):
            client.publish("/lazy/callback", data)
        assert called.wait(LIMIT_S)
    assert "handler returned a coroutine: it is a plain function here" in caplog.text
    assert "callback returned a coroutine: it is a plain function here" in caplog.text


def test_a_listener_that_waits_for_the_client_fails_instead_of_waiting_for_ever(server: Server) -> None:
    failures: list[BaseException] = []

    def publish(_: object) -> None:
        try:
            client.publish("/a", 1)
        except RuntimeError as error:
            failures.append(error)

    client = Client(server.url, on_state=publish)
    with client:
        pass
    assert failures
    assert "cannot wait for the client" in str(failures[0])


def test_an_outbox_keeps_what_is_published_without_a_server(server: Server, tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    with Client(server.url, update=True) as hearing:
        heard = hearing.subscribe("/kept")
        with Client(server.url, outbox=outbox) as client:
            key = client.enqueue("/kept", 1)
            client.enqueue("/closed/a", 2)
            outbox.drained(LIMIT_S)
            assert [refused.channel for refused in outbox.refused()] == ["/closed/a"]
            outbox.forget_refused()
            assert outbox.refused() == []
        assert heard.receive(LIMIT_S).idempotency_key == key


def test_a_batch_tells_which_message_was_refused(server: Server) -> None:
    with Client(server.url) as client:
        batch = client.batch()

        def publish() -> None:
            with batch:
                batch.publish("/fine", 1)
                batch.publish("/closed/a", 1)

        with pytest.raises(PublishRefused, match="nobody may"):
            publish()
        assert [reply["successful"] for reply in batch.replies] == [True, False]


@pytest.fixture
def run(server: Server, tmp_path: Path) -> Run:
    """Run a program that knows the server as `URL`."""

    @contextmanager
    def start(program: str) -> Iterator[subprocess.Popen[str]]:
        head = f"import os, signal, sys\nfrom crewel.client.sync import Client\nURL = {server.url!r}\n"
        with subprocess.Popen(
            [sys.executable, "-c", head + program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        ) as process:
            try:
                yield process
            except BaseException:
                process.kill()  # leaving the block waits for it, and a process that is left is the failure of a later test
                raise

    return start


def test_the_threads_of_a_callback_end_with_its_subscription(server: Server) -> None:
    called = threading.Event()
    with Client(server.url) as client:
        subscription = client.subscribe("/threads", lambda _: called.set())
        client.publish("/threads", 1)
        assert called.wait(LIMIT_S)
        subscription.unsubscribe()
        until(lambda: not [each for each in threading.enumerate() if each.name.startswith("crewel-client-callback")])


def test_a_program_that_closes_nothing_leaves_no_session_behind(server: Server, run: Run) -> None:
    with Client(server.url) as client:
        gone = client.subscribe("/gone")
        with run("client = Client(URL).open(); client.publish('/a', 1); print('done')") as program:
            printed, said = program.communicate(timeout=LIMIT_S)
        assert (printed, said, program.returncode) == ("done\n", "", 0)
        assert gone.receive(LIMIT_S).data == "said goodbye"


def test_a_program_that_closes_nothing_sends_its_outbox(server: Server, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "orders.outbox"
    with Client(server.url) as client:
        heard = client.subscribe("/exit/outbox")
        with run(
            "from crewel.client.sync import Outbox\n"
            f"client = Client(URL, outbox=Outbox({str(file)!r})).open()\n"
            "client.ready()\n"
            "client.enqueue('/exit/outbox', 1)\n"
        ) as program:
            printed, said = program.communicate(timeout=LIMIT_S)
        assert (printed, said, program.returncode) == ("", "", 0)
        assert heard.receive(LIMIT_S).data == 1
    with Client(server.url, outbox=(outbox := Outbox(file))):
        assert outbox.waiting == 0


def test_ctrl_c_ends_a_wait_and_the_client_still_closes(run: Run) -> None:
    with run(
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background of a shell ignores\n"
        "with Client(URL) as client:\n"
        "    quiet = client.subscribe('/quiet')\n"
        "    try:\n"
        "        print('waiting', flush=True)\n"
        "        quiet.receive()\n"
        "    except KeyboardInterrupt:\n"
        "        print(client.publish('/a', 1)['successful'])\n"
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        program.send_signal(signal.SIGINT)
        printed, said = program.communicate(timeout=LIMIT_S)
    assert (printed, said, program.returncode) == ("True\n", "", 0)


def test_a_worker_ends_well_by_sigterm(server: Server, run: Run) -> None:
    with run(
        "with Client(URL) as client:\n"
        "    worker = client.consume('/term', name='term/1')\n"
        "    signal.signal(signal.SIGTERM, lambda *_: worker.stop())\n"
        "    with worker:\n"
        "        print('ready', flush=True)\n"
        "        worker.run(lambda message: print(message.data, flush=True), at_once=2)\n"
        "print('ended')\n"
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        with Client(server.url) as client:
            client.publish("/term", "one", persistent=True)
        assert program.stdout.readline() == "one\n"
        program.terminate()
        printed, said = program.communicate(timeout=LIMIT_S)
    assert (printed, said, program.returncode) == ("ended\n", "", 0)


def test_a_handler_that_ends_the_program_ends_it_and_leaves_its_message_open(server: Server, run: Run) -> None:
    program = (
        "with Client(URL) as client, client.consume('/exit', name='exit/1') as worker:\n"
        "    %s\n"
        "    worker.run(lambda message: sys.exit(message.attempt + 2), at_once=2)\n"
    )
    with run(program % "client.publish('/exit', 'order', persistent=True)") as first:
        printed, said = first.communicate(timeout=LIMIT_S)
    assert (printed, said, first.returncode) == ("", "", 3)
    with run(program % "pass") as second:
        printed, said = second.communicate(timeout=LIMIT_S)
    assert (printed, said, second.returncode) == ("", "", 4)


def test_a_callback_that_ends_its_thread_leaves_the_client_alive(run: Run) -> None:
    with run(
        "with Client(URL) as client:\n"
        "    seen = client.subscribe('/seen')\n"
        "    def handle(message):\n"
        "        if message.data == 1:\n"
        "            sys.exit('no')\n"
        "        client.publish('/seen', message.data)\n"
        "    client.subscribe('/exits', handle)\n"
        "    client.reply('/asks', lambda message: sys.exit('no'))\n"
        "    client.publish('/exits', 1)\n"
        "    client.publish('/exits', 2)\n"
        "    print(seen.receive(30).data)\n"
        "    try:\n"
        "        client.request('/asks', timeout=30)\n"
        "    except Exception as error:\n"
        "        print(error)\n"
    ) as program:
        printed, said = program.communicate(timeout=LIMIT_S)
    assert program.returncode == 0
    assert printed.splitlines() == ["2", "/asks: internal.unknown (the responder failed)"]
    assert "a callback of /exits raised SystemExit: no," in said


@pytest.mark.parametrize("is_run", [True, False], ids=["run", "block"])
def test_a_message_that_an_inbox_has_recorded_is_not_tried_again(server: Server, tmp_path: Path, is_run: bool) -> None:
    inbox = Inbox("recorded")
    database = sqlite3.connect(tmp_path / "app.db", check_same_thread=False)
    inbox.create(database)

    def handle(message: Delivery) -> None:
        assert inbox.is_first(database, message)
        raise LookupError("no such article")

    def take(worker: Consumer) -> None:
        with next(worker) as message:
            handle(message)

    with (
        Client(server.url) as client,
        client.consume("/rec", name=f"rec{is_run}/1", resume_file=tmp_path / "secret", attempts=2) as worker,
    ):
        client.publish("/rec", 1, persistent=True)
        with pytest.raises(RuntimeError, match="the inbox has recorded message"):
            worker.run(handle) if is_run else take(worker)
    database.close()


def test_a_stop_iteration_of_a_handler_makes_a_dead_letter(server: Server, tmp_path: Path) -> None:
    def handle(message: Delivery) -> None:
        if message.data == "last":
            worker.stop()
        else:
            next(iter(()))

    with Client(server.url) as client:
        worker = client.consume("/stops", name="stops/1", resume_file=tmp_path / "secret")
        with worker:
            client.publish("/stops", "bad", persistent=True)
            client.publish("/stops", "last", persistent=True)
            worker.run(handle)
    operator = Desk(server)
    until(lambda: len(operator.letters("channel=/stops")) == 1)


def test_processes_that_are_forked_first_open_their_clients_without_a_warning(run: Run) -> None:
    with run(
        "child = os.fork()\n"
        "with Client(URL) as client:\n"
        # One write for each line: print() writes a line and its end apart, and the other process comes in between.
        "    os.write(1, f\"{client.publish('/a', 1)['successful']}\\n\".encode())\n"
        "if child:\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
    ) as program:
        printed, said = program.communicate(timeout=LIMIT_S)
    assert (printed, said, program.returncode) == ("True\nTrue\n", "", 0)


def test_a_process_that_is_forked_beside_an_open_client_makes_its_own(run: Run) -> None:
    with run(
        "import warnings\n"
        # Python 3.12 and later warn of every fork beside threads, and an open client has one.
        "warnings.filterwarnings('ignore', '.* is multi-threaded, use of fork', DeprecationWarning)\n"
        "client = Client(URL).open()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    try:\n"
        "        client.publish('/a', 1)\n"
        "    except RuntimeError as error:\n"
        "        print(error)\n"
        "    with Client(URL) as own:\n"
        "        print(own.publish('/a', 1)['successful'], flush=True)\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "print(client.publish('/a', 1)['successful'])\n"
        "client.close()\n"
    ) as program:
        printed, said = program.communicate(timeout=LIMIT_S)
    assert (said, program.returncode) == ("", 0)
    assert printed.splitlines() == [
        "this client was made before the process forked: make one in each process",
        "True",
        "True",
    ]
