"""A scratchpad that agents on several machines share, on a Redis or Valkey server: same names, same meaning.

Every call is one Lua script, so that least recently used, time to live and size hold between callers, and one
clock counts: the server's. Values are JSON. Nothing here is memory for good; see `Session` for that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from twofold.clock import iso
from twofold.errors import InvalidInput, StoreError
from twofold.scratchpad import CONTEXT_KEYS, DECISION_LIMIT, Decision, Snapshot

__all__ = ["SharedScratchpad"]

_SHORT: Final = {
    "objective": "current_objective",
    "user_message": "last_user_message",
    "tool_call": "last_tool_call",
    "tool_output": "last_tool_output",
    "turn": "conversation_turn",
    "constraints": "active_constraints",
}

# v entries, u their order of use, d their deadlines (us), n the counter of uses; c the context, o its order,
# k the names that belong to it; p the decisions, newest first; s size and time to live as first opened.
_PARTS: Final = tuple("vudncokps")

_SCRIPT: Final = """
local v, u, d, n, c, o, k, p, s = unpack(KEYS)
local op, now, ttl, max = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local served = now == ''
if served then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(now)
end

local function drop(key)
  redis.call('ZREM', u, key)
  redis.call('ZREM', d, key)
  return redis.call('HDEL', v, key)
end

if ttl ~= '' then
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', d, '-inf', string.format('%.0f', now))) do drop(key) end
end

local function touch(key)
  redis.call('ZADD', u, redis.call('INCR', n), key)
  if ttl == '' then return end
  redis.call('ZADD', d, string.format('%.0f', now + tonumber(ttl)), key)
  if served then  -- nobody may call again, and what is expired must not stay for ever
    local alive = math.ceil(tonumber(ttl) / 1000) + 1000
    redis.call('PEXPIRE', v, alive)
    redis.call('PEXPIRE', u, alive)
    redis.call('PEXPIRE', d, alive)
  end
end

local function put_context(key, value)
  if redis.call('HSET', c, key, value) == 1 then redis.call('ZADD', o, redis.call('INCR', n), key) end
end

