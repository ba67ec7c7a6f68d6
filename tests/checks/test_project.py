import pytest
from django.core.management import call_command
from django.db import connections


@pytest.mark.django_db
def test_project_passes_every_check(capsys):
    call_command("check", fail_level="WARNING", databases=list(connections))
    assert "no issues" in capsys.readouterr().out


@pytest.mark.django_db
@pytest.mark.parametrize("alias", list(connections))
def test_migrations_are_complete(alias, capsys):
    call_command("makemigrations", check=True, dry_run=True)
    call_command("migrate", database=alias, check_unapplied=True)
    assert "No changes detected" in capsys.readouterr().out
