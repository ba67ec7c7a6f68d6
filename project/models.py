"""The audit of the demo."""

from django.db import models


class ApiCall(models.Model):
    """One successful call of ``/ping``."""

    client = models.CharField(max_length=80)
    called_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.client} {self.called_at:%Y-%m-%d %H:%M:%S}"
