"""Talking to Claude: `query()`, `ClaudeSDKClient`, `run()`, processes started ahead, and control requests."""
