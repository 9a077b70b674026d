"""What two nodes say to each other on their link: frames, and the proof that both belong to the same store (decision 0261).

A frame is the length of its payload (4 bytes), its kind (1), the stream that it belongs to (4), and the payload. Each request,
and each WebSocket, has a stream of its own. Pure: bytes in, frames out.
"""

from __future__ import annotations

import hmac
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

import orjson

from crewel.errors import LinkError

VERSION: Final = 3
"""What this node speaks at most. Two nodes speak the lower one of both."""
OLDEST: Final = 3
"""A link with a node that speaks less is refused."""
MOST_BYTES: Final = 256 << 20
"""Of one frame of a node that has proved itself: the limits of messages apply before a frame is made."""
MOST_BYTES_OF_A_STRANGER: Final = 4096
LAST_STREAM: Final = 2**32 - 1
"""Behind it numbers of streams begin again at 1: a link that lasts has more than that."""
_HEAD: Final = Struct("!IBI")


class Kind(IntEnum):
    """What a frame is. A node passes over kinds that it does not know."""

    HELLO = 1
    """Version, token and nonce, as JSON: the first frame in both directions."""
    PROOF = 2
    """The HMAC of both hellos: the second one. From then on the dialling node sends requests."""
    REQUEST = 3
    """Opens a stream. As JSON: what is known of the client, and the elements of its request."""
    FRAME = 4
    """Elements of a further frame of a WebSocket, as JSON."""
    ANSWER = 5
    """Length of a cookie to be set (1 byte), the cookie, and ready messages. It ends the stream of a request."""
    SUPERSEDED = 6
    """A newer connect has taken the place of this request: it ends without an answer."""
    REFUSED = 7
    """The receiver does not have the session. The payload is the elements as they came; nothing was done."""
    GONE = 8
    """The client has gone. It ends the stream."""
    HALF_CLOSED = 9
    """The client sends no more: what is held is answered now. With milliseconds (4 bytes) it is the sender that ends, and the
    client is asked to wait for so long at most before it connects again."""
    SLOW = 10
    """Milliseconds for which nothing more is to be taken from the client."""
    PAUSE = 11
    """The client does not take what it is sent: send nothing that can wait."""
    RESUME = 12
    """It does again."""
    END = 13
    """Break the client's connection. It ends the stream."""
    PING = 14
    """A sign of life."""
    LEAVING = 15
    """The sender ends: its sessions can be had at once."""
    ALL_PATTERNS = 16
    """Version (8 bytes), and as JSON all patterns that the sender wants transient messages of. This and the next two go to
    the node that has dialled."""
    SUBSCRIBE = 17
    """Version (8 bytes), and as JSON patterns that the sender wants in addition."""
    UNSUBSCRIBE = 18
    """Version (8 bytes), and as JSON patterns that the sender does not want any more."""
    CONFIRM = 19
    """The version that counts now for what is sent on this link."""
    MESSAGE = 20
    """A transient message: its number (8 bytes), the length of a JSON array about it (4), that, and the message."""
    ADDRESSED = 21
    """A transient message for certain sessions: the length of a JSON array about it (4 bytes), that, and the message."""
    QUEUES = 22
    """As JSON the names of shared queues in which something waits that a session of any node may have."""
    ASK = 23
    """A question of an operator's request, as JSON. It opens a stream."""
    TOLD = 24
    """The answer, which ends it."""
    SETTLED = 25
    """How many frames of a WebSocket have been processed and answered (4 bytes), and 1 or 0 (1): whether a connect among them
    is held. A connect alone that is held is reported with the next frame, or when it has been answered."""
    DEAD_LETTERS = 26
    """As JSON the ids of dead letters that the store has since just now, for the operators who follow them at the receiver."""
    PRESENCE = 27
    """As JSON the version of what the sender has announced of the presence of its sessions, and a list of what is new in it.
    That is sessions that are present on a channel, and sessions that no longer are. An empty list repeats the version."""


class Frame(NamedTuple):
    """One frame."""

    kind: int
    """A `Kind`, or one that this version does not know."""
    stream: int
    payload: bytes


