"""Names that users of TransformerLens know, and what they are called here.

Nothing is offered twice: the old name raises an AttributeError that says where to look.
"""

from __future__ import annotations

OF_A_GPT = {
    "cfg": "gpt.config",
    "tokenizer": "lab.tokenizer, of lab = open_run(...)",
    "to_tokens": "lab.tokens(text), of lab = open_run(...)",
    "to_str_tokens": "lab.str_tokens(tokens), of lab = open_run(...)",
    "to_string": "lab.text(tokens), of lab = open_run(...)",
    "to_single_token": "lab.tokenizer.encode(text), of lab = open_run(...)",
    "hook_dict": "gpt.named_sites()",
    "hook_points": "gpt.named_sites()",
    "mod_dict": "gpt.named_sites()",
    "add_perma_hook": "gpt.add_hook(name, f), which stays until gpt.reset_hooks()",
    "from_pretrained": "model.interop.hf.from_hf(folder), or `cutaway import`",
    "set_use_attn_result": "nothing to switch on: name hook_result in names_filter",
    "set_use_split_qkv_input": "nothing to switch on: name hook_q_input, hook_k_input or hook_v_input",
    "set_use_attn_in": "nothing to switch on: name hook_attn_in",
    "set_use_hook_mlp_in": "nothing to switch on: name hook_mlp_in",
    "fold_layer_norm": "gpt.folded_unembed() or interp.folding.folded_heads(gpt), which leave the weights alone",
    "all_composition_scores": "interp.composition.composition(gpt), which has a null beside each score",
}

OF_A_CACHE = {
    **dict.fromkeys(("decompose_resid", "logit_attrs"), "interp.attribution.logit_attribution(gpt, tokens, targets)"),
    **dict.fromkeys(("stack_head_results", "stack_activation"), 'cache.stack("result"), of any place that was cached'),
    "accumulated_resid": 'cache.stack("resid_pre"), or interp.lens.logit_lens(gpt, tokens, targets)',
    "remove_batch_dim": "cache.without_batch()",
    "cache_dict": "dict(cache)",
    "to": "run_with_cache(..., device=...)",
}


def missing(owner: str, name: str, known: dict[str, str]) -> AttributeError:
    """The error of an attribute that `owner` does not have."""
    where = f"; what you look for is {known[name]}" if name in known else ""
    return AttributeError(f"{owner} has no {name}{where}.")
