"""One paid call: limits, the order, what the reply says, what the model is shown."""
