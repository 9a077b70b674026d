"""`crewel sub`: prints what is published on channels."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from crewel.cli import bayeux_client, output, qos_options, standard_streams
from crewel.errors import CrewelError
from crewel.standard_output import console

if TYPE_CHECKING:
    from crewel.bayeux.channel import Channel
    from crewel.client import Client, Message, Position, Subscription, Transition

Print = Callable[["Message"], None]
Take = Callable[["Message"], Awaitable[None]]


Channels = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="CHANNEL", help="Names or wildcards: /chat/demo /news/**. None: point-to-point messages to --name."
    ),
]
UpdateException = Annotated[
    str | None,
    typer.Option(metavar="CODE", help="Print each message, then reject it with this code, such as user.update.error."),
]
UpdateMessage = Annotated[str, typer.Option(metavar="TEXT", help="Readable reason for --update-exception.")]
Retries = Annotated[
    int | None,
    typer.Option(min=-1, help="How often the server sends a message again after a communication.* code; -1: no limit."),
]
DelayMs = Annotated[int | None, typer.Option(min=0, help="Pause before each retry.")]
SettleBy = Annotated[
    Literal["message", "batch"],
    typer.Option(help="Whether each printed message is acknowledged alone, or with its batch."),
]
MaxOpen = Annotated[
    int | None,
    typer.Option(min=1, help="How many messages the server sends ahead of their acknowledgement; 1: one at a time."),
]
Oneway = Annotated[
    bool, typer.Option("--oneway", help="Deliver each message once, without acknowledgement. Same as --no-ack.")
]


@bayeux_client.with_options(qos_options.OF_SUBSCRIPTION)
def sub(
    channels: Channels = None,
    ack: Annotated[
        bool, typer.Option(help="Acknowledge messages: the server keeps them until they have arrived.")
    ] = True,
    count: Annotated[int | None, typer.Option(min=1, help="End after this many messages.")] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the session: joe/1, or joe to get a number."),
    ] = None,
    leave: Annotated[
        bool,
        typer.Option("--leave", help="Keep the session at the end: it collects messages for the next `sub`."),
    ] = False,
    resume_file: bayeux_client.ResumeFile = None,
    update_exception: UpdateException = None,
    update_message: UpdateMessage = "",
    retries: Retries = None,
    delay_ms: DelayMs = None,
    settle: SettleBy = "message",
    max_open: MaxOpen = None,
    oneway: Oneway = False,
    token: bayeux_client.Token = None,
    token_file: bayeux_client.TokenFile = None,
    url: bayeux_client.Url = bayeux_client.DEFAULT_URL,
    proxy: bayeux_client.Proxy = None,
    transport: bayeux_client.Transports = None,
    as_json: bayeux_client.AsJson = None,
    **asked: Any,
) -> None:
    """Print messages until interrupted. Reports on standard error when it has subscribed, and when the connection is lost.
    Acknowledges the messages that it has printed, unless --no-ack; the server delivers others again. With --name, also prints
    messages that are addressed to that session or its subject, on any channel."""
    wanted = _wanted(channels or [], name)
    options = qos_options.subscribe_options(wanted, asked)
    settling: dict[str, Any] = {"ack": ack and not oneway}
    if settling["ack"]:
        settling |= {
            "update": True,
            "settle": settle,
            "max_open": max_open,
            "retries": retries,
            "delay": None if delay_ms is None else delay_ms / 1000,
        }
    if update_exception is not None and not settling["ack"]:
        raise typer.BadParameter("--update-exception needs --ack, and is not --oneway")
    if max_open is not None and not settling["ack"]:
        raise typer.BadParameter("--max-open needs --ack, and is not --oneway")
    who = bayeux_client.credential(token, token_file)
    client = bayeux_client.client(
        url, transport, who, proxy, name=name, leave=leave, resume_file=resume_file, **settling
    )
    take = _taker(_printer(as_json), update_exception, update_message)
    reader = Reader(client, wanted, options, take, count)
    work = _read(reader, named=name is not None, rejects=update_exception is not None)
    bayeux_client.run(work, is_endless=count is None)


def _wanted(channels: list[str], name: str | None) -> list[str]:
    if not channels and name is None:
        raise typer.BadParameter("CHANNEL is missing, or --name for messages addressed to it")
    bayeux_client.check_channels(channels)
    return widest(channels)


def widest(channels: Iterable[str]) -> list[str]:
    """The channels without those that another one covers, so that each message is printed once."""
    from crewel.bayeux.channel import parse

    names = {channel.name: channel for channel in map(parse, channels) if channel is not None}
    return [name for name, channel in names.items() if not any(_covers(other, channel) for other in names)]


def _covers(pattern: str, channel: "Channel") -> bool:
    # `/a/**` as a name would match `/a/*`, as a pattern it is the wider one.
    narrower = channel.name.endswith("/**") and pattern == channel.name[:-1]
    return pattern != channel.name and pattern in channel.patterns and not narrower


def _taker(show: Print, code: str | None, text: str) -> Take:
    """Print a message, and settle or reject it. One that could not be printed, or that no one has read, is neither."""

    async def take(message: "Message") -> None:
        message.defer()  # else an output that fails would be a failure of the message
        try:
            show(message)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CrewelError(f"standard output cannot be written: {error.strerror or error}") from None
        await standard_streams.output_read()
        if code is None:
            message.settle()
        else:
            message.reject(code, text)

    return take


async def _read(reader: "Reader", *, named: bool, rejects: bool) -> None:
    from crewel.client import ClientError

    # Other servers take no statuses. That is an error only with --update-exception, which checks it.
    logging.getLogger("crewel.client.update").setLevel(logging.ERROR)
    await reader.prepare(with_addressed=named)
    closed: BrokenPipeError | None = None
    async with reader.client as client:
        if rejects and not client.settles:
            raise ClientError("rejections are impossible: the server lacks `update` in bayeux.extensions")
        try:
            await reader.read()
        except BrokenPipeError as error:  # an end like any other, which keeps the session only with --leave
            closed = error
    if closed is not None:
        raise closed


class Reader:
    """Takes `count` messages of some channels one after the other, or all."""

    def __init__(
        self, client: "Client", channels: list[str], options: dict[str, Any], take: Take, count: int | None
    ) -> None:
        self.client = client
        self._channels = channels
        self._options = options
        self._take = take
        self._left = count
        self._turn = asyncio.Lock()
        self._listeners: list[Subscription] = []
        self._subscriptions: list[Subscription] = []
        self._positions: dict[str, Position] = {}
        """Where each subscription was after the last message that was taken: it moves on with one too many as well."""

    async def prepare(self, *, with_addressed: bool) -> None:
        """Subscribe before the first connect, which brings the waiting messages."""
        self._subscriptions = [await self.client.subscribe(channel, **self._options) for channel in self._channels]
        self._listeners = [self.client.listen("/**", unclaimed=True)] if with_addressed else []

    async def read(self) -> None:
        """Take messages until there were enough, or until a subscription fails."""
        subscriptions = self._subscriptions
        _say(f"subscribed to {', '.join(self._channels) or f'messages to {self.client.name}'}")
        for subscription in subscriptions:
            if subscription.recovered is not None:
                _say(f"{subscription.channel}: {'recovered' if subscription.recovered else 'not recovered'}")
            self._note_position(subscription)
        self.client.on_state(ConnectionNotices())
        tasks = [
            asyncio.create_task(each)
            for each in (
                *map(self._subscribed, subscriptions),
                *map(self._addressed, self._listeners),
                standard_streams.output_closed(),
            )
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._tell_position()

    async def _subscribed(self, subscription: "Subscription") -> None:
        while self._wants_more:
            try:
                message = await anext(subscription)
            except StopAsyncIteration:  # its topic was erased, and another of its name may come
                _say(f"{subscription.channel} was erased, subscribing again")
                options = self._options | ({"since": {}} if "since" in self._options else {})
                subscription = await self.client.subscribe(subscription.channel, **options)
                self._note_position(subscription)
                continue
            if await self._took(message):
                self._note_position(subscription)

    async def _addressed(self, listener: "Subscription") -> None:
        while self._wants_more:
            await self._took(await anext(listener))

    @property
    def _wants_more(self) -> bool:
        return self._left is None or self._left > 0

    async def _took(self, message: "Message") -> bool:
        async with self._turn:
            if not self._wants_more:  # another channel had the last one meanwhile: the server keeps this one
                return False
            await self._take(message)
            self._left = None if self._left is None else self._left - 1
            return True

    def _note_position(self, subscription: "Subscription") -> None:
        if "since" in self._options:
            self._positions[subscription.channel] = subscription.position

    def _tell_position(self) -> None:
        reached = {channel: place for each in self._positions.values() for channel, place in each.items()}
        if reached:
            _say(f"continue with --since {qos_options.shown(reached, self._channels)}")


def _say(text: str) -> None:
    from crewel.logs import escaped

    print("crewel:", escaped(text), file=sys.stderr, flush=True)


class ConnectionNotices:
    """Prints on stderr that the connection is lost, and that it is back."""

    def __init__(self) -> None:
        self._is_lost = False

    def __call__(self, step: "Transition") -> None:
        """Print what this step means for the messages, if anything."""
        from crewel.client import Event, State

        losses = (Event.CONNECTION_LOST, Event.SESSION_LOST)
        reason = f" ({step.reason})" if step.reason else ""
        if step.event is Event.CONNECTION_LOST:
            _say(f"the connection is lost, trying again{reason}")
        elif step.event is Event.SESSION_LOST:
            _say(f"the session is lost, messages may be missing; trying again{reason}")
        elif step.new is State.CONNECTED and self._is_lost:
            _say("connected again")
        # Between the two may be a new handshake and its first connect, in which nothing is lost any more nor there again.
        self._is_lost = step.new is not State.CONNECTED and (self._is_lost or step.event in losses)


def _printer(as_json: bool | None) -> Print:
    if output.wants_json(as_json):
        return lambda message: output.print_json(message.fields)
    from rich.text import Text

    printer = console()

    def show(message: "Message") -> None:
        # No message can steer the terminal: `readable` escapes control characters, and Text leaves markup as it is.
        words = ("erased", "italic") if message.is_erased else output.readable(message.data)
        printer.print(Text.assemble((message.channel, "bold cyan"), "  ", words), soft_wrap=True)

    return show
