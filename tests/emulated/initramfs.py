"""Archives that a Linux kernel unpacks as its first file system: cpio in the "newc" format."""

import pathlib
import stat

MAGIC = "070701"
TRAILER = "TRAILER!!!"


class Archive:
    """Files and folders, in the order they were added. Folders come before what is in them."""

    def __init__(self):
        self.parts = []
        self.folders = set()
        self.count = 0

    def _entry(self, name, mode, content=b"", device=(0, 0)):
        self.count += 1
        encoded = name.encode() + b"\0"
        # Inode, mode, owner, group, links, time, size, device of the file, device it stands for, name, sum.
        fields = [self.count, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0]
        header = MAGIC + "".join(f"{field:08x}" for field in fields)
        for part in (header.encode() + encoded, content):
            self.parts.append(part + bytes(-len(part) % 4))

    def folder(self, name):
        """Adds a folder and those around it, unless they are there."""
        for path in [*reversed(pathlib.PurePosixPath(name).parents), pathlib.PurePosixPath(name)]:
            inner = str(path).lstrip("/")
            if inner and inner != "." and inner not in self.folders:
                self.folders.add(inner)
                self._entry(inner, stat.S_IFDIR | 0o755)

    def file(self, name, content):
        """Adds an executable file."""
        self.folder(str(pathlib.PurePosixPath(name).parent))
        self._entry(name.lstrip("/"), stat.S_IFREG | 0o755, content)

    def console(self):
        """Adds the device that the kernel hands to the first program as its input and output."""
        self.folder("/dev")
        self._entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))

    def finished(self):
        """The archive, ended."""
        self._entry(TRAILER, 0)
        return b"".join(self.parts)
