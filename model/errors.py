"""What can go wrong, said once and clearly.

Every error a user can cause is a `CutawayError`: its message names what is wrong, what is allowed and what to do, and
the command prints it without a traceback. Programming mistakes stay ordinary exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class CutawayError(Exception):
    """An error whose message is written for the user."""


class ConfigError(CutawayError, ValueError):
    """A configuration that does not describe anything that can be built."""


class InputError(CutawayError, ValueError):
    """Tokens, shapes or arguments that a call cannot take."""


class UndefinedError(InputError):
    """Something that one setting of this model leaves undefined, whatever else is asked of it."""

    def __init__(self, message: str, *, setting: str) -> None:
        super().__init__(message)
        self.setting = setting
        """Such as qk_norm=true."""


class UnknownSiteError(CutawayError, LookupError):
    """A hook name that this model does not have."""


class UnknownNameError(CutawayError, LookupError):
    """A preset, study, run, step or data source that does not exist."""


class CheckpointError(CutawayError, ValueError):
    """A checkpoint that is missing, incomplete, altered or of another model."""


class NotAdditiveError(CutawayError, ValueError):
    """A sum over components was asked of a model whose stream is not one."""


class TrainingError(CutawayError, RuntimeError):
    """Training had to stop; what was saved before is intact."""


class Faults:
    """Errors of checks that do not depend on each other, gathered so that one try names them all.

    >>> faults = Faults()
    >>> for name in ("gate", "seed"):
    ...     with faults.noted():
    ...         raise ConfigError(f"{name} is wrong.")
    >>> faults.raise_any()
    Traceback (most recent call last):
        ...
    model.errors.ConfigError: gate is wrong.
    seed is wrong.
    """

    def __init__(self) -> None:
        self.found: list[CutawayError] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Keep the first error inside for later."""
        try:
            yield
        except CutawayError as error:
            self.found.append(error)

    def raise_any(self) -> None:
        """Raise what was found: one error as it is; several as one, a line each, none twice."""
        lines = list(dict.fromkeys(str(error) for error in self.found))
        if len(lines) == 1:
            raise self.found[0] from None
        if lines:
            is_config = all(isinstance(error, ConfigError) for error in self.found)
            raise (ConfigError if is_config else InputError)("\n".join(lines)) from None


def closest(name: str, options: Iterable[str], *, n: int = 3) -> str:
    """A tail for a sentence naming the options nearest to `name`, or nothing.

    >>> closest("d_modle", ["d_model", "d_head", "norm"], n=1)
    ' Did you mean "d_model"?'
    >>> closest("zebra", ["norm"])
    ''
    """
    near = get_close_matches(name, list(options), n=n, cutoff=0.6)
    quoted = " or ".join(f'"{option}"' for option in near)
    return f" Did you mean {quoted}?" if near else ""
