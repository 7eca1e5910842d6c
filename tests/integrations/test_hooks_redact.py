"""Secrets do not pass, harmless strings do. All secrets here are drawn by the tests' own generator."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold import AgentMemory
from twofold.integrations.hooks import Hooks
from twofold.integrations.redact import MARK, redact

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def drawn(draw: random.Random, length: int, of: str = LETTERS) -> str:
    """Random characters, with a digit, a lower and an upper letter among them where the alphabet has such."""
    while True:
        out = "".join(draw.choice(of) for _ in range(length))
        kinds = [set(string.digits), set(string.ascii_lowercase), set(string.ascii_uppercase)]
        if all(not k & set(of) or k & set(out) for k in kinds):
            return out


def b64(draw: random.Random, size: int) -> str:
    return base64.b64encode(draw.randbytes(size)).decode()


def jwt(draw: random.Random) -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": drawn(draw, 8), "iat": draw.randint(1, 10**9)})
    body = ".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts)
    return f"{body}.{drawn(draw, 43)}"


def pem(draw: random.Random, kind: str) -> str:
    lines = "\n".join(b64(draw, 48) for _ in range(6))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{lines}\n-----END {kind}PRIVATE KEY-----"


def word(draw: random.Random) -> str:
    """A password as people choose them."""
    return draw.choice(["heron", "Tiger", "corr3ct", "winter"]) + drawn(draw, 6, HEX) + draw.choice("!#?*7")


Make = Callable[[random.Random], str]

# (the secret, a text with %s for it). The first kinds are secrets wherever they stand.
ANYWHERE: list[Make] = [
    lambda d: "AKIA" + drawn(d, 16, string.ascii_uppercase + string.digits),
    lambda d: drawn(d, 40, LETTERS + "/+"),  # an AWS secret key
    lambda d: "ghp_" + drawn(d, 36),
    lambda d: "github_pat_" + drawn(d, 22) + "_" + drawn(d, 59),
    lambda d: "glpat-" + drawn(d, 20),
    lambda d: f"xoxb-{d.randint(10**11, 10**12)}-{d.randint(10**11, 10**12)}-{drawn(d, 24)}",
    lambda d: "sk-" + drawn(d, 48),
    lambda d: "sk-proj-" + drawn(d, 60, LETTERS + "_-"),
    lambda d: "sk-ant-api03-" + drawn(d, 90, LETTERS + "_-"),
    lambda d: "sk_live_" + drawn(d, 24),
    lambda d: "AIza" + drawn(d, 35, LETTERS + "_-"),
    lambda d: "npm_" + drawn(d, 36),
    lambda d: "pypi-AgEIcHlwaS5vcmc" + drawn(d, 80, LETTERS + "_-"),
    lambda d: "hf_" + drawn(d, 34),
    lambda d: "hvs." + drawn(d, 60),
    lambda d: "dop_v1_" + drawn(d, 64, HEX),
    lambda d: f"SG.{drawn(d, 22)}.{drawn(d, 43)}",
    jwt,
    lambda d: pem(d, "RSA "),
    lambda d: pem(d, "OPENSSH "),
    lambda d: pem(d, ""),
    lambda d: drawn(d, 44),  # no format at all
    lambda d: b64(d, 48),
    lambda d: "https://hooks.slack.com/services/T" + drawn(d, 8) + "/B" + drawn(d, 8) + "/" + drawn(d, 24),
]
PLACES = [
    "deploy --target eu %s", "echo '%s' > out.txt", "printf %s | ./run.sh", "curl https://api.example.com/v1 -d %s",
    "the answer was\n%s\nand it went on", "id: %s, state: ready", "[%s]", "key %s used",
]  # fmt: skip

# Secrets that only their surroundings give away: a password has no format.
BESIDE: list[tuple[Make, str]] = [
    (word, "export DB_PASSWORD=%s && make deploy"),
    (word, 'export SECRET_KEY="%s"'),
    (word, "PGPASSWORD=%s psql -h db -U app"),
    (word, "mysql -u root -p%s shop"),
    (word, "mysqldump --user=root --password=%s shop"),
    (word, "curl -u admin:%s https://example.com/api"),
    (word, "curl --user 'admin:%s' https://example.com/api"),
    (lambda d: drawn(d, 32, HEX), "curl -H 'Authorization: Bearer %s' https://example.com"),
    (lambda d: drawn(d, 32, HEX), "curl -H 'X-Api-Key: %s' https://example.com"),
    (lambda d: b64(d, 15), 'curl -H "Authorization: Basic %s" https://example.com'),
    (word, "git clone https://bob:%s@example.com/r.git"),
    (word, "psql postgresql://app:%s@db.internal:5432/app"),
    (word, "redis-cli -a %s ping"),
    (word, "docker login -u bob -p %s registry.example.com"),
    (word, "echo %s | docker login -u bob --password-stdin"),
    (word, "echo '%s' | sudo -S apt-get install jq"),
    (word, "sshpass -p %s ssh root@10.0.0.1"),
    (word, "aws configure set aws_secret_access_key %s"),
    (word, "vault kv put secret/app password=%s"),
    (word, "kubectl create secret generic db --from-literal=password=%s"),
    (word, "kubectl create secret generic db --from-literal=value=%s"),
    (word, "openssl enc -aes-256-cbc -pass pass:%s -in a -out b"),
    (word, "psql -c \"ALTER USER app WITH PASSWORD '%s'\""),
    (word, "mysql -e \"CREATE USER 'a' IDENTIFIED BY '%s'\""),
    (word, "echo 'root:%s' | chpasswd"),
    (word, "ansible-playbook site.yml --extra-vars 'db_password=%s'"),
    (word, "python app.py --api-key %s --verbose"),
    (word, "python app.py --token=%s"),
    (word, "npm config set //registry.example.com/:_authToken %s"),
    (word, "gh secret set DEPLOY_KEY %s"),
    (word, '{"user": "bob", "password": "%s", "port": 5432}'),
    (word, "password: %s\nuser: bob"),
    (word, "client_secret = '%s'"),
    (word, "The password is %s, keep it."),
    (word, "config.apiKey=%s"),
    (word, "set DATABASE_URL=postgres://u:%s@h/db"),
    (word, "Server=db;User Id=sa;Password=%s;"),
    (word, "machine example.com login bob password %s"),
    (word, "htpasswd -b .htpasswd bob %s"),
    (word, "wget 'https://example.com/f?access_token=%s&x=1'"),
    (word, "7z x -p%s backup.7z"),
    (word, "密码是%s"),
]  # fmt: skip

HARMLESS = [
    "git checkout 3f786850e387550fdab836ed7e6dc881de23001b",
    "commit 89e6c98d92887913cadf06b2adb97f26cde4849b (HEAD -> main, origin/main)",
    "Merge: 3f78685 89e6c98",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "integrity sha512-oBJr2yzKGTQDvIkmzI4bTe0Jjq8mEhCgDZbTFvjzX5Ml0GqFhsSxhzEBIoaRM0Eo5xKMlYBcFWvQYkxCJ7N3Cw==",
    "d41d8cd98f00b204e9800998ecf8427e  empty.txt",
    "123e4567-e89b-12d3-a456-426614174000",
    "01KKGMCCM0FK5YMNHWKSAQ6XXN",
    "/usr/local/lib/python3.11/site-packages/twofold/integrations/hook_client.py",
    "/home/ann/Projects/MyApp2/src/main/java/com/example/UserServiceImplementation.java",
    "src/components/UserProfileSettings/UserProfileSettingsPage.test.tsx:42:17",
    "C:\\Users\\Ann\\AppData\\Local\\Programs\\Python311\\python.exe",
    "https://example.com/docs/getting-started/installation?lang=en&page=2#step-3",
    "http://localhost:8080/api/v1/users/123/orders",
    "git@github.com:example/a-long-repository-name-2.git",
    "pip install numpy==1.26.4 pytest-benchmark>=5",
    "docker run -d -p 8080:80 --name web nginx:1.25",
    "make -j4 test && cargo build --release --target x86_64-unknown-linux-gnu",
    "kubectl get pods -n staging web-7d9f8b6c5d-x2v4q",
    "max_tokens=4096 token_count: 17 tokens: 120 temperature=0.7",
    "the tokenizer splits the text; the author wrote the secretary",
    "PRIMARY KEY (id), sort_key=created_at, key: value, keyboard=qwerty",
    "password=$DB_PASSWORD token=${GITHUB_TOKEN} key=$(pass show x)",
    "api_key=os.environ['API_KEY'] password=None secret=<your secret>",
    "passwords must have 12 characters; the token expired; Bearer authentication failed",
    "12 passed, 3 failed in 4.56s (0:00:04)",
    "AbstractSingletonProxyFactoryBean getUserByIdAndOrganisationAsync2",
    "2026-03-12T10:30:00.123456Z INFO [main] c.e.App - Started in 3.2 seconds",
    "x86_64-linux-gnu manylinux_2_28_x86_64.manylinux2014 cp311-cp311",
    "0x7fffdeadbeef00112233445566778899",
    "控制面板在三楼，服务器的地址是 10.0.0.1",
    "ssh -p 2222 bob@example.com 'uptime'",
    "mkdir -p build/output && cp -p a b",
    "authentication=enabled auth_method=oidc",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_strings_survive(text: str) -> None:
    assert redact(text) == text


def corpus(seed: int, size: int) -> list[tuple[str, str]]:
    """(secret, text with it); every kind in turn."""
    draw = random.Random(seed)
    out = []
    for i in range(size):
        if i % 2:
            make, place = BESIDE[(i // 2) % len(BESIDE)]
        else:
            make, place = ANYWHERE[(i // 2) % len(ANYWHERE)], draw.choice(PLACES)
        secret = make(draw)
        out.append((secret, place.replace("%s", secret)))
    return out


def leaks(secret: str, stored: str) -> bool:
    """Whether a telling part of the secret is there: the whole of a short one, eight characters of a long one."""
    lines = [p for p in secret.replace("-----", "\n").split("\n") if len(p) > 30] or [secret]
    pieces = [line[i : i + 12] for line in lines for i in range(0, max(1, len(line) - 11), 4)]
    known = (
        "BEGIN",
        "PRIVATE",
        "https://hook",
        "slack.com",
        "services",
        "/hooks.slack",
        "pypi-AgE",
        "sk-ant-api03",
    )
    return any(p in stored for p in pieces if not any(k in p or p in k for k in known))


@pytest.mark.parametrize("seed", range(20))
def test_no_secret_passes(seed: int) -> None:
    for secret, text in corpus(seed, 2 * max(len(ANYWHERE), len(BESIDE))):
        assert not leaks(secret, redact(text)), (secret, text, redact(text))


def test_a_hundred_secrets_and_none_is_stored(tmp_path: Path) -> None:
    """Through the hooks, in commands and in outputs; then every byte of the store is searched."""
    store = tmp_path / "store"
    pairs = corpus(42, 100)
    assert len({secret for secret, _ in pairs}) == 100
    with AgentMemory(store, embedder="hashing") as mem:
        hooks = Hooks(mem)
        base = {"session_id": "s", "cwd": str(tmp_path)}
        for i, (_, text) in enumerate(pairs):
            current: dict[str, Any] = {
                "tool_name": "Bash",
                "tool_input": {"command": text if i % 2 else f"run-step {i}"},
                "tool_response": {"stdout": f"x{i}" if i % 2 else text, "stderr": text},
            }
            older = {
                "tool": {
                    "name": "Bash",
                    "input": current["tool_input"],
                    "output": current["tool_response"]["stdout"],
                }
            }
            hooks.run("post-tool-use", {**base, **(current if i % 3 else older)})
            hooks.run("user-prompt-submit", {**base, "session_id": f"p{i}", "prompt": text})
            write = {"tool_name": "Write", "tool_input": {"file_path": f"/srv/{i}.env", "content": text}}
            hooks.run("post-tool-use", {**base, **write})
            hooks.run("post-tool-use", {**base, **write, "session_id": f"p{i}"})
            hooks.run("stop", {**base, "session_id": f"p{i}"})
        hooks.run("session-end", base)
        kept = mem.search(namespaces=["*"], limit=None)
        assert sum("REDACTED" in m.content for m in kept) >= 60, "the captures are there, without the secrets"
        assert mem.export_json(tmp_path / "export.jsonl") > 200
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    everything = "\n".join(p.read_bytes().decode("utf-8", "replace") for p in files)
    for secret, text in pairs:
        assert not leaks(secret, everything), (secret, text)


@given(st.text(max_size=300))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


def test_a_cut_never_comes_before_the_redaction() -> None:
    """A token that crosses the length kept would no longer look like one."""
    from twofold.integrations.hooks import OUTPUT_KEPT, captured

    secret = "ghp_" + drawn(random.Random(1), 36)
    for pad in range(OUTPUT_KEPT - 45, OUTPUT_KEPT + 5):
        payload = {
            "tool_name": "Bash",
            "tool_input": {"command": "make"},
            "tool_response": {"stdout": "w" * pad + " " + secret, "stderr": ""},
        }
        made = captured(payload)
        assert made is not None
        assert secret[4:16] not in made[0]
        assert MARK[:4] not in made[0] or MARK in made[0]


def test_long_texts_take_linear_time() -> None:
    """Eight times the text, about eight times the time, for each awkward kind."""
    from twofold.clock import monotonic

    units = (
        "a" * 60 + " ",
        "-----BEGIN PRIVATE KEY-----",
        "x=",
        "password=",
        "://a:b",
        "eyJ",
        "A1b2",
        '"',
        "-p ",
    )
    for unit in units:
        times = []
        for size in (4_000, 32_000):
            text, best = unit * (size // len(unit)), float("inf")
            for _ in range(2):
                started = monotonic()
                redact(text)
                best = min(best, monotonic() - started)
            times.append(best)
        assert times[1] < 30 * times[0] + 0.1, unit  # a square would be 64 times
