"""`twofold install` and `uninstall`: into an empty home, beside other entries, twice, and away again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from twofold.errors import InvalidInput
from twofold.integrations import hook_client, install_command, installer
from twofold.integrations.installer import HOOKS, SCOPES, TOOLS, Target, event_of, files_of, plan, removal

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "plugins" / "claude-code"

OTHERS: dict[str, Any] = {
    "model": "opus",
    "hooks": {
        "PostToolUse": [
            {"matcher": "Edit", "hooks": [{"type": "command", "command": "prettier --write"}]},
        ],
        "Notification": [{"hooks": [{"type": "command", "command": "notify-send done"}]}],
    },
    "permissions": {"allow": ["Bash(ls:*)"]},
}


@pytest.fixture(autouse=True)
def _no_checks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting servers is tested once, below; the files are the matter here."""
    if "real_checks" not in request.fixturenames:
        monkeypatch.setattr(install_command, "checks", lambda target: [])


@pytest.fixture
def real_checks() -> None:
    return None


def target(tmp_path: Path, tool: str = "claude-code", scope: str = "user", **more: Any) -> Target:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir(exist_ok=True)
    project.mkdir(exist_ok=True)
    return Target(tool, scope, home, project, str(tmp_path / "store"), **more)


def run(tmp_path: Path, *arguments: str, uninstall: bool = False, answers: str | None = None) -> Result:
    base = target(tmp_path)
    command = install_command.uninstall if uninstall else install_command.install
    return CliRunner().invoke(
        command,
        [*arguments, "--home", str(base.home), "--project", str(base.project)]
        + ([] if answers is not None else ["--store", base.store]),
        input=answers,
    )


def state(tmp_path: Path) -> dict[str, str]:
    """Every file below home and project but backups."""
    return {
        str(p.relative_to(tmp_path)): p.read_text("utf-8")
        for p in sorted(tmp_path.rglob("*"))
        if p.is_file() and "twofold-backup" not in p.name
    }


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("scope", SCOPES)
def test_install_twice_and_uninstall(tmp_path: Path, tool: str, scope: str) -> None:
    first = run(tmp_path, tool, "--scope", scope, "--yes")
    assert first.exit_code == 0, first.output
    files = files_of(target(tmp_path, tool, scope))
    body = json.loads(files["mcp"].read_text("utf-8"))
    entry = body["servers" if tool == "vscode" else "mcpServers"]["twofold"]
    assert Path(entry["command"]).exists()
    assert entry["args"][-4:] == ["mcp", "--store", str(tmp_path / "store"), "--project"]
    assert ("hooks" in files) == (tool == "claude-code")
    before = state(tmp_path)
    again = run(tmp_path, tool, "--scope", scope, "--yes")
    assert "nothing to change" in again.output
    assert state(tmp_path) == before
    gone = run(tmp_path, tool, "--scope", scope, "--yes", uninstall=True)
    assert gone.exit_code == 0
    assert all(json.loads(text) == {} for text in state(tmp_path).values())


def test_other_entries_are_left_alone(tmp_path: Path) -> None:
    """Settings of others, their order and the indentation stay; uninstalling gives the first text back."""
    base = target(tmp_path)
    settings, servers = base.home / ".claude" / "settings.json", base.home / ".claude.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps(OTHERS, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")
    servers.write_text(
        '{"numStartups": 3, "mcpServers": {"other": {"command": "x"}}, "名": "é"}', encoding="utf-8"
    )
    settings.chmod(0o600)
    first = state(tmp_path)
    assert run(tmp_path, "claude-code", "--yes").exit_code == 0
    made = json.loads(settings.read_text("utf-8"))
    assert list(made) == list(OTHERS)
    assert made["hooks"]["PostToolUse"][0] == OTHERS["hooks"]["PostToolUse"][0]
    assert set(made["hooks"]) == {"Notification", *HOOKS}
    assert '\n    "model"' in settings.read_text("utf-8")
    assert settings.stat().st_mode & 0o777 == 0o600
    backups = list(settings.parent.glob("*.twofold-backup-*"))
    assert [b.read_text("utf-8") for b in backups] == [first["home/.claude/settings.json"]]
    assert backups[0].stat().st_mode & 0o777 == 0o600
    assert run(tmp_path, "claude-code", "--yes", uninstall=True).exit_code == 0
    assert settings.read_text("utf-8") == first["home/.claude/settings.json"]
    assert json.loads(servers.read_text("utf-8")) == json.loads(first["home/.claude.json"])


def test_an_older_installation_is_replaced(tmp_path: Path) -> None:
    """Another Python or store: our entries are brought up to date, not doubled."""
    old = target(tmp_path, python="/old/venv/bin/python")
    for change in plan(old):
        installer.apply(change)
    assert run(tmp_path, "claude-code", "--yes").exit_code == 0
    text = "".join(state(tmp_path).values())
    assert "/old/venv" not in text
    assert text.count("hook_client.py") == len(HOOKS)


@pytest.mark.parametrize(
    "text", ["{ // a comment\n}", "[1]", '{"mcpServers": 7}', '{"hooks": {"Stop": 3}}', "\xff"]
)
def test_what_cannot_be_kept_is_not_touched(tmp_path: Path, text: str) -> None:
    base = target(tmp_path, scope="project")
    for path in files_of(base).values():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode("latin-1"))
    before = {p: p.read_bytes() for p in files_of(base).values()}
    refused = run(tmp_path, "claude-code", "--scope", "project", "--yes")
    assert refused.exit_code == 1
    assert "InvalidInput" in refused.output
    assert {p: p.read_bytes() for p in files_of(base).values()} == before


