"""Can the place of a token be read off a model's inner states, and from which layer on?"""
