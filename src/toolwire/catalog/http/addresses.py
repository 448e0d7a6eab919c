"""Decides where requests may go: each connection resolves the name, checks the address, and uses that very address.

Owns the rule and the lookup. If the name were looked up again after the check, an attacker's DNS server could
answer differently the second time (rebinding); so the URL that is asked has the address in it, while the `Host`
header and the name in the TLS handshake stay those of the profile. It knows nothing of catalogues.
"""

import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx2

from toolwire._support.addresses import is_loopback
from toolwire.errors import CatalogError

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


async def resolve(host: str, port: int) -> Sequence[str]:
    """Resolve a name to its addresses, in the order in which the system would try them."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]


@dataclass(frozen=True)
class Network:
    """The network settings of a profile: how and where connections may be made."""

    allow: tuple[IPNetwork, ...] = ()
    """Internal addresses that the API may have."""
    proxy: httpx2.Proxy | None = None
    ca_file: str = ""

    def ssl_context(self) -> ssl.SSLContext:
        """Make the TLS context. CatalogError if the certificates cannot be read."""
        if not self.ca_file:
            return httpx2.create_ssl_context(trust_env=False)
        try:
            return ssl.create_default_context(cafile=Path(self.ca_file).expanduser())
        except (OSError, ssl.SSLError) as error:
            raise CatalogError(
                f"network.ca_file {self.ca_file} cannot be read as certificates (PEM): {error}"
            ) from error


@dataclass(frozen=True)
class Base:
    """A base URL in its parts."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def of(cls, url: str) -> "Base":
        """Parse a URL that the profile has checked already."""
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        return cls(parts.scheme, parts.hostname or "", port, parts.path.rstrip("/"))

    @property
    def local(self) -> bool:
        """True if the base URL means this machine."""
        return is_loopback(self.host)

    @property
    def host_header(self) -> str:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def url(self, address: str, path: str) -> str:
        """Return the URL of a path below the base, with a checked address in place of the name."""
        host = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{host}:{self.port}{self.path}{path}"

    async def addresses(self, resolver: Resolver = resolve, allow: Sequence[IPNetwork] = ()) -> list[str]:
        """Resolve the host. CatalogError for an address that is not allowed, ConnectionError if there is none."""
        literal = _parsed(self.host)
        try:
            found = [self.host] if literal is not None else await resolver(self.host, self.port)
        except OSError as error:
            raise ConnectionError(f"{self.host} could not be resolved: {error}. Check base_url") from error
        addresses = list(dict.fromkeys(found))
        if not addresses:
            raise ConnectionError(f"{self.host} has no address. Check base_url")
        # One bad address spoils them all: a name that is public and private at once is how rebinding looks.
        for address in addresses:
            if not _allowed(address, self.local, allow):
                where = "this machine" if self.local else "the public internet"
                raise CatalogError(
                    f"{self.host} leads to {address}, which is not on {where}, so nothing was sent. Only a "
                    "base_url of localhost or a loopback address may lead to this machine; internal addresses are "
                    f'allowed by the profile: network.allow = ["{address}"]'
                )
        return addresses


def _allowed(text: str, local: bool, allow: Sequence[IPNetwork]) -> bool:
    address = _parsed(text)
    if address is None:
        return False
    address = _inner(address)
    if any(address in each for each in allow):
        return True
    if local:
        return address.is_loopback
    if isinstance(address, ipaddress.IPv6Address) and (address.is_site_local or address.teredo is not None):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _inner(address: IPAddress) -> IPAddress:
    """Return the IPv4 address that an IPv6 one stands for, if it stands for one."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


@lru_cache(256)
def _parsed(text: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
