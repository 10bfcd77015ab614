"""Decompression by magic bytes, streaming, of files with any number of members; what does not end as its format says is an error.

The standard readers of bz2 and xz drop what follows a damaged second member, and those of zstd take a cut frame for a whole one; so the loop
over members is here: a member must end, and what follows it must be another member or the padding its format allows.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import zstandard

CHUNK = 1 << 20
"""Most bytes that one step gives, so that a small input cannot fill the memory."""

_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_MAGIC_BYTES = 8

MAGIC = {
    "gzip": (b"\x1f\x8b",),
    "zstd": (b"\x28\xb5\x2f\xfd", *(n.to_bytes(4, "little") for n in _SKIPPABLE)),
    "bz2": tuple(b"BZh%d" % level for level in range(1, 10)),
    "xz": (b"\xfd7zXZ\x00",),
}
REFUSED = {
    "zip": (b"PK\x03\x04", b"PK\x05\x06"),
    "7z": (b"7z\xbc\xaf\x27\x1c",),
    "rar": (b"Rar!\x1a\x07",),
    "lz4": (b"\x04\x22\x4d\x18",),
    "compress": (b"\x1f\x9d",),
}
SUFFIXES = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".xz": "xz"}


@dataclass(frozen=True)
class Caps:
    """Bounds on what a file may become. ``ratio`` holds once ``free`` bytes have come out, so that small files may be as repetitive as they like."""

    output: int = 1 << 42
    ratio: int = 1000
    free: int = 64 << 20
    members: int = 10_000_000
    window: int = 1 << 27


DEFAULT_CAPS = Caps()


def compression_of(head: bytes) -> str:
    """``gzip``, ``zstd``, ``bz2``, ``xz`` or ``none``, by the first bytes. ``ValueError`` for an archive that is not read.

    >>> compression_of(bytes.fromhex("1f8b08")), compression_of(b'{"text":')
    ('gzip', 'none')
    """
    for name, magics in MAGIC.items():
        if head.startswith(magics):
            return name
    for name, magics in REFUSED.items():
        if head.startswith(magics):
            raise ValueError(f"a {name} archive is not read: unpack it and pin what is in it")
    return "none"


def disagreement(name: str, compression: str) -> str | None:
    """One line where a file's name promises another compression than its bytes have, else None.

    >>> disagreement("a.jsonl.gz", "none")
    'a.jsonl.gz is named as gzip, but its bytes are none'
    """
    promised = next((c for suffix, c in SUFFIXES.items() if name.lower().endswith(suffix)), None)
    return f"{name} is named as {promised}, but its bytes are {compression}" if promised not in (None, compression) else None


def decompress(chunks: Iterable[bytes], caps: Caps = DEFAULT_CAPS) -> Iterator[bytes]:
    """The plain bytes of one file, in pieces of at most ``CHUNK`` bytes, from its bytes in chunks of any size.

    ``ValueError`` for a member that is cut short or damaged, for bytes after a member that are neither padding nor a member, and for what exceeds
    ``caps``; it says at which byte of the file.
    """
    feed = _Feed(chunks)
    name = compression_of(feed.peek(_MAGIC_BYTES))
    if name == "none":
        while data := feed.take():
            yield data
        return
    members = _Members(name, feed, caps)
    while members.begin():
        yield from members.read()


class _Feed:
    """The file's bytes, with a look ahead and a count of what was used."""

    def __init__(self, chunks: Iterable[bytes]):
        self._chunks = iter(chunks)
        self._held = b""
        self.used = 0

    def peek(self, n: int) -> bytes:
        while len(self._held) < n and (more := next(self._chunks, None)) is not None:
            self._held += more
        return self._held[:n]

    def take(self) -> bytes:
        """Some bytes, at most CHUNK; empty at the end."""
        while not self._held:
            more = next(self._chunks, None)
            if more is None:
                return b""
            self._held = more
        data, self._held = self._held[:CHUNK], self._held[CHUNK:]
        self.used += len(data)
        return data

    def give_back(self, data: bytes) -> None:
        self._held = data + self._held
        self.used -= len(data)

    def drop(self, n: int) -> int:
        """Skip ``n`` bytes and say how many there were."""
        left = n
        while left and (data := self.take()):
            if len(data) > left:
                self.give_back(data[left:])
                data = data[:left]
            left -= len(data)
        return n - left


