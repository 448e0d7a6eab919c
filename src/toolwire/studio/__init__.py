"""The studio: a local page to look into tools, conversations and runs (`toolwire studio`).

The page (`app`, `pages`) needs the extra `studio` (NiceGUI); the rest of this folder does not and never imports it.
`import toolwire` loads none of it.
"""
