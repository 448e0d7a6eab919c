"""The page of the studio, drawn with NiceGUI: one module for each tab, with `parts` and views for several tabs.

Shows the state that the modules above this folder keep, and calls their methods; keeps nothing but what a browser
window has of its own. All text that comes from tools, models and files goes through `parts`, which never makes
markup of it.
"""
