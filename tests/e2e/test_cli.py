"""The command line: a user's own plugin from nothing to a request, and what a wrong call says."""

import json
import os
import shutil
import subprocess

import openai
import pytest

from conftest import FORMWORK, MODEL_ID, ROOT


def formwork(*arguments, cwd=None, ok=True, **environment):
    environment = {**os.environ, **environment}
    done = subprocess.run(
        [FORMWORK, *map(str, arguments)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=900
    )
    assert (done.returncode == 0) == ok, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout if ok else done.stderr


def test_a_users_plugin_from_nothing_to_a_request(tmp_path, server, client):
    crate = tmp_path / "ticket"
    formwork("plugin", "new", "acme/ticket", "--dir", crate)
    # The lock of the checkout, so that a machine without a network builds what it has.
    shutil.copy(ROOT / "Cargo.lock", crate / "Cargo.lock")
    built = formwork("plugin", "build", cwd=crate, CARGO_TARGET_DIR=str(ROOT / "target" / "guests"))
    assert built.startswith("acme/ticket@0.1.0")
    component = crate / "dist" / "acme--ticket@0.1.0.wasm"
    checked = formwork("plugin", "check", component)
    assert "a server would take" in checked and "formwork:plugin/decoding@" in checked

    push = ["plugin", "push", component, "--server", server.url]
    assert "acme/ticket@0.1.0 is published" in formwork(*push)
    formwork(*push)  # the same bytes again: nothing changes
    listed = json.loads(formwork("plugin", "list", "--json", "--server", server.url))
    assert "acme/ticket" in [plugin["name"] for plugin in listed["data"]]

    answer = client.chat.completions.create(
        model=f"{MODEL_ID}:acme/ticket@^0.1",
        messages=[{"role": "user", "content": "My card is lost."}],
        max_tokens=120,
        temperature=0,
    )
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content

    formwork("plugin", "delete", "acme/ticket@0.1.0", "--server", server.url)
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model=f"{MODEL_ID}:acme/ticket", messages=[{"role": "user", "content": "x"}])


def test_what_is_no_plugin_is_refused_with_a_reason(tmp_path, server):
    junk = tmp_path / "acme--junk@1.0.0.wasm"
    junk.write_bytes(b"\0asm\x01\0\0\0")
    for command in (["plugin", "check", junk], ["plugin", "push", junk, "--server", server.url]):
        said = formwork(*command, ok=False)
        assert "component" in said, said


def test_a_public_address_needs_keys_or_a_word(tmp_path):
    said = formwork("serve", "--host", "0.0.0.0", "--port", "0", "--model", "tiny", "--data-dir", tmp_path, ok=False)
    assert "--api-key-file" in said and "--insecure" in said, said


def test_wrong_calls_say_what_would_be_right(tmp_path):
    for arguments, expected in [
        (["serve", "--model", "no/such.gguf", "--data-dir", tmp_path], "smollm2"),
        (["model", "pull", "ftp://x"], "hf:ORG/REPO/FILE.gguf"),
        (["plugin", "new", "Acme"], "a-z"),
        (["plugin", "build", tmp_path], "Cargo.toml"),
        (["plugin", "list", "--server", "http://127.0.0.1:9"], "formwork serve"),
    ]:
        said = formwork(*arguments, ok=False)
        assert expected in said, (arguments, said)


def test_model_info():
    info = json.loads(formwork("model", "info", "tiny", "--json"))
    assert info["chat_template"] is True


def test_the_demo_ends_well_and_counts(server):
    # `server` only for the model: the demo runs one of its own.
    model = os.environ.get("FORMWORK_TEST_MODEL", MODEL_ID)
    figures = json.loads(formwork("demo", "--figures", "--model", model, "--concurrent", 4, cwd=ROOT))
    assert figures["unmasked_tokens"] == 0
    assert [crowd["kind"] for crowd in figures["at_once"]] == ["mixed", "free", "constrained"]
    for crowd in figures["at_once"]:
        assert crowd["requests"] == 4 and crowd["tokens_per_s"] > 0
    for stream in ("free", "constrained"):
        assert figures[stream]["tokens_per_s"] > 0 and figures[stream]["first_token_ms"] > 0
    assert 0 < figures["constrained"]["forced_share"] < 1
    assert figures["upload_to_first_use_ms"] > 0
