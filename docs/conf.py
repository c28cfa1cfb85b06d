"""How Sphinx makes the site of these pages: `make docs`, or `sphinx-build -W -b html docs docs/_build`.

The pages are plain Markdown, because they are read in a repository's browser as well; what is Sphinx's alone stands
here and in index.md. Nothing on the site is fetched from another machine: fonts are those of the reader's system,
scripts and styles are files of the site.
"""

from tacit._version import __version__

project = "Tacit"
author = "The Tacit developers"
project_copyright = "the Tacit developers, Apache-2.0"
version = release = __version__

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]  # pictures of a given width, which a repository's browser understands, too
myst_links_external_new_tab = False
suppress_warnings = ["misc.highlighting_failure"]  # parts of settings, and what was printed

html_theme = "furo"
html_title = "Tacit"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_last_updated_fmt = None
html_show_search_summary = False  # it would fetch every page that is found, which a page from a disk may not
html_theme_options = {"navigation_with_keys": True}
html_css_files = ["tables.css"]
html_static_path = ["_static"]
