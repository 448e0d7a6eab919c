"""Makes paid calls: limits, the order, the reading of the reply, the result for the model."""
