"""Tools, resources and prompts made from Python functions, and the server that serves them."""
