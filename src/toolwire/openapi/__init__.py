"""OpenAPI documents as tools: one tool an operation, called over HTTP with checked arguments."""
