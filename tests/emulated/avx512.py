"""Runs tests on a processor that this machine need not have: one with AVX-512 VNNI, in the emulator Bochs.

The emulated machine boots a Debian kernel, runs the tests of kernels and some of the model's, and switches itself
off. The emulator and that kernel come through apt into target/emulated; nothing is installed and nobody need be root.
Passing takes that kernels found the expected instruction set there, that all tests passed, and that what tests print
as the same on all machines is what they print here. It says that results are right, and nothing about speed.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

import machine
from initramfs import Archive
from machine import HOME, call

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What is built, and which of it runs: of the model, what needs no model's file.
TESTS = {
    "formwork-kernels": [],
    "formwork-model": ["--test", "backend", "--test", "batch", "--test", "masked"],
}
FLAGS = ["--test-threads", "1", "--nocapture"]

# The first program of the emulated machine.
INIT = """\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
exec </dev/null >/dev/ttyS0 2>&1
export FORMWORK_EXPECT_ISA={expect}
failed=0
for test in /tests/*; do
    echo "== $test"
    $test {flags} || failed=$((failed + 1))
done
echo "failed programs: $failed"
$b poweroff -f
"""


def binaries():
    """The test programs, built."""
    found = []
    for package, which in TESTS.items():
        command = ["cargo", "test", "--package", package, *which, "--no-run"]
        lines = call([*command, "--message-format", "json"], 3600, cwd=ROOT).splitlines()
        messages = [json.loads(line) for line in lines]
        tests = [m["executable"] for m in messages if m.get("executable") and m["profile"]["test"]]
        if not tests:
            sys.exit(f"{package} has no tests")
        found += [pathlib.Path(test) for test in tests]
    return found


def file_system(tests, expect):
    """What the emulated machine starts with: tests, the libraries they load, and the program that runs them."""
    archive = Archive()
    for name in ["proc", "sys", "dev", "tmp"]:
        archive.folder(name)
    archive.console()
    archive.file("bin/busybox", machine.unpacked("bin/busybox").read_bytes())
    archive.file("init", INIT.format(expect=expect, flags=" ".join(FLAGS)).encode())
    libraries = set()
    for test in tests:
        libraries.update(re.findall(r"(/\S+) \(0x", call(["ldd", test], 60)))
        stripped = HOME / "stripped"
        call(["strip", "-o", stripped, test], 60)
        archive.file(f"tests/{test.name}", stripped.read_bytes())
        stripped.unlink()
    for library in sorted(libraries):
        archive.file(library, pathlib.Path(library).read_bytes())
    return archive.finished()


def promises(output):
    """What tests print as the same on all machines."""
    return re.findall(r"on all machines: (.*)", output)


def run_here(test):
    """Output of a test program on this machine, where it must pass, too."""
    try:
        options = {"env": {"FORMWORK_HOME": str(HOME / "nothing")}, "stderr": subprocess.STDOUT}
        return call([test, *FLAGS], 300, **options)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error.stdout}\n{test.name} fails on this machine")


def judge(output, here, tests, expect):
    """What is wrong with the output of the emulated machine."""
    there = promises(output)
    sets = re.findall(r"instruction sets under test: \[(.*)\]", output)
    if not sets or sets[0].split(", ")[-1] != expect:
        yield f"{expect} was not tested: the instruction sets were {sets}"
    if "failed programs: 0\n" not in output:
        yield "a test failed, or the machine stopped before the last one"
    passed = output.count("test result: ok.")
    if passed != len(tests):
        yield f"{passed} of {len(tests)} test programs passed"
    if not here or here != there:
        yield f"results differ: {here} on this machine, {there} on the emulated one"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--processor", default="corei7_icelake_u", help="one that Bochs knows")
    parser.add_argument("--expect", default="Avx512Vnni", help="the instruction set that kernels find there")
    parser.add_argument("--seconds", type=int, default=3600, help="limit for the emulated machine")
    options = parser.parse_args()
    machine.fetch()
    tests = binaries()
    here = [line for test in sorted(tests) for line in promises(run_here(test))]
    print(f"{len(tests)} test programs on an emulated {options.processor}: takes minutes", flush=True)
    output = machine.run(options.processor, file_system(tests, options.expect), options.seconds)
    problems = list(judge(output, here, tests, options.expect))
    if problems:
        sys.exit("\n".join(problems))
    print(f"{options.expect}: {len(tests)} test programs passed on an emulated {options.processor}")


if __name__ == "__main__":
    main()
