"""A proxy between a client and a server, which loses what it is told to lose.

It knows where a request and a reply end, and forwards them one at a time, so that a test can say
exactly what the server ran and what the client heard.
"""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from durableq.scripts import ROOT, script

_NAMES = {script(path.stem).digest.encode(): path.stem for path in ROOT.glob("*.lua")}


@dataclass
class Fault:
    """What happens to chosen requests: by default the server runs them, and the reply is lost.

    `name` chooses them: a script's name, a command's, or None for every script call. The first
    `skip` of them pass, then `times` are hit. Where `chance` is given it decides about each.
    """

    name: str | None = None
    skip: int = 0
    times: int = 1
    chance: Callable[[], bool] = lambda: True
    delivered: bool = True
    """Whether the server gets the request."""
    rest: bool = False
    """Whether the server gets those that were sent together with it and stand behind it."""
    kept: int = 0
    """How many bytes of the reply get through."""
    hang: bool = False
    """Whether the connection stays open, silent, until the client gives up."""
    harmless: bool = False
    """Whether the whole reply gets through: for what is done `before` and `after`."""
    before: Callable[[], Any] = lambda: None
    after: Callable[[], Any] = lambda: None
    hits: int = 0
    reply: bytes = b""
    """The last reply that was hit."""

    def hit(self, name: str, called: bool) -> bool:
        if self.hits == self.times or not (called if self.name is None else name == self.name):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if not self.chance():
            return False
        self.hits += 1
        return True


class Proxy:
    """Listens on a port of its own for as long as its `with` block lasts."""

    def __init__(self, url: str) -> None:
        self.target, self._target = url, urlsplit(url)
        self._guard = threading.Lock()
        self._faults: list[Fault] = []
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closing = False
        self.away = False
        """Whether connections are closed as soon as they are made, or used."""
        self.seen: list[str] = []
        """The names of the scripts and commands that came, in order."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        self._closing = True
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()  # wakes the listener
        with self._guard:
            for there in self._sockets:
                with suppress(OSError):
                    there.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def fault(self, name: str | None = None, **what: Any) -> Fault:
        """Plan a fault; earlier ones come first."""
        fault = Fault(name, **what)
        with self._guard:
            self._faults.append(fault)
        return fault

    def go(self) -> None:
        """Be away, as a server that was switched off."""
        self.away = True

    def come_back(self) -> None:
        """Be there again, and forward everything."""
        with self._guard:
            self._faults.clear()
        self.away = False

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=work, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with self._listener:
            while not self._closing:
                client, _ = self._listener.accept()
                if self._closing or self.away:
                    client.close()
                else:
                    self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), _connected(self._target) as server:
            with self._guard:
                if self._closing:
                    return
                self._sockets |= {client, server}
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                self._forward(client, server)
            finally:
                with self._guard:
                    self._sockets -= {client, server}

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        requests, replies = _Stream(client), _Stream(server)
        while (request := requests.next()) and not self.away:
            fault = self._chosen(request)
            if fault is not None:
                fault.before()
                if not fault.delivered:
                    return
            with suppress(OSError):
                server.sendall(request)
            reply = replies.next()
            if fault is not None:
                fault.reply = reply
                if fault.rest:
                    for more in requests.rest():
                        server.sendall(more)
                        replies.next()
                fault.after()
            kept = fault is None or fault.harmless
            with suppress(OSError):
                client.sendall(reply if kept else reply[: fault.kept])
            if fault is not None and fault.hang:
                requests.next()
            if not kept or not reply:
                return

    def _chosen(self, request: bytes) -> Fault | None:
        words, _ = _parsed(request)
        called = words[0] == b"EVALSHA"
        name = _NAMES.get(words[1], "?") if called else words[0].decode().lower()
        with self._guard:
            self.seen.append(name)
            return next((fault for fault in self._faults if fault.hit(name, called)), None)


class _Stream:
    """The requests or replies that come out of a socket, as bytes; b"" when it has ended."""

    def __init__(self, there: socket.socket) -> None:
        self._socket, self._data = there, b""

    def next(self) -> bytes:
        while not (found := self._take()):
            try:
                more = self._socket.recv(65536)
            except OSError:
                more = b""
            if not more:
                return b""
            self._data += more
        return found

    def rest(self) -> list[bytes]:
        """What comes without a pause."""
        self._socket.settimeout(0.004)
        found = list(iter(self.next, b""))
        self._socket.settimeout(None)
        return found

    def _take(self) -> bytes:
        try:
            _, end = _parsed(self._data)
        except ValueError:
            return b""
        found, self._data = self._data[:end], self._data[end:]
        return found


def _parsed(data: bytes, at: int = 0) -> tuple[Any, int]:
    """Return the value of the RESP2 or RESP3 text at `at`, and where it ends, or ValueError."""
    kind, end = data[at : at + 1], data.index(b"\r\n", at)
    head, at = data[at + 1 : end], end + 2
    if kind in b"$=!":
        end = at + int(head)
        if end < at:
            return None, at
        if len(data) < end + 2:
            raise ValueError
        return data[at:end], end + 2
    if kind in b"*~>%|":
        items = []
        for _ in range(int(head) * (2 if kind in b"%|" else 1)):
            item, at = _parsed(data, at)
            items.append(item)
        return items, at
    return head, at


def _connected(target: Any) -> socket.socket:
    if target.scheme == "unix":
        server = socket.socket(socket.AF_UNIX)
        server.connect(target.path)
        return server
    return socket.create_connection((target.hostname, target.port))
