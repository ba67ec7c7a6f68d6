"""Any value of any setting: the checks tell of it, and fail over none."""

from django.core.checks.registry import registry
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from ratelimit_app.checks.settings import SETTINGS
from tests.fuzz.examples import fuzzed, shaped, texts

OURS = [check for check in registry.get_checks() if check.__module__.startswith("ratelimit_app.")]

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=10)
    | texts
    | shaped("5/min", "ip", "10.0.0.0/8", "ietf", "os.", "path", "admin:", "UTC", "default"),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            texts
            | st.sampled_from(["login", "rate", "key", "path", "cost", "burst", "mode"])
            | st.integers(),
            values,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@fuzzed
@given(st.dictionaries(st.sampled_from([name for _, name, _ in SETTINGS]), VALUES, min_size=1, max_size=3))
def test_any_setting_passes_or_is_reported_by_its_name(values):
    with override_settings(**{f"RATELIMIT_{name}": value for name, value in values.items()}):
        messages = [message for check in OURS for message in check(app_configs=None)]
    errors = [message.msg for message in messages if message.id.startswith("ratelimit_app.E")]
    assert {error.partition(":")[0] for error in errors} <= {f"RATELIMIT_{name}" for name in values}
