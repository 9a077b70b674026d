"""PURE. The protocol: channels, messages, replies, advice, and JSON. Facts come in as arguments, answers go out as values.

May use `errors`, and knows no clock, socket, session or option."""
