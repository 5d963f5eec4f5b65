"""The Overview page: how its parts are laid out."""
