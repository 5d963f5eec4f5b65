"""What every page shares: the inputs of the selection, the bar that shows it, the menu, and the keys."""
