"""The settings of a process that a test has started: the demo's, and what the test hands down."""

import json
import os

from project.settings import *  # noqa: F403

# Whatever is worth a line is to be seen; that a request was refused is not.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {"django.request": {"level": "ERROR"}},
}

globals().update(json.loads(os.environ["TEST_SETTINGS"]))
