"""How figures look, and the panels that several measures share. Rows only, no model."""
