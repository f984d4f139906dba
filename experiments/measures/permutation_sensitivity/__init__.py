"""Does a model see the order of its input, which changes of order hurt it most, and in which layers do they show?"""
