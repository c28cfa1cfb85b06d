"""The live page: what runs and sweeps leave in their folders, shown while they go on. It reads, and changes nothing."""

from tacit.web.access import Access
from tacit.web.app import make_app
from tacit.web.serving import Dashboard
from tacit.web.shelf import Shelf

__all__ = ["Access", "Dashboard", "Shelf", "make_app"]
