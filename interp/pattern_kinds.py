"""What a memory's triggers can have in common (for `interp.trigger_patterns`, which says when it holds)."""

from __future__ import annotations

from enum import StrEnum


class TriggerPattern(StrEnum):
    """What most of a memory's triggers have in common; the first that holds is its kind."""

    REPEATED_TEXT = "repeated_text"
    """More than half are copies: their last 16 tokens, or all if fewer, are those of a stronger trigger."""
    SUFFIX = "suffix"
    """More than half end in the same three tokens, or more."""
    LAST_BIGRAM = "last_bigram"
    """More than half end in the same two tokens."""
    LAST_TOKEN = "last_token"
    """More than half end in the same token."""
    REGION = "region"
    """More than half end in one document within 256 tokens."""
    POSITION = "position"
    """More than half end at the same position of their window."""
    SEVERAL = "several"
    """More than half end in a token that at least three share, but in different ones."""
    NONE = "none"
    """None of these more than random prefixes have."""
    FEW = "few"
    """There are fewer than three triggers, of which nothing can be said."""
