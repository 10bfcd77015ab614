"""A web server that does exactly what it is told, down to the byte, and remembers every byte it was asked.

Each path has a list of answers, used in order, the last one again and again. A real HTTP library cannot lie about framing; this one can.
"""

import socket
import ssl
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

REASONS = {200: "OK", 206: "Partial Content", 302: "Found", 404: "Not Found", 416: "Range Not Satisfiable", 503: "Service Unavailable"}


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


Answer = Callable[[socket.socket, Request, threading.Event], None]


def head(status: int, headers: dict[str, object], close: bool = True) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, *(["Connection: close"] if close else []), "", ""]).encode()


def raw(data: bytes) -> Answer:
    return lambda conn, request, stop: conn.sendall(data)


def reply(status: int, body: bytes = b"", **headers: object) -> Answer:
    """An answer with Content-Length, unless ``Content_Length=None``; underscores in names are dashes."""
    fields: dict[str, object] = {"Content-Length": len(body)} | {k.replace("_", "-"): v for k, v in headers.items()}
    return raw(head(status, {k: v for k, v in fields.items() if v is not None}) + body)


def ok(body: bytes, **headers: object) -> Answer:
    return reply(200, body, **headers)


def served(body: bytes, **headers: object) -> Answer:
    """What a good server does: 206 for a range it can serve, 416 for one it cannot, 200 without one, all on one connection."""

    def answer(conn: socket.socket, request: Request, stop: threading.Event) -> None:
        fields = {k.replace("_", "-"): v for k, v in headers.items()} | {"Accept-Ranges": "bytes"}
        start, end = span(request, len(body))
        if_range = request.headers.get("if-range")
        if request.range is None or (if_range is not None and if_range != headers.get("ETag")):
            conn.sendall(head(200, {"Content-Length": len(body), **fields}, close=False) + body)
        elif start >= len(body):
            conn.sendall(head(416, {"Content-Length": 0, "Content-Range": f"bytes */{len(body)}"}, close=False))
        else:
            piece = body[start:end]
            told = {"Content-Length": len(piece), "Content-Range": f"bytes {start}-{start + len(piece) - 1}/{len(body)}"}
            conn.sendall(head(206, {**told, **fields}, close=False) + piece)

    answer.keep = True  # type: ignore[attr-defined]
    return answer


def span(request: Request, size: int) -> tuple[int, int]:
    if request.range is None:
        return 0, size
    first, _, last = request.range.removeprefix("bytes=").partition("-")
    return int(first), min(size, int(last) + 1) if last else size


def cut(body: bytes, n: int, **headers: object) -> Answer:
    """The head of a good answer, and only the next ``n`` bytes of what it promises."""

    def answer(conn: socket.socket, request: Request, stop: threading.Event) -> None:
        start, _ = span(request, len(body))
        rest = body[start:]
        fields = {k.replace("_", "-"): v for k, v in headers.items()}
        if request.range is None:
            conn.sendall(head(200, {"Content-Length": len(body), **fields}) + rest[:n])
        else:
            told = {"Content-Length": len(rest), "Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
            conn.sendall(head(206, {**told, **fields}) + rest[:n])

    return answer


def rst(data: bytes = b"") -> Answer:
    """Send ``data``, then reset the connection."""

    def answer(conn: socket.socket, request: Request, stop: threading.Event) -> None:
        conn.sendall(data)
        time.sleep(0.01 if data else 0)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return answer


def stall(data: bytes = b"") -> Answer:
    """Send ``data``, then nothing until the server stops or the other side goes."""

    def answer(conn: socket.socket, request: Request, stop: threading.Event) -> None:
        conn.sendall(data)
        conn.settimeout(0.02)
        while not stop.is_set():
            with suppress(TimeoutError):
                if not conn.recv(1):
                    return

    return answer


def drip(data: bytes, body: bytes, pause: float) -> Answer:
    """Send ``data``, then ``body`` a byte at a time."""

    def answer(conn: socket.socket, request: Request, stop: threading.Event) -> None:
        conn.sendall(data)
        for byte in body:
            if stop.wait(pause):
                return
            conn.sendall(bytes([byte]))

    return answer


def chunked(*pieces: bytes, end: bytes = b"0\r\n\r\n", status: int = 200, **headers: object) -> Answer:
    fields = {"Transfer-Encoding": "chunked"} | {k.replace("_", "-"): v for k, v in headers.items()}
    return raw(head(status, fields) + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + end)


@dataclass
class Server:
    """Loopback only. ``most`` is the largest number of requests that were in flight at once."""

    tls: ssl.SSLContext | None = None
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    most: int = 0
    connections: int = 0

    def __post_init__(self) -> None:
        self._used: defaultdict[str, int] = defaultdict(int)
        self._stop, self._lock, self._flying = threading.Event(), threading.Lock(), 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def on(self, path: str, *answers: Answer) -> str:
        """Give ``path`` its answers and tell its URL."""
        self.answers[path], self._used[path] = list(answers), 0
        return self.url(path)

    def url(self, path: str) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}{path}"

    def asked(self, path: str) -> list[Request]:
        return [r for r in self.requests if r.path == path]

    def close(self) -> None:
        self._stop.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn: socket.socket) -> None:
        with suppress(OSError), conn:
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls:
                conn = self.tls.wrap_socket(conn, server_side=True)
            while (request := _read(conn)) is not None:
                with self._lock:
                    self.requests.append(request)
                    answers = self.answers.get(request.path) or [reply(404)]
                    n = self._used[request.path]
                    self._used[request.path] += 1
                    self._flying += 1
                    self.most = max(self.most, self._flying)
                answer = answers[min(n, len(answers) - 1)]
                try:
                    answer(conn, request, self._stop)
                finally:
                    with self._lock:
                        self._flying -= 1
                if not getattr(answer, "keep", False):
                    with suppress(OSError):
                        conn.shutdown(socket.SHUT_WR)
                    return


def _read(conn: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = conn.recv(65536)
        if not more:
            return None
        data += more
    first, *lines = data.split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    return Request(first.split(" ")[1], headers, data)


@contextmanager
def running(tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(tls)
    try:
        yield server
    finally:
        server.close()