def test_dry_run_shows_the_diff_and_writes_nothing(tmp_path: Path) -> None:
    shown = run(tmp_path, "claude-code", "--dry-run")
    assert shown.exit_code == 0
    assert "+++" in shown.output
    assert '+    "twofold": {' in shown.output
    assert state(tmp_path) == {}
    as_json = json.loads(run(tmp_path, "claude-code", "--dry-run", "--json").stdout)
    assert len(as_json["changed"]) == 2
    assert state(tmp_path) == {}


def test_the_wizard_asks_and_takes_no_for_an_answer(tmp_path: Path) -> None:
    no = run(tmp_path, answers="claude-code\nproject\n\ny\nn\n")
    assert no.exit_code == 0, no.output
    assert "nothing was written" in no.output
    assert state(tmp_path) == {}
    store = tmp_path / "elsewhere"
    yes = run(tmp_path, answers=f"claude-code\nproject\n{store}\nn\ny\n")
    assert yes.exit_code == 0, yes.output
    assert set(state(tmp_path)) == {"project/.mcp.json"}, "no hooks, as answered"
    assert str(store) in (tmp_path / "project" / ".mcp.json").read_text()
    assert run(tmp_path, "--yes").exit_code == 2


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    base = target(tmp_path)
    file = base.home / ".claude.json"
    file.write_text("{}")
    change = plan(base)[0]
    file.write_text('{"new": 1}')
    with pytest.raises(InvalidInput, match="changed meanwhile"):
        installer.apply(change)
    assert file.read_text() == '{"new": 1}'


def test_removal_of_nothing_changes_nothing(tmp_path: Path) -> None:
    assert not any(c.changes for c in removal(target(tmp_path)))
    with pytest.raises(InvalidInput, match="unknown tool"):
        files_of(target(tmp_path, tool="emacs"))


def test_places_of_vscode() -> None:
    def place(platform: str) -> str:
        found = files_of(Target("vscode", "user", Path("/h"), Path("/p"), "s", platform=platform))["mcp"]
        return found.as_posix()

    assert place("linux") == "/h/.config/Code/User/mcp.json"
    assert place("darwin") == "/h/Library/Application Support/Code/User/mcp.json"
    assert place("win32") == "/h/AppData/Roaming/Code/User/mcp.json"


def test_what_is_installed_works(tmp_path: Path, real_checks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The health check starts the real server and runs the real hook, and says when something is missing."""
    pytest.importorskip("mcp")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(run_dir))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TWOFOLD_EMBEDDER", "hashing")
    missing = run(tmp_path, "claude-code", "--check", "--no-mcp", "--no-hooks")
    assert missing.exit_code == 0, "nothing asked, nothing missing"
    done = run(tmp_path, "claude-code", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["checks"]
    assert [c["ok"] for c in found] == [True] * 4, found
    assert "answers" in found[2]["detail"]
    assert "answers" in found[3]["detail"]
    (tmp_path / "home" / ".claude" / "settings.json").write_text("{}")
    broken = run(tmp_path, "claude-code", "--check", "--no-mcp")
    assert broken.exit_code == 1
    assert "[FAILED]" in broken.output
    assert run(tmp_path, "claude-code", "--yes", uninstall=True).exit_code == 0


# -- the plugin ---------------------------------------------------------------------------------------


def test_plugin_is_in_step_with_the_package() -> None:
    """The same client file, the same events and time limits, the package's version."""
    ours = Path(hook_client.__file__).read_bytes()
    assert (PLUGIN / "hooks" / "hook_client.py").read_bytes() == ours
    declared = json.loads((PLUGIN / "hooks" / "hooks.json").read_text("utf-8"))["hooks"]
    assert list(declared) == list(HOOKS)
    for hook, (matcher, timeout) in HOOKS.items():
        (group,) = declared[hook]
        assert group.get("matcher") == matcher
        (entry,) = group["hooks"]
        assert entry["timeout"] == timeout
        assert entry["command"].endswith(f'/hooks/hook_client.py" {event_of(hook)}')
    about = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text("utf-8"))
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    assert version
    assert about["version"] == version.group(1)
    assert (
        json.loads((PLUGIN / ".mcp.json").read_text("utf-8"))["mcpServers"]["twofold"]["command"] == "twofold"
    )


def test_the_skill_answers_install_agent_memory() -> None:
    text = (PLUGIN / "skills" / "install-agent-memory" / "SKILL.md").read_text("utf-8")
    head = text.split("---")[1]
    assert "name: install-agent-memory" in head
    assert '"install agent memory"' in head
    for command in re.findall(r"`twofold (install|uninstall)((?: [\w-]+)*)`", text):
        parsed = CliRunner().invoke(getattr(install_command, command[0]), [*command[1].split(), "--help"])
        assert parsed.exit_code == 0, command


def test_the_plugins_client_starts_twofold_from_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Away from the package it runs `twofold hook daemon`; beside it, this Python."""
    monkeypatch.setattr(hook_client, "__file__", str(PLUGIN / "hooks" / "hook_client.py"))
    assert hook_client.starter() == ["twofold", "hook", "daemon"]
    monkeypatch.undo()
    assert hook_client.starter()[1:] == ["-m", "twofold.integrations.daemon"]
