"""A binary file that refuses reads and positions beyond stated bounds, whatever its headers claim."""

from __future__ import annotations

from typing import IO

MAX_READ = 2**26  # bytes in one read: honest tar headers and zip directories need far less


class BoundedFile:
    """Just enough of a file for tarfile and zipfile; ``last`` is what the last read gave."""

    def __init__(self, file: IO[bytes], total: int) -> None:
        self.file, self.total, self.last_read = file, total, b""

    def read(self, size: int = -1) -> bytes:
        """Read so many bytes, or all that are left."""
        if size > MAX_READ:
            raise ValueError(f"a header asks for {size} bytes at once, more than the {MAX_READ} allowed")
        size = size if size >= 0 else MAX_READ
        self._check_position(self.file.tell() + size)
        self.last_read = self.file.read(size)
        return self.last_read

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a position; from the end only in files whose size is known anyway."""
        if whence == 0:
            self._check_position(offset)
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self.file.tell()

    def seekable(self) -> bool:
        """True: zipfile asks."""
        return True

    def _check_position(self, position: int) -> None:
        if position > self.total + MAX_READ:  # a read may ask for more than is there
            raise ValueError(f"it unpacks to more than the {self.total} bytes allowed")
