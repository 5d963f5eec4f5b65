"""The Training dynamics page: how its parts are laid out, and which saved result it is drawn from."""

from apps.dashboard.training.saved import STUDY, saved_for

__all__ = ["STUDY", "saved_for"]
