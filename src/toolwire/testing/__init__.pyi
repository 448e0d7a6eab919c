from toolwire.testing.environment import (
    ClaudeEnvironment as ClaudeEnvironment,
)
from toolwire.testing.environment import (
    allow_live as allow_live,
)
from toolwire.testing.environment import (
    claude_environment as claude_environment,
)
from toolwire.testing.recording.recorder import (
    Recorder as Recorder,
)
from toolwire.testing.recording.replay import (
    Replay as Replay,
)
from toolwire.testing.recording.replay import (
    ReplayMismatch as ReplayMismatch,
)
from toolwire.testing.request import (
    Request as Request,
)
from toolwire.testing.request import (
    ToolResult as ToolResult,
)
from toolwire.testing.script import (
    Answer as Answer,
)
from toolwire.testing.script import (
    Rule as Rule,
)
from toolwire.testing.script import (
    Step as Step,
)
from toolwire.testing.script import (
    answer as answer,
)
from toolwire.testing.script import (
    call as call,
)
from toolwire.testing.script import (
    drop as drop,
)
from toolwire.testing.script import (
    expect as expect,
)
from toolwire.testing.script import (
    fail as fail,
)
from toolwire.testing.script import (
    hang as hang,
)
from toolwire.testing.script import (
    say as say,
)
from toolwire.testing.script import (
    think as think,
)
from toolwire.testing.script import (
    turn as turn,
)
from toolwire.testing.script import (
    when as when,
)
from toolwire.testing.scripted_cli.cli import (
    Scene as Scene,
)
from toolwire.testing.scripted_cli.cli import (
    ScriptedCLI as ScriptedCLI,
)
from toolwire.testing.scripted_cli.cli import (
    ToolCall as ToolCall,
)
from toolwire.testing.scripted_cli.cli import (
    exit_early as exit_early,
)
from toolwire.testing.scripted_cli.cli import (
    garbage as garbage,
)
from toolwire.testing.scripted_cli.cli import (
    silence as silence,
)
from toolwire.testing.scripted_model.model import (
    ScriptedModel as ScriptedModel,
)
from toolwire.testing.scripted_model.model import (
    Unexpected as Unexpected,
)
from toolwire.tools.client import (
    CallResult as CallResult,
)
from toolwire.tools.client import (
    Completed as Completed,
)
from toolwire.tools.client import (
    DirectClient as DirectClient,
)
from toolwire.tools.client import (
    ListedPrompt as ListedPrompt,
)
from toolwire.tools.client import (
    ListedResource as ListedResource,
)
from toolwire.tools.client import (
    ListedTemplate as ListedTemplate,
)
from toolwire.tools.client import (
    ListedTool as ListedTool,
)
from toolwire.tools.client import (
    Notified as Notified,
)
from toolwire.tools.client import (
    PromptResult as PromptResult,
)
from toolwire.tools.client import (
    ResourceContent as ResourceContent,
)
from toolwire.tools.client import (
    connect as connect,
)
