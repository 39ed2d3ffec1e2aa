"""A server under measurement: started on a free port, ended with the `with` block."""

import pathlib
import signal
import socket
import subprocess
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMWORK = ROOT / "target" / "debug" / "formwork"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A program that answers on `port` and says on the path `ready` that it does."""

    def __init__(self, command, port, ready):
        self.port = port
        self.ready = ready
        self.process = subprocess.Popen(
            [str(part) for part in command],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self):
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(self.url(self.ready), timeout=1):
                    return self
            except OSError:
                time.sleep(0.1)
        self.__exit__()
        raise TimeoutError("the server does not start")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"
