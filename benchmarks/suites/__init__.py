"""One module a subject. Each has `run(bench)`, which measures, and says which targets its figures belong to."""
