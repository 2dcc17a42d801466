"""Describe coding agents that speak the Agent Client Protocol: one row of data for each.

A row says how the agent is started and installed, which mode makes it ask for permission, what its tools are called,
and how it differs from others. Users add rows in their settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ...values.errors import Mistake
from ...values.tool_table import NAMES

AGENTS_FOLDER = "agents"
"""The folder in Podium's home where the install commands put agents."""

AfterDenial = Literal["goes_on", "ends_turn"]
"""What an agent does when an action is denied: its model continues, or the turn ends without an answer."""


McpTransport = Literal["", "http", "stdio", "off"]
"""How an agent connects to Podium's tools. Empty means HTTP if the agent supports it, and stdio otherwise."""


class AgentProgram(Struct, frozen=True, kw_only=True):
    """The definition of a coding agent. The defaults are for an agent that follows the protocol and has no quirks.

    `command` is the program with its arguments. `package` is the npm package, and `version` is the version that this
    definition was tested with. `binary` is the program's path in the package if npm does not link it. `mode` is the
    mode in which the agent asks before it acts. The variables in `env` are always set, those in `passed_variables` are
    copied from the user's environment, and the files in `login_files` are copied from the user's home folder into the
    agent's own. `model_env` and `model_files` are the variables and files that make the agent use a model that the user
    chose, for each kind of API. If `asks_late` is true, the agent reports the start of a call before it asks for
    permission. If `reports_totals` is true, the usage that the agent reports is the total for the session. `hosts`
    lists the hosts that the agent must reach to use its own configured model and login. `readable` lists the folders
    that it must read, besides its installation folder. `creatable` lists configuration files in the checkout that the
    agent can create in the sandbox; the sandbox prevents all other agents from creating them. If `is_sandboxed` is
    true, the agent runs in Podium's sandbox if one is available. `mcp` specifies how the agent connects to Podium's
    tools. If `lists_late` is true, the agent requests the list of these tools only after its first prompt. `caution`
    describes a known limitation that Podium cannot work around.
    """

    name: str
    command: tuple[str, ...]
    package: str = ""
    version: str = ""
    binary: str = ""
    mode: str = ""
    env: Mapping[str, str] = {}
    passed_variables: tuple[str, ...] = ()
    login_files: tuple[str, ...] = ()
    model_env: Mapping[str, Mapping[str, str]] = {}
    model_files: Mapping[str, Mapping[str, str]] = {}
    tool_names: Mapping[str, str] = {}
    after_denial: AfterDenial = "goes_on"
    shares_process: bool = False
    exits_at_eof: bool = True
    asks_late: bool = False
    reports_totals: bool = False
    hosts: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    creatable: tuple[str, ...] = ()
    is_sandboxed: bool = True
    mcp: McpTransport = ""
    lists_late: bool = False
    caution: str = ""
    is_own: bool = False
    """Whether the user's settings define the agent."""

    def find_executable(self, home: Path | None, path: str) -> str | None:
        """Find the agent's program on the PATH, or where the install command puts it. Return None if it is missing.

        Programs in the checkout that this process works in are ignored, because agents' commands can write there.
        """
        # Imported here to keep start-up fast: only coding agents need it.
        from ...system.unsandboxed_program import find_current_program

        if (found := find_current_program(self.command[0], path, home)) is not None or home is None or not self.package:
            return found
        modules = home / AGENTS_FOLDER / "node_modules"
        installed = modules / self.package / self.binary if self.binary else modules / ".bin" / self.command[0]
        return find_current_program(str(installed), path, home)

    def choose_wire(self, provider: str, wire: str, *, agent: str, model: str) -> str:
        """Return the kind of API that the agent uses to call a model: the provider's own, or else `wire`.

        Raise Mistake if Podium cannot make the coding agent use the model.
        """
        for one in (provider, wire):
            if one in self.model_env:
                return one
        known = " or ".join(f"models with the {one} API" for one in self.model_env) or "its own configured model"
        raise Mistake(f"{agent} uses {self.name} with the model {model}, but {self.name} can use only {known}")

    def describe_installation(self, home: Path | None) -> str:
        """Return the command that installs the agent, or an empty string if there is none."""
        if not self.package:
            return ""
        folder = "~/.podium" if home is None else str(home)
        return f"npm install --prefix {folder}/{AGENTS_FOLDER} {self.package}@{self.version}"


_PROVIDER_HOSTS = ("api.openai.com", "api.anthropic.com", "openrouter.ai")
_OPENAI_KEYS = ("OPENAI_API_KEY", "OPENAI_BASE_URL")

_CODEX_CONFIG = """\
model = "$MODEL"
model_provider = "podium"

[model_providers.podium]
name = "podium"
base_url = "$URL"
wire_api = "responses"
env_key = "PODIUM_MODEL_KEY"
"""

