"""The server as a process: keys, draining, one owner of a data directory, restarts."""

import concurrent.futures
import signal
import subprocess

import openai
import pytest

from conftest import DRAIN_SECONDS, FORMWORK, ROOT, Server

QUESTION = [{"role": "user", "content": "hello"}]


def openai_client(server, key="unused"):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=60)


def test_keys_are_asked_for(tmp_path):
    keys = tmp_path / "keys.txt"
    ada, other = "correct-horse-of-ada", "battery-staple-of-another"
    keys.write_text(f"# who: what\nada:{ada}\n{other}\n")
    server = Server(tmp_path / "data", "--model", "tiny", "--api-key-file", keys, "--host", "0.0.0.0")
    server.url = server.url.replace("0.0.0.0", "127.0.0.1")
    try:
        for key in (ada, other):
            answer = openai_client(server, key).chat.completions.create(
                model="tiny", messages=QUESTION, max_tokens=4, temperature=0
            )
            assert answer.usage.completion_tokens > 0
        for key in ("ada", ada[:-1], ada + "x", f"ada:{ada}"):
            with pytest.raises(openai.AuthenticationError):
                openai_client(server, key).models.list()
        assert server.get("/health") is not None
    finally:
        server.stop()


def test_a_running_answer_ends_before_the_server_does(tmp_path):
    server = Server(tmp_path / "data", "--model", "tiny")
    stream = openai_client(server).chat.completions.create(
        model="tiny", messages=QUESTION, max_tokens=400, seed=1, logit_bias={"258": -100}, stream=True
    )
    chunks = iter(stream)
    next(chunks)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        rest = pool.submit(lambda: [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices])
        server.process.send_signal(signal.SIGTERM)
        assert rest.result(timeout=DRAIN_SECONDS)[-1] in ("length", "stop")
    assert server.process.wait(timeout=DRAIN_SECONDS) == 0


def test_a_data_directory_has_one_owner_and_keeps_uploads(tmp_path):
    data = tmp_path / "data"
    ticket = next((ROOT / "dist" / "examples").glob("*--ticket@*.wasm"))
    first = Server(data, "--model", "tiny")
    try:
        command = [FORMWORK, "serve", "--model", "tiny", "--port", "0", "--data-dir", data]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert second.returncode == 1 and "--data-dir" in second.stderr, second.stderr
        push = [FORMWORK, "plugin", "push", ticket, "--name", "acme/ticket", "--version", "3.2.1"]
        subprocess.run([*push, "--server", first.url], check=True, capture_output=True)
    finally:
        first.stop()
    again = Server(data, "--model", "tiny")
    try:
        assert '"3.2.1"' in again.get("/v1/plugins/acme/ticket").replace(" ", "")
    finally:
        again.stop()
