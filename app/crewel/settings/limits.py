"""The settings about how much one client, one address, one subject, and all of them together may ask of the server."""

from crewel.settings.kinds import Group, Networks, Number, setting


class Limits(Group):
    """Caps and rates. 0 takes one away. Operators are exempt from rates and from all but the caps in all."""

    exempt_addresses: Networks = setting(
        ("127.0.0.0/8", "::1"),
        "Rates do not hold for these addresses: what runs on the machine itself is no stranger. Caps do.",
        expected="IP addresses or networks such as 10.0.0.0/8",
    )
    max_sessions: Number = setting(
        100000, "Most sessions in all. A handshake beyond is refused, with advice to come back later.", live=True, ge=0
    )
    max_sessions_per_address: Number = setting(20000, "Most sessions of one address.", live=True, ge=0)
    max_sessions_per_subject: Number = setting(
        1000, "Most sessions of one subject, however many its logins allow.", live=True, ge=0
    )
    max_subscriptions: Number = setting(500000, "Most subscriptions in all.", live=True, ge=0)
    max_subscriptions_per_address: Number = setting(
        200000, "Most subscriptions of the sessions of one address.", live=True, ge=0
    )
    max_subscriptions_per_session: Number = setting(10000, "Most subscriptions of one session.", live=True, ge=0)
    max_channels: Number = setting(
        100000, "Most channels that clients may have published to and that live.", live=True, ge=0
    )
    max_queued_bytes: Number = setting(
        100663296,
        "Most bytes of messages that wait in memory for all sessions together. Then the longest queues give way.",
        unit="bytes",
        live=True,
        ge=0,
    )
    max_queued_bytes_per_session: Number = setting(
        104857600, "Largest queue that a login may ask for (`queue.maxBytes`).", unit="bytes", live=True, ge=0
    )
    max_calls_per_session: Number = setting(
        1000, "Most remote calls of one session that wait for their result.", live=True, ge=0
    )
    max_history_entries: Number = setting(
        1000000, "Longest history that a publish may ask for. Rules for topics may ask for more.", live=True, ge=0
    )
    handshakes_per_s: Number = setting(200, "Handshakes of one address.", unit="handshakes a second", live=True, ge=0)
    handshakes_burst: Number = setting(10000, "Handshakes of one address at once, after a pause.", live=True, ge=1)
    publishes_per_s: Number = setting(
        5000,
        "Publishes of one address, and of one subject, to service channels too.",
        unit="publishes a second",
        live=True,
        ge=0,
    )
    publishes_burst: Number = setting(50000, "The same at once, after a pause.", live=True, ge=1)
    subscribes_per_s: Number = setting(
        2000, "Channels that one address, or one subject, subscribes to.", unit="channels a second", live=True, ge=0
    )
    subscribes_burst: Number = setting(100000, "The same at once, after a pause.", live=True, ge=1)
    channels_per_s: Number = setting(
        200, "Channels that one address is the first to publish to.", unit="channels a second", live=True, ge=0
    )
    channels_burst: Number = setting(10000, "The same at once, after a pause.", live=True, ge=1)
    failed_tokens_per_s: Number = setting(
        10,
        "Tokens of one address that do not hold, loopback included. Beyond, none is looked at.",
        unit="tokens a second",
        live=True,
        ge=0,
    )
    failed_tokens_burst: Number = setting(200, "The same at once, after a pause.", live=True, ge=1)
