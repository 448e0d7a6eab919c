"""The studio: a local web page for inspecting tools, conversations and runs (`toolwire studio`).

The page (`app`, `pages`) needs the extra `studio` (NiceGUI). The other modules never import NiceGUI, and
`import toolwire` loads none of this package.
"""
