"""Does a model use text that lies far back, or do longer windows merely give each token more text before it?"""
