"""The server as a process: keys, draining, one owner of a data directory, restarts."""

import concurrent.futures
import os
import signal
import subprocess
import time

import openai
import pytest

from conftest import DRAIN_SECONDS, FORMWORK, ROOT, Server, model_file

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


def test_packed_weights_are_kept_for_the_next_start(tmp_path):
    # Beside a link, so that the model's own folder stays as it is.
    model = tmp_path / "model.gguf"
    model.symlink_to(model_file())
    packed = tmp_path / "model.gguf.packed"

    def answer(*arguments):
        """A greedy answer and what the log says of packed weights; waits for their file where one is wanted."""
        server = Server(tmp_path / "data", "--model", model, "--model-id", "small", *arguments)
        try:
            answer = openai_client(server).chat.completions.create(
                model="small", messages=QUESTION, max_tokens=12, temperature=0, logprobs=True
            )
            deadline = time.monotonic() + (60 if "always" in arguments else 0)
            while not packed.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            server.stop()
        said = [line for line in server.log if "packed weights" in line]
        return answer.choices[0].model_dump_json(), said

    expected, said = answer("--packed-cache", "never")
    assert not said and not packed.exists()
    first, said = answer("--packed-cache", "always")
    assert first == expected
    assert packed.stat().st_size > 50_000_000 and "keeps the packed weights" in said[-1], said
    second, said = answer("--packed-cache", "always")
    assert second == expected and len(said) == 1 and "read the packed weights" in said[0], said
    # One byte of the weights, in the middle of the file.
    with packed.open("r+b") as file:
        file.seek(packed.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    damaged, said = answer("--packed-cache", "always")
    assert damaged == expected and "checksum" in said[0], said