local function context()
  local found = {}
  for _, key in ipairs(redis.call('ZRANGE', o, 0, -1)) do
    found[#found + 1] = key
    found[#found + 1] = redis.call('HGET', c, key)
  end
  return found
end

if op == 'open' then
  local wanted = ttl .. ' ' .. max
  if redis.call('SET', s, wanted, 'NX') then
    for i = 5, #ARGV do redis.call('SADD', k, ARGV[i]) end
    return wanted
  end
  return redis.call('GET', s)
elseif op == 'get' then
  local key = ARGV[5]
  local value = redis.call('HGET', v, key)
  if value then
    touch(key)
    return value
  end
  return redis.call('HGET', c, key)
elseif op == 'set' then
  local key, value = ARGV[5], ARGV[6]
  if redis.call('SISMEMBER', k, key) == 1 then
    put_context(key, value)
    return
  end
  if redis.call('HEXISTS', v, key) == 0 and redis.call('HLEN', v) >= max then
    drop(redis.call('ZRANGE', u, 0, 0)[1])
  end
  redis.call('HSET', v, key, value)
  touch(key)
elseif op == 'context' then
  for i = 5, #ARGV, 2 do
    redis.call('SADD', k, ARGV[i])
    drop(ARGV[i])
    put_context(ARGV[i], ARGV[i + 1])
  end
elseif op == 'delete' then
  local gone = drop(ARGV[5])
  if redis.call('HDEL', c, ARGV[5]) == 1 then
    redis.call('ZREM', o, ARGV[5])
    gone = 1
  end
  return gone
elseif op == 'has' then
  return math.max(redis.call('HEXISTS', v, ARGV[5]), redis.call('HEXISTS', c, ARGV[5]))
elseif op == 'len' then
  return redis.call('HLEN', v) + redis.call('HLEN', c)
elseif op == 'items' then
  local found = {}
  for _, key in ipairs(redis.call('ZRANGE', u, 0, -1)) do
    found[#found + 1] = key
    found[#found + 1] = redis.call('HGET', v, key)
  end
  for _, one in ipairs(context()) do found[#found + 1] = one end
  return found
elseif op == 'clear' then
  redis.call('DEL', v, u, d, c, o, p)
elseif op == 'push' then
  redis.call('LPUSH', p, ARGV[5])
  redis.call('LTRIM', p, 0, tonumber(ARGV[6]) - 1)
elseif op == 'state' then
  return {string.format('%.0f', now), context(), redis.call('LRANGE', p, 0, -1)}
end
"""


class SharedScratchpad:
    """A bounded map of str keys on a server, with context and decisions; `Scratchpad`'s names and meaning.

    Entries: at most `max_size`, the least recently used goes first, by whichever agent used it; one is gone
    `ttl` seconds after its last write or read by anyone. Values must be JSON (a tuple comes back as a list).

    >>> pad = SharedScratchpad("redis://localhost:6379/0", "build-42")   # doctest: +SKIP
    >>> pad.set("branch", "main"); pad.get("branch")                     # doctest: +SKIP
    'main'
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        max_size: int = 50,
        ttl: float | None = 300.0,
        clock: Callable[[], float] | None = None,
        timeout: float = 5.0,
    ) -> None:
        """Open the scratchpad of this name, or make it.

        url: redis://, rediss:// (TLS) or unix://. max_size: 1 to 2**30. ttl: seconds above 0; None for ever.
        clock: seconds since the epoch, for tests; the server's when left out. timeout: seconds a call may take.
        Raises InvalidInput for bad values, and when the name is in use with another size or time to live;
        StoreError when the server cannot be reached, here and in every call.
        """
        _check(name, max_size, ttl)
        try:
            import redis
        except ModuleNotFoundError as error:
            raise StoreError(
                "a shared scratchpad needs redis, which is not installed; pip install 'twofold[redis]'"
            ) from error
        self.name = name
        self.max_size = max_size
        self.ttl = ttl
        self._clock = clock
        self._failures = (redis.RedisError, OSError)
        self._keys = [f"twofold:{{{name}}}:{part}" for part in _PARTS]
        self._ttl = "" if ttl is None else str(max(1, round(ttl * 1_000_000)))
        try:
            self._server = redis.Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout)
        except ValueError as error:
            raise InvalidInput(f"the address of the server is not a URL: {error}") from error
        self._script = self._server.register_script(_SCRIPT)
        there = self._call("open", *CONTEXT_KEYS).decode()
        if there != f"{self._ttl} {max_size}":
            micros, _, size = there.partition(" ")
            seconds = f"{int(micros) / 1e6:g} s" if micros else "no end"
            raise InvalidInput(
                f"the scratchpad {name!r} holds {size} entries with a time to live of {seconds}; "
                "open it with the same, or take another name"
            )

    def get(self, key: str, default: Any = None) -> Any:
        """A live value, which makes it the most recently used; `default` when there is none."""
        found = self._call("get", _key(key))
        return default if found is None else json.loads(found)

    def set(self, key: str, value: Any) -> None:
        """Store a JSON value as the most recently used. InvalidInput when it is not JSON."""
        self._call("set", _key(key), _json(value))

    def delete(self, key: str) -> bool:
        """Remove a key, and tell whether it was there."""
        return bool(self._call("delete", _key(key)))

    def items(self) -> list[tuple[str, Any]]:
        """Live pairs, least recently used first, then the context."""
        return _pairs(self._call("items"))

    def keys(self) -> list[str]:
        """Live keys, in the order of `items`."""
        return [key for key, _ in self.items()]

    def values(self) -> list[Any]:
        """Live values, in the order of `items`."""
        return [value for _, value in self.items()]

    def clear(self) -> None:
        """Remove every entry, the context and the decision points, for everybody."""
        self._call("clear")

    def __len__(self) -> int:
        return int(self._call("len"))

    def __contains__(self, key: str) -> bool:
        return bool(self._call("has", _key(key)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def set_current_context(
        self, key: str | Mapping[str, Any] | None = None, value: Any = None, /, **fields: Any
    ) -> None:
        """As `Scratchpad.set_current_context`: all of one call become visible at once, to everybody."""
        given: dict[Any, Any]
        if key is None:
            given = dict(fields)
        elif isinstance(key, Mapping):
            given = {**key, **fields}
        else:
            given = {key: value, **fields}
        wrong = [name for name in given if not isinstance(name, str)]
        if wrong:
            raise InvalidInput(f"context keys are strings, not {wrong!r}")
        named = {_SHORT.get(name, name): content for name, content in given.items()}
        flat = [part for name, content in named.items() for part in (_key(name), _json(content))]
        if flat:
            self._call("context", *flat)

    @property
    def current_context(self) -> dict[str, Any]:
        """A copy of the current context."""
        return dict(_pairs(self._call("state")[1]))

    def push_decision(
        self, reasoning: Any = None, action: Any = None, outcome: Any = None, *, timestamp: Any = None
    ) -> Decision:
        """As `Scratchpad.push_decision`; a missing timestamp is the server's time."""
        if isinstance(reasoning, Mapping):
            given = dict(reasoning)
            unknown = given.keys() - Decision.__required_keys__
            if unknown:
                raise InvalidInput(
                    f"a decision has timestamp, reasoning, action and outcome, not {sorted(map(str, unknown))!r}"
                )
            reasoning, action = given.get("reasoning"), given.get("action", action)
            outcome, timestamp = given.get("outcome", outcome), given.get("timestamp", timestamp)
        if timestamp is None:
            timestamp = _stamp(self._call("state")[0])
        made = Decision(timestamp=timestamp, reasoning=reasoning, action=action, outcome=outcome)
        self._call("push", _json(made), DECISION_LIMIT)
        return made

    push_decision_point = push_decision

    @property
    def decisions(self) -> list[Decision]:
        """The decision points, newest first."""
        return [json.loads(one) for one in self._call("state")[2]]

    def snapshot(self) -> Snapshot:
        """Exactly objective, decisions, constraints and snapshot_at, of one moment."""
        now, context, decisions = self._call("state")
        found = dict(_pairs(context))
        constraints = found.get("active_constraints")
        if constraints is None:
            constraints = []
        return Snapshot(
            objective=found.get("current_objective"),
            decisions=[json.loads(one) for one in decisions],
            constraints=constraints if isinstance(constraints, list) else [constraints],
            snapshot_at=_stamp(now),
        )

    snapshot_for_vault = snapshot

    def close(self) -> None:
        """Release the connections; the scratchpad stays on the server."""
        self._server.close()

    def _call(self, op: str, *args: Any) -> Any:
        now = "" if self._clock is None else str(round(self._clock() * 1_000_000))
        try:
            return self._script(keys=self._keys, args=[op, now, self._ttl, self.max_size, *args])
        except self._failures as error:
            raise StoreError(f"the server of the shared scratchpad {self.name!r}: {error}") from error

    def __repr__(self) -> str:
        return f"SharedScratchpad({self.name!r}, max_size={self.max_size}, ttl={self.ttl})"


def _check(name: Any, max_size: Any, ttl: Any) -> None:
    if isinstance(max_size, bool) or not isinstance(max_size, int) or not 1 <= max_size <= 2**30:
        raise InvalidInput(f"max_size must be 1 to 2**30 entries, not {max_size!r}")
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int | float) or not 0 < ttl < 1e9):
        raise InvalidInput(f"ttl must be a number of seconds above 0, or None, not {ttl!r}")
    if not name or not isinstance(name, str) or set(name) & set("{}"):
        raise InvalidInput(f"a shared scratchpad needs a name without braces, not {name!r}")


def _key(key: Any) -> bytes:
    if not isinstance(key, str):
        raise TypeError(f"scratchpad keys are str, not {type(key).__name__}")
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the key {key!r} is not text that can be sent: {error.reason}") from None


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"a shared scratchpad holds JSON values, and this is none: {error}") from None


def _pairs(flat: list[bytes]) -> list[tuple[str, Any]]:
    return [(key.decode(), json.loads(value)) for key, value in zip(flat[::2], flat[1::2], strict=True)]


def _stamp(micros: bytes) -> str:
    return iso(int(micros))
