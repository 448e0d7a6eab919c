"""One module for each suite. Its function `run(bench)` measures, and adds rows, curves and targets to `bench`."""