_OPENCODE_CONFIG = """\
{
  "model": "podium/$MODEL",
  "enabled_providers": ["podium"],
  "autoupdate": false,
  "share": "disabled",
  "snapshot": false,
  "permission": {"edit": "ask", "bash": "ask", "webfetch": "ask"},
  "provider": {
    "podium": {
      "npm": "@ai-sdk/openai-compatible",
      "options": {"baseURL": "$URL", "apiKey": "{env:PODIUM_MODEL_KEY}"},
      "models": {"$MODEL": {}}
    }
  }
}
"""

_GEMINI_CONFIG = """\
{
  "security": {"auth": {"selectedType": "gemini-api-key"}},
  "general": {"enableAutoUpdate": false},
  "privacy": {"usageStatisticsEnabled": false}
}
"""

_GEMINI_TOOLS = {
    "read_file": "read_file",
    "write_file": "write_file",
    "replace": "edit_file",
    "edit": "edit_file",
    "run_shell_command": "bash",
    "glob": "glob",
    "grep_search": "grep",
    "search_file_content": "grep",
    "web_fetch": "web_fetch",
}

_ROWS = (
    AgentProgram(
        name="goose",
        command=("goose", "acp"),
        package="@aaif/goose-binary-linux-x64",
        version="1.52.0",
        binary="bin/goose",
        mode="approve",
        env={"GOOSE_MODE": "approve", "GOOSE_DISABLE_KEYRING": "1", "GOOSE_TELEMETRY_ENABLED": "false"},
        passed_variables=("GOOSE_PROVIDER", "GOOSE_MODEL", *_OPENAI_KEYS, "OPENAI_HOST", "ANTHROPIC_API_KEY"),
        login_files=(".config/goose/config.yaml", ".config/goose/secrets.yaml"),
        hosts=_PROVIDER_HOSTS,
        model_env={
            "openai": {
                "GOOSE_PROVIDER": "openai",
                "GOOSE_MODEL": "$MODEL",
                "OPENAI_HOST": "$HOST",
                "OPENAI_BASE_PATH": "$PATH/chat/completions",
                "OPENAI_API_KEY": "$KEY",
            },
            "anthropic": {
                "GOOSE_PROVIDER": "anthropic",
                "GOOSE_MODEL": "$MODEL",
                "ANTHROPIC_HOST": "$URL",
                "ANTHROPIC_API_KEY": "$KEY",
            },
        },
        tool_names={"write": "write_file", "edit": "edit_file", "shell": "bash", "tree": "glob"},
        shares_process=True,
        lists_late=True,
    ),
    AgentProgram(
        name="copilot",
        command=("copilot", "--acp"),
        package="@github/copilot",
        version="1.0.102",
        env={"COPILOT_AUTO_UPDATE": "false"},
        passed_variables=("GH_TOKEN", "GITHUB_TOKEN", "COPILOT_GITHUB_TOKEN"),
        login_files=(".copilot/config.json", ".config/github-copilot/apps.json", ".config/gh/hosts.yml"),
        hosts=("api.github.com", "github.com", "*.githubcopilot.com"),
        model_env={
            "openai": {
                "COPILOT_PROVIDER_BASE_URL": "$URL",
                "COPILOT_PROVIDER_API_KEY": "$KEY",
                "COPILOT_MODEL": "$MODEL",
                "COPILOT_OFFLINE": "true",
            }
        },
        after_denial="ends_turn",
        shares_process=True,
        reports_totals=True,
    ),
    AgentProgram(
        name="codex",
        command=("codex-acp",),
        package="@agentclientprotocol/codex-acp",
        version="2.6.0",
        mode="read-only",
        env={"INITIAL_AGENT_MODE": "read-only", "NO_BROWSER": "1"},
        passed_variables=("CODEX_API_KEY", "OPENAI_API_KEY"),
        login_files=(".codex/auth.json", ".codex/config.toml"),
        hosts=("api.openai.com", "chatgpt.com", "auth.openai.com"),
        model_env={"openai": {"PODIUM_MODEL_KEY": "$KEY"}},
        model_files={"openai": {".codex/config.toml": _CODEX_CONFIG}},
        after_denial="ends_turn",
        shares_process=True,
        caution="its own sandbox cannot run inside Podium's, so a command works only if the model asks for permission "
        "to run it without codex's sandbox; in the mode agent-full-access, codex never asks for permission",
    ),
    AgentProgram(
        name="claude",
        command=("claude-agent-acp",),
        package="@agentclientprotocol/claude-agent-acp",
        version="0.99.1",
        mode="default",
        env={
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "ENABLE_TOOL_SEARCH": "false",
            "MCP_TOOL_TIMEOUT": "600000",
        },
        passed_variables=("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "CLAUDE_CODE_OAUTH_TOKEN"),
        login_files=(".claude/.credentials.json", ".claude.json"),
        hosts=("api.anthropic.com", "platform.claude.com"),
        model_env={
            "anthropic": {"ANTHROPIC_BASE_URL": "$URL", "ANTHROPIC_API_KEY": "$KEY", "ANTHROPIC_MODEL": "$MODEL"}
        },
        tool_names=NAMES,
    ),
    AgentProgram(
        name="opencode",
        command=("opencode", "acp"),
        package="opencode-ai",
        version="1.18.33",
        env={
            "OPENCODE_PERMISSION": '{"edit": "ask", "bash": "ask", "webfetch": "ask"}',
            "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
        },
        passed_variables=(*_OPENAI_KEYS, "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"),
        login_files=(".local/share/opencode/auth.json",),
        hosts=(*_PROVIDER_HOSTS, "opencode.ai", "models.opencode.ai"),
        model_env={"openai": {"PODIUM_MODEL_KEY": "$KEY", "OPENCODE_DISABLE_MODELS_FETCH": "1"}},
        model_files={"openai": {".config/opencode/opencode.json": _OPENCODE_CONFIG}},
        after_denial="ends_turn",
        shares_process=True,
        asks_late=True,
        # To keep other agents from creating this file, the sandbox puts an empty folder at its path. opencode fails to
        # read that folder.
        creatable=("opencode.json",),
        caution="it never asks before it calls an MCP server's tool, and its commands can create opencode.json",
    ),
    AgentProgram(
        name="gemini",
        command=("gemini", "--acp"),
        package="@google/gemini-cli",
        version="0.61.0",
        mode="default",
        env={"GEMINI_TELEMETRY_ENABLED": "false"},
        passed_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
        login_files=(".gemini/oauth_creds.json", ".gemini/google_accounts.json", ".gemini/settings.json"),
        hosts=(
            *("generativelanguage.googleapis.com", "aiplatform.googleapis.com", "cloudcode-pa.googleapis.com"),
            *("oauth2.googleapis.com", "www.googleapis.com"),
        ),
        model_env={"gemini": {"GOOGLE_GEMINI_BASE_URL": "$HOST", "GEMINI_API_KEY": "$KEY", "GEMINI_MODEL": "$MODEL"}},
        model_files={"gemini": {".gemini/settings.json": _GEMINI_CONFIG}},
        tool_names=_GEMINI_TOOLS,
        after_denial="ends_turn",
        shares_process=True,
        caution="after a crash, it may continue the conversation in a new session; it can use Podium's tools only in a "
        "folder that it trusts",
    ),
    AgentProgram(
        name="qwen",
        command=("qwen", "--acp"),
        package="@qwen-code/qwen-code",
        version="0.24.4",
        mode="default",
        passed_variables=(
            *(*_OPENAI_KEYS, "OPENAI_MODEL"),
            *("DASHSCOPE_API_KEY", "BAILIAN_CODING_PLAN_API_KEY", "BAILIAN_TOKEN_PLAN_API_KEY"),
        ),
        login_files=(".qwen/settings.json", ".qwen/.env"),
        hosts=(
            *("api.openai.com", "openrouter.ai", "dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com"),
            *("dashscope-us.aliyuncs.com", "cn-hongkong.dashscope.aliyuncs.com", "coding.dashscope.aliyuncs.com"),
            *("coding-intl.dashscope.aliyuncs.com", "token-plan.cn-beijing.maas.aliyuncs.com"),
            "token-plan.ap-southeast-1.maas.aliyuncs.com",
        ),
        model_env={"openai": {"OPENAI_BASE_URL": "$URL", "OPENAI_API_KEY": "$KEY", "OPENAI_MODEL": "$MODEL"}},
        tool_names=_GEMINI_TOOLS,
        after_denial="ends_turn",
        shares_process=True,
    ),
    AgentProgram(
        name="kimi",
        command=("kimi", "acp"),
        package="@moonshot-ai/kimi-code",
        version="2.1.0",
        mode="default",
        env={"KIMI_DISABLE_TELEMETRY": "1", "KIMI_CODE_NO_AUTO_UPDATE": "1"},
        passed_variables=("KIMI_API_KEY", "KIMI_MODEL_NAME", "KIMI_MODEL_API_KEY", "KIMI_MODEL_BASE_URL"),
        login_files=(".kimi-code/config.toml", ".kimi-code/credentials/kimi-code.json", ".kimi-code/region"),
        hosts=("api.kimi.com", "auth.kimi.com", "api.kimi.ai", "auth.kimi.ai", "api.moonshot.ai", "api.moonshot.cn"),
        model_env={
            wire: {
                "KIMI_MODEL_NAME": "$MODEL",
                "KIMI_MODEL_BASE_URL": "$URL",
                "KIMI_MODEL_API_KEY": "$KEY",
                "KIMI_MODEL_PROVIDER_TYPE": wire,
            }
            for wire in ("openai", "anthropic")
        },
        tool_names={**NAMES, "FetchURL": "web_fetch"},
        shares_process=True,
        asks_late=True,
        caution="in a git repository, it changes files in its checkout without asking; it asks before it runs commands",
    ),
)

AGENT_PROGRAMS: Mapping[str, AgentProgram] = {row.name: row for row in _ROWS}
"""The coding agents that Podium knows, keyed by the name that agents use in `engine`."""
