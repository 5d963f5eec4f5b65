"""What to train, from the command line: the name of a preset or a TOML file, and settings on top.

A file may start from a preset and change it:

    preset = "tiny"
    [model]
    norm = "post"
    [train]
    steps = 2000

or be complete, with tables [model], [data], [train] and, if the defaults do not do, [optim].
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from model.dotted import as_typed, dotted
from model.errors import ConfigError
from model.presets import get_preset
from model.settings import from_plain, with_settings
from model.training.config import RunConfig


def recipe(what: str, settings: Sequence[str] = ()) -> RunConfig:
    """The config that `what` (a preset or a file ending in .toml) and `settings` describe."""
    base = _from_file(Path(what)) if what.endswith(".toml") else get_preset(what)
    return with_settings(base, list(settings))


def default_folder(what: str) -> Path:
    """Where a run goes that was given no folder: runs/ and the name of the preset or file.

    >>> default_folder("gpt2_small").as_posix(), default_folder("mine/wide.toml").as_posix()
    ('runs/gpt2_small', 'runs/wide')
    """
    return Path("runs") / (Path(what).stem if what.endswith(".toml") else what)


def _from_file(path: Path) -> RunConfig:
    try:
        mapping = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}. Give a TOML file that exists, or the name of a preset.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}. See docs/vocabulary.md for what a file may hold.") from None
    preset = mapping.pop("preset", None)
    if preset is None:
        return from_plain(RunConfig, mapping, where="")
    # As settings, which can change a config whose other values follow from the changed ones.
    settings = [f"{name}={as_typed(value)}" for name, value in dotted(mapping).items()]
    return with_settings(get_preset(str(preset)), settings)
