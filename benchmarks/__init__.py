"""Benchmarks against the peers: `make bench`. What is measured and how: docs/benchmarks/README.md."""
