"""OpenAPI documents as tools: one tool per operation, called over HTTP with validated arguments."""
