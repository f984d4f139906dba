"""What tasks share: the contract, and the families that several tasks belong to."""
