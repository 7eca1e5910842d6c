"""Connection settings of Memwright's backends: defaults, layers, addresses, environment. Nothing connects here."""

from __future__ import annotations

import base64
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlparse

_DATABASE: Final = "memwright"


def _engine(
    url: str, port: int | None, user: str, password: str, database: str = _DATABASE, verify: bool = False
) -> dict[str, Any]:
    made: dict[str, Any] = {"url": url, "port": port, "database": database}
    return {**made, "auth": {"username": user, "password": password}, "tls": {"verify": verify}}


ENGINE_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "arangodb": _engine("http://localhost:8529", 8529, "root", ""),
    "postgres": _engine("postgresql://localhost:5432", 5432, "postgres", ""),
    "neo4j": _engine("bolt://localhost:7687", 7687, "neo4j", "", "neo4j"),
    "surrealdb": _engine("http://localhost:8000", 8000, "root", "root"),
    "gcp": {
        **_engine("postgresql://localhost:5432", 5432, "postgres", "", verify=True),
        "project_id": "",
        "region": "us-central1",
        "cluster": "",
        "instance": "",
    },
    "azure": {
        "url": "",
        "cosmos_endpoint": "",
        "cosmos_database": _DATABASE,
        "auth": {"api_key": ""},
        "tls": {"verify": True},
    },
    "aws": {
        "url": "",
        "region": "us-east-1",
        "dynamodb": {"table_prefix": _DATABASE},
        "opensearch": {"endpoint": "", "index": "memories"},
        "neptune": {"endpoint": ""},
        "auth": {},
        "tls": {"verify": True},
    },
}
BACKEND_DEFAULTS: Final = ENGINE_DEFAULTS
CLOUD_DEFAULTS: Final[dict[str, Any]] = {
    "mode": "cloud",
    "database": _DATABASE,
    "auth": dict.fromkeys(("username", "password", "token", "api_key"), ""),
    "tls": {"verify": True, "ca_cert": None},
}
_ENGINES: Final = {
    "arango": "arangodb",
    "arangodb": "arangodb",
    "bolt": "neo4j",
    "neo4j": "neo4j",
    "postgres": "postgres",
    "postgresql": "postgres",
    "surreal": "surrealdb",
    "surrealdb": "surrealdb",
}
_SECURE: Final = re.compile(r"\+(?:s|https)$")
_FLAT: Final = ("username", "password", "token", "api_key")


def merge_config_layers(*layers: Mapping[str, Any] | None) -> dict[str, Any]:
    """Layers on top of each other, dict by dict; the last one that names a value wins. Inputs stay as they are."""
    out: dict[str, Any] = {}
    for layer in layers:
        for key, value in (layer or {}).items():
            both = isinstance(out.get(key), dict) and isinstance(value, Mapping)
            out[key] = merge_config_layers(out[key], value) if both else value
    return out


def parse_url(url: str) -> dict[str, Any]:
    """scheme://user:password@host:port/database?options as settings; `_engine` for a scheme that names one."""
    parts = urlparse(url)
    scheme = parts.scheme.lower()
    secure = bool(_SECURE.search(scheme)) or scheme == "https"
    out: dict[str, Any] = {}
    engine = _ENGINES.get(_SECURE.sub("", scheme))
    if engine is not None:
        out["_engine"] = engine
    address = f"{'https' if secure else 'http'}://{parts.hostname or 'localhost'}"
    if parts.port:
        address, out["port"] = f"{address}:{parts.port}", parts.port
    out["url"] = address
    if parts.path.strip("/"):
        out["database"] = parts.path.strip("/")
    auth = {"username": parts.username, "password": parts.password}
    if any(auth.values()):
        out["auth"] = {k: unquote(v) for k, v in auth.items() if v}
    if secure:
        out |= {"tls": {"verify": True}, "mode": "cloud"}
    if parts.query:
        options = parse_qs(parts.query, keep_blank_values=True)
        out["options"] = {k: v[0] if len(v) == 1 else v for k, v in options.items()}
    return out


