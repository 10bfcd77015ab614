"""HTTP, the only module that knows aiohttp: one GET at a time, no hop followed, every fault named."""

import asyncio
import os
import socket
import ssl
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from corpusbuild.errors import CorpusError
from corpusbuild.origins import headers_by_origin, is_private, origin, own_authorities, proxy_for
from corpusbuild.resume import Answer

WINDOW_BYTES = 1024
"""A body that brings fewer bytes than this in ``WINDOW_TIMEOUTS`` timeouts is as good as dead, though it never falls silent."""

WINDOW_TIMEOUTS = 4


class Fault(CorpusError):
    """A request that brought no answer, or a body that broke off. ``retryable`` says whether another attempt can help."""

    def __init__(self, why: str, retryable: bool = True):
        super().__init__(why, retryable)
        self.why, self.retryable = why, retryable

    def __str__(self) -> str:
        return self.why


class Body:
    """An answer and the bytes that follow it."""

    def __init__(self, answer: Answer, response: aiohttp.ClientResponse, timeout: float, framed: bool, done: Callable[[], Awaitable[None]]):
        self.answer, self._response, self._timeout = answer, response, timeout
        self.done = done
        """Call when no more is wanted before the block ends: it gives the place at the host to the next."""
        self.framed = framed
        """Whether the server says where the body ends. Without it a cut looks like an end."""

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes, raw. ``Fault`` when it breaks off, stalls or drips, after everything that came before."""
        since, count = time.monotonic(), 0
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
                count += len(chunk)
                if (now := time.monotonic()) - since > WINDOW_TIMEOUTS * self._timeout:
                    if count < WINDOW_BYTES:
                        raise Fault(f"only {count} bytes came in {now - since:.0f} seconds")
                    since, count = now, 0
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            if left := _undelivered(self._response.content):
                yield left
            raise _fault(error, self._timeout) from error


def _end(response: aiohttp.ClientResponse) -> None:
    """Keep the connection where the body was read to its end; else close it."""
    if response.content.at_eof():
        response.release()
    else:
        response.close()


def _undelivered(content: Any) -> bytes:
    """What came before a fault. aiohttp keeps it, but every reader of it raises the fault first."""
    return b"".join(content._buffer)[content._buffer_offset :]


class Http:
    """A pool of connections, and what the environment says about them."""

    def __init__(
        self,
        *,
        timeout: float = 30.0,
        user_agent: str = "corpusbuild",
        environment: Mapping[str, str] | None = None,
        per_host: int = 0,
    ):
        self._timeout, self._per_host = timeout, per_host
        self._environment = dict(os.environ if environment is None else environment)
        self._headers = headers_by_origin(self._environment)
        self._user_agent = user_agent
        self._sessions: dict[tuple[bool, bool], aiohttp.ClientSession] = {}
        self._context: ssl.SSLContext | None = None
        self._hosts: dict[Any, asyncio.Semaphore] = {}

    async def __aenter__(self) -> "Http":
        return self

    async def __aexit__(self, *exc: object) -> None:
        for session in self._sessions.values():
            await session.close()

    @asynccontextmanager
    async def get(
        self, url: str, headers: Mapping[str, str], *, hops: int = 0, guarded: bool = False, sent: Callable[[], None] = lambda: None
    ) -> AsyncIterator[Body]:
        """The answer to one GET. ``guarded`` refuses to connect to a private address, whatever name it hides behind. ``sent`` is called for every
        request that goes out: aiohttp repeats one by itself when a kept connection turns out dead."""
        proxy = proxy_for(url, self._environment)
        if guarded and _literal_is_private(url):
            raise Fault("the redirect leads from a public to a private address; allow_private = true allows it", retryable=False)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._room(url))
            secure = url.startswith("https:") or (proxy or "").startswith("https:")
            session = self._session(guarded and proxy is None, secure)
            fields = {"User-Agent": self._user_agent, **self._headers.get(origin(url), {}), **headers}
            try:
                async with asyncio.timeout(2 * self._timeout):  # to connect, and until the last header: a drip of headers is no answer
                    response = await session.get(
                        URL(url, encoded=True), headers=fields, allow_redirects=False, proxy=proxy, trace_request_ctx=sent
                    )
            except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
                raise _fault(error, self._timeout) from error
            stack.callback(_end, response)
            names = {name.lower(): ", ".join(response.headers.getall(name)) for name in response.headers}
            framed = response.content_length is not None or "chunked" in names.get("transfer-encoding", "").lower()
            yield Body(Answer(response.status, names, url, hops), response, self._timeout, framed, stack.aclose)

    async def is_public(self, url: str) -> bool:
        """Whether the host of ``url`` is on the public net. A host that only a proxy can find counts as public."""
        host, port = urlsplit(url).hostname or "", origin(url)[2]
        if proxy_for(url, self._environment):
            return not _literal_is_private(url)
        try:
            found = await _addresses(host, port)
        except OSError:
            return True
        return not any(is_private(str(address[0])) for *_, address in found)

    @asynccontextmanager
    async def _room(self, url: str) -> AsyncIterator[None]:
        if not self._per_host:
            yield
            return
        room = self._hosts.setdefault(origin(url), asyncio.Semaphore(self._per_host))
        async with room:
            yield

    def _session(self, guarded: bool, secure: bool) -> aiohttp.ClientSession:
        if (guarded, secure) not in self._sessions:
            trace = aiohttp.TraceConfig()

            async def sent(_session: Any, context: Any, _params: Any) -> None:
                context.trace_request_ctx()

            trace.on_request_headers_sent.append(sent)
            connector = aiohttp.TCPConnector(
                ssl=self._tls() if secure else True,  # authorities take 30 ms to read
                limit=0,
                resolver=_Resolver(),
                ttl_dns_cache=60,
                socket_factory=_public_socket if guarded else None,
            )
            self._sessions[guarded, secure] = aiohttp.ClientSession(
                connector=connector,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=self._timeout),
                trust_env=False,  # it would read ~/.netrc too
                trace_configs=[trace],
                read_bufsize=1 << 20,
                max_line_size=32768,
                max_field_size=65536,
                requote_redirect_url=False,
            )
        return self._sessions[guarded, secure]

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = ssl.create_default_context()
            if own := own_authorities(self._environment):
                try:
                    self._context.load_verify_locations(own)
                except (OSError, ssl.SSLError) as error:
                    raise Fault(
                        f"the certificate authorities in {own} cannot be read ({error}): correct CURL_CA_BUNDLE", retryable=False
                    ) from error
        return self._context


class _Resolver(AbstractResolver):
    """The system's resolver in threads that nobody waits for: a name server that hangs must not hold up a cancel."""

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host, host=str(address[0]), port=int(address[1]), family=kind, proto=protocol, flags=socket.AI_NUMERICHOST
            )
            for kind, _, protocol, _, address in await _addresses(host, port, family)
        ]

    async def close(self) -> None:
        """Nothing is held."""


