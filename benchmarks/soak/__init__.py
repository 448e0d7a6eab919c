"""`make soak`: runs four loads for half an hour, and reports what was lost, leaked or slow."""
