"""The studio's page, drawn with NiceGUI: one module for each tab, and `parts` and views that several tabs share.

Shows the state kept by the modules of the parent package and calls their methods. Stores only the state of one
browser window. All text from tools, models and files goes through `parts`, which never turns it into markup.
"""
