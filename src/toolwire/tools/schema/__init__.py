"""The parameters of a tool: from a signature, Pydantic types or a JSON Schema to validated arguments."""
