"""Where the explorer listens, and by which names it can be reached there."""

from __future__ import annotations

import contextlib
import ipaddress
import socket

LOCAL = ("127.0.0.1", "::1", "localhost")


def listen(address: str, port: int) -> socket.socket:
    """A socket at the address, of its family (IPv4 or IPv6)."""
    if not 0 <= port <= 65535:
        raise ValueError(f"port={port}: ports are 0 (any that is free) to 65535")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise ValueError(f"address={address!r}: {error.strerror}") from None
    # asyncio switches Nagle's algorithm off only for a socket with its protocol set; else each small answer waits 40 ms.
    listening = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise OSError(f"cannot listen at {address}, port {port}: {error.strerror}") from None
    return listening


def names(address: str) -> list[str]:
    """The names by which browsers reach the server, the best for a link first."""
    machine = socket.gethostname().lower()  # browsers send names in lower case
    if address in LOCAL:
        return ["localhost", *(name for name in LOCAL if name != "localhost")]
    with contextlib.suppress(ValueError):
        given = ipaddress.ip_address(address)
        address = str(given)
        if given.is_unspecified:  # every address of the machine
            return [*_own_addresses(), machine, *LOCAL]
    return [address.lower(), machine, *LOCAL]


def hosts(address: str, port: int) -> tuple[str, ...]:
    """The same names as Host headers; browsers leave port 80 out."""
    quoted = [f"[{name}]" if ":" in name else name for name in names(address)]
    return tuple(f"{name}:{port}" for name in quoted) + (tuple(quoted) if port == 80 else ())


def _own_addresses() -> list[str]:
    """The machine's addresses in its networks, the one that it would be reached by first."""
    addresses: dict[str, None] = {}  # a set that keeps the order
    for family, elsewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))  # sends nothing: it only chooses this machine's address for that way
            addresses[probe.getsockname()[0]] = None
    with contextlib.suppress(OSError):
        for *_, place in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM):
            addresses[str(place[0])] = None
    return [one for one in addresses if not one.startswith(("127.", "::1", "fe80"))]
