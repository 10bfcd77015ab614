"""Who may be told what: headers by origin, proxies, and which addresses are private. Pure, but for the environment it is given."""

import ipaddress
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from corpusbuild.errors import ConfigError

HEADERS_VARIABLE = "CORPUSBUILD_HEADERS"
"""JSON: ``{"https://host": {"Authorization": "Bearer ..."}}``. A header is sent to its own origin and to no other."""

HUB_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
DEFAULT_HUB = "https://huggingface.co"
PORTS = {"http": 80, "https": 443}
_OURS = frozenset({"range", "if-range", "accept-encoding", "host", "user-agent", "connection", "content-length", "transfer-encoding"})

Origin = tuple[str, str, int]


def origin(url: str) -> Origin:
    """Scheme, host and port: what a browser calls the origin.

    >>> origin("https://H.example/x") == origin("https://h.example:443/y")
    True
    """
    parts = urlsplit(url)
    return parts.scheme.lower(), (parts.hostname or "").lower(), parts.port or PORTS.get(parts.scheme.lower(), 0)


def headers_by_origin(environment: Mapping[str, str]) -> dict[Origin, dict[str, str]]:
    """The headers that the environment gives to each origin. ``ConfigError`` for what cannot be read; it shows no value."""
    headers: dict[Origin, dict[str, str]] = {}
    token = next((environment[name] for name in HUB_VARIABLES if environment.get(name)), "")
    if token:
        headers[origin(hub(environment))] = {"Authorization": f"Bearer {token.strip()}"}
    for at, fields in _declared(environment).items():
        if urlsplit(at).scheme not in PORTS or not isinstance(fields, dict) or not all(map(_is_header, fields.items())):
            raise ConfigError(f'{HEADERS_VARIABLE}: {at!r} must be an origin such as "https://host" with a table of headers to send to it')
        headers.setdefault(origin(at), {}).update(fields)
    return headers


def hub(environment: Mapping[str, str]) -> str:
    """The Hub's address, which HF_ENDPOINT may move."""
    return environment.get("HF_ENDPOINT", "").rstrip("/") or DEFAULT_HUB


def is_private(address: str) -> bool:
    """Whether an IP address belongs to a machine or a local net rather than to the public one.

    >>> [is_private(a) for a in ("127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "8.8.8.8")]
    [True, True, True, False]
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    return not (mapped or ip).is_global


def proxy_for(url: str, environment: Mapping[str, str]) -> str | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY (in either case) set for ``url``.

    >>> proxy_for("http://h/x", {"http_proxy": "http://p:3128", "no_proxy": ".local"})
    'http://p:3128'
    """
    scheme, host, port = origin(url)
    bypass = _variable(environment, "no_proxy")
    if any(_bypassed(host, port, rule.strip().lower()) for rule in bypass.split(",") if rule.strip()):
        return None
    # a web server that runs us makes HTTP_PROXY of a request's header "Proxy:"; in capitals it is not believed there, as curl does not
    own = (
        environment.get("http_proxy", "")
        if scheme == "http" and "REQUEST_METHOD" in environment
        else _variable(environment, f"{scheme}_proxy")
    )
    proxy = own or _variable(environment, "all_proxy")
    return (proxy if "://" in proxy else f"http://{proxy}") if proxy else None


def own_authorities(environment: Mapping[str, str]) -> str | None:
    """A file of certificate authorities to trust besides the system's. SSL_CERT_FILE and SSL_CERT_DIR are read by OpenSSL itself."""
    return next((environment[n] for n in ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE") if environment.get(n)), None)


def _declared(environment: Mapping[str, str]) -> dict[str, object]:
    try:
        declared = json.loads(environment.get(HEADERS_VARIABLE) or "{}")
    except ValueError:
        declared = None
    if not isinstance(declared, dict):
        raise ConfigError(f'{HEADERS_VARIABLE} is not a JSON object; write {{"https://host": {{"Authorization": "Bearer ..."}}}}')
    return declared


def _is_header(item: tuple[object, object]) -> bool:
    name, value = item
    return (
        isinstance(name, str)
        and isinstance(value, str)
        and name.lower() not in _OURS
        and bool(name)
        and not any(c in name + value for c in "\r\n\0")
    )


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""


def _bypassed(host: str, port: int, rule: str) -> bool:
    name, _, rule_port = rule.rpartition(":") if rule.rpartition(":")[2].isdigit() and rule.count(":") == 1 else (rule, "", "")
    if rule_port and int(rule_port) != port:
        return False
    if name == "*":
        return True
    if "/" in name:
        try:
            return ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False)
        except ValueError:
            return False
    name = name.lstrip("*").lstrip(".").strip("[]")
    return host == name or host.endswith("." + name)
