"""The Norms & gradients page: how its parts are laid out."""
