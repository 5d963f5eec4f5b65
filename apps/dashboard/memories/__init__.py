"""The FFN memories page: how its parts are laid out."""
