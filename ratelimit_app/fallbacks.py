"""What is decided while the counters' database does not answer: what each limit's ``on_error`` says."""

from collections.abc import Sequence

from ratelimit_app import calls, outages, statistics
from ratelimit_app.calls import Call
from ratelimit_app.conf import conf
from ratelimit_app.decision import Decision
from ratelimit_app.models import OnError
from ratelimit_app.outages import Unanswered
from ratelimit_app.stores import Outcome, Row
from ratelimit_app.stores.memory import MemoryStore

#: The counters of this process.
local = MemoryStore()

#: Local counters that are dropped with each decision, once they have expired: more than one decision adds.
_PRUNED = 10


def decide(planned: Sequence[Call | Decision], trouble: Unanswered, *, takes: bool) -> list[Decision]:
    """Decide without the database what was planned; ``takes`` says whether local units are to be taken.

    They are taken from all of the local limits or, where any limit refuses, from none.
    """
    asked = [each for each in planned if isinstance(each, Call) and not each.limit.is_shadow]
    counted = [call for call in asked if _action(call, trouble) == OnError.LOCAL]
    is_denied = any(_action(call, trouble) == OnError.DENY for call in asked)
    takes = takes and not is_denied and all(each.allowed for each in planned if isinstance(each, Decision))
    outcomes = _ask(counted, takes=takes)
    taken = takes and all(outcome.fits for outcome in outcomes.values())
    return [_decide(each, trouble, outcomes, taken=taken) for each in planned]


def _action(call: Call, trouble: Unanswered) -> str:
    action = call.limit.on_error or conf.on_error
    # Whoever could hold a lock for long enough would be let through by it.
    return OnError.DENY if trouble.is_busy and action == OnError.ALLOW else action


def _ask(counted: Sequence[Call], *, takes: bool) -> dict[Row, Outcome]:
    advances = [call.advance for call in counted]
    for call in counted:
        local.prune(call.now, _PRUNED)
    if not takes:
        return local.look(advances)
    return dict(zip([advance.row for advance in advances], local.advance_all(advances), strict=True))


def _decide(
    planned: Call | Decision, trouble: Unanswered, outcomes: dict[Row, Outcome], *, taken: bool
) -> Decision:
    if isinstance(planned, Decision):
        return planned
    if planned.row in outcomes:
        statistics.count("local")
        return calls.judge(planned, outcomes[planned.row], taken=taken, is_local=True)
    if planned.limit.is_shadow or _action(planned, trouble) == OnError.ALLOW:
        statistics.count("allowed")
        return calls.uncounted(planned.limit.name, planned.key, planned.cost)
    statistics.count("denied")
    return calls.unavailable(planned, outages.RETRY_EVERY)
