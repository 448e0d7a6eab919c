"""The options of a conversation: what may be set, what is refused, and the command line made from them."""
