"""What an audit says: one `Check` per claim, in one order, with its largest error.

A ledger collects measurements, layer by layer and batch by batch, and keeps for each claim the one that came nearest to
its tolerance, or went furthest beyond.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from model.errors import UnknownNameError, closest

CLAIMS: dict[str, str] = {
    "checkpoint files": "every file is the one that its manifest names, by SHA-256",
    "weights": "the loaded weights have the hash that was recorded when they were saved",
    "run config": "the model in run.json is the checkpoint's",
    "tokenizer": "the tokenizer has as many ids as the model, and every held-out token is one that it knows",
    "finite weights": "every weight is a finite number",
    "parameters": "the formula of the config gives the number of trained parameters",
    "tied matrix": "W_E and W_U share one storage, or do not, as the config says",
    "dropout": "two runs of the model as it was given agree bit by bit",
    "places": "every place that the config promises is met in a run, with its documented shape",
    "norms": "scale, normalized and out of every norm follow from what it reads, its gain and its bias",
    "queries, keys, values": "q, k, v are what each head reads through its own columns of W_Q, W_K, W_V",
    "rotation": "rot_q and rot_k are q and k, turned by position and the config's rope_base",
    "scores": "q . k / sqrt(d_head), plus the position bias, is the score wherever a key is visible",
    "mask": "exactly the scores of invisible keys are -inf, and their pattern is 0",
    "pattern": "softmax of the scores is the pattern, and its rows sum to 1",
    "values mixed": "the pattern-weighted values are z",
    "head results": "z of each head through its own rows of W_O is its result",
    "attention output": "all results and b_O, through the output norm if there is one, are attn_out",
    "FFN input": "what the FFN reads through W_in (and W_gate), plus bias, is pre",
    "coefficients": "the activation function of pre is post",
    "FFN output": "post through W_out, plus bias, through the output norm if there is one, is mlp_out",
    "stream": "each stream is the one before plus what was written, through the norm on the sum if there is one",
    "additive stream": "embedding plus everything that attention and FFNs wrote is the last stream",
    "additive heads": "embedding plus every head's result, every bias and every FFN is the last stream",
    "last lens": "the lens of the last layer, final norm and W_U, gives the logits",
    "attribution": "direct logit attribution sums to the logits",
    "fused attention": "the fused and the explicit attention path give equal logits",
    "cached decode": "decoding with the key-value cache gives the logits of the whole run, also under an ablation",
    "padding": "left padding changes no logit",
    "causality": "later tokens change no bit of earlier logits",
    "ablation": "with every head and memory ablated to zero, only the output biases are written",
    "head ablation": "a head ablated at z is its result left out of the sum",
    "reading": "reading every place changes no bit of the logits",
    "idle edit": "an edit of every place that changes nothing changes no bit of the logits",
}
"""Every check by name, in the order of the report, with what it claims."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One claim, and what measuring it gave."""

    name: str
    claim: str
    """What should hold, in one sentence."""
    error: float | None
    """The largest error found; None where nothing was measured."""
    tolerance: float | None
    """How much error rounding can explain."""
    passed: bool | None
    """None: does not apply to this model, for the stated reason."""
    where: str = ""
    """Where the largest error stands, such as a layer."""
    unit: str = ""
    """What the error counts, or what it is relative to."""
    reason: str = ""
    """What else was found; or why the check does not apply; or what is wrong."""

    @property
    def sentence(self) -> str:
        """The claim and what came of it, in words."""
        if self.passed is None:
            return _ended(f"{self.name} does not apply: {self.reason}")
        told = [_ended(f"{self.name}: {self.claim}")]
        if self.passed is False:
            told[0] = _ended(told[0].removesuffix(".") + ": this does not hold")
        if self.passed is False and self.unit:
            at = f" (at {self.where})" if self.where else ""
            told.append(f"The error is {self.error:.3g}{at}, and {self.tolerance:.3g} is allowed: {_ended(self.unit)}")
        return " ".join([*told, _ended(self.reason)] if self.reason else told)


@dataclass(frozen=True, kw_only=True, repr=False)
class Audit:
    """All checks of one model. `report["scores"]` is one of them; `str(report)` says what it comes to."""

    checks: tuple[Check, ...]
    subject: str
    """The model in words: size, placement, number format."""
    tokens: str
    """What it was run on, in words; nothing where damaged files kept the model from being opened."""
    seconds: float
    checkpoint: str = ""
    """RUN@STEP, if it was a checkpoint."""

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.passed is False)

    @property
    def passed(self) -> bool:
        """Whether everything that applies holds."""
        return not self.failed

    @property
    def summary(self) -> str:
        """What it comes to, in a sentence."""
        applied = [check for check in self.checks if check.passed is not None]
        skipped = len(self.checks) - len(applied)
        rest = f" ({skipped} {'does' if skipped == 1 else 'do'} not apply)" if skipped else ""
        names = ", ".join(check.name for check in self.failed)
        if not self.tokens:
            return f"Failed: {names}. The model could not be opened, so that nothing else was checked."
        if self.failed:
            return f"{len(self.failed)} of {len(applied)} checks failed{rest}: {names}."
        return f"All {len(applied)} checks that apply passed{rest}."

    def __getitem__(self, name: str) -> Check:
        known = {check.name: check for check in self.checks}
        if name not in known:
            tail = closest(name, known) or f" They are: {'; '.join(known)}."
            raise UnknownNameError(f'This audit has no check "{name}".{tail}')
        return known[name]

    def __repr__(self) -> str:
        return f"<Audit: {self.summary}>"

    def __str__(self) -> str:
        return f"{self.subject}: {self.summary}"


class Ledger:
    """Measurements by claim; of several of one claim, the one that says most against it counts."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def measured(
        self, name: str, error: float, tolerance: float, *, where: str = "", unit: str = "", reason: str = ""
    ) -> None:
        """Note a measurement; an error that is not a number fails. `unit` says what the error is counted in."""
        passed = error <= tolerance
        found = Check(
            name=name,
            claim=CLAIMS[name],
            error=error,
            tolerance=tolerance,
            passed=passed,
            where=where,
            unit=unit,
            reason=reason,
        )
        before = self._checks.get(name)
        if before is None or _severity(found) > _severity(before):
            self._checks[name] = found

    def skipped(self, name: str, reason: str) -> None:
        """Note that a claim says nothing about this model, and why."""
        self._checks.setdefault(
            name, Check(name=name, claim=CLAIMS[name], error=None, tolerance=None, passed=None, reason=reason)
        )

    def failed(self, name: str, reason: str) -> None:
        """Note that something is wrong that has no size."""
        self._checks[name] = Check(
            name=name, claim=CLAIMS[name], error=None, tolerance=None, passed=False, reason=reason
        )

    def checks(self) -> tuple[Check, ...]:
        """Everything noted, in the order of the report."""
        return tuple(self._checks[name] for name in CLAIMS if name in self._checks)


def _severity(check: Check) -> float:
    """How far beyond its tolerance a measurement is."""
    if check.error is None or check.tolerance is None:
        return -1.0
    if math.isnan(check.error) or math.isnan(check.tolerance):
        return math.inf
    if check.tolerance == 0:
        return math.inf if check.error > 0 else 0.0
    return check.error / check.tolerance


def _ended(text: str) -> str:
    """A sentence with its full stop, which it has only once."""
    return text if text.endswith((".", "?", "!")) else f"{text}."
