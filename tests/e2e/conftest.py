"""A real server with a real model, for all tests of a run; the OpenAI client in front of it."""

import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import urllib.request

import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMWORK = ROOT / "target" / "debug" / "formwork"
MODEL_ID = "smollm2"
DRAIN_SECONDS = 40


class Server:
    """`formwork serve` on a free port. `stop` drains it and checks that nothing is left."""

    def __init__(self, data_dir, *arguments):
        command = [FORMWORK, "serve", "--port", "0", "--data-dir", data_dir, *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.log = []
        threading.Thread(target=self._read_log, daemon=True).start()
        line = self.process.stdout.readline()
        found = re.fullmatch(r"serving (\S+) on (http://\S+)\n", line)
        if not found:
            self.process.wait(timeout=10)
            raise AssertionError(f"no server: {line!r}\n{''.join(self.log)}")
        self.model, self.url = found.groups()

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=30) as response:
            return response.read().decode()

    def metric(self, name, **labels):
        """The sum of a metric's samples that carry these labels."""
        total, seen = 0.0, False
        for line in self.get("/metrics").splitlines():
            found = re.fullmatch(r"([a-z_]+)(?:\{(.*)\})? (\S+)", line)
            if not found or found[1] != name:
                continue
            have = dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))
            if all(have.get(key) == value for key, value in labels.items()):
                total, seen = total + float(found[3]), True
        assert seen, f"no metric {name} {labels}"
        return total

    def wait_idle(self, seconds=10):
        """Waits until no request runs and no KV block is leased."""
        deadline = time.monotonic() + seconds
        while True:
            leased = self.metric("formwork_kv_blocks", state="leased")
            if leased == 0:
                return
            assert time.monotonic() < deadline, f"{leased} KV blocks are still leased"
            time.sleep(0.05)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=DRAIN_SECONDS)
        assert code == 0, f"the server ended with {code}\n{''.join(self.log)}"


def model_file():
    """The file of the model under test, fetched if need be; skips, saying why, where there is none."""
    path = os.environ.get("FORMWORK_TEST_MODEL")
    if path:
        return pathlib.Path(path).absolute()
    pulled = subprocess.run([FORMWORK, "model", "pull", MODEL_ID], capture_output=True, text=True)
    if pulled.returncode != 0:
        pytest.skip(f"the model cannot be fetched: {pulled.stderr.strip()}")
    return pathlib.Path(pulled.stdout.strip())


def model_arguments():
    """The arguments of a server of the model under test."""
    path = model_file()
    if os.environ.get("FORMWORK_TEST_MODEL"):
        return ["--model", path, "--model-id", MODEL_ID]
    return ["--model", MODEL_ID]


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    plugins = ROOT / "dist" / "plugins"
    assert list(plugins.glob("*.wasm")), "no stock plugins in dist/plugins: run `make plugins`"
    data = tmp_path_factory.mktemp("data")
    server = Server(data, "--plugins-dir", plugins, *model_arguments())
    try:
        yield server
        server.wait_idle()
        assert server.metric("formwork_unmasked_tokens_total") == 0
    finally:
        server.stop()


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="unused", max_retries=0, timeout=120)
