"""A TCP proxy between a cache and its server that breaks things on demand."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Literal

Mood = Literal["pass", "hang", "cut", "slow", "refuse"]


class Proxy:
    """Forwards bytes to a unix socket, in one of these moods.

    ``pass``: at once; ``hang``: takes requests and answers nothing; ``cut``: closes in the middle of the
    first reply; ``slow``: waits `delay` seconds before each reply; ``refuse``: nobody listens.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self.mood: Mood = "pass"
        self.delay = 0.1
        self.round_trips = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]
        self._accept()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _listen(self, port: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
        return listener

    def _accept(self) -> None:
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def set(self, mood: Mood) -> None:
        """Change the mood; connections that exist are cut when it becomes ``refuse``."""
        before, self.mood = self.mood, mood
        if mood == "refuse":
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self.cut_all()
        elif before == "refuse":
            self._listener = self._listen(self.port)
            self._accept()

    def cut_all(self) -> None:
        """Close every connection."""
        with self._lock:
            open_now, self._open = self._open, set()
        for one in open_now:
            with contextlib.suppress(OSError):  # closed by the other side already
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._target)
            except OSError:
                client.close()
                server.close()
                continue
            with self._lock:
                self._open |= {client, server}
            threading.Thread(target=self._up, args=(client, server), daemon=True).start()
            threading.Thread(target=self._down, args=(client, server), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := client.recv(65536):
                self._hear(client, data)
                if self.mood == "hang":
                    continue
                server.sendall(data)
        except OSError:
            pass  # one side is gone; so is the other below
        self._end(client, server)

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := server.recv(65536):
                if self._keeps_back(client, data):
                    continue
                if self.mood == "slow":
                    time.sleep(self.delay)
                if self.mood == "cut":
                    client.sendall(data[: max(1, len(data) // 2)])
                    break
                if self.mood == "hang":
                    continue
                client.sendall(data)
        except OSError:
            pass  # one side is gone; so is the other below
        self._end(client, server)

    def _hear(self, client: socket.socket, data: bytes) -> None:
        """See a request; for subclasses."""

    def _keeps_back(self, client: socket.socket, data: bytes) -> bool:
        """Return whether a reply is swallowed; for subclasses."""
        return False

    def _end(self, *sockets: socket.socket) -> None:
        with self._lock:
            self._open -= set(sockets)
        for one in sockets:
            one.close()

    def close(self) -> None:
        if self.mood != "refuse":
            self.set("refuse")
