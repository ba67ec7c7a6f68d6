"""What things cost, side by side in one run: each benchmark is a module with one command and one table."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup()
