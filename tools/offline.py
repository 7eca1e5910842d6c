"""Run a command in a network namespace that has nothing but loopback: `python tools/offline.py COMMAND...`.

The test suite blocks sockets of its own process; this holds its child processes to it too. Where the kernel
does not allow a namespace (no root, containers), it says so and runs the command as it is.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP_RUNNING = 0x1 | 0x40


def enter_namespace() -> None:
    """Leave the machine's network. Raises OSError where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP_RUNNING))


def main() -> None:
    try:
        enter_namespace()
    except (OSError, AttributeError) as error:
        print(f"    no network namespace here ({error}); only the test process itself is blocked", flush=True)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
