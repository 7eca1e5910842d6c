"""Keeping views in RAM in step with what other processes commit, before the next question comes.

Nothing depends on it: every read asks for the head of the log first and takes in what it lacks. A follower only does
that work beforehand, from a thread of its own, so that a recall after many foreign writes is as fast as any other.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, Protocol

from twofold.errors import InvalidInput, TwofoldError

if TYPE_CHECKING:
    from twofold.vault import Vault

MODES: Final = ("poll", "listen")


class Listener(Protocol):
    """What a store hears of commits, its own process's among them."""

    def wait(self, seconds: float) -> bool:
        """Return at the first notice, at `wake`, or after some seconds; whether there was a notice."""
        ...

    def wake(self) -> None:
        """Make `wait` return now; from any thread."""
        ...

    def close(self) -> None:
        """Release the connection; from the thread that waits."""
        ...


class _Alarm:
    """A listener that hears nothing: polling."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wait(self, seconds: float) -> bool:
        self._event.wait(seconds)
        return False

    def wake(self) -> None:
        self._event.set()

    def close(self) -> None:
        return


class Follower:
    """A thread that takes in, for every tenant that was asked about, what its log gained.

    mode: "poll" asks for the head every `interval` seconds. "listen" does so as soon as a writer says that it
    committed (PostgreSQL, writers with notify=1 in their address), and every `interval` seconds all the same,
    because a notice may be lost. Holds its vault weakly, and ends with it.
    """

    def __init__(self, vault: Vault, tenant: str, mode: str, interval: float) -> None:
        if mode == "listen" and not hasattr(vault.store, "listen"):
            raise InvalidInput(f"{vault.store.url} cannot notify of commits; use follow='poll'")
        self.mode = mode
        self.interval = interval
        self.problem = ""  # of the last round; "" when it went well
        self.rounds = 0
        self.notices = 0
        self._vault = weakref.ref(vault, lambda _: self._end())
        self._tenant = tenant
        self._ended = False
        self._alarm = _Alarm()
        self._ears: Listener = self._alarm
        self._thread = threading.Thread(target=self._run, name="twofold-follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it. It does not survive a fork, so in a child there is nothing to end."""
        self._end()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)

    def state(self) -> dict[str, Any]:
        """What it does and how it fares, as JSON values."""
        return {
            "mode": self.mode,
            "alive": self._thread.is_alive(),
            "rounds": self.rounds,
            "notices": self.notices,
            "problem": self.problem,
        }

    def _end(self) -> None:
        self._ended = True
        self._alarm.wake()
        self._ears.wake()

    def _run(self) -> None:
        while not self._ended:
            try:
                if self.mode == "listen" and self._ears is self._alarm:
                    # Before the round, so that no commit falls between the two.
                    self._ears = self._listening()
                self._round()
                self.notices += self._ears.wait(self.interval)
            except TwofoldError as error:
                # The server is away, say: whoever recalls meanwhile gets the error, this thread goes on trying.
                self.problem = str(error)
                ears, self._ears = self._ears, self._alarm
                ears.close()
                self._alarm.wait(self.interval)
        self._ears.close()

    def _listening(self) -> Listener:
        vault = self._vault()
        return vault.store.listen() if vault is not None else self._alarm  # type: ignore[attr-defined]

    def _round(self) -> None:
        vault = self._vault()
        if vault is None:
            return
        for tenant in {self._tenant, *vault.tenants()}:
            vault.index(tenant)
        self.rounds += 1
        self.problem = ""
