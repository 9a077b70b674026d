"""Starts mosquitto, nats-server or centrifugo for WebSockets on a free port, and prints `ready URL` once it serves.

python bench/peers/native.py mosquitto PROGRAM
python bench/peers/native.py nats-server PROGRAM [SYNC]       SYNC: how often its store is synced, `always` or a time
python bench/peers/native.py centrifugo PROGRAM
"""

import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

LIMIT_S = 20.0
MOSQUITTO = """\
listener {other} 127.0.0.1
listener {port} 127.0.0.1
protocol websockets
allow_anonymous true
persistence false
max_queued_messages 0
max_inflight_messages 0
user root
"""
NATS = """\
listen: "127.0.0.1:-1"
websocket {{ listen: "127.0.0.1:{port}", no_tls: true }}
jetstream {{ store_dir: "{directory}", max_memory_store: 1GB, max_file_store: 4GB {sync} }}
"""
CENTRIFUGO = """\
{{"http_server": {{"address": "127.0.0.1", "port": "{port}"}}, "log": {{"level": "error"}},
 "client": {{"allow_anonymous_connect_without_token": true}},
 "channel": {{"without_namespace": {{"allow_subscribe_for_client": true, "allow_subscribe_for_anonymous": true,
  "allow_publish_for_client": true, "allow_publish_for_anonymous": true}}}}}}
"""
FILES = {"mosquitto": MOSQUITTO, "nats-server": NATS, "centrifugo": CENTRIFUGO}


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until something listens there."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    sys.exit("it did not start")


def main() -> int:
    """Start it, and end it when this is ended."""
    name, program, *more = sys.argv[1:]
    with TemporaryDirectory() as directory:
        port = free_port()
        sync = f", sync_interval: {more[0]}" if more else ""
        file = Path(directory) / "conf.json"  # centrifugo goes by the ending
        other = free_port()  # mosquitto wants one without WebSockets, too
        file.write_text(FILES[name].format(port=port, other=other, directory=directory, sync=sync))
        process = subprocess.Popen([program, "-c", str(file)], stdout=sys.stderr)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        wait_for(port, process)
        print(f"ready http://127.0.0.1:{port}/", flush=True)
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
