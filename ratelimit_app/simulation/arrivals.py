"""What is replayed: who came when."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Arrival:
    """A call: its instant in microseconds since the epoch, and whose it is."""

    at: int
    key: str
