"""The Heads page: how its parts are laid out."""
