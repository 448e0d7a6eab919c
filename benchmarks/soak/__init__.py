"""`make soak`: three loads for half an hour, and whether anything was lost, leaked or slow."""
