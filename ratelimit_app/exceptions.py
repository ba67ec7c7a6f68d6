"""What is raised where a refusal cannot be returned."""

from ratelimit_app.decision import Decision


class RateLimited(Exception):  # noqa: N818 (it is no error, and reads as what happened)
    """A limit has refused, as ``decision`` says. Raised in a view, it becomes the 429."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(f"{decision.limit}: refused")
        self.decision = decision
