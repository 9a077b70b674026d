"""PURE. The protocol: channels, messages, replies, advice and JSON. Facts are arguments, and answers are return values.

May use `errors`, and knows no clock, socket, session or option."""
