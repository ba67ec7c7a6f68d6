from django.db import ProgrammingError, migrations, router, transaction
from django.db.migrations.operations.base import Operation

from ratelimit_app.stores import store_for


class CreateFunctions(Operation):
    """Create what a store can have besides the tables, or do without it where the role may not.

    ``manage.py check --database`` then says so.
    """

    reduces_to_sql = True
    reversible = True

    def state_forwards(self, app_label, state):
        pass

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        store = store_for(schema_editor.connection.alias)
        self._send(app_label, schema_editor, [*store.drop_statements, *store.create_statements])

    def database_backwards(self, app_label, schema_editor, from_state, to_state):
        store = store_for(schema_editor.connection.alias)
        self._send(app_label, schema_editor, store.drop_statements)

    def _send(self, app_label, schema_editor, statements):
        alias = schema_editor.connection.alias
        if not statements or not router.allow_migrate(alias, app_label, model_name="counter"):
            return
        try:
            with transaction.atomic(using=alias):
                for statement in statements:
                    schema_editor.execute(statement)
        except ProgrammingError:
            pass

    def describe(self):
        return "Create the functions of the counters' database"


class Migration(migrations.Migration):
    dependencies = [("ratelimit_app", "0002_sliding_log")]
    operations = [CreateFunctions()]