class _Decoder(Protocol):
    """One member. Empty input asks ``feed`` for what is still inside."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def feed(self, data: bytes) -> bytes: ...

    def hungry(self) -> bool: ...


class _Members:
    """The members of one file, one after the other, under the caps."""

    def __init__(self, name: str, feed: _Feed, caps: Caps):
        self._name, self._feed, self._caps = name, feed, caps
        self._output = self._count = 0

    def begin(self) -> bool:
        """Go to the next member; False at the end of the file."""
        head = self._feed.peek(_MAGIC_BYTES)
        if self._count:
            head = self._after_padding(head)
        if not head:
            return False
        if not head.startswith(MAGIC[self._name]):
            raise self._fault(
                f"{len(head)} or more bytes follow the last member and are no {self._name}: the file is damaged or holds something else"
            )
        self._count += 1
        if self._count > self._caps.members:
            raise self._fault(f"more than {self._caps.members} members")
        return True

    def read(self) -> Iterator[bytes]:
        head = self._feed.peek(_MAGIC_BYTES)
        if self._name == "zstd" and int.from_bytes(head[:4], "little") in _SKIPPABLE:
            self._skip(head)
            return
        decoder = self._decoder()
        while not decoder.eof:
            data = self._feed.take() if decoder.hungry() else b""
            if not data and decoder.hungry():
                raise self._fault("the file ends within a member: it was cut short")
            try:
                out = decoder.feed(data)
            except _ERRORS as error:
                raise self._fault(_plain(error)) from None
            if out:
                self._account(len(out))
            for start in range(0, len(out), CHUNK):
                yield out[start : start + CHUNK]
        self._feed.give_back(decoder.unused_data)

    def _after_padding(self, head: bytes) -> bytes:
        """What follows the padding that may stand between members: NUL bytes, for xz a multiple of four, for gzip up to the end."""
        if self._name not in ("xz", "gzip") or not head.startswith(b"\0"):
            return head
        padding = 0
        while head and not head.strip(b"\0"):
            padding += self._feed.drop(len(head))
            head = self._feed.peek(_MAGIC_BYTES)
        zeros = len(head) - len(head.lstrip(b"\0"))
        padding += self._feed.drop(zeros)
        if self._name == "xz" and padding % 4:
            raise self._fault(f"{padding} bytes of padding, which is no multiple of four")
        return self._feed.peek(_MAGIC_BYTES)

    def _skip(self, head: bytes) -> None:
        if len(head) < 8:
            raise self._fault("the file ends within a member: it was cut short")
        size = 8 + int.from_bytes(head[4:8], "little")
        if self._feed.drop(size) < size:
            raise self._fault("the file ends within a skippable frame: it was cut short")

    def _decoder(self) -> _Decoder:
        if self._name == "zstd":
            return _Zstd(self._feed, self._caps.window)
        decoder: _Decoder = _DECODERS[self._name]()
        return decoder

    def _account(self, n: int) -> None:
        self._output += n
        if self._output > self._caps.output:
            raise self._fault(f"more than {self._caps.output} bytes come out")
        if self._output > self._caps.free and self._output > self._caps.ratio * self._feed.used:
            raise self._fault(f"it grows more than {self._caps.ratio} times, as a decompression bomb does")

    def _fault(self, what: str) -> ValueError:
        return ValueError(f"{self._name}, member {max(self._count, 1)}, near byte {self._feed.used}: {what}")


class _Zlib:
    def __init__(self) -> None:
        self._z = zlib.decompressobj(wbits=31)
        self._tail = b""
        self._full = False

    eof = property(lambda self: self._z.eof)
    unused_data = property(lambda self: self._z.unused_data)

    def hungry(self) -> bool:
        return not self._tail and not self._full

    def feed(self, data: bytes) -> bytes:
        out = self._z.decompress(self._tail + data, CHUNK)
        self._tail, self._full = self._z.unconsumed_tail, len(out) == CHUNK and not self._z.eof
        return out


class _Standard:
    """bz2 and lzma have the same interface."""

    def __init__(self, make: Callable[[], Any]):
        self._d = make()

    eof = property(lambda self: self._d.eof)
    unused_data = property(lambda self: self._d.unused_data)

    def hungry(self) -> bool:
        return bool(self._d.needs_input)

    def feed(self, data: bytes) -> bytes:
        return bytes(self._d.decompress(data, CHUNK))


class _Zstd:
    """zstandard cannot bound what one call gives, so it is fed little: 128 KiB come out of as few as 4 bytes, so at most 32 MiB of a bite."""

    _BITE = 1 << 10

    def __init__(self, feed: _Feed, window: int):
        head = feed.peek(18)
        need = zstandard.get_frame_parameters(head).window_size if len(head) >= 5 else 0
        if need > window:
            raise ValueError(
                f"zstd: the frame needs a window of {need} bytes and {window} are allowed: unpack it (zstd -d --long=31) if you trust it, and pin what is in it"
            )
        self._d = zstandard.ZstdDecompressor(max_window_size=max(window, 1 << 10)).decompressobj()
        self._rest = b""

    eof = property(lambda self: self._d.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._d.unused_data) + self._rest

    def hungry(self) -> bool:
        return not self._rest

    def feed(self, data: bytes) -> bytes:
        data = self._rest + data
        bite, self._rest = data[: self._BITE], data[self._BITE :]
        return bytes(self._d.decompress(bite))


_DECODERS: dict[str, Callable[[], Any]] = {
    "gzip": _Zlib,
    "bz2": lambda: _Standard(bz2.BZ2Decompressor),
    "xz": lambda: _Standard(lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=1 << 28)),
}
_ERRORS = (zlib.error, OSError, lzma.LZMAError, zstandard.ZstdError, EOFError)


def _plain(error: Exception) -> str:
    return f"damaged ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
