"""A whole machine in the emulator Bochs: where its parts come from, how it boots, what it prints."""

import os
import pathlib
import platform
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

HOME = pathlib.Path(__file__).resolve().parents[2] / "target" / "emulated"
PACKAGES = ["bochs", "bochs-term", "bochsbios", "vgabios", "busybox-static", "genisoimage"]
PACKAGES += ["isolinux", "syslinux-common"]
KERNEL = "linux-image-cloud-amd64"
LIBRARIES = "usr/lib/x86_64-linux-gnu"

# The machine's clock counts instructions, this many to the second.
THOUSANDS_PER_SECOND = 25_000
SETTINGS = """\
config_interface: textconfig
display_library: term
memory: guest=1024, host=1024
cpu: model={processor}, count=1, ips={thousands}000, reset_on_triple_fault=0
romimage: file={bios}
vgaromimage: file={video}
ata0-master: type=cdrom, path={disc}, status=inserted
boot: cdrom
com1: enabled=1, mode=term, dev={serial}
log: {log}
panic: action=fatal
"""

KERNEL_OPTIONS = [
    "initrd=/initrd",
    "console=ttyS0,115200",
    "loglevel=3",
    "panic=-1",
    # What the kernel believes of the clock from the processor's name is wrong here.
    f"tsc_early_khz={THOUSANDS_PER_SECOND}",
    "tsc=reliable",
    # The emulated processor describes its XSAVE areas wrongly where these are on, upon which the kernel
    # turns off AVX and all that builds on it.
    "clearcpuid=pku,xsavec,xsaves"
    # With this but without fast strings, which the emulator lacks, the kernel moves memory past its end.
    + ",fsrm"
    # Read at each tick, and not there.
    + ",aperfmperf",
    # What would take longer than the tests' own start.
    "mitigations=off",
    "lsm=none",
    "init_on_alloc=0",
    "cryptomgr.notests",
]
BOOT = "DEFAULT linux\nPROMPT 0\nLABEL linux\n  KERNEL /vmlinuz\n  APPEND {options}\n"


def unpacked(name):
    """A file of the unpacked packages."""
    return HOME / "root" / name


def call(command, seconds, **options):
    """Output of a command that ends within a time."""
    words = [str(word) for word in command]
    options = {"check": True, "text": True, "stdout": subprocess.PIPE, **options}
    return subprocess.run(words, timeout=seconds, **options).stdout


def download(archives):
    """Fetches the packages, and of those they need what this machine lacks."""
    options = ["-qq", "-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1"]
    options += ["-o", "APT::Sandbox::User=root"]
    flags = ["--yes", "--download-only", "--reinstall", "--no-install-recommends"]
    call(["apt-get", *options, *flags, "install", *PACKAGES], 600)
    # Alone, without the packages that would install it.
    [image] = re.findall(r"Depends: (linux-image-\S+)", call(["apt-cache", "depends", KERNEL], 60))
    call(["apt-get", *options, "download", image], 600, cwd=archives)


def fetch():
    """Fetches and unpacks what the machine is made of, once."""
    ready = HOME / "ready"
    if ready.exists():
        return
    if platform.machine() != "x86_64":
        sys.exit("the tests are programs for x86-64, and this machine is another")
    for tool in ["apt-get", "apt-cache", "dpkg-deb"]:
        if not shutil.which(tool):
            sys.exit(f"{tool} is missing: the emulator and its kernel come as Debian's packages")
    shutil.rmtree(HOME, ignore_errors=True)
    archives = HOME / "archives"
    (archives / "partial").mkdir(parents=True)
    try:
        download(archives)
    except (subprocess.CalledProcessError, ValueError) as error:
        sys.exit(f"apt cannot fetch {', '.join([*PACKAGES, KERNEL])}: {error}; does it know them? (apt-get update)")
    unpacked("").mkdir()
    for archive in archives.glob("*.deb"):
        call(["dpkg-deb", "-x", archive, unpacked("")], 120)
    shutil.rmtree(archives)
    ready.touch()


def environment():
    """For programs that were unpacked rather than installed."""
    return {
        **os.environ,
        "LD_LIBRARY_PATH": f"{unpacked(LIBRARIES)}:{unpacked('lib/x86_64-linux-gnu')}",
        "LTDL_LIBRARY_PATH": str(unpacked(f"{LIBRARIES}/bochs/plugins")),
        "BXSHARE": str(unpacked("usr/share/bochs")),
        "TERM": "vt100",
    }


def burn(file_system):
    """A disc that boots the kernel with this file system."""
    contents = HOME / "disc"
    shutil.rmtree(contents, ignore_errors=True)
    (contents / "isolinux").mkdir(parents=True)
    [kernel] = unpacked("boot").glob("vmlinuz-*")
    shutil.copy(kernel, contents / "vmlinuz")
    (contents / "initrd").write_bytes(file_system)
    (contents / "isolinux" / "isolinux.cfg").write_text(BOOT.format(options=" ".join(KERNEL_OPTIONS)))
    for part in ["ISOLINUX/isolinux.bin", "syslinux/modules/bios/ldlinux.c32"]:
        shutil.copy(unpacked("usr/lib") / part, contents / "isolinux")
    disc = HOME / "disc.iso"
    command = [unpacked("usr/bin/genisoimage"), "-quiet", "-R", "-o", disc]
    command += ["-b", "isolinux/isolinux.bin", "-c", "isolinux/boot.cat"]
    command += ["-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", contents]
    call(command, 120, env=environment())
    return disc


def start(processor, disc, serial):
    """Switches the machine on."""
    settings = HOME / "bochsrc"
    settings.write_text(
        SETTINGS.format(
            processor=processor,
            thousands=THOUSANDS_PER_SECOND,
            bios=unpacked("usr/share/bochs/BIOS-bochs-latest"),
            video=unpacked("usr/share/vgabios/vgabios.bin"),
            disc=disc,
            serial=serial,
            log=HOME / "bochs.txt",
        )
    )
    machine = subprocess.Popen(
        [str(unpacked("usr/bin/bochs-bin")), "-q", "-f", str(settings)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # The package's emulator is a debugger, which waits for a command: continue.
    machine.stdin.write(b"c\n")
    machine.stdin.flush()
    return machine


def run(processor, file_system, seconds):
    """Boots a machine until it switches itself off. Prints what it writes to its serial line, and returns it."""
    disc = burn(file_system)
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    machine = start(processor, disc, os.ttyname(theirs))
    deadline = time.monotonic() + seconds
    output = ""
    try:
        while time.monotonic() < deadline:
            ended = machine.poll() is not None
            try:
                text = os.read(ours, 65536).decode(errors="replace").replace("\r", "")
            except BlockingIOError:
                if ended:
                    return output
                time.sleep(0.1)
                continue
            print(text, end="", flush=True)
            output += text
    finally:
        machine.kill()
        machine.wait()
        os.close(ours)
        os.close(theirs)
    sys.exit(f"the emulated machine was not done within {seconds} s")
