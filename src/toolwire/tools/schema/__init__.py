"""What a tool takes: from a function's signature, Pydantic types or a JSON Schema to checked arguments."""
