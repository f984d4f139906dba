"""What tasks have in common: the contract, and the families that several tasks belong to."""
