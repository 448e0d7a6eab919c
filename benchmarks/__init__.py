"""Compares toolwire with other libraries: `make bench`. docs/benchmarks/README.md says what is measured and how."""
