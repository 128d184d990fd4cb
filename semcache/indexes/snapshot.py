"""Index files: how they are laid out, and what is checked before a byte of one is believed.

A file is a magic line, parts back to back, a JSON header that names each part with offset, size and
CRC-32, and a footer with the header's place and the SHA-256 of all but the parts. It appears under
its name whole or not at all. What the parts mean, `persistence` knows.

Embeddings, nearly all of a file, are read for their checksums and then used where the file is mapped: copying
hundreds of megabytes into fresh memory takes longer than all the rest. So a file is replaced, never written over.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import tempfile
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, Thread
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from semcache.errors import SemcacheError, UndecodableError

Part: TypeAlias = list[Any]  # offset, size, CRC-32
Check: TypeAlias = Callable[[npt.NDArray[Any]], None]

MAGIC = b"semcache-index\n\x02"  # the last byte is the format's version
_FOOTER = struct.Struct("<QQ32s")  # header's offset, its size, digest of magic, header and the two numbers
_STALE = 3600.0  # seconds after which an unfinished file was left by a process that died
_ALIGNED = 64  # bytes; where rows begin
_LONG = 1 << 21  # bytes of a part of many rows: read and summed while the processor's cache has them


class SnapshotWriter:
    """Writes parts, then the header that vouches for them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._offset = file.write(MAGIC)

    def part(self, data: bytes | npt.NDArray[Any]) -> Part:
        """Write one part; returns what the header must say of it."""
        view = np.ascontiguousarray(data).data.cast("B") if isinstance(data, np.ndarray) else data
        start, size = self._offset, len(view)
        self._file.write(view)
        self._offset += size
        return [start, size, zlib.crc32(view)]

    def texts(self, texts: Sequence[str]) -> Part:
        """Write one part as texts: as lines, which are read several times faster than JSON, if they have none."""
        lines = "\n".join(texts)
        if not texts or lines.count("\n") != len(texts) - 1:
            return self.json(list(texts))
        return self.part(f"\n{lines}".encode("utf-8", "surrogatepass"))

    def rows(self, data: npt.NDArray[Any]) -> list[Part]:
        """Write a two-dimensional array as parts that follow one another; the first only fills a gap."""
        gap = self.part(bytes(-self._offset % _ALIGNED))
        at_once = max(1, _LONG // max(1, data[:1].nbytes))
        return [gap, *(self.part(data[start : start + at_once]) for start in range(0, len(data), at_once))]

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
    """Reads parts, each checked against its checksum; as a context, since it checks rows in the background.

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
        self._reading = Lock()  # the file has one position
        self._map: mmap.mmap | None = None
        self._unchecked: deque[tuple[Part, Callable[[memoryview], None]]] = deque()
        self._due = 0  # parts that must turn out right before `settle` returns
        self._right: list[Part] = []
        self._wrong: list[Exception] = []
        self._checker: Thread | None = None  # helps to check rows

    def __enter__(self) -> SnapshotReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def part(self, part: Part) -> bytearray:
        """Return one part's bytes."""
        offset, size = self._place(part)
        data = bytearray(size)
        self._read(offset, memoryview(data), part)
        return data

    def _place(self, part: Part) -> tuple[int, int]:
        offset, size, _ = part
        _demand(len(MAGIC) <= offset and size >= 0 and offset + size <= self._end, "a part is outside of it")
        return offset, size

    def _read(self, offset: int, target: memoryview, part: Part) -> None:
        with self._reading:
            self._file.seek(offset)
            found = self._file.readinto(target)  # type: ignore[attr-defined]
        _demand(found == len(target), "it ends early")
        _demand(zlib.crc32(target) == part[2], "a part's checksum is wrong")

    def array(self, part: Part, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return one part as a flat array."""
        data = self.part(part)
        _demand(len(data) % np.dtype(dtype).itemsize == 0, "a part is cut")
        return np.frombuffer(data, dtype=dtype)

    def json(self, part: Part) -> Any:
        """Return one part's value."""
        return json.loads(self.part(part))

    def texts(self, part: Part) -> list[str]:
        """Return one part's texts."""
        data = self.part(part)
        if data.startswith(b"\n"):
            return data.decode("utf-8", "surrogatepass").split("\n")[1:]
        texts = json.loads(data)
        _demand(isinstance(texts, list) and set(map(type, texts)) <= {str}, "a text is none")
        found: list[str] = texts
        return found

    def rows(self, parts: Sequence[Part], dtype: npt.DTypeLike, width: int, check: Check) -> npt.NDArray[Any]:
        """Return what `SnapshotWriter.rows` wrote as an array of `width` columns, where the file is mapped.

        What is written to it stays in this process. None of it may be believed before `settle` has returned.

        Args:
            check: Called with the rows of each part, by any thread; raises for what can't be.
        """
        item = np.dtype(dtype)
        gap, *parts = parts
        self.part(gap)
        places = [self._place(part) for part in parts]
        if not places:
            return np.empty((0, width), dtype=item)
        start = end = places[0][0]
        for offset, size in places:
            _demand(offset == end and size % (width * item.itemsize) == 0, "rows aren't side by side")
            end += size
        _demand(start % _ALIGNED == 0, "rows begin at an odd place")
        if self._map is None:
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_COPY)
        flat = np.frombuffer(self._map, item, count=(end - start) // item.itemsize, offset=start)
        self._due += len(parts)
        self._unchecked.extend((part, lambda data: check(_as_rows(data, item, width))) for part in parts)
        self._check_beside()
        return flat.reshape(-1, width)

    def _check_beside(self) -> None:
        running = self._checker is not None and self._checker.is_alive()
        if not running and (os.cpu_count() or 1) > 1:
            checker = Thread(target=self._check, name="semcache-snapshot-check", daemon=True)
            try:
                checker.start()
            except RuntimeError:  # the interpreter is about to end, or there are too many: `settle` does it
                return
            self._checker = checker

    def _check(self) -> None:
        buffer = bytearray()
        while not self._wrong:
            try:
                part, check = self._unchecked.popleft()
            except IndexError:
                return
            if len(buffer) < part[1]:
                buffer = bytearray(part[1])
            data = memoryview(buffer)[: part[1]]
            try:
                self._read(part[0], data, part)
                check(data)
            except (SemcacheError, OSError, ValueError) as error:
                self._wrong.append(error)
            else:
                self._right.append(part)

    def settle(self) -> None:
        """Wait until all rows were checked, helping with it; raise what was wrong with one."""
        self._check()
        self.close()
        if self._wrong:
            raise self._wrong[0]
        _demand(len(self._right) == self._due, "not all of it could be checked")

    def close(self) -> None:
        """End what is done in the background; rows that were returned can still be used."""
        self._unchecked.clear()
        if self._checker is not None:
            self._checker.join()
            self._checker = None


def _as_rows(data: memoryview, item: np.dtype[Any], width: int) -> npt.NDArray[Any]:
    return np.frombuffer(data, dtype=item).reshape(-1, width)


def _demand(true: bool, otherwise: str) -> None:
    if not true:
        raise UndecodableError(f"the index file is refused: {otherwise}")
