"""Rate limits for Django, counted in the project's own database."""

__version__ = "0.1.0"
