"""Parts that several commands share: targets, arguments, prompts for the user, output and exit codes."""
