"""`ScriptedCLI`: the CLI's side of the protocol in memory."""
