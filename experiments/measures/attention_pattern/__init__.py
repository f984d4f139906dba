"""Where do heads look: at a distance of their own, the first token, the one before, or what came next the last time?"""
