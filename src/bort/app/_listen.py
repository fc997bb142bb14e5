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
    # With its protocol named, asyncio switches Nagle's algorithm off: each small answer would wait 40 ms for the next.
    found = socket.socket(family, kind, protocol or socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(place)
        found.listen(128)
    except OSError as error:
        found.close()
        raise OSError(f"cannot listen at {address}, port {port}: {error.strerror}") from None
    return found


def names(address: str) -> list[str]:
    """What a browser may call the server by, the best for a link first."""
    machine = socket.gethostname().lower()  # as browsers write names
    if address in LOCAL:
        return ["localhost", *(name for name in LOCAL if name != "localhost")]
    with contextlib.suppress(ValueError):
        given = ipaddress.ip_address(address)
        address = str(given)
        if given.is_unspecified:  # every address of the machine
            return [*_own_addresses(), machine, *LOCAL]
    return [address.lower(), machine, *LOCAL]


def hosts(address: str, port: int) -> tuple[str, ...]:
    """The same as Host headers; browsers leave port 80 out."""
    quoted = [f"[{name}]" if ":" in name else name for name in names(address)]
    return tuple(f"{name}:{port}" for name in quoted) + (tuple(quoted) if port == 80 else ())


def _own_addresses() -> list[str]:
    found: dict[str, None] = {}
    for family, elsewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))  # sends nothing: it only chooses the address it would be sent from
            found[probe.getsockname()[0]] = None
    with contextlib.suppress(OSError):
        for *_, place in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM):
            found[str(place[0])] = None
    return [each for each in found if not each.startswith(("127.", "::1", "fe80"))]