def resolve_env(value: Any) -> Any:
    """The variable that "$NAME" or "${NAME}" names; anything else, and an unset one, as it is."""
    match = re.fullmatch(r"\$\{([^}]+)\}|\$(\w+)", value) if isinstance(value, str) else None
    return value if match is None else os.environ.get(match[1] or match[2], value)


def resolve_env_recursive(data: Any) -> Any:
    """`resolve_env` for every value in dicts and lists."""
    if isinstance(data, Mapping):
        return {k: resolve_env_recursive(v) for k, v in data.items()}
    if isinstance(data, list):
        return [resolve_env_recursive(v) for v in data]
    return resolve_env(data)


def _nested(config: Mapping[str, Any]) -> dict[str, Any]:
    """Credentials given at the top, moved into "auth" below what stands there."""
    flat = {k: config[k] for k in _FLAT if k in config}
    rest = {k: v for k, v in config.items() if k not in flat}
    return merge_config_layers({"auth": flat}, rest) if flat else rest


def build_config(
    engine: str, user_config: Mapping[str, Any], cli_overrides: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Defaults of the engine, then the user's settings (an address taken apart below them), then overrides."""
    config = dict(user_config)
    url = resolve_env(config.get("url", ""))
    if isinstance(url, str) and "://" in url:
        scheme = _SECURE.sub("", url.partition("://")[0].lower())
        if scheme in _ENGINES or scheme in ("http", "https"):
            taken = parse_url(url)
            taken.pop("_engine", None)
            config = merge_config_layers(taken, config)
    return merge_config_layers(ENGINE_DEFAULTS.get(engine, {}), _nested(config), cli_overrides)


@dataclass(frozen=True)
class AuthConfig:
    """Credentials; a backend takes those it knows."""

    username: str = ""
    password: str = ""
    token: str = ""
    api_key: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AuthConfig:
        """From settings, variables resolved."""
        return cls(**{name: resolve_env(data.get(name, "")) for name in _FLAT})

    @property
    def has_credentials(self) -> bool:
        """Whether there is a user, a token or a key."""
        return bool(self.username or self.token or self.api_key)


@dataclass(frozen=True)
class TLSConfig:
    """Whether certificates are checked, and against which authority: a path, or base 64."""

    verify: bool = True
    ca_cert: str | None = None
    ca_cert_base64: str | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TLSConfig:
        """From settings."""
        return cls(data.get("verify", True), data.get("ca_cert"), data.get("ca_cert_base64"))

    def resolve_ca_cert_path(self, store_path: str | None = None) -> str | None:
        """The authority's file; one in base 64 is written to `<store_path>/ca.crt`, else to a temporary file."""
        if self.ca_cert or not self.ca_cert_base64:
            return self.ca_cert
        if store_path:
            file = Path(store_path) / "ca.crt"
        else:
            handle, name = tempfile.mkstemp(prefix="twofold-ca-", suffix=".crt")
            os.close(handle)
            file = Path(name)
        file.write_bytes(base64.b64decode(self.ca_cert_base64))
        return str(file)


@dataclass(frozen=True)
class CloudConnection:
    """Where a backend is and how to get in."""

    mode: str = "cloud"
    url: str = "http://localhost:8529"
    database: str = _DATABASE
    port: int = 8529
    auth: AuthConfig = field(default_factory=AuthConfig)
    tls: TLSConfig = field(default_factory=TLSConfig)
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], backend_name: str | None = None) -> CloudConnection:
        """From settings, the defaults of a named backend below them, variables resolved."""
        if backend_name:
            merged = build_config(backend_name, config)
        else:
            merged = merge_config_layers({"database": _DATABASE, "tls": {"verify": True}}, _nested(config))
        merged = resolve_env_recursive(merged)
        mode, port = merged.pop("mode", "cloud"), merged.pop("port", 8529)
        url = merged.pop("url", "http://localhost:8529")
        auth, tls = merged.pop("auth", {}), merged.pop("tls", {})
        database, options = merged.pop("database", _DATABASE), merged.pop("options", {})
        return cls(
            mode=mode,
            url=f"http://localhost:{port}" if mode == "local" else url,
            database=database,
            port=port,
            auth=AuthConfig.from_dict(auth),
            tls=TLSConfig.from_dict(tls),
            extra={**merged, **options},
        )
