"""Does it matter where counting starts: what happens if all positions are shifted by the same number?"""
