"""The Lens page: how its parts are laid out."""