async def _addresses(host: str, port: int, family: int = 0) -> list[Any]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[Any]] = loop.create_future()

    def end(found: list[Any] | None, error: OSError | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(found or [])

    def look() -> None:
        found, error = None, None
        try:
            found = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        except OSError as e:
            error = e
        except UnicodeError as e:
            error = OSError(f"the host's name cannot be encoded ({e.reason if hasattr(e, 'reason') else e})")
        with suppress(RuntimeError):  # the loop has ended meanwhile, and with it who asked
            loop.call_soon_threadsafe(end, found, error)

    threading.Thread(target=look, name="resolve", daemon=True).start()
    return await future


class _PrivateAddress(OSError):
    pass


def _public_socket(address: Any) -> socket.socket:
    family, kind, protocol, _, where = address
    if is_private(str(where[0])):
        raise _PrivateAddress("private")
    return socket.socket(family, kind, protocol)


def _literal_is_private(url: str) -> bool:
    try:
        return is_private(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _fault(error: BaseException, timeout: float) -> Fault:
    """The fault behind an exception. The type is asked first: aiohttp gives status 400 to answers that never had one."""
    why = _causes(error)
    if any(isinstance(e, _PrivateAddress) for e in why):
        return Fault("the redirect leads from a public to a private address; allow_private = true allows it", retryable=False)
    if any(isinstance(e, ssl.SSLCertVerificationError | aiohttp.ClientConnectorCertificateError) for e in why):
        said = next((m for e in why if (m := getattr(e, "verify_message", ""))), "no reason given")
        return Fault(f"the server's certificate is not trusted ({said}); SSL_CERT_FILE names own authorities", retryable=False)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return Fault(f"the proxy answers {error.status}", retryable=error.status in (408, 429, 500, 502, 503, 504))
    if isinstance(error, aiohttp.InvalidURL):
        return Fault("the URL cannot be requested", retryable=False)
    if isinstance(error, asyncio.TimeoutError):
        return Fault(f"nothing came for {timeout:g} seconds")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Fault("the host's name cannot be resolved")
    if isinstance(error, aiohttp.ClientResponseError):
        return Fault("the answer is no HTTP")
    if isinstance(error, aiohttp.ClientPayloadError):
        return Fault("the body was cut or badly framed")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return Fault("the server closed the connection")
    if isinstance(error, aiohttp.ClientConnectorError):
        return Fault(f"no connection ({error.os_error.strerror or type(error.os_error).__name__})")
    if isinstance(error, ValueError):
        return Fault("the URL cannot be requested", retryable=False)
    return Fault(f"the connection broke ({getattr(error, 'strerror', None) or type(error).__name__})")


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what is behind it, through causes, groups and aiohttp's own wrapping."""
    out: list[BaseException] = []
    todo: list[BaseException | None] = [error]
    while todo:
        e = todo.pop()
        if e is None or any(e is known for known in out):
            continue
        out.append(e)
        todo += [e.__cause__, e.__context__, getattr(e, "os_error", None), getattr(e, "certificate_error", None)]
        todo += list(getattr(e, "exceptions", ()))
    return out
