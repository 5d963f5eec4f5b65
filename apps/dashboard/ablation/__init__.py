"""The Ablate page: how its parts are laid out."""
