"""Formwork beside llama.cpp on this machine: the same GGUF files, the same threads, taken in turn.

Prints ratios (Formwork / llama.cpp) of medians. llama.cpp is built from the full source that the PyPI
source package `llama-cpp-python` carries; the build is kept. Everything has a time limit.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tarfile
import time
import urllib.request

from server import FORMWORK, ROOT, Server, free_port

PACKAGE = "llama-cpp-python==0.3.36"
TOOLS = ["llama-bench", "llama-batched-bench", "llama-quantize", "llama-server"]
DECODES = [1, 2, 4, 8, 16, 32]
CONTEXTS = [512, 2048, 4096]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 24},
        "kind": {"enum": ["animal", "plant", "stone"]},
        "size": {"type": "integer", "minimum": 0, "maximum": 999},
        "alive": {"type": "boolean"},
    },
    "required": ["name", "kind", "size", "alive"],
    "additionalProperties": False,
}


def run(command, seconds, **options):
    """Output of a command that ends within a time."""
    return subprocess.run(
        [str(part) for part in command], timeout=seconds, check=True, text=True, **options
    ).stdout


def build(home):
    """The directory of llama.cpp's programs, built once."""
    programs = home / "build" / "bin"
    if all((programs / tool).exists() for tool in TOOLS):
        return programs
    home.mkdir(parents=True, exist_ok=True)
    environment = home / "venv"
    if not environment.exists():
        run([sys.executable, "-m", "venv", environment], 120)
        tools = ["cmake", "ninja", "scikit-build-core"]
        run([environment / "bin" / "pip", "install", "--quiet", *tools], 300)
    pip = [environment / "bin" / "pip", "download", "--no-binary", ":all:", "--no-deps"]
    run([*pip, "--no-build-isolation", "--dest", home, PACKAGE], 600)
    archive = next(home.glob("llama_cpp_python-*.tar.gz"))
    with tarfile.open(archive) as tar:
        tar.extractall(home, filter="data")
    source = next(home.glob("llama_cpp_python-*/vendor/llama.cpp"))
    cmake, ninja = environment / "bin" / "cmake", environment / "bin" / "ninja"
    flags = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF"]
    flags += ["-DLLAMA_CURL=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF"]
    target = home / "build"
    configure = [cmake, "-S", source, "-B", target, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    run([*configure, *flags], 300)
    run([ninja, "-C", target, *TOOLS], 3600)
    return programs


def bench_step(model, threads, **shape):
    """Tokens per second of one step of Formwork."""
    options = [word for key, value in shape.items() for word in (f"--{key}", value)]
    command = [FORMWORK, "bench", "step", "--model", model, "--threads", threads, "--json"]
    text = run([*command, *options], 300, stdout=subprocess.PIPE)
    return json.loads(text)["tokens_per_second"]


def batched_bench(programs, model, threads, *, prompt, new, batch):
    """Tokens per second of llama.cpp: prefill and decode."""
    cells = (prompt + new) * batch
    command = [programs / "llama-batched-bench", "-m", model, "-t", threads, "-tb", threads]
    command += ["-c", max(cells, 512), "-b", 2048, "-ub", 512, "-npp", prompt, "-ntg", new]
    text = run(
        [*command, "-npl", batch], 600, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    names, row = [cell.strip() for cell in lines[0]], lines[-1]
    speeds = {name: cell for name, cell in zip(names, row, strict=True)}
    return float(speeds["S_PP t/s"]), float(speeds["S_TG t/s"])


def forward_pairs(programs, model, threads):
    """Name of a measurement, and the two programs' ways to take it once: rows by their names."""

    def pair(name, shape, peer, column):
        ours = lambda: {name: bench_step(model, threads, **shape)}
        theirs = lambda: {name: batched_bench(programs, model, threads, **peer)[column]}
        return name, ours, theirs

    for tokens in (512, 2048):
        # One step here, several of 512 tokens there: each program's own way.
        shape = {"tokens": tokens, "context": 0, "repeats": 1}
        yield pair(f"prefill {tokens}", shape, {"prompt": tokens, "new": 1, "batch": 1}, 0)
    for batch in DECODES:
        shape = {"batch": batch, "context": 48, "repeats": 21}
        yield pair(f"decode {batch}", shape, {"prompt": 32, "new": 32, "batch": batch}, 1)
    for context in CONTEXTS:
        shape = {"context": context, "repeats": 11}
        peer = {"prompt": context - 8, "new": 16, "batch": 1}
        yield pair(f"decode 1 at {context}", shape, peer, 1)


class Measured(Server):
    """A server of either program."""

    def __init__(self, command, port):
        super().__init__(command, port, "/health")

    def peak_memory(self):
        """Most memory it ever held, in MB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1000

    def chat(self, content, tokens, schema):
        """Tokens of one streamed answer, and seconds to the first of its text."""
        body = {
            "model": "smollm2",
            "messages": [{"role": "user", "content": content}],
            "max_tokens": tokens,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if schema:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True},
            }
        else:
            body["ignore_eos"] = True
        request = urllib.request.Request(
            self.url("/v1/chat/completions"),
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        begin, first, counted = time.monotonic(), None, 0
        with urllib.request.urlopen(request, timeout=300) as response:
            for line in response:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                if first is None and any(c["delta"].get("content") for c in chunk["choices"]):
                    first = time.monotonic() - begin
                counted = (chunk.get("usage") or {}).get("completion_tokens", counted)
        # An answer may have no text: its end is what the client sees first.
        return counted, first or time.monotonic() - begin


def servers(programs, model, threads, clients, context=512):
    """Ways to start both servers for so many clients."""

    def ours():
        port = free_port()
        command = [FORMWORK, "serve", "--model", model, "--model-id", "smollm2", "--port", port]
        data = ROOT / "target" / "peers" / f"data-{port}"
        return Measured([*command, "--threads", threads, "--data-dir", data], port)

    def theirs():
        port = free_port()
        command = [programs / "llama-server", "-m", model, "-t", threads, "-tb", threads]
        command += ["--host", "127.0.0.1", "--port", port, "-np", clients, "-c", clients * context]
        return Measured(command, port)

    return ours, theirs


def throughput(start, clients, schema):
    """Output tokens per second of all clients together, time to first text, and peak memory."""
    # About 180 tokens, another text for each client.
    filler = "The hill behind the house is old, and nobody knows who planted the trees on it. " * 8
    prompts = [f"Story {n}. {filler}Describe one thing on the hill." for n in range(clients)]
    kind = f"{clients} {'schema' if schema else 'free'}"
    with start() as server, concurrent.futures.ThreadPoolExecutor(clients) as pool:
        server.chat("Hello", 4, schema)
        begin = time.monotonic()
        answers = list(pool.map(lambda prompt: server.chat(prompt, 64, schema), prompts))
        seconds = time.monotonic() - begin
        return {
            f"served {kind}": sum(tokens for tokens, _ in answers) / seconds,
            f"served {kind}, TTFT ms": 1000 * statistics.median(first for _, first in answers),
            f"served {kind}, peak MB": server.peak_memory(),
        }


def cached_prefix(start):
    """Milliseconds to the first token after a prompt of about 1,500 tokens: unseen, and seen before."""
    filler = "The hill behind the house is old, and nobody knows who planted the trees on it. " * 80
    with start() as server:
        server.chat("Hello", 4, False)
        _, cold = server.chat(filler + "First question?", 1, False)
        _, warm = server.chat(filler + "Second question?", 1, False)
        return {"TTFT of a long prompt, ms": 1000 * cold, "TTFT, prefix cached, ms": 1000 * warm}


def served_pairs(programs, model, threads):
    for clients in (8, 32):
        ours, theirs = servers(programs, model, threads, clients)
        for schema in (False, True):
            yield (
                f"served {clients} {'schema' if schema else 'free'}",
                lambda a=ours, c=clients, s=schema: throughput(a, c, s),
                lambda b=theirs, c=clients, s=schema: throughput(b, c, s),
            )
    ours, theirs = servers(programs, model, threads, 1, context=4096)
    yield "TTFT", lambda: cached_prefix(ours), lambda: cached_prefix(theirs)


def measure(label, pairs, rounds, only):
    """Takes each pair in turn, `rounds` times, and prints medians and their ratio."""
    for name, ours, theirs in pairs:
        if only and not re.search(only, name):
            continue
        figures = [(ours(), theirs()) for _ in range(rounds)]
        for row in figures[0][0]:
            mine, peer = (statistics.median(run[side][row] for run in figures) for side in (0, 1))
            load = os.getloadavg()[0]
            print(
                f"{label:6} {row:28} {mine:8.1f} {peer:8.1f}  {mine / peer:5.2f}   load {load:.1f}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="a Q4_1 GGUF file")
    parser.add_argument("--home", type=pathlib.Path, default=ROOT / "target" / "peers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="measurements whose name matches")
    arguments = parser.parse_args()
    programs = build(arguments.home)
    requantised = arguments.home / "q4_0.gguf"
    if not requantised.exists():
        quantize = [programs / "llama-quantize", "--allow-requantize", arguments.model]
        run([*quantize, requantised, "Q4_0", arguments.threads], 300, stdout=subprocess.DEVNULL)
    print(f"{'FILE':6} {'WHAT':28} {'FORMWORK':>8} {'LLAMA':>8}  RATIO")
    threads, rounds, only = arguments.threads, arguments.rounds, arguments.only
    for label, model in (("Q4_1", arguments.model), ("Q4_0", requantised)):
        measure(label, forward_pairs(programs, model, threads), rounds, only)
    measure("Q4_1", served_pairs(programs, arguments.model, threads), rounds, only)


if __name__ == "__main__":
    main()
