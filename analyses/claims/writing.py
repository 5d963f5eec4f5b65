"""Claims written down: the TOML text that `load_claims` reads back to the same claim, and a file that holds it.

Only keys that differ from what is taken if they are left out are written, in the order in which docs/claims.md explains
them. Text may hold anything that UTF-8 can: what TOML would read otherwise is escaped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from analyses.claims.files import TABLE, Claim
from analyses.claims.statement import Statement, parse_steps
from model.errors import InputError
from model.files import clear_os_errors, read_bytes, sha256_of, write_atomically
from model.settings import to_plain


def claim_text(stated: Statement) -> str:
    r"""The claim as one `[[claim]]` table.

    >>> from analyses.claims.statement import ControlKind
    >>> print(claim_text(Statement(name="a", says='so "it" is', effect="harm >= 1", ablate="L1H1",
    ...                            control=ControlKind.NONE, step="512")))
    [[claim]]
    name = "a"
    says = "so \"it\" is"
    effect = "harm >= 1"
    control = "none"
    ablate = "L1H1"
    step = 512
    <BLANKLINE>

    Raises:
        InputError: text with half of a surrogate pair, which no UTF-8 file can hold.
    """
    usual = {name: field.default for name, field in Statement.__dataclass_fields__.items()}
    keys = {key: value for key, value in to_plain(stated).items() if value != to_plain(usual[key])}
    lines = [f"{key} = {_value(_steps(value) if key == 'step' else value)}" for key, value in keys.items()]
    return "\n".join([f"[[{TABLE}]]", *lines]) + "\n"


def claim_of(stated: Statement, file: Path) -> Claim:
    """The claim as it will be once its text stands in `file`; nothing is written."""
    return Claim(stated=stated, file=file, file_sha256=sha256_of(claim_text(stated).encode("utf-8")))


def save_claim(stated: Statement, folder: str | Path, *, replace: bool = False) -> Claim:
    """Write the claim to `folder/NAME.toml`, whole or not at all, and return it as read from there.

    Raises:
        InputError: another claim stands there already, and `replace` does not say that it may go.
    """
    made = claim_of(stated, Path(folder) / f"{stated.name}.toml")
    content = claim_text(stated).encode("utf-8")
    if replace:
        write_atomically(made.file, content)
        return made
    written = made.file.with_name(f".{made.file.name}.{os.getpid()}.{os.urandom(4).hex()}")
    write_atomically(written, content)
    try:
        os.link(written, made.file)  # unlike a rename, it never takes the place of what another has just written
    except FileExistsError:
        if read_bytes(made.file) != content:
            raise InputError(
                f"{made.file} holds another claim already. Choose another name, or say that it may be replaced."
            ) from None
    except OSError as error:
        with clear_os_errors("written", made.file):
            raise error
    finally:
        written.unlink(missing_ok=True)
    return made


def _steps(text: str) -> Any:
    steps = parse_steps(text)
    if isinstance(steps, str) or ",".join(map(str, steps)) != text:
        return text
    return steps[0] if len(steps) == 1 else list(steps)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
    return f'"{"".join(map(_character, str(value)))}"'


def _character(character: str) -> str:
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        raise InputError(
            "a claim's text holds half of a character (a lone surrogate), which no file can; leave it out."
        )
    if character in '"\\':
        return f"\\{character}"
    return f"\\u{code:04x}" if code < 0x20 or 0x7F <= code < 0xA0 else character
