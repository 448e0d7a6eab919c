"""Makes paid calls: waits for limits, sends the order, reads the reply, builds the result for the model."""