head: Final = _HEAD.pack
"""Returns what a frame begins with: its length, kind and stream."""


def encoded(kind: Kind, stream: int = 0, payload: bytes = b"") -> bytes:
    """Return the frame as it is sent."""
    return head(len(payload), kind, stream) + payload


class FrameReader:
    """Finds frames in what comes."""

    def __init__(self) -> None:
        self.most_bytes = MOST_BYTES_OF_A_STRANGER
        """The longest payload that is read."""
        self._chunks: list[bytes] = []
        self._size = 0
        self._needed = _HEAD.size  # bytes without which there is no use in looking

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete. Raises LinkError if the first one is too long; then nothing more can be read.
        One that is too long behind others waits for the next call: what they say may change what is allowed."""
        if self._chunks:
            self._chunks.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return []
            data = b"".join(self._chunks)
        frames: list[Frame] = []
        place, size, needed = 0, len(data), _HEAD.size
        while size - place >= _HEAD.size:
            length, kind, stream = _HEAD.unpack_from(data, place)
            if length > self.most_bytes:
                if frames:
                    break
                raise LinkError(f"a frame of {length} bytes, at most {self.most_bytes} were expected")
            begin = place + _HEAD.size
            end = begin + length
            if end > size:
                needed += length
                break
            frames.append(tuple.__new__(Frame, (kind, stream, data[begin:end])))  # without the call of `Frame`
            place = end
        rest = data[place:] if place else data
        self._chunks, self._size, self._needed = [rest] if rest else [], len(rest), needed
        return frames


class Introduction:
    """How two nodes come to trust each other: each proves that it knows the secret in the store, for this link alone.

    The proof is made of both hellos, and of who has dialled: what one side has said is of no use to the other, nor on another
    link.
    """

    def __init__(self, secret: str, token: str, nonce: str, *, dials: bool, expected: str = "") -> None:
        """`token` is this node's, `expected` the other's where that is known."""
        self._secret = secret
        self._dials = dials
        self._expected = expected
        self.own = token
        self._own = orjson.dumps({"version": VERSION, "oldest": OLDEST, "token": token, "nonce": nonce})
        self._theirs = b""
        self.token = ""
        """The other node's token, once it has proved itself."""

    @property
    def hello(self) -> bytes:
        """The first frame."""
        return encoded(Kind.HELLO, 0, self._own)

    def take(self, frame: Frame) -> bytes:
        """Return what is to be sent when this frame has come. Raises LinkError, and then the link is of no use."""
        if frame.kind == Kind.HELLO and not self._theirs:
            self._read(frame.payload)
            return encoded(Kind.PROOF, 0, self._proof(self._own, self._theirs, dials=self._dials))
        if frame.kind == Kind.PROOF and self._theirs:
            due = self._proof(self._theirs, self._own, dials=not self._dials)
            if not hmac.compare_digest(frame.payload, due):
                raise LinkError("the other side does not know the secret of this store")
            self.token = orjson.loads(self._theirs)["token"]
            return b""
        raise LinkError(f"a frame of kind {frame.kind} before the introduction was complete")

    def _read(self, payload: bytes) -> None:
        try:
            said = orjson.loads(payload)
            version, oldest, token = said["version"], said["oldest"], str(said["token"])
            if not (type(version) is int and type(oldest) is int):  # a text may be a number of thousands of digits
                raise TypeError
        except (ValueError, TypeError, KeyError):
            raise LinkError("the other side is not a node: its first frame has no version and no token") from None
        if version < OLDEST or oldest > VERSION:
            raise LinkError(
                f"the other node speaks version {oldest} to {version} of the link, this one {OLDEST} to {VERSION}"
            )
        if self._expected not in ("", token):
            raise LinkError("another node has this address now")
        self._theirs = payload

    def _proof(self, own: bytes, theirs: bytes, *, dials: bool) -> bytes:
        role = b"dial" if dials else b"accept"
        return hmac.digest(self._secret.encode(), role + b"\0" + own + b"\0" + theirs, "sha256")
