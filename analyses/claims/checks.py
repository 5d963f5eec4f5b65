"""What is refused before anything runs: claims that this model cannot answer, and tests that could not decide.

Everything here reads the config and draws sequences; no pass is made. What depends on the heads that a rule finds is
checked after discovery and before any ablation (`measuring.subject_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from analyses.claims.ablating import Ablating, text_counterpart
from analyses.claims.bounds import Bound, Quantity
from analyses.claims.controls import matched_for, require_senders
from analyses.claims.files import Claim
from analyses.claims.ground import Ground
from analyses.claims.statement import ControlKind, Selection, Statement, parse_selection
from interp.outcomes import Measure, get_outcome
from interp.paths import require_edges
from interp.places import head
from interp.resolved_places import named_head, named_heads, resolve_places
from interp.sequential import look_sizes
from interp.stats import holm, smallest_sign_flip_p
from model.checkpoint import checkpoint_steps
from model.config import GPTConfig
from model.errors import Faults, InputError
from model.lab import Lab


def check(claims: Sequence[Claim], lab: Lab) -> None:
    """Refuse claims that cannot be tested on this run: every fault in a sentence that names file and claim.

    Raises:
        InputError: heads, layers or metrics that do not exist; bounds that cannot be met; controls that are not there,
            or cannot reach alpha; paths in a model without edges; positions beyond the sequences.
    """
    faults, smallest = Faults(), dict[int, float]()
    for number, claim in enumerate(claims):
        stated = claim.stated
        with faults.noted(), claim.named():
            ground = Ground.of(lab, stated)
            for each in (
                partial(_require_bound, stated, claim.bound),
                partial(_check_path, stated, lab.config)
                if stated.is_path
                else partial(_check_ablation, stated, ground),
                partial(_require_control, stated, lab),
            ):
                with faults.noted(), claim.named():
                    each()
            smallest[number] = _smallest_p(stated, ground)
    _note_reach([claims[number] for number in smallest], [*smallest.values()], faults)
    faults.raise_any()


def _require_bound(stated: Statement, bound: Bound) -> None:
    outcome = get_outcome(stated.metric, period=2)
    if bound.is_share and not stated.is_path and not outcome.has_unigram:
        raise InputError(
            f"`{bound}` is a share of the advantage over token frequencies, which {stated.metric} does not have; "
            f"bound it in its own unit, as `harm >= ...` ({outcome.unit})."
        )
    if outcome.measure is Measure.ACCURACY and bound.value > 1:
        raise InputError(f"`{bound}` is impossible: {stated.metric} lies between 0 and 1.")
    if outcome.measure is Measure.ACCURACY and bound.is_absence and bound.value == 1:
        raise InputError(f"`{bound}` cannot be missed: {stated.metric} lies between 0 and 1.")
    if outcome.measure is Measure.KL and bound.quantity == Quantity.GAIN:
        raise InputError(
            f"`{bound}` is impossible: nothing is nearer to the intact model than itself ({stated.metric})."
        )


def _check_ablation(stated: Statement, ground: Ground) -> None:
    config, selection = ground.lab.config, parse_selection(stated.ablate or "")
    if stated.control == ControlKind.TEXT and text_counterpart(stated.metric) is None:
        raise InputError(
            f'control="text" asks for {stated.metric} on text where there is nothing to copy, which does not exist; '
            "use another control, or copy_loss, copy_accuracy or copy_kl."
        )
    if selection.rule is not None:
        selection.rule.require_in_model(config)
    if selection.rule is None:
        places = resolve_places(selection.text, config, stated.placed)
    else:
        places = (head(0, 0, stated.placed),)  # stands for those that the rule will find
    made = Ablating.of(stated, ground, places)
    if (refusal := made.why_not()) is not None:
        raise InputError(refusal)
    if stated.control == ControlKind.MATCHED and selection.rule is None:
        matched_for(made, stated.alpha)


def _check_path(stated: Statement, config: GPTConfig) -> None:
    require_edges(config)
    sender, receivers = parse_selection(stated.sender or ""), parse_selection(stated.receivers or "")
    for selection in (sender, receivers):
        if selection.rule is not None:
            selection.rule.require_in_model(config)
    layer = _named_layer(sender, config)
    last = config.n_layers - 1
    if receivers.rule is None:
        last = max(each for each, _ in named_heads(config, receivers.text))
    if layer >= last:
        raise InputError(
            f"{sender.text} cannot reach {receivers.text}: no receiver is in a later layer. Name an earlier sender, or "
            "later receivers."
        )
    if stated.control == ControlKind.MATCHED:
        require_senders(config.n_heads, stated.alpha)


def _named_layer(sender: Selection, config: GPTConfig) -> int:
    """The sender's layer; the first where a rule has yet to find it."""
    return named_head(config, sender.text)[0] if sender.rule is None else 0


def _require_control(stated: Statement, lab: Lab) -> None:
    if stated.control == ControlKind.STEP0 and 0 not in checkpoint_steps(lab.path):
        raise InputError(
            f'control="step0" needs a checkpoint of step 0, and {lab.name} keeps none; use another control.'
        )


def _smallest_p(stated: Statement, ground: Ground) -> float:
    """The smallest p that so many sequences allow: of several looks, at the one that allows most."""
    n = len(ground.trial(stated.metric).measured)
    if not stated.sequential:
        return smallest_sign_flip_p(n)
    sizes = look_sizes(n)
    if smallest_sign_flip_p(sizes[0]) > stated.alpha * sizes[0] / n:
        raise InputError(
            f"sequential=true looks first after {sizes[0]} of {n} sequences, where p is "
            f"{smallest_sign_flip_p(sizes[0]):.2g} at best and this look may spend {stated.alpha * sizes[0] / n:.2g} "
            "of alpha; leave it out, or allow a larger alpha."
        )
    added = [size - before for size, before in zip(sizes, (0, *sizes), strict=False)]
    return min(smallest_sign_flip_p(size) * n / more for size, more in zip(sizes, added, strict=True))


def _note_reach(claims: Sequence[Claim], smallest: Sequence[float], faults: Faults) -> None:
    """Even if every claim got the smallest p that it can, each must stay below its alpha after Holm's correction."""
    for claim, p, alone in zip(claims, holm(smallest).tolist() if claims else [], smallest, strict=True):
        if p > claim.stated.alpha:
            with faults.noted(), claim.named():
                together = "" if p == alone else f", {p:.3g} among {len(claims)} claims tested together"
                raise InputError(
                    f"alpha={claim.stated.alpha:g} cannot be reached: {claim.stated.sequences} sequences (or what "
                    f"there is) allow no sign-flip p below {alone:.3g}{together}. Take more sequences."
                )
