"""Index files: how they are laid out, and what is checked before a byte of one is believed.

A file is a magic line, parts back to back, a JSON header that names each part with offset, size and
SHA-256, and a footer with the header's place and the SHA-256 of all but the parts. It appears under
its name whole or not at all. What the parts mean, `adaptive` knows.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from semcache.errors import UndecodableError

Part: TypeAlias = list[Any]  # offset, size, digest

MAGIC = b"semcache-index\n\x01"  # the last byte is the format's version
_FOOTER = struct.Struct("<QQ32s")  # header's offset, its size, digest of magic, header and the two numbers
_STALE = 3600.0  # seconds after which an unfinished file was left by a process that died


class SnapshotWriter:
    """Writes parts, then the header that vouches for them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._offset = file.write(MAGIC)

    def part(self, data: bytes | npt.NDArray[Any]) -> Part:
        """Write one part; returns what the header must say of it."""
        view = np.ascontiguousarray(data).data.cast("B") if isinstance(data, np.ndarray) else data
        digest = hashlib.sha256(view).hexdigest()
        start, size = self._offset, len(view)
        self._file.write(view)
        self._offset += size
        return [start, size, digest]

    def json(self, value: object) -> Part:
        """Write one part as JSON."""
        return self.part(json.dumps(value, separators=(",", ":")).encode("ascii"))

    def header(self, header: dict[str, Any]) -> None:
        """Write the header; nothing may follow."""
        encoded = json.dumps(header, separators=(",", ":")).encode("ascii")
        self._file.write(encoded)
        self._file.write(_footer(self._offset, encoded))


def _footer(offset: int, header: bytes) -> bytes:
    digest = hashlib.sha256(MAGIC + struct.pack("<QQ", offset, len(header)) + header).digest()
    return _FOOTER.pack(offset, len(header), digest)


@contextmanager
def writing(path: Path) -> Iterator[SnapshotWriter]:
    """Give a writer whose file takes the place of `path` at the end, synced; on an error nothing changes.

    Raises:
        OSError: The file can't be written.
    """
    _sweep(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            yield SnapshotWriter(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _sweep(path: Path) -> None:
    """Remove what a process left that died while it wrote."""
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        try:
            if time.time() - left.stat().st_mtime > _STALE:
                left.unlink()
        except FileNotFoundError:  # another process was faster
            continue


class SnapshotReader:
    """Reads parts, each checked against its digest before it is returned.

    Raises:
        UndecodableError: The file isn't whole, isn't ours, or is of another version.
        OSError: The file can't be read.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        size = file.seek(0, os.SEEK_END)
        _demand(size >= len(MAGIC) + _FOOTER.size, f"it has {size} bytes")
        file.seek(0)
        _demand(file.read(len(MAGIC)) == MAGIC, "it isn't an index file of this version")
        file.seek(size - _FOOTER.size)
        footer = file.read(_FOOTER.size)
        offset, length, _ = _FOOTER.unpack(footer)
        _demand(len(MAGIC) <= offset and offset + length + _FOOTER.size == size, "its header is elsewhere")
        file.seek(offset)
        header = file.read(length)
        _demand(_footer(offset, header) == footer, "its header's checksum is wrong")
        self.header: dict[str, Any] = json.loads(header)
        self._end = offset

    def part(self, part: Part) -> bytearray:
        """Return one part's bytes."""
        offset, size, digest = part
        _demand(len(MAGIC) <= offset and size >= 0 and offset + size <= self._end, "a part is outside of it")
        data = bytearray(size)
        self._file.seek(offset)
        _demand(self._file.readinto(data) == size, "it ends early")  # type: ignore[attr-defined]
        _demand(hashlib.sha256(data).hexdigest() == digest, "a part's checksum is wrong")
        return data

    def array(self, part: Part, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return one part as a flat array."""
        data = self.part(part)
        _demand(len(data) % np.dtype(dtype).itemsize == 0, "a part is cut")
        return np.frombuffer(data, dtype=dtype)

    def json(self, part: Part) -> Any:
        """Return one part's value."""
        return json.loads(self.part(part))


def _demand(true: bool, otherwise: str) -> None:
    if not true:
        raise UndecodableError(f"the index file is refused: {otherwise}")
