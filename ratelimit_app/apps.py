"""The app in a Django project."""

from typing import Any

from django.apps import AppConfig
from django.contrib.auth.signals import user_login_failed
from django.core.signals import request_finished, setting_changed
from django.db.models.signals import post_delete, post_migrate, post_save


class RateLimitConfig(AppConfig):
    name = "ratelimit_app"
    verbose_name = "Rate limits"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # checks register themselves
        from ratelimit_app import charging, checks, ending, snapshots  # noqa: F401
        from ratelimit_app.models import Limit, LimitOverride

        for model in (Limit, LimitOverride):
            post_save.connect(snapshots.edited, sender=model)
            post_delete.connect(snapshots.edited, sender=model)
        post_migrate.connect(snapshots.drop, sender=self)  # sent after a flush too
        setting_changed.connect(_drop_snapshot)
        request_finished.connect(ending.end_here)
        user_login_failed.connect(charging.note_failed_login)


def _drop_snapshot(setting: str, **kwargs: Any) -> None:
    from ratelimit_app import snapshots

    if setting.startswith("RATELIMIT_") or setting in {"TIME_ZONE", "SECRET_KEY", "REST_FRAMEWORK"}:
        snapshots.drop()
