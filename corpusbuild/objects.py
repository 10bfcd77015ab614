"""Object stores (``s3://``, ``gs://``) through fsspec, dressed as answers of a web server, so that the one decision table serves them too."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from corpusbuild.http import Fault
from corpusbuild.resume import Answer, Ask

EXTRAS = {"s3": "s3", "gs": "gs"}
READ_BYTES = 8 << 20


def is_object(url: str) -> bool:
    return url.partition("://")[0] in EXTRAS


class ObjectBody:
    """The bytes of one object from ``start`` to ``end``. It was asked for at a version, so a change cannot mix two."""

    framed = True

    def __init__(self, answer: Answer, read: Callable[[int, int], Awaitable[bytes]], start: int, end: int):
        self.answer, self._read, self._start, self._end = answer, read, start, end

    async def done(self) -> None:
        """Nothing is held between two reads."""

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        at = self._start
        while at < self._end:
            block = await self._read(at, min(at + READ_BYTES, self._end))
            if not block:
                raise Fault("the object store sent less than it has")
            yield block
            at += len(block)


@asynccontextmanager
async def get(
    url: str, asked: Ask, blocking: Callable[..., Awaitable[Any]], sent: Callable[[], None] = lambda: None
) -> AsyncIterator[ObjectBody]:
    """The answer that a web server would give to ``asked``. Credentials are those that the store's own library finds in the environment."""
    filesystem, path = await blocking(_filesystem, url)

    async def call(fn: Callable[..., Any], *args: Any) -> Any:
        sent()
        try:
            return await blocking(fn, *args)
        except Exception as error:  # each store's library has its own errors; what is not known here is raised on
            raise _fault(error) from error

    info = await call(filesystem.info, path)
    size, etag = int(info["size"]), str(info.get("ETag") or info.get("etag") or "").strip('"')
    headers = {"accept-ranges": "bytes"} | ({"etag": f'"{etag}"'} if etag else {})

    async def read(start: int, end: int) -> bytes:
        data: bytes = await call(partial(filesystem.cat_file, path, start=start, end=end))
        return data

    unchanged = asked.if_range is None or asked.if_range == headers.get("etag")
    if asked.start is None or not unchanged:
        answer, start, end = Answer(200, {**headers, "content-length": str(size)}, url), 0, size
    elif asked.start >= size:
        answer, start, end = Answer(416, {**headers, "content-range": f"bytes */{size}"}, url), 0, 0
    else:
        start, end = asked.start, size if asked.last is None else min(size, asked.last + 1)
        told = {"content-range": f"bytes {start}-{end - 1}/{size}", "content-length": str(end - start)}
        answer = Answer(206, {**headers, **told}, url)
    yield ObjectBody(answer, read, start, end)


def _filesystem(url: str) -> tuple[Any, str]:
    scheme = url.partition("://")[0]
    try:
        from fsspec.core import url_to_fs

        filesystem, path = url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise Fault(
            f"{scheme}:// needs a package that is not installed ({error.name}): pip install 'corpusbuild[{EXTRAS[scheme]}]'", False
        ) from error
    return filesystem, path


def _fault(error: Exception) -> Fault:
    if isinstance(error, FileNotFoundError):
        return Fault("404 Not Found: the object store has no such object", retryable=False)
    if isinstance(error, PermissionError) or type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
        return Fault("the object store refuses: credentials are missing in the environment, or may not read this", retryable=False)
    return Fault(f"the object store fails ({type(error).__name__})")
