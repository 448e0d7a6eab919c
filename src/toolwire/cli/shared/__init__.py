"""What the commands share: targets, terminals, output, and the longer parts of single commands."""
