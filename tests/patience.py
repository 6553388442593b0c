"""A deadline at a chosen point of a computation, whatever the machine's speed."""

from planner.solving.deadline import Deadline


class Patience(Deadline):
    """A deadline that passes when it has been looked at so often."""

    def __init__(self, looks: int) -> None:
        super().__init__(None)
        self.looks = looks

    @property
    def passed(self) -> bool:
        self.looks -= 1
        return self.looks < 0
