"""`ScriptedModel`: a Messages API on loopback that plays a script."""
