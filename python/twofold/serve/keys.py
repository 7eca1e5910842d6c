"""API keys: who a bearer of one is. The file keeps only hashes; a key itself is shown once, when it is made."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from twofold.access import check_name, check_pattern, role_of
from twofold.clock import Clock, iso, to_us
from twofold.errors import InvalidInput, NotFound, StoreCorrupt, StoreError
from twofold.query import whole

if TYPE_CHECKING:
    from twofold.memory import AgentMemory

PREFIX: Final = "tf_"
SECRET_BYTES: Final = 32
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Key:
    """One key: the handle its bearer gets.

    role None: the tenant's owner. rate: requests per second; None: the server's.
    """

    id: str
    name: str
    hash: str
    tenant: str
    role: str | None
    namespaces: tuple[str, ...] | None
    namespace: str | None
    write_quota: int | None
    read_only: bool
    rate: float | None
    created_at: str
    revoked_at: str | None = None

    def shown(self) -> dict[str, Any]:
        """Everything but the hash, as JSON values."""
        body = asdict(self)
        del body["hash"]
        return body

    def handle(self, owner: AgentMemory) -> AgentMemory:
        """The bearer's handle, from the owner's handle on the key's tenant."""
        if self.role is None:
            return owner.read_only() if self.read_only else owner
        return owner.as_agent(
            self.name,
            role=self.role,
            namespaces=self.namespaces,
            namespace=self.namespace,
            write_quota=self.write_quota,
            read_only=self.read_only,
        )


def hash_of(key: str) -> str:
    """sha256 of a key, hex. A key is 256 random bits, so a plain hash cannot be guessed back."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class Keys:
    """The keys of one store, in a JSON file that several processes may change. Read again when it changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._keys: tuple[Key, ...] = ()

    def all(self) -> tuple[Key, ...]:
        """Every key, revoked ones included, in the order they were made."""
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            self._seen, self._keys = None, ()
            return ()
        seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if seen != self._seen:
            self._keys, self._seen = _read(self.path), seen
        return self._keys

    def active(self) -> list[Key]:
        """Keys that are not revoked."""
        return [k for k in self.all() if k.revoked_at is None]

    def find(self, presented: str) -> Key | None:
        """The active key with this secret. Compares with every hash in constant time."""
        digest, found = hash_of(presented), None
        for key in self.active():
            if hmac.compare_digest(key.hash, digest):
                found = key
        return found

    def add(
        self,
        name: str,
        *,
        clock: Clock,
        tenant: str = "default",
        role: str | None = None,
        namespaces: Sequence[str] | None = None,
        namespace: str | None = None,
        write_quota: int | None = None,
        read_only: bool = False,
        rate: float | None = None,
        entropy: Callable[[int], bytes] = secrets.token_bytes,
    ) -> tuple[str, Key]:
        """Make a key: (the key, shown this once, and its entry). role None makes an owner's key."""
        role = None if role in (None, "owner") else role_of(str(role)).value
        patterns = tuple(dict.fromkeys(check_pattern(n) for n in namespaces)) if namespaces else None
        if role is None and (patterns or write_quota is not None or namespace is not None):
            raise InvalidInput(
                "an owner's key reaches the whole tenant; namespaces and a quota need a role, as --role orchestrator"
            )
        if write_quota is not None:
            write_quota = whole(write_quota, "write_quota", 0, 10**12)
        if rate is not None and not 0 < rate <= 1e6:
            raise InvalidInput(f"rate must be above 0 requests per second, not {rate!r}")
        key = PREFIX + entropy(SECRET_BYTES).hex()
        entry = Key(
            id=f"k{entropy(6).hex()}",
            name=check_name(name, "name"),
            hash=hash_of(key),
            tenant=check_name(tenant, "tenant"),
            role=role,
            namespaces=patterns,
            namespace=None if namespace is None else check_name(namespace, "namespace"),
            write_quota=write_quota,
            read_only=read_only,
            rate=rate,
            created_at=iso(to_us(clock.now())),
        )
        with self._changing() as keys:
            if any(k.name == name and k.revoked_at is None and k.tenant == tenant for k in keys):
                raise InvalidInput(
                    f"tenant {tenant!r} has an active key named {name!r} already; revoke it first"
                )
            keys.append(entry)
        return key, entry

    def revoke(self, name_or_id: str, *, clock: Clock) -> list[Key]:
        """Make keys useless from now on; a running server notices at the next request."""
        with self._changing() as keys:
            chosen = [k for k in keys if name_or_id in (k.id, k.name) and k.revoked_at is None]
            if not chosen:
                raise NotFound(f"no active key {name_or_id!r}; see `twofold keys list`")
            at = iso(to_us(clock.now()))
            revoked = [replace(k, revoked_at=at) for k in chosen]
            keys[:] = [revoked[chosen.index(k)] if k in chosen else k for k in keys]
        return revoked

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[Key]]:
        """The keys, to change under a lock; written as a whole or not at all."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"cannot write the keys file {self.path}: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keys = list(_read(self.path)) if self.path.exists() else []
            yield keys
            _write(self.path, keys)
        finally:
            os.close(lock)
        self._seen = None


def _read(path: Path) -> tuple[Key, ...]:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["version"] > VERSION:
            raise StoreCorrupt(f"{path} is of version {body['version']}; this Twofold reads up to {VERSION}")
        return tuple(
            Key(**{**k, "namespaces": None if k["namespaces"] is None else tuple(k["namespaces"])})
            for k in body["keys"]
        )
    except OSError as error:
        raise StoreError(f"cannot read the keys file {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(f"{path} is not a keys file: {error!r}") from None


def _write(path: Path, keys: list[Key]) -> None:
    # mkstemp makes the file readable by its owner alone.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(
                {"version": VERSION, "keys": [asdict(k) for k in keys]}, file, indent=1, ensure_ascii=False
            )
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def default_path(store: str) -> Path:
    """Where a store's keys are: in its folder, beside its file, or for a server in ~/.config/twofold."""
    if "://" in store or store.startswith((":memory:", "memory:")):
        name = hashlib.sha256(store.encode()).hexdigest()[:16]
        return Path.home() / ".config" / "twofold" / f"keys-{name}.json"
    path = Path(store)
    if path.suffix in (".db", ".sqlite", ".sqlite3"):
        return path.with_name(f"{path.name}.keys.json")
    return path / "keys.json"
